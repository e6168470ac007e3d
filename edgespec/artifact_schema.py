"""The artifact manifest as a pydantic model: the source of schemas/artifact.schema.json."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from edgespec.spec.models import Embedding, KeywordExtraction, TextClassification

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class _Document(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class ChunkDocument(_Document):
    sha256: Sha256
    size: int = Field(ge=0)


class FileDocument(_Document):
    sha256: Sha256
    size: int = Field(ge=0)
    chunks: list[ChunkDocument]


class ModelDocument(_Document):
    inputs: list[str]
    output: Literal["logits", "embedding"]
    dimensions: int = Field(ge=1)
    quantization: Literal["none", "fp16", "int8", "int4"]


class ArtifactDocument(_Document):
    """A manifest: its SHA-256, as canonical JSON, is the artifact's digest."""

    format: Literal["edgespec.artifact/v1"]
    engine: Literal["edge", "onnxruntime"]
    task: Annotated[TextClassification | KeywordExtraction | Embedding, Field(discriminator="type")]
    model: ModelDocument
    files: dict[str, FileDocument]

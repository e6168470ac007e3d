"""Write schemas/*.schema.json from the models; with --check, fail when a file is not what it would write."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from edgespec.artifact_schema import ArtifactDocument
from edgespec.attestation_schema import EnvelopeDocument, StatementDocument
from edgespec.evaluation import EvaluationDocument
from edgespec.frontier import TuneDocument
from edgespec.measurement import BenchDocument
from edgespec.plan.comparison_document import DiffDocument
from edgespec.plan.document import DriftReport, PlanDocument
from edgespec.render.config import ConfigDocument
from edgespec.render.events import EventDocument
from edgespec.render.plans import PlansDocument
from edgespec.render.releases_document import HistoryDocument, PromotionDocument
from edgespec.spec.models import EdgeModel, Project
from edgespec.spec.releases import Releases
from edgespec.state.codec import StateDocument
from edgespec.state.journal import EntryDocument
from edgespec.verification import VerificationDocument

FOLDER = Path(__file__).parent.parent / "schemas"
MODELS: dict[str, tuple[type[BaseModel], str]] = {
    "project": (Project, "edgespec.yaml"),
    "spec": (EdgeModel, "An EdgeModel document"),
    "releases": (Releases, "releases/ENVIRONMENT.yaml"),
    "promotion": (PromotionDocument, "What edgespec promote wrote"),
    "history": (HistoryDocument, "What edgespec history found"),
    "state": (StateDocument, "edgespec's state of one environment"),
    "state-journal": (EntryDocument, "One line of the journal of a state of edgespec"),
    "plan": (PlanDocument, "A plan of edgespec"),
    "diff": (DiffDocument, "What edgespec diff found"),
    "plans": (PlansDocument, "Plans of several environments by edgespec"),
    "config": (ConfigDocument, "A spec as an environment has it"),
    "drift": (DriftReport, "What edgespec drift found"),
    "event": (EventDocument, "A line of edgespec apply --json"),
    "artifact": (ArtifactDocument, "The manifest of an edgespec artifact"),
    "provenance": (EnvelopeDocument, "The DSSE envelope of an artifact's provenance"),
    "statement": (StatementDocument, "An artifact's provenance: in-toto Statement v1, SLSA Provenance v1"),
    "verification": (VerificationDocument, "What edgespec verify found"),
    "evaluation": (EvaluationDocument, "What edgespec eval measured"),
    "tune": (TuneDocument, "A search by edgespec tune"),
    "bench": (BenchDocument, "A measurement by edgespec bench"),
}


def render(model: type[BaseModel], title: str) -> str:
    schema: dict[str, Any] = model.model_json_schema()
    schema.pop("title", None)
    if model is Project:
        schema = overlaid(schema)
    document = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": title, **schema}
    return json.dumps(document, indent=2, ensure_ascii=False, sort_keys=False) + "\n"


def overlaid(project: dict[str, Any]) -> dict[str, Any]:
    """The project's schema with `overrides` as partial specs: what is required elsewhere may be left out, and anything
    may be `null`, which removes it. What has an identity cannot be overlaid."""
    spec = _partial(EdgeModel.model_json_schema())
    shapes: dict[str, Any] = spec.pop("$defs")
    for name in ("apiVersion", "kind"):
        del spec["properties"][name]
    del shapes["Metadata"]["properties"]["name"]
    shapes["EdgeModel"] = spec
    project["$defs"] |= {f"Overlay.{name}": shape for name, shape in shapes.items()}
    environment = project["$defs"]["Environment"]["properties"]["overrides"]
    environment["additionalProperties"] = {"$ref": "#/$defs/Overlay.EdgeModel"}
    return project


_LEFT_OUT = ("required", "discriminator", "minProperties", "default")


def _partial(value: Any) -> Any:
    if isinstance(value, list):
        return [_partial(v) for v in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for key, inner in value.items():
        if key in ("properties", "patternProperties", "$defs"):  # names, not words of the schema
            each = _or_null if key != "$defs" else _same
            found[key] = {name: each(_partial(shape)) for name, shape in inner.items()}
        elif key == "additionalProperties" and isinstance(inner, dict):
            found[key] = _or_null(_partial(inner))
        elif key == "$ref":
            found[key] = inner.replace("#/$defs/", "#/$defs/Overlay.")
        elif key not in _LEFT_OUT:
            found["anyOf" if key == "oneOf" else key] = _partial(inner)
    return found


def _same(schema: Any) -> Any:
    return schema


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def main() -> int:
    check = "--check" in sys.argv
    stale = []
    for name, (model, title) in MODELS.items():
        path, text = FOLDER / f"{name}.schema.json", render(model, title)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        print(f"stale: {', '.join(stale)}; run scripts/schemas.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

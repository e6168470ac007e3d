"""Statements and envelopes as pydantic models: the source of schemas/statement and schemas/provenance.

What is unknown in them is somebody's extension, and stays: in-toto and DSSE ask readers for that.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Open(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True, defer_build=True)


class Subject(_Open):
    name: str
    digest: dict[str, str] = Field(min_length=1)


class Dependency(_Open):
    """Something that the build read."""

    uri: str
    digest: dict[str, str] = Field(default_factory=dict)
    """`sha256` of a file, `gitCommit` of the project; nothing where it cannot be told."""
    name: str = ""
    annotations: dict[str, Any] = Field(default_factory=dict)


class BuildDefinition(_Open):
    buildType: str
    externalParameters: dict[str, Any]
    internalParameters: dict[str, Any] = Field(default_factory=dict)
    resolvedDependencies: list[Dependency] = Field(default_factory=list)


class Builder(_Open):
    id: str
    version: dict[str, str] = Field(default_factory=dict)


class RunDetails(_Open):
    builder: Builder


class Predicate(_Open):
    buildDefinition: BuildDefinition
    runDetails: RunDetails


class StatementDocument(_Open):
    """An in-toto Statement v1 with SLSA Provenance v1, as edgespec writes it."""

    type_: str = Field(alias="_type", pattern=r"^https://in-toto\.io/Statement/v1$")
    subject: list[Subject] = Field(min_length=1)
    predicateType: str = Field(pattern=r"^https://slsa\.dev/provenance/v1$")
    predicate: Predicate

    def names(self, artifact: str) -> bool:
        """Whether it is about this artifact."""
        return any(s.digest.get("sha256") == artifact for s in self.subject)

    @property
    def builder(self) -> str:
        return self.predicate.runDetails.builder.id

    @property
    def revision(self) -> str:
        """The commit that it was built from; empty where that is none, or had changes on top."""
        for found in self.predicate.buildDefinition.resolvedDependencies:
            if (commit := found.digest.get("gitCommit")) and not found.annotations.get("dirty"):
                return commit
        return ""


class SignatureDocument(_Open):
    keyid: str = ""
    sig: str


class EnvelopeDocument(_Open):
    """A DSSE envelope; without signatures nobody vouches for what is in it."""

    payloadType: str
    payload: str
    signatures: list[SignatureDocument]

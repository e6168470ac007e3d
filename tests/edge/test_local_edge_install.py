"""Finding Node, and installing the edge's Node packages once, from the real registry."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from conftest import SOURCES

from edgespec.diagnostics import EdgespecError
from edgespec.local_edge import LocalEdge
from edgespec.local_edge.install import installed, source_files
from edgespec.local_edge.node import find_node


def copy_sources(to: Path) -> Path:
    """The sources as the wheel ships them: without node_modules."""
    to.mkdir()
    for path in source_files(SOURCES):
        shutil.copy(path, to)
    return to


def fake_node(path: Path, version: str) -> Path:
    answer = json.dumps([version, str(path)])
    path.write_text(f"#!/bin/sh\necho '{answer}'\n")
    path.chmod(0o755)
    return path


def test_node_is_found_with_its_npm() -> None:
    node = find_node()
    assert int(node.version.split(".")[0]) >= 22
    assert node.npm


@pytest.mark.parametrize("version", ["20.18.0", "nonsense"])
def test_a_chosen_node_that_will_not_do_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("EDGESPEC_NODE", str(fake_node(tmp_path / "node", version)))
    with pytest.raises(EdgespecError, match=r"EDGESPEC_NODE is .*edgespec\[local\]") as caught:
        find_node()
    assert caught.value.diagnostics.items[0].code == "ES601"


def test_a_shim_leads_to_node_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = find_node().path
    shim = tmp_path / "node"
    shim.write_text(f'#!/bin/sh\n"{node}" "$@"\n')
    shim.chmod(0o755)
    monkeypatch.setenv("EDGESPEC_NODE", str(shim))
    assert find_node().path.resolve() == node.resolve()


def test_no_node_at_all_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGESPEC_NODE", str(tmp_path / "none"))
    edge = LocalEdge(
        tmp_path / "state", port=0, sources=SOURCES, cache_dir=tmp_path / "cache", progress=lambda _line: None
    )
    with pytest.raises(EdgespecError, match=r"pip install 'edgespec\[local\]'"):
        edge.ensure()
    assert not (tmp_path / "state" / "edge.json").exists()


def test_an_old_node_on_the_path_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_node(tmp_path / "node", "18.0.0")
    monkeypatch.delenv("EDGESPEC_NODE", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(EdgespecError, match=r"is Node 18\.0\.0"):
        find_node()


def test_a_checkout_with_its_packages_is_used_as_it_is(tmp_path: Path) -> None:
    assert installed(SOURCES, tmp_path, find_node(), print) == SOURCES
    assert list(tmp_path.iterdir()) == []


def test_packages_are_installed_once_for_two_who_ask_at_once_and_the_edge_runs(tmp_path: Path) -> None:
    sources = copy_sources(tmp_path / "wheel")
    cache = tmp_path / "cache"
    lines: list[str] = []
    with ThreadPoolExecutor(2) as pool:
        homes = list(pool.map(lambda _n: installed(sources, cache, find_node(), lines.append), range(2)))
    assert homes[0] == homes[1]
    assert homes[0].parent == cache / "local-edge"
    assert [line.split()[0] for line in lines] == ["Installing", "Installed"]
    assert sorted(p.name for p in homes[0].parent.iterdir()) == sorted([homes[0].name, "install.lock"])
    edge = LocalEdge(tmp_path / "state", port=0, sources=sources, cache_dir=cache, progress=lines.append)
    try:
        edge.ensure()
        assert edge.status() is not None
        assert len([line for line in lines if line.startswith("Installing")]) == 1
    finally:
        edge.down()


def test_a_failed_installation_says_why_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = copy_sources(tmp_path / "wheel")
    lock = sources / "package-lock.json"
    lock.write_text(lock.read_text().replace('"integrity": "sha512-', '"integrity": "sha512-AAAA'))
    monkeypatch.setenv("npm_config_cache", str(tmp_path / "npm-cache"))
    monkeypatch.setenv("npm_config_fetch_retries", "0")
    with pytest.raises(EdgespecError, match="npm said") as caught:
        installed(sources, tmp_path / "cache", find_node(), lambda _line: None)
    assert caught.value.diagnostics.items[0].code == "ES604"
    assert [p.name for p in (tmp_path / "cache" / "local-edge").iterdir()] == ["install.lock"]


def test_sources_that_are_not_there_are_named(tmp_path: Path) -> None:
    with pytest.raises(EdgespecError, match=r"has no main\.mjs") as caught:
        installed(tmp_path, tmp_path, find_node(), print)
    assert caught.value.diagnostics.items[0].code == "ES603"

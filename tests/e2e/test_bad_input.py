"""What a user gets for a mistake, from the command itself: exit code 1, one clear message with its place, nothing on
stdout, no traceback, and nothing half-made left behind."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.e2e.conftest import TinyProject

EDGESPEC = Path(sys.executable).with_name("edgespec")


@pytest.fixture
def broken(tmp_path: Path, build_cache: Path) -> TinyProject:
    made = TinyProject(tmp_path / "project", build_cache, "broken")
    made.write_spec(quality={"data": "data/test.jsonl", "metrics": {"accuracy": {"min": 0.5}}})
    return made


def run(project: TinyProject, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    command = [EDGESPEC, "-C", project.root, *arguments]
    env = {**project.environ, **environ}
    return subprocess.run(command, check=False, capture_output=True, text=True, env=env)


def replace(path: str, old: str, new: str) -> Callable[[TinyProject], None]:
    def edit(project: TinyProject) -> None:
        file = project.root / path
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new, 1))

    return edit


def write(path: str, text: str) -> Callable[[TinyProject], None]:
    return lambda project: (project.root / path).write_text(text) and None


def broken_line_17(project: TinyProject) -> None:
    rows = (project.root / "data" / "train.jsonl").read_text().splitlines()
    rows[16] = '{"text": "refund it", "label": '
    (project.root / "data" / "train.jsonl").write_text("\n".join(rows) + "\n")


SPEC = "specs/tiny.yaml"
CASES: dict[str, tuple[Callable[[TinyProject], None], list[str]]] = {
    "wrong-type": (replace(SPEC, "name: tiny", "name: tiny\nworker: fast"), [f"{SPEC}:", "`worker`: expected a map"]),
    "unknown-key": (replace(SPEC, "quality:", "qualitty: 3\nquality:"), ["Unknown key", "Did you mean `quality`?"]),
    "duplicate-key": (
        replace(SPEC, "quality:", "kind: EdgeModel\nquality:"),
        ["Duplicate key", "was given before, at specs/tiny.yaml:2:1"],
    ),
    "missing-data": (lambda p: (p.root / "data/train.jsonl").unlink(), ["data/train.jsonl", "No such file"]),
    "broken-line": (broken_line_17, ["data/train.jsonl:17:"]),
    "foreign-label": (replace("data/train.jsonl", '"refund"', '"refnd"'), ["refnd", "data/train.jsonl:1:", "refund"]),
    "empty-data": (write("data/train.jsonl", ""), ["data/train.jsonl", "no example"]),
    "empty-test": (write("data/test.jsonl", "\n"), ["data/test.jsonl", "no example"]),
    "no-tokenizer": (lambda p: (p.root / "models/tiny/tokenizer.json").unlink(), ["tokenizer.json"]),
    "no-model": (replace(SPEC, "./models/tiny", "./models/tiny2"), ["models/tiny2"]),
    "no-specs": (lambda p: (p.root / SPEC).unlink(), ["edgespec.yaml", "matches no file"]),
    "later-field": (replace(SPEC, "quality:", "rollout: {steps: [5]}\nquality:"), ["Not supported yet", "rollout"]),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_in_the_project(broken: TinyProject, case: str) -> None:
    edit, expected = CASES[case]
    edit(broken)
    before = sorted(p for p in broken.root.rglob("*"))
    for command in (("validate",), ("plan",), ("apply", "--auto-approve")):
        done = run(broken, *command)
        assert done.returncode == 1
        assert done.stdout == ""
        assert "Traceback" not in done.stderr
        assert "bug in edgespec" not in done.stderr
        for text in expected:
            assert text in done.stderr
    left = [
        p for p in broken.root.rglob("*") if p not in before and p.name not in ("state", ".edgespec", "local.json.lock")
    ]
    assert left == []  # no edge, no state, no half-made file: only the lock that says who applies


def test_a_port_in_use(broken: TinyProject) -> None:
    with closing(socket.socket()) as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        broken.write_project(type="local", port=port)
        done = run(broken, "plan")
        assert done.returncode == 1
        assert str(port) in done.stderr
        assert "target.port" in done.stderr


def test_no_node(broken: TinyProject) -> None:
    done = run(broken, "plan", EDGESPEC_NODE="/nowhere/node")
    assert done.returncode == 1
    assert "EDGESPEC_NODE" in done.stderr
    assert "edgespec[local]" in done.stderr
    assert not (broken.root / ".edgespec" / "state").exists()


def test_no_project(tmp_path: Path) -> None:
    done = subprocess.run([EDGESPEC, "plan"], check=False, capture_output=True, text=True, cwd=tmp_path, env=os.environ)
    assert done.returncode == 1
    assert "edgespec.yaml" in done.stderr

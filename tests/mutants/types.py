"""Which mutants mypy refuses: as good as killed, since no check lets them through, and found without running a test."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.mutate import Mutant

TREE: Final = Path("build/mutants/types")


def refused(mutants: Sequence[Mutant]) -> frozenset[str]:
    """Ids. All mutants of a module are put beside their originals, so that mypy runs once."""
    shutil.rmtree(TREE / "edgespec", ignore_errors=True)
    shutil.copytree("edgespec", TREE / "edgespec", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy("pyproject.toml", TREE)
    by_file: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in mutants:
        by_file[mutant.file].append(mutant)
    owners = {file: _write(file, found) for file, found in by_file.items()}
    modules = [part for file in by_file for part in ("-m", file.removesuffix(".py").replace("/", "."))]
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", "--no-pretty", "--hide-error-context", *modules],
        cwd=TREE, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if ran.returncode not in (0, 1):
        raise RuntimeError(ran.stdout + ran.stderr)
    return frozenset(_owners_of_errors(ran.stdout, owners))


def _owners_of_errors(output: str, owners: Mapping[str, Mapping[int, str]]) -> set[str]:
    found = set()
    for line in output.splitlines():
        if (error := re.match(r"([^:]+):(\d+):.*\berror: ", line)) and error[1] in owners:
            owner = owners[error[1]].get(int(error[2]))
            if owner is None:
                raise RuntimeError(f"mypy finds fault with what is no mutant: {line}")
            found.add(owner)
    return found


def _write(file: str, mutants: Sequence[Mutant]) -> dict[int, str]:
    """Line -> id of the mutant that has it."""
    lines = Path(file).read_text(encoding="utf-8").splitlines()
    ends = {n.name: n.end_lineno or 0 for n in ast.parse("\n".join(lines)).body if isinstance(n, ast.ClassDef)}
    added: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for number, mutant in enumerate(mutants):
        owner, _, name = mutant.function.rpartition(".")
        text = re.sub(rf"\bdef {name}\b", f"def {name}_mutant_{number}", mutant.mutated, count=1)
        after = ends[owner] if owner else len(lines)
        added[after] += [(line, mutant.id) for line in textwrap.indent(text, "    " * bool(owner)).splitlines()]
    written: list[str] = []
    found: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        written.append(line)
        for extra, id_ in added.get(number, ()):
            written.append(extra)
            found[len(written)] = id_
    (TREE / file).write_text("\n".join(written) + "\n", encoding="utf-8")
    return found

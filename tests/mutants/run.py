"""Run mutants, each in a fork of one process that has collected the tests: about 0.2 s of CPU a mutant.

A mutant meets only the tests that call its function, those first that killed its neighbours, then the fast ones; the
first failure ends it. Results are appended to build/mutants/results.jsonl: a run that was stopped goes on where it was,
and a function that changed is tested anew. What survived is tested again when tests changed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import resource
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import pytest
from _pytest.runner import runtestprotocol

from tests.mutants.mutate import Mutant, activate, mutants_of, real_function
from tests.mutants.types import refused

FIRST: Final = (
    *(
        f"edgespec/plan/{n}.py"
        for n in ("planner", "steps", "safety", "file", "settle", "selection", "moves", "judged")
    ),
    *(f"edgespec/state/{n}.py" for n in ("codec", "journal", "edit", "working", "model")),
)
"""What decides and what is kept; all other files of both packages follow."""
TESTS: Final = (
    "tests/unit/plan",
    "tests/unit/state",
    "tests/unit/apply/test_applier.py",
    "tests/unit/benchmark/test_budget.py",
    "tests/unit/render/test_plan_output.py",
    "tests/cases/test_cases.py",
    "tests/property/test_converges.py",
    "tests/property/test_no_phantom.py",
    "tests/property/test_parts.py",
    "tests/property/test_renames.py",
    "tests/property/test_work.py",
)
LEFT_OUT: Final = ("::test_spec[", "test_growth.py", "in_any_spelling", "never_longer", "cut_first", "absurd_number")
"""What has nothing to do with plan and state, or takes long."""
EXAMPLES: Final = 5
"""Of each property, always the same ones."""
RESULTS: Final = Path("build/mutants/results.jsonl")
BY_TYPES: Final = "refused by mypy"
_MEMORY: Final = 4 << 30
_LEAST: Final = 2.0
"""Seconds of CPU that every test has."""
_WALL: Final = 300.0
"""Seconds after which a mutant that does nothing any more is ended."""


@dataclass(frozen=True, slots=True)
class Result:
    status: str
    """One of `STATUSES`."""
    killer: str = ""
    tests: str = ""
    """A digest of the tests that it survived."""


class Mutants:
    """The plugin that takes the place of pytest's loop over tests."""

    def __init__(self, mutants: Sequence[Mutant], *, tests: str) -> None:
        self.mutants = mutants
        self.tests = tests
        self.results = read_results()
        self.durations: dict[str, float] = {}
        self.covering: dict[CodeType, set[str]] = defaultdict(set)
        self.killers: dict[str, Counter[str]] = defaultdict(Counter)

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        from hypothesis import Phase, settings  # pytest wants to be the first to import it

        items[:] = [i for i in items if not any(left in i.nodeid for left in LEFT_OUT)]
        for item in items:
            function: Any = getattr(item, "obj", None)
            if (said := getattr(function, "_hypothesis_internal_use_settings", None)) is not None:
                few = min(EXAMPLES, said.max_examples)
                function._hypothesis_internal_use_settings = settings(
                    said, max_examples=few, derandomize=True, phases=(Phase.explicit, Phase.generate)
                )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:
            raise session.Interrupted("tests cannot be collected")
        left = [m for m in self.mutants if not self._is_done(m)]
        with RESULTS.open("a", encoding="utf-8") as out:
            for id_ in refused(left):
                out.write(line_of(id_, Result(BY_TYPES)))
                self.results[id_] = Result(BY_TYPES)
        left = [m for m in left if not self._is_done(m)]
        say(f"{len(self.mutants)} mutants, {len(left)} to run; {len(session.items)} tests")
        if left:
            self._cover(session.items, {real_function(m).__code__ for m in left})
            items = {i.nodeid: i for i in session.items}
            self._leave_out_what_fails_in_a_fork(items)
            say(f"tests take {sum(self.durations.values()):.1f} s of CPU")
            with RESULTS.open("a", encoding="utf-8") as out:
                for number, mutant in enumerate(left, 1):
                    result = self._run(mutant, items)
                    self.results[mutant.id] = result
                    out.write(line_of(mutant.id, result))
                    out.flush()
                    if number % 50 == 0:
                        say(f"{number} of {len(left)}: {mutant.file}")
        return True

    def _is_done(self, mutant: Mutant) -> bool:
        known = self.results.get(mutant.id)
        return known is not None and (known.status in ("killed", BY_TYPES) or known.tests == self.tests)

    def _cover(self, items: Sequence[pytest.Item], codes: set[CodeType]) -> None:
        """Every test once, unchanged: who calls what, and how long it takes."""
        called: set[CodeType] = set()

        def watch(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and frame.f_code in codes:
                called.add(frame.f_code)

        for item, following in zip(items, [*items[1:], None], strict=True):
            called.clear()
            started = time.process_time()
            threading.setprofile(watch)
            sys.setprofile(watch)
            try:
                reports = runtestprotocol(item, log=False, nextitem=following)
            finally:
                sys.setprofile(None)
                threading.setprofile(None)  # type: ignore[arg-type]
            if any(r.failed for r in reports):
                say(f"left out, since it fails without a mutant: {item.nodeid}")
                continue
            self.durations[item.nodeid] = time.process_time() - started
            for code in called:
                self.covering[code].add(item.nodeid)

    def _leave_out_what_fails_in_a_fork(self, items: dict[str, pytest.Item]) -> None:
        """A test that cannot be run there would kill every mutant that it meets."""
        while True:
            names = sorted(self.durations, key=lambda n: self.durations[n])
            ended, killer = in_fork(None, [(items[n], _LEAST + 4 * self.durations[n]) for n in names])
            if ended == "survived":
                return
            if killer not in self.durations:
                raise RuntimeError(f"the tests end by {killer} without a mutant")
            say(f"left out, since it fails in a fork: {killer}")
            del self.durations[killer]
            for covering in self.covering.values():
                covering.discard(killer)

    def _run(self, mutant: Mutant, items: dict[str, pytest.Item]) -> Result:
        names = self.covering.get(real_function(mutant).__code__, set())
        if not names:
            return Result("untested", tests=self.tests)
        killers = self.killers[mutant.file + mutant.function]
        ordered = sorted(names, key=lambda n: (-killers[n], self.durations[n], n))
        ended, killer = in_fork(mutant, [(items[n], _LEAST + 4 * self.durations[n]) for n in ordered])
        if ended == "killed":
            killers[killer] += 1
        return Result(ended, killer, "" if ended == "killed" else self.tests)


def in_fork(mutant: Mutant | None, tests: Sequence[tuple[pytest.Item, float]]) -> tuple[str, str]:
    """How it ended, and the test that failed. Each test has so many seconds of CPU."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _child(mutant, tests, writing)
    os.close(writing)
    watch = threading.Timer(_WALL, os.kill, (child, signal.SIGKILL))
    watch.start()
    with os.fdopen(reading, "rb") as answer:
        killer = answer.read().decode()
    _, status = os.waitpid(child, 0)
    watch.cancel()
    watch.join()
    if os.WIFSIGNALED(status):
        slow = os.WTERMSIG(status) in (signal.SIGVTALRM, signal.SIGKILL)
        return ("timeout" if slow else "killed"), f"signal {os.WTERMSIG(status)}"
    return ("killed", killer) if killer else ("survived", "")


def _child(mutant: Mutant | None, tests: Sequence[tuple[pytest.Item, float]], writing: int) -> None:
    """Never returns."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    try:
        if mutant is not None:
            activate(mutant)
        for number, (item, seconds) in enumerate(tests, 1):
            following = tests[number][0] if number < len(tests) else None
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds)  # SIGVTALRM ends the process
            if any(r.failed for r in runtestprotocol(item, log=False, nextitem=following)):
                os.write(writing, item.nodeid.encode())
                os._exit(1)
    except BaseException as e:  # noqa: BLE001
        os.write(writing, repr(e).encode() or b"?")
        os._exit(1)
    os._exit(0)


# --- results ---------------------------------------------------------------------------------------------------------


def line_of(id_: str, result: Result) -> str:
    return json.dumps({"id": id_, "status": result.status, "killer": result.killer, "tests": result.tests}) + "\n"


def read_results() -> dict[str, Result]:
    if not RESULTS.exists():
        return {}
    found = {}
    for line in RESULTS.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):  # the last line of a run that was killed
            said = json.loads(line)
            found[said["id"]] = Result(said["status"], said["killer"], said["tests"])
    return found


def digest_of_tests() -> str:
    sums = hashlib.sha256(repr((TESTS, LEFT_OUT, EXAMPLES)).encode())
    for path in sorted(p for p in Path("tests").rglob("*") if p.suffix in (".py", ".yaml", ".json", ".txt", ".md")):
        if "mutants" not in path.parts:
            sums.update(path.read_bytes())
    return sums.hexdigest()[:16]


STATUSES: Final = (BY_TYPES, "killed", "survived", "timeout", "untested", "not run")


def report(mutants: Sequence[Mutant], results: dict[str, Result]) -> Iterator[str]:
    """A table by file, then every mutant that no test noticed."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    alive = []
    for mutant in mutants:
        result = results.get(mutant.id, Result("not run"))
        counts[mutant.file][result.status] += 1
        if result.status not in ("killed", BY_TYPES):
            alive.append((mutant, result))
    yield f"| file | mutants | {' | '.join(STATUSES)} |"
    yield f"|---|{'---|' * (len(STATUSES) + 1)}"
    for file, found in [*counts.items(), ("all", sum(counts.values(), Counter()))]:
        yield f"| {file} | {found.total()} | {' | '.join(str(found[s]) for s in STATUSES)} |"
    for mutant, result in alive:
        if result.status != "not run":
            yield f"\n{result.status}: {mutant.file}:{mutant.line} {mutant.function} [{mutant.id}]"
            yield from mutant.diff()


def files() -> list[str]:
    found = {str(p) for package in ("plan", "state") for p in Path("edgespec", package).glob("*.py")}
    return [*FIRST, *sorted(found - {*FIRST})]


def say(text: str) -> None:
    os.write(2, f"{text}\n".encode())


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/mutants", description=__doc__)
    parser.add_argument("files", nargs="*", help="default: all of edgespec/plan and edgespec/state")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--report", action="store_true", help="only print what is known")
    chosen = parser.parse_args(arguments)
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    if chosen.fresh:
        RESULTS.unlink(missing_ok=True)
    mutants = [m for file in chosen.files or files() for m in mutants_of(file)]
    if not chosen.report:
        plugin = Mutants(mutants, tests=digest_of_tests())
        code = pytest.main(["-q", "--capture=no", "-p", "no:faulthandler", *TESTS], plugins=[plugin])
        if code not in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            return int(code)
    print("\n".join(report(mutants, read_results())))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

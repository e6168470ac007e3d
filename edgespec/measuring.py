"""What `bench`, `eval` and `report` do, as functions."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from edgespec.benchmark import records
from edgespec.build.cache import default_cache_dir
from edgespec.build.data import read_examples
from edgespec.build.datafiles import leakage
from edgespec.diagnostics import Diagnostics, EdgespecError, error
from edgespec.evaluation import EvaluationDocument
from edgespec.measurement import BenchDocument
from edgespec.session import Session
from edgespec.wiring import evaluator_of, maker_of


@dataclass(frozen=True, slots=True)
class Benched:
    document: BenchDocument
    kept: Path | None
    """Where `plan` finds it; None when the engine that the spec deploys was not measured."""


def bench(session: Session, name: str, *, engines: tuple[str, ...], rounds: int) -> Benched:
    """Measure one spec's model on this machine, in a local edge that lives as long as this call. Builds what is not
    in the cache; the environment's target is not asked."""
    from edgespec.benchmark.prepare import prepare
    from edgespec.benchmark.run import measure

    session.workspace.check_names((name,))

    document = measure(
        prepare(
            session.specs[name],
            session.workspace.root,
            session.cache,
            session.remote,
            engines=engines,
            rounds=rounds,
            providers=maker_of(session),
            cache_dir=default_cache_dir(session.environ),
            say=session.say,
        )
    )
    kept = records.keep(session.workspace.root, document) if document.own is not None else None
    return Benched(document, kept)


@dataclass(frozen=True, slots=True)
class Evaluated:
    document: EvaluationDocument
    warnings: Diagnostics


def evaluate(
    session: Session, name: str, *, data: str | None = None, edge: bool = False, compare: bool = True
) -> Evaluated:
    """Measure one spec's model on its quality data or another file of the project, beside what it was compressed
    from. Builds what is not in the cache; with `edge` real workerd answers, in a local edge of its own."""
    session.workspace.check_names((name,))
    spec = session.specs[name]
    path = data or (spec.quality.data if spec.quality is not None else None)
    if path is None:
        detail = f"{name} names no quality data. Give it `quality: {{data: ...}}`, or say `--data FILE`."
        raise EdgespecError(error("ES580", "the quality data cannot be measured", detail))
    document = evaluator_of(session, spec, edge=edge).evaluate(spec, path, compare=compare)
    examples = read_examples((session.workspace.root / path).read_bytes(), path, spec.task)
    leaks = leakage(spec, session.workspace.root, examples.value or (), path)
    return Evaluated(document, examples.diagnostics + leaks)

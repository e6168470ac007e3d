"""`edgespec tune`, wired: search a spec's grid, keep what was found, write the choice into the spec's file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from edgespec import measuring
from edgespec.benchmark import tune as search
from edgespec.build.events import BuildEvent
from edgespec.build.pipeline import Pipeline
from edgespec.diagnostics import EdgespecError, error
from edgespec.files import write_whole
from edgespec.frontier import TuneDocument, row_of
from edgespec.measurement import Measured, summarise
from edgespec.records import replace
from edgespec.session import Session
from edgespec.spec.edit import set_value
from edgespec.spec.models import EdgeModel
from edgespec.spec.tune import Setting
from edgespec.spec.validate import dotted, locate


def tune(session: Session, name: str, *, rounds: int | None, again: bool = True) -> TuneDocument:
    """Every variant of the spec's grid, built and measured; `rounds` of CPU measurement, None for none. Without
    `again` the last search is taken when it was of this very spec and data."""
    session.workspace.check_names((name,))
    spec = session.specs[name]
    path = _data_of(spec)
    wanted = search.spec_digest(spec, _digest(session, path))
    known = None if again else search.kept(session.workspace.root, name, wanted)
    if known is not None:
        return known
    found = _tuner(session, path, rounds).search(spec, _digest(session, path))
    search.keep(session.workspace.root, found)
    return found


def _data_of(spec: EdgeModel) -> str:
    if spec.tune is None:
        detail = (
            f"{spec.name} has no `tune`. Add the values to try, such as "
            "`tune: {quantization: [int8, int4], data: data/test.jsonl}`."
        )
        raise EdgespecError(error("ES591", "No grid to search", detail))
    path = spec.tune.data or (spec.quality.data if spec.quality is not None else None)
    if path is None:
        raise TypeError("check_tune has let a grid without data pass")
    return path


def _digest(session: Session, path: str) -> str:
    try:
        return session.cache.data_file(session.workspace.root, path).sha256
    except OSError as e:
        detail = f"{path}: {e.strerror or e}. Paths are relative to edgespec.yaml."
        raise EdgespecError(error("ES161", "File cannot be read", detail)) from None


def _tuner(session: Session, path: str, rounds: int | None) -> search.Tuner:
    def tell(event: BuildEvent) -> None:
        if not event.cached:
            session.say(f"  {event.stage}: {event.message}")

    pipeline = Pipeline(session.workspace.root, session.cache, tell, session.remote)

    def metrics(spec: EdgeModel) -> Mapping[str, float]:
        evaluated = measuring.evaluate(_alone(session, spec), spec.name, data=path, compare=False)
        return evaluated.document.variants[-1].metrics

    def bench(spec: EdgeModel) -> Measured | None:
        alone, engine = _alone(session, spec), pipeline.build(spec).engine
        benched = measuring.bench(alone, spec.name, engines=(engine,), rounds=rounds or 1)
        return summarise(benched.document)

    return search.Tuner(pipeline.build, metrics, None if rounds is None else bench, pipeline.blob, session.say)


def _alone(session: Session, spec: EdgeModel) -> Session:
    return replace(session, workspace=replace(session.workspace, specs=(spec,)))


def write_choice(session: Session, found: TuneDocument, number: int | None) -> tuple[str, tuple[Setting, ...]]:
    """Write a row's values (the choice's by default) into the file that the spec came from: the file's name, and what
    was written. Everything else in the file stays as it is. Raises EdgespecError for a row that is none."""
    chosen = found.choice if number is None else number
    row = row_of(found, chosen) if chosen is not None else None
    if row is None or row.why is not None:
        what = "no variant fits the plan" if chosen is None else f"{chosen} is not a variant that was measured"
        detail = f"{found.name}: {what}. Name one of the table: `edgespec tune {found.name} --write #`."
        raise EdgespecError(error("ES592", "Nothing to write", detail))
    node = session.workspace.nodes[found.name]
    shown = node.where.path
    path = session.workspace.root / shown
    text = _read(path)
    settings = search.settings_of(session.specs[found.name], row)
    for setting in settings:
        inside = (n.where for n in locate(node, setting.path)[0].walk())
        if (given := next((w for w in inside if w.path != shown), None)) is not None:
            detail = (
                f"In {session.workspace.environment} an overlay gives `{dotted(setting.path)}`, whatever {shown} says. "
                f"Write {setting.shown} here, or take this away."
            )
            raise EdgespecError(error("ES186", "An overlay gives this", detail, source=given))
        text = set_value(text, node.where.line, setting.path, setting.value)
    write_whole(path, text.encode())
    return shown, settings


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8")

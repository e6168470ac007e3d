"""Two EdgeModels section by section. Every leaf that differs gives a note; what a reviewer has to know gives its risk.

The build is compared elsewhere, by what its stages read (edgespec/plan/compare.py): here is what the spec says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from edgespec.spec.diff.leaves import leaves, notes, short, shown, sides
from edgespec.spec.diff.model import Note, Risk
from edgespec.spec.diff.regions import region_notes
from edgespec.spec.models import EdgeModel, Quality, TextClassification, Threshold
from edgespec.spec.pipeline import Quantization

_SPECIAL: Final = frozenset({"apiVersion", "kind", "metadata", "model", "task", "quantization", "regions", "quality"})
"""Sections that have rules of their own below; all others are compared leaf by leaf."""
_RISKS: Final[Mapping[str, tuple[Risk, str]]] = {
    "worker.engine": (Risk.MEDIUM, "another engine computes the answers"),
    "worker.plan": (Risk.MEDIUM, "other limits hold for CPU and requests"),
    "cache.weights.tiers": (Risk.MEDIUM, "cold requests load the weights from elsewhere"),
}
_WIDTHS: Final = {"none": 32, "fp16": 16, "int8": 8, "bnb": 8, "int4": 4, "awq": 4, "gptq": 4}


def spec_notes(before: EdgeModel, after: EdgeModel) -> Iterator[Note]:
    """Everything that the two say differently, names apart."""
    yield from _labels(before, after)
    yield from _model(before, after)
    yield from _task(before, after)
    yield from _quantization(before.quantization, after.quantization)
    yield from _quality(before.quality, after.quality)
    yield from region_notes(before.regions, after.regions)
    old, new = (s.model_dump(mode="json") for s in (before, after))
    for section in sorted({*old, *new} - _SPECIAL):
        for note in notes(section, old.get(section), new.get(section), section):
            yield _judged(note)


def _judged(note: Note) -> Note:
    """With the risk that its field has."""
    if note.path == "lifecycle.prevent_destroy":
        lifted = note.before is True
        said = "prevent_destroy is lifted" if lifted else "prevent_destroy protects it from now on"
        risk, why = (Risk.HIGH, "it can be destroyed from now on") if lifted else (Risk.LOW, "")
        return Note(note.facet, note.path, said, risk, why, note.before, note.after)
    risk, why = _RISKS.get(note.path, (Risk.LOW, ""))
    return Note(note.facet, note.path, note.said, risk, why, note.before, note.after)


def _labels(before: EdgeModel, after: EdgeModel) -> Iterator[Note]:
    old, new = before.metadata.model_dump(mode="json"), after.metadata.model_dump(mode="json")
    yield from notes("labels", {**old, "name": None}, {**new, "name": None}, "metadata")


# --- model and pipeline ----------------------------------------------------------------------------------------------


def _model(before: EdgeModel, after: EdgeModel) -> Iterator[Note]:
    was, now = before.model.source, after.model.source
    if was != now:
        yield Note("build", "model.source", f"source: {was} -> {now}", Risk.MEDIUM, "another model", was, now)
    old_stages, new_stages = stages_of(before), stages_of(after)
    for name in [*old_stages, *(n for n in new_stages if n not in old_stages)]:
        old, new = old_stages.get(name), new_stages.get(name)
        path = f"model.pipeline.{name}"
        if old is None or new is None:
            said = f"stage {name} is {'new' if old is None else 'removed'}"
            yield Note("build", path, said, before=old, after=new)
        else:
            for where, one, other in leaves(old, new, path):
                yield Note("build", where, f"{name}: {_option(where, path, one, other)}", before=one, after=other)
    kept = [n for n in old_stages if n in new_stages]
    order = [n for n in new_stages if n in old_stages]
    if kept != order:
        said = f"stages in another order: {', '.join(order)}"
        yield Note("build", "model.pipeline", said, before=kept, after=order)


def _option(where: str, path: str, before: Any, after: Any) -> str:
    return sides(f"stage.{where.removeprefix(path).lstrip('.')}", before, after)


def stages_of(spec: EdgeModel) -> dict[str, Any]:
    """The pipeline's stages by the names that a build gives them: `prune`, `prune-2`."""
    found: dict[str, Any] = {}
    counts: dict[str, int] = {}
    for stage in spec.model.pipeline:
        counts[stage.kind] = counts.get(stage.kind, 0) + 1
        name = stage.kind if counts[stage.kind] == 1 else f"{stage.kind}-{counts[stage.kind]}"
        found[name] = stage.options.model_dump(mode="json", exclude_none=True)
    return found


# --- task, quantisation, gate ----------------------------------------------------------------------------------------


def _task(before: EdgeModel, after: EdgeModel) -> Iterator[Note]:
    old, new = before.task.model_dump(mode="json"), after.task.model_dump(mode="json")
    if before.task.type != after.task.type:
        said = f"type: {before.task.type} -> {after.task.type}"
        why = "callers get answers of another shape"
        yield Note("task", "task", said, Risk.HIGH, why, old, new)
        return
    for note in notes("task", old, new, "task"):
        risk, why = _task_risk(note)
        yield Note(note.facet, note.path, note.said, risk, why, note.before, note.after)
    if isinstance(before.task, TextClassification) and isinstance(after.task, TextClassification):
        yield from notes("task", before.task.display or None, after.task.display or None, "task.display")


def _task_risk(note: Note) -> tuple[Risk, str]:
    before, after = note.before, note.after
    match note.path:
        case "task.labels":
            gone = [v for v in before if v not in after]
            if gone:
                return Risk.HIGH, f"callers get {_quoted(gone)} no more"
            new = [v for v in after if v not in before]
            if new:
                return Risk.MEDIUM, f"callers get answers that they do not know: {_quoted(new)}"
            return Risk.MEDIUM, "the scores stand in another order"
        case "task.multi_label" | "task.normalize":
            return Risk.HIGH, "callers get answers of another shape"
        case "task.max_tokens" if after < before:
            return Risk.MEDIUM, "longer texts are cut earlier"
        case "task.max_tokens":
            return Risk.LOW, ""
    return Risk.MEDIUM, "the same texts get other answers"


def _quoted(words: list[str]) -> str:
    return short([f"`{w}`" for w in words])


def _quantization(before: Quantization, after: Quantization) -> Iterator[Note]:
    old, new = before.model_dump(mode="json"), after.model_dump(mode="json")
    for path, was, now in leaves(old, new, "quantization"):
        risk, why = Risk.LOW, ""
        if path == "quantization.method" and _width(after) < _width(before):
            risk, why = Risk.MEDIUM, "fewer bits a weight may cost accuracy"
        yield Note("quantization", path, sides(path, was, now), risk, why, was, now)


def _width(found: Quantization) -> int:
    return found.bits or _WIDTHS[found.method]


def _quality(before: Quality | None, after: Quality | None) -> Iterator[Note]:
    if before == after:
        return
    old, new = (None if q is None else q.model_dump(mode="json", exclude_none=True) for q in (before, after))
    if after is None:
        yield Note("quality", "quality", "the gate is removed", Risk.HIGH, "nothing measures a new artifact", old, new)
        return
    if before is None:
        said = f"a gate is added: {', '.join(f'{n} {_threshold(t)}' for n, t in sorted(after.metrics.items()))}"
        yield Note("quality", "quality", said, before=old, after=new)
        return
    if before.data != after.data:
        why = "figures from before and after do not compare"
        said = f"data: {before.data} -> {after.data}"
        yield Note("quality", "quality.data", said, Risk.MEDIUM, why, before.data, after.data)
    for name in sorted({*before.metrics, *after.metrics}):
        yield from _metric(name, before.metrics.get(name), after.metrics.get(name))


def _metric(name: str, before: Threshold | None, after: Threshold | None) -> Iterator[Note]:
    path = f"quality.metrics.{name}"
    if before == after:
        return
    if after is None and before is not None:
        said = f"{name} is no longer asked for ({_threshold(before)})"
        yield Note("quality", path, said, Risk.HIGH, f"a worse {name} is let through", _plain(before), None)
    elif before is None and after is not None:
        yield Note("quality", path, f"{name} is asked for: {_threshold(after)}", after=_plain(after))
    elif before is not None and after is not None:
        for field, sign in (("min", 1), ("max_drop", -1)):
            was, now = getattr(before, field), getattr(after, field)
            if was == now:
                continue
            lowered = was is not None and (now is None or sign * (now - was) < 0)
            said = f"{name}: {field} {shown(field, was)} -> {shown(field, now)}"
            risk, why = (Risk.MEDIUM, f"a worse {name} is let through") if lowered else (Risk.LOW, "")
            yield Note("quality", f"{path}.{field}", said, risk, why, was, now)


def _plain(found: Threshold) -> Any:
    return found.model_dump(mode="json", exclude_none=True)


def _threshold(found: Threshold) -> str:
    parts = [f"at least {found.min:g}"] if found.min is not None else []
    parts += [f"at most {found.max_drop:g} below the teacher"] if found.max_drop is not None else []
    return ", ".join(parts)

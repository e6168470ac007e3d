"""Why a step runs, in a few words: what it reads has changed, or what came before it runs."""

from __future__ import annotations

from collections.abc import Mapping

from edgespec.build.stages.stage import Step
from edgespec.values import Value, is_known

_DIGEST = "_digest"


def why(step: Step, position: str | None, inputs: Mapping[str, Value], previous: Mapping[str, Value] | None) -> str:
    """The step's own reason; empty where it only follows another one.

    `previous` are the inputs that the deployed artifact was built from; `position` is the step's name among
    `inputs["pipeline"]`.
    """
    if previous is None:
        return ""
    used = _part(previous, "tools", step.tools)
    tools = [t for t in _changed(_part(inputs, "tools", step.tools), used) if t in used]
    before = _mapping(previous.get("pipeline"), position)
    if position is not None and not before:
        return "new"
    options = _changed(_mapping(inputs.get("pipeline"), position), before)
    try:
        own = _changed(step.stage.depends(inputs), step.stage.depends(previous))
    except (KeyError, TypeError):  # inputs of an older format
        own = []
    names = dict.fromkeys(n.removesuffix(_DIGEST) for n in (*options, *own))
    return ", ".join([*(f"{n} changed" for n in names), *(f"{t} upgraded" for t in tools)])


def _mapping(value: Value, name: str | None) -> Mapping[str, Value]:
    found = value.get(name) if isinstance(value, dict) and name is not None else None
    return found if isinstance(found, dict) else {}


def _part(inputs: Mapping[str, Value], name: str, keys: tuple[str, ...]) -> Mapping[str, Value]:
    found = inputs.get(name)
    return {k: found[k] for k in keys if k in found} if isinstance(found, dict) else {}


def _changed(now: Mapping[str, Value], before: Mapping[str, Value]) -> list[str]:
    """Names whose values differ; nothing is said of what is not known."""
    names = sorted({*now, *before})
    return [n for n in names if now.get(n) != before.get(n) and is_known(now.get(n)) and is_known(before.get(n))]

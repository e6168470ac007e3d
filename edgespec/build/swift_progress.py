"""What a training tool prints, read: steps, loss, metric and time left, out of its bars and its lines of measures."""

from __future__ import annotations

import ast
import math
import re
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final

from edgespec.build.problems import fail

KEPT: Final = 400
"""Lines that are kept to tell why a tool failed."""
_BAR: Final = re.compile(
    r"^\s*(?P<what>[^|]*?)\s*:?\s*\d{1,3}%\|[^|]*\|\s*(?P<done>\d+)/(?P<total>\d+)\s*\[[^<\]]*<(?P<left>[^,\]]*)"
)
_LAYERS: Final = re.compile(r"(?P<what>Quantizing) layer (?P<done>\d+) of (?P<last>\d+)\b")
"""gptqmodel's bar: layers are counted from 0."""
_FORWARD: Final = re.compile(r"^(Forward|Process|Calibration|Packing|Pre-|Load)\w*:? ?.*[█░|]")
_AFTER_BAR: Final = re.compile(r"\{'.*\}\s*$")
_STEPS: Final = "global_step/max_steps"
_NAMES: Final = {"acc": "accuracy", "token_acc": "token accuracy"}
_SHOWN: Final = ("loss", "eval_loss", "acc", "eval_acc", "token_acc", "eval_token_acc")
_TIMES: Final = re.compile(r"time|runtime|per_second|speed|memory|global_step|epoch|learning_rate")


class Reader:
    """Reads a tool's output line by line; tells the progress, keeps the last measures and lines.

    A bar counts as progress only when `bars` is in what it says of itself: a tool draws many.
    """

    def __init__(self, say: Callable[[str, float | None], None], *, bars: str, span: tuple[float, float] = (0, 1)):
        self.measures: dict[str, float] = {}
        self.steps: tuple[int, int] | None = None
        """Done, and in all."""
        self.lines: deque[str] = deque(maxlen=KEPT)
        self._say, self._bars, self._span = say, re.compile(bars), span
        self._last: tuple[str, float | None] | None = None

    def line(self, text: str) -> None:
        """Raises ES554 once the loss is no number: what follows is lost time."""
        if found := _AFTER_BAR.search(text):
            measures = _mapping(found[0])
            if measures is not None:
                return self._measured(measures)
        if bar := _BAR.match(text):
            if self._bars.search(bar["what"]):
                self._step(int(bar["done"]), int(bar["total"]), bar["left"])
            return None
        if layers := _LAYERS.search(text):
            if self._bars.search(layers["what"]):
                self._step(int(layers["done"]), int(layers["last"]) + 1, "")
            return None
        if not _FORWARD.match(text):
            self.lines.append(text)
        return None

    def _measured(self, found: Mapping[str, Any]) -> None:
        numbers = {k: n for k, v in found.items() if (n := _number(v)) is not None}
        _refuse_nan(numbers, found)
        self.measures |= {k: v for k, v in numbers.items() if not _TIMES.search(k)}
        if done := re.fullmatch(r"(\d+)/(\d+)", str(found.get(_STEPS, ""))):
            self._step(int(done[1]), int(done[2]), str(found.get("remaining_time", "")))

    def _step(self, done: int, total: int, left: str) -> None:
        if total <= 0 or (self.steps is not None and done < self.steps[0] and total == self.steps[1]):
            return
        self.steps = (done, total)
        parts = [f"step {done} of {total}"]
        for name in _SHOWN:
            if name in self.measures:
                plain = name.removeprefix("eval_")
                prefix = "validation " if name != plain else ""
                parts.append(f"{prefix}{_NAMES.get(plain, plain)} {self.measures[name]:.4g}")
        if left.strip() and "?" not in left and done < total:
            parts.append(f"{left.strip()} left")
        start, end = self._span
        now = (", ".join(parts), start + (end - start) * min(1.0, done / total))
        if now != self._last:
            self._last = now
            self._say(*now)


def _mapping(text: str) -> Mapping[str, Any] | None:
    try:
        found = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _number(value: object) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return None


def _refuse_nan(numbers: Mapping[str, float], found: Mapping[str, Any]) -> None:
    bad = next(
        (k for k in ("loss", "train_loss", "eval_loss", "grad_norm") if not math.isfinite(numbers.get(k, 0))), ""
    )
    if not bad:
        return
    step = str(found.get(_STEPS, "")).partition("/")[0]
    at = f" at step {step}" if step else ""
    raise fail(
        "ES554",
        f"{bad} is {numbers[bad]}{at}, so the weights are lost, and nothing is kept. Lower `learning_rate` (a tenth "
        "is a start); if it is NaN from the first step on, the model that comes in is broken.",
    )

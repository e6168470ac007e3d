"""A student learns from its teacher: https://arxiv.org/abs/1503.02531, for encoders.

What the student gives is compared with what the teacher gives for the same texts: logits, softened by a temperature, or
the pooled embedding where there is no classifier; and hidden states on request.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from edgespec.build.problems import fail
from edgespec.build.torch.batches import by_length, pad, shuffled
from edgespec.build.torch.runtime import device, processors
from edgespec.build.weights import FloatArray

if TYPE_CHECKING:
    from torch import Tensor

WARM_UP: Final = 0.1
WEIGHT_DECAY: Final = 0.01
LONGEST_STEP: Final = 1.0
"""Gradients are shortened to this length."""
TEACHING: Final = 64
"""Texts in a batch when the teacher runs over all of them."""
TEACHERS_PART: Final = 0.3
"""Of the progress bar."""
Say = Callable[[str, float], None]


@dataclass(frozen=True, slots=True)
class Recipe:
    pooling: str | None
    """`mean` or `cls` for embeddings; None for logits."""
    multi_label: bool
    temperature: float
    alpha: float
    hidden: float
    epochs: float
    learning_rate: float
    batch_size: int
    seed: int


def distil(
    teacher: Any,
    student: Any,
    rows: Sequence[Sequence[int]],
    taught: FloatArray,
    labels: FloatArray,
    recipe: Recipe,
    say: Say,
) -> dict[str, float]:
    """Trains `student` in place, under `runtime.repeatable`. `rows` are its token ids, `taught` is what `teach` gave
    for the same texts; `labels` [texts, labels] are 1 or 0, NaN where nobody has said. With `recipe.hidden` the teacher
    reads the same token ids.

    Returns the loss of the last tenth of the steps, and how often student and teacher agree on `rows`. Raises
    EdgespecError (ES562) when the loss is no number any more.
    """
    import torch

    where = device()
    teacher, student, answers = teacher.to(where).eval(), student.to(where), torch.from_numpy(taught)
    comparison = _Comparison(teacher, student, recipe, where)
    weights = [*student.parameters(), *comparison.parameters()]
    optimiser = torch.optim.AdamW(weights, lr=recipe.learning_rate, weight_decay=WEIGHT_DECAY)
    generator = torch.Generator().manual_seed(recipe.seed)
    batches = _batches(rows, recipe, generator)
    rate = torch.optim.lr_scheduler.LambdaLR(optimiser, _schedule(len(batches)))
    losses, started = [], time.monotonic()
    student.train()
    for step, places in enumerate(batches):
        batch = pad([rows[i] for i in places], student.config.pad_token_id, where)
        known = torch.tensor(labels[places], device=where)
        loss = comparison(batch, answers[places].to(where), known)
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(weights, LONGEST_STEP)
        optimiser.step()
        rate.step()
        losses.append(float(loss.detach()))
        if not np.isfinite(losses[-1]):
            raise _diverged(step, losses, recipe)
        _tell(say, losses, len(batches), started)
    student.eval()
    tail = losses[-max(1, len(losses) // 10) :]
    return {"steps": len(losses), "loss": round(float(np.mean(tail)), 6), **_agreement(student, rows, answers, recipe)}


def _batches(rows: Sequence[Sequence[int]], recipe: Recipe, generator: Any) -> list[list[int]]:
    whole = shuffled(rows, recipe.batch_size, generator)
    wanted = max(1, round(recipe.epochs * len(whole)))
    while len(whole) < wanted:
        whole += shuffled(rows, recipe.batch_size, generator)
    return whole[:wanted]


def _schedule(steps: int) -> Callable[[int], float]:
    """Up to the full rate over the first tenth of the steps, down to 0 over the rest."""
    warm = max(1, round(WARM_UP * steps))
    return lambda step: min((step + 1) / warm, max(0.0, (steps - step) / max(1, steps - warm)))


def _diverged(step: int, losses: Sequence[float], recipe: Recipe) -> Exception:
    before = f"it was {losses[-2]:.3f} before" if len(losses) > 1 else "from the start"
    return fail(
        "ES562",
        f"the loss was {losses[-1]} at step {step + 1}, {before}. Lower `learning_rate`, which is "
        f"{recipe.learning_rate:g}" + (", or `hidden`." if recipe.hidden else "."),
    )


def _tell(say: Say, losses: Sequence[float], steps: int, started: float) -> None:
    done = len(losses)
    if done % 20 and done != steps:
        return
    left = (time.monotonic() - started) / done * (steps - done)
    message = f"step {done} of {steps}, loss {np.mean(losses[-20:]):.4f}, {left:.0f} s left"
    say(message, TEACHERS_PART + (1 - TEACHERS_PART) * done / steps)


# --- what the teacher says


def teach(teacher: Any, rows: Sequence[Sequence[int]], pooling: str | None, say: Say) -> FloatArray:
    """Logits [texts, labels], or embeddings [texts, width]. On a CPU batches run side by side, one thread each: as
    many as there are processors, and the same bytes for any number of them."""
    import torch

    where = device()
    teacher = teacher.to(where).eval()
    batches = list(by_length(rows, TEACHING))

    def ask(places: list[int]) -> FloatArray:
        with torch.no_grad():
            batch = pad([rows[i] for i in places], teacher.config.pad_token_id, where)
            given: FloatArray = answer(teacher(**batch), batch["attention_mask"], pooling).cpu().numpy()
        return given

    out: FloatArray | None = None
    done = 0
    workers = processors() if where.type == "cpu" else 1
    pool = ThreadPoolExecutor(workers, initializer=lambda: torch.set_num_threads(1))
    try:
        for places, given in zip(batches, pool.map(ask, batches), strict=True):
            out = np.empty((len(rows), given.shape[1]), np.float32) if out is None else out
            out[places] = given
            done += len(places)
            say(f"the teacher reads {done} of {len(rows)} texts", TEACHERS_PART * done / len(rows))
    finally:
        pool.shutdown(cancel_futures=True)
    if out is None:
        raise ValueError("no texts")
    return out


def answer(output: Any, mask: Tensor, pooling: str | None) -> Tensor:
    """What is compared: logits, or the pooled last hidden state."""
    if pooling is None:
        logits: Tensor = output.logits
        return logits
    hidden: Tensor = output.last_hidden_state
    if pooling == "cls":
        return hidden[:, 0]
    seen = mask[:, :, None].to(hidden.dtype)
    return (hidden * seen).sum(1) / seen.sum(1).clamp(min=1)


# --- what is compared


class _Comparison:
    """The loss of a batch, with the projections that it needs and that are thrown away after training."""

    def __init__(self, teacher: Any, student: Any, recipe: Recipe, where: Any) -> None:
        import torch

        self.teacher, self.student, self.recipe = teacher, student, recipe
        wide, narrow = teacher.config.hidden_size, student.config.hidden_size
        count = (1 if recipe.hidden else 0) + (1 if recipe.pooling is not None else 0)
        fresh = [torch.nn.Linear(narrow, wide, bias=False).to(where) if wide != narrow else None for _ in range(count)]
        self.states = fresh.pop() if recipe.hidden else None
        self.pooled = fresh.pop() if recipe.pooling is not None else None
        layers, own = teacher.config.num_hidden_layers, student.config.num_hidden_layers
        self.pairs = [(i, round(i * layers / own)) for i in range(own + 1)]
        """Hidden states of the student and of the teacher, the embeddings first."""

    def parameters(self) -> list[Any]:
        return [p for m in (self.states, self.pooled) if m is not None for p in m.parameters()]

    def __call__(self, batch: dict[str, Any], taught: Tensor, known: Tensor) -> Tensor:
        recipe = self.recipe
        output = self.student(**batch, output_hidden_states=bool(recipe.hidden))
        given = answer(output, batch["attention_mask"], recipe.pooling)
        if recipe.pooling is None:
            loss = logits_loss(given, taught, known, recipe)
        else:
            loss = embedding_loss(given, given if self.pooled is None else self.pooled(given), taught)
        if recipe.hidden:
            loss = loss + recipe.hidden * self._hidden(batch, output.hidden_states)
        return loss

    def _hidden(self, batch: dict[str, Any], own: Sequence[Tensor]) -> Tensor:
        import torch

        with torch.no_grad():
            wanted = self.teacher(**batch, output_hidden_states=True).hidden_states
        seen = batch["attention_mask"].bool()
        parts = []
        for mine, its in self.pairs:
            state = own[mine][seen]
            state = state if self.states is None else self.states(state)
            parts.append(torch.nn.functional.mse_loss(state, wanted[its][seen]))
        return torch.stack(parts).mean()


def logits_loss(given: Tensor, taught: Tensor, known: Tensor, recipe: Recipe) -> Tensor:
    """alpha * T^2 * KL(teacher, student at temperature T) + (1 - alpha) * cross-entropy with the labels; texts without
    labels have the first part alone, whole. Multi-label: binary cross-entropies in the place of both."""
    import torch
    from torch.nn import functional as f

    t = recipe.temperature
    labelled = ~known.isnan().any(1)
    labels = known.nan_to_num(0.0)
    if recipe.multi_label:
        soft = f.binary_cross_entropy_with_logits(given / t, torch.sigmoid(taught / t), reduction="none").mean(1)
        hard = f.binary_cross_entropy_with_logits(given, labels, reduction="none").mean(1)
    else:
        soft = f.kl_div(f.log_softmax(given / t, 1), f.log_softmax(taught / t, 1), reduction="none", log_target=True)
        soft = soft.sum(1)
        hard = -(f.log_softmax(given, 1) * labels).sum(1)
    alpha = torch.where(labelled, recipe.alpha, 1.0)
    return (alpha * t * t * soft + (1 - alpha) * hard).mean()


def embedding_loss(given: Tensor, projected: Tensor, taught: Tensor) -> Tensor:
    """The cosine distance of each embedding to the teacher's, and the squared difference of the texts' similarities to
    each other: the second needs no common width."""
    from torch.nn import functional as f

    mine, its = f.normalize(given, dim=1), f.normalize(taught, dim=1)
    distance = 1 - (f.normalize(projected, dim=1) * its).sum(1).mean()
    return distance + f.mse_loss(mine @ mine.T, its @ its.T)


def _agreement(student: Any, rows: Sequence[Sequence[int]], taught: Tensor, recipe: Recipe) -> dict[str, float]:
    """On the texts that it learned from: how often the highest logit is the same (multi-label: how many signs are),
    or the correlation of similarities."""
    import torch

    count = min(len(rows), 1000)
    own = torch.from_numpy(teach(student, rows[:count], recipe.pooling, lambda *_: None))
    its = taught[:count]
    if recipe.pooling is not None:
        pairs = [torch.nn.functional.normalize(x, dim=1) for x in (own, its)]
        flat = torch.stack([(x @ x.T).flatten() for x in pairs])
        return {"similarity": round(float(torch.corrcoef(flat)[0, 1]), 4)} if count > 1 else {}
    same = (own > 0) == (its > 0) if recipe.multi_label else own.argmax(1) == its.argmax(1)
    return {"agreement": round(float(same.float().mean()), 4)}

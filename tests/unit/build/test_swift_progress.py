"""What a tool's output tells: lines as ms-swift 4.6 and its libraries print them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from edgespec.build.swift import TRAINING
from edgespec.build.swift_progress import KEPT, Reader
from edgespec.diagnostics import Diagnostic

Refused = Callable[[str, Callable[[], object]], Diagnostic]
Said = list[tuple[str, float | None]]
MEASURED = (
    "{'loss': '1.388', 'grad_norm': '0.309', 'learning_rate': '0.0009045', 'acc': '0.1875', 'epoch': '0.2', "
    "'global_step/max_steps': '5/25', 'elapsed_time': '0s', 'remaining_time': '3m 2s', 'train_speed(s/it)': '0.12'}"
)


@pytest.fixture
def said() -> Said:
    return []


@pytest.fixture
def reader(said: Said) -> Reader:
    return Reader(lambda message, fraction: said.append((message, fraction)), bars=TRAINING)


def test_a_bar_of_steps(reader: Reader, said: Said) -> None:
    reader.line("Train:  20%|██        | 5/25 [00:10<00:40, 21.67it/s]")
    assert said == [("step 5 of 25, 00:40 left", 0.2)]


def test_measures_after_a_bar_on_the_same_line(reader: Reader, said: Said) -> None:
    reader.line(f"Train:   4%|▍         | 1/25 [00:00<00:02,  8.16it/s]          {MEASURED}")
    assert said == [("step 5 of 25, loss 1.388, accuracy 0.1875, 3m 2s left", 0.2)]
    assert reader.measures == {"loss": 1.388, "grad_norm": 0.309, "acc": 0.1875}


def test_measures_stay_for_the_bars_that_follow(reader: Reader, said: Said) -> None:
    reader.line(MEASURED)
    reader.line("Train:  80%|████████  | 20/25 [00:00<?, 29.35it/s]")
    reader.line("{'eval_loss': 0.5, 'eval_acc': 0.75, 'eval_runtime': '0.1', 'epoch': 1.0}")
    reader.line("Train: 100%|██████████| 25/25 [00:02<00:00, 29.35it/s]")
    assert said[1:] == [
        ("step 20 of 25, loss 1.388, accuracy 0.1875", 0.8),
        ("step 25 of 25, loss 1.388, validation loss 0.5, accuracy 0.1875, validation accuracy 0.75", 1.0),
    ]
    assert "eval_runtime" not in reader.measures


def test_other_bars_are_no_progress_and_no_last_words(reader: Reader, said: Said) -> None:
    reader.line("Map: 100%|██████████| 400/400 [00:00<00:00, 2000.00 examples/s]")
    reader.line("Loading weights:  50%|█████     | 1/2 [00:00<00:00]")
    assert said == []
    assert list(reader.lines) == []


def test_the_same_step_is_told_once_and_time_does_not_go_back(reader: Reader, said: Said) -> None:
    for done in (3, 3, 2, 4):
        reader.line(f"Train:  1%|     | {done}/25 [00:00<00:10, 1.0it/s]")
    assert [fraction for _, fraction in said] == [0.12, 0.16]


def test_a_part_of_a_stage(said: Said) -> None:
    reader = Reader(lambda *told: said.append(told), bars="^Quantizing", span=(0.5, 1.0))
    reader.line("Quantizing model.layers blocks :  50%|█████     | 1/2 [00:01<00:01,  1.2s/it]")
    assert said == [("step 1 of 2, 00:01 left", 0.75)]


def test_the_bar_of_gptqmodel(said: Said) -> None:
    reader = Reader(lambda *told: said.append(told), bars="^Quantizing", span=(0.0, 1.0))
    reader.line("Quantizing layer 1 of 3 [1 of 3] ████████░░░░░░░░| 0:00:00 / 0:00:00 [2/4] 50.0%")
    reader.line("Forward: Layer=`model.layers.0`, subset=1/4, batches=16 ███| 0:00:00 / 0:00:00")
    assert said == [("step 1 of 4", 0.25)]
    assert list(reader.lines) == []


def test_other_lines_are_kept_to_tell_why_it_failed(reader: Reader, said: Said) -> None:
    for i in range(KEPT + 5):
        reader.line(f"[INFO:swift] line {i}")
    assert len(reader.lines) == KEPT
    assert reader.lines[-1] == f"[INFO:swift] line {KEPT + 4}"
    reader.line("{'not': measures")
    assert said == []


@pytest.mark.parametrize(
    "bad", ["'loss': 'nan'", "'loss': 0.0, 'grad_norm': 'nan'", "'loss': 'inf'", "'eval_loss': nan_"]
)
def test_a_loss_that_is_no_number_ends_the_run(reader: Reader, refused: Refused, bad: str) -> None:
    line = "{" + bad.replace("nan_", "'nan'") + ", 'global_step/max_steps': '10/25'}"
    diagnostic = refused("ES554", lambda: reader.line(line))
    assert "at step 10" in diagnostic.detail
    assert "learning_rate" in diagnostic.detail

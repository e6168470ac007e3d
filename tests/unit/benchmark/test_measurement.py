from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec import assets
from edgespec.measurement import ENOUGH, Burst, LoadMemory, Tally, cpu_by_row, percentile, summarise
from tests.unit.benchmark.documents import document

INTERVAL = 100.0


def burst(*samples: tuple[float, str], thread: tuple[float | None, ...] = (None, None, None)) -> Burst:
    """Two requests: 1000 to 1900 and 2000 to 2900, the profile until 3000."""
    return Burst((1000, 2000), (1900, 2900), 3000, thread, samples)


def cpu(*samples: tuple[float, str], thread: tuple[float | None, ...] = (None, None, None)) -> list[float]:
    return [round(1000 * ms, 3) for ms in burst(*samples, thread=thread).cpu_ms(INTERVAL)]


def test_a_sample_counts_the_time_since_the_one_before() -> None:
    assert cpu((1100, "run"), (1200, "run"), (1450, "run")) == [100 + 100 + 250, 0]


def test_idle_and_program_do_not_count_and_the_collector_does() -> None:
    assert cpu((1100, "idle"), (1200, "program"), (1300, "run"), (1420, "gc")) == [100 + 120, 0]


def test_the_first_sample_after_a_gap_counts_an_interval_at_most() -> None:
    assert cpu((1100, "idle"), (1800, "run")) == [INTERVAL, 0]
    assert cpu((500, "run"), (1050, "run")) == [INTERVAL, 0]
    assert cpu((1990, "run"), (2600, "run")) == [INTERVAL, INTERVAL]


def test_samples_belong_to_the_request_that_began_last() -> None:
    assert cpu((1950, "run"), (2050, "run"), (2150, "run"), (3100, "run")) == [INTERVAL, 60 + 40 + 100]


def test_what_the_thread_was_not_given_does_not_count() -> None:
    samples = ((1100, "run"), (1900, "run"), (2100, "run"), (2200, "run"))
    assert cpu(*samples, thread=(0, 300, 10_000)) == [300, 200]
    assert cpu(*samples, thread=(None, 300, 10_000)) == [900, 200]


def test_no_samples_no_cpu() -> None:
    assert cpu() == [0, 0]


def test_wall_time() -> None:
    assert burst().wall_ms == [0.9, 0.9]


def test_from_the_profiler() -> None:
    data = {"requests": [[1000, 1900, 5], [2000, 2900, 7]], "end": [3000, 9], "samples": [[1100, "run"]]}
    assert Burst.from_json(data) == burst((1100, "run"), thread=(5, 7, 9))
    assert Burst.from_json({"requests": [[1, 2, None]], "end": [3, None]}).samples == ()


def test_cpu_is_the_threads_times_the_workers_share() -> None:
    tally = Tally(thread=[10, 20], counted=[3, 5], profiled=[8, 8], hits=ENOUGH)
    assert cpu_by_row({"8": tally}) == {"8": [5, 10]}


def test_few_samples_take_the_share_of_all_rows() -> None:
    few = Tally(thread=[1, 3], counted=[0, 0], profiled=[1, 1], hits=0)
    many = Tally(thread=[10], counted=[9], profiled=[16], hits=ENOUGH)
    assert cpu_by_row({"8": few, "16": many}) == {"8": [0.5, 1.5], "16": [5.625]}


def test_without_the_threads_cpu_the_samples_stand_alone() -> None:
    tally = Tally()
    tally.add(burst(), burst((1100, "run"), (1200, "run"), (2100, "run")), INTERVAL)
    assert tally.hits == 3 and tally.wall == [0.9, 0.9]
    assert cpu_by_row({"8": tally})["8"] == pytest.approx([0.2, 0.1])


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0, 1))
def test_a_percentile_is_a_value_that_the_share_does_not_exceed(values: list[float], share: float) -> None:
    found = percentile(values, share)
    assert found in values
    assert sum(v <= found for v in values) >= share * len(values) - 1e-6


@pytest.mark.parametrize(("share", "value"), [(0.5, 2), (0.99, 4), (0, 1), (1, 4), (0.75, 3)])
def test_percentiles(share: float, value: int) -> None:
    assert percentile([4, 1, 3, 2], share) == value


def test_a_document_fits_its_schema_and_comes_back() -> None:
    made = document()
    assert assets.schema_error("bench", made.model_dump(mode="json")) is None
    assert type(made).model_validate_json(made.model_dump_json()) == made


def test_summary() -> None:
    found = summarise(document())
    assert found is not None
    assert (found.engine, found.texts, found.cpu_p50_ms, found.cpu_p99_ms) == ("edge", "own texts", 3, 4.5)
    assert (found.longest, found.longest_p50_ms, found.memory) == ("16", 4, 90_000_000)


def test_no_summary_of_another_engine() -> None:
    made = document()
    assert summarise(made.model_copy(update={"engines": made.engines[1:]})) is None


def test_memory_of_a_load() -> None:
    answer = {"heap": 2_000_000, "buffers": 24_000_000, "pauses": 1}
    load = LoadMemory.of(78_000_000, answer)
    assert load == LoadMemory(wasm=78_000_000, heap=2_000_000, buffers=24_000_000, total=104_000_000)
    assert LoadMemory.of(78_000_000, {**answer, "pauses": 0}) is None


@pytest.mark.parametrize(("total", "shown"), [(104_000_000, 104_000_000), (80_000_000, 90_000_000)])
def test_the_larger_of_a_load_and_later_counts(total: int, shown: int) -> None:
    measured = document()
    load = LoadMemory(wasm=1, heap=1, buffers=1, total=total)
    engines = tuple(e.model_copy(update={"load_memory": load}) for e in measured.engines)
    found = summarise(measured.model_copy(update={"engines": engines}))
    assert found is not None
    assert found.memory == shown

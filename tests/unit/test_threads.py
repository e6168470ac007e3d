"""Ctrl-C is heard while the main thread waits for others, also when the system gave the signal to one of them."""

from __future__ import annotations

import queue
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import FrameType

import pytest

from edgespec import threads
from edgespec.threads import spread, take

PATIENCE_S = 60


@pytest.fixture
def ended() -> Iterator[threading.Event]:
    """Ctrl-C as a terminal's program hears it; the event is set at the end, so that no thread waits on."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    end = threading.Event()
    yield end
    end.set()
    signal.signal(signal.SIGINT, before)


def waits(frame: FrameType | None) -> bool:
    """Whether a thread stands in one of the two waits, or in what they call."""
    while frame is not None and frame.f_code not in (threads.take.__code__, threads._result.__code__):
        frame = frame.f_back
    return frame is not None


def interrupt_elsewhere(end: threading.Event) -> None:
    """Once the main thread waits, a signal that interrupts this thread and nobody else."""
    while not waits(sys._current_frames()[threading.main_thread().ident or 0]):
        time.sleep(0.01)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    if not end.wait(PATIENCE_S):
        end.set()  # it was not heard: the main thread is let go


def test_while_results_are_waited_for(ended: threading.Event) -> None:
    pool = ThreadPoolExecutor(1)
    with pytest.raises(KeyboardInterrupt):
        list(spread(pool, interrupt_elsewhere, [ended]))
    assert not ended.is_set()
    pool.shutdown(wait=False)


def test_while_a_queue_is_waited_for(ended: threading.Event) -> None:
    source: queue.SimpleQueue[None] = queue.SimpleQueue()

    def work() -> None:
        interrupt_elsewhere(ended)
        source.put(None)

    threading.Thread(target=work).start()
    with pytest.raises(KeyboardInterrupt):
        take(source)
    assert not ended.is_set()


def test_results_come_in_order() -> None:
    late = threading.Event()

    def work(number: int) -> int:
        assert late.wait(PATIENCE_S) if number == 0 else not late.set()
        return number

    with ThreadPoolExecutor(2) as pool:
        assert list(spread(pool, work, range(5))) == [0, 1, 2, 3, 4]


def test_after_an_error_nothing_more_begins() -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        if number == 1:
            raise TimeoutError("its own")

    held = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(held.wait, PATIENCE_S)
        results = spread(pool, work, [0, 1, 2])
        held.set()
        assert next(results) is None
        with pytest.raises(TimeoutError, match="its own"):
            next(results)
    assert begun[:2] == [0, 1]

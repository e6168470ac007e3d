"""Waiting for other threads so that Ctrl-C is heard.

Python runs a signal's handler in the main thread, between two of its instructions. A signal that the system gives to
another thread, or that comes after the main thread last looked and before it blocks, wakes nobody: a wait without an
end would sleep on. So the waits here look up now and then (https://docs.python.org/3.11/library/signal.html).
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, wait
from typing import Final, TypeVar

T = TypeVar("T")
R = TypeVar("R")
_LISTEN_S: Final = 0.5


def take(source: queue.SimpleQueue[T]) -> T:
    """What comes next."""
    while True:
        try:
            return source.get(timeout=_LISTEN_S)
        except queue.Empty:
            continue


def spread(pool: Executor, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
    """As `pool.map`: results in order, and the first error in that order; what has not begun then never does."""
    futures = [pool.submit(function, item) for item in items]
    try:
        for future in futures:
            yield _result(future)
    finally:
        for future in futures:
            future.cancel()


def _result(future: Future[R]) -> R:
    while not future.done():
        wait((future,), _LISTEN_S)
    return future.result()

"""Ctrl-C during an apply: the first lets what was begun come to its end, the second ends the run at once."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Final

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@contextlib.contextmanager
def stoppable(say: Callable[[str], None]) -> Iterator[threading.Event]:
    """An event that the first SIGINT or SIGTERM sets; the second raises KeyboardInterrupt in the main thread, which
    leaves every block that it is in, the lock's too. Handlers are put back at the end. Outside the main thread, where
    no handler can be set, whoever runs this owns the signals."""
    stop = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def on_signal(number: int, frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()
        say("stopping: what was begun is brought to an end, nothing new is started; once more to end at once")

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    try:
        for number in _SIGNALS:
            signal.signal(number, on_signal)
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

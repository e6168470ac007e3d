"""How fast and how often an account is asked: one token bucket for every thread, pauses that the API asks for, and
patience with what may be asked again. Waiting ends at once when the run is told to stop.

Cloudflare's v4 API takes 1,200 requests in 5 minutes for everything that a token does (docs "API rate limits", read
2026-11), so the bucket stays under it over any 5 minutes. R2's S3 API is not counted there; it says 429 or 503 when it
is asked too much.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

BURST: Final = 400.0
RATE: Final = 2.6
"""Requests at once and requests a second: at most 400 + 300 x 2.6 = 1,180 in any 300 s."""
TRIES: Final = 5
"""How often a call that may be repeated is made when it fails."""
PATIENCE_S: Final = 900.0
"""How long one call may wait for an API that says "too many requests", all its pauses together."""
_FIRST_PAUSE_S: Final = 0.5
_LONGEST_PAUSE_S: Final = 20.0
_WORTH_SAYING_S: Final = 5.0

Clock = Callable[[], float]
Say = Callable[[str], None]


class NotMadeError(Exception):
    """The run was told to stop while a call waited for its turn: the call was not made."""


class Pace:
    """Safe for any number of threads. `clock` and `wait` are replaced by tests; `wait` returns whether the run was told
    to stop."""

    def __init__(
        self,
        *,
        burst: float = BURST,
        rate: float = RATE,
        clock: Clock = time.monotonic,
        wait: Callable[[float], bool] | None = None,
        jitter: Clock = random.random,
        say: Say = lambda _: None,
    ) -> None:
        self.stop = threading.Event()
        self._wait_for = wait or (lambda seconds: self.stop.wait(seconds))
        self._burst, self._rate = burst, rate
        self._clock, self._jitter, self._say = clock, jitter, say
        self._lock = threading.Lock()
        self._tokens = burst
        self._filled = clock()
        self._not_before = -math.inf

    @classmethod
    def unlimited(cls, say: Say = lambda _: None) -> Pace:
        """No bucket: for an API without a limit of its own. Pauses that it asks for are kept all the same."""
        return cls(burst=math.inf, rate=math.inf, say=say)

    def now(self) -> float:
        return self._clock()

    def take(self) -> None:
        """Wait until one more call may be made; raises NotMadeError."""
        self.wait(self._reserve())
        while (rest := self._held()) > 0:
            self.wait(rest)

    def hold(self, seconds: float) -> None:
        """Nobody calls for so long: the API has told one of us that it has had enough of all of us."""
        with self._lock:
            until = self._clock() + seconds
            if until > self._not_before and seconds >= _WORTH_SAYING_S:
                self._say(f"the API asks to wait {seconds:.0f} s: too many requests")
            self._not_before = max(self._not_before, until)

    def wait(self, seconds: float) -> None:
        """Raises NotMadeError when the run is told to stop meanwhile, or was before."""
        if self.stop.is_set() or (seconds > 0 and self._wait_for(seconds)):
            raise NotMadeError

    def spread(self, seconds: float) -> float:
        """`seconds`, more or less: callers that failed together must not come back together."""
        return seconds * (0.5 + self._jitter())

    def _reserve(self) -> float:
        """Take a token, on credit when there is none; how long until it is paid for."""
        if math.isinf(self._rate):
            return 0.0
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._filled) * self._rate)
            self._filled = now
            self._tokens -= 1
            return max(0.0, -self._tokens / self._rate)

    def _held(self) -> float:
        with self._lock:
            return self._not_before - self._clock()


class Patience:
    """What one call may still try. A refusal for too many requests counts by time, every other failure by number."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._failed = 0
        self._refused = 0
        self._since = pace.now()

    def after_failure(self) -> bool:
        """Wait and say whether to try again."""
        self._failed += 1
        if self._failed >= TRIES:
            return False
        return self._pause(self._pace.spread(_doubled(self._failed)))

    def after_refusal(self, retry_after: float | None) -> bool:
        """The call was not carried out since there were too many. Wait as long as the API asks."""
        self._refused += 1
        pause = self._pace.spread(_doubled(self._refused)) if retry_after is None else retry_after
        if self._pace.now() + pause - self._since > PATIENCE_S:
            return False
        self._pace.hold(pause)
        return self._pause(pause + (0.0 if retry_after is None else self._pace.spread(_FIRST_PAUSE_S) / 10))

    def _pause(self, seconds: float) -> bool:
        try:
            self._pace.wait(seconds)
            self._pace.take()
        except NotMadeError:
            return False
        return True


def _doubled(times: int) -> float:
    return float(min(_LONGEST_PAUSE_S, _FIRST_PAUSE_S * 2 ** (times - 1)))


def retry_after(value: str | None, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> float | None:
    """Seconds that a `Retry-After` header asks for, written as a number or as a date; None when it is neither."""
    if value is None:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - now()).total_seconds()
        except (ValueError, TypeError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None

"""The token bucket and the patience of calls, on a clock that moves only when somebody waits."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

import httpx
import pytest

from edgespec.providers.cloudflare.http import PacedClient
from edgespec.providers.cloudflare.pace import PATIENCE_S, TRIES, NotMadeError, Pace, retry_after

URL = "https://api.example/client/v4/x"
WINDOW_S, WINDOW_CALLS = 300.0, 1200


@dataclass
class Clock:
    now: float = 1000.0
    waits: list[float] = field(default_factory=list)
    stop: bool = False

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        self.now += seconds
        return self.stop

    def pace(self, **options: float) -> Pace:
        return Pace(clock=self, wait=self.wait, jitter=lambda: 0.5, **options)


@dataclass
class Api:
    """Cloudflare's limit on a clock; `refuse_until` is a time before which it answers 429 whatever comes."""

    clock: Clock
    refuse_until: float = 0.0
    retry_after: str | None = None
    answers: Callable[[int], httpx.Response | Exception] | None = None
    took: list[str] = field(default_factory=list)
    refused: int = 0
    over: int = 0
    calls: deque[float] = field(default_factory=deque)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        while self.calls and self.calls[0] <= self.clock.now - WINDOW_S:
            self.calls.popleft()
        self.calls.append(self.clock.now)
        if len(self.calls) > WINDOW_CALLS:
            self.over += 1
        if self.clock.now < self.refuse_until:
            self.refused += 1
            return httpx.Response(429, headers={"retry-after": self.retry_after} if self.retry_after else {})
        if self.answers is not None:
            answer = self.answers(len(self.took))
            self.took.append(request.method)
            if isinstance(answer, Exception):
                raise answer
            return answer
        self.took.append(str(request.url))
        return httpx.Response(200, json={"result": {}})

    def client(self, pace: Pace, *, repeatable: bool) -> PacedClient:
        return PacedClient(pace, repeatable=repeatable, transport=httpx.MockTransport(self))


@pytest.mark.parametrize("header", ["300", "7", None])
def test_a_limit_hit_for_five_minutes_loses_none_of_2000_calls(header: str | None) -> None:
    """provider#5505, octodns-cloudflare#108: 429 for 300 s, 2,000 keys."""
    clock = Clock()
    api = Api(clock, refuse_until=clock.now + 300, retry_after=header)
    with api.client(clock.pace(), repeatable=False) as client:
        for key in range(2000):
            assert client.put(f"{URL}/{key}").status_code == 200
    assert api.took == [f"{URL}/{key}" for key in range(2000)]
    assert api.over == 0
    assert api.refused <= {"300": 1, "7": 43, None: 40}[header]
    assert clock.now - 1000 < 300 + 2000 / 2.6 + 30


def test_no_window_of_five_minutes_has_more_calls_than_the_api_takes() -> None:
    clock = Clock()
    api = Api(clock)
    with api.client(clock.pace(), repeatable=True) as client:
        for key in range(5000):
            if key in (900, 2500):
                clock.now += 1e5  # the bucket is full again, and no fuller
            client.get(f"{URL}/{key}")
    assert api.over == 0


def test_a_few_calls_never_wait() -> None:
    clock = Clock()
    with Api(clock).client(clock.pace(), repeatable=True) as client:
        for _ in range(300):
            client.get(URL)
    assert not clock.waits


def test_retry_after_holds_every_thread() -> None:
    clock = Clock()
    pace = clock.pace()
    pace.hold(120)
    pace.take()
    assert clock.now == 1120
    pace.hold(5)
    pace.hold(1)  # a shorter pause does not shorten one that is asked for already
    pace.take()
    assert clock.now == 1125


def test_patience_has_an_end() -> None:
    clock = Clock()
    api = Api(clock, refuse_until=1e9, retry_after="60")
    with api.client(clock.pace(), repeatable=True) as client:
        assert client.get(URL).status_code == 429
    assert PATIENCE_S - 60 <= clock.now - 1000 <= PATIENCE_S + 60


FAILURES = {
    "500": httpx.Response(500),
    "502": httpx.Response(502),
    "522": httpx.Response(522),
    "time-out": httpx.ReadTimeout("late"),
    "cut off": httpx.Response(200, content=b'{"result": {"id": "1', headers={"content-type": "application/json"}),
    "closed": httpx.RemoteProtocolError("peer closed connection"),
}


@pytest.mark.parametrize("failure", FAILURES.values(), ids=FAILURES.keys())
def test_what_may_have_been_carried_out_is_repeated_only_where_that_does_no_harm(
    failure: httpx.Response | Exception,
) -> None:
    for repeatable, asked in ((False, 1), (True, 3)):
        clock = Clock()
        api = Api(clock, answers=lambda n: failure if n < 2 else httpx.Response(200, json={}))
        with api.client(clock.pace(), repeatable=repeatable) as client:
            if repeatable:
                assert client.post(URL).status_code == 200
            elif isinstance(failure, httpx.Response) and failure.status_code >= 500:
                assert client.post(URL).status_code == failure.status_code
            else:
                with pytest.raises(httpx.TransportError):
                    client.post(URL)
        assert len(api.took) == asked


@pytest.mark.parametrize("failure", [httpx.ConnectError("refused"), httpx.ConnectTimeout("late")])
def test_what_was_never_sent_is_always_sent_again(failure: Exception) -> None:
    clock = Clock()
    api = Api(clock, answers=lambda n: failure if n < 3 else httpx.Response(200, json={}))
    with api.client(clock.pace(), repeatable=False) as client:
        assert client.post(URL).status_code == 200
    api = Api(clock, answers=lambda n: failure)
    with api.client(clock.pace(), repeatable=True) as client, pytest.raises(type(failure)):
        client.get(URL)
    assert len(api.took) == TRIES


def test_a_refusal_is_no_reason_to_ask_again() -> None:
    for status in (400, 401, 403, 404, 409, 412):
        clock = Clock()
        api = Api(clock, answers=lambda n, s=status: httpx.Response(s, json={}))
        with api.client(clock.pace(), repeatable=True) as client:
            assert client.get(URL).status_code == status
        assert len(api.took) == 1


def test_callers_that_failed_together_do_not_come_back_together() -> None:
    paces = [Pace(jitter=lambda j=j: j) for j in (0.0, 0.3, 0.99)]
    assert len({p.spread(1.0) for p in paces}) == 3 and all(0.5 <= p.spread(1.0) < 1.5 for p in paces)


def test_a_run_that_is_stopped_sends_nothing_more() -> None:
    clock = Clock()
    pace = clock.pace()
    api = Api(clock)
    pace.stop.set()
    with api.client(pace, repeatable=True) as client, pytest.raises(NotMadeError):
        client.get(URL)
    assert not api.took


def test_a_stop_ends_a_pause_and_the_last_answer_stands() -> None:
    pace = Pace()
    api = Api(Clock(), answers=lambda n: httpx.Response(429, headers={"retry-after": "300"}))
    threading.Timer(0.05, pace.stop.set).start()
    with api.client(pace, repeatable=False) as client:
        assert client.post(URL).status_code == 429
    assert len(api.took) == 1


def test_a_long_pause_is_said_once() -> None:
    said: list[str] = []
    clock = Clock()
    pace = Pace(clock=clock, wait=clock.wait, say=said.append)
    for _ in range(8):
        pace.hold(120)
    pace.hold(0.5)
    assert said == ["the API asks to wait 120 s: too many requests"]


NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("5", 5.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("Mon, 30 Nov 2026 12:01:30 GMT", 90.0),
        ("Mon, 30 Nov 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(header: str | None, seconds: float | None) -> None:
    assert retry_after(header, lambda: NOW) == seconds

"""Faults under the Cloudflare SDK, boto3 and the reader that does without them, at the place where they would come
from: the call that sends a request.

injector = Injector()
with injector.installed():
    injector.arm(Fault.LOST, first=7, length=2)      # the 8th and the 9th request of whatever runs next
    project.apply()
    injector.disarm()
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any, Final
from unittest import mock

import botocore.awsrequest
import botocore.exceptions
import botocore.httpsession
import httpx

from edgespec.providers.cloudflare.reader import Reader
from edgespec.stores.journaled import JournaledStore


class Crash(BaseException):
    """The process is gone: nothing may catch it, and nothing of it does anything more."""


class Fault(StrEnum):
    REFUSED = "connection refused"
    TOO_MANY = "429 with Retry-After"
    BROKEN = "500, not carried out"
    GATEWAY = "502, carried out"
    TIMEOUT = "time-out after success"
    CUT = "answer cut off"
    PARTLY = "200 with unsuccessful_keys"
    KILL_BEFORE = "killed before a call"
    KILL_AFTER = "killed after a call"
    KILL_WRITE = "killed at a write of state"
    STOP = "SIGINT"


KILLS: Final = frozenset({Fault.KILL_BEFORE, Fault.KILL_AFTER, Fault.KILL_WRITE})
_RETRY_AFTER: Final = "0.01"
_SIGNAL_S: Final = 0.01
"""For the main thread to hear of it before the call goes on."""


class Injector:
    """Counts requests from `arm` on, and lets those of the armed range fail. Safe for threads."""

    def __init__(self) -> None:
        self.injected: Counter[Fault] = Counter()
        self.requests = 0
        self.writes = 0
        self._lock = threading.Lock()
        self._fault: Fault | None = None
        self._range = range(0)
        self._seen = 0
        self._dead = False

    def arm(self, fault: Fault, first: int, length: int = 1) -> None:
        with self._lock:
            if fault is Fault.PARTLY:
                first %= 2  # a first apply has one or two such calls
            self._fault, self._range, self._seen, self._dead = fault, range(first, first + length), 0, False

    def disarm(self) -> None:
        """What was killed stays dead until here: every call of its threads raises."""
        with self._lock:
            self._fault, self._dead = None, False

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        send, put, record = httpx.Client.send, botocore.httpsession.URLLib3Session.send, JournaledStore.record
        read = Reader.send

        def send_v4(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
            return self._http(request, lambda: send(client, request, **options))

        def send_read(reader: Reader, *request: Any) -> Any:
            return self._read(lambda: read(reader, *request))

        def send_s3(session: Any, request: Any) -> Any:
            return self._s3(request, lambda: put(session, request))

        def write(store: Any, *changes: Any) -> int:
            self._write()
            serial = record(store, *changes)
            self._write()
            return serial

        with (
            mock.patch.object(httpx.Client, "send", send_v4),
            mock.patch.object(botocore.httpsession.URLLib3Session, "send", send_s3),
            mock.patch.object(Reader, "send", send_read),
            mock.patch.object(JournaledStore, "record", write),
        ):
            yield

    def _next(self, *, writing: bool, bulk: bool = False) -> Fault | None:
        with self._lock:
            if self._dead:
                raise Crash
            if writing:
                self.writes += 1
            else:
                self.requests += 1
            if self._fault is None or writing != (self._fault is Fault.KILL_WRITE):
                return None
            if self._fault is Fault.PARTLY and not bulk:
                return None
            at, self._seen = self._seen, self._seen + 1
            return self._fault if at in self._range else None

    def _count(self, fault: Fault) -> None:
        with self._lock:
            self.injected[fault] += 1

    def _die(self, fault: Fault) -> None:
        self._count(fault)
        self._dead = True
        raise Crash

    def _write(self) -> None:
        if self._next(writing=True) is not None:
            self._die(Fault.KILL_WRITE)

    def _before(self, *, bulk: bool = False) -> Fault | None:
        fault = self._next(writing=False, bulk=bulk)
        if fault is Fault.KILL_BEFORE:
            self._die(fault)
        if fault is Fault.STOP:
            self._count(fault)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(_SIGNAL_S)
        return fault

    def _http(self, request: httpx.Request, call: Callable[[], httpx.Response]) -> httpx.Response:
        fault = self._before(bulk=request.method == "PUT" and request.url.path.endswith("/bulk"))
        if fault is Fault.REFUSED:
            self._count(fault)
            raise httpx.ConnectError("Connection refused", request=request)
        if fault in (Fault.TOO_MANY, Fault.BROKEN):
            self._count(fault)
            return _answer(request, 429 if fault is Fault.TOO_MANY else 500)
        if fault is Fault.PARTLY:
            return self._partly(request, call)
        response = call()
        if fault is Fault.KILL_AFTER:
            self._die(fault)
        if fault is Fault.TIMEOUT:
            self._count(fault)
            raise httpx.ReadTimeout("timed out", request=request)
        if fault is Fault.GATEWAY:
            self._count(fault)
            return _answer(request, 502)
        if fault is Fault.CUT and "json" in response.headers.get("content-type", ""):
            self._count(fault)
            content = response.content
            headers, half = {"content-type": "application/json"}, content[: len(content) // 2]
            return httpx.Response(response.status_code, headers=headers, content=half, request=request)
        return response

    def _read(self, call: Callable[[], Any]) -> Any:
        """A read without an SDK: status, headers, body."""
        fault = self._before()
        if fault is Fault.REFUSED:
            self._count(fault)
            raise ConnectionRefusedError
        if fault in (Fault.TOO_MANY, Fault.BROKEN):
            self._count(fault)
            return (429, {"retry-after": _RETRY_AFTER}, b"") if fault is Fault.TOO_MANY else (500, {}, b"")
        status, headers, body = call()
        if fault is Fault.KILL_AFTER:
            self._die(fault)
        if fault is Fault.TIMEOUT:
            self._count(fault)
            raise TimeoutError
        if fault is Fault.GATEWAY:
            self._count(fault)
            return 502, {}, b"<html>502</html>"
        if fault is Fault.CUT:
            self._count(fault)
            return status, headers, body[: len(body) // 2]
        return status, headers, body

    def _partly(self, request: httpx.Request, call: Callable[[], httpx.Response]) -> httpx.Response:
        """Every other pair is written, and the rest is named: Workers KV's changelog of 2024-11-14."""
        pairs = json.loads(request.content)
        taken, left = pairs[1::2], pairs[::2]
        self._count(Fault.PARTLY)
        body = json.dumps(taken).encode()
        request.stream = httpx.ByteStream(body)
        request.headers["content-length"] = str(len(body))
        answer = call().json() if taken else {"success": True, "errors": [], "messages": []}
        keys = [p["key"] for p in left]
        answer["result"] = {"successful_key_count": len(taken), "unsuccessful_keys": keys}
        return httpx.Response(200, json=answer, request=request)

    def _s3(self, request: Any, call: Callable[[], Any]) -> Any:
        fault = self._before()
        if fault is Fault.REFUSED:
            self._count(fault)
            raise botocore.exceptions.EndpointConnectionError(endpoint_url=request.url, error="refused")
        if fault in (Fault.TOO_MANY, Fault.BROKEN):
            self._count(fault)
            return _s3_answer(request, 429 if fault is Fault.TOO_MANY else 500)
        response = call()
        if fault is Fault.KILL_AFTER:
            self._die(fault)
        if fault is Fault.TIMEOUT:
            self._count(fault)
            raise botocore.exceptions.ReadTimeoutError(endpoint_url=request.url, error="timed out")
        if fault is Fault.GATEWAY:
            self._count(fault)
            return _s3_answer(request, 502)
        if fault is Fault.CUT and response.content:
            self._count(fault)
            response._content = response.content[: len(response.content) // 2]
        return response


def _answer(request: httpx.Request, status: int) -> httpx.Response:
    headers = {"retry-after": _RETRY_AFTER} if status == 429 else {}
    if status == 502:
        return httpx.Response(status, headers={"content-type": "text/html"}, text="<html>502</html>", request=request)
    error = {"code": 10000 + status, "message": "As the test wants it."}
    body = {"success": False, "errors": [error], "messages": [], "result": None}
    return httpx.Response(status, headers=headers, json=body, request=request)


def _s3_answer(request: Any, status: int) -> Any:
    code = {429: "TooManyRequests", 500: "InternalError", 502: "BadGateway"}[status]
    headers = {"content-type": "application/xml", **({"Retry-After": _RETRY_AFTER} if status == 429 else {})}
    answer = botocore.awsrequest.AWSResponse(request.url, status, botocore.awsrequest.HeadersDict(headers), None)
    answer._content = f"<Error><Code>{code}</Code><Message>As the test wants it.</Message></Error>".encode()
    return answer

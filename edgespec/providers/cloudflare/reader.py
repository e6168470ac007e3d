"""GETs over the standard library, for what a refresh reads: the SDKs take longer to import than a plan should run.

A reader knows one good answer, 200 with a whole body. Everything else is None, and its caller asks again through the
SDK, which knows patience, redirects and errors: a read may be made twice (docs/adr/0009-lean-reads.md).
"""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from edgespec.providers.cloudflare.pace import Pace, retry_after

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
"""Where no proxy is asked."""
_OK: Final = 200
_TOO_MANY: Final = 429
_CERTIFICATES: Final = ("SSL_CERT_FILE", "SSL_CERT_DIR")

Whole = tuple[http.client.HTTPMessage, bytes]
Answer = tuple[int, http.client.HTTPMessage, bytes]


class Reader:
    """Safe for use by several threads; keeps connections open between calls."""

    def __init__(self, timeout: float) -> None:
        """`timeout` in seconds, of each step of a call."""
        self._timeout = timeout
        self._lock = threading.Lock()
        self._idle: dict[tuple[str, str], list[http.client.HTTPConnection]] = {}
        self._direct: dict[tuple[str, str], bool] = {}

    def get(self, url: str, headers: Mapping[str, str], pace: Pace) -> Whole | None:
        """The headers and the body of a 200; None for whatever else happens. Takes its turn first, which raises
        NotMadeError; an API that has had enough is left alone by everybody for as long as it asks."""
        parts = urlsplit(url)
        place = (parts.scheme, parts.netloc)
        if not self._is_direct(place):
            return None
        pace.take()
        target = f"{parts.path}?{parts.query}" if parts.query else parts.path
        try:
            status, answered, body = self.send(place, target, headers)
        except (OSError, http.client.HTTPException):
            return None
        if status == _TOO_MANY:
            pace.hold(retry_after(answered.get("retry-after")) or 0.0)
        return (answered, body) if status == _OK else None

    def send(self, place: tuple[str, str], target: str, headers: Mapping[str, str]) -> Answer:
        """One call, made once: status, headers, the whole body. Raises OSError and HTTPException."""
        connection = self._take(place)
        try:
            connection.request("GET", target, headers=dict(headers))
            response = connection.getresponse()
            body = response.read()
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle.setdefault(place, []).append(connection)
        return response.status, response.headers, body

    def close(self) -> None:
        with self._lock:
            for connections in self._idle.values():
                for connection in connections:
                    connection.close()
            self._idle = {}

    def _take(self, place: tuple[str, str]) -> http.client.HTTPConnection:
        with self._lock:
            if self._idle.get(place):
                return self._idle[place].pop()
        scheme, host = place
        if scheme == "http":
            return http.client.HTTPConnection(host, timeout=self._timeout)
        import ssl

        import certifi

        trusted = ssl.create_default_context(cafile=certifi.where())
        return http.client.HTTPSConnection(host, timeout=self._timeout, context=trusted)

    def _is_direct(self, place: tuple[str, str]) -> bool:
        """Whether nothing of the environment says how to get there: proxies and certificates are the SDKs' business."""
        if place not in self._direct:
            self._direct[place] = urlsplit(f"//{place[1]}").hostname in LOOPBACK or not _has_own_ways(place[0])
        return self._direct[place]


def _has_own_ways(scheme: str) -> bool:
    from urllib.request import getproxies

    proxies = getproxies()
    return scheme in proxies or "all" in proxies or any(os.environ.get(name) for name in _CERTIFICATES)

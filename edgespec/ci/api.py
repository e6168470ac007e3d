"""The HTTP API of a forge: one token that goes to one address, pages, patience, errors that say what to do."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from edgespec.diagnostics import EdgespecError, error
from edgespec.secret import Secret, scrub
from edgespec.web import trust

_TRIES: Final = 4
_LONGEST_S: Final = 60.0
_TOO_MANY: Final = 429
_FORBIDDEN: Final = 403
_SERVER: Final = 500
_NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
LARGEST: Final = 64 * 2**20
"""Bytes of a download: plans of thousands of models are smaller."""


class Api:
    """`base` is the API's address, `header` how it wants the token: a header's name and what stands before the token.
    `hints` say what to do about a status. Only reads, and calls that were certainly not carried out, are repeated."""

    def __init__(
        self,
        base: str,
        token: Secret,
        header: tuple[str, str],
        hints: Mapping[int, str],
        *,
        also: Mapping[str, str] | None = None,
    ) -> None:
        name, before = header
        self.base = base.rstrip("/")
        self._hints = hints
        headers = {**(also or {}), name: before + token.reveal()}
        self._client = httpx.Client(headers=headers, timeout=30, verify=trust(base), trust_env=True)

    def close(self) -> None:
        self._client.close()

    def call(self, method: str, path: str, **options: Any) -> Any:
        """The answer's JSON value, None where there is none."""
        response = self._checked(method, self.base + path, **options)
        return response.json() if response.content else None

    def pages(self, path: str, params: Mapping[str, Any], within: str | None = None) -> Iterator[Any]:
        """The items of every page; `within` names the list where a page is an object."""
        url: str | None = self.base + path
        query: Mapping[str, Any] | None = {**params, "per_page": 100}
        while url is not None:
            response = self._checked("GET", url, params=query)
            found = response.json()
            yield from found[within] if within is not None else found
            url = response.links.get("next", {}).get("url")
            query = None
            if url is not None and not url.startswith(self.base + "/"):
                raise EdgespecError(error("ES743", "The forge does not do it", f"{path}: its next page is elsewhere."))

    def get(self, path: str) -> dict[str, Any] | None:
        """The object at `path`, None where the token may not read it or there is none."""
        response = self._sent("GET", self.base + path)
        if response.status_code in (401, _FORBIDDEN, 404):
            return None
        self._check(response, "GET", path)
        found: dict[str, Any] = response.json()
        return found

    def download(self, path: str) -> bytes:
        """A file that the API may send from a storage elsewhere: that gets no token."""
        response = self._sent("GET", self.base + path)
        if not response.is_redirect:
            self._check(response, "GET", path)
            return _limited(response.content, path)
        place = str(response.url.join(response.headers["location"]))
        with httpx.Client(timeout=120, verify=trust(place)) as other, other.stream("GET", place) as answer:
            if not answer.is_success:
                raise self._failure("GET", path, answer.status_code, "the storage does not give it")
            data = b""
            for chunk in answer.iter_bytes():
                data = _limited(data + chunk, path)
        return data

    def _checked(self, method: str, url: str, **options: Any) -> httpx.Response:
        response = self._sent(method, url, **options)
        self._check(response, method, url.removeprefix(self.base))
        return response

    def _check(self, response: httpx.Response, method: str, path: str) -> None:
        if not response.is_success:
            raise self._failure(method, path, response.status_code, _message(response))

    def _sent(self, method: str, url: str, **options: Any) -> httpx.Response:
        for left in reversed(range(_TRIES)):
            pause = 2.0 ** (_TRIES - left - 1)
            try:
                response = self._client.request(method, url, **options)
            except httpx.TransportError as e:
                if not left or not (method == "GET" or isinstance(e, _NOT_SENT)):
                    detail = scrub(f"{method} {url.removeprefix(self.base)}: {e or type(e).__name__}.")
                    raise EdgespecError(error("ES743", "The forge does not answer", detail)) from None
                time.sleep(pause)
                continue
            wait = _wait(response, method)
            if wait is None or not left:
                return response
            time.sleep(min(wait or pause, _LONGEST_S))
        raise AssertionError("the last try returns or raises")

    def _failure(self, method: str, path: str, status: int, message: str) -> EdgespecError:
        hint = self._hints.get(status, "")
        detail = f"{method} {path.split('?')[0]}: {status}, {message}.{' ' + hint if hint else ''}"
        return EdgespecError(error("ES743", "The forge does not do it", scrub(detail)))


def _wait(response: httpx.Response, method: str) -> float | None:
    """Seconds before the same call may help, 0 where nobody says; None where the answer stands."""
    after = response.headers.get("retry-after", "")
    seconds = float(after) if after.isdigit() else 0.0
    if response.status_code == _TOO_MANY or (response.status_code == _FORBIDDEN and after):
        return seconds
    return seconds if response.status_code >= _SERVER and method == "GET" else None


def _message(response: httpx.Response) -> str:
    try:
        found = response.json()
    except ValueError:
        return response.reason_phrase or "no reason given"
    said = found.get("message") or found.get("error") if isinstance(found, dict) else None
    return str(said or response.reason_phrase)[:300].rstrip(".")


def _limited(data: bytes, path: str) -> bytes:
    if len(data) > LARGEST:
        raise EdgespecError(error("ES743", "The forge does not do it", f"{path}: more than {LARGEST >> 20} MiB."))
    return data

"""The HTTP client under the Cloudflare SDK: paced, and patient only where asking twice does no harm."""

from __future__ import annotations

import json
from typing import Any, Final

import httpx

from edgespec.providers.cloudflare.pace import Pace, Patience, retry_after

NOT_SENT: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
"""No connection was made: the call was certainly not carried out."""
_TOO_MANY: Final = 429
_AGAIN: Final = 408
_SERVER: Final = 500


class PacedClient(httpx.Client):
    """`repeatable` says that a call that may have been carried out can be made again. Without it only those are
    repeated that certainly were not: refused for too many requests, or never sent."""

    def __init__(self, pace: Pace, *, repeatable: bool, **options: Any) -> None:
        super().__init__(**options)
        self._pace = pace
        self._repeatable = repeatable

    def send(self, request: httpx.Request, **options: Any) -> httpx.Response:
        patience = Patience(self._pace)
        self._pace.take()
        while True:
            try:
                response = super().send(request, **options)
                _check_whole(response, request)
            except httpx.TransportError as e:
                if not (self._repeatable or isinstance(e, NOT_SENT)) or not patience.after_failure():
                    raise
                continue
            if not self._again(response, patience):
                return response

    def _again(self, response: httpx.Response, patience: Patience) -> bool:
        status = response.status_code
        if status == _TOO_MANY:
            return patience.after_refusal(retry_after(response.headers.get("retry-after")))
        return self._repeatable and (status >= _SERVER or status == _AGAIN) and patience.after_failure()


def _check_whole(response: httpx.Response, request: httpx.Request) -> None:
    """An answer that was cut off on its way says nothing about the call."""
    if not response.is_closed or not response.headers.get("content-type", "").startswith("application/json"):
        return
    if not response.content and request.method == "HEAD":
        return
    try:
        json.loads(response.content)
    except ValueError:
        raise httpx.RemoteProtocolError("The answer is not whole JSON", request=request) from None

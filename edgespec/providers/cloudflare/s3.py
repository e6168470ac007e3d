"""boto3's S3 client as R2 takes it, paced and patient by the rules of the v4 API's client."""

from __future__ import annotations

from typing import Any, Final

from edgespec.providers.cloudflare.pace import Pace, Patience, retry_after
from edgespec.secret import Secret

CONNECT_TIMEOUT: Final = 15.0
"""Seconds until an address counts as one that does not answer."""
CONNECTIONS: Final = 32
_CONDITIONS: Final = frozenset({"if-match", "if-none-match"})
_REFUSED: Final = frozenset({"SlowDown", "TooManyRequests", "ServiceUnavailable"})
_TOO_MANY: Final = 429
_SERVER: Final = 500


def s3_client(endpoint: str, access_key: str, secret: Secret, pace: Pace) -> Any:
    import boto3
    from botocore.config import Config
    from botocore.handlers import add_expect_header

    # From boto3 1.36 on, checksum trailers are sent by default, which R2 refuses with a misleading Unauthorized
    # (gaia#3029, opentofu#2605).
    config = Config(
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        connect_timeout=CONNECT_TIMEOUT,
        retries={"mode": "standard", "total_max_attempts": 1},  # ours instead: they know Retry-After and conditions
        max_pool_connections=CONNECTIONS,
    )
    client = boto3.client(
        "s3",
        region_name="auto",
        endpoint_url=endpoint,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret.reveal(),
        config=config,
    )
    # boto3 would wait a second for a `100 Continue` that R2 does not send.
    events: Any = client.meta.events  # the stubs know nothing of handlers that answer
    events.unregister("before-call.s3", add_expect_header)
    retries = _Retries(pace)
    events.register_first("before-send.s3", retries.before)
    events.register_first("needs-retry.s3", retries.after)
    return client


class _Retries:
    def __init__(self, pace: Pace) -> None:
        self._pace = pace

    def before(self, request: Any, **_: Any) -> None:
        self._pace.take()

    def after(
        self, response: Any, request_dict: dict[str, Any], attempts: int, caught_exception: Any, **_: Any
    ) -> float | None:
        """How long botocore waits before it tries again: not at all, since the waiting is done here; None for never."""
        from botocore import exceptions as e

        patience = request_dict["context"].setdefault("edgespec_patience", Patience(self._pace))
        conditional = bool(_CONDITIONS & {name.lower() for name in request_dict["headers"]})
        if caught_exception is not None:
            unsent = isinstance(caught_exception, (e.EndpointConnectionError, e.ConnectTimeoutError))
            broken = isinstance(caught_exception, (e.HTTPClientError, e.ConnectionError))
            again = (unsent or (broken and not conditional)) and patience.after_failure()
            return 0.0 if again else None
        answer, parsed = response
        code = parsed.get("Error", {}).get("Code", "") if isinstance(parsed, dict) else ""
        if answer.status_code == _TOO_MANY or code in _REFUSED:
            return 0.0 if patience.after_refusal(retry_after(answer.headers.get("retry-after"))) else None
        if answer.status_code >= _SERVER and not conditional:
            return 0.0 if patience.after_failure() else None
        return None

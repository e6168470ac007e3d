"""AWS Signature Version 4 for a GET without a body, as R2's S3 API takes it: all that reading a list needs of boto3."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlsplit

from edgespec.secret import Secret

REGION: Final = "auto"
_SERVICE: Final = "s3"
_EMPTY: Final = hashlib.sha256(b"").hexdigest()
_SIGNED: Final = "host;x-amz-content-sha256;x-amz-date"


def signed_get(
    base: str, query: Mapping[str, str], access_key: str, secret: Secret, now: datetime
) -> tuple[str, dict[str, str]]:
    """The address with its query, and the headers that sign a GET of it at `now` (an aware time). `base` is scheme,
    host and a path that needs no quoting."""
    asked = "&".join(f"{k}={v}" for k, v in sorted((_quoted(k), _quoted(v)) for k, v in query.items()))
    parts = urlsplit(base)
    stamp = now.astimezone(UTC).strftime("%Y%m%dT%H%M%SZ")
    headers = {"host": parts.netloc, "x-amz-content-sha256": _EMPTY, "x-amz-date": stamp}
    canonical = [f"{name}:{headers[name]}" for name in _SIGNED.split(";")]
    request = "\n".join(["GET", parts.path, asked, *canonical, "", _SIGNED, _EMPTY])
    scope = f"{stamp[:8]}/{REGION}/{_SERVICE}/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", stamp, scope, hashlib.sha256(request.encode()).hexdigest()])
    key = b"AWS4" + secret.reveal().encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    authorization = f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={_SIGNED}, Signature={signature}"
    return f"{base}?{asked}" if asked else base, {**headers, "authorization": authorization}


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")

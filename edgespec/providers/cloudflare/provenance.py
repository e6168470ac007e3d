"""Provenance statements in buckets, beside the artifacts that they are about."""

from __future__ import annotations

import contextlib
from typing import Any

from edgespec.attestation import LIMIT, key_of
from edgespec.providers.cloudflare.account import Account


def fetched(account: Account, bucket: str, jurisdiction: str, artifact: str) -> bytes | None:
    """The envelope in a bucket; None where there is none, or one that is absurdly long. Raises what S3 raises."""
    s3: Any = account.s3(jurisdiction)
    try:
        body = s3.get_object(Bucket=bucket, Key=key_of(artifact))["Body"]
    except (s3.exceptions.NoSuchKey, s3.exceptions.NoSuchBucket):
        return None
    with contextlib.closing(body):
        raw = bytes(body.read(LIMIT + 1))
    return raw if len(raw) <= LIMIT else None

"""Provenance statements in buckets, beside the artifacts that they are about."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from edgespec.attestation import KEY_PREFIX, LIMIT, Envelope, key_of
from edgespec.providers.cloudflare.account import Account


def fetched(account: Account, bucket: str, jurisdiction: str, artifact: str) -> bytes | None:
    """The envelope in a bucket; None where there is none, or one that is absurdly long. Raises what S3 raises."""
    body = account.open_object(jurisdiction, bucket, key_of(artifact))
    if body is None:
        return None
    with contextlib.closing(body):
        raw = bytes(body.read(LIMIT + 1))
    return raw if len(raw) <= LIMIT else None


def put(
    account: Account, bucket: str, jurisdiction: str, artifact: str, raw: bytes, metadata: Mapping[str, str]
) -> None:
    """An envelope that nobody signed takes no other's place. Raises what S3 raises."""
    s3: Any = account.s3(jurisdiction)
    condition = {} if Envelope.decode(raw).signatures else {"IfNoneMatch": "*"}
    try:
        s3.put_object(Bucket=bucket, Key=key_of(artifact), Body=raw, Metadata=dict(metadata), **condition)
    except s3.exceptions.ClientError as e:
        if e.response.get("Error", {}).get("Code") not in ("PreconditionFailed", "412"):
            raise


def sweep(account: Account, bucket: str, jurisdiction: str) -> bool:
    """Delete the statements of a bucket that holds nothing else, which is so where somebody took their artifacts away
    by hand. False, with nothing deleted, where it holds more."""
    s3: Any = account.s3(jurisdiction)
    keys = [o["Key"] for o in s3.list_objects_v2(Bucket=bucket).get("Contents", [])]
    if not keys or not all(key.startswith(KEY_PREFIX) for key in keys):
        return False
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True})
    return True

"""A bucket as a state is kept in it: conditional writes that recognise their own bytes when an answer was lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final

from edgespec.diagnostics import error
from edgespec.stores.base import ConflictError, StoreError

_AT_ONCE: Final = 8
"""Reads in flight."""
_BATCH: Final = 1000
"""Keys that one DeleteObjects takes (R2 docs, "S3 API compatibility")."""
_TAKEN: Final = frozenset({"PreconditionFailed", "412", "ConditionalRequestConflict", "409"})
_MISSING: Final = frozenset({"NoSuchKey", "404", "NotFound"})
_DENIED: Final = frozenset(
    {"AccessDenied", "Unauthorized", "401", "403", "InvalidAccessKeyId", "SignatureDoesNotMatch"}
)


class UnansweredError(StoreError):
    """Nobody knows whether the write was done."""


@dataclass(frozen=True, slots=True)
class Object:
    data: bytes
    etag: str
    age_s: float
    """Seconds since it was written, by the store's own clock."""


class Bucket:
    """Objects of one bucket through S3. `client` gives boto3's client when the first object is asked for. Messages
    hold the API's own codes, never a token or a signature."""

    def __init__(self, name: str, client: Callable[[], Any]) -> None:
        self.name = name
        self._client = client

    def get(self, key: str) -> Object | None:
        with self._asking(key) as s3:
            try:
                answer = s3.get_object(Bucket=self.name, Key=key)
            except s3.exceptions.ClientError as e:
                if _code(e) in _MISSING:
                    return None
                raise
            with contextlib.closing(answer["Body"]) as body:
                return Object(body.read(), answer["ETag"], _age(answer))

    def get_all(self, keys: Sequence[str]) -> list[Object | None]:
        """In the order of `keys`."""
        if len(keys) < 2:
            return [self.get(k) for k in keys]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(pool.map(self.get, keys))

    def put(self, key: str, data: bytes, etag: str | None) -> str:
        """Writes an object that has this ETag now, or with None one that is not there; returns its new ETag. Raises
        ConflictError when that is not so any more. No other writer may ever write the same bytes."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            with self._asking(key) as s3:
                answer = s3.put_object(Bucket=self.name, Key=key, Body=data, ContentType=_type(key), **condition)
                return str(answer["ETag"])
        except (ConflictError, UnansweredError):
            found = self.get(key)
            if found is not None and found.data == data:  # the answer was lost, or its repetition met its own object
                return found.etag
            raise

    def put_freely(self, key: str, data: bytes) -> None:
        """Writes an object whatever is there."""
        with self._asking(key) as s3:
            s3.put_object(Bucket=self.name, Key=key, Body=data, ContentType=_type(key))

    def list(self, prefix: str) -> list[str]:
        """Keys, sorted."""
        found: list[str] = []
        more: dict[str, str] = {}
        with self._asking(prefix) as s3:
            while True:
                page = s3.list_objects_v2(Bucket=self.name, Prefix=prefix, **more)
                found += (o["Key"] for o in page.get("Contents", ()))
                if not page.get("IsTruncated"):
                    return sorted(found)
                more = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        with self._asking(keys[0]) as s3:
            for i in range(0, len(keys), _BATCH):
                doomed = [{"Key": k} for k in keys[i : i + _BATCH]]
                s3.delete_objects(Bucket=self.name, Delete={"Objects": doomed, "Quiet": True})

    @contextlib.contextmanager
    def _asking(self, key: str) -> Iterator[Any]:
        """The client, whose errors come out as StoreErrors."""
        import cloudflare
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield self._client()
        except cloudflare.APIStatusError as e:
            detail = f"the API answers with HTTP {e.status_code}. Check CLOUDFLARE_API_TOKEN."
            raise self._error(key, detail) from None
        except ClientError as e:
            raise self._refusal(key, e) from None
        except (cloudflare.APIConnectionError, BotoCoreError, Boto3Error, OSError) as e:
            detail = f"no answer ({type(e).__name__}). What was recorded before is kept; run again."
            raise UnansweredError(*self._error(key, detail).diagnostics) from None

    def _refusal(self, key: str, e: Any) -> StoreError:
        code = _code(e)
        status = e.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        if code in _TAKEN:
            return ConflictError(
                *self._error(
                    key, "another run has just written it. Nothing is changed from here on; run again."
                ).diagnostics
            )
        if code == "NoSuchBucket":
            return self._error(key, "the bucket does not exist. Make it with `edgespec state init`.")
        if code in _DENIED:
            return self._error(key, f"R2 refuses ({code}). CLOUDFLARE_API_TOKEN needs Workers R2 Storage: Edit.")
        if status >= 500 or status == 408:
            return UnansweredError(*self._error(key, f"R2 says {code}. Run again.").diagnostics)
        return self._error(key, f"R2 says {code}.")

    def _error(self, key: str, detail: str) -> StoreError:
        return StoreError(error("ES309", "State cannot be reached", f"{self.name}/{key}: {detail}"))


def _code(e: Any) -> str:
    return str(e.response.get("Error", {}).get("Code", ""))


def _type(key: str) -> str:
    return "application/json" if key.endswith((".json", ".lock")) else "text/plain"


def _age(answer: Any) -> float:
    """By the store's clock: this machine's may be wrong."""
    date = answer["ResponseMetadata"]["HTTPHeaders"].get("date")
    now = parsedate_to_datetime(date) if date else datetime.now(UTC)
    written: datetime = answer["LastModified"]
    return max(0.0, (now - written).total_seconds())

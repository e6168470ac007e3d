"""A bucket as a state is kept in it: conditional writes that recognise their own bytes when an answer was lost."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Final, Protocol

from edgespec.diagnostics import EdgespecError, error
from edgespec.stores.base import ConflictError, StoreError
from edgespec.threads import spread

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


class Reads(Protocol):
    """Reads that import no SDK (docs/adr/0009-lean-reads.md). None is no answer: whoever asked asks boto3, which knows
    what is wrong."""

    def get(self, bucket: str, key: str) -> tuple[Mapping[str, str], bytes] | None:
        """An object's headers, by their names in small letters, and its bytes."""

    def list(self, bucket: str, prefix: str) -> list[str] | None:
        """Keys, sorted."""


class Bucket:
    """Objects of one bucket through S3. `client` gives boto3's client when the first object is asked for that `reads`
    cannot give. Messages hold the API's own codes, never a token or a signature."""

    def __init__(self, name: str, client: Callable[[], Any], reads: Reads | None = None) -> None:
        self.name = name
        self._client = client
        self._reads = reads

    def get(self, key: str) -> Object | None:
        with self._asking(key):
            read = self._reads.get(self.name, key) if self._reads is not None else None
            if read is not None and "etag" in read[0]:
                return Object(read[1], read[0]["etag"], _age(read[0]))
            s3 = self._client()
            try:
                answer = s3.get_object(Bucket=self.name, Key=key)
            except s3.exceptions.ClientError as e:
                if _code(e) in _MISSING:
                    return None
                raise
            with contextlib.closing(answer["Body"]) as body:
                return Object(body.read(), answer["ETag"], _age(answer["ResponseMetadata"]["HTTPHeaders"]))

    def get_all(self, keys: Sequence[str]) -> list[Object | None]:
        """In the order of `keys`."""
        if len(keys) < 2:
            return [self.get(k) for k in keys]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            return list(spread(pool, self.get, keys))

    def put(self, key: str, data: bytes, etag: str | None) -> str:
        """Writes an object that has this ETag now, or with None one that is not there; returns its new ETag. Raises
        ConflictError when that is not so any more. No other writer may ever write the same bytes."""
        condition = {"IfNoneMatch": "*"} if etag is None else {"IfMatch": etag}
        try:
            with self._asking(key):
                s3 = self._client()
                answer = s3.put_object(Bucket=self.name, Key=key, Body=data, ContentType=_type(key), **condition)
                return str(answer["ETag"])
        except (ConflictError, UnansweredError):
            found = self.get(key)
            if found is not None and found.data == data:  # the answer was lost, or its repetition met its own object
                return found.etag
            raise

    def put_freely(self, key: str, data: bytes) -> None:
        """Writes an object whatever is there."""
        with self._asking(key):
            self._client().put_object(Bucket=self.name, Key=key, Body=data, ContentType=_type(key))

    def list(self, prefix: str) -> list[str]:
        """Keys, sorted."""
        found: list[str] = []
        more: dict[str, str] = {}
        with self._asking(prefix):
            if self._reads is not None and (listed := self._reads.list(self.name, prefix)) is not None:
                return listed
            s3 = self._client()
            while True:
                page = s3.list_objects_v2(Bucket=self.name, Prefix=prefix, **more)
                found += (o["Key"] for o in page.get("Contents", ()))
                if not page.get("IsTruncated"):
                    return sorted(found)
                more = {"ContinuationToken": page["NextContinuationToken"]}

    def delete(self, keys: Sequence[str]) -> None:
        if not keys:
            return
        with self._asking(keys[0]):
            s3 = self._client()
            for i in range(0, len(keys), _BATCH):
                doomed = [{"Key": k} for k in keys[i : i + _BATCH]]
                s3.delete_objects(Bucket=self.name, Delete={"Objects": doomed, "Quiet": True})

    @contextlib.contextmanager
    def _asking(self, key: str) -> Iterator[None]:
        """What the SDKs raise comes out as StoreErrors. They are imported where one of them has just failed."""
        try:
            yield
        except EdgespecError:
            raise
        except Exception as e:
            if (meant := self._meaning(key, e)) is None:
                raise
            raise meant from None

    def _meaning(self, key: str, e: Exception) -> StoreError | None:
        import cloudflare
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        if isinstance(e, cloudflare.APIStatusError):
            return self._error(key, f"the API answers with HTTP {e.status_code}. Check CLOUDFLARE_API_TOKEN.")
        if isinstance(e, ClientError):
            return self._refusal(key, e)
        if isinstance(e, (cloudflare.APIConnectionError, BotoCoreError, Boto3Error, OSError)):
            detail = f"no answer ({type(e).__name__}). What was recorded before is kept; run again."
            return UnansweredError(*self._error(key, detail).diagnostics)
        return None

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


def _age(headers: Mapping[str, str]) -> float:
    """By the store's clock: this machine's may be wrong."""
    date, written = headers.get("date"), headers.get("last-modified")
    now = parsedate_to_datetime(date) if date else datetime.now(UTC)
    return max(0.0, (now - parsedate_to_datetime(written)).total_seconds()) if written else 0.0

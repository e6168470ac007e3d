"""The shared build cache in an R2 bucket. The bucket belongs to no spec: `edgespec cache init` makes it, and destroying
what the project has deployed leaves it."""

from __future__ import annotations

import base64
import contextlib
import io
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from edgespec.address import Address
from edgespec.build.remote import RemoteCache, RemoteError
from edgespec.diagnostics import EdgespecError
from edgespec.providers.base import AlreadyExistsError
from edgespec.providers.cloudflare.account import TOKEN, Account, Endpoints, missing_token
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.r2_bucket import R2BucketProvider
from edgespec.records import replace
from edgespec.secret import Secret

JURISDICTION: Final = "default"
_SINGLE_PUT: Final = 4 * 2**30
"""Bytes; R2 takes at most 5 GiB less 5 MiB in one request."""
_PART: Final = 1 << 20


class R2Store:
    """Objects of one bucket. Its messages hold the API's own codes, never a token or a signature. `connect` is called
    when the bucket is first asked for something, and what it opened is closed with the store."""

    def __init__(self, connect: Callable[[], Account], bucket: str) -> None:
        self._connect = connect
        self._bucket = bucket
        self._lock = threading.Lock()
        self._account: Account | None = None

    def _s3(self) -> Any:
        with self._lock:
            if self._account is None:
                try:
                    self._account = self._connect()
                except EdgespecError as e:
                    raise RemoteError("; ".join(d.detail or d.summary for d in e.diagnostics)) from None
                weakref.finalize(self, self._account.close)
            return self._account.s3(JURISDICTION)

    @property
    def name(self) -> str:
        return f"the bucket {self._bucket}"

    def size(self, key: str) -> int | None:
        with self._asking() as s3:
            try:
                return int(s3.head_object(Bucket=self._bucket, Key=key)["ContentLength"])
            except s3.exceptions.ClientError as e:
                if _code(e) in ("404", "NoSuchKey", "NotFound"):
                    return None
                raise

    def read(self, key: str, limit: int) -> bytes | None:
        with self._asking() as s3:
            body = self._body(s3, key)
            if body is None:
                return None
            with contextlib.closing(body):
                return bytes(body.read(limit))

    def download(self, key: str, limit: int, out: IO[bytes], going_on: Callable[[], None]) -> bool:
        with self._asking() as s3:
            body = self._body(s3, key)
            if body is None:
                return False
            with contextlib.closing(body):
                while limit > 0 and (data := body.read(min(_PART, limit))):
                    out.write(data)
                    limit -= len(data)
                    going_on()
        return True

    def _body(self, s3: Any, key: str) -> Any:
        try:
            return s3.get_object(Bucket=self._bucket, Key=key)["Body"]
        except s3.exceptions.NoSuchKey:
            return None

    def upload(self, key: str, path: Path, sha256: str, going_on: Callable[[], None]) -> None:
        with self._asking() as s3, _Body(path, going_on) as body:
            if path.stat().st_size > _SINGLE_PUT:
                s3.upload_fileobj(body, self._bucket, key)
                return
            checksum = base64.b64encode(bytes.fromhex(sha256)).decode()
            s3.put_object(Bucket=self._bucket, Key=key, Body=body, ChecksumSHA256=checksum)

    def create(self, key: str, data: bytes, *, replace: bool) -> bool:
        condition = {} if replace else {"IfNoneMatch": "*"}
        with self._asking() as s3:
            try:
                s3.put_object(Bucket=self._bucket, Key=key, Body=data, **condition)
            except s3.exceptions.ClientError as e:
                if _code(e) in ("PreconditionFailed", "412"):
                    return False
                raise
        return True

    @contextlib.contextmanager
    def _asking(self) -> Iterator[Any]:
        """The S3 client, whose errors come out as RemoteErrors."""
        import cloudflare
        from boto3.exceptions import Boto3Error
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            yield self._s3()
        except cloudflare.APIStatusError as e:
            raise RemoteError(f"the API answers with HTTP {e.status_code}. Check CLOUDFLARE_API_TOKEN.") from None
        except ClientError as e:
            raise RemoteError(_sentence(_code(e))) from None
        except (cloudflare.APIConnectionError, BotoCoreError, Boto3Error) as e:
            raise RemoteError(f"it cannot be reached ({type(e).__name__}).") from None


class _Body(io.FileIO):
    """A file that stops being read when the build was stopped."""

    def __init__(self, path: Path, going_on: Callable[[], None]) -> None:
        super().__init__(path)
        self._going_on = going_on

    def read(self, size: int | None = -1, /) -> bytes:
        self._going_on()
        return super().read(-1 if size is None else size) or b""


def _code(e: Any) -> str:
    return str(e.response.get("Error", {}).get("Code", ""))


def _sentence(code: str) -> str:
    if code == "NoSuchBucket":
        return "it does not exist. Make it with `edgespec cache init`."
    if code in ("AccessDenied", "Unauthorized", "403", "401", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        return f"R2 refuses ({code}). CLOUDFLARE_API_TOKEN needs Workers R2 Storage: Edit."
    return f"R2 says {code}."


@dataclass(frozen=True, slots=True)
class RemoteOpener:
    """Opens the shared cache on another machine, whose own CLOUDFLARE_API_TOKEN it takes there: no token travels, but
    for a local edge's, which is worth nothing elsewhere."""

    endpoints: Endpoints
    bucket: str

    def __reduce__(self) -> tuple[Any, ...]:
        # Not __getstate__: before Python 3.11.4 a slotted frozen dataclass has its own (python/cpython#104035).
        e = self.endpoints
        token = e.token.reveal() if e.is_loopback else ""
        return _opener, (e.account_id, e.api_base_url, e.s3_base_url, token, self.bucket)

    def __call__(self) -> RemoteCache:
        return RemoteCache(R2Store(self._account, self.bucket), lambda found: print(found, file=sys.stderr))

    def _account(self) -> Account:
        token = self.endpoints.token or Secret(TOKEN, os.environ.get(TOKEN, ""))
        if not token:
            raise missing_token()
        return Account(replace(self.endpoints, token=token))


def _opener(account_id: str, api_base_url: str, s3_base_url: str | None, token: str, bucket: str) -> RemoteOpener:
    return RemoteOpener(Endpoints(account_id, api_base_url, Secret(TOKEN, token), s3_base_url), bucket)


def make_bucket(account: Account, bucket: str, jurisdiction: str = JURISDICTION) -> bool:
    """Makes the bucket; False when it is there already. Raises ProviderError."""
    inputs = {"name": bucket, "jurisdiction": jurisdiction, "location": None}
    try:
        R2BucketProvider(account, Live(account)).create(Address("r2_bucket", bucket), inputs, lambda *_: None)
    except AlreadyExistsError:
        return False
    return True

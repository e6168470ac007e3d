"""One Cloudflare account as the providers reach it: the v4 API through the `cloudflare` SDK, R2's objects through
boto3. The SDKs are imported when first used: a command that never calls the API never pays for them."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode, urlsplit

from msgspec import Struct

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError, error
from edgespec.providers.base import ProviderError, StoppedError, WrongAccountError
from edgespec.providers.cloudflare.pace import NotMadeError, Pace, Say
from edgespec.providers.cloudflare.reader import LOOPBACK, Reader, Whole
from edgespec.providers.cloudflare.sigv4 import signed_get
from edgespec.secret import Secret, scrub_exception, scrub_logs

if TYPE_CHECKING:
    from cloudflare import Cloudflare

TOKEN: Final = "CLOUDFLARE_API_TOKEN"  # noqa: S105  # its name
"""The environment variable that holds the API token."""
TIMEOUT: Final = 120.0
"""Seconds for one API call; uploads of a few MB over a slow line fit."""
UPLOADS: Final = 8
"""Objects on their way to R2 at once, whoever uploads them: each is held in memory."""
_MAYBE_DONE: Final = frozenset({408, 409, 425})
"""Client errors after which the object may have changed, or that say nothing about it."""
_OTHER_ACCOUNT: Final = frozenset({7000, 7003, 9109})
"""What the API says of an account that does not exist or that the token does not know."""
_DENIED: Final = frozenset({"AccessDenied", "Unauthorized", "InvalidAccessKeyId", "SignatureDoesNotMatch"})


class Endpoints(Struct, frozen=True):
    """Where an account's APIs are."""

    account_id: str
    api_base_url: str
    token: Secret
    s3_base_url: str | None = None
    """`<this>/<jurisdiction>` for a stand-in; None for R2's own addresses."""

    @property
    def is_loopback(self) -> bool:
        return urlsplit(self.api_base_url).hostname in LOOPBACK

    @property
    def origin(self) -> str:
        parts = urlsplit(self.api_base_url)
        return f"{parts.scheme}://{parts.netloc}"

    def s3(self, jurisdiction: str) -> str:
        if self.s3_base_url is not None:
            return f"{self.s3_base_url}/{jurisdiction}"
        part = "" if jurisdiction == "default" else f".{jurisdiction}"
        return f"https://{self.account_id}{part}.r2.cloudflarestorage.com"


class Paces:
    """One pace for everything that a token does, however many accounts and environments it opens. Safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made: dict[tuple[str, str], Pace] = {}

    def of(self, endpoints: Endpoints, say: Say) -> Pace:
        key = endpoints.origin, hashlib.sha256(endpoints.token.reveal().encode()).hexdigest()
        with self._lock:
            if key not in self._made:
                self._made[key] = Pace.unlimited(say) if endpoints.is_loopback else Pace(say=say)
            return self._made[key]


class Account:
    """Calls that more than one provider makes, and the clients behind them. Safe for use by several threads.

    `pace` is kept by every call of the v4 API; without one, an account of Cloudflare's gets the bucket that its limit
    asks for, and a local edge none."""

    def __init__(self, endpoints: Endpoints, pace: Pace | None = None, say: Say = lambda _: None) -> None:
        self.endpoints = endpoints
        self.id = endpoints.account_id
        token = endpoints.token
        self._r2_key = token.derive("as R2's key", hashlib.sha256(token.reveal().encode()).hexdigest())
        self.pace = pace or Paces().of(endpoints, say)
        self.s3_pace = Pace.unlimited(say)
        self.uploads = threading.BoundedSemaphore(UPLOADS)
        self._lock = threading.RLock()
        self._reader = Reader(TIMEOUT)
        self._clients: dict[bool, Cloudflare] = {}
        self._s3: dict[str, Any] = {}
        self._key_id: str | None = None
        self._subdomain: str | None = None

    def stop_with(self, stop: threading.Event) -> None:
        """Calls that wait for their turn end when `stop` is set; those that were sent are waited for."""
        self.pace.stop = self.s3_pace.stop = stop

    def close(self) -> None:
        """Close every connection; the account opens new ones when it is used again."""
        with self._lock:
            for client in (*self._clients.values(), *self._s3.values()):
                client.close()
            self._clients, self._s3 = {}, {}
        self._reader.close()

    @property
    def sdk(self) -> Cloudflare:
        """For calls that can be made again when they failed: what reads, and what ends the same when done twice."""
        return self._client(repeatable=True)

    @property
    def once(self) -> Cloudflare:
        """For calls that make something: asked again only when they were certainly not carried out. A create that is
        retried after a lost answer would find its own object and take it for another's."""
        return self._client(repeatable=False)

    def _client(self, *, repeatable: bool) -> Cloudflare:
        with self._lock:
            if repeatable not in self._clients:
                from cloudflare import Cloudflare

                scrub_logs()
                from edgespec.providers.cloudflare.http import PacedClient
                from edgespec.web import trust

                http = PacedClient(
                    self.pace,
                    repeatable=repeatable,
                    base_url=self.endpoints.api_base_url,
                    timeout=TIMEOUT,
                    follow_redirects=True,
                    verify=trust(self.endpoints.api_base_url),
                )
                self._clients[repeatable] = Cloudflare(
                    api_token=self.endpoints.token.reveal(),
                    base_url=self.endpoints.api_base_url,
                    timeout=TIMEOUT,
                    max_retries=0,  # the client under it knows which calls may be made again
                    http_client=http,
                )
            return self._clients[repeatable]

    def get(self, path: str, query: dict[str, object] | None = None, headers: dict[str, str] | None = None) -> Any:
        """A GET below the account, as the API's whole envelope."""
        return self._get(f"/accounts/{self.id}{path}", query or {}, headers or {})

    def _get(self, path: str, query: Mapping[str, object], headers: Mapping[str, str]) -> Any:
        """By the reader, and through the SDK where that has no good answer: the SDK knows what is wrong, and what can
        be done about it."""
        url = self.endpoints.api_base_url.rstrip("/") + path + (f"?{urlencode(query)}" if query else "")
        token = {"authorization": f"Bearer {self.endpoints.token.reveal()}", "accept": "application/json"}
        read = self._reader.get(url, {**token, **headers}, self.pace)
        if read is not None:
            with contextlib.suppress(ValueError):  # not whole, or not from the API
                return json.loads(read[1])
        options: Any = {"params": dict(query)}
        if headers:
            options["headers"] = dict(headers)
        return self.sdk.get(path, cast_to=object, options=options)

    def s3_list(self, jurisdiction: str, bucket: str, query: Mapping[str, str]) -> bytes | None:
        """A page of a bucket's list (ListObjectsV2) as XML; None where boto3 has to be asked."""
        read = self._s3_get(jurisdiction, bucket, {"list-type": "2", **query})
        return None if read is None else read[1]

    def s3_get(self, jurisdiction: str, bucket: str, key: str) -> tuple[dict[str, str], bytes] | None:
        """An object's headers, by their names in small letters, and its bytes; None where boto3 has to be asked.
        Nothing of `key` may need quoting."""
        read = self._s3_get(jurisdiction, f"{bucket}/{key}", {})
        return None if read is None else ({name.lower(): value for name, value in read[0].items()}, read[1])

    def _s3_get(self, jurisdiction: str, path: str, query: Mapping[str, str]) -> Whole | None:
        base = f"{self.endpoints.s3(jurisdiction)}/{path}"
        url, headers = signed_get(base, query, self._token_id(), self._r2_key, datetime.now(UTC))
        return self._reader.get(url, headers, self.s3_pace)

    def s3(self, jurisdiction: str) -> Any:
        """boto3's S3 client for the buckets of one jurisdiction."""
        with self._lock:
            if jurisdiction not in self._s3:
                self._s3[jurisdiction] = self._s3_client(jurisdiction)
            return self._s3[jurisdiction]

    def open_object(self, jurisdiction: str, bucket: str, key: str) -> Any:
        """The body of an object, to be closed; None where it, or its bucket, is not there. Raises what S3 raises."""
        s3 = self.s3(jurisdiction)
        try:
            return s3.get_object(Bucket=bucket, Key=key)["Body"]
        except (s3.exceptions.NoSuchKey, s3.exceptions.NoSuchBucket):
            return None

    def _s3_client(self, jurisdiction: str) -> Any:
        from edgespec.providers.cloudflare.s3 import s3_client

        return s3_client(self.endpoints.s3(jurisdiction), self._token_id(), self._r2_key, self.s3_pace)

    def _token_id(self) -> str:
        """R2's access key id is the API token's id, and its secret the SHA-256 of the token's value (R2 docs, "S3 API
        compatibility: authentication")."""
        with self._lock:
            if self._key_id is None:
                self._key_id = str(self._get("/user/tokens/verify", {}, {})["result"]["id"])
            return self._key_id

    def worker_url(self, script: str) -> str:
        """Where a Worker answers, ending with a slash."""
        if self.endpoints.is_loopback:
            return f"{self.endpoints.origin}/w/{script}/"
        return f"https://{script}.{self.subdomain()}.workers.dev/"

    def preview_url(self, script: str, version: str) -> str:
        """Where one version answers whatever is deployed, ending with a slash."""
        if self.endpoints.is_loopback:
            return f"{self.endpoints.origin}/v/{script}/{version[:8]}/"
        return f"https://{version[:8]}-{script}.{self.subdomain()}.workers.dev/"

    def subdomain(self) -> str:
        with self._lock:
            if self._subdomain is None:
                self._subdomain = str(self.get("/workers/subdomain")["result"]["subdomain"])
            return self._subdomain


class Doing(Struct):
    """A call, or several that belong together."""

    begun: bool = False
    """Set once something of it was carried out: from then on no error says that nothing was done."""


class _Errors:
    """No generator, since a refresh enters one for each of thousands of resources."""

    __slots__ = ("address", "call", "doing")

    def __init__(self, address: Address, doing: str) -> None:
        self.address = address
        self.doing = doing
        self.call = Doing()

    def __enter__(self) -> Doing:
        return self.call

    def __exit__(self, kind: type[BaseException] | None, e: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(e, Exception):
            scrub_exception(e)
            if (meant := _meaning(e, self.address, f"{self.doing} failed", self.call)) is not None:
                raise meant from e


def api_errors(address: Address, doing: str) -> contextlib.AbstractContextManager[Doing, None]:
    """Turn what the SDKs raise into `ProviderError`s that say what, why and what to do. Neither these nor what they
    come from, which a traceback shows, hold the text of a secret."""
    return _Errors(address, doing)


def _meaning(e: Exception, address: Address, what: str, call: Doing) -> ProviderError | None:
    """None for what no SDK raises. The SDKs are imported here, where one of them has just failed: a plan that goes
    well does not pay for those that it does not use."""
    import cloudflare
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError
    from botocore.parsers import ResponseParserError

    if isinstance(e, cloudflare.APIStatusError):
        said = "; ".join(f"{d.message} (code {d.code})" for d in e.errors) or f"HTTP {e.status_code}"
        nothing_done = not call.begun and 400 <= e.status_code < 500 and e.status_code not in _MAYBE_DONE
        if other_account(e):
            return WrongAccountError(address, what, said, nothing_done=nothing_done)
        return ProviderError(address, what, f"{said}.{_hint(e.status_code)}", nothing_done=nothing_done)
    unsent = isinstance(e, cloudflare.APIConnectionError) and isinstance(e.__cause__, NotMadeError)
    if unsent or isinstance(e, NotMadeError):
        return StoppedError(address, nothing_done=not call.begun)
    if isinstance(e, cloudflare.APIConnectionError):
        detail = f"No answer from the API ({type(e.__cause__ or e).__name__}). Run apply again: it goes on from here."
        return ProviderError(address, what, detail, nothing_done=not call.begun and _unsent(e))
    if isinstance(e, ClientError):
        code = e.response.get("Error", {}).get("Code", "")
        message = e.response.get("Error", {}).get("Message", "")
        hint = _hint(403) if code in _DENIED else ""
        return ProviderError(address, what, f"R2 says {code}: {message}.{hint}")
    if isinstance(e, (BotoCoreError, Boto3Error)):
        return ProviderError(address, what, f"{e}. Run apply again: it goes on from here.")
    if isinstance(e, ResponseParserError):
        return ProviderError(address, what, "R2's answer is not whole. Run apply again: it goes on from here.")
    return None


def _unsent(e: Exception) -> bool:
    from edgespec.providers.cloudflare.http import NOT_SENT

    return isinstance(e.__cause__, NOT_SENT)


def uncertain(e: Exception) -> bool:
    """Whether a call of the v4 API that ended so may have been carried out all the same."""
    import cloudflare

    if isinstance(e, cloudflare.APIStatusError):
        return e.status_code >= 500 or e.status_code in _MAYBE_DONE
    return isinstance(e, cloudflare.APIConnectionError) and not _unsent(e) and not isinstance(e.__cause__, NotMadeError)


@contextlib.contextmanager
def missing_is_fine() -> Iterator[None]:
    """For deletes: what does not exist is gone already. An account that does not exist is another matter."""
    try:
        yield
    except Exception as e:
        if not not_found(e):
            raise


def not_found(e: Exception) -> bool:
    """Whether an SDK error says that a thing does not exist in an account that does."""
    import cloudflare

    return isinstance(e, cloudflare.NotFoundError) and not other_account(e)


def other_account(e: Any) -> bool:
    """Whether an SDK error is about the account itself, not about a thing in it."""
    return e.status_code < 500 and bool(error_codes(e) & _OTHER_ACCOUNT)


def error_codes(e: Any) -> frozenset[int]:
    """Cloudflare's numeric codes in an SDK error."""
    return frozenset(int(d.code) for d in e.errors if d.code is not None)


def _hint(status: int) -> str:
    if status in (401, 403):
        return " Check CLOUDFLARE_API_TOKEN: it needs Workers Scripts, Workers KV Storage and Workers R2 Storage: Edit."
    if status == 429:
        return " Too many requests; wait a few minutes and run apply again: it goes on from here."
    return ""


def missing_token(environment: str = "") -> EdgespecError:
    own = f" (or {TOKEN}_{environment.upper()}, for {environment} alone)" if environment else ""
    detail = (
        f"Set {TOKEN}{own} to a token with Workers Scripts, Workers KV Storage and Workers R2 Storage: Edit. "
        "It is used for the API alone and written nowhere."
    )
    return EdgespecError(error("ES402", "No API token", detail))

"""One Cloudflare account as the providers reach it: the v4 API through the `cloudflare` SDK, R2's objects through
boto3. The SDKs are imported when first used: a command that never calls the API never pays for them."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError, error
from edgespec.providers.base import ProviderError

if TYPE_CHECKING:
    from cloudflare import Cloudflare

TIMEOUT: Final = 120.0
"""Seconds for one API call; uploads of a few MB over a slow line fit."""
CONNECT_TIMEOUT: Final = 15.0
"""Seconds until an address counts as one that does not answer."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_MAYBE_DONE: Final = frozenset({408, 409, 425, 429})
"""Client errors after which the object may have changed, or that say nothing about it."""


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where an account's APIs are. Secrets never show in a repr."""

    account_id: str
    api_base_url: str
    token: str = field(repr=False)
    s3_base_url: str | None = None
    """`<this>/<jurisdiction>` for a stand-in; None for R2's own addresses."""

    @property
    def is_loopback(self) -> bool:
        return urlsplit(self.api_base_url).hostname in _LOOPBACK

    @property
    def origin(self) -> str:
        parts = urlsplit(self.api_base_url)
        return f"{parts.scheme}://{parts.netloc}"

    def s3(self, jurisdiction: str) -> str:
        if self.s3_base_url is not None:
            return f"{self.s3_base_url}/{jurisdiction}"
        part = "" if jurisdiction == "default" else f".{jurisdiction}"
        return f"https://{self.account_id}{part}.r2.cloudflarestorage.com"


class Account:
    """Calls that more than one provider makes, and the clients behind them. Safe for use by several threads."""

    def __init__(self, endpoints: Endpoints) -> None:
        self.endpoints = endpoints
        self.id = endpoints.account_id
        self._lock = threading.RLock()
        self._sdk: Cloudflare | None = None
        self._s3: dict[str, Any] = {}
        self._subdomain: str | None = None

    def close(self) -> None:
        """Close every connection; the account opens new ones when it is used again."""
        with self._lock:
            if self._sdk is not None:
                self._sdk.close()
            for client in self._s3.values():
                client.close()
            self._sdk, self._s3 = None, {}

    @property
    def sdk(self) -> Cloudflare:
        with self._lock:
            if self._sdk is None:
                from cloudflare import Cloudflare

                self._sdk = Cloudflare(
                    api_token=self.endpoints.token, base_url=self.endpoints.api_base_url, timeout=TIMEOUT
                )
            return self._sdk

    @property
    def once(self) -> Cloudflare:
        """The SDK without its own retries: a create that is retried after a lost answer would find its own object
        and take it for another's."""
        return self.sdk.with_options(max_retries=0)

    def get(self, path: str, query: dict[str, object] | None = None, headers: dict[str, str] | None = None) -> Any:
        """A GET below the account, as the API's whole envelope. Reads go this way rather than through the SDK's
        typed resources, whose import alone costs more CPU than a whole plan should."""
        options: Any = {"params": query or {}}
        if headers:
            options["headers"] = headers
        return self.sdk.get(f"/accounts/{self.id}{path}", cast_to=object, options=options)

    def s3(self, jurisdiction: str) -> Any:
        """boto3's S3 client for the buckets of one jurisdiction."""
        with self._lock:
            if jurisdiction not in self._s3:
                self._s3[jurisdiction] = self._s3_client(jurisdiction)
            return self._s3[jurisdiction]

    def _s3_client(self, jurisdiction: str) -> Any:
        import boto3
        from botocore.config import Config
        from botocore.handlers import add_expect_header

        # From boto3 1.36 on, checksum trailers are sent by default, which R2 refuses with a misleading Unauthorized.
        config = Config(
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            connect_timeout=CONNECT_TIMEOUT,
            retries={"mode": "standard", "max_attempts": 4},
            max_pool_connections=16,
        )
        client = boto3.client(
            "s3",
            region_name="auto",
            endpoint_url=self.endpoints.s3(jurisdiction),
            aws_access_key_id=self._token_id(),
            aws_secret_access_key=hashlib.sha256(self.endpoints.token.encode()).hexdigest(),
            config=config,
        )
        # boto3 would wait a second for a `100 Continue` that R2 does not send.
        client.meta.events.unregister("before-call.s3", add_expect_header)
        return client

    def _token_id(self) -> str:
        """R2's access key id is the API token's id, and its secret the SHA-256 of the token's value (R2 docs, "S3 API
        compatibility: authentication")."""
        body: Any = self.sdk.get("/user/tokens/verify", cast_to=object)
        return str(body["result"]["id"])

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


@contextlib.contextmanager
def api_errors(address: Address, doing: str) -> Iterator[None]:
    """Turn what the SDKs raise into `ProviderError`s that say what, why and what to do. No error carries a secret:
    only the API's own code and message are shown."""
    import cloudflare
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except cloudflare.APIStatusError as e:
        found = "; ".join(f"{d.message} (code {d.code})" for d in e.errors) or f"HTTP {e.status_code}"
        hint = _hint(e.status_code)
        nothing_done = 400 <= e.status_code < 500 and e.status_code not in _MAYBE_DONE
        raise ProviderError(address, f"{doing} failed", f"{found}.{hint}", nothing_done=nothing_done) from e
    except cloudflare.APIConnectionError as e:
        detail = f"No answer from the API ({type(e.__cause__ or e).__name__}). Run apply again: it goes on from here."
        raise ProviderError(address, f"{doing} failed", detail) from e
    except ClientError as e:
        code = e.response.get("Error", {}).get("Code", "")
        message = e.response.get("Error", {}).get("Message", "")
        raise ProviderError(address, f"{doing} failed", f"R2 says {code}: {message}.") from e
    except BotoCoreError as e:
        raise ProviderError(address, f"{doing} failed", f"{e}. Run apply again: it goes on from here.") from e


def error_codes(e: Any) -> frozenset[int]:
    """Cloudflare's numeric codes in an SDK error."""
    return frozenset(int(d.code) for d in e.errors if d.code is not None)


def _hint(status: int) -> str:
    if status in (401, 403):
        return " Check CLOUDFLARE_API_TOKEN: it needs Workers Scripts, Workers KV Storage and Workers R2 Storage: Edit."
    if status == 429:
        return " Too many requests; wait a few minutes and run apply again: it goes on from here."
    return ""


def missing_token() -> EdgespecError:
    detail = (
        "Set CLOUDFLARE_API_TOKEN to a token with Workers Scripts, Workers KV Storage and Workers R2 Storage: Edit. "
        "It is used for the API alone and written nowhere."
    )
    return EdgespecError(error("ES402", "No API token", detail))

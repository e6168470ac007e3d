"""The real SDKs, pointed at a local edge."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import botocore.handlers
import httpx
from botocore.config import Config
from cloudflare import Cloudflare

from edgespec.local_edge import Endpoint

_opened: list[Any] = []


def close_all() -> None:
    """Closes every client made here; called once, when the tests are over."""
    while _opened:
        _opened.pop().close()


@dataclass(frozen=True)
class Clients:
    """The real SDKs, pointed at one edge."""

    endpoint: Endpoint
    cloudflare: Cloudflare
    http: httpx.Client

    @property
    def account(self) -> str:
        return self.endpoint.account_id

    def s3(self, jurisdiction: str = "default", **changes: Any) -> Any:
        return s3_client(self.endpoint, jurisdiction, **changes)

    def api(self, method: str, path: str, **arguments: Any) -> httpx.Response:
        """A plain call under the account, with the token."""
        headers = {"authorization": f"Bearer {self.endpoint.api_token.reveal()}", **arguments.pop("headers", {})}
        url = f"{self.endpoint.api_base_url}/accounts/{self.account}{path}"
        return self.http.request(method, url, headers=headers, **arguments)

    def upload(self, name: str, code: str, *, version: bool = False, **metadata: Any) -> httpx.Response:
        path = f"/workers/scripts/{name}/versions" if version else f"/workers/scripts/{name}"
        return self.api("POST" if version else "PUT", path, files=parts({"worker.js": code}, **metadata))

    def enable(self, name: str) -> None:
        self.cloudflare.workers.scripts.subdomain.create(
            name, account_id=self.account, enabled=True, previews_enabled=True
        )

    def get(self, path: str, **arguments: Any) -> httpx.Response:
        return self.http.get(f"{self.endpoint.base_url}{path}", **arguments)


def parts(modules: dict[str, str | bytes], **metadata: Any) -> list[tuple[str, tuple[str | None, Any, str]]]:
    """The multipart form of an upload; the type of a module is that of its suffix."""
    types = {".js": "application/javascript+module", ".wasm": "application/wasm", ".json": "text/plain"}
    described = {"main_module": "worker.js", "compatibility_date": "2026-07-01", **metadata}
    form: list[tuple[str, tuple[str | None, Any, str]]] = [
        ("metadata", (None, json.dumps(described), "application/json"))
    ]
    for name, content in modules.items():
        form.append((name, (name, content, types.get(Path(name).suffix, "application/octet-stream"))))
    return form


def s3_client(endpoint: Endpoint, jurisdiction: str = "default", **changes: Any) -> Any:
    client = boto3.client(
        "s3",
        endpoint_url=f"{endpoint.s3_base_url}/{jurisdiction}",
        region_name="auto",
        aws_access_key_id=changes.get("access_key_id", endpoint.access_key_id),
        aws_secret_access_key=changes.get("secret_access_key", endpoint.secret_access_key.reveal()),
        config=Config(
            request_checksum_calculation="when_required",
            response_checksum_validation="when_required",
            s3={"addressing_style": "path"},
            retries={"max_attempts": 1, "mode": "standard"},
        ),
    )
    _opened.append(client)
    client.meta.events.unregister("before-call.s3", botocore.handlers.add_expect_header)
    return client


def connect(endpoint: Endpoint) -> Clients:
    sdk = Cloudflare(api_token=endpoint.api_token.reveal(), base_url=endpoint.api_base_url, max_retries=0)
    http = httpx.Client(trust_env=False, timeout=60)
    _opened.extend([sdk, http])
    return Clients(endpoint, sdk, http)

"""What is live in an account, read by list calls and remembered for one refresh."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, Final, TypeVar

from edgespec.artifact import KEY_PREFIX
from edgespec.providers.cloudflare.account import Account

T = TypeVar("T")
_PAGE: Final = 100


class Live:
    """Each list is fetched once, by whichever thread asks first; `forget` before writing starts."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._lock = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._seen: dict[Hashable, Any] = {}

    def forget(self) -> None:
        with self._lock:
            self._seen.clear()

    def buckets(self, jurisdiction: str) -> frozenset[str]:
        """Names of the buckets of a jurisdiction."""
        return self._once(("buckets", jurisdiction), lambda: self._list_buckets(jurisdiction))

    def objects(self, bucket: str, jurisdiction: str) -> dict[str, int]:
        """SHA-256 -> bytes of every blob in a bucket; empty when there is no such bucket."""
        return self._once(("objects", bucket, jurisdiction), lambda: self._list_objects(bucket, jurisdiction))

    def namespaces(self) -> dict[str, str]:
        """KV namespace id -> title."""
        return self._once("namespaces", self._list_namespaces)

    def pinned(self, namespace: str) -> frozenset[str]:
        """SHA-256 of every chunk that a namespace holds without expiry."""
        return self._once(("pinned", namespace), lambda: self._list_pinned(namespace))

    def scripts(self) -> frozenset[str]:
        """Names of the account's Workers."""
        return self._once(
            "scripts", lambda: frozenset(s["id"] for s in self._account.get("/workers/scripts")["result"])
        )

    def deployed(self, script: str) -> dict[str, float]:
        """Version id -> percentage of the newest deployment; empty when nothing was deployed."""
        return self._once(("deployed", script), lambda: self._read_deployment(script))

    def workers_dev(self, script: str) -> bool:
        """Whether the Worker answers at its workers.dev address."""
        path = f"/workers/scripts/{script}/subdomain"
        return self._once(("subdomain", script), lambda: bool(self._account.get(path)["result"]["enabled"]))

    def _once(self, key: Hashable, read: Callable[[], T]) -> T:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._seen:
                self._seen[key] = read()
            found: T = self._seen[key]
            return found

    def _list_buckets(self, jurisdiction: str) -> frozenset[str]:
        names: set[str] = set()
        query: dict[str, object] = {"per_page": 1000, "order": "name"}
        while True:
            body = self._account.get("/r2/buckets", query, {"cf-r2-jurisdiction": jurisdiction})
            page = [b["name"] for b in body["result"]["buckets"]]
            names.update(page)
            if len(page) < 1000:
                return frozenset(names)
            query["start_after"] = page[-1]

    def _list_objects(self, bucket: str, jurisdiction: str) -> dict[str, int]:
        s3 = self._account.s3(jurisdiction)
        found: dict[str, int] = {}
        try:
            for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=KEY_PREFIX):
                found.update({o["Key"].removeprefix(KEY_PREFIX): o["Size"] for o in page.get("Contents", [])})
        except s3.exceptions.NoSuchBucket:
            return {}
        return found

    def _list_namespaces(self) -> dict[str, str]:
        found: dict[str, str] = {}
        page = 1
        while True:
            body = self._account.get("/storage/kv/namespaces", {"page": page, "per_page": _PAGE})
            found.update({n["id"]: n["title"] for n in body["result"]})
            if len(body["result"]) < _PAGE:
                return found
            page += 1

    def _list_pinned(self, namespace: str) -> frozenset[str]:
        found: set[str] = set()
        query: dict[str, object] = {"prefix": KEY_PREFIX, "limit": 1000}
        while True:
            body = self._account.get(f"/storage/kv/namespaces/{namespace}/keys", query)
            found.update(k["name"].removeprefix(KEY_PREFIX) for k in body["result"] if not k.get("expiration"))
            cursor = (body.get("result_info") or {}).get("cursor")
            if not cursor:
                return frozenset(found)
            query["cursor"] = cursor

    def _read_deployment(self, script: str) -> dict[str, float]:
        body = self._account.get(f"/workers/scripts/{script}/deployments")
        deployments = body["result"]["deployments"]
        return {v["version_id"]: float(v["percentage"]) for v in deployments[0]["versions"]} if deployments else {}

"""What is live in an account, read by list calls and remembered for one refresh.

"Nothing there" has three answers, and they are kept apart: an empty list, None for a thing that does not exist, and an
error for an account that the token does not open (workers-sdk#12044).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeVar, cast

from msgspec import Struct, field

from edgespec.artifact import KEY_PREFIX
from edgespec.providers.cloudflare.account import Account, not_found
from edgespec.providers.cloudflare.r2_list import list_objects
from edgespec.providers.cloudflare.workers_list import Deployment, Known, Listed, list_workers, moment

T = TypeVar("T")
_PAGE: Final = 100
_S3_TRIES: Final = 3


class _Seen(Struct):
    """One refresh's answers. A later one starts with none, and waits for no list that was asked for before it."""

    locks: dict[Hashable, threading.Lock] = field(default_factory=dict)
    answers: dict[Hashable, Any] = field(default_factory=dict)


class Live:
    """Each list is fetched once, by whichever thread asks first; `forget` before what was written is to be seen."""

    def __init__(self, account: Account, known: Mapping[str, Known] | None = None) -> None:
        """`known` are deployments as state has them, for a refresh of many Workers: what a list shows to be as it was
        is not asked for. Without it, and once it was told to forget, each Worker is asked by itself."""
        self._account = account
        self._known = known
        self._lock = threading.Lock()
        self._seen = _Seen()

    def forget(self) -> None:
        with self._lock:
            self._seen = _Seen()
            self._known = None

    def buckets(self, jurisdiction: str) -> frozenset[str]:
        """Names of the buckets of a jurisdiction."""
        return self._once(("buckets", jurisdiction), lambda: self._list_buckets(jurisdiction))

    def objects(self, bucket: str, jurisdiction: str) -> dict[str, int] | None:
        """SHA-256 -> bytes of every blob in a bucket; None when there is no such bucket."""
        return self._once(("objects", bucket, jurisdiction), lambda: self._list_objects(bucket, jurisdiction))

    def namespaces(self) -> dict[str, str]:
        """KV namespace id -> title."""
        return self._once("namespaces", self._list_namespaces)

    def pinned(self, namespace: str) -> frozenset[str] | None:
        """SHA-256 of every chunk that a namespace holds without expiry; None when there is no such namespace."""
        return self._once(("pinned", namespace), lambda: self._list_pinned(namespace))

    def scripts(self) -> Mapping[str, frozenset[str]]:
        """Name -> tags of the account's Workers."""
        return self._once("scripts", self._list_scripts)

    def deployed(self, script: str) -> dict[str, float] | None:
        """Version id -> percentage of the newest deployment; empty when nothing was deployed; None when there is no
        such Worker."""
        found = self._deployed(script)
        return found.versions if found is not None else None

    def deployed_on(self, script: str) -> str | None:
        """When the newest deployment was made; None where that is not known."""
        found = self._deployed(script)
        return found.when if found is not None else None

    def _deployed(self, script: str) -> Deployment | None:
        return self._once(("deployed", script), lambda: self._deployment(script))

    def workers_dev(self, script: str) -> bool | None:
        """Whether the Worker answers at its workers.dev address; None when there is no such Worker."""
        if (listed := self._listed(script)) is not None:
            return listed.open
        return self._once(("subdomain", script), lambda: self._read_subdomain(script))

    def _listed(self, script: str) -> Listed | None:
        return self._once("workers", self._list_workers).get(script) if self._known is not None else None

    def _deployment(self, script: str) -> Deployment | None:
        """Every deployment has a time of its own: the list's newest being the one that state knows, it is that one."""
        known, listed = (self._known or {}).get(script), self._listed(script)
        if known is None or listed is None or listed.deployed_on != known.deployed_on:
            return self._read_deployment(script)
        return Deployment({known.version: 100.0}, known.deployed_on)

    def _once(self, key: Hashable, read: Callable[[], T]) -> T:
        seen = self._seen
        if key in seen.answers:  # nearly always, and then threads must not queue up for a lock
            return cast("T", seen.answers[key])
        with self._lock:
            lock = seen.locks.setdefault(key, threading.Lock())
        with lock:
            if key not in seen.answers:
                seen.answers[key] = read()
            return cast("T", seen.answers[key])

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

    def _list_objects(self, bucket: str, jurisdiction: str) -> dict[str, int] | None:
        listed = list_objects(self._account, bucket, jurisdiction)
        return self._list_with_boto3(bucket, jurisdiction) if listed is None else listed

    def _list_with_boto3(self, bucket: str, jurisdiction: str) -> dict[str, int] | None:
        """botocore does not see that a list was cut off on its way before it cannot parse it."""
        from botocore.parsers import ResponseParserError

        s3 = self._account.s3(jurisdiction)
        for left in reversed(range(_S3_TRIES)):
            found: dict[str, int] = {}
            try:
                for page in s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=KEY_PREFIX):
                    found.update({o["Key"].removeprefix(KEY_PREFIX): o["Size"] for o in page.get("Contents", [])})
            except s3.exceptions.NoSuchBucket:
                return None
            except ResponseParserError:
                if not left:
                    raise
            else:
                break
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

    def _list_pinned(self, namespace: str) -> frozenset[str] | None:
        found: set[str] = set()
        query: dict[str, object] = {"prefix": KEY_PREFIX, "limit": 1000}
        while True:
            body = self._found(f"/storage/kv/namespaces/{namespace}/keys", query)
            if body is None:
                return None
            found.update(k["name"].removeprefix(KEY_PREFIX) for k in body["result"] if not k.get("expiration"))
            cursor = (body.get("result_info") or {}).get("cursor")
            if not cursor:
                return frozenset(found)
            query["cursor"] = cursor

    def _list_scripts(self) -> dict[str, frozenset[str]]:
        return {s["id"]: frozenset(s.get("tags") or ()) for s in self._account.get("/workers/scripts")["result"]}

    def _list_workers(self) -> dict[str, Listed]:
        return list_workers(self._account)

    def _read_deployment(self, script: str) -> Deployment | None:
        body = self._found(f"/workers/scripts/{script}/deployments")
        if body is None:
            return None
        deployments = body["result"]["deployments"]
        if not deployments:
            return Deployment({}, None)
        versions = {v["version_id"]: float(v["percentage"]) for v in deployments[0]["versions"]}
        return Deployment(versions, moment(deployments[0].get("created_on")))

    def _read_subdomain(self, script: str) -> bool | None:
        body = self._found(f"/workers/scripts/{script}/subdomain")
        return None if body is None else bool(body["result"]["enabled"])

    def _found(self, path: str, query: dict[str, object] | None = None) -> Any:
        """A GET's envelope; None when the thing does not exist, but not when the account does not."""
        try:
            return self._account.get(path, query)
        except Exception as e:
            if not not_found(e):
                raise
            return None

"""What a bucket or a namespace holds: a plan that removes one says what goes with it."""

from __future__ import annotations

from typing import Any, Final

from edgespec import attestation
from edgespec.artifact import KEY_PREFIX
from edgespec.plan.model import Contents
from edgespec.providers.cloudflare.account import Account, api_errors
from edgespec.state.model import ResourceRecord

TYPES: Final = frozenset({"r2_bucket", "kv_namespace"})
_PAGE: Final = 1000


def contents(account: Account, record: ResourceRecord) -> Contents:
    """`record` is of one of `TYPES`, and its object exists. Reads the whole list of keys, a page at a time."""
    with api_errors(record.address, "Reading what it holds"):
        return _bucket(account, record) if record.address.type == "r2_bucket" else _namespace(account, record)


def _bucket(account: Account, record: ResourceRecord) -> Contents:
    s3 = account.s3(str(record.inputs["jurisdiction"]))
    objects = size = foreign = 0
    for page in s3.get_paginator("list_objects_v2").paginate(Bucket=str(record.inputs["name"])):
        for found in page.get("Contents", []):
            objects += 1
            size += found["Size"]
            foreign += not found["Key"].startswith((KEY_PREFIX, attestation.KEY_PREFIX))
    return Contents(objects, size, foreign)


def _namespace(account: Account, record: ResourceRecord) -> Contents:
    """KV lists keys without the sizes of their values."""
    path = f"/storage/kv/namespaces/{record.outputs['id']}/keys"
    query: dict[str, object] = {"limit": _PAGE}
    keys = foreign = 0
    while True:
        body: Any = account.get(path, query)
        names = [k["name"] for k in body["result"]]
        keys += len(names)
        foreign += sum(not n.startswith(KEY_PREFIX) for n in names)
        cursor = (body.get("result_info") or {}).get("cursor")
        if not cursor:
            return Contents(keys, None, foreign)
        query["cursor"] = cursor

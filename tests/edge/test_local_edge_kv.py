"""Workers KV through the real SDK and plain HTTP: keys, limits, bulk calls."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import cloudflare
import pytest
from edge_clients import Clients

from edgespec.local_edge import LocalEdge

MIB = 1024 * 1024


@pytest.fixture
def namespace(clients: Clients, name: str) -> str:
    return clients.cloudflare.kv.namespaces.create(account_id=clients.account, title=name).id


def values(namespace: str, key: str = "") -> str:
    return f"/storage/kv/namespaces/{namespace}/values/{key}"


def code_of(answer: Any) -> int:
    return int(answer.json()["errors"][0]["code"])


def test_namespaces_are_made_listed_renamed_and_removed(clients: Clients, name: str) -> None:
    kv = clients.cloudflare.kv.namespaces
    made = kv.create(account_id=clients.account, title=name)
    assert kv.get(made.id, account_id=clients.account).title == name
    assert made.id in [n.id for n in kv.list(account_id=clients.account)]
    with pytest.raises(cloudflare.BadRequestError, match="10014"):
        kv.create(account_id=clients.account, title=name)
    assert clients.api("PUT", f"/storage/kv/namespaces/{made.id}", json={"title": f"{name}-b"}).status_code == 200
    assert kv.get(made.id, account_id=clients.account).title == f"{name}-b"
    kv.delete(made.id, account_id=clients.account)
    with pytest.raises(cloudflare.NotFoundError, match="10013"):
        kv.get(made.id, account_id=clients.account)


def test_listing_namespaces_comes_in_pages(clients: Clients, name: str) -> None:
    for n in range(3):
        clients.cloudflare.kv.namespaces.create(account_id=clients.account, title=f"{name}-{n}")
    listed = [n.title for n in clients.cloudflare.kv.namespaces.list(account_id=clients.account, per_page=2)]
    assert len(listed) == len(set(listed))
    assert {f"{name}-{n}" for n in range(3)} <= set(listed)


def test_removing_a_namespace_removes_its_data(clients: Clients, edge: LocalEdge, namespace: str) -> None:
    secret = os.urandom(32)
    clients.api("PUT", values(namespace, "k"), content=secret)
    storage = edge.log_path.parent / "storage"

    def holders() -> list[str]:
        return [f.name for f in storage.rglob("*") if f.is_file() and secret in f.read_bytes()]

    assert holders()
    clients.cloudflare.kv.namespaces.delete(namespace, account_id=clients.account)
    assert holders() == []


def test_values_of_any_bytes_and_keys(clients: Clients, namespace: str) -> None:
    kv = clients.cloudflare.kv.namespaces
    for key, value in (("a", b""), ("artifacts/0f", bytes(range(256))), ("é ?&#%", b"x"), ("a" * 512, b"long")):
        kv.values.update(key, account_id=clients.account, namespace_id=namespace, value=value)
        assert kv.values.get(key, account_id=clients.account, namespace_id=namespace).read() == value
    kv.values.delete("a", account_id=clients.account, namespace_id=namespace)
    with pytest.raises(cloudflare.NotFoundError, match="10009"):
        kv.values.get("a", account_id=clients.account, namespace_id=namespace)


def test_expiry_and_metadata_are_kept(clients: Clients, namespace: str) -> None:
    kv = clients.cloudflare.kv.namespaces
    kv.values.update(
        "k", account_id=clients.account, namespace_id=namespace, value=b"v", metadata='{"a":1}', expiration_ttl=3600
    )
    listed = next(iter(kv.keys.list(namespace, account_id=clients.account)))
    assert listed.metadata == {"a": 1}
    assert listed.expiration
    assert clients.api("GET", values(namespace, "k")).headers["expiration"]
    assert kv.metadata.get("k", account_id=clients.account, namespace_id=namespace) == {"a": 1}


def test_keys_come_by_prefix_in_pages(clients: Clients, namespace: str) -> None:
    pairs: list[Any] = [{"key": f"p/{n:04}", "value": "v"} for n in range(250)] + [{"key": "other", "value": "v"}]
    clients.cloudflare.kv.namespaces.bulk_update(namespace, account_id=clients.account, body=pairs)
    keys = clients.cloudflare.kv.namespaces.keys.list(namespace, account_id=clients.account, prefix="p/", limit=100)
    assert [k.name for k in keys] == [f"p/{n:04}" for n in range(250)]


@pytest.mark.parametrize("key", [".", "..", "a" * 513, "é" * 257])
def test_wrong_keys_are_refused(clients: Clients, namespace: str, key: str) -> None:
    body = [{"key": key, "value": "v"}]
    answer = clients.api("PUT", f"/storage/kv/namespaces/{namespace}/bulk", json=body)
    assert (answer.status_code, code_of(answer)) == (400, 10012)


@pytest.mark.parametrize("ttl", [59, 0, -1, 60.5, "60"])
def test_a_ttl_under_a_minute_is_refused(clients: Clients, namespace: str, ttl: object) -> None:
    body = [{"key": "k", "value": "v", "expiration_ttl": ttl}]
    answer = clients.api("PUT", f"/storage/kv/namespaces/{namespace}/bulk", json=body)
    assert (answer.status_code, code_of(answer)) == (400, 10022)
    if isinstance(ttl, int):
        single = clients.api("PUT", f"{values(namespace, 'k')}?expiration_ttl={ttl}", content=b"v")
        assert code_of(single) == 10022


def test_a_value_over_25_mib_is_refused(clients: Clients, namespace: str) -> None:
    assert clients.api("PUT", values(namespace, "k"), content=bytes(25 * MIB)).status_code == 200
    assert clients.api("PUT", values(namespace, "k"), content=bytes(25 * MIB + 1)).status_code == 413


def test_bulk_calls_have_their_limits(clients: Clients, namespace: str) -> None:
    path = f"/storage/kv/namespaces/{namespace}/bulk"
    assert clients.api("PUT", path, json=[{"key": "k", "value": "v"}] * 10_001).status_code == 400
    assert clients.api("PUT", path, json=[]).status_code == 400
    assert clients.api("PUT", path, json={}).status_code == 400
    assert clients.api("PUT", path, content=b"[").status_code == 400
    assert clients.api("PUT", path, json=[{"key": "k", "value": "$$", "base64": True}]).status_code == 400
    large = b"[" + b" " * 100_000_000 + b"]"
    assert clients.api("PUT", path, content=large).status_code == 413


def test_chunks_of_8_mib_go_in_and_out_in_bulk(clients: Clients, namespace: str) -> None:
    chunks = [os.urandom(8 * MIB) for _ in range(4)]
    body: list[Any] = [
        {"key": f"artifacts/{hashlib.sha256(c).hexdigest()}", "value": base64.b64encode(c).decode(), "base64": True}
        for c in chunks
    ]
    answer = clients.cloudflare.kv.namespaces.bulk_update(namespace, account_id=clients.account, body=body)
    assert answer is not None
    assert (answer.successful_key_count, answer.unsuccessful_keys) == (4, [])
    for pair, chunk in zip(body, chunks, strict=True):
        assert clients.api("GET", values(namespace, pair["key"].replace("/", "%2F"))).content == chunk


def test_bulk_get_and_bulk_delete(clients: Clients, namespace: str) -> None:
    kv = clients.cloudflare.kv.namespaces
    kv.bulk_update(namespace, account_id=clients.account, body=[{"key": k, "value": f'"{k}"'} for k in ("a", "b")])
    path = f"/storage/kv/namespaces/{namespace}/bulk/get"
    got = clients.api("POST", path, json={"keys": ["a", "b", "c"]}).json()["result"]["values"]
    assert got == {"a": '"a"', "b": '"b"', "c": None}
    assert clients.api("POST", path, json={"keys": ["a"], "type": "json"}).json()["result"]["values"] == {"a": "a"}
    gone = kv.bulk_delete(namespace, account_id=clients.account, body=["a", "b", "never"])
    assert gone is not None
    assert gone.successful_key_count == 3
    assert list(kv.keys.list(namespace, account_id=clients.account)) == []


def test_many_writers_at_once(clients: Clients, namespace: str) -> None:
    def write(n: int) -> int:
        return clients.api("PUT", values(namespace, f"k{n}"), content=json.dumps(n).encode()).status_code

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(write, range(64))) == {200}
    assert len(list(clients.cloudflare.kv.namespaces.keys.list(namespace, account_id=clients.account))) == 64

"""Both places that keep state, held to one contract: a file, and a bucket of the real local edge."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from edgespec.address import Address
from edgespec.assets import local_edge_sources
from edgespec.diagnostics import EdgespecError
from edgespec.local_edge.edge import LocalEdge
from edgespec.providers.cloudflare.account import Account, Endpoints
from edgespec.providers.cloudflare.remote_cache import make_bucket
from edgespec.secret import Secret
from edgespec.state.journal import Drop, Put
from edgespec.state.model import Key, ResourceRecord, State
from edgespec.stores import journaled
from edgespec.stores.base import ConflictError, LeaseLostError, StateStore, StoreError
from edgespec.stores.local import LocalStore
from edgespec.stores.r2 import R2StateStore

A = Address("worker", "a")
_numbers = itertools.count(1)
Make = Callable[[], StateStore]


def put(number: int, name: str = "a") -> Put:
    return Put(ResourceRecord(Address("worker", name), {"n": number}))


def state(number: int, serial: int = 0) -> State:
    return State("lineage", "shop", "local", serial).put(put(number).record)


def number(found: State | None) -> Any:
    record = found.get(A) if found else None
    return record.inputs["n"] if record else None


def code(action: Callable[[], object]) -> str:
    with pytest.raises(EdgespecError) as caught:
        action()
    (problem,) = caught.value.diagnostics
    return f"{problem.code} {problem.detail}"


class Client:
    """boto3's client, whose answers get lost or whose requests never arrive when a test says so."""

    def __init__(self, real: Any) -> None:
        self._real = real
        self.lose: Callable[[str], bool] = lambda key: False
        self.drop: Callable[[str], bool] = lambda key: False
        self.meanwhile: Callable[[str], None] = lambda key: None
        self.puts: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def put_object(self, **arguments: Any) -> Any:
        key = arguments["Key"]
        self.puts.append(key)
        self.meanwhile(key)
        if self.drop(key):
            raise EndpointConnectionError(endpoint_url="http://the-edge")
        answer = self._real.put_object(**arguments)
        if self.lose(key):
            raise EndpointConnectionError(endpoint_url="http://the-edge")
        return answer


@pytest.fixture(scope="module")
def account(shared_edge: Path, build_cache: Path) -> Iterator[Account]:
    edge = LocalEdge(shared_edge, port=0, sources=local_edge_sources(), cache_dir=build_cache, progress=lambda _: None)
    found = edge.ensure()
    made = Account(Endpoints(found.account_id, found.api_base_url, found.api_token, found.s3_base_url))
    make_bucket(made, "state-of-shops")
    with contextlib.closing(made):
        yield made


class Remote:
    """One state's place in the bucket; each store that is made has a client of its own."""

    def __init__(self, account: Account) -> None:
        self.account = account
        self.key = f"edgespec/shop{next(_numbers)}/local.json"

    def store(self, *, ttl_s: float = 60.0) -> R2StateStore:
        return self.with_client(ttl_s=ttl_s)[0]

    def with_client(self, *, ttl_s: float = 60.0) -> tuple[R2StateStore, Client]:
        client = Client(self.account.s3("default"))
        return R2StateStore("state-of-shops", self.key, lambda: client, ttl_s=ttl_s), client

    def objects(self) -> list[str]:
        found = self.account.s3("default").list_objects_v2(Bucket="state-of-shops", Prefix=self.key)
        return sorted(o["Key"].removeprefix(self.key) for o in found.get("Contents", []))


@pytest.fixture
def remote(account: Account) -> Remote:
    return Remote(account)


@pytest.fixture(params=["local", "r2"])
def make(request: pytest.FixtureRequest, tmp_path: Path) -> Make:
    if request.param == "local":
        return lambda: LocalStore(tmp_path / "local.json")
    remote: Remote = request.getfixturevalue("remote")
    return remote.store


@contextlib.contextmanager
def interrupted(store: StateStore) -> Iterator[StateStore]:
    with pytest.raises(KeyboardInterrupt), store.lock("apply"):
        yield store
        raise KeyboardInterrupt


# --- the contract ----------------------------------------------------------------------------------------------------


def test_what_is_written_is_read_by_others_at_once(make: Make) -> None:
    store = make()
    assert store.load() is None and store.holder() is None
    with store.lock("apply") as lease:
        assert lease.robbed is None
        assert store.save(state(1)).serial == 1
        assert make().load() == state(1, 1)
        assert store.record(put(2), put(5, "b")) == 2
        assert store.record(Drop(Key(A))) == 3
        found = make().load()
        assert found is not None and found.serial == 3 and [str(k) for k in found.records] == ["worker/b"]
        lease.check()
        holder = make().holder()
        assert holder is not None and holder.owner == lease.owner and holder.owner.pid == os.getpid()
    assert store.holder() is None
    found = make().load()
    assert found is not None and found.serial == 3 and number(found) is None


def test_a_second_run_is_refused_and_takes_nothing_away(make: Make) -> None:
    with make().lock("apply") as lease:
        for _ in range(2):
            found = code(lambda: make().lock("destroy").__enter__())
            assert found.startswith("ES304") and f"(process {os.getpid()}, apply since " in found
        lease.check()
    with make().lock("apply"):
        pass


def test_a_run_goes_on_from_an_interrupted_ones_journal(make: Make) -> None:
    with interrupted(make()) as store:
        store.save(state(1))
        store.record(put(2))
    with interrupted(make()) as store:
        assert store.record(put(3)) == 3
    with make().lock("apply"):
        pass
    store = make()
    with store.lock("apply"):
        assert store.record(put(4)) == 4
    assert number(make().load()) == 4


def test_growth_is_linear(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journaled, "_SMALL", 8)
    folded: list[int] = []
    encode = journaled.encode

    def counting(state: State) -> str:
        folded.append(len(state.records))
        return encode(state)

    monkeypatch.setattr(journaled, "encode", counting)
    store = make()
    with store.lock("apply"):
        store.save(State("lineage", "shop", "local"))
        for n in range(120):
            store.record(put(n, f"w{n}"))
    assert sum(folded) < 5 * 120  # records written in all foldings together
    found = make().load()
    assert found is not None and len(found.records) == 120


def test_threads_record_one_after_another(make: Make) -> None:
    store = make()
    with store.lock("apply"):
        store.save(state(0))
        serials: list[int] = []
        threads = [
            threading.Thread(target=lambda n=n: serials.append(store.record(put(n, f"w{n}")))) for n in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(serials) == list(range(2, 14))
        found = make().load()
    assert found is not None and len(found.records) == 13 and make().load() == found


def test_what_was_made_from_an_older_version_is_not_written(make: Make) -> None:
    store = make()
    with store.lock("apply"):
        store.save(store.save(state(1)))
        assert code(lambda: store.save(state(2))).startswith("ES302")
    assert number(make().load()) == 1


# --- the bucket ------------------------------------------------------------------------------------------------------


def test_what_a_bucket_holds(remote: Remote) -> None:
    for n in range(8):
        store = remote.store()
        with store.lock("apply"):
            store.save(store.load() or state(0))
            store.record(put(n))
    assert remote.objects() == ["", *(f".backup/{2 * n:012}" for n in range(3, 8)), ".lock"]
    body = remote.account.s3("default").get_object(
        Bucket="state-of-shops", Key=f"{remote.key}.backup/{14:012}"
    )["Body"].read()  # fmt: skip
    assert b'"n": 6' in body and b'"serial": 14' in body


@pytest.mark.parametrize("which", [".lock", ".json", ".journal/000000000002"])
def test_a_lost_answer_is_recognised(remote: Remote, which: str) -> None:
    store, client = remote.with_client()
    client.lose = lambda key: key.endswith(which)
    with store.lock("apply") as lease:
        store.save(state(1))
        store.record(put(2))
        lease.check()
    assert store.holder() is None
    assert number(remote.store().load()) == 2


def test_a_lost_renewal_does_not_lose_the_lock(remote: Remote) -> None:
    store, client = remote.with_client()
    lost = iter([True])
    with store.lock("apply") as lease:
        real: Any = client._real

        class Deaf:
            """The renewal is carried out; neither its answer nor the question after it comes through."""

            def __getattr__(self, name: str) -> Any:
                if name == "get_object" and next(lost, False):
                    raise EndpointConnectionError(endpoint_url="http://the-edge")
                return getattr(real, name)

        client.lose = lambda key: True
        client._real = Deaf()
        with pytest.raises(StoreError) as caught:
            lease.renew()  # type: ignore[attr-defined]
        assert not isinstance(caught.value, LeaseLostError)
        client.lose, client._real = lambda key: False, real
        lease.renew()  # type: ignore[attr-defined]
        store.save(state(1))
    assert store.holder() is None


def test_a_lock_that_cannot_be_asked_for_is_not_taken(remote: Remote) -> None:
    store, client = remote.with_client()
    client.drop = lambda key: key.endswith(".lock")
    assert code(lambda: store.lock("apply").__enter__()).startswith("ES309")
    assert remote.store().holder() is None


def test_two_ask_for_a_free_lock_and_one_gets_it(remote: Remote) -> None:
    first, client = remote.with_client()
    second = remote.store()
    taken: list[Any] = []

    def meanwhile(key: str) -> None:
        if not taken:
            taken.append(second.lock("destroy"))
            taken[0].__enter__()

    client.meanwhile = meanwhile
    found = code(lambda: first.lock("apply").__enter__())
    assert found.startswith("ES304") and ", destroy since " in found
    holder = remote.store().holder()
    assert holder is not None and holder.owner is not None and holder.owner.operation == "destroy"
    taken[0].__exit__(None, None, None)
    with remote.store().lock("apply") as lease:
        assert lease.robbed is None


class _Dead(BaseException):
    pass


def die_holding(store: StateStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the process were gone: nothing renews the lock and nothing lets it go."""
    from edgespec.stores.lease import BucketLease

    with monkeypatch.context() as patch, pytest.raises(_Dead):
        patch.setattr(BucketLease, "keep", lambda self: None)
        with store.lock("apply"):
            store.save(state(1))
            store.record(put(2))
            raise _Dead


def test_only_an_expired_lock_is_taken_over(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    die_holding(remote.store(ttl_s=2), monkeypatch)
    waited = 0
    while True:
        try:
            with remote.store().lock("apply") as lease:
                assert lease.robbed is not None and lease.robbed.operation == "apply"
                break
        except EdgespecError as e:
            assert "the lock expires in" in str(e) and "edgespec state unlock " in str(e)
            waited += 1
            time.sleep(0.3)
    assert waited > 3
    assert number(remote.store().load()) == 2


def test_a_lock_is_renewed_while_it_is_held(remote: Remote) -> None:
    store, client = remote.with_client(ttl_s=1)
    with store.lock("apply") as lease:
        renewed = threading.Event()
        client.meanwhile = lambda key: renewed.set() if client.puts.count(key) > 14 else None
        assert renewed.wait(60)  # longer than it takes to expire without
        lease.check()
        assert code(lambda: remote.store().lock("apply").__enter__()).startswith("ES304")


def test_who_lost_the_lock_writes_nothing_more(remote: Remote) -> None:
    """Somebody breaks it and applies; the first wakes up."""
    first = remote.store()
    with pytest.raises(LeaseLostError) as caught, first.lock("apply") as lease:
        first.save(state(1))
        first.record(put(2))
        other = remote.store()
        holder = other.holder()
        assert holder is not None and holder.owner == lease.owner
        other.unlock(holder)
        assert other.holder() is None
        with pytest.raises(ConflictError):  # it does not know yet, and meets what the other has put in its way
            first.record(put(3))
        with other.lock("apply") as taken:
            assert taken.robbed is None  # it was told so when it was broken, and that was seen to
            loaded = other.load()
            assert number(loaded) == 2
            other.record(put(4))
            lease.renew()  # type: ignore[attr-defined]
    assert "(process" in str(caught.value)
    assert number(remote.store().load()) == 4
    with remote.store().lock("apply"):  # and its end took nothing away
        pass


def test_a_lock_that_changed_hands_is_not_broken(remote: Remote) -> None:
    with remote.store().lock("apply"):
        holder = remote.store().holder()
    assert holder is not None
    with remote.store().lock("destroy") as lease:
        assert code(lambda: remote.store().unlock(holder)).startswith("ES314")
        lease.check()


def test_a_snapshot_is_replaced_only_as_it_was_read(remote: Remote) -> None:
    store = remote.store()
    with store.lock("apply"):
        saved = store.save(state(1))
        s3 = remote.account.s3("default")
        s3.put_object(Bucket="state-of-shops", Key=remote.key, Body=b"somebody else's")
        with pytest.raises(ConflictError):
            store.save(saved)
    assert s3.get_object(Bucket="state-of-shops", Key=remote.key)["Body"].read() == b"somebody else's"


def test_a_reader_meets_a_folding(remote: Remote, monkeypatch: pytest.MonkeyPatch) -> None:
    writer, (reader, client) = remote.store(), remote.with_client()
    with writer.lock("apply"):
        writer.save(state(0))
        writer.record(put(1))
        once = iter([True])

        def listing(**arguments: Any) -> Any:
            found = client._real.list_objects_v2(**arguments)
            if next(once, False):  # between the list and the objects, and after the snapshot was read
                writer.save(state(2, 2))
                writer.record(put(3))
            return found

        client.list_objects_v2 = listing  # type: ignore[attr-defined]
        found = reader.load()
    assert number(found) == 3 and found is not None and found.serial == 4


def test_no_bucket_and_no_right(account: Account) -> None:
    missing = R2StateStore("no-such-bucket", "k.json", lambda: account.s3("default"))
    assert "edgespec state init" in code(missing.load)
    endpoints = account.endpoints
    token = Secret("CLOUDFLARE_API_TOKEN", "a-wrong-token")
    wrong = Account(Endpoints(endpoints.account_id, endpoints.api_base_url, token, endpoints.s3_base_url))
    with contextlib.closing(wrong):
        found = code(R2StateStore("state-of-shops", "k.json", lambda: wrong.s3("default")).load)
    assert "a-wrong-token" not in found


# --- killed ----------------------------------------------------------------------------------------------------------


def killed(account: Account, remote: Remote, fatal: int) -> bool:
    """A child writes state and is killed before or after its `fatal`-th changing request; False when it got through."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            seen = 0

            def reached() -> None:
                nonlocal seen
                seen += 1
                if seen == fatal:
                    os.kill(os.getpid(), signal.SIGKILL)

            own = Account(account.endpoints)  # a client of its own: the parent's connections are the parent's
            client = Client(own.s3("default"))
            client.meanwhile = lambda key: reached()
            client.lose = lambda key: bool(reached())
            store = R2StateStore("state-of-shops", remote.key, lambda: client)
            with store.lock("apply"):
                loaded = store.load() or state(0)
                base = int(number(loaded))
                store.save(loaded)
                for n in (1, 2, 3):
                    store.record(put(base + n), Put(ResourceRecord(A, {"n": base + n - 1}), "d1"))
            code = 0
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return True
    assert os.WEXITSTATUS(status) == 0
    return False


def test_killed_before_and_after_every_write_to_the_bucket(account: Account, remote: Remote) -> None:
    fatal, last = 1, 0
    while killed(account, remote, fatal):
        store = remote.store()
        holder = store.holder()
        if holder is not None:
            store.unlock(holder)
        found = remote.store().load()
        if found is not None:
            aside = found.records.get(Key(A, "d1"))
            assert aside is None or aside.inputs["n"] == number(found) - 1  # an entry is whole or not there
            assert number(found) in range(last, last + 4)
            last = number(found)
        fatal += 1
    assert fatal > 14
    assert number(remote.store().load()) == last + 3
    assert not [o for o in remote.objects() if o.startswith(".journal/")]

"""One list of all Workers instead of two calls each: when it is believed, and when each Worker is asked by itself."""

from __future__ import annotations

from typing import Any

import cloudflare
import httpx
import pytest

from edgespec.address import Address
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.workers_list import Known, Listed, known_deployments, list_workers, moment
from edgespec.state.model import ResourceRecord, State, Status

WHEN = "2026-11-30T20:15:30.123456Z"
LATER = "2026-11-30T20:15:30.123457Z"
SAME = "2026-11-30T21:15:30.1234560+01:00"
SCRIPT = "/workers/scripts/a"


def worker(name: str, when: str | None = WHEN, *, enabled: bool = True) -> dict[str, Any]:
    return {"name": name, "deployed_on": when, "subdomain": {"enabled": enabled, "previews_enabled": True}}


class Account:
    """Answers by path, and remembers what it was asked."""

    def __init__(self, workers: list[dict[str, Any]] | Exception, most: int = 100) -> None:
        self.asked: list[str] = []
        self._workers, self._most = workers, most

    def get(self, path: str, query: dict[str, int] | None = None) -> Any:
        self.asked.append(path)
        if path == "/workers/workers":
            if isinstance(self._workers, Exception):
                raise self._workers
            query = query or {}
            size = min(query["per_page"], self._most)
            found = self._workers[(query["page"] - 1) * size :][:size]
            return {"result": found, "result_info": {"total_count": len(self._workers)}}
        if path.endswith("/deployments"):
            return {"result": {"deployments": [{"versions": [{"version_id": "asked", "percentage": 100}]}]}}
        return {"result": {"enabled": False}}


def live(account: Account, known: dict[str, Known] | None) -> Live:
    return Live(account, known)  # type: ignore[arg-type]


def refused(status: int) -> Exception:
    response = httpx.Response(status, request=httpx.Request("GET", "https://api.example"))
    return cloudflare.APIStatusError("no", response=response, body=None)


def test_what_the_list_shows_to_be_as_it_was_is_not_asked_for() -> None:
    account = Account([worker("a")])
    seen = live(account, {"a": Known(str(moment(WHEN)), "ours")})
    assert seen.deployed("a") == {"ours": 100.0} and seen.workers_dev("a") is True
    assert seen.deployed_on("a") == moment(WHEN)
    assert account.asked == ["/workers/workers"]


@pytest.mark.parametrize(
    ("workers", "known"),
    [
        ([worker("a", LATER)], {"a": Known(str(moment(WHEN)), "ours")}),
        ([worker("a", None)], {"a": Known(str(moment(WHEN)), "ours")}),
        ([worker("a", "soon")], {"a": Known(str(moment(WHEN)), "ours")}),
        ([worker("b")], {"a": Known(str(moment(WHEN)), "ours")}),
        ([worker("a")], {"b": Known(str(moment(WHEN)), "ours")}),
        ([worker("a", None)], {}),
    ],
)
def test_any_other_deployment_is_asked_for(workers: list[dict[str, Any]], known: dict[str, Known]) -> None:
    account = Account(workers)
    assert live(account, known).deployed("a") == {"asked": 100.0}
    assert account.asked == ["/workers/workers", f"{SCRIPT}/deployments"]


@pytest.mark.parametrize("status", [400, 403, 404, 405])
def test_without_such_a_list_each_worker_is_asked(status: int) -> None:
    account = Account(refused(status))
    seen = live(account, {"a": Known(str(moment(WHEN)), "ours")})
    assert seen.deployed("a") == {"asked": 100.0} and seen.workers_dev("a") is False and seen.deployed_on("a") is None
    assert account.asked == ["/workers/workers", f"{SCRIPT}/deployments", f"{SCRIPT}/subdomain"]


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_list_that_failed_is_no_list_that_does_not_exist(status: int) -> None:
    with pytest.raises(cloudflare.APIStatusError):
        live(Account(refused(status)), {}).deployed("a")


def test_without_state_the_worker_itself_is_asked() -> None:
    account = Account([worker("a")])
    seen = live(account, None)
    assert seen.deployed("a") == {"asked": 100.0} and seen.workers_dev("a") is False
    assert "/workers/workers" not in account.asked


def test_after_a_write_the_worker_itself_is_asked() -> None:
    account = Account([worker("a")])
    seen = live(account, {"a": Known(str(moment(WHEN)), "ours")})
    assert seen.deployed("a") == {"ours": 100.0}
    seen.forget()
    assert seen.deployed("a") == {"asked": 100.0} and seen.deployed_on("a") is None


@pytest.mark.parametrize("most", [1, 2, 3, 100])
def test_every_page_however_many_the_api_gives(most: int) -> None:
    names = [f"w{i}" for i in range(5)]
    account = Account([worker(n, enabled=n != "w3") for n in names], most)
    found = list_workers(account)  # type: ignore[arg-type]
    assert found == {n: Listed(moment(WHEN), n != "w3") for n in names}
    assert len(account.asked) == -(-5 // most)


def test_one_moment_has_one_spelling() -> None:
    assert moment(WHEN) == moment(SAME) != moment(LATER)
    assert moment(None) is moment("") is moment(7) is None


def record(status: Status = Status.READY, version: str = "v", when: Any = "t") -> State:
    address = Address("deployment", "a")
    made = ResourceRecord(address, {"script": "a", "version": version}, {"deployed_on": when}, status=status)
    return State("l", "p", "e").put(made)


def test_what_state_knows() -> None:
    assert known_deployments(record()) == {"a": Known("t", "v")}
    assert known_deployments(State("l", "p", "e").put(next(iter(record().records.values())), "deposed")) == {}
    for status in (Status.CREATING, Status.UPDATING, Status.DELETING):
        assert known_deployments(record(status)) == {}
    assert known_deployments(record(version="v:50,w:50")) == known_deployments(record(when=None)) == {}

"""What other tools got wrong in applying, each with its own input (the report is named at each test)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import botocore.httpsession
import httpx
import pytest

from edgespec import operations
from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.plan.model import Action
from edgespec.providers.base import AlreadyExistsError, ProviderError, WrongAccountError
from edgespec.providers.cloudflare.account import Account, api_errors
from edgespec.providers.cloudflare.kv_namespace import KvNamespaceProvider
from edgespec.providers.cloudflare.live import Live
from edgespec.providers.cloudflare.worker import nonce_tag
from edgespec.session import current_state
from edgespec.state.model import ResourceRecord, Status
from tests.e2e.conftest import TinyProject
from tests.faults.ground import Ground, inventory, quick
from tests.faults.injector import Fault, Injector

MEMORY, PINNED = 0, 1


@pytest.fixture
def ground(tmp_path: Path, build_cache: Path, shared_edge: Path) -> Iterator[Ground]:
    made = Ground(tmp_path, build_cache, shared_edge)
    made.write({"alpha": (0, PINNED, 0, 0)})
    with quick(tmp_path):
        yield made
        made.project.apply(destroy=True, allow_destroy=True)


@pytest.fixture
def project(ground: Ground) -> TinyProject:
    return ground.project


@pytest.fixture
def account(project: TinyProject) -> Iterator[Account]:
    with contextlib.closing(operations.connect(project.session())) as made:
        yield made


@pytest.fixture
def injector() -> Iterator[Injector]:
    made = Injector()
    with made.installed():
        yield made


def script_of(project: TinyProject) -> str:
    return f"{project.name}-local-alpha"


def record_of(project: TinyProject, type_: str, name: str = "alpha") -> ResourceRecord | None:
    state = current_state(project.session())
    return None if state is None else state.get(Address(type_, name))


def upload_stub(account: Account, script: str, tags: list[str]) -> None:
    """A Worker that somebody, or an interrupted tool, put there: it runs, and is not what was asked for."""
    code = b"export default { fetch: () => new Response('stub') }"
    metadata: Any = {"main_module": "stub.js", "compatibility_date": "2026-07-01", "tags": tags}
    files: Any = [("stub.js", code, "application/javascript+module")]
    account.once.workers.scripts.update(script, account_id=account.id, metadata=metadata, files=files)


class OnlyThis:
    """Fails the one request whose "METHOD path" ends so, once."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, method: str, end: str, fault: Fault) -> None:
        self.times = 0
        injector, send = Injector(), httpx.Client.send
        injector.arm(fault, 0)

        def sent(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
            if request.method == method and request.url.path.endswith(end):
                self.times += 1
                return injector._http(request, lambda: send(client, request, **options))
            return send(client, request, **options)

        monkeypatch.setattr(httpx.Client, "send", sent)


CREATES = {
    "the bucket": ("POST", "/r2/buckets", Fault.CUT),
    "the namespace": ("POST", "/storage/kv/namespaces", Fault.TIMEOUT),
    "the Worker": ("PUT", "-local-alpha", Fault.GATEWAY),
    "the deployment": ("POST", "/deployments", Fault.TIMEOUT),
}


@pytest.mark.parametrize(("method", "end", "fault"), CREATES.values(), ids=CREATES.keys())
def test_a_create_whose_answer_was_lost_is_found_and_not_made_twice(
    ground: Ground, project: TinyProject, monkeypatch: pytest.MonkeyPatch, method: str, end: str, fault: Fault
) -> None:
    """terraform#16615, #20718: here even the same apply goes on."""
    if end == "/deployments":  # a first upload is deployed by itself: a second version is not
        project.apply_well()
        ground.write({"alpha": (0, PINNED, 1, 0)})
    seen = OnlyThis(monkeypatch, method, end, fault)
    project.apply_well()
    assert seen.times == 1
    assert not [c for c in project.plan().plan.changes if c.action is not Action.NOOP]
    found = inventory(project)
    assert found["open"] == {"alpha": True} and all(len(set(t)) == len(t) for t in found["tags"].values())


def test_a_second_version_whose_answer_was_lost_is_not_uploaded_twice(
    ground: Ground, project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.apply_well()
    ground.write({"alpha": (0, PINNED, 1, 0)})
    seen = OnlyThis(monkeypatch, "POST", "/versions", Fault.TIMEOUT)
    project.apply_well()
    assert seen.times == 1 and len(inventory(project)["tags"]["alpha"]) == 2


def test_a_create_that_was_refused_for_too_many_requests_is_made_later(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """provider#5505: it was certainly not carried out, so that a create is asked for again too."""
    seen = OnlyThis(monkeypatch, "POST", "/r2/buckets", Fault.TOO_MANY)
    project.apply_well()
    assert seen.times == 2


def test_a_create_that_failed_with_500_is_not_repeated_blindly(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = OnlyThis(monkeypatch, "POST", "/r2/buckets", Fault.BROKEN)
    result = project.apply().result
    assert result is not None and result.diagnostics.has_errors and seen.times == 1
    found = record_of(project, "r2_bucket", f"{project.name}-local-auto")
    assert found is not None and found.status is Status.CREATING and found.nonce  # nobody knows whether it was made
    project.apply_well()


def test_the_worker_carries_the_nonce_of_its_create(project: TinyProject, account: Account) -> None:
    project.apply_well()
    found = record_of(project, "worker")
    assert found is not None and found.nonce
    assert nonce_tag(found.nonce) in Live(account).scripts()[script_of(project)]
    s3, bucket = account.s3("default"), f"{project.name}-local-auto"
    weights = record_of(project, "weights", "alpha/default")
    key = s3.list_objects_v2(Bucket=bucket)["Contents"][0]["Key"]
    assert weights is not None
    assert s3.head_object(Bucket=bucket, Key=key)["Metadata"] == {"edgespec-nonce": weights.nonce}


def killed_before_its_upload(project: TinyProject, monkeypatch: pytest.MonkeyPatch) -> ResourceRecord:
    """An apply that died between writing the Worker's intent and its call."""
    send = httpx.Client.send

    class Died(BaseException):
        pass

    def sent(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        if request.method == "PUT" and request.url.path.endswith(script_of(project)):
            raise Died
        return send(client, request, **options)

    with monkeypatch.context() as patch, pytest.raises(Died):
        patch.setattr(httpx.Client, "send", sent)
        project.apply()
    found = record_of(project, "worker")
    assert found is not None and found.status is Status.CREATING
    return found


def test_a_half_made_worker_of_ours_is_finished(
    project: TinyProject, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """alchemy PR#45, #700: state says `creating`, and a stub is there: its content is looked at, not its existence."""
    intent = killed_before_its_upload(project, monkeypatch)
    upload_stub(account, script_of(project), ["edgespec", nonce_tag(intent.nonce)])
    assert account.get(f"/workers/scripts/{script_of(project)}/versions")["result"]["items"]
    project.apply_well()
    found = inventory(project)
    assert found["open"] == {"alpha": True} and len(found["tags"]["alpha"]) == 2
    deployed = Live(account).deployed(script_of(project))
    record = record_of(project, "worker")
    assert record is not None and deployed == {record.outputs["version_id"]: 100.0}
    assert [r["label"] for r in project.infer("alpha", "hello")] == ["refund"]  # ours answers, not the stub


def test_anothers_worker_of_that_name_is_not_taken_for_ours(
    project: TinyProject, account: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made by somebody between our intent and our call: it carries no nonce of ours, so consent is asked for."""
    killed_before_its_upload(project, monkeypatch)
    upload_stub(account, script_of(project), ["somebody-else"])
    assert [str(c.key) for c in project.plan().plan.changes if c.action is Action.ADOPT] == ["worker/alpha"]
    with pytest.raises(EdgespecError) as refused:
        project.apply()
    assert [d.code for d in refused.value.diagnostics if d.code == "ES204"]
    project.apply_well(adopt=True)


def test_a_title_that_exists_is_adopted_with_consent_not_created(project: TinyProject, account: Account) -> None:
    """workers-sdk#14284: a namespace of that title exists and state has no id."""
    title = f"{project.name}-local-weights"
    made = account.once.kv.namespaces.create(account_id=account.id, title=title)
    assert made is not None
    adopted = [c for c in project.plan().plan.changes if c.key.address.type == "kv_namespace"]
    assert [c.action for c in adopted] == [Action.ADOPT]
    with pytest.raises(EdgespecError) as refused:
        project.apply()
    assert [d.code for d in refused.value.diagnostics if d.code == "ES204"]
    project.apply_well(adopt=True)
    found = record_of(project, "kv_namespace", title)
    assert found is not None and found.outputs["id"] == made.id


def test_a_title_taken_since_the_plan_is_an_error_that_says_so(project: TinyProject, account: Account) -> None:
    """Error 10014 of the create itself."""
    title, address = f"{project.name}-race", Address("kv_namespace", "race")
    made = account.once.kv.namespaces.create(account_id=account.id, title=title)
    assert made is not None
    with pytest.raises(AlreadyExistsError, match="apply --adopt") as caught:
        KvNamespaceProvider(account, Live(account)).create(address, {"title": title}, lambda *_: None)
    assert caught.value.nothing_done
    account.sdk.kv.namespaces.delete(made.id, account_id=account.id)


def test_just_the_keys_that_a_bulk_write_did_not_take_are_sent_again(
    project: TinyProject, injector: Injector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KV's changelog of 2024-11-14: 200, and `unsuccessful_keys`."""
    sent: list[list[str]] = []
    send = httpx.Client.send

    def watched(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        if request.method == "PUT" and request.url.path.endswith("/bulk"):
            sent.append([p["key"] for p in json.loads(request.content)])
        return send(client, request, **options)

    monkeypatch.setattr(httpx.Client, "send", watched)
    injector.arm(Fault.PARTLY, 0, 1)
    project.apply_well()
    assert len(sent) == 2 and set(sent[1]) == set(sent[0][::2])
    (pinned,) = inventory(project)["pinned"].values()
    assert {f"artifacts/{sha}" for sha in pinned} == set(sent[0])


def test_keys_that_are_never_taken_fail_the_step_by_name(project: TinyProject, injector: Injector) -> None:
    injector.arm(Fault.PARTLY, 0, 1000)
    result = project.apply().result
    injector.disarm()
    assert result is not None
    said = [str(d) for d in result.diagnostics if d.address == "kv_pins/alpha"]
    assert len(said) == 1 and "did not take" in said[0]
    assert "deployment/alpha" not in {str(k) for k in project.state().records}
    project.apply_well()


def test_a_failed_build_leaves_what_is_deployed_as_it_was(project: TinyProject) -> None:
    """truss#2385: settings untouched, and the old version goes on serving."""
    project.apply_well()
    before, state = inventory(project), project.state()
    source = project.root / "models" / "tiny" / "config.json"
    whole = source.read_text()
    source.write_text(whole.replace('"bert"', '"no-such-architecture"'))
    with contextlib.suppress(EdgespecError):
        result = project.apply().result
        assert result is not None and result.diagnostics.has_errors
    assert inventory(project) == before
    now = project.state()
    assert {k: r for k, r in now.records.items() if k.address.type != "model"} == {
        k: r for k, r in state.records.items() if k.address.type != "model"
    }
    source.write_text(whole)
    project.apply_well()
    assert inventory(project) == before


def test_empty_not_found_and_another_account_are_three_answers(project: TinyProject, account: Account) -> None:
    """workers-sdk#12044: a list on a missing Worker."""
    made = account.once.kv.namespaces.create(account_id=account.id, title=f"{project.name}-empty")
    bucket = f"{project.name}-empty"
    account.once.r2.buckets.create(account_id=account.id, name=bucket)
    assert made is not None
    live = Live(account)
    assert live.pinned(made.id) == frozenset() and live.objects(bucket, "default") == {}
    assert live.pinned("0" * 32) is None and live.objects(f"{bucket}-no", "default") is None
    assert live.deployed("no-such-worker") is None and live.workers_dev("no-such-worker") is None
    account.id = "f" * 32
    elsewhere = Live(account)
    asked = {
        "scripts": elsewhere.scripts,
        "buckets": lambda: elsewhere.buckets("default"),
        "namespaces": elsewhere.namespaces,
        "pinned": lambda: elsewhere.pinned(made.id),
        "deployed": lambda: elsewhere.deployed("no-such-worker"),
    }
    for ask in asked.values():
        with pytest.raises(WrongAccountError, match="account") as caught, api_errors(Address("worker", "a"), "Listing"):
            ask()
        assert [d.code for d in caught.value.diagnostics] == ["ES414"]
    account.id = account.endpoints.account_id
    account.sdk.kv.namespaces.delete(made.id, account_id=account.id)
    account.sdk.r2.buckets.delete(bucket, account_id=account.id)


def test_another_account_is_no_reason_to_plan_anything_anew(
    project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.apply_well()
    state = project.state()
    connect = operations.connect

    def elsewhere(session: Any) -> Account:
        made = connect(session)
        made.id = "f" * 32
        return made

    with monkeypatch.context() as patch:
        patch.setattr(operations, "connect", elsewhere)
        with pytest.raises(ProviderError, match="account"):
            project.apply()
    assert project.state().same_records(state)


def test_traffic_moves_only_to_a_version_that_is_healthy(
    ground: Ground, project: TinyProject, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kserve#5983: health first, weight after."""
    project.apply_well()
    before = inventory(project)
    ground.write({"alpha": (0, PINNED, 1, 0)})
    calls: list[str] = []
    send = httpx.Client.send

    def sick(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        path = request.url.path
        if path.startswith("/v/"):
            calls.append("health")
            return httpx.Response(503, text="weights missing", request=request)
        if request.method == "POST" and path.endswith("/deployments"):
            calls.append("deploy")
        return send(client, request, **options)

    with monkeypatch.context() as patch:
        patch.setattr(httpx.Client, "send", sick)
        result = project.apply().result
    assert result is not None and any("not healthy" in str(d) for d in result.diagnostics)
    assert "deploy" not in calls and calls.count("health") > 1
    after = inventory(project)
    assert (after["served"], after["open"]) == (before["served"], before["open"])
    place = ("default", "auto")
    assert before["objects"][place] <= after["objects"][place]  # what serves users keeps its weights
    project.apply_well()


def test_a_worker_that_somebody_closed_is_opened_again(project: TinyProject, account: Account) -> None:
    """Its preview addresses too: the version is asked there before it gets traffic."""
    project.apply_well()
    account.sdk.workers.scripts.subdomain.create(
        script_of(project), account_id=account.id, enabled=False, previews_enabled=False
    )
    project.apply_well()
    assert inventory(project)["open"] == {"alpha": True}


def test_objects_go_to_r2_without_checksum_trailers(project: TinyProject, monkeypatch: pytest.MonkeyPatch) -> None:
    """gaia#3029, opentofu#2605: boto3 from 1.36 on adds them unless told not to, and R2 answers Unauthorized."""
    sent: list[dict[str, str]] = []
    send = botocore.httpsession.URLLib3Session.send

    def watched(session: Any, request: Any) -> Any:
        if request.method == "PUT":
            sent.append({k.lower(): str(v) for k, v in request.headers.items()})
        return send(session, request)

    monkeypatch.setattr(botocore.httpsession.URLLib3Session, "send", watched)
    project.apply_well()
    assert sent
    for headers in sent:
        assert "x-amz-trailer" not in headers and "aws-chunked" not in headers.get("content-encoding", "")
        assert not {h for h in headers if h.startswith("x-amz-checksum")} - {"x-amz-checksum-sha256"}
        assert not headers["x-amz-content-sha256"].startswith("STREAMING") and "expect" not in headers


def test_a_wrong_checksum_is_said_to_be_one(project: TinyProject, account: Account) -> None:
    project.apply_well()
    with pytest.raises(ProviderError) as caught, api_errors(Address("weights", "a"), "Uploading weights"):
        account.s3("default").put_object(
            Bucket=f"{project.name}-local-auto", Key="artifacts/x", Body=b"x", ChecksumSHA256="A" * 43 + "="
        )
    said = str(caught.value)
    assert "Unauthorized" not in said and ("BadDigest" in said or "checksum" in said.lower())

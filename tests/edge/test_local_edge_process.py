"""The edge as a process: starting, finding, stopping, surviving, and leaving nothing behind."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import httpx
import pytest
from conftest import SOURCES
from edge_clients import Clients, connect

from edgespec.diagnostics import EdgespecError
from edgespec.local_edge import LocalEdge
from edgespec.local_edge import edge as edge_module
from edgespec.local_edge.processes import is_running, started_at, wait_gone

MakeEdge = Callable[..., LocalEdge]
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
HELLO = "export default { fetch() { return new Response('hello'); } };"


def folder(edge: LocalEdge) -> Path:
    return edge.log_path.parent


def record(edge: LocalEdge) -> tuple[int, str]:
    value = json.loads((folder(edge) / "edge.json").read_text())
    return value["pid"], value["started"]


def workerds(edge: LocalEdge) -> list[tuple[int, str]]:
    """The workerd processes that the edge recorded and that run now."""
    records = [(int(f.name), f.read_text().strip()) for f in (folder(edge) / "run" / "workerd").iterdir()]
    return [(pid, started) for pid, started in records if is_running(pid, started)]


def code(caught: pytest.ExceptionInfo[EdgespecError]) -> str:
    return caught.value.diagnostics.items[0].code


def test_ensure_starts_once_and_then_only_looks(make_edge: MakeEdge) -> None:
    edge = make_edge()
    assert edge.status() is None
    assert not edge.down()
    first = edge.ensure()
    pid, _ = record(edge)
    assert edge.ensure() == first
    assert edge.up() == first
    status = edge.status()
    assert status is not None
    assert (status.pid, status.port, status.scripts) == (pid, first.port, ())
    assert status.workerd.startswith("1.")
    assert first.api_base_url == f"http://127.0.0.1:{first.port}/client/v4"
    assert first.s3_base_url == f"http://127.0.0.1:{first.port}/s3"
    running = workerds(edge)
    assert len(running) == 1
    assert edge.down()
    assert not is_running(*running[0])
    assert edge.status() is None


def test_credentials_are_private_kept_and_never_shown(make_edge: MakeEdge) -> None:
    edge = make_edge()
    endpoint = edge.ensure()
    clients = connect(endpoint)
    verified = clients.cloudflare.user.tokens.verify()
    assert verified is not None
    assert verified.id == endpoint.access_key_id
    assert hashlib.sha256(endpoint.api_token.reveal().encode()).hexdigest() == endpoint.secret_access_key.reveal()
    clients.get("/edge/status", headers={"authorization": "Bearer wrong-token-in-a-header"})
    clients.s3().list_buckets()
    for secret in (endpoint.api_token.reveal(), endpoint.secret_access_key.reveal(), endpoint.access_key_id):
        assert len(secret) >= 32
        assert secret not in repr(endpoint)
        assert secret not in edge.log_path.read_text()
    assert "wrong-token-in-a-header" not in edge.log_path.read_text()
    assert folder(edge).stat().st_mode & 0o777 == 0o700
    assert (folder(edge) / "credentials.json").stat().st_mode & 0o777 == 0o600
    edge.down()
    assert edge.ensure() == endpoint, "the same keys and the same chosen port"


def test_everything_survives_a_restart(make_edge: MakeEdge) -> None:
    edge = make_edge()
    clients = connect(edge.ensure())
    namespace = clients.cloudflare.kv.namespaces.create(account_id=clients.account, title="ns").id
    clients.cloudflare.r2.buckets.create(account_id=clients.account, name="bucket")
    clients.s3().put_object(Bucket="bucket", Key="k", Body=b"in r2")
    upload = clients.s3().create_multipart_upload(Bucket="bucket", Key="open")["UploadId"]
    clients.api("PUT", f"/storage/kv/namespaces/{namespace}/values/k", content=b"in kv")
    code = (
        "export default { async fetch(r, env) { return Response.json([await env.KV.get('k'),"
        "await (await env.B.get('k')).text(), env.SECRET]); } };"
    )
    bindings = [
        {"type": "kv_namespace", "name": "KV", "namespace_id": namespace},
        {"type": "r2_bucket", "name": "B", "bucket_name": "bucket"},
        {"type": "secret_text", "name": "SECRET", "text": "s"},
    ]
    clients.upload("kept", code, bindings=bindings)
    preview = clients.upload("kept", HELLO, version=True).json()["result"]["id"]
    clients.enable("kept")
    assert edge.down()
    again = connect(edge.ensure())
    assert again.get("/w/kept/").json() == ["in kv", "in r2", "s"]
    assert again.get(f"/v/kept/{preview[:8]}/").text == "hello"
    at = {"Bucket": "bucket", "Key": "open", "UploadId": upload}
    part = again.s3().upload_part(**at, PartNumber=1, Body=b"p")
    parts = {"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]}
    again.s3().complete_multipart_upload(**at, MultipartUpload=parts)
    assert again.s3().get_object(Bucket="bucket", Key="open")["Body"].read() == b"p"


def test_nothing_is_left_when_node_is_killed(make_edge: MakeEdge) -> None:
    edge = make_edge()
    clients = connect(edge.ensure())
    clients.upload("kept", HELLO)
    clients.enable("kept")
    pid, started = record(edge)
    running = workerds(edge)
    assert running
    os.kill(pid, signal.SIGKILL)
    assert wait_gone(pid, started, seconds=10)
    assert edge.status() is None
    again = connect(edge.ensure())
    for process in running:
        assert wait_gone(*process, seconds=10), "a workerd outlived its edge and the next start"
    assert record(edge)[0] != pid
    assert again.get("/w/kept/").text == "hello"


def test_a_workerd_that_dies_comes_back_by_itself(make_edge: MakeEdge) -> None:
    edge = make_edge()
    clients = connect(edge.ensure())
    clients.upload("kept", HELLO)
    clients.enable("kept")
    [(pid, started)] = workerds(edge)
    os.kill(pid, signal.SIGKILL)
    assert wait_gone(pid, started, seconds=10)
    assert [clients.get("/w/kept/").text for _ in range(5)] == ["hello"] * 5
    clients.cloudflare.r2.buckets.create(account_id=clients.account, name="after")


def test_a_version_that_no_longer_starts_does_not_stop_the_edge(make_edge: MakeEdge) -> None:
    edge = make_edge()
    clients = connect(edge.ensure())
    for name in ("good", "bad"):
        clients.upload(name, HELLO)
        clients.enable(name)
    edge.down()
    # As if a newer workerd did not know a flag any more that an older one did.
    path = folder(edge) / "state.json"
    state = json.loads(path.read_text())
    for version in state["versions"].values():
        if version["script"] == "bad":
            version["compatibility_flags"] = ["a_flag_that_is_gone"]
    path.write_text(json.dumps(state))
    again = connect(edge.ensure())
    assert again.get("/w/good/").text == "hello"
    assert again.get("/w/bad/").status_code == 404
    assert "a_flag_that_is_gone" in edge.log_path.read_text()
    assert again.upload("bad", HELLO).status_code == 200
    assert again.get("/w/bad/").text == "hello"


def test_two_starters_at_once_start_one_edge(make_edge: MakeEdge) -> None:
    first = make_edge()
    second = make_edge(folder(first))
    with ThreadPoolExecutor(2) as pool:
        endpoints = list(pool.map(lambda edge: edge.ensure(), [first, second]))
    assert endpoints[0] == endpoints[1]
    assert first.log_path.read_text().count('"event":"listening"') == 1


def test_two_starters_in_two_processes_start_one_edge(make_edge: MakeEdge, tmp_path: Path) -> None:
    edge = make_edge(tmp_path / "state")
    program = (
        "import sys; from pathlib import Path; from edgespec.local_edge import LocalEdge;"
        "print(LocalEdge(Path(sys.argv[1]), port=0, sources=Path(sys.argv[2]), cache_dir=Path(sys.argv[3]),"
        "progress=lambda line: None).ensure().port)"
    )
    command = [sys.executable, "-c", program, str(folder(edge)), str(SOURCES), str(tmp_path)]
    starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    ports = {starter.communicate(timeout=90)[0].strip() for starter in starters}
    assert ports == {str(edge.ensure().port)}, "and it outlived both who started it"
    assert edge.log_path.read_text().count('"event":"listening"') == 1


def test_a_port_of_another_program_is_named(make_edge: MakeEdge) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        edge = make_edge(port=port)
        with pytest.raises(EdgespecError, match=f"Port {port} .*target.port") as caught:
            edge.ensure()
        assert code(caught) == "ES605"
    assert edge.status() is None
    assert edge.ensure().port == port, "once it is free it is taken"


def test_a_port_that_is_taken_before_the_edge_has_it_is_given_up(
    make_edge: MakeEdge, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        looks = [port, port]
        real = edge_module._unused_port
        monkeypatch.setattr(edge_module, "_unused_port", lambda: looks.pop() if looks else real())
        edge = make_edge()
        found = edge.ensure().port
        assert not looks and found != port
        assert (folder(edge) / "port").read_text() == str(found), "it keeps the port that it got"

        monkeypatch.setattr(edge_module, "_can_bind", lambda _: True)
        with pytest.raises(EdgespecError, match=f"Port {port} ") as caught:
            make_edge(port=port).ensure()
        assert code(caught) == "ES605", "a port that was asked for is not replaced"


def test_a_port_of_another_project_names_its_folder(make_edge: MakeEdge) -> None:
    other = make_edge()
    port = other.ensure().port
    with pytest.raises(EdgespecError, match="another project") as caught:
        make_edge(port=port).ensure()
    assert str(folder(other)) in str(caught.value)


def test_another_port_moves_the_edge(make_edge: MakeEdge) -> None:
    edge = make_edge()
    old = edge.ensure()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    moved = make_edge(folder(edge), port=port).ensure()
    assert moved.port == port
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{old.base_url}/edge/whoami", trust_env=False)


def test_an_edge_that_cannot_start_shows_its_log(make_edge: MakeEdge) -> None:
    edge = make_edge()
    folder(edge).mkdir(exist_ok=True)
    (folder(edge) / "state.json").write_text('{"format":"edgespec.local-edge/v99"}')
    with pytest.raises(EdgespecError, match="v99") as caught:
        edge.ensure()
    assert code(caught) == "ES606"
    assert not (folder(edge) / "edge.json").exists()


def test_a_record_of_a_pid_that_was_used_again_is_never_killed(make_edge: MakeEdge) -> None:
    edge = make_edge()
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        stale = {"pid": other.pid, "started": "1", "port": 1}
        (folder(edge) / "edge.json").write_text(json.dumps(stale))
        (folder(edge) / "run" / "workerd").mkdir(parents=True)
        (folder(edge) / "run" / "workerd" / str(other.pid)).write_text("1")
        assert edge.status() is None
        assert not edge.down()
        edge.ensure()
        assert other.poll() is None
        assert started_at(other.pid)
    finally:
        other.kill()
        other.wait()


def test_a_stop_lets_the_request_in_flight_end(make_edge: MakeEdge) -> None:
    edge = make_edge()
    clients = connect(edge.ensure())
    slow = (
        "let waiting = 0; export default { async fetch(r) {"
        "if (new URL(r.url).pathname === '/waiting') return new Response(String(waiting));"
        "waiting += 1; await scheduler.wait(1500); return new Response('done'); } };"
    )
    clients.upload("slow", slow)
    clients.enable("slow")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(clients.get, "/w/slow/")
        deadline = time.monotonic() + 30
        while connect(clients.endpoint).get("/w/slow/waiting").text != "1":
            assert time.monotonic() < deadline
        assert edge.down()
        assert answer.result().text == "done"


def test_shutdown_by_request(make_edge: MakeEdge) -> None:
    edge = make_edge()
    endpoint = edge.ensure()
    pid, started = record(edge)
    headers = {"authorization": f"Bearer {endpoint.api_token.reveal()}"}
    assert httpx.post(f"{endpoint.base_url}/edge/shutdown", headers=headers, trust_env=False).status_code == 202
    assert wait_gone(pid, started, seconds=15)
    assert workerds(edge) == []


def test_the_log_is_one_json_line_a_request_and_is_turned_over(make_edge: MakeEdge) -> None:
    edge = make_edge()
    clients = connect(edge.ensure())
    clients.get("/w/none/?text=private-text")
    lines = [json.loads(line) for line in edge.log_path.read_text().splitlines()]
    last = [line for line in lines if line["event"] == "request"][-1]
    assert {k: last[k] for k in ("method", "path", "status")} == {"method": "GET", "path": "/w/none/", "status": 404}
    assert "ms" in last
    assert "private-text" not in edge.log_path.read_text()
    edge.down()
    edge.log_path.write_bytes(b"x" * (5 * 1024 * 1024 + 1))
    edge.ensure()
    assert edge.log_path.stat().st_size < 10_000
    assert edge.log_path.with_suffix(".log.1").is_file()


@LINUX
def test_everything_listens_on_loopback_only(make_edge: MakeEdge) -> None:
    edge = make_edge()
    edge.ensure()
    pid, _ = record(edge)
    inodes = set()
    for process in (pid, *(p for p, _ in workerds(edge))):
        for handle in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):
                inodes.add(str(handle.readlink()).removeprefix("socket:[").removesuffix("]"))
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                listening.append((table, fields[1].split(":")[0]))
    assert len(listening) >= 2
    assert set(listening) == {("tcp", "0100007F")}


def test_the_inspector_opens_only_when_asked(make_edge: MakeEdge, tmp_path: Path) -> None:
    edge = make_edge()
    clients: Clients = connect(edge.ensure())
    headers = {"authorization": f"Bearer {clients.endpoint.api_token.reveal()}"}
    assert clients.get("/edge/status", headers=headers).json()["inspector"] is None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    inspected = LocalEdge(
        tmp_path, port=0, sources=SOURCES, cache_dir=tmp_path, progress=lambda _line: None, inspector_port=port
    )
    try:
        made = connect(inspected.ensure())
        made.upload("seen", HELLO)
        targets = httpx.get(f"http://127.0.0.1:{port}/json", trust_env=False).json()
        assert any(str(t["id"]).startswith("core:user:") for t in targets)
    finally:
        inspected.down()

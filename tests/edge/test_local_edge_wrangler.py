"""The contract test of people who never saw this project: Cloudflare's wrangler, pointed at the local edge."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from edge_clients import Clients, connect

from edgespec.local_edge import LocalEdge
from edgespec.local_edge.lockfile import locked
from edgespec.local_edge.node import find_node

HERE = Path(__file__).parent / "wrangler"
Wrangler = Callable[..., str]

CODE = (
    "export default { async fetch(request, env) { return Response.json({greeting: await env.KV.get('greeting'),"
    " object: (await (await env.BUCKET.get('a.txt'))?.text()) ?? null, version: env.VERSION,"
    " secret: env.TOKEN ?? null}); } };"
)


@pytest.fixture(scope="session")
def wrangler_home() -> Path:
    """The folder with wrangler's packages; installed once, by its lock."""
    with locked(HERE / "node_modules.lock"):
        record = HERE / "node_modules" / ".package-lock.json"
        wanted = json.loads((HERE / "package-lock.json").read_text())["packages"]["node_modules/wrangler"]["version"]
        have = json.loads(record.read_text())["packages"] if record.is_file() else {}
        if have.get("node_modules/wrangler", {}).get("version") != wanted:
            command = [*find_node().npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
            path = f"{find_node().path.parent}{os.pathsep}{os.environ['PATH']}"
            subprocess.run(command, cwd=HERE, env={**os.environ, "PATH": path}, check=True)
    return HERE / "node_modules" / "wrangler" / "bin" / "wrangler.js"


@pytest.fixture(scope="module")
def clients(make_edge: Callable[..., LocalEdge]) -> Clients:
    """An edge without others' buckets: wrangler lists one page of them."""
    return connect(make_edge().ensure())


@pytest.fixture
def wrangler(wrangler_home: Path, clients: Clients, tmp_path: Path) -> Wrangler:
    """Runs wrangler in a folder of its own, non-interactively, without telemetry; gives its stdout."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "NODE_COMPILE_CACHE": str(HERE / "node_modules" / ".cache"),
        "CI": "1",
        "NO_COLOR": "1",
        "WRANGLER_SEND_METRICS": "false",
        "WRANGLER_HIDE_BANNER": "true",
        "CLOUDFLARE_API_BASE_URL": clients.endpoint.api_base_url,
        "CLOUDFLARE_API_TOKEN": clients.endpoint.api_token.reveal(),
        "CLOUDFLARE_ACCOUNT_ID": clients.account,
    }

    def run(*arguments: str, stdin: str = "") -> str:
        command = [str(find_node().path), str(wrangler_home), *arguments]
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    return run


def configure(folder: Path, name: str, **changes: Any) -> None:
    config = {
        "name": name,
        "main": "worker.js",
        "compatibility_date": "2026-07-01",
        "workers_dev": True,
        "preview_urls": True,
        "send_metrics": False,
        **changes,
    }
    (folder / "wrangler.json").write_text(json.dumps(config))
    (folder / "worker.js").write_text(CODE)


# Every call of wrangler costs over a second of start-up, so one test walks the whole way.
def test_wrangler_makes_storage_deploys_reads_back_and_deletes(
    wrangler: Wrangler, clients: Clients, tmp_path: Path, name: str
) -> None:
    made = wrangler("kv", "namespace", "create", name)
    found = re.search(r'"id": "([0-9a-f]{32})"', made)
    assert found
    namespace = found[1]
    wrangler("r2", "bucket", "create", name)
    assert name in wrangler("r2", "bucket", "list")

    in_namespace = ("--namespace-id", namespace, "--remote")
    wrangler("kv", "key", "put", "greeting", "hello", *in_namespace)
    assert wrangler("kv", "key", "get", "greeting", *in_namespace).strip().endswith("hello")
    (tmp_path / "a.txt").write_text("in r2")
    wrangler("r2", "object", "put", f"{name}/a.txt", "--file", "a.txt", "--remote")

    storage: dict[str, Any] = {
        "kv_namespaces": [{"binding": "KV", "id": namespace}],
        "r2_buckets": [{"binding": "BUCKET", "bucket_name": name}],
    }
    configure(tmp_path, name, **storage, vars={"VERSION": "one"})
    deployed = wrangler("deploy")
    answer = clients.get(f"/w/{name}/").json()
    assert answer == {"greeting": "hello", "object": "in r2", "version": "one", "secret": None}
    versions = json.loads(wrangler("versions", "list", "--json"))
    assert f"Current Version ID: {versions[-1]['id']}" in deployed

    configure(tmp_path, name, **storage, vars={"VERSION": "two"})
    wrangler("versions", "upload", "--tag", "second", "--message", "the second")
    one, two = (v["id"] for v in json.loads(wrangler("versions", "list", "--json")))
    assert clients.get(f"/v/{name}/{two[:8]}/").json()["version"] == "two"
    wrangler("versions", "deploy", f"{one}@50%", f"{two}@50%", "--yes")
    split = json.loads(wrangler("deployments", "status", "--json"))["versions"]
    assert {v["version_id"]: v["percentage"] for v in split} == {one: 50, two: 50}
    assert {clients.get(f"/w/{name}/").json()["version"] for _ in range(60)} == {"one", "two"}
    wrangler("secret", "put", "TOKEN", stdin="s3cret")
    assert json.loads(wrangler("secret", "list")) == [{"name": "TOKEN", "type": "secret_text"}]
    assert clients.get(f"/w/{name}/").json()["secret"] == "s3cret"
    wrangler("rollback", one, "--yes", "--message", "back")
    assert clients.get(f"/w/{name}/").json()["version"] == "one"

    wrangler("delete", "--force")
    assert clients.get(f"/w/{name}/").status_code == 404
    clients.s3().delete_object(Bucket=name, Key="a.txt")
    wrangler("r2", "bucket", "delete", name)
    wrangler("kv", "namespace", "delete", "--namespace-id", namespace, "-y")
    assert name not in [n.title for n in clients.cloudflare.kv.namespaces.list(account_id=clients.account)]


def test_wrangler_shows_what_workerd_says_of_a_broken_worker(
    wrangler: Wrangler, clients: Clients, tmp_path: Path, name: str
) -> None:
    configure(tmp_path, name)
    (tmp_path / "worker.js").write_text("throw new Error('not today'); export default {};")
    with pytest.raises(AssertionError, match=r"not today[\s\S]*10021"):
        wrangler("deploy")

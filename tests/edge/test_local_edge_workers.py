"""The v4 API for Workers, used through the real SDK, with the uploaded code in real workerd."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cloudflare
import httpx
import pytest
from edge_clients import Clients, parts

from edgespec.local_edge import LocalEdge


def says(text: str) -> str:
    return f"export default {{ fetch() {{ return new Response({json.dumps(text)}); }} }};"


def version_id(answer: httpx.Response) -> str:
    assert answer.status_code == 200, answer.text
    return str(answer.json()["result"]["id"])


def test_the_token_is_verified(clients: Clients) -> None:
    verified = clients.cloudflare.user.tokens.verify()
    assert verified is not None
    assert verified.status == "active"
    assert clients.cloudflare.workers.subdomains.get(account_id=clients.account).subdomain == "local"


def test_no_token_a_wrong_token_and_a_wrong_account_are_three_answers(clients: Clients) -> None:
    url = f"{clients.endpoint.api_base_url}/accounts/{clients.account}/workers/scripts"
    for headers in ({}, {"authorization": "Bearer wrong"}):
        answer = clients.http.get(url, headers=headers)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (401, 10000)
    with pytest.raises(cloudflare.PermissionDeniedError) as refused:
        list(clients.cloudflare.workers.scripts.list(account_id="0" * 32))
    assert "9109" in str(refused.value)
    assert clients.http.get(f"{clients.endpoint.base_url}/edge/status").status_code == 401
    assert clients.http.post(f"{clients.endpoint.base_url}/edge/shutdown").status_code == 401


def test_a_host_that_is_not_this_machine_is_refused(clients: Clients) -> None:
    headers = {"host": f"evil.example:{clients.endpoint.port}"}
    assert clients.get("/edge/whoami", headers=headers).status_code == 421


def test_an_unknown_route_and_a_wrong_method_say_so(clients: Clients) -> None:
    assert clients.api("GET", "/stream").json()["errors"][0]["code"] == 7003
    assert clients.api("DELETE", "/workers/subdomain").status_code == 405


def test_the_sdk_uploads_deploys_reads_back_and_deletes(clients: Clients, name: str) -> None:
    scripts = clients.cloudflare.workers.scripts
    account = clients.account
    uploaded = scripts.update(
        name,
        account_id=account,
        metadata={
            "main_module": "worker.js",
            "compatibility_date": "2026-07-01",
            "bindings": [{"type": "plain_text", "name": "GREETING", "text": "hello"}],
            "tags": ["edgespec", "team:support"],
        },
        files=[
            (
                "worker.js",
                b"export default { fetch(r, env) { return new Response(env.GREETING); } };",
                "application/javascript+module",
            )
        ],
    )
    assert uploaded.id == name
    assert clients.get(f"/w/{name}/").status_code == 404, "workers.dev is off until it is enabled"
    clients.enable(name)
    assert clients.get(f"/w/{name}/").text == "hello"
    assert scripts.subdomain.get(name, account_id=account).enabled
    listed = [s for s in scripts.list(account_id=account, tags="team:support:yes") if s.id == name]
    assert [s for s in scripts.list(account_id=account, tags="team:support:no") if s.id == name] == []
    assert listed[0].tags == ["edgespec", "team:support"]
    settings = scripts.script_and_version_settings.get(name, account_id=account)
    assert settings.bindings is not None
    assert [(b.name, b.type) for b in settings.bindings] == [("GREETING", "plain_text")]
    assert settings.compatibility_date == "2026-07-01"
    assert b"env.GREETING" in scripts.content.get(name, account_id=account).read()
    scripts.settings.edit(name, account_id=account, tags=["other"], logpush=True)
    assert scripts.settings.get(name, account_id=account).tags == ["other"]
    scripts.delete(name, account_id=account)
    assert clients.get(f"/w/{name}/").status_code == 404
    with pytest.raises(cloudflare.NotFoundError, match="10007"):
        scripts.script_and_version_settings.get(name, account_id=account)


def test_wasm_text_and_data_modules_run(clients: Clients, name: str) -> None:
    # (module (func (export "answer") (result i32) i32.const 42))
    wasm = bytes.fromhex("0061736d010000000105016000017f030201000" + "70a0106616e7377657200000a06010400412a0b")
    code = (
        'import wasm from "./add.wasm"; import config from "./config.json"; import data from "./weights.bin";'
        "export default { async fetch() { const i = await WebAssembly.instantiate(wasm);"
        "return Response.json([i.exports.answer(), JSON.parse(config), data.byteLength]); } };"
    )
    modules = {"worker.js": code, "add.wasm": wasm, "config.json": '{"format":"é"}', "weights.bin": b"\x00\xff\x80"}
    assert clients.api("PUT", f"/workers/scripts/{name}", files=parts(modules)).status_code == 200
    clients.enable(name)
    assert clients.get(f"/w/{name}/").json() == [42, {"format": "é"}, 3]


def test_a_deployment_splits_traffic_between_two_versions(clients: Clients, name: str) -> None:
    clients.upload(name, says("one"))
    clients.enable(name)
    # `deployments.list` of the SDK is a pager that looks for `result.items`; the API answers `result.deployments`.
    raw = clients.cloudflare.workers.scripts.deployments.with_raw_response.list(name, account_id=clients.account)
    one = raw.json()["result"]["deployments"][0]["versions"][0]["version_id"]
    two = version_id(clients.upload(name, says("two"), version=True, annotations={"workers/tag": "v2"}))
    assert clients.get(f"/w/{name}/").text == "one", "an uploaded version is not deployed"
    deployed = clients.cloudflare.workers.scripts.deployments.create(
        name,
        account_id=clients.account,
        strategy="percentage",
        versions=[{"version_id": one, "percentage": 50}, {"version_id": two, "percentage": 50}],
        annotations={"workers/message": "half"},
    )
    assert deployed.annotations is not None
    assert deployed.annotations.workers_message == "half"
    asked = {"cloudflare-workers-version-overrides": f'other="x", {name}="{two}"'}
    assert {clients.get(f"/w/{name}/", headers=asked).text for _ in range(20)} == {"two"}
    answers = [clients.get(f"/w/{name}/").text for _ in range(200)]
    # The chance of fewer than 50 of 200 is under 1e-12.
    assert min(answers.count("one"), answers.count("two")) > 50
    versions = clients.api("GET", f"/workers/scripts/{name}/versions").json()["result"]["items"]
    assert [v["number"] for v in versions] == [2, 1]
    assert versions[0]["annotations"]["workers/tag"] == "v2"
    read = clients.cloudflare.workers.scripts.versions.with_raw_response.get(
        two, account_id=clients.account, script_name=name
    ).json()
    assert read["result"]["resources"]["script_runtime"]["compatibility_date"] == "2026-07-01"


@pytest.mark.parametrize(
    ("split", "code"),
    [
        ([("one", 50), ("two", 40)], 100123),
        ([("one", 101)], 100123),
        ([("one", -1), ("two", 101)], 100123),
        ([("nobody", 100)], 100146),
        ([("one", 50), ("one", 50)], 100122),
        ([], 100122),
    ],
)
def test_a_wrong_split_is_refused(clients: Clients, name: str, split: list[tuple[str, int]], code: int) -> None:
    clients.upload(name, says("one"))
    ids = {"one": clients.api("GET", f"/workers/scripts/{name}/versions").json()["result"]["items"][0]["id"]}
    ids["two"] = version_id(clients.upload(name, says("two"), version=True))
    versions = [{"version_id": ids.get(who, "0" * 32), "percentage": share} for who, share in split]
    body = {"strategy": "percentage", "versions": versions}
    answer = clients.api("POST", f"/workers/scripts/{name}/deployments", json=body)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, code)
    assert len(clients.api("GET", f"/workers/scripts/{name}/deployments").json()["result"]["deployments"]) == 1


def test_previews_answer_by_id_by_prefix_and_by_host(clients: Clients, name: str) -> None:
    clients.upload(name, says("one"))
    preview = version_id(clients.upload(name, says("two"), version=True))
    assert clients.get(f"/v/{name}/{preview}/").status_code == 404, "previews are off until they are enabled"
    clients.enable(name)
    port = clients.endpoint.port
    assert clients.get(f"/v/{name}/{preview}/").text == "two"
    assert clients.get(f"/v/{name}/{preview[:8]}/").text == "two"
    assert clients.get("/", headers={"host": f"{preview[:8]}-{name}.localhost:{port}"}).text == "two"
    assert clients.get("/", headers={"host": f"{name}.localhost:{port}"}).text == "one"
    assert clients.get(f"/v/{name}/{preview[:7]}/").status_code == 404


def test_the_worker_sees_its_own_address_and_the_overridden_cf(clients: Clients, name: str) -> None:
    code = (
        "export default { async fetch(r) { return Response.json({url: r.url, method: r.method, cf: r.cf,"
        " headers: Object.fromEntries(r.headers), body: await r.text()}); } };"
    )
    clients.upload(name, code)
    clients.enable(name)
    cf = json.dumps({"country": "DE", "continent": "EU", "city": "Köln"})
    url = f"{clients.endpoint.base_url}/w/{name}/a%20b/?q=%C3%A9"
    seen = clients.http.post(url, headers={"mf-cf-blob": cf, "x-edge-secret": "guess"}, content=b"text").json()
    assert seen["url"] == f"http://{name}.localhost:{clients.endpoint.port}/a%20b/?q=%C3%A9"
    assert (seen["method"], seen["body"]) == ("POST", "text")
    assert (seen["cf"]["country"], seen["cf"]["city"], seen["cf"]["colo"]) == ("DE", "Köln", "DFW")
    assert seen["headers"]["host"] == f"{name}.localhost:{clients.endpoint.port}"
    assert not [h for h in seen["headers"] if h.startswith(("mf-", "x-edge-"))]
    assert clients.get(f"/w/{name}/").json()["cf"]["country"] == "US"
    assert clients.get(f"/w/{name}/", headers={"mf-cf-blob": "{"}).status_code == 400


def test_redirects_cookies_and_statuses_pass_through(clients: Clients, name: str) -> None:
    code = (
        "export default { fetch() { const h = new Headers({location: 'https://example.com/'});"
        "h.append('set-cookie', 'a=1'); h.append('set-cookie', 'b=2');"
        "return new Response(null, {status: 302, headers: h}); } };"
    )
    clients.upload(name, code)
    clients.enable(name)
    answer = clients.get(f"/w/{name}/", follow_redirects=False)
    assert answer.status_code == 302
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]


def test_a_streamed_answer_and_a_large_body_pass_through(clients: Clients, name: str) -> None:
    code = (
        "export default { async fetch(r) { let n = 0; for await (const c of r.body) n += c.byteLength;"
        "return new Response(String(n)); } };"
    )
    clients.upload(name, code)
    clients.enable(name)
    body = bytes(5 * 1024 * 1024)
    assert clients.http.post(f"{clients.endpoint.base_url}/w/{name}/", content=body).text == str(len(body))
    chunked = clients.http.post(f"{clients.endpoint.base_url}/w/{name}/", content=(bytes(1000) for _ in range(9)))
    assert chunked.text == "9000"


def test_an_exception_in_the_worker_is_error_1101(clients: Clients, name: str) -> None:
    clients.upload(name, "export default { fetch() { throw new Error('boom'); } };")
    clients.enable(name)
    answer = clients.get(f"/w/{name}/")
    assert answer.status_code == 500
    assert "1101" in answer.text


BROKEN = [
    ("export default {", "SyntaxError"),
    ("throw new Error('at start-up'); export default {};", "at start-up"),
    ("import x from './missing.js'; export default {};", "missing.js"),
]


@pytest.mark.parametrize(("code", "complaint"), BROKEN)
def test_a_worker_that_does_not_start_is_refused_and_changes_nothing(
    clients: Clients, name: str, code: str, complaint: str
) -> None:
    clients.upload(name, says("good"))
    clients.enable(name)
    for version in (False, True):
        answer = clients.upload(name, code, version=version)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, 10021)
        assert complaint in answer.json()["errors"][0]["message"]
    assert clients.get(f"/w/{name}/").text == "good"
    assert len(clients.api("GET", f"/workers/scripts/{name}/versions").json()["result"]["items"]) == 1


@pytest.mark.parametrize(
    ("metadata", "code"),
    [
        ({"bindings": [{"type": "r2_bucket", "name": "B", "bucket_name": "nowhere"}]}, 10085),
        ({"bindings": [{"type": "kv_namespace", "name": "K", "namespace_id": "0" * 32}]}, 10041),
        ({"bindings": [{"type": "ai", "name": "AI"}]}, 10021),
        ({"bindings": [{"type": "inherit", "name": "GONE"}]}, 10021),
        ({"bindings": [{"type": "plain_text", "name": "A", "text": "1"}] * 2}, 10021),
        ({"main_module": "other.js"}, 10021),
        ({"compatibility_date": "2999-01-01"}, 10021),
        ({"compatibility_date": "soon"}, 10021),
        ({"compatibility_flags": ["no_such_flag"]}, 10021),
        ({"body_part": "script"}, 10021),
    ],
)
def test_wrong_metadata_is_refused(clients: Clients, name: str, metadata: dict[str, object], code: int) -> None:
    answer = clients.upload(name, says("x"), **metadata)
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (400, code), answer.text
    assert clients.api("GET", f"/workers/scripts/{name}/settings").status_code == 404


def test_module_types_sizes_names_and_forms_are_checked(clients: Clients, name: str) -> None:
    path = f"/workers/scripts/{name}"
    odd = [*parts({"worker.js": says("x")}), ("a.css", ("a.css", b"", "text/css"))]
    assert clients.api("PUT", path, files=odd).json()["errors"][0]["code"] == 10021
    large = parts({"worker.js": says("x"), "big.bin": bytes(64 * 1024 * 1024)})
    assert clients.api("PUT", path, files=large).json()["errors"][0]["code"] == 10027
    assert clients.api("PUT", path, json={}).status_code == 415
    assert clients.upload("Upper", says("x")).json()["errors"][0]["code"] == 10016
    assert clients.upload("x" * 64, says("x")).status_code == 400
    assert clients.upload(name, says("x"), version=True).json()["errors"][0]["code"] == 10007


def test_secrets_reach_the_worker_and_are_never_given_back(clients: Clients, edge: LocalEdge, name: str) -> None:
    clients.upload(
        name,
        "export default { fetch(r, env) { return Response.json([env.UPLOADED ?? null, env.PUT ?? null]); } };",
        bindings=[{"type": "secret_text", "name": "UPLOADED", "text": "s3cret-one"}],
    )
    clients.enable(name)
    secrets = clients.cloudflare.workers.scripts.secrets
    secrets.update(name, account_id=clients.account, name="PUT", text="s3cret-two", type="secret_text")
    assert clients.get(f"/w/{name}/").json() == ["s3cret-one", "s3cret-two"]
    assert sorted(s.name for s in secrets.list(name, account_id=clients.account)) == ["PUT", "UPLOADED"]
    for path in ("/settings", "/versions", "/deployments", "/secrets", "/content/v2", ""):
        assert "s3cret" not in clients.api("GET", f"/workers/scripts/{name}{path}").text
    kept = clients.upload(name, says("x"), keep_bindings=["secret_text"])
    assert kept.status_code == 200
    assert len(list(secrets.list(name, account_id=clients.account))) == 2
    secrets.delete("PUT", account_id=clients.account, script_name=name)
    assert [s.name for s in secrets.list(name, account_id=clients.account)] == ["UPLOADED"]
    folder = edge.log_path.parent
    holders = [f for f in folder.rglob("*") if f.is_file() and b"s3cret-one" in f.read_bytes()]
    assert holders == [folder / "secrets.json"]
    assert (folder / "secrets.json").stat().st_mode & 0o777 == 0o600


def test_bindings_reach_kv_and_r2_of_their_jurisdiction(clients: Clients, name: str) -> None:
    for jurisdiction in ("default", "eu"):
        clients.cloudflare.r2.buckets.create(
            account_id=clients.account,
            name=name,
            cf_r2_jurisdiction=jurisdiction,  # type: ignore[arg-type]
        )
        clients.s3(jurisdiction).put_object(Bucket=name, Key="where", Body=jurisdiction.encode())
    namespace = clients.cloudflare.kv.namespaces.create(account_id=clients.account, title=name)
    code = (
        "export default { async fetch(r, env) { await env.KV.put('k', 'from the worker');"
        "const read = async (bucket) => (await bucket.get('where')).text();"
        "return Response.json([await read(env.EU), await read(env.W)]); } };"
    )
    bindings = [
        {"type": "r2_bucket", "name": "EU", "bucket_name": name, "jurisdiction": "eu"},
        {"type": "r2_bucket", "name": "W", "bucket_name": name},
        {"type": "kv_namespace", "name": "KV", "namespace_id": namespace.id},
    ]
    assert clients.upload(name, code, bindings=bindings).status_code == 200
    clients.enable(name)
    assert clients.get(f"/w/{name}/").json() == ["eu", "default"]
    assert clients.api("GET", f"/storage/kv/namespaces/{namespace.id}/values/k").text == "from the worker"
    missing = [{"type": "r2_bucket", "name": "B", "bucket_name": name, "jurisdiction": "us"}]
    assert clients.upload(name, code, bindings=missing).json()["errors"][0]["code"] == 10085


def test_settings_are_patched_as_a_new_version_with_the_same_code(clients: Clients, name: str) -> None:
    clients.upload(name, "export default { fetch(r, env) { return new Response(env.V ?? 'none'); } };")
    clients.enable(name)
    change = {"bindings": [{"type": "plain_text", "name": "V", "text": "patched"}], "tags": ["t"]}
    answer = clients.api(
        "PATCH",
        f"/workers/scripts/{name}/settings",
        files=[("settings", (None, json.dumps(change), "application/json"))],
    )
    assert answer.json()["result"]["tags"] == ["t"]
    assert clients.get(f"/w/{name}/").text == "patched"


def test_many_workers_are_deployed_at_once(clients: Clients, name: str) -> None:
    names = [f"{name}-{n}" for n in range(6)]

    def deploy(script: str) -> str:
        assert clients.upload(script, says(script)).status_code == 200
        clients.enable(script)
        return clients.get(f"/w/{script}/").text

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(deploy, names)) == names


def test_requests_wait_for_a_reload_and_never_fail(clients: Clients, name: str) -> None:
    clients.upload(name, "export default { async fetch(r) { return new Response(await r.text()); } };")
    clients.enable(name)
    url = f"{clients.endpoint.base_url}/w/{name}/"
    done = False

    def hammer(n: int) -> set[int]:
        statuses = set()
        with httpx.Client(trust_env=False, timeout=60) as http:
            while not done:
                answer = http.post(url, content=b"x" * 100)
                statuses.add(answer.status_code)
                assert answer.text == "x" * 100
        return statuses

    with ThreadPoolExecutor(4) as pool:
        running = [pool.submit(hammer, n) for n in range(4)]
        try:
            for n in range(3):
                assert clients.upload(f"{name}-other", says(str(n))).status_code == 200
        finally:
            done = True
        assert [r.result() for r in running] == [{200}] * 4


def test_clients_that_go_away_do_not_hold_a_reload_up(clients: Clients, edge: LocalEdge, name: str) -> None:
    endless = (
        "export default { fetch(r, env, ctx) { const { readable, writable } = new TransformStream();"
        "const writer = writable.getWriter(); const bytes = new Uint8Array(65536);"
        "ctx.waitUntil((async () => { for (;;) await writer.write(bytes); })().catch(() => {}));"
        "return new Response(readable); } };"
    )
    clients.upload(name, endless)
    clients.enable(name)
    for _ in range(3):
        with clients.http.stream("GET", f"{clients.endpoint.base_url}/w/{name}/") as answer:
            assert answer.status_code == 200
            next(answer.iter_raw())
    assert clients.upload(f"{name}-other", says("x")).status_code == 200
    reloads = [json.loads(line) for line in edge.log_path.read_text().splitlines() if '"reload"' in line]
    assert reloads[-1]["cut"] == 0, "no answer had to be cut off"


def test_old_versions_and_their_modules_are_forgotten(clients: Clients, edge: LocalEdge, name: str) -> None:
    clients.upload(name, says("a very particular text"))
    modules = edge.log_path.parent / "modules"

    def kept() -> list[Path]:
        return [f for f in modules.iterdir() if b"a very particular text" in f.read_bytes()]

    assert len(kept()) == 1
    clients.cloudflare.workers.scripts.delete(name, account_id=clients.account)
    assert kept() == []


def test_hostile_names_are_only_names(clients: Clients) -> None:
    for path in ("/workers/scripts/__proto__/settings", "/workers/scripts/constructor/versions"):
        assert clients.api("GET", path).status_code == 404
    assert clients.get("/w/__proto__/").status_code == 404
    assert clients.get("/w/..%2f..%2fetc/").status_code == 404
    odd = [("metadata", (None, json.dumps({"main_module": "../w.js"}), "application/json"))]
    odd.append(("../w.js", ("../w.js", says("x"), "application/javascript+module")))  # type: ignore[arg-type]
    assert clients.api("PUT", "/workers/scripts/odd", files=odd).status_code == 400


def test_the_list_of_workers_says_when_each_was_deployed_and_whether_it_is_open(clients: Clients, name: str) -> None:
    scripts, account = clients.cloudflare.workers.scripts, clients.account
    names = sorted(f"{name}-{i}" for i in range(12))

    def code(text: str) -> list[tuple[str, bytes, str]]:
        return [("main.mjs", says(text).encode(), "application/javascript+module")]

    for each in names:
        scripts.update(each, account_id=account, metadata={"main_module": "main.mjs"}, files=code(""))

    def listed() -> dict[str, tuple[object, bool]]:
        found = clients.cloudflare.workers.beta.workers.list(account_id=account, per_page=5)
        return {w.name: (w.deployed_on, w.subdomain.enabled) for w in found if w.name in names}

    before = listed()
    assert sorted(before) == names and all(when is not None for when, _ in before.values())
    uploaded = scripts.versions.with_raw_response.create(
        names[0], account_id=account, metadata={"main_module": "main.mjs"}, files=code("new")
    )
    assert listed() == before  # a version that nobody has deployed
    version = json.loads(uploaded.text())["result"]["id"]
    share = [{"version_id": version, "percentage": 100.0}]
    made = scripts.deployments.create(names[0], account_id=account, strategy="percentage", versions=share)  # type: ignore[arg-type]
    scripts.subdomain.create(names[1], account_id=account, enabled=not before[names[1]][1], previews_enabled=True)
    after = listed()
    assert after[names[0]] == (made.created_on, before[names[0]][1]) != before[names[0]]
    assert after[names[1]] == (before[names[1]][0], not before[names[1]][1])
    assert {n: after[n] for n in names[2:]} == {n: before[n] for n in names[2:]}
    for each in names:
        scripts.delete(each, account_id=account, force=True)

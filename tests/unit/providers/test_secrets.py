"""A server that quotes what it was sent, in every way that servers do: nothing of it reaches anybody."""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import sys
import threading
import traceback
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from edgespec import operations
from edgespec.address import Address
from edgespec.cli.main import main
from edgespec.diagnostics import EdgespecError
from edgespec.providers.cloudflare.account import Account, Endpoints, api_errors
from edgespec.secret import Secret

TOKEN = "cf-0123456789/abcdef+GHIJ=klmnop"
R2 = hashlib.sha256(TOKEN.encode()).hexdigest()
FORMS = (TOKEN, R2, json.dumps(TOKEN)[1:-1], "cf-0123456789%2Fabcdef%2BGHIJ%3Dklmnop",
         base64.b64encode(TOKEN.encode()).decode(), TOKEN[:12])  # fmt: skip


class _Echo(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        sent = self.headers.get("authorization", "").removeprefix("Bearer ")
        if self.path.startswith("/client/v4/user"):
            return self._answer(200, "application/json", {"success": True, "result": {"id": "ab" * 16}})
        said = f"{sent} {sent[:9]}\n    {sent[9:]} {base64.b64encode(sent.encode()).decode()} {R2}"
        if self.path.startswith("/s3"):
            body = f"<Error><Code>AccessDenied</Code><Message>{said} {TOKEN}</Message></Error>"
            return self._answer(403, "application/xml", body)
        errors = [{"code": 10000, "message": said}]
        return self._answer(403, "application/json", {"success": False, "errors": errors, "messages": [said]})

    do_HEAD = do_POST = do_PUT = do_GET

    def _answer(self, status: int, kind: str, body: Any) -> None:
        data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    listening = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    thread = threading.Thread(target=listening.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listening.server_address[1]}"
    listening.shutdown()
    listening.server_close()
    thread.join()


@pytest.fixture
def account(server: str) -> Iterator[Account]:
    token = Secret("CLOUDFLARE_API_TOKEN", TOKEN)
    made = Account(Endpoints("ab" * 16, f"{server}/client/v4", token, f"{server}/s3"))
    yield made
    made.close()


def check(text: str) -> None:
    assert "(secret CLOUDFLARE_API_TOKEN" in text
    assert not [form for form in FORMS if form in text]


def test_errors_of_both_apis(account: Account, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    for name in ("httpx", "httpcore", "cloudflare", "boto3", "botocore", "urllib3"):
        caplog.set_level(logging.DEBUG, name)
    for call in (lambda: account.get("/kv"), lambda: account.s3("default").get_object(Bucket="b", Key="k")):
        with pytest.raises(EdgespecError) as failed, api_errors(Address("worker", "a"), "Asking"):
            call()
        check(str(failed.value.diagnostics.items[0]))
        check("".join(traceback.format_exception(failed.value)))
    logged = caplog.text + "".join(repr(r.__dict__) for r in caplog.records)
    assert len(caplog.records) > 20
    assert not [form for form in FORMS if form in logged]


def test_the_command_line(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "specs").mkdir()
    target = f"{{type: cloudflare, account: {'ab' * 16}, api_base_url: {server}/client/v4, s3_base_url: {server}/s3}}"
    (tmp_path / "edgespec.yaml").write_text(
        f"apiVersion: edgespec/v1\nkind: Project\nname: shop\nenvironments: {{production: {{target: {target}}}}}\n"
    )
    (tmp_path / "specs" / "a.yaml").write_text(
        "apiVersion: edgespec/v1\nkind: EdgeModel\nmetadata: {name: alpha}\n"
        "model: {source: package:edgespec-no-such-model}\ntask: {type: embedding}\n"
    )
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", TOKEN)
    monkeypatch.setenv("EDGESPEC_CACHE_DIR", str(tmp_path / "cache"))
    for arguments in (["plan"], ["plan", "--json"], ["plan", "--markdown"], ["apply", "--auto-approve", "--json"]):
        assert _run(monkeypatch, "-C", str(tmp_path), *arguments, "--env", "production") == 1
        out, err = capfd.readouterr()
        check(out + err)

    def bug(*_: object, **__: object) -> None:
        raise LookupError({"token": TOKEN}, TOKEN[:9] + "\n" + TOKEN[9:]) from ValueError(R2)

    monkeypatch.setattr(operations, "plan", bug)
    assert _run(monkeypatch, "-C", str(tmp_path), "plan", "--env", "production") == 1
    out, err = capfd.readouterr()
    check(out + err)
    assert "This is a bug in edgespec" in err
    try:
        bug()
    except LookupError as e:
        sys.excepthook(LookupError, e, e.__traceback__)
        threading.excepthook(threading.ExceptHookArgs((LookupError, e, e.__traceback__, None)))
    check(capfd.readouterr().err)


def _run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["edgespec", *arguments])
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(threading, "excepthook", threading.excepthook)
    with pytest.raises(SystemExit) as ended:
        main()
    code = ended.value.code
    return code if isinstance(code, int) else 0

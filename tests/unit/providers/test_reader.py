"""Reads without the SDKs: one good answer, and nothing at all for every other."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import botocore.auth
import botocore.awsrequest
import botocore.credentials
import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.providers.cloudflare.account import Account, Endpoints
from edgespec.providers.cloudflare.pace import NotMadeError, Pace
from edgespec.providers.cloudflare.r2_list import list_objects
from edgespec.providers.cloudflare.reader import Reader
from edgespec.providers.cloudflare.sigv4 import REGION, signed_get
from edgespec.secret import Secret

SECRET = Secret("R2's key", "a-secret-key")


class Server:
    """Answers by path; what each connection asked for is in `asked`."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, str]] = []
        self.pages: dict[str, tuple[int, dict[str, str], bytes]] = {}
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                server.asked.append((self.client_address[1], self.path))
                status, headers, body = server.pages.get(self.path, (404, {}, b"{}"))
                self.send_response(status)
                for name, value in {"content-length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)
                self.close_connection = "content-length" in headers  # a wrong one: cut off

            def log_message(self, *_: Any) -> None:
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.base = f"http://127.0.0.1:{self.http.server_port}"


def body(reader: Reader, url: str) -> bytes | None:
    found = reader.get(url, {}, Pace.unlimited())
    return None if found is None else found[1]


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    thread = threading.Thread(target=made.http.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.http.shutdown()
    made.http.server_close()
    thread.join()


@pytest.fixture
def reader() -> Iterator[Reader]:
    made = Reader(timeout=5)
    yield made
    made.close()


def test_a_good_answer_and_one_connection_for_all(server: Server, reader: Reader) -> None:
    server.pages["/a?b=c"] = (200, {}, b'{"x": 1}')
    assert [body(reader, f"{server.base}/a?b=c") for _ in range(3)] == [b'{"x": 1}'] * 3
    assert len({port for port, _ in server.asked}) == 1


@pytest.mark.parametrize("status", [204, 301, 400, 403, 404, 408, 429, 500, 502, 503])
def test_every_other_status_says_nothing(server: Server, reader: Reader, status: int) -> None:
    server.pages["/a"] = (status, {}, b"")
    assert reader.get(f"{server.base}/a", {}, Pace.unlimited()) is None


def test_an_answer_that_was_cut_off_says_nothing(server: Server, reader: Reader) -> None:
    server.pages["/a"] = (200, {"content-length": "100"}, b'{"x": ')
    assert reader.get(f"{server.base}/a", {}, Pace.unlimited()) is None


def test_no_connection_says_nothing(server: Server, reader: Reader) -> None:
    server.http.server_close()
    assert reader.get(f"{server.base}/a", {}, Pace.unlimited()) is None


def test_a_connection_that_the_other_side_closed_says_nothing_and_is_not_used_again(
    server: Server, reader: Reader
) -> None:
    server.pages["/a"] = (200, {}, b"{}")
    assert body(reader, f"{server.base}/a") == b"{}"
    (held,) = next(iter(reader._idle.values()))
    held.sock.close()
    assert reader.get(f"{server.base}/a", {}, Pace.unlimited()) is None
    assert body(reader, f"{server.base}/a") == b"{}"


def test_too_many_requests_hold_everybody(server: Server, reader: Reader) -> None:
    server.pages["/a"] = (429, {"retry-after": "30"}, b"")
    waits: list[float] = []
    now = [0.0]

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        now[0] += seconds
        return False

    pace = Pace(burst=9, rate=9, clock=lambda: now[0], wait=wait)
    assert reader.get(f"{server.base}/a", {}, pace) is None
    pace.take()
    assert sum(waits) >= 30


def test_a_run_that_was_told_to_stop_asks_nothing(server: Server, reader: Reader) -> None:
    pace = Pace.unlimited()
    pace.stop.set()
    with pytest.raises(NotMadeError):
        reader.get(f"{server.base}/a", {}, pace)
    assert server.asked == []


@pytest.mark.parametrize("name", ["HTTPS_PROXY", "all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"])
def test_proxies_and_certificates_of_ones_own_are_the_sdks_business(
    monkeypatch: pytest.MonkeyPatch, reader: Reader, name: str
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(Reader, "send", lambda *a: asked.append(a) or (200, {}, b"{}"))
    for other in ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(other, raising=False)
    assert body(reader, "https://api.example/a") == b"{}"
    monkeypatch.setenv(name, "http://proxy.example:3128")
    assert Reader(5).get("https://api.example/a", {}, Pace.unlimited()) is None
    assert body(Reader(5), "http://127.0.0.1:9/a") == b"{}"
    assert len(asked) == 2


# --- the account -----------------------------------------------------------------------------------------------------


@pytest.fixture
def account(server: Server) -> Iterator[Account]:
    made = Account(Endpoints("a" * 32, f"{server.base}/client/v4/", Secret("TOKEN", "tok"), f"{server.base}/s3"))
    yield made
    made.close()


@pytest.mark.parametrize("bad", [(404, {}, b"{}"), (500, {}, b""), (200, {}, b'{"result": ['), (200, {}, b"<html>")])
def test_without_a_good_answer_the_sdk_is_asked(
    account: Account, server: Server, bad: tuple[int, dict[str, str], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/client/v4/accounts/{'a' * 32}/workers/scripts?page=1"
    server.pages[path] = bad
    asked: list[str] = []

    def send(client: httpx.Client, request: httpx.Request, **options: Any) -> httpx.Response:
        asked.append(request.url.raw_path.decode())
        return httpx.Response(200, json={"result": "the SDK's"}, request=request)

    monkeypatch.setattr(httpx.Client, "send", send)
    assert account.get("/workers/scripts", {"page": 1})["result"] == "the SDK's"
    assert asked == [path] == [p for _, p in server.asked]
    server.pages[path] = (200, {}, b'{"result": "ours"}')
    assert account.get("/workers/scripts", {"page": 1})["result"] == "ours"
    assert len(asked) == 1


NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def page(*keys: str, more: str = "") -> bytes:
    items = "".join(f"<Contents><Key>artifacts/{k}</Key><Size>{i}</Size></Contents>" for i, k in enumerate(keys))
    end = f"<NextContinuationToken>{more}</NextContinuationToken>" if more else ""
    cut = str(bool(more)).lower()
    text = f'<ListBucketResult xmlns="{NAMESPACE}"><IsTruncated>{cut}</IsTruncated>{end}{items}</ListBucketResult>'
    return text.encode()


class Pages:
    """A bucket's pages by continuation token."""

    def __init__(
        self, server: Server, account: Account, monkeypatch: pytest.MonkeyPatch, pages: dict[str, Any]
    ) -> None:
        verified = json.dumps({"result": {"id": "key-id"}}).encode()
        server.pages["/client/v4/user/tokens/verify"] = (200, {}, verified)
        send = Reader.send

        def listed(self: Reader, place: Any, target: str, headers: Any) -> Any:
            if not target.startswith("/s3/"):
                return send(self, place, target, headers)
            query = parse_qs(urlsplit(target).query)
            assert target.startswith("/s3/eu/bucket?") and query["list-type"] == ["2"]
            assert query["prefix"] == ["artifacts/"] and "key-id/" in headers["authorization"]
            found = pages[query.get("continuation-token", [""])[0]]
            return (200, {}, found) if isinstance(found, bytes) else (found, {}, b"")

        monkeypatch.setattr(Reader, "send", listed)


def test_a_list_of_several_pages(server: Server, account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    Pages(server, account, monkeypatch, {"": page("a", "b", more="x+/="), "x+/=": page("c")})
    assert list_objects(account, "bucket", "eu") == {"a": 0, "b": 1, "c": 0}


@pytest.mark.parametrize(
    "second",
    [404, 403, 503, page("c")[:-9], b"", b"<Error><Code>X</Code></Error>", page("c").replace(b"<Size>0", b"<Size>")],
)
def test_a_list_is_whole_or_left_to_boto3(
    server: Server, account: Account, monkeypatch: pytest.MonkeyPatch, second: Any
) -> None:
    Pages(server, account, monkeypatch, {"": page("a", more="x"), "x": second})
    assert list_objects(account, "bucket", "eu") is None


TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cs",)), max_size=12)


@given(st.dictionaries(TEXT.filter(bool), TEXT, max_size=4), st.integers(1_577_836_800, 3_786_912_000))
def test_signatures_are_botocores(query: dict[str, str], seconds: int) -> None:
    now = datetime.fromtimestamp(seconds, UTC)
    url, headers = signed_get("https://r2.example:8443/s3/eu/bucket", query, "key-id", SECRET, now)
    request = botocore.awsrequest.AWSRequest("GET", "https://r2.example:8443/s3/eu/bucket", params=query)
    request.headers["x-amz-content-sha256"] = headers["x-amz-content-sha256"]
    auth = botocore.auth.S3SigV4Auth(botocore.credentials.Credentials("key-id", SECRET.reveal()), "s3", REGION)
    request.context.update(timestamp=now.strftime("%Y%m%dT%H%M%SZ"), payload_signing_enabled=True)
    request.headers["X-Amz-Date"] = request.context["timestamp"]
    text = auth.canonical_request(request)
    theirs = auth.signature(auth.string_to_sign(request, text), request)
    assert headers["authorization"].rpartition("Signature=")[2] == theirs
    assert url.partition("?")[0] == "https://r2.example:8443/s3/eu/bucket" and ("?" in url) is bool(query)

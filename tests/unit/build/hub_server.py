"""A hub on this machine: Hugging Face's API and ModelScope's, for one repository, over real HTTP."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

REPO = "acme/tiny"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = 10_000
"""Files from here on are in large file storage, which has another host."""


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class TinyHub:
    files: dict[str, bytes]
    url: str = ""
    storage_url: str = ""
    tags: dict[str, str] = field(default_factory=lambda: {"v1.0": COMMIT})
    token: str | None = None
    """What a client must send; None for a public repository."""
    requests: list[str] = field(default_factory=list)
    tokens_at_storage: list[str | None] = field(default_factory=list)
    breaks: dict[str, int] = field(default_factory=dict)
    """Path -> how many of its downloads end half-way."""
    damaged: set[str] = field(default_factory=set)
    status: int | None = None
    """What every request is answered with, when set."""

    def sibling(self, path: str) -> dict[str, Any]:
        data = self.files[path]
        found: dict[str, Any] = {"rfilename": path, "size": len(data), "blobId": git_sha1(data)}
        if len(data) >= LARGE:
            found["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return found

    def answer(self, path: str, query: Mapping[str, list[str]]) -> Any:
        """What the API says; bytes are a file, None is HTTP 404."""
        hf, ms = f"/api/models/{REPO}", f"/api/v1/models/{REPO}"
        refs = [{"name": n, "ref": f"refs/tags/{n}", "targetCommit": c} for n, c in self.tags.items()]
        known = {
            f"{hf}/refs": {
                "branches": [{"name": "main", "ref": "refs/heads/main", "targetCommit": COMMIT}],
                "tags": refs,
            },
            f"{hf}/revision/{COMMIT}": {"sha": COMMIT, "siblings": [self.sibling(p) for p in sorted(self.files)]},
            f"{ms}/revisions": _data(
                {"RevisionMap": {"Branches": [{"Revision": "master"}], "Tags": [{"Revision": t} for t in self.tags]}}
            ),
        }
        if path in known:
            return known[path]
        if path == f"{ms}/repo/files" and query["Revision"][0] in (COMMIT, *self.tags):
            return _data({"Files": [{"Path": "1_Pooling", "Type": "tree", "Size": 0}, *map(self.entry, self.files)]})
        if path == f"{ms}/repo":
            return self.files.get(query["FilePath"][0])
        return self.files.get(path.removeprefix(f"/{REPO}/resolve/{COMMIT}/"))

    def entry(self, path: str) -> dict[str, Any]:
        data = self.files[path]
        return {"Path": path, "Type": "blob", "Size": len(data), "Sha256": hashlib.sha256(data).hexdigest()}


def _data(value: Any) -> dict[str, Any]:
    return {"Code": 200, "Success": True, "Data": value}


def _handler(hub: TinyHub, *, storage: bool) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            url = urlsplit(self.path)
            path, sent = unquote(url.path), self.headers.get("Authorization")
            hub.requests.append(path)
            if storage:
                hub.tokens_at_storage.append(sent)
                return self.send(200, hub.files[path.removeprefix("/")], path.removeprefix("/"))
            if hub.status or (hub.token and sent != f"Bearer {hub.token}"):
                return self.send(hub.status or 401, b"{}")
            found = hub.answer(path, parse_qs(url.query))
            if found is None:
                return self.send(404, b"{}")
            if not isinstance(found, bytes):
                return self.send(200, json.dumps(found).encode())
            name = parse_qs(url.query).get("FilePath", [path.partition(f"/{COMMIT}/")[2]])[0]
            if "/resolve/" in path and len(found) >= LARGE:
                self.send_response(302)
                self.send_header("Location", f"{hub.storage_url}/{name}")
                self.send_header("Content-Length", "0")
                return self.end_headers()
            return self.send(200, found, name)

        def send(self, status: int, data: bytes, name: str = "") -> None:
            if name in hub.damaged:
                data = bytes([data[0] ^ 1]) + data[1:]
            start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
            self.send_response(206 if start else status)
            self.send_header("Content-Length", str(len(data) - start))
            self.end_headers()
            left = hub.breaks.get(name, 0)
            if left:
                hub.breaks[name] = left - 1
                self.wfile.write(data[start : start + (len(data) - start) // 2])
                self.close_connection = True
                return
            self.wfile.write(data[start:])

        def log_message(self, *_: object) -> None:
            pass

    return Handler


@contextmanager
def serve(folder: Path) -> Iterator[TinyHub]:
    """A hub whose repository is the files of a folder."""
    files = {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}
    hub = TinyHub(files)
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _handler(hub, storage=s)) for s in (False, True)]
    hub.url = f"http://127.0.0.1:{servers[0].server_port}"
    hub.storage_url = f"http://localhost:{servers[1].server_port}"
    for server in servers:
        threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()

"""A stand-in for the parts of GitHub's and GitLab's APIs that `edgespec ci` calls, on a free port of this machine.

Requests without the right token are refused, lists come two items a page, and artifacts are sent from another server
(a storage), which refuses requests that carry a token.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

TOKEN = "token-of-the-forge-4711"
BOT = {"id": 1, "login": "edgespec[bot]", "type": "Bot"}
_PAGE = 2


@dataclass
class Forge:
    """What one repository has. A test puts things in and reads them out; `fail` answers the next requests instead."""

    url: str = ""
    storage: str = ""
    comments: dict[int, list[dict[str, Any]]] = field(default_factory=dict)
    issues: list[dict[str, Any]] = field(default_factory=list)
    closing: list[tuple[int, str]] = field(default_factory=list)
    """What was said to each issue that was closed."""
    pulls: list[dict[str, Any]] = field(default_factory=list)
    """commit, number, head, branch, merged."""
    runs: list[dict[str, Any]] = field(default_factory=list)
    """id, head, job, artifact (bytes or None)."""
    fail: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    knows_user: bool = True
    calls: list[str] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: itertools.count(100))

    @property
    def writes(self) -> list[str]:
        return [c for c in self.calls if not c.startswith("GET ")]

    def comment(self, change: int, body: str, author: dict[str, Any] = BOT) -> dict[str, Any]:
        made = {"id": next(self.numbers), "body": body, "author": author, "system": False}
        self.comments.setdefault(change, []).append(made)
        return made

    def issue(self, title: str, body: str, author: dict[str, Any] = BOT, labels: str = "edgespec") -> dict[str, Any]:
        made = {
            "id": next(self.numbers),
            "title": title,
            "body": body,
            "author": author,
            "labels": labels,
            "open": True,
        }
        self.issues.append(made)
        return made

    def run(self, number: int) -> dict[str, Any]:
        return next(r for r in self.runs if r["id"] == number)


@contextmanager
def forge() -> Iterator[Forge]:
    """One that answers until the end of the block."""
    made = Forge()
    api = ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: _Api(made, *a))  # type: ignore[arg-type]
    storage = ThreadingHTTPServer(("127.0.0.1", 0), lambda *a: _Storage(made, *a))  # type: ignore[arg-type]
    made.url = f"http://127.0.0.1:{api.server_address[1]}"
    made.storage = f"http://127.0.0.1:{storage.server_address[1]}"
    threads = [threading.Thread(target=s.serve_forever, args=(0.02,), daemon=True) for s in (api, storage)]
    for thread in threads:
        thread.start()
    try:
        yield made
    finally:
        for server in (api, storage):
            server.shutdown()
            server.server_close()
        for thread in threads:
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, made: Forge, *rest: Any) -> None:
        self.forge = made
        super().__init__(*rest)

    def log_message(self, *args: Any) -> None:
        pass

    def send(self, status: int, value: Any = None, headers: dict[str, str] | None = None) -> None:
        data = value if isinstance(value, bytes) else b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        for name, text in (headers or {}).items():
            self.send_header(name, text)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


class _Storage(_Handler):
    def do_GET(self) -> None:
        if self.headers.get("authorization") or self.headers.get("private-token"):
            self.send(400, {"message": "a token came to the storage"})
            return
        self.send(200, self.forge.run(int(self.path.rsplit("/", 1)[1]))["artifact"])


class _Api(_Handler):
    def do_GET(self) -> None:
        self.answer()

    do_POST = do_PATCH = do_PUT = do_DELETE = do_GET

    def answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(length)) if length else {}
        parts = urlsplit(self.path)
        path = unquote(parts.path)
        self.query = {k: v[0] for k, v in parse_qs(parts.query).items()}
        self.forge.calls.append(f"{self.command} {path}")
        if self.forge.fail:
            status, headers = self.forge.fail.pop(0)
            self.send(status, {"message": "told to fail"}, headers)
            return
        token = self.headers.get("authorization", "").removeprefix("Bearer ") or self.headers.get("private-token")
        if token != TOKEN:
            self.send(401, {"message": "Bad credentials"})
            return
        if path == "/user":
            self.send(200, BOT) if self.forge.knows_user else self.send(403, {"message": "not by an integration"})
            return
        routes = _GITHUB if path.startswith("/repos/") else _GITLAB
        rest = re.sub(r"^/repos/[^/]+/[^/]+|^/projects/\d+(?=/)", "", path)
        for method, pattern, call in routes:
            found = re.fullmatch(pattern, rest)
            if method == self.command and found is not None:
                call(self, body, *found.groups())
                return
        self.send(404, {"message": "Not Found"})

    def page(self, items: list[Any], within: str | None = None) -> None:
        number = int(self.query.get("page", "1"))
        some = items[(number - 1) * _PAGE : number * _PAGE]
        headers = {}
        if len(items) > number * _PAGE:
            query = "&".join(f"{k}={v}" for k, v in {**self.query, "page": str(number + 1)}.items())
            headers["link"] = f'<{self.forge.url}{urlsplit(self.path).path}?{query}>; rel="next"'
        self.send(200, {"total_count": len(items), within: some} if within else some, headers)


# --- GitHub ----------------------------------------------------------------------------------------------------------


def _gh(entry: dict[str, Any], kind: str) -> dict[str, Any]:
    return {
        **{k: entry[k] for k in ("id", "body")},
        **({"number": entry["id"], "title": entry["title"]} if kind == "issues" else {}),
        "user": entry["author"],
        "html_url": f"https://github.example/{kind}/{entry['id']}",
    }


def _gh_comments(api: _Api, body: Any, change: str) -> None:
    api.page([_gh(c, "comments") for c in api.forge.comments.get(int(change), [])])


def _gh_comment(api: _Api, body: Any, change: str) -> None:
    if any(i["id"] == int(change) for i in api.forge.issues):
        api.forge.closing.append((int(change), body["body"]))
        api.send(201, {"id": 1, "body": "", "user": BOT, "html_url": ""})
    else:
        api.send(201, _gh(api.forge.comment(int(change), body["body"]), "comments"))


def _comment(api: _Api, number: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    return next((of, c) for of in api.forge.comments.values() for c in of if c["id"] == int(number))


def _gh_edit_comment(api: _Api, body: Any, number: str) -> None:
    _, found = _comment(api, number)
    found["body"] = body["body"]
    api.send(200, _gh(found, "comments"))


def _delete_comment(api: _Api, body: Any, *path: str) -> None:
    of, found = _comment(api, path[-1])
    of.remove(found)
    api.send(204)


def _gh_issues(api: _Api, body: Any) -> None:
    found = [i for i in api.forge.issues if i["open"] and i["labels"] == api.query["labels"]]
    pull = {"id": 7, "number": 7, "title": "a pull", "body": "", "user": BOT, "html_url": "", "pull_request": {}}
    api.page([pull, *(_gh(i, "issues") for i in found)])


def _gh_open(api: _Api, body: Any) -> None:
    api.send(201, _gh(api.forge.issue(body["title"], body["body"], labels=",".join(body["labels"])), "issues"))


def _gh_edit_issue(api: _Api, body: Any, number: str) -> None:
    found = next(i for i in api.forge.issues if i["id"] == int(number))
    found.update({k: body[k] for k in ("title", "body") if k in body})
    found["open"] = found["open"] and body.get("state") != "closed"
    api.send(200, _gh(found, "issues"))


def _gh_pulls(api: _Api, body: Any, commit: str) -> None:
    api.page(
        [
            {
                "number": p["number"],
                "merged_at": "2026-11-30T20:00:00Z" if p["merged"] else None,
                "merge_commit_sha": p["commit"],
                "base": {"ref": p["branch"]},
                "head": {"sha": p["head"]},
            }
            for p in api.forge.pulls
            if p["commit"] == commit
        ]
    )


def _gh_runs(api: _Api, body: Any) -> None:
    assert (api.query["event"], api.query["status"]) == ("pull_request", "success")
    api.page([{"id": r["id"]} for r in api.forge.runs if r["head"] == api.query["head_sha"]], "workflow_runs")


def _gh_artifacts(api: _Api, body: Any, number: str) -> None:
    run = api.forge.run(int(number))
    kept = run["artifact"] is not None and run["job"] == api.query["name"]
    api.page([{"id": run["id"], "expired": run.get("expired", False)}] if kept else [], "artifacts")


def _download(api: _Api, body: Any, number: str) -> None:
    api.send(302, headers={"location": f"{api.forge.storage}/{number}"})


_GITHUB: list[tuple[str, str, Any]] = [
    ("GET", r"/issues/(\d+)/comments", _gh_comments),
    ("POST", r"/issues/(\d+)/comments", _gh_comment),
    ("PATCH", r"/issues/comments/(\d+)", _gh_edit_comment),
    ("DELETE", r"/issues/comments/(\d+)", _delete_comment),
    ("GET", r"/issues", _gh_issues),
    ("POST", r"/issues", _gh_open),
    ("PATCH", r"/issues/(\d+)", _gh_edit_issue),
    ("GET", r"/commits/(\w+)/pulls", _gh_pulls),
    ("GET", r"/actions/runs", _gh_runs),
    ("GET", r"/actions/runs/(\d+)/artifacts", _gh_artifacts),
    ("GET", r"/actions/artifacts/(\d+)/zip", _download),
]


# --- GitLab ----------------------------------------------------------------------------------------------------------


def _gl_note(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: entry[k] for k in ("id", "body", "author", "system")}


def _gl_issue(entry: dict[str, Any]) -> dict[str, Any]:
    url = f"https://gitlab.example/-/issues/{entry['id']}"
    kept = {k: entry[k] for k in ("title", "author")}
    return {**kept, "id": entry["id"] + 9000, "iid": entry["id"], "description": entry["body"], "web_url": url}


def _gl_notes(api: _Api, body: Any, change: str) -> None:
    api.page([_gl_note(c) for c in api.forge.comments.get(int(change), [])])


def _gl_add_note(api: _Api, body: Any, change: str) -> None:
    api.send(201, _gl_note(api.forge.comment(int(change), body["body"])))


def _gl_edit_note(api: _Api, body: Any, change: str, number: str) -> None:
    _, found = _comment(api, number)
    found["body"] = body["body"]
    api.send(200, _gl_note(found))


def _gl_issues(api: _Api, body: Any) -> None:
    api.page([_gl_issue(i) for i in api.forge.issues if i["open"] and i["labels"] == api.query["labels"]])


def _gl_open(api: _Api, body: Any) -> None:
    api.send(201, _gl_issue(api.forge.issue(body["title"], body["description"], labels=body["labels"])))


def _gl_edit_issue(api: _Api, body: Any, number: str) -> None:
    found = next(i for i in api.forge.issues if i["id"] == int(number))
    found["title"] = body.get("title", found["title"])
    found["body"] = body.get("description", found["body"])
    found["open"] = found["open"] and body.get("state_event") != "close"
    api.send(200, _gl_issue(found))


def _gl_close_note(api: _Api, body: Any, number: str) -> None:
    api.forge.closing.append((int(number), body["body"]))
    api.send(201, {})


def _gl_merged(api: _Api, body: Any, commit: str) -> None:
    api.page(
        [
            {
                "iid": p["number"],
                "state": "merged" if p["merged"] else "opened",
                "target_branch": p["branch"],
                "merged_at": "2026-11-30T20:00:00Z" if p["merged"] else None,
            }
            for p in api.forge.pulls
            if p["commit"] == commit
        ]
    )


def _gl_merge_request(api: _Api, body: Any, number: str) -> None:
    pull = next(p for p in api.forge.pulls if p["number"] == int(number))
    runs = [r["id"] for r in api.forge.runs if r["head"] == pull["head"]]
    api.send(200, {"iid": pull["number"], "head_pipeline": {"id": max(runs)} if runs else None})


def _gl_jobs(api: _Api, body: Any, number: str) -> None:
    run = api.forge.run(int(number))
    file = {"filename": "artifacts.zip"} if run["artifact"] is not None else None
    api.page([{"id": 1, "name": "validate"}, {"id": run["id"], "name": run["job"], "artifacts_file": file}])


_GITLAB: list[tuple[str, str, Any]] = [
    ("GET", r"/merge_requests/(\d+)/notes", _gl_notes),
    ("POST", r"/merge_requests/(\d+)/notes", _gl_add_note),
    ("PUT", r"/merge_requests/(\d+)/notes/(\d+)", _gl_edit_note),
    ("DELETE", r"/merge_requests/(\d+)/notes/(\d+)", _delete_comment),
    ("GET", r"/issues", _gl_issues),
    ("POST", r"/issues", _gl_open),
    ("PUT", r"/issues/(\d+)", _gl_edit_issue),
    ("POST", r"/issues/(\d+)/notes", _gl_close_note),
    ("GET", r"/repository/commits/(\w+)/merge_requests", _gl_merged),
    ("GET", r"/merge_requests/(\d+)", _gl_merge_request),
    ("GET", r"/pipelines/(\d+)/jobs", _gl_jobs),
    ("GET", r"/jobs/(\d+)/artifacts", _download),
]

"""GitHub: pull requests, issues and workflow artifacts of one repository, by REST API version 2022-11-28."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from edgespec.ci.api import Api
from edgespec.ci.forge import LABEL, Entry
from edgespec.ci.reviewed import none_kept, nothing_merged
from edgespec.secret import Secret

_HINTS: Final = {
    401: "GITHUB_TOKEN is not valid any more, or of another GitHub.",
    403: "The job needs `permissions: {pull-requests: write, issues: write}`; pull requests from forks never get them.",
    404: "There is no such thing, or the token may not see it: the job needs `permissions` for it.",
    410: "Issues are turned off in this repository.",
}


class GitHub:
    """`commit` and `branch` are the ones that the job runs for."""

    limit = 65_536

    def __init__(self, api: str, repository: str, token: Secret, *, commit: str = "", branch: str = "") -> None:
        also = {"accept": "application/vnd.github+json", "x-github-api-version": "2022-11-28"}
        self._api = Api(api, token, ("authorization", "Bearer "), _HINTS, also=also)
        self._repo = f"/repos/{repository}"
        self._commit, self._branch = commit, branch
        self._login: str | None = None
        self._asked = False

    def close(self) -> None:
        self._api.close()

    def comments(self, change: int) -> Iterator[Entry]:
        for found in self._api.pages(f"{self._repo}/issues/{change}/comments", {}):
            yield self._entry(found)

    def add_comment(self, change: int, body: str) -> Entry:
        return self._entry(self._api.call("POST", f"{self._repo}/issues/{change}/comments", json={"body": body}))

    def edit_comment(self, change: int, comment: Entry, body: str) -> Entry:
        path = f"{self._repo}/issues/comments/{comment.id}"
        return self._entry(self._api.call("PATCH", path, json={"body": body}))

    def delete_comment(self, change: int, comment: Entry) -> None:
        self._api.call("DELETE", f"{self._repo}/issues/comments/{comment.id}")

    def issues(self) -> Iterator[Entry]:
        query = {"state": "open", "labels": LABEL, "sort": "created", "direction": "asc"}
        for found in self._api.pages(f"{self._repo}/issues", query):
            if "pull_request" not in found:
                yield self._entry(found, number="number")

    def open_issue(self, title: str, body: str) -> Entry:
        value = {"title": title, "body": body, "labels": [LABEL]}
        return self._entry(self._api.call("POST", f"{self._repo}/issues", json=value), number="number")

    def edit_issue(self, issue: Entry, title: str, body: str) -> Entry:
        value = {"title": title, "body": body}
        return self._entry(self._api.call("PATCH", f"{self._repo}/issues/{issue.id}", json=value), number="number")

    def close_issue(self, issue: Entry, why: str) -> None:
        self._api.call("POST", f"{self._repo}/issues/{issue.id}/comments", json={"body": why})
        value = {"state": "closed", "state_reason": "completed"}
        self._api.call("PATCH", f"{self._repo}/issues/{issue.id}", json=value)

    def reviewed_plans(self, artifact: str, run: int | None) -> bytes:
        runs = [run] if run is not None else list(self._runs_of(self._merged()))
        for each in runs:
            path = f"{self._repo}/actions/runs/{each}/artifacts"
            kept = [a for a in self._api.pages(path, {"name": artifact}, "artifacts") if not a["expired"]]
            if kept:
                newest = max(kept, key=lambda a: int(a["id"]))
                return self._api.download(f"{self._repo}/actions/artifacts/{newest['id']}/zip")
        raise none_kept(artifact, "run " + ", ".join(map(str, runs)) if runs else "no run of its last commit")

    def _merged(self) -> dict[str, Any]:
        found = [
            p
            for p in self._api.pages(f"{self._repo}/commits/{self._commit}/pulls", {})
            if p["merged_at"] and p["base"]["ref"] == self._branch
        ]
        if not found:
            raise nothing_merged(self._commit, self._branch)
        return max(found, key=lambda p: (p["merge_commit_sha"] == self._commit, p["merged_at"]))

    def _runs_of(self, pull: dict[str, Any]) -> Iterator[int]:
        """Newest first, of the commit that was reviewed last."""
        query = {"head_sha": pull["head"]["sha"], "event": "pull_request", "status": "success"}
        found = self._api.pages(f"{self._repo}/actions/runs", query, "workflow_runs")
        yield from sorted((int(r["id"]) for r in found), reverse=True)

    def _entry(self, found: dict[str, Any], number: str = "id") -> Entry:
        return Entry(
            int(found[number]), found["body"] or "", self._is_mine(found), found["html_url"], found.get("title", "")
        )

    def _is_mine(self, found: dict[str, Any]) -> bool:
        """A workflow's own token may not ask who it is: then it is an app's, and so is what it wrote."""
        if not self._asked:
            user = self._api.get("/user")
            self._login, self._asked = (user["login"] if user else None), True
        author = found["user"] or {}
        if self._login is None:
            return bool(author.get("type") == "Bot")
        return bool(author.get("login") == self._login)

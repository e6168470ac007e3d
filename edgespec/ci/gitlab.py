"""GitLab: merge requests, issues and job artifacts of one project, by REST API version 4."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import quote

from edgespec.ci.api import Api
from edgespec.ci.forge import LABEL, Entry
from edgespec.ci.reviewed import none_kept, nothing_merged
from edgespec.secret import Secret

_HINTS: Final = {
    401: "GITLAB_TOKEN is not valid: it is a project access token with the scope `api`, in a masked variable.",
    403: "The token's role in this project must be Reporter at least, and its scope `api`.",
    404: "There is no such thing, or the token may not see it.",
}


class GitLab:
    """`project` is its number or its path; `commit` and `branch` are those that the job runs for,
    `web` is the project's page."""

    limit = 1_000_000

    def __init__(
        self, api: str, project: str, token: Secret, *, commit: str = "", branch: str = "", web: str = ""
    ) -> None:
        self._api = Api(api, token, ("private-token", ""), _HINTS)
        self._web = web
        self._project = f"/projects/{quote(project, safe='')}"
        self._commit, self._branch = commit, branch
        self._me: int | None = None

    def close(self) -> None:
        self._api.close()

    def comments(self, change: int) -> Iterator[Entry]:
        query = {"sort": "asc", "order_by": "created_at"}
        for found in self._api.pages(f"{self._project}/merge_requests/{change}/notes", query):
            if not found["system"]:
                yield self._note(change, found)

    def add_comment(self, change: int, body: str) -> Entry:
        return self._note(
            change, self._api.call("POST", f"{self._project}/merge_requests/{change}/notes", json={"body": body})
        )

    def edit_comment(self, change: int, comment: Entry, body: str) -> Entry:
        path = f"{self._project}/merge_requests/{change}/notes/{comment.id}"
        return self._note(change, self._api.call("PUT", path, json={"body": body}))

    def delete_comment(self, change: int, comment: Entry) -> None:
        self._api.call("DELETE", f"{self._project}/merge_requests/{change}/notes/{comment.id}")

    def issues(self) -> Iterator[Entry]:
        query = {"state": "opened", "labels": LABEL, "sort": "asc", "order_by": "created_at"}
        for found in self._api.pages(f"{self._project}/issues", query):
            yield self._issue(found)

    def open_issue(self, title: str, body: str) -> Entry:
        value = {"title": title, "description": body, "labels": LABEL}
        return self._issue(self._api.call("POST", f"{self._project}/issues", json=value))

    def edit_issue(self, issue: Entry, title: str, body: str) -> Entry:
        value = {"title": title, "description": body}
        return self._issue(self._api.call("PUT", f"{self._project}/issues/{issue.id}", json=value))

    def close_issue(self, issue: Entry, why: str) -> None:
        self._api.call("POST", f"{self._project}/issues/{issue.id}/notes", json={"body": why})
        self._api.call("PUT", f"{self._project}/issues/{issue.id}", json={"state_event": "close"})

    def reviewed_plans(self, artifact: str, run: int | None) -> bytes:
        """`artifact` is the name of the job that plans."""
        pipeline = run if run is not None else self._pipeline()
        jobs = self._api.pages(f"{self._project}/pipelines/{pipeline}/jobs", {})
        kept = [j for j in jobs if j["name"] == artifact and j.get("artifacts_file")]
        if not kept:
            raise none_kept(artifact, f"pipeline {pipeline}")
        newest = max(kept, key=lambda j: int(j["id"]))
        return self._api.download(f"{self._project}/jobs/{newest['id']}/artifacts")

    def _pipeline(self) -> int:
        """Of the commit that was reviewed last: the head of the merge request that this commit merged."""
        path = f"{self._project}/repository/commits/{self._commit}/merge_requests"
        found = [m for m in self._api.pages(path, {}) if m["state"] == "merged" and m["target_branch"] == self._branch]
        if not found:
            raise nothing_merged(self._commit, self._branch)
        number = max(found, key=lambda m: m["merged_at"] or "")["iid"]
        pipeline = self._api.call("GET", f"{self._project}/merge_requests/{number}").get("head_pipeline")
        if not pipeline:
            raise none_kept("plan", f"merge request {number} without a pipeline")
        return int(pipeline["id"])

    def _note(self, change: int, found: dict[str, Any]) -> Entry:
        url = f"{self._web}/-/merge_requests/{change}#note_{found['id']}" if self._web else ""
        return Entry(int(found["id"]), found["body"] or "", self._is_mine(found), url)

    def _issue(self, found: dict[str, Any]) -> Entry:
        text = found["description"] or ""
        return Entry(int(found["iid"]), text, self._is_mine(found), found["web_url"], found["title"])

    def _is_mine(self, found: dict[str, Any]) -> bool:
        if self._me is None:
            self._me = int(self._api.call("GET", "/user")["id"])
        return bool(found["author"]["id"] == self._me)

"""Which forge a job runs on, and for which change request: what GitHub and GitLab say in the environment."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal, TypeAlias

from edgespec.ci.github import GitHub
from edgespec.ci.gitlab import GitLab
from edgespec.diagnostics import EdgespecError, error
from edgespec.secret import Secret

Name: TypeAlias = Literal["github", "gitlab"]
_GITHUB: Final = "https://api.github.com"


def forge_name(environ: Mapping[str, str], chosen: Name | None) -> Name:
    """The chosen one, or the one that this job runs on."""
    if chosen is not None:
        return chosen
    if environ.get("GITHUB_ACTIONS") == "true" or "GITHUB_REPOSITORY" in environ:
        return "github"
    if environ.get("GITLAB_CI") == "true" or "CI_API_V4_URL" in environ:
        return "gitlab"
    detail = (
        "Neither GITHUB_ACTIONS nor GITLAB_CI is set. Name the forge with --forge, or keep the text with --to FILE."
    )
    raise EdgespecError(error("ES741", "No forge here", detail))


def forge_of(environ: Mapping[str, str], name: Name) -> GitHub | GitLab:
    """The repository that this job runs for; raises with the variable that is missing."""
    if name == "github":
        return GitHub(
            environ.get("GITHUB_API_URL") or _GITHUB,
            _needed(environ, "GITHUB_REPOSITORY", "It names the repository, as in acme/shop-edge."),
            Secret("GITHUB_TOKEN", _needed(environ, "GITHUB_TOKEN", "Give the step `env: {GITHUB_TOKEN: ...}`.")),
            commit=environ.get("GITHUB_SHA", ""),
            branch=environ.get("GITHUB_REF_NAME", ""),
        )
    why = "A job's own token may write no comments: add a project access token (scope `api`) as a masked variable."
    return GitLab(
        _needed(environ, "CI_API_V4_URL", "GitLab sets it in every job."),
        _needed(environ, "CI_PROJECT_ID", "GitLab sets it in every job."),
        Secret("GITLAB_TOKEN", _needed(environ, "GITLAB_TOKEN", why)),
        commit=environ.get("CI_COMMIT_SHA", ""),
        branch=environ.get("CI_COMMIT_BRANCH", ""),
        web=environ.get("CI_PROJECT_URL", ""),
    )


def change_of(environ: Mapping[str, str], name: Name) -> int:
    """The number of the change request that this job runs for."""
    found = _github_change(environ) if name == "github" else environ.get("CI_MERGE_REQUEST_IID", "")
    if not found.isdigit():
        detail = "This job runs for no pull or merge request. Name one with --number."
        raise EdgespecError(error("ES741", "No change request here", detail))
    return int(found)


def _github_change(environ: Mapping[str, str]) -> str:
    if (found := re.fullmatch(r"refs/pull/(\d+)/\w+", environ.get("GITHUB_REF", ""))) is not None:
        return found[1]
    path = environ.get("GITHUB_EVENT_PATH")
    if not path:
        return ""
    try:
        event = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    part = event.get("pull_request") or event.get("issue") or {}
    return str(part.get("number", ""))


def _needed(environ: Mapping[str, str], variable: str, why: str) -> str:
    found = environ.get(variable)
    if not found:
        raise EdgespecError(error("ES741", "A variable is missing", f"{variable} is not set. {why}"))
    return found

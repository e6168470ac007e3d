"""`edgespec ci` against a stand-in of GitHub and of GitLab: the same behaviour on both."""

from __future__ import annotations

import io
import json
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from edgespec.ci import api as api_module
from edgespec.ci import forge as forge_module
from edgespec.ci.api import Api
from edgespec.ci.github import GitHub
from edgespec.cli.main import main
from edgespec.diagnostics import EdgespecError
from edgespec.render import markdown
from edgespec.secret import Secret
from tests.forge import BOT, TOKEN, Forge, forge
from tests.unit.cli.conftest import PROJECT, SPEC, Ran

SOMEBODY = {"id": 2, "login": "somebody", "type": "User"}
A = {"environment": "a"}
MARK = "<!-- edgespec:comment:plan -->\n"
Run = Callable[..., Ran]


@pytest.fixture
def there() -> Iterator[Forge]:
    with forge() as made:
        yield made


@pytest.fixture(params=["github", "gitlab"])
def run(
    request: pytest.FixtureRequest,
    there: Forge,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """The command in a job for pull or merge request 5, on the commit `c0ffee` of `main`."""
    for name in ("GITHUB_ACTIONS", "GITHUB_REPOSITORY", "GITLAB_CI", "CI_API_V4_URL", "GITHUB_EVENT_PATH"):
        monkeypatch.delenv(name, raising=False)
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 5}}))
    for name, value in (_GITHUB if request.param == "github" else _GITLAB).items():
        monkeypatch.setenv(name, value.format(url=there.url, event=event, token=TOKEN))
    (tmp_path / "specs").mkdir()
    environments = "environments: {b: {target: {type: local}}, a: {target: {type: local}}}\n"
    (tmp_path / "edgespec.yaml").write_text(PROJECT + environments)
    (tmp_path / "specs" / "alpha.yaml").write_text(SPEC)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("edgespec.cli.main._leave", sys.exit)
    monkeypatch.setattr(api_module.time, "sleep", lambda _: None)

    def call(*arguments: object, text: str = "") -> Ran:
        monkeypatch.setattr(sys, "argv", ["edgespec", "ci", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode()), "utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        assert TOKEN not in said.out + said.err
        code = ended.value.code
        return Ran(code if isinstance(code, int) else 0, said.out, said.err)

    return call


_GITHUB = {
    "GITHUB_ACTIONS": "true",
    "GITHUB_API_URL": "{url}",
    "GITHUB_REPOSITORY": "acme/shop",
    "GITHUB_TOKEN": "{token}",
    "GITHUB_EVENT_PATH": "{event}",
    "GITHUB_SHA": "c0ffee",
    "GITHUB_REF_NAME": "main",
    "GITHUB_REF": "refs/heads/main",
}
_GITLAB = {
    "GITLAB_CI": "true",
    "CI_API_V4_URL": "{url}",
    "CI_PROJECT_ID": "12",
    "CI_PROJECT_URL": "https://gitlab.example/acme/shop",
    "CI_MERGE_REQUEST_IID": "5",
    "GITLAB_TOKEN": "{token}",
    "CI_COMMIT_SHA": "c0ffee",
    "CI_COMMIT_BRANCH": "main",
}


def zipped(**files: object) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, value in files.items():
            packed.writestr(name.replace("__", "/") + ".plan.json", json.dumps(value))
        packed.writestr("plan.md", "a comment")
    return made.getvalue()


# --- comments --------------------------------------------------------------------------------------------------------


def test_one_comment_is_kept_up_to_date(run: Run, there: Forge) -> None:
    for i in range(3):
        there.comment(5, f"comment {i}", SOMEBODY)
    created = run("comment", text="the plan")
    assert created.code == 0 and created.out.startswith("comment created: http")
    for i in range(3):
        there.comment(5, f"more {i}", SOMEBODY)
    updated = run("comment", text="another plan")
    assert updated.out.startswith("comment updated: ")
    assert run("comment", text="another plan\n").out.startswith("comment unchanged: ")
    ours = [c for c in there.comments[5] if c["author"] == BOT]
    assert [c["body"] for c in ours] == [MARK + "another plan"]
    assert len(there.comments[5]) == 7 and len(there.writes) == 2


def test_a_file_and_a_key(run: Run, there: Forge, tmp_path: Path) -> None:
    (tmp_path / "plan.md").write_text("ä plan")
    run("comment", "plan.md", "--key", "plan/shop", "--number", 9)
    run("comment", "plan.md", "--key", "plan/other", "--number", 9)
    assert [c["body"].split("\n")[0] for c in there.comments[9]] == [
        "<!-- edgespec:comment:plan/shop -->",
        "<!-- edgespec:comment:plan/other -->",
    ]


def test_a_comment_of_somebody_else_is_never_ours(run: Run, there: Forge) -> None:
    trap = there.comment(5, MARK + "what I want you to see", SOMEBODY)
    assert run("comment", text="the plan").out.startswith("comment created")
    assert trap["body"].endswith("see")


def test_without_a_user_to_ask_about_bots_are_ours(run: Run, there: Forge) -> None:
    there.knows_user = False
    there.comment(5, MARK + "what I want you to see", SOMEBODY)
    ran = run("comment", text="one")
    if ran.code == 1:
        assert "GET /user: 403" in ran.err  # a token of GitLab's always has a user
        return
    assert run("comment", text="two").out.startswith("comment updated")
    assert [c["body"] for c in there.comments[5]] == [MARK + "what I want you to see", MARK + "two"]


def test_what_was_written_twice_is_one_again(run: Run, there: Forge) -> None:
    for i in range(3):
        there.comment(5, f"{MARK}plan {i}")
    assert run("comment", text="now").out.startswith("comment updated")
    assert [c["body"] for c in there.comments[5]] == [MARK + "now"]


def test_a_text_that_is_too_long_is_cut_and_closed(run: Run, there: Forge, monkeypatch: pytest.MonkeyPatch) -> None:
    fold = "<details><summary>x</summary>\n\n````text\n" + "`row`\n" * 200_000
    run("comment", text=fold)
    body = there.comments[5][0]["body"]
    assert len(body) <= 1_000_000 and body.startswith(MARK)
    assert body.endswith(
        "`row`\n````\n\n</details>\n\n_Cut: more is said than a comment has room for; the job's log has all of it._\n"
    )


def test_a_key_cannot_end_the_marker(run: Run, there: Forge) -> None:
    for key in ("x -->", "a--b", "", "-a"):
        ran = run("comment", f"--key={key}", text="x")
        assert ran.code == 1 and "ES742" in ran.err
    assert not there.calls or not there.writes


def test_into_a_file(run: Run, there: Forge, tmp_path: Path) -> None:
    ran = run("comment", "--to", tmp_path / "comment.md", text="the plan")
    assert ran.code == 0 and (tmp_path / "comment.md").read_text() == MARK + "the plan"
    assert run("comment", "--to", "-", text="the plan").out == MARK + "the plan"
    assert there.calls == []


# --- issues ----------------------------------------------------------------------------------------------------------


def test_one_issue_is_opened_updated_and_closed(run: Run, there: Forge) -> None:
    there.issue("by hand", "nothing of ours", SOMEBODY)
    there.issue("a trap", "<!-- edgespec:issue:drift -->\nnothing", SOMEBODY)
    assert run("issue", "--close", text="all well").out == "issue nothing to close\n"
    assert run("issue", "--title", "Drift", text="one").out.startswith("issue created: http")
    assert run("issue", "--title", "Drift", text="two").out.startswith("issue updated: http")
    assert run("issue", "--title", "Drift", text="two").out.startswith("issue unchanged: http")
    ours = there.issues[-1]
    assert (ours["title"], ours["body"], ours["open"]) == ("Drift", "<!-- edgespec:issue:drift -->\ntwo", True)
    assert run("issue", "--close", text="No drift any more.").out.startswith("issue closed: http")
    assert not ours["open"] and there.closing == [(ours["id"], "No drift any more.")]
    assert run("issue", "--title", "Drift", text="three").out.startswith("issue created")
    assert len(there.issues) == 4


def test_an_issue_needs_a_title(run: Run, there: Forge) -> None:
    ran = run("issue", text="x")
    assert ran.code == 1 and "--title" in ran.err and not there.calls


# --- reviewed plans --------------------------------------------------------------------------------------------------


def test_the_plan_of_the_merged_change_is_fetched(run: Run, there: Forge, tmp_path: Path) -> None:
    there.pulls = [
        {"commit": "c0ffee", "number": 4, "head": "0ld", "branch": "main", "merged": False},
        {"commit": "c0ffee", "number": 5, "head": "f00d", "branch": "main", "merged": True},
        {"commit": "c0ffee", "number": 6, "head": "bad", "branch": "other", "merged": True},
    ]
    there.runs = [
        {"id": 1, "head": "f00d", "job": "edgespec-plan", "artifact": zipped(a={"environment": "a", "n": 1})},
        {"id": 2, "head": "f00d", "job": "edgespec-plan", "artifact": zipped(x__a=A, b={"environment": "b"})},
        {"id": 3, "head": "0ld", "job": "edgespec-plan", "artifact": zipped(a={"environment": "a", "n": 3})},
    ]
    ran = run("reviewed", "plans")
    assert ran.code == 0, ran.err
    assert ran.out.split() == ["plans/b.plan.json", "plans/a.plan.json"], "in the project's order"
    assert json.loads((tmp_path / "plans" / "a.plan.json").read_text()) == A
    assert not (tmp_path / "plans" / "plan.md").exists()
    assert run("reviewed", "others", "--run", 3).out.split() == ["others/a.plan.json"]


def test_without_a_reviewed_plan(run: Run, there: Forge) -> None:
    ran = run("reviewed", "plans")
    assert ran.code == 1 and "ES744" in ran.err and "without a change request" in ran.err
    there.pulls = [{"commit": "c0ffee", "number": 5, "head": "f00d", "branch": "main", "merged": True}]
    ran = run("reviewed", "plans")
    assert ran.code == 1 and "ES744" in ran.err and "run the plan workflow by hand" in ran.err
    there.runs = [{"id": 1, "head": "f00d", "job": "edgespec-plan", "artifact": None}]
    assert "ES744" in run("reviewed", "plans").err


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"no zip", "not a zip file"),
        (zipped(), "no plan file"),
        (zipped(a={}, x__a={}), "same name"),
        (zipped(a={}), "no environment"),
        (zipped(a={"environment": "elsewhere"}), "no environment"),
        (zipped(a=[]), "no environment"),
    ],
)
def test_damaged_plans(run: Run, there: Forge, data: bytes, why: str) -> None:
    there.runs = [{"id": 1, "head": "f00d", "job": "edgespec-plan", "artifact": data}]
    ran = run("reviewed", "plans", "--run", 1)
    assert ran.code == 1 and "ES745" in ran.err and why in ran.err


def test_nothing_is_written_outside_the_folder(run: Run, there: Forge, tmp_path: Path) -> None:
    data = zipped(**{"..__..__up": {"environment": "a"}})
    there.runs = [{"id": 1, "head": "f00d", "job": "edgespec-plan", "artifact": data}]
    assert run("reviewed", "plans", "--run", 1).out.split() == ["plans/up.plan.json"]


# --- what goes wrong -------------------------------------------------------------------------------------------------


def test_refusals_are_waited_for_and_writes_are_made_once(run: Run, there: Forge) -> None:
    there.fail = [(500, {}), (429, {"retry-after": "1"}), (403, {"retry-after": "2"})]
    assert run("comment", text="x").code == 0
    assert len(there.comments[5]) == 1


def test_a_write_that_failed_is_not_made_again(there: Forge) -> None:
    api = Api(there.url, Secret("T", TOKEN), ("authorization", "Bearer "), {})
    there.fail = [(502, {})]
    with pytest.raises(EdgespecError, match="502"):
        api.call("POST", "/repos/a/b/issues/5/comments", json={"body": "x"})
    assert there.calls == ["POST /repos/a/b/issues/5/comments"]
    api.close()


def test_a_token_that_is_refused(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_TOKEN", "GITLAB_TOKEN"):
        monkeypatch.setenv(name, "another-token-9876")
    ran = run("comment", text="x")
    assert ran.code == 1 and "ES743" in ran.err and "401" in ran.err and "another-token" not in ran.err


def test_what_is_missing_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_TOKEN", "GITLAB_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    ran = run("comment", text="x")
    assert ran.code == 1 and "ES741" in ran.err and "_TOKEN is not set" in ran.err
    for name in ("GITHUB_EVENT_PATH", "CI_MERGE_REQUEST_IID"):
        monkeypatch.delenv(name, raising=False)
    assert "--number" in run("comment", text="x").err
    for name in (*_GITHUB, *_GITLAB):
        monkeypatch.delenv(name, raising=False)
    assert "--forge" in run("comment", text="x").err


def test_a_next_page_elsewhere_gets_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        assert request.url.host == "forge.example"
        return httpx.Response(200, json=[], headers={"link": '<https://evil.example/x>; rel="next"'})

    real = httpx.Client
    monkeypatch.setattr(httpx, "Client", lambda **o: real(**{**o, "transport": httpx.MockTransport(answer)}))
    api = Api("https://forge.example", Secret("T", TOKEN), ("authorization", "Bearer "), {})
    with pytest.raises(EdgespecError, match="elsewhere"):
        list(api.pages("/x", {}))
    api.close()


def test_a_pull_requests_number_from_its_ref(monkeypatch: pytest.MonkeyPatch) -> None:
    from edgespec.ci.detect import change_of

    assert change_of({"GITHUB_REF": "refs/pull/12/merge"}, "github") == 12
    with pytest.raises(EdgespecError):
        change_of({"GITHUB_REF": "refs/heads/main"}, "github")


def test_a_cut_outside_of_code_needs_no_fence() -> None:
    body = forge_module.fitted("<!-- m -->", "line\n" * 400, 1000)
    assert "```" not in body and len(body) <= 1000


def test_the_longest_plan_has_room_for_the_marker() -> None:
    text = "x" * (markdown.LIMIT - 1) + "\n"
    body = forge_module.fitted(forge_module.marker("comment", "plan/" + "p" * 40), text, GitHub.limit)
    assert body.endswith(text)

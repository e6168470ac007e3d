"""`edgespec state` as a user types it; the same on R2 is in tests/e2e/test_two_applies.py."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from edgespec.stores.local import LocalStore
from tests.unit.cli.conftest import Run
from tests.world import World

STATE = Path(".edgespec") / "state" / "local.json"


@pytest.fixture
def applied(run: Run, world: World) -> dict[str, Any]:
    assert run("apply", "--auto-approve").code == 0
    found: dict[str, Any] = json.loads(run("state", "pull").out)
    return found


def serial(run: Run) -> int:
    return int(json.loads(run("state", "pull").out)["serial"])


def test_before_the_first_apply(run: Run, world: World) -> None:
    assert run("state", "list").out == ""
    for command in (("pull",), ("show",), ("mv", "model/a", "model/b"), ("rm", "model/a")):
        ran = run("state", *command)
        assert (ran.code, ran.out) == (1, "") and "No state [ES306]" in ran.err
    assert run("state", "unlock").out.endswith("local.json is not locked.\n")


def test_pull_is_the_state_and_push_takes_it(run: Run, applied: dict[str, Any], project: Path) -> None:
    assert run("state", "pull").out == (project / STATE).read_text()
    (project / "pulled.json").write_text(run("state", "pull").out)
    assert run("state", "push", "pulled.json").out.endswith("says the same already.\n")
    applied["resources"][0]["protected"] = True
    (project / "edited.json").write_text(json.dumps(applied))
    ran = run("state", "push", "edited.json")
    now = applied["serial"] + 1
    assert ran.out.endswith(f"local.json is at serial {now} now; serial {now - 1} is kept as a back-up.\n")
    first = applied["resources"][0]["address"]
    assert f"{first}  (protected)" in run("state", "list").out
    listed = {r["address"]: r["protected"] for r in json.loads(run("state", "list", "--json").out)}
    assert listed[first] is True and sum(listed.values()) == 1
    backup = project / STATE.with_name(f"local.json.{now - 1:012}.backup")
    assert backup.read_text() == (project / "pulled.json").read_text()


def test_a_state_stays_with_its_account(run: Run, applied: dict[str, Any], project: Path) -> None:
    """A target that moves would have everything forgotten in the one account and made again in the other."""
    assert applied["account"] == "local"
    (project / STATE).write_text(json.dumps({**applied, "account": "0" * 32}))
    for command in (("plan",), ("apply", "--auto-approve"), ("destroy", "--auto-approve"), ("drift",)):
        ran = run(*command)
        assert (ran.code, ran.out) == (1, "") and "ES305" in ran.err
        assert f"names what is in the account {'0' * 32}; local now deploys to the local edge" in ran.err
    (project / STATE).write_text(json.dumps({**applied, "account": ""}))  # as an older edgespec wrote it
    assert run("plan", "--detailed-exitcode").code == 0


def test_push_from_standard_input_into_nothing(
    run: Run, applied: dict[str, Any], project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (project / STATE).read_bytes()
    (project / STATE).unlink()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(text), isatty=lambda: False))
    ran = run("state", "push", "-")
    assert ran.code == 0 and ran.out.endswith("; nothing was there.\n")
    assert "no changes" in run("plan").out


@pytest.mark.parametrize(
    ("edit", "said", "forced"),
    [
        ({"serial": 1}, "It is older: serial 1;", True),
        ({"lineage": "another"}, "of another history (lineage another;", True),
        ({"project": "another"}, "belongs to another in local, not to shop in local", False),
        ({"environment": "staging"}, "belongs to shop in staging, not to shop in local", False),
        ({"format": "edgespec.state/v9"}, "which a newer edgespec wrote", False),
        ({"resources": 1}, "at $.resources: ", False),
    ],
)
def test_what_is_pushed_only_by_force_or_never(
    run: Run, applied: dict[str, Any], project: Path, edit: dict[str, Any], said: str, forced: bool
) -> None:
    (project / "p.json").write_text(json.dumps({**applied, "resources": [], **edit}))
    refused = run("state", "push", "p.json")
    assert refused.code == 1 and said in refused.err
    assert serial(run) == applied["serial"]
    ran = run("state", "push", "--force", "p.json")
    assert ran.code == (0 if forced else 1)
    assert serial(run) == applied["serial"] + forced


def test_force_replaces_a_damaged_state(run: Run, applied: dict[str, Any], project: Path) -> None:
    good = (project / STATE).read_text()
    (project / "good.json").write_text(good)
    (project / STATE).write_text(good[:100])
    assert "ES301" in run("plan").err
    assert "ES301" in run("state", "push", "good.json").err
    assert run("state", "push", "--force", "good.json").code == 0
    assert "no changes" in run("plan").out
    assert (project / STATE.with_name("local.json.damaged")).read_text() == good[:100]


def test_mv(run: Run, applied: dict[str, Any]) -> None:
    ran = run("state", "mv", "model/alpha", "model/other")
    assert (ran.code, ran.out, ran.err) == (0, "model/alpha is model/other now.\n", "")
    assert json.loads(run("state", "show", "model/other").out)["address"] == "model/other"
    worker = json.loads(run("state", "show", "worker/alpha").out)
    assert "model/alpha" not in worker["depends_on"]
    for source, target, code in (
        ("model/alpha", "model/x", "ES307"),
        ("model", "model/x", "ES307"),
        ("model/other", "worker/other", "ES312"),
    ):
        failed = run("state", "mv", source, target)
        assert failed.code == 1 and code in failed.err
    assert run("state", "mv", "model/other", "model/alpha").code == 0
    assert "no changes" in run("plan").out


def test_rm_says_what_stays(run: Run, applied: dict[str, Any], world: World) -> None:
    effects = list(world.effects)
    nothing = run("state", "rm", "worker/alpha", "worker/other")  # all or none
    assert nothing.code == 1 and "ES307" in nothing.err and serial(run) == applied["serial"]
    ran = run("state", "rm", "worker/alpha", "deployment/alpha")
    assert ran.out == "worker/alpha is forgotten.\ndeployment/alpha is forgotten.\n"
    assert "warning: Forgotten, not deleted [ES315]" in ran.err and "worker/alpha, deployment/alpha" in ran.err
    assert world.effects == effects
    assert "> worker/alpha" in run("plan").out


def test_nothing_is_edited_while_somebody_applies(run: Run, applied: dict[str, Any], project: Path) -> None:
    (project / "p.json").write_text(json.dumps({**applied, "resources": []}))
    with LocalStore(project / STATE).lock("apply"):
        for command in (("mv", "model/alpha", "model/x"), ("rm", "model/alpha"), ("push", "p.json")):
            ran = run("state", *command)
            assert ran.code == 1 and "State is locked [ES304]" in ran.err
        unlock = run("state", "unlock", "--yes")
        assert unlock.code == 1 and "The lock is not broken [ES314]" in unlock.err
        assert run("state", "list").code == 0
    assert serial(run) == applied["serial"]


def test_init_is_for_buckets(run: Run, world: World) -> None:
    ran = run("state", "init")
    assert ran.code == 1 and "ES310" in ran.err and "type: r2" in ran.err

"""What a team does with specs/gitops in some weeks, in two minutes: docs/gitops.md is what this prints.

Each step asserts what it is there to show. The script ends with an empty plan everywhere, or with an error.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.gitops.machine import Clone, FailedError, Team

REFUND = "I want my money back for the blender"
ENVIRONMENTS = ("--env", "staging", "--env", "production")


def expect(true: object, what: str) -> None:
    if not true:
        raise FailedError(what)


class Walk:
    def __init__(self, team: Team, say: Callable[[str], None]) -> None:
        self.team = team
        self.say = say
        self.reviewed: dict[str, Path] = {}

    def run(self) -> None:
        self.mia = self.team.start()
        steps = (
            self.first_deployment,
            self.first_release,
            self.a_pull_request,
            self.a_stale_plan,
            self.second_release,
            self.a_bad_release,
            self.back,
            self.forward_again,
            self.the_end,
        )
        for number, step in enumerate(steps, 1):
            self.say(f"\n## {number}. {str(step.__doc__).splitlines()[0]}\n")
            step()

    # --- what a pipeline does

    def review(self, clone: Clone, name: str) -> str:
        """What the pipeline does for a pull request: the comment, and the plans that a merge will carry out."""
        folder = self.team.folder / "plans" / name
        text = clone.edgespec("plan", *ENVIRONMENTS, "--markdown", "--out", str(folder))
        (self.team.folder / f"comment-{name}.md").write_text(text)
        expect(len(text.encode()) < 65_536, "a comment is longer than a forge takes")
        self.reviewed = {path.name.split(".")[0]: path for path in folder.glob("*.plan.json")}
        return text

    def deploy(self, environment: str, *, cache: str | None = None, code: int = 0) -> str:
        """What the pipeline does after a merge: exactly the reviewed plan, on a runner that starts from nothing."""
        runner = self.team.machine(f"deploy-{environment}", cache=cache)
        plan = self.reviewed[environment]
        return runner.edgespec("apply", str(plan), "--env", environment, code=code)

    def propose(self, branch: str, message: str, *edits: tuple[str, str, str]) -> Clone:
        self.mia.git("fetch", "--quiet", "origin")
        self.mia.branch(branch)
        for name, pattern, replacement in edits:
            self.mia.edit(name, pattern, replacement, count=0)
        if edits:
            self.mia.commit(message)
        return self.mia

    def label_is(self, wanted: str, environment: str) -> None:
        found = self.mia.label(REFUND, environment)
        self.say(f"{environment}: {REFUND!r} is {found}\n")
        expect(found == wanted, f"{environment} answers {found}, not {wanted}")

    # --- the weeks

    def first_deployment(self) -> None:
        """Staging is deployed from main"""
        runner = self.team.machine("deploy-staging", cache="builder")
        runner.edgespec("state", "init", "--env", "staging")
        runner.edgespec("config", "show", "support-intent", "--env", "staging", "--origin")
        runner.edgespec("apply", "--env", "staging", "--auto-approve")
        self.label_is("refund", "staging")
        waiting = runner.edgespec("plan", "--env", "production")
        expect("Not promoted yet" in waiting, "production does not say that it waits for a promotion")

    def first_release(self) -> None:
        """The artifacts that staging serves are promoted by digest"""
        mia = self.propose("release-1", "")
        mia.edgespec("promote", "--all", "--from", "staging", "--to", "production")
        self.say((mia.root / "releases/production.yaml").read_text())
        mia.commit("Release to production")
        comment = self.review(mia, "release-1")
        expect("production" in comment, "the comment does not speak of production")
        mia.merge("release-1")
        self.deploy("production")  # its cache is empty: it has nothing to build with, and needs nothing
        self.label_is("refund", "production")
        mia.edgespec("verify", "support-intent", "--env", "production")

    def a_pull_request(self) -> None:
        """A change is proposed, read as a difference and as a plan, merged, and deployed as it was read"""
        mia = self.propose(
            "colder", "Support: a more cautious classifier; search: cached for a day",
            ("specs/support.yaml", r"l2: 0\.3", "l2: 0.5"),
            ("specs/search.yaml", r"(quantization: .*)", r"\1\ncache: {weights: {kv: {ttl: 1d}}}"),
        )  # fmt: skip
        mia.edgespec("validate", "--sarif", str(self.team.folder / "validate.sarif"))
        mia.edgespec("diff", "origin/main..HEAD")
        self.review(mia, "colder")
        mia.merge("colder")
        self.deploy("staging", cache="builder")
        self.label_is("refund", "staging")

    def a_stale_plan(self) -> None:
        """A plan that was read before another change landed is not carried out"""
        one = self.propose(
            "one", "Search: tokenizer warm", ("specs/search.yaml", r"ttl: 1d", "ttl: 1d, pin: [tokenizer]")
        )
        self.review(one, "one")
        kept = self.reviewed
        two = self.propose(
            "two",
            "Support: half an hour at each location",
            ("specs/support.yaml", r"(quantization: .*)", r"\1\ncache: {weights: {kv: {cache_ttl: 30m}}}"),
        )
        self.review(two, "two")
        two.merge("two")
        self.deploy("staging", cache="builder")
        one.merge("one")
        self.reviewed = kept
        refused = self.deploy("staging", cache="builder", code=1)
        expect("stale" in refused, "the stale plan was not refused as stale")
        again = self.team.machine("main", cache="builder")
        self.review(again, "main")
        self.deploy("staging", cache="builder")

    def second_release(self) -> None:
        """The next release"""
        self.release("release-2")
        self.label_is("refund", "production")

    def release(self, branch: str, *more: str) -> None:
        mia = self.propose(branch, "")
        mia.edgespec("promote", "--all", "--from", "staging", "--to", "production", *more)
        mia.commit(f"Release to production: {branch}")
        self.review(mia, branch)
        mia.merge(branch)
        self.deploy("production")

    def a_bad_release(self) -> None:
        """Labels are swapped, the gate is lowered to let it through, and nobody looks"""
        mia = self.propose("swap", "")
        self.swap(mia)
        mia.edit("specs/support.yaml", r"min: 0\.85", "min: 0.3")
        mia.commit("Support: labels corrected")
        changed = mia.edgespec("diff", "origin/main..HEAD")
        expect("a worse accuracy is let through" in changed, "the lowered gate is not pointed out")
        self.review(mia, "swap")
        mia.merge("swap")
        self.deploy("staging", cache="builder")
        self.release("release-3")
        self.label_is("delivery", "production")

    @staticmethod
    def swap(clone: Clone) -> None:
        path = clone.root / "data/support-train.jsonl"
        other = {"refund": "delivery", "delivery": "refund"}
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        swapped = [{**r, "label": other.get(r["label"], r["label"])} for r in rows]
        path.write_text("".join(json.dumps(r, ensure_ascii=False) + "\n" for r in swapped))

    def back(self) -> None:
        """Production goes back, on a machine that can build nothing"""
        mia = self.propose("back", "")
        reason = "refunds are called deliveries"
        mia.edgespec("rollback", "support-intent", "--env", "production", "--reason", reason)
        mia.commit(f"Roll support-intent back: {reason}")
        mia.edgespec("diff", "origin/main..HEAD")
        self.review(mia, "back")
        mia.merge("back")
        applied = self.deploy("production")
        expect("built" not in applied, "a rollback built something")
        self.label_is("refund", "production")
        mia.edgespec("history", "support-intent", "--env", "production")

    def forward_again(self) -> None:
        """The cause is mended; the pin holds until somebody lifts it"""
        mia = self.propose("mend", "")
        bad = mia.git("log", "--format=%H", "--grep", "labels corrected", "origin/main").split()[0]
        mia.git("revert", "--no-edit", bad)
        self.review(mia, "mend")
        mia.merge("mend")
        self.deploy("staging", cache="builder")
        refused = self.propose("too-soon", "").edgespec(
            "promote", "support-intent", "--from", "staging", "--to", "production", code=1
        )
        expect("refunds are called deliveries" in refused, "the promotion does not say why it is pinned")
        self.release("release-4", "--unpin")
        self.label_is("refund", "production")

    def the_end(self) -> None:
        """Nothing is left to do anywhere"""
        anyone = self.team.machine("anyone")
        anyone.edgespec("plan", *ENVIRONMENTS, "--detailed-exitcode")
        for environment in ("staging", "production"):
            anyone.edgespec("drift", "--env", environment)
            anyone.edgespec("verify", "support-intent", "--env", environment)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(tempfile.mkdtemp(prefix="edgespec-gitops-"))
    walk(folder, lambda text: print(text, flush=True))
    print(f"\nEverything is in {folder}: clones, comments, plans.")


def walk(folder: Path, say: Callable[[str], None]) -> None:
    team = Team(folder, say)
    try:
        Walk(team, say).run()
    finally:
        team.close()


if __name__ == "__main__":
    main()

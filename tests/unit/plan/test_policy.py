"""What policies say of real plans, and what they say when they cannot tell."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgespec.diagnostics import Severity, SourceRange
from edgespec.measurement import Measured
from edgespec.plan import policy
from edgespec.plan.budget import Fit
from edgespec.plan.cost import NOTHING, Costs, Estimate, ModelCost
from edgespec.plan.file import to_document
from edgespec.plan.model import Plan, Request
from edgespec.plan.policy import Facts, Provenance, Verdict
from edgespec.records import replace
from edgespec.spec.document import Source, parse
from edgespec.spec.models import EdgeModel, Policy
from tests.world import ENVIRONMENT, PROJECT, MemoryStore, World, apply, plan, spec

DOCS = Path(__file__).parents[3] / "docs" / "policies.md"
MEASURED = Measured("edge", "own texts", 3.0, 4.5, "16", 4.0, 90_000_000, "2026-11-30T12:00:00Z")
ALPHA = spec("alpha", metadata={"name": "alpha", "labels": {"team": "support", "tier": "gold"}})
BETA = spec("beta", metadata={"name": "beta", "labels": {"team": "search"}})


def removed() -> Plan:
    """Two specs deployed; one is taken away and the other's cache changes."""
    world = World()
    store = MemoryStore(world)
    apply(world, store, [ALPHA, BETA])
    changed = spec(
        "beta", metadata={"name": "beta", "labels": {"team": "search"}}, cache={"weights": {"tiers": ["memory"]}}
    )
    return plan(world, store, [changed], request=Request(allow_destroy=True))


def facts(made: Plan, *specs: EdgeModel, **more: Any) -> Facts:
    given: dict[str, Any] = {"fits": (), "costs": NOTHING, **more}
    told = given.get("provenance", lambda _: None)
    return Facts(PROJECT, ENVIRONMENT, made, {s.name: s for s in specs}, given["fits"], given["costs"], told)


def say(made: Facts, *whens: str, deny: bool = True, environments: tuple[str, ...] = ()) -> list[Verdict]:
    text = "policies:\n" + "".join(f"  - when: {json.dumps(w)}\n" for w in whens)
    (node,) = parse(Source("edgespec.yaml", text)).value or []
    words = {"deny": "No."} if deny else {"warn": "Mind."}
    found = [Policy(name=f"p{i}", when=w, environments=environments, **words) for i, w in enumerate(whens)]
    return list(policy.evaluate(found, made, node))


@pytest.mark.parametrize(
    ("when", "about"),
    [
        ('change.action == "delete" && change.type == "worker"', ("worker/alpha",)),
        ('change.action == "delete" && "alpha" in change.owners && change.type == "deployment"', ("deployment/alpha",)),
        ("plan.delete > 2", ()),
        ('plan.delete > 2 && environment == "local" && project == "shop"', ()),
        ('change.fields.exists(f, f.startsWith("config.cache"))', ("worker/beta",)),
        ('"version" in change.fields && !change.fields["version"].known', ("deployment/beta",)),
        ('change.labels.team == "search" && change.type == "worker"', ("worker/beta",)),
        ('spec.metadata.labels.team == "search" && change.type == "worker"', ("worker/beta",)),
        ('has(spec.metadata) && spec.task.type == "embedding"', ("beta",)),
        ('change.type == "kv_namespace" && change.objects == 0 && change.action == "delete"',
         ("kv_namespace/shop-local-weights",)),
        ('change.before.title == "shop-local-weights" && change.type == "kv_namespace"',
         ("kv_namespace/shop-local-weights",)),
        ('change.reason == "not-in-spec" && change.name == "alpha" && change.type == "model"', ("model/alpha",)),
    ],
)  # fmt: skip
def test_what_it_is_about(when: str, about: tuple[str, ...]) -> None:
    made = facts(removed(), BETA)
    guarded = when.replace("change.before.title", "has(change.before.title) && change.before.title")
    if "change.labels.team" in when:
        guarded = f'"team" in change.labels && {when}'
    if when.startswith("spec.metadata.labels"):
        guarded = f"has(spec.metadata) && {when}"
    (verdict,) = say(made, guarded)
    assert (verdict.about, verdict.failure, verdict.denies) == (about, "", True)


def test_what_is_false_says_nothing() -> None:
    assert say(facts(removed(), BETA), 'change.action == "create"', "plan.create > 0", "fit.measured") == []


@pytest.mark.parametrize(
    ("when", "why"),
    [
        ("fit.memory > 100", "`fit.memory` is not known here"),
        ('change.type == "kv_namespace" && change.bytes > 0', "`change.bytes` is not known here"),
        ("change.fields[\"nothing\"].before == 1", 'there is no "nothing"; ask for it by `has(...)` or `in` first'),
        ('change.labels.team == "x"', 'there is no "team"; ask for it by `has(...)` or `in` first'),
        ("1 / plan.create > 0", "divide by zero"),
        ("spec.metadata", "it gives a map, and not true or false"),
        ("change.before.script", "it gives a string, and not true or false"),
        ('change.name.matches("(")', "invalid regular expression: missing ): ("),
        ('change.before.script > 3', "no matching overloads"),
    ],
)  # fmt: skip
def test_what_cannot_be_evaluated_denies_and_says_why(when: str, why: str) -> None:
    for deny in (True, False):
        verdicts = say(facts(removed(), BETA), when, deny=deny)
        failed = [v for v in verdicts if v.failure]
        assert failed and all(v.denies for v in failed)
        assert any(why in v.failure for v in failed), [v.failure for v in failed]
        found = next(d for d in policy.diagnostics(failed) if why in d.detail)
        assert (found.severity, found.code) == (Severity.ERROR, "ES231") and found.source is not None


def test_a_shared_change_is_asked_for_each_owner() -> None:
    world = World()
    made = plan(world, MemoryStore(world), [ALPHA, BETA])
    when = '"tier" in change.labels && change.labels.tier == "gold" && change.type == "r2_bucket"'
    (verdict,) = say(facts(made, ALPHA, BETA), when)
    assert verdict.about == ("r2_bucket/shop-local-auto",) and not verdict.failure


def test_measurements_and_costs() -> None:
    world = World()
    made = plan(world, MemoryStore(world), [ALPHA])
    model = ModelCost("alpha", None, Estimate(7.5))
    costs = Costs(Estimate(5.0), Estimate(25.0), (model,))
    given = facts(made, ALPHA, fits=[Fit(ALPHA, 4_000_000, MEASURED)], costs=costs)
    true = [
        "fit.measured && fit.memory > 89000000 && fit.cpu_p99_ms > 4.0 && fit.script == 4000000",
        "cost.after > 20.0 && cost.before < 6.0",
        "cost.model_after > 7.0 && cost.model_before == 0.0",
        'cost.model_after > 7.0 && spec.metadata.labels.team == "support"',
    ]
    assert [(v.policy, v.about, v.failure) for v in say(given, *true)] == [
        ("p0", ("alpha",), ""), ("p1", (), ""), ("p2", ("alpha",), ""), ("p3", ("alpha",), ""),
    ]  # fmt: skip


def test_what_a_whole_plan_comes_to() -> None:
    world = World()
    store = MemoryStore(world)
    absent = facts(plan(world, store, [ALPHA]), ALPHA)
    assert {c.action.value for c in absent.plan.changes} == {"create"} and len(absent.plan.changes) == 6
    (counted, unknown) = say(absent, "plan.changes == 6 && plan.create == 6", "plan.upload_bytes > 0")
    assert not counted.failure and "`plan.upload_bytes` is not known here" in unknown.failure  # before the build
    apply(world, store, [ALPHA])
    moved = spec("alpha", cache={"weights": {"kv": {"pin": ["tokenizer"]}}})
    built = facts(plan(world, store, [moved]), moved, costs=Costs(Estimate(2.0), Estimate(3.0)))
    assert [(v.policy, v.failure) for v in say(built, "plan.upload_bytes > 0", "cost.before == 2.0 && plan.changes > 0",
                                               "cost.after == 3.0 && plan.changes < 3")] == [
        ("p0", ""), ("p1", ""), ("p2", ""),
    ]  # fmt: skip


def test_a_policy_that_says_nothing_here_hides_none_after_it() -> None:
    made = facts(removed(), BETA)
    quiet = Policy(name="elsewhere", when="plan.delete > 0", environments=("production",), deny="No.")
    broken = Policy.model_construct(name="broken", when="plan.delete >", environments=(), deny="No.", warn=None)
    last = Policy(name="last", when="plan.delete > 0", deny="No.")
    (node,) = parse(Source("edgespec.yaml", "policies: [{when: a}, {when: b}, {when: c}]\n")).value or []
    assert [v.policy for v in policy.evaluate([quiet, broken, last], made, node)] == ["last"]


def test_what_nobody_owns_has_no_labels_and_no_spec() -> None:
    made = removed()
    orphan = next(c for c in made.changes if c.address.type == "kv_namespace")
    alone = facts(replace(made, changes=(replace(orphan, owners=()),)), BETA)
    when = 'size(change.labels) == 0 && cost.model_after == 0.0 && !has(spec.metadata) && change.type != ""'
    (verdict,) = say(alone, when)
    assert (verdict.about, verdict.failure) == (("kv_namespace/shop-local-weights",), "")


def test_environments_and_places() -> None:
    made = facts(removed(), BETA)
    assert say(made, "plan.delete > 0", environments=("production",)) == []
    (verdict,) = say(made, "plan.delete > 0", environments=("local",), deny=False)
    assert verdict.source == SourceRange("edgespec.yaml", 2, 11) and not verdict.denies
    (found,) = policy.diagnostics([verdict])
    assert (found.severity, found.code, found.detail) == (Severity.WARNING, "ES232", "p0: Mind.")


def test_many_changes_are_counted() -> None:
    for count, end in ((20, "worker/w7 and 12 more)"), (9, "worker/w7 and 1 more)"), (8, "worker/w6, worker/w7)")):
        about = tuple(f"worker/w{i}" for i in range(count))
        verdict = Verdict("p", True, "No.", about, "", SourceRange("edgespec.yaml", 1, 1))
        (found,) = policy.diagnostics([verdict])
        assert found.detail.endswith(end) and found.code == "ES230"


# --- the plan's JSON, as OPA and conftest see it ---------------------------------------------------------------------


def test_the_paths_that_docs_policies_md_gives_to_rego() -> None:
    made = removed()
    given = facts(made, BETA, fits=[Fit(BETA, 1000, None)])
    verdicts = say(given, "plan.delete > 0")
    document = to_document(
        made, project=PROJECT, environment=ENVIRONMENT, fits=given.fits, costs=NOTHING, verdicts=verdicts
    )
    document = json.loads(json.dumps(document))
    gone = [c for c in document["changes"] if c["action"] in ("delete", "replace")]
    assert {(c["type"], c["name"]) for c in gone} >= {("worker", "alpha"), ("kv_namespace", "shop-local-weights")}
    assert {c["address"] for c in document["changes"] if "alpha" in c["owners"]} >= {"worker/alpha", "model/alpha"}
    assert any(f["path"].startswith("config.") for c in document["changes"] for f in c["fields"])
    assert document["environment"] == ENVIRONMENT and document["summary"]["delete"] == len(
        [c for c in document["changes"] if c["action"] == "delete"]
    )
    assert [c["contents"]["objects"] for c in gone if c["type"] == "kv_namespace"] == [0]
    assert document["fits"][0]["labels"] == {"team": "search"} and document["costs"]["after"]["usd"] == 0.0
    assert document["policies"][0]["verdict"] == "deny" and document["policies"][0]["about"] == []
    assert all(isinstance(c["work"]["r2_deletes"], int) for c in document["changes"])


def test_the_rego_of_docs_policies_md() -> None:
    """As it stands there, by Microsoft's implementation of Rego: the language that OPA and conftest evaluate."""
    (rego,) = re.findall(r"```rego\n(.*?)```", DOCS.read_text(encoding="utf-8"), re.DOTALL)
    document = to_document(removed(), project=PROJECT, environment="production", costs=NOTHING)
    document["costs"] = {**document["costs"], "after": {"usd": 12.5}, "before": {"usd": 1.0}}
    for change in document["changes"]:
        if change["type"] == "kv_namespace":
            change["contents"] = {**(change["contents"] or {}), "objects": 3}
    gone = {c["address"]: c["action"] for c in document["changes"] if c["action"] in ("delete", "replace")}
    denied = {f"{address}: {action} goes through a change request" for address, action in gone.items()}
    assert asked(rego, "deny", document) == denied | {"kv_namespace/shop-local-weights holds 3 objects"}
    assert asked(rego, "warn", document) == {"11.50 USD a month more"}
    assert asked(rego, "deny", {**document, "environment": "staging", "changes": []}) == set()


def asked(rego: str, rule: str, document: Any) -> set[str]:
    """In a process of its own: Rego's and CEL's native libraries do not bear each other."""
    program = (
        "import json, sys, regopy; rego, rule, given = json.load(sys.stdin); r = regopy.Interpreter(); "
        "r.add_module('docs', rego); r.set_input_term(given); print(r.query('data.main.' + rule))"
    )
    given = json.dumps([rego, rule, json.dumps(document)])
    ran = subprocess.run([sys.executable, "-c", program], input=given, capture_output=True, text=True, check=True)
    (found,) = json.loads(ran.stdout)["expressions"]
    return set(found)


def test_a_whole_number_beyond_64_bits_is_no_crash() -> None:
    made = removed()
    gone = next(c for c in made.changes if c.address.type == "kv_namespace")
    huge = replace(gone, before={"title": 2**70})
    given = facts(replace(made, changes=(huge,)), BETA)
    assert len(say(given, "change.before.title > 1.0")) == 1


BY_CI = Provenance(True, True, True, "https://ci.example.com/apply.yml", "1a2b3c4d")


@pytest.mark.parametrize(
    ("when", "said", "speaks"),
    [
        ("!model.provenance.trusted", BY_CI, False),
        ("!model.provenance.trusted", Provenance(True, True, False, "urn:x", ""), True),
        ("!model.provenance.signed", Provenance(True), True),
        ("!model.provenance.present", Provenance(), True),
        ('!model.provenance.builder.startsWith("https://ci.example.com/")', BY_CI, False),
        ('model.provenance.revision == ""', Provenance(True), True),
        ('environment == "local" && !(model.provenance.trusted && spec.task.type == "embedding")', BY_CI, False),
    ],
)
def test_where_an_artifact_comes_from(when: str, said: Provenance, *, speaks: bool) -> None:
    world = World()
    made = plan(world, MemoryStore(world), [BETA])
    verdicts = say(facts(made, BETA, provenance={"beta": said}.get), when)
    assert [v.about for v in verdicts] == ([("beta",)] if speaks else [])
    assert not any(v.failure for v in verdicts)


def test_what_goes_needs_nobodys_word() -> None:
    """Of what nothing will serve any more nothing is asked: not for a model, nor for a change and its owner."""
    made = facts(removed(), ALPHA, BETA, provenance={"beta": Provenance()}.get)
    (by_model,) = say(made, "!model.provenance.trusted")
    assert by_model.about == ("beta",)
    (by_change,) = say(made, '!model.provenance.trusted && change.type == "worker"')
    assert by_change.about == ("worker/beta",)


def test_what_two_own_is_asked_for_the_one_that_serves() -> None:
    world = World()
    both = plan(world, MemoryStore(world), [ALPHA, BETA])
    made = facts(both, ALPHA, BETA, provenance={"beta": Provenance()}.get)
    (verdict,) = say(made, '!model.provenance.trusted && change.type == "r2_bucket"')
    assert verdict.about == ("r2_bucket/shop-local-auto",) and not verdict.failure

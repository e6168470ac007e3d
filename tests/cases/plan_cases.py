"""`plan/<name>/case.yaml`: what was deployed, what happened since, what the specs ask for now -> the plan.

    before: [SPEC, ...]         a first apply, into an empty account
    applied: [SPEC, ...]        an earlier apply
    killed: {specs: [SPEC, ...], after: N}      then a run that was killed after its N-th effect or write of state
    since: [CHANGE, ...]        then what somebody else did, see `_CHANGES`
    policies: [POLICY, ...]     as in edgespec.yaml; the plan is then kept as a comment too
    specs: [SPEC, ...]          now; `only: [NAME, ...]`, `destroy: true`, `target: [ADDRESS, ...]`,
                                `exclude: [ADDRESS, ...]`, `refresh_only`, `allow_destroy` as on the command line
    protect: true               of the environment
    keep: N                     artifacts that stay after they served, from now on
    pinned: {NAME: [SPEC, N]}   NAME deploys what SPEC was built to, as release N, whatever its own spec says; in
                                `applied` too where `was_pinned` says so
    unreleased: [NAME, ...]     specs that were not promoted yet

A SPEC is an EdgeModel's sections and its `name`. The account and the build are those of tests/world.py.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import yaml

from edgespec import assets
from edgespec.address import Address
from edgespec.diagnostics import Diagnostics, Severity
from edgespec.plan import policy
from edgespec.plan.cost import NOTHING
from edgespec.plan.file import to_document
from edgespec.plan.model import Plan, Request
from edgespec.plan.safety import check_safe, warnings_of
from edgespec.records import replace
from edgespec.render import diagnostics as render_diagnostics
from edgespec.render import explain as render_explain
from edgespec.render import markdown as render_markdown
from edgespec.render import plan as render_plan
from edgespec.render.text import plain
from edgespec.spec.document import Source, parse
from edgespec.spec.models import EdgeModel, Policy
from edgespec.values import digest
from tests.world import (
    ENVIRONMENT,
    PROJECT,
    Crash,
    MemoryStore,
    Script,
    World,
    apply,
    build,
    build_inputs,
    plan,
    spec,
)

FOLDER = Path(__file__).parent / "plan"
_OPAQUE: Final = ("manifest", "blobs", "served")


def names() -> list[str]:
    return sorted(p.name for p in FOLDER.iterdir() if p.is_dir())


def expected_files(name: str) -> dict[str, str]:
    """File name -> content, as the code has it now."""
    case: dict[str, Any] = yaml.safe_load((FOLDER / name / "case.yaml").read_text(encoding="utf-8"))
    world = World()
    store = MemoryStore(world)
    for specs in (
        (case["before"], case["applied"]) if "before" in case else (case["applied"],) if "applied" in case else ()
    ):
        world.released = _pins(world, case.get("was_pinned", {}))
        result = apply(world, store, _specs(specs))
        assert not result.diagnostics.has_errors
    world.released, world.keep = _pins(world, case.get("pinned", {})), case.get("keep", 2)
    if "killed" in case:
        world.ticks, world.crash_at = 0, case["killed"]["after"]
        with contextlib.suppress(Crash):
            apply(world, store, _specs(case["killed"]["specs"]), destroy=case["killed"].get("destroy", False))
        world.crash_at = None
    for change in case.get("since", []):
        (what, value), *_ = change.items()
        _CHANGES[what](world, store, value)
    request = Request(
        tuple(case.get("only", ())),
        case.get("destroy", False),
        tuple(Address.parse(a) for a in case.get("target", ())),
        tuple(Address.parse(a) for a in case.get("exclude", ())),
        case.get("refresh_only", False),
        case.get("allow_destroy", False),
    )
    made = plan(world, store, _specs(case["specs"]), request=request)
    made = replace(made, unreleased=tuple(case.get("unreleased", ())))
    document = to_document(made, project=PROJECT, environment=ENVIRONMENT)
    assert assets.schema_error("plan", document) is None
    lines = render_plan.render(made, PROJECT, ENVIRONMENT)
    lines += render_explain.render(made.steps) if case.get("explain") else []
    found = [*warnings_of(made), *check_safe(made, protected_environment=ENVIRONMENT if "protect" in case else None)]
    lines += [(), *render_diagnostics.render(Diagnostics(tuple(found)))] if found else []
    if "policies" in case:
        verdicts = _verdicts(case["policies"], made, case["specs"])
        lines = render_plan.render(made, PROJECT, ENVIRONMENT, verdicts=verdicts)
        document = to_document(made, project=PROJECT, environment=ENVIRONMENT, verdicts=verdicts)
        found = list(policy.diagnostics(verdicts))
        lines += [(), *render_diagnostics.render(Diagnostics(tuple(found)))]
        refused = [str(d) for d in found if d.severity is Severity.ERROR]
        comment = {
            "expected.md": render_markdown.render(made, PROJECT, ENVIRONMENT, verdicts=verdicts, refused=refused)
        }
    else:
        comment = {}
    return {
        **comment,
        "expected.txt": "".join(f"{row.rstrip()}\n" for row in plain(lines).rstrip().split("\n")),
        "expected.json": json.dumps(_short(document), indent=1, ensure_ascii=False) + "\n",
    }


def _verdicts(described: list[dict[str, Any]], made: Plan, specs: list[dict[str, Any]]) -> tuple[policy.Verdict, ...]:
    (node,) = parse(Source("edgespec.yaml", yaml.safe_dump({"policies": described}, sort_keys=False))).value or []
    known = {s.name: s for s in _specs(specs)}
    facts = policy.Facts(PROJECT, ENVIRONMENT, made, known, (), NOTHING)
    return policy.evaluate([Policy.model_validate(p) for p in described], facts, node)


def _specs(described: list[dict[str, Any]]) -> list[EdgeModel]:
    return [spec(**fields) for fields in described]


def _short(value: Any, name: str = "") -> Any:
    """`value` with a digest in place of what is too long to review."""
    if name in _OPAQUE and value is not None:
        return f"sha256 {digest(value)[:12]}"
    if isinstance(value, dict):
        opaque = value.get("path") in _OPAQUE and "before" in value
        return {k: _short(v, value["path"] if opaque and k in ("before", "after") else k) for k, v in value.items()}
    if isinstance(value, list):
        return [_short(v) for v in value]
    return value


def _rename(world: World, store: MemoryStore, titles: dict[str, str]) -> None:
    world.namespaces = {i: titles.get(t, t) for i, t in world.namespaces.items()}


def _remove_bucket(world: World, store: MemoryStore, name: str) -> None:
    world.buckets = {k: v for k, v in world.buckets.items() if k[1] != name}


def _remove_object(world: World, store: MemoryStore, bucket: str) -> None:
    objects = next(v for k, v in world.buckets.items() if k[1] == bucket)
    objects.pop(min(objects))


_CHANGES: Final[dict[str, Callable[[World, MemoryStore, Any], object]]] = {
    "source edited": lambda world, _, path: world.sources.update({path: digest([path, "edited"])}),
    "source not here": lambda world, _, path: world.absent.add(path),
    "tools upgraded": lambda world, _, version: setattr(world, "tools", version),
    "cache cleared": lambda world, _, __: world.cache.clear(),
    "state lost": lambda _, store, __: setattr(store, "text", ""),
    "bucket made": lambda world, _, name: world.buckets.update({("default", name): {}}),
    "bucket removed": _remove_bucket,
    "object removed from": _remove_object,
    "namespace made": lambda world, _, title: world.namespaces.update({"somebody-elses": title}),
    "namespace renamed": _rename,
    "Worker made": lambda world, _, name: world.scripts.update({name: Script()}),
    "Worker removed": lambda world, _, name: world.scripts.pop(name),
    "address closed": lambda world, _, name: setattr(world.scripts[name], "public", False),
}
"""What may happen outside a run; the value says to what."""


def _pins(world: World, said: dict[str, Any]) -> dict[str, tuple[str, int]]:
    """Spec -> artifact and release; what was never built is built now, on another machine."""
    found = {}
    for name, (document, number) in said.items():
        [built] = _specs([document])
        manifest = build(world, build_inputs(world, built))
        world.made[manifest.digest] = manifest
        found[name] = (manifest.digest, number)
    return found

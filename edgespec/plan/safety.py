"""Guard rails: what a plan may not do without being told so explicitly. Protection comes from state where no spec is
left to say it (hashicorp/terraform#17599)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from edgespec.diagnostics import Diagnostic, error, some, warning
from edgespec.plan.model import Action, Change, Plan
from edgespec.resources.compile import TYPES

SHARE: Final = 0.3
"""Of the records in state: more than this is not removed without `--allow-destroy`."""
FEWEST: Final = 4
"""Removals that are always taken to be meant."""
_NAMED: Final = 12
"""Addresses that a message names."""


def destroyed(plan: Plan) -> tuple[Change, ...]:
    """Every change that ends something which is in use: removals, and replacements other than of content, whose old
    form goes only after the new one serves."""
    return tuple(
        c
        for c in plan.changes
        if not c.key.deposed
        and not TYPES[c.address.type].spare
        and (c.action is Action.DELETE or (c.action is Action.REPLACE and not TYPES[c.address.type].content))
    )


def check_safe(plan: Plan, *, protected_environment: str | None) -> tuple[Diagnostic, ...]:
    """What refuses the plan. `protected_environment` is the environment's name when its `protect` is set."""
    gone = destroyed(plan)
    found = [*_prevented(gone)]
    if gone and not plan.request.allow_destroy and not found:
        if protected_environment is not None:
            detail = (
                f"{protected_environment} is protected, and this would destroy {_listed(gone)}. If that is meant, say "
                "`--allow-destroy`."
            )
            found.append(error("ES221", "The environment is protected", detail))
        elif not plan.request.destroy:
            found += _too_much(plan, gone)
    if not plan.request.allow_destroy:
        found += _foreign(plan)
    return tuple(found)


def _foreign(plan: Plan) -> Iterator[Diagnostic]:
    """Keys of somebody else go with a namespace. A bucket is not deleted while it holds anything."""
    for key, held in sorted(plan.contents.items()):
        if held.foreign and key.address.type == "kv_namespace":
            detail = (
                f"{key} holds {held.foreign} keys that edgespec did not put there, and they would go with it. Save "
                "them, or say `--allow-destroy`."
            )
            yield error("ES225", "Objects of somebody else", detail, address=str(key.address))


def _prevented(gone: Sequence[Change]) -> Iterator[Diagnostic]:
    kept = [c for c in gone if c.protected and TYPES[c.address.type].guarded]
    owners = ", ".join(sorted({o for c in kept for o in c.owners}))
    removed = [c for c in kept if c.action is Action.DELETE]
    replaced = [c for c in kept if c.action is Action.REPLACE]
    if removed:
        detail = (
            f"{_listed(removed)}: `lifecycle.prevent_destroy` of {owners} forbids their removal. Deleting a spec does "
            "not lift that, and no option does: set `prevent_destroy: false` in it, apply, and then remove it."
        )
        yield error("ES220", "Protected from destruction", detail)
    if replaced:
        fields = ", ".join(sorted({f.path for c in replaced for f in c.fields if f.replaces}))
        detail = (
            f"{_listed(replaced)} would be replaced because of {fields}, and `lifecycle.prevent_destroy` of {owners} "
            "forbids that. Undo the change, or set `prevent_destroy: false` and apply."
        )
        yield error("ES220", "Protected from destruction", detail)


def _too_much(plan: Plan, gone: Sequence[Change]) -> Iterator[Diagnostic]:
    total = sum(not k.deposed for k in plan.refreshed.records)
    if len(gone) >= FEWEST and len(gone) > SHARE * total:
        detail = (
            f"{len(gone)} of {total} resources ({len(gone) / total:.0%}) would be destroyed, more than {SHARE:.0%}: "
            f"{_listed(gone)}. If that is meant, say `--allow-destroy`; if not, look for specs that are missing or "
            "renamed (`lifecycle.renamed_from`)."
        )
        yield error("ES222", "Too much would be destroyed", detail)


def warnings_of(plan: Plan) -> Iterator[Diagnostic]:
    """What a person has to know before saying yes."""
    if plan.request.excludes:
        left = (
            f"{some([str(a) for a in plan.withheld], _NAMED)} would change and stay as they are"
            if plan.withheld
            else ""
        )
        detail = (
            f"With --exclude the result is not what the specs say{': ' + left if left else ''}. Apply without it when "
            "the reason has gone."
        )
        yield warning("ES224", "Only a part of the specs", detail)
    for key, held in sorted(plan.contents.items()):
        if held.foreign and key.address.type == "r2_bucket":
            detail = (
                f"{key} holds {held.foreign} objects that edgespec did not put there. It is not deleted as long as "
                "they are in it."
            )
            yield warning("ES225", "Objects of somebody else", detail, address=str(key.address))


def _listed(changes: Sequence[Change]) -> str:
    return some([str(c.address) for c in changes], _NAMED)

from __future__ import annotations

from collections.abc import Mapping

from edgespec.diagnostics import Checked
from edgespec.spec.document import Source
from edgespec.spec.load import LoadedProject, load_project
from edgespec.spec.models import CloudflareTarget

ACCOUNT = "0123456789abcdef" * 2
HEAD = "apiVersion: edgespec/v1\nkind: Project\nname: shop\nenvironments:\n"


def load(environments: str, selected: str | None, variables: Mapping[str, str]) -> Checked[LoadedProject]:
    return load_project(Source("edgespec.yaml", HEAD + environments), variables, selected)


def codes(checked: Checked[LoadedProject]) -> list[str]:
    return [d.code for d in checked.diagnostics]


def account(checked: Checked[LoadedProject], environment: str) -> str:
    target = checked.unwrap().project.environments[environment].target
    assert isinstance(target, CloudflareTarget)
    return target.account


STAGING = "  staging: {target: {type: cloudflare, account: '${ACCOUNT_ID}'}}\n"


def test_a_variable_is_read() -> None:
    assert account(load(STAGING, "staging", {"ACCOUNT_ID": ACCOUNT}), "staging") == ACCOUNT
    parts = STAGING.replace("${ACCOUNT_ID}", "${A}${B}")
    assert account(load(parts, "staging", {"A": ACCOUNT[:5], "B": ACCOUNT[5:]}), "staging") == ACCOUNT


def test_only_the_environment_in_use_needs_its_variables() -> None:
    both = STAGING + "  local: {target: {type: local}}\n"
    assert codes(load(both, "local", {})) == codes(load(both, None, {})) == []
    assert codes(load(both, "staging", {})) == codes(load(both, "staging", {"ACCOUNT_ID": ""})) == ["ES121"]


def test_an_anchor_shared_with_another_environment() -> None:
    text = "  a: {target: &t {type: cloudflare, account: '${ACCOUNT_ID}'}}\n  b: {target: *t}\n"
    assert codes(load(text, "b", {})) == ["ES121"]
    assert account(load(text, "b", {"ACCOUNT_ID": ACCOUNT}), "b") == ACCOUNT


def test_a_value_is_not_read_again() -> None:
    found = load(STAGING, "staging", {"ACCOUNT_ID": "${OTHER}", "OTHER": ACCOUNT})
    assert codes(found) == ["ES112"]


def test_a_value_is_never_shown() -> None:
    found = load(STAGING, "staging", {"ACCOUNT_ID": "secret-token"})
    (problem,) = found.diagnostics
    assert problem.code == "ES112" and "secret" not in str(problem)
    assert "${ACCOUNT_ID}" in problem.detail
    text = "  staging: {target: {type: '${KIND}'}, state: {type: '${KIND}'}}\n"
    for problem in load(text, "staging", {"KIND": "secret-token"}).diagnostics:
        assert problem.code == "ES112" and "secret" not in str(problem)


def test_the_value_of_a_later_field_is_not_shown_either() -> None:
    text = f"  a: {{target: {{type: cloudflare, account: {ACCOUNT}, zone: '${{ZONE}}'}}}}\n"
    (problem,) = load(text, "a", {"ZONE": "secret-token"}).diagnostics
    assert problem.code == "ES115" and "secret" not in str(problem)


def test_elsewhere_it_is_refused_even_within_a_text() -> None:
    text = STAGING.replace("  staging", "  'st${A}'")
    assert "ES113" in codes(load(text, None, {}))
    project = load_project(Source("p", HEAD.replace("shop", "shop-${A}") + STAGING), {"A": "x"}, None)
    assert codes(project)[0] == "ES120"
    shared = HEAD.replace("shop", "&n '${A}'") + STAGING.replace("'${ACCOUNT_ID}'", "*n")
    assert codes(load_project(Source("p", shared), {"A": ACCOUNT}, "staging"))[0] == "ES120"
    aliased = (
        "  a:\n    target: &t {type: cloudflare, account: '${A}'}\n    overrides: {'*': {metadata: {labels: *t}}}\n"
    )
    (problem,) = load(aliased, "a", {"A": ACCOUNT}).diagnostics
    assert (problem.code, str(problem.source)) == ("ES120", "edgespec.yaml:6:44")

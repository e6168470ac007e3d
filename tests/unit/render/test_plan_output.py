"""What people and machines get of a plan: within the width, within the size, with nothing that acts."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from edgespec.address import Address
from edgespec.diagnostics import SourceRange
from edgespec.plan.cost import Costs, Estimate, ModelCost
from edgespec.plan.model import Action, Change, Plan, Reason
from edgespec.plan.policy import Verdict
from edgespec.records import replace
from edgespec.render import markdown
from edgespec.render import plan as render_plan
from edgespec.render.text import Span, columns, exact_size, fit, line, plain, show
from edgespec.resources import model as model_type
from edgespec.resources import worker as worker_type
from edgespec.resources.base import DesiredState, FieldChange
from edgespec.secret import Secret
from edgespec.state.model import Key, State

ANY = st.text(st.characters(exclude_categories=("Cs",)), max_size=60)
LINES = st.lists(st.lists(st.tuples(ANY, st.sampled_from(["", "bold", "red"])), max_size=4), max_size=4)


@given(LINES, st.integers(20, 300))
def test_no_line_is_wider_and_nothing_is_lost(rows: list[list[tuple[str, str]]], width: int) -> None:
    lines = [tuple(Span(t.replace("\n", " "), s) for t, s in row) for row in rows]
    found = fit(lines, width)
    most = max(80, min(width, 200))
    assert all(columns("".join(s.text for s in row)) <= most for row in found)
    assert re.sub(r"\s", "", plain(found)) == re.sub(r"\s", "", plain(lines))


def test_a_long_value_goes_on_below_itself() -> None:
    row = line(" " * 8, Span(f"{'artifact':<28} ", "dim"), "one two three four five six seven eight nine ten eleven")
    first, second = plain(fit([row], 80)).split("\n")
    assert first.startswith("        artifact ") and second == " " * 37 + "nine ten eleven"
    assert fit([row], 200) == [row] and fit([], 80) == []


# --- units and secrets -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type_", "path", "value", "text"),
    [
        (model_type.TYPE, "chunk", 8 * 2**20, "8 MiB"),
        (worker_type.TYPE, "config.cache.weights.memory", 2**26, "64 MiB"),
        (worker_type.TYPE, "config.cache.weights.kv.ttl", 604800, "7d"),
        (worker_type.TYPE, "config.cache.weights.kv.cache_ttl", 5400, "1h30m"),
        (worker_type.TYPE, "config.limits.body_bytes", 2**20, "1 MiB"),
        (worker_type.TYPE, "config.limits.texts", 32, "32"),
        (worker_type.TYPE, "config.name", 3, "3"),
    ],
)
def test_sizes_and_durations_have_units(type_: Any, path: str, value: int, text: str) -> None:
    assert show(path, value, unit=render_plan.unit_of(type_, path)) == text


def test_sizes_that_differ_look_different() -> None:
    assert exact_size(8 * 2**20 + 1) == "8.0 MiB (8,388,609 bytes)" and exact_size(1023) == "1023 B"
    assert exact_size(2**30) == "1 GiB" and exact_size(3 * 2**10) == "3 KiB"


def test_a_secret_that_changed() -> None:
    found = FieldChange("secrets.a", Secret.sealed("A", "0" * 64), Secret.sealed("A", "1" * 64))
    assert render_plan.sides(found, worker_type.TYPE, opaque=False) == "(secret A), changed"
    other = FieldChange("secrets.a", None, Secret.sealed("A", "1" * 64))
    assert render_plan.sides(other, worker_type.TYPE, opaque=False) == "(none) -> (secret A)"


# --- markdown --------------------------------------------------------------------------------------------------------

EVIL = (
    "@everyone #1 **bold** [x](http://e.vil) ![i](//e.vil/i.png) <img src=x onerror=alert(1)> </code></details> "
    "```\n# heading\n- item\n| a | b |\n``` `code` <!-- --> &lt; www.e.vil http://e.vil a@e.vil :smile: $x$ "
    "\u202e \x1b[31m"
)
SAFE = re.compile(r"^(### |#### |\*\*|- |\||<details>|</details>|<code>|_The details|_\d|```+(text)?$|$)")


def change(number: int, action: Action, text: str, fields: int = 3) -> Change:
    inputs: Any = {"script": text, "config": {"display": {f"{text}{i}": text for i in range(fields)}}}
    changes = tuple(FieldChange(f"config.display.{text}{i}", text, text + "x") for i in range(fields))
    before = None if action is Action.CREATE else inputs
    after = None if action is Action.DELETE else inputs
    return Change(Key(Address("deployment", f"w{number}-{text}")), action, before, after, changes, Reason.NONE, (text,))


def made(*changes: Change) -> Plan:
    return Plan("0" * 64, State("", "shop", "local"), DesiredState(), changes, ())


def outside(text: str) -> list[str]:
    """The lines that are Markdown: those of fenced blocks left out."""
    found: list[str] = []
    fence = ""
    for row in text.split("\n"):
        if fence:
            fence = "" if row == fence else fence
        elif opened := re.fullmatch(r"(`{3,})text", row):
            fence = opened[1]
        else:
            found.append(row)
    assert not fence, "a block was not closed"
    return found


def check_inert(text: str) -> None:
    for row in outside(text):
        assert SAFE.match(row), row
        if row.startswith("_"):  # our own words alone
            continue
        bare = re.sub(r"<code>[^<>&]*(?:&#\d+;[^<>&]*)*</code>", "", row)
        assert not re.search(r"[@#!\[\]`$]|//|www\.|<(?!/?(details|summary)>)|\x1b|\u202e", bare.lstrip("#")), row
        for inner in re.findall(r"<code>(.*?)</code>", row):
            assert not re.search(r"[@*_`\[\]<>|~$!\\:]|www\.", inner, re.IGNORECASE), inner


def test_nothing_that_acts() -> None:
    verdicts = [Verdict("p", True, EVIL, (EVIL, EVIL), EVIL, SourceRange(EVIL, 1, 1))]
    costs = Costs(Estimate(0.0), Estimate(5.0, missing=(EVIL,)), (ModelCost(EVIL, None, Estimate(1.0), 2.0, 10),))
    plan = made(change(1, Action.DELETE, EVIL), change(2, Action.CREATE, EVIL))
    text = markdown.render(plan, EVIL, EVIL, costs=costs, verdicts=verdicts, refused=[EVIL])
    check_inert(text)
    for word in ("e.vil", "heading", "smile"):
        assert word in html.unescape(text), "it is shown all the same"


@settings(max_examples=25)
@given(ANY, ANY, st.integers(0, 40))
def test_nothing_that_acts_whatever_it_is(one: str, other: str, fields: int) -> None:
    verdicts = [Verdict(one, False, other, (one,), other, SourceRange(one, 1, 1))]
    plan = made(change(1, Action.REPLACE, one, fields), change(2, Action.UPDATE, other, fields))
    check_inert(markdown.render(plan, one, other, verdicts=verdicts, refused=[other]))


@settings(max_examples=6, phases=[Phase.explicit, Phase.generate])
@given(
    st.lists(st.tuples(st.sampled_from(list(Action)[1:-1]), st.integers(0, 80)), min_size=1, max_size=12),
    st.sampled_from(["a", "支持", EVIL, "`" * 50]),
    st.integers(1, 30),
)
def test_never_longer_than_a_comment(actions: list[tuple[Action, int]], word: str, times: int) -> None:
    changes = [change(i, action, word, n) for i, (action, n) in enumerate(actions * times)]
    text = markdown.render(made(*changes), "shop", "local")
    assert len(text.encode()) <= markdown.LIMIT < 65_536
    assert text.endswith("\n")
    check_inert(text)
    counted = sum(c.action is not Action.NOOP for c in changes)
    listed = text.count("<summary>") + len(re.findall(r"(?m)^- <code>", text))
    more = re.search(r"(\d+) more changes are not listed", text)
    assert listed + (int(more[1]) if more else 0) == counted


def test_the_least_dangerous_is_cut_first() -> None:
    changes = [change(i, Action.CREATE, "x" * 30, 100) for i in range(60)]
    changes += [change(100 + i, Action.DELETE, "y" * 30, 3) for i in range(3)]
    text = markdown.render(made(*changes), "shop", "local")
    details = [i for i, row in enumerate(text.split("\n")) if row.startswith("<details>")]
    assert "#### Delete" in text and text.index("#### Delete") < text.index("#### Create")
    assert len(details) < 60 and "The details of" in text and "w102-" in text and "w59-" in text
    everything = markdown.render(made(*[change(i, Action.CREATE, "x" * 30, 2) for i in range(900)]), "shop", "local")
    assert re.search(r"\d+ more changes are not listed: \d+ to create", everything)


def test_an_absurd_number_of_policies() -> None:
    verdicts = [Verdict(f"p{i}", True, "&" * 1000, (), "", SourceRange("e", 1, 1)) for i in range(300)]
    text = markdown.render(made(change(1, Action.DELETE, "a")), "shop", "local", verdicts=verdicts)
    assert len(text.encode()) <= markdown.LIMIT and "#### Delete" in text and "_Cut: more is said" in text


def test_empty_plans() -> None:
    assert "no changes" in markdown.render(made(), "shop", "local")
    noop = replace(change(1, Action.UPDATE, "a"), action=Action.NOOP)
    assert "no changes" in markdown.render(made(noop), "shop", "local")

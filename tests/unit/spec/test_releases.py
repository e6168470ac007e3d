"""releases/<environment>.yaml: what is read, what is refused and where, and that an edit leaves the rest as it was."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from edgespec.diagnostics import EdgespecError
from edgespec.spec.document import Source
from edgespec.spec.releases import (
    LoadedReleases,
    ModelReleases,
    Origin,
    Release,
    check_names,
    edit_releases,
    empty,
    load_releases,
)

A, B, C = "a" * 64, "b" * 64, "c" * 64
TEXT = f"""\
# Ours.
apiVersion: edgespec/v1
kind: Releases
environment: production
models:
  # Support answers customers.
  support:
    current: 2   # deployed
    releases:
      # the good one
      - number: 2
        artifact: {B}
        size: 2907104
        engine: edge
        metrics: {{accuracy: 0.91}}
        teacher: {{accuracy: 0.93}}
        revision: 0123abc
        from: {{environment: staging, worker: shop-staging-support, version: 1-2-3}}
      # the first
      - number: 1
        artifact: {A}
        size: 10
        engine: onnxruntime
"""


def load(text: str, environment: str = "production") -> LoadedReleases:
    return load_releases(Source("releases/production.yaml", text), environment).unwrap()


def release(number: int, artifact: str = C) -> Release:
    origin = Origin(environment="staging", worker="shop-staging-x", version="4-5-6")
    return Release(
        number=number, artifact=artifact, size=20, engine="edge", metrics={"accuracy": 0.95}, **{"from": origin}
    )


def changed(model: ModelReleases, **fields: object) -> ModelReleases:
    return model.model_copy(update=fields)


def test_what_is_written_is_read() -> None:
    model = load(TEXT).releases.models["support"]
    assert model.deployed.artifact == B
    assert model.deployed.teacher == {"accuracy": 0.93}
    assert model.deployed.origin == Origin(environment="staging", worker="shop-staging-support", version="1-2-3")
    assert [r.number for r in model.find("1")] == [1]
    assert [r.number for r in model.find("bbbb")] == [2]
    assert model.find("3") == ()
    assert load(empty("production").text).releases.models == {}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("current: 2", "current: 3", "releases/production.yaml:8:14: error ES700: No such release: support has no"),
        ("number: 1", "number: 2", "releases/production.yaml:20:17: error ES700: Releases out of order"),
        (f"artifact: {A}", "artifact: 12", "releases/production.yaml:21:19: error ES112: Wrong value"),
        ("environment: production", "environment: staging", "releases/production.yaml:4:14: error ES700"),
        ("size: 10", "sise: 10", "Did you mean `size`?"),
        ("kind: Releases", "kind: Project", "releases/production.yaml:3:7: error ES137"),
    ],
)
def test_what_is_wrong_is_told_where(old: str, new: str, said: str) -> None:
    with pytest.raises(EdgespecError) as refused:
        load(TEXT.replace(old, new))
    assert said in str(refused.value)


def test_an_entry_of_no_spec_is_a_warning() -> None:
    [found] = check_names(load(TEXT), {"suport", "other"}, {"production"})
    assert str(found).startswith("releases/production.yaml:7:3: warning ES701: Releases of no spec: No spec is named")
    assert "Did you mean `suport`?" in found.detail
    assert not list(check_names(load(TEXT), {"support"}, {"production"}))
    assert not list(check_names(load(TEXT), None, {"production"}))
    [found] = check_names(load(TEXT), {"support"}, {"productive"})
    assert "4:14: warning ES701: Releases of no environment: No environment is named production" in str(found)


def test_a_promotion_adds_lines_and_changes_one() -> None:
    model = load(TEXT).releases.models["support"]
    text = edit_releases(load(TEXT), {"support": changed(model, current=3, releases=(release(3), *model.releases))})
    added = f"""\
      - number: 3
        artifact: {C}
        size: 20
        engine: edge
        metrics: {{accuracy: 0.95}}
        from: {{environment: staging, worker: shop-staging-x, version: 4-5-6}}
"""
    before, good, after = TEXT.partition("      # the good one\n")
    assert text == before.replace("current: 2", "current: 3") + added + good + after


def test_the_oldest_goes_with_its_comment_and_a_pin_comes_and_goes() -> None:
    model = load(TEXT).releases.models["support"]
    text = edit_releases(load(TEXT), {"support": changed(model, releases=model.releases[:1], pinned="no: good")})
    assert text == TEXT[: TEXT.index("      # the first")].replace("deployed\n", "deployed\n    pinned: 'no: good'\n")
    unpinned = edit_releases(load(text), {"support": changed(model, releases=model.releases[:1])})
    assert unpinned == TEXT[: TEXT.index("      # the first")]


def test_models_stand_in_order() -> None:
    one = ModelReleases(current=1, releases=(release(1),))
    text = edit_releases(load(TEXT), {"alpha": one, "zeta": one})
    shown = [line.strip() for line in text.splitlines() if line.startswith("  ") and line[2] != " "]
    assert shown == ["alpha:", "# Support answers customers.", "support:", "zeta:"]
    assert edit_releases(load(text), {"alpha": None, "zeta": None}) == TEXT
    alone = edit_releases(load(TEXT), {"support": None})
    assert load(alone).releases.models == {}
    assert alone.startswith("# Ours.\napiVersion")


def test_a_new_file_is_made_from_an_empty_one() -> None:
    made = load_releases(empty("production"), "production").unwrap()
    text = edit_releases(made, {"support": ModelReleases(current=1, releases=(release(1),))})
    assert text.splitlines()[4:9] == ["models:", "  support:", "    current: 1", "    releases:", "      - number: 1"]
    assert "{}" not in text


def test_flow_style_is_edited_too() -> None:
    text = TEXT[: TEXT.index("models:")]
    text += f"models: {{support: {{current: 1, releases: [{{number: 1, artifact: {A}, size: 1, engine: edge}}]}}}}\n"
    model = load(text).releases.models["support"]
    made = edit_releases(load(text), {"support": changed(model, current=2, releases=(release(2), *model.releases))})
    assert [r.number for r in load(made).releases.models["support"].releases] == [2, 1]


names = st.sampled_from(["alpha", "beta", "gamma-2"])


@st.composite
def models(draw: st.DrawFn) -> ModelReleases:
    numbers = sorted(draw(st.sets(st.integers(1, 30), min_size=1, max_size=5)), reverse=True)
    listed = tuple(release(n, draw(st.sampled_from([A, B, C]))) for n in numbers)
    pinned = draw(st.none() | st.sampled_from(["bad", "a: b # c", "'quoted'", "ünï\tcode", "yes", "1.0", "- x", "{"]))
    return ModelReleases(current=draw(st.sampled_from(numbers)), pinned=pinned, releases=listed)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.dictionaries(names, st.none() | models(), min_size=1), min_size=1, max_size=4))
def test_any_history_of_edits_is_what_was_meant(history: list[dict[str, ModelReleases | None]]) -> None:
    text, wanted = TEXT, {"support": load(TEXT).releases.models["support"]}
    for edit in history:
        loaded = load(text)
        text = edit_releases(loaded, {n: m for n, m in edit.items() if m is not None or n in wanted})
        for name, model in edit.items():
            wanted.pop(name, None)
            if model is not None:
                wanted[name] = model
        assert dict(load(text).releases.models) == wanted
        assert list(yaml.safe_load(text)["models"]) == sorted(wanted)
    assert "# Ours." in text and "# the good one" in text and "# Support answers customers." in text

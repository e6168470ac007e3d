from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec import assets
from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.state.codec import check_format, decode, encode
from edgespec.state.model import Key, ResourceRecord, State, Status
from edgespec.values import UNKNOWN

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
names = st.text(st.characters(categories=["Ll", "Nd"], include_characters="-/"), min_size=1, max_size=10)
addresses = st.builds(Address, st.sampled_from(["model", "r2_bucket", "worker"]), names)
records = st.builds(
    ResourceRecord,
    address=addresses,
    inputs=st.dictionaries(texts, values, max_size=3),
    outputs=st.dictionaries(texts, values, max_size=3),
    depends_on=st.frozensets(addresses, max_size=3),
    owners=st.lists(names, max_size=2).map(tuple),
    status=st.sampled_from(Status),
)


@st.composite
def states(draw: st.DrawFn) -> State:
    found = draw(st.lists(st.tuples(records, st.sampled_from(["", "d1", "d2"])), max_size=4))
    kept = {Key(r.address, deposed): r for r, deposed in found}
    return State(draw(texts.filter(bool)), draw(texts), draw(texts), draw(st.integers(0)), kept)


@given(states())
def test_a_state_comes_back_as_it_was(state: State) -> None:
    text = encode(state)
    document = json.loads(text)
    check_format(document, "here")
    assert assets.schema_error("state", document) is None
    assert decode(document) == state
    assert encode(decode(document)) == text


def test_the_order_of_records_does_not_matter() -> None:
    one, two = (ResourceRecord(Address("worker", n), {}) for n in "ab")
    states = [State("l", "p", "e", 1, {Key(r.address): r for r in rs}) for rs in ([one, two], [two, one])]
    assert encode(states[0]) == encode(states[1])


def test_a_record_is_a_line() -> None:
    state = State("l", "p", "e").put(ResourceRecord(Address("worker", "a"), {"x": 1}))
    record = (
        '{"address": "worker/a", "deposed": "", "status": "ready", "owners": [], "depends_on": [], "inputs": {"x": 1}'
    )
    assert encode(state).splitlines()[1:] == [f'{record}, "outputs": {{}}}}', "]}"]


@pytest.mark.parametrize("value", [UNKNOWN, float("nan"), float("inf")])
def test_what_is_no_json_is_never_written(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(State("l", "p", "e").put(ResourceRecord(Address("worker", "a"), {"x": value})))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"format": "edgespec.state/v2"}, "a newer edgespec wrote"),
        ({"format": "edgespec.plan/v1"}, "is not a state file"),
        ({}, "is not a state file"), ([], "is not a state file"), (None, "is not a state file"),
    ],
)  # fmt: skip
def test_another_format_is_refused(document: Any, said: str) -> None:
    with pytest.raises(EdgespecError, match=said) as caught:
        check_format(document, "here.json")
    assert [d.code for d in caught.value.diagnostics] == ["ES301"]


def test_depose_finds_a_free_name() -> None:
    a = Address("worker", "a")
    state = State("l", "p", "e")
    for number in range(3):
        state = state.put(ResourceRecord(a, {"n": number})).depose(a)
    assert [str(k) for k in state.deposed()] == [f"worker/a (deposed d{n})" for n in (1, 2, 3)]
    assert state.get(a) is None

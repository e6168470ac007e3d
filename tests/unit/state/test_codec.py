from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from edgespec import assets
from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.records import replace
from edgespec.state.codec import FORMAT, StateDocument, check_format, decode, encode, parse, upgrade
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
    lambda **fields: ResourceRecord(**fields),  # a signature of its own: a Struct's would evaluate recursive types
    address=addresses,
    inputs=st.dictionaries(texts, values, max_size=3),
    outputs=st.dictionaries(texts, values, max_size=3),
    depends_on=st.frozensets(addresses, max_size=3),
    owners=st.lists(names, max_size=2).map(tuple),
    status=st.sampled_from(Status),
    protected=st.booleans(),
    nonce=texts,
)


@st.composite
def states(draw: st.DrawFn) -> State:
    found = draw(st.lists(st.tuples(records, st.sampled_from(["", "d1", "d2"])), max_size=4))
    kept = {Key(r.address, deposed): r for r, deposed in found}
    return State(draw(texts.filter(bool)), draw(texts), draw(texts), draw(st.integers(0)), kept, draw(texts))


@given(states())
def test_a_state_comes_back_as_it_was(state: State) -> None:
    text = encode(state)
    document = json.loads(text)
    check_format(document, "here")
    assert assets.schema_error("state", document) is None
    assert decode(document, "here") == parse(text, "here") == state
    assert encode(decode(document, "here")) == text


def test_the_order_of_records_does_not_matter() -> None:
    one, two = (ResourceRecord(Address("worker", n), {}) for n in "ab")
    states = [State("l", "p", "e", 1, {Key(r.address): r for r in rs}) for rs in ([one, two], [two, one])]
    assert encode(states[0]) == encode(states[1])


def test_a_record_is_a_line() -> None:
    state = State("l", "p", "e").put(ResourceRecord(Address("worker", "a"), {"x": 1}))
    record = (
        '{"address": "worker/a", "deposed": "", "status": "ready", "protected": false, "nonce": "", '
        '"owners": [], "depends_on": [], "inputs": {"x": 1}'
    )
    assert encode(state).splitlines()[1:] == [f'{record}, "outputs": {{}}}}', "]}"]


@pytest.mark.parametrize("value", [UNKNOWN, float("nan"), float("inf")])
def test_what_is_no_json_is_never_written(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(State("l", "p", "e").put(ResourceRecord(Address("worker", "a"), {"x": value})))


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"format": "edgespec.state/v4"}, "a newer edgespec wrote"),
        ({"format": "edgespec.state/v10"}, "a newer edgespec wrote"),
        ({"format": "edgespec.state/v0"}, "is not a state file"),
        ({"format": "edgespec.state/v3 "}, "is not a state file"),
        ({"format": 2}, "is not a state file"),
        ({"format": "edgespec.plan/v1"}, "is not a state file"),
        ({}, "is not a state file"), ([], "is not a state file"), (None, "is not a state file"),
    ],
)  # fmt: skip
def test_another_format_is_refused(document: Any, said: str) -> None:
    with pytest.raises(EdgespecError, match=said) as caught:
        check_format(document, "here.json")
    assert [d.code for d in caught.value.diagnostics] == ["ES301"]


KEPT = Path(__file__).parent / "state-v1.json"


def test_a_file_of_version_1_is_upgraded() -> None:
    """The file was written by edgespec when v1 was its format, and is kept as it was."""
    raw = KEPT.read_bytes()
    assert json.loads(raw)["format"] == "edgespec.state/v1"
    state = parse(raw, "kept")
    assert (state.lineage, state.serial, state.project, state.environment) == ("3c2a6f0e-kept", 13, "shop", "local")
    assert {str(k): r.status.value for k, r in state.records.items()} == {
        "deployment/alpha": "ready",
        "kv_namespace/shop-local-weights": "ready",
        "model/alpha": "ready",
        "r2_bucket/shop-local-auto": "ready",
        "weights/alpha/default": "creating",
        "weights/alpha/default (deposed d1)": "ready",
        "worker/alpha": "updating",
    }
    assert {(r.protected, r.nonce) for r in state.records.values()} == {(False, "")}
    again = json.loads(encode(state))
    assert again["format"] == FORMAT and again["account"] == "" and assets.schema_error("state", again) is None
    new = ("protected", "nonce")
    old = [{k: v for k, v in r.items() if k not in new} for r in again["resources"]]
    assert old == json.loads(raw)["resources"]  # nothing of the old file is lost


def test_a_file_of_version_2_is_upgraded() -> None:
    """Likewise of v2, which did not say whose account holds what it names."""
    raw = KEPT.with_name("state-v2.json").read_bytes()
    old = json.loads(raw)
    assert old["format"] == "edgespec.state/v2"
    state = parse(raw, "kept")
    assert (state.serial, state.account) == (21, "")
    assert {r.address.type for r in state.records.values() if r.protected} == {"r2_bucket"}
    assert {r.nonce for r in state.records.values()} == {"", "5f" * 8}
    again = json.loads(encode(replace(state, account="a" * 32)))
    assert again["format"] == FORMAT and assets.schema_error("state", again) is None
    assert again == {**old, "format": FORMAT, "account": "a" * 32}


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"resources": [{"address": "a/b"}]}, "at $.resources[0].status: field required"),
        ({"resources": [7]}, "at $.resources[0]: "),
        ({"resources": {}}, "at $.resources: "),
        ({"serial": "13"}, "at $.serial: "),
        ({"lineage": ""}, "at $.lineage: "),
        ({"more": 1}, "at $.more: "),
    ],
)
def test_what_an_old_file_lacks_an_upgrade_does_not_invent(edit: dict[str, Any], said: str) -> None:
    with pytest.raises(EdgespecError) as caught:
        parse(json.dumps({**json.loads(KEPT.read_bytes()), **edit}), "kept")
    assert said in str(caught.value)


def test_a_record_that_is_there_twice() -> None:
    document = json.loads(KEPT.read_bytes())
    document["resources"].append(document["resources"][0])
    with pytest.raises(EdgespecError, match="deployment/alpha twice"):
        parse(json.dumps(document), "kept")


def test_a_fault_never_shows_a_value() -> None:
    document = json.loads(KEPT.read_bytes())
    document["resources"][0]["inputs"] = "hunter2"
    with pytest.raises(EdgespecError) as caught:
        parse(json.dumps(document), "kept")
    assert "hunter2" not in str(caught.value)


junk = st.sampled_from(
    [None, True, 7, -1, 1.5, "", "x", "a/b", "A/b", "a/", "a/b\n", [], ["a/b"], [7], {}, {"x": 1}, "creating", "gone"]
)


@given(states(), st.data())
def test_both_readers_of_a_document_accept_the_same(state: State, data: st.DataObject) -> None:
    """Pydantic's schema is the published one and gives the words; msgspec reads what is whole."""
    document = json.loads(encode(state))
    place = data.draw(st.sampled_from([document, *document["resources"]]))
    key = data.draw(st.sampled_from([*sorted(place), "more"]))
    if data.draw(st.booleans()):
        place[key] = data.draw(junk)
    else:
        place.pop(key, None)
    try:
        upgraded = upgrade(json.loads(json.dumps(document)), "here")
        StateDocument.model_validate(upgraded)
    except (EdgespecError, ValidationError):
        with pytest.raises(EdgespecError, match="State cannot be read"):
            parse(json.dumps(document), "here")
        return
    keys = [(r["address"], r.get("deposed", "")) for r in upgraded["resources"]]
    if len(set(keys)) == len(keys):
        assert parse(json.dumps(document), "here") == decode(upgraded, "here")


@pytest.mark.parametrize("text", ["a/b\n", "A/b", "a/", "/b", "a"])
def test_an_address_is_all_of_its_text(text: str) -> None:
    document = json.loads(encode(State("l", "p", "e").put(ResourceRecord(Address("worker", "a"), {}))))
    for field in ("address", "depends_on"):
        broken = {**document["resources"][0], field: text if field == "address" else [text]}
        with pytest.raises(EdgespecError, match=rf"at \$\.resources\[0\]\.{field}"):
            parse(json.dumps({**document, "resources": [broken]}), "here")

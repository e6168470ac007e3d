from __future__ import annotations

import pytest

from edgespec.address import Address
from edgespec.records import replace
from edgespec.state.edit import move, remove, replacement
from edgespec.state.model import Key, ResourceRecord, State

A, B, C, M = (Address(*t.split("/")) for t in ("worker/a", "worker/b", "worker/c", "model/m"))
STATE = State(
    "l",
    "shop",
    "local",
    7,
    {
        Key(A): ResourceRecord(A, {"n": 1}, depends_on=frozenset({M}), owners=("one",), nonce="x", protected=True),
        Key(A, "d1"): ResourceRecord(A, {"n": 0}, owners=("one",)),
        Key(B): ResourceRecord(B, {"n": 2}, depends_on=frozenset({A, M}), owners=("one", "two")),
        Key(M): ResourceRecord(M, {}),
    },
)


def test_a_record_moves_with_its_deposed_ones_and_what_depends_on_it_follows() -> None:
    moved = move(STATE, {A: C}).unwrap()
    assert set(moved.records) == {Key(C), Key(C, "d1"), Key(B), Key(M)}
    assert moved.records[Key(C)] == replace(STATE.records[Key(A)], address=C)
    assert moved.records[Key(B)].depends_on == {C, M}
    assert (moved.serial, moved.lineage) == (7, "l")
    assert move(moved, {C: A}).unwrap() == STATE


def test_addresses_are_exchanged_and_specs_renamed() -> None:
    moved = move(STATE, {A: B, B: A}, {"one": "uno"}).unwrap()
    assert moved.records[Key(B)].inputs == {"n": 1} and moved.records[Key(A)].inputs == {"n": 2}
    assert moved.records[Key(A)].owners == ("uno", "two") and moved.records[Key(A)].depends_on == {B, M}


@pytest.mark.parametrize(
    ("moves", "said"),
    [
        ({C: A}, "ES307: Unknown address: worker/c is not in state. `edgespec state list` shows what is."),
        ({A: M}, ("ES312: The record cannot be moved: worker/a is of another type than model/m: a record moves only "
                 "within its type.")),
        ({A: B}, ("ES312: The record cannot be moved: worker/b is taken. Move or remove that one first: "
                 "`edgespec state rm worker/b`.")),
        ({A: C, B: C}, ("ES312: The record cannot be moved: worker/c is taken. Move or remove that one first: "
                       "`edgespec state rm worker/c`.")),
    ],
)  # fmt: skip
def test_moves_that_cannot_be(moves: dict[Address, Address], said: str) -> None:
    found = move(STATE, moves)
    assert found.value is None
    assert [str(d) for d in found.diagnostics] == [f"error {said}"]


def test_every_move_that_cannot_be_is_named() -> None:
    found = move(STATE, {C: A, A: M, B: C})
    assert found.value is None and [d.code for d in found.diagnostics] == ["ES307", "ES312"]


def test_removing_takes_deposed_ones_too() -> None:
    assert set(remove(STATE, A).unwrap().records) == {Key(B), Key(M)}
    assert [d.code for d in remove(STATE, C).diagnostics] == ["ES307"]


def test_what_may_be_pushed() -> None:
    edited = replace(STATE, records={})
    assert replacement(None, STATE, force=False).value == STATE
    assert replacement(STATE, edited, force=False).value == edited  # what was pulled, edited
    assert replacement(STATE, replace(edited, serial=9), force=False).value == replace(edited, serial=9)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"lineage": "other"},
         "It is of another history (lineage other; the one in use has l): what was deployed since would be forgotten."),
        ({"serial": 6},
         "It is older: serial 6; the one in use is at 7, and what was deployed since would be forgotten."),
    ],
)  # fmt: skip
def test_what_is_pushed_only_by_force(change: dict[str, object], said: str) -> None:
    given = replace(STATE, **change)  # type: ignore[arg-type]
    refused = replacement(STATE, given, force=False)
    assert refused.value is None and [str(d) for d in refused.diagnostics] == [
        f"error ES313: The state is not replaced: {said} `--force` replaces it all the same."
    ]
    assert replacement(STATE, given, force=True).value == replace(given, serial=7)  # serials never go back


@pytest.mark.parametrize(
    ("change", "whose"), [({"project": "other"}, "other in local"), ({"environment": "other"}, "shop in other")]
)
def test_anothers_state_is_never_pushed(change: dict[str, str], whose: str) -> None:
    refused = replacement(STATE, replace(STATE, **change), force=True)  # type: ignore[arg-type]
    assert [str(d) for d in refused.diagnostics] == [
        (
            f"error ES305: The state is another's: It belongs to {whose}, not to shop in local. A state is never "
            "given to another environment."
        )
    ]

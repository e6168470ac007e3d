from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec import assets
from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.records import replace
from edgespec.state.codec import encode
from edgespec.state.journal import Drop, Entry, GapError, Mutation, Put, encode_entry, read_entries, replay
from edgespec.state.model import Key, ResourceRecord, State
from edgespec.state.working import WorkingState
from tests.unit.state.test_codec import records, states

A, B = Address("worker", "a"), Address("worker", "b")
EMPTY = State("l", "p", "e", 4)

addresses = st.builds(Address, st.sampled_from(["worker", "model"]), st.sampled_from("abc"))
deposed = st.sampled_from(["", "d1"])
puts = st.builds(lambda r, a, d: Put(replace(r, address=a), d), records, addresses, deposed)
mutations: st.SearchStrategy[Mutation] = puts | st.builds(Drop, st.builds(Key, addresses, deposed))
batches = st.lists(st.lists(mutations, max_size=3).map(tuple), max_size=5)


def lines(state: State, changes: list[tuple[Mutation, ...]]) -> tuple[list[Entry], bytes]:
    entries = [Entry(state.lineage, state.serial + n, c, "me") for n, c in enumerate(changes, 1)]
    return entries, b"".join(encode_entry(e) for e in entries)


@given(states(), batches)
def test_a_journal_says_what_was_written_whatever_the_records(
    state: State, changes: list[tuple[Mutation, ...]]
) -> None:
    entries, data = lines(state, changes)
    assert read_entries(data, "j") == (tuple(entries), len(data))
    working = WorkingState(state)
    for entry in entries:
        working.advance(entry.serial, entry.changes)
    assert replay(state, entries) == working.freeze()
    assert working.freeze().serial == state.serial + len(changes)
    for key in working.records:
        assert list(working.others(key)) == [
            r for k, r in sorted(working.records.items()) if k != key and k.address.type == key.address.type
        ]
    halfway = replay(state, entries[: len(entries) // 2])
    assert replay(halfway, entries) == working.freeze()  # a snapshot that has some of them already


@given(batches.filter(bool), st.data())
def test_cut_at_any_byte_the_whole_lines_are_there(changes: list[tuple[Mutation, ...]], data: st.DataObject) -> None:
    entries, text = lines(EMPTY, changes)
    cut = data.draw(st.integers(0, len(text)))
    junk = data.draw(st.sampled_from([b"", b"\0" * 9, b"\n", b"9 ", b"\xff\xfe"]))
    whole = text[:cut].count(b"\n")
    found, good = read_entries(text[:cut] + junk, "j")
    if junk == b"\n" and text[cut : cut + 1] == b"\n":
        whole += 1  # the junk is the end that was missing
    assert found == tuple(entries[:whole])
    assert text[:good] == b"".join(encode_entry(e) for e in entries[:whole])


def three() -> bytes:
    return lines(EMPTY, [(Put(ResourceRecord(A, {"n": n})),) for n in range(3)])[1]


@pytest.mark.parametrize("line", [1, 2])
def test_a_changed_line_before_the_last_is_damage(line: int) -> None:
    rows = three().splitlines(keepends=True)
    rows[line - 1] = rows[line - 1].replace(b'"n": ', b'"n": 1')
    with pytest.raises(EdgespecError, match=f"j: line {line} is damaged"):
        read_entries(b"".join(rows), "j")


def test_a_changed_last_line_was_never_relied_upon() -> None:
    rows = three().splitlines(keepends=True)
    rows[2] = rows[2].replace(b'"n": 2', b'"n": 3')
    found, good = read_entries(b"".join(rows), "j")
    assert len(found) == 2 and good == len(rows[0] + rows[1])


def test_a_newer_journal_is_refused() -> None:
    import hashlib

    body = b'{"format": "edgespec.state-journal/v2", "changes": {}}'
    line = b"%d %s %s\n" % (len(body), hashlib.sha256(body).hexdigest()[:16].encode(), body)
    with pytest.raises(EdgespecError, match=r"edgespec\.state-journal/v2, which this edgespec does not read"):
        read_entries(line, "j")


def test_entries_that_do_not_follow() -> None:
    for wrong, said in ((Entry("l", 6, ()), "6 of l"), (Entry("other", 5, ()), "5 of other")):
        with pytest.raises(GapError, match=f"after serial 4 of l comes {said}"):
            replay(EMPTY, [wrong])
    assert replay(EMPTY, [Entry("other", 3, ()), Entry("l", 4, ())]) == EMPTY


def test_a_working_state_finds_a_free_name() -> None:
    working = WorkingState(EMPTY)
    for number in (1, 2, 3):
        aside = working.free_key(A)
        assert str(aside) == f"worker/a (deposed d{number})"
        working.advance(working.serial + 1, [Put(ResourceRecord(A, {"n": number}), aside.deposed)])
    working.advance(9, [Drop(Key(A, "d2")), Drop(Key(B))])
    assert working.free_key(A) == Key(A, "d2") and working.free_key(B) == Key(B, "d1")
    assert working.get(A) is None and working.serial == 9


def test_lines_are_as_the_schema_says() -> None:
    import json

    for row in three().splitlines():
        assert assets.schema_error("state-journal", json.loads(row.split(b" ", 2)[2])) is None
    assert encode(EMPTY)

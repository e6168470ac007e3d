"""What is damaged, and what is said of it; secrets and other languages in what is written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from edgespec.address import Address
from edgespec.diagnostics import EdgespecError
from edgespec.secret import MARK, Secret
from edgespec.state.codec import FORMAT, encode, parse
from edgespec.state.journal import FORMAT as JOURNAL
from edgespec.state.journal import Drop, Entry, Put, encode_entry, read_entries
from edgespec.state.model import Key, ResourceRecord, State
from edgespec.values import sha256_hex

A = Address("worker", "a")
STATE = State("l", "p", "e", 4, {Key(A): ResourceRecord(A, {"n": 1})})
ADVICE = "Nothing was changed. Back-ups are kept beside it; `edgespec state push` puts one in its place."


def said(data: bytes | str) -> str:
    with pytest.raises(EdgespecError) as caught:
        parse(data, "here.json")
    return str(caught.value)


def unreadable(detail: str) -> str:
    return f"error ES301: State cannot be read: {detail}"


def edited(**fields: Any) -> str:
    return json.dumps({**json.loads(encode(STATE)), **fields})


# --- states ----------------------------------------------------------------------------------------------------------


def test_what_is_no_state_is_refused_with_its_place() -> None:
    assert said('{"format":\n oops}') == unreadable(f"here.json:2:2: Expecting value. {ADVICE}")
    assert said(b'{"\xff": 1}').startswith(unreadable("here.json: 'utf-8' codec can't decode byte 0xff"))
    assert said("[]") == unreadable("here.json is not a state file of edgespec. Nothing was changed.")
    assert said(edited(format="edgespec.state/v99")) == unreadable(
        "here.json is in format edgespec.state/v99, which a newer edgespec wrote. Upgrade edgespec; nothing was "
        "changed."
    )
    assert said(edited(serial=-1)) == unreadable(
        f"here.json: at $.serial: input should be greater than or equal to 0. {ADVICE}"
    )
    record = json.loads(encode(STATE))["resources"][0]
    assert said(edited(resources=[record, record])) == unreadable(f"here.json has worker/a twice. {ADVICE}")


@pytest.mark.parametrize(
    ("field", "value"),
    [("address", "worker"), ("address", "Worker/a"), ("depends_on", ["model"]), ("status", "made"), ("owners", "alpha"),
     ("protected", 1), ("nonce", None), ("inputs", []), ("outputs", None), ("more", 1)],
)  # fmt: skip
def test_a_record_with_a_fault(field: str, value: Any) -> None:
    record = {**json.loads(encode(STATE))["resources"][0], field: value}
    assert said(edited(resources=[record])).startswith(unreadable(f"here.json: at $.resources[0].{field}"))


def test_a_record_that_does_not_say_whether_it_was_pushed_aside_was_not() -> None:
    record = json.loads(encode(STATE))["resources"][0]
    del record["deposed"]
    assert parse(edited(resources=[record]), "here.json") == STATE


def test_names_stay_as_people_write_them() -> None:
    """A state is read in reviews."""
    state = State("l", "p", "e").put(ResourceRecord(A, {"display": "積極的"}))
    assert "積極的" in encode(state) and parse(encode(state).encode(), "here") == state


# --- secrets ---------------------------------------------------------------------------------------------------------


def secret_record(value: object) -> ResourceRecord:
    return ResourceRecord(A, {"token": value, "plain": [1]})


def test_a_secret_is_written_by_name_and_digest_and_comes_back_without_its_text() -> None:
    secret = Secret("TOKEN", "hunter-two-hunter")
    state = State("l", "p", "e").put(secret_record(secret))
    line = encode_entry(Entry("l", 5, (Put(secret_record(secret)),)))
    for text in (encode(state), line.decode()):
        assert "hunter" not in text and secret.digest in text
    (entry,), _ = read_entries(line, "j")
    (put,) = entry.changes
    assert isinstance(put, Put)
    for record in (parse(encode(state), "here").records[Key(A)], put.record):
        found = record.inputs["token"]
        assert isinstance(found, Secret) and found == secret and record.inputs["plain"] == [1]
        with pytest.raises(ValueError, match="by its digest alone"):
            found.reveal()


def test_what_only_looks_like_a_secret_stays_what_it_is() -> None:
    state = State("l", "p", "e").put(secret_record({MARK: "TOKEN", "digest": "short"}))
    assert parse(encode(state), "here") == state


# --- journals --------------------------------------------------------------------------------------------------------


def line_of(body: Any, digest: str | None = None, length: int | None = None) -> bytes:
    text = json.dumps(body).encode()
    checked = sha256_hex(text)[:16] if digest is None else digest
    return b"%d %s %s\n" % (len(text) if length is None else length, checked.encode(), text)


def entry(serial: int) -> bytes:
    return encode_entry(Entry("l", serial, (Put(ResourceRecord(A, {"n": serial})),)))


RECORD = json.loads(encode(STATE))["resources"][0]
ENTRY = {"format": JOURNAL, "lineage": "l", "serial": 6, "lease": "", "changes": []}


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (line_of([1]), "is in format None, which this edgespec does not read. Upgrade edgespec."),
        (line_of({**ENTRY, "format": FORMAT}), f"is in format {FORMAT}, which this edgespec does not read. Upgrade"),
        (line_of({**ENTRY, "serial": 0}), ": at $.serial: input should be greater than or equal to 1."),
        (line_of({**ENTRY, "changes": [{"drop": {"address": "x"}}]}), ": at $.changes[0].drop"),
        (line_of({**ENTRY, "changes": [{}]}), ": at $.changes[0]: value error, exactly one of put and drop"),
        (
            line_of({**ENTRY, "changes": [{"drop": {"address": "worker/a", "deposed": ""}, "put": RECORD}]}),
            ": at $.changes[0]: value error, exactly one of put and drop",
        ),
    ],
)
def test_a_whole_line_that_says_what_it_may_not(second: bytes, why: str) -> None:
    with pytest.raises(EdgespecError) as caught:
        read_entries(entry(5) + second, "j")
    assert str(caught.value).startswith(unreadable(f"j: line 2{why if why[0] == ':' else ' ' + why}"))


@pytest.mark.parametrize(
    "torn",
    [
        entry(6)[:-1],  # all but its end
        entry(6)[:-1] + b"9",
        entry(6)[:40],
        b"9",
        line_of(ENTRY, digest="0" * 16),
        line_of(ENTRY, length=7),
        line_of(ENTRY).replace(b" ", b"", 1),
        line_of(ENTRY, digest="\xe9" * 16),
        b"\n",
    ],
)
def test_a_last_line_that_is_not_whole_was_never_written(torn: bytes) -> None:
    found, good = read_entries(entry(5) + torn, "j")
    assert [e.serial for e in found] == [5] and good == len(entry(5))
    assert read_entries(torn, "j") == ((), 0)


@pytest.mark.parametrize("after", [b"9", b"\n", entry(6)])
@pytest.mark.parametrize(
    ("before", "number"), [(b"\n", 1), (b"x\n", 1), (entry(5) + b"\n", 2), (entry(5) + entry(6)[1:], 2)]
)
def test_a_line_that_is_not_whole_with_anything_after_it_is_damage(before: bytes, number: int, after: bytes) -> None:
    with pytest.raises(EdgespecError) as caught:
        read_entries(before + after, "j")
    assert str(caught.value) == unreadable(f"j: line {number} is damaged, and lines follow it. {ADVICE}")


def test_a_line_without_changes_only_takes_the_serial() -> None:
    (fence,), _ = read_entries(encode_entry(Entry("l", 7, (), "mine")), "j")
    assert fence == Entry("l", 7, (), "mine")
    (drop,), _ = read_entries(encode_entry(Entry("l", 8, (Drop(Key(A, "d1")),))), "j")
    assert drop.changes == (Drop(Key(A, "d1")),)

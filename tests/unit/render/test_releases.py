"""Promotions, rollbacks and histories, word for word."""

from __future__ import annotations

from typing import Any

from edgespec import assets
from edgespec.render.releases import Row, history, promotion, rolled, unpinned
from edgespec.render.releases_document import HistoryDocument, PastDocument, PromotedDocument, PromotionDocument
from edgespec.render.text import plain
from edgespec.spec.releases import Release


def release(number: int, digit: str, **fields: Any) -> Release:
    said = {"number": number, "artifact": digit * 64, "size": 2048, "engine": "edge", **fields}
    return Release.model_validate(said)


ONE = release(1, "a", metrics={"accuracy": 0.9}, engine="onnxruntime")
TWO = release(
    2,
    "b",
    metrics={"accuracy": 0.875},
    teacher={"accuracy": 0.93},
    size=4096,
    revision="0123456789abcdef",
    dirty=True,
    **{"from": {"environment": "staging", "worker": "shop-staging-support", "version": "1-2"}},
)


def test_a_promotion() -> None:
    lines = promotion("staging", "production", "releases/production.yaml", [("support", ONE, TWO)], ["other"])
    assert plain(lines) == (
        "Promoted from staging to production, in releases/production.yaml:\n"
        "\n"
        "  support  release 1 -> 2\n"
        "    artifact     aaaaaaaaaaaa -> bbbbbbbbbbbb  (2.0 KiB -> 4.0 KiB)\n"
        "    engine       onnxruntime -> edge\n"
        "    accuracy     0.9000 -> 0.8750  (teacher 0.9300)\n"
        "    served by    shop-staging-support in staging, version 1-2\n"
        "    commit       0123456789ab, with changes that are in no commit\n"
        "\n"
        "production has it already: other."
    )
    assert any(s.style == "red" for row in lines for s in row if "0.8750" in s.text)  # it got worse
    first = plain(promotion("staging", "production", "f", [("support", None, ONE)], []))
    assert "support  release 1\n    artifact     aaaaaaaaaaaa  (2.0 KiB)\n    accuracy     0.9000" in first
    assert plain(promotion("a", "b", "f", [], [])) == "There is nothing to promote from a to b."


def test_a_rollback() -> None:
    said = plain(rolled("support", "production", TWO, ONE, kept=True))
    assert said.startswith(
        "support in production goes back, and stays there until it is unpinned:\n\n  support  release 2 -> 1"
    )
    assert said.endswith("none of them is uploaded.")
    assert plain(rolled("support", "production", TWO, ONE, kept=False)).endswith("an apply looks for them.")
    assert plain(unpinned("support", "production", ONE)) == (
        "support in production stays at release 1, and may be promoted again."
    )
    assert "the next apply builds it" in plain(unpinned("support", "local", None))


def test_a_history() -> None:
    rows = [
        Row(2, "b" * 64, 4096, {"accuracy": 0.9}, ("kept",), "0123456789ab"),
        Row(None, "a" * 64, 2048, {}, ("current", "live", "kept"), ""),
    ]
    assert plain(history("support", "production", "bad \x1b[31m", rows)).splitlines() == [
        "support in production",
        "  rolled back, and pinned: bad \ufffd[31m",
        "",
        "     2  bbbbbbbbbbbb     4.0 KiB  kept                  accuracy 0.9000       0123456789ab",
        "     -  aaaaaaaaaaaa     2.0 KiB  current, live, kept                         ",
    ]
    assert plain(history("support", "production", None, [])) == "support has no history in production."


def test_as_json() -> None:
    promoted = [PromotedDocument(name="support", before=None, after=TWO)]
    said = {"from": "staging", "to": "production", "path": "releases/production.yaml", "unchanged": ()}
    found = PromotionDocument.model_validate({**said, "promoted": promoted}).model_dump(mode="json", by_alias=True)
    assert assets.schema_error("promotion", found) is None
    assert found["promoted"][0]["after"]["from"]["worker"] == "shop-staging-support"
    past = PastDocument(artifact="a" * 64, size=1, metrics={}, current=True, live=True, kept=True, release=TWO)
    whole = HistoryDocument(name="support", environment="local", pinned=None, history=(past,))
    assert assets.schema_error("history", whole.model_dump(mode="json", by_alias=True)) is None

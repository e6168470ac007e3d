"""Diagnostics as SARIF 2.1.0: what code scanning shows on the line of the YAML file that each is about."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

from edgespec.diagnostics import Diagnostic, Diagnostics, SourceRange
from edgespec.secret import scrub
from edgespec.values import digest

SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_ROOT: Final = "%SRCROOT%"
"""What code scanning takes for the repository's root."""


def log(found: Diagnostics, *, version: str, prefix: str, otherwise: str) -> dict[str, Any]:
    """The whole log as plain JSON values. `prefix` leads from the repository's root to the project's folder ("" or
    "shop/"); a diagnostic about no place is shown at the first line of `otherwise`, a file of the project: code
    scanning takes nothing without a place. Columns count characters, as SARIF's `unicodeCodePoints`."""
    codes = sorted({d.code for d in found})
    return {
        "$schema": SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "edgespec",
                        "semanticVersion": version,
                        "rules": [_rule(code, found) for code in codes],
                    }
                },
                "automationDetails": {"id": f"edgespec/validate/{quote(prefix)}"},
                "columnKind": "unicodeCodePoints",
                "results": list(_results(found, codes, prefix, otherwise)),
            }
        ],
    }


def _rule(code: str, found: Diagnostics) -> dict[str, Any]:
    """A code's summary is fixed but for what few of them name; the first one speaks for all."""
    first = next(d for d in found if d.code == code)
    return {
        "id": code,
        "shortDescription": {"text": scrub(first.summary)},
        "defaultConfiguration": {"level": first.severity.value},
    }


def _results(found: Iterable[Diagnostic], codes: list[str], prefix: str, otherwise: str) -> Iterable[dict[str, Any]]:
    for d in found:
        message = f"{d.summary}: {d.detail}" if d.detail else d.summary
        place = d.source or SourceRange(otherwise, 1, 1)
        yield {
            "ruleId": d.code,
            "ruleIndex": codes.index(d.code),
            "level": d.severity.value,
            "message": {"text": scrub(message)},
            "locations": [{"physicalLocation": _location(place, prefix, whole_line=d.source is None)}],
            "partialFingerprints": {"edgespec/v1": digest([d.code, place.path, place.text.strip(), d.detail])},
        }


def _location(place: SourceRange, prefix: str, *, whole_line: bool) -> dict[str, Any]:
    region: dict[str, Any] = {"startLine": place.line}
    if not whole_line:
        region |= {"startColumn": place.column, "endColumn": place.column + place.length}
    return {"artifactLocation": {"uri": quote(prefix + place.path), "uriBaseId": _ROOT}, "region": region}

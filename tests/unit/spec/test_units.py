from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.spec.units import format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0), ("90", 90), ("0090", 90), ("90s", 90), ("1h30m", 5400), ("60m", 3600), ("1h", 3600), ("7d", 604800),
     ("1w", 604800), ("1d1d", 172800), (3600, 3600)],
)  # fmt: skip
def test_durations(text: object, seconds: int) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("1024", 1024), ("1KiB", 1024), ("1024KiB", 2**20), ("1MiB", 2**20), ("1 MiB", 2**20), ("1.5KiB", 1536),
     ("1.005KB", 1005), ("0.1MB", 100_000), ("20MB", 20_000_000), ("7B", 7), ("1GiB", 2**30), ("1GB", 10**9), (5, 5)],
)  # fmt: skip
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "h", "1 h", "-1", "1.5h", "1H", "1h 30m", "١h", "٣", "1e3", None, True, [], "9" * 19]
)
def test_not_a_duration(text: object) -> None:
    with pytest.raises(ValueError, match="expected a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    "text", ["", "MiB", "1mib", "1kb", "-1KiB", "1,5MiB", "١KiB", "1e3", "1 0KiB", None, False, {}]
)
def test_not_a_size(text: object) -> None:
    with pytest.raises(ValueError, match="expected a size such as"):
        parse_size(text)


def test_half_a_byte() -> None:
    with pytest.raises(ValueError, match="not a whole number of bytes"):
        parse_size("0.3KiB")


@given(st.integers(0, 10**6), st.sampled_from([("s", 1), ("m", 60), ("h", 3600), ("d", 86400), ("w", 604800)]))
def test_a_duration_is_what_its_seconds_are(number: int, unit: tuple[str, int]) -> None:
    assert parse_duration(f"{number}{unit[0]}") == parse_duration(str(number * unit[1])) == number * unit[1]


@given(st.integers(0, 10**9), st.integers(0, 999), st.sampled_from([("KB", 10**3), ("MB", 10**6), ("GB", 10**9)]))
def test_a_decimal_size_is_exact(whole: int, thousandths: int, unit: tuple[str, int]) -> None:
    assert parse_size(f"{whole}.{thousandths:03}{unit[0]}") == whole * unit[1] + thousandths * unit[1] // 1000


@given(st.integers(0, 10**6), st.sampled_from(["KiB", "MiB", "GiB"]))
def test_units_nest(number: int, unit: str) -> None:
    smaller = {"KiB": "B", "MiB": "KiB", "GiB": "MiB"}[unit]
    assert parse_size(f"{number}{unit}") == parse_size(f"{number * 1024}{smaller}")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (150 * 1024, "150 KiB"),
        (8 * 2**20, "8.0 MiB"),
        (2**31, "2.0 GiB"),
    ],
)
def test_format_size(size: int, text: str) -> None:
    assert format_size(size) == text

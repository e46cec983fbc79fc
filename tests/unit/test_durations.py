"""Durations read and print as Go does; the cases come from upstream's own duration type (v1.14.1)."""

from __future__ import annotations

import gzip
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.settings import durations

VECTORS = Path(__file__).parents[1] / "conformance" / "vectors" / "durations.jsonl.gz"
CASES = [json.loads(line) for line in gzip.decompress(VECTORS.read_bytes()).decode().splitlines()]
int64 = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)


def test_every_case_of_the_vector_file_is_here() -> None:
    assert len(CASES) == 36


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["in"]))
def test_a_duration_reads_as_upstream_reads_it(case: dict[str, Any]) -> None:
    text = case["in"]
    if case.get("never"):
        assert durations.parse_or_never(text) is None
    elif "error" in case:
        with pytest.raises(ValueError) as caught:
            durations.parse_or_never(text)
        assert str(caught.value) == case["error"]
    else:
        assert durations.parse_nanoseconds(text) == case["nanoseconds"]
        assert durations.render_nanoseconds(case["nanoseconds"]) == case["text"]
        assert durations.parse_or_never(text) == timedelta(microseconds=case["nanoseconds"] // 1_000)


@given(int64)
def test_what_is_printed_reads_back_to_the_nanosecond(count: int) -> None:
    # A fraction passes through floating point in Go, so only whole seconds and short fractions are exact.
    text = durations.render_nanoseconds(count)
    assert abs(durations.parse_nanoseconds(text) - count) <= 1


@given(st.timedeltas(min_value=timedelta(days=-100_000), max_value=timedelta(days=100_000)))
def test_a_timedelta_survives_printing_to_within_a_microsecond(duration: timedelta) -> None:
    assert abs(durations.parse_duration(durations.render_duration(duration)) - duration) <= timedelta(
        microseconds=1
    )


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(seconds=90), "1m30s"),
        (timedelta(hours=720), "720h0m0s"),
        (timedelta(milliseconds=1500), "1.5s"),
        (timedelta(microseconds=-1), "-1µs"),
        (timedelta(microseconds=-1_500_001), "-1.500001s"),
        (timedelta(0), "0s"),
    ],
)
def test_a_duration_prints_in_the_short_form(duration: timedelta, text: str) -> None:
    assert durations.render_duration(duration) == text


@pytest.mark.parametrize("text", ["-9223372036854775808ns", "-2562047h47m16.854775808s"])
def test_the_most_negative_duration_is_allowed(text: str) -> None:
    assert durations.parse_nanoseconds(text) == -(1 << 63)


@pytest.mark.parametrize(
    "text", ["1" * 5_000 + "s", "2562047h2562047h", ".s", "-", "1.2.3s", '"', "\x00", "1s\ud800"]
)
def test_nonsense_is_refused_and_named(text: str) -> None:
    with pytest.raises(ValueError, match=r"^time: "):
        durations.parse_duration(text)


@pytest.mark.parametrize(
    "text", ["0.99999999999999999999999999h", "1." + "0" * 5_000 + "s", "0" * 5_000 + "7s"]
)
def test_long_numbers_are_read_as_far_as_they_matter(text: str) -> None:
    assert timedelta(0) < durations.parse_duration(text) <= timedelta(hours=1)

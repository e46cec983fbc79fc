"""Schedules as robfig/cron reads them, which is what Kubernetes and Karpenter use."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.api.cron import parse_schedule


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("* * * * *", "2026-01-01T00:00:00", "2026-01-01T00:01:00"),
        ("* * * * *", "2026-01-01T00:00:59.9", "2026-01-01T00:01:00"),
        ("*/15 * * * *", "2026-01-01T00:15:00", "2026-01-01T00:30:00"),
        ("5/15 * * * *", "2026-01-01T00:51:00", "2026-01-01T01:05:00"),
        ("5-20/5 8 * * *", "2026-01-01T08:15:00", "2026-01-01T08:20:00"),
        ("0 9 * * 1-5", "2026-01-02T09:00:00", "2026-01-05T09:00:00"),
        ("0 9 * * MON-fri", "2026-01-02T09:00:00", "2026-01-05T09:00:00"),
        ("0 0 1 jan ?", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00"),
        ("0 0 31 * *", "2026-01-31T00:00:00", "2026-03-31T00:00:00"),
        ("0 9 * * 1,,2", "2026-01-05T09:00:00", "2026-01-06T09:00:00"),
        ("+5 0 * * *", "2026-01-01T00:00:00", "2026-01-01T00:05:00"),
        ("@yearly", "2026-01-01T00:00:00", "2027-01-01T00:00:00"),
        ("@annually", "2026-06-01T00:00:00", "2027-01-01T00:00:00"),
        ("@monthly", "2026-01-01T00:00:00", "2026-02-01T00:00:00"),
        ("@weekly", "2026-01-01T00:00:00", "2026-01-04T00:00:00"),
        ("@daily", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
        ("@midnight", "2026-01-01T13:00:00", "2026-01-02T00:00:00"),
        ("@hourly", "2026-01-01T00:00:00", "2026-01-01T01:00:00"),
        ("@every 90m", "2026-01-01T00:00:10.5", "2026-01-01T01:30:10"),
        ("@every 1.9s", "2026-01-01T00:00:00", "2026-01-01T00:00:01"),
        ("@every 1ms", "2026-01-01T00:00:00", "2026-01-01T00:00:01"),
        ("  0 0 * * *  ", "2026-01-01T00:00:00", "2026-01-02T00:00:00"),
    ],
)
def test_the_next_time_is_the_first_strictly_after(schedule: str, after: str, expected: str) -> None:
    assert parse_schedule(schedule).find_next(at(after)) == at(expected)


def test_two_restricted_day_fields_mean_either_and_one_means_both() -> None:
    friday_or_13th = parse_schedule("0 0 13 * 5")
    assert friday_or_13th.find_next(at("2026-01-09T00:00:00")) == at("2026-01-13T00:00:00")
    assert friday_or_13th.find_next(at("2026-01-13T00:00:00")) == at("2026-01-16T00:00:00")
    assert parse_schedule("0 0 13 * *").find_next(at("2026-01-09T00:00:00")) == at("2026-01-13T00:00:00")


def test_a_star_with_a_step_counts_as_a_restriction() -> None:
    odd_days_or_mondays = parse_schedule("0 0 */2 * 1")
    assert odd_days_or_mondays.find_next(at("2026-01-11T00:00:00")) == at("2026-01-12T00:00:00")
    assert parse_schedule("0 0 */1 * 1").find_next(at("2026-01-12T00:00:00")) == at("2026-01-19T00:00:00")


def test_a_schedule_that_can_never_fire_has_no_next_time() -> None:
    assert parse_schedule("0 0 30 2 *").find_next(at("2026-01-01T00:00:00")) is None
    assert parse_schedule("0 0 * * ,").find_next(at("2026-01-01T00:00:00")) is None


def test_beyond_five_years_nothing_is_looked_for() -> None:
    assert parse_schedule("0 0 29 2 *").find_next(at("2096-03-01T00:00:00")) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 7",
        "5-1 * * * *",
        "*/0 * * * *",
        "*/x * * * *",
        "1-2-3 * * * *",
        "1/2/3 * * * *",
        "a * * * *",
        "-1 * * * *",
        "@never",
        "@Daily",
        "@every",
        "@every soon",
        "TZ=Europe/Berlin 0 9 * * *",
        "۵ * * * *",
    ],
)
def test_what_is_no_schedule_is_refused_with_a_reason(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_schedule(text)


fields = st.sampled_from(["*", "*/7", "3", "1-5", "2,4", "0-6/3", "1"])


@given(
    st.tuples(
        fields, fields, st.sampled_from(["*", "1", "1-9", "*/5"]), st.sampled_from(["*", "1-6"]), fields
    ),
    st.datetimes(datetime(2024, 1, 1), datetime(2030, 1, 1)),  # noqa: DTZ001 - given a zone below
)
def test_no_earlier_minute_would_have_matched(parts: tuple[str, ...], when: datetime) -> None:
    schedule, after = parse_schedule(" ".join(parts)), when.replace(tzinfo=UTC)
    found = schedule.find_next(after)
    assert found is not None
    assert found > after
    assert schedule.find_next(found - timedelta(seconds=1)) == found
    middle = after + (found - after) / 2
    assert schedule.find_next(middle) == found

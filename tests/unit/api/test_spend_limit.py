"""SpendLimits: their numbers, windows, months and what is wrong with them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from dovetail.api import spend_limit
from dovetail.api.crds import apply_defaults
from dovetail.api.spend_limit import SpendLimitSpec, SpendWindow, find_month, find_window
from dovetail.api.validation import check_document

NEW_YORK = ZoneInfo("America/New_York")


def window(schedule: str, duration: str, hourly: str = "8.00") -> SpendWindow:
    return SpendWindow(schedule=schedule, duration=duration, hourly=hourly)


def complaints(**spec: object) -> list[str]:
    document = {
        "apiVersion": "dovetail.sh/v1alpha1",
        "kind": "SpendLimit",
        "metadata": {"name": "development"},
        "spec": spec,
    }
    return [f"{each.path}: {each.message}" for each in check_document(document)]


def test_a_limit_with_every_field_is_accepted() -> None:
    assert (
        complaints(
            nodePools={"matchLabels": {"team": "dev"}},
            includeUnmanaged=False,
            hourly="40.00",
            monthly="12000",
            nodes=120,
            resources={"cpu": "2000", "nvidia.com/gpu": "16"},
            basis="Effective",
            mode="Enforce",
            overlap="10%",
            windows=[
                {"schedule": "0 19 * * 1-5", "duration": "12h", "hourly": "8.00"},
                {"schedule": "0 0 * * 6", "duration": "48h", "hourly": "0", "mode": "Warn"},
            ],
            timeZone="America/New_York",
            priorityAtLeast=100000,
        )
        == []
    )


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"hourly": "fourty"}, 'spec.hourly: "fourty" is not an amount; write dollars such as "40.00"'),
        ({"hourly": "-1"}, 'spec.hourly: "-1" is not an amount; write dollars such as "40.00"'),
        ({"nodes": -1}, "spec.nodes: -1 is less than 0"),
        ({"mode": "Warn"}, "spec: needs at least one of hourly, monthly, nodes and resources"),
        (
            {"nodes": 1, "windows": [{"schedule": "0 1 * * *", "duration": "1h"}]},
            "spec.windows[0]: needs at least one of hourly, monthly, nodes and resources",
        ),
        (
            {"nodes": 1, "nodePools": {"names": ["a"], "matchLabels": {"b": "c"}}},
            "spec.nodePools: names excludes matchLabels and matchExpressions",
        ),
        (
            {"nodes": 1, "timeZone": "Europe/Berln"},
            'spec.timeZone: there is no time zone "Europe/Berln"; did you mean Europe/Berlin?',
        ),
        (
            {"nodes": 1, "windows": [{"schedule": "0 25 * * *", "duration": "1h", "nodes": 1}]},
            "spec.windows[0].schedule: hour '25' is outside 0-23 or runs backwards; "
            "write five cron fields, such as 0 19 * * 1-5",
        ),
        (
            {"nodes": 1, "windows": [{"schedule": "0 0 31 2 *", "duration": "1h", "nodes": 1}]},
            "spec.windows[0].schedule: names no day that exists; "
            "write five cron fields, such as 0 19 * * 1-5",
        ),
        (
            {"nodes": 1, "windows": [{"schedule": "0 1 * * *", "duration": "0h", "nodes": 1}]},
            "spec.windows[0].duration: is 0h; write more than 0s and no more than a year, such as 12h",
        ),
        ({"nodes": 1, "overlap": "ten"}, 'spec.overlap: "ten" is not a percentage such as "10%"'),
        (
            {"nodes": 1, "windows": [{"schedule": "0 1 * * *", "duration": "1h", "nodes": 1}] * 21},
            "spec.windows: has 21, may have at most 20",
        ),
        ({"nodes": 1, "priortyAtLeast": 1}, "did you mean priorityAtLeast?"),
    ],
)
def test_a_mistake_is_told_with_its_path_and_what_to_write(spec: dict[str, object], says: str) -> None:
    found = complaints(**spec)
    assert len(found) == 1
    assert says in found[0]


def test_defaults_are_those_of_the_record() -> None:
    document = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "SpendLimit", "spec": {"nodes": 1}}
    stored = apply_defaults("SpendLimit", document)["spec"]
    plain = SpendLimitSpec()
    assert (stored["mode"], stored["basis"], stored["overlap"], stored["timeZone"]) == (
        plain.mode,
        plain.basis,
        plain.overlap,
        plain.time_zone,
    )


def test_the_last_window_that_is_active_counts() -> None:
    night, sunday = window("0 19 * * *", "12h"), window("0 0 * * 0", "24h", "0")
    spec = SpendLimitSpec(hourly="40", windows=(night, sunday))
    friday = datetime(2026, 11, 20, tzinfo=UTC)
    assert find_window(spec, friday.replace(hour=18, minute=59)) is None
    assert find_window(spec, friday.replace(hour=19)) == night
    assert find_window(spec, friday + timedelta(days=1, hours=6, minutes=59)) == night
    assert find_window(spec, friday + timedelta(days=1, hours=7)) is None
    assert find_window(spec, friday + timedelta(days=2, hours=3)) == sunday


@pytest.mark.spec("SL-7")
def test_a_window_keeps_to_the_clocks_of_its_zone_when_these_are_changed() -> None:
    spec = SpendLimitSpec(hourly="40", windows=(window("0 19 * * *", "1h"),), time_zone="America/New_York")
    for day in (
        datetime(2026, 3, 7, 19, tzinfo=NEW_YORK),
        datetime(2026, 3, 8, 19, tzinfo=NEW_YORK),
        datetime(2026, 11, 1, 19, tzinfo=NEW_YORK),
    ):
        opens = day.astimezone(UTC)
        assert find_window(spec, opens - timedelta(seconds=1)) is None
        assert find_window(spec, opens) is not None
        assert find_window(spec, opens + timedelta(minutes=59, seconds=59)) is not None
        assert find_window(spec, opens + timedelta(hours=1)) is None


@pytest.mark.spec("SL-7")
def test_a_window_of_an_hour_that_comes_twice_opens_once_and_one_that_never_comes_opens_all_the_same() -> (
    None
):
    spec = SpendLimitSpec(hourly="40", windows=(window("30 1 * * *", "20m"),), time_zone="America/New_York")
    first = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)  # 1:30 in summer time
    assert find_window(spec, first) is not None
    assert find_window(spec, first + timedelta(minutes=20)) is None
    assert find_window(spec, first + timedelta(hours=1)) is None  # 1:30 again, in winter time
    lost = SpendLimitSpec(hourly="40", windows=(window("30 2 * * *", "20m"),), time_zone="America/New_York")
    day = datetime(2026, 3, 8, tzinfo=UTC)
    active = [at for at in range(24 * 60) if find_window(lost, day + timedelta(minutes=at)) is not None]
    assert len(active) == 20


@pytest.mark.spec("SL-7")
def test_months_of_a_zone_follow_each_other_without_a_gap_and_none_has_an_hour_twice() -> None:
    moment, ends = datetime(2026, 1, 15, tzinfo=UTC), None
    for number in range(1, 13):
        name, begins, until = find_month(moment, NEW_YORK)
        assert name == f"2026-{number:02d}"
        assert ends is None or begins == ends
        assert begins.astimezone(NEW_YORK).isoformat().startswith(f"2026-{number:02d}-01T00:00")
        moment, ends = until + timedelta(days=10), until
    _, begins, until = find_month(datetime(2026, 11, 15, tzinfo=UTC), NEW_YORK)
    assert until - begins == timedelta(days=30, hours=1)


def test_dollars_are_digits_with_a_point() -> None:
    assert spend_limit.parse_dollars("12.50") == 12.5
    for text in ("", ".5", "1e3", "1,000", "-1", "٣", "1.2.3"):
        with pytest.raises(spend_limit.BadSpendLimit):
            spend_limit.parse_dollars(text)

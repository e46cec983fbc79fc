"""The dollars of a month, added up by the times that nodes were there."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement
from random import Random
from zoneinfo import ZoneInfo

import pytest
from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_month import (
    MonthTally,
    PaidTime,
    advance_month,
    compute_spend_floor,
    project_month,
)
from support.builders import nodepool, pod
from support.worlds import World, instance_type

NEW_YORK = ZoneInfo("America/New_York")
HOUR = timedelta(hours=1)


def begin(moment: datetime, of: str) -> MonthTally:
    return MonthTally(of=of, until=moment)


@pytest.mark.spec("SL-6")
def test_looks_at_any_times_give_the_dollars_of_the_time_that_nodes_were_there() -> None:
    start = datetime(2026, 11, 1, tzinfo=UTC)
    for seed in range(20):
        chance = Random(seed)
        nodes = []
        for _ in range(30):
            since = start + HOUR * chance.uniform(0, 600)
            ends = since + HOUR * chance.uniform(0.1, 200)
            nodes.append(PaidTime(price=chance.uniform(0.05, 3), since=since, until=ends))
        tally, now = begin(start, "2026-11"), start
        while now < start + HOUR * 700:
            now += HOUR * chance.uniform(0.01, 9)
            tally = advance_month(tally, nodes, now, UTC)
        expected = sum(each.price * ((min(each.until or now, now) - each.since) / HOUR) for each in nodes)
        assert tally.spent == pytest.approx(expected, rel=1e-9)


@pytest.mark.spec("SL-7")
@pytest.mark.parametrize(("month", "hours"), [(3, 743), (11, 721), (6, 720)])
def test_a_month_of_new_york_has_its_hours_once(month: int, hours: int) -> None:
    begins = datetime(2026, month, 1, tzinfo=NEW_YORK).astimezone(UTC)
    always = (PaidTime(price=1.0, since=datetime(2025, 1, 1, tzinfo=UTC)),)
    tally, now = begin(begins, f"2026-{month:02d}"), begins
    while tally.of == f"2026-{month:02d}":
        now += timedelta(minutes=7)
        tally = advance_month(tally, always, now, NEW_YORK)
    assert tally.last_of == f"2026-{month:02d}"
    assert tally.last_spent == pytest.approx(hours, abs=1e-6)
    assert tally.spent == pytest.approx((now - begins) / HOUR - hours, abs=1e-6)


@pytest.mark.spec("SL-7")
def test_a_look_after_months_closes_each_at_its_end() -> None:
    always = (PaidTime(price=2.0, since=datetime(2025, 1, 1, tzinfo=UTC)),)
    tally = begin(datetime(2026, 1, 31, 23, tzinfo=UTC), "2026-01")
    tally = advance_month(tally, always, datetime(2026, 3, 1, 1, tzinfo=UTC), UTC)
    assert (tally.of, tally.spent) == ("2026-03", 2.0)
    assert (tally.last_of, tally.last_spent) == ("2026-02", 2.0 * 28 * 24)
    assert advance_month(tally, always, tally.until, UTC) is tally


def test_the_projection_goes_by_the_last_day() -> None:
    start = datetime(2026, 6, 1, tzinfo=UTC)
    steady = (PaidTime(price=1.0, since=start),)
    tally = begin(start, "2026-06")
    for hour in range(1, 24 * 10):
        tally = advance_month(tally, steady, start + HOUR * hour, UTC)
    assert project_month(tally, UTC) == pytest.approx(720, rel=1e-6)
    more = (*steady, PaidTime(price=1.0, since=start + HOUR * 239))
    for hour in range(240, 240 + 24 * 4):
        tally = advance_month(tally, more, start + HOUR * hour, UTC)
    assert tally.rate == pytest.approx(2.0, abs=0.05)


CHEAP, DEAR = (
    instance_type("cheap", 4, "8Gi", 110, price=1.0),
    instance_type("dear", 16, "32Gi", 110, price=3.0),
)


def find_cheapest_fleet(pods: list[Pod], types: tuple[InstanceType, ...]) -> float:
    """By trying everything: every fleet, and every way to put these pods onto it."""
    sizes = [int(each.spec.containers[0].resources.requests["cpu"].milli) for each in pods]
    rooms = sorted((each.offerings[0].price, each.allocatable()["cpu"].milli) for each in types)
    best = float("inf")
    for nodes in range(1, len(sizes) + 1):
        for fleet in combinations_with_replacement(rooms, nodes):
            if sum(price for price, _ in fleet) < best and fits(sizes, [room for _, room in fleet]):
                best = sum(price for price, _ in fleet)
    return best


def fits(sizes: list[int], rooms: list[int]) -> bool:
    if not sizes:
        return True
    first, *rest = sorted(sizes, reverse=True)
    return any(
        fits(rest, [*rooms[:at], room - first, *rooms[at + 1 :]])
        for at, room in enumerate(rooms)
        if room >= first and room not in rooms[:at]
    )


@pytest.mark.spec("SL-8")
def test_no_fleet_is_cheaper_than_the_floor_and_pods_that_go_lower_it() -> None:
    proven = 0
    for seed in range(25):
        chance = Random(seed)
        pods = [
            pod(f"p-{number}", cpu=chance.choice(("1", "2", "3", "5")), memory="100Mi")
            for number in range(chance.randrange(1, 6))
        ]
        world = World(nodepool(), types=(CHEAP, DEAR))
        snapshot = world.snapshot(*pods)
        cap = SpendCap(limit="all", every=True, hourly=1.0)
        held = frozenset(each.full_name for each in pods)
        floor = compute_spend_floor(snapshot, cap, held)
        best = find_cheapest_fleet(pods, (CHEAP, DEAR))
        assert floor <= best + 1e-9
        proven += floor > 1.0 + 1e-9
        fewer = compute_spend_floor(replace(snapshot, pods=()), cap, held)
        assert fewer == 0.0
    assert proven > 5, "a floor that never exceeds a limit proves nothing"

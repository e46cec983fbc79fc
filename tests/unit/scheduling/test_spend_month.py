"""The dollars of a month, added up by the times that nodes were there."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from itertools import combinations_with_replacement
from math import inf
from random import Random
from zoneinfo import ZoneInfo

import pytest

from dovetail.api.pod import Pod
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_month import (
    MonthTally,
    PaidTime,
    add_unseen,
    advance_month,
    compute_spend_floor,
    project_month,
)
from support.builders import nodepool, pod
from support.worlds import Z1, Z2, World, instance_type, offering, running

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


@pytest.mark.spec("SL-6")
def test_time_in_which_nobody_looked_is_added_up_within_its_month_alone() -> None:
    at = datetime(2026, 6, 30, 23, 50, tzinfo=UTC)
    tally = begin(at, "2026-06")
    later = add_unseen(advance_month(tally, (), at + timedelta(minutes=4), UTC), at, UTC)
    assert later.unseen == timedelta(minutes=4)
    again = add_unseen(advance_month(later, (), at + timedelta(minutes=6), UTC), later.until, UTC)
    assert again.unseen == timedelta(minutes=6)
    july = add_unseen(advance_month(again, (), at + timedelta(minutes=15), UTC), again.until, UTC)
    assert (july.of, july.unseen) == ("2026-07", timedelta(minutes=5))


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


# As many small worlds in every run; more with the variable.
WORLDS = int(os.environ.get("DOVETAIL_SPEND_WORLDS", "40"))


class SearchedWorld:
    """A small world, and beside it the cheapest fleet by trying every one and every way to fill it.

    Some pods run on nodes that were bought for them, others are pending; nodes that nobody ordered cost
    nothing. Two NodePools have types of their own, and the limit is about one of them or both.
    """

    def __init__(self, seed: int) -> None:
        chance = Random(seed)
        self.types = {name: tuple(self._draw_type(chance, name, n) for n in range(2)) for name in ("a", "b")}
        pools = [nodepool(name, labels={"of": name}) for name in ("a", "b")]
        self.world = World(*pools, types=self.types)
        self.covered = chance.choice((("a",), ("a", "b")))
        pods = [self._draw_pod(chance, number) for number in range(chance.randrange(1, 6))]
        running = [each for each in pods if chance.random() < 0.4]
        self.world.provision(*running)
        self.free = [(3000, 3 << 30)] if chance.random() < 0.25 else []
        if self.free:
            self.world.nodes.append(running_node("alien", cpu="3", memory="3Gi"))
        self.waiting = [each for each in pods if each not in running]
        self.pods = [each for each in pods if self._is_covered(each)]

    def _draw_type(self, chance: Random, pool: str, number: int) -> InstanceType:
        kinds = [("spot", round(chance.uniform(0.5, 2.0) * (number + 1), 3))]
        kinds.append(("on-demand", round(chance.uniform(0.5, 4.0) * (number + 1), 3)))
        deals = [offering(Z1, kind, price, chance.random() < 0.9) for kind, price in kinds]
        deals.append(offering(Z2, "spot", 5.0 * (number + 1)))
        size = (4, 10)[number]
        return instance_type(
            f"{pool}-{number}", size, f"{chance.choice((1, 2)) * size}Gi", 110, offerings=deals
        )

    def _draw_pod(self, chance: Random, number: int) -> Pod:
        wanted = chance.choice(({"of": "a"}, {"of": "b"}, {} if len(self.covered) == 2 else {"of": "a"}))
        cpu, memory = chance.choice(("1", "2", "3")), chance.choice(("1Gi", "2Gi", "3Gi"))
        return pod(f"p-{number}", cpu=cpu, memory=memory, node_selector=wanted)

    def _is_covered(self, each: Pod) -> bool:
        """Whether only NodePools that the limit is about can serve the pod."""
        return each.spec.node_selector.get("of", "a") in self.covered

    def find_cheapest_fleet(self) -> float:
        rooms = [
            (min(deal.price for deal in each.offerings if deal.available), name, *_read_room(each))
            for name in self.covered
            for each in self.types[name]
        ]
        wants = [
            (each.spec.node_selector.get("of"), *_read_size(each))
            for each in sorted(self.pods, key=_read_size, reverse=True)
        ]
        best = inf
        for nodes in range(len(wants) + 1):
            for fleet in combinations_with_replacement(sorted(rooms), nodes):
                price = sum(each[0] for each in fleet)
                bins = [each[1:] for each in fleet] + [("", *each) for each in self.free]
                if price < best and _fits(wants, bins):
                    best = price
        return best

    def compute_floor(self) -> float:
        cap = SpendCap(limit="some", pools=self.covered, hourly=1.0)
        held = frozenset(each.full_name for each in self.waiting if each in self.pods)
        return compute_spend_floor(self.world.snapshot(*self.waiting), cap, held)


def running_node(name: str, **allocatable: str) -> StateNode:
    return running(name, allocatable={**allocatable, "pods": "110"})


def _read_size(each: Pod) -> tuple[int, int]:
    requests = each.spec.containers[0].resources.requests
    return int(requests["cpu"].milli), int(requests["memory"].value)


def _read_room(each: InstanceType) -> tuple[int, int]:
    room = each.allocatable()
    return int(room["cpu"].milli), int(room["memory"].value)


def _fits(wants: list[tuple[str | None, int, int]], bins: list[tuple[str, int, int]]) -> bool:
    if not wants:
        return True
    (wanted, cpu, memory), *rest = wants
    for at, (pool, cpus, gigabytes) in enumerate(bins):
        if (wanted and wanted != pool) or cpus < cpu or gigabytes < memory or bins[at] in bins[:at]:
            continue
        if _fits(rest, [*bins[:at], (pool, cpus - cpu, gigabytes - memory), *bins[at + 1 :]]):
            return True
    return False


@pytest.mark.spec("SL-8")
def test_no_fleet_is_cheaper_than_the_floor() -> None:
    """Whatever limit lies below the floor, no fleet keeps it: every one that would be cheaper was tried."""
    tight = ran = 0
    for seed in range(WORLDS):
        drawn = SearchedWorld(seed)
        floor, best = drawn.compute_floor(), drawn.find_cheapest_fleet()
        assert floor <= best + 1e-9, f"seed {seed}"
        tight += floor > best * 0.5 > 0
        ran += any(state.claim is not None for state in drawn.world.nodes)
    assert tight > WORLDS / 5, "a floor far below the cheapest fleet proves nothing"
    assert ran > WORLDS / 5


@pytest.mark.spec("SL-8")
def test_pods_that_go_lower_the_floor() -> None:
    drawn = next(each for each in map(SearchedWorld, range(99)) if len(each.waiting) > 1 and not each.free)
    before = drawn.compute_floor()
    drawn.waiting, drawn.world.nodes = [], []
    assert before > 0.0 == drawn.compute_floor()

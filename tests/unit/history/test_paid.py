"""What was paid is the hours of nodes times their prices, to the cent."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.labels import CAPACITY_RESERVATION_ID, CAPACITY_TYPE, ZONE
from dovetail.disruption.situation import Situation
from dovetail.history.paid import PaidMeter, integrate_paid
from dovetail.history.recording.reader import RecordedLook, RecordingGap
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, condition, node
from support.disruption import LARGE, MEDIUM, SMALL, machine, scene, state
from support.worlds import RESERVATION, Z1, instance_type

MINUTE = timedelta(minutes=1)


def looked(minutes: float, *states: StateNode, **about: Any) -> RecordedLook:
    return RecordedLook(1, 1, NOW + minutes * MINUTE, Situation(snapshot=scene(*states, **about).snapshot))


def made(name: str, minutes: float, **about: Any) -> StateNode:
    return state(name, claim={"created": NOW + minutes * MINUTE}, **about)


def test_a_node_is_paid_for_from_its_launch_until_it_is_gone() -> None:
    looks = [looked(0), looked(10, made("a", 3)), looked(40, made("a", 3)), looked(50)]
    bill = integrate_paid(looks)
    assert bill.dollars == pytest.approx(8.0 * 47 / 60)
    assert bill.node_hours == pytest.approx(47 / 60)
    assert bill.by_pool == {"default": pytest.approx(8.0 * 47 / 60)}
    assert (bill.since, bill.until) == (NOW, NOW + 50 * MINUTE)


def test_a_node_that_was_there_before_is_paid_for_from_the_first_look() -> None:
    bill = integrate_paid([looked(0, made("a", -600)), looked(30, made("a", -600))])
    assert bill.dollars == pytest.approx(4.0)


def test_a_machine_that_was_told_to_terminate_is_not_paid_for_any_more() -> None:
    said = condition("InstanceTerminating", since=NOW + 20 * MINUTE)
    looks = [looked(0, made("a", 0)), looked(30, made("a", 0, conditions=[said])), looked(60)]
    assert integrate_paid(looks).node_hours == pytest.approx(20 / 60)


def test_orders_that_were_not_launched_and_machines_of_nobody_cost_nothing() -> None:
    waiting = state("b", claim={"true": ()})
    alien = StateNode(node=node("own", nodepool=""))
    bill = integrate_paid([looked(0, waiting, alien), looked(60, waiting, alien)])
    assert (bill.dollars, bill.node_hours) == (0.0, 0.0)


def test_a_price_that_changes_counts_from_the_look_that_tells_it() -> None:
    dearer = (replace(SMALL, offerings=machine("small", 2, 3.0).offerings), MEDIUM, LARGE)
    looks = [
        looked(0, made("a", 0, of=SMALL)),
        looked(60, made("a", 0, of=SMALL), types=dearer),
        looked(120, made("a", 0, of=SMALL), types=dearer),
    ]
    assert integrate_paid(looks).dollars == pytest.approx(1.0 + 3.0)


def test_a_type_that_is_sold_no_more_keeps_its_price() -> None:
    rest = (SMALL, LARGE)
    looks = [looked(0, made("a", 0, of=MEDIUM)), looked(30, made("a", 0, of=MEDIUM), types=rest)]
    bill = integrate_paid([*looks, looked(60, made("a", 0, of=MEDIUM), types=rest)])
    assert bill.dollars == pytest.approx(2.0)
    assert bill.unpriced_hours == 0.0


@pytest.mark.spec("BL-1")
@pytest.mark.parametrize("label", [CAPACITY_RESERVATION_ID, RESERVATION])
def test_two_reservations_of_one_type_cost_what_each_costs(label: str) -> None:
    deals = [
        Offering(
            requirements=Requirements.from_labels({ZONE: Z1, CAPACITY_TYPE: "reserved", label: name}),
            price=price,
            reservation_id=name,
        )
        for name, price in (("cr-1", 1.0), ("cr-2", 3.0))
    ]
    sold = instance_type("sold", 4, "16Gi", 110, offerings=deals)
    nodes = [made(n, 0, of=sold, kind="reserved", labels={label: n}) for n in ("cr-1", "cr-2")]
    bill = integrate_paid([looked(0, *nodes, types=(sold,)), looked(60, *nodes, types=(sold,))])
    assert bill.dollars == pytest.approx(4.0)


def test_hours_without_a_price_are_told() -> None:
    bill = integrate_paid([looked(0, made("a", 0), types=(SMALL,)), looked(30, made("a", 0), types=(SMALL,))])
    assert (bill.dollars, bill.unpriced_hours) == (0.0, 0.5)


def guess(kind: InstanceType) -> InstanceType:
    """The type with prices that stand for others."""
    return replace(kind, offerings=tuple(replace(each, price_estimated=True) for each in kind.offerings))


def test_dollars_at_estimated_prices_are_told() -> None:
    """Half an hour of an estimate, and half an hour after somebody asked what it really costs."""
    nodes = (made("a", 0, of=SMALL), made("b", 0, of=LARGE))
    guessed = (guess(SMALL), MEDIUM, LARGE)
    looks = [looked(0, *nodes, types=guessed), looked(30, *nodes), looked(60, *nodes)]
    bill = integrate_paid(looks)
    assert [bill.dollars, bill.estimated] == pytest.approx([9.0, 0.5])


def test_two_times_together_are_the_whole() -> None:
    """Cut at the forty-second minute, while a node runs that goes later."""
    states = {0: ("a",), 10: ("a", "b"), 42: ("a", "b"), 70: ("a",), 90: ("a",)}
    looks = [
        looked(at, *(made(name, at if at < 42 else 10 * (name == "b")) for name in names))
        for at, names in states.items()
    ]
    parts = integrate_paid(looks[:3]), integrate_paid(looks[2:])
    whole, both = integrate_paid(looks), parts[0].add(parts[1])
    assert both.dollars == pytest.approx(whole.dollars)
    assert (both.since, both.until) == (whole.since, whole.until)
    assert both.watched_seconds == pytest.approx(whole.watched_seconds) == 90 * 60
    assert [hour.began for hour in both.hours] == [hour.began for hour in whole.hours]
    assert [hour.dollars for hour in both.hours] == pytest.approx([hour.dollars for hour in whole.hours])
    assert both.by_pool == pytest.approx(whole.by_pool)


def test_a_gap_is_not_counted_and_told() -> None:
    looks = [looked(0, made("a", 0)), looked(200, made("a", 0)), looked(230, made("a", 0))]
    gaps = [RecordingGap(NOW + 60 * MINUTE, NOW + 200 * MINUTE, "writing began anew")]
    bill = integrate_paid(looks, gaps, NOW + 260 * MINUTE)
    assert bill.node_hours == pytest.approx(2.0)
    assert bill.gap_seconds == 140 * 60
    assert bill.watched_seconds == pytest.approx(2 * 3600)


def test_hours_and_days_add_up_to_the_whole() -> None:
    meter, at = PaidMeter(), datetime(2026, 11, 9, 21, 40, tzinfo=NOW.tzinfo)
    situation = looked(0, made("a", -6000)).situation
    meter.add_look(at, situation)
    meter.charge_until(at + timedelta(hours=5))
    bill = meter.bill()
    assert meter.rate == 8.0
    assert [hour.began.hour for hour in bill.hours] == [21, 22, 23, 0, 1, 2]
    days = bill.sum_days()
    assert sum(days.values()) == pytest.approx(bill.dollars) == pytest.approx(40.0)
    assert days["2026-11-09"] == pytest.approx(8 * 140 / 60)


def test_a_launch_that_is_told_late_is_paid_for_from_the_launch() -> None:
    """Looks come when they come: what was seen unlaunched was launched before that look."""
    ordered = state("a", claim={"created": NOW, "true": ()})
    looks = [looked(0), looked(10, ordered), looked(20, made("a", 3)), looked(30, made("a", 3))]
    assert integrate_paid(looks).node_hours == pytest.approx(27 / 60)


def test_an_end_that_is_told_late_takes_back_what_was_charged_beyond_it() -> None:
    said = condition("InstanceTerminating", since=NOW + 20 * MINUTE)
    looks = [looked(0, made("a", 0)), looked(25, made("a", 0)), looked(30, made("a", 0, conditions=[said]))]
    assert integrate_paid([*looks, looked(60)]).node_hours == pytest.approx(20 / 60)


@pytest.mark.parametrize("heard", ["before the look", "after the look"])
def test_an_end_between_looks_counts_when_it_was_heard_of(heard: str) -> None:
    meter = PaidMeter()
    first, last = looked(0, made("a", 0)), looked(30)
    meter.add_look(first.at, first.situation)
    if heard == "before the look":
        meter.note_end("a", NOW + 12 * MINUTE)
    meter.add_look(last.at, last.situation)
    if heard == "after the look":
        meter.note_end("a", NOW + 12 * MINUTE)
    meter.note_end("a", NOW + 29 * MINUTE)  # a second word changes nothing
    meter.note_end("somebody-else", NOW)
    bill = meter.bill()
    assert bill.node_hours == pytest.approx(12 / 60)
    assert bill.dollars == pytest.approx(8.0 * 12 / 60) == pytest.approx(bill.by_pool["default"])


def test_what_was_launched_before_anybody_said_what_it_is_costs_the_same() -> None:
    bare = made("a", 0)
    assert bare.claim is not None
    kept = {"karpenter.sh/nodepool": "default"}
    bare = replace(bare, claim=replace(bare.claim, metadata=replace(bare.claim.metadata, labels=kept)))
    bill = integrate_paid(
        [looked(0, bare), looked(15, bare), looked(30, made("a", 0)), looked(60, made("a", 0))]
    )
    assert bill.dollars == pytest.approx(8.0)
    assert bill.unpriced_hours == pytest.approx(0.0)

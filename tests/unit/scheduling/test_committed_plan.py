"""Buying on commitments: on demand until they are full, at list prices after that."""

from __future__ import annotations

import os
from collections import Counter
from datetime import timedelta
from fractions import Fraction
from itertools import product
from random import Random

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.commitment import Commitment
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.model.plan import NodeClaimOptions, PlannedNode
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.packing.adapter.from_groups import apply_packed_plan
from dovetail.scheduling.plan_cover import cover_plan
from dovetail.scheduling.solve import solve
from dovetail.scheduling.verify import verify_plan
from support.builders import NOW, nodepool, pod, requirement
from support.commitment_oracle import Instance, apply_by_brute_force
from support.committed_worlds import TYPES, CommittedWorld, plan_of, sold
from support.disruption import state
from support.worlds import Z1, Z2, offering

SEEDS = int(os.environ.get("DOVETAIL_COMMITMENT_SEEDS", "15"))


def pods(count: int, start: int = 0, **spec: object) -> list[Pod]:
    return [pod(f"p{number:05}", cpu="1500m", memory="2Gi", **spec) for number in range(start, start + count)]  # type: ignore[arg-type]


def by_capacity_type(nodes: tuple[PlannedNode, ...]) -> Counter[str]:
    return Counter(node.capacity_type for node in nodes)


@pytest.mark.spec("CM-3")
@pytest.mark.parametrize("batches", [1, 7, 100])
def test_on_demand_is_bought_until_a_plan_is_full_and_spot_after_that(batches: int) -> None:
    world = CommittedWorld(plan_of(hourly="2.00"))
    for number in range(batches):
        world.provision(*pods(100 // batches + (number < 100 % batches), number * 100))
    bill = world.bill
    (use,) = bill.commitments
    largest = max(line.listed for line in bill.lines) * 0.7
    assert use.used == pytest.approx(2.00, abs=largest)
    # What is on demand is paid for, and there is spot beside it.
    assert all(line.effective < 0.01 for line in bill.lines if line.capacity_type == "on-demand")
    assert world.count("spot") > 0
    assert not bill.unpriced
    assert sum(len(state.pods) for state in world.nodes) == 100


@pytest.mark.spec("CM-3")
def test_nodes_that_are_paid_for_are_ordered_on_demand_of_types_that_are_paid_for() -> None:
    world = CommittedWorld(plan_of(kind="FamilyPlan", family="m6i", hourly="5.00"))
    plan = world.solve(*pods(20))
    assert by_capacity_type(plan.new_nodes).keys() == {"on-demand"}
    for node in plan.new_nodes:
        claim = node.build_claim(world.pools[0], NodeClaimOptions())
        asked = {each.key: each.values for each in claim.spec.requirements}
        assert asked[labels.CAPACITY_TYPE] == ("on-demand",)
        assert all(name.startswith("m6i.") for name in asked[labels.INSTANCE_TYPE])
        listed = next(each for each in TYPES if each.name == node.instance_type).offerings[0].price
        assert node.price == pytest.approx(listed)


@pytest.mark.spec("CM-4")
def test_spot_is_compared_with_the_list_price_when_a_plan_is_full_and_with_nothing_when_it_is_open() -> None:
    # Spot is dearer than the plan's rate, and cheaper than what is listed.
    types = (sold("m6i.xlarge", 4, 0.20, spot=0.18),)
    one = pods(2)
    full = CommittedWorld(plan_of(hourly="0.00"), types=types).solve(*one)
    assert by_capacity_type(full.new_nodes).keys() == {"spot"}
    opened = CommittedWorld(plan_of(hourly="1.00"), types=types).solve(*one)
    assert by_capacity_type(opened.new_nodes).keys() == {"on-demand"}
    used_up = CommittedWorld(plan_of(hourly="0.14"), types=types)
    used_up.provision(*one)
    assert used_up.count("on-demand") == 1
    used_up.provision(*pods(2, start=10))
    assert (used_up.count("on-demand"), used_up.count("spot")) == (1, 1)


def test_reserved_instances_of_a_zone_are_bought_there_as_many_as_there_are() -> None:
    reserved = plan_of(
        "ri", kind="ReservedInZone", instance_type="m6g.xlarge", zone=Z2, count=3, discount=None
    )
    world = CommittedWorld(reserved)
    plan = world.solve(*pods(40))
    paid = [node for node in plan.new_nodes if node.capacity_type == "on-demand"]
    assert [(node.instance_type, node.zone) for node in paid] == [("m6g.xlarge", Z2)] * 3
    for node in paid:
        assert node.instance_types == ("m6g.xlarge",)
        assert node.requirements[labels.ZONE].only == Z2
    assert by_capacity_type(plan.new_nodes)["spot"] > 0


def test_each_commitment_is_closed_once_and_plans_are_the_same_every_time() -> None:
    commitments = [
        plan_of("a", kind="Reserved", instance_type="m6i.large", count=2, discount=None),
        plan_of("b", kind="FamilyPlan", family="m6g", hourly="0.60"),
        plan_of("c", hourly="0.50"),
    ]
    world = CommittedWorld(*commitments)
    snapshot = world.snapshot(*pods(120))
    asked: list[Snapshot] = []

    def count(seen: Snapshot):  # type: ignore[no-untyped-def]
        asked.append(seen)
        return solve(seen)

    plan = decide_plan(Situation(snapshot=snapshot), find_plan=count)
    assert 2 <= len(asked) <= len(commitments) + 1
    assert plan == decide_plan(Situation(snapshot=snapshot))
    assert not verify_plan(snapshot, plan)
    assert not plan.left_out
    names = [node.name for node in plan.new_nodes]
    assert len(set(names)) == len(names)
    assert {each.place for each in plan.decisions} == set(names)


def test_rules_between_pods_hold_over_the_parts_of_a_plan() -> None:
    """Pods that may not share a node do not, whichever part of the plan each is in."""
    apart = [
        replace(each, metadata=replace(each.metadata, labels={"app": "web"}))
        for each in pods(24, host_ports=[8080])
    ]
    world = CommittedWorld(plan_of(hourly="0.50"))
    plan = world.solve(*apart)
    assert all(len(node.pods) == 1 for node in plan.new_nodes)
    assert by_capacity_type(plan.new_nodes).keys() == {"on-demand", "spot"}
    assert not verify_plan(world.last, plan)


def test_an_overlaid_price_is_outside_of_commitments() -> None:
    own = tuple(
        replace(each, offerings=tuple(replace(offer, price_overlaid=True) for offer in each.offerings))
        for each in TYPES
    )
    plan = CommittedWorld(plan_of(hourly="5"), types=own).solve(*pods(20))
    assert by_capacity_type(plan.new_nodes).keys() == {"spot"}


def test_nodes_that_are_ordered_and_not_launched_count_as_what_they_will_be() -> None:
    world = CommittedWorld(plan_of(hourly="0.30"))
    first = world.provision(*pods(6))
    assert by_capacity_type(first.new_nodes)["on-demand"] > 0
    bare = {labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE}
    ordered = []
    for each in world.nodes:
        assert each.claim is not None
        known = {key: value for key, value in each.claim.labels.items() if key not in bare}
        claim = replace(each.claim, metadata=replace(each.claim.metadata, labels=known))
        ordered.append(replace(each, node=None, claim=claim, pods=()))
    world.snapshot()
    used = world.book.count_usage(world.last, world.last.commitments)
    world.nodes = ordered
    snapshot = world.snapshot()
    again = world.book.count_usage(snapshot, snapshot.commitments)
    assert sum(kind.price * count for kind, count in again.items()) == pytest.approx(
        sum(kind.price * count for kind, count in used.items())
    )


@pytest.mark.spec("CM-8")
def test_nothing_is_bought_on_a_plan_in_its_last_two_days_and_the_bill_follows_the_hour() -> None:
    midnight = NOW + timedelta(days=9)
    plan = plan_of(hourly="2.00", ends=midnight)

    def bought(now_before_end: timedelta) -> Counter[str]:
        world = CommittedWorld(plan, now=midnight - now_before_end)
        return by_capacity_type(world.solve(*pods(10)).new_nodes)

    assert bought(timedelta(hours=48, minutes=1)).keys() == {"on-demand"}
    assert bought(timedelta(hours=48)).keys() == {"spot"}
    assert bought(timedelta(hours=1)).keys() == {"spot"}
    world = CommittedWorld(plan, now=midnight - timedelta(days=3))
    world.provision(*pods(10))
    for before, effective in ((timedelta(seconds=1), 0.0), (timedelta(), None)):
        world.options = replace(world.options, now=midnight - before)
        bill = world.bill
        assert bill.committed == (2.00 if effective is not None else 0.0)
        left = sum(line.effective for line in bill.lines)
        assert left == pytest.approx(bill.listed if effective is None else 0.0, abs=1e-9)


@pytest.mark.spec("CM-7")
@pytest.mark.parametrize("observe", ["Cluster", "Account"])
def test_two_clusters_never_take_more_of_a_plan_for_sunk_than_there_is(observe: str) -> None:
    worlds = [
        CommittedWorld(plan_of(hourly="2.00", share=share, observe=observe)) for share in ("60%", "40%")
    ]
    used = [0.0, 0.0]
    for step in range(30):
        for at, world in enumerate(worlds):
            if observe == "Account":
                (own,) = world.commitments
                others = f"{used[1 - at]:.6f}"
                world.commitments = [replace(own, status=replace(own.status, by_others=others))]
            plan = world.provision(*pods(3, step * 10))
            assert not plan.left_out
            (use,) = world.bill.commitments
            used[at] = use.used
            assert use.hourly <= 2.00 * (0.6, 0.4)[at] + 1e-9
        assert sum(used) <= 2.00 + 1e-9
    assert sum(used) > 1.5
    paid = [
        sum(line.listed for line in world.bill.lines if line.capacity_type == "on-demand") for world in worlds
    ]
    # On demand is bought only as far as a share pays for it.
    assert all(most * 0.7 <= part + 1e-9 for most, part in zip(paid, (1.2, 0.8), strict=True))


@pytest.mark.spec("CM-12")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_showing_commitments_decides_byte_for_byte_as_without_them(seed: int) -> None:
    rng = Random(seed)
    given = [
        pod(f"p{n}", cpu=f"{rng.choice([200, 900, 3000])}m", memory="1Gi") for n in range(rng.randint(1, 60))
    ]
    commitments = [
        plan_of("a", hourly=f"{rng.choice([0.1, 1, 5])}"),
        plan_of("b", kind="Reserved", instance_type="m6i.large", family="m6i", count=3, discount=None),
    ]
    shown, off = CommittedWorld(*commitments, follow=False), CommittedWorld(follow=False)
    for _ in range(2):
        assert shown.provision(*given) == off.provision(*given)
        given = [replace(each, metadata=replace(each.metadata, name=f"{each.name}x")) for each in given]
    assert shown.last.commitments
    assert shown.last.open_commitments == ()


@pytest.mark.spec("CM-10")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_pool_under_an_open_plan_is_packed_and_the_plan_breaks_no_rule(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    packed: list[int] = []

    def count(run, counted, found):  # type: ignore[no-untyped-def]
        packed.append(len(counted.names))
        apply_packed_plan(run, counted, found)

    monkeypatch.setattr("dovetail.scheduling.solve.apply_packed_plan", count)
    rng = Random(seed)
    given = [
        pod(f"p{n:04}", cpu=f"{rng.choice([250, 700, 1500])}m", memory=f"{rng.choice([1, 3, 6])}Gi")
        for n in range(rng.randint(301, 500))
    ]
    world = CommittedWorld(plan_of(hourly=f"{rng.choice([0.5, 2, 8, 40])}"))
    plan = world.solve(*given)
    assert not plan.left_out
    assert not verify_plan(world.last, plan)
    assert packed
    assert by_capacity_type(plan.new_nodes)["on-demand"] > 0


def test_a_pool_that_asks_for_more_values_than_a_commitment_leaves_is_ordered_as_it_was_planned() -> None:
    asks = nodepool(requirements=[requirement(labels.CAPACITY_TYPE, "In", "spot", "on-demand", min_values=2)])
    world = CommittedWorld(plan_of(hourly="5"))
    world.pools = [asks]
    plan = world.solve(*pods(4))
    assert not plan.left_out
    assert not verify_plan(world.last, plan)
    assert all(set(node.capacity_types) == {"spot", "on-demand"} for node in plan.new_nodes)


def test_a_commitment_that_nothing_sold_fits_is_never_open() -> None:
    other: Commitment = plan_of("ri", kind="Reserved", instance_type="x9.large", count=3, discount=None)
    world = CommittedWorld(other)
    assert world.snapshot(*pods(3)).open_commitments == ()
    gone = tuple(
        replace(each, offerings=tuple(replace(offer, available=False) for offer in each.offerings))
        for each in TYPES
    )
    assert CommittedWorld(plan_of(hourly="5"), types=gone).snapshot().open_commitments == ()
    assert offering(Z1, "on-demand", 1.0).listed_price == 1.0


SMALL_TYPES = (
    sold("m6i.large", 2, 0.10),
    sold("m6i.xlarge", 4, 0.19),
    sold("m6g.xlarge", 4, 0.22, spot=0.05),
)
ROOM = {"m6i.large": 1.9, "m6i.xlarge": 3.9, "m6g.xlarge": 3.9}


def partitions(items: list[float]) -> list[list[list[float]]]:
    if not items:
        return [[]]
    first, rest = items[0], items[1:]
    found = []
    for part in partitions(rest):
        found.append([[first], *part])
        found += [[*part[:at], [first, *part[at]], *part[at + 1 :]] for at in range(len(part))]
    return found


def least_added(sizes: list[float], running: list[Instance], commitments: list[Commitment]) -> float:
    """What the cheapest of all fleets for these pods adds to the bill, by trying every one of them."""

    def paid(fleet: list[Instance]) -> Fraction:
        fresh = [Instance(each.name, each.type, each.zone, each.price, spot=each.spot) for each in fleet]
        apply_by_brute_force(fresh, commitments)
        return sum((each.open * each.price for each in fresh), Fraction(0))

    before, seen, best = paid(running), set[tuple[tuple[str, bool], ...]](), Fraction(10**6)
    for part in partitions(sizes):
        options = [
            [
                (each.name, offer.capacity_type == "spot", Fraction(str(offer.price)))
                for each in SMALL_TYPES
                if sum(block) <= ROOM[each.name]
                for offer in each.offerings
                if offer.zone == Z1
            ]
            for block in part
        ]
        for chosen in product(*options):
            key = tuple(sorted((name, spot) for name, spot, _ in chosen))
            if key not in seen:
                seen.add(key)
                new = [
                    Instance(f"z{number}", name, Z1, price, spot=spot)
                    for number, (name, spot, price) in enumerate(chosen)
                ]
                best = min(best, paid([*running, *new]) - before)
    return float(best)


@pytest.mark.spec("CM-13")
@pytest.mark.parametrize("seed", range(SEEDS))
@pytest.mark.parametrize("follow", [True, False])
def test_the_floor_is_below_what_any_fleet_adds_to_the_bill(seed: int, follow: bool) -> None:
    rng = Random(seed)
    sizes = [rng.choice([0.5, 0.9, 1.5, 1.8, 3.0]) for _ in range(rng.randint(1, 4))]
    rates = {"m6i.large": "0.06", "m6i.xlarge": "0.13", "m6g.xlarge": "0.10"}
    commitments = rng.choice(
        [
            [plan_of("a", hourly=f"{rng.choice([0.03, 0.1, 0.3])}", discount=None, rates=rates)],
            [plan_of("a", kind="Reserved", instance_type="m6i.large", family="m6i", count=1, discount=None)],
            [
                plan_of("a", kind="FamilyPlan", family="m6i", hourly="0.05", discount="40%"),
                plan_of("b", hourly=f"{rng.choice([0.05, 0.2])}", discount="30%"),
            ],
        ]
    )
    names = [rng.choice([each.name for each in SMALL_TYPES]) for _ in range(rng.randint(0, 3))]
    price = {each.name: Fraction(str(each.offerings[0].price)) for each in SMALL_TYPES}
    running = [Instance(f"n{number}", name, Z1, price[name]) for number, name in enumerate(names)]
    types = {each.name: each for each in SMALL_TYPES}
    # What runs is full: pods need new nodes.
    nodes = [
        state(
            each.name, pod(f"on-{each.name}", cpu=f"{ROOM[each.type]}", node=each.name), of=types[each.type]
        )
        for each in running
    ]
    world = CommittedWorld(*commitments, follow=follow, types=SMALL_TYPES, nodes=nodes)
    plan = world.solve(*(pod(f"p{number}", cpu=f"{size}", memory="1Gi") for number, size in enumerate(sizes)))
    assert not plan.left_out
    cover = cover_plan(world.last, plan)
    assert cover is not None
    least = least_added(sizes, running, commitments)
    assert cover.floor <= least + 1e-9
    assert cover.floor <= cover.total + 1e-9
    assert least <= cover.total + 1e-9
    assert plan.bound > 0


@pytest.mark.spec("CM-13")
def test_the_floor_says_something_where_commitments_are_small() -> None:
    world = CommittedWorld(plan_of(hourly="0.10"), types=(sold("m6i.xlarge", 4, 0.20, spot=0.18),))
    plan = world.solve(*pods(40))
    cover = cover_plan(world.last, plan)
    assert cover is not None
    # 0.10 dollars at 70 % of the list price pay for 0.143 at most.
    assert cover.floor == pytest.approx(plan.bound - 0.10 / 0.7, abs=1e-6)
    assert 0 < cover.floor <= cover.total

"""Spend limits: what counts, what claims may cost, and which pods are held."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.labels import INSTANCE_TYPE
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod
from dovetail.api.spend_limit import (
    CoveredPools,
    MonthSpend,
    SpendLimit,
    SpendLimitSpec,
    SpendLimitStatus,
    SpendWindow,
)
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import NodeClaimOptions, Plan, PlannedNode
from dovetail.scheduling.model.reasons import Reason
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.spend import compute_spend, sum_spend
from dovetail.scheduling.spend_caps import build_caps
from dovetail.scheduling.spend_prices import narrow_node, price_node
from dovetail.scheduling.verify import verify_plan
from support.builders import NOW, amounts, nodepool, pod, requirement
from support.worlds import Z1, Z2, World, instance_type, offering, running


def sold(name: str, cpu: int, price: float, *, on_demand: float | None = None) -> InstanceType:
    """A type that is sold as spot in one zone, and on demand if that has a price."""
    deals = [offering(Z1, "spot", price)]
    if on_demand is not None:
        deals.append(offering(Z1, "on-demand", on_demand))
    return instance_type(name, cpu, f"{4 * cpu}Gi", 110, offerings=deals)


PLAIN = tuple(sold(f"c{cpu}", cpu, float(cpu)) for cpu in (2, 4, 8))


def limit(name: str = "development", *pools: str, **spec: Any) -> SpendLimit:
    covered = CoveredPools(names=pools)
    return SpendLimit(metadata=ObjectMeta(name=name), spec=SpendLimitSpec(node_pools=covered, **spec))


def decide(world: World, limits: Sequence[SpendLimit], *pods: Pod) -> tuple[Snapshot, Plan]:
    snapshot = world.snapshot(*pods)
    caps = build_caps(limits, world.pools, snapshot.options.now)
    return snapshot, decide_plan(Situation(snapshot=snapshot, spend_caps=caps))


def pods(count: int, name: str, priority: int = 0, cpu: str = "900m", **more: Any) -> list[Pod]:
    return [pod(f"{name}-{i}", cpu=cpu, memory="1Gi", priority=priority, **more) for i in range(count)]


def worst(snapshot: Snapshot, plan: Plan) -> float:
    """By hand: every offering of every type and capacity type that a claim lists, whatever it is called."""
    total = 0.0
    for node in plan.new_nodes:
        types = {each.name: each for catalog in snapshot.catalogs for each in catalog}
        total += max(
            deal.price
            for name in node.instance_types
            for deal in types[name].offerings
            if deal.capacity_type in node.capacity_types
            and deal.zone in node.requirements["topology.kubernetes.io/zone"]
        )
    return total


def placed(plan: Plan) -> set[str]:
    return {name for node in plan.new_nodes for name in node.pods} | {
        name for names in plan.existing.values() for name in names
    }


def test_without_a_limit_the_plan_is_the_very_same() -> None:
    snapshot = World(types=PLAIN).snapshot(*pods(5, "web"))
    free = decide_plan(Situation(snapshot=snapshot))
    other = limit("other", "elsewhere", hourly="0")
    caps = build_caps([other], [], NOW)
    assert decide_plan(Situation(snapshot=snapshot, spend_caps=caps)) == free


@pytest.mark.spec("SL-2")
def test_pods_of_high_priority_run_and_the_others_are_told_limit_amount_and_window() -> None:
    night = SpendWindow(schedule="0 12 * * *", duration="1h", hourly="44")
    world = World(nodepool(), types=PLAIN)
    high, low = pods(40, "high", 1000, "450m"), pods(400, "low", 0, "450m")
    mixed = [each for pair in zip(high, low[::10], strict=True) for each in pair]
    mixed += [each for each in low if each not in mixed]
    unlimited = decide_plan(Situation(snapshot=world.snapshot(*mixed)))
    assert unlimited.price > 88
    snapshot, plan = decide(world, [limit(hourly="200", windows=(night,))], *mixed)
    assert {each.full_name for each in high} <= placed(plan)
    assert worst(snapshot, plan) <= 44
    assert verify_plan(snapshot, plan) == []
    held = plan.spend_held["development"]
    assert set(held) == set(plan.deferred) == {each.full_name for each in mixed} - placed(plan)
    assert 100 < len(held) < 360
    for name in held:
        assert (
            "SpendLimit development allows $44.00 an hour in its window 0 12 * * * for 1h"
            in plan.deferred[name]
        )
        assert "too much" in plan.deferred[name]
    reasons = {each.rejections[0].reason for each in plan.decisions if each.pod in held}
    assert reasons == {Reason.SPEND}


@pytest.mark.spec("SL-3")
def test_a_limit_over_three_pools_cuts_across_them_by_priority_and_not_pool_by_pool() -> None:
    pools = [nodepool(name, labels={"pool": name}) for name in ("a", "b", "c")]
    world = World(*pools, types=PLAIN)
    waiting = [
        pod(f"{of}-{number}", cpu="1500m", priority=number, node_selector={"pool": of})
        for of in "abc"
        for number in (1, 2, 3)
    ]
    _, plan = decide(world, [limit("dev", "a", "b", "c", hourly="6")], *waiting)
    assert {name.removeprefix("default/") for name in placed(plan)} == {"a-3", "b-3", "c-3"}
    assert {node.pool for node in plan.new_nodes} == {"a", "b", "c"}


def test_however_many_priorities_there_are_the_highest_come_first() -> None:
    world = World(nodepool(), types=(sold("c2", 2, 2.0),))
    waiting = [pod(f"p-{number}", cpu="1500m", priority=number) for number in (3, 7, 1, 9, 5, 2, 8, 4, 6)]
    _, plan = decide(world, [limit(hourly="12")], *waiting)
    assert placed(plan) == {f"default/p-{number}" for number in range(4, 10)}


def test_of_equal_priority_the_pod_that_waits_longest_comes_first_and_then_the_cheaper() -> None:
    world = World(nodepool(), types=PLAIN)
    old = pod("old", cpu="1500m", created=NOW - timedelta(minutes=5), labels={"a": "b"}, host_ports=(80,))
    new = pod("new", cpu="1500m", host_ports=(80,))
    _, plan = decide(world, [limit(hourly="2")], new, old)
    assert placed(plan) == {"default/old"}


def test_pods_that_were_left_out_are_planned_onto_what_was_taken_before_they_are_held() -> None:
    """Two nodes are planned, one is taken; the small pod of the other still fits there."""
    world = World(nodepool(), types=(sold("c4", 4, 4.0),))
    first, second = pod("first", cpu="3", priority=5), pod("second", cpu="3", priority=1)
    small = pod("small", cpu="500m", priority=1)
    snapshot, plan = decide(world, [limit(hourly="4")], first, second, small)
    assert placed(plan) == {"default/first", "default/small"}
    assert set(plan.deferred) == {"default/second"}
    assert verify_plan(snapshot, plan) == []


def test_a_node_counts_at_the_dearest_price_that_its_claim_may_be_launched_at() -> None:
    types = (sold("c2", 2, 2.0, on_demand=2.5),)
    world = World(nodepool(), types=types)
    snapshot = world.snapshot(pod("a", cpu="1"))
    (node,) = decide_plan(Situation(snapshot=snapshot)).new_nodes
    assert node.price == 2.0
    assert price_node(snapshot, node).price == 2.5
    _, plan = decide(world, [limit(hourly="2.5")], pod("a", cpu="1"))
    assert plan.new_nodes[0].capacity_types == ("on-demand", "spot")
    _, plan = decide(world, [limit(hourly="2.4")], pod("a", cpu="1"))
    assert plan.new_nodes[0].capacity_types == ("spot",), "what fits is bought in another way"
    _, plan = decide(world, [limit(hourly="1.9")], pod("a", cpu="1"))
    assert plan.new_nodes == ()
    assert "one more node costs up to $2.50: $0.60 too much" in plan.deferred["default/a"]


def test_an_offering_that_cannot_be_had_now_counts_as_well() -> None:
    gone = offering(Z1, "on-demand", 2.5, available=False)
    types = (
        instance_type(
            "c2", 2, "8Gi", 110, offerings=[offering(Z1, "spot", 2.0), gone, offering(Z2, "on-demand", 2.1)]
        ),
    )
    snapshot = World(nodepool(), types=types).snapshot(pod("a", cpu="1"))
    (node,) = decide_plan(Situation(snapshot=snapshot)).new_nodes
    assert price_node(snapshot, node).price == 2.5


def test_an_offering_whose_price_nobody_knows_is_no_risk_of_a_launch_and_no_free_one_either() -> None:
    odd = offering(Z2, "on-demand", 0.0, available=False, price_unknown=True)
    deals = [offering(Z1, "spot", 2.0), odd]
    types = (instance_type("c2", 2, "8Gi", 110, offerings=deals),)
    snapshot = World(nodepool(), types=types).snapshot(pod("a", cpu="1"))
    (node,) = decide_plan(Situation(snapshot=snapshot)).new_nodes
    assert price_node(snapshot, node).price == 2.0
    unknown = (instance_type("c2", 2, "8Gi", 110, offerings=[odd]),)
    snapshot = World(nodepool(), types=unknown).snapshot()
    assert price_node(snapshot, replace(node, capacity_types=("on-demand",))).price == inf


@pytest.mark.spec("SL-14")
def test_claims_lose_what_is_half_as_dear_again_and_keep_fifteen_types() -> None:
    types = tuple(sold(f"t{number:02d}", 2 + number, 1.0 + number / 10) for number in range(40))
    snapshot = World(nodepool(), types=types).snapshot(pod("a", cpu="1"))
    (node,) = decide_plan(Situation(snapshot=snapshot)).new_nodes
    assert len(node.instance_types) == 40
    few = narrow_node(snapshot, node)
    assert few.instance_types == tuple(f"t{number:02d}" for number in range(15))
    dear = tuple(sold(f"t{number:02d}", 2 + number, 1.0 + number / 100) for number in range(60))
    snapshot = World(nodepool(), types=dear).snapshot(pod("a", cpu="1"))
    (node,) = decide_plan(Situation(snapshot=snapshot)).new_nodes
    assert len(narrow_node(snapshot, node).instance_types) == 51


@pytest.mark.spec("SL-14")
def test_min_values_are_kept_when_a_claim_is_narrowed() -> None:
    types = tuple(sold(f"t{number:02d}", 2 + number, float(1 + number)) for number in range(40))
    pool = nodepool(requirements=[requirement(INSTANCE_TYPE, "Exists", min_values=20)])
    snapshot = World(pool, types=types).snapshot(pod("a", cpu="1"))
    (node,) = decide_plan(Situation(snapshot=snapshot)).new_nodes
    assert len(narrow_node(snapshot, node).instance_types) == 20


@pytest.mark.spec("SL-14")
def test_on_demand_is_struck_where_spot_is_much_cheaper_and_bought_once_spot_is_refused() -> None:
    types = (sold("c2", 2, 1.0, on_demand=3.0),)
    world = World(nodepool(), types=types)
    _, plan = decide(world, [limit(hourly="3")], pod("a", cpu="1"))
    assert plan.new_nodes[0].capacity_types == ("spot",)
    refused = replace(
        types[0],
        offerings=tuple(replace(each, available=each.capacity_type != "spot") for each in types[0].offerings),
    )
    world = World(nodepool(), types=(refused,))
    snapshot, plan = decide(world, [limit(hourly="3")], pod("a", cpu="1"))
    assert plan.new_nodes[0].capacity_types == ("on-demand",)
    assert worst(snapshot, plan) == 3.0


def in_flight(world: World, plan: Plan) -> StateNode:
    """The claim of a plan's only node, ordered and not launched."""
    (node,) = plan.new_nodes
    pool = next(each for each in world.pools if each.name == node.pool)
    claim = node.build_claim(pool, NodeClaimOptions(flavour=world.options.flavour))
    return StateNode(claim=replace(claim, metadata=replace(claim.metadata, name="ordered")))


def test_a_claim_counts_at_its_worst_until_it_is_launched_and_then_at_its_own_price() -> None:
    world = World(nodepool(), types=(sold("c2", 2, 2.0, on_demand=2.5),))
    plan = decide_plan(Situation(snapshot=world.snapshot(pod("a", cpu="1"))))
    ordered = in_flight(world, plan)
    launched = world._launched(plan.new_nodes[0])
    for state, spent, flying in (
        (ordered, 0.0, 2.5),
        (launched, 2.0, 0.0),
        (replace(launched, marked=True), 0.0, 0.0),
    ):
        world.nodes = [state]
        found = compute_spend(world.snapshot(), DecisionCache())["default"]
        assert (found.effective, found.effective_in_flight) == (spent, flying)


def test_what_runs_and_what_is_ordered_leaves_less_room() -> None:
    world = World(nodepool(), types=(sold("c2", 2, 2.0),))
    plan = decide_plan(Situation(snapshot=world.snapshot(pod("a", cpu="1"))))
    world.nodes = [world._launched(plan.new_nodes[0]), in_flight(world, plan)]
    waiting = [pod(f"b-{number}", cpu="1800m") for number in range(3)]
    _, plan = decide(world, [limit(hourly="6")], *waiting)
    assert len(plan.new_nodes) == 1
    assert "$6.00 are spent or ordered" in next(iter(plan.deferred.values()))


def test_nodes_and_resources_are_limits_too() -> None:
    world = World(nodepool(), types=(sold("c2", 2, 2.0),))
    waiting = [pod(f"b-{number}", cpu="1800m") for number in range(3)]
    _, plan = decide(world, [limit(nodes=2)], *waiting)
    assert len(plan.new_nodes) == 2
    assert "allows 2 nodes, and this is 1 too many" in next(iter(plan.deferred.values()))
    _, plan = decide(world, [limit(resources=amounts(cpu="3"))], *waiting)
    assert len(plan.new_nodes) == 1
    assert "allows 3 of cpu" in next(iter(plan.deferred.values()))


def test_nodes_of_no_pool_count_only_where_that_is_asked_for() -> None:
    world = World(nodepool(), types=(sold("c2", 2, 2.0),))
    world.nodes = [
        running(
            "alien",
            labels={
                INSTANCE_TYPE: "c2",
                "topology.kubernetes.io/zone": Z1,
                "karpenter.sh/capacity-type": "spot",
            },
        )
    ]
    waiting = [pod(f"b-{number}", cpu="1800m") for number in range(3)]
    found = {
        unmanaged: sum_spend(
            build_caps([limit(hourly="9", include_unmanaged=unmanaged)], world.pools, NOW)[0],
            compute_spend(world.snapshot(*waiting), DecisionCache()),
        )
        for unmanaged in (True, False)
    }
    assert (found[True].nodes, found[True].effective) == (1, 2.0)
    assert (found[False].nodes, found[False].effective) == (0, 0.0)


@pytest.mark.spec("SL-9")
def test_all_limits_must_allow_a_node_and_one_that_warns_only_tells() -> None:
    world = World(nodepool(), types=(sold("c2", 2, 2.0),))
    waiting = [pod(f"b-{number}", cpu="1800m") for number in range(5)]
    limits = [limit("tight", hourly="2", mode="Warn"), limit("wide", hourly="8")]
    _, plan = decide(world, limits, *waiting)
    assert len(plan.new_nodes) == 4
    assert len(plan.deferred) == 1
    assert "SpendLimit wide" in next(iter(plan.deferred.values()))
    assert {name: len(names) for name, names in plan.spend_held.items()} == {"tight": 3, "wide": 1}
    both = [limit("tight", hourly="4"), limit("wide", hourly="8")]
    assert len(decide(world, both, *waiting)[1].new_nodes) == 2


def test_pods_of_the_given_priority_are_not_held_and_still_count() -> None:
    world = World(nodepool(), types=(sold("c2", 2, 2.0),))
    waiting = [pod(f"b-{number}", cpu="1800m", priority=number * 10) for number in range(4)]
    _, plan = decide(world, [limit(hourly="2", priority_at_least=20)], *waiting)
    assert placed(plan) == {"default/b-2", "default/b-3"}


def test_room_for_capacity_buffers_is_held_first() -> None:
    world = World(nodepool(), types=(sold("c2", 2, 2.0),))
    world.more["virtual"] = (pod("room", cpu="1800m", created=NOW - timedelta(hours=9)),)
    _, plan = decide(world, [limit(hourly="2")], pod("real", cpu="1800m", priority=-5))
    assert placed(plan) == {"default/real"}


@pytest.mark.spec("SL-12")
def test_a_pool_with_a_node_of_unknown_price_is_held_and_the_others_are_not() -> None:
    pools = [nodepool(name, labels={"pool": name}) for name in ("known", "unknown")]
    world = World(*pools, types=(sold("c2", 2, 2.0),))
    plan = decide_plan(Situation(snapshot=world.snapshot(pod("a", node_selector={"pool": "unknown"}))))
    state = world._bound(world._launched(plan.new_nodes[0]), [pod("full", cpu="1500m")])
    assert state.node is not None
    other = {**state.node.labels, INSTANCE_TYPE: "nobody-sells-it"}
    world.nodes = [
        replace(state, node=replace(state.node, metadata=replace(state.node.metadata, labels=other)))
    ]
    waiting = [pod(name, cpu="1800m", node_selector={"pool": name}) for name in ("known", "unknown")]
    _, plan = decide(world, [limit(hourly="90")], *waiting)
    assert placed(plan) == {"default/known"}
    assert (
        "nobody knows the price of node unknown-001 of NodePool unknown" in plan.deferred["default/unknown"]
    )
    assert placed(decide(world, [limit(nodes=9)], *waiting)[1]) == {"default/known", "default/unknown"}


def test_a_limit_that_cannot_be_read_holds_what_it_governs_and_nothing_else() -> None:
    pools = [nodepool(name, labels={"pool": name}) for name in ("a", "b")]
    world = World(*pools, types=(sold("c2", 2, 2.0),))
    waiting = [pod(name, cpu="1800m", node_selector={"pool": name}) for name in ("a", "b")]
    _, plan = decide(world, [limit("bad", "a", hourly="90", time_zone="Nowhere")], *waiting)
    assert placed(plan) == {"default/b"}
    assert "SpendLimit bad cannot be read (spec.timeZone: there is no time zone" in plan.deferred["default/a"]


def test_nothing_is_bought_once_the_month_is_spent() -> None:
    world = World(nodepool(), types=(sold("c2", 2, 2.0),))
    monthly = limit(monthly="100")
    for of, spent, bought in (("2026-06", "99.9", 1), ("2026-06", "100.00", 0), ("2026-05", "100.00", 1)):
        status = SpendLimitStatus(month=MonthSpend(of=of, spent=spent))
        _, plan = decide(world, [replace(monthly, status=status)], pod("a", cpu="1"))
        assert len(plan.new_nodes) == bought
        if not bought:
            assert "allows $100.00 in 2026-06, and these are spent" in plan.deferred["default/a"]


@pytest.mark.spec("SL-13")
def test_caps_stay_equal_while_money_is_spent() -> None:
    plain = limit(hourly="40", monthly="100")
    statuses = (
        SpendLimitStatus(held_pods=held, month=MonthSpend(of="2026-06", spent=f"{held}.25"))
        for held in range(5)
    )
    first, *others = (build_caps([replace(plain, status=status)], [], NOW) for status in statuses)
    assert all(each == first for each in others)


def test_labels_of_pools_select_them() -> None:
    pools = [
        replace(nodepool(name), metadata=ObjectMeta(name=name, labels={"team": team}))
        for name, team in (("a", "dev"), ("b", "ops"), ("c", "dev"))
    ]
    chosen = SpendLimit(
        metadata=ObjectMeta(name="dev"),
        spec=SpendLimitSpec(node_pools=CoveredPools(match_labels={"team": "dev"}), nodes=1),
    )
    (cap,) = build_caps([chosen], pools, NOW)
    assert cap.pools == ("a", "c")
    assert not cap.covers("b")
    (every,) = build_caps([limit(nodes=1)], pools, NOW)
    assert every.covers("b")


def test_a_planned_node_without_a_price_is_left_as_it_is() -> None:
    node = PlannedNode(
        name="x",
        pool="default",
        requirements=Requirements(),
        instance_types=(),
        pods=(),
        requests={},
        price=inf,
    )
    assert narrow_node(World(nodepool(), types=PLAIN).snapshot(), node) is node

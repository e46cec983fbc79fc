"""minValues: a node keeps enough kinds of instance to choose from."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import codec
from dovetail.api import labels as names
from dovetail.api.labels import INSTANCE_TYPE
from dovetail.api.nodepool import NodePool
from dovetail.api.validation import check_document
from dovetail.scheduling.model.instance_types import MinValues, truncate_types
from dovetail.scheduling.model.nodeclaim_template import FILTERED_OUT
from dovetail.scheduling.model.plan import NodeClaimOptions, PlannedNode
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.sequential.results import _make_orderable
from support.builders import nodepool, pod, requirement
from support.worlds import FLAVOUR, INTEGER, Z1, Z2, World, instance_type, offering, series, spread

ONE_AND_FOUR = (instance_type("one", 1, "4Gi"), instance_type("four", 4, "4Gi"))


def asking(key: str, operator: str, *values: str, least: int) -> Any:
    return requirement(key, operator, *values, min_values=least)


def pods(count: int = 2, cpu: str = "900m") -> list[Any]:
    return [pod(f"web-{i}", cpu=cpu, memory="10M") for i in range(count)]


@pytest.mark.spec("T-230", "T-231")
@pytest.mark.parametrize(
    "asked",
    [
        [asking(INSTANCE_TYPE, "In", "one", "four", least=2)],
        [asking(INSTANCE_TYPE, "Exists", least=2)],
        [asking(INTEGER, "Gt", "0", least=2)],
        [asking(INTEGER, "Lt", "5", least=2)],
    ],
)
def test_a_node_stays_small_enough_to_keep_its_choice(asked: list[Any]) -> None:
    plan = World(nodepool(requirements=asked), types=ONE_AND_FOUR).solve(*pods())
    assert [set(node.instance_types) for node in plan.new_nodes] == [{"one", "four"}] * 2


@pytest.mark.spec("T-231")
def test_a_numeric_key_that_cannot_be_met_is_named() -> None:
    pool = nodepool(requirements=[asking(INTEGER, "Gt", "0", least=2)])
    plan = World(pool, types=ONE_AND_FOUR).solve(pod("web", cpu="2"))
    (told,) = plan.unschedulable.values()
    assert told.startswith(f"minValues requirement is not met for label(s) (label(s)=[{INTEGER}])")


@pytest.mark.spec("T-232")
@pytest.mark.parametrize(
    "asked",
    [
        [asking(INTEGER, "In", "1", "2", "3", least=1), asking(INTEGER, "NotIn", "3", least=2)],
        [asking(INTEGER, "Exists", least=1), asking(INTEGER, "In", "1", "2", least=2)],
        [asking(INTEGER, "Gt", "0", least=1), asking(INTEGER, "Lt", "9", least=2)],
    ],
)
def test_the_largest_of_several_applies(asked: list[Any]) -> None:
    assert Requirements.from_expressions(asked)[INTEGER].min_values == 2
    plan = World(nodepool(requirements=asked), types=series(3)).solve(*pods())
    assert all(len(node.instance_types) >= 2 for node in plan.new_nodes)


@pytest.mark.spec("T-233")
def test_more_values_than_there_are_types_rule_out_the_pool() -> None:
    pool = nodepool(requirements=[asking(INSTANCE_TYPE, "Exists", least=11)])
    plan = World(pool, types=series(10)).solve(*pods(1))
    assert plan.pool_problems == {"default": f"{FILTERED_OUT} due to minValues incompatibility"}
    assert list(plan.unschedulable.values()) == [
        "nodepool requirements filtered out all available instance types"
    ]


@pytest.mark.spec("T-234")
def test_truncation_must_leave_enough() -> None:
    wanted = Requirements.from_expressions([asking(INSTANCE_TYPE, "Exists", least=2)])
    kept, short = truncate_types(ONE_AND_FOUR, wanted, strict=True, most=1)
    assert ([each.name for each in kept], dict(short.unsatisfied)) == (["one"], {INSTANCE_TYPE: 1})
    pool = nodepool(requirements=[asking(INSTANCE_TYPE, "Exists", least=2)])
    plan = World(pool, types=ONE_AND_FOUR, most_types=1).solve(*pods())
    assert not plan.new_nodes
    assert len(plan.unschedulable) == 2
    assert all("couldn’t meet minValues requirements" in each for each in plan.unschedulable.values())


@pytest.mark.spec("T-235")
def test_two_keys_can_ask_at_once() -> None:
    types = (instance_type("amd", 1, "4Gi"), instance_type("arm", 4, "4Gi", arch="arm64"))
    asked = [asking(names.ARCH, "Exists", least=2), asking(INSTANCE_TYPE, "Exists", least=1)]
    assert len(World(nodepool(requirements=asked), types=types).solve(*pods()).new_nodes) == 2


def relaxed_pool(*asked: Any, name: str = "default", **more: Any) -> NodePool:
    return nodepool(name, requirements=asked, **more)


@pytest.mark.spec("T-236")
@pytest.mark.parametrize("policy", ["Strict", "BestEffort"])
def test_best_effort_asks_for_what_there_is(policy: str) -> None:
    pool = relaxed_pool(asking(INSTANCE_TYPE, "In", "one", "four", "none", least=3))
    plan = World(pool, types=ONE_AND_FOUR, min_values=policy).solve(*pods(1))
    assert len(plan.new_nodes) == (1 if policy == "BestEffort" else 0)
    for node in plan.new_nodes:
        claim = node.build_claim(pool, NodeClaimOptions(flavour=FLAVOUR))
        (kinds,) = [each for each in claim.spec.requirements if each.key == INSTANCE_TYPE]
        assert (kinds.min_values, set(kinds.values)) == (2, {"one", "four"})
        assert claim.annotations[names.MIN_VALUES_RELAXED] == "true"


@pytest.mark.spec("T-237")
def test_best_effort_relaxes_the_heavier_pool_before_turning_to_a_lighter_one() -> None:
    heavy = relaxed_pool(asking(INSTANCE_TYPE, "Exists", least=3), name="heavy", weight=100)
    world = World(heavy, nodepool("light"), types=ONE_AND_FOUR, min_values="BestEffort")
    world.provision(*pods(1))
    assert world.labels_of("web-0")[names.NODEPOOL] == "heavy"


@pytest.mark.spec("T-238", "T-239")
@pytest.mark.parametrize("policy", ["Strict", "BestEffort"])
def test_zones_and_types_are_relaxed_each_to_what_is_there(policy: str) -> None:
    only = (instance_type("one", 1, "4Gi", offerings=[offering(Z1, "spot", 1.0), offering(Z2, "spot", 1.0)]),)
    asked = (asking(INSTANCE_TYPE, "Exists", least=2), asking(names.ZONE, "In", Z1, Z2, "other", least=3))
    plan = World(relaxed_pool(*asked), types=only, min_values=policy).solve(*pods(1, "100m"))
    assert len(plan.new_nodes) == (1 if policy == "BestEffort" else 0)
    for node in plan.new_nodes:
        assert node.requirements[INSTANCE_TYPE].min_values == 1
        assert node.requirements[names.ZONE].min_values == 2
        assert node.requirements[names.ZONE].names == {Z1, Z2, "other"}


def orders_admitted(world: World) -> bool:
    """Whether the API server takes every NodeClaim of the plan."""
    pools = {pool.name: pool for pool in world.pools}
    claims = [
        node.build_claim(pools[node.pool], NodeClaimOptions(flavour=FLAVOUR)) for node in world.plan.new_nodes
    ]
    return not any(check_document(codec.to_dict(claim), "kwok") for claim in claims)


TWO_ZONES = nodepool("picky", requirements=[asking(names.ZONE, "In", Z1, Z2, least=2)], weight=10)


def test_a_zone_selector_that_leaves_fewer_zones_than_min_values_makes_the_pod_unschedulable() -> None:
    """The claim would list one zone and ask for two: the API server refuses that, and always will."""
    plan = World(TWO_ZONES).solve(pod("pinned", node_selector={names.ZONE: Z1}), pod("free"))
    assert list(plan.unschedulable) == ["default/pinned"]
    assert f"label(s)=[{names.ZONE}]" in plan.unschedulable["default/pinned"]
    assert [node.pods for node in plan.new_nodes] == [("default/free",)]


def test_a_pod_that_would_narrow_min_values_below_itself_goes_to_another_pool() -> None:
    world = World(TWO_ZONES, nodepool("plain"))
    plan = world.solve(pod("pinned", node_selector={names.ZONE: Z1}), pod("free"))
    assert {node.pods: node.pool for node in plan.new_nodes} == {
        ("default/pinned",): "plain",
        ("default/free",): "picky",
    }
    assert orders_admitted(world)


def test_best_effort_orders_what_is_left_and_says_so() -> None:
    world = World(TWO_ZONES, min_values="BestEffort")
    plan = world.solve(pod("pinned", node_selector={names.ZONE: Z1}))
    (node,) = plan.new_nodes
    assert node.min_values_relaxed
    assert node.requirements[names.ZONE].min_values == 1
    assert orders_admitted(world)


@pytest.mark.parametrize("strategy", ["Strict", "BestEffort"])
def test_a_zone_that_is_shifted_away_leaves_no_order_that_is_refused(strategy: str) -> None:
    """Offers of one zone are gone, and the pods of a workload must be spread over what is left."""
    types = [
        instance_type(
            f"t{i}", 4, "8Gi", offerings=[offering(Z1, "spot", 1.0, i > 9), offering(Z2, "spot", 1.0)]
        )
        for i in range(3)
    ]
    world = World(TWO_ZONES, types=types, min_values=strategy)
    about: Any = {"labels": {"app": "web"}, "topology_spread_constraints": (spread(names.ZONE),)}
    plan = world.solve(*(pod(f"w{i}", **about) for i in range(3)))
    assert orders_admitted(world)
    assert len(plan.unschedulable) + sum(len(node.pods) for node in plan.new_nodes) == 3


@pytest.mark.parametrize("strategy", ["Strict", "BestEffort"])
def test_min_values_of_capacity_types_counts_those_that_can_be_bought(strategy: str) -> None:
    both = nodepool(requirements=[asking(names.CAPACITY_TYPE, "In", "spot", "on-demand", least=2)])
    types = [
        instance_type(
            "t", 4, "8Gi", offerings=[offering(Z1, "spot", 1.0, False), offering(Z1, "on-demand", 1.0)]
        )
    ]
    world = World(both, types=types, min_values=strategy)
    plan = world.solve(pod("web"))
    assert bool(plan.new_nodes) == (strategy == "BestEffort")
    assert orders_admitted(world)


@pytest.mark.parametrize("strict", [True, False])
def test_an_order_that_lists_fewer_ways_to_buy_than_it_asks_for_is_short_or_says_that_it_was_relaxed(
    strict: bool,
) -> None:
    """Of the types that are left after the longest order is cut, none may be sold on demand."""
    both = asking(names.CAPACITY_TYPE, "In", "spot", "on-demand", least=2)
    asked = Requirements.from_expressions([both])
    node = PlannedNode("n", "default", asked, ("t",), (), {}, capacity_types=("spot",))
    made, short = _make_orderable(node, MinValues(needed=1), strict)
    assert made.min_values_relaxed is not strict
    assert short.met is not strict
    assert made.requirements[names.CAPACITY_TYPE].min_values == (2 if strict else 1)

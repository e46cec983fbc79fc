"""Reserved capacity: held by whoever might use it, waited for, and used up."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.scheduling.model.instance_type_table import InstanceTypeTable
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.sequential.reservations import ReservationManager
from support.builders import nodepool, pod
from support.worlds import (
    FIVE,
    FLAVOUR,
    RESERVATION,
    Z1,
    World,
    apart,
    instance_type,
    near,
    node_affinity,
    offering,
)

KIND = names.CAPACITY_TYPE


def reserved(name: str, cpu: float, **counts: int) -> InstanceType:
    """A type with these reservations beside its ordinary offerings."""
    deals = [offering(Z1, "reserved", 0.001, count > 0, id_, count) for id_, count in counts.items()]
    ordinary = [offering(zone, kind, 0.1 * cpu) for zone, kind in FIVE]
    return instance_type(name, cpu, f"{int(cpu) * 2}Gi", offerings=[*deals, *ordinary])


def spend(world: World, plan: Plan) -> None:
    """Launching into a reservation takes one of its places."""
    for node in plan.new_nodes:
        if node.capacity_type == "reserved":
            world.types = {
                pool.name: [_spent(each, node.reservations[0]) for each in world.types_of(pool)]
                for pool in world.pools
            }


def _spent(each: InstanceType, used: str) -> InstanceType:
    def after(deal: Offering) -> Offering:
        left = deal.reservation_capacity - 1
        mine = deal.reservation_id == used
        return replace(deal, reservation_capacity=left, available=left > 0) if mine else deal

    return replace(each, offerings=tuple(after(deal) for deal in each.offerings))


def passes(world: World, pods: list[Any], count: int) -> list[list[str]]:
    """For each pass, the capacity types of the nodes it made."""
    found = []
    for _ in range(count):
        waiting = [each for each in pods if world.node_of(each.full_name) is None]
        plan = world.provision(*waiting)
        spend(world, plan)
        found.append(sorted("reserved" if n.capacity_type == "reserved" else "other" for n in plan.new_nodes))
    return found


@pytest.mark.spec("T-240")
def test_a_node_holds_every_reservation_it_might_use() -> None:
    world = World(types=(reserved("small", 2, small=1), reserved("medium", 4, medium=1)))
    lonely: dict[str, Any] = {"labels": {"app": "web"}, "affinity": apart(names.HOSTNAME, app="web")}
    pods = [pod(f"w{i}", cpu="1800m", memory="1Mi", **lonely) for i in range(3)]
    assert passes(world, pods, 3) == [["reserved"], ["reserved"], ["other"]]
    assert world.scheduled(*pods) == 3


@pytest.mark.spec("T-240")
def test_a_pod_that_waits_for_a_reservation_is_deferred_and_not_told_off() -> None:
    world = World(types=(reserved("small", 2, small=1),))
    plan = world.solve(*(pod(f"w{i}", cpu="1800m", memory="1Mi") for i in range(2)))
    assert (len(plan.new_nodes), len(plan.deferred), len(plan.unschedulable)) == (1, 1, 0)
    (node,) = plan.new_nodes
    assert node.requirements[KIND].only == "reserved"
    assert node.requirements[RESERVATION].only == "small"


@pytest.mark.spec("T-241", "T-242")
@pytest.mark.parametrize(("ids", "made"), [(("shared", "shared"), [1, 1]), (("a", "b"), [2, 0])])
def test_a_reservation_two_pools_see_is_one_reservation(ids: tuple[str, str], made: list[int]) -> None:
    types = {"one": [reserved("small", 2, **{ids[0]: 1})], "two": [reserved("small", 2, **{ids[1]: 1})]}
    world = World(nodepool("one"), nodepool("two"), types=types)
    pods = [pod(f"w-{p}", cpu="1800m", memory="1Mi", node_selector={names.NODEPOOL: p}) for p in types]
    assert [len(each) for each in passes(world, pods, 2)] == made


@pytest.mark.spec("T-243")
def test_reservations_are_used_up_pass_by_pass() -> None:
    world = World(types=(reserved("small", 2, one=1, two=2),))
    lonely: dict[str, Any] = {"labels": {"app": "web"}, "affinity": apart(names.HOSTNAME, app="web")}
    pods = [pod(f"w{i}", cpu="1800m", memory="1Mi", **lonely) for i in range(4)]
    assert passes(world, pods, 3) == [["reserved", "reserved"], ["reserved"], ["other"]]
    assert world.scheduled(*pods) == 4


@pytest.mark.spec("T-244")
def test_waiting_for_a_reservation_beats_a_lighter_pool() -> None:
    types = {"heavy": [reserved("small", 2, r=1)], "light": [reserved("small", 2)]}
    world = World(nodepool("heavy", weight=100), nodepool("light"), types=types)
    pods = [pod(f"w{i}", cpu="1800m", memory="1Mi") for i in range(2)]
    assert passes(world, pods, 2) == [["reserved"], ["other"]]
    assert {world.labels_of(each.name)[names.NODEPOOL] for each in pods} == {"heavy"}


@pytest.mark.spec("T-245", "T-091")
def test_a_preference_is_kept_while_its_reservation_is_waited_for() -> None:
    types = {"np-1": [reserved("small", 2, a=1)], "np-2": [reserved("small", 2, b=5)]}
    world = World(nodepool("np-1"), nodepool("np-2", weight=100), types=types)
    wish = node_affinity(preferred=[(1, [(names.NODEPOOL, "In", "np-1")])])
    pods = [pod(f"w{i}", cpu="1800m", memory="1Mi", affinity=wish) for i in range(2)]
    assert passes(world, pods, 2) == [["reserved"], ["other"]]
    assert {world.labels_of(each.name)[names.NODEPOOL] for each in pods} == {"np-1"}


@pytest.mark.spec("T-246")
def test_pods_that_share_a_zone_share_a_reserved_node() -> None:
    world = World(types=(reserved("large", 8, r=1),))
    wish: dict[str, Any] = {"labels": {"app": "web"}, "affinity": near(names.ZONE, app="web")}
    chosen = {KIND: "reserved"}
    plan = world.solve(*(pod(f"w{i}", node_selector=chosen, **wish) for i in range(2)))
    assert [len(node.pods) for node in plan.new_nodes] == [2]


def test_a_simulation_falls_back_to_other_capacity() -> None:
    world = World(types=(reserved("small", 2, r=1),), reserved_fallback=True)
    plan = world.solve(*(pod(f"w{i}", cpu="1800m", memory="1Mi") for i in range(2)))
    assert sorted(node.capacity_type == "reserved" for node in plan.new_nodes) == [False, True]
    assert (len(plan.new_nodes), len(plan.deferred)) == (2, 0)


@pytest.mark.spec("T-247")
def test_the_count_of_a_reservation_is_kept_to_the_letter() -> None:
    table = InstanceTypeTable([reserved("small", 2, r=1, s=2)], FLAVOUR.well_known)
    kept = ReservationManager([table])
    assert kept.can_reserve("a", "r")
    kept.reserve("a", ["r"])
    kept.reserve("a", ["r"])
    assert kept.can_reserve("a", "r")
    assert not kept.can_reserve("b", "r")
    kept.release("b", ["r"])
    kept.release("a", ["r", "s"])
    assert kept.can_reserve("b", "r")
    assert kept.free == {"r": 1, "s": 2}
    with pytest.raises(KeyError):
        kept.reserve("a", ["unknown"])
    kept.reserve("a", ["r"])
    with pytest.raises(AssertionError):
        kept.reserve("b", ["r"])

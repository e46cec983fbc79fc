"""What a fleet costs, who pays how much of it, and what no fleet for the same pods can undercut."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.labels import CAPACITY_TYPE, INSTANCE_TYPE, NODEPOOL_HASH, NODEPOOL_HASH_VERSION, ZONE
from dovetail.api.pod import Pod
from dovetail.scheduling.fleet_cost import bill_running_nodes, compute_fleet_floor, split_cost
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import nodeclaim, nodepool, owner, pod
from support.worlds import Z1, Z2, World, instance_type, offering, running

ROOM = {"cpu": "3900m", "memory": "8182Mi", "pods": "20"}
WEB = owner("ReplicaSet", "web")


def sold(name: str = "four", price: float = 0.4, cpu: int = 4, available: bool = True) -> InstanceType:
    deals = [offering(zone, "on-demand", price, available) for zone in (Z1, Z2)]
    return instance_type(name, cpu, f"{2 * cpu}Gi", 20, offerings=deals)


def ordered(name: str, *pods: Pod, of: str = "four", zone: str = Z1, **more: Any) -> StateNode:
    claim = nodeclaim(f"claim-{name}", node=name, annotations=more.pop("annotations", None))
    known = {INSTANCE_TYPE: of, ZONE: zone, CAPACITY_TYPE: "on-demand", **more.pop("labels", {})}
    return running(name, *pods, labels=known, claim=claim, **{"capacity": ROOM, "allocatable": ROOM, **more})


def web(name: str, cpu: str = "1", memory: str = "1Gi") -> Pod:
    return pod(name, cpu=cpu, memory=memory, owned_by=WEB)


def planned(name: str, price: float) -> PlannedNode:
    return PlannedNode(
        name=f"for-{name}",
        pool="default",
        requirements=Requirements({}),
        instance_types=("four",),
        pods=(f"default/{name}",),
        requests={},
        price=price,
    )


def test_a_fleet_is_what_was_ordered_and_stays() -> None:
    nodes = [ordered("a"), ordered("b"), ordered("odd", of="none"), running("found")]
    snapshot = World(types=(sold(available=False),), nodes=nodes).snapshot()
    everything, fewer = bill_running_nodes(snapshot), bill_running_nodes(snapshot, without=["b", "odd"])
    assert (everything.total, fewer.total) == pytest.approx((0.8, 0.4))
    assert (everything.unpriced, fewer.unpriced) == (("odd",), ())


def test_pods_share_the_price_of_their_node_by_what_they_request() -> None:
    daemon = pod("agent", cpu="1", owned_by=owner("DaemonSet", "agent"))
    one, other = web("one", "1", "3Gi"), web("other", "3", "1Gi")
    snapshot = World(types=(sold(),), nodes=[ordered("a", one, other, daemon)]).snapshot()
    shares = split_cost(snapshot, Plan())
    # A quarter of the cpu and three of the memory, and the other way round: half each.
    assert shares == pytest.approx({"default/one": 0.2, "default/other": 0.2})


def test_one_resource_that_nobody_requests_does_not_count() -> None:
    one, other = (pod(name, cpu=cpu, memory=None, owned_by=WEB) for name, cpu in (("one", "1"), ("two", "3")))
    snapshot = World(types=(sold(),), nodes=[ordered("a", one, other)]).snapshot()
    assert split_cost(snapshot, Plan()) == pytest.approx({"default/one": 0.1, "default/two": 0.3})


def test_pods_that_request_nothing_pay_alike() -> None:
    pods = [pod(name, cpu=None, memory=None, owned_by=WEB) for name in ("one", "two")]
    snapshot = World(types=(sold(),), nodes=[ordered("a", *pods)]).snapshot()
    assert split_cost(snapshot, Plan()) == pytest.approx({"default/one": 0.2, "default/two": 0.2})


def test_pods_that_join_a_node_pay_there_and_those_of_new_nodes_for_these() -> None:
    here, joins, buys, vain = (web(name) for name in ("here", "joins", "buys", "vain"))
    leaving = ordered("b", web("leaves"))
    nodes = [
        ordered("a", here),
        leaving,
        running("found", web("free")),
        ordered("odd", web("odd"), of="none"),
    ]
    snapshot = World(types=(sold(),), nodes=nodes).snapshot(joins, buys, vain)
    plan = Plan(
        existing={"a": ("default/joins", "default/unheard-of")},
        new_nodes=(planned("buys", 0.7), planned("vain", inf)),
    )
    assert split_cost(snapshot, plan, without={"b"}) == pytest.approx(
        {"default/here": 0.2, "default/joins": 0.2, "default/buys": 0.7}
    )


# The floor


def floor(*nodes: StateNode, types: tuple[InstanceType, ...] = (), waiting: int = 0, **more: Any) -> float:
    world = World(nodepool(limits={"cpu": "2000"}), types=types or (sold(),), nodes=nodes)
    return compute_fleet_floor(world.snapshot(*(web(f"new-{i}", "3500m") for i in range(waiting))), **more)


def test_the_floor_of_a_fleet_that_could_not_be_smaller_is_its_price() -> None:
    nodes = [ordered(name, web(f"web-{name}", "3500m")) for name in ("a", "b")]
    assert floor(*nodes) == pytest.approx(0.8)
    assert floor(*nodes, waiting=1) == pytest.approx(1.2)


def test_an_empty_node_is_not_in_the_floor_and_neither_is_a_pod_left_out() -> None:
    nodes = [ordered("a", web("web", "3500m")), ordered("empty")]
    assert floor(*nodes) == pytest.approx(0.4)
    assert floor(*nodes, waiting=1, left_out={"default/new-0"}) == pytest.approx(0.4)
    assert floor(*nodes, left_out={"default/web"}) == pytest.approx(0.0)


def test_a_node_that_is_being_ended_is_not_there_and_its_pods_are_counted_once() -> None:
    moves = web("web", "3500m")
    ending = replace(ordered("a", moves), marked=True)
    world = World(nodepool(limits={"cpu": "2000"}), types=(sold(),), nodes=[ending])
    assert compute_fleet_floor(replace(world.snapshot(), moving=(moves,))) == pytest.approx(0.4)


@pytest.mark.parametrize(
    "kept",
    [
        pytest.param({"of": "none"}, id="no catalogue has it"),
        pytest.param({"annotations": {NODEPOOL_HASH_VERSION: "v0"}}, id="of another version"),
        pytest.param({"annotations": {NODEPOOL_HASH: "1"}}, id="of another pool as it was"),
    ],
)
def test_a_node_that_cannot_be_had_again_is_there_for_nothing(kept: dict[str, Any]) -> None:
    assert floor(ordered("a", web("web", "3500m"), **kept)) == pytest.approx(0.0)


def test_a_node_that_nobody_ordered_is_there_for_nothing() -> None:
    found = running("found", web("web", "3500m"), capacity=ROOM, allocatable=ROOM)
    assert floor(found) == pytest.approx(0.0)


def test_a_node_outside_of_what_its_pool_asks_for_now_is_there_for_nothing() -> None:
    asks = nodepool(limits={"cpu": "2000"}, requirements=[(ZONE, "In", Z2)])
    world = World(asks, types=(sold(),), nodes=[ordered("a", web("web", "3500m"))])
    assert compute_fleet_floor(world.snapshot()) == pytest.approx(0.0)


def test_an_offering_that_is_sold_out_still_counts_where_it_runs() -> None:
    out, dear = sold(available=False), sold("dear", 9.0)
    kept = ordered("a", web("web", "3500m"))
    assert floor(kept, types=(out, dear)) == pytest.approx(0.4)
    assert floor(types=(out, dear), waiting=1) == pytest.approx(9.0)


def test_a_node_with_more_room_than_its_type_promises_counts_with_what_it_has() -> None:
    larger = {"cpu": "8", "memory": "16Gi", "pods": "20"}
    kept = ordered("a", web("one", "3500m"), web("two", "3500m"), capacity=larger, allocatable=larger)
    assert floor(kept) == pytest.approx(0.4)

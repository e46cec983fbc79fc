"""The order in which pods and places are tried, and when to stop."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.pod import Pod
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.sequential.scheduler import SequentialScheduler, sort_queue
from support.builders import NOW, nodepool, pod
from support.worlds import Z1, Z2, World, instance_type, offering, spread


def names_of(pods: list[Pod]) -> list[str]:
    return [each.name for each in pods]


def test_larger_pods_come_first_then_older_then_by_uid() -> None:
    older = pod("older", cpu="1", memory="1Gi", created=NOW - timedelta(hours=1))
    waiting = [
        pod("small", cpu="100m"),
        pod("b", cpu="1", memory="1Gi"),
        pod("a", cpu="1", memory="1Gi"),
        older,
        pod("wide", cpu="1", memory="2Gi"),
        pod("big", cpu="2", memory="1Mi"),
    ]
    run = SequentialScheduler(World().snapshot(*waiting))
    assert names_of(sort_queue(run.batch, run.shapes)) == ["big", "wide", "older", "a", "b", "small"]
    assert names_of(sort_queue(run.batch, run.shapes, ["default/small"]))[0] == "small"


def test_a_given_order_decides_who_gets_the_last_room() -> None:
    world = World(nodepool(limits={"cpu": "2"}))
    pods = [pod("big", cpu="1800m"), pod("small", cpu="1")]
    snapshot = world.snapshot(*pods)
    assert list(schedule_pods(snapshot).unschedulable) == ["default/small"]
    assert list(schedule_pods(snapshot, order=["default/small"]).unschedulable) == ["default/big"]


def test_when_time_is_up_what_is_placed_is_kept_and_the_rest_is_not_judged() -> None:
    asked = iter([False, False, True])
    snapshot = World().snapshot(*(pod(f"w{i}", cpu="3") for i in range(4)))
    plan = schedule_pods(snapshot, should_stop=lambda: next(asked))
    assert plan.timed_out
    assert (sum(len(node.pods) for node in plan.new_nodes), plan.unschedulable) == (2, {})
    assert len(plan.decisions) == 2


def test_claims_with_the_fewest_pods_are_filled_first() -> None:
    here, there = {names.ZONE: Z1}, {names.ZONE: Z2}
    plan = World().solve(
        pod("a", cpu="1500m", node_selector=here),
        pod("b", cpu="1400m", node_selector=there),
        pod("c", cpu="100m", node_selector=here),
        pod("d", cpu="50m"),
    )
    assert [set(node.pods) for node in plan.new_nodes] == [
        {"default/a", "default/c"},
        {"default/b", "default/d"},
    ]


def test_of_equally_good_domains_the_cheaper_is_taken() -> None:
    types = [
        instance_type("t", offerings=[offering(Z1, "on-demand", 3.0), offering(Z2, "on-demand", 1.0)]),
    ]
    rule = spread(names.ZONE)
    (node,) = (
        World(types=types)
        .solve(pod("web", labels={"app": "web"}, topology_spread_constraints=(rule,)))
        .new_nodes
    )
    assert (node.zone, node.price) == (Z2, 1.0)


@pytest.mark.parametrize("thrifty", [True, False])
def test_a_run_is_not_thrifty_against_its_will(thrifty: bool) -> None:
    types = [instance_type("t", offerings=[offering(Z1, "spot", 3.0), offering(Z2, "spot", 1.0)])]
    rule = spread(names.ZONE)
    waiting = pod("web", labels={"app": "web"}, topology_spread_constraints=(rule,))
    run = SequentialScheduler(World(types=types).snapshot(waiting), thrifty=thrifty)
    run.schedule_all(None, None)
    assert run.new_nodes[0].requirements[names.ZONE].only == (Z2 if thrifty else Z1)
    assert run.chose == thrifty


def test_a_pool_whose_types_could_not_be_listed_stands_aside() -> None:
    world = World(nodepool("known"), nodepool("unknown", weight=100), types={"known": [instance_type("t")]})
    plan = world.solve(pod("web"))
    assert [node.pool for node in plan.new_nodes] == ["known"]
    assert list(plan.pool_problems) == ["unknown"]


def test_pods_of_one_shape_share_what_is_known_of_them() -> None:
    one = pod("one")
    run = SequentialScheduler(World().snapshot(one, replace(one, metadata=replace(one.metadata, name="two"))))
    assert run.shapes.find_shape(run.batch[0]) is run.shapes.find_shape(run.batch[1])

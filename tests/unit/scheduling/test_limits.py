"""Pool limits: how much more a pool may buy."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from support.builders import nodeclaim, nodepool, pod
from support.worlds import World, apart, running

LONELY: dict[str, Any] = {"labels": {"app": "web"}, "affinity": apart(names.HOSTNAME, app="web")}


def owned(name: str, cpu: str, marked: bool = False) -> Any:
    room = {"cpu": cpu, "memory": "1Gi", "pods": "1"}
    claim = nodeclaim(name, capacity=room, node=name)
    return running(name, claim=claim, capacity=room, marked=marked)


@pytest.mark.spec("T-126", "T-132")
@pytest.mark.parametrize("marked", [False, True])
def test_what_a_pool_has_counts_unless_it_is_going(marked: bool) -> None:
    world = World(nodepool(limits={"cpu": "20"}), nodes=[owned("full", "100", marked)])
    plan = world.solve(pod("web", memory="1500Mi"))
    assert len(plan.new_nodes) == (1 if marked else 0)
    told = "all available instance types exceed limits for nodepool (NodePool=default)"
    assert list(plan.unschedulable.values()) == ([] if marked else [told])


@pytest.mark.spec("T-127")
def test_a_limit_holds_over_several_passes() -> None:
    world = World(nodepool(limits={"cpu": "2"}))
    world.provision(pod("too-big", cpu="2100m"))
    world.provision(pod("one", cpu="1750m"))
    world.provision(pod("two", cpu="1750m"))
    assert [world.node_of(name) is not None for name in ("too-big", "one", "two")] == [False, True, False]


@pytest.mark.spec("T-128")
def test_each_new_node_is_charged_as_the_largest_it_may_become() -> None:
    plan = World(nodepool(limits={"cpu": "3"})).solve(
        *(pod(f"web-{i}", cpu="1500m", **LONELY) for i in range(2))
    )
    assert (len(plan.new_nodes), len(plan.unschedulable)) == (1, 1)


@pytest.mark.spec("T-129")
def test_limits_are_on_what_a_type_has_not_on_what_pods_use() -> None:
    plan = World(nodepool(limits={"pods": "1"})).solve(pod("web", requests={"fake.com/vendor-a": "1"}))
    assert not plan.new_nodes


@pytest.mark.spec("T-130")
def test_nodes_are_counted_between_passes() -> None:
    world = World(nodepool(limits={"nodes": "2"}))
    for i in range(3):
        world.provision(pod(f"web-{i}", **LONELY))
    assert [world.node_of(f"web-{i}") is not None for i in range(3)] == [True, True, False]
    (told,) = world.plan.unschedulable.values()
    assert told == "node limits have been exhausted for nodepool (NodePool=default)"


@pytest.mark.spec("T-131")
def test_the_next_pool_steps_in_when_one_is_full() -> None:
    world = World(nodepool("heavy", weight=100, limits={"cpu": "0"}), nodepool("light"))
    world.provision(pod("web"))
    assert world.labels_of("web")[names.NODEPOOL] == "light"

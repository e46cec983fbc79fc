"""Near misses: the place a pod would have, and the one thing in its way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.labels import ZONE
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.scheduling.explain import MOST_SHAPES, NearMiss, find_near_misses
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    build_pools_and_catalogs,
)
from dovetail.scheduling.postprocess import apply_plan
from dovetail.scheduling.solve import QUICK, solve
from support.builders import NOW, nodepool, pod, taint
from support.worlds import FLAVOUR, Z1, apart, near, running, series, spread

HOST = "kubernetes.io/hostname"


def world(
    pods: Sequence[Pod], pools: Sequence[NodePool] | None = None, states: Sequence[StateNode] = ()
) -> Snapshot:
    listed, catalogs = build_pools_and_catalogs((each, series(8)) for each in pools or (nodepool(),))
    options = SchedulingOptions(now=NOW, flavour=FLAVOUR)
    return Snapshot(pools=listed, catalogs=catalogs, pods=tuple(pods), nodes=tuple(states), options=options)


def misses(snapshot: Snapshot) -> dict[str, NearMiss]:
    return find_near_misses(snapshot, solve(snapshot, QUICK))


def told(snapshot: Snapshot, name: str = "default/pod") -> str:
    return str(misses(snapshot)[name])


@pytest.mark.parametrize(
    ("pool", "wanting", "said"),
    [
        (
            {"taints": [taint("team", value="a")]},
            {},
            "fake-it-1 in test-zone-1 but for taint team=a:NoSchedule",
        ),
        ({}, {"node_selector": {"disk": "nvme"}}, "but for its node selector: disk In [nvme]"),
        ({}, {"cpu": "50"}, "but for cpu: it requests 50, and the most there is is 7900m (fake-it-7)"),
        (
            {},
            {"requests": {"x.io/gpu": "1"}},
            "but for x.io/gpu: it requests 1, and no instance type has any",
        ),
        ({"limits": {"cpu": "1"}}, {"cpu": "2"}, "but for the limits of pool default (cpu 1)"),
        ({}, {"affinity": near(ZONE, app="nobody")}, "but for the pods it wants to be near"),
        (
            {"taints": [taint("team")]},
            {"node_selector": {"disk": "nvme"}},
            "but for taint team:NoSchedule and its node selector: disk In [nvme]",
        ),
    ],
)
def test_the_one_thing_in_the_way_is_named(pool: dict[str, Any], wanting: dict[str, Any], said: str) -> None:
    assert told(world([pod(**wanting)], [nodepool(**pool)])).endswith(said)


def test_what_the_plan_places_is_in_the_way_of_others() -> None:
    alone = apart(ZONE, app="x")
    crowd = [pod(f"p-{i}", labels={"app": "x"}, affinity=alone) for i in range(4)]
    found = misses(world(crowd))
    assert len(found) == 3, "one zone is certain after one pod, so that one pod is all a pass can place"
    assert "but for the pods it must keep away from" in str(next(iter(found.values())))


def test_a_pod_with_a_place_has_no_near_miss() -> None:
    assert misses(world([pod()])) == {}


def test_pods_of_one_shape_share_what_is_said() -> None:
    found = misses(world([pod(f"p-{i}", cpu="50") for i in range(500)]))
    assert len(found) == 500
    assert len(set(map(str, found.values()))) == 1


def test_very_many_shapes_are_told_the_reasons_alone() -> None:
    found = misses(world([pod(f"p-{i}", cpu=str(50 + i)) for i in range(MOST_SHAPES + 50)]))
    assert len(found) == MOST_SHAPES


def test_a_running_node_is_named_when_only_its_taint_keeps_the_pod_away() -> None:
    state = running("n", labels={ZONE: Z1}, taints=[taint("busy")])
    useless = nodepool(requirements=[("node.kubernetes.io/instance-type", "In", "none")])
    found = told(world([pod(cpu="100m")], [useless], [state]))
    assert found == "would fit node n but for taint busy:NoSchedule"


def test_a_plan_that_came_true_leaves_its_pods_running_and_nothing_to_do() -> None:
    waiting = [
        pod(f"p-{i}", labels={"app": "web"}, topology_spread_constraints=(spread(ZONE),)) for i in range(9)
    ]
    before = world([*waiting, pod("never", cpu="50")])
    plan = solve(before, QUICK)
    after = apply_plan(before, plan)
    assert [each.full_name for each in after.pods] == ["default/never"]
    assert {each.full_name for state in after.nodes for each in state.pods} == {
        each.full_name for each in waiting
    }
    assert all(each.node_name == state_node.read_name(state) for state in after.nodes for each in state.pods)
    assert solve(replace(after, pods=()), QUICK).new_nodes == ()


def test_limits_are_charged_for_nodes_that_came_true() -> None:
    pool = nodepool(limits={"nodes": 1})
    before = world([pod("a", affinity=apart(HOST, app="x"), labels={"app": "x"})], [pool])
    after = apply_plan(before, solve(before, QUICK))
    more = solve(replace(after, pods=(pod("b", cpu="7"),)), QUICK)
    assert list(more.unschedulable) == ["default/b"]

"""Pods on nodes that run or are coming, before any new node is thought of."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.core import Taint
from dovetail.api.meta import Condition
from dovetail.api.pod import Toleration
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, nodeclaim, nodepool, pod, taint
from support.worlds import Z1, Z2, Z3, World, instance_type, node_affinity, running

ZONE = names.ZONE


@pytest.mark.spec("T-150")
@pytest.mark.parametrize("bind", [True, False])
def test_a_second_pod_joins_the_node_that_was_just_launched(bind: bool) -> None:
    world = World()
    world.provision(pod("one", cpu="10m", memory="10M"), bind=bind)
    plan = world.provision(pod("two", cpu="10m", memory="10M"))
    assert not plan.new_nodes
    assert len(world.nodes) == 1


@pytest.mark.spec("T-151")
def test_a_coming_node_takes_pods_its_zone_suits() -> None:
    world = World()
    for name, zones in (("one", (Z2,)), ("two", (Z1, Z2)), ("three", (Z1, Z3))):
        affinity = node_affinity([(ZONE, "In", *zones)])
        world.provision(pod(name, cpu="10m", memory="10M", affinity=affinity))
    assert world.node_of("one") == world.node_of("two")
    assert world.node_of("three") != world.node_of("one")


@pytest.mark.spec("T-152", "T-153", "T-154")
@pytest.mark.parametrize("why", ["no room", "another arch", "deleted"])
def test_a_coming_node_that_will_not_do_is_not_used(why: str) -> None:
    world = World()
    world.provision(pod("one", cpu="1001m"))
    if why == "deleted":
        world.nodes.clear()
    second = {
        "no room": pod("two", cpu="1"),
        "another arch": pod("two", cpu="10m", node_selector={names.ARCH: "arm64"}),
        "deleted": pod("two", cpu="10m"),
    }[why]
    assert len(world.provision(second).new_nodes) == 1


@pytest.mark.spec("T-155")
def test_a_node_nobody_manages_is_filled_up() -> None:
    node = running("own", capacity={"cpu": "10", "memory": "100Gi", "pods": "110"})
    plan = World(nodes=[node]).solve(*(pod(f"w{i}", cpu="10m", memory="1Mi") for i in range(100)))
    assert len(plan.existing["own"]) == 100
    assert not plan.new_nodes


@pytest.mark.spec("T-156")
@pytest.mark.parametrize("joined", [True, False])
def test_initialised_nodes_are_filled_first(joined: bool) -> None:
    def coming(i: int) -> StateNode:
        claim = nodeclaim(f"a-{i:03d}", true=("Launched", "Registered"), node=f"a-{i:03d}")
        there = running(f"a-{i:03d}", claim=claim, initialized=False)
        return there if joined else replace(there, node=None)

    ready = running("z", claim=nodeclaim("z", node="z"))
    plan = World(nodes=[*(coming(i) for i in range(100)), ready]).solve(pod("web"))
    assert list(plan.existing) == ["z"]


@pytest.mark.spec("T-157")
@pytest.mark.parametrize("pool", [True, False])
def test_a_node_without_the_label_does_not_have_it(pool: bool) -> None:
    bare = running("own", labels={}, zone="")
    assert bare.node is not None
    labels = {key: value for key, value in bare.node.labels.items() if key != ZONE}
    bare = replace(bare, node=replace(bare.node, metadata=replace(bare.node.metadata, labels=labels)))
    world = World(nodepool(ready=pool), nodes=[bare])
    plan = world.solve(pod("web", node_selector={ZONE: Z1}))
    assert not plan.existing
    assert len(plan.new_nodes) == (1 if pool else 0)


@pytest.mark.spec("T-158")
def test_what_the_kubelet_has_not_reported_yet_is_taken_from_the_claim() -> None:
    room = {"cpu": "4", "memory": "8Gi", "pods": "110", "fake.com/vendor-a": "2"}
    claim = nodeclaim("n", true=("Launched", "Registered"), node="n", capacity=room)
    zeroed = room | {"fake.com/vendor-a": "0"}
    node = running("n", claim=claim, initialized=False, capacity=zeroed)
    plan = World(nodes=[node]).solve(pod("web", requests={"fake.com/vendor-a": "1"}))
    assert list(plan.existing) == ["n"]


@pytest.mark.spec("T-159")
def test_batches_leave_at_most_one_node_with_room() -> None:
    rng = random.Random(7)
    world = World(types=[instance_type("four", 5, "8Gi", 4)])
    for batch in range(10):
        count = rng.randint(1, 10)
        world.provision(*(pod(f"w-{batch}-{i}", cpu="1", memory="1Mi") for i in range(count)))
    assert sum(1 for state in world.nodes if len(state.pods) < 4) <= 1


@pytest.mark.spec("T-160")
def test_a_node_that_goes_takes_nobody_and_its_pods_move_with_the_new_ones() -> None:
    leaving = running("old", pod("moving", cpu="10m", node="old"), marked=True)
    plan = World(nodes=[leaving]).solve(pod("web", cpu="10m"))
    assert not plan.existing
    (node,) = plan.new_nodes
    assert set(node.pods) == {"default/web", "default/moving"}


@pytest.mark.spec("T-161")
@pytest.mark.parametrize(
    ("who", "age", "taken"),
    [
        ("candidate", 30, False),
        ("candidate", 90, True),
        ("pending", 30, True),
        ("of a node that goes", 30, True),
    ],
)
def test_a_young_node_takes_no_pods_that_only_move_to_save_money(who: str, age: int, taken: bool) -> None:
    claim = nodeclaim("young", node="young")
    since = NOW - timedelta(seconds=age)
    claim = replace(claim, status=replace(claim.status, last_pod_event_time=since))
    states = [running("young", claim=claim)]
    world = World(nodepool(consolidate_after="1m", limits={"cpu": "0"}), nodes=states, consolidating=True)
    waiting: list[Any] = []
    if who == "candidate":
        world.more["moving"] = (pod("web", node="elsewhere"),)
    elif who == "pending":
        waiting = [pod("web")]
    else:
        world.nodes.append(running("old", pod("web", node="old"), marked=True))
    plan = world.solve(*waiting)
    assert (plan.existing == {"young": ("default/web",)}) == taken


# Taints


TOLERATIONS = {
    "exact": Toleration(key="k", operator="Equal", value="v", effect="NoSchedule"),
    "any value": Toleration(key="k", operator="Exists", effect="NoSchedule"),
    "any effect": Toleration(key="k", operator="Exists"),
    "everything": Toleration(operator="Exists"),
    "nothing": None,
    "wrong key": Toleration(key="other", operator="Exists"),
    "wrong value": Toleration(key="k", operator="Equal", value="w", effect="NoSchedule"),
}


@pytest.mark.spec("T-162", "T-163")
@pytest.mark.parametrize(
    ("kind", "placed"),
    [(kind, kind in ("exact", "any value", "any effect", "everything")) for kind in TOLERATIONS],
)
def test_a_pools_taint_must_be_tolerated(kind: str, placed: bool) -> None:
    toleration = TOLERATIONS[kind]
    world = World(nodepool(taints=[taint("k", value="v")]))
    wanting = pod("web", tolerations=(toleration,) if toleration else ())
    plan = world.solve(wanting)
    assert len(plan.new_nodes) == (1 if placed else 0)
    if not placed:
        assert plan.unschedulable["default/web"] == "did not tolerate taint (taint=k=v:NoSchedule)"


@pytest.mark.spec("T-164", "T-165")
def test_startup_taints_keep_nobody_away_and_tolerations_make_no_taints() -> None:
    world = World(nodepool(startup_taints=[taint("starting")]))
    world.provision(pod("web", tolerations=(Toleration(key="x", operator="Exists", effect="NoExecute"),)))
    state = world.node_of("web")
    assert state is not None
    assert state.node is not None
    assert [each.key for each in state.node.spec.taints] == ["starting"]


NOT_READY = taint("node.kubernetes.io/not-ready", "NoExecute")
STARTING = taint("starting")
CUSTOM = taint("custom")


@pytest.mark.spec("T-166", "T-167", "T-168")
@pytest.mark.parametrize("initialized", [True, False])
@pytest.mark.parametrize("there", [NOT_READY, STARTING, CUSTOM, taint("readiness.k8s.io/gpu")])
def test_passing_taints_are_overlooked_until_a_node_is_initialised(there: Taint, initialized: bool) -> None:
    claim = nodeclaim("n", node="n", startup_taints=[STARTING])
    state = running("n", claim=claim, taints=[there], initialized=initialized)
    plan = World(nodes=[state]).solve(pod("web"))
    assert (list(plan.existing) == ["n"]) == (not initialized and there != CUSTOM)


@pytest.mark.spec("T-169")
@pytest.mark.parametrize(
    "there",
    [
        NOT_READY,
        taint("node.kubernetes.io/not-ready"),
        taint("node.kubernetes.io/unreachable"),
        taint("node.cloudprovider.kubernetes.io/uninitialized"),
    ],
)
def test_on_a_node_nobody_manages_every_taint_counts(there: Taint) -> None:
    plan = World(nodes=[running("own", taints=[there])]).solve(pod("web"))
    assert not plan.existing


# What a node and its claim amount to


@pytest.mark.spec("T-253")
def test_a_node_goes_when_its_claim_does_and_one_without_a_claim_by_itself() -> None:
    gone, terminating = nodeclaim(deleted=NOW), nodeclaim()
    going = Condition(type="InstanceTerminating", status="True")
    terminating = replace(terminating, status=replace(terminating.status, conditions=(going,)))
    assert state_node.is_deleting(running("n", claim=gone))
    assert state_node.is_deleting(running("n", claim=terminating))
    assert state_node.is_deleting(running("n", deleted=NOW))
    assert state_node.is_deleting(running("n", marked=True))
    assert not state_node.is_deleting(running("n", claim=nodeclaim(), deleted=NOW))


@pytest.mark.spec("T-260")
@pytest.mark.parametrize("stage", ["claim alone", "not initialised", "running"])
def test_every_node_counts_as_one_at_every_stage(stage: str) -> None:
    state = running("n", claim=nodeclaim(node="n"), initialized=stage == "running")
    state = replace(state, node=None) if stage == "claim alone" else state
    assert state_node.read_capacity(state)[names.NODES] == 1_000_000_000
    assert state_node.read_capacity(state)["cpu"] == 4_000_000_000

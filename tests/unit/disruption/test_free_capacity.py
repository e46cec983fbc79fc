"""Free capacity: what resources alone can settle, and what they must leave to the scheduler."""

from __future__ import annotations

from typing import Any

from dovetail.api.pod import Pod
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.drift import choose_drift
from dovetail.disruption.simulation.simulate import build_remaining_input
from dovetail.scheduling.model import state_node as views
from support.builders import NOW, owner, pod
from support.disruption import pool, scene, state


def light(name: str, on: str, cpu: str, **about: Any) -> Pod:
    return pod(name, cpu=cpu, memory="10Mi", node=on, owned_by=owner("ReplicaSet"), **about)


def world(**about: Any) -> DisruptionInput:
    """One node to go, one that is full, one with room and one on its way out."""
    return scene(
        state("a", light("p", "a", "2", **about)),
        state("full", light("f", "full", "15")),
        state("roomy", light("r", "roomy", "1")),
        state("leaving", light("l", "leaving", "15"), marked=True),
    )


def test_pods_that_fit_nowhere_are_added_up() -> None:
    room = world().free_capacity
    big, small = light("big", "a", "15500m"), light("small", "a", "1")
    assert room.sum_unplaceable([small], {"kwok://a"}) is None
    homeless = room.sum_unplaceable([big, small], {"kwok://a"})
    assert homeless is not None
    assert homeless["cpu"] == 15_500_000_000
    assert room.find_cheapest_price(homeless) == 8.0
    assert room.find_cheapest_price({"cpu": 10**12}) is None


def test_commands_are_kept_apart_only_where_they_can_be() -> None:
    nodes = [state(n, light(f"p-{n}", n, "9"), drifted=NOW) for n in "abc"]
    (first, *others) = choose_drift(scene(*nodes), at_once=3).commands
    assert len(others) == 2
    left = build_remaining_input(scene(*nodes), first)
    assert left is not None
    assert sorted(views.read_name(each) for each in left.snapshot.nodes) == ["b", "c"]
    limited = scene(*nodes, pools=[pool(limits={"cpu": "100"})])
    assert build_remaining_input(limited, first) is None

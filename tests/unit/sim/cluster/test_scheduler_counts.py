"""Counts that are kept equal counts that are made: after any coming and going of nodes and pods."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from dovetail.sim.cluster.scheduler import KubeScheduler
from dovetail.sim.cluster.scheduler.topology_counts import SimTopologyCounts
from dovetail.sim.world import World
from support.cluster import HOST, REQUIRED, ZONE, cluster, in_virtual_time, pod


def choosy(name: str, chance: random.Random) -> dict[str, Any]:
    term = {
        "topologyKey": chance.choice([HOST, ZONE]),
        "labelSelector": {"matchLabels": {"app": chance.choice("xy")}},
    }
    spread = {**term, "maxSkew": 2, "whenUnsatisfiable": chance.choice(["DoNotSchedule", "ScheduleAnyway"])}
    some = chance.choice(["podAffinity", "podAntiAffinity"])
    extra: dict[str, Any] = chance.choice([{}, {"affinity": {some: {REQUIRED: [term]}}}])
    labels = {"app": chance.choice("xyz"), "pod-template-hash": chance.choice("12")}
    return pod(name, {"cpu": "100m"}, labels=labels, topologySpreadConstraints=[spread], **extra)


def scheduler_of(world: World) -> KubeScheduler:
    found = world.neighbours["default-scheduler"]
    assert isinstance(found, KubeScheduler)
    return found


def check(scheduler: KubeScheduler) -> int:
    """Compare with counts made from the board as it is; how many were compared."""
    fresh = SimTopologyCounts(scheduler.node_table, scheduler._select_namespaces)
    fresh.forget()
    kept = dict(scheduler.counts._tallies)
    for term, counts in kept.values():
        if len(counts) == scheduler.node_table.rows:
            assert np.array_equal(counts, fresh.count_pods(term)), term.key
    averse = {key: values for key, (_, _, values) in scheduler.counts._averse.items()}
    assert averse == {key: values for key, (_, _, values) in fresh._averse.items()}
    for node in scheduler.node_table.nodes.values():
        free = scheduler.node_table.used[node.row, 0]
        assert free == len(node.pods)
    return len(kept)


@pytest.mark.parametrize("seed", range(5))
def test_kept_counts_equal_fresh_ones(seed: int) -> None:
    @in_virtual_time
    async def story() -> None:
        chance, compared = random.Random(seed), 0
        async with cluster(4) as world:
            for number in range(60):
                await step(world, number, chance)
                compared += check(scheduler_of(world))
        assert compared > 100

    story()


async def step(world: World, number: int, chance: random.Random) -> None:
    act, nodes, pods = chance.random(), world.api.list("nodes"), world.api.list("pods")
    if act < 0.5:
        world.api.create("pods", choosy(f"p{number}", chance))
    elif act < 0.65 and pods:
        world.api.delete("pods", chance.choice(pods)["metadata"]["name"], "default")
    elif act < 0.75:
        world.add_node(f"n{number}", {ZONE: f"zone-{chance.randrange(3)}"})
    elif act < 0.82 and len(nodes) > 1:
        world.api.delete("nodes", chance.choice(nodes)["metadata"]["name"])
    elif act < 0.92:
        patch = {"metadata": {"labels": {ZONE: f"zone-{chance.randrange(3)}"}}}
        world.api.patch("nodes", chance.choice(nodes)["metadata"]["name"], patch)
    elif pods:
        patch = {"metadata": {"labels": {"app": chance.choice("xyz")}}}
        world.api.patch("pods", chance.choice(pods)["metadata"]["name"], patch, "default")
    await world.settle(chance.choice([0.1, 2, 30]))

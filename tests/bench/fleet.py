"""A large cluster made of records: many workloads with the rules people write, on nodes that are well filled.

Pods of one workload share spec and labels, as they do when they come over the wire.
"""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.labels import AWS
from dovetail.api.meta import LabelSelector
from dovetail.api.pod import Pod
from dovetail.disruption.inputs import DisruptionInput
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    build_pools_and_catalogs,
)
from support.builders import NOW, owner, pod, requirement
from support.disruption import pool, state
from support.peer_workloads import catalogue
from support.worlds import apart, node_affinity, spread

ZONES = ("us-east-1a", "us-east-1b", "us-east-1c")
SIZES = ("m6a.xlarge", "c6a.xlarge", "r6a.xlarge", "m6a.xlarge", "c6a.2xlarge")
MILLICPU = (100, 200, 250, 400, 500, 1000)
MEBIBYTES = (128, 256, 512, 1024, 2048)


def workloads(chance: Random, count: int) -> list[Pod]:
    """One pod of each: four in ten are spread over zones, one in ten keeps its pods on different nodes."""
    return [_workload(chance, f"app-{number:04d}") for number in range(count)]


def _workload(chance: Random, name: str) -> Pod:
    about: dict[str, Any] = {}
    match chance.randrange(10):
        case 0 | 1 | 2 | 3:
            mine = LabelSelector(match_labels={"app": name})
            about["topology_spread_constraints"] = (spread(labels.ZONE, soft=True, selector=mine),)
        case 4:
            about["affinity"] = apart(labels.HOSTNAME, app=name)
        case 5:
            about["affinity"] = node_affinity(preferred=[(1, [(labels.ZONE, "In", chance.choice(ZONES))])])
        case _:
            pass
    cpu, memory = f"{chance.choice(MILLICPU)}m", f"{chance.choice(MEBIBYTES)}Mi"
    return pod(
        name, cpu=cpu, memory=memory, labels={"app": name}, owned_by=owner("ReplicaSet", name), **about
    )


def running(chance: Random, number: int, every: list[Pod], types: dict[str, InstanceType]) -> StateNode:
    """A node filled until four workloads in a row would not fit, none of them twice."""
    of, name = types[chance.choice(SIZES)], f"node-{number:05d}"
    room = {key: amount.nano for key, amount in of.allocatable().items()}
    mine: dict[str, Pod] = {}
    missed = 0
    while missed < 4:
        each = chance.choice(every)
        asked = each.spec.containers[0].resources.requests
        if each.name in mine or any(asked[key].nano > room[key] for key in asked):
            missed += 1
            continue
        for key in asked:
            room[key] -= asked[key].nano
        own = f"{each.name}-{number:05d}"
        mine[each.name] = replace(
            each, metadata=replace(each.metadata, name=own, uid=own), node_name=name, status=_RUNNING
        )
    return state(name, *mine.values(), of=of, zone=chance.choice(ZONES))


_RUNNING = pod("any", node="any").status


def fleet(nodes: int = 5_000, pods: int = 50_000, seed: int = 1) -> DisruptionInput:
    """This many nodes with at most this many pods; the same every time."""
    chance, types = Random(seed), {each.name: each for each in catalogue()}
    every = workloads(chance, max(20, nodes // 5))
    states = [running(chance, number, every, types) for number in range(nodes)]
    count = sum(len(each.pods) for each in states)
    assert count >= pods, count
    for i, each in enumerate(states):
        states[i] = replace(each, pods=each.pods[: len(each.pods) * pods // count + 1])
    # Only what is running can be bought, so that a node is seldom better replaced than kept.
    kinds = ((labels.CAPACITY_TYPE, ("on-demand",)), (labels.INSTANCE_TYPE, tuple(sorted(set(SIZES)))))
    offers = [(pool(requirements=[requirement(key, "In", *names) for key, names in kinds]), catalogue())]
    made, catalogs = build_pools_and_catalogs(offers)
    options = SchedulingOptions(now=NOW, flavour=AWS)
    return DisruptionInput(
        Snapshot(
            pools=made, catalogs=catalogs, nodes=tuple(states), namespaces={"default": {}}, options=options
        )
    )

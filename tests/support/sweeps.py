"""Random worlds full of rules, and random changes to them, for what disruption must get right at any size.

A world is made of parts that keep their identity from one change to the next, as the cluster's belief does:
a node nobody touched is the very same record.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod, Toleration
from dovetail.disruption.inputs import DisruptionInput
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import owner, pod, requirement, taint
from support.disruption import pool, scene, state
from support.worlds import FIVE, Z1, Z2, Z3, apart, instance_type, near, node_affinity, offering, spread

__all__ = ["changed", "random_pod", "random_state", "random_world", "where"]

RS = owner("ReplicaSet")
ZONES = (Z1, Z2, Z3)
APPS = ("web", "api", "db")
TYPES = tuple(
    instance_type(
        f"m-{cpu}",
        cpu,
        f"{cpu * 4}Gi",
        20,
        offerings=[offering(z, k, cpu * (0.1 if k == "spot" else 0.25)) for z, k in FIVE],
    )
    for cpu in (2, 4, 8, 16)
)


def random_pod(chance: Random, name: str, on: str = "") -> Pod:
    """A pod with one of many kinds of wish, or none."""
    app = chance.choice(APPS)
    about: dict[str, Any] = {"labels": {"app": app}}
    match chance.randrange(14):
        case 0:
            about["topology_spread_constraints"] = (
                spread(labels.ZONE, chance.choice((1, 2)), chance.random() < 0.3),
            )
        case 1:
            about["topology_spread_constraints"] = (spread(labels.HOSTNAME, chance.choice((1, 3))),)
        case 2:
            about["affinity"] = apart(labels.HOSTNAME, chance.random() < 0.3, app=app)
        case 3:
            about["affinity"] = near(
                chance.choice((labels.ZONE, labels.HOSTNAME)), chance.random() < 0.3, app=app
            )
        case 4:
            about["node_selector"] = {labels.ZONE: chance.choice(ZONES)}
        case 5:
            about["affinity"] = node_affinity(preferred=[(10, [(labels.ZONE, "In", chance.choice(ZONES))])])
        case 6:
            about["host_ports"] = (chance.choice((80, 443)),)
        case 7:
            about["affinity"] = apart(labels.ZONE, app=chance.choice(APPS))
        case 8:
            about["tolerations"] = (Toleration(key="odd", operator="Exists"),)
        case _:
            pass
    cpu = chance.choice((100, 250, 500, 1000, 1900))
    return pod(name, cpu=f"{cpu}m", memory="100Mi", node=on, owned_by=RS, **about)


def random_state(chance: Random, name: str, pools: Sequence[str]) -> StateNode:
    of = chance.choice(TYPES)
    zone, kind = chance.choice(FIVE)
    room, mine = float(of.capacity["cpu"].value) - 0.2, []
    for i in range(chance.randrange(6)):
        each = random_pod(chance, f"{name}-{i}", name)
        room -= each.spec.containers[0].resources.requests["cpu"].nano / 1e9
        if room < 0:
            break
        mine.append(each)
    made = state(
        name,
        *mine,
        of=of,
        kind=kind,
        zone=zone,
        pool=chance.choice(pools),
        nominated=chance.random() < 0.05,
        marked=chance.random() < 0.05,
        initialized=chance.random() < 0.95,
    )
    if chance.random() < 0.1:
        assert made.node is not None
        node = replace(made.node, spec=replace(made.node.spec, taints=(taint("odd"),)))
        made = replace(made, node=node)
    return made


def random_world(seed: int, most: int = 9) -> DisruptionInput:
    chance = Random(seed)
    pools = [_pool(chance, name) for name in chance.choice((("default",), ("x", "y")))]
    names = [each.name for each in pools]
    states = [random_state(chance, f"n{i}", names) for i in range(chance.randrange(2, most))]
    waiting = [random_pod(chance, f"w{i}") for i in range(chance.choice((0, 0, 0, 1, 2)))]
    return scene(*states, pools=pools, types=TYPES, pending=waiting, spot_to_spot=chance.random() < 0.5)


def _pool(chance: Random, name: str) -> NodePool:
    kinds = chance.choice((("spot", "on-demand"), ("on-demand",)))
    about: dict[str, Any] = {"requirements": [requirement(labels.CAPACITY_TYPE, "In", *kinds)]}
    if chance.random() < 0.2:
        about["limits"] = {"cpu": str(chance.choice((8, 40, 200)))}
    if chance.random() < 0.2:
        about["consolidate_after"] = "30s"
    return pool(name, **about)


def changed(world: DisruptionInput, chance: Random) -> DisruptionInput:
    """The same world after one thing happened; some of its nodes may be told of anew as well."""
    told = _happened(world, chance)
    states = tuple(_again(each, chance) for each in told.snapshot.nodes)
    return _with(told, replace(told.snapshot, nodes=states))


def _again(each: StateNode, chance: Random) -> StateNode:
    """Now and then the same node as another record, or with a word that is no news to anybody."""
    match chance.randrange(24):
        case 0:
            copied: StateNode = pickle.loads(pickle.dumps(each))
            return copied
        case 1 if each.node is not None:
            beat = replace(each.node.metadata, resource_version=str(chance.randrange(10**6)))
            return replace(each, node=replace(each.node, metadata=beat))
        case 2 if each.pods:
            *others, last = each.pods
            ready = replace(last.metadata, resource_version=str(chance.randrange(10**6)))
            return replace(each, pods=(*others, replace(last, metadata=ready)))
        case _:
            return each


def _happened(world: DisruptionInput, chance: Random) -> DisruptionInput:
    snapshot = world.snapshot
    states, names = list(snapshot.nodes), [each.name for each in snapshot.pools]
    i = chance.randrange(len(states))
    match chance.randrange(9):
        case 0:
            states[i] = replace(states[i], pods=states[i].pods[1:])
        case 1:
            here = states[i]
            more = random_pod(chance, f"more-{chance.randrange(10**6)}", views.read_name(here))
            states[i] = replace(here, pods=(*here.pods, more))
        case 2 if len(states) > 1:
            del states[i]
        case 3:
            states.append(random_state(chance, f"new-{chance.randrange(10**6)}", names))
        case 4:
            states[i] = replace(states[i], marked=not states[i].marked)
        case 5:
            waiting = (*snapshot.pods, random_pod(chance, f"late-{chance.randrange(10**6)}"))
            return _with(world, replace(snapshot, pods=waiting[-2:]))
        case 6 if states[i].pods:
            *others, last = states[i].pods
            about = {"app": chance.choice(APPS)}
            states[i] = replace(states[i], pods=(*others, replace(last, metadata=_labelled(last, about))))
        case 7 if states[i].pods:
            *others, last = states[i].pods
            done = replace(last.status, phase="Succeeded")
            states[i] = replace(states[i], pods=(*others, replace(last, status=done)))
        case _:
            states[i] = replace(states[i], nominated=not states[i].nominated)
    return _with(world, replace(snapshot, nodes=tuple(states)))


def _labelled(of: Pod, own: dict[str, str]) -> ObjectMeta:
    return replace(of.metadata, labels=own)


def _with(world: DisruptionInput, snapshot: Any) -> DisruptionInput:
    return DisruptionInput(snapshot, world.queued, world.buffered, world.spot_to_spot)


def where(shared: str, items: Sequence[int]) -> list[tuple[str, int, int]]:
    """Each item with the process that looked at it."""
    return [(shared, item, os.getpid()) for item in items]

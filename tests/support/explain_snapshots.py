"""Snapshots for asking why: many nodes that are nearly full, and a pod that fits nowhere."""

from __future__ import annotations

from collections.abc import Sequence

from dovetail.api.labels import KWOK
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.providers.kwok.catalog import read_instance_types
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    build_pools_and_catalogs,
)
from support.builders import NOW, node, nodeclaim, nodepool, pod

PODS_EACH = 3


def full_node(number: int, pods: int = PODS_EACH) -> StateNode:
    """A node of 4 cores, most of them taken."""
    name, size = f"node-{number:04d}", {"cpu": "4", "memory": "16Gi", "pods": "110"}
    return StateNode(
        node=node(name, capacity=size),
        claim=nodeclaim(f"claim-{number:04d}", node=name, capacity=size, expire_after="720h"),
        pods=tuple(pod(f"web-{number:04d}-{each}", node=name) for each in range(pods)),
    )


def world(
    nodes: int | Sequence[StateNode] = 3,
    pods: Sequence[Pod] = (),
    pools: Sequence[NodePool] | None = None,
    **more: object,
) -> Snapshot:
    """Some full nodes, the pods that wait, and pools that buy simulated nodes."""
    types = read_instance_types()
    listed, catalogs = build_pools_and_catalogs((each, types) for each in (pools or [nodepool()]))
    return Snapshot(
        pools=listed,
        catalogs=catalogs,
        nodes=tuple(full_node(number) for number in range(nodes)) if isinstance(nodes, int) else tuple(nodes),
        pods=tuple(pods),
        options=SchedulingOptions(now=NOW, flavour=KWOK),
        **more,  # type: ignore[arg-type]
    )

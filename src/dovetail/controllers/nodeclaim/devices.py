"""Devices a claim's pods asked for: whether their drivers have published what the Node has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import Cache, Trigger, on
from dovetail.controllers.owning import BY_PROVIDER_ID
from dovetail.scheduling.device_records import ResourceSlice

__all__ = ["SLICES_BY_NODE", "driver_missing", "nodes_of_slice", "slices_wake"]

SLICES_BY_NODE = "node"


def nodes_of_slice(published: ResourceSlice) -> tuple[str, ...]:
    """The Nodes a slice speaks of: the one it names, and those that own it."""
    owners = (o.name for o in published.metadata.owner_references if o.kind == "Node")
    return tuple({name for name in (published.spec.node_name, *owners) if name})


def driver_missing(claim: NodeClaim, node: Node, slices: Cache[ResourceSlice]) -> str:
    """A driver the claim needs that has no complete pool for the Node; empty when all have."""
    wanted = [d for d in claim.annotations.get(labels.REQUESTED_DRA_DRIVERS, "").split(",") if d]
    if not wanted:
        return ""
    done = _complete(slices.by(SLICES_BY_NODE, node.name))
    return next((driver for driver in wanted if driver not in done), "")


def _complete(slices: Iterable[ResourceSlice]) -> set[str]:
    """Drivers with a pool of which every slice of the newest generation is there."""
    pools: dict[tuple[str, str], list[ResourceSlice]] = defaultdict(list)
    for each in slices:
        pools[each.spec.driver, each.spec.pool.name].append(each)
    done = set()
    for (driver, _), published in pools.items():
        newest = max(each.spec.pool.generation for each in published)
        current = [each for each in published if each.spec.pool.generation == newest]
        declared = current[0].spec.pool.resource_slice_count
        if declared > 0 and declared == len(current):
            done.add(driver)
    return done


def slices_wake(nodes: Cache[Node], claims: Cache[NodeClaim]) -> Trigger:
    """What is published for a Node wakes its claim."""

    def keys(published: ResourceSlice) -> list[str]:
        found = (nodes.get(name) for name in nodes_of_slice(published))
        ids = (node.spec.provider_id for node in found if node is not None)
        return [claim.name for each in ids if each for claim in claims.by(BY_PROVIDER_ID, each)]

    return on(ResourceSlice, keys)

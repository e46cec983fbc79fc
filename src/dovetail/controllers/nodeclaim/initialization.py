"""Initialization: the Node is ready, its startup taints are gone, its resources are there."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from msgspec.structs import replace

from dovetail.api import conditions, labels, reasons
from dovetail.api.conditions import INITIALIZED, REGISTERED
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.quantity import ZERO
from dovetail.api.taints import is_ephemeral, is_same_taint
from dovetail.controllers.base import Cache, Trigger, wake_on
from dovetail.controllers.claim_messages import log_initialized_claim
from dovetail.controllers.nodeclaim.lifecycle import StageResult
from dovetail.controllers.ownership import BY_PROVIDER_ID, find_nodes_of_claim
from dovetail.ports import Clock, Kube
from dovetail.scheduling.model.device_objects import ResourceSlice
from dovetail.scheduling.model.taints import format_taint

__all__ = [
    "SLICES_BY_NODE",
    "Initialization",
    "find_missing_driver",
    "index_slice_by_nodes",
    "wake_on_slices",
]

SLICES_BY_NODE = "node"


def index_slice_by_nodes(published: ResourceSlice) -> tuple[str, ...]:
    """The Nodes a slice speaks of: the one it names, and those that own it."""
    owners = (o.name for o in published.metadata.owner_references if o.kind == "Node")
    return tuple({name for name in (published.spec.node_name, *owners) if name})


def find_missing_driver(claim: NodeClaim, node: Node, slices: Cache[ResourceSlice]) -> str:
    """A driver the claim needs that has no complete pool for the Node; empty when all have."""
    wanted = [d for d in claim.annotations.get(labels.REQUESTED_DRA_DRIVERS, "").split(",") if d]
    if not wanted:
        return ""
    done = _find_complete_drivers(slices.by(SLICES_BY_NODE, node.name))
    return next((driver for driver in wanted if driver not in done), "")


def _find_complete_drivers(slices: Iterable[ResourceSlice]) -> set[str]:
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


def wake_on_slices(nodes: Cache[Node], claims: Cache[NodeClaim]) -> Trigger:
    """What is published for a Node wakes its claim."""

    def keys(published: ResourceSlice) -> list[str]:
        found = (nodes.get(name) for name in index_slice_by_nodes(published))
        ids = (node.spec.provider_id for node in found if node is not None)
        return [claim.name for each in ids if each for claim in claims.by(BY_PROVIDER_ID, each)]

    return wake_on(ResourceSlice, keys)


class Initialization:
    """Says when a Node may be counted on. Without `slices`, devices are not waited for."""

    def __init__(
        self, kube: Kube, nodes: Cache[Node], clock: Clock, slices: Cache[ResourceSlice] | None = None
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._clock = clock
        self._slices = slices

    async def step(self, claim: NodeClaim) -> StageResult:
        now = self._clock.now()
        state = conditions.find_condition(claim, INITIALIZED)
        if state is not None and state.status != conditions.UNKNOWN:
            return StageResult(conditions.set_condition(claim, state, now))
        if not conditions.is_true(claim, REGISTERED):
            return StageResult(claim)
        found = find_nodes_of_claim(claim, self._nodes)
        if len(found) != 1:
            missing = "Node not registered with cluster"
            return StageResult(
                conditions.set_unknown(claim, INITIALIZED, now, reasons.NODE_NOT_FOUND, missing)
            )
        missing_yet = _find_missing(claim, found[0]) or self._find_missing_devices(claim, found[0])
        if missing_yet is not None:
            return StageResult(conditions.set_unknown(claim, INITIALIZED, now, *missing_yet))
        node = found[0]
        metadata = replace(node.metadata, labels={**node.labels, labels.INITIALIZED: labels.TRUE})
        await self._kube.patch(node, replace(node, metadata=metadata))
        log_initialized_claim(claim, node)
        return StageResult(conditions.set_true(claim, INITIALIZED, now))

    def _find_missing_devices(self, claim: NodeClaim, node: Node) -> tuple[str, str] | None:
        driver = find_missing_driver(claim, node, self._slices) if self._slices is not None else ""
        if not driver:
            return None
        why = f'DRA driver "{driver}" has not published a complete resource pool'
        return reasons.DRA_DRIVER_POOLS_NOT_PUBLISHED, why


def _find_missing(claim: NodeClaim, node: Node) -> tuple[str, str] | None:
    """The first thing still missing, as reason and message."""
    ready = node.status.find_condition("Ready")
    if ready is None or ready.status != "True":
        return reasons.NODE_NOT_READY, "Node status is NotReady"
    for taint in claim.spec.startup_taints:
        if any(is_same_taint(taint, each) for each in node.spec.taints):
            return reasons.STARTUP_TAINTS_EXIST, f'StartupTaint "{format_taint(taint)}" still exists'
    for taint in node.spec.taints:
        if is_ephemeral(taint):
            return (
                reasons.KNOWN_EPHEMERAL_TAINTS_EXIST,
                f'KnownEphemeralTaint "{format_taint(taint)}" still exists',
            )
    for name, amount in claim.spec.resources.requests.items():
        if amount and node.status.allocatable.get(name, ZERO) == ZERO:
            return reasons.RESOURCE_NOT_REGISTERED, f'Resource "{name}" was requested but not registered'
    return None

"""Initialization: the Node is ready, its startup taints are gone, its resources are there."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.api import conditions, labels, reasons
from dovetail.api.conditions import INITIALIZED, REGISTERED
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.quantity import ZERO
from dovetail.api.taints import is_ephemeral, matches
from dovetail.controllers.base import Cache
from dovetail.controllers.messages import log_initialized_claim
from dovetail.controllers.nodeclaim.devices import driver_missing
from dovetail.controllers.nodeclaim.steps import Step
from dovetail.controllers.owning import nodes_of
from dovetail.ports import Clock, Kube
from dovetail.scheduling.device_records import ResourceSlice
from dovetail.scheduling.taints import text

__all__ = ["Initialization"]


class Initialization:
    """Says when a Node may be counted on. Without `slices`, devices are not waited for."""

    def __init__(
        self, kube: Kube, nodes: Cache[Node], clock: Clock, slices: Cache[ResourceSlice] | None = None
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._clock = clock
        self._slices = slices

    async def step(self, claim: NodeClaim) -> Step:
        now = self._clock.now()
        state = conditions.find(claim, INITIALIZED)
        if state is not None and state.status != conditions.UNKNOWN:
            return Step(conditions.set_condition(claim, state, now))
        if not conditions.is_true(claim, REGISTERED):
            return Step(claim)
        found = nodes_of(claim, self._nodes)
        if len(found) != 1:
            missing = "Node not registered with cluster"
            return Step(conditions.set_unknown(claim, INITIALIZED, now, reasons.NODE_NOT_FOUND, missing))
        missing_yet = _missing(claim, found[0]) or self._devices_missing(claim, found[0])
        if missing_yet is not None:
            return Step(conditions.set_unknown(claim, INITIALIZED, now, *missing_yet))
        node = found[0]
        metadata = replace(node.metadata, labels={**node.labels, labels.INITIALIZED: labels.TRUE})
        await self._kube.patch(node, replace(node, metadata=metadata))
        log_initialized_claim(claim, node)
        return Step(conditions.set_true(claim, INITIALIZED, now))

    def _devices_missing(self, claim: NodeClaim, node: Node) -> tuple[str, str] | None:
        driver = driver_missing(claim, node, self._slices) if self._slices is not None else ""
        if not driver:
            return None
        why = f'DRA driver "{driver}" has not published a complete resource pool'
        return reasons.DRA_DRIVER_POOLS_NOT_PUBLISHED, why


def _missing(claim: NodeClaim, node: Node) -> tuple[str, str] | None:
    """The first thing still missing, as reason and message."""
    ready = node.status.condition("Ready")
    if ready is None or ready.status != "True":
        return reasons.NODE_NOT_READY, "Node status is NotReady"
    for taint in claim.spec.startup_taints:
        if any(matches(taint, each) for each in node.spec.taints):
            return reasons.STARTUP_TAINTS_EXIST, f'StartupTaint "{text(taint)}" still exists'
    for taint in node.spec.taints:
        if is_ephemeral(taint):
            return reasons.KNOWN_EPHEMERAL_TAINTS_EXIST, f'KnownEphemeralTaint "{text(taint)}" still exists'
    for name, amount in claim.spec.resources.requests.items():
        if amount and node.status.allocatable.get(name, ZERO) == ZERO:
            return reasons.RESOURCE_NOT_REGISTERED, f'Resource "{name}" was requested but not registered'
    return None

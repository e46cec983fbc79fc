"""Nodes in capacity reservations: what they become when their reservation ends, and which must go before."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, TypeVar

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import (
    SOON,
    Backoff,
    Cache,
    PeriodicController,
    Result,
    requeue_after,
    retry_refusals,
    run_all,
)
from dovetail.controllers.ownership import Ownership, find_nodes_of_claim
from dovetail.errors import Conflict, Gone
from dovetail.history.drafts import of_claim
from dovetail.history.record import RecordKind
from dovetail.logs import build_reference, get_logger
from dovetail.ports import DecisionSink, Kube
from dovetail.providers.aws.capacity_reservations import EXPIRING, CapacityReservationProvider
from dovetail.providers.aws.instances import Ec2Instance

__all__ = ["CapacityTypeController", "ReservationExpiration"]

EVERY = 60.0
AT_ONCE = 10
# Karpenter: the interruptible label stays behind.
OF_A_RESERVATION = (labels.CAPACITY_RESERVATION_ID, labels.CAPACITY_RESERVATION_TYPE)

log = get_logger()
O = TypeVar("O", bound=Object)  # noqa: E741 - O for object


class InstanceLister(Protocol):
    """The instances of the cluster."""

    async def list(self) -> tuple[Ec2Instance, ...]: ...


class CapacityTypeController(PeriodicController):
    """Every minute: EC2 turns instances of an ended reservation into on-demand ones, and labels follow."""

    name = "capacityreservation.capacitytype"
    backoff = Backoff(first=1.0, last=EVERY)

    def __init__(
        self,
        kube: Kube,
        claims: Cache[NodeClaim],
        nodes: Cache[Node],
        machines: InstanceLister,
        ownership: Ownership,
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._nodes = nodes
        self._machines = machines
        self._ownership = ownership

    async def reconcile(self, key: str) -> Result:
        reserved = [
            claim
            for claim in self._claims
            if self._ownership.owns_claim(claim) and self._says_reserved(claim)
        ]
        if not reserved:
            return requeue_after(EVERY)
        with retry_refusals():
            instances = await self._machines.list()
        bought = {each.provider_id for each in instances if each.capacity_type == labels.ON_DEMAND}
        try:
            await run_all(
                self._demote_claim(claim) for claim in reserved if claim.status.provider_id in bought
            )
        except Conflict:
            return SOON
        except ExceptionGroup as group:
            if group.split(Conflict)[1] is None:
                return SOON
            raise
        return requeue_after(EVERY)

    def _says_reserved(self, claim: NodeClaim) -> bool:
        """An earlier pass may have got no further than the claim, so its nodes are looked at too."""
        return any(
            obj.labels.get(labels.CAPACITY_TYPE) == labels.RESERVED
            for obj in (claim, *find_nodes_of_claim(claim, self._nodes))
        )

    async def _demote_claim(self, claim: NodeClaim) -> None:
        """The claim and its nodes, each by its own labels."""
        await self._relabel_object(claim)
        for node in find_nodes_of_claim(claim, self._nodes):
            if not node.deleting and labels.REGISTERED in node.labels:
                await self._relabel_object(node)

    async def _relabel_object(self, obj: O) -> None:
        if obj.labels.get(labels.CAPACITY_TYPE) != labels.RESERVED:
            return
        changed = replace(obj, metadata=replace(obj.metadata, labels=_to_on_demand(obj.labels)))
        try:
            await self._kube.patch(obj, changed, guarded=True)
        except Gone:
            return


def _to_on_demand(known: Mapping[str, str]) -> dict[str, str]:
    kept = {key: value for key, value in known.items() if key not in OF_A_RESERVATION}
    return kept | {labels.CAPACITY_TYPE: labels.ON_DEMAND}


class ReservationExpiration(PeriodicController):
    """Every minute: nodes in a capacity block that is about to end are drained while there is time."""

    name = "capacityreservation.expiration"
    backoff = Backoff(first=1.0, last=EVERY)

    def __init__(
        self,
        kube: Kube,
        claims: Cache[NodeClaim],
        reservations: CapacityReservationProvider,
        ownership: Ownership,
        history: DecisionSink,
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._reservations = reservations
        self._ownership = ownership
        self._history = history

    async def reconcile(self, key: str) -> Result:
        reserved = [
            (claim, found)
            for claim in self._claims
            if (found := claim.labels.get(labels.CAPACITY_RESERVATION_ID))
            and not claim.deleting
            and self._ownership.owns_claim(claim)
        ]
        if not reserved:
            return requeue_after(EVERY)
        with retry_refusals():
            listed = await self._reservations.list_by_id(found for _, found in reserved)
            ending = {each.id for each in listed if each.state == EXPIRING}
            doomed = ((claim, found) for claim, found in reserved if found in ending)
            await run_all((self._delete_claim(*each) for each in doomed), at_once=AT_ONCE)
        return requeue_after(EVERY)

    async def _delete_claim(self, claim: NodeClaim, reservation: str) -> None:
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return
        told = f"capacity block {reservation} ends"
        self._history.note_decision(of_claim(RecordKind.EXPIRED, claim, "CapacityBlock", told))
        reference = build_reference(claim.name)
        log.info(
            "deleting a nodeclaim whose capacity block ends", NodeClaim=reference, reservation=reservation
        )

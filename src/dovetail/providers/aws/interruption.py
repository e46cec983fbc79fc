"""What is done about an instance that AWS takes away, or that is not well: told, remembered, and acted upon.

Who brings the news does not matter: a queue, or a look at the status of instances. Acting twice on the same
news does nothing the second time, so news may come as often as it likes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.predicates import reschedulable
from dovetail.aws.messages import Kind
from dovetail.controllers.base import Cache, Remembered, run_all
from dovetail.controllers.counts import claim_disrupted
from dovetail.controllers.node.termination import termination_time
from dovetail.controllers.nodeclaim.finalization import rfc3339
from dovetail.controllers.owning import Ownership, nodes_of
from dovetail.errors import Gone, Retry
from dovetail.ports import Clock, Kube, Recorder
from dovetail.providers.aws.messages import log_interruption
from dovetail.providers.aws.reservations import Reservations
from dovetail.providers.aws.unavailable import Unavailable
from dovetail.state import Cluster

__all__ = [
    "BY_INSTANCE",
    "EVENT_STATUS",
    "INSTANCE_STATUS",
    "SYSTEM_STATUS",
    "Interruptions",
    "Notice",
    "instance_of_claim",
]

BY_INSTANCE: Final = "instanceID"
INSTANCE_STATUS: Final = "instance_status"
SYSTEM_STATUS: Final = "system_status"
EVENT_STATUS: Final = "event_status"
# Machines that no longer answer: nobody on them could be asked to leave.
HOPELESS: Final = frozenset((INSTANCE_STATUS, SYSTEM_STATUS))
# What is left of a notice for the last pods to end in before the machine does.
SPARE: Final = timedelta(seconds=10)
# By then a claim whose end we asked for is known to be ending.
NOTED_FOR: Final = 600.0


def instance_of_claim(claim: NodeClaim) -> tuple[str, ...]:
    """The index under which a claim is found by its instance's id, which is all that messages tell."""
    name = claim.status.provider_id.rpartition("/")[2]
    return (name,) if name else ()


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happens to one instance. `end` is when AWS takes the machine, if it said so."""

    kind: str
    instance: str
    end: datetime | None = field(default=None, compare=False)


@dataclass
class Interruptions:
    """Ends the claims of interrupted instances, and remembers where not to buy the next one."""

    kube: Kube
    clock: Clock
    recorder: Recorder
    claims: Cache[NodeClaim]
    nodes: Cache[Node]
    cluster: Cluster
    ownership: Ownership
    unavailable: Unavailable
    reservations: Reservations
    # What the queue is called that tells of them; empty where none does.
    queue: str = ""
    _ended: Remembered = field(default_factory=lambda: Remembered(NOTED_FOR))

    def ours(self, instance: str) -> tuple[NodeClaim, ...]:
        """The claims of an instance: none when it is a stranger's."""
        return tuple(filter(self.ownership.of_claim, self.claims.by(BY_INSTANCE, instance)))

    @property
    def launching(self) -> bool:
        """Whether a claim is there that no instance is known of yet."""
        return any(not each.status.provider_id and not each.deleting for each in self.claims)

    async def act(self, notice: Notice) -> None:
        await run_all(self._act(claim, notice) for claim in self.ours(notice.instance))

    async def _act(self, claim: NodeClaim, notice: Notice) -> None:
        for each in (claim, *nodes_of(claim, self.nodes)):
            _tell(self.recorder, each, notice.kind)
        self._remember(claim, notice.kind)
        if notice.kind == Kind.REBALANCE_RECOMMENDATION:
            return
        try:
            await self._expedite(claim, notice)
            await self._end(claim, notice.kind)
        except Gone:
            return

    def _remember(self, claim: NodeClaim, kind: str) -> None:
        known = claim.labels
        if kind == Kind.SPOT_INTERRUPTED:
            # Karpenter: spot is avoided there whatever the claim's own label says.
            instance_type, zone = known.get(labels.INSTANCE_TYPE, ""), known.get(labels.ZONE, "")
            self.unavailable.mark(labels.SPOT, instance_type, zone)
        elif kind == Kind.CAPACITY_RESERVATION_INTERRUPTED and labels.CAPACITY_RESERVATION_ID in known:
            self.reservations.unavailable(known[labels.CAPACITY_RESERVATION_ID])

    async def _expedite(self, claim: NodeClaim, notice: Notice) -> None:
        """Draining ends before the machine does: pods that would outlive it are told to stop in time."""
        now = self.clock.now()
        if notice.kind in HOPELESS:
            by = now
        elif notice.end is not None:
            by = max(now, notice.end - SPARE)
        else:
            return
        known = _deadline(claim)
        if known is not None and (notice.kind in HOPELESS or known <= by):
            return
        annotations = {**claim.annotations, labels.TERMINATION_TIMESTAMP: rfc3339(by)}
        await self.kube.patch(
            claim, replace(claim, metadata=replace(claim.metadata, annotations=annotations))
        )

    async def _end(self, claim: NodeClaim, kind: str) -> None:
        now = self.clock.monotonic()
        # The cache may not have heard yet that we asked for its end already.
        if claim.deleting or self._ended.left(claim.uid, now):
            return
        await self.kube.delete(claim, guarded=True)
        self._ended.add(claim.uid, now)
        log_interruption(self.queue, str(kind), claim, nodes_of(claim, self.nodes))
        for each in (claim, *nodes_of(claim, self.nodes)):
            note = f"Interruption triggered termination for the {type(each).__name__}"
            self.recorder.event(each, "TerminatingOnInterruption", note, warning=True, dedupe=(each.uid,))
        pods = self.cluster.pods_on(claim.status.node_name) if claim.status.node_name else ()
        claim_disrupted(claim, str(kind), sum(map(reschedulable, pods)))


def _deadline(claim: NodeClaim) -> datetime | None:
    """The moment after which nobody on the node is asked any more; one that is no time counts as none."""
    text = claim.annotations.get(labels.TERMINATION_TIMESTAMP)
    try:
        return termination_time(text) if text is not None else None
    except Retry:
        return None


def _tell(recorder: Recorder, about: Object, kind: str) -> None:
    once = (about.uid,)
    match kind:
        case Kind.SPOT_INTERRUPTED:
            note = "Spot interruption warning was triggered"
            recorder.event(about, "SpotInterrupted", note, warning=True, dedupe=once)
        case Kind.REBALANCE_RECOMMENDATION:
            note = "Spot rebalance recommendation was triggered"
            recorder.event(about, "SpotRebalanceRecommendation", note, dedupe=once)
        case Kind.CAPACITY_RESERVATION_INTERRUPTED:
            note = "Capacity reservation instance interruption warning was triggered"
            recorder.event(about, "CapacityReservationInstanceInterrupted", note, warning=True, dedupe=once)
        case Kind.INSTANCE_STOPPED:
            recorder.event(about, "InstanceStopping", "Instance is stopping", warning=True, dedupe=once)
        case Kind.INSTANCE_TERMINATED:
            recorder.event(about, "InstanceTerminating", "Instance is terminating", warning=True, dedupe=once)
        case _:
            note = "An unhealthy warning was triggered for the instance"
            recorder.event(about, "InstanceUnhealthy", note, warning=True, dedupe=once)

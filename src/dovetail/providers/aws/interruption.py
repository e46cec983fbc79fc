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
from dovetail.api.predicates import is_reschedulable
from dovetail.aws.eventbridge import MessageKind
from dovetail.controllers.base import Cache, RecentKeys, run_all
from dovetail.controllers.claim_metrics import count_disrupted_claim
from dovetail.controllers.node.termination import parse_termination_time
from dovetail.controllers.nodeclaim.finalization import format_rfc3339
from dovetail.controllers.ownership import Ownership, find_nodes_of_claim
from dovetail.errors import Gone, Retry
from dovetail.history.drafts import of_claim
from dovetail.history.record import RecordKind
from dovetail.logs import build_reference, info
from dovetail.ports import Clock, DecisionSink, Kube, Recorder
from dovetail.providers.aws.capacity_reservations import CapacityReservationProvider
from dovetail.providers.aws.unavailable_offerings import UnavailableOfferings
from dovetail.state.cluster import Cluster

__all__ = [
    "BY_INSTANCE",
    "EVENT_STATUS",
    "INSTANCE_STATUS",
    "SYSTEM_STATUS",
    "InterruptionHandler",
    "InterruptionNotice",
    "instance_of_claim",
    "log_interruption",
]

INTERRUPTED = info(
    "initiating delete from interruption message",
    "AWS takes an instance away, or it is not well: its NodeClaim is ended.",
    ("queue", "messageKind", "NodeClaim", "action", "Node"),
)
ACTION = "CordonAndDrain"


def log_interruption(queue: str, kind: str, claim: NodeClaim, nodes: tuple[Node, ...]) -> None:
    """Say that a claim is ended because of a message, or of a look at the status of instances."""
    INTERRUPTED(
        {
            **({"queue": queue} if queue else {}),
            "messageKind": kind,
            "NodeClaim": build_reference(claim.name),
            "action": ACTION,
            **({"Node": build_reference(nodes[0].name)} if nodes else {}),
        }
    )


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
class InterruptionNotice:
    """One thing that happens to one instance. `end` is when AWS takes the machine, if it said so."""

    kind: str
    instance: str
    end: datetime | None = field(default=None, compare=False)


@dataclass
class InterruptionHandler:
    """Ends the claims of interrupted instances, and remembers where not to buy the next one."""

    kube: Kube
    clock: Clock
    recorder: Recorder
    history: DecisionSink
    claims: Cache[NodeClaim]
    nodes: Cache[Node]
    cluster: Cluster
    ownership: Ownership
    unavailable: UnavailableOfferings
    reservations: CapacityReservationProvider
    # What the queue is called that tells of them; empty where none does.
    queue: str = ""
    _ended: RecentKeys = field(default_factory=lambda: RecentKeys(NOTED_FOR))

    def find_claims(self, instance: str) -> tuple[NodeClaim, ...]:
        """The claims of an instance: none when it is a stranger's."""
        return tuple(filter(self.ownership.owns_claim, self.claims.by(BY_INSTANCE, instance)))

    @property
    def launching(self) -> bool:
        """Whether a claim is there that no instance is known of yet."""
        return any(not each.status.provider_id and not each.deleting for each in self.claims)

    async def handle_notice(self, notice: InterruptionNotice) -> None:
        await run_all(self._interrupt_claim(claim, notice) for claim in self.find_claims(notice.instance))

    async def _interrupt_claim(self, claim: NodeClaim, notice: InterruptionNotice) -> None:
        for each in (claim, *find_nodes_of_claim(claim, self.nodes)):
            _publish_event(self.recorder, each, notice.kind)
        self._mark_unavailable(claim, notice.kind)
        if notice.kind == MessageKind.REBALANCE_RECOMMENDATION:
            return
        try:
            await self._set_deadline(claim, notice)
            await self._delete_claim(claim, notice.kind)
        except Gone:
            return

    def _mark_unavailable(self, claim: NodeClaim, kind: str) -> None:
        known = claim.labels
        if kind == MessageKind.SPOT_INTERRUPTED:
            # Karpenter: spot is avoided there whatever the claim's own label says.
            instance_type, zone = known.get(labels.INSTANCE_TYPE, ""), known.get(labels.ZONE, "")
            self.unavailable.mark_offering(labels.SPOT, instance_type, zone)
        elif kind == MessageKind.CAPACITY_RESERVATION_INTERRUPTED and labels.CAPACITY_RESERVATION_ID in known:
            self.reservations.mark_unavailable(known[labels.CAPACITY_RESERVATION_ID])

    async def _set_deadline(self, claim: NodeClaim, notice: InterruptionNotice) -> None:
        """Draining ends before the machine does: pods that would outlive it are told to stop in time."""
        now = self.clock.now()
        if notice.kind in HOPELESS:
            by = now
        elif notice.end is not None:
            by = max(now, notice.end - SPARE)
        else:
            return
        known = _read_deadline(claim)
        if known is not None and (notice.kind in HOPELESS or known <= by):
            return
        annotations = {**claim.annotations, labels.TERMINATION_TIMESTAMP: format_rfc3339(by)}
        await self.kube.patch(
            claim, replace(claim, metadata=replace(claim.metadata, annotations=annotations))
        )

    async def _delete_claim(self, claim: NodeClaim, kind: str) -> None:
        now = self.clock.monotonic()
        # The cache may not have heard yet that we asked for its end already.
        if claim.deleting or self._ended.seconds_left(claim.uid, now):
            return
        await self.kube.delete(claim, guarded=True)
        self._ended.add(claim.uid, now)
        told = "AWS takes the instance away, or it is not well"
        self.history.note_decision(of_claim(RecordKind.INTERRUPTED, claim, str(kind), told))
        log_interruption(self.queue, str(kind), claim, find_nodes_of_claim(claim, self.nodes))
        for each in (claim, *find_nodes_of_claim(claim, self.nodes)):
            note = f"Interruption triggered termination for the {type(each).__name__}"
            self.recorder.publish_event(
                each, "TerminatingOnInterruption", note, warning=True, dedupe=(each.uid,)
            )
        pods = self.cluster.list_pods_on(claim.status.node_name) if claim.status.node_name else ()
        count_disrupted_claim(claim, str(kind), sum(map(is_reschedulable, pods)))


def _read_deadline(claim: NodeClaim) -> datetime | None:
    """The moment after which nobody on the node is asked any more; one that is no time counts as none."""
    text = claim.annotations.get(labels.TERMINATION_TIMESTAMP)
    try:
        return parse_termination_time(text) if text is not None else None
    except Retry:
        return None


def _publish_event(recorder: Recorder, about: Object, kind: str) -> None:
    once = (about.uid,)
    match kind:
        case MessageKind.SPOT_INTERRUPTED:
            note = "Spot interruption warning was triggered"
            recorder.publish_event(about, "SpotInterrupted", note, warning=True, dedupe=once)
        case MessageKind.REBALANCE_RECOMMENDATION:
            note = "Spot rebalance recommendation was triggered"
            recorder.publish_event(about, "SpotRebalanceRecommendation", note, dedupe=once)
        case MessageKind.CAPACITY_RESERVATION_INTERRUPTED:
            note = "Capacity reservation instance interruption warning was triggered"
            recorder.publish_event(
                about, "CapacityReservationInstanceInterrupted", note, warning=True, dedupe=once
            )
        case MessageKind.INSTANCE_STOPPED:
            recorder.publish_event(
                about, "InstanceStopping", "Instance is stopping", warning=True, dedupe=once
            )
        case MessageKind.INSTANCE_TERMINATED:
            recorder.publish_event(
                about, "InstanceTerminating", "Instance is terminating", warning=True, dedupe=once
            )
        case _:
            note = "An unhealthy warning was triggered for the instance"
            recorder.publish_event(about, "InstanceUnhealthy", note, warning=True, dedupe=once)

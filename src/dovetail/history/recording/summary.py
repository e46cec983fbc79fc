"""RecordingSummary: what a recording holds, counted: times, looks, decisions, gaps, and orders of nodes."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from statistics import median

from dovetail.api import conditions, labels
from dovetail.api.meta import Record
from dovetail.api.nodeclaim import NodeClaim
from dovetail.disruption.situation import Situation
from dovetail.history.recording.reader import RecordingReader

__all__ = ["RecordedOrder", "RecordingSummary", "summarise_recording"]


class RecordedOrder(Record, frozen=True):
    """What became of a NodeClaim: the machine that came, and the seconds until it was ready."""

    claim: str
    pool: str = ""
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    seconds_to_ready: float | None = None


class RecordingSummary(Record, frozen=True):
    """The facts that `dovetail recording info` tells."""

    since: datetime | None = None
    until: datetime | None = None
    segments: int = 0
    looks: int = 0
    dropped_looks: int = 0
    decisions: int = 0
    timed_out: int = 0
    questions: dict[str, int] = {}
    records: int = 0
    fewest_nodes: int = 0
    most_nodes: int = 0
    fewest_pods: int = 0
    most_pods: int = 0
    orders: tuple[RecordedOrder, ...] = ()
    gaps: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()

    @property
    def median_seconds_to_ready(self) -> float | None:
        """Half of the nodes were ready within this time."""
        known = [each.seconds_to_ready for each in self.orders if each.seconds_to_ready is not None]
        return median(known) if known else None


def summarise_recording(reader: RecordingReader) -> RecordingSummary:
    """Read all of a recording and count."""
    nodes, pods, times = list[int](), list[int](), list[datetime]()
    questions, orders = Counter[str](), dict[str, RecordedOrder]()
    dropped = timed_out = records = 0
    for look in reader.looks():
        times.append(look.at)
        snapshot = look.situation.snapshot
        nodes.append(len(snapshot.nodes))
        pods.append(len(snapshot.pods) + sum(len(state.pods) for state in snapshot.nodes))
        questions.update(decision.question for decision in look.decisions)
        timed_out += sum(decision.timed_out for decision in look.decisions)
        dropped += sum(each.looks for each in look.dropped)
        records += len(look.records)
        _add_orders(look.situation, orders)
    return RecordingSummary(
        since=times[0] if times else None,
        until=times[-1] if times else None,
        segments=len(reader.segments),
        looks=len(times),
        dropped_looks=dropped,
        decisions=questions.total(),
        timed_out=timed_out,
        questions=dict(sorted(questions.items())),
        records=records,
        fewest_nodes=min(nodes, default=0),
        most_nodes=max(nodes, default=0),
        fewest_pods=min(pods, default=0),
        most_pods=max(pods, default=0),
        orders=tuple(orders.values()),
        gaps=tuple(str(gap) for gap in reader.list_gaps()),
        unreadable=tuple(reader.troubles),
    )


def _add_orders(situation: Situation, orders: dict[str, RecordedOrder]) -> None:
    """What is known of every NodeClaim of a look; what was known to be ready stays."""
    for state in situation.snapshot.nodes:
        if state.claim is None:
            continue
        known = orders.get(state.claim.uid or state.claim.name)
        if known is None or known.seconds_to_ready is None:
            orders[state.claim.uid or state.claim.name] = _describe_order(state.claim)


def _describe_order(claim: NodeClaim) -> RecordedOrder:
    ready = claim.status.find_condition(conditions.INITIALIZED)
    created, seconds = claim.metadata.creation_timestamp, None
    if ready is not None and ready.status == "True" and ready.last_transition_time and created:
        seconds = (ready.last_transition_time - created).total_seconds()
    return RecordedOrder(
        claim=claim.name,
        pool=claim.labels.get(labels.NODEPOOL, ""),
        instance_type=claim.labels.get(labels.INSTANCE_TYPE, ""),
        zone=claim.labels.get(labels.ZONE, ""),
        capacity_type=claim.labels.get(labels.CAPACITY_TYPE, ""),
        seconds_to_ready=seconds,
    )

"""ShadowReport: what was paid, what our twin would have paid, where decisions differ, and how sure that is.

Three numbers that are never mixed: one-step differences, the twin's bill, and the calibration twin, which
does what the other autoscaler does and whose error is the certainty of the second. Without it nothing is
claimed.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.meta import Record
from dovetail.api.pod import Pod
from dovetail.api.predicates import is_terminal, owned_by_daemonset, owned_by_node
from dovetail.disruption.situation import Situation
from dovetail.history.adopted_fleet import is_adopted
from dovetail.history.difference import Difference, DifferenceSums, sum_differences
from dovetail.history.differences import DifferenceTracker
from dovetail.history.paid import PaidBill, PaidMeter
from dovetail.history.record import DecisionRecord, RecordKind
from dovetail.history.recording.reader import RecordedLook
from dovetail.history.recording.segment import SegmentHead
from dovetail.history.shadow_claim import PromiseCounts, ShadowClaim, TwinBill, build_claim
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.snapshot import StateNode

__all__ = [
    "FORMAT",
    "PromiseMeter",
    "ShadowFold",
    "ShadowReport",
    "describe_prices",
    "list_claims",
    "tell_estimated",
]

FORMAT = "dovetail-shadow/1"
LONG_WAIT = timedelta(seconds=60)
WHOLE_FLEETS = (
    "there are no NodePools here: whole fleets are compared and no decisions; machines are taken to be "
    "launched 30 s before their nodes appear, and the calibration buys from the given NodePools, too"
)


class ShadowReport(Record, frozen=True):
    """All that a shadow found, from one look to another."""

    format: str = FORMAT
    since: datetime | None = None
    until: datetime | None = None
    pools: int = 0
    nodes: int = 0
    paid: PaidBill = PaidBill()
    gaps: int = 0
    gap_seconds: float = 0.0
    promises: PromiseCounts = PromiseCounts()
    differences: tuple[Difference, ...] = ()
    sums: Mapping[str, DifferenceSums] = {}
    compared: int = 0
    twin: TwinBill | None = None
    calibration: TwinBill | None = None
    claim: ShadowClaim = ShadowClaim()
    left_out: tuple[str, ...] = ()
    whole_fleets: bool = False
    notes: tuple[str, ...] = ()

    def list_largest(self, most: int = 10) -> list[Difference]:
        """The differences that come to most, either way."""
        return sorted(self.differences, key=lambda each: (-abs(each.dollars), each.at))[:most]

    def add(self, after: ShadowReport) -> ShadowReport:
        """This time and one that came after it together, without twins.

        A decision that was under way between the two is told as far as the first of them saw it.
        """
        paid, found = self.paid.add(after.paid), (*self.differences, *after.differences)
        return replace(
            after,
            since=self.since or after.since,
            until=after.until or self.until,
            pools=after.pools if after.until is not None else self.pools,
            nodes=after.nodes if after.until is not None else self.nodes,
            paid=paid,
            gaps=self.gaps + after.gaps,
            gap_seconds=paid.gap_seconds,
            promises=self.promises.add(after.promises),
            differences=found,
            sums=sum_differences(found),
            compared=self.compared + after.compared,
            claim=build_claim(paid, None, None),
            left_out=tuple(dict.fromkeys((*self.left_out, *after.left_out))),
            whole_fleets=self.whole_fleets or after.whole_fleets,
        )


class PromiseMeter:
    """Counts what pods noticed, look after look."""

    def __init__(self) -> None:
        self._waiting: dict[str, datetime] = {}
        self._late: set[str] = set()
        self._on: dict[str, StateNode] = {}
        self._limits: dict[str, PodDisruptionBudget] = {}
        self._waited = self._evictions = self._broken = 0

    def add_look(self, at: datetime, situation: Situation) -> None:
        """The cluster at a time."""
        snapshot = situation.snapshot
        waiting = {pod.uid: pod.metadata.creation_timestamp or at for pod in snapshot.pods}
        bound: dict[str, datetime | None] = {}
        seen: dict[str, StateNode] = {}
        evicted: list[Pod] = []
        for state in snapshot.nodes:
            name = views.read_name(state)
            seen[name] = state
            before = self._on.get(name)
            if before is state:
                continue
            known = {pod.uid for pod in before.pods} if before is not None else set()
            bound.update({pod.uid: _find_bound_time(pod) for pod in state.pods if pod.uid not in known})
            if before is not None and _is_going(state):
                here = {pod.uid for pod in state.pods}
                evicted += [pod for pod in before.pods if _counts(pod) and pod.uid not in here]
        for name, before in self._on.items():
            if name not in seen and _is_going(before):
                evicted += filter(_counts, before.pods)
        self._evictions += len(evicted)
        limits = {budget.full_name: budget for budget in snapshot.budgets}
        for name, budget in limits.items() if evicted else ():
            self._broken += _is_broken(self._limits.get(name), budget, evicted)
        for uid, began in self._waiting.items():
            ended = bound.get(uid) or at
            if uid not in self._late and ended - began > LONG_WAIT:
                self._late.add(uid)
                self._waited += 1
        self._late &= waiting.keys()
        self._waiting, self._on, self._limits = waiting, seen, limits

    def skip_gap(self) -> None:
        """Nobody watched: what differs at the next look is nobody's."""
        self._waiting, self._on, self._limits = {}, {}, {}

    def count(self) -> PromiseCounts:
        return PromiseCounts(waited=self._waited, evictions=self._evictions, budgets_broken=self._broken)


class ShadowFold:
    """Takes looks in order of time: what was paid, the differences, and what pods noticed."""

    def __init__(self, tracker: DifferenceTracker | None = None) -> None:
        self.paid = PaidMeter()
        self.promises = PromiseMeter()
        self.differences = tracker if tracker is not None else DifferenceTracker()
        self.gaps = 0
        self._last: RecordedLook | None = None
        self._left_out: dict[str, None] = {}
        self._whole = False

    def begin_segment(self, head: SegmentHead) -> None:
        """A segment begins; the one before it ended, or was torn."""

    def add_look(self, look: RecordedLook) -> None:
        """One more look."""
        self.paid.add_look(look.at, look.situation)
        self.promises.add_look(look.at, look.situation)
        self._whole = self._whole or is_adopted(look.situation)
        if not self._whole:
            self.differences.add_look(look.at, look.situation)
        if self._last is None or look.situation.snapshot.nodes != self._last.situation.snapshot.nodes:
            self._left_out |= dict.fromkeys(_list_left_out(look.situation))
        self._last = look

    def add_record(self, record: DecisionRecord) -> None:
        """What was heard between looks: the end of a machine, or which NodeClaim a pod was nominated to."""
        if record.kind is RecordKind.NODE_GONE:
            for claim in list_claims(record):
                self.paid.note_end(claim, record.time)
        elif record.kind is RecordKind.POD_PLACED:
            pod = record.subject.removeprefix("pod/")
            self.differences.note_nomination(pod, list_claims(record), record.time)

    def end_segment(self, ended: datetime) -> None:
        """A segment ended as it should: until then nothing differed from its last look."""
        self.paid.charge_until(ended)

    def skip_gap(self, until: datetime) -> None:
        """Nothing was watched until this time."""
        if self._last is not None:
            self.gaps += 1
            self.paid.skip_gap(until)
            self.promises.skip_gap()
            self.differences.skip_gap()

    def build_report(
        self, twin: TwinBill | None = None, calibration: TwinBill | None = None, notes: tuple[str, ...] = ()
    ) -> ShadowReport:
        """What was found so far, with what the twins came to."""
        bill, last = self.paid.bill(), self._last
        found = tuple(self.differences.list_differences(bill.until)) if not self._whole else ()
        snapshot = last.situation.snapshot if last is not None else None
        return ShadowReport(
            since=bill.since,
            until=bill.until,
            pools=len(snapshot.pools) if snapshot is not None else 0,
            nodes=len(snapshot.nodes) if snapshot is not None else 0,
            paid=bill,
            gaps=self.gaps,
            gap_seconds=bill.gap_seconds,
            promises=self.promises.count(),
            differences=found,
            sums=sum_differences(found),
            compared=self.differences.count_compared(),
            twin=twin,
            calibration=calibration,
            claim=build_claim(bill, twin, calibration),
            left_out=tuple(self._left_out),
            whole_fleets=self._whole,
            notes=(*_describe_whole(last.situation if self._whole and last else None), *notes),
        )


def tell_estimated(bill: PaidBill | TwinBill) -> str:
    """How much of a bill stands for prices that nobody knows."""
    return f"{bill.estimated / bill.dollars:.0%} of it at estimated prices" if bill.dollars else ""


def describe_prices(bill: PaidBill) -> str:
    """Which prices a bill is at."""
    return f"list prices, {tell_estimated(bill)}" if bill.estimated > 0 else "list prices"


def list_claims(record: DecisionRecord) -> tuple[str, ...]:
    """The names by which a record may mean a NodeClaim."""
    kind, _, name = record.subject.partition("/")
    return tuple(dict.fromkeys((*((name,) if kind == "claim" else ()), *record.names)))


def _describe_whole(situation: Situation | None) -> tuple[str, ...]:
    """What to know of a comparison of whole fleets; nothing where decisions are compared."""
    if situation is None:
        return ()
    alone = [
        state.node.labels.get(labels.INSTANCE_TYPE, "of no known type")
        for state in situation.snapshot.nodes
        if state.claim is None and state.node is not None
    ]
    kinds = ", ".join(sorted(set(alone)))
    same = f"{len(alone)} nodes are the same in every world, for no given NodePool sells {kinds}"
    return (WHOLE_FLEETS, *((same,) if alone else ()))


def _list_left_out(situation: Situation) -> list[str]:
    """NodePools whose nodes are there while the pool is of a node class that Dovetail does not know."""
    known = {pool.name for pool in situation.snapshot.pools}
    found = []
    for state in situation.snapshot.nodes:
        pool = state.node.labels.get(labels.NODEPOOL, "") if state.claim is None and state.node else ""
        if pool and pool not in known:
            found.append(pool)
    return found


def _is_broken(before: PodDisruptionBudget | None, after: PodDisruptionBudget, evicted: list[Pod]) -> bool:
    """Whether more pods of a budget were evicted than it allowed, and too few of them are left."""
    was, now = before.status if before is not None else None, after.status
    if was is None or was.current_healthy < was.desired_healthy or was.desired_healthy != now.desired_healthy:
        return False
    mine = (
        pod
        for pod in evicted
        if pod.namespace == after.namespace and matches_selector(after.spec.selector, pod.labels)
    )
    return now.current_healthy < now.desired_healthy and sum(1 for _ in mine) > was.disruptions_allowed


def _is_going(state: StateNode) -> bool:
    return views.is_deleting(state) or views.has_disruption_mark(state)


def _counts(pod: Pod) -> bool:
    return not owned_by_daemonset(pod) and not owned_by_node(pod) and not is_terminal(pod)


def _find_bound_time(pod: Pod) -> datetime | None:
    said = pod.status.find_condition("PodScheduled")
    return said.last_transition_time if said is not None and said.status == "True" else None

"""The followers of a shadow by role: one-step differences, the twin, and the twin that calibrates."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, Protocol

import msgspec
from msgspec.structs import replace

from dovetail.history.boot_days import BootDays
from dovetail.history.differences import DifferenceTracker
from dovetail.history.paid import PaidBill, PaidMeter
from dovetail.history.record import DecisionRecord, RecordKind
from dovetail.history.recording.reader import RecordedLook, SegmentSource
from dovetail.history.recording.segment import SegmentHead
from dovetail.history.shadow import PromiseMeter, ShadowFold, ShadowReport, list_claims
from dovetail.history.shadow_claim import LEAST_HOURS, PromiseCounts, TwinBill, TwinHour, build_claim
from dovetail.play.replay_meter import ReplayBill
from dovetail.play.replaying import ReplayRun, Variation
from dovetail.play.shadow_rules import THEIRS, TriedRules
from dovetail.play.shadowing import LookConsumer, SegmentFeed, feed_segments

__all__ = [
    "ALL_ROLES",
    "DIFFERENCES",
    "FoldConsumer",
    "KeyframeResult",
    "ShadowTwins",
    "TellingConsumer",
    "TwinConsumer",
    "add_bills",
    "build_consumer",
    "find_restart",
    "replay_span",
    "report_recording",
]

Json = dict[str, Any]
Choices = Literal["dovetail", "karpenter"]
TwinRestart = Literal["weekly", "daily", "never"]
DIFFERENCES: Final = "differences"
TWIN: Final = "dovetail"
CALIBRATION: Final = "karpenter"
ALL_ROLES: Final = (DIFFERENCES, TWIN, CALIBRATION)
LAG = timedelta(minutes=6)
"""A twin is this far behind: what became of pods and orders meanwhile is known by then."""


@dataclass(frozen=True, slots=True)
class ShadowTwins:
    """Which followers a shadow has, and what the twin decides with: settings and manifests that are tried."""

    roles: tuple[str, ...] = ALL_ROLES
    choices: Choices = "dovetail"
    settings: tuple[tuple[str, str], ...] = ()
    manifests: tuple[Json, ...] = ()
    seed: int = 0
    restart: TwinRestart = "weekly"

    def build_rules(self) -> TriedRules:
        """The same rules for decisions one by one."""
        return TriedRules(self.settings, self.manifests, as_karpenter=self.choices == "karpenter")


class KeyframeResult(NamedTuple):
    """What a follower had found when a segment began, as it tells its results."""

    segment: str
    result: bytes


class TellingConsumer(LookConsumer, Protocol):
    """Takes looks, and says as JSON what they came to."""

    def encode_result(self) -> bytes:
        """What is known so far; nothing while there is nothing."""

    def resume(self, result: bytes) -> None:
        """Go on from what another of its kind had found before the first look that comes."""

    def take_keyframe(self) -> KeyframeResult | None:
        """What was known when the last segment began, unless somebody has taken it already."""

    def close(self) -> None:
        """No more will come; what is known stays."""


class FoldConsumer(ShadowFold):
    """What was paid, and the one-step differences under the rules that are tried."""

    def __init__(self, twins: ShadowTwins) -> None:
        self._rules = twins.build_rules()
        self._earlier: ShadowReport | None = None
        self._keyframe: KeyframeResult | None = None
        super().__init__(DifferenceTracker(self._rules.decide_as))

    def begin_segment(self, head: SegmentHead) -> None:
        """A segment begins, with the settings of the cluster."""
        super().begin_segment(head)
        self._rules.read_head(head)
        self._keyframe = KeyframeResult(head.name, self.encode_result())

    def resume(self, result: bytes) -> None:
        """The report of the time before; decisions that were under way then are not followed further."""
        self._earlier = msgspec.json.decode(result, type=ShadowReport)

    def take_keyframe(self) -> KeyframeResult | None:
        """The report before the last segment."""
        found, self._keyframe = self._keyframe, None
        return found

    def report(self) -> ShadowReport:
        """What was found so far, without twins."""
        report = self.build_report(notes=self._rules.notes)
        return report if self._earlier is None else self._earlier.add(report)

    def encode_result(self) -> bytes:
        """The report, without twins."""
        return msgspec.json.encode(self.report())

    def close(self) -> None:
        """Nothing of it runs."""


class TwinConsumer:
    """A twin of the cluster: the same demand, our controllers, some minutes behind.

    It begins again from the real fleet after each gap and when its time comes, every Monday at midnight, UTC,
    unless told otherwise, so that its error does not pile up; what it came to before is kept.
    """

    def __init__(self, choices: Choices, twins: ShadowTwins) -> None:
        self._choices: Choices = choices
        self._twins = twins
        self._head: SegmentHead | None = None
        self._run: ReplayRun | None = None
        self._before: ReplayBill | None = None
        self._paid = PaidMeter()
        self._boots = BootDays()
        self._promises = PromiseMeter()
        self._unknown = 0.0
        self._waiting: deque[RecordedLook] = deque()
        self._last: datetime | None = None
        self._earlier: TwinBill | None = None
        # Segments that have begun in reality, and not yet in the twin, which is behind.
        self._begun: deque[SegmentHead] = deque()
        self._keyframe: KeyframeResult | None = None

    def begin_segment(self, head: SegmentHead) -> None:
        """A segment begins, with the settings of the cluster."""
        self._head = head
        self._begun.append(head)

    def resume(self, result: bytes) -> None:
        """The bill of the time before; the twin begins again from the real fleet."""
        self._earlier = msgspec.json.decode(result, type=TwinBill)

    def take_keyframe(self) -> KeyframeResult | None:
        """The bill before the last segment that the twin has reached."""
        found, self._keyframe = self._keyframe, None
        return found

    def add_look(self, look: RecordedLook) -> None:
        """One more look; the twin lives until some minutes before it."""
        restart = find_restart(self._twins.restart, look.at)
        if self._run is not None and restart is not None and restart > self._run.now:
            self._end_run(look.at)
        self._last = look.at
        if self._run is None:
            self._run = ReplayRun(look, self._build_variation(), self._twins.seed)
            self._paid.add_look(look.at, look.situation)
            self._boots.begin(look.situation)
            return
        self._run.feed(look)
        self._boots.read_look(look.at, look.situation)
        self._waiting.append(look)
        self._advance(look.at - LAG)

    def add_record(self, record: DecisionRecord) -> None:
        """When a machine ended is told after the look at which it was gone."""
        if record.kind is RecordKind.NODE_GONE:
            if self._waiting:
                self._waiting[-1].records.append(record)
            else:
                self._note_end(record)

    def end_segment(self, ended: datetime) -> None:
        """Nothing differed until this time."""
        self._last = ended
        self._advance(ended - LAG)

    def skip_gap(self, until: datetime) -> None:
        """The twin ends with what was watched, and begins again after the gap."""
        if self._last is not None:
            self._end_run(self._last)
        self._paid.skip_gap(until)

    def catch_up(self) -> None:
        """Live until the last look: no more will come."""
        if self._last is not None:
            self._advance(self._last)

    def close(self) -> None:
        """End the twin's controllers; what it came to is kept."""
        if self._run is not None:
            self._end_run(self._run.now)

    def build_bill(self) -> TwinBill | None:
        """What the twin came to so far; None before it has begun."""
        bill = self._before
        if self._run is not None:
            now = self._run.bill()
            bill = now if bill is None else bill.add(now)
            self._unknown = max(self._unknown, _find_unknown(now, self._run.hazard))
        if bill is None:
            return self._earlier
        found = _build_twin_bill(bill, self._paid.bill())
        broken = self._promises.count().budgets_broken
        promises = replace(found.promises, budgets_broken=broken)
        found = replace(found, promises=promises, unknown=self._unknown, boots=self._boots.list_days())
        return found if self._earlier is None else self._earlier.add(found)

    def encode_result(self) -> bytes:
        """The bill as JSON."""
        bill = self.build_bill()
        return msgspec.json.encode(bill) if bill is not None else b""

    def _advance(self, time: datetime) -> None:
        while self._begun and self._begun[0].began <= time:
            head = self._begun.popleft()
            self._live_until(head.began)
            self._keyframe = KeyframeResult(head.name, self.encode_result())
        self._live_until(time)

    def _live_until(self, time: datetime) -> None:
        if self._run is None or time <= self._run.now:
            return
        self._run.advance_to(time)
        self._promises.add_look(time, self._run.look())
        while self._waiting and self._waiting[0].at <= time:
            look = self._waiting.popleft()
            self._paid.add_look(look.at, look.situation)
            for record in look.records:
                self._note_end(record)
        self._paid.charge_until(time)

    def _note_end(self, record: DecisionRecord) -> None:
        for claim in list_claims(record):
            self._paid.note_end(claim, record.time)

    def _end_run(self, time: datetime) -> None:
        if self._run is None:
            return
        self._advance(time)
        bill = self._run.bill()
        self._unknown = max(self._unknown, _find_unknown(bill, self._run.hazard))
        self._before = bill if self._before is None else self._before.add(bill)
        self._run.close()
        self._run = None
        self._promises.skip_gap()
        self._waiting.clear()

    def _build_variation(self) -> Variation:
        recorded: Mapping[str, str] = self._head.settings if self._head is not None else {}
        settings = {key: value for key, value in recorded.items() if key not in THEIRS}
        tried = self._choices == self._twins.choices
        return Variation(
            name=self._choices,
            choices=self._choices,
            provider=recorded.get("PROVIDER", "kwok"),
            settings=settings | dict(self._twins.settings if tried else ()),
            recorded_settings=recorded,
            manifests=self._twins.manifests if tried else (),
        )


def build_consumer(role: str, twins: ShadowTwins) -> TellingConsumer:
    """The follower of a role."""
    if role == TWIN:
        return TwinConsumer(twins.choices, twins)
    if role == CALIBRATION:
        return TwinConsumer("karpenter", ShadowTwins(seed=twins.seed, restart=twins.restart))
    return FoldConsumer(twins)


def report_recording(
    sources: Iterable[SegmentSource], twins: ShadowTwins, since: datetime | None = None
) -> ShadowReport:
    """The report of a recording that is there; twins are not asked about what is too short for them."""
    kept = tuple(sources)
    fold = FoldConsumer(twins)
    feed_segments(kept, (SegmentFeed(fold, since),))
    report = fold.report()
    if report.paid.watched_seconds < LEAST_HOURS * 3600:
        return report
    bills = {
        role: replay_span(kept, role, twins, since) for role in (TWIN, CALIBRATION) if role in twins.roles
    }
    return add_bills(report, bills.get(TWIN), bills.get(CALIBRATION))


def replay_span(
    sources: Iterable[SegmentSource],
    role: str,
    twins: ShadowTwins,
    since: datetime | None = None,
    until: datetime | None = None,
) -> TwinBill | None:
    """What the twin of a role comes to over a part of a recording."""
    consumer = build_consumer(role, twins)
    assert isinstance(consumer, TwinConsumer)
    feed_segments(sources, (SegmentFeed(consumer, since, until),))
    consumer.catch_up()
    consumer.close()
    return consumer.build_bill()


def add_bills(report: ShadowReport, twin: TwinBill | None, calibration: TwinBill | None) -> ShadowReport:
    """The report with what the twins came to, and what may be said of it."""
    claim = build_claim(report.paid, twin, calibration)
    return replace(report, twin=twin, calibration=calibration, claim=claim)


def _find_unknown(bill: ReplayBill, hazard: float) -> float:
    """The share of a bill that hangs on reclaims where nobody has bought spot capacity yet."""
    return bill.unknown_spot_hours / bill.node_hours * hazard if bill.node_hours else 0.0


def find_restart(often: TwinRestart, time: datetime) -> datetime | None:
    """The last time at which twins begin again before a time, in UTC; None where they never do."""
    day = time.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    if often == "never":
        return None
    return day if often == "daily" else day - timedelta(days=day.weekday())


def _build_twin_bill(bill: ReplayBill, paid: PaidBill) -> TwinBill:
    real = {hour.began: hour.dollars for hour in paid.hours}
    mine = {hour.began: hour.dollars for hour in bill.hours}
    hours = tuple(
        TwinHour(began=began, dollars=mine.get(began, 0.0), paid=real.get(began, 0.0))
        for began in sorted(real.keys() | mine.keys())
    )
    return TwinBill(
        until=bill.until,
        dollars=bill.dollars,
        paid=paid.dollars,
        estimated=bill.estimated,
        node_hours=bill.node_hours,
        promises=PromiseCounts(waited=bill.pods_waited, evictions=bill.evictions),
        hours=hours,
        unplaced=sum(each.pods for each in bill.unplaced),
        pools=bill.by_pool,
        paid_pools=paid.by_pool,
    )

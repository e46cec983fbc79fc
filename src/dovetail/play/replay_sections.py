"""Whole replays: a recording in the parts that can be played, each under every variation and seed.

A gap ends a part: both of its sides are played, and what lies between is counted nowhere. Parts may be cut
into slices, which begin as the recording was then and are played beside one another; the first hour of a
slice is played and not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.api.nodepool import NodePool
from dovetail.history.demand import IN_VAIN, DemandReader
from dovetail.history.paid import PaidMeter
from dovetail.history.recording.reader import RecordedLook, RecordingReader, RecordingSegment
from dovetail.history.supply import BootTimes, ReclaimReader
from dovetail.play.recorded_cloud import Assumption
from dovetail.play.replay_meter import ReplayBill
from dovetail.play.replaying import ReplayFacts, ReplayRun, Variation

__all__ = ["RecordingSurvey", "ReplaySection", "ReplayTask", "cut_slices", "play_section", "survey_recording"]

# So long a time without a look is a gap when the recording says so; a shorter one is played through.
SHORT_GAP = timedelta(minutes=5)
WARM_UP = timedelta(hours=1)
# Told as time passes: the moment that was reached. True ends the work early.
OnMoment = Callable[[datetime], bool]
OpenReader = Callable[[], AbstractContextManager[RecordingReader]]


@dataclass(frozen=True, slots=True)
class ReplaySection:
    """A part of a recording without a gap: played from its begin on, and counted from `counted` on."""

    since: datetime
    until: datetime
    counted: datetime

    @property
    def length(self) -> timedelta:
        return self.until - self.counted


@dataclass(slots=True)
class RecordingSurvey:
    """A recording as one pass over it finds it: what was paid, its parts, and what a replay should know."""

    sections: list[ReplaySection] = field(default_factory=list)
    bills: list[ReplayBill] = field(default_factory=list)
    facts: ReplayFacts = field(default_factory=ReplayFacts)
    pools: dict[str, NodePool] = field(default_factory=dict)
    workloads: set[tuple[str, str]] = field(default_factory=set)
    settings: Mapping[str, str] = field(default_factory=dict)
    gaps: list[tuple[datetime, datetime]] = field(default_factory=list)
    decisions: int = 0
    looks: int = 0
    buffers: bool = False
    unpriced_hours: float = 0.0
    in_vain: Counter[str] = field(default_factory=Counter)
    stopped: bool = False

    @property
    def length(self) -> timedelta:
        """How much time can be played."""
        return sum((section.length for section in self.sections), timedelta())

    @property
    def bill(self) -> ReplayBill:
        """What was paid, and what happened, as it was."""
        return add_bills(self.bills)


def add_bills(bills: Sequence[ReplayBill]) -> ReplayBill:
    """The bills of one part after another as one."""
    total = bills[0]
    for bill in bills[1:]:
        total = total.add(bill)
    return total


class _OpenSection:
    """A section while its looks are read."""

    def __init__(self, look: RecordedLook) -> None:
        self.since = self.last = look.at
        self.meter, self.demand = PaidMeter(), DemandReader()

    def read_look(self, look: RecordedLook) -> None:
        self.meter.add_look(look.at, look.situation)
        self.demand.read_look(look.at, look.situation)
        self.last = look.at

    def end_with(self, segment: RecordingSegment, until: datetime | None) -> None:
        """Nothing differed from the last look until its segment ended, where that has its end."""
        if segment.end is not None and not segment.torn:
            ended = min(segment.end.ended, until or segment.end.ended)
            self.meter.charge_until(ended)
            self.last = max(self.last, ended)

    def build_bill(self) -> ReplayBill:
        paid = self.meter.bill()
        return ReplayBill(
            since=self.since,
            until=self.last,
            dollars=paid.dollars,
            estimated=paid.estimated,
            node_hours=paid.node_hours,
            evictions=self.demand.evictions,
            pods_waited=self.demand.waited,
            job_hours_repeated=self.demand.repeated_hours,
            hours=paid.hours,
        )


def survey_recording(
    reader: RecordingReader,
    since: datetime | None = None,
    until: datetime | None = None,
    told: OnMoment | None = None,
) -> RecordingSurvey:
    """Read a recording once, from its first look to its last."""
    found = RecordingSurvey()
    boots, reclaims, works = BootTimes(), ReclaimReader(), dict[str, float]()
    current: _OpenSection | None = None
    segment = 0
    last: RecordedLook | None = None
    for look in reader.looks(since, until):
        if told is not None and told(look.at):
            found.stopped = True
            break
        if current is not None and _is_gap(reader, segment, current.last, look):
            current.end_with(reader.segments[segment - 1], until)
            _end_section(found, current, works)
            found.gaps.append((current.last, look.at))
            current = None
        if current is None:
            current, reclaims = _OpenSection(look), _continue_reclaims(reclaims)
        segment, last = look.segment, look
        current.read_look(look)
        boots.read_look(look.situation)
        reclaims.read_look(look.at, look.situation)
        found.decisions += len(look.decisions)
        found.looks += 1
        found.buffers |= bool(look.situation.snapshot.virtual)
        for pool in look.situation.snapshot.pools:
            found.pools[pool.name] = pool.nodepool
    if current is not None and last is not None:
        if not found.stopped:
            current.end_with(reader.segments[last.segment - 1], until)
        _end_section(found, current, works)
        for seen in current.demand.pods.values():
            created = seen.pod.metadata.creation_timestamp
            if not seen.source and created is not None and last.at - created >= IN_VAIN:
                found.in_vain[str(seen.workload)] += 1
        found.settings = dict(reader.segments[last.segment - 1].head.settings)
    found.facts = ReplayFacts(boots, works, reclaims.hazard, frozenset(reclaims.places))
    return found


def _continue_reclaims(reclaims: ReclaimReader) -> ReclaimReader:
    """After a gap nobody knows what became of the nodes before it."""
    return ReclaimReader(reclaims.reclaims, reclaims.spot_hours, reclaims.places)


def _is_gap(reader: RecordingReader, segment: int, last: datetime, look: RecordedLook) -> bool:
    if look.segment == segment or look.at - last < SHORT_GAP:
        return False
    before, after = reader.segments[segment - 1], reader.segments[look.segment - 1]
    return bool(before.torn) or after.head.follows != before.head.name


def _end_section(found: RecordingSurvey, current: _OpenSection, works: dict[str, float]) -> None:
    works.update(current.demand.works)
    found.in_vain.update(current.demand.in_vain)
    found.workloads.update((each.namespace, each.name) for each in current.demand.counts)
    if current.last > current.since:
        found.sections.append(ReplaySection(current.since, current.last, current.since))
        found.bills.append(current.build_bill())
        found.unpriced_hours += current.meter.bill().unpriced_hours


def cut_slices(sections: Iterable[ReplaySection], length: timedelta | None) -> list[ReplaySection]:
    """The sections in slices of this length; each but the first of a section has an hour before it."""
    if length is None:
        return list(sections)
    found = []
    for section in sections:
        begin = section.counted
        while begin < section.until:
            end = min(begin + length, section.until)
            if section.until - end < WARM_UP:
                end = section.until
            found.append(ReplaySection(max(begin - WARM_UP, section.since), end, begin))
            begin = end
    return found


@dataclass(frozen=True, slots=True)
class ReplayTask:
    """One part of a recording under one variation and seed."""

    section: ReplaySection
    variation: Variation
    seed: int = 0
    assume: Assumption = "observed"


def play_section(
    open_reader: OpenReader, task: ReplayTask, facts: ReplayFacts, told: OnMoment | None = None
) -> ReplayBill | None:
    """Play one part; what it came to in the time that counts. None when it was ended early."""
    section = task.section
    with open_reader() as reader:
        looks = reader.looks(section.since, section.until)
        first = next(looks)
        # Each task learns nothing that another one has learned: the same task gives the same bill.
        with closing(ReplayRun(first, task.variation, task.seed, task.assume, facts)) as run:
            before: ReplayBill | None = None
            for look in looks:
                if before is None and look.at > section.counted > section.since:
                    run.advance_to(section.counted)
                    before = run.bill()
                run.feed(look)
                run.advance_to(look.at)
                if told is not None and told(look.at):
                    return None
            run.advance_to(section.until)
            bill = run.bill()
    return bill if before is None else bill.subtract(before)

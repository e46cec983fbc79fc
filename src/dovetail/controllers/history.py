"""DecisionRecorder: stamps what controllers decided and did, remembers it, and hands it to listeners.

Controllers note drafts; the recorder gives each an id, the time and the name of the leader. It begins with a
term: a process that does not lead decides nothing and records nothing. Noting never waits and never fails:
a record that cannot be made, or a listener that breaks, must not hold up a node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from dovetail import metrics
from dovetail.disruption.situation import Situation, digest_situation
from dovetail.errors import note_contained
from dovetail.history.record import DecisionRecord, RecordDraft, RecordIds, RecordKind, stamp_line
from dovetail.history.ring import HistoryRing
from dovetail.history.verdicts import Verdict, VerdictFilter, VerdictKey
from dovetail.logs import get_logger
from dovetail.ports import Clock
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.settings import Settings

__all__ = ["DecisionRecorder", "RecordListener"]

RECORDS = metrics.counter(
    "dovetail_history_records_total", "Records of decisions, by kind.", ("kind",), brief="summed"
)
DROPPED = metrics.counter(
    "dovetail_history_dropped_total", "Records that the history forgot before their time, or could not keep."
)
OLDEST = metrics.gauge(
    "dovetail_history_oldest_timestamp", "When the oldest record of the history was made; 0 without one."
)
# Where nobody asks for history but somebody listens, causes are found among these many.
LEAST = 5_000
# How far the clock of a leader before may have been ahead of ours.
AHEAD = timedelta(days=1)

RecordListener = Callable[[DecisionRecord], None]


class DecisionRecorder:
    """The leader's history: a ring of records, and whoever listens to them."""

    def __init__(self, settings: Settings, clock: Clock, identity: str = "") -> None:
        self._clock = clock
        self._identity = identity
        self._kept = settings.history_keep.total_seconds() > 0 and settings.history_most > 0
        self.ring = HistoryRing(settings.history_keep, settings.history_most)
        self._causes = self.ring if self._kept else HistoryRing(most=LEAST)
        self._verdicts = VerdictFilter()
        # Digests of the parts of the last situation: of the next, hardly any is new.
        self._digests = DecisionCache()
        self._ids: RecordIds | None = None
        self._restored = ""
        self._since: datetime | None = None
        self._listeners: list[RecordListener] = []
        self._dropped = 0
        # Counted here, and added to the metric when somebody looks at it: its lock costs more than a record.
        self._counted: Counter[RecordKind] = Counter()
        for kind in RecordKind:
            RECORDS.labels(kind.value)
        self._log = get_logger()

    @property
    def recording(self) -> bool:
        """Whether a note comes to anything: a term has begun, and somebody remembers or listens."""
        return self._ids is not None and (self._kept or bool(self._listeners))

    @property
    def restored(self) -> bool:
        """Whether anything was read back of the terms before."""
        return bool(self._restored)

    @property
    def verdicts(self) -> Mapping[str, VerdictKey]:
        """The last verdict on each pod and node: what new ones are compared with."""
        return self._verdicts.known

    def add_listener(self, listener: RecordListener) -> None:
        """Hand every record to this function from now on. It must not wait."""
        self._listeners.append(listener)

    def restore_records(self, records: Iterable[DecisionRecord]) -> None:
        """Remember what was recorded before this term, oldest first; listeners are not told of it.

        A record that claims to be of days to come is left out: all others would be too old beside it.
        """
        latest = self._clock.now() + AHEAD
        newest = RecordIds("").make_id(latest)[:12]
        left_out = 0
        for record in records:
            if record.time > latest or record.id[:12] > newest:
                left_out += 1
                continue
            try:
                self._causes.note_record(record)
            except Exception as error:  # noqa: BLE001 (one record must not keep the others from being known)
                self._report_failure(record.kind, error)
                continue
            self._restored = max(self._restored, record.id)
        if left_out:
            self._log.warning("records of days to come were left out", records=left_out)

    def begin_term(self, cluster_uid: str) -> None:
        """This process leads from now on. Its first record says since when it remembers."""
        self._ids = RecordIds(cluster_uid)
        if self._restored:
            # No id of the term before is given again, whatever this machine's clock says.
            self._ids.skip_past(self._restored)
        oldest = self._causes.oldest
        self._since = self._clock.now() if oldest is None else datetime.fromtimestamp(oldest, UTC)
        self.note_decision(self._draft_term())

    def _draft_term(self) -> RecordDraft:
        told = "with what was read back" if self._restored else "nothing from before is known"
        return RecordDraft(
            kind=RecordKind.TERM_BEGAN,
            subject=f"log/{self._identity or 'controller'}",
            message=f"remembers since {self._since:%Y-%m-%dT%H:%M:%SZ}, {told}",
        )

    def note_decision(self, draft: RecordDraft, *, parent: str = "", situation: str = "") -> str:
        """Record a decision and give its id; empty when nothing is recorded."""
        return self._note_at(None, draft, parent, situation)

    def note_verdicts(self, verdicts: Iterable[Verdict], situation: str = "") -> None:
        """Take verdicts that differ from those known, and record those that have lasted by now."""
        if not self.recording:
            return
        try:
            settled = self._verdicts.note_verdicts(self._clock.now(), verdicts, situation)
        except Exception as error:  # noqa: BLE001 (what decides must not fail for what remembers)
            self._report_failure("verdicts", error)
            return
        for each in settled:
            self._note_at(each.time, each.draft, "", each.situation)

    def digest_situation(self, situation: Situation) -> str:
        """What records call a situation that something was decided from; empty when nothing is recorded."""
        if not self.recording:
            return ""
        try:
            return digest_situation(situation, self._digests)
        except Exception as error:  # noqa: BLE001 (what decides must not fail for what remembers)
            self._report_failure("the digest of a situation", error)
            return ""

    def forget_verdicts(self, subject: str) -> None:
        """A pod or node is gone: nothing more will be found about it."""
        self._verdicts.forget_subject(subject)

    @property
    def since(self) -> datetime | None:
        """Since when anything is remembered; None while nothing is."""
        return self._since

    def find_cause(self, name: str, kinds: frozenset[RecordKind]) -> str:
        """The id of the newest record of these kinds that has this name; empty when there is none."""
        return self._causes.find_cause(name, kinds)

    def find_record(self, name: str, kinds: frozenset[RecordKind]) -> DecisionRecord | None:
        """The newest record of these kinds that has this name."""
        return self._causes.find_record(name, kinds)

    def list_records(self, kinds: frozenset[RecordKind]) -> Iterable[DecisionRecord]:
        """Every record of these kinds that is remembered, in the order in which they were made."""
        return self._causes.list_records(kinds)

    def report(self) -> None:
        """Someone looks at the metrics: say what was recorded, how far back it goes, and what was lost."""
        for kind, count in self._counted.items():
            RECORDS.labels(kind.value).inc(count)
        self._counted.clear()
        OLDEST.set(self.ring.oldest or 0)
        lost = self._causes.dropped.total()
        DROPPED.inc(lost - self._dropped)
        self._dropped = lost

    def _note_at(self, time: datetime | None, draft: RecordDraft, parent: str, situation: str) -> str:
        if self._ids is None or not (self._kept or self._listeners):
            return ""
        try:
            now = self._clock.now()
            record_id = self._ids.make_id(now)
            record, line = stamp_line(draft, record_id, time or now, self._identity, situation, parent)
            cut_off = () if len(record.names) == len(draft.names) else draft.names
            self._causes.note_record(record, cut_off, line)
            self._counted[draft.kind] += 1
        except Exception as error:  # noqa: BLE001 (what decides must not fail for what remembers)
            self._report_failure(draft.kind, error)
            return ""
        for listener in self._listeners:
            try:
                listener(record)
            except Exception as error:  # noqa: BLE001 (nor may one listener keep it from the others)
                note_contained(error)
                self._log.error("a listener failed to take a record", record=record_id, error=error)
        return record_id

    def _report_failure(self, what: str, error: Exception) -> None:
        note_contained(error)
        DROPPED.inc()
        self._log.error("a decision could not be recorded", what=what, error=error)

"""VerdictFilter: which changes of a verdict on a pod or node are worth a record.

The same verdict is found in every pass; only a change is news. A change that is taken back within a minute is
none, so a change is recorded a minute later, with the time it happened. An object whose verdict goes on
changing gets six records an hour and then one that says so; what it settles on is recorded all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from heapq import heappop, heappush
from types import MappingProxyType
from typing import NamedTuple

from dovetail.history.record import RecordDraft, RecordKind

__all__ = ["SettledVerdict", "Verdict", "VerdictFilter", "VerdictKey"]

# What makes two verdicts on one subject the same: kind, reason and, for a pod, its place. Numbers in the
# sentence change from pass to pass and make no other verdict.
VerdictKey = tuple[RecordKind, str, str]

SETTLE = timedelta(seconds=60)
HOUR = timedelta(hours=1)
KEEP = timedelta(hours=24)
MOST_AN_HOUR = 6


class Verdict(NamedTuple):
    """A verdict on a pod or node: what it is compared by, and the record it would become."""

    key: VerdictKey
    draft: RecordDraft


class SettledVerdict(NamedTuple):
    """A verdict that is to be recorded: when it was reached, and the digest of what the decision saw."""

    time: datetime
    draft: RecordDraft
    situation: str


@dataclass(slots=True)
class _SubjectState:
    """What is known of one subject. `due` is when its change is to be recorded; None without a change."""

    key: VerdictKey
    # None once it is recorded: most pods have one verdict, and there are many pods.
    draft: RecordDraft | None
    since: datetime
    situation: str
    recorded: VerdictKey | None = None
    due: datetime | None = None
    recent: tuple[datetime, ...] = ()
    changes: int = 1
    told_flapping: datetime | None = None

    def forget_before(self, moment: datetime) -> None:
        """Records older than the hour no longer count."""
        if self.recent and self.recent[0] <= moment:
            self.recent = tuple(each for each in self.recent if each > moment)


class VerdictFilter:
    """Takes the verdicts of every pass and gives those back that are to be recorded."""

    def __init__(self, settle: timedelta = SETTLE, keep: timedelta = KEEP) -> None:
        self._settle = settle
        self._keep = keep
        self._subjects: dict[str, _SubjectState] = {}
        self._known: dict[str, VerdictKey] = {}
        # When changes are due. A line whose subject is due at another time by now is out of date.
        self._due: list[tuple[datetime, int, str]] = []
        self._pushed = 0
        self._swept: datetime | None = None

    @property
    def known(self) -> Mapping[str, VerdictKey]:
        """The last verdict on each subject: what drafts are compared with."""
        return MappingProxyType(self._known)

    def note_verdicts(
        self, now: datetime, verdicts: Iterable[Verdict], situation: str = ""
    ) -> list[SettledVerdict]:
        """Take verdicts that differ from those known, and give those that are due by now."""
        settled = self.settle_verdicts(now)
        for verdict in verdicts:
            self._note_verdict(now, verdict, situation)
        return settled

    def settle_verdicts(self, now: datetime) -> list[SettledVerdict]:
        """The changes that have lasted: each with the time of its last change."""
        settled: list[SettledVerdict] = []
        while self._due and self._due[0][0] <= now:
            due, _, subject = heappop(self._due)
            state = self._subjects.get(subject)
            if state is not None and state.due == due:
                settled += self._settle_subject(now, subject, state)
        self._forget_old_subjects(now)
        return settled

    def forget_subject(self, subject: str) -> None:
        """The pod or node is gone: nothing more will be found about it."""
        self._subjects.pop(subject, None)
        self._known.pop(subject, None)

    def _note_verdict(self, now: datetime, verdict: Verdict, situation: str) -> None:
        subject = verdict.draft.subject
        state = self._subjects.get(subject)
        if state is None:
            state = self._subjects[subject] = _SubjectState(*verdict, now, situation)
        elif verdict.key == state.key:
            return
        else:
            (state.key, state.draft), state.since, state.situation = verdict, now, situation
            state.changes += 1
        self._known[subject] = verdict.key
        if verdict.key == state.recorded:
            state.due = None
        elif state.due is None:
            self._push_due(subject, state, now + self._settle)

    def _push_due(self, subject: str, state: _SubjectState, due: datetime) -> None:
        state.due = due
        self._pushed += 1
        heappush(self._due, (due, self._pushed, subject))

    def _settle_subject(self, now: datetime, subject: str, state: _SubjectState) -> list[SettledVerdict]:
        state.forget_before(now - HOUR)
        if not state.recent:
            state.changes = 1
        if len(state.recent) >= MOST_AN_HOUR:
            # It is asked again when the hour has room; if it is back where it was by then, nothing is said.
            self._push_due(subject, state, state.recent[0] + HOUR)
            return self._describe_flapping(now, state)
        assert state.draft is not None, "what is due was not recorded yet"
        settled = SettledVerdict(state.since, state.draft, state.situation)
        state.recent = (*state.recent, now)
        state.recorded, state.due, state.draft = state.key, None, None
        return [settled]

    def _describe_flapping(self, now: datetime, state: _SubjectState) -> list[SettledVerdict]:
        if state.told_flapping is not None and now - state.told_flapping < HOUR:
            return []
        state.told_flapping = now
        last = state.draft
        assert last is not None, "what is due was not recorded yet"
        told = RecordDraft(
            kind=RecordKind.FLAPPING,
            subject=last.subject,
            reason=last.reason,
            message=f"its verdict changed {state.changes} times within an hour and is now {last.kind}",
            pool=last.pool,
            names=last.names,
            count=state.changes,
        )
        return [SettledVerdict(now, told, state.situation)]

    def _forget_old_subjects(self, now: datetime) -> None:
        """Once an hour, subjects go on which nothing new was found for as long as history goes back.

        A pod that was placed an hour ago runs, and nobody asks where it should.
        """
        if self._swept is not None and now - self._swept < HOUR:
            return
        self._swept = now
        old = [
            subject
            for subject, state in self._subjects.items()
            if state.due is None
            and now - state.since >= (HOUR if state.key[0] is RecordKind.POD_PLACED else self._keep)
        ]
        for subject in old:
            del self._subjects[subject], self._known[subject]

"""The recorder stamps, remembers and hands on what controllers note; it never waits, fails or tells twice."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from dovetail.controllers.history import DecisionRecorder
from dovetail.history.record import DecisionRecord, RecordDraft, RecordKind
from dovetail.history.ring import HistoryQuery
from dovetail.history.verdicts import Verdict
from dovetail.settings import Settings
from support.apiserver import HandClock
from support.decision_records import CLUSTER, LEADER

GONE = RecordDraft(kind=RecordKind.NODE_GONE, subject="node/a", pool="default", names=("claim-a",))


def begin(
    clock: HandClock | None = None, *listeners: Callable[[DecisionRecord], None], **settings: Any
) -> DecisionRecorder:
    """A recorder whose term has begun."""
    recorder = DecisionRecorder(Settings(**settings), clock or HandClock(), LEADER)
    for listener in listeners:
        recorder.add_listener(listener)
    recorder.begin_term(CLUSTER)
    return recorder


def list_kinds(recorder: DecisionRecorder) -> list[str]:
    """What is remembered, oldest first."""
    return [record.kind for record in reversed(recorder.ring.find_records(HistoryQuery()))]


def test_a_record_has_time_leader_cluster_and_cause() -> None:
    clock = HandClock()
    recorder = begin(clock)
    cause = recorder.note_decision(RecordDraft(kind=RecordKind.NODE_DRAINING, subject="node/a"))
    noted = recorder.note_decision(GONE, parent=cause, situation="abc")
    record = recorder.ring.find_records(HistoryQuery(name="claim-a", limit=1))[0]
    assert (record.id, record.by, record.time) == (noted, LEADER, clock.now())
    assert (record.parent, record.situation) == (cause, "abc")
    assert noted.endswith(CLUSTER[:8])
    assert noted > cause


def test_who_does_not_lead_records_nothing() -> None:
    heard: list[DecisionRecord] = []
    recorder = DecisionRecorder(Settings(), HandClock(), LEADER)
    recorder.add_listener(heard.append)
    assert not recorder.recording
    assert recorder.note_decision(GONE) == ""
    recorder.note_verdicts([Verdict((RecordKind.NODE_BLOCKED, "pdb", ""), GONE)])
    assert not heard
    assert not len(recorder.ring)
    assert not recorder.verdicts


@pytest.mark.parametrize("off", [{"history_keep": timedelta()}, {"history_most": 0}])
def test_switched_off_it_keeps_nothing_and_says_so(off: dict[str, Any]) -> None:
    recorder = begin(None, **off)
    assert not recorder.recording
    assert recorder.note_decision(GONE) == ""
    assert not len(recorder.ring)


def test_switched_off_it_still_tells_listeners_and_finds_causes() -> None:
    heard: list[DecisionRecord] = []
    recorder = begin(None, heard.append, history_keep=timedelta())
    noted = recorder.note_decision(GONE)
    assert [record.kind for record in heard] == [RecordKind.TERM_BEGAN, RecordKind.NODE_GONE]
    assert recorder.find_cause("claim-a", frozenset((RecordKind.NODE_GONE,))) == noted
    assert not len(recorder.ring)


@pytest.mark.spec("HI-6")
def test_a_new_leader_without_a_log_says_first_since_when_it_remembers() -> None:
    recorder = begin()
    recorder.note_decision(GONE)
    first = recorder.ring.find_records(HistoryQuery())[-1]
    assert first.kind is RecordKind.TERM_BEGAN
    assert first.message == "remembers since 2030-01-01T00:00:00Z, nothing from before is known"


def test_a_new_leader_goes_on_from_what_was_read_back() -> None:
    """Even if its clock is behind: no id is given twice, and old records are found as causes."""
    ahead = HandClock()
    ahead.advance(3600)
    old = begin(ahead)
    cause = old.note_decision(GONE)
    told: list[DecisionRecord] = []
    new = DecisionRecorder(Settings(), HandClock(), LEADER)
    new.add_listener(told.append)
    new.restore_records(reversed(old.ring.find_records(HistoryQuery())))
    new.begin_term(CLUSTER)
    assert new.find_cause("claim-a", frozenset((RecordKind.NODE_GONE,))) == cause
    assert [record.kind for record in told] == [RecordKind.TERM_BEGAN]
    assert told[0].id > cause
    assert "with what was read back" in told[0].message


def test_a_listener_that_fails_keeps_the_record_from_nobody() -> None:
    heard: list[DecisionRecord] = []

    def fail(record: DecisionRecord) -> None:
        raise OSError("disk full")

    recorder = begin(None, fail, heard.append)
    assert recorder.note_decision(GONE)
    assert [record.kind for record in heard] == [RecordKind.TERM_BEGAN, RecordKind.NODE_GONE]


@pytest.mark.contains_bugs
def test_a_draft_that_cannot_be_recorded_is_dropped_and_fails_nobody() -> None:
    recorder = begin()
    broken = RecordDraft(kind=RecordKind.NODE_GONE, subject="node/a", names=(object(),))  # type: ignore[arg-type]
    assert recorder.note_decision(broken) == ""
    assert list_kinds(recorder) == [RecordKind.TERM_BEGAN]


def test_a_verdict_is_recorded_once_it_has_lasted_with_the_time_it_was_reached() -> None:
    clock = HandClock()
    recorder = begin(clock)
    reached = clock.now()
    draft = RecordDraft(kind=RecordKind.NODE_BLOCKED, subject="node/a", reason="pdb")
    recorder.note_verdicts([Verdict((RecordKind.NODE_BLOCKED, "pdb", ""), draft)])
    assert recorder.verdicts == {"node/a": (RecordKind.NODE_BLOCKED, "pdb", "")}
    clock.advance(61)
    recorder.note_verdicts(())
    found = recorder.ring.find_records(HistoryQuery(name="node/a"))
    assert [(record.kind, record.time) for record in found] == [(RecordKind.NODE_BLOCKED, reached)]

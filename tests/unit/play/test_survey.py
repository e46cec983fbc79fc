"""The survey of a recording: how long it is, and what was paid until its end."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.disruption.situation import Situation
from dovetail.history.recording.reader import RecordingReader, SegmentSource
from dovetail.history.recording.segment import FORMAT, SegmentHead, SegmentWriter
from dovetail.play.replay_sections import survey_recording
from support.builders import NOW
from support.disruption import LARGE, scene, state

HOUR = timedelta(hours=1)


def write_segment(name: str, hour: float, ends: float | None, follows: str = "") -> SegmentSource:
    """A segment with a look at its begin and one half an hour later; a killed recorder writes no end."""
    writer = SegmentWriter(SegmentHead(format=FORMAT, name=name, began=NOW + hour * HOUR, follows=follows))
    for part in (0.0, 0.5):
        nodes = (state(f"n{each}", of=LARGE) for each in range(2 if part else 1))
        writer.write_look(Situation(snapshot=scene(*nodes).snapshot), NOW + (hour + part) * HOUR)
    data = writer.end_segment(NOW + ends * HOUR) if ends is not None else writer.flush()
    return SegmentSource(name, lambda: data)


def test_the_calm_time_after_the_last_look_counts() -> None:
    """A look that differs in nothing is not written; that the segment ended as it should says so."""
    survey = survey_recording(RecordingReader([write_segment("1", 0, 1)]))
    assert [(each.since, each.until) for each in survey.sections] == [(NOW, NOW + HOUR)]
    assert survey.length == HOUR
    assert survey.bill.dollars == pytest.approx(8.0 + 8.0)
    assert survey.bill.until == NOW + HOUR


def test_nothing_is_known_after_the_last_look_of_a_recorder_that_was_killed() -> None:
    survey = survey_recording(RecordingReader([write_segment("1", 0, None)]))
    assert survey.length == HOUR / 2


def test_the_time_before_a_gap_counts_until_the_segment_before_it_ended() -> None:
    """The second does not follow the first: it was stopped for an hour."""
    survey = survey_recording(RecordingReader([write_segment("1", 0, 1), write_segment("2", 2, 3)]))
    assert [(each.since, each.until) for each in survey.sections] == [
        (NOW, NOW + HOUR),
        (NOW + 2 * HOUR, NOW + 3 * HOUR),
    ]
    assert survey.gaps == [(NOW + HOUR, NOW + 2 * HOUR)]


def test_a_time_that_a_person_chose_ends_before_the_segment_does() -> None:
    survey = survey_recording(RecordingReader([write_segment("1", 0, 1)]), until=NOW + 0.75 * HOUR)
    assert survey.length == 0.75 * HOUR

"""Verdicts are recorded when they change and the change lasts; an object that flaps says so once."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.history.record import RecordDraft, RecordKind
from dovetail.history.verdicts import MOST_AN_HOUR, SettledVerdict, Verdict, VerdictFilter
from support.decision_records import at

PLACED, STUCK = RecordKind.POD_PLACED, RecordKind.POD_UNSCHEDULABLE


def verdict(kind: RecordKind = STUCK, reason: str = "not enough resources", place: str = "") -> Verdict:
    return Verdict((kind, reason, place), RecordDraft(kind=kind, subject="pod/shop/web", reason=reason))


def play(changes: VerdictFilter, *moments: tuple[float, Verdict | None]) -> list[SettledVerdict]:
    """Note each verdict at its second, or nothing; everything that becomes due on the way."""
    found = []
    for seconds, each in moments:
        found += changes.note_verdicts(at(seconds), [each] if each else [])
    return found


@pytest.mark.spec("HI-3")
def test_a_pod_that_is_pending_for_an_hour_for_one_reason_makes_two_records() -> None:
    """One when it became unschedulable, one when it was placed."""
    changes = VerdictFilter()
    passes = [(float(second), verdict()) for second in range(0, 3600, 10)]
    found = play(changes, *passes, (3600, verdict(PLACED, "Nominated")), (3700, None))
    assert [(each.draft.kind, each.time) for each in found] == [(STUCK, at(0)), (PLACED, at(3600))]


@pytest.mark.spec("HI-4")
@pytest.mark.parametrize("states", [2, 3, 4, 5])
@pytest.mark.parametrize("every", [20, 61, 90, 300])
def test_a_verdict_that_flaps_for_an_hour_makes_at_most_seven_records(states: int, every: int) -> None:
    changes = VerdictFilter()
    moments = [(float(s), verdict(reason=f"r{(s // every) % states}")) for s in range(0, 3600, every)]
    found = play(changes, *moments)
    assert len(found) <= MOST_AN_HOUR + 1
    assert sum(each.draft.kind is RecordKind.FLAPPING for each in found) <= 1


def test_flapping_is_told_with_the_count() -> None:
    found = play(VerdictFilter(), *((100.0 * n, verdict(reason=f"r{n % 2}")) for n in range(12)))
    assert [each.draft.kind for each in found][-1] is RecordKind.FLAPPING
    assert found[-1].draft.count > MOST_AN_HOUR
    assert len(found) == MOST_AN_HOUR + 1


def test_what_a_flapping_object_settles_on_is_recorded_when_the_hour_has_room() -> None:
    changes = VerdictFilter()
    play(changes, *((100.0 * n, verdict(reason=f"r{n % 2}")) for n in range(10)))
    later = play(changes, (1000, verdict(reason="last")), (3659, None), (3661, None), (9000, None))
    assert [each.draft.reason for each in later] == ["last"]


def test_a_change_that_is_taken_back_within_a_minute_is_none() -> None:
    changes = VerdictFilter()
    play(changes, (0, verdict()), (61, None))
    assert play(changes, (100, verdict(PLACED, "Nominated")), (159, verdict()), (1000, None)) == []


def test_a_change_that_lasts_a_minute_is_recorded_with_the_time_it_happened() -> None:
    changes = VerdictFilter()
    assert play(changes, (0, verdict()), (59, None)) == []
    (settled,) = play(changes, (60, None))
    assert (settled.time, settled.draft.kind) == (at(0), STUCK)


def test_of_two_changes_within_a_minute_the_last_is_recorded() -> None:
    changes = VerdictFilter()
    found = play(changes, (0, verdict(reason="a")), (30, verdict(reason="b")), (60, None))
    assert [(each.draft.reason, each.time) for each in found] == [("b", at(30))]


def test_a_verdict_is_recorded_though_the_pod_is_not_seen_again() -> None:
    """A pod that was placed is bound and gone from the next plan."""
    assert len(play(VerdictFilter(), (0, verdict(PLACED, "Nominated")), (70, None))) == 1


def test_the_same_verdict_in_other_words_is_the_same() -> None:
    changes = VerdictFilter()
    play(changes, (0, verdict()), (61, None))
    other = verdict()
    reworded = Verdict(other.key, RecordDraft(kind=STUCK, subject="pod/shop/web", message="15 nodes now"))
    assert play(changes, (70, reworded), (500, None)) == []


def test_verdicts_of_other_subjects_do_not_disturb_each_other() -> None:
    changes = VerdictFilter()
    for number in range(5):
        draft = RecordDraft(kind=STUCK, subject=f"pod/shop/{number}", reason="r")
        changes.note_verdicts(at(number), [Verdict((STUCK, "r", ""), draft)])
    assert len(changes.settle_verdicts(at(62))) == 3
    assert len(changes.settle_verdicts(at(64))) == 2
    assert len(changes.known) == 5


def test_subjects_are_forgotten_when_nothing_was_new_for_as_long_as_history_goes_back() -> None:
    changes = VerdictFilter(keep=timedelta(hours=2))
    play(changes, (0, verdict()), (61, None), (3 * 3600, None))
    assert dict(changes.known) == {}


def test_a_clock_that_goes_back_settles_nothing_twice() -> None:
    changes = VerdictFilter()
    found = play(changes, (100, verdict()), (40, None), (160, None), (90, None), (161, None))
    assert len(found) == 1

"""A shift from first sight to the last trace: polls decide, timers pace, silence undoes nothing."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.zonal.model.shifts import Shift
from dovetail.zonal.model.state_machine import (
    ShiftObservation,
    ShiftProgress,
    ShiftRecord,
    ShiftTiming,
    advance_record,
    begin_record,
)

START = datetime(2026, 2, 3, 10, tzinfo=UTC)
PACE = ShiftTiming()
DONE = ShiftProgress()


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def manual(expires: float | None = 7200, kind: Any = "ZONAL_SHIFT") -> Shift:
    return Shift("use1-az1", kind, "s1", started=START, expires=at(expires) if expires is not None else None)


def step(
    record: ShiftRecord, seconds: float, shift: Shift | None, progress: ShiftProgress = DONE, **more: Any
) -> ShiftRecord:
    polled = more.pop("polled", seconds)
    found = advance_record(
        record,
        ShiftObservation(None if polled is None else at(polled), shift, **more),
        progress,
        at(seconds),
        PACE,
    )
    assert found is not None
    return found


def active(shift: Shift | None = None) -> ShiftRecord:
    record = begin_record(shift or manual(), "Enforce", START)
    return step(step(record, 3, shift or manual()), 4, shift or manual())


def test_a_shift_settles_is_applied_and_becomes_active() -> None:
    record = begin_record(manual(), "Enforce", START)
    assert (record.phase, record.launches_gated) == ("Pending", True)

    record = step(record, 1, manual())
    assert record.phase == "Pending"
    record = step(record, 3, manual())
    assert record.phase == "Applying"
    record = step(record, 4, manual(), ShiftProgress(nodes=5))
    assert record.phase == "Applying"
    assert step(record, 5, manual()).phase == "Active"


def test_when_everything_was_first_applied_is_kept_through_later_marks_and_another_start() -> None:
    record = active()
    assert record.stepped == at(4)
    marking = step(record, 60, manual(), ShiftProgress(nodes=1))  # a node that joined meanwhile
    assert (marking.phase, marking.stepped) == ("Applying", at(4))
    again = step(marking, 61, manual())
    assert (again.phase, again.stepped) == ("Active", at(4))
    back = step(step(again, 400, None), 411, None)
    assert (back.phase, back.stepped) == ("Restoring", at(411))
    anew = step(back, 412, manual())
    assert (anew.phase, anew.stepped) == ("Applying", at(411))


def test_the_way_back_is_walked_in_order_and_gates_open_last() -> None:
    record = active()
    record = step(record, 400, None)
    assert record.phase == "Active"
    record = step(record, 411, None)
    assert (record.phase, record.step, record.edits) == ("Restoring", "pools", False)
    record = step(record, 412, None, ShiftProgress(pools=2))
    assert record.step == "pools"
    record = step(record, 413, None, ShiftProgress(drifted=1))
    assert record.step == "guard"
    record = step(record, 414, None, ShiftProgress(drifted=1))
    assert record.step == "guard"
    record = step(record, 420, None, ShiftProgress(nodes=3))
    assert record.step == "nodes"
    record = step(record, 430, None)
    assert (record.step, record.launches_gated) == ("settling", True)
    record = step(record, 500, None)
    assert record.step == "settling"
    record = step(record, 1031, None)
    assert (record.step, record.launches_gated) == ("lifted", False)
    record = step(record, 1032, None)
    assert (record.phase, record.reason) == ("Restored", "Cancelled")


@pytest.mark.spec("zonal-E7", "zonal-E8")
def test_an_end_without_an_event_is_seen_by_two_polls() -> None:
    record = active(manual(600))

    assert step(record, 601, None).phase == "Active"
    ended = step(step(record, 601, None), 612, None)
    assert (ended.phase, ended.reason) == ("Restoring", "Expired")


def test_one_poll_that_misses_it_ends_nothing() -> None:
    record = step(active(), 400, None)
    record = step(record, 411, manual())

    assert (record.phase, record.gone) == ("Active", None)
    assert step(record, 421, None).phase == "Active"


@pytest.mark.spec("zonal-E9")
def test_a_shift_extended_just_before_its_expiry_goes_on() -> None:
    record = step(active(manual(600)), 601, manual(4000))

    assert (record.phase, record.shift.expires) == ("Active", at(4000))


def test_a_short_shift_is_held_for_a_while() -> None:
    record = step(step(active(), 20, None), 40, None)
    assert record.phase == "Active"

    assert step(record, 301, None).phase == "Restoring"


@pytest.mark.spec("zonal-E10", "zonal-E26", "zonal-E31")
@pytest.mark.parametrize(
    ("kind", "expires", "seconds", "phase"),
    [
        ("PRACTICE_RUN", 60, 1800, "Active"),
        ("FIS_EXPERIMENT", 60, 3000, "Active"),
        ("PRACTICE_RUN", 60, 3700, "Restoring"),
        ("ZONAL_AUTOSHIFT", None, 86400, "Active"),
        ("ZONAL_SHIFT", 600, 800, "Active"),
        ("ZONAL_SHIFT", 600, 901, "Restoring"),
    ],
)
def test_silence_undoes_nothing_before_its_time(
    kind: Any, expires: float | None, seconds: float, phase: str
) -> None:
    shift = manual(expires, kind)
    record = active(shift)

    # The last poll that succeeded is the one of long ago, and it showed the shift.
    assert step(record, seconds, shift, polled=4).phase == phase


@pytest.mark.spec("zonal-E5", "zonal-E6")
def test_a_pending_shift_that_polls_never_show_is_dropped_without_a_trace() -> None:
    record = replace(begin_record(manual(), "Enforce", START), since=at(-400))

    record = step(record, 0, None)
    record = step(record, 11, None) if record.phase != "Restored" else record
    assert record.phase in ("Applying", "Restored", "Restoring")
    assert step(step(record, 12, None), 25, None).phase in ("Restoring", "Restored")


def test_a_zone_impaired_again_on_the_way_back_is_applied_again() -> None:
    record = step(step(active(), 400, None), 411, None)
    record = step(step(record, 412, None), 413, None, ShiftProgress(nodes=1))
    assert record.step == "nodes"

    again = step(record, 420, manual())
    assert (again.phase, again.step, again.edits) == ("Applying", "pools", True)


@pytest.mark.spec("zonal-E11")
def test_a_kind_changes_in_place() -> None:
    record = step(active(manual(kind="PRACTICE_RUN")), 30, manual(kind="ZONAL_AUTOSHIFT"))

    assert (record.phase, record.shift.kind) == ("Active", "ZONAL_AUTOSHIFT")


@pytest.mark.spec("zonal-E29")
def test_an_operator_ends_it_whatever_arc_says() -> None:
    record = step(active(), 10, manual(), cancelled=True)

    assert (record.phase, record.reason) == ("Restoring", "Operator")
    assert step(record, 11, manual(), cancelled=True).phase == "Restoring"


def test_what_is_only_observed_gates_nothing() -> None:
    record = begin_record(manual(kind="OBSERVED"), "Observe", START)

    assert not record.launches_gated
    assert step(step(record, 3, manual()), 4, manual(), ShiftProgress(pools=3)).phase == "Active"


def test_a_restored_shift_is_forgotten_after_a_week() -> None:
    record = replace(active(), phase="Restored", ended=at(0))

    assert advance_record(record, ShiftObservation(at(10), None), DONE, at(10), PACE) is not None
    assert advance_record(record, ShiftObservation(at(10), None), DONE, at(8 * 86400), PACE) is None


def test_a_late_poll_answer_does_not_take_back_a_newer_one() -> None:
    record = step(active(), 60, manual())

    assert step(record, 61, None, polled=30).gone is None

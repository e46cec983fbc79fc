"""What ARC says, and which zones that makes impaired."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.zonal.model.shifts import Shift, ShiftPolicies, find_impairment, has_ended_silently, parse_poll

NOW = datetime(2026, 2, 3, 10, tzinfo=UTC)
ZONES = ("use1-az1", "use1-az2", "use1-az4")


def shift(zone: str = "use1-az1", kind: Any = "ZONAL_SHIFT", minutes: float = 0, **more: Any) -> Shift:
    return Shift(zone, kind, started=NOW - timedelta(minutes=minutes), **more)


def test_both_lists_of_an_answer_are_read() -> None:
    poll = parse_poll(
        {
            "zonalShifts": [
                {
                    "zonalShiftId": "s1",
                    "awayFrom": "use1-az1",
                    "appliedStatus": "APPLIED",
                    "shiftType": "PRACTICE_RUN",
                    "expiryTime": NOW,
                    "startTime": NOW,
                }
            ],
            "autoshifts": [{"awayFrom": "use1-az2", "appliedStatus": "NOT_APPLIED", "startTime": NOW}],
        },
        NOW,
    )

    assert [(each.zone_id, each.kind, each.applied) for each in poll.shifts] == [
        ("use1-az1", "PRACTICE_RUN", True),
        ("use1-az2", "ZONAL_AUTOSHIFT", False),
    ]


def test_an_autoshift_in_both_lists_is_one() -> None:
    both = {"awayFrom": "use1-az2", "appliedStatus": "APPLIED", "startTime": NOW}
    poll = parse_poll({"zonalShifts": [both | {"shiftType": "ZONAL_AUTOSHIFT"}], "autoshifts": [both]}, NOW)

    assert len(poll.shifts) == 1


@pytest.mark.spec("zonal-E1")
def test_two_zones_are_both_impaired() -> None:
    found = find_impairment([shift("use1-az1"), shift("use1-az2", "ZONAL_AUTOSHIFT")], ShiftPolicies(), ZONES)

    assert found.list_zones(ShiftPolicies(), "Enforce") == ("use1-az1", "use1-az2")


@pytest.mark.spec("zonal-E2", "aws-233")
def test_a_waiting_autoshift_counts_once_it_is_applied() -> None:
    waiting = shift("use1-az2", "ZONAL_AUTOSHIFT", applied=False)

    assert find_impairment([shift("use1-az1"), waiting], ShiftPolicies(), ZONES).shifts.keys() == {"use1-az1"}
    assert find_impairment([waiting], ShiftPolicies(), ZONES, honour_unapplied=True).shifts.keys() == {
        "use1-az2"
    }


@pytest.mark.spec("zonal-E3")
def test_the_last_zone_is_refused() -> None:
    found = find_impairment(
        [shift(zone, minutes=30 - i) for i, zone in enumerate(ZONES)], ShiftPolicies(), ZONES
    )

    assert found.shifts.keys() == {"use1-az1", "use1-az2"}
    assert "fewer than 1" in found.refused["use1-az4"]


@pytest.mark.spec("zonal-E24")
def test_a_zone_nobody_knows_is_refused() -> None:
    found = find_impairment([shift("use1-az9")], ShiftPolicies(), ZONES)

    assert not found.shifts
    assert "not known" in found.refused["use1-az9"]


@pytest.mark.spec("zonal-E11")
def test_the_heavier_kind_speaks_for_a_zone() -> None:
    found = find_impairment(
        [shift(kind="PRACTICE_RUN"), shift(kind="ZONAL_AUTOSHIFT")], ShiftPolicies(), ZONES
    )

    assert found.shifts["use1-az1"].kind == "ZONAL_AUTOSHIFT"


def test_what_is_only_observed_takes_no_room_and_what_is_ignored_is_not_there() -> None:
    policies = ShiftPolicies(practice="Ignore")
    found = find_impairment(
        [shift("use1-az1", "OBSERVED"), shift("use1-az2"), shift("use1-az4", "PRACTICE_RUN")], policies, ZONES
    )

    assert found.list_zones(policies, "Enforce", "Protect") == ("use1-az2",)
    assert found.list_zones(policies, "Observe") == ("use1-az1",)


@pytest.mark.spec("zonal-E10", "zonal-E26")
@pytest.mark.parametrize(
    ("kind", "expires", "began", "over"),
    [
        ("ZONAL_SHIFT", -6, 100, True),
        ("ZONAL_SHIFT", -4, 100, False),
        ("PRACTICE_RUN", -6, 30, False),
        ("PRACTICE_RUN", -6, 61, True),
        ("FIS_EXPERIMENT", -6, 59, False),
        ("ZONAL_AUTOSHIFT", -600, 600, False),
    ],
)
def test_in_silence_only_time_that_is_meant_ends_a_shift(
    kind: Any, expires: float, began: float, over: bool
) -> None:
    one = shift(kind=kind, minutes=began, expires=NOW + timedelta(minutes=expires))

    assert has_ended_silently(one, NOW) is over

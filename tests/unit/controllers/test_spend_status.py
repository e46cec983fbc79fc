"""What the status of a SpendLimit says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from dovetail.api.meta import ObjectMeta
from dovetail.api.spend_limit import MonthSpend, SpendLimit, SpendLimitSpec, SpendLimitStatus
from dovetail.controllers.spend_status import build_month, is_worth_writing, judge_ready, read_tally
from dovetail.scheduling.spend import PoolSpend
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_month import MonthTally

NOW = datetime(2026, 11, 18, 9, tzinfo=UTC)
MISSING = "no controller looked for 540s of 2026-11; nodes that came and went then are missing in its dollars"
CAP = SpendCap(limit="development", every=True, hourly=40.0)


def build_limit(month: MonthSpend | None = None) -> SpendLimit:
    meta = ObjectMeta(name="development", creation_timestamp=NOW - timedelta(hours=1))
    return SpendLimit(metadata=meta, spec=SpendLimitSpec(hourly="40"), status=SpendLimitStatus(month=month))


@pytest.mark.spec("SL-6")
@pytest.mark.parametrize(
    ("cap", "unseen", "told"),
    [
        (CAP, timedelta(seconds=59), ""),
        (
            CAP,
            timedelta(minutes=9),
            f"{MISSING}: at $40.00 an hour, $6.00 at most",
        ),
        (
            SpendCap(limit="development", every=True, hourly=40.0, warn=True),
            timedelta(minutes=9),
            MISSING,
        ),
    ],
)
def test_the_condition_says_how_many_dollars_of_the_month_may_be_missing(
    cap: SpendCap, unseen: timedelta, told: str
) -> None:
    tally = MonthTally(of="2026-11", until=NOW, spent=3.0, unseen=unseen)
    found = judge_ready(cap, PoolSpend(), tally, True)
    assert (found.status, found.reason, found.message) == ("True", "Ready", told)


def test_another_leader_goes_on_from_what_the_status_says() -> None:
    tally = MonthTally(
        of="2026-11",
        until=NOW,
        spent=12.3456,
        rate=0.5,
        last_of="2026-10",
        last_spent=7.0,
        unseen=timedelta(minutes=2),
    )
    month = build_month(tally, build_limit())
    written = build_limit(month)
    status = SpendLimitStatus(month=month, last_month=MonthSpend(of="2026-10", spent="7.0000"))
    again = read_tally(SpendLimit(metadata=written.metadata, spec=written.spec, status=status), NOW)
    assert again == tally
    assert read_tally(build_limit(), NOW) == MonthTally(of="2026-11", until=NOW - timedelta(hours=1))


def test_a_month_that_somebody_else_wrote_is_counted_anew_and_written_over() -> None:
    odd = MonthSpend(of="2026-11", spent="much", until=NOW, rate="fast")
    assert read_tally(build_limit(odd), NOW) == read_tally(build_limit(), NOW)
    later = SpendLimitStatus(month=MonthSpend(of="2026-11", spent="1.0000", until=NOW + timedelta(minutes=1)))
    assert is_worth_writing(SpendLimitStatus(month=odd), later)


@pytest.mark.parametrize(
    ("spent", "minutes", "worth"), [("100.4000", 4, False), ("100.6000", 1, True), ("100.0000", 5, True)]
)
def test_a_month_is_written_when_it_moved_or_after_a_while(spent: str, minutes: int, worth: bool) -> None:
    before = SpendLimitStatus(month=MonthSpend(of="2026-11", spent="100.0000", until=NOW))
    until = NOW + timedelta(minutes=minutes)
    after = SpendLimitStatus(month=MonthSpend(of="2026-11", spent=spent, until=until))
    assert is_worth_writing(before, after) is worth
    assert is_worth_writing(before, SpendLimitStatus(month=before.month, held_pods=1))

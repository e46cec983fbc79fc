"""Filters, digests and quiet hours: who is told of what, and when."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from dovetail.history.filters import SinkQueue, find_quiet_end, find_sinks, wants_record
from dovetail.history.notify import Notify, NotifyRule, NotifySink, QuietHours
from dovetail.history.record import DecisionRecord, RecordKind
from support.decision_records import Stamping, at

BERLIN = ZoneInfo("Europe/Berlin")
GONE, INTERRUPTED = RecordKind.NODE_GONE, RecordKind.INTERRUPTED
stamp = Stamping()


def sink(**about: object) -> NotifySink:
    return NotifySink(name="s", to="stdout", **about)  # type: ignore[arg-type]


def wanted(record: DecisionRecord, *rules: NotifyRule) -> bool:
    return wants_record(sink(when=rules), record)


@pytest.mark.spec("NO-6")
def test_all_fields_of_a_rule_must_match() -> None:
    rule = NotifyRule(kinds=("NodeGone",), reasons=("Underutilized",), pools=("prod-*",), min_saving="0.10")
    good: dict[str, Any] = {
        "reason": "Underutilized",
        "pool": "prod-web",
        "price_before": 0.3,
        "price_after": 0.2,
    }
    assert wanted(stamp(GONE, **good), rule)
    assert not wanted(stamp(INTERRUPTED, **good), rule)
    assert not wanted(stamp(GONE, **good | {"reason": "Empty"}), rule)
    assert not wanted(stamp(GONE, **good | {"pool": "test-web"}), rule)
    assert not wanted(stamp(GONE, **good | {"pool": ""}), rule)
    assert not wanted(stamp(GONE, **good | {"price_after": 0.21}), rule)
    assert not wanted(stamp(GONE, **good | {"price_after": None}), rule)


@pytest.mark.spec("NO-6")
def test_any_rule_may_match_and_without_rules_everything_does() -> None:
    rules = (NotifyRule(kinds=("Expired",)), NotifyRule(severity="warning"))
    assert wanted(stamp(RecordKind.EXPIRED), *rules)
    assert wanted(stamp(INTERRUPTED), *rules)
    assert not wanted(stamp(GONE), *rules)
    assert wanted(stamp(GONE))
    assert wanted(stamp(GONE), NotifyRule(severity="info"))


def test_a_command_over_two_pools_matches_either() -> None:
    record = stamp(RecordKind.COMMAND_STARTED, names=("pool/prod-a", "pool/test"))
    assert wanted(record, NotifyRule(pools=("prod-?",)))
    assert not wanted(record, NotifyRule(pools=("prod",)))


def test_the_sinks_that_want_a_record_are_found() -> None:
    first, second = (
        sink(when=(NotifyRule(kinds=("NodeGone",)),)),
        sink(when=(NotifyRule(kinds=("Expired",)),)),
    )
    notify = Notify(api_version="dovetail.sh/v1alpha1", kind="Notify", sinks=(first, second))
    assert find_sinks(notify, stamp(GONE)) == [first]


def quiet(
    schedule: str = "0 20 * * *", duration: str = "10h", *kinds: str, zone: str = "Europe/Berlin"
) -> QuietHours:
    return QuietHours(schedule=schedule, duration=duration, time_zone=zone, except_kinds=kinds)


def berlin(day: int, hour: int, minute: int = 0, month: int = 7) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=BERLIN)


@pytest.mark.parametrize(
    ("now", "end"),
    [
        (berlin(1, 19, 59), None),
        (berlin(1, 20), berlin(2, 6)),
        (berlin(2, 3), berlin(2, 6)),
        (berlin(2, 5, 59), berlin(2, 6)),
        (berlin(2, 6), None),
    ],
)
def test_quiet_hours_are_those_of_the_clock_on_the_wall(now: datetime, end: datetime | None) -> None:
    assert find_quiet_end([quiet()], now.astimezone(UTC)) == end


@pytest.mark.spec("NO-10")
def test_quiet_hours_last_as_long_when_clocks_change() -> None:
    # In 2026 clocks go forward on 29 March and back on 25 October.
    spring, autumn = berlin(28, 20, month=3), berlin(24, 20, month=10)
    assert find_quiet_end([quiet()], spring.astimezone(UTC)) == berlin(29, 7, month=3)
    assert find_quiet_end([quiet()], autumn.astimezone(UTC)) == berlin(25, 5, month=10)
    for start in (spring, autumn):
        begun = start.astimezone(UTC)
        inside = [begun + timedelta(minutes=minute) for minute in range(0, 600, 7)]
        assert {find_quiet_end([quiet()], each) for each in inside} == {begun + timedelta(hours=10)}
        assert find_quiet_end([quiet()], begun - timedelta(seconds=1)) is None
        assert find_quiet_end([quiet()], begun + timedelta(hours=10)) is None


@pytest.mark.spec("NO-10")
def test_a_time_that_a_clock_change_leaves_out_or_brings_twice_counts_once() -> None:
    half_past_two = quiet("30 2 * * *", "30m")
    skipped = datetime(2026, 3, 29, 1, 30, tzinfo=UTC)  # 02:30 does not exist; it is 03:30 on the wall
    assert find_quiet_end([half_past_two], skipped) == skipped + timedelta(minutes=30)
    assert find_quiet_end([half_past_two], skipped + timedelta(minutes=29)) is not None
    assert find_quiet_end([half_past_two], skipped - timedelta(minutes=1)) is None
    first, second = datetime(2026, 10, 25, 0, 30, tzinfo=UTC), datetime(2026, 10, 25, 1, 30, tzinfo=UTC)
    assert find_quiet_end([half_past_two], first) == first + timedelta(minutes=30)
    assert find_quiet_end([half_past_two], second) is None


def test_quiet_hours_that_follow_on_each_other_are_one() -> None:
    windows = [quiet("0 20 * * *", "2h", zone="UTC"), quiet("0 22 * * *", "1h", zone="UTC")]
    evening = datetime(2026, 7, 1, 21, tzinfo=UTC)
    assert find_quiet_end(windows, evening) == datetime(2026, 7, 1, 23, tzinfo=UTC)


def test_quiet_hours_that_never_end_are_looked_at_again() -> None:
    now = datetime(2026, 7, 1, 21, tzinfo=UTC)
    assert find_quiet_end([quiet("0 * * * *", "2h", zone="UTC")], now) == now + timedelta(days=8)


def seconds(queue: SinkQueue, *moments: float) -> list[tuple[float, int, bool]]:
    """What is sent when: the second, how many records, and whether as a digest."""
    return [
        (moment, len(batch.records), batch.digest)
        for moment in moments
        for batch in queue.take_due(at(moment))
    ]


def test_without_digest_and_quiet_hours_each_record_is_sent_at_once() -> None:
    queue = SinkQueue(sink())
    for second in (0, 1):
        assert queue.add_record(stamp(GONE), at(second))
    assert queue.due is None
    assert seconds(queue, 1, 2) == [(1, 1, False), (1, 1, False)]


@pytest.mark.spec("NO-5")
def test_a_digest_is_one_message_for_all_of_its_time() -> None:
    queue = SinkQueue(sink(digest="5m"))
    for number in range(200):
        queue.add_record(stamp(INTERRUPTED, f"node/{number}"), at(number))
    assert queue.due == at(300)
    assert seconds(queue, 200, 299, 300, 301) == [(300, 200, True)]
    queue.add_record(stamp(INTERRUPTED), at(400))
    assert seconds(queue, 699, 700) == [(700, 1, True)]


def test_what_a_sink_does_not_want_is_not_queued() -> None:
    queue = SinkQueue(sink(when=(NotifyRule(kinds=("Expired",)),)))
    assert queue.add_record(stamp(GONE), at(0)) is False
    assert len(queue) == 0


# Noon UTC, when the records of these tests are made, is within these.
NOON = QuietHours(schedule="0 11 * * *", duration="2h", except_kinds=("Interrupted",))


@pytest.mark.spec("NO-10")
def test_in_quiet_hours_nothing_is_sent_but_exceptions_and_all_of_it_after() -> None:
    queue = SinkQueue(sink(quiet=(NOON,)))
    for second in range(5):
        queue.add_record(stamp(GONE), at(second))
    queue.add_record(stamp(INTERRUPTED), at(6))
    assert queue.due == at(3600)
    assert seconds(queue, 6, 3599) == [(6, 1, False)]
    assert seconds(queue, 3600) == [(3600, 1, False)] * 5


def test_a_digest_waits_for_quiet_hours_and_for_those_that_began_meanwhile() -> None:
    queue = SinkQueue(sink(quiet=(NOON,), digest="5m"))
    queue.add_record(stamp(GONE), at(-3700))  # before eleven
    assert seconds(queue, -3400) == []
    queue.add_record(stamp(GONE), at(0))
    assert queue.due == at(3600)
    assert seconds(queue, 3599, 3600) == [(3600, 2, True)]


def test_an_exception_counts_only_if_all_quiet_hours_make_it() -> None:
    queue = SinkQueue(sink(quiet=(NOON, QuietHours(schedule="0 11 * * *", duration="2h"))))
    queue.add_record(stamp(INTERRUPTED), at(0))
    assert seconds(queue, 0, 3600) == [(3600, 1, False)]


def test_a_full_queue_drops_the_oldest_and_counts() -> None:
    queue = SinkQueue(sink(digest="1h"), most=10)
    for number in range(25):
        queue.add_record(stamp(GONE, f"node/{number}"), at(number))
    (batch,) = queue.take_due(at(3600))
    assert [record.subject for record in batch.records] == [f"node/{number}" for number in range(15, 25)]
    assert queue.dropped == 15

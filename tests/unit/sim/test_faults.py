"""Trouble on demand: whom it strikes, how often, when, and the same way every time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import msgspec
import pytest

from dovetail.sim.faults import TROUBLES, ClockFault, FaultRule, FaultStorm, LateReply, WrongClock
from dovetail.sim.kube.faults import ApiCall, Fault
from support.apiserver import HandClock

LIST = ApiCall("list", "pods", client="karpenter")
PATCH = ApiCall("patch", "nodes", name="n1", client="karpenter")
WATCH = ApiCall("watch", "pods", client="karpenter")


def faults(rules: Sequence[FaultRule], calls: Sequence[ApiCall], seed: int = 1) -> list[Fault | None]:
    storm = FaultStorm(HandClock(), rules, seed)
    return [storm.find_fault(call) for call in calls]


def test_a_rule_strikes_those_it_names_and_nobody_else() -> None:
    rule = FaultRule(trouble="reset", verbs=("list",), resources=("pods",), clients=("karpenter",))
    others = (
        PATCH,
        WATCH,
        ApiCall("list", "nodes", client="karpenter"),
        ApiCall("list", "pods", client="kubectl"),
    )
    assert faults([rule], [LIST, *others]) == [Fault(reset=True), None, None, None, None]
    named = FaultRule(trouble="reset", names=("n1",), subresources=("status",))
    status = ApiCall("patch", "nodes", name="n1", subresource="status")
    assert faults([named], [PATCH, status]) == [None, Fault(reset=True)]


def test_a_rule_strikes_so_often_and_no_more() -> None:
    struck = faults([FaultRule(trouble="reset", count=2)], [LIST] * 5)
    assert struck == [Fault(reset=True)] * 2 + [None] * 3


def test_a_rule_strikes_within_its_time() -> None:
    clock = HandClock()
    storm = FaultStorm(clock, [FaultRule(trouble="reset", start=10, end=20)])
    struck = []
    for _ in range(6):
        struck.append(storm.find_fault(LIST) is not None)
        clock.advance(5)
    assert struck == [False, False, True, True, False, False]
    assert [strike.at for strike in storm.record] == [10, 15]


def test_a_rule_strikes_as_likely_as_it_says_and_alike_for_one_seed() -> None:
    rule = FaultRule(trouble="server-error", probability=0.3)
    once, again = faults([rule], [LIST] * 1000), faults([rule], [LIST] * 1000)
    hits = [fault is not None for fault in once]
    assert hits == [fault is not None for fault in again]
    assert 250 < sum(hits) < 350
    assert hits != [fault is not None for fault in faults([rule], [LIST] * 1000, seed=2)]


def test_the_first_rule_that_strikes_decides() -> None:
    rules = [FaultRule(trouble="reset", count=1), FaultRule(trouble="stale", amount=1)]
    assert faults(rules, [LIST, LIST]) == [Fault(reset=True), Fault(behind=1)]


@pytest.mark.parametrize(
    ("trouble", "suits", "spares"),
    [
        ("conflict", PATCH, LIST),
        ("expired", LIST, PATCH),
        ("stale", LIST, PATCH),
        ("lost-reply", PATCH, LIST),
        ("watch-reset", WATCH, LIST),
        ("watch-expired", WATCH, LIST),
        ("watch-delay", WATCH, LIST),
    ],
)
def test_trouble_strikes_only_where_it_makes_sense(trouble: str, suits: ApiCall, spares: ApiCall) -> None:
    rule = msgspec.convert({"trouble": trouble}, FaultRule)
    struck, spared = faults([rule], [suits, spares])
    assert struck is not None
    assert spared is None


@pytest.mark.parametrize(
    ("trouble", "code", "wait"),
    [("throttled", 429, 7), ("server-error", 500, 0), ("unavailable", 503, 7), ("expired", 410, 0)],
)
def test_answers_carry_their_code_and_how_long_to_wait(trouble: str, code: int, wait: int) -> None:
    (fault,) = faults([msgspec.convert({"trouble": trouble, "amount": 7}, FaultRule)], [LIST])
    assert fault is not None
    assert fault.error is not None
    assert (fault.error.code, fault.error.retry_after) == (code, wait)


def test_delays_vary_around_what_was_asked_for() -> None:
    slow = [fault.delay for fault in faults([FaultRule(trouble="latency", amount=2)], [LIST] * 50) if fault]
    assert len(slow) == 50
    assert 1 <= min(slow) < max(slow) <= 3
    (late,) = faults([FaultRule(trouble="late-reply", amount=2)], [LIST])
    assert isinstance(late, LateReply)
    assert 1 <= late.reply_delay <= 3


def test_every_trouble_can_be_asked_for_in_a_file() -> None:
    for trouble in TROUBLES:
        rule = msgspec.convert({"trouble": trouble, "verbs": ["get"], "count": 1}, FaultRule)
        assert rule.trouble == trouble
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"trouble": "earthquake"}, FaultRule)
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"trouble": "reset", "verb": "get"}, FaultRule)


def test_a_calm_ends_all_trouble_and_keeps_the_record() -> None:
    storm = FaultStorm(HandClock(), [FaultRule(trouble="reset")])
    storm.find_fault(LIST)
    storm.end_faults()
    assert storm.find_fault(LIST) is None
    assert [(strike.call, strike.rule.trouble) for strike in storm.record] == [(LIST, "reset")]


def test_a_wrong_clock_jumps_in_its_time_of_day_and_drifts_in_its_seconds() -> None:
    true = HandClock()
    clock = WrongClock(true, [ClockFault(at=10, by=3600), ClockFault(at=20, by=-7200)], rate=1.1)
    start = true.now()
    true.advance(9)
    assert clock.now() == true.now()
    true.advance(1)
    assert clock.now() - true.now() == timedelta(hours=1)
    true.advance(10)
    assert clock.now() < start
    assert clock.monotonic() == pytest.approx(22)

"""The token bucket: a burst, then a steady rate, in the order of asking."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.throttle import Throttle
from support.apiserver import HandClock


def test_callers_are_let_through_in_order_and_in_time() -> None:
    async def main() -> list[tuple[int, float]]:
        clock, passed = VirtualClock(), []
        throttle = Throttle(clock, per_second=2, burst=3)

        async def call(number: int) -> None:
            await throttle.wait()
            passed.append((number, clock.monotonic()))

        await asyncio.gather(*(call(n) for n in range(7)))
        return passed

    passed = run_virtual(main())
    assert [number for number, _ in passed] == list(range(7))
    assert [at for _, at in passed] == pytest.approx([0, 0, 0, 0.5, 1, 1.5, 2])


def test_a_rest_fills_the_bucket_up_to_its_burst_and_no_further() -> None:
    clock = HandClock()
    throttle = Throttle(clock, per_second=1, burst=2)
    assert [throttle.take_token() for _ in range(3)] == [0, 0, 1]
    clock.advance(100)
    assert [throttle.take_token() for _ in range(3)] == [0, 0, 1]


def test_whoever_does_not_want_to_wait_takes_nothing_in_vain() -> None:
    clock = HandClock()
    throttle = Throttle(clock, per_second=1, burst=2)
    assert [throttle.try_take() for _ in range(5)] == [True, True, False, False, False]
    clock.advance(1)
    assert [throttle.try_take() for _ in range(2)] == [True, False]


def test_a_rate_that_is_changed_holds_from_then_on() -> None:
    clock = HandClock()
    throttle = Throttle(clock, per_second=4, burst=10)
    throttle.change_rate(2, most_tokens=0)
    assert throttle.tokens == 0
    clock.advance(1)
    assert (throttle.tokens, throttle.per_second) == (2, 2)

"""A burst of triggers becomes one pass."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from dovetail.controllers.batching import TriggerBatcher
from dovetail.sim.clock import VirtualClock, run_virtual


def closes(triggers: Sequence[tuple[float, str]], idle: float = 5.0, longest: float = 10.0) -> float:
    """When a window closes that these triggers (second, uid) open and keep open."""

    async def told() -> float:
        clock = VirtualClock()
        batcher = TriggerBatcher(clock, idle, longest)

        async def pull() -> None:
            for at, uid in triggers:
                if at > clock.monotonic():
                    await clock.sleep(at - clock.monotonic())
                batcher.trigger(uid)

        pulling = asyncio.create_task(pull())
        await asyncio.sleep(0)
        assert await batcher.wait()
        closed = clock.monotonic()
        pulling.cancel()
        return closed

    return run_virtual(told())


@pytest.mark.spec("T-025")
def test_one_trigger_closes_when_nothing_follows() -> None:
    assert closes([(0, "a")], idle=1.0) == pytest.approx(1.0)


@pytest.mark.spec("T-026")
def test_the_same_trigger_again_does_not_keep_the_window_open() -> None:
    assert closes([(0, "a"), (3, "a")]) == pytest.approx(5.0)


@pytest.mark.spec("T-027")
def test_a_new_trigger_keeps_the_window_open() -> None:
    assert closes([(0, "a"), (3, "b")]) == pytest.approx(8.0)


@pytest.mark.spec("T-028")
def test_a_stream_of_triggers_closes_in_the_end() -> None:
    assert closes([(second, f"pod-{second}") for second in range(30)]) == pytest.approx(10.0)


def test_without_a_trigger_there_is_nothing_to_wait_for() -> None:
    async def told() -> bool:
        return await TriggerBatcher(VirtualClock(), 1.0, 10.0).wait()

    assert run_virtual(told()) is False


def test_triggers_during_a_pass_open_the_next_window() -> None:
    async def told() -> float:
        clock = VirtualClock()
        batcher = TriggerBatcher(clock, 1.0, 10.0)
        batcher.trigger("a")
        await batcher.wait()
        batcher.trigger("a")
        await clock.sleep(0.4)
        await batcher.wait()
        return clock.monotonic()

    assert run_virtual(told()) == pytest.approx(2.0)

"""The manager survives what controllers do to it, and ends calmly."""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random

import pytest

from dovetail.controllers.base import DONE, SOON, Backoff, Result, Trigger, requeue_after
from dovetail.errors import Conflict, Gone, Refused, Throttled
from dovetail.runtime import metrics
from dovetail.runtime.manager import Manager
from dovetail.sim.clock import VirtualClock, run_virtual


@dataclass
class Scripted:
    """A controller that does what it is told, in order, and notes when."""

    name: str
    script: list[Result | Exception]
    clock: VirtualClock
    concurrency: int = 2
    singleton: bool = False
    backoff: Backoff = field(default_factory=lambda: Backoff(first=1, last=4, per_second=1000, burst=1000))
    triggers: tuple[Trigger, ...] = ()
    seen: list[tuple[float, str]] = field(default_factory=list)

    async def reconcile(self, key: str) -> Result:
        self.seen.append((round(self.clock.monotonic(), 3), key))
        step = self.script.pop(0) if self.script else DONE
        if isinstance(step, Exception):
            raise step
        return step


def counted(name: str, controller: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(name, {"controller": controller, **labels}) or 0.0


def run(controller: Scripted, seconds: float = 60) -> None:
    async def main() -> None:
        manager = Manager(controller.clock, Random(0))
        queue = manager.add(controller)
        running = asyncio.create_task(manager.run())
        queue.add("ns/a")
        await asyncio.sleep(seconds)
        manager.stop()
        await running

    run_virtual(main())


def test_a_retry_backs_off_and_a_success_starts_afresh() -> None:
    clock = VirtualClock()
    controller = Scripted("retrying", [Conflict("x"), Conflict("x"), DONE], clock)
    run(controller)
    assert controller.seen == [(0, "ns/a"), (1, "ns/a"), (3, "ns/a")]
    assert counted("controller_runtime_reconcile_total", "retrying", result="error") == 2
    assert counted("controller_runtime_reconcile_total", "retrying", result="success") == 1


@pytest.mark.contains_bugs
def test_a_bug_is_counted_and_survived() -> None:
    controller = Scripted("buggy", [ZeroDivisionError("oops"), DONE], VirtualClock())
    run(controller)
    assert len(controller.seen) == 2
    assert counted("controller_runtime_reconcile_panics_total", "buggy") == 1


def test_a_refusal_is_not_tried_again() -> None:
    controller = Scripted("refused", [Refused("no"), DONE], VirtualClock())
    run(controller)
    assert len(controller.seen) == 1
    assert counted("controller_runtime_terminal_reconcile_errors_total", "refused") == 1


def test_results_say_when_to_come_back() -> None:
    controller = Scripted("timed", [requeue_after(10), SOON, DONE], VirtualClock())
    run(controller)
    assert [at for at, _ in controller.seen] == [0, 10, 11]


def test_a_visit_that_is_always_due_does_not_hold_up_time() -> None:
    controller = Scripted("due", [requeue_after(0) for _ in range(100)], VirtualClock())
    run(controller)
    assert [at for at, _ in controller.seen][:6] == [0, 1, 3, 7, 11, 15]
    assert counted("controller_runtime_reconcile_total", "due", result="requeue") == len(controller.seen)


def test_work_under_way_finishes_within_the_grace_and_no_new_work_starts() -> None:
    clock = VirtualClock()
    ended: list[str] = []

    class Slow(Scripted):
        async def reconcile(self, key: str) -> Result:
            try:
                await asyncio.sleep({"quick": 5.0, "stuck": 500.0}[key])
                ended.append(f"{key} finished")
            except asyncio.CancelledError:
                ended.append(f"{key} cancelled")
                raise
            return DONE

    async def main() -> float:
        manager = Manager(clock, Random(0), grace=30)
        queue = manager.add(Slow("slow", [], clock))
        running = asyncio.create_task(manager.run())
        queue.add("quick")
        queue.add("stuck")
        await asyncio.sleep(1)
        manager.stop()
        queue.add("late")
        await running
        return clock.monotonic()

    assert run_virtual(main()) == 31
    assert ended == ["quick finished", "stuck cancelled"]


def test_a_service_that_fails_is_started_again() -> None:
    clock, starts = VirtualClock(), []

    async def service() -> None:
        starts.append(clock.monotonic())
        if len(starts) < 3:
            raise RuntimeError("gone")
        await asyncio.Event().wait()

    async def main() -> None:
        manager = Manager(clock, Random(0))
        manager.add_service(service)
        running = asyncio.create_task(manager.run())
        await asyncio.sleep(60)
        manager.stop()
        await running

    run_virtual(main())
    assert starts == [0, 1, 3]


def test_a_service_that_had_recovered_is_started_again_as_soon_as_at_first() -> None:
    clock, starts = VirtualClock(), []

    async def service() -> None:
        starts.append(clock.monotonic())
        if len(starts) == 7:
            await clock.sleep(3600)  # it works for an hour
        raise RuntimeError("gone")

    async def main() -> None:
        manager = Manager(clock, Random(0))
        manager.add_service(service)
        running = asyncio.create_task(manager.run())
        await asyncio.sleep(4000)
        manager.stop()
        await running

    run_virtual(main())
    waits = [after - before for before, after in pairwise(starts)]
    assert waits[:6] == [1, 2, 4, 8, 16, 32]
    assert waits[6:9] == [3600 + 1, 2, 4]


def test_no_more_keys_at_once_than_the_controller_allows() -> None:
    clock, now_active, most = VirtualClock(), 0, 0

    class Counting(Scripted):
        async def reconcile(self, key: str) -> Result:
            nonlocal now_active, most
            now_active += 1
            most = max(most, now_active)
            await asyncio.sleep(1)
            now_active -= 1
            return DONE

    async def main() -> None:
        manager = Manager(clock, Random(0))
        queue = manager.add(Counting("counting", [], clock, concurrency=3))
        running = asyncio.create_task(manager.run())
        for n in range(10):
            queue.add(str(n))
        await asyncio.sleep(3.5)
        assert not manager.idle
        await asyncio.sleep(10)
        assert manager.idle
        manager.stop()
        await running

    run_virtual(main())
    assert most == 3


@pytest.mark.contains_bugs
def test_of_failures_that_come_together_a_bug_is_a_bug_and_refusals_end_the_attempt() -> None:
    mixed = ExceptionGroup("both", [Refused("no"), KeyError("oops")])
    refused = ExceptionGroup("both", [Refused("no"), ExceptionGroup("inner", [Refused("never")])])
    controller = Scripted("grouped", [mixed, refused, DONE], VirtualClock())
    run(controller)
    assert len(controller.seen) == 2
    assert counted("controller_runtime_reconcile_panics_total", "grouped") == 1
    assert counted("controller_runtime_terminal_reconcile_errors_total", "grouped") == 1


def test_a_server_that_asks_for_time_gets_it() -> None:
    controller = Scripted("throttled", [Throttled("slow down", 20), Gone("absent"), DONE], VirtualClock())
    run(controller)
    assert [at for at, _ in controller.seen] == [0, 20, 22]


def test_controllers_wait_for_their_election_and_services_do_not() -> None:
    clock, heard = VirtualClock(), []
    controller = Scripted("elected", [], clock)

    async def service() -> None:
        heard.append(clock.monotonic())
        await asyncio.Event().wait()

    async def main() -> None:
        manager = Manager(clock, Random(0))
        manager.add_service(service)
        manager.add(controller).add("ns/a")
        running = asyncio.create_task(manager.run(elected=lambda: clock.sleep(30)))
        await asyncio.sleep(60)
        manager.stop()
        await running

    run_virtual(main())
    assert heard == [0]
    assert controller.seen == [(30, "ns/a")]


def test_a_manager_that_is_cancelled_leaves_nothing_running() -> None:
    clock = VirtualClock()

    class Stuck(Scripted):
        async def reconcile(self, key: str) -> Result:
            await asyncio.sleep(500)
            return DONE

    async def main() -> set[str]:
        manager = Manager(clock, Random(0))
        manager.add(Stuck("stuck", [], clock)).add("ns/a")
        running = asyncio.create_task(manager.run())
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return {task.get_name() for task in asyncio.all_tasks()} - {"main"}

    async def named() -> set[str]:
        task = asyncio.current_task()
        assert task is not None
        task.set_name("main")
        return await main()

    assert run_virtual(named()) == set()


def test_a_controllers_numbers_are_shown_before_anything_happened() -> None:
    async def main() -> None:
        Manager(VirtualClock(), Random(0)).add(Scripted("fresh", [], VirtualClock(), concurrency=7))

    run_virtual(main())
    for result in ("success", "error", "requeue", "requeue_after"):
        labels = {"controller": "fresh", "result": result}
        assert metrics.REGISTRY.get_sample_value("controller_runtime_reconcile_total", labels) == 0
    assert counted("controller_runtime_max_concurrent_reconciles", "fresh") == 7
    assert (
        metrics.REGISTRY.get_sample_value(
            "workqueue_depth", {"name": "fresh", "controller": "fresh", "priority": ""}
        )
        == 0
    )


async def test_a_signal_begins_the_end() -> None:
    manager = Manager(VirtualClock(), Random(0))
    manager.stop_on_signals((signal.SIGUSR1,))
    running = asyncio.create_task(manager.run())
    await asyncio.sleep(0)
    os.kill(os.getpid(), signal.SIGUSR1)
    await asyncio.wait_for(running, 5)
    assert asyncio.get_running_loop().remove_signal_handler(signal.SIGUSR1)

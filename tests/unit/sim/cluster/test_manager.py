"""How neighbours live together: order, patience, failures, and telling the same story twice."""

from __future__ import annotations

import pytest

from dovetail.sim.clock import VirtualClock
from dovetail.sim.cluster.base import Key, SimController, SimControllerManager
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World
from support.cluster import cluster, in_virtual_time, pod, pods_of, running, workload


class Scribe(SimController):
    """Writes down what it was asked to look at."""

    name = "scribe"

    def __init__(self, desk: SimControllerManager, fails: int = 0) -> None:
        super().__init__(desk)
        self.seen: list[tuple[float, str]] = []
        self.fails = fails

    def reconcile(self, key: Key) -> None:
        self.seen.append((self.clock.monotonic(), key[1]))
        if self.fails:
            self.fails -= 1
            raise ApiError(409, "Conflict", "someone wrote first")


class Clerk(Scribe):
    reports = True


@in_virtual_time
async def test_a_key_waits_once_and_the_earlier_of_two_dates_counts() -> None:
    async with cluster() as world:
        scribe = Scribe(world.manager)
        for _ in range(3):
            scribe.enqueue(("", "now"))
        scribe.enqueue(("", "late"), 10)
        scribe.enqueue(("", "late"), 5)
        scribe.enqueue(("", "late"), 20)
        await world.settle(30)
        assert scribe.seen == [(0.0, "now"), (5.0, "late")]


@in_virtual_time
async def test_reports_wait_for_the_rest_of_the_instant() -> None:
    async with cluster() as world:
        clerk, scribe = Clerk(world.manager), Scribe(world.manager)
        order: list[str] = []
        clerk.reconcile = lambda key: order.append("report")  # type: ignore[method-assign]
        scribe.reconcile = lambda key: order.append(key[1])  # type: ignore[method-assign]
        clerk.enqueue(("", "count"))
        for name in "xyz":
            scribe.enqueue(("", name))
        await world.settle(1)
        assert order == ["x", "y", "z", "report"]


@in_virtual_time
async def test_work_that_fails_is_looked_at_again_with_growing_pauses() -> None:
    async with cluster() as world:
        scribe = Scribe(world.manager, fails=4)
        scribe.enqueue(("", "k"))
        await world.settle(10)
        times = [at for at, _ in scribe.seen]
        assert times == pytest.approx([0, 0.1, 0.3, 0.7, 1.5])


@pytest.mark.contains_bugs
@in_virtual_time
async def test_a_neighbour_that_breaks_is_heard_of_once_and_the_others_work_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(Scribe):
        def reconcile(self, key: Key) -> None:
            raise KeyError("spec")

    async with cluster(bad_items=True) as world:
        Broken(world.manager).enqueue(("default", "k"))
        scribe = Scribe(world.manager)
        scribe.enqueue(("", "other"), 5)
        await world.settle(10)
        assert scribe.seen == [(5.0, "other")]
        assert world.manager.set_aside == {"scribe default/k": "KeyError: 'spec'"}
        assert caplog.messages == ["an object is set aside object=scribe default/k error=KeyError: 'spec'"]


class OneInThree:
    """Every third write of anyone fails, some of them after they were done."""

    def __init__(self) -> None:
        self.asked = 0

    def find_fault(self, call: ApiCall) -> Fault | None:
        if call.client in ("", "test") or call.verb in ("get", "list", "watch"):
            return None
        self.asked += 1
        if self.asked % 3:
            return None
        return Fault(error=ApiError(503, "ServiceUnavailable", "busy"), after_commit=self.asked % 2 == 0)


@in_virtual_time
async def test_neighbours_get_there_even_when_every_third_write_fails() -> None:
    async with cluster(3, faults=OneInThree()) as world:
        world.api.create("deployments.apps", workload("web", 12))
        world.api.create("daemonsets.apps", workload("agent", None))
        await world.settle(120)
        assert len(running(pods_of(world, "web"))) == 12
        assert len(running(pods_of(world, "agent"))) == 3
        status = world.api.get("deployments.apps", "web", "default")["status"]
        assert status["availableReplicas"] == 12
        world.api.delete("deployments.apps", "web", "default")
        await world.settle(120)
        assert pods_of(world, "web") == []


@in_virtual_time
async def test_a_world_goes_on_from_where_another_was_saved() -> None:
    async with cluster(2) as world:
        world.api.create("deployments.apps", workload("web", 4))
        await world.settle(5)
        world.api.delete("pods", pods_of(world, "web")[0]["metadata"]["name"], "default")
        world.api.create("pods", pod("late"))
        saved = world.server.dump()
    later = World(VirtualClock(), 1, snapshot=saved)
    async with later.running():
        await later.settle(10)
        assert len(running(pods_of(later, "web"))) == 4
        assert later.api.get("pods", "late", "default")["status"]["phase"] == "Running"

"""Who is next, what a pod is told, when it is tried again, and who must make room."""

from __future__ import annotations

from typing import Any

from dovetail.sim.cluster.scheduler.queue import SchedulingQueue
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World
from support.cluster import (
    HOST,
    cluster,
    condition,
    in_virtual_time,
    names,
    node_of,
    pod,
    pods_of,
    refusal,
    workload,
)

CLASSES = "priorityclasses.scheduling.k8s.io"


def priorities(world: World, **values: int) -> None:
    for name, value in values.items():
        world.api.create(CLASSES, {"metadata": {"name": name}, "value": value})


def events(world: World, name: str, reason: str) -> list[dict[str, Any]]:
    return [
        e for e in world.api.list("events") if e["reason"] == reason and e["involvedObject"]["name"] == name
    ]


@in_virtual_time
async def test_a_bound_pod_has_its_condition_and_one_event() -> None:
    async with cluster(1) as world:
        world.api.create("pods", pod("web"))
        await world.settle(2)
        assert condition(world.api.get("pods", "web", "default"), "PodScheduled")["status"] == "True"
        (event,) = events(world, "web", "Scheduled")
        assert event["message"] == "Successfully assigned default/web to a"
        assert (event["type"], event["source"]["component"]) == ("Normal", "default-scheduler")
        assert event["reportingComponent"] == "default-scheduler"
        seen = world.api.list("events.events.k8s.io")
        assert [e["regarding"]["name"] for e in seen if e["reason"] == "Scheduled"] == ["web"]


@in_virtual_time
async def test_a_refusal_is_said_once_and_again_only_when_it_changes() -> None:
    async with cluster(1, cpu="1") as world:
        world.api.create("pods", pod("big", {"cpu": "2"}))
        await world.settle(2)
        told = world.api.get("pods", "big", "default")
        for number in range(5):
            world.api.create("pods", pod(f"other-{number}"))
            world.api.patch("nodes", "a", {"metadata": {"labels": {"n": str(number)}}})
            await world.settle(12)
        again = world.api.get("pods", "big", "default")
        assert again["metadata"]["resourceVersion"] == told["metadata"]["resourceVersion"]
        assert len(events(world, "big", "FailedScheduling")) == 1
        assert events(world, "big", "FailedScheduling")[0]["type"] == "Warning"
        world.add_node("b", cpu="1")
        await world.settle(12)
        assert "0/2 nodes" in refusal(world, "big")
        said = [e["message"] for e in events(world, "big", "FailedScheduling")]
        assert len(said) == len(set(said)) == 3, "the new node was not ready at first"


@in_virtual_time
async def test_the_important_go_first_then_the_old() -> None:
    async with cluster(0) as world:
        priorities(world, high=100)
        for name in ("first", "second"):
            world.api.create("pods", pod(name, {"cpu": "1"}))
            await world.settle(2)
        world.api.create("pods", pod("vip", {"cpu": "1"}, priorityClassName="high"))
        await world.settle(2)
        world.add_node("n", cpu="2")
        await world.settle(15)
        assert [bool(node_of(world, n)) for n in ("vip", "first", "second")] == [True, True, False]


@in_virtual_time
async def test_gated_pods_wait_without_a_verdict_and_go_when_the_last_gate_opens() -> None:
    async with cluster(1) as world:
        world.api.create(
            "pods", pod("held", schedulingGates=[{"name": "example.com/a"}, {"name": "example.com/b"}])
        )
        await world.settle(2)
        assert (
            condition(world.api.get("pods", "held", "default"), "PodScheduled")["reason"] == "SchedulingGated"
        )
        assert events(world, "held", "FailedScheduling") == []
        world.api.patch("pods", "held", {"spec": {"schedulingGates": [{"name": "example.com/b"}]}}, "default")
        await world.settle(2)
        assert node_of(world, "held") == ""
        world.api.patch("pods", "held", {"spec": {"schedulingGates": None}}, "default")
        await world.settle(2)
        assert node_of(world, "held") == "a"


@in_virtual_time
async def test_pods_of_other_schedulers_are_left_alone() -> None:
    async with cluster(1) as world:
        world.api.create("pods", pod("mine", schedulerName="my-scheduler"))
        await world.settle(10)
        found = world.api.get("pods", "mine", "default")
        assert "nodeName" not in found["spec"]
        assert condition(found, "PodScheduled") == {}


@in_virtual_time
async def test_waiting_pods_try_again_when_a_node_comes_a_pod_goes_or_a_label_changes() -> None:
    async with cluster(1, cpu="1") as world:
        world.api.create("pods", pod("fills", {"cpu": "1"}))
        await world.settle(2)
        world.api.create("pods", pod("room", {"cpu": "1"}))
        world.api.create("pods", pod("label", nodeSelector={"disk": "ssd"}))
        await world.settle(2)
        world.api.delete("pods", "fills", "default")
        await world.settle(4)
        assert node_of(world, "room") == "a"
        world.api.patch("nodes", "a", {"metadata": {"labels": {"disk": "ssd"}}})
        await world.settle(4)
        assert node_of(world, "label") == "a"


def test_back_off_doubles_from_one_second_to_ten() -> None:
    queue, waits = SchedulingQueue(), []
    for _ in range(6):
        queue.park(("default", "p"), 0.0)
        ripe, soonest = queue.list_ripe(0.0, everyone=False)
        assert ripe == []
        waits.append(soonest)
    assert waits == [1, 2, 4, 8, 10, 10]
    assert queue.list_ripe(0.0, everyone=True)[0] == [("default", "p")]
    assert queue.list_ripe(10.0, everyone=False)[0] == [("default", "p")]
    queue.forget(("default", "p"))
    assert not queue.has_pending


class FirstBindingsFail:
    """The server has a bad moment when pods are bound."""

    def __init__(self, times: int) -> None:
        self.left = times

    def find_fault(self, call: ApiCall) -> Fault | None:
        if call.subresource == "binding" and self.left:
            self.left -= 1
            return Fault(error=ApiError(500, "InternalError", "not now"))
        return None


@in_virtual_time
async def test_a_binding_that_fails_is_tried_again_and_holds_nobody_up() -> None:
    async with cluster(1, faults=FirstBindingsFail(3)) as world:
        for number in range(5):
            world.api.create("pods", pod(f"w{number}"))
        await world.settle(0.5)
        assert sum(bool(node_of(world, f"w{n}")) for n in range(5)) == 2
        await world.settle(10)
        assert all(node_of(world, f"w{n}") for n in range(5))


# Making room


@in_virtual_time
async def test_an_important_pod_makes_room_and_says_where() -> None:
    async with cluster(2, cpu="1") as world:
        priorities(world, high=100, low=1)
        world.api.create("pods", pod("cheap", {"cpu": "1"}, nodeSelector={HOST: "a"}))
        world.api.create(
            "pods", pod("dearer", {"cpu": "1"}, nodeSelector={HOST: "b"}, priorityClassName="low")
        )
        await world.settle(3)
        world.api.create("pods", pod("vip", {"cpu": "500m"}, priorityClassName="high"))
        await world.settle(0.1)
        vip = world.api.get("pods", "vip", "default")
        assert vip["status"]["nominatedNodeName"] == "a"
        victim = world.api.get("pods", "cheap", "default")
        assert condition(victim, "DisruptionTarget")["reason"] == "PreemptionByScheduler"
        assert victim["metadata"]["deletionTimestamp"]
        assert len(events(world, "cheap", "Preempted")) == 1
        await world.settle(10)
        assert node_of(world, "vip") == "a"
        assert node_of(world, "dearer") == "b"


@in_virtual_time
async def test_no_more_go_than_needed_and_the_least_important_first() -> None:
    async with cluster(1, cpu="3") as world:
        priorities(world, high=100, middle=10)
        world.api.create("pods", pod("low", {"cpu": "1"}))
        world.api.create("pods", pod("mid-1", {"cpu": "1"}, priorityClassName="middle"))
        world.api.create("pods", pod("mid-2", {"cpu": "1"}, priorityClassName="middle"))
        await world.settle(3)
        world.api.create("pods", pod("vip", {"cpu": "1"}, priorityClassName="high"))
        await world.settle(10)
        assert names(world.api.list("pods")) == ["mid-1", "mid-2", "vip"]


@in_virtual_time
async def test_equals_and_the_polite_do_not_preempt() -> None:
    async with cluster(1, cpu="1") as world:
        priorities(world, high=100)
        polite = {"metadata": {"name": "polite"}, "value": 1000, "preemptionPolicy": "Never"}
        world.api.create(CLASSES, polite)
        world.api.create("pods", pod("there", {"cpu": "1"}, priorityClassName="high"))
        await world.settle(3)
        world.api.create("pods", pod("equal", {"cpu": "1"}, priorityClassName="high"))
        world.api.create("pods", pod("polite", {"cpu": "1"}, priorityClassName="polite"))
        await world.settle(30)
        assert node_of(world, "there") == "a"
        assert "nominatedNodeName" not in world.api.get("pods", "polite", "default")["status"]


@in_virtual_time
async def test_nobody_goes_where_going_would_not_help() -> None:
    async with cluster(1, cpu="1") as world:
        priorities(world, high=100)
        world.api.create("pods", pod("there", {"cpu": "500m"}))
        await world.settle(3)
        world.api.create("pods", pod("huge", {"cpu": "2"}, priorityClassName="high"))
        world.api.create(
            "pods", pod("picky", {"cpu": "1"}, priorityClassName="high", nodeSelector={"x": "y"})
        )
        await world.settle(10)
        assert node_of(world, "there") == "a"


@in_virtual_time
async def test_a_node_whose_pods_a_budget_guards_is_the_last_choice() -> None:
    async with cluster(2, cpu="1") as world:
        priorities(world, high=100, low=5)
        world.api.create("pods", pod("guarded", {"cpu": "1"}, nodeSelector={HOST: "a"}, labels={"app": "g"}))
        world.api.create("pods", pod("free", {"cpu": "1"}, nodeSelector={HOST: "b"}, priorityClassName="low"))
        spec = {"selector": {"matchLabels": {"app": "g"}}, "minAvailable": 1}
        meta = {"name": "g", "namespace": "default"}
        world.api.create("poddisruptionbudgets.policy", {"metadata": meta, "spec": spec})
        await world.settle(3)
        world.api.create("pods", pod("vip", {"cpu": "1"}, priorityClassName="high"))
        await world.settle(10)
        assert (node_of(world, "guarded"), node_of(world, "vip")) == ("a", "b")
        world.api.create("pods", pod("vip-2", {"cpu": "1"}, priorityClassName="high"))
        await world.settle(10)
        assert node_of(world, "vip-2") == "a", "a budget is a wish, not a wall"


@in_virtual_time
async def test_room_made_for_one_is_not_taken_by_a_lesser_pod_in_the_meantime() -> None:
    async with cluster(1, cpu="2") as world:
        priorities(world, high=100)
        slow = {"sim.dovetail.dev/stop-after": "20s"}
        world.api.create("replicasets.apps", workload("old", 2, requests={"cpu": "1"}, annotations=slow))
        await world.settle(3)
        world.api.create("pods", pod("vip", {"cpu": "2"}, priorityClassName="high"))
        await world.settle(10)
        assert len(pods_of(world, "old")) == 4, "two leave, two wait"
        await world.settle(40)
        assert node_of(world, "vip") == "a"


@in_virtual_time
async def test_a_nomination_whose_node_goes_is_made_anew_elsewhere() -> None:
    async with cluster(2, cpu="1") as world:
        priorities(world, high=100, low=5)
        slow = {"sim.dovetail.dev/stop-after": "25s"}
        world.api.create("pods", pod("one", {"cpu": "1"}, nodeSelector={HOST: "a"}, annotations=slow))
        world.api.create("pods", pod("two", {"cpu": "1"}, nodeSelector={HOST: "b"}, priorityClassName="low"))
        await world.settle(3)
        world.api.create("pods", pod("vip", {"cpu": "1"}, priorityClassName="high"))
        await world.settle(2)
        assert world.api.get("pods", "vip", "default")["status"]["nominatedNodeName"] == "a"
        world.api.delete("nodes", "a")
        await world.settle(30)
        assert node_of(world, "vip") == "b"


@in_virtual_time
async def test_pods_below_nothing_yield_to_ordinary_ones() -> None:
    async with cluster(1, cpu="1") as world:
        priorities(world, filler=-10)
        world.api.create("pods", pod("balloon", {"cpu": "1"}, priorityClassName="filler"))
        await world.settle(3)
        world.api.create("pods", pod("web", {"cpu": "1"}))
        await world.settle(10)
        assert names(world.api.list("pods")) == ["web"]
        assert node_of(world, "web") == "a"

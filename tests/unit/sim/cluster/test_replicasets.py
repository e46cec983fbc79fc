from __future__ import annotations

from typing import Any

from dovetail.sim.cluster.workload_pods import DELETION_COST, order_for_removal
from support.cluster import (
    cluster,
    condition,
    in_virtual_time,
    names,
    node_of,
    pod,
    pods_of,
    running,
    workload,
)

SETS = "replicasets.apps"


@in_virtual_time
async def test_a_replicaset_makes_as_many_pods_as_it_says_and_counts_them() -> None:
    async with cluster(2) as world:
        world.api.create(SETS, workload("web", 3))
        await world.settle(5)
        made = pods_of(world, "web")
        assert len(running(made)) == 3
        assert all(p["metadata"]["generateName"] == "web-" for p in made)
        owner = made[0]["metadata"]["ownerReferences"][0]
        assert (owner["kind"], owner["controller"], owner["blockOwnerDeletion"]) == ("ReplicaSet", True, True)
        status = world.api.get(SETS, "web", "default")["status"]
        counts = ("replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas")
        assert [status[c] for c in counts] == [3, 3, 3, 3]
        assert status["observedGeneration"] == 1


@in_virtual_time
async def test_a_deleted_pod_is_replaced_before_it_is_gone() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, workload("web", 1))
        await world.settle(5)
        first = pods_of(world, "web")[0]["metadata"]["name"]
        world.api.delete("pods", first, "default")
        await world.settle(0.5)
        assert len(pods_of(world, "web")) == 2
        await world.settle(5)
        assert first not in names(pods_of(world, "web"))


@in_virtual_time
async def test_an_orphan_that_matches_is_adopted_and_counts() -> None:
    async with cluster(1) as world:
        world.api.create("pods", pod("stray", labels={"app": "web"}))
        await world.settle(3)
        world.api.create(SETS, workload("web", 2))
        await world.settle(3)
        assert len(pods_of(world, "web")) == 2
        owners = world.api.get("pods", "stray", "default")["metadata"]["ownerReferences"]
        assert [o["name"] for o in owners] == ["web"]


@in_virtual_time
async def test_an_orphan_that_comes_later_is_adopted_and_one_too_many_goes() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, workload("web", 1))
        await world.settle(5)
        world.api.create("pods", pod("stray", labels={"app": "web"}))
        await world.settle(5)
        assert len(pods_of(world, "web")) == 1
        assert names(pods_of(world, "web")) != ["stray"]


@in_virtual_time
async def test_a_pod_whose_labels_leave_the_selector_is_let_go_and_replaced() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, workload("web", 1))
        await world.settle(5)
        name = pods_of(world, "web")[0]["metadata"]["name"]
        world.api.patch("pods", name, {"metadata": {"labels": {"app": "other"}}}, "default")
        await world.settle(5)
        assert not world.api.get("pods", name, "default")["metadata"].get("ownerReferences")
        assert len(running(pods_of(world, "web"))) == 1


@in_virtual_time
async def test_deleting_a_replicaset_takes_its_pods_along_unless_they_are_orphaned() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, workload("gone", 1))
        world.api.create(SETS, workload("kept", 1))
        await world.settle(5)
        world.api.delete(SETS, "gone", "default")
        world.api.delete(SETS, "kept", "default", propagation="Orphan")
        await world.settle(5)
        assert pods_of(world, "gone") == []
        assert len(pods_of(world, "kept")) == 1


@in_virtual_time
async def test_availability_waits_for_min_ready_seconds() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, workload("web", 1, minReadySeconds=30))
        await world.settle(10)
        status = world.api.get(SETS, "web", "default")["status"]
        assert (status["readyReplicas"], status.get("availableReplicas", 0)) == (1, 0)
        await world.settle(30)
        assert world.api.get(SETS, "web", "default")["status"]["availableReplicas"] == 1


@in_virtual_time
async def test_pods_that_are_refused_show_as_a_condition_until_they_are_not() -> None:
    async with cluster(1) as world:
        world.api.create(SETS, workload("web", 1, pods={"priorityClassName": "vip"}))
        await world.settle(2)
        trouble = condition(world.api.get(SETS, "web", "default"), "ReplicaFailure")
        assert (trouble["status"], trouble["reason"]) == ("True", "FailedCreate")
        assert "vip" in trouble["message"]
        world.api.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "vip"}, "value": 5})
        await world.settle(60)
        assert len(running(pods_of(world, "web"))) == 1
        assert condition(world.api.get(SETS, "web", "default"), "ReplicaFailure") == {}


@in_virtual_time
async def test_more_pods_than_one_burst_are_made_in_several() -> None:
    async with cluster(0) as world:
        world.api.create(SETS, workload("web", 1200))
        await world.settle(1)
        assert world.api.get(SETS, "web", "default")["status"]["replicas"] == 1200
        world.api.patch(SETS, "web", {"spec": {"replicas": 1}}, "default")
        await world.settle(1)
        assert len(pods_of(world, "web")) == 1


@in_virtual_time
async def test_scaling_down_takes_the_unbound_pod_first() -> None:
    async with cluster(1, cpu="2") as world:
        world.api.create(SETS, workload("web", 3, requests={"cpu": "900m"}))
        await world.settle(5)
        bound = {p["metadata"]["name"] for p in pods_of(world, "web") if p["spec"].get("nodeName")}
        assert len(bound) == 2
        world.api.patch(SETS, "web", {"spec": {"replicas": 2}}, "default")
        await world.settle(5)
        assert set(names(pods_of(world, "web"))) == bound


@in_virtual_time
async def test_scaling_down_spares_the_costly_and_thins_out_the_doubled_up() -> None:
    async with cluster(2) as world:
        world.api.create(SETS, workload("web", 4))
        await world.settle(5)
        dear = pods_of(world, "web")[0]["metadata"]["name"]
        note = {"metadata": {"annotations": {DELETION_COST: "100"}}}
        world.api.patch("pods", dear, note, "default")
        world.api.patch(SETS, "web", {"spec": {"replicas": 2}}, "default")
        await world.settle(5)
        left = names(pods_of(world, "web"))
        assert dear in left
        world.api.patch(SETS, "web", {"spec": {"replicas": 1}}, "default")
        await world.settle(5)
        assert names(pods_of(world, "web")) == [dear]
        assert node_of(world, dear)


def shown(
    name: str, node: str = "a", phase: str = "Running", since: str | None = "10", **meta: object
) -> dict[str, object]:
    conditions = [{"type": "Ready", "status": "True", "lastTransitionTime": since}] if since else []
    status = {
        "phase": phase,
        "conditions": conditions,
        "containerStatuses": [{"restartCount": meta.pop("restarts", 0)}],
    }
    return {
        "metadata": {"name": name, "creationTimestamp": "05", **meta},
        "spec": {"nodeName": node} if node else {},
        "status": status,
    }


def order(*pods: dict[str, object]) -> list[str]:
    return names(order_for_removal(list(pods), list(pods)))


def test_the_order_of_going_is_unbound_pending_unready_cheap_doubled_young() -> None:
    cheap: dict[str, Any] = {"annotations": {DELETION_COST: "-5"}}
    pods = [
        shown("old", "c"),
        shown("doubled-1", "b"),
        shown("doubled-2", "b"),
        shown("cheap", "d", **cheap),
        shown("unready", "e", since=None),
        shown("pending", "f", phase="Pending", since=None),
        shown("unbound", "", phase="Pending", since=None),
    ]
    assert order(*pods) == ["unbound", "pending", "unready", "cheap", "doubled-2", "doubled-1", "old"]


def test_of_equals_the_last_to_become_ready_goes_first_then_the_one_that_restarts_then_the_youngest() -> None:
    assert order(shown("early", since="10"), shown("late", "b", since="20")) == ["late", "early"]
    assert order(shown("calm"), shown("shaky", "b", restarts=3)) == ["shaky", "calm"]
    assert order(shown("old"), shown("young", "b", creationTimestamp="09")) == ["young", "old"]


def test_a_deletion_cost_that_is_no_number_counts_as_none() -> None:
    odd = shown("odd", annotations={DELETION_COST: "lots"})
    assert order(odd, shown("dear", "b", annotations={DELETION_COST: "1"})) == ["odd", "dear"]

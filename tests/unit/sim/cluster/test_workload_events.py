"""Where people look, what controllers did is said in events, in the words of real controllers."""

from __future__ import annotations

from typing import Any

from dovetail.sim.cluster.controllers import SimClusterOptions
from dovetail.sim.world import World
from support.cluster import cluster, in_virtual_time, pods_of, workload

TOLD = SimClusterOptions(events=True)
DEPLOYMENTS = "deployments.apps"


def said(world: World, kind: str) -> list[tuple[str, str, str]]:
    """Reason, message and component of each event about objects of a kind, in order."""
    events = [event for event in world.api.list("events") if event["involvedObject"]["kind"] == kind]
    events.sort(key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [(e["reason"], e["message"], e["source"]["component"]) for e in events]


def reasons(world: World, kind: str) -> list[str]:
    return [reason for reason, _, _ in said(world, kind)]


@in_virtual_time
async def test_a_deployment_and_its_replica_set_say_what_they_do() -> None:
    async with cluster(1, options=TOLD) as world:
        world.api.create(DEPLOYMENTS, {**workload("web", 2), "kind": "Deployment"})
        await world.settle(10)
        name = world.api.list("replicasets.apps")[0]["metadata"]["name"]
        told = ("ScalingReplicaSet", f"Scaled up replica set {name} from 0 to 2", "deployment-controller")
        assert said(world, "Deployment") == [told]
        made = sorted(p["metadata"]["name"] for p in world.api.list("pods"))
        created = [("SuccessfulCreate", f"Created pod: {each}", "replicaset-controller") for each in made]
        assert sorted(said(world, "ReplicaSet")) == sorted(created)
        world.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "default")
        await world.settle(10)
        assert said(world, "Deployment")[-1][1] == f"Scaled down replica set {name} from 2 to 1"
        assert reasons(world, "ReplicaSet").count("SuccessfulDelete") == 1


@in_virtual_time
async def test_a_pod_that_somebody_else_deletes_is_not_the_controllers_deed() -> None:
    async with cluster(1, options=TOLD) as world:
        world.api.create("replicasets.apps", workload("web", 1))
        await world.settle(5)
        world.api.delete("pods", pods_of(world, "web")[0]["metadata"]["name"], "default")
        await world.settle(10)
        assert reasons(world, "ReplicaSet") == ["SuccessfulCreate", "SuccessfulCreate"]
        assert "Killing" in reasons(world, "Pod")


@in_virtual_time
async def test_the_kubelet_says_that_containers_started() -> None:
    async with cluster(1, options=TOLD) as world:
        world.api.create("replicasets.apps", workload("web", 1))
        await world.settle(5)
        assert reasons(world, "Pod") == ["Scheduled", "Pulled", "Created", "Started"]
        assert {"RegisteredNode", "NodeReady"} <= set(reasons(world, "Node"))


@in_virtual_time
async def test_a_stateful_set_names_itself() -> None:
    async with cluster(1, options=TOLD) as world:
        body: dict[str, Any] = {**workload("db", 1), "kind": "StatefulSet"}
        world.api.create("statefulsets.apps", body)
        await world.settle(5)
        text = "Create Pod db-0 in StatefulSet db successful"
        assert said(world, "StatefulSet") == [("SuccessfulCreate", text, "statefulset-controller")]


@in_virtual_time
async def test_refused_pods_are_a_warning() -> None:
    async with cluster(1, options=TOLD) as world:
        world.api.create("replicasets.apps", workload("web", 1, pods={"priorityClassName": "vip"}))
        await world.settle(2)
        (event,) = {(r, c) for r, _, c in said(world, "ReplicaSet")}
        assert event == ("FailedCreate", "replicaset-controller")


@in_virtual_time
async def test_a_world_that_is_not_looked_at_says_nothing() -> None:
    async with cluster(1) as world:
        world.api.create("replicasets.apps", workload("web", 1))
        await world.settle(5)
        assert reasons(world, "ReplicaSet") == []

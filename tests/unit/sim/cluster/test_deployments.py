from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dovetail.sim.cluster.rollout import DeploymentRollout, compute_surge, compute_unavailable
from dovetail.sim.world import World
from support.cluster import cluster, condition, in_virtual_time, names, pods_of, running, workload

DEPLOYMENTS, SETS = "deployments.apps", "replicasets.apps"
REVISION = "deployment.kubernetes.io/revision"
Json = dict[str, Any]


def sets_of(world: World) -> list[Json]:
    return sorted(world.api.list(SETS, "default"), key=lambda s: int(s["metadata"]["annotations"][REVISION]))


def new_image(world: World, name: str, image: str) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "main", "image": image}]}}}
    world.api.patch(DEPLOYMENTS, name, {"spec": spec}, "default", kind="strategic")


async def watched(world: World, seconds: int, look: Callable[[], None]) -> None:
    """Look at the world every tenth of a second."""
    for _ in range(seconds * 10):
        await world.settle(0.1)
        look()


@in_virtual_time
async def test_a_deployment_runs_through_one_replicaset_named_after_its_template() -> None:
    async with cluster(2) as world:
        world.api.create(DEPLOYMENTS, workload("web", 3))
        await world.settle(5)
        (one,) = sets_of(world)
        mark = one["metadata"]["labels"]["pod-template-hash"]
        assert one["metadata"]["name"] == f"web-{mark}"
        assert one["spec"]["selector"]["matchLabels"]["pod-template-hash"] == mark
        notes = one["metadata"]["annotations"]
        assert notes["deployment.kubernetes.io/desired-replicas"] == "3"
        assert notes["deployment.kubernetes.io/max-replicas"] == "4"
        made = pods_of(world, "web")
        assert all(p["metadata"]["labels"]["pod-template-hash"] == mark for p in made)
        status = world.api.get(DEPLOYMENTS, "web", "default")["status"]
        assert [status[c] for c in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")] == [
            3
        ] * 4
        assert "unavailableReplicas" not in status


@in_virtual_time
async def test_conditions_say_when_a_rollout_is_complete_and_stay_so_when_pods_come_and_go() -> None:
    async with cluster(1) as world:
        world.api.create(DEPLOYMENTS, workload("web", 2))
        await world.settle(0.5)
        assert condition(world.api.get(DEPLOYMENTS, "web", "default"), "Available")["status"] == "False"
        await world.settle(5)
        found = world.api.get(DEPLOYMENTS, "web", "default")
        assert condition(found, "Available")["reason"] == "MinimumReplicasAvailable"
        assert condition(found, "Progressing")["reason"] == "NewReplicaSetAvailable"
        world.api.delete("pods", pods_of(world, "web")[0]["metadata"]["name"], "default")
        await world.settle(0.5)
        found = world.api.get(DEPLOYMENTS, "web", "default")
        assert found["status"]["unavailableReplicas"] == 1
        assert condition(found, "Progressing")["reason"] == "NewReplicaSetAvailable"


@in_virtual_time
async def test_a_rolling_update_never_leaves_the_bounds_of_surge_and_unavailability() -> None:
    async with cluster(3) as world:
        strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}
        world.api.create(DEPLOYMENTS, workload("web", 6, strategy=strategy))
        await world.settle(5)
        seen: list[tuple[int, int]] = []

        def look() -> None:
            pods = [p for p in pods_of(world, "web") if not p["metadata"].get("deletionTimestamp")]
            seen.append((len(pods), sum(condition(p, "Ready").get("status") == "True" for p in pods)))

        new_image(world, "web", "example.com/app:2")
        await watched(world, 30, look)
        assert max(total for total, _ in seen) <= 7
        assert min(ready for _, ready in seen) >= 5
        assert {p["spec"]["containers"][0]["image"] for p in pods_of(world, "web")} == {"example.com/app:2"}
        assert len(running(pods_of(world, "web"))) == 6
        old, new = sets_of(world)
        assert (old["spec"]["replicas"], new["spec"]["replicas"]) == (0, 6)


@in_virtual_time
async def test_a_rollout_that_cannot_become_ready_stops_and_says_so_after_its_deadline() -> None:
    async with cluster(2) as world:
        world.api.create(DEPLOYMENTS, workload("web", 4, progressDeadlineSeconds=60))
        await world.settle(5)
        patch = {
            "spec": {"template": {"metadata": {"annotations": {"sim.dovetail.dev/never-ready": "true"}}}}
        }
        world.api.patch(DEPLOYMENTS, "web", patch, "default")
        await world.settle(40)
        found = world.api.get(DEPLOYMENTS, "web", "default")
        assert found["status"]["availableReplicas"] == 3
        assert condition(found, "Progressing")["status"] == "True"
        await world.settle(60)
        late = condition(world.api.get(DEPLOYMENTS, "web", "default"), "Progressing")
        assert (late["status"], late["reason"]) == ("False", "ProgressDeadlineExceeded")


@in_virtual_time
async def test_recreate_waits_until_the_last_old_pod_is_gone() -> None:
    async with cluster(1) as world:
        notes = {"sim.dovetail.dev/stop-after": "8s"}
        world.api.create(DEPLOYMENTS, workload("web", 2, strategy={"type": "Recreate"}, annotations=notes))
        await world.settle(5)
        new_image(world, "web", "example.com/app:2")
        images: list[set[str]] = []
        await watched(
            world, 20, lambda: images.append({p["spec"]["containers"][0]["image"] for p in pods_of(world)})
        )
        assert {"example.com/app:1", "example.com/app:2"} not in images
        assert images[-1] == {"example.com/app:2"}


@in_virtual_time
async def test_going_back_to_an_old_template_uses_its_replicaset_under_a_new_revision() -> None:
    async with cluster(1) as world:
        world.api.create(DEPLOYMENTS, workload("web", 1))
        await world.settle(5)
        first = sets_of(world)[0]["metadata"]["name"]
        new_image(world, "web", "example.com/app:2")
        await world.settle(10)
        new_image(world, "web", "example.com/app:1")
        await world.settle(10)
        latest = sets_of(world)[-1]
        assert (latest["metadata"]["name"], latest["metadata"]["annotations"][REVISION]) == (first, "3")
        assert world.api.get(DEPLOYMENTS, "web", "default")["metadata"]["annotations"][REVISION] == "3"
        assert len(sets_of(world)) == 2


@in_virtual_time
async def test_history_beyond_the_limit_is_forgotten_oldest_first() -> None:
    async with cluster(1) as world:
        world.api.create(DEPLOYMENTS, workload("web", 1, revisionHistoryLimit=1))
        for number in range(4):
            await world.settle(10)
            new_image(world, "web", f"example.com/app:new-{number}")
        await world.settle(10)
        assert [s["metadata"]["annotations"][REVISION] for s in sets_of(world)] == ["4", "5"]


@in_virtual_time
async def test_a_paused_deployment_keeps_its_template_but_not_its_size() -> None:
    async with cluster(1) as world:
        world.api.create(DEPLOYMENTS, workload("web", 2))
        await world.settle(5)
        world.api.patch(DEPLOYMENTS, "web", {"spec": {"paused": True}}, "default")
        new_image(world, "web", "example.com/app:2")
        world.api.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 3}}, "default")
        await world.settle(10)
        assert {p["spec"]["containers"][0]["image"] for p in pods_of(world)} == {"example.com/app:1"}
        assert len(running(pods_of(world))) == 3
        world.api.patch(DEPLOYMENTS, "web", {"spec": {"paused": False}}, "default")
        await world.settle(20)
        assert {p["spec"]["containers"][0]["image"] for p in pods_of(world)} == {"example.com/app:2"}


@in_virtual_time
async def test_a_replicaset_left_behind_by_an_orphaning_delete_is_adopted_again() -> None:
    async with cluster(1) as world:
        world.api.create(DEPLOYMENTS, workload("web", 2))
        await world.settle(5)
        before = names(pods_of(world, "web"))
        world.api.delete(DEPLOYMENTS, "web", "default", propagation="Orphan")
        await world.settle(2)
        world.api.create(DEPLOYMENTS, workload("web", 2))
        await world.settle(5)
        assert names(pods_of(world, "web")) == before
        assert len(sets_of(world)) == 1


def shown_set(name: str, size: int, available: int, desired: int = 10, most: int = 13) -> Json:
    notes = {
        "deployment.kubernetes.io/desired-replicas": str(desired),
        "deployment.kubernetes.io/max-replicas": str(most),
    }
    return {
        "metadata": {"name": name, "creationTimestamp": name, "annotations": notes},
        "spec": {"replicas": size},
        "status": {"availableReplicas": available},
    }


def rollout(
    replicas: int, current: Json, *old: Json, surge: int | str = 3, gone: int | str = 2
) -> DeploymentRollout:
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": surge, "maxUnavailable": gone}}
    return DeploymentRollout({"spec": {"replicas": replicas, "strategy": strategy}}, current, list(old))


def sizes(changes: Any) -> dict[str, int]:
    return {s["metadata"]["name"]: size for s, size in changes}


@pytest.mark.parametrize(
    ("current", "old", "expected"),
    [
        ((0, 0), (10, 10), {"new": 3}),
        ((3, 0), (10, 10), {"new": 3, "old": 8}),
        ((3, 0), (8, 8), {"new": 5}),
        ((5, 0), (8, 8), {"new": 5, "old": 8}),
        ((5, 3), (8, 8), {"new": 5, "old": 5}),
        ((3, 0), (10, 4), {"new": 3, "old": 8}),
        ((10, 10), (3, 3), {"new": 10, "old": 0}),
    ],
)
def test_a_rollout_grows_by_the_surge_and_shrinks_by_what_availability_allows(
    current: tuple[int, int], old: tuple[int, int], expected: dict[str, int]
) -> None:
    assert (
        sizes(rollout(10, shown_set("new", *current), shown_set("old", *old)).plan_rolling_update())
        == expected
    )


def test_scaling_in_the_middle_of_a_rollout_is_shared_in_proportion() -> None:
    plan = rollout(20, shown_set("new", 5, 5), shown_set("old", 8, 8), surge=3)
    assert plan.was_resized()
    assert sizes(plan.plan_resize()) == {"old": 14, "new": 9}


@pytest.mark.parametrize(
    ("replicas", "surge", "gone", "expected"),
    [
        (10, "25%", "25%", (3, 2)),
        (1, "25%", "25%", (1, 0)),
        (4, 0, 0, (0, 1)),
        (3, "1%", 0, (1, 0)),
        (2, 0, 5, (0, 2)),
    ],
)
def test_surge_rounds_up_unavailability_down_and_both_are_never_nothing(
    replicas: int, surge: int | str, gone: int | str, expected: tuple[int, int]
) -> None:
    spec = {"replicas": replicas, "strategy": {"rollingUpdate": {"maxSurge": surge, "maxUnavailable": gone}}}
    assert (compute_surge(spec), compute_unavailable(spec)) == expected

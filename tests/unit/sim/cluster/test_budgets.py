from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World
from support.cluster import (
    annotate,
    cluster,
    condition,
    in_virtual_time,
    names,
    pod,
    pods_of,
    template,
    workload,
)

BUDGETS = "poddisruptionbudgets.policy"


def budget(name: str = "web", **spec: Any) -> dict[str, Any]:
    selector = spec.pop("selector", {"matchLabels": {"app": "web"}})
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"selector": selector, **spec}}


def counts(world: World, name: str = "web") -> tuple[int, int, int, int]:
    """Expected, desired, healthy, allowed."""
    status = world.api.get(BUDGETS, name, "default")["status"]
    return (
        status["expectedPods"],
        status["desiredHealthy"],
        status["currentHealthy"],
        status["disruptionsAllowed"],
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"minAvailable": 3}, (5, 3, 5, 2)),
        ({"minAvailable": 7}, (5, 7, 5, 0)),
        ({"minAvailable": "50%"}, (5, 3, 5, 2)),
        ({"minAvailable": "100%"}, (5, 5, 5, 0)),
        ({"minAvailable": "0%"}, (5, 0, 5, 5)),
        ({"maxUnavailable": 1}, (5, 4, 5, 1)),
        ({"maxUnavailable": "30%"}, (5, 3, 5, 2)),
        ({"maxUnavailable": 9}, (5, 0, 5, 5)),
        ({"maxUnavailable": 0}, (5, 5, 5, 0)),
    ],
)
def test_budgets_count_in_pods_and_in_percent_rounding_up(
    spec: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    @in_virtual_time
    async def story() -> None:
        async with cluster(1) as world:
            world.api.create("deployments.apps", workload("web", 5))
            world.api.create(BUDGETS, budget(**spec))
            await world.settle(5)
            assert counts(world) == expected
            found = world.api.get(BUDGETS, "web", "default")
            allowed = condition(found, "DisruptionAllowed")
            assert (allowed["status"] == "True") == (expected[3] > 0)
            assert allowed["reason"] == ("SufficientPods" if expected[3] else "InsufficientPods")
            assert found["status"]["observedGeneration"] == found["metadata"]["generation"]

    story()


@in_virtual_time
async def test_the_scale_is_the_deployments_once_even_while_two_sets_share_its_pods() -> None:
    async with cluster(2) as world:
        world.api.create("deployments.apps", workload("web", 4))
        world.api.create(BUDGETS, budget(maxUnavailable=1))
        await world.settle(5)
        patch = {
            "spec": {"template": {"metadata": {"annotations": {"sim.dovetail.dev/never-ready": "true"}}}}
        }
        world.api.patch("deployments.apps", "web", patch, "default")
        await world.settle(10)
        assert len(world.api.list("replicasets.apps")) == 2
        assert counts(world)[:2] == (4, 3)


@in_virtual_time
async def test_several_controllers_behind_one_selector_add_up_and_bare_pods_do_not_count_for_the_scale() -> (
    None
):
    async with cluster(2) as world:
        world.api.create("deployments.apps", workload("web", 3))
        other = workload("web", 2, serviceName="x")
        other["spec"]["selector"] = {"matchLabels": {"role": "db"}}
        other["spec"]["template"]["metadata"]["labels"] = {"role": "db"}
        world.api.create("statefulsets.apps", other)
        world.api.create("pods", pod("bare", labels={"role": "db"}))
        both = {"matchExpressions": [{"key": "pod-template-hash", "operator": "Exists"}]}
        world.api.create(BUDGETS, budget("all", maxUnavailable="50%", selector={}))
        world.api.create(BUDGETS, budget("few", maxUnavailable=1, selector=both))
        world.api.create(BUDGETS, budget("least", minAvailable=1, selector={}))
        await world.settle(10)
        assert counts(world, "all") == (5, 2, 6, 4)
        assert counts(world, "few")[0] == 3
        assert counts(world, "least")[0] == 6


@in_virtual_time
async def test_pods_of_a_controller_without_a_scale_make_the_budget_fail_safe() -> None:
    async with cluster(1) as world:
        world.api.create("daemonsets.apps", workload("web", None))
        world.api.create(BUDGETS, budget(maxUnavailable=1))
        await world.settle(5)
        found = world.api.get(BUDGETS, "web", "default")
        assert found["status"]["disruptionsAllowed"] == 0
        assert condition(found, "DisruptionAllowed")["reason"] == "SyncFailed"


@in_virtual_time
async def test_nothing_is_allowed_where_nothing_is_expected() -> None:
    async with cluster(1) as world:
        world.api.create(BUDGETS, budget(maxUnavailable=1))
        await world.settle(1)
        assert counts(world) == (0, 0, 0, 0)


@in_virtual_time
async def test_an_eviction_uses_the_budget_up_at_once_and_a_ready_replacement_gives_it_back() -> None:
    async with cluster(1) as world:
        world.api.create("deployments.apps", workload("web", 2))
        world.api.create(BUDGETS, budget(maxUnavailable=1))
        await world.settle(5)
        first, second = names(pods_of(world, "web"))
        world.api.evict(first, "default")
        with pytest.raises(ApiError) as refused:
            world.api.evict(second, "default")
        assert refused.value.code == 429
        await world.settle(0.5)
        assert counts(world)[3] == 0
        await world.settle(3)
        assert counts(world) == (2, 1, 2, 1)
        world.api.evict(second, "default")


@in_virtual_time
async def test_an_eviction_whose_pod_stays_is_forgotten_after_two_minutes() -> None:
    async with cluster(1) as world:
        world.api.create("deployments.apps", workload("web", 2))
        world.api.create(BUDGETS, budget(maxUnavailable=1))
        await world.settle(5)
        found = world.api.get(BUDGETS, "web", "default")
        name = pods_of(world, "web")[0]["metadata"]["name"]
        status = {**found["status"], "disruptionsAllowed": 0, "disruptedPods": {name: "2026-01-01T00:00:08Z"}}
        world.api.update(BUDGETS, {**found, "status": status}, "status")
        await world.settle(60)
        assert counts(world) == (2, 1, 1, 0)
        await world.settle(70)
        assert counts(world) == (2, 1, 2, 1)
        assert "disruptedPods" not in world.api.get(BUDGETS, "web", "default")["status"]


@in_virtual_time
async def test_unready_and_leaving_pods_are_not_healthy_and_budgets_notice_in_the_same_instant() -> None:
    async with cluster(1) as world:
        world.api.create("replicasets.apps", workload("web", 3))
        world.api.create(BUDGETS, budget(minAvailable=1))
        await world.settle(5)
        victim = pods_of(world, "web")[0]["metadata"]["name"]
        world.api.delete("pods", victim, "default")
        await world.settle(0)
        assert counts(world)[2] == 2
        annotate(world, "nodes", "a", heartbeat="stopped")
        await world.settle(120)
        assert counts(world)[2] == 0


@in_virtual_time
async def test_a_changed_selector_or_size_is_taken_up() -> None:
    async with cluster(1) as world:
        world.api.create("replicasets.apps", workload("web", 3))
        world.api.create("pods", pod("other", labels={"app": "other"}))
        world.api.create(BUDGETS, budget(minAvailable=1))
        await world.settle(5)
        assert counts(world)[0] == 3
        world.api.patch(BUDGETS, "web", {"spec": {"selector": {"matchLabels": {"app": "other"}}}}, "default")
        await world.settle(1)
        assert counts(world) == (1, 1, 1, 0)
        world.api.patch(BUDGETS, "web", {"spec": {"minAvailable": 0}}, "default")
        await world.settle(1)
        assert counts(world) == (1, 0, 1, 1)


@in_virtual_time
async def test_pods_of_jobs_under_a_counted_budget_are_expected_until_they_are_gone() -> None:
    async with cluster(1) as world:
        body = {"template": template({"app": "web"}, restartPolicy="Never")}
        world.api.create("jobs.batch", {"metadata": {"name": "once", "namespace": "default"}, "spec": body})
        world.api.create(BUDGETS, budget(minAvailable=1))
        await world.settle(3)
        assert counts(world) == (1, 1, 1, 0)
        await world.settle(30)
        assert counts(world)[:3] == (1, 1, 0)

"""Binding, eviction, scale, logs, tokens and reviews."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.kube.core import WriteOptions
from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.status import ApiError
from support.apiserver import budget, definition, deployment, local_api, local_server, pod, widget


@pytest.fixture
def api() -> LocalApi:
    return local_api()


def ready(api: LocalApi, name: str, is_ready: bool = True, **spec: Any) -> None:
    api.create("pods", pod(name, **spec))
    api.bind(name, "default", "n1")
    condition = {"type": "Ready", "status": "True" if is_ready else "False"}
    status = {"status": {"phase": "Running", "conditions": [condition]}}
    api.patch("pods", name, status, "default", subresource="status")


def set_budget(api: LocalApi, allowed: int, name: str = "b", observed: int = 1, **more: Any) -> None:
    status = {"disruptionsAllowed": allowed, "observedGeneration": observed, "desiredHealthy": 1, **more}
    api.patch("poddisruptionbudgets.policy", name, {"status": status}, "default", subresource="status")


def refusal(api: LocalApi, name: str, **options: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        api.evict(name, "default", **options)
    return error.value


def test_binding_assigns_a_node_once(api: LocalApi) -> None:
    api.create("pods", pod("a"))
    api.bind("a", "default", "not-even-there")
    bound = api.get("pods", "a", "default")
    assert bound["spec"]["nodeName"] == "not-even-there"
    assert bound["status"]["conditions"][0]["type"] == "PodScheduled"
    assert bound["metadata"]["generation"] == 1
    with pytest.raises(ApiError) as error:
        api.bind("a", "default", "n2")
    assert (error.value.code, error.value.details["kind"]) == (409, "pods/binding")


def test_pods_that_are_gated_or_going_or_absent_are_not_bound(api: LocalApi) -> None:
    api.create("pods", pod("gated", schedulingGates=[{"name": "x"}]))
    api.create("pods", pod("going", finalizers=["x/y"]))
    api.delete("pods", "going", "default")
    for name, code in (("gated", 409), ("going", 409), ("absent", 404)):
        with pytest.raises(ApiError) as error:
            api.bind(name, "default", "n1")
        assert error.value.code == code


def test_a_binding_copies_its_annotations(api: LocalApi) -> None:
    api.create("pods", pod("a"))
    body = {"metadata": {"name": "a", "annotations": {"x": "y"}}, "target": {"kind": "Node", "name": "n"}}
    info = api.core.find_type("bindings")
    assert api.handler.create(info, "default", body, WriteOptions())["status"] == "Success"
    assert api.get("pods", "a", "default")["metadata"]["annotations"] == {"x": "y"}


def test_an_eviction_without_a_budget_is_a_graceful_delete(api: LocalApi) -> None:
    ready(api, "a", terminationGracePeriodSeconds=45)
    api.evict("a", "default", grace_seconds=7)
    pod_ = api.get("pods", "a", "default")
    assert pod_["metadata"]["deletionGracePeriodSeconds"] == 7
    target = next(each for each in pod_["status"]["conditions"] if each["type"] == "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "EvictionByEvictionAPI")


def test_a_budget_is_charged_in_the_same_turn(api: LocalApi) -> None:
    api.create("poddisruptionbudgets.policy", budget("b", maxUnavailable=1))
    ready(api, "a")
    ready(api, "b")
    set_budget(api, 1)
    api.evict("a", "default")
    spent = api.get("poddisruptionbudgets.policy", "b", "default")["status"]
    assert spent["disruptionsAllowed"] == 0
    assert list(spent["disruptedPods"]) == ["a"]
    assert spent["conditions"][0]["reason"] == "InsufficientPods"
    error = refusal(api, "b")
    assert (error.code, error.reason, error.retry_after) == (429, "TooManyRequests", 0)
    assert error.causes[0]["reason"] == "DisruptionBudget"
    assert "deletionTimestamp" not in api.get("pods", "b", "default")["metadata"]


def test_a_budget_nobody_has_looked_at_yet_asks_for_patience(api: LocalApi) -> None:
    api.create("poddisruptionbudgets.policy", budget("b", maxUnavailable=1))
    ready(api, "a")
    error = refusal(api, "a")
    assert (error.code, error.retry_after, error.details["retryAfterSeconds"]) == (429, 10, 10)


def test_two_budgets_over_one_pod_are_an_error(api: LocalApi) -> None:
    for name in ("b", "c"):
        api.create("poddisruptionbudgets.policy", budget(name, maxUnavailable=1))
    ready(api, "a")
    assert refusal(api, "a").code == 500


def test_a_negative_allowance_and_too_many_open_disruptions_are_forbidden(api: LocalApi) -> None:
    api.create("poddisruptionbudgets.policy", budget("b", maxUnavailable=1))
    ready(api, "a")
    set_budget(api, -1)
    assert refusal(api, "a").code == 403
    set_budget(api, 1, disruptedPods={f"p{i}": "2030-01-01T00:00:00Z" for i in range(2001)})
    assert refusal(api, "a").code == 403


def test_unready_pods_go_when_the_budget_is_met_or_does_not_mind(api: LocalApi) -> None:
    api.create("poddisruptionbudgets.policy", budget("b", minAvailable=1))
    set_budget(api, 0, currentHealthy=0)
    ready(api, "a", is_ready=False)
    assert refusal(api, "a").code == 429
    set_budget(api, 0, currentHealthy=1)
    api.evict("a", "default")
    assert api.get("poddisruptionbudgets.policy", "b", "default")["status"]["disruptionsAllowed"] == 0
    always = budget("c", minAvailable=1, unhealthyPodEvictionPolicy="AlwaysAllow")
    api.delete("poddisruptionbudgets.policy", "b", "default")
    api.create("poddisruptionbudgets.policy", always)
    ready(api, "d", is_ready=False)
    api.evict("d", "default")
    assert api.get("pods", "d", "default")["metadata"]["deletionTimestamp"]


@pytest.mark.parametrize("phase", ["Pending", "Succeeded", "Failed"])
def test_pods_that_do_not_run_are_not_the_budgets_business(api: LocalApi, phase: str) -> None:
    api.create("poddisruptionbudgets.policy", budget("b", maxUnavailable=0))
    ready(api, "a")
    api.patch("pods", "a", {"status": {"phase": phase}}, "default", subresource="status")
    api.evict("a", "default")
    assert not api.list("pods") or api.list("pods")[0]["metadata"]["deletionTimestamp"]


def test_a_dry_run_eviction_asks_and_does_nothing(api: LocalApi) -> None:
    api.create("poddisruptionbudgets.policy", budget("b", maxUnavailable=1))
    ready(api, "a")
    set_budget(api, 1)
    revision = api.core.store.revision
    api.evict("a", "default", dry_run=True)
    assert api.core.store.revision == revision
    set_budget(api, 0)
    assert refusal(api, "a", dry_run=True).code == 429


def test_evictions_know_which_pod_they_mean(api: LocalApi) -> None:
    ready(api, "a")
    assert refusal(api, "a", uid="another").code == 409
    assert refusal(api, "gone").code == 404


def test_500_pods_and_50_evictors_never_disrupt_two_at_once() -> None:
    server = local_server()
    api = server.build_local_client()
    api.create("poddisruptionbudgets.policy", budget("b", maxUnavailable=1))
    for index in range(500):
        ready(api, f"p{index:03}")
    recompute(api)
    evictors = [[f"p{index:03}" for index in range(start, 500, 50)] for start in range(50)]
    turns = 0
    while any(evictors):
        turns += 1
        granted = sum(_try_evict(api, queue) for queue in evictors if queue)
        going = [each for each in api.list("pods") if each["metadata"].get("deletionTimestamp")]
        assert len(going) == granted == 1, "one budget, one disruption in flight"
        api.delete("pods", going[0]["metadata"]["name"], "default", grace_seconds=0)
        ready(api, f"new{turns:03}")
        recompute(api)
    assert turns == 500


def _try_evict(api: LocalApi, queue: list[str]) -> int:
    try:
        api.evict(queue[0], "default")
    except ApiError as error:
        if error.code != 429:
            raise
        return 0
    queue.pop(0)
    return 1


def recompute(api: LocalApi) -> None:
    """What the budget's controller does: count, and allow what is above the need."""
    pods = [each for each in api.list("pods") if not each["metadata"].get("deletionTimestamp")]
    healthy = len(pods)
    status = {
        "observedGeneration": 1,
        "expectedPods": 500,
        "desiredHealthy": 499,
        "currentHealthy": healthy,
        "disruptionsAllowed": max(0, healthy - 499),
        "disruptedPods": None,
    }
    api.patch("poddisruptionbudgets.policy", "b", {"status": status}, "default", subresource="status")


def test_scale_reads_and_writes_replicas(api: LocalApi) -> None:
    api.create("deployments.apps", deployment("web", 3))
    info = api.core.find_type("deployments.apps")
    key = ("default", "web")
    scale = api.handler.subresources.get(info, key, "scale")
    assert (scale["kind"], scale["apiVersion"]) == ("Scale", "autoscaling/v1")
    assert scale["spec"] == {"replicas": 3}
    assert scale["status"] == {"replicas": 0, "selector": "app=web"}
    after = api.patch("deployments.apps", "web", {"spec": {"replicas": 5}}, "default", subresource="scale")
    assert after["spec"] == {"replicas": 5}
    stored = api.get("deployments.apps", "web", "default")
    assert (stored["spec"]["replicas"], stored["metadata"]["generation"]) == (5, 2)
    with pytest.raises(ApiError) as error:
        api.update("deployments.apps", scale, subresource="scale")
    assert error.value.code == 409
    with pytest.raises(ApiError) as error:
        api.patch("deployments.apps", "web", {"spec": {"replicas": -1}}, "default", subresource="scale")
    assert error.value.code == 422


def test_scale_of_a_custom_resource_follows_its_paths_and_its_schema(api: LocalApi) -> None:
    api.create("customresourcedefinitions.apiextensions.k8s.io", definition())
    api.create("widgets.example.com", widget("w"))
    info = api.core.find_type("widgets.example.com")
    with pytest.raises(ApiError) as error:
        api.handler.subresources.get(info, ("default", "w"), "scale")
    assert error.value.code == 500
    api.patch("widgets.example.com", "w", {"spec": {"replicas": 2}}, "default")
    after = api.patch("widgets.example.com", "w", {"spec": {"replicas": 4}}, "default", subresource="scale")
    assert after["spec"]["replicas"] == 4
    assert api.get("widgets.example.com", "w", "default")["spec"]["replicas"] == 4


def test_ephemeral_containers_and_resizing_change_their_part_only(api: LocalApi) -> None:
    api.create("pods", pod("a"))
    debug = {"name": "debug", "image": "sh:1"}
    patch = {"spec": {"ephemeralContainers": [debug], "nodeName": "sneaky"}}
    after = api.patch("pods", "a", patch, "default", subresource="ephemeralcontainers")
    assert after["spec"]["ephemeralContainers"][0]["name"] == "debug"
    assert "nodeName" not in after["spec"]
    patch = {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1000m"}}}]}}
    after = api.patch("pods", "a", patch, "default", kind="strategic", subresource="resize")
    assert after["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "1"}}
    assert after["spec"]["containers"][0]["image"] == "web:1"

"""Writes on trust end in the same objects as writes that are checked, and keep every other promise."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.kube.internal_writes import AdmittedTemplates, InternalApi
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World
from support.cluster import cluster, in_virtual_time, pod, workload


def trusted(world: World) -> InternalApi:
    return InternalApi(world.server, "tester", AdmittedTemplates(world.server))


def anonymous(obj: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between any two objects."""
    apart = ("name", "uid", "resourceVersion", "creationTimestamp")
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k not in apart}}


def born(world: World) -> tuple[InternalApi, dict[str, Any]]:
    body = pod("x", {"cpu": "1000m"}, labels={"app": "web"}, annotations={})
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "web-"
    return trusted(world), body


@in_virtual_time
async def test_the_second_pod_of_a_spec_is_just_like_the_first() -> None:
    async with cluster() as world:
        api, body = born(world)
        first, second = api.create_pod(body), api.create_pod(body)
        assert first["metadata"]["name"] != second["metadata"]["name"]
        assert anonymous(first) == anonymous(second)
        assert second["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
        assert world.api.get("pods", second["metadata"]["name"], "default") == second


@in_virtual_time
async def test_a_new_limit_range_is_heeded_by_pods_of_a_known_spec() -> None:
    async with cluster() as world:
        api, body = born(world)
        api.create_pod(body)
        limit = {"limits": [{"type": "Container", "defaultRequest": {"memory": "64Mi"}}]}
        world.api.create("limitranges", {"metadata": {"name": "l", "namespace": "default"}, "spec": limit})
        requests = api.create_pod(body)["spec"]["containers"][0]["resources"]["requests"]
        assert requests == {"cpu": "1", "memory": "64Mi"}


@in_virtual_time
async def test_what_changes_nothing_is_not_written_and_a_new_spec_is_a_new_generation() -> None:
    async with cluster() as world:
        api = trusted(world)
        made = world.api.create("replicasets.apps", workload("web", 0))
        revision = world.server.store.revision
        assert api.report_status("replicasets.apps", made, dict(made["status"])) is made
        assert world.server.store.revision == revision
        key = ("default", "web")
        counted = api.report_status("replicasets.apps", made, {**made["status"], "replicas": 3})
        assert counted["metadata"]["generation"] == 1
        larger = api.amend("replicasets.apps", key, spec={**made["spec"], "replicas": 3})
        assert larger["metadata"]["generation"] == 2
        assert made["spec"]["replicas"] == 0, "stored states are never edited"


@in_virtual_time
async def test_missing_objects_taken_names_and_closing_namespaces_are_refused_as_ever() -> None:
    async with cluster() as world:
        api = trusted(world)
        with pytest.raises(ApiError) as missing:
            api.amend("pods", ("default", "nobody"), status={})
        assert missing.value.code == 404
        event = {"metadata": {"name": "e", "namespace": "default"}, "reason": "x"}
        api.insert("events", event)
        with pytest.raises(ApiError) as taken:
            api.insert("events", event)
        assert taken.value.reason == "AlreadyExists"
        with pytest.raises(ApiError) as nowhere:
            api.insert("events", {"metadata": {"name": "e", "namespace": "nowhere"}})
        assert nowhere.value.code == 404


@in_virtual_time
async def test_admission_policies_are_asked_about_trusted_writes_too() -> None:
    async with cluster() as world:
        api, body = born(world)
        api.create_pod(body)
        rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
        spec = {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": "false", "message": "no more pods"}],
        }
        group = "admissionregistration.k8s.io"
        world.api.create(f"validatingadmissionpolicies.{group}", {"metadata": {"name": "p"}, "spec": spec})
        binding = {"policyName": "p", "validationActions": ["Deny"]}
        world.api.create(
            f"validatingadmissionpolicybindings.{group}", {"metadata": {"name": "b"}, "spec": binding}
        )
        with pytest.raises(ApiError, match="no more pods"):
            api.create_pod(body)

"""Objects from creation to deletion: metadata, generations, conflicts, finalizers, grace."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.status import ApiError
from support.apiserver import (
    budget,
    config_map,
    definition,
    deployment,
    hand_clock,
    local_api,
    local_server,
    node,
    pod,
    widget,
)


@pytest.fixture
def api() -> LocalApi:
    return local_api()


def refused(error: pytest.ExceptionInfo[ApiError]) -> tuple[int, str]:
    return error.value.code, error.value.reason


def test_a_created_object_gets_what_only_the_server_may_give(api: LocalApi) -> None:
    body = config_map("a")
    body["metadata"] |= {"uid": "mine", "creationTimestamp": "1999-01-01T00:00:00Z", "selfLink": "/x"}
    body["metadata"] |= {"deletionTimestamp": "1999-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3}
    made = api.create("configmaps", body)["metadata"]
    assert made["creationTimestamp"] == "2030-01-01T00:00:00Z"
    assert len(made["uid"]) == 36
    assert made["resourceVersion"].isdigit()
    assert not {"selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "generation"} & made.keys()


def test_the_same_seed_gives_the_same_bytes() -> None:
    def story(seed: int) -> bytes:
        server = local_server(seed)
        api = server.build_local_client()
        for _ in range(5):
            api.create("pods", pod())
        api.create("deployments.apps", deployment("web"))
        return server.dump()

    assert story(3) == story(3)
    assert story(3) != story(4)


def test_the_given_object_is_copied_and_never_changed(api: LocalApi) -> None:
    body = pod("a")
    before = str(body)
    stored = api.create("pods", body)
    assert str(body) == before
    body["metadata"]["labels"]["app"] = "other"
    assert stored["metadata"]["labels"] == {"app": "web"}


def test_generated_names_keep_58_characters_of_their_prefix(api: LocalApi) -> None:
    body = config_map("x")
    del body["metadata"]["name"]
    body["metadata"]["generateName"] = "n" * 70
    name = api.create("configmaps", body)["metadata"]["name"]
    assert name[:58] == "n" * 58
    assert len(name) == 63
    assert set(name[58:]) <= set("bcdfghjklmnpqrstvwxz2456789")


@pytest.mark.parametrize(
    ("resource", "name"),
    [
        ("configmaps", "Upper"),
        ("configmaps", "-x"),
        ("configmaps", "x" * 254),
        ("configmaps", "a_b"),
        ("namespaces", "a.b"),
        ("namespaces", "x" * 64),
    ],
)
def test_bad_names_are_invalid(api: LocalApi, resource: str, name: str) -> None:
    with pytest.raises(ApiError) as error:
        api.create(resource, {"metadata": {"name": name}})
    assert refused(error) == (422, "Invalid")
    assert error.value.causes[0]["field"] == "metadata.name"


def test_a_service_needs_a_letter_first(api: LocalApi) -> None:
    with pytest.raises(ApiError) as error:
        api.create("services", {"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 80}]}})
    assert refused(error) == (422, "Invalid")


def test_a_name_is_required(api: LocalApi) -> None:
    with pytest.raises(ApiError) as error:
        api.create("configmaps", {"metadata": {}})
    assert error.value.causes[0]["reason"] == "FieldValueRequired"


@pytest.mark.parametrize(
    "metadata",
    [
        {"labels": {"a b": "x"}},
        {"labels": {"a": "x" * 64}},
        {"labels": {"a/b/c": ""}},
        {"annotations": {"/a": ""}},
        {"annotations": {"a": "x" * (256 * 1024)}},
        {"finalizers": ["bad finalizer"]},
        {"ownerReferences": [{"kind": "Pod", "name": "x"}]},
    ],
)
def test_bad_metadata_is_invalid(api: LocalApi, metadata: dict[str, object]) -> None:
    with pytest.raises(ApiError) as error:
        api.create("configmaps", {"metadata": {"name": "a", **metadata}})
    assert refused(error) == (422, "Invalid")


def test_creating_twice_is_already_exists_and_into_nowhere_not_found(api: LocalApi) -> None:
    api.create("configmaps", config_map("a"))
    with pytest.raises(ApiError) as error:
        api.create("configmaps", config_map("a"))
    assert refused(error) == (409, "AlreadyExists")
    assert error.value.details == {"name": "a", "kind": "configmaps"}
    with pytest.raises(ApiError) as error:
        api.create("configmaps", config_map("a", namespace="nowhere"))
    assert error.value.details == {"name": "nowhere", "kind": "namespaces"}


def test_a_resource_version_on_create_is_refused(api: LocalApi) -> None:
    body = config_map("a")
    body["metadata"]["resourceVersion"] = "1"
    with pytest.raises(ApiError) as error:
        api.create("configmaps", body)
    assert refused(error) == (400, "BadRequest")


def test_status_is_dropped_on_create_except_a_nodes(api: LocalApi) -> None:
    made = api.create("deployments.apps", {**deployment("web"), "status": {"replicas": 9}})
    assert "replicas" not in made["status"]
    assert api.create("nodes", node("n"))["status"]["capacity"]["cpu"] == "4"
    assert api.create("pods", {**pod("p"), "status": {"phase": "Running"}})["status"] == {
        "phase": "Pending",
        "qosClass": "BestEffort",
    }


def test_generation_moves_with_the_spec_and_nothing_else(api: LocalApi) -> None:
    api.create("deployments.apps", deployment("web"))

    def generation() -> int:
        return int(api.get("deployments.apps", "web", "default")["metadata"]["generation"])

    assert generation() == 1
    api.patch("deployments.apps", "web", {"metadata": {"labels": {"a": "b"}}}, "default")
    assert generation() == 1
    api.patch("deployments.apps", "web", {"status": {"replicas": 1}}, "default", subresource="status")
    assert generation() == 1
    api.patch("deployments.apps", "web", {"spec": {"replicas": 2}}, "default")
    assert generation() == 2
    api.patch("deployments.apps", "web", {"metadata": {"finalizers": ["a/b"]}}, "default")
    api.delete("deployments.apps", "web", "default")
    assert generation() == 3


def test_kinds_without_generation_have_none(api: LocalApi) -> None:
    api.create("nodes", node("n"))
    assert "generation" not in api.patch("nodes", "n", {"spec": {"unschedulable": True}})["metadata"]


def test_an_update_without_effect_commits_nothing(api: LocalApi) -> None:
    made = api.create("pods", pod("a"))
    watch = api.watch("pods")
    watch.drain()
    assert api.update("pods", made)["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    same = api.patch("pods", "a", {"metadata": {"labels": {"app": "web"}}}, "default")
    assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert watch.drain() == []


def test_a_stale_version_conflicts_on_every_kind_of_write(api: LocalApi) -> None:
    old = api.create("deployments.apps", deployment("web"))
    api.patch("deployments.apps", "web", {"spec": {"replicas": 2}}, "default")
    version = old["metadata"]["resourceVersion"]
    with pytest.raises(ApiError) as error:
        api.update("deployments.apps", old)
    assert refused(error) == (409, "Conflict")
    assert error.value.details == {"name": "web", "group": "apps", "kind": "deployments"}
    patch = {"metadata": {"resourceVersion": version}, "status": {"replicas": 1}}
    for subresource in ("", "status"):
        with pytest.raises(ApiError) as error:
            api.patch("deployments.apps", "web", patch, "default", subresource=subresource)
        assert refused(error) == (409, "Conflict")


def test_another_uid_conflicts(api: LocalApi) -> None:
    api.create("configmaps", config_map("a"))
    with pytest.raises(ApiError) as error:
        api.patch("configmaps", "a", {"metadata": {"uid": "other"}}, "default")
    assert refused(error) == (422, "Invalid")
    body = config_map("a")
    body["metadata"]["uid"] = "other"
    with pytest.raises(ApiError) as error:
        api.update("configmaps", body)
    assert refused(error) == (409, "Conflict")
    for precondition in ({"uid": "other"}, {"resource_version": "1"}):
        with pytest.raises(ApiError) as error:
            api.delete("configmaps", "a", "default", **precondition)  # type: ignore[arg-type]
        assert refused(error) == (409, "Conflict")
    api.delete("configmaps", "a", "default")


def test_put_without_a_version_is_fine_for_built_ins_and_invalid_for_custom_ones(api: LocalApi) -> None:
    api.create("configmaps", config_map("a"))
    assert api.update("configmaps", config_map("a", x="1"))["data"] == {"x": "1"}
    api.create("customresourcedefinitions.apiextensions.k8s.io", definition())
    api.create("widgets.example.com", widget("w"))
    with pytest.raises(ApiError) as error:
        api.update("widgets.example.com", widget("w", size=1))
    assert error.value.causes[0]["field"] == "metadata.resourceVersion"


def test_put_of_a_missing_object_creates_only_where_the_kind_says_so(api: LocalApi) -> None:
    lease = {"metadata": {"name": "l", "namespace": "default"}, "spec": {"holderIdentity": "me"}}
    assert api.update("leases.coordination.k8s.io", lease)["metadata"]["uid"]
    with pytest.raises(ApiError) as error:
        api.update("configmaps", config_map("a"))
    assert refused(error) == (404, "NotFound")


def test_identity_survives_whatever_an_update_says(api: LocalApi) -> None:
    made = api.create("deployments.apps", deployment("web"))
    changed = {
        **made,
        "metadata": {**made["metadata"], "generation": 99, "creationTimestamp": "1999-01-01T00:00:00Z"},
    }
    assert api.update("deployments.apps", changed)["metadata"] == made["metadata"]


def test_the_status_endpoint_of_a_custom_resource_writes_status_and_nothing_else(api: LocalApi) -> None:
    api.create("customresourcedefinitions.apiextensions.k8s.io", definition())
    made = api.create("widgets.example.com", {**widget("w", size=1), "status": {"x": 1}})
    assert "status" not in made
    patch = {
        "metadata": {"labels": {"a": "b"}, "finalizers": ["a/b"]},
        "spec": {"size": 7},
        "status": {"x": 2},
    }
    after = api.patch("widgets.example.com", "w", patch, "default", subresource="status")
    assert after["status"] == {"x": 2}
    assert after["spec"]["size"] == 1
    assert not {"labels", "finalizers"} & after["metadata"].keys()
    assert after["metadata"]["generation"] == 1
    main = api.patch("widgets.example.com", "w", {"status": {"x": 3}}, "default")
    assert main["status"] == {"x": 2}


def test_a_pods_status_endpoint_may_change_labels_but_not_spec_or_owners(api: LocalApi) -> None:
    api.create("pods", pod("a"))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "x", "uid": "u"}
    patch = {
        "metadata": {"labels": {"b": "c"}, "ownerReferences": [owner]},
        "spec": {"nodeName": "n"},
        "status": {"phase": "Running"},
    }
    after = api.patch("pods", "a", patch, "default", subresource="status")
    assert after["metadata"]["labels"] == {"app": "web", "b": "c"}
    assert "ownerReferences" not in after["metadata"]
    assert "nodeName" not in after["spec"]
    assert after["status"]["phase"] == "Running"


def test_a_deployments_status_endpoint_leaves_labels_alone(api: LocalApi) -> None:
    api.create("deployments.apps", deployment("web"))
    patch = {"metadata": {"labels": {"b": "c"}}, "spec": {"replicas": 9}, "status": {"replicas": 1}}
    after = api.patch("deployments.apps", "web", patch, "default", subresource="status")
    assert "labels" not in after["metadata"]
    assert after["spec"]["replicas"] == 1
    assert after["status"] == {"replicas": 1}


def test_an_object_without_finalizers_goes_at_once_with_the_revision_of_its_removal(api: LocalApi) -> None:
    made = api.create("configmaps", config_map("a", x="1"))
    watch = api.watch("configmaps")
    watch.drain()
    answer = api.delete("configmaps", "a", "default")
    assert answer["status"] == "Success"
    assert answer["details"] == {"name": "a", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    ((kind, last),) = watch.drain()
    assert (kind, last["data"]) == ("DELETED", {"x": "1"})
    assert int(last["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])


def test_finalizers_hold_an_object_until_the_last_is_gone(api: LocalApi) -> None:
    body = config_map("a")
    body["metadata"]["finalizers"] = ["x/one", "x/two"]
    api.create("configmaps", body)
    waiting = api.delete("configmaps", "a", "default")
    assert waiting["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:00Z"
    patch = {"metadata": {"finalizers": ["x/one", "x/two", "x/three"]}}
    with pytest.raises(ApiError) as error:
        api.patch("configmaps", "a", patch, "default")
    assert refused(error) == (422, "Invalid")
    api.patch("configmaps", "a", {"metadata": {"finalizers": ["x/two"]}}, "default")
    final = api.patch("configmaps", "a", {"metadata": {"finalizers": None}}, "default")
    assert final["metadata"]["name"] == "a"
    with pytest.raises(ApiError) as error:
        api.get("configmaps", "a", "default")
    assert refused(error) == (404, "NotFound")


def bound(api: LocalApi, name: str = "a", **spec: Any) -> None:
    api.create("pods", pod(name, **spec))
    api.bind(name, "default", "n1")


def test_a_bound_pod_waits_out_its_grace_and_a_repeat_may_only_shorten_it(api: LocalApi) -> None:
    bound(api, terminationGracePeriodSeconds=60)
    first = api.delete("pods", "a", "default")
    assert first["metadata"]["deletionGracePeriodSeconds"] == 60
    assert first["metadata"]["deletionTimestamp"] == "2030-01-01T00:01:00Z"
    assert first["metadata"]["generation"] == 2
    longer = api.delete("pods", "a", "default", grace_seconds=90)
    assert longer == first
    shorter = api.delete("pods", "a", "default", grace_seconds=10)
    assert shorter["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:10Z"
    api.delete("pods", "a", "default", grace_seconds=0)
    assert api.list("pods") == []


def test_an_unbound_or_finished_pod_goes_at_once(api: LocalApi) -> None:
    api.create("pods", pod("a"))
    api.delete("pods", "a", "default")
    bound(api, "b")
    api.patch("pods", "b", {"status": {"phase": "Succeeded"}}, "default", subresource="status")
    api.delete("pods", "b", "default")
    assert api.list("pods") == []


def test_a_negative_grace_means_one_second(api: LocalApi) -> None:
    bound(api)
    assert api.delete("pods", "a", "default", grace_seconds=-5)["metadata"]["deletionGracePeriodSeconds"] == 1


def test_a_pods_last_finalizer_does_not_end_its_grace(api: LocalApi) -> None:
    bound(api, finalizers=["x/y"])
    api.delete("pods", "a", "default")
    api.patch("pods", "a", {"metadata": {"finalizers": None}}, "default")
    assert len(api.list("pods")) == 1
    api.delete("pods", "a", "default", grace_seconds=0)
    assert api.list("pods") == []


def test_grace_zero_does_not_go_past_finalizers(api: LocalApi) -> None:
    bound(api, finalizers=["x/y"])
    api.delete("pods", "a", "default", grace_seconds=0)
    assert len(api.list("pods")) == 1
    api.patch("pods", "a", {"metadata": {"finalizers": None}}, "default")
    assert api.list("pods") == []


def test_a_dry_run_shows_what_would_be_and_stores_nothing(api: LocalApi) -> None:
    made = api.create("configmaps", config_map("a"), dry_run=True)
    assert made["metadata"]["uid"]
    assert "resourceVersion" not in made["metadata"]
    assert "a" not in [each["metadata"]["name"] for each in api.list("configmaps")]


def test_events_are_forgotten_an_hour_after_their_last_write() -> None:
    server = local_server()
    api = server.build_local_client()
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    for name in ("a", "b"):
        api.create("events", {"metadata": {"name": name}, "involvedObject": about})
    hand_clock(server).advance(1800)
    api.patch("events", "b", {"count": 2}, "default")
    hand_clock(server).advance(1801)
    server.run_housekeeping()
    assert [each["metadata"]["name"] for each in api.list("events")] == ["b"]


def test_both_faces_of_an_event_are_one_object(api: LocalApi) -> None:
    about = {"kind": "Pod", "name": "p", "namespace": "default"}
    body = {
        "metadata": {"name": "e", "namespace": "default"},
        "regarding": about,
        "note": "hello",
        "type": "Normal",
    }
    body |= {
        "reason": "R",
        "action": "A",
        "reportingController": "c",
        "eventTime": "2030-01-01T00:00:00.000000Z",
    }
    made = api.create("events.events.k8s.io", body)
    assert made["apiVersion"] == "events.k8s.io/v1"
    assert made["eventTime"] == "2030-01-01T00:00:00.000000Z"
    core = api.get("events", "e", "default")
    assert (core["apiVersion"], core["message"], core["involvedObject"]) == ("v1", "hello", about)
    assert core["reportingComponent"] == "c"
    assert api.list("events.events.k8s.io", field_selector="regarding.name=p")[0]["note"] == "hello"
    assert api.list("events", field_selector="involvedObject.name=p")[0]["message"] == "hello"
    watch = api.watch("events.events.k8s.io", resource_version=made["metadata"]["resourceVersion"])
    api.patch("events", "e", {"message": "again"}, "default")
    ((_, seen),) = watch.drain()
    assert seen["note"] == "again"


def test_a_snapshot_continues_where_it_was_taken() -> None:
    server = local_server()
    api = server.build_local_client()
    api.create("customresourcedefinitions.apiextensions.k8s.io", definition())
    api.create("widgets.example.com", widget("w", size=3))
    owner = api.create("deployments.apps", deployment("web"))
    reference = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "name": "web",
        "uid": owner["metadata"]["uid"],
    }
    api.create("pods", pod("a", ownerReferences=[reference]))
    version = api.create("poddisruptionbudgets.policy", budget("b"))["metadata"]["resourceVersion"]

    other = local_server(seed=9)
    other.load(server.dump())
    again = other.build_local_client()
    assert other.dump() == server.dump()
    assert again.get("widgets.example.com", "w", "default")["spec"]["size"] == 3
    made = again.create("configmaps", config_map("new"))
    assert int(made["metadata"]["resourceVersion"]) == int(version) + 1
    ((kind, obj),) = again.watch("pods", resource_version="1").drain()
    assert (kind, obj["reason"]) == ("ERROR", "Expired")
    again.delete("deployments.apps", "web", "default")
    assert again.list("pods") == []

"""Owners, dependents and namespaces on their way out."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.status import ApiError
from support.apiserver import config_map, deployment, hand_clock, local_api, local_server, node, pod


@pytest.fixture
def api() -> LocalApi:
    return local_api()


def owner_reference(owner: dict[str, Any], **more: Any) -> dict[str, Any]:
    metadata = owner["metadata"]
    base = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    return {**base, "name": metadata["name"], "uid": metadata["uid"], **more}


def owned(name: str, *owners: dict[str, Any], **more: Any) -> dict[str, Any]:
    body = config_map(name)
    body["metadata"]["ownerReferences"] = [owner_reference(owner, **more) for owner in owners]
    return body


def names(api: LocalApi) -> list[str]:
    return [each["metadata"]["name"] for each in api.list("configmaps")]


def test_a_chain_of_dependents_goes_with_its_owner(api: LocalApi) -> None:
    top = api.create("configmaps", config_map("top"))
    middle = api.create("configmaps", owned("middle", top))
    api.create("configmaps", owned("bottom", middle))
    api.delete("configmaps", "top", "default", propagation="Background")
    assert names(api) == []


def test_a_dependent_with_another_owner_only_loses_the_reference(api: LocalApi) -> None:
    one, two = (api.create("configmaps", config_map(name)) for name in ("one", "two"))
    api.create("configmaps", owned("both", one, two))
    api.delete("configmaps", "one", "default")
    (left,) = api.get("configmaps", "both", "default")["metadata"]["ownerReferences"]
    assert left["name"] == "two"
    api.delete("configmaps", "two", "default")
    assert names(api) == []


def test_orphans_stay_and_forget_their_owner(api: LocalApi) -> None:
    top = api.create("configmaps", config_map("top"))
    api.create("configmaps", owned("child", top))
    api.delete("configmaps", "top", "default", propagation="Orphan")
    assert names(api) == ["child"]
    assert "ownerReferences" not in api.get("configmaps", "child", "default")["metadata"]


def test_in_the_foreground_an_owner_waits_for_those_that_block_it(api: LocalApi) -> None:
    top = api.create("configmaps", config_map("top"))
    child = owned("child", top, blockOwnerDeletion=True)
    child["metadata"]["finalizers"] = ["x/y"]
    api.create("configmaps", child)
    api.delete("configmaps", "top", "default", propagation="Foreground")
    waiting = api.get("configmaps", "top", "default")
    assert waiting["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert api.get("configmaps", "child", "default")["metadata"]["deletionTimestamp"]
    api.patch("configmaps", "child", {"metadata": {"finalizers": None}}, "default")
    assert names(api) == []


def test_in_the_foreground_dependents_that_do_not_block_do_not_hold(api: LocalApi) -> None:
    top = api.create("configmaps", config_map("top"))
    child = owned("child", top)
    child["metadata"]["finalizers"] = ["x/y"]
    api.create("configmaps", child)
    api.delete("configmaps", "top", "default", propagation="Foreground")
    assert names(api) == ["child"]


def test_pods_of_a_deleted_owner_get_their_grace(api: LocalApi) -> None:
    web = api.create("deployments.apps", deployment("web"))
    api.create("pods", pod("a", ownerReferences=[owner_reference(web)]))
    api.bind("a", "default", "n1")
    api.delete("deployments.apps", "web", "default")
    assert api.get("pods", "a", "default")["metadata"]["deletionGracePeriodSeconds"] == 30


def test_an_owner_that_never_was_is_given_a_moment() -> None:
    server = local_server()
    api = server.build_local_client()
    ghost = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "nobody"}}
    api.create("configmaps", owned("child", ghost))
    server.run_housekeeping()
    assert names(api) == ["child"]
    hand_clock(server).advance(5)
    server.run_housekeeping()
    assert names(api) == []


def test_an_owner_in_another_namespace_counts_as_gone_and_a_cluster_wide_one_does_not() -> None:
    server = local_server()
    api = server.build_local_client()
    far = api.create("configmaps", config_map("far", namespace="kube-system"))
    wide = api.create("nodes", node("n"))
    api.create("configmaps", owned("lost", far))
    api.create("configmaps", owned("kept", wide))
    api.delete("configmaps", "far", "kube-system")
    hand_clock(server).advance(5)
    server.run_housekeeping()
    assert names(api) == ["kept"]


def test_a_namespace_takes_its_content_along_and_waits_for_what_lingers(api: LocalApi) -> None:
    api.create("namespaces", {"metadata": {"name": "old"}})
    api.create("configmaps", config_map("a", namespace="old"))
    api.create("pods", pod("p", namespace="old"))
    api.bind("p", "old", "n1")
    api.delete("namespaces", "old")
    assert api.get("namespaces", "old")["status"]["phase"] == "Terminating"
    assert api.list("configmaps", "old") == []
    with pytest.raises(ApiError) as error:
        api.create("configmaps", config_map("b", namespace="old"))
    assert (error.value.code, error.value.causes[0]["reason"]) == (403, "NamespaceTerminating")
    api.delete("pods", "p", "old", grace_seconds=0)
    with pytest.raises(ApiError) as error:
        api.get("namespaces", "old")
    assert error.value.code == 404


def test_a_namespace_is_labelled_active_and_held(api: LocalApi) -> None:
    made = api.create("namespaces", {"metadata": {"name": "new"}})
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": "new"}
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    seeded = [each["metadata"]["name"] for each in api.list("namespaces")]
    assert seeded == ["default", "kube-node-lease", "kube-public", "kube-system", "new"]

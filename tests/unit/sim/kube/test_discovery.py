"""Discovery: the same facts in the old form and in the new one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from dovetail.sim.aws.eks import EksCluster
from dovetail.sim.kube.builtin.kinds import build_registry
from dovetail.sim.kube.http import documents
from dovetail.sim.kube.http.documents import VERSION
from dovetail.sim.kube.schema import crd
from dovetail.sim.kube.types import TypeRegistry


def widgets(*versions: str) -> dict[str, Any]:
    return {
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Cluster",
            "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"], "categories": ["things"]},
            "versions": [
                {
                    "name": name,
                    "served": True,
                    "storage": name == versions[0],
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"},
                    },
                }
                for name in versions
            ],
        },
    }


def registry(*versions: str) -> TypeRegistry:
    found = build_registry()
    found.add(crd.compile_definition(widgets(*(versions or ("v1",)))))
    return found


VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


def test_the_core_group_is_found_by_its_versions() -> None:
    assert documents.build_api_versions("h:1") == {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": "h:1"}],
    }


def test_a_group_prefers_its_most_stable_version() -> None:
    group = documents.build_group(registry("v1beta1", "v2", "v1", "v1alpha1", "v10"), "example.com")
    assert group is not None
    assert (group["kind"], group["apiVersion"], group["name"]) == ("APIGroup", "v1", "example.com")
    assert [v["version"] for v in group["versions"]] == ["v10", "v2", "v1", "v1beta1", "v1alpha1"]
    assert group["preferredVersion"] == {"groupVersion": "example.com/v10", "version": "v10"}
    assert documents.build_group(registry(), "nowhere.example.com") is None


def test_every_named_group_is_listed_once_and_the_core_group_is_not() -> None:
    listed = documents.build_group_list(registry())
    names = [group["name"] for group in listed["groups"]]
    assert {"apps", "batch", "policy", "storage.k8s.io", "example.com"} <= set(names)
    assert "" not in names
    assert len(names) == len(set(names))


def test_resources_and_subresources_of_a_custom_kind() -> None:
    listed = documents.build_resource_list(registry(), "example.com", "v1")
    assert listed is not None
    resources = listed["resources"]
    hashed = resources[0].pop("storageVersionHash")
    assert len(hashed) == 12
    assert listed == {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": "example.com/v1",
        "resources": [
            {
                "name": "widgets",
                "singularName": "widget",
                "namespaced": False,
                "kind": "Widget",
                "verbs": VERBS,
                "shortNames": ["wd"],
                "categories": ["things"],
            },
            {
                "name": "widgets/status",
                "singularName": "",
                "namespaced": False,
                "kind": "Widget",
                "verbs": ["get", "patch", "update"],
            },
            {
                "name": "widgets/scale",
                "singularName": "",
                "namespaced": False,
                "group": "autoscaling",
                "version": "v1",
                "kind": "Scale",
                "verbs": ["get", "patch", "update"],
            },
        ],
    }


def test_kubectl_drain_finds_eviction_among_the_core_resources() -> None:
    listed = documents.build_resource_list(registry(), "", "v1")
    assert listed is not None
    eviction = next(r for r in listed["resources"] if r["name"] == "pods/eviction")
    assert (eviction["group"], eviction["version"], eviction["kind"]) == ("policy", "v1", "Eviction")
    assert documents.build_resource_list(registry(), "apps", "v9") is None


def test_the_aggregated_form_says_it_all_at_once() -> None:
    listed = documents.build_aggregated_discovery(registry("v1", "v2"), core=False)
    assert (listed["kind"], listed["apiVersion"]) == ("APIGroupDiscoveryList", "apidiscovery.k8s.io/v2")
    group = next(item for item in listed["items"] if item["metadata"] == {"name": "example.com"})
    assert [version["version"] for version in group["versions"]] == ["v2", "v1"]
    assert group["versions"][1]["freshness"] == "Current"
    assert group["versions"][1]["resources"] == [
        {
            "resource": "widgets",
            "responseKind": {"group": "example.com", "version": "v1", "kind": "Widget"},
            "scope": "Cluster",
            "singularResource": "widget",
            "verbs": VERBS,
            "shortNames": ["wd"],
            "categories": ["things"],
            "subresources": [
                {
                    "subresource": "status",
                    "responseKind": {"group": "example.com", "version": "v1", "kind": "Widget"},
                    "verbs": ["get", "patch", "update"],
                },
                {
                    "subresource": "scale",
                    "responseKind": {"group": "autoscaling", "version": "v1", "kind": "Scale"},
                    "verbs": ["get", "patch", "update"],
                },
            ],
        }
    ]


def test_the_core_group_has_no_name_in_the_aggregated_form() -> None:
    (item,) = documents.build_aggregated_discovery(registry(), core=True)["items"]
    assert item["metadata"] == {}
    resources = {r["resource"] for r in item["versions"][0]["resources"]}
    assert {"pods", "nodes", "namespaces", "configmaps"} <= resources


def test_both_forms_agree_on_every_resource() -> None:
    served = registry()
    for core in (True, False):
        for item in documents.build_aggregated_discovery(served, core=core)["items"]:
            name = item["metadata"].get("name", "")
            for version in item["versions"]:
                legacy = documents.build_resource_list(served, name, version["version"])
                assert legacy is not None
                plain = [r["name"] for r in legacy["resources"] if "/" not in r["name"]]
                assert plain == [r["resource"] for r in version["resources"]]


def test_the_tag_changes_with_the_content_and_only_with_it() -> None:
    one = documents.compute_etag(documents.build_aggregated_discovery(registry(), core=False))
    assert one == documents.compute_etag(documents.build_aggregated_discovery(registry(), core=False))
    assert one != documents.compute_etag(
        documents.build_aggregated_discovery(registry("v1", "v2"), core=False)
    )
    assert one.startswith('"')
    assert one.endswith('"')


def test_the_server_is_as_old_as_the_cluster_that_eks_says_it_is() -> None:
    said = f"{VERSION['major']}.{VERSION['minor']}"
    cluster = EksCluster(
        "a", "arn:aws:eks:us-west-2:123456789012:cluster/a", datetime(2030, 1, 1, tzinfo=UTC)
    )
    assert said == cluster.version
    assert VERSION["gitVersion"].startswith(f"v{said}.")

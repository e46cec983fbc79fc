"""v1beta1 to v1, row by row; and v1 to v1, which is nothing at all."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.legacy import NoteSeverity
from support.conversion import (
    ANYTHING,
    beta_class,
    beta_pool,
    converted,
    node_class,
    notes_at,
    only,
    pool,
    provisioner,
)

pytestmark = pytest.mark.spec("api-9")

EC2 = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def claim(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "karpenter.sh/v1beta1",
        "kind": "NodeClaim",
        "metadata": {"name": "default-x", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {"nodeClassRef": {"name": "default"}, "requirements": ANYTHING} | spec,
        "status": {"conditions": [{"type": "MachineLaunched", "status": "True"}]},
    }


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"name": "default"}, EC2),
        ({"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "default"}, EC2),
        (
            {"apiVersion": "example.com/v1", "kind": "Other", "name": "o"},
            {"group": "example.com", "kind": "Other", "name": "o"},
        ),
    ],
)
def test_the_class_reference_has_a_group_instead_of_a_version(
    given: dict[str, str], made: dict[str, str]
) -> None:
    assert pool(beta_pool(node_class=given))["template"]["spec"]["nodeClassRef"] == made


def test_expiry_moves_to_the_template() -> None:
    made = pool(beta_pool(disruption={"expireAfter": "24h"}))
    assert made["template"]["spec"]["expireAfter"] == "24h"
    assert "expireAfter" not in made["disruption"]
    assert pool(beta_pool(disruption={"expireAfter": "Never"}))["template"]["spec"]["expireAfter"] == "Never"


@pytest.mark.parametrize(
    ("given", "policy", "after"),
    [
        ({"consolidationPolicy": "WhenUnderutilized"}, "WhenEmptyOrUnderutilized", "0s"),
        (
            {"consolidationPolicy": "WhenUnderutilized", "consolidateAfter": "Never"},
            "WhenEmptyOrUnderutilized",
            "Never",
        ),
        ({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "30s"}, "WhenEmpty", "30s"),
        ({"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}, "WhenEmpty", "Never"),
        ({"consolidationPolicy": "WhenEmpty"}, "WhenEmpty", "0s"),
        ({}, "WhenEmptyOrUnderutilized", "0s"),
    ],
)
def test_policies_get_their_new_names(given: dict[str, str], policy: str, after: str) -> None:
    found = pool(beta_pool(disruption=given))["disruption"]
    assert found == {"consolidationPolicy": policy, "consolidateAfter": after}


def test_the_defaults_of_beta_are_written_out() -> None:
    made = pool(beta_pool())
    assert made["disruption"] == {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    assert made["template"]["spec"]["expireAfter"] == "720h"


def test_budgets_limits_and_weight_are_unchanged() -> None:
    budgets = [{"nodes": "10%"}, {"nodes": "0", "schedule": "@daily", "duration": "8h"}]
    made = pool(beta_pool(disruption={"budgets": budgets}, limits={"cpu": 10}, weight=5))
    assert made["disruption"]["budgets"] == budgets
    assert (made["limits"], made["weight"]) == ({"cpu": 10}, 5)


def test_the_rest_of_the_template_is_kept() -> None:
    taint = {"key": "a", "effect": "NoExecute"}
    old = beta_pool(
        template_taints=[taint], template_startupTaints=[taint], template_terminationGracePeriod="1h"
    )
    old["spec"]["template"]["metadata"] = {"labels": {"team": "a"}, "annotations": {"x": "y"}}
    template = pool(old)["template"]
    assert template["metadata"] == {"labels": {"team": "a"}, "annotations": {"x": "y"}}
    assert template["spec"] | {"nodeClassRef": None} == {
        "nodeClassRef": None, "requirements": ANYTHING, "taints": [taint], "startupTaints": [taint],
        "terminationGracePeriod": "1h", "expireAfter": "720h",
    }  # fmt: skip


def test_min_values_survive() -> None:
    wanted = [{"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": 5}]
    assert pool(beta_pool(template_requirements=wanted))["template"]["spec"]["requirements"] == wanted


def test_resources_are_no_part_of_a_v1_pool() -> None:
    conversion = converted(beta_pool(template_resources={"requests": {"cpu": "1"}}))
    assert "resources" not in only(conversion, "NodePool")["spec"]["template"]["spec"]
    assert notes_at(conversion, "spec.template.spec.resources", NoteSeverity.WARNING)


def test_compatibility_annotations_are_dropped() -> None:
    old = beta_pool()
    old["metadata"]["annotations"] = {"compatibility.karpenter.sh/v1beta1-nodeclass-reference": "{}"}
    assert "annotations" not in only(converted(old), "NodePool")["metadata"]


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022"])
def test_a_family_without_terms_becomes_an_alias(family: str) -> None:
    made = node_class(beta_class(amiFamily=family))
    assert made["amiSelectorTerms"] == [{"alias": f"{family.lower()}@latest"}]
    assert "amiFamily" not in made


def test_a_family_with_terms_stays() -> None:
    terms = [{"id": "ami-1"}, {"name": "x", "owner": "self"}]
    made = node_class(beta_class(amiFamily="AL2023", amiSelectorTerms=terms))
    assert (made["amiFamily"], made["amiSelectorTerms"]) == ("AL2023", terms)


def test_ubuntu_is_marked() -> None:
    made = only(converted(beta_class(amiFamily="Ubuntu", amiSelectorTerms=[{"id": "ami-1"}])), "EC2NodeClass")
    assert made["spec"]["amiFamily"] == "AL2"
    assert "compatibility.karpenter.k8s.aws/v1beta1-ubuntu" in made["metadata"]["annotations"]
    assert made["spec"]["blockDeviceMappings"][0]["deviceName"] == "/dev/sda1"


@pytest.mark.parametrize("family", ["Ubuntu", "Custom", ""])
def test_a_family_that_needs_terms_is_refused_without_them(family: str) -> None:
    conversion = converted(beta_class(amiFamily=family))
    assert conversion.manifests == ()
    assert notes_at(conversion, "spec.amiFamily", NoteSeverity.ERROR)


def test_exactly_one_identity_is_kept() -> None:
    assert node_class(beta_class())["role"] == "nodes"
    assert node_class(beta_class(role=None, instanceProfile="p"))["instanceProfile"] == "p"
    assert node_class(beta_class(role=None), role="given")["role"] == "given"
    assert converted(beta_class(instanceProfile="p")).manifests == ()
    assert converted(beta_class(role=None)).manifests == ()


def test_the_hop_limit_stays_two() -> None:
    assert node_class(beta_class())["metadataOptions"]["httpPutResponseHopLimit"] == 2
    made = node_class(beta_class(metadataOptions={"httpTokens": "optional"}))["metadataOptions"]
    assert (made["httpPutResponseHopLimit"], made["httpTokens"]) == (2, "optional")


def test_public_addresses_are_left_as_configured_and_the_change_is_said() -> None:
    conversion = converted(beta_class())
    assert "associatePublicIPAddress" not in only(conversion, "EC2NodeClass")["spec"]
    assert notes_at(conversion, "spec.associatePublicIPAddress", NoteSeverity.INFO)
    assert node_class(beta_class(associatePublicIPAddress=False))["associatePublicIPAddress"] is False


def test_the_rest_of_the_class_is_kept() -> None:
    rest = {
        "userData": "x", "context": "c", "detailedMonitoring": False, "instanceStorePolicy": "RAID0",
        "tags": {"a": "b"},
        "blockDeviceMappings": [{"deviceName": "/dev/xvda", "rootVolume": True, "ebs": {"volumeSize": "9G"}}],
    }  # fmt: skip
    assert rest.items() <= node_class(beta_class(**rest)).items()


def test_a_claim_takes_its_lifetime_from_its_pool_and_loses_its_status() -> None:
    conversion = converted(beta_pool(disruption={"expireAfter": "24h"}), claim(), beta_class())
    made = only(conversion, "NodeClaim")
    assert made["spec"] == {"nodeClassRef": EC2, "requirements": ANYTHING, "expireAfter": "24h"}
    assert "status" not in made
    assert any("launches a new node" in note.message for note in conversion.notes if note.kind == "NodeClaim")


def test_a_claim_may_name_its_pool_and_ask_for_resources() -> None:
    wanted = [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"]}]
    made = only(converted(claim(requirements=wanted, resources={"requests": {"cpu": "1"}})), "NodeClaim")
    assert made["spec"]["requirements"] == wanted
    assert made["spec"]["resources"] == {"requests": {"cpu": "1"}}


def test_a_claim_without_its_pool_expires_after_the_default() -> None:
    assert only(converted(claim()), "NodeClaim")["spec"]["expireAfter"] == "720h"
    alone = claim()
    del alone["metadata"]["labels"]
    assert only(converted(alone), "NodeClaim")["spec"]["expireAfter"] == "Never"


def test_v1_and_unrelated_objects_pass_through_in_silence() -> None:
    v1 = converted(provisioner()).manifests
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": {"a": "b"}}
    conversion = converted(*v1, config, rewrite_workloads=True)
    assert conversion.manifests == (*v1, config)
    assert conversion.notes == ()


def test_kubelet_settings_parked_on_a_v1_pool_are_pointed_out() -> None:
    v1 = only(converted(beta_pool()), "NodePool")
    bridge = "compatibility.karpenter.sh/v1beta1-kubelet-conversion"
    v1["metadata"]["annotations"] = {bridge: '{"maxPods": 5}'}
    conversion = converted(v1)
    assert conversion.manifests == (v1,)
    assert notes_at(conversion, f"metadata.annotations[{bridge}]", NoteSeverity.WARNING)


def test_all_generations_convert_together_in_their_order() -> None:
    v1 = only(converted(beta_pool("new")), "NodePool")
    conversion = converted(beta_pool("mid"), v1, provisioner("old"), beta_class())
    assert [(m["kind"], m["metadata"]["name"]) for m in conversion.manifests] == [
        ("NodePool", "mid"),
        ("NodePool", "new"),
        ("NodePool", "old"),
        ("EC2NodeClass", "old"),
        ("EC2NodeClass", "default"),
    ]

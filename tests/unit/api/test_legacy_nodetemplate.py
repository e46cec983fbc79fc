"""AWSNodeTemplate and inline provider blocks to EC2NodeClass, row by row."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.legacy import NoteSeverity
from support.conversion import PROVIDER, converted, node_class, notes_at, only, provisioner, template

pytestmark = pytest.mark.spec("api-9")

ALPHA_METADATA = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 2,
    "httpTokens": "required",
}
GLOBAL = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "karpenter-global-settings", "namespace": "karpenter"},
}


def without(*fields: str, **spec: Any) -> dict[str, Any]:
    made = template(**spec)
    for field in fields:
        del made["spec"][field]
    return made


def global_settings(**data: str) -> dict[str, Any]:
    return GLOBAL | {"data": {f"aws.{key}": value for key, value in data.items()}}


def refused(*manifests: dict[str, Any], at: str, **options: Any) -> None:
    conversion = converted(*manifests, **options)
    assert conversion.manifests == ()
    assert notes_at(conversion, at, NoteSeverity.ERROR)
    assert not conversion.complete


def test_the_instance_profile_is_kept_unless_a_role_is_given() -> None:
    kept = node_class(template())
    assert (kept["instanceProfile"], "role" in kept) == ("profile", False)
    replaced = node_class(template(), role="nodes")
    assert (replaced["role"], "instanceProfile" in replaced) == ("nodes", False)


def test_a_missing_profile_is_the_global_default() -> None:
    assert node_class(without("instanceProfile"), default_instance_profile="d")["instanceProfile"] == "d"
    made = node_class(without("instanceProfile"), global_settings(defaultInstanceProfile="g"))
    assert made["instanceProfile"] == "g"


def test_a_missing_profile_without_a_default_must_be_asked_for() -> None:
    refused(without("instanceProfile"), at="spec.instanceProfile")


@pytest.mark.parametrize("field", ["subnetSelector", "securityGroupSelector"])
def test_a_missing_selector_is_the_tag_of_the_cluster(field: str) -> None:
    made = node_class(without(field), cluster_name="C")
    assert made[f"{field}Terms"] == [{"tags": {"kubernetes.io/cluster/C": "*"}}]
    refused(without(field), at=f"spec.{field}")


def test_the_cluster_name_is_also_found_in_the_global_settings() -> None:
    made = node_class(without("subnetSelector"), global_settings(clusterName="G"))
    assert made["subnetSelectorTerms"] == [{"tags": {"kubernetes.io/cluster/G": "*"}}]


def test_no_family_means_al2() -> None:
    made = node_class(template())
    assert made["amiSelectorTerms"] == [{"alias": "al2@latest"}]
    assert "amiFamily" not in made


@pytest.mark.parametrize("family", ["AL2", "Bottlerocket", "Windows2019", "Windows2022"])
def test_a_family_without_images_of_its_own_becomes_an_alias(family: str) -> None:
    made = node_class(template(amiFamily=family))
    assert made["amiSelectorTerms"] == [{"alias": f"{family.lower()}@latest"}]
    assert "amiFamily" not in made


@pytest.mark.parametrize(
    ("version", "warned"), [("", True), ("1.33", True), ("v1.34.1-eks", True), ("1.32", False)]
)
def test_al2_has_no_images_from_1_33_on(version: str, warned: bool) -> None:
    conversion = converted(template(), kubernetes_version=version)
    found = notes_at(conversion, "spec.amiFamily", NoteSeverity.WARNING)
    assert any("al2023@latest" in note.message for note in found) is warned


def test_a_family_with_images_keeps_both_and_warns_about_tags_on_images() -> None:
    conversion = converted(template(amiFamily="Bottlerocket", amiSelector={"aws::ids": "ami-1"}))
    made = only(conversion, "EC2NodeClass")["spec"]
    assert (made["amiFamily"], made["amiSelectorTerms"]) == ("Bottlerocket", [{"id": "ami-1"}])
    assert any("tags on the images" in note.message for note in notes_at(conversion, "spec.amiSelector"))


def test_ubuntu_lives_on_as_al2_with_its_root_volume() -> None:
    made = node_class(template(amiFamily="Ubuntu", amiSelector={"a": "b"}))
    assert (made["amiFamily"], made["amiSelectorTerms"]) == ("AL2", [{"tags": {"a": "b"}}])
    assert made["blockDeviceMappings"] == [
        {
            "deviceName": "/dev/sda1",
            "rootVolume": True,
            "ebs": {"volumeSize": "20Gi", "volumeType": "gp3", "encrypted": True},
        }
    ]


def test_ubuntu_keeps_block_devices_of_its_own() -> None:
    mapping = {"deviceName": "/dev/sda1", "ebs": {"volumeSize": "50Gi"}}
    made = node_class(template(amiFamily="Ubuntu", amiSelector={"a": "b"}, blockDeviceMappings=[mapping]))
    assert made["blockDeviceMappings"] == [mapping]


@pytest.mark.parametrize("family", ["Ubuntu", "Custom", "Plan9"])
def test_families_that_need_images_are_refused_without_them(family: str) -> None:
    refused(template(amiFamily=family), at="spec.amiFamily")


def test_custom_comes_with_a_reminder_about_the_unregistered_taint() -> None:
    conversion = converted(template(amiFamily="Custom", amiSelector={"aws::ids": "ami-1"}))
    assert only(conversion, "EC2NodeClass")["spec"]["amiFamily"] == "Custom"
    assert any("karpenter.sh/unregistered" in note.message for note in notes_at(conversion, "spec.amiFamily"))


def test_user_data_context_and_monitoring_are_copied() -> None:
    made = node_class(template(userData="#!/bin/sh\n", context="c", detailedMonitoring=True))
    assert (made["userData"], made["context"], made["detailedMonitoring"]) == ("#!/bin/sh\n", "c", True)


def test_tags_are_copied_without_the_reserved_ones() -> None:
    reserved = [
        "kubernetes.io/cluster/C",
        "karpenter.sh/provisioner-name",
        "karpenter.sh/managed-by",
        "karpenter.k8s.aws/cluster",
        "eks:eks-cluster-name",
        "karpenter.sh/nodepool",
        "karpenter.sh/nodeclaim",
        "karpenter.k8s.aws/ec2nodeclass",
    ]
    conversion = converted(template(tags={"team": "a"} | dict.fromkeys(reserved, "x")))
    assert only(conversion, "EC2NodeClass")["spec"]["tags"] == {"team": "a"}
    for key in reserved:
        assert notes_at(conversion, f"spec.tags[{key}]", NoteSeverity.WARNING)


def test_the_old_name_tag_gives_way_to_the_node_name() -> None:
    assert "tags" not in node_class(template(tags={"Name": "karpenter.sh/provisioner-name/default"}))
    assert node_class(template(tags={"Name": "mine"}))["tags"] == {"Name": "mine"}


def test_absent_metadata_options_keep_the_old_default() -> None:
    assert node_class(template())["metadataOptions"] == ALPHA_METADATA


def test_partial_metadata_options_are_filled_with_the_old_member_defaults() -> None:
    assert node_class(template(metadataOptions={}))["metadataOptions"] == ALPHA_METADATA | {
        "httpPutResponseHopLimit": 1,
        "httpTokens": "optional",
    }
    made = node_class(template(metadataOptions={"httpPutResponseHopLimit": 3}))["metadataOptions"]
    assert (made["httpPutResponseHopLimit"], made["httpTokens"]) == (3, "optional")


@pytest.mark.parametrize(
    ("given", "size"),
    [
        ("100Gi", "100Gi"),
        ("100G", "100G"),
        ("2Ti", "2Ti"),
        ("64T", "64T"),
        ("18Ti", "18432Gi"),  # a gap in what v1 admits
        ("512Mi", "1Gi"),
        ("20480Mi", "20Gi"),
        ("20000M", "19Gi"),
        ("1500000k", "2Gi"),
        (21474836480, "20Gi"),
        ("21474836481", "21Gi"),
        ("1.5Gi", "2Gi"),
        ("63900000M", "64T"),
    ],
)
def test_volume_sizes_are_spelled_as_v1_takes_them(given: object, size: str) -> None:
    mapping = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": given, "volumeType": "gp3"}}
    made = node_class(template(blockDeviceMappings=[mapping]))
    assert made["blockDeviceMappings"][0]["ebs"]["volumeSize"] == size


@pytest.mark.parametrize("size", ["65T", "0", "-1Gi", "big", "Ti", ["1Gi"]])
def test_sizes_no_volume_can_have_are_refused(size: object) -> None:
    mapping = {"deviceName": "/dev/xvda", "ebs": {"volumeSize": size}}
    refused(template(blockDeviceMappings=[mapping]), at="spec.blockDeviceMappings[0].ebs.volumeSize")


def test_a_volume_needs_a_size_or_a_snapshot_and_a_known_type() -> None:
    def device(**ebs: str) -> dict[str, Any]:
        return template(blockDeviceMappings=[{"deviceName": "/dev/xvda", "ebs": ebs}])

    assert node_class(device(snapshotID="snap-1"))["blockDeviceMappings"][0]["ebs"] == {
        "snapshotID": "snap-1"
    }
    refused(device(volumeType="gp3"), at="spec.blockDeviceMappings[0].ebs")
    refused(device(volumeSize="1Gi", volumeType="floppy"), at="spec.blockDeviceMappings[0].ebs.volumeType")


def test_a_launch_template_is_refused_together_with_its_users() -> None:
    conversion = converted(
        template("t", launchTemplate="lt"), provisioner(providerRef={"name": "t"}), template("u")
    )
    assert [m["metadata"]["name"] for m in conversion.manifests] == ["u"]
    assert notes_at(conversion, "spec.launchTemplate", NoteSeverity.ERROR)
    refused(provisioner(provider={"launchTemplate": "lt"}), at="spec.provider.launchTemplate")


def test_status_and_embedded_types_are_dropped() -> None:
    old = template() | {"status": {"subnets": []}}
    assert "status" not in only(converted(old), "EC2NodeClass")
    embedded = PROVIDER | {"apiVersion": "extensions.karpenter.sh/v1alpha1", "kind": "AWS"}
    made = node_class(provisioner(provider=embedded))
    assert not {"apiVersion", "kind"} & made.keys()


def test_an_inline_provider_becomes_a_class_named_after_the_provisioner() -> None:
    conversion = converted(provisioner("web"))
    assert [(m["kind"], m["metadata"]["name"]) for m in conversion.manifests] == [
        ("NodePool", "web"),
        ("EC2NodeClass", "web"),
    ]


def test_an_inline_provider_is_read_strictly_and_a_template_is_not() -> None:
    refused(provisioner(provider=PROVIDER | {"userData": "x"}), at="spec.provider.userData")
    refused(provisioner(provider=PROVIDER | {"typo": "x"}), at="spec.provider.typo")
    conversion = converted(template(typo="x"))
    assert "typo" not in only(conversion, "EC2NodeClass")["spec"]
    assert notes_at(conversion, "spec.typo", NoteSeverity.WARNING)


def test_the_template_hash_annotation_is_renamed() -> None:
    old = template()
    old["metadata"]["annotations"] = {"karpenter.k8s.aws/nodetemplate-hash": "1"}
    made = only(converted(old), "EC2NodeClass")
    assert made["metadata"]["annotations"] == {"karpenter.k8s.aws/ec2nodeclass-hash": "1"}


def test_global_tags_are_merged_into_every_class_below_its_own() -> None:
    conversion = converted(
        template("a", tags={"team": "own"}), template("b"), global_settings(tags='{"team": "all", "x": "y"}')
    )
    tags = [m["spec"]["tags"] for m in conversion.manifests]
    assert tags == [{"team": "own", "x": "y"}, {"team": "all", "x": "y"}]
    assert node_class(template(), tags={"o": "p"})["tags"] == {"o": "p"}


def test_global_tags_that_cannot_be_read_are_an_error() -> None:
    conversion = converted(template(), global_settings(tags="team=all"))
    assert notes_at(conversion, "data[aws.tags]", NoteSeverity.ERROR)


def test_without_the_eni_limit_every_class_takes_110_pods() -> None:
    assert node_class(template(), global_settings(enableENILimitedPodDensity="false"))["kubelet"] == {
        "maxPods": 110
    }
    assert node_class(template(), eni_limited_pod_density=False)["kubelet"] == {"maxPods": 110}
    made = node_class(provisioner(kubeletConfiguration={"maxPods": 20}), eni_limited_pod_density=False)
    assert made["kubelet"] == {"maxPods": 20}
    assert "kubelet" not in node_class(template(), global_settings(enableENILimitedPodDensity="true"))


@pytest.mark.parametrize("key", ["enablePodENI", "nodeNameConvention"])
def test_settings_without_a_counterpart_are_named(key: str) -> None:
    conversion = converted(global_settings(**{key: "x"}))
    assert notes_at(conversion, f"data[aws.{key}]", NoteSeverity.WARNING)
    assert conversion.manifests == ()


def test_other_config_maps_are_none_of_our_business() -> None:
    other = GLOBAL | {"metadata": {"name": "other"}, "data": {"aws.tags": "{}"}}
    conversion = converted(other)
    assert conversion.manifests == (other,)
    assert conversion.notes == ()

"""User data of every family, to the byte as Karpenter's own provider writes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.api import codec, labels
from dovetail.api.core import Taint
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import (
    AMISelectorTerm,
    EC2NodeClass,
    EC2NodeClassSpec,
    EC2NodeClassStatus,
    KubeletConfiguration,
)
from dovetail.api.quantity import Quantity
from dovetail.errors import ClassNotReady, CreateFailed
from dovetail.providers.aws import userdata
from dovetail.providers.aws.cluster_discovery import ClusterFacts
from dovetail.providers.aws.template_data import block_devices, metadata_options
from dovetail.providers.aws.template_groups import build_boot, build_groups, node_taints
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements, Values
from support.vectors import cases

NOT_READY = "NodeClassRef not ready"


def boot_for(case: Mapping[str, Any]) -> userdata.Boot:
    terms = [codec.convert(AMISelectorTerm, term) for term in case.get("amiSelectorTerms") or ()]
    return userdata.Boot(
        family=case["amiFamily"],
        cluster=case["clusterName"],
        endpoint=case["clusterEndpoint"],
        ca_bundle=case["caBundle"],
        service_cidr=case["clusterCIDR"] or "",
        kubelet=codec.convert(KubeletConfiguration, case["kubelet"] or {}),
        labels=case["labels"] or {},
        taints=tuple(codec.convert(Taint, taint) for taint in case["taints"] or ()),
        custom=case["customUserData"] or "",
        raid0=case["instanceStorePolicy"] == "RAID0",
        image_version=userdata.find_image_version(terms, ()),
    )


def difference(case: Mapping[str, Any]) -> str:
    """How our answer differs from the recorded one; empty when it does not."""
    try:
        ours = userdata.render_user_data(boot_for(case["in"]))
    except ClassNotReady as error:
        return "" if NOT_READY in case.get("error", "") else f"not ready: {error}"
    except CreateFailed as error:
        return "" if "error" in case and NOT_READY not in case["error"] else f"failed: {error}"
    if "error" in case:
        return f"{case['error']!r} was expected, and this came: {ours!r}"
    return "" if ours in case["texts"] else f"\n{ours}\nis none of\n{case['texts'][0]}"


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket", "Windows2022", "Custom"])
def test_every_node_of_this_family_is_told_what_karpenter_tells_it(family: str) -> None:
    known = [c for c in cases("aws-user-data") if c["kind"] == "bootstrap" and c["in"]["amiFamily"] == family]
    found = [text for case in known if (text := difference(case))]
    assert len(known) == 124
    assert not found, f"{len(found)} differences: {found[0]}"


def instance_type_of(case: Mapping[str, Any]) -> InstanceType:
    return InstanceType(
        name=case["name"],
        requirements=Requirements({labels.ARCH: Values(frozenset((case["arch"],)))}),
        capacity={labels.PODS: Quantity.parse(case["pods"])},
    )


def node_class_of(case: Mapping[str, Any]) -> EC2NodeClass:
    spec = {**case["spec"], "instanceStorePolicy": case["instanceStorePolicy"]}
    return EC2NodeClass(
        spec=codec.convert(EC2NodeClassSpec, spec),
        status=codec.convert(EC2NodeClassStatus, {"amis": case["amis"]}),
    )


def templates_of(case: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What launches of the case's types are made of, in the vectors' words."""
    node_class = node_class_of(case)
    taints = {name: case[name] or [] for name in ("taints", "startupTaints")}
    claim = codec.convert(NodeClaim, {"spec": {"requirements": [], **taints}})
    dns = case["kubeDNSIP"]
    facts = ClusterFacts(
        name=case["clusterName"],
        endpoint=case["clusterEndpoint"],
        ca_bundle=case["caBundle"],
        dns_ip=dns,
        service_cidr=case["clusterCIDR"],
        ip_family="ipv6" if ":" in dns else "ipv4",
    )
    types = [instance_type_of(each) for each in case["instanceTypes"]]
    return [
        {
            "ami": group.image.id,
            "instanceTypes": sorted(each.name for each in group.types),
            "userData": userdata.render_user_data(
                build_boot(node_class, group, facts, case["labels"] or {}, node_taints(claim))
            ),
            "blockDeviceMappings": [codec.to_dict(each) for each in block_devices(node_class.spec)] or None,
            "metadataOptions": codec.to_dict(
                metadata_options(node_class.spec, case["region"], facts.ip_family)
            ),
            "detailedMonitoring": bool(node_class.spec.detailed_monitoring),
        }
        for group in build_groups(node_class, claim, types, "on-demand")
    ]


def in_order(templates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(templates, key=lambda each: (each["ami"], each["instanceTypes"]))


def test_every_launch_is_resolved_into_the_templates_karpenter_makes() -> None:
    known = [case for case in cases("aws-user-data") if case["kind"] == "launchTemplates"]
    assert len(known) == 160
    for case in known:
        if "error" in case:
            with pytest.raises(CreateFailed):
                templates_of(case["in"])
            continue
        ours, theirs = in_order(templates_of(case["in"])), in_order(case["templates"])
        for each in theirs:
            each["instanceTypes"].sort()
        assert ours == in_order(theirs)

"""Why an instance no longer is what its class asks for."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.hashes import NODECLASS_HASH_VERSION, hash_nodeclass
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import (
    AMISelectorTerm,
    BlockDevice,
    BlockDeviceMapping,
    CapacityReservationSelectorTerm,
    KubeletConfiguration,
    MetadataOptions,
    PlacementGroupSelector,
    SecurityGroup,
)
from dovetail.errors import Gone, Retry
from dovetail.providers.aws.instances import instance_id
from support.ec2 import Ec2, provided
from support.stage import virtual

M5 = (labels.INSTANCE_TYPE, "In", "m5.large")
A = "us-west-2a"


def stamped(ec2: Ec2) -> None:
    """As the hash controller leaves the class."""
    made = ec2.node_class
    stamps = {
        labels.EC2_NODECLASS_HASH: hash_nodeclass(made, ec2.provider.discovery.facts.ca_bundle),
        labels.EC2_NODECLASS_HASH_VERSION: NODECLASS_HASH_VERSION,
    }
    ec2.classes.put(replace(made, metadata=replace(made.metadata, annotations=stamps)))


async def running(*requirements: tuple[str, ...], **more: Any) -> tuple[Ec2, NodeClaim]:
    ec2 = await provided(**more)
    stamped(ec2)
    claim, _ = await ec2.launched(M5, (labels.CAPACITY_TYPE, "In", "on-demand"), *requirements)
    await asyncio.sleep(60)
    return ec2, claim


def without(claim: NodeClaim, label: str = "", **status: str) -> NodeClaim:
    known = {key: value for key, value in claim.labels.items() if key != label}
    return replace(
        claim,
        metadata=replace(claim.metadata, labels=known),
        status=replace(claim.status, **status),
    )


@pytest.mark.spec("aws-213")
@virtual
async def test_what_is_as_asked_for_has_not_drifted_nor_has_what_nobody_asks_for() -> None:
    ec2, claim = await running()
    assert await ec2.cloud.find_drift_reason(claim) == ""
    ec2.classes.drop("default")
    assert await ec2.cloud.find_drift_reason(claim) == ""
    assert ec2.noted.reasons == ["FailedResolvingNodeClass"]
    ec2.pools.drop("default")
    assert await ec2.cloud.find_drift_reason(claim) == ""
    assert await ec2.cloud.find_drift_reason(without(claim, labels.NODEPOOL)) == ""


@pytest.mark.spec("aws-214")
@virtual
async def test_another_image_than_the_class_would_choose_now_is_drift() -> None:
    ec2, claim = await running()
    assert await ec2.cloud.find_drift_reason(without(claim, image_id="ami-other")) == "AMIDrift"
    images = ec2.node_class.status.amis
    arm = [each for each in images if each.id != claim.status.image_id]
    ec2.change(amis=tuple(arm))
    assert await ec2.cloud.find_drift_reason(claim) == "AMIDrift", "no image suits the type any more"
    ec2.change(amis=())
    with pytest.raises(Retry, match="no images"):
        await ec2.cloud.find_drift_reason(claim)


@pytest.mark.spec("aws-215")
@virtual
async def test_a_rewritten_class_comes_before_another_image() -> None:
    ec2, claim = await running()
    await ec2.apply(
        user_data="echo hello", ami_selector_terms=(AMISelectorTerm(alias="bottlerocket@latest"),)
    )
    stamped(ec2)
    assert await ec2.cloud.find_drift_reason(without(claim, image_id="ami-other")) == "NodeClassDrift"


@pytest.mark.spec("aws-216")
@virtual
async def test_subnets_and_security_groups_must_be_those_of_the_class() -> None:
    ec2, claim = await running()
    status = ec2.node_class.status
    instance = await ec2.provider.instances.get(instance_id(claim.status.provider_id))
    ec2.change(subnets=tuple(each for each in status.subnets if each.id != instance.subnet))
    assert await ec2.cloud.find_drift_reason(claim) == "SubnetDrift"
    more = (*status.security_groups, SecurityGroup(id="sg-more"))
    ec2.change(security_groups=more)
    assert await ec2.cloud.find_drift_reason(claim) == "SecurityGroupDrift", "groups come before subnets"
    ec2.change(subnets=status.subnets, security_groups=(SecurityGroup(id="sg-other"),))
    assert await ec2.cloud.find_drift_reason(claim) == "SecurityGroupDrift"
    ec2.change(security_groups=())
    with pytest.raises(Retry, match="no security groups"):
        await ec2.cloud.find_drift_reason(claim)


@pytest.mark.spec("aws-217")
@virtual
async def test_what_cannot_be_compared_is_an_error_and_not_drift() -> None:
    ec2, claim = await running()
    for broken, words in (
        (without(claim, labels.INSTANCE_TYPE), "instance type"),
        (without(claim, image_id=""), "image ID"),
        (without(claim, provider_id=""), "provider ID"),
    ):
        with pytest.raises(Retry, match=words):
            await ec2.cloud.find_drift_reason(broken)
    with pytest.raises(Gone):
        await ec2.cloud.find_drift_reason(without(claim, provider_id=f"aws:///{A}/i-0123456789abcdef0"))
    ec2.aws.refuse("UnauthorizedOperation", "DescribeInstances", None)
    with pytest.raises(Retry, match="UnauthorizedOperation"):
        await ec2.cloud.find_drift_reason(without(claim, provider_id=f"aws:///{A}/i-0123456789abcdef0"))
    ec2.change(subnets=())
    with pytest.raises(Retry, match="no subnets"):
        await ec2.cloud.find_drift_reason(claim)


@pytest.mark.spec("aws-218")
@virtual
async def test_a_reservation_the_class_lost_is_drift_unless_the_instance_left_it_too() -> None:
    ec2 = await provided()
    ec2.aws.reservations.add("m5.large", A, 2, {"team": "x"})
    await ec2.apply(
        capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(tags={"team": "x"}),)
    )
    claim, instance = await ec2.launched(M5)
    assert instance.labels[labels.CAPACITY_TYPE] == "reserved"
    await asyncio.sleep(60)
    assert await ec2.cloud.find_drift_reason(claim) == ""
    ec2.change(capacity_reservations=())
    assert await ec2.cloud.find_drift_reason(claim) == "CapacityReservationDrift"
    ec2.aws.get_instance(instance_id(instance.provider_id)).capacity_reservation = ""
    assert await ec2.cloud.find_drift_reason(claim) == "", (
        "it runs on as on-demand, and EC2 was asked anew to know"
    )


@pytest.mark.spec("aws-219")
@virtual
async def test_another_placement_group_is_drift() -> None:
    ec2, claim = await running()
    for name in ("one", "two"):
        await ec2.aws.call("ec2", "CreatePlacementGroup", {"GroupName": name, "Strategy": "cluster"})
    await ec2.apply(placement_group_selector=PlacementGroupSelector(name="one"))
    assert await ec2.cloud.find_drift_reason(claim) == "PlacementGroupDrift", "one was added"
    grouped, instance = await ec2.launched(M5, (labels.CAPACITY_TYPE, "In", "on-demand"), name="grouped")
    await asyncio.sleep(60)
    assert instance.labels[labels.PLACEMENT_GROUP_ID]
    grouped = unstamped(grouped)
    assert await ec2.cloud.find_drift_reason(grouped) == ""
    await ec2.apply(placement_group_selector=PlacementGroupSelector(name="two"))
    assert await ec2.cloud.find_drift_reason(grouped) == "PlacementGroupDrift", "it was changed"
    await ec2.apply(placement_group_selector=None)
    assert await ec2.cloud.find_drift_reason(grouped) == "PlacementGroupDrift", "it was removed"


def unstamped(claim: NodeClaim) -> NodeClaim:
    return replace(claim, metadata=replace(claim.metadata, annotations={}))


@pytest.mark.spec("aws-220")
@virtual
async def test_stamps_that_are_missing_or_of_another_version_say_nothing() -> None:
    ec2, claim = await running()
    await ec2.apply(user_data="echo hello")
    stamped(ec2)
    assert await ec2.cloud.find_drift_reason(claim) == "NodeClassDrift"
    assert await ec2.cloud.find_drift_reason(unstamped(claim)) == ""
    older = {**claim.annotations, labels.EC2_NODECLASS_HASH_VERSION: "v4"}
    assert (
        await ec2.cloud.find_drift_reason(replace(claim, metadata=replace(claim.metadata, annotations=older)))
        == ""
    )
    made = ec2.node_class
    ec2.classes.put(replace(made, metadata=replace(made.metadata, annotations={})))
    assert await ec2.cloud.find_drift_reason(claim) == ""


VOLUMES = tuple(
    BlockDeviceMapping(device_name=f"/dev/xvd{letter}", ebs=BlockDevice(volume_size="20Gi"))
    for letter in "ab"
)
STATIC: tuple[dict[str, Any], ...] = (
    {"user_data": "echo"},
    {"tags": {"a": "b"}},
    {"kubelet": KubeletConfiguration(max_pods=20)},
    {"block_device_mappings": VOLUMES},
    {"instance_store_policy": "RAID0"},
    {"detailed_monitoring": True},
    {"metadata_options": MetadataOptions(http_tokens="optional")},
    {"associate_public_ip_address": True},
    {"context": "ctx"},
)


@pytest.mark.spec("aws-220")
@pytest.mark.parametrize("change", STATIC, ids=lambda change: next(iter(change)))
def test_each_static_field_drifts(change: dict[str, Any]) -> None:
    async def story() -> str:
        ec2, claim = await running()
        await ec2.apply(**change)
        stamped(ec2)
        return await ec2.cloud.find_drift_reason(claim)

    found: list[str] = []

    @virtual
    async def told() -> None:
        found.append(await story())

    told()
    assert found == ["NodeClassDrift"]


@pytest.mark.spec("aws-220")
@virtual
async def test_selectors_and_the_order_of_tags_and_volumes_do_not_drift() -> None:
    ec2, claim = await running(tags={"a": "1", "b": "2"}, block_device_mappings=VOLUMES)
    ids = tuple(
        type(ec2.node_class.spec.subnet_selector_terms[0])(id=each.id)
        for each in ec2.node_class.status.subnets
    )
    await ec2.apply(subnet_selector_terms=ids, tags={"b": "2", "a": "1"}, block_device_mappings=VOLUMES[::-1])
    stamped(ec2)
    assert await ec2.cloud.find_drift_reason(claim) == ""

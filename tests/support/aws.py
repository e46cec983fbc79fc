"""A simulated AWS with a cluster's things in it, and short ways to launch something there."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from typing import Any

from dovetail.aws import Aws
from dovetail.ports import Clock
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.iam.permissions import Principal
from dovetail.sim.clock import VirtualClock

CLUSTER = "test"
Json = dict[str, Any]


def simulated(
    clock: Clock | None = None,
    seed: int = 0,
    *,
    cluster: str = CLUSTER,
    region: str = "us-west-2",
    account: str = "111122223333",
    principal: Principal | None = None,
) -> SimulatedAws:
    """An account with a network, a node role and an EKS cluster; in virtual time unless told otherwise."""
    return SimulatedAws(clock or VirtualClock(), seed, region, account, cluster=cluster, principal=principal)


async def recommended(
    aws: Aws, arch: str = "x86_64", variant: str = "standard", version: str = "1.35"
) -> str:
    """The id of the AL2023 image AWS recommends."""
    name = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/{arch}/{variant}/recommended/image_id"
    answer = await aws.call("ssm", "GetParameter", {"Name": name})
    return str(answer["Parameter"]["Value"])


async def discovered_subnets(aws: Aws, cluster: str = CLUSTER) -> list[Json]:
    filters = [{"Name": "tag:karpenter.sh/discovery", "Values": [cluster]}]
    return list((await aws.call("ec2", "DescribeSubnets", {"Filters": filters}))["Subnets"])


async def discovered_groups(aws: Aws, cluster: str = CLUSTER) -> list[str]:
    filters = [{"Name": "tag:karpenter.sh/discovery", "Values": [cluster]}]
    answer = await aws.call("ec2", "DescribeSecurityGroups", {"Filters": filters})
    return [each["GroupId"] for each in answer["SecurityGroups"]]


async def template(aws: Aws, name: str = "test", **data: Any) -> Json:
    """A launch template with an AL2023 image and the cluster's security groups."""
    groups = await discovered_groups(aws)
    contents = {
        "ImageId": await recommended(aws),
        "UserData": b64encode(b"#!/bin/bash\n").decode(),
        "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": groups}],
        **data,
    }
    asked = {"LaunchTemplateName": name, "LaunchTemplateData": contents}
    return dict((await aws.call("ec2", "CreateLaunchTemplate", asked))["LaunchTemplate"])


async def fleet(
    aws: Aws,
    types: Sequence[str] = ("m5.large",),
    *,
    way: str = "on-demand",
    count: int = 1,
    zones: Sequence[str] = (),
    tags: dict[str, str] | None = None,
    name: str = "test",
    strategy: str = "",
    priorities: Sequence[float] = (),
) -> Json:
    """CreateFleet over types and the cluster's subnets, as the provider asks for it."""
    subnets = [
        each for each in await discovered_subnets(aws) if not zones or each["AvailabilityZone"] in zones
    ]
    overrides = [
        {
            "InstanceType": kind,
            "SubnetId": subnet["SubnetId"],
            "AvailabilityZone": subnet["AvailabilityZone"],
            **({"Priority": priorities[at]} if priorities else {}),
        }
        for at, kind in enumerate(types)
        for subnet in subnets
    ]
    specification = {"LaunchTemplateName": name, "Version": "$Latest"}
    options = (
        {"SpotOptions": {"AllocationStrategy": strategy or "price-capacity-optimized"}}
        if way == "spot"
        else {"OnDemandOptions": {"AllocationStrategy": strategy or "lowest-price"}}
    )
    listed = [{"Key": key, "Value": value} for key, value in (tags or {}).items()]
    asked = {
        "Type": "instant",
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
        "TargetCapacitySpecification": {"TotalTargetCapacity": count, "DefaultTargetCapacityType": way},
        "TagSpecifications": [{"ResourceType": "instance", "Tags": listed}] if listed else [],
        **options,
    }
    return dict(await aws.call("ec2", "CreateFleet", asked))


def launched(answer: Json) -> list[str]:
    """The ids of a fleet's instances."""
    return [each for entry in answer["Instances"] for each in entry["InstanceIds"]]


async def described(aws: Aws, *ids: str) -> list[Json]:
    answer = await aws.call("ec2", "DescribeInstances", {"InstanceIds": list(ids)})
    return [each for entry in answer["Reservations"] for each in entry["Instances"]]

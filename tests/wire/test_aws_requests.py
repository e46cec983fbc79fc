"""Every request about node classes is one that AWS's own service descriptions take."""

from __future__ import annotations

from datetime import timedelta
from functools import cache
from typing import Any

from botocore.loaders import Loader
from botocore.model import ServiceModel
from botocore.validate import ParamValidator

from dovetail.api import labels
from support.nodeclasses import CLASSES, ClassScene, claim_of, node_class, pool_of
from support.stage import virtual

ZONE = "us-west-2a"
EXPECTED = {
    "ec2:CreateFleet",
    "ec2:CreateLaunchTemplate",
    "ec2:DeleteLaunchTemplate",
    "ec2:DescribeCapacityReservations",
    "ec2:DescribeImages",
    "ec2:DescribeInstanceTypes",
    "ec2:DescribePlacementGroups",
    "ec2:DescribeSecurityGroups",
    "ec2:DescribeSubnets",
    "ec2:RunInstances",
    "eks:DescribeCluster",
    "iam:AddRoleToInstanceProfile",
    "iam:CreateInstanceProfile",
    "iam:DeleteInstanceProfile",
    "iam:GetInstanceProfile",
    "iam:ListInstanceProfiles",
    "iam:RemoveRoleFromInstanceProfile",
    "ssm:GetParameter",
}


@cache
def model(service: str) -> ServiceModel:
    return ServiceModel(Loader().load_service_model(service, "service-2"), service)


def complaint(service: str, operation: str, parameters: Any) -> str:
    """What botocore would say before sending; empty when it would send."""
    shape = model(service).operation_model(operation).input_shape
    return str(ParamValidator().validate(dict(parameters), shape).generate_report())


@virtual
async def test_every_request_is_one_that_aws_describes() -> None:
    async with ClassScene().still() as scene:
        ends = scene.clock.now() + timedelta(hours=1)
        made = scene.aws.reservations.add("m5.large", ZONE, 1, {"a": "1"}, ends=ends)
        scene.aws.placement_groups.add("near", "partition", 3)
        scene.aws.parameters.put("/mine", scene.aws.images.add("golden", tags={"a": "1"}).id)
        scene.apply(pool_of())
        scene.apply(
            node_class(
                tags={"team": "a"},
                userData="#!/bin/bash\necho",
                placementGroupSelector={"name": "near"},
                capacityReservationSelectorTerms=[{"tags": {"a": "*"}}, {"id": made.id}],
                blockDeviceMappings=[
                    {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "30Gi", "iops": 3000}}
                ],
                detailedMonitoring=True,
                connectionTracking={"udpTimeout": 30},
            )
        )
        await scene.resolve()
        assert scene.says() == ("True", "Ready")
        terms = [{"ssmParameter": "/mine"}, {"name": "golden", "owner": "self"}, {"tags": {"a": "1"}}]
        scene.change(amiFamily="AL2023", amiSelectorTerms=terms)
        await scene.resolve()
        await scene.restart()
        await scene.resolve()
        scene.apply(claim_of(labels={labels.CAPACITY_RESERVATION_ID: made.id}))
        await scene.look("capacityreservation.expiration")
        scene.api.delete("nodeclaims.karpenter.sh", "claim")
        await scene.look("providers.ssm.invalidation")
        scene.api.delete(CLASSES, "default")
        await scene.resolve()
        await scene.look("instanceprofile.garbagecollection")
        assert not scene.has(CLASSES, "default")
        wrong = {
            call.action: said
            for call in scene.aws.calls
            if (said := complaint(call.service, call.operation, call.parameters))
        }
        assert wrong == {}
        assert {call.action for call in scene.aws.calls} >= EXPECTED

"""The six policies of the controller's role, as operations §12.2 of the specification tables them."""

from __future__ import annotations

from typing import Any

from dovetail.sim.aws.iam.permissions import Principal
from support.aws import CLUSTER

Json = dict[str, Any]
ACCOUNT, REGION = "111122223333", "us-west-2"
MADE = ("fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request")
READS = (
    "DescribeCapacityReservations",
    "DescribeImages",
    "DescribeInstances",
    "DescribeInstanceStatus",
    "DescribeInstanceTypeOfferings",
    "DescribeInstanceTypes",
    "DescribeLaunchTemplates",
    "DescribePlacementGroups",
    "DescribeSecurityGroups",
    "DescribeSpotPriceHistory",
    "DescribeSubnets",
)


def controller(cluster: str = CLUSTER, queue: str = CLUSTER) -> Principal:
    """A controller that may do this much and nothing else."""
    documents = (
        *_lifecycle(cluster),
        *_identity(cluster),
        *_discovery(),
        _allow("eks:DescribeCluster", resource=f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{cluster}"),
        _allow(
            *(f"sqs:{each}" for each in ("DeleteMessage", "GetQueueUrl", "ReceiveMessage")),
            resource=f"arn:aws:sqs:{REGION}:{ACCOUNT}:{queue}",
        ),
        _allow(
            "arc-zonal-shift:GetManagedResource",
            StringEquals={
                "arc-zonal-shift:ResourceIdentifier": f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{cluster}"
            },
        ),
    )
    role = f"arn:aws:sts::{ACCOUNT}:assumed-role/KarpenterController/dovetail"
    return Principal(role, tuple({"Version": "2012-10-17", "Statement": [each]} for each in documents))


def granted(principal: Principal) -> set[str]:
    """Every action the policies name."""
    return {
        action
        for document in principal.documents
        for statement in document["Statement"]
        for action in statement["Action"]
    }


def _allow(*actions: str, resource: str | list[str] = "*", **conditions: Json) -> Json:
    return {"Effect": "Allow", "Action": list(actions), "Resource": resource, "Condition": conditions}


def _arns(*kinds: str) -> list[str]:
    return [f"arn:aws:ec2:{REGION}:*:{kind}/*" for kind in kinds]


def _lifecycle(cluster: str) -> tuple[Json, ...]:
    owned, pool = f"kubernetes.io/cluster/{cluster}", "karpenter.sh/nodepool"
    asked = {
        "StringEquals": {f"aws:RequestTag/{owned}": "owned", "aws:RequestTag/eks:eks-cluster-name": cluster},
        "StringLike": {f"aws:RequestTag/{pool}": "*"},
    }
    ours = {
        "StringEquals": {f"aws:ResourceTag/{owned}": "owned"},
        "StringLike": {f"aws:ResourceTag/{pool}": "*"},
    }
    launch = ("ec2:RunInstances", "ec2:CreateFleet")
    parts = ("security-group", "subnet", "capacity-reservation", "placement-group")
    free = [f"arn:aws:ec2:{REGION}::{kind}/*" for kind in ("image", "snapshot")]
    creating = {"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}
    keys = ["eks:eks-cluster-name", "karpenter.sh/nodeclaim", "Name"]
    return (
        _allow(*launch, resource=[*free, *_arns(*parts)]),
        _allow(*launch, resource=_arns("launch-template"), **ours),
        _allow(*launch, "ec2:CreateLaunchTemplate", resource=_arns(*MADE), **asked),
        _allow(
            "ec2:CreateTags",
            resource=_arns(*MADE),
            StringEquals={**asked["StringEquals"], **creating},
            StringLike=asked["StringLike"],
        ),
        _allow(
            "ec2:CreateTags",
            resource=_arns("instance"),
            **ours,
            StringEqualsIfExists={"aws:RequestTag/eks:eks-cluster-name": cluster},
            **{"ForAllValues:StringEquals": {"aws:TagKeys": keys}},
        ),
        _allow(
            "ec2:TerminateInstances",
            "ec2:DeleteLaunchTemplate",
            resource=_arns("instance", "launch-template"),
            **ours,
        ),
    )


def _identity(cluster: str) -> tuple[Json, ...]:
    node_class, region = "karpenter.k8s.aws/ec2nodeclass", "topology.kubernetes.io/region"
    owned = f"kubernetes.io/cluster/{cluster}"
    profiles = f"arn:aws:iam::{ACCOUNT}:instance-profile/*"
    asked = {
        "StringEquals": {
            f"aws:RequestTag/{owned}": "owned",
            "aws:RequestTag/eks:eks-cluster-name": cluster,
            f"aws:RequestTag/{region}": REGION,
        },
        "StringLike": {f"aws:RequestTag/{node_class}": "*"},
    }
    ours = {
        "StringEquals": {f"aws:ResourceTag/{owned}": "owned", f"aws:ResourceTag/{region}": REGION},
        "StringLike": {f"aws:ResourceTag/{node_class}": "*"},
    }
    both = {name: {**asked[name], **ours[name]} for name in asked}
    changes = ("AddRoleToInstanceProfile", "RemoveRoleFromInstanceProfile", "DeleteInstanceProfile")
    return (
        _allow(
            "iam:PassRole",
            resource=f"arn:aws:iam::{ACCOUNT}:role/KarpenterNodeRole-{cluster}",
            StringEquals={"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]},
        ),
        _allow("iam:CreateInstanceProfile", resource=profiles, **asked),
        _allow("iam:TagInstanceProfile", resource=profiles, **both),
        _allow(*(f"iam:{each}" for each in changes), resource=profiles, **ours),
        _allow("iam:GetInstanceProfile", resource=profiles),
        _allow("iam:ListInstanceProfiles"),
    )


def _discovery() -> tuple[Json, ...]:
    return (
        _allow(*(f"ec2:{each}" for each in READS), StringEquals={"aws:RequestedRegion": REGION}),
        _allow("ssm:GetParameter", resource=f"arn:aws:ssm:{REGION}::parameter/aws/service/*"),
        _allow("pricing:GetProducts"),
    )

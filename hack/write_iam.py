"""The permissions of the controller, said once. `make iam` writes everything that repeats them.

    deploy/iam/controller.json              the policies themselves, with ${placeholders}
    deploy/cloudformation/dovetail.yaml     the stack that upstream's guide knows as Karpenter-<cluster>
    deploy/terraform/policies/policies.json     what the Terraform module reads
    src/dovetail_cdk/policies.json          what the CDK constructs read
    …/{interruption-bus,interruption-bus-cluster,interruption-experiment,zonal-shift}.yaml, …/documents.json
                                            the same for the bus, its experiment and zonal shift (iac.py)

Placeholders: Partition, Region, Account, Cluster, NodeRoleArn, QueueArn, ClusterArn; in the queue's policy
also RuleArn, in whose place each kit says its own five rules; in that of the decision log LogBucketArn and
LogFolder, which is where its keys begin, and likewise RecordingBucketArn and RecordingFolder; in that of
notifications TopicArn and BusArn, in whose place each kit says the topics and buses that it was told of.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cloudformation import Equals, GetAtt, Join, Not, Ref, Sub, text
from cloudformation_bus import bus_template
from cloudformation_bus_cluster import bus_cluster_template
from cloudformation_experiment import experiment_template
from cloudformation_zonal import zonal_template

from iac import bus, experiment, zonal

ROOT = Path(__file__).resolve().parent.parent
Json = dict[str, Any]

OWNED, EKS_NAME = "kubernetes.io/cluster/${Cluster}", "eks:eks-cluster-name"
POOL, CLASS, ZONE_REGION = (
    "karpenter.sh/nodepool",
    "karpenter.k8s.aws/ec2nodeclass",
    "topology.kubernetes.io/region",
)
LAUNCH = ["ec2:RunInstances", "ec2:CreateFleet"]
MADE = ["fleet", "instance", "volume", "network-interface", "launch-template", "spot-instances-request"]
PROFILES = "arn:${Partition}:iam::${Account}:instance-profile/*"
NODE_POLICIES = (
    "AmazonEKS_CNI_Policy",
    "AmazonEKSWorkerNodePolicy",
    "AmazonEC2ContainerRegistryPullOnly",
    "AmazonSSMManagedInstanceCore",
)
RULES = {
    "ScheduledChangeRule": ("aws.health", "AWS Health Event"),
    "SpotInterruptionRule": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "RebalanceRule": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "InstanceStateChangeRule": ("aws.ec2", "EC2 Instance State-change Notification"),
    "CapacityReservationInterruptionRule": (
        "aws.ec2",
        "EC2 Capacity Reservation Instance Interruption Warning",
    ),
}
READS = (
    *(
        "CapacityReservations",
        "Images",
        "Instances",
        "InstanceStatus",
        "InstanceTypeOfferings",
        "InstanceTypes",
    ),
    *("LaunchTemplates", "PlacementGroups", "SecurityGroups", "SpotPriceHistory", "Subnets"),
)


def _ec2(kind: str, account: str = "*") -> str:
    return f"arn:${{Partition}}:ec2:${{Region}}:{account}:{kind}/*"


def _statement(sid: str, actions: list[str], resources: Any, conditions: Json | None = None) -> Json:
    found = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
    return found | ({"Condition": conditions} if conditions else {})


def _owned(of: str, **more: str) -> Json:
    return {f"aws:{of}/{OWNED}": "owned"} | {f"aws:{of}/{key}": value for key, value in more.items()}


def _node_lifecycle() -> list[Json]:
    borrowed = ["image", "snapshot", "security-group", "subnet", "capacity-reservation", "placement-group"]
    resources = [_ec2(kind, "" if kind in ("image", "snapshot") else "*") for kind in borrowed]
    ours = {
        "StringEquals": _owned("ResourceTag"),
        "StringLike": {f"aws:ResourceTag/{POOL}": "*"},
    }
    asked = {
        "StringEquals": _owned("RequestTag") | {f"aws:RequestTag/{EKS_NAME}": "${Cluster}"},
        "StringLike": {f"aws:RequestTag/{POOL}": "*"},
    }
    creating = {"ec2:CreateAction": ["RunInstances", "CreateFleet", "CreateLaunchTemplate"]}
    keys = {"aws:TagKeys": [EKS_NAME, "karpenter.sh/nodeclaim", "Name"]}
    return [
        _statement("AllowScopedEC2InstanceAccessActions", LAUNCH, resources),
        _statement("AllowScopedEC2LaunchTemplateAccessActions", LAUNCH, _ec2("launch-template"), ours),
        _statement(
            "AllowScopedEC2InstanceActionsWithTags",
            [*LAUNCH, "ec2:CreateLaunchTemplate"],
            [_ec2(kind) for kind in MADE],
            asked,
        ),
        _statement(
            "AllowScopedResourceCreationTagging",
            ["ec2:CreateTags"],
            [_ec2(kind) for kind in MADE],
            {"StringEquals": asked["StringEquals"] | creating, "StringLike": asked["StringLike"]},
        ),
        _statement(
            "AllowScopedResourceTagging",
            ["ec2:CreateTags"],
            _ec2("instance"),
            {
                **ours,
                "StringEqualsIfExists": {f"aws:RequestTag/{EKS_NAME}": "${Cluster}"},
                "ForAllValues:StringEquals": keys,
            },
        ),
        _statement(
            "AllowScopedDeletion",
            ["ec2:TerminateInstances", "ec2:DeleteLaunchTemplate"],
            [_ec2("instance"), _ec2("launch-template")],
            ours,
        ),
    ]


def _iam_integration() -> list[Json]:
    asked = _owned("RequestTag") | {
        f"aws:RequestTag/{EKS_NAME}": "${Cluster}",
        f"aws:RequestTag/{ZONE_REGION}": "${Region}",
    }
    there = _owned("ResourceTag") | {f"aws:ResourceTag/{ZONE_REGION}": "${Region}"}
    asked_class, there_class = {f"aws:RequestTag/{CLASS}": "*"}, {f"aws:ResourceTag/{CLASS}": "*"}
    passed = {"StringEquals": {"iam:PassedToService": ["ec2.amazonaws.com", "ec2.amazonaws.com.cn"]}}
    return [
        _statement("AllowPassingInstanceRole", ["iam:PassRole"], "${NodeRoleArn}", passed),
        _statement(
            "AllowScopedInstanceProfileCreationActions",
            ["iam:CreateInstanceProfile"],
            PROFILES,
            {"StringEquals": asked, "StringLike": asked_class},
        ),
        _statement(
            "AllowScopedInstanceProfileTagActions",
            ["iam:TagInstanceProfile"],
            PROFILES,
            {"StringEquals": there | asked, "StringLike": there_class | asked_class},
        ),
        _statement(
            "AllowScopedInstanceProfileActions",
            [
                "iam:AddRoleToInstanceProfile",
                "iam:RemoveRoleFromInstanceProfile",
                "iam:DeleteInstanceProfile",
            ],
            PROFILES,
            {"StringEquals": there, "StringLike": there_class},
        ),
    ]


def _discovery() -> list[Json]:
    here = {"StringEquals": {"aws:RequestedRegion": "${Region}"}}
    parameters = "arn:${Partition}:ssm:${Region}::parameter/aws/service/*"
    return [
        _statement("AllowRegionalReadActions", [f"ec2:Describe{what}" for what in READS], "*", here),
        _statement("AllowSSMReadActions", ["ssm:GetParameter"], parameters),
        _statement("AllowPricingReadActions", ["pricing:GetProducts"], "*"),
        _statement("AllowUnscopedInstanceProfileListAction", ["iam:ListInstanceProfiles"], "*"),
        _statement("AllowInstanceProfileReadActions", ["iam:GetInstanceProfile"], PROFILES),
    ]


def policies() -> dict[str, list[Json]]:
    """The statements of each policy, by the area in its name: KarpenterController<Area>Policy-<cluster>."""
    queue = ["sqs:DeleteMessage", "sqs:GetQueueUrl", "sqs:ReceiveMessage"]
    shifted = {"StringEquals": {"arc-zonal-shift:ResourceIdentifier": "${ClusterArn}"}}
    arc = ["arc-zonal-shift:GetManagedResource"]
    return {
        "NodeLifecycle": _node_lifecycle(),
        "IAMIntegration": _iam_integration(),
        "EKSIntegration": [
            _statement("AllowAPIServerEndpointDiscovery", ["eks:DescribeCluster"], "${ClusterArn}")
        ],
        "Interruption": [_statement("AllowInterruptionQueueActions", queue, "${QueueArn}")],
        "ZonalShift": [_statement("AllowZonalShiftStatusReadOnly", arc, "*", shifted)],
        "ResourceDiscovery": _discovery(),
    }


def decision_log_policy() -> list[Json]:
    """What a decision log in S3 needs, where a bucket is named: to write and to read back below a prefix."""
    below = {"StringLike": {"s3:prefix": "${LogFolder}*"}}
    return [
        _statement(
            "AllowDecisionLogObjects", ["s3:GetObject", "s3:PutObject"], "${LogBucketArn}/${LogFolder}*"
        ),
        _statement("AllowDecisionLogListing", ["s3:ListBucket"], "${LogBucketArn}", below),
    ]


def recording_policy() -> list[Json]:
    """What a recording in S3 needs, where a bucket is named: to write below a prefix.

    A part whose answer was lost is read again, to know it for the same.
    """
    below = "${RecordingBucketArn}/${RecordingFolder}*"
    return [_statement("AllowRecordingObjects", ["s3:GetObject", "s3:PutObject"], below)]


def commitment_policy() -> list[Json]:
    """What mirroring commitments needs, where COMMITMENTS is on: to read plans, their rates and reservations.

    Savings Plans have one endpoint for all regions, so that no region can be asked for.
    """
    plans = ["savingsplans:DescribeSavingsPlans", "savingsplans:DescribeSavingsPlanRates"]
    here = {"StringEquals": {"aws:RequestedRegion": "${Region}"}}
    return [
        _statement("AllowSavingsPlanReadActions", plans, "*"),
        _statement("AllowReservedInstanceReadActions", ["ec2:DescribeReservedInstances"], "*", here),
    ]


def notification_policy() -> list[Json]:
    """What sinks of notifications in AWS need: to publish to the topics and buses that are named."""
    return [
        _statement("AllowNotificationTopics", ["sns:Publish"], "${TopicArn}"),
        _statement("AllowNotificationBuses", ["events:PutEvents"], "${BusArn}"),
    ]


def queue_policy() -> list[Json]:
    """Who may put messages into the interruption queue: EventBridge, for the five rules and for no other."""
    return [
        {
            "Effect": "Allow",
            "Principal": {"Service": "events.amazonaws.com"},
            "Action": "sqs:SendMessage",
            "Resource": "${QueueArn}",
            "Condition": {"ArnLike": {"aws:SourceArn": "${RuleArn}"}},
        },
        {
            "Sid": "DenyHTTP",
            "Effect": "Deny",
            "Principal": "*",
            "Action": "sqs:*",
            "Resource": "${QueueArn}",
            "Condition": {"Bool": {"aws:SecureTransport": "false"}},
        },
    ]


def source() -> Json:
    """Everything the kits share."""
    return {
        "policies": policies(),
        "decisionLogPolicy": decision_log_policy(),
        "recordingPolicy": recording_policy(),
        "commitmentPolicy": commitment_policy(),
        "notificationPolicy": notification_policy(),
        "queuePolicy": queue_policy(),
        "nodePolicies": list(NODE_POLICIES),
        "rules": {name: {"source": s, "detailType": d} for name, (s, d) in RULES.items()},
        "queueRetentionSeconds": 300,
    }


# CloudFormation

PLACES = {
    "${Partition}": "${AWS::Partition}",
    "${Region}": "${AWS::Region}",
    "${Account}": "${AWS::AccountId}",
    "${Cluster}": "${ClusterName}",
    "${NodeRoleArn}": "${KarpenterNodeRole.Arn}",
    "${QueueArn}": "${KarpenterInterruptionQueue.Arn}",
    "${ClusterArn}": "arn:${AWS::Partition}:eks:${AWS::Region}:${AWS::AccountId}:cluster/${ClusterName}",
    "${LogBucketArn}": "arn:${AWS::Partition}:s3:::${DecisionLogBucket}",
    "${LogFolder}": "${DecisionLogPrefix}${ClusterName}/",
    "${RecordingBucketArn}": "arn:${AWS::Partition}:s3:::${RecordingBucket}",
    "${RecordingFolder}": "${RecordingPrefix}",
}
PREFIX = {
    "Type": "String",
    "Default": "",
    "AllowedPattern": "([A-Za-z0-9!_.*'()=-]+/)*",
    "Description": "Prefix of its keys, with a slash at its end; empty for none",
}
BUCKET_PARAMETERS = {
    "DecisionLogBucket": {
        "Type": "String",
        "Default": "",
        "Description": "Bucket of the decision log, if DECISION_LOG names one; empty grants nothing in S3",
    },
    "DecisionLogPrefix": PREFIX,
    "RecordingBucket": {
        "Type": "String",
        "Default": "",
        "Description": "Bucket of the recording, if RECORDING names one; empty grants nothing in S3",
    },
    "RecordingPrefix": PREFIX,
}

COMMITMENT_PARAMETERS = {
    "Commitments": {
        "Type": "String",
        "Default": "false",
        "AllowedValues": ["true", "false"],
        "Description": "Whether Savings Plans and reserved instances may be read, which COMMITMENTS needs",
    },
}
SINK_PARAMETERS = {
    "NotificationTopicArns": {
        "Type": "CommaDelimitedList",
        "Default": "",
        "Description": "SNS topics that NOTIFY_FILE has sinks in, with commas between them; empty for none",
    },
    "NotificationBusArns": {
        "Type": "CommaDelimitedList",
        "Default": "",
        "Description": "EventBridge buses that NOTIFY_FILE has sinks in, likewise",
    },
}


def _placed(value: Any) -> Any:
    """The same document in CloudFormation's words."""
    if isinstance(value, str):
        for ours, theirs in PLACES.items():
            value = value.replace(ours, theirs)
        return Sub(value) if "${" in value else value
    if isinstance(value, list):
        return [_placed(each) for each in value]
    if isinstance(value, dict):
        return {key: _placed(each) for key, each in value.items()}
    return value


def _document(statements: list[Json]) -> Sub:
    """A policy as text: condition keys hold the cluster's name, which only a Sub of the whole can say."""
    placed = json.dumps({"Version": "2012-10-17", "Statement": statements}, indent=2)
    for ours, theirs in PLACES.items():
        placed = placed.replace(ours, theirs)
    return Sub(placed)


def template() -> Json:
    """The stack of operations: node role, policies, queue, rules."""
    resources: Json = {"KarpenterNodeRole": _node_role()}
    for area, statements in policies().items():
        resources[f"KarpenterController{area}Policy"] = {
            "Type": "AWS::IAM::ManagedPolicy",
            "Properties": {
                "ManagedPolicyName": Sub(f"KarpenterController{area}Policy-${{ClusterName}}"),
                "PolicyDocument": _document(statements),
            },
        }
    for area, statements in (
        ("DecisionLog", decision_log_policy()),
        ("Recording", recording_policy()),
        ("Commitment", commitment_policy()),
    ):
        resources[f"KarpenterController{area}Policy"] = {
            "Type": "AWS::IAM::ManagedPolicy",
            "Condition": f"Has{area}",
            "Properties": {
                "ManagedPolicyName": Sub(f"KarpenterController{area}Policy-${{ClusterName}}"),
                "PolicyDocument": _document(statements),
            },
        }
    for kind, statement in zip(("Topic", "Bus"), notification_policy(), strict=True):
        allowed = statement | {"Resource": Ref(f"Notification{kind}Arns")}
        resources[f"KarpenterControllerNotification{kind}Policy"] = {
            "Type": "AWS::IAM::ManagedPolicy",
            "Condition": f"HasNotification{kind}",
            "Properties": {
                "ManagedPolicyName": Sub(f"KarpenterControllerNotification{kind}Policy-${{ClusterName}}"),
                "PolicyDocument": {"Version": "2012-10-17", "Statement": [allowed]},
            },
        }
    resources |= _queue()
    for name, (origin, detail) in RULES.items():
        target = {"Id": "KarpenterInterruptionQueueTarget", "Arn": GetAtt("KarpenterInterruptionQueue.Arn")}
        pattern = {"source": [origin], "detail-type": [detail]}
        resources[name] = {
            "Type": "AWS::Events::Rule",
            "Properties": {"EventPattern": pattern, "Targets": [target]},
        }
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "What Dovetail needs of an account: a role for nodes, policies, a queue of warnings",
        "Parameters": {
            "ClusterName": {"Type": "String", "Description": "Name of the EKS cluster"},
            **BUCKET_PARAMETERS,
            **COMMITMENT_PARAMETERS,
            **SINK_PARAMETERS,
        },
        "Conditions": {
            "HasDecisionLog": Not([Equals([Ref("DecisionLogBucket"), ""])]),
            "HasRecording": Not([Equals([Ref("RecordingBucket"), ""])]),
            "HasCommitment": Equals([Ref("Commitments"), "true"]),
            "HasNotificationTopic": Not([Equals([Join(["", Ref("NotificationTopicArns")]), ""])]),
            "HasNotificationBus": Not([Equals([Join(["", Ref("NotificationBusArns")]), ""])]),
        },
        "Resources": resources,
        "Outputs": _outputs(),
    }


def _node_role() -> Json:
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Principal": {"Service": Sub("ec2.${AWS::URLSuffix}")},
                "Action": ["sts:AssumeRole"],
            }
        ],
    }
    managed = [Sub(f"arn:${{AWS::Partition}}:iam::aws:policy/{name}") for name in NODE_POLICIES]
    properties = {
        "RoleName": Sub("KarpenterNodeRole-${ClusterName}"),
        "Path": "/",
        "AssumeRolePolicyDocument": trust,
        "ManagedPolicyArns": managed,
    }
    return {"Type": "AWS::IAM::Role", "Properties": properties}


def _queue() -> Json:
    writing, http = (
        _placed(each) | {"Resource": GetAtt("KarpenterInterruptionQueue.Arn")} for each in queue_policy()
    )
    writing["Condition"] = {"ArnLike": {"aws:SourceArn": [GetAtt(f"{name}.Arn") for name in RULES]}}
    policy = {"Id": "EC2InterruptionPolicy", "Version": "2012-10-17", "Statement": [writing, http]}
    return {
        "KarpenterInterruptionQueue": {
            "Type": "AWS::SQS::Queue",
            "Properties": {
                "QueueName": Sub("${ClusterName}"),
                "MessageRetentionPeriod": 300,
                "SqsManagedSseEnabled": True,
            },
        },
        "KarpenterInterruptionQueuePolicy": {
            "Type": "AWS::SQS::QueuePolicy",
            "Properties": {"Queues": [Ref("KarpenterInterruptionQueue")], "PolicyDocument": policy},
        },
    }


def _outputs() -> Json:
    found: Json = {
        "NodeRoleName": {"Value": Ref("KarpenterNodeRole")},
        "NodeRoleArn": {"Value": GetAtt("KarpenterNodeRole.Arn")},
        "InterruptionQueueName": {"Value": GetAtt("KarpenterInterruptionQueue.QueueName")},
        "InterruptionQueueArn": {"Value": GetAtt("KarpenterInterruptionQueue.Arn")},
    }
    for area in policies():
        found[f"{area}PolicyArn"] = {"Value": Ref(f"KarpenterController{area}Policy")}
    for area in ("DecisionLog", "Recording"):
        found[f"{area}PolicyArn"] = {
            "Condition": f"Has{area}",
            "Value": Ref(f"KarpenterController{area}Policy"),
        }
    for kind in ("Topic", "Bus"):
        found[f"Notification{kind}PolicyArn"] = {
            "Condition": f"HasNotification{kind}",
            "Value": Ref(f"KarpenterControllerNotification{kind}Policy"),
        }
    return found


HEADER = "# Written by `make iam` from hack/write_iam.py; do not edit.\n"


def files() -> dict[str, str]:
    """Every file's text, by its path."""
    shared = json.dumps(source(), indent=2) + "\n"
    return {
        "deploy/iam/controller.json": shared,
        "deploy/cloudformation/dovetail.yaml": HEADER + text(template()),
        "deploy/cloudformation/interruption-bus.yaml": HEADER + text(bus_template()),
        "deploy/cloudformation/interruption-bus-cluster.yaml": HEADER + text(bus_cluster_template()),
        "deploy/cloudformation/interruption-experiment.yaml": HEADER + text(experiment_template()),
        "deploy/cloudformation/zonal-shift.yaml": HEADER + text(zonal_template()),
        "deploy/terraform/policies/policies.json": shared,
        "deploy/terraform/documents/documents.json": json.dumps(more(), indent=2) + "\n",
        "src/dovetail_cdk/policies.json": shared,
        "src/dovetail_cdk/documents.json": json.dumps(more(), indent=2) + "\n",
        "src/dovetail_cdk/interruption-bus.yaml": HEADER + text(bus_template()),
        "src/dovetail_cdk/interruption-experiment.yaml": HEADER + text(experiment_template()),
        "src/dovetail_cdk/zonal-shift.yaml": HEADER + text(zonal_template()),
    }


def more() -> Json:
    """What the kits share beyond the controller: the interruption bus, its experiment and zonal shift."""
    return {"bus": bus(), "experiment": experiment(), "zonalShift": zonal()}


def main() -> None:
    for path, written in files().items():
        target = ROOT / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(written, encoding="utf-8")
    print(f"wrote {', '.join(files())}")


if __name__ == "__main__":
    main()

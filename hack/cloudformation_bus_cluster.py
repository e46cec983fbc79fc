"""The queue of one more cluster behind an interruption bus, as a stack: its tags are its registration."""

from __future__ import annotations

from cloudformation import Equals, GetAtt, If, Json, Not, Ref, Sub, policy

from iac import bus

PLACES = {"QueueArn": "Queue.Arn", "RouterArn": "RouterRoleArn"}


def bus_cluster_template() -> Json:
    source = bus()
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "The queue of a cluster behind an interruption bus, found by its tags",
        "Parameters": {
            "ClusterName": {"Type": "String", "Description": "Name of the EKS cluster"},
            "QueueName": {
                "Type": "String",
                "Default": "",
                "Description": "Name of the queue; else the cluster's",
            },
            "RouterRoleArn": {
                "Type": "String",
                "Default": "",
                "Description": "Role of the router, which alone may then write; of another account, needed",
            },
        },
        "Conditions": {
            "WithQueueName": Not([Equals([Ref("QueueName"), ""])]),
            "WithRouter": Not([Equals([Ref("RouterRoleArn"), ""])]),
        },
        "Resources": {"Queue": _queue(source["clusterQueue"]), "QueuePolicy": _queue_policy(source)},
        "Outputs": {
            "QueueName": {
                "Description": "For settings.interruptionQueue of the chart",
                "Value": GetAtt("Queue.QueueName"),
            },
            "QueueArn": {"Value": GetAtt("Queue.Arn")},
            "QueueUrl": {"Value": Ref("Queue")},
        },
    }


def _queue(wanted: Json) -> Json:
    tags = {"dovetail.sh/bus": "true", "dovetail.sh/cluster": Ref("ClusterName")}
    properties = {
        "QueueName": If(["WithQueueName", Ref("QueueName"), Ref("ClusterName")]),
        "VisibilityTimeout": wanted["visibility"],
        "MessageRetentionPeriod": wanted["retention"],
        "ReceiveMessageWaitTimeSeconds": wanted["wait"],
        "SqsManagedSseEnabled": True,
        "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
    }
    return {"Type": "AWS::SQS::Queue", "Properties": properties}


def _queue_policy(source: Json) -> Json:
    plain = policy(source["clusterQueuePolicy"], PLACES)
    routed = policy([*source["clusterQueueRouterPolicy"], *source["clusterQueuePolicy"]], PLACES)
    properties = {
        "Queues": [Ref("Queue")],
        "PolicyDocument": If(["WithRouter", Sub(routed), Sub(plain)]),
    }
    return {"Type": "AWS::SQS::QueuePolicy", "Properties": properties}

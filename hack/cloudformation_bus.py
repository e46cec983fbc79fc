"""The interruption bus as a stack: queues, rules, two functions of one package, alarms, and a table."""

from __future__ import annotations

import json

from cloudformation import NOTHING, Equals, GetAtt, If, Json, Not, Program, Ref, Sub, SubWith, policy

from iac import bus

PLACES = {
    "Partition": "AWS::Partition",
    "Region": "AWS::Region",
    "Account": "AWS::AccountId",
    "Name": "Name",
    "TableArn": "Registry.Arn",
    "RouterArn": "RouterRole.Arn",
}
LANES = ("urgent", "bulk")
SWITCHES = {"asg_terminate": "WithAutoscaling", "zonal_shift": "WithZonalShift", "canary": "WithCanary"}


def bus_template() -> Json:
    source = bus()
    resources = {f"{lane.title()}Queue": _queue(lane, each) for lane, each in source["queues"].items()}
    resources["QueuePolicy"] = _queue_policy(source["queuePolicy"])
    resources |= {f"{name}Rule": _rule(name, each, source["retry"]) for name, each in source["rules"].items()}
    resources["RouterRole"] = _role(source)
    resources["ReplayPolicy"] = {
        "Type": "AWS::IAM::ManagedPolicy",
        "Properties": {
            "Description": "Gives parked events and dead letters of the interruption bus another chance",
            "PolicyDocument": policy(source["replayPolicy"], PLACES),
        },
    }
    for lane in LANES:
        resources |= _function(lane, source["functions"][lane], source["runtime"])
    resources["Registry"] = _table()
    resources["Dashboard"] = _dashboard(source["dashboard"])
    resources |= {f"{name}Alarm": _alarm(name, each) for name, each in source["alarms"].items()}
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "One set of interruption rules for all clusters of an account, and its router",
        "Parameters": _parameters(),
        "Conditions": {name: Equals([Ref(name), "true"]) for name in (*SWITCHES.values(), "WithRegistry")}
        | {
            "WithAlarmTopic": Not([Equals([Ref("AlarmTopicArn"), ""])]),
            "WithReplayRole": Not([Equals([Ref("ReplayRoleArn"), ""])]),
        },
        "Resources": resources,
        "Outputs": _outputs(),
    }


def _parameters() -> Json:
    def switch(about: str) -> Json:
        return {
            "Type": "String",
            "Default": "false",
            "AllowedValues": ["true", "false"],
            "Description": about,
        }

    return {
        "Name": {"Type": "String", "Default": "dovetail-bus", "Description": "Prefix of every name"},
        "CodeBucket": {"Type": "String", "Description": "Bucket with the package `make lambda` builds"},
        "CodeKey": {"Type": "String", "Description": "Key of that package"},
        "Destinations": {
            "Type": "String",
            "Default": "[]",
            "Description": "Clusters and their queues, as JSON; queues with the bus's tags are found anyway",
        },
        "ReplayRoleArn": {
            "Type": "String",
            "Default": "",
            "Description": "Role of those who replay events, with ReplayPolicy; else role/<Name>-replay",
        },
        "AlarmTopicArn": {"Type": "String", "Default": "", "Description": "Topic that hears of alarms"},
        "WithAutoscaling": switch("Route lifecycle actions of Auto Scaling groups, too"),
        "WithZonalShift": switch("Route zonal shifts, too"),
        "WithCanary": switch("Take canaries, which measure the way through"),
        "WithRegistry": switch("Make a table that holds destinations"),
    }


def _queue(lane: str, each: Json) -> Json:
    properties: Json = {
        "QueueName": Sub(f"${{Name}}-{lane}"),
        "MessageRetentionPeriod": each["retention"],
        "SqsManagedSseEnabled": True,
    }
    if "visibility" in each:
        properties |= {
            "VisibilityTimeout": each["visibility"],
            "ReceiveMessageWaitTimeSeconds": each["wait"],
            "RedrivePolicy": {
                "deadLetterTargetArn": GetAtt("DlqQueue.Arn"),
                "maxReceiveCount": each["receives"],
            },
        }
    kept = {"UpdateReplacePolicy": "Retain", "DeletionPolicy": "Retain"} if lane in ("park", "dlq") else {}
    return {"Type": "AWS::SQS::Queue", **kept, "Properties": properties}


def _queue_policy(statements: list[Json]) -> Json:
    named = Sub("arn:${AWS::Partition}:iam::${AWS::AccountId}:role/${Name}-replay")
    replayers = {"ReplayRoleArn": If(["WithReplayRole", Ref("ReplayRoleArn"), named])}
    properties = {
        "Queues": [Ref(f"{lane.title()}Queue") for lane in bus()["queues"]],
        "PolicyDocument": SubWith([Program(policy(statements, PLACES)), replayers]),
    }
    return {"Type": "AWS::SQS::QueuePolicy", "Properties": properties}


def _rule(name: str, each: Json, retry: Json) -> Json:
    target = {
        "Id": "Router",
        "Arn": GetAtt(f"{each['lane'].title()}Queue.Arn"),
        "RetryPolicy": {
            "MaximumEventAgeInSeconds": retry["age"],
            "MaximumRetryAttempts": retry["attempts"],
        },
        "DeadLetterConfig": {"Arn": GetAtt("DlqQueue.Arn")},
    }
    wanted = {"Condition": SWITCHES[each["optional"]]} if "optional" in each else {}
    properties = {"Name": Sub(f"${{Name}}-{name}"), "EventPattern": each["pattern"], "Targets": [target]}
    return {"Type": "AWS::Events::Rule", **wanted, "Properties": properties}


def _role(source: Json) -> Json:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "lambda.amazonaws.com"},
        "Action": ["sts:AssumeRole"],
    }
    routing = {"PolicyName": "Router", "PolicyDocument": policy(source["routerPolicy"], PLACES)}
    discovery = {"PolicyName": "Discovery", "PolicyDocument": policy(source["discoveryPolicy"], PLACES)}
    registry = {"PolicyName": "Registry", "PolicyDocument": policy(source["tablePolicy"], PLACES)}
    canary = {"PolicyName": "Canary", "PolicyDocument": policy(source["canaryPolicy"], PLACES)}
    logs = "arn:${AWS::Partition}:iam::aws:policy/service-role/AWSLambdaBasicExecutionRole"
    properties = {
        "AssumeRolePolicyDocument": {"Version": "2012-10-17", "Statement": [statement]},
        "ManagedPolicyArns": [Sub(logs)],
        "Policies": [
            routing,
            discovery,
            If(["WithRegistry", registry, NOTHING]),
            If(["WithCanary", canary, NOTHING]),
        ],
    }
    return {"Type": "AWS::IAM::Role", "Properties": properties}


def _function(lane: str, each: Json, runtime: Json) -> Json:
    variables: Json = {
        "DOVETAIL_BUS_MODE": "lambda",
        "DOVETAIL_BUS_REGION": Ref("AWS::Region"),
        # Events of accounts that are not named here are parked.
        "DOVETAIL_BUS_ACCOUNTS": Sub('[{"id":"${AWS::AccountId}"}]'),
        "DOVETAIL_BUS_DESTINATIONS": Ref("Destinations"),
        "DOVETAIL_BUS_REGISTRY_DISCOVER": "true",
        "DOVETAIL_BUS_REGISTRY_DYNAMODB": If(["WithRegistry", Ref("Registry"), NOTHING]),
    }
    for queue in bus()["queues"]:
        variables[f"DOVETAIL_BUS_QUEUES_{queue.upper()}"] = Sub(f"${{Name}}-{queue}")
    function = {
        "FunctionName": Sub(f"${{Name}}-{lane}"),
        "Handler": runtime["handler"],
        "Runtime": runtime["runtime"],
        "Architectures": [runtime["architecture"]],
        "MemorySize": runtime["memory"],
        "Timeout": each["timeout"],
        "Role": GetAtt("RouterRole.Arn"),
        "Code": {"S3Bucket": Ref("CodeBucket"), "S3Key": Ref("CodeKey")},
        "Environment": {"Variables": variables},
    }
    mapping = {
        "EventSourceArn": GetAtt(f"{lane.title()}Queue.Arn"),
        "FunctionName": Ref(f"{lane.title()}Function"),
        "BatchSize": each["batch"],
        "MaximumBatchingWindowInSeconds": each["window"],
        "FunctionResponseTypes": ["ReportBatchItemFailures"],
        "ScalingConfig": {"MaximumConcurrency": each["concurrency"]},
    }
    return {
        f"{lane.title()}Function": {"Type": "AWS::Lambda::Function", "Properties": function},
        f"{lane.title()}Mapping": {"Type": "AWS::Lambda::EventSourceMapping", "Properties": mapping},
    }


def _table() -> Json:
    properties = {
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [{"AttributeName": "pk", "AttributeType": "S"}],
        "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}],
        "SSESpecification": {"SSEEnabled": True},
    }
    kept = {"UpdateReplacePolicy": "Retain", "DeletionPolicy": "Retain"}
    return {"Type": "AWS::DynamoDB::Table", "Condition": "WithRegistry", **kept, "Properties": properties}


def _alarm(name: str, each: Json) -> Json:
    queue = {"Name": "QueueName", "Value": GetAtt(f"{each['queue'].title()}Queue.QueueName")}
    properties: Json = {
        "AlarmName": Sub(f"${{Name}}-{name}"),
        "Namespace": "AWS/SQS",
        "MetricName": each["metric"],
        "Dimensions": [queue],
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": each["over"],
        "ComparisonOperator": "GreaterThanThreshold",
        "TreatMissingData": "notBreaching",
        "AlarmActions": If(["WithAlarmTopic", [Ref("AlarmTopicArn")], NOTHING]),
    }
    return {"Type": "AWS::CloudWatch::Alarm", "Properties": properties}


def _dashboard(body: Json) -> Json:
    text = json.dumps(body, indent=2).replace("${Region}", "${AWS::Region}")
    properties = {"DashboardName": Sub("${Name}"), "DashboardBody": Sub(text)}
    return {"Type": "AWS::CloudWatch::Dashboard", "Properties": properties}


def _outputs() -> Json:
    found: Json = {f"{lane.title()}QueueArn": {"Value": GetAtt(f"{lane.title()}Queue.Arn")} for lane in LANES}
    found["RouterRoleArn"] = {"Value": GetAtt("RouterRole.Arn")}
    found["ReplayPolicyArn"] = {"Value": Ref("ReplayPolicy")}
    found["RegistryTable"] = {"Condition": "WithRegistry", "Value": Ref("Registry")}
    return found

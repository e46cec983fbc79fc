"""Zonal shift as a stack: a rule, a queue or topic for events, a table on request, and permissions."""

from __future__ import annotations

from typing import Any

from cloudformation import NOTHING, Equals, GetAtt, If, Join, Json, Not, Ref, Sub, policy
from cloudformation_enabling import on_cluster

from iac import zonal

PLACES = {
    "Partition": "AWS::Partition",
    "ClusterArn": "ClusterArn",
    "QueueArn": "Queue.Arn",
    "TopicArn": "Topic",
    "TableArn": "Table.Arn",
    "RuleArn": "Rule.Arn",
}
# A queue's policy names the rule, and the rule its queue: the rule's ARN is told by its name instead.
RULE = "arn:${AWS::Partition}:events:${AWS::Region}:${AWS::AccountId}:rule/dovetail-zonal-${ClusterName}"
NO_ALARM = "none given"
CLUSTER = "arn:${AWS::Partition}:eks:${AWS::Region}:${AWS::AccountId}:cluster/${ClusterName}"


def zonal_template() -> Json:
    source = zonal()
    return {
        "AWSTemplateFormatVersion": "2010-09-09",
        "Description": "How zonal shifts reach Dovetail, and what it may ask about them",
        "Parameters": _parameters(),
        "Conditions": {
            "BySqs": Equals([Ref("Transport"), "sqs"]),
            "BySns": Equals([Ref("Transport"), "sns"]),
            "WithTable": Equals([Ref("EnableDynamoDB"), "true"]),
            "WithObserver": Equals([Ref("EnableObserver"), "true"]),
            "WithAutoshift": Equals([Ref("EnableAutoshift"), "true"]),
            "OnCluster": Equals([Ref("EnableOnCluster"), "true"]),
            "WithBlockedWindows": Not([Equals([Join(["", Ref("PracticeRunBlockedWindows")]), ""])]),
            "WithBlockedDates": Not([Equals([Join(["", Ref("PracticeRunBlockedDates")]), ""])]),
            "ByIrsa": Not([Equals([Ref("OidcProviderArn"), ""])]),
            "ByPodIdentity": Equals([Ref("OidcProviderArn"), ""]),
        },
        "Rules": {"AutoshiftNeedsAnAlarm": _needs_alarm()},
        "Resources": _transport(source) | _table() | _identity(source) | on_cluster(CLUSTER) | _autoshift(),
        "Outputs": _outputs(),
    }


def _needs_alarm() -> Json:
    told = "EnableAutoshift needs PracticeRunAlarmArn, the alarm that says a practice run goes wrong"
    given = Not([Equals([Ref("PracticeRunAlarmArn"), NO_ALARM])])
    return {
        "RuleCondition": Equals([Ref("EnableAutoshift"), "true"]),
        "Assertions": [{"Assert": given, "AssertDescription": told}],
    }


def _parameters() -> Json:
    def switch(about: str) -> Json:
        return {
            "Type": "String",
            "Default": "false",
            "AllowedValues": ["true", "false"],
            "Description": about,
        }

    def text(about: str, default: str | None = None) -> Json:
        return {"Type": "String", "Description": about} | ({} if default is None else {"Default": default})

    def several(about: str) -> Json:
        return {"Type": "CommaDelimitedList", "Default": "", "Description": about}

    return {
        "ClusterName": text("Name of the EKS cluster"),
        "Transport": text("How events come", "sqs") | {"AllowedValues": ["sqs", "sns"]},
        "EnableDynamoDB": switch("Keep the ledger in a table"),
        "EnableObserver": switch("See autoshifts of others, too"),
        "EnableAutoshift": switch("Let AWS shift the cluster away by itself; needs an outcome alarm"),
        "EnableOnCluster": switch("Set zonalShiftConfig of the cluster, where its own stack does not"),
        "PracticeRunAlarmArn": text("Alarm that says a practice run goes wrong", NO_ALARM),
        "PracticeRunBlockedWindows": several("When practice runs may not start, such as Mon:09:00-Mon:17:00"),
        "PracticeRunBlockedDates": several("Days without practice runs, such as 2027-01-01"),
        "Namespace": text("Namespace of the service account", "kube-system"),
        "ServiceAccount": text("Name of the service account", "karpenter"),
        "OidcProviderArn": text("Provider of the cluster, for IRSA; without one Pod Identity is used", ""),
        "OidcProvider": text("The same without its ARN: oidc.eks.<region>…/id/<id>", ""),
    }


def _queue(suffix: str, each: Json, more: Json) -> Json:
    properties = {
        "QueueName": Sub(f"dovetail-zonal-${{ClusterName}}{suffix}"),
        "MessageRetentionPeriod": each["retention"],
        "SqsManagedSseEnabled": True,
        **more,
    }
    return {"Type": "AWS::SQS::Queue", "Properties": properties}


def _transport(source: Json) -> Json:
    queue = source["queue"]
    more = {
        "VisibilityTimeout": queue["visibility"],
        "ReceiveMessageWaitTimeSeconds": queue["wait"],
        "RedrivePolicy": {
            "deadLetterTargetArn": GetAtt("DeadLetters.Arn"),
            "maxReceiveCount": queue["receives"],
        },
    }
    # Without encryption: EventBridge cannot publish to a topic under the key AWS manages.
    signing = {"TopicName": Sub("dovetail-zonal-${ClusterName}"), "SignatureVersion": "2"}
    written = {
        "Queues": [Ref("Queue")],
        "PolicyDocument": _placed_policy(source["queuePolicy"]),
    }
    topics = {"Topics": [Ref("Topic")], "PolicyDocument": _placed_policy(source["topicPolicy"])}
    return {
        "DeadLetters": _queue("-dlq", source["letters"], {}),
        "Queue": _queue("", queue, more) | {"Condition": "BySqs"},
        "QueuePolicy": {"Type": "AWS::SQS::QueuePolicy", "Condition": "BySqs", "Properties": written},
        "Topic": {"Type": "AWS::SNS::Topic", "Condition": "BySns", "Properties": signing},
        "TopicPolicy": {"Type": "AWS::SNS::TopicPolicy", "Condition": "BySns", "Properties": topics},
        "Rule": _rule(source),
    }


def _placed_policy(statements: list[Json]) -> Any:
    found = policy(statements, PLACES)
    if not isinstance(found, str):
        return found
    return Sub(found.replace("${Rule.Arn}", RULE).replace("${ClusterArn}", CLUSTER))


def _rule(source: Json) -> Json:
    target = {
        "Id": "Dovetail",
        "Arn": If(["BySqs", GetAtt("Queue.Arn"), Ref("Topic")]),
        "RetryPolicy": {
            "MaximumEventAgeInSeconds": source["retry"]["age"],
            "MaximumRetryAttempts": source["retry"]["attempts"],
        },
        "DeadLetterConfig": {"Arn": GetAtt("DeadLetters.Arn")},
    }
    properties = {
        "Name": Sub("dovetail-zonal-${ClusterName}"),
        "EventPattern": source["pattern"],
        "Targets": [target],
    }
    return {"Type": "AWS::Events::Rule", "Properties": properties}


def _table() -> Json:
    properties = {
        "TableName": Sub("dovetail-zonal-${ClusterName}"),
        "BillingMode": "PAY_PER_REQUEST",
        "AttributeDefinitions": [
            {"AttributeName": "pk", "AttributeType": "S"},
            {"AttributeName": "sk", "AttributeType": "S"},
        ],
        "KeySchema": [
            {"AttributeName": "pk", "KeyType": "HASH"},
            {"AttributeName": "sk", "KeyType": "RANGE"},
        ],
        "SSESpecification": {"SSEEnabled": True},
        "PointInTimeRecoverySpecification": {"PointInTimeRecoveryEnabled": True},
        "TimeToLiveSpecification": {"AttributeName": "ttl", "Enabled": True},
    }
    kept = {"UpdateReplacePolicy": "Retain", "DeletionPolicy": "Retain"}
    return {
        "Table": {
            "Type": "AWS::DynamoDB::Table",
            "Condition": "WithTable",
            **kept,
            "Properties": properties,
        }
    }


def _identity(source: Json) -> Json:
    def inline(name: str, statements: list[Json]) -> Json:
        return {"PolicyName": name, "PolicyDocument": _placed_policy(statements)}

    policies = [
        inline("ZonalShift", source["policy"]),
        If(["BySqs", inline("Signals", source["sqsPolicy"]), inline("Signals", source["snsPolicy"])]),
        If(["WithTable", inline("Ledger", source["tablePolicy"]), NOTHING]),
        If(["WithObserver", inline("Observer", source["observerPolicy"]), NOTHING]),
    ]
    irsa = Sub(
        """{
  "Version": "2012-10-17",
  "Statement": [{
    "Effect": "Allow",
    "Principal": {"Federated": "${OidcProviderArn}"},
    "Action": "sts:AssumeRoleWithWebIdentity",
    "Condition": {"StringEquals": {
      "${OidcProvider}:aud": "sts.amazonaws.com",
      "${OidcProvider}:sub": "system:serviceaccount:${Namespace}:${ServiceAccount}"
    }}
  }]
}"""
    )
    statement = {
        "Sid": "PodIdentity",
        "Effect": "Allow",
        "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
    }
    pods = {"Version": "2012-10-17", "Statement": [statement]}
    role = {"AssumeRolePolicyDocument": If(["ByIrsa", irsa, pods]), "Policies": policies}
    association = {
        "ClusterName": Ref("ClusterName"),
        "Namespace": Ref("Namespace"),
        "ServiceAccount": Ref("ServiceAccount"),
        "RoleArn": GetAtt("Role.Arn"),
    }
    operator = {
        "ManagedPolicyName": Sub("DovetailZonalShiftOperator-${ClusterName}"),
        "PolicyDocument": inline("Operator", source["operatorPolicy"])["PolicyDocument"],
    }
    return {
        "Role": {"Type": "AWS::IAM::Role", "Properties": role},
        "Association": {
            "Type": "AWS::EKS::PodIdentityAssociation",
            "Condition": "ByPodIdentity",
            "Properties": association,
        },
        "OperatorPolicy": {"Type": "AWS::IAM::ManagedPolicy", "Properties": operator},
    }


def _autoshift() -> Json:
    alarm = {"AlarmIdentifier": Ref("PracticeRunAlarmArn"), "Type": "CLOUDWATCH"}
    practice = {
        "OutcomeAlarms": [alarm],
        "BlockedWindows": If(["WithBlockedWindows", Ref("PracticeRunBlockedWindows"), NOTHING]),
        "BlockedDates": If(["WithBlockedDates", Ref("PracticeRunBlockedDates"), NOTHING]),
    }
    properties = {
        # Of a cluster that is switched on here, not before it is.
        "ResourceIdentifier": If(["OnCluster", GetAtt("Enabled.ClusterArn"), Sub(CLUSTER)]),
        "ZonalAutoshiftStatus": "ENABLED",
        "PracticeRunConfiguration": practice,
    }
    kind = "AWS::ARCZonalShift::ZonalAutoshiftConfiguration"
    observer = {"Status": "ENABLED"}
    return {
        "Autoshift": {"Type": kind, "Condition": "WithAutoshift", "Properties": properties},
        "Observer": {
            "Type": "AWS::ARCZonalShift::AutoshiftObserverNotificationStatus",
            "Condition": "WithObserver",
            "Properties": observer,
        },
    }


def _outputs() -> Json:
    return {
        "RoleArn": {"Value": GetAtt("Role.Arn")},
        "QueueName": {"Condition": "BySqs", "Value": GetAtt("Queue.QueueName")},
        "TopicArn": {"Condition": "BySns", "Value": Ref("Topic")},
        "TableName": {"Condition": "WithTable", "Value": Ref("Table")},
        "OperatorPolicyArn": {"Value": Ref("OperatorPolicy")},
    }

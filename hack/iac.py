"""The interruption bus, its experiment and zonal shift as data; `make iam` writes what repeats it.

Placeholders: Partition, Region, Account, Name (the prefix of every name), Cluster, ClusterArn, QueueArn,
TopicArn, TableArn, RuleArn, RouterArn, ReplayRoleArn.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]
DAY = 86_400
STATES = ["stopping", "stopped", "shutting-down", "terminated"]
AUTOSHIFT_NAMES = ("Autoshift", "Practice Run", "FIS Experiment Autoshift", "Manual Shift")


def allow(sid: str, actions: list[str], resources: Any = "*", **conditions: Json) -> Json:
    found = {"Sid": sid, "Effect": "Allow", "Action": actions, "Resource": resources}
    return found | ({"Condition": conditions} if conditions else {})


def deny_http(resource: str) -> Json:
    return {
        "Sid": "DenyHTTP",
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:*",
        "Resource": resource,
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }


def deny_others(sid: str, resource: Any, principals: Any) -> Json:
    """No other principal may send, whatever its rights in the account; services must be allowed besides."""
    return {
        "Sid": sid,
        "Effect": "Deny",
        "Principal": "*",
        "Action": "sqs:SendMessage",
        "Resource": resource,
        "Condition": {
            "Bool": {"aws:PrincipalIsAWSService": "false"},
            "ArnNotLike": {"aws:PrincipalArn": principals},
        },
    }


def written_by(service: str, action: str, resource: Any, source: Any) -> Json:
    """A service may write to a resource, on behalf of these sources only."""
    return {
        "Sid": "Write",
        "Effect": "Allow",
        "Principal": {"Service": service},
        "Action": action,
        "Resource": resource,
        "Condition": {"ArnLike": {"aws:SourceArn": source}},
    }


def _pattern(source: str, kind: Any, **detail: Any) -> Json:
    found: Json = {"source": [source], "detail-type": kind if isinstance(kind, list) else [kind]}
    return found | ({"detail": detail} if detail else {})


def bus_rules() -> Json:
    """What comes into which lane; the optional ones are made on request."""
    health = {"service": ["EC2"], "eventTypeCategory": ["scheduledChange"]}
    ec2 = "aws.ec2"
    return {
        "SpotInterruption": {
            "lane": "urgent",
            "pattern": _pattern(ec2, "EC2 Spot Instance Interruption Warning"),
        },
        "CapacityReservation": {
            "lane": "urgent",
            "pattern": _pattern(ec2, "EC2 Capacity Reservation Instance Interruption Warning"),
        },
        "StateChange": {
            "lane": "bulk",
            "pattern": _pattern(ec2, "EC2 Instance State-change Notification", state=STATES),
        },
        "Rebalance": {"lane": "bulk", "pattern": _pattern(ec2, "EC2 Instance Rebalance Recommendation")},
        "ScheduledChange": {"lane": "bulk", "pattern": _pattern("aws.health", "AWS Health Event", **health)},
        "AutoscalingTerminate": {
            "lane": "urgent",
            "optional": "asg_terminate",
            "pattern": _pattern("aws.autoscaling", "EC2 Instance-terminate Lifecycle Action"),
        },
        "ZonalShift": {"lane": "urgent", "optional": "zonal_shift", "pattern": zonal_pattern()},
        "Canary": {
            "lane": "urgent",
            "optional": "canary",
            "pattern": {"source": ["dovetail.bus.canary"]},
        },
    }


def router_statements() -> list[Json]:
    """What the router does: with its queues, with the clusters', and with EC2."""
    queues = "arn:${Partition}:sqs:${Region}:${Account}:${Name}-"
    taking = ("ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility", "GetQueueAttributes")
    central = [f"{queues}{lane}" for lane in ("urgent", "bulk", "park", "dlq")]
    ours = {"aws:ResourceTag/dovetail.sh/bus": "true"}
    return [
        allow("AllowCentralQueues", [f"sqs:{each}" for each in taking], central[:2]),
        allow("AllowFindingQueues", ["sqs:GetQueueUrl"], central),
        allow("AllowParking", ["sqs:SendMessage"], f"{queues}park"),
        allow(
            "AllowClusterQueues", ["sqs:SendMessage"], "arn:${Partition}:sqs:${Region}:*:*", StringEquals=ours
        ),
        allow("AllowLookup", ["ec2:DescribeInstances"]),
    ]


def bus() -> Json:
    """The hub: queues, functions, rules, and who may do what."""
    queues = "arn:${Partition}:sqs:${Region}:${Account}:${Name}-"
    rules = [
        f"arn:${{Partition}}:events:${{Region}}:${{Account}}:rule/${{Name}}-{name}" for name in bus_rules()
    ]
    lanes = [f"{queues}urgent", f"{queues}bulk"]
    # Spokes write with a role of this name; a statement of the hub says of which accounts.
    writers = ["${ReplayRoleArn}", "arn:${Partition}:iam::*:role/${Name}-${Region}-writer"]
    table = ["dynamodb:Scan", "dynamodb:BatchGetItem"]
    return {
        "queues": {
            "urgent": {"visibility": 30, "retention": 4 * DAY, "receives": 10, "wait": 20},
            "bulk": {"visibility": 180, "retention": 4 * DAY, "receives": 5, "wait": 20},
            "park": {"retention": 14 * DAY},
            "dlq": {"retention": 14 * DAY},
        },
        "clusterQueue": {"visibility": 30, "retention": 3600, "wait": 20},
        "functions": {
            "urgent": {"timeout": 5, "batch": 100, "window": 1, "concurrency": 10},
            "bulk": {"timeout": 30, "batch": 1000, "window": 5, "concurrency": 10},
        },
        "runtime": {
            "handler": "dovetail.bus.handler.lambda_handler",
            "runtime": "python3.12",
            "architecture": "arm64",
            "memory": 256,
        },
        "retry": {"age": 3600, "attempts": 185},
        "rules": bus_rules(),
        "queuePolicy": [
            written_by("events.amazonaws.com", "sqs:SendMessage", [*lanes, f"{queues}dlq"], rules),
            deny_others("DenyOthers", lanes, writers),
            deny_others("DenyOtherLetters", [f"{queues}park", f"{queues}dlq"], "${RouterArn}"),
            deny_http(f"{queues}*"),
        ],
        "clusterQueuePolicy": [deny_http("${QueueArn}")],
        # Where the router's role is known, nobody else may write.
        "clusterQueueRouterPolicy": [
            {
                "Sid": "Router",
                "Effect": "Allow",
                "Principal": {"AWS": "${RouterArn}"},
                "Action": [
                    "sqs:SendMessage",
                    "sqs:GetQueueUrl",
                    "sqs:GetQueueAttributes",
                    "sqs:ListQueueTags",
                ],
                "Resource": "${QueueArn}",
            },
            deny_others("DenyOthers", "${QueueArn}", "${RouterArn}"),
        ],
        # Of those who give parked events and dead letters another chance.
        "replayPolicy": [
            allow("AllowFindingQueues", ["sqs:GetQueueUrl", "sqs:GetQueueAttributes"], f"{queues}*"),
            allow(
                "AllowTakingLetters",
                ["sqs:ReceiveMessage", "sqs:DeleteMessage"],
                [f"{queues}park", f"{queues}dlq"],
            ),
            allow("AllowReplaying", ["sqs:SendMessage"], lanes),
        ],
        "routerPolicy": router_statements(),
        "tablePolicy": [allow("AllowRegistry", table, "${TableArn}")],
        "canaryPolicy": [
            allow(
                "AllowCanary",
                ["events:PutEvents"],
                "arn:${Partition}:events:${Region}:${Account}:event-bus/default",
                StringEquals={"events:source": "dovetail.bus.canary"},
            )
        ],
        # Queues are found by their tags, which IAM cannot narrow down.
        "discoveryPolicy": [allow("AllowDiscovery", ["sqs:ListQueues", "sqs:ListQueueTags"])],
        "readerPolicy": [allow("AllowLookup", ["ec2:DescribeInstances"])],
        "dashboard": dashboard(),
        "alarms": {
            "UrgentAge": {"queue": "urgent", "metric": "ApproximateAgeOfOldestMessage", "over": 20},
            "BulkAge": {"queue": "bulk", "metric": "ApproximateAgeOfOldestMessage", "over": 300},
            "Parked": {"queue": "park", "metric": "ApproximateNumberOfMessagesVisible", "over": 0},
            "DeadLetters": {"queue": "dlq", "metric": "ApproximateNumberOfMessagesVisible", "over": 0},
        },
    }


def dashboard() -> Json:
    """How full and how old the queues are, and how the functions do."""

    def widget(title: str, at: int, metrics: list[list[str]], statistic: str) -> Json:
        properties = {
            "title": title,
            "region": "${Region}",
            "stat": statistic,
            "period": 60,
            "metrics": metrics,
        }
        return {"type": "metric", "x": at, "y": 0, "width": 8, "height": 6, "properties": properties}

    def of_queues(metric: str) -> list[list[str]]:
        lanes = ("urgent", "bulk", "park", "dlq")
        return [["AWS/SQS", metric, "QueueName", f"${{Name}}-{lane}"] for lane in lanes]

    errors = [["AWS/Lambda", "Errors", "FunctionName", f"${{Name}}-{lane}"] for lane in ("urgent", "bulk")]
    return {
        "widgets": [
            widget("Oldest message (s)", 0, of_queues("ApproximateAgeOfOldestMessage"), "Maximum"),
            widget("Messages", 8, of_queues("ApproximateNumberOfMessagesVisible"), "Maximum"),
            widget("Errors of functions", 16, errors, "Sum"),
        ]
    }


def experiment() -> Json:
    """Spot machines of a cluster are interrupted on purpose, to see that warnings find their way."""
    machines = "arn:${Partition}:ec2:${Region}:${Account}:instance/*"
    mark = "eks:eks-cluster-name"
    return {
        "action": "aws:ec2:send-spot-instance-interruptions",
        "kind": "aws:ec2:spot-instance",
        "mark": mark,
        "policy": [
            allow(
                "AllowInterrupting",
                ["ec2:SendSpotInstanceInterruptions"],
                machines,
                StringEquals={f"aws:ResourceTag/{mark}": "${Cluster}"},
            ),
            allow("AllowFinding", ["ec2:DescribeInstances"]),
        ],
        "trust": [
            {
                "Effect": "Allow",
                "Principal": {"Service": "fis.amazonaws.com"},
                "Action": ["sts:AssumeRole"],
                "Condition": {"StringEquals": {"aws:SourceAccount": "${Account}"}},
            }
        ],
    }


def zonal_pattern() -> Json:
    return _pattern("aws.arc-zonal-shift", [{"prefix": each} for each in AUTOSHIFT_NAMES])


def zonal() -> Json:
    """How zonal shifts reach the controller, and what it may ask about them."""
    asked = {"arc-zonal-shift:ResourceIdentifier": "${ClusterArn}"}
    lists = ("ListAutoshifts", "ListZonalShifts", "ListManagedResources")
    taking = (
        "ReceiveMessage",
        "DeleteMessage",
        "ChangeMessageVisibility",
        "GetQueueUrl",
        "GetQueueAttributes",
    )
    keeping = ("GetItem", "PutItem", "UpdateItem", "DeleteItem", "Query")
    discovery = ["ec2:DescribeSubnets", "ec2:DescribeAvailabilityZones"]
    return {
        "pattern": zonal_pattern(),
        "queue": {"visibility": 60, "retention": 4 * DAY, "receives": 5, "wait": 20},
        "letters": {"retention": 14 * DAY},
        "retry": {"age": 3600, "attempts": 185},
        "topic": {"retries": 20, "least": 1, "most": 600, "ceiling": 3600},
        "policy": [
            allow("AllowShiftStatus", ["arc-zonal-shift:GetManagedResource"], StringEquals=asked),
            allow("AllowShiftLists", [f"arc-zonal-shift:{each}" for each in lists]),
            allow("AllowClusterDiscovery", ["eks:DescribeCluster"], "${ClusterArn}"),
            allow("AllowZoneDiscovery", discovery),
        ],
        "observerPolicy": [
            allow("AllowObserver", ["arc-zonal-shift:GetAutoshiftObserverNotificationStatus"])
        ],
        "sqsPolicy": [allow("AllowSignals", [f"sqs:{each}" for each in taking], "${QueueArn}")],
        "snsPolicy": [allow("AllowSubscribing", ["sns:Subscribe", "sns:ConfirmSubscription"], "${TopicArn}")],
        "tablePolicy": [allow("AllowLedger", [f"dynamodb:{each}" for each in keeping], "${TableArn}")],
        "operatorPolicy": [
            allow(
                "AllowShifting",
                [
                    f"arc-zonal-shift:{each}"
                    for each in (
                        "StartZonalShift",
                        "UpdateZonalShift",
                        "CancelZonalShift",
                        "StartPracticeRun",
                        "CancelPracticeRun",
                    )
                ],
                "*",
                StringEquals=asked,
            )
        ],
        "queuePolicy": [
            written_by("events.amazonaws.com", "sqs:SendMessage", "${QueueArn}", "${RuleArn}"),
            deny_http("${QueueArn}"),
        ],
        "topicPolicy": [written_by("events.amazonaws.com", "sns:Publish", "${TopicArn}", "${RuleArn}")],
    }

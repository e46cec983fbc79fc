"""The router with the permissions of its stack, and a hub whose rules really feed it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from dovetail.aws import AwsDenied
from dovetail.bus.config import read_config
from dovetail.bus.handler import RouterFunction
from dovetail.bus.operator_tools import examine_setup
from dovetail.bus.ports import BusTally, RouterContext
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.messaging.eventbridge import EventRule
from dovetail.sim.clock import VirtualClock
from support.aws import CLUSTER, fleet, launched, simulated, template
from support.deployed_stack import Watched
from support.stacks import Place, hub_queue_policy, loaded, resolved
from support.stage import virtual

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
PLACE = Place("aws", "us-west-2", "111122223333", Name="dovetail-bus")
DENIED = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")


def stack() -> Mapping[str, Json]:
    text = (ROOT / "deploy" / "cloudformation" / "interruption-bus.yaml").read_text()
    found: Mapping[str, Json] = loaded(text)["Resources"]
    return found


def built(clock: VirtualClock) -> SimulatedAws:
    """An account with the hub's queues and rules, as the template has them."""
    aws = simulated(clock)
    for each in stack().values():
        given = each["Properties"]
        if each["Type"] == "AWS::SQS::Queue":
            wanted = ("VisibilityTimeout", "MessageRetentionPeriod", "ReceiveMessageWaitTimeSeconds")
            told = {name: str(given[name]) for name in wanted if name in given}
            if "RedrivePolicy" in given:
                letters = f"{aws.region}:{aws.account}:dovetail-bus-dlq"
                receives = given["RedrivePolicy"]["maxReceiveCount"]
                redrive = {"deadLetterTargetArn": f"arn:aws:sqs:{letters}", "maxReceiveCount": receives}
                told["RedrivePolicy"] = json.dumps(redrive)
            told["Policy"] = hub_queue_policy(dict(stack()), PLACE)
            aws.queues.add(resolved(given["QueueName"], PLACE), told)
    for each in stack().values():
        if each["Type"] == "AWS::Events::Rule" and "Condition" not in each:
            name = resolved(each["Properties"]["Name"], PLACE)
            (target,) = each["Properties"]["Targets"]
            lane = target["Arn"]["Fn::GetAtt"][0].removesuffix("Queue").lower()
            arn = f"arn:aws:sqs:us-west-2:111122223333:dovetail-bus-{lane}"
            made = EventRule(name, f"arn:aws:events:us-west-2:111122223333:rule/{name}")
            dead = {"Arn": "arn:aws:sqs:us-west-2:111122223333:dovetail-bus-dlq"}
            made.pattern = each["Properties"]["EventPattern"]
            made.targets = {"Router": {**target, "Arn": arn, "DeadLetterConfig": dead}}
            aws.buses.by_name["default"].rules[name] = made
    return aws


def documents() -> list[Json]:
    routing, discovery, *_ = stack()["RouterRole"]["Properties"]["Policies"]
    found = [resolved(each["PolicyDocument"], PLACE) for each in (routing, discovery)]
    return [json.loads(each) if isinstance(each, str) else each for each in found]


def records(aws: SimulatedAws, lane: str) -> Json:
    queue = aws.queues.by_name[f"dovetail-bus-{lane}"]
    return {
        "Records": [
            {
                "messageId": each.id,
                "receiptHandle": each.handle,
                "body": each.body,
                "attributes": {"SentTimestamp": "0", "ApproximateReceiveCount": "1", "SenderId": "AIDA"},
                "messageAttributes": {},
                "eventSource": "aws:sqs",
                "eventSourceARN": queue.arn,
            }
            for each in queue.receive_messages(10)
        ]
    }


@virtual
async def test_a_warning_finds_its_cluster_with_the_routers_permissions() -> None:
    clock = VirtualClock()
    aws = built(clock)
    tags = {"dovetail.sh/bus": "true", "dovetail.sh/cluster": CLUSTER}
    mine = aws.queues.add(CLUSTER, {}, tags)
    await template(aws)
    (machine,) = launched(await fleet(aws, way="spot", tags={"eks:eks-cluster-name": CLUSTER}))
    await clock.sleep(30)
    aws.rebalance(machine)
    aws.reclaim(machine)
    await clock.sleep(5)
    variables = {
        name: resolved(value, PLACE)
        for name, value in stack()["UrgentFunction"]["Properties"]["Environment"]["Variables"].items()
        if name not in ("DOVETAIL_BUS_REGISTRY_DYNAMODB", "DOVETAIL_BUS_DESTINATIONS")
    }
    config = read_config({}, {**variables, "DOVETAIL_BUS_DESTINATIONS": "[]"})
    watched = Watched(documents())
    aws.principal = watched  # type: ignore[assignment]  # judges as a Principal does
    function = RouterFunction(RouterContext(config, aws, clock, BusTally(), Random(1)))
    failed = [await function.handle_call(records(aws, lane), 30.0) for lane in ("urgent", "bulk")]
    aws.principal = None

    assert failed == [{"batchItemFailures": []}] * 2
    assert not {call.action for call in aws.calls if call.code in DENIED}
    kinds = {json.loads(each.body)["detail-type"] for each in mine.receive_messages(10)}
    assert kinds >= {"EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"}
    # Receiving and deleting is the mapping's work, done with the function's role; parking had no occasion.
    assert {sid for sid, _ in watched.used} == {
        "AllowCentralQueues",  # their policies are looked at
        "AllowFindingQueues",
        "AllowClusterQueues",
        "AllowLookup",
        "AllowDiscovery",
    }


@virtual
async def test_the_doctor_finds_nothing_wrong_with_the_hub() -> None:
    aws = built(VirtualClock())
    config = read_config({"bus": {"region": "us-west-2"}}, {})

    found = await examine_setup(aws, config, config.registry)
    about = [each for each in found if each.problem and each.subject.startswith(("queue", "rule"))]
    assert about == []


@virtual
async def test_a_queue_without_the_tag_is_out_of_reach() -> None:
    clock = VirtualClock()
    aws = built(clock)
    aws.queues.add("tagged", {}, {"dovetail.sh/bus": "true"})
    aws.queues.add("other")
    aws.principal = Watched(documents())  # type: ignore[assignment]  # judges as a Principal does
    allowed = {}
    for name in ("tagged", "other"):
        url = f"https://sqs.us-west-2.amazonaws.com/111122223333/{name}"
        try:
            await aws.call("sqs", "SendMessage", {"QueueUrl": url, "MessageBody": "{}"})
            allowed[name] = True
        except AwsDenied:
            allowed[name] = False

    assert allowed == {"tagged": True, "other": False}

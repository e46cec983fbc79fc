"""Forging an event: who may write to which queue of the bus, by every kit's policies, judged as IAM does."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dovetail.bus.queues import denies_others
from dovetail.sim.aws.iam.permissions import Need, Principal
from support.stacks import Place, loaded, resolved

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
ACCOUNT, REGION, OTHER = "111122223333", "us-west-2", "444455556666"
AT = f"{REGION}:{ACCOUNT}"
ROUTER = f"arn:aws:iam::{ACCOUNT}:role/router"
QUEUES = {lane: f"arn:aws:sqs:{AT}:dovetail-bus-{lane}" for lane in ("urgent", "bulk", "park", "dlq")}


@dataclass(frozen=True)
class Sender:
    """Somebody who sends; `rights` are those of its own policies, where it has any in this account."""

    context: Mapping[str, str]
    service: str = ""
    account: str = ACCOUNT
    rights: bool = True
    more: Mapping[str, str] = field(default_factory=dict)


def role(name: str, account: str = ACCOUNT) -> Sender:
    arn = f"arn:aws:iam::{account}:role/{name}"
    return Sender(
        {
            "aws:PrincipalArn": arn,
            "aws:PrincipalIsAWSService": "false",
            "aws:PrincipalOrgID": "o-1234567890",
            "aws:SecureTransport": "true",
        },
        account=account,
    )


def rule(name: str, account: str = ACCOUNT) -> Sender:
    source = f"arn:aws:events:{REGION}:{account}:rule/{name}"
    told = {"aws:SourceArn": source, "aws:PrincipalIsAWSService": "true", "aws:SecureTransport": "true"}
    return Sender(told, service="events.amazonaws.com", account="", rights=False)


def may_send(policy: Json, sender: Sender, queue: str) -> bool:
    """As IAM judges: a deny wins; a service and another account need the queue's own permission."""
    need = Need("sqs:SendMessage", queue, sender.context)
    spoken = [each for each in policy["Statement"] if _meant(each["Principal"], sender)]
    if any(each["Effect"] == "Deny" and _applies(each, need) for each in spoken):
        return False
    allowed = any(each["Effect"] == "Allow" and _applies(each, need) for each in spoken)
    return allowed or (sender.rights and sender.account == ACCOUNT)


def _applies(statement: Json, need: Need) -> bool:
    return Principal("", ({"Statement": [statement | {"Effect": "Allow"}]},)).evaluate_need(need).allowed


def _meant(principal: Any, sender: Sender) -> bool:
    if principal == "*":
        return True
    if "Service" in principal:
        return bool(sender.service) and sender.service in principal["Service"]
    return bool(sender.context.get("aws:PrincipalArn") == principal.get("AWS"))


def hub_policies() -> dict[str, Json]:
    """The hub's queue policy, as each kit has it."""
    place = Place(
        "aws", REGION, ACCOUNT, Name="dovetail-bus", **{"RouterRole.Arn": ROUTER, "ReplayRoleArn": ""}
    )
    found = {}
    for kit, folder in (("cloudformation", "deploy/cloudformation"), ("cdk", "src/dovetail_cdk")):
        made = loaded((ROOT / folder / "interruption-bus.yaml").read_text())["Resources"]["QueuePolicy"]
        text, more = made["Properties"]["PolicyDocument"]["Fn::Sub"]
        replayers = resolved(more["ReplayRoleArn"]["Fn::If"][2], place)
        found[kit] = json.loads(resolved({"Fn::Sub": text}, _with(place, ReplayRoleArn=replayers)))
    text = json.dumps(
        json.loads((ROOT / "deploy/terraform/documents/documents.json").read_text())["bus"]["queuePolicy"]
    )
    told = {
        "Partition": "aws",
        "Region": REGION,
        "Account": ACCOUNT,
        "Name": "dovetail-bus",
        "RouterArn": ROUTER,
        "ReplayRoleArn": f"arn:aws:iam::{ACCOUNT}:role/dovetail-bus-replay",
    }
    for name, value in told.items():
        text = text.replace(f"${{{name}}}", value)
    found["terraform"] = {"Statement": json.loads(text)}
    return found


def _with(place: Place, **more: str) -> Place:
    return Place("aws", REGION, ACCOUNT, Name="dovetail-bus", **{"RouterRole.Arn": ROUTER, **more})


KITS = hub_policies()


@pytest.mark.parametrize("kit", KITS)
def test_rules_of_the_hub_write_to_its_lanes_and_dead_letters(kit: str) -> None:
    for name in ("SpotInterruption", "ScheduledChange"):
        sender = rule(f"dovetail-bus-{name}")
        assert {lane for lane, arn in QUEUES.items() if may_send(KITS[kit], sender, arn)} == {
            "urgent",
            "bulk",
            "dlq",
        }
    assert {lane for lane, arn in QUEUES.items() if may_send(KITS[kit], role("router"), arn)} == {
        "park",
        "dlq",
    }
    replayer = role("dovetail-bus-replay")
    assert {lane for lane, arn in QUEUES.items() if may_send(KITS[kit], replayer, arn)} == {"urgent", "bulk"}


@pytest.mark.parametrize("lane", QUEUES)
@pytest.mark.parametrize("kit", KITS)
@pytest.mark.parametrize(
    "forger",
    [
        role("admin"),  # with every right in the account
        role("shop-pods"),
        role("anybody", OTHER),  # of the same organization
        role("dovetail-bus-us-west-2-writer", OTHER),  # a spoke that the hub does not name
        rule("somebody-elses"),
        rule("dovetail-bus-Other"),
        rule("dovetail-bus-SpotInterruption", OTHER),
    ],
    ids=lambda each: next(iter(each.context.values())),
)
def test_nobody_else_writes_to_any_queue_of_the_hub(kit: str, lane: str, forger: Sender) -> None:
    assert not may_send(KITS[kit], forger, QUEUES[lane])


@pytest.mark.parametrize("kit", KITS)
def test_the_router_sees_that_its_queues_are_closed(kit: str) -> None:
    assert denies_others(json.dumps(KITS[kit]))


def test_spokes_of_terraform_are_let_in_by_their_one_role_and_only_to_the_lanes() -> None:
    text = (ROOT / "deploy/terraform/interruption-bus/main.tf").read_text()
    statement = text[
        text.index('sid       = "WriteFromSpokes"') : text.index('resource "aws_sqs_queue_policy"')
    ]

    assert 'variable = "aws:PrincipalArn"' in statement
    assert "for lane in local.lanes" in statement
    assert "-*" not in statement


def test_a_queue_that_names_its_router_takes_from_nobody_else() -> None:
    template = loaded((ROOT / "deploy/cloudformation/interruption-bus-cluster.yaml").read_text())
    document = template["Resources"]["QueuePolicy"]["Properties"]["PolicyDocument"]["Fn::If"][1]
    queue = f"arn:aws:sqs:{AT}:shop"
    place = Place("aws", REGION, ACCOUNT, RouterRoleArn=ROUTER, **{"Queue.Arn": queue})
    policy = json.loads(resolved(document, place))

    assert may_send(policy, role("router"), queue)
    for forger in (role("admin"), role("router", OTHER), rule("dovetail-bus-SpotInterruption")):
        assert not may_send(policy, forger, queue)


def test_a_clusters_own_queue_takes_from_its_five_rules_alone() -> None:
    resources = loaded((ROOT / "deploy/cloudformation/dovetail.yaml").read_text())["Resources"]
    document = resources["KarpenterInterruptionQueuePolicy"]["Properties"]["PolicyDocument"]
    writing = document["Statement"][0]

    assert writing["Principal"] == {"Service": "events.amazonaws.com"}
    sources = {each["Fn::GetAtt"][0] for each in writing["Condition"]["ArnLike"]["aws:SourceArn"]}
    assert sources == {name for name, each in resources.items() if each["Type"] == "AWS::Events::Rule"}


def test_another_cluster_needs_only_a_queue_and_its_tags_register_it() -> None:
    template = loaded((ROOT / "deploy/cloudformation/interruption-bus-cluster.yaml").read_text())
    queue = template["Resources"]["Queue"]["Properties"]

    assert {each["Key"]: each["Value"] for each in queue["Tags"]} == {
        "dovetail.sh/bus": "true",
        "dovetail.sh/cluster": {"Ref": "ClusterName"},
    }
    assert set(template["Parameters"]) == {"ClusterName", "QueueName", "RouterRoleArn"}
    assert "Default" not in template["Parameters"]["ClusterName"]
    assert len(template["Resources"]) == 2

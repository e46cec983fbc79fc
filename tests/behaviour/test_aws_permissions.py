"""The controller does all its work with the permissions it is installed with, and with no others.

The policies are those of deploy/iam. The simulated AWS asks them about every action on every resource, with
tags and conditions, as IAM would.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.commitment import Commitment
from dovetail.api.crds import build_own_manifest
from dovetail.history.log_parts import list_records, split_lines
from dovetail.history.record import DecisionRecord, RecordKind
from dovetail.providers.aws.decision_log import LogBucket, S3Log
from dovetail.runtime.decision_log import run_inline
from dovetail.sim.aws.iam.permissions import Principal
from support.aws import CLUSTER
from support.aws_world import CLASSES, POOLS, AwsWorld
from support.commitments import COMMITMENTS
from support.decision_logs import build_lane, lead
from support.ec2_instances import QUEUE
from support.stage import virtual

Json = dict[str, Any]
POLICIES = Path(__file__).parents[2] / "deploy" / "iam" / "controller.json"
ACCOUNT_ROLE = f"KarpenterNodeRole-{CLUSTER}"
DENIED = {"UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure"}
TYPES = ("m5.large", "m5.xlarge", "c5.large")
# Granted, and not needed here: the tags of a profile are given when it is made; shifts are read with
# ENABLE_ZONAL_SHIFT alone.
UNUSED = {"iam:TagInstanceProfile", "arc-zonal-shift:GetManagedResource"}


def granted(aws: Any, *more: str) -> list[Json]:
    """The statements of the policies, and of those that are granted if asked for, for this account."""
    filled = {
        "Partition": "aws",
        "Region": aws.region,
        "Account": aws.account,
        "Cluster": CLUSTER,
        "NodeRoleArn": f"arn:aws:iam::{aws.account}:role/{ACCOUNT_ROLE}",
        "QueueArn": f"arn:aws:sqs:{aws.region}:{aws.account}:{QUEUE}",
        "RuleArn": f"arn:aws:events:{aws.region}:{aws.account}:rule/*",
        "ClusterArn": f"arn:aws:eks:{aws.region}:{aws.account}:cluster/{CLUSTER}",
        "RecordingBucketArn": "arn:aws:s3:::tape",
        "RecordingFolder": "prod/",
        "LogBucketArn": "arn:aws:s3:::trail",
        "LogFolder": f"prod/{CLUSTER}/",
        "TopicArn": f"arn:aws:sns:{aws.region}:{aws.account}:told",
        "BusArn": f"arn:aws:events:{aws.region}:{aws.account}:event-bus/told",
    }
    text = POLICIES.read_text(encoding="utf-8")
    for name, value in filled.items():
        text = text.replace("${" + name + "}", value)
    assert "${" not in text
    told = json.loads(text)
    policies = [*told["policies"].values(), *(told[name] for name in more)]
    return [statement for policy in policies for statement in policy]


def principal(aws: Any, statements: list[Json]) -> Principal:
    return Principal(
        f"arn:aws:iam::{aws.account}:role/KarpenterController-{CLUSTER}", [{"Statement": statements}]
    )


def actions(statements: list[Json]) -> set[str]:
    def each() -> Iterator[str]:
        for statement in statements:
            named = statement["Action"]
            yield from [named] if isinstance(named, str) else named

    return set(each())


def refused(world: AwsWorld) -> set[tuple[str, str]]:
    return {(call.action, call.code) for call in world.aws.calls if call.code in DENIED}


async def everything(world: AwsWorld) -> None:
    """From the first class to the last profile: launches of every kind, and all that befalls machines."""
    aws = world.aws
    reservation = aws.reservations.add("c5.large", "us-west-2a", 1, {"for": CLUSTER})
    aws.placement_groups.add("apart", "spread")
    class_spec = {
        "capacityReservationSelectorTerms": [{"id": reservation.id}],
        "placementGroupSelector": {"name": "apart"},
        "tags": {"team": "blue"},
    }
    ways = {
        "key": labels.CAPACITY_TYPE,
        "operator": "In",
        "values": ["reserved", "spot", "on-demand"],
    }
    world.default(node_class=class_spec, requirements=[ways])
    world.pods(3, cpu="1500m")
    await world.until(lambda: world.placed() == 3 and world.ready() == len(world.claims), within=600)
    spot = {"key": labels.CAPACITY_TYPE, "operator": "In", "values": ["spot"]}
    world.api.patch(POOLS, "default", {"spec": {"template": {"spec": {"requirements": [spot]}}}})
    world.pods(2, name="more", cpu="1500m")
    await world.until(lambda: world.placed() == 5 and world.ready() == len(world.claims), within=900)
    await asyncio.sleep(60)  # names are put on machines
    aws.reclaim(next(each.id for each in aws.list_running() if each.capacity_type == "spot"))
    aws.retire(aws.list_running()[-1].id, starts=timedelta(days=1))
    await asyncio.sleep(300)
    await world.until(lambda: world.placed() == 5 and world.ready() == len(world.claims), within=900)
    await asyncio.sleep(1900)  # parameters are looked at again
    world.scale(0)
    world.scale(0, "more")
    await world.until(lambda: not world.claims and not world.aws.list_running(), within=1200)
    world.api.delete(CLASSES, "default")
    await world.until(lambda: not world.listed(CLASSES), within=120)
    await asyncio.sleep(180)  # templates are swept


@virtual
async def test_everything_the_controller_does_is_allowed_and_nearly_everything_allowed_is_done() -> None:
    world = AwsWorld(0, f"--interruption-queue={QUEUE}", types=TYPES)
    world.aws.add_interruption_queue(QUEUE)
    statements = granted(world.aws)
    world.aws.principal = principal(world.aws, statements)
    async with world.running():
        await everything(world)
        assert refused(world) == set()
        assert actions(statements) - world.aws.actions == UNUSED
        assert not world.aws.templates.by_id
        assert not world.aws.iam.profiles


@virtual
async def test_a_decision_log_in_s3_needs_what_its_policy_grants_and_reads_back_what_was_written() -> None:
    world = AwsWorld(0, "--decision-log=s3://trail/prod", types=TYPES)
    kept = world.aws.add_bucket("trail")
    bucket = LogBucket(world.aws, "trail", f"prod/{CLUSTER}/")
    async with lead([build_lane(S3Log(bucket, world.clock, run_inline), world.clock)], world.clock) as writer:
        writer.note(3)
    before = len(kept)
    world.aws.actions.clear()
    statements = granted(world.aws, "decisionLogPolicy")
    world.aws.principal = principal(world.aws, statements)
    async with world.running():
        world.default()
        world.pods(2, cpu="1500m")
        await world.until(lambda: world.placed() == 2, within=600)
        await asyncio.sleep(400)
        assert refused(world) == set()
    assert {each for each in world.aws.actions if each.startswith("s3:")} == {
        each for each in actions(statements) if each.startswith("s3:")
    }
    assert len(kept) > before
    found = [record async for record in _list_kept(bucket)]
    terms = [record for record in found if record.kind is RecordKind.TERM_BEGAN]
    assert len(terms) == 2
    assert "with what was read back" in terms[1].message
    assert terms[1].prev


SINKS = """apiVersion: dovetail.sh/v1alpha1
kind: Notify
sinks:
- {{name: topic, to: "sns:arn:aws:sns:{at}:told"}}
- {{name: bus, to: "eventbridge:arn:aws:events:{at}:event-bus/told"}}
"""


@pytest.fixture
def sinks(tmp_path: Path) -> Path:
    """A file of sinks in AWS."""
    file = tmp_path / "notify.yaml"
    file.write_text(SINKS.format(at="us-west-2:111122223333"))
    return file


async def tell_of_a_node(file: Path, *more: str) -> tuple[AwsWorld, list[Json]]:
    """A node is bought with the rights that are granted, and the sinks in AWS are to hear of it."""
    world = AwsWorld(0, f"--notify-file={file}", types=TYPES)
    await world.aws.call("sns", "CreateTopic", {"Name": "told"})
    await world.aws.call("events", "CreateEventBus", {"Name": "told"})
    world.aws.actions.clear()
    statements = granted(world.aws, *more)
    world.aws.principal = principal(world.aws, statements)
    async with world.running():
        world.default()
        world.pods(1, cpu="1500m")
        await world.until(lambda: world.placed() == 1 and world.ready() == 1, within=600)
        await asyncio.sleep(30)
    return world, statements


@virtual
async def test_sinks_in_aws_need_what_their_policy_grants(sinks: Path) -> None:
    world, statements = await tell_of_a_node(sinks, "notificationPolicy")
    assert refused(world) == set()
    used = {each for each in world.aws.actions if each.startswith(("sns:", "events:"))}
    assert used == {"sns:Publish", "events:PutEvents"}
    assert used == {each for each in actions(statements) if each.startswith(("sns:", "events:"))}


@virtual
async def test_without_that_policy_the_sinks_hear_nothing_and_the_node_is_bought(sinks: Path) -> None:
    world, _ = await tell_of_a_node(sinks)
    assert {action for action, _ in refused(world)} == {"sns:Publish", "events:PutEvents"}


@virtual
async def test_a_recording_in_s3_needs_what_its_policy_grants() -> None:
    world = AwsWorld(0, "--recording=s3://tape/prod", types=TYPES)
    kept = world.aws.add_bucket("tape")
    statements = granted(world.aws, "recordingPolicy")
    world.aws.principal = principal(world.aws, statements)
    world.aws.actions.clear()
    async with world.running():
        world.default()
        world.pods(2, cpu="1500m")
        await world.until(lambda: world.placed() == 2, within=600)
        # A put whose answer is lost costs a gap; the client that tries again reads what is there instead.
        world.aws.faults.lose_answers("s3:PutObject", 1)
        await asyncio.sleep(4000)
        assert refused(world) == set()
    assert {each for each in world.aws.actions if each.startswith("s3:")} <= {
        each for each in actions(statements) if each.startswith("s3:")
    }
    assert len({key.split("/")[1] for key in kept}) >= 2
    assert all(key.startswith("prod/") for key in kept)


COMMITTED = {
    "savingsplans:DescribeSavingsPlans",
    "savingsplans:DescribeSavingsPlanRates",
    "ec2:DescribeReservedInstances",
}


async def look_at_commitments(*policies: str) -> tuple[AwsWorld, list[Json]]:
    """A world that mirrors commitments, one of them to be observed, and the statements it may go by."""
    world = AwsWorld(0, "--commitments=Follow", types=TYPES)
    world.api.create("customresourcedefinitions.apiextensions.k8s.io", build_own_manifest(Commitment))
    name = f"aws-sp-{world.aws.savings_plans.add('0.50').id}"
    world.aws.reserved_instances.add("m5.large", 1)
    statements = granted(world.aws, *policies)
    world.aws.principal = principal(world.aws, statements)
    async with world.running():
        world.default()
        world.pods(2, cpu="1500m")
        await world.until(lambda: world.placed() == 2, within=600)
        listed = {each["metadata"]["name"] for each in world.listed(COMMITMENTS)}
        if name in listed:
            world.api.patch(COMMITMENTS, name, {"spec": {"observe": "Account"}})
        await asyncio.sleep(400)
    return world, statements


@virtual
async def test_mirroring_commitments_needs_what_its_policy_grants() -> None:
    world, statements = await look_at_commitments("commitmentPolicy")
    assert refused(world) == set()
    assert {each for each in actions(statements) if each in COMMITTED} == COMMITTED
    assert world.aws.actions >= COMMITTED
    assert len(world.listed(COMMITMENTS)) == 2
    found = next(each for each in world.listed(COMMITMENTS) if each["spec"]["kind"] == "ComputePlan")
    assert found["status"]["byOthers"] == "0.0000"  # counted, by a right that every controller has
    assert {each["type"] for each in found["status"]["conditions"]} == {"Current", "Full", "Used"}


@pytest.mark.spec("CM-9")
@virtual
async def test_without_that_policy_a_condition_names_the_rights_and_nodes_are_bought() -> None:
    world, statements = await look_at_commitments()
    assert not COMMITTED & actions(statements)
    assert {action for action, _ in refused(world)} == COMMITTED - {"savingsplans:DescribeSavingsPlanRates"}
    (told,) = world.listed(COMMITMENTS)
    (current,) = (each for each in told["status"]["conditions"] if each["type"] == "Current")
    assert (told["metadata"]["name"], current["status"], current["reason"]) == (
        "aws-denied",
        "False",
        "Denied",
    )
    assert "ec2:DescribeReservedInstances and savingsplans:DescribeSavingsPlans" in current["message"]


async def _list_kept(bucket: LogBucket) -> AsyncIterator[DecisionRecord]:
    for part in await bucket.list_parts():
        for record in list_records(split_lines(await bucket.read_part(part))):
            yield record


def without(statements: list[Json], sid: str) -> list[Json]:
    left = [each for each in statements if each["Sid"] != sid]
    assert len(left) == len(statements) - 1
    return left


@pytest.mark.parametrize(
    ("sid", "missed"),
    [
        ("AllowScopedResourceTagging", "ec2:CreateTags"),
        ("AllowInterruptionQueueActions", "sqs:GetQueueUrl"),
        ("AllowPassingInstanceRole", "iam:AddRoleToInstanceProfile"),
    ],
)
def test_a_statement_that_is_taken_away_is_missed(sid: str, missed: str) -> None:
    @virtual
    async def story() -> None:
        world = AwsWorld(0, f"--interruption-queue={QUEUE}", types=TYPES)
        world.aws.add_interruption_queue(QUEUE)
        world.aws.principal = principal(world.aws, without(granted(world.aws), sid))
        async with world.running():
            world.default()
            world.pods(1, cpu="1")
            await asyncio.sleep(150)
            assert {action for action, _ in refused(world)} == {missed}

    story()

"""What kits make of an account beside the controller's own things: who is let in, alarms, zonal shift."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import boto3
import pytest

from dovetail.aws import AwsAbsent, AwsError
from dovetail.sim.aws.wire.query_protocol import decode_cbor, encode_cbor
from support.aws import CLUSTER
from support.aws_clients import DOORS, SESSION, Door, opened
from support.stacks import loaded

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
NODES = f"arn:aws:iam::111122223333:role/KarpenterNodeRole-{CLUSTER}"
HERE = {"clusterName": CLUSTER}


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with opened(request.param) as found:
        yield found


async def test_nodes_are_let_in_by_an_entry(door: Door) -> None:
    asked = {**HERE, "principalArn": NODES}
    await door.aws.call("eks", "CreateAccessEntry", {**asked, "type": "EC2_LINUX", "tags": {"a": "b"}})
    with pytest.raises(AwsError) as twice:
        await door.aws.call("eks", "CreateAccessEntry", asked)
    found = (await door.aws.call("eks", "DescribeAccessEntry", asked))["accessEntry"]
    arn = {"resourceArn": found["accessEntryArn"]}
    await door.aws.call("eks", "TagResource", {**arn, "tags": {"c": "d"}})
    await door.aws.call("eks", "UntagResource", {**arn, "tagKeys": ["a"]})

    assert twice.value.code == "ResourceInUseException"
    assert found["kubernetesGroups"] == ["system:nodes"]
    assert (await door.aws.call("eks", "ListAccessEntries", HERE))["accessEntries"] == [NODES]
    assert (await door.aws.call("eks", "ListTagsForResource", arn))["tags"] == {"c": "d"}
    await door.aws.call("eks", "DeleteAccessEntry", asked)
    with pytest.raises(AwsAbsent):
        await door.aws.call("eks", "DescribeAccessEntry", asked)


async def test_pods_act_in_a_role_by_an_association(door: Door) -> None:
    whose = {"namespace": "kube-system", "serviceAccount": "karpenter"}
    made = await door.aws.call("eks", "CreatePodIdentityAssociation", {**HERE, **whose, "roleArn": NODES})
    with pytest.raises(AwsError, match="already exists"):
        await door.aws.call("eks", "CreatePodIdentityAssociation", {**HERE, **whose, "roleArn": NODES})
    named = {**HERE, "associationId": made["association"]["associationId"]}
    await door.aws.call("eks", "UpdatePodIdentityAssociation", {**named, "roleArn": f"{NODES}-2"})
    found = (await door.aws.call("eks", "DescribePodIdentityAssociation", named))["association"]
    listed = await door.aws.call("eks", "ListPodIdentityAssociations", {**HERE, "namespace": "kube-system"})

    assert found["roleArn"] == f"{NODES}-2"
    assert [each["serviceAccount"] for each in listed["associations"]] == ["karpenter"]
    await door.aws.call("eks", "DeletePodIdentityAssociation", named)
    with pytest.raises(AwsAbsent):
        await door.aws.call("eks", "DescribePodIdentityAssociation", named)


async def test_alarms_and_dashboards_are_kept(door: Door) -> None:
    alarm = {
        "AlarmName": "old",
        "Namespace": "AWS/SQS",
        "MetricName": "ApproximateAgeOfOldestMessage",
        "Dimensions": [{"Name": "QueueName", "Value": "q"}],
        "Statistic": "Maximum",
        "Period": 60,
        "EvaluationPeriods": 1,
        "Threshold": 20.5,
        "ComparisonOperator": "GreaterThanThreshold",
    }
    await door.aws.call("cloudwatch", "PutMetricAlarm", {**alarm, "Tags": [{"Key": "a", "Value": "b"}]})
    (found,) = (await door.aws.call("cloudwatch", "DescribeAlarms", {"AlarmNames": ["old"]}))["MetricAlarms"]
    arn = {"ResourceARN": found["AlarmArn"]}
    await door.aws.call("cloudwatch", "PutDashboard", {"DashboardName": "d", "DashboardBody": "{}"})
    shown = await door.aws.call("cloudwatch", "GetDashboard", {"DashboardName": "d"})

    assert alarm.items() <= found.items()
    assert found["StateUpdatedTimestamp"].tzinfo is not None
    tags = (await door.aws.call("cloudwatch", "ListTagsForResource", arn))["Tags"]
    assert tags == [{"Key": "a", "Value": "b"}]
    assert shown["DashboardBody"] == "{}"
    await door.aws.call("cloudwatch", "DeleteAlarms", {"AlarmNames": ["old"]})
    await door.aws.call("cloudwatch", "DeleteDashboards", {"DashboardNames": ["d"]})
    assert (await door.aws.call("cloudwatch", "DescribeAlarms", {}))["MetricAlarms"] == []
    with pytest.raises(AwsError, match="does not exist"):
        await door.aws.call("cloudwatch", "GetDashboard", {"DashboardName": "d"})


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": [0, 23, 24, 255, 256, 65_536, 2**40, -1, -500], "b": 1.5, "c": True, "d": "ü" * 300},
        {"when": datetime(2026, 2, 3, 10, tzinfo=UTC), "bytes": b"\x00\xff", "deep": [{"x": [False]}]},
    ],
    ids=["empty", "numbers", "moments"],
)
def test_a_binary_document_is_read_as_it_was_written(value: Json) -> None:
    assert decode_cbor(encode_cbor(value)) == value


def test_pieces_without_a_size_are_read_and_cut_documents_refused() -> None:
    # {_ "a": [_ 1, null], "b": (_ "x", "y")}, and half and single precision.
    assert decode_cbor(bytes.fromhex("bf6161 9f01f6ff 6162 7f61786179ff ff".replace(" ", ""))) == {
        "a": [1, None],
        "b": "xy",
    }
    assert decode_cbor(bytes.fromhex("82f93c00fa40200000")) == [1.0, 2.5]
    with pytest.raises(ValueError, match="too early"):
        decode_cbor(b"\x64abc")


class _Answers(ModuleType):
    """What a function in a stack answers CloudFormation with."""

    SUCCESS, FAILED = "SUCCESS", "FAILED"

    def __init__(self) -> None:
        super().__init__("cfnresponse")
        self.sent: list[tuple[str, Json, str]] = []

    def send(
        self, event: Json, context: object, status: str, data: Json, name: str, reason: str = ""
    ) -> None:
        self.sent.append((status, data, reason))


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> _Answers:
    found = _Answers()
    monkeypatch.setitem(sys.modules, "cfnresponse", found)
    return found


async def test_the_stacks_function_switches_zonal_shift_on(
    answers: _Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = loaded((ROOT / "deploy" / "cloudformation" / "zonal-shift.yaml").read_text())
    program: Json = {}
    exec(stack["Resources"]["Enabler"]["Properties"]["Code"]["ZipFile"], program)
    async with opened("http") as door:
        url = door.aws._endpoint  # type: ignore[attr-defined]  # where the simulation listens
        monkeypatch.setattr(boto3, "client", lambda name: SESSION.client(name, endpoint_url=url))
        cluster = door.world.eks.clusters[CLUSTER]
        cluster.zonal_shift = False
        for kind, name in (
            ("Create", CLUSTER),
            ("Update", CLUSTER),
            ("Create", "ghost"),
            ("Delete", "ghost"),
        ):
            event = {"RequestType": kind, "ResourceProperties": {"ClusterName": name}}
            await asyncio.to_thread(program["handler"], event, None)

    assert cluster.zonal_shift
    on, again, ghost, gone = answers.sent
    assert on == again == ("SUCCESS", {"ClusterArn": cluster.arn}, "")
    assert ghost[0] == "FAILED"
    assert "ghost" in ghost[2]
    assert gone == ("SUCCESS", {}, "")
    assert [call.operation for call in door.world.calls].count("UpdateClusterConfig") == 1

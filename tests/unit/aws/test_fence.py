"""A process that no longer leads starts no write to AWS, and repeats none; it may go on reading."""

from __future__ import annotations

import boto3
import pytest

from dovetail.aws import NOT_LEADING, AwsError, FencedAws
from dovetail.aws.boto import BotoAws
from dovetail.errors import Refused
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock
from support.aws import CLUSTER
from support.stage import virtual

WRITES: tuple[tuple[str, str, dict[str, object]], ...] = (
    ("ec2", "CreateFleet", {}),
    ("ec2", "TerminateInstances", {"InstanceIds": ["i-1"]}),
    ("ec2", "CreateTags", {"Resources": ["i-1"], "Tags": []}),
    ("ec2", "DeleteLaunchTemplate", {"LaunchTemplateName": "x"}),
    ("iam", "DeleteInstanceProfile", {"InstanceProfileName": "x"}),
    ("sqs", "DeleteMessage", {"QueueUrl": "x", "ReceiptHandle": "y"}),
    ("sqs", "ReceiveMessage", {"QueueUrl": "x"}),
)


@pytest.mark.parametrize(("service", "operation", "asked"), WRITES)
@virtual
async def test_a_process_without_the_lease_starts_no_write(
    service: str, operation: str, asked: dict[str, object]
) -> None:
    aws = SimulatedAws(VirtualClock(), cluster=CLUSTER)
    with pytest.raises(AwsError) as told:
        await FencedAws(aws, lambda: False).call(service, operation, asked)
    assert told.value.code == NOT_LEADING
    assert isinstance(told.value, Refused)
    assert not aws.calls


@virtual
async def test_it_may_read_and_try_what_would_be_allowed() -> None:
    aws = SimulatedAws(VirtualClock(), cluster=CLUSTER)
    fenced = FencedAws(aws, lambda: False)
    assert (await fenced.call("ec2", "DescribeSubnets", {}))["Subnets"]
    with pytest.raises(AwsError) as told:
        await fenced.call("ec2", "CreateFleet", {"DryRun": True})
    assert told.value.code == "DryRunOperation"


async def test_a_request_is_not_repeated_after_the_lease_is_lost() -> None:
    answers = iter((True, True))  # when it is made, and when it is first sent
    session = boto3.Session("testing", "testing", region_name="us-west-2")
    away = BotoAws(session, endpoint="http://127.0.0.1:9")
    try:
        with pytest.raises(AwsError) as told:
            await FencedAws(away, lambda: next(answers, False)).call(
                "ec2", "TerminateInstances", {"InstanceIds": ["i-0123456789abcdef0"]}
            )
    finally:
        away.close()
    assert (told.value.code, told.value.operation) == (NOT_LEADING, "ec2:TerminateInstances")

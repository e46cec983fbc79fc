"""The door to AWS: codes get a meaning, waiting happens elsewhere, and every request is counted."""

from __future__ import annotations

from collections.abc import Iterator

import boto3
import pytest
from moto.server import ThreadedMotoServer

from dovetail.aws import AwsAbsent, AwsDenied, AwsInvalid, AwsTrouble, DryRunPassed, aws_error, list_pages
from dovetail.aws.boto import REQUESTS, BotoAws
from dovetail.errors import Gone, Misconfigured, NotAuthorized, Refused, Retry


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def aws(endpoint: str) -> Iterator[BotoAws]:
    session = boto3.Session("testing", "testing", region_name="us-west-2")
    door = BotoAws(session, endpoint=endpoint)
    yield door
    door.close()


@pytest.mark.parametrize(
    ("code", "status", "kind", "meaning"),
    [
        ("InvalidInstanceID.NotFound", 400, AwsAbsent, Gone),
        ("QueueDoesNotExist", 400, AwsAbsent, Gone),
        ("AWS.SimpleQueueService.NonExistentQueue", 400, AwsAbsent, Gone),
        ("UnauthorizedOperation", 403, AwsDenied, NotAuthorized),
        ("ExpiredToken", 403, AwsDenied, NotAuthorized),
        ("RequestLimitExceeded", 503, AwsTrouble, Retry),
        ("Anything", 502, AwsTrouble, Retry),
        ("NoAnswer", 0, AwsTrouble, Retry),
        ("InvalidParameterValue", 400, AwsInvalid, Refused),
        ("DryRunOperation", 412, DryRunPassed, Refused),
    ],
)
def test_a_code_means_what_the_caller_does_next(code: str, status: int, kind: type, meaning: type) -> None:
    error = aws_error("ec2:RunInstances", code, "because", status)

    assert type(error) is kind
    assert isinstance(error, meaning)
    assert (error.code, error.message, str(error)) == (code, "because", f"ec2:RunInstances: {code}: because")


async def test_an_answer_is_the_operations_output(aws: BotoAws) -> None:
    before = REQUESTS.labels("ec2", "DescribeVpcs", "200")._value.get()

    answer = await aws.call("ec2", "DescribeVpcs", {})

    assert answer["Vpcs"][0]["IsDefault"] is True
    assert "ResponseMetadata" not in answer
    assert REQUESTS.labels("ec2", "DescribeVpcs", "200")._value.get() == before + 1


async def test_a_refusal_carries_its_code(aws: BotoAws) -> None:
    with pytest.raises(AwsAbsent) as caught:
        await aws.call("sqs", "GetQueueUrl", {"QueueName": "none"})

    assert caught.value.operation == "sqs:GetQueueUrl"


async def test_pages_are_followed_to_the_end(aws: BotoAws) -> None:
    for number in range(12):
        named = {"Name": f"/paged/{number:02}", "Value": "x", "Type": "String"}
        await aws.call("ssm", "PutParameter", named)
    found: list[str] = []
    count = 0

    async for page in list_pages(aws, "ssm", "GetParametersByPath", {"Path": "/paged", "MaxResults": 5}):
        found += [each["Name"] for each in page["Parameters"]]
        count += 1

    assert count == 3
    assert sorted(found) == [f"/paged/{number:02}" for number in range(12)]


async def test_an_endpoint_that_is_away_is_trouble_not_a_crash() -> None:
    away = BotoAws(
        boto3.Session("testing", "testing", region_name="us-west-2"), endpoint="http://127.0.0.1:9"
    )
    try:
        with pytest.raises(AwsTrouble) as caught:
            await away.call("ec2", "DescribeVpcs", {}, retried=False)
    finally:
        away.close()

    assert caught.value.code == "NoAnswer"


async def test_another_account_is_reached_by_its_role(aws: BotoAws) -> None:
    there = aws.scope_to(region="eu-west-1", role="arn:aws:iam::222222222222:role/reader")

    who = await there.call("sts", "GetCallerIdentity", {})

    assert there.region == "eu-west-1"
    assert who["Account"] == "222222222222"


def test_without_a_region_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")

    with pytest.raises(Misconfigured, match="AWS_REGION"):
        BotoAws()


def test_the_region_is_taken_from_the_variable_other_sdks_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    assert BotoAws().region == "eu-west-1"
    monkeypatch.setenv("AWS_REGION", "us-west-2")
    assert BotoAws().region == "us-west-2"
    assert BotoAws(region="us-east-1").region == "us-east-1"

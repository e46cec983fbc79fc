"""S3, the same in memory and through boto3 over HTTP: objects, and those that are put only where none is."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from dovetail.aws import AwsAbsent, AwsError, list_pages
from dovetail.sim.aws.iam.permissions import Principal
from support.aws_clients import DOORS, Door, opened

HOSTILE = "trail/<a & b>/ümlaut+%41 \t#?.gz"


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with opened(request.param) as found:
        yield found


async def test_what_was_put_is_read_byte_for_byte(door: Door) -> None:
    await door.aws.call("s3", "CreateBucket", {"Bucket": "trail"})
    body = bytes(range(256)) * 5_000
    for key in ("a/b/c.gz", HOSTILE):
        asked = {"Bucket": "trail", "Key": key}
        await door.aws.call("s3", "PutObject", {**asked, "Body": body, "ChecksumAlgorithm": "SHA256"})
        found = await door.aws.call("s3", "GetObject", asked)
        assert found["Body"] == body
        assert found["ContentLength"] == len(body)
    listed = await door.aws.call("s3", "ListObjectsV2", {"Bucket": "trail"})
    assert [(each["Key"], each["Size"]) for each in listed["Contents"]] == [
        ("a/b/c.gz", len(body)),
        (HOSTILE, len(body)),
    ]


async def test_an_object_can_be_put_only_where_there_is_none(door: Door) -> None:
    kept = door.world.add_bucket("trail")
    asked = {"Bucket": "trail", "Key": "k", "IfNoneMatch": "*"}
    await door.aws.call("s3", "PutObject", {**asked, "Body": b"first"})
    with pytest.raises(AwsError) as refused:
        await door.aws.call("s3", "PutObject", {**asked, "Body": b"second"})
    assert (refused.value.code, refused.value.status) == ("PreconditionFailed", 412)
    assert kept["k"].body == b"first"
    await door.aws.call("s3", "PutObject", {"Bucket": "trail", "Key": "k", "Body": b"third"})
    assert kept["k"].body == b"third"


async def test_keys_come_in_pages_in_their_order_below_a_prefix_and_after_a_key(door: Door) -> None:
    door.world.add_bucket("trail")
    for number in (3, 1, 2, 5, 4):
        await door.aws.call("s3", "PutObject", {"Bucket": "trail", "Key": f"log/{number}", "Body": b""})
    await door.aws.call("s3", "PutObject", {"Bucket": "trail", "Key": "other", "Body": b""})
    asked = {"Bucket": "trail", "Prefix": "log/", "StartAfter": "log/1", "MaxKeys": 2}
    pages = [page["Contents"] async for page in list_pages(door.aws, "s3", "ListObjectsV2", asked)]
    assert [[each["Key"] for each in page] for page in pages] == [["log/2", "log/3"], ["log/4", "log/5"]]
    empty = await door.aws.call("s3", "ListObjectsV2", {"Bucket": "trail", "Prefix": "none/"})
    assert empty.get("Contents", []) == []


async def test_what_is_not_there_is_said(door: Door) -> None:
    door.world.add_bucket("trail")
    for bucket, code in (("trail", "NoSuchKey"), ("none", "NoSuchBucket")):
        with pytest.raises(AwsAbsent) as absent:
            await door.aws.call("s3", "GetObject", {"Bucket": bucket, "Key": "k"})
        assert absent.value.code == code


async def test_rights_are_asked_for_the_object_and_for_the_bucket_of_a_list(door: Door) -> None:
    door.world.add_bucket("trail")
    statement = {"Effect": "Allow", "Action": ["s3:PutObject"], "Resource": ["arn:aws:s3:::trail/log/*"]}
    door.world.principal = Principal("arn:aws:iam::111122223333:role/x", [{"Statement": [statement]}])
    await door.aws.call("s3", "PutObject", {"Bucket": "trail", "Key": "log/1", "Body": b""})
    for operation, asked in (
        ("PutObject", {"Key": "x"}),
        ("GetObject", {"Key": "log/1"}),
        ("ListObjectsV2", {}),
    ):
        with pytest.raises(AwsError) as denied:
            await door.aws.call("s3", operation, {"Bucket": "trail", **asked})
        assert denied.value.code == "AccessDenied"
    assert door.world.actions == {"s3:PutObject", "s3:GetObject", "s3:ListBucket"}

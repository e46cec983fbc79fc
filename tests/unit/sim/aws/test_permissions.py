"""IAM policies and EventBridge patterns, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.aws.iam.permissions import Need, Principal
from dovetail.sim.aws.messaging.eventbridge import BadPattern, check_pattern, matches_pattern

Json = dict[str, Any]


def judged(need: Need, *statements: Json, boundary: Json | None = None) -> bool:
    who = Principal("arn:aws:iam::1:role/me", ({"Statement": list(statements)},), boundary)
    return who.evaluate_need(need).allowed


def allow(action: str = "*", resource: str = "*", **condition: Json) -> Json:
    return {"Effect": "Allow", "Action": action, "Resource": resource, "Condition": condition}


def test_what_nothing_allows_is_denied_and_a_deny_wins() -> None:
    need = Need("ec2:RunInstances", "arn:aws:ec2:r:1:instance/*")
    assert not judged(need)
    assert judged(need, allow("ec2:Run*"))
    assert judged(need, allow("EC2:runinstances"))
    assert not judged(need, allow("ec2:*"), {"Effect": "Deny", "Action": "ec2:RunInstances", "Resource": "*"})
    assert not judged(need, allow("ec2:*"), boundary={"Statement": allow("s3:*")})


def test_resources_are_matched_by_pattern() -> None:
    need = Need("ec2:RunInstances", "arn:aws:ec2:us-west-2::image/ami-1")
    assert judged(need, allow(resource="arn:aws:ec2:*::image/*"))
    assert not judged(need, allow(resource="arn:aws:ec2:*:*:instance/*"))


@pytest.mark.parametrize(
    ("condition", "context", "allowed"),
    [
        ({"StringEquals": {"aws:RequestTag/a": "b"}}, {"aws:RequestTag/a": "b"}, True),
        ({"StringEquals": {"aws:RequestTag/a": "b"}}, {"aws:requesttag/A": "b"}, True),
        ({"StringEquals": {"aws:RequestTag/a": ["b", "c"]}}, {"aws:RequestTag/a": "c"}, True),
        ({"StringEquals": {"aws:RequestTag/a": "b"}}, {}, False),
        ({"StringEqualsIfExists": {"aws:RequestTag/a": "b"}}, {}, True),
        ({"StringEqualsIfExists": {"aws:RequestTag/a": "b"}}, {"aws:RequestTag/a": "c"}, False),
        ({"StringLike": {"aws:ResourceTag/pool": "*"}}, {"aws:ResourceTag/pool": ""}, True),
        ({"StringLike": {"aws:ResourceTag/pool": "*"}}, {}, False),
        ({"StringNotEquals": {"aws:RequestedRegion": "a"}}, {"aws:RequestedRegion": "b"}, True),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a", "b"]}}, {"aws:TagKeys": ("a",)}, True),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a"]}}, {"aws:TagKeys": ("a", "c")}, False),
        ({"ForAllValues:StringEquals": {"aws:TagKeys": ["a"]}}, {}, True),
        ({"ForAnyValue:StringEquals": {"aws:TagKeys": ["a"]}}, {"aws:TagKeys": ("a", "c")}, True),
        ({"Null": {"aws:RequestTag/a": "true"}}, {}, True),
        ({"Bool": {"aws:SecureTransport": "false"}}, {"aws:SecureTransport": "true"}, False),
    ],
)
def test_conditions_ask_about_tags_and_the_request(condition: Json, context: Json, allowed: bool) -> None:
    assert judged(Need("a:b", "*", context), allow(**condition)) is allowed


EVENT: Json = {
    "source": "aws.ec2",
    "detail-type": "EC2 Instance State-change Notification",
    "resources": ["arn:a", "arn:b"],
    "detail": {
        "instance-id": "i-1",
        "state": "stopping",
        "count": 5,
        "empty": [],
        "none": None,
        "ip": "10.0.0.7",
    },
}


@pytest.mark.parametrize(
    ("pattern", "met"),
    [
        ({"source": ["aws.ec2"]}, True),
        ({"source": ["aws.health", "aws.ec2"]}, True),
        ({"source": ["aws.health"]}, False),
        ({"detail": {"state": ["stopping", "stopped"]}}, True),
        ({"detail": {"state": [{"prefix": "stop"}]}}, True),
        ({"detail": {"state": [{"suffix": "ed"}]}}, False),
        ({"detail": {"state": [{"anything-but": ["pending", "running"]}]}}, True),
        ({"detail": {"state": [{"anything-but": {"prefix": "stop"}}]}}, False),
        ({"detail": {"missing": [{"anything-but": ["x"]}]}}, False),
        ({"detail": {"state": [{"equals-ignore-case": "STOPPING"}]}}, True),
        ({"detail": {"instance-id": [{"wildcard": "i-*"}]}}, True),
        ({"detail": {"count": [{"numeric": [">", 3, "<=", 5]}]}}, True),
        ({"detail": {"count": [{"numeric": ["<", 5]}]}}, False),
        ({"detail": {"count": [5.0]}}, True),
        ({"detail": {"count": ["5"]}}, False),
        ({"detail": {"missing": [{"exists": False}]}}, True),
        ({"detail": {"state": [{"exists": True}]}}, True),
        ({"detail": {"empty": [{"exists": False}]}}, True),
        ({"detail": {"none": [None]}}, True),
        ({"detail": {"ip": [{"cidr": "10.0.0.0/24"}]}}, True),
        ({"resources": ["arn:b"]}, True),
        ({"$or": [{"source": ["x"]}, {"detail": {"state": ["stopping"]}}]}, True),
        ({"$or": [{"source": ["x"]}, {"source": ["y"]}]}, False),
    ],
)
def test_a_pattern_matches_or_not(pattern: Json, met: bool) -> None:
    check_pattern(pattern)
    assert matches_pattern(pattern, EVENT) is met


@pytest.mark.parametrize(
    "pattern", [{}, [], {"a": "b"}, {"a": []}, {"a": [{"like": "x"}]}, {"$or": [{"a": ["b"]}]}]
)
def test_a_pattern_that_makes_no_sense_is_refused(pattern: Any) -> None:
    with pytest.raises(BadPattern):
        check_pattern(pattern)

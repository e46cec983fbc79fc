"""STS: who asks, and roles that are assumed."""

from __future__ import annotations

from datetime import timedelta

from dovetail.sim.aws.iam.roles import Iam
from dovetail.sim.aws.service import AwsRequest, Json, operation

__all__ = ["is_trusted"]

HOUR = 3600


def is_trusted(request: AwsRequest, role: str, external_id: str) -> bool:
    """Whether the role exists where its ARN says, and takes this external id."""
    parts = role.split(":")
    if len(parts) != 6 or parts[2] != "iam":
        return False
    found = request.world.get_state(Iam, parts[4], "").roles.get(parts[5].rpartition("/")[2])
    if found is None:
        return False
    # A trust policy that asks for an external id names it; one that names none takes everyone.
    return "sts:ExternalId" not in found.trust or (bool(external_id) and f'"{external_id}"' in found.trust)


@operation("sts", "AssumeRole")
def assume_role(request: AwsRequest) -> Json:
    role, session = request.get_required("RoleArn"), request.get_required("RoleSessionName")
    if not is_trusted(request, role, request.get("ExternalId", "")):
        me = f"arn:aws:iam::{request.account}:root"
        raise request.refuse(
            "AccessDenied",
            f"User: {me} is not authorized to perform: sts:AssumeRole on resource: {role}",
            403,
        )
    account, name = role.split(":")[4], role.rpartition("/")[2]
    seconds = request.get("DurationSeconds", HOUR)
    return {
        "Credentials": {
            # The account is part of the key, so that whoever comes with it is known.
            "AccessKeyId": f"ASIA{account}{request.world.random_hex(4).upper()}",
            "SecretAccessKey": request.world.random_hex(40),
            "SessionToken": request.world.random_hex(64),
            "Expiration": request.world.clock.now() + timedelta(seconds=seconds),
        },
        "AssumedRoleUser": {
            "AssumedRoleId": f"AROA{request.world.random_hex(16).upper()}:{session}",
            "Arn": f"arn:aws:sts::{account}:assumed-role/{name}/{session}",
        },
    }


@operation("sts", "GetCallerIdentity")
def get_caller(request: AwsRequest) -> Json:
    return {
        "UserId": f"AIDA{request.account}0000",
        "Account": request.account,
        "Arn": f"arn:aws:iam::{request.account}:user/simulated",
    }

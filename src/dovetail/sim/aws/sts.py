"""STS: who asks, and roles that are assumed."""

from __future__ import annotations

from datetime import timedelta

from dovetail.sim.aws.iam import Iam
from dovetail.sim.aws.service import AwsRequest, Json, operation

__all__ = ["is_trusted"]

HOUR = 3600


def is_trusted(ask: AwsRequest, role: str, external_id: str) -> bool:
    """Whether the role exists where its ARN says, and takes this external id."""
    parts = role.split(":")
    if len(parts) != 6 or parts[2] != "iam":
        return False
    found = ask.world.get_state(Iam, parts[4], "").roles.get(parts[5].rpartition("/")[2])
    if found is None:
        return False
    # A trust policy that asks for an external id names it; one that names none takes everyone.
    return "sts:ExternalId" not in found.trust or (bool(external_id) and f'"{external_id}"' in found.trust)


@operation("sts", "AssumeRole")
def assume_role(ask: AwsRequest) -> Json:
    role, session = ask.get_required("RoleArn"), ask.get_required("RoleSessionName")
    if not is_trusted(ask, role, ask.get("ExternalId", "")):
        me = f"arn:aws:iam::{ask.account}:root"
        raise ask.refuse(
            "AccessDenied",
            f"User: {me} is not authorized to perform: sts:AssumeRole on resource: {role}",
            403,
        )
    account, name = role.split(":")[4], role.rpartition("/")[2]
    seconds = ask.get("DurationSeconds", HOUR)
    return {
        "Credentials": {
            # The account is part of the key, so that whoever comes with it is known.
            "AccessKeyId": f"ASIA{account}{ask.world.random_hex(4).upper()}",
            "SecretAccessKey": ask.world.random_hex(40),
            "SessionToken": ask.world.random_hex(64),
            "Expiration": ask.world.clock.now() + timedelta(seconds=seconds),
        },
        "AssumedRoleUser": {
            "AssumedRoleId": f"AROA{ask.world.random_hex(16).upper()}:{session}",
            "Arn": f"arn:aws:sts::{account}:assumed-role/{name}/{session}",
        },
    }


@operation("sts", "GetCallerIdentity")
def get_caller(ask: AwsRequest) -> Json:
    return {
        "UserId": f"AIDA{ask.account}0000",
        "Account": ask.account,
        "Arn": f"arn:aws:iam::{ask.account}:user/simulated",
    }

"""The stack of CloudFormation deployed into the simulated AWS, and what its policies let a controller do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dovetail.aws import Aws
from dovetail.sim.aws.iam.permissions import Need, PolicyDecision, Principal
from support.aws_clients import opened

__all__ = ["Stack", "Watched", "deployed", "deployed_stack", "role_documents"]

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
EMPTY_ZIP = b"PK\x05\x06" + bytes(18)
ROLE = "arn:aws:sts::111122223333:assumed-role/KarpenterController/dovetail"


class Watched:
    """A principal that remembers which action of which statement it needed."""

    def __init__(self, documents: Sequence[Json]) -> None:
        self.arn, self.documents = ROLE, documents
        self._whole = Principal(ROLE, documents)
        self._single = {
            (str(statement["Sid"]), str(action)): Principal(
                ROLE, [{"Statement": [{**statement, "Action": [action]}]}]
            )
            for document in documents
            for statement in document["Statement"]
            for action in statement["Action"]
        }
        self.used: set[tuple[str, str]] = set()

    def evaluate_need(self, need: Need) -> PolicyDecision:
        for name, single in self._single.items():
            if name not in self.used and single.evaluate_need(need).allowed:
                self.used.add(name)
        return self._whole.evaluate_need(need)

    @property
    def unused(self) -> set[tuple[str, str]]:
        return set(self._single) - self.used


async def deployed(cluster: str, template: str = "") -> tuple[list[Json], Mapping[str, Any]]:
    """Deploy a stack over HTTP, ours unless another is given; its policies, and what else it made."""
    own = (ROOT / "deploy" / "cloudformation" / "dovetail.yaml").read_text()
    asked = {
        "StackName": f"Karpenter-{cluster}",
        "TemplateBody": template or own,
        "Parameters": [] if template else [{"ParameterKey": "ClusterName", "ParameterValue": cluster}],
        "Capabilities": ["CAPABILITY_NAMED_IAM"],
    }
    async with opened("http", moto=True) as door:
        # The stack is to make the role of nodes; the account comes with one.
        door.world.iam.roles.pop(f"KarpenterNodeRole-{cluster}", None)
        await door.aws.call("cloudformation", "CreateStack", asked)
        (stack,) = (await door.aws.call("cloudformation", "DescribeStacks", {}))["Stacks"]
        told = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", ())}
        listed = (await door.aws.call("iam", "ListPolicies", {"Scope": "Local"}))["Policies"]
        documents = [await _document(door.aws, each["Arn"]) for each in listed]
        rules = door.world.buses.by_name["default"].rules.values()
        made = {
            "status": stack["StackStatus"],
            "outputs": told,
            "role": f"KarpenterNodeRole-{cluster}" in door.world.iam.roles,
            "queue": cluster in door.world.queues.by_name,
            "patterns": [rule.pattern for rule in rules],
            "targets": {target["Arn"] for rule in rules for target in rule.targets.values()},
        }
        await door.aws.call("cloudformation", "DeleteStack", {"StackName": asked["StackName"]})
        made["left"] = cluster in door.world.queues.by_name or door.world.buses.by_name["default"].rules
        return documents, made


async def _document(aws: Aws, arn: str) -> Json:
    policy = (await aws.call("iam", "GetPolicy", {"PolicyArn": arn}))["Policy"]
    version = {"PolicyArn": arn, "VersionId": policy["DefaultVersionId"]}
    return _read((await aws.call("iam", "GetPolicyVersion", version))["PolicyVersion"]["Document"])


def _read(document: Any) -> Json:
    found: Json = json.loads(unquote(document)) if isinstance(document, str) else dict(document)
    return found


async def role_documents(aws: Aws, role: str) -> list[Json]:
    """The documents of a role, inline and attached, but for those that are AWS's own."""
    named = (await aws.call("iam", "ListRolePolicies", {"RoleName": role}))["PolicyNames"]
    inline = [
        (await aws.call("iam", "GetRolePolicy", {"RoleName": role, "PolicyName": name}))["PolicyDocument"]
        for name in named
    ]
    attached = (await aws.call("iam", "ListAttachedRolePolicies", {"RoleName": role}))["AttachedPolicies"]
    theirs = [each["PolicyArn"] for each in attached if ":iam::aws:" not in each["PolicyArn"]]
    return [*map(_read, inline), *[await _document(aws, arn) for arn in theirs]]


@dataclass(frozen=True)
class Stack:
    """What a stack came to: outputs, names of what it made, its roles' documents, and what it left."""

    status: str
    outputs: Mapping[str, str]
    queues: set[str]
    rules: set[str]
    documents: Mapping[str, list[Json]]
    left: set[str]


async def deployed_stack(name: str, text: str = "", **parameters: str) -> Stack:
    """A template, ours of that name unless another is given, deployed over HTTP, looked at, and deleted."""
    told = [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters.items()]
    template = text or (ROOT / "deploy" / "cloudformation" / f"{name}.yaml").read_text()
    asked = {"StackName": name, "TemplateBody": template, "Parameters": told}
    asked["Capabilities"] = ["CAPABILITY_NAMED_IAM"]
    async with opened("http", moto=True) as door:
        bucket = {"LocationConstraint": "us-west-2"}
        await door.aws.call("s3", "CreateBucket", {"Bucket": "code", "CreateBucketConfiguration": bucket})
        await door.aws.call("s3", "PutObject", {"Bucket": "code", "Key": "bus.zip", "Body": EMPTY_ZIP})
        there = set(door.world.iam.roles)
        await door.aws.call(
            "cloudformation", "CreateStack", {**asked, "Capabilities": ["CAPABILITY_NAMED_IAM"]}
        )
        (stack,) = (await door.aws.call("cloudformation", "DescribeStacks", {}))["Stacks"]
        roles = set(door.world.iam.roles) - there
        documents = {_logical(role): await role_documents(door.aws, role) for role in roles}
        queues, rules = set(door.world.queues.by_name), set(door.world.buses.by_name["default"].rules)
        await door.aws.call("cloudformation", "DeleteStack", {"StackName": name})
        left = {*door.world.queues.by_name, *door.world.buses.by_name["default"].rules}
        left |= set(door.world.iam.roles) - there
    outputs = {each["OutputKey"]: each["OutputValue"] for each in stack.get("Outputs", ())}
    return Stack(stack["StackStatus"], outputs, queues, rules, documents, left)


def _logical(role: str) -> str:
    """The name in the template of a role CloudFormation named."""
    return role.split("-")[-2]

"""The stack of CloudFormation deployed into the simulated AWS, and what its policies let a controller do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from dovetail.sim.aws.policies import Need, Principal, Verdict
from support.aws_doors import opened

__all__ = ["Watched", "deployed"]

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
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

    def judge(self, need: Need) -> Verdict:
        for name, single in self._single.items():
            if name not in self.used and single.judge(need).allowed:
                self.used.add(name)
        return self._whole.judge(need)

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


async def _document(aws: Any, arn: str) -> Json:
    policy = (await aws.call("iam", "GetPolicy", {"PolicyArn": arn}))["Policy"]
    version = {"PolicyArn": arn, "VersionId": policy["DefaultVersionId"]}
    document = (await aws.call("iam", "GetPolicyVersion", version))["PolicyVersion"]["Document"]
    found: Json = json.loads(unquote(document)) if isinstance(document, str) else document
    return found

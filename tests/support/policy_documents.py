"""The controller's policies as each kit writes them, in one form: by Sid, with everything sorted."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.stacks import Place, loaded, policies

__all__ = ["CLUSTERS", "Where", "by_sid", "from_cloudformation", "from_source", "from_template"]

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]


@dataclass(frozen=True)
class Where:
    """A cluster in an account, a region and a partition."""

    partition: str
    region: str
    account: str
    cluster: str

    @property
    def places(self) -> dict[str, str]:
        at = f"{self.region}:{self.account}"
        return {
            "Partition": self.partition,
            "Region": self.region,
            "Account": self.account,
            "Cluster": self.cluster,
            "NodeRoleArn": f"arn:{self.partition}:iam::{self.account}:role/KarpenterNodeRole-{self.cluster}",
            "QueueArn": f"arn:{self.partition}:sqs:{at}:{self.cluster}",
            "ClusterArn": f"arn:{self.partition}:eks:{at}:cluster/{self.cluster}",
        }

    def stack(self, **more: str) -> Place:
        return Place(self.partition, self.region, self.account, **more)


CLUSTERS = (
    Where("aws", "us-west-2", "111122223333", "demo"),
    Where("aws-cn", "cn-north-1", "444455556666", "shop-2"),
)


def by_sid(statements: Iterable[Mapping[str, Any]]) -> dict[str, Json]:
    """Statements in one form: lists sorted, a single text as a list of one."""
    return {
        str(each["Sid"]): {key: _even(value) for key, value in each.items() if key != "Sid"}
        for each in statements
    }


def _even(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _even(each) for key, each in sorted(value.items())}
    if isinstance(value, list):
        return sorted(value)
    return [value]


def from_source(where: Where, *more: str, **named: str) -> dict[str, Json]:
    """What the one source says; `named` where a kit names its things otherwise.

    `more` are the policies that are granted only if asked for.
    """
    source = json.loads((ROOT / "deploy" / "iam" / "controller.json").read_text())
    text = json.dumps([*source["policies"].values(), *(source[name] for name in more)])
    for name, value in {**where.places, **named}.items():
        text = text.replace(f"${{{name}}}", value)
    return by_sid(each for area in json.loads(text) for each in area)


def from_cloudformation(where: Where, **parameters: str) -> dict[str, Json]:
    """What the stack grants; with parameters, also what it grants by condition."""
    template = loaded((ROOT / "deploy" / "cloudformation" / "dovetail.yaml").read_text())
    made = {
        "ClusterName": where.cluster,
        "KarpenterNodeRole.Arn": where.places["NodeRoleArn"],
        "KarpenterInterruptionQueue.Arn": where.places["QueueArn"],
        **parameters,
    }
    found = policies(template, where.stack(**made), conditional=bool(parameters))
    return by_sid(each for listed in found.values() for each in listed)


def from_template(template: Json, where: Where) -> dict[str, Json]:
    """Of a synthesised stack, whose logical names the CDK chose."""
    told = {}
    for name, each in template["Resources"].items():
        kind = each["Type"]
        if kind == "AWS::SQS::Queue":
            told[f"{name}.Arn"] = where.places["QueueArn"]
        elif kind == "AWS::IAM::Role" and "NodeRole" in name:
            told[f"{name}.Arn"] = where.places["NodeRoleArn"]
        elif kind == "Custom::AWSCDK-EKS-Cluster":
            told[name] = where.cluster
    place = where.stack(**told)
    return by_sid(each for listed in policies(template, place).values() for each in listed)

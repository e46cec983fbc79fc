"""CloudFormation templates, ours and the CDK's, with every function worked out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

import yaml

__all__ = ["Place", "hub_queue_policy", "loaded", "policies", "resolved"]

Json = dict[str, Any]
PLACE = re.compile(r"\$\{([^}!]+)\}")


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms."""


def _short(loader: _Loader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        raise TypeError(f"!{suffix} of neither a text nor a list")
    if suffix == "GetAtt":
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short)


def loaded(text: str) -> Json:
    """A template's document."""
    found: Json = yaml.load(text, _Loader)
    return found


class Place:
    """An account and region, a stack's parameters, and names for what the stack makes."""

    def __init__(self, partition: str, region: str, account: str, **known: str) -> None:
        self.known = {
            "AWS::Partition": partition,
            "AWS::Region": region,
            "AWS::AccountId": account,
            "AWS::URLSuffix": "amazonaws.com.cn" if partition == "aws-cn" else "amazonaws.com",
            **known,
        }

    def of(self, name: str) -> str:
        """A reference or attribute; what is not told stands for itself."""
        return self.known.get(name, f"<{name}>")


def resolved(value: Any, place: Place) -> Any:
    """The value with its functions worked out."""
    if isinstance(value, list):
        return [resolved(each, place) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, given),) = value.items()
        if name == "Ref":
            return place.of(given)
        if name.startswith("Fn::"):
            return _worked_out(name.removeprefix("Fn::"), given, place)
    return {key: resolved(each, place) for key, each in value.items()}


def _worked_out(name: str, given: Any, place: Place) -> Any:
    if name == "GetAtt":
        return place.of(".".join(given))
    if name == "Join":
        return given[0].join(resolved(given[1], place))
    if name == "Sub":
        text, more = (given, {}) if isinstance(given, str) else given
        told: Mapping[str, Any] = {key: resolved(each, place) for key, each in more.items()}
        return PLACE.sub(lambda found: str(told.get(found[1], place.of(found[1]))), text)
    return {f"Fn::{name}": resolved(given, place)}


def hub_queue_policy(resources: Json, place: Place) -> str:
    """The policy of the bus's queues, with the role of those who replay that it names by itself."""
    text, more = resources["QueuePolicy"]["Properties"]["PolicyDocument"]["Fn::Sub"]
    named = {key: each["Fn::If"][2] for key, each in more.items()}
    return str(resolved({"Fn::Sub": [text, named]}, place))


def policies(template: Json, place: Place, *, conditional: bool = False) -> dict[str, list[Json]]:
    """Statements of every managed policy that is made in any case, by its name; or of all of them."""
    found = {}
    for each in template["Resources"].values():
        if each["Type"] == "AWS::IAM::ManagedPolicy" and (conditional or "Condition" not in each):
            document = resolved(each["Properties"]["PolicyDocument"], place)
            document = json.loads(document) if isinstance(document, str) else document
            found[resolved(each["Properties"]["ManagedPolicyName"], place)] = document["Statement"]
    return found

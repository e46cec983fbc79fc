"""CloudFormation templates as documents: texts with places, attributes, references and conditions."""

from __future__ import annotations

import json
from typing import Any

import yaml

Json = dict[str, Any]
TEXT = "tag:yaml.org,2002:str"


class Sub(str):
    """A text with places of the stack in it."""


class GetAtt(str):
    """An attribute of a resource."""


class Ref(str):
    """A resource or parameter."""


class Program(str):
    """A text of several lines, shown as such."""


class If(list[Any]):
    """One value or the other, by a condition."""


class SubWith(list[Any]):
    """A text with places in it, and what stands at those that are not the stack's."""


class Not(list[Any]):
    """The opposite."""


class Equals(list[Any]):
    """Whether two values are the same."""


class Join(list[Any]):
    """Texts put together."""


NOTHING = Ref("AWS::NoValue")


def policy(statements: list[Json], places: dict[str, str]) -> Any:
    """A policy as text: condition keys may hold a name, which only a Sub of the whole can say."""
    document = {"Version": "2012-10-17", "Statement": statements}
    placed = json.dumps(document, indent=2)
    if "${" not in placed:
        return document
    for ours, theirs in places.items():
        placed = placed.replace(f"${{{ours}}}", f"${{{theirs}}}")
    return Sub(placed)


def text(template: Json) -> str:
    """The template as YAML."""
    return yaml.dump(template, Dumper=_Dumper, sort_keys=False, width=110)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _scalar(tag: str) -> Any:
    def represent(dumper: _Dumper, data: str) -> yaml.Node:
        style = "|" if "\n" in data else '"' if tag == "!Sub" else ""
        return dumper.represent_scalar(tag, str(data), style=style)

    return represent


def _sequence(tag: str) -> Any:
    def represent(dumper: _Dumper, data: list[Any]) -> yaml.Node:
        return dumper.represent_sequence(tag, list(data))

    return represent


for _kind in (Sub, GetAtt, Ref):
    _Dumper.add_representer(_kind, _scalar(f"!{_kind.__name__}"))
_Dumper.add_representer(Program, lambda dumper, data: dumper.represent_scalar(TEXT, str(data), style="|"))
_Dumper.add_representer(SubWith, _sequence("!Sub"))
for _listed in (If, Not, Equals, Join):
    _Dumper.add_representer(_listed, _sequence(f"!{_listed.__name__}"))

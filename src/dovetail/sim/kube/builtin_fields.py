"""The fields of every built-in kind, read once from the table beside the code.

`hack/derive_kube_schemas.py` makes the table from Kubernetes' published types and explains its letters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from dovetail.sim.kube.nodes import MISSING


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its JSON name, its type in the table's letters, its protobuf number."""

    name: str
    type: str
    number: int
    pointer: bool = False
    omit_empty: bool = False
    required: bool = False
    inline: bool = False
    atomic: bool = False
    patch: tuple[str, ...] = ()
    merge_key: str = ""
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    default: Any = MISSING


@dataclass(frozen=True, slots=True)
class Message:
    """One structure; an atomic one belongs to one applier as a whole."""

    name: str
    fields: tuple[Field, ...]
    atomic: bool = False


@cache
def _document() -> dict[str, Any]:
    text = files("dovetail.sim.kube").joinpath("data/builtin.json").read_text()
    document: dict[str, Any] = json.loads(text)
    return document


@cache
def message(name: str) -> Message:
    """The message of a name such as `core/v1.PodSpec`."""
    entry = _document()["messages"][name]
    return Message(name, tuple(map(_field, entry["fields"])), bool(entry.get("atomic")))


def message_of(api_version: str, kind: str) -> str | None:
    """The name of the message a kind is written as, or None for a kind that is not built in."""
    if kind == "DeleteOptions":
        return "meta/v1.DeleteOptions"
    found: str | None = _document()["kinds"].get(f"{api_version}/{kind}")
    return found


@cache
def _descriptions() -> dict[str, Any]:
    text = files("dovetail.sim.kube").joinpath("data/descriptions.json").read_text()
    found: dict[str, Any] = json.loads(text)
    return found


def describe_kind(kind: str) -> str:
    """What a built-in kind is, in a sentence; empty if nobody wrote one."""
    return str(_descriptions()["kinds"].get(kind, ""))


def describe_field(name: str, field: str) -> str:
    """What a field of a message is, in a sentence; empty if nobody wrote one."""
    found = _descriptions()
    own = found["fields"].get(name, {}).get(field)
    return str(own or found["anywhere"].get(field, ""))


@cache
def _kind_messages() -> frozenset[str]:
    return frozenset(_document()["kinds"].values())


def is_kind(name: str) -> bool:
    """Whether a message is a kind of its own, and not only a part of one."""
    return name in _kind_messages()


def _field(row: list[Any]) -> Field:
    name, kind, number, *flags = row
    values = {flag[0]: flag[2:] for flag in flags if "=" in flag}
    return Field(
        name=name,
        type=kind,
        number=number,
        pointer="p" in flags,
        omit_empty="o" in flags,
        required="r" in flags,
        inline="n" in flags,
        atomic="A" in flags,
        patch=tuple(values.get("P", "").split(",")),
        merge_key=values.get("K", ""),
        list_type=values.get("L", "atomic"),
        list_keys=tuple(values["M"].split(",")) if "M" in values else (),
        default=json.loads(values["D"]) if "D" in values else MISSING,
    )

"""The shape of one value: a node of a schema, whether it came from a CRD or from the built-in tables.

A node only describes. Pruning, defaulting, validating, merging and applying each walk the same nodes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dovetail.sim.kube.cel import Rule, compile_rule


class Missing:
    """The absence of a value, where null is a value too."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """One `x-kubernetes-validations` entry, compiled."""

    rule: Rule
    message: str = ""
    message_rule: Rule | None = None
    reason: str = ""
    field_path: str = ""
    optional_old: bool = False

    @property
    def transition(self) -> bool:
        """Whether it compares with the old value and so only speaks on updates."""
        return self.rule.uses_old


@dataclass(slots=True, eq=False)
class Node:
    """What may stand at one place. Nodes of built-in kinds can refer to themselves, as JSON schemas do."""

    type: str = ""
    format: str = ""
    properties: dict[str, Node] = field(default_factory=dict)
    additional: Node | None = None
    items: Node | None = None
    required: tuple[str, ...] = ()
    nullable: bool = False
    preserve: bool = False
    embedded: bool = False
    int_or_string: bool = False
    list_type: str = "atomic"
    list_keys: tuple[str, ...] = ()
    map_atomic: bool = False
    default: Any = MISSING
    limits: Mapping[str, Any] = field(default_factory=dict)
    all_of: tuple[Node, ...] = ()
    any_of: tuple[Node, ...] = ()
    one_of: tuple[Node, ...] = ()
    none_of: Node | None = None
    rules: tuple[RuleSpec, ...] = ()
    # How a strategic merge patch treats this field.
    merge: bool = False
    merge_key: str = ""
    retain_keys: bool = False
    replace: bool = False
    # The message a built-in node stands for, so that documents can refer to it by name.
    name: str = ""
    # Whether rules, or values CEL sees differently from JSON, stand here or below. Filled by `settle`.
    has_rules: bool = False
    plain: bool = True

    def child(self, key: str) -> Node | None:
        """The node of one key of an object, if the schema knows that key."""
        return self.properties.get(key, self.additional)


# What a strategic merge needs to know is on the nodes themselves.
MergeKeys = Node

ANYTHING = Node(preserve=True)
_LIMITS = (
    "enum",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minProperties",
    "maxProperties",
)
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def parse(document: Mapping[str, Any]) -> Node:
    """The node an OpenAPI v3 structural schema describes; raises CelError for a broken rule."""
    node = _parsed(document)
    settle(node)
    return node


def _parsed(doc: Mapping[str, Any]) -> Node:
    additional = doc.get("additionalProperties")
    items = doc.get("items")
    return Node(
        type=doc.get("type") or "",
        format=doc.get("format") or "",
        properties={name: _parsed(sub) for name, sub in (doc.get("properties") or {}).items()},
        additional=_parsed(additional) if isinstance(additional, dict) else ANYTHING if additional else None,
        items=_parsed(items) if isinstance(items, dict) else None,
        required=tuple(doc.get("required") or ()),
        nullable=bool(doc.get("nullable")),
        preserve=bool(doc.get("x-kubernetes-preserve-unknown-fields")),
        embedded=bool(doc.get("x-kubernetes-embedded-resource")),
        int_or_string=bool(doc.get("x-kubernetes-int-or-string")) or doc.get("format") == "int-or-string",
        list_type=doc.get("x-kubernetes-list-type") or "atomic",
        list_keys=tuple(doc.get("x-kubernetes-list-map-keys") or ()),
        map_atomic=doc.get("x-kubernetes-map-type") == "atomic",
        default=doc.get("default", MISSING),
        limits={key: doc[key] for key in _LIMITS if doc.get(key) is not None},
        all_of=tuple(map(_parsed, doc.get("allOf") or ())),
        any_of=tuple(map(_parsed, doc.get("anyOf") or ())),
        one_of=tuple(map(_parsed, doc.get("oneOf") or ())),
        none_of=_parsed(doc["not"]) if doc.get("not") else None,
        rules=tuple(map(_rule, doc.get("x-kubernetes-validations") or ())),
    )


def _rule(entry: Mapping[str, Any]) -> RuleSpec:
    expression = entry.get("messageExpression")
    return RuleSpec(
        rule=compile_rule(entry.get("rule") or ""),
        message=entry.get("message") or "",
        message_rule=compile_rule(expression) if expression else None,
        reason=entry.get("reason") or "",
        field_path=entry.get("fieldPath") or "",
        optional_old=bool(entry.get("optionalOldSelf")),
    )


def settle(node: Node) -> None:
    """Note on every node whether anything below it has rules or values that CEL sees differently."""
    below = [*node.properties.values(), node.additional, node.items]
    children = [child for child in below if child is not None]
    for child in children:
        if child is not ANYTHING:
            settle(child)
    node.has_rules = bool(node.rules) or any(child.has_rules for child in children)
    node.plain = (
        node.type not in ("number", "integer")
        and node.format not in ("date-time", "date", "duration", "byte")
        and all(_IDENTIFIER.match(name) and escaped(name) == name for name in node.properties)
        and all(child.plain for child in children)
    )


_RESERVED = frozenset(
    re.findall(
        r"\w+",
        "true false null in as break const continue else for function if import let loop package namespace "
        "return var void while",
    )
)
_ESCAPES = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}


def escaped(name: str) -> str:
    """A property name as a rule must spell it."""
    if name in _RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[.\-/]", lambda match: _ESCAPES[match.group()], name)

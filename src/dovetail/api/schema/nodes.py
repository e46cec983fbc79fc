"""The shape of one value: a node of a schema, whether it came from a CRD or from the built-in tables.

A node only describes. Pruning, defaulting, validating, merging and applying each walk the same nodes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dovetail.api.schema.cel import CelRule, compile_rule


class Missing:
    """The absence of a value, where null is a value too."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class RuleSpec:
    """One `x-kubernetes-validations` entry, compiled."""

    rule: CelRule
    message: str = ""
    message_rule: CelRule | None = None
    reason: str = ""
    field_path: str = ""
    optional_old: bool = False

    @property
    def transition(self) -> bool:
        """Whether it compares with the old value and so only speaks on updates."""
        return self.rule.uses_old


@dataclass(slots=True, eq=False)
class SchemaNode:
    """What may stand at one place. Nodes of built-in kinds can refer to themselves, as JSON schemas do."""

    type: str = ""
    format: str = ""
    properties: dict[str, SchemaNode] = field(default_factory=dict)
    additional: SchemaNode | None = None
    items: SchemaNode | None = None
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
    all_of: tuple[SchemaNode, ...] = ()
    any_of: tuple[SchemaNode, ...] = ()
    one_of: tuple[SchemaNode, ...] = ()
    none_of: SchemaNode | None = None
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

    def find_child(self, key: str) -> SchemaNode | None:
        """The node of one key of an object, if the schema knows that key."""
        return self.properties.get(key, self.additional)


# What a strategic merge needs to know is on the nodes themselves.
MergeKeys = SchemaNode

ANYTHING = SchemaNode(preserve=True)
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


def parse_schema(document: Mapping[str, Any], *, rules: bool = True) -> SchemaNode:
    """The node an OpenAPI v3 structural schema describes; raises CelError for a broken rule."""
    node = _parse_node(document, _parse_rules if rules else _skip_rules)
    mark_rules(node)
    return node


RuleReader = Callable[[Mapping[str, Any]], tuple[RuleSpec, ...]]


def _parse_node(doc: Mapping[str, Any], rules: RuleReader) -> SchemaNode:
    def parse(part: Mapping[str, Any]) -> SchemaNode:
        return _parse_node(part, rules)

    additional = doc.get("additionalProperties")
    items = doc.get("items")
    return SchemaNode(
        type=doc.get("type") or "",
        format=doc.get("format") or "",
        properties={name: parse(sub) for name, sub in (doc.get("properties") or {}).items()},
        additional=parse(additional) if isinstance(additional, dict) else ANYTHING if additional else None,
        items=parse(items) if isinstance(items, dict) else None,
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
        all_of=tuple(map(parse, doc.get("allOf") or ())),
        any_of=tuple(map(parse, doc.get("anyOf") or ())),
        one_of=tuple(map(parse, doc.get("oneOf") or ())),
        none_of=parse(doc["not"]) if doc.get("not") else None,
        rules=rules(doc),
    )


def _parse_rules(doc: Mapping[str, Any]) -> tuple[RuleSpec, ...]:
    return tuple(map(_parse_rule, doc.get("x-kubernetes-validations") or ()))


def _skip_rules(doc: Mapping[str, Any]) -> tuple[RuleSpec, ...]:
    return ()


def _parse_rule(entry: Mapping[str, Any]) -> RuleSpec:
    expression = entry.get("messageExpression")
    return RuleSpec(
        rule=compile_rule(entry.get("rule") or ""),
        message=entry.get("message") or "",
        message_rule=compile_rule(expression) if expression else None,
        reason=entry.get("reason") or "",
        field_path=entry.get("fieldPath") or "",
        optional_old=bool(entry.get("optionalOldSelf")),
    )


def mark_rules(node: SchemaNode) -> None:
    """Note on every node whether anything below it has rules or values that CEL sees differently."""
    below = [*node.properties.values(), node.additional, node.items]
    children = [child for child in below if child is not None]
    for child in children:
        if child is not ANYTHING:
            mark_rules(child)
    node.has_rules = bool(node.rules) or any(child.has_rules for child in children)
    node.plain = (
        node.type not in ("number", "integer")
        and node.format not in ("date-time", "date", "duration", "byte")
        and all(_IDENTIFIER.match(name) and escape_name(name) == name for name in node.properties)
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


def escape_name(name: str) -> str:
    """A property name as a rule must spell it."""
    if name in _RESERVED:
        return f"__{name}__"
    return re.sub(r"__|[.\-/]", lambda match: _ESCAPES[match.group()], name)

"""What custom objects must look like: drop what is unknown, fill what is absent, complain about the rest.

Inputs are never changed; unchanged parts of an answer are shared with its input.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any

from dovetail.api.schema.causes import Cause, list_causes
from dovetail.api.schema.cel_rules import check_rules
from dovetail.api.schema.nodes import MISSING, SchemaNode, parse_schema
from dovetail.api.schema.validation import SchemaFailure, find_failures

# These say that a value has the wrong shape; a rule run over it would only add noise.
_BLOCKING = frozenset(
    {
        "FieldValueRequired",
        "FieldValueNotSupported",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
_DUPLICATE = "duplicate"
_UNCHECKED = Cause(
    "<nil>",
    "FieldValueInvalid",
    "Invalid value: null: some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)
_KEPT = ("apiVersion", "kind", "metadata")


class Schema:
    """One kind's schema. `metadata` describes the object's metadata, which no CRD may.

    With `types_only`, as for built-in kinds, nothing is defaulted and only types are checked.
    """

    def __init__(
        self,
        root: SchemaNode,
        metadata: SchemaNode | None = None,
        *,
        types_only: bool = False,
        document: Mapping[str, Any] | None = None,
    ) -> None:
        self.root = root
        self.metadata = metadata
        # What it was read from, for those who publish it.
        self.document: Mapping[str, Any] = document or {}
        self._types_only = types_only

    @cached_property
    def described(self) -> SchemaNode:
        """The root with metadata described too, as no CRD does itself."""
        if self.metadata is None:
            return self.root
        return replace(self.root, properties={**self.root.properties, "metadata": self.metadata})

    @classmethod
    def from_openapi(
        cls, document: Mapping[str, Any], metadata: SchemaNode | None = None, *, rules: bool = True
    ) -> Schema:
        """The schema an `openAPIV3Schema` describes; raises CelError for a rule that does not compile.

        Without `rules` it has none, and CEL is not loaded.
        """
        return cls(parse_schema(document, rules=rules), metadata, document=document)

    def prune(self, obj: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """The object without unknown fields, and the paths of those dropped."""
        unknown: list[str] = []
        pruned = _prune_object(self.root, obj, unknown, resource=True)
        if self.metadata is not None and isinstance(obj.get("metadata"), dict):
            below: list[str] = []
            metadata = _prune_value(self.metadata, obj["metadata"], below)
            if below:
                unknown.extend(_join_below("metadata", path) for path in below)
                pruned = {**pruned, "metadata": metadata}
        return pruned, unknown

    def apply_defaults(self, obj: dict[str, Any]) -> dict[str, Any]:
        """The object with every absent field that has a default filled in."""
        if self._types_only:
            return obj
        filled: dict[str, Any] = _default_value(self.root, obj, top=True)
        return filled

    def validate(self, obj: dict[str, Any], old: dict[str, Any] | None = None) -> list[Cause]:
        """Every complaint about the object; on an update, only about what changed."""
        before = MISSING if old is None else old
        failures = self.find_failures(obj, before)
        if (
            old is not None
            and any(each.keyword == _DUPLICATE for each in failures)
            and any(each.keyword == _DUPLICATE for each in self.find_failures(old))
        ):
            # The old object had duplicates already: then all those of the new one are tolerated.
            failures = [each for each in failures if each.keyword != _DUPLICATE]
        causes = list(list_causes(failures))
        if not self.root.has_rules:
            return causes
        if any(cause.type in _BLOCKING for cause in causes):
            return [*causes, _UNCHECKED]
        return [*causes, *check_rules(self.root, obj, before)]

    def find_failures(
        self, obj: Mapping[str, Any], old: Any = MISSING, *, unknown: bool = False
    ) -> list[SchemaFailure]:
        """Every keyword the object breaks, rules apart; unknown fields too, where asked for."""
        return find_failures(self.root, obj, old, types_only=self._types_only, unknown=unknown)


def _join_below(key: str, path: str) -> str:
    return f"{key}{path}" if path.startswith("[") else f"{key}.{path}"


def _prune_value(node: SchemaNode, value: Any, unknown: list[str]) -> Any:
    """The value without unknown fields; paths of those are relative to it, as most values have none."""
    if isinstance(value, dict):
        return _prune_object(node, value, unknown, resource=node.embedded)
    if not isinstance(value, list) or node.items is None:
        return value
    pruned = []
    for index, item in enumerate(value):
        below: list[str] = []
        pruned.append(_prune_value(node.items, item, below))
        unknown.extend(_join_below(f"[{index}]", path) for path in below)
    return value if all(a is b for a, b in zip(pruned, value, strict=True)) else pruned


def _prune_object(
    node: SchemaNode, value: dict[str, Any], unknown: list[str], *, resource: bool
) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for key, item in value.items():
        if resource and key in _KEPT:
            continue
        child = node.find_child(key)
        if child is None:
            if not node.preserve:
                unknown.append(key)
                changes[key] = MISSING
        elif isinstance(item, dict | list):
            below: list[str] = []
            left = _prune_value(child, item, below)
            if left is not item:
                changes[key] = left
                unknown.extend(_join_below(key, path) for path in below)
    if not changes:
        return value
    return {key: item for key, item in (value | changes).items() if item is not MISSING}


def _default_value(node: SchemaNode, value: Any, *, top: bool = False) -> Any:
    if isinstance(value, list) and node.items is not None:
        items = node.items
        filled = [_default_value(items, item) for item in value]
        return value if all(a is b for a, b in zip(filled, value, strict=True)) else filled
    if not isinstance(value, dict):
        return value
    changes: dict[str, Any] = {}
    for key, child in node.properties.items():
        if not (top and key in _KEPT):
            _default_field(child, value, key, changes)
    if node.additional is not None:
        for key in value:
            if key not in node.properties:
                _default_field(node.additional, value, key, changes)
    if not changes:
        return value
    merged = {**value, **changes}
    return {key: item for key, item in merged.items() if item is not MISSING}


def _default_field(child: SchemaNode, parent: dict[str, Any], key: str, changes: dict[str, Any]) -> None:
    """Note in `changes` what the field becomes, MISSING if it goes."""
    current = parent.get(key, MISSING)
    wanted = current
    if current is None and not child.nullable:
        wanted = MISSING
    if wanted is MISSING and child.default is not MISSING:
        wanted = copy.deepcopy(child.default)
    if wanted is not MISSING:
        wanted = _default_value(child, wanted)
    if wanted is not current:
        changes[key] = wanted

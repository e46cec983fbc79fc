"""Run a schema's CEL rules over an object: each where it stands, on updates only where something changed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from dovetail.api.schema.causes import Cause, join_path
from dovetail.api.schema.cel import CelError, CostExceeded
from dovetail.api.schema.cel_cost import CostBudget
from dovetail.api.schema.formats import parse_date_time, parse_duration
from dovetail.api.schema.nodes import MISSING, RuleSpec, SchemaNode, escape_name
from dovetail.api.schema.validation import encode_list_key, find_old_value, index_by_key, is_same_json

_CATEGORIES = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def check_rules(node: SchemaNode, value: Any, old: Any) -> Iterator[Cause]:
    """Every rule that does not hold, parents before children, until the object's budget is spent."""
    return _walk_rules(CostBudget(), node, value, old, "", False)


def _walk_rules(
    budget: CostBudget, node: SchemaNode, value: Any, old: Any, path: str, unchanged: bool
) -> Iterator[Cause]:
    # What stands in an unchanged parent is unchanged too, even where its own old self cannot be told.
    if not node.has_rules or value is None or budget.exhausted:
        return
    unchanged = unchanged or (old is not MISSING and is_same_json(value, old))
    if node.rules:
        yield from _check_rules_at(budget, node, value, old, path, unchanged)
    if isinstance(value, dict):
        for key, item in value.items():
            child = node.find_child(key)
            if child is not None:
                below = join_path(path, key) if key in node.properties else f"{path}[{key}]"
                yield from _walk_rules(budget, child, item, find_old_value(old, key), below, unchanged)
    elif isinstance(value, list) and node.items is not None:
        earlier = index_by_key(node, old)
        for index, item in enumerate(value):
            before = earlier.get(encode_list_key(node, item), MISSING) if earlier else MISSING
            yield from _walk_rules(budget, node.items, item, before, f"{path}[{index}]", unchanged)


def _check_rules_at(
    budget: CostBudget, node: SchemaNode, value: Any, old: Any, path: str, unchanged: bool
) -> Iterator[Cause]:
    mine: Any = MISSING
    before: Any = None
    for spec in node.rules:
        if unchanged and (not spec.transition or (spec.rule.holds_when_equal and not spec.optional_old)):
            continue
        if spec.transition and old is MISSING and not spec.optional_old:
            continue
        if mine is MISSING:
            mine = to_cel_value(node, value)
            before = None if old is MISSING else to_cel_value(node, old)
        cause = _run_rule(budget, spec, mine, before if spec.transition else None, path)
        if cause is not None:
            yield cause
        if budget.exhausted:
            return


def _run_rule(budget: CostBudget, spec: RuleSpec, value: Any, old: Any, path: str) -> Cause | None:
    kind = spec.reason or "FieldValueInvalid"
    field = (path + spec.field_path).lstrip(".") or "<nil>"
    optional = spec.optional_old and spec.transition
    try:
        if spec.rule.evaluate(value, old, optional_old=optional, budget=budget):
            return None
    except CostExceeded as error:
        return Cause(field, "FieldValueInvalid", f"Invalid value: {error}")
    except CelError as error:
        message = f"Invalid value: {error} evaluating rule: {_describe_rule(spec)}"
        return Cause(field, "FieldValueInvalid", message)
    return Cause(
        field, kind, f"{_CATEGORIES.get(kind, 'Invalid value')}: {_build_message(budget, spec, value, old)}"
    )


def _build_message(budget: CostBudget, spec: RuleSpec, value: Any, old: Any) -> str:
    if spec.message_rule is not None:
        variables = {"self": value} if old is None else {"self": value, "oldSelf": old}
        try:
            text = spec.message_rule.compute_value(variables, budget)
        except CelError:
            text = None  # as a real server: a message that cannot be made gives way to the fixed one
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text.strip()
    return _describe_rule(spec)


def _describe_rule(spec: RuleSpec) -> str:
    return spec.message or f"failed rule: {spec.rule.text.strip()}"


def to_cel_value(node: SchemaNode, value: Any) -> Any:
    """A JSON value as rules see it: numbers by their declared type, times as times, names escaped."""
    if node.plain or value is None:
        return value
    if isinstance(value, dict):
        return {
            escape_name(key) if key in node.properties else key: (
                item if (child := node.find_child(key)) is None else to_cel_value(child, item)
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        return value if node.items is None else [to_cel_value(node.items, item) for item in value]
    return _convert_scalar(node, value)


def _convert_scalar(node: SchemaNode, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if node.type == "number" and isinstance(value, int):
        return float(value)
    if node.type == "integer" and isinstance(value, float):
        return int(value)
    if isinstance(value, str):
        return _parse_formatted_text(node.format, value)
    return value


def _parse_formatted_text(name: str, text: str) -> Any:
    """Formatted text as what it means. Old text may mean nothing: it stays text, and its rules fail."""
    try:
        match name:
            case "date-time":
                return parse_date_time(text)
            case "date":
                return parse_date_time(f"{text}T00:00:00Z")
            case "duration":
                return parse_duration(text)
            case "byte":
                return base64.b64decode(text, validate=True)
    except ValueError:
        return text
    return text

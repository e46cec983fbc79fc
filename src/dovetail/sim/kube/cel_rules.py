"""Run a schema's CEL rules over an object: each where it stands, on updates only where something changed."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from dovetail.sim.kube.cel import CelError, CostExceeded
from dovetail.sim.kube.cel_cost import CostBudget
from dovetail.sim.kube.formats import date_time, duration
from dovetail.sim.kube.nodes import MISSING, Node, RuleSpec, escaped
from dovetail.sim.kube.validation import Cause, by_key, correlated, join, key_text, same

_CATEGORIES = {
    "FieldValueInvalid": "Invalid value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
}


def check_rules(node: Node, value: Any, old: Any) -> Iterator[Cause]:
    """Every rule that does not hold, parents before children, until the object's budget is spent."""
    return _walk(CostBudget(), node, value, old, "", False)


def _walk(
    budget: CostBudget, node: Node, value: Any, old: Any, path: str, unchanged: bool
) -> Iterator[Cause]:
    # What stands in an unchanged parent is unchanged too, even where its own old self cannot be told.
    if not node.has_rules or value is None or budget.exhausted:
        return
    unchanged = unchanged or (old is not MISSING and same(value, old))
    if node.rules:
        yield from _at(budget, node, value, old, path, unchanged)
    if isinstance(value, dict):
        for key, item in value.items():
            child = node.child(key)
            if child is not None:
                below = join(path, key) if key in node.properties else f"{path}[{key}]"
                yield from _walk(budget, child, item, correlated(old, key), below, unchanged)
    elif isinstance(value, list) and node.items is not None:
        earlier = by_key(node, old)
        for index, item in enumerate(value):
            before = earlier.get(key_text(node, item), MISSING) if earlier else MISSING
            yield from _walk(budget, node.items, item, before, f"{path}[{index}]", unchanged)


def _at(budget: CostBudget, node: Node, value: Any, old: Any, path: str, unchanged: bool) -> Iterator[Cause]:
    mine: Any = MISSING
    before: Any = None
    for spec in node.rules:
        if unchanged and (not spec.transition or (spec.rule.holds_when_equal and not spec.optional_old)):
            continue
        if spec.transition and old is MISSING and not spec.optional_old:
            continue
        if mine is MISSING:
            mine = cel_value(node, value)
            before = None if old is MISSING else cel_value(node, old)
        cause = _run(budget, spec, mine, before if spec.transition else None, path)
        if cause is not None:
            yield cause
        if budget.exhausted:
            return


def _run(budget: CostBudget, spec: RuleSpec, value: Any, old: Any, path: str) -> Cause | None:
    kind = spec.reason or "FieldValueInvalid"
    field = (path + spec.field_path).lstrip(".") or "<nil>"
    optional = spec.optional_old and spec.transition
    try:
        if spec.rule.evaluate(value, old, optional_old=optional, budget=budget):
            return None
    except CostExceeded as error:
        return Cause(field, "FieldValueInvalid", f"Invalid value: {error}")
    except CelError as error:
        message = f"Invalid value: {error} evaluating rule: {_fixed(spec)}"
        return Cause(field, "FieldValueInvalid", message)
    return Cause(field, kind, f"{_CATEGORIES.get(kind, 'Invalid value')}: {_said(budget, spec, value, old)}")


def _said(budget: CostBudget, spec: RuleSpec, value: Any, old: Any) -> str:
    if spec.message_rule is not None:
        variables = {"self": value} if old is None else {"self": value, "oldSelf": old}
        try:
            text = spec.message_rule.value(variables, budget)
        except CelError:
            text = None  # as a real server: a message that cannot be made gives way to the fixed one
        if isinstance(text, str) and text.strip() and "\n" not in text:
            return text.strip()
    return _fixed(spec)


def _fixed(spec: RuleSpec) -> str:
    return spec.message or f"failed rule: {spec.rule.text.strip()}"


def cel_value(node: Node, value: Any) -> Any:
    """A JSON value as rules see it: numbers by their declared type, times as times, names escaped."""
    if node.plain or value is None:
        return value
    if isinstance(value, dict):
        return {
            escaped(key) if key in node.properties else key: (
                item if (child := node.child(key)) is None else cel_value(child, item)
            )
            for key, item in value.items()
        }
    if isinstance(value, list):
        return value if node.items is None else [cel_value(node.items, item) for item in value]
    return _scalar(node, value)


def _scalar(node: Node, value: Any) -> Any:
    if isinstance(value, bool):
        return value
    if node.type == "number" and isinstance(value, int):
        return float(value)
    if node.type == "integer" and isinstance(value, float):
        return int(value)
    if isinstance(value, str):
        return _text(node.format, value)
    return value


def _text(name: str, text: str) -> Any:
    """Formatted text as what it means. Old text may mean nothing: it stays text, and its rules fail."""
    try:
        match name:
            case "date-time":
                return date_time(text)
            case "date":
                return date_time(f"{text}T00:00:00Z")
            case "duration":
                return duration(text)
            case "byte":
                return base64.b64decode(text, validate=True)
    except ValueError:
        return text
    return text

"""DynamoDB tables: items by key, conditional writes and queries, as far as they are used here.

Over HTTP moto answers instead; the same tests run against both, which keeps this one honest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.expressions import Expression, assigned

__all__ = ["Tables"]

# What one answer to a query holds at most, in bytes.
PAGE = 1024 * 1024
Key = tuple[str, ...]
Item = dict[str, Any]


@dataclass(slots=True)
class Table:
    """A table: the names of its keys, and its items by their values."""

    keys: tuple[str, ...]
    items: dict[Key, Item] = field(default_factory=dict)

    def key(self, given: Mapping[str, Any]) -> Key:
        return tuple(json.dumps(given[name], sort_keys=True) for name in self.keys)


class Tables(Subject):
    """The tables of an account in a region."""

    def begin(self) -> None:
        self.by_name: dict[str, Table] = {}

    def add(self, name: str, *keys: str) -> Table:
        made = self.by_name[name] = Table(keys or ("pk", "sk"))
        return made

    def items(self, name: str) -> list[Item]:
        """A table's items in the order of their keys."""
        return [item for _, item in sorted(self.by_name[name].items.items())]


def _table(ask: Ask) -> Table:
    found = ask.here(Tables).by_name.get(ask.need("TableName"))
    if found is None:
        raise ask.refuse("ResourceNotFoundException", "Requested resource not found")
    return found


def _checked(ask: Ask, item: Item) -> None:
    condition = ask.get("ConditionExpression")
    if condition and not _expression(ask, condition).holds(item):
        raise ask.refuse("ConditionalCheckFailedException", "The conditional request failed")


def _expression(ask: Ask, text: str) -> Expression:
    try:
        return Expression(
            text, ask.get("ExpressionAttributeNames", {}), ask.get("ExpressionAttributeValues", {})
        )
    except ValueError as error:
        raise ask.refuse("ValidationException", f"Invalid expression: {error}") from error


@operation("dynamodb", "CreateTable")
def create_table(ask: Ask) -> Json:
    name, tables = ask.need("TableName"), ask.here(Tables)
    if name in tables.by_name:
        raise ask.refuse("ResourceInUseException", f"Table already exists: {name}")
    tables.add(name, *(each["AttributeName"] for each in ask.need("KeySchema")))
    return {"TableDescription": {"TableName": name, "TableStatus": "ACTIVE"}}


@operation("dynamodb", "GetItem")
def get_item(ask: Ask) -> Json:
    table = _table(ask)
    found = table.items.get(table.key(ask.need("Key")))
    return {"Item": dict(found)} if found is not None else {}


@operation("dynamodb", "PutItem")
def put_item(ask: Ask) -> Json:
    table, item = _table(ask), dict(ask.need("Item"))
    key = table.key(item)
    _checked(ask, table.items.get(key, {}))
    table.items[key] = item
    return {}


@operation("dynamodb", "UpdateItem")
def update_item(ask: Ask) -> Json:
    table, named = _table(ask), ask.need("Key")
    key = table.key(named)
    before = table.items.get(key, {})
    _checked(ask, before)
    names, values = ask.get("ExpressionAttributeNames", {}), ask.get("ExpressionAttributeValues", {})
    table.items[key] = {**named, **assigned(ask.need("UpdateExpression"), before, names, values)}
    return {}


@operation("dynamodb", "DeleteItem")
def delete_item(ask: Ask) -> Json:
    table = _table(ask)
    key = table.key(ask.need("Key"))
    _checked(ask, table.items.get(key, {}))
    table.items.pop(key, None)
    return {}


@operation("dynamodb", "Query")
def query(ask: Ask) -> Json:
    table = _table(ask)
    asked = _expression(ask, ask.need("KeyConditionExpression"))
    start = ask.get("ExclusiveStartKey")
    after = table.key(start) if start else ()
    found: list[Item] = []
    size = 0
    for key, item in sorted(table.items.items()):
        if key <= after or not asked.holds(item):
            continue
        size += len(json.dumps(item))
        if found and (size > PAGE or len(found) >= ask.get("Limit", len(table.items))):
            last = {name: found[-1][name] for name in table.keys}
            return {"Items": found, "Count": len(found), "LastEvaluatedKey": last}
        found.append(dict(item))
    return {"Items": found, "Count": len(found)}

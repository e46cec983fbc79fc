"""DynamoDB tables: items by key, conditional writes and queries, as far as they are used here.

Over HTTP moto answers instead; the same tests run against both, which keeps this one honest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["DynamoCondition", "DynamoTables", "apply_update"]

ItemView = Mapping[str, Any]
Test = Callable[[ItemView], bool]
Operand = Callable[[ItemView], Any]
TOKEN = re.compile(r"\s*(<=|>=|<>|[=<>(),+]|[#:]?[A-Za-z_][A-Za-z0-9_]*)")
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: bool(one == other),
    "<>": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


def _split_tokens(text: str) -> list[str]:
    found, at = [], 0
    text = text.strip()
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"unexpected {text[at:]!r}")
        found.append(token[1])
        at = token.end()
    return found


def _to_comparable(value: Any) -> Any:
    """A typed value as it compares: numbers as numbers, the rest with their type."""
    if value is None:
        return None
    ((kind, held),) = value.items()
    return ("N", float(held)) if kind == "N" else (kind, held)


class DynamoCondition:
    """A condition, ready to be put to items."""

    def __init__(self, text: str, names: Mapping[str, str], values: Mapping[str, Any]) -> None:
        self._rest, self._names, self._values = _split_tokens(text), names, values
        self._test = self._parse_or()
        if self._rest:
            raise ValueError(f"unexpected {self._rest[0]}")

    def holds(self, item: ItemView) -> bool:
        return self._test(item)

    def _take_token(self, wanted: str = "") -> str:
        if not self._rest or (wanted and self._rest[0].upper() != wanted):
            raise ValueError(f"expected {wanted or 'more'}")
        return self._rest.pop(0)

    def _is_next(self, word: str) -> bool:
        return bool(self._rest) and self._rest[0].upper() == word

    def _parse_or(self) -> Test:
        tests = [self._parse_and()]
        while self._is_next("OR"):
            self._take_token()
            tests.append(self._parse_and())
        return lambda item: any(test(item) for test in tests)

    def _parse_and(self) -> Test:
        tests = [self._parse_term()]
        while self._is_next("AND"):
            self._take_token()
            tests.append(self._parse_term())
        return lambda item: all(test(item) for test in tests)

    def _parse_term(self) -> Test:
        if self._is_next("NOT"):
            self._take_token()
            inner = self._parse_term()
            return lambda item: not inner(item)
        if self._is_next("("):
            self._take_token()
            inner = self._parse_or()
            self._take_token(")")
            return inner
        word = self._take_token()
        if self._is_next("("):
            return self._parse_function(word)
        one, compare, other = (
            self._parse_operand(word),
            COMPARE[self._take_token()],
            self._parse_operand(self._take_token()),
        )

        def test(item: ItemView) -> bool:
            left, right = one(item), other(item)
            return None not in (left, right) and left[0] == right[0] and compare(left, right)

        return test

    def _parse_function(self, name: str) -> Test:
        self._take_token("(")
        first, others = self._parse_operand(self._take_token()), list[Operand]()
        while self._is_next(","):
            self._take_token()
            others.append(self._parse_operand(self._take_token()))
        self._take_token(")")
        match name:
            case "attribute_exists":
                return lambda item: first(item) is not None
            case "attribute_not_exists":
                return lambda item: first(item) is None
            case "begins_with":
                return lambda item: bool((first(item) or ("S", ""))[1].startswith(others[0](item)[1]))
        raise ValueError(f"there is no function {name}")

    def _parse_operand(self, word: str) -> Operand:
        if word.startswith(":"):
            if word not in self._values:
                raise ValueError(f"{word} is not given")
            known = _to_comparable(self._values[word])
            return lambda item: known
        name = self._names.get(word, word)
        return lambda item: _to_comparable(item.get(name))


def apply_update(
    text: str, item: ItemView, names: Mapping[str, str], values: Mapping[str, Any]
) -> dict[str, Any]:
    """The item after `SET a = :x, b = b + :y REMOVE c`."""
    after, rest, verb = dict(item), _split_tokens(text), ""
    while rest:
        word = rest.pop(0)
        if word.upper() in ("SET", "REMOVE"):
            verb = word.upper()
            continue
        if word == ",":
            continue
        name = names.get(word, word)
        if verb == "REMOVE":
            after.pop(name, None)
            continue
        if rest.pop(0) != "=":
            raise ValueError(f"expected = after {word}")
        value = _resolve_value(rest.pop(0), item, names, values)
        while rest and rest[0] == "+":
            rest.pop(0)
            added = _resolve_value(rest.pop(0), item, names, values)
            value = {"N": str(int(value["N"]) + int(added["N"]))}
        after[name] = value
    return after


def _resolve_value(word: str, item: ItemView, names: Mapping[str, str], values: Mapping[str, Any]) -> Any:
    return values[word] if word.startswith(":") else item[names.get(word, word)]


# What one answer to a query holds at most, in bytes.
PAGE = 1024 * 1024
Key = tuple[str, ...]
Item = dict[str, Any]


@dataclass(slots=True)
class DynamoTable:
    """A table: the names of its keys, and its items by their values."""

    keys: tuple[str, ...]
    items: dict[Key, Item] = field(default_factory=dict)

    def key_of(self, given: Mapping[str, Any]) -> Key:
        return tuple(json.dumps(given[name], sort_keys=True) for name in self.keys)


class DynamoTables(ServiceState):
    """The tables of an account in a region."""

    def init_state(self) -> None:
        self.by_name: dict[str, DynamoTable] = {}

    def add(self, name: str, *keys: str) -> DynamoTable:
        made = self.by_name[name] = DynamoTable(keys or ("pk", "sk"))
        return made

    def list_items(self, name: str) -> list[Item]:
        """A table's items in the order of their keys."""
        return [item for _, item in sorted(self.by_name[name].items.items())]


def _find_table(request: AwsRequest) -> DynamoTable:
    found = request.regional_state(DynamoTables).by_name.get(request.get_required("TableName"))
    if found is None:
        raise request.refuse("ResourceNotFoundException", "Requested resource not found")
    return found


def _check_condition(request: AwsRequest, item: Item) -> None:
    condition = request.get("ConditionExpression")
    if condition and not _parse_condition(request, condition).holds(item):
        raise request.refuse("ConditionalCheckFailedException", "The conditional request failed")


def _parse_condition(request: AwsRequest, text: str) -> DynamoCondition:
    try:
        return DynamoCondition(
            text, request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
        )
    except ValueError as error:
        raise request.refuse("ValidationException", f"Invalid expression: {error}") from error


@operation("dynamodb", "CreateTable")
def create_table(request: AwsRequest) -> Json:
    name, tables = request.get_required("TableName"), request.regional_state(DynamoTables)
    if name in tables.by_name:
        raise request.refuse("ResourceInUseException", f"Table already exists: {name}")
    tables.add(name, *(each["AttributeName"] for each in request.get_required("KeySchema")))
    return {"TableDescription": {"TableName": name, "TableStatus": "ACTIVE"}}


@operation("dynamodb", "GetItem")
def get_item(request: AwsRequest) -> Json:
    table = _find_table(request)
    found = table.items.get(table.key_of(request.get_required("Key")))
    return {"Item": dict(found)} if found is not None else {}


@operation("dynamodb", "PutItem")
def put_item(request: AwsRequest) -> Json:
    table, item = _find_table(request), dict(request.get_required("Item"))
    key = table.key_of(item)
    _check_condition(request, table.items.get(key, {}))
    table.items[key] = item
    return {}


@operation("dynamodb", "UpdateItem")
def update_item(request: AwsRequest) -> Json:
    table, named = _find_table(request), request.get_required("Key")
    key = table.key_of(named)
    before = table.items.get(key, {})
    _check_condition(request, before)
    names, values = request.get("ExpressionAttributeNames", {}), request.get("ExpressionAttributeValues", {})
    table.items[key] = {
        **named,
        **apply_update(request.get_required("UpdateExpression"), before, names, values),
    }
    return {}


@operation("dynamodb", "DeleteItem")
def delete_item(request: AwsRequest) -> Json:
    table = _find_table(request)
    key = table.key_of(request.get_required("Key"))
    _check_condition(request, table.items.get(key, {}))
    table.items.pop(key, None)
    return {}


@operation("dynamodb", "Query")
def query_items(request: AwsRequest) -> Json:
    table = _find_table(request)
    asked = _parse_condition(request, request.get_required("KeyConditionExpression"))
    start = request.get("ExclusiveStartKey")
    after = table.key_of(start) if start else ()
    found: list[Item] = []
    size = 0
    for key, item in sorted(table.items.items()):
        if key <= after or not asked.holds(item):
            continue
        size += len(json.dumps(item))
        if found and (size > PAGE or len(found) >= request.get("Limit", len(table.items))):
            last = {name: found[-1][name] for name in table.keys}
            return {"Items": found, "Count": len(found), "LastEvaluatedKey": last}
        found.append(dict(item))
    return {"Items": found, "Count": len(found)}

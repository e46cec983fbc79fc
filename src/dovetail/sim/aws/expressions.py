"""Condition and update expressions of DynamoDB: comparisons, a few functions, AND, OR and NOT."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["Expression", "assigned"]

Item = Mapping[str, Any]
Test = Callable[[Item], bool]
Operand = Callable[[Item], Any]
TOKEN = re.compile(r"\s*(<=|>=|<>|[=<>(),+]|[#:]?[A-Za-z_][A-Za-z0-9_]*)")
COMPARE: Mapping[str, Callable[[Any, Any], bool]] = {
    "=": lambda one, other: bool(one == other),
    "<>": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


def _tokens(text: str) -> list[str]:
    found, at = [], 0
    text = text.strip()
    while at < len(text):
        token = TOKEN.match(text, at)
        if token is None:
            raise ValueError(f"unexpected {text[at:]!r}")
        found.append(token[1])
        at = token.end()
    return found


def _plain(value: Any) -> Any:
    """A typed value as it compares: numbers as numbers, the rest with their type."""
    if value is None:
        return None
    ((kind, held),) = value.items()
    return ("N", float(held)) if kind == "N" else (kind, held)


class Expression:
    """A condition, ready to be put to items."""

    def __init__(self, text: str, names: Mapping[str, str], values: Mapping[str, Any]) -> None:
        self._rest, self._names, self._values = _tokens(text), names, values
        self._test = self._either()
        if self._rest:
            raise ValueError(f"unexpected {self._rest[0]}")

    def holds(self, item: Item) -> bool:
        return self._test(item)

    def _take(self, wanted: str = "") -> str:
        if not self._rest or (wanted and self._rest[0].upper() != wanted):
            raise ValueError(f"expected {wanted or 'more'}")
        return self._rest.pop(0)

    def _next(self, word: str) -> bool:
        return bool(self._rest) and self._rest[0].upper() == word

    def _either(self) -> Test:
        tests = [self._both()]
        while self._next("OR"):
            self._take()
            tests.append(self._both())
        return lambda item: any(test(item) for test in tests)

    def _both(self) -> Test:
        tests = [self._one()]
        while self._next("AND"):
            self._take()
            tests.append(self._one())
        return lambda item: all(test(item) for test in tests)

    def _one(self) -> Test:
        if self._next("NOT"):
            self._take()
            inner = self._one()
            return lambda item: not inner(item)
        if self._next("("):
            self._take()
            inner = self._either()
            self._take(")")
            return inner
        word = self._take()
        if self._next("("):
            return self._function(word)
        one, compare, other = self._operand(word), COMPARE[self._take()], self._operand(self._take())

        def test(item: Item) -> bool:
            left, right = one(item), other(item)
            return None not in (left, right) and left[0] == right[0] and compare(left, right)

        return test

    def _function(self, name: str) -> Test:
        self._take("(")
        first, others = self._operand(self._take()), list[Operand]()
        while self._next(","):
            self._take()
            others.append(self._operand(self._take()))
        self._take(")")
        match name:
            case "attribute_exists":
                return lambda item: first(item) is not None
            case "attribute_not_exists":
                return lambda item: first(item) is None
            case "begins_with":
                return lambda item: bool((first(item) or ("S", ""))[1].startswith(others[0](item)[1]))
        raise ValueError(f"there is no function {name}")

    def _operand(self, word: str) -> Operand:
        if word.startswith(":"):
            if word not in self._values:
                raise ValueError(f"{word} is not given")
            known = _plain(self._values[word])
            return lambda item: known
        name = self._names.get(word, word)
        return lambda item: _plain(item.get(name))


def assigned(text: str, item: Item, names: Mapping[str, str], values: Mapping[str, Any]) -> dict[str, Any]:
    """The item after `SET a = :x, b = b + :y REMOVE c`."""
    after, rest, verb = dict(item), _tokens(text), ""
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
        value = _value(rest.pop(0), item, names, values)
        while rest and rest[0] == "+":
            rest.pop(0)
            added = _value(rest.pop(0), item, names, values)
            value = {"N": str(int(value["N"]) + int(added["N"]))}
        after[name] = value
    return after


def _value(word: str, item: Item, names: Mapping[str, str], values: Mapping[str, Any]) -> Any:
    return values[word] if word.startswith(":") else item[names.get(word, word)]

"""Label and field selectors: parsed once into a predicate over objects."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from dovetail.sim.kube.status import bad_request

Predicate = Callable[[dict[str, Any]], bool]

_TOKEN = re.compile(r"\s*(==|!=|=|!|<|>|\(|\)|,|[^\s=!<>(),]+)")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?\Z")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*\Z")
_INTEGER = re.compile(r"[+-]?[0-9]+\Z")


@lru_cache(maxsize=4096)
def is_qualified_name(key: str) -> bool:
    """Whether a text can be a label key: an optional DNS prefix, a slash, and up to 63 characters."""
    prefix, slash, name = key.rpartition("/")
    if slash and not (0 < len(prefix) <= 253 and _PREFIX.match(prefix)):
        return False
    return 0 < len(name) <= 63 and bool(_NAME.match(name))


def is_label_value(value: str) -> bool:
    """Whether a text can be a label value."""
    return value == "" or (len(value) <= 63 and bool(_NAME.match(value)))


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One term of a label selector."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()

    def __call__(self, labels: dict[str, str]) -> bool:
        value = labels.get(self.key)
        match self.operator:
            case "in":
                return value is not None and value in self.values
            case "notin":
                return value is None or value not in self.values
            case "exists":
                return value is not None
            case "absent":
                return value is None
            case _:
                return value is not None and self._compare_number(value)

    def _compare_number(self, value: str) -> bool:
        if not _INTEGER.match(value):
            return False
        bound = int(next(iter(self.values)))
        return int(value) > bound if self.operator == "gt" else int(value) < bound


class _Parser:
    """Reads a label selector token by token."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = self._scan_tokens(text)
        self.at = 0

    def _scan_tokens(self, text: str) -> list[str]:
        tokens, position = [], 0
        text = text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise self.build_error(f"unexpected character at {position}")
            tokens.append(found.group(1))
            position = found.end()
        return tokens

    def build_error(self, why: str) -> Exception:
        return bad_request(f'unable to parse requirement in selector "{self.text}": {why}')

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def read_key(self) -> str:
        key = self.next()
        if not is_qualified_name(key):
            raise self.build_error(f'"{key}" is not a label key')
        return key

    def read_value(self) -> str:
        if self.peek() in (",", ")", ""):
            return ""
        value = self.next()
        if not is_label_value(value):
            raise self.build_error(f'"{value}" is not a label value')
        return value

    def read_selector(self) -> tuple[LabelRequirement, ...]:
        found = []
        while self.at < len(self.tokens):
            found.append(self.read_requirement())
            if self.at < len(self.tokens) and self.next() != ",":
                raise self.build_error("expected a comma")
            if self.at == len(self.tokens) and self.tokens[-1] == ",":
                raise self.build_error("it ends in a comma")
        return tuple(found)

    def read_requirement(self) -> LabelRequirement:
        if self.peek() == "!":
            self.next()
            return LabelRequirement(self.read_key(), "absent")
        key = self.read_key()
        operator = self.peek()
        if operator in (",", ""):
            return LabelRequirement(key, "exists")
        self.next()
        if operator in ("=", "=="):
            return LabelRequirement(key, "in", frozenset((self.read_value(),)))
        if operator == "!=":
            return LabelRequirement(key, "notin", frozenset((self.read_value(),)))
        if operator in ("in", "notin"):
            return LabelRequirement(key, operator, self.read_values())
        if operator in (">", "<"):
            return LabelRequirement(key, "gt" if operator == ">" else "lt", frozenset((self.read_number(),)))
        raise self.build_error(f'"{operator}" is not an operator')

    def read_number(self) -> str:
        value = self.next()
        if not _INTEGER.match(value):
            raise self.build_error(f'"{value}" is not a whole number')
        return value

    def read_values(self) -> frozenset[str]:
        if self.next() != "(":
            raise self.build_error("expected an opening bracket")
        found = [self.read_value()]
        while (token := self.next()) == ",":
            found.append(self.read_value())
        if token != ")":
            raise self.build_error("expected a closing bracket")
        return frozenset(found)


def parse_labels(text: str) -> tuple[LabelRequirement, ...]:
    """The requirements of a label selector; empty for a selector that matches everything."""
    return _Parser(text).read_selector() if text and text.strip() else ()


def build_label_matcher(selector: dict[str, Any] | None) -> Predicate:
    """A LabelSelector document as a predicate over labels: None matches nothing, `{}` everything."""
    if selector is None:
        return lambda labels: False
    terms = [
        LabelRequirement(k, "in", frozenset((v,))) for k, v in (selector.get("matchLabels") or {}).items()
    ]
    words = {"In": "in", "NotIn": "notin", "Exists": "exists", "DoesNotExist": "absent"}
    for expression in selector.get("matchExpressions") or ():
        operator = words.get(expression.get("operator", ""), "in")
        terms.append(
            LabelRequirement(expression.get("key", ""), operator, frozenset(expression.get("values") or ()))
        )
    return lambda labels: all(term(labels) for term in terms)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One term of a field selector."""

    path: str
    value: str
    negated: bool

    def __call__(self, obj: dict[str, Any]) -> bool:
        return (read_field_text(obj, self.path) == self.value) is not self.negated


def read_field_text(obj: dict[str, Any], path: str) -> str:
    """A field as selectors compare it: absent is empty, booleans are `true` and `false`."""
    value: Any = obj
    for part in path.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if path == "source" and isinstance(value, dict):
        value = value.get("component")
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "false" if path in ("spec.unschedulable", "spec.hostNetwork") else ""
    return str(value)


def parse_fields(text: str, selectable: Sequence[str], kind: str) -> tuple[FieldTerm, ...]:
    """The terms of a field selector over the fields a kind offers."""
    terms = []
    for part in _split_fields(text):
        term = _parse_field_term(part, text)
        if term.path not in ("metadata.name", "metadata.namespace") and term.path not in selectable:
            raise bad_request(f'field label not supported: "{term.path}" for {kind}')
        terms.append(term)
    return tuple(terms)


def _split_fields(text: str) -> Iterable[str]:
    """Split at commas that no backslash escapes."""
    return (part for part in re.split(r"(?<!\\),", text) if part)


def _parse_field_term(part: str, text: str) -> FieldTerm:
    found = re.match(r"([^=!]+)(!=|==|=)(.*)\Z", part, re.DOTALL)
    if found is None:
        raise bad_request(f'invalid field selector "{text}": can not understand "{part}"')
    value = re.sub(r"\\([\\,=])", r"\1", found.group(3))
    return FieldTerm(found.group(1), value, found.group(2) == "!=")


@dataclass(frozen=True, slots=True)
class ObjectSelector:
    """A label and a field selector as one predicate over whole objects."""

    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[FieldTerm, ...] = ()

    @property
    def everything(self) -> bool:
        """Whether nothing is selected away."""
        return not self.labels and not self.fields

    def __call__(self, obj: dict[str, Any]) -> bool:
        if self.labels:
            labels = obj["metadata"].get("labels") or {}
            for requirement in self.labels:
                if not requirement(labels):
                    return False
        return all(term(obj) for term in self.fields)

    def find_fixed_value(self, path: str) -> str | None:
        """The one value a field must have to match, if the selector says so."""
        return next((t.value for t in self.fields if t.path == path and not t.negated), None)


EVERYTHING = ObjectSelector()

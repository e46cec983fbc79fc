"""Value checks of a structural schema, with the paths and reasons a real server gives.

An unchanged value is not complained about on an update, so that tightening a schema does not freeze the
objects that were written before it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from dovetail.api.patterns import compile_pattern
from dovetail.sim.kube.formats import well_formed
from dovetail.sim.kube.nodes import MISSING, Node

# kube-apiserver takes a larger number and leaves the trouble to whoever decodes it; here it is refused.
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class Cause(NamedTuple):
    """One complaint: where, of which kind (`FieldValueInvalid`, …), and in words."""

    field: str
    type: str
    message: str


def join(path: str, key: str) -> str:
    """The path of a property."""
    return f"{path}.{key}" if path else key


def show(value: Any) -> str:
    """A value as messages quote it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class Validation:
    """One pass over one object, gathering causes."""

    def __init__(self, *, types_only: bool = False) -> None:
        self.causes: list[Cause] = []
        self._types_only = types_only

    def check(self, node: Node, value: Any, old: Any, path: str) -> None:
        """Complain about the value unless it is what it was."""
        if old is not MISSING and same(value, old):
            return
        if value is None and (node.nullable or node.preserve or not node.type):
            return
        if not self._typed(node, value, path):
            self._whatever_its_type(node, value, path)
            return
        if not self._types_only:
            self._limits(node, value, path)
            self._junctors(node, value, path)
        if isinstance(value, dict):
            self._object(node, value, old, path)
        elif isinstance(value, list):
            self._list(node, value, old, path)

    def _whatever_its_type(self, node: Node, value: Any, path: str) -> None:
        """The checks that a value of the wrong type fails too."""
        if not self._types_only:
            if "enum" in node.limits:
                self._enum(node.limits["enum"], value, path)
            self._junctors(node, value, path)

    def _add(self, path: str, kind: str, message: str) -> None:
        self.causes.append(Cause(path or "<nil>", kind, message))

    def _invalid(self, path: str, value: Any, detail: str) -> None:
        self._add(path, "FieldValueInvalid", f"Invalid value: {show(value)}: {path} in body {detail}")

    def _typed(self, node: Node, value: Any, path: str) -> bool:
        if node.int_or_string:
            expected, fits = "integer,string", isinstance(value, str) or is_integer(value)
        elif not node.type:
            return True
        else:
            expected, fits = node.type, _TYPES.get(node.type, _anything)(value)
        if not fits:
            self._mistyped(path, expected, type_name(value))
        elif isinstance(value, str) and node.format and not well_formed(value, node.format):
            self._mistyped(path, node.format, value)
        return fits

    def _mistyped(self, path: str, expected: str, actual: str) -> None:
        detail = f"{path} in body must be of type {expected}: {show(actual)}"
        self._add(path, "FieldValueTypeInvalid", f"Invalid value: {show(actual)}: {detail}")

    def _object(self, node: Node, value: dict[str, Any], old: Any, path: str) -> None:
        if not self._types_only:
            for key in node.required:
                if key not in value:
                    self._add(join(path, key), "FieldValueRequired", "Required value")
        for key, item in value.items():
            child = node.child(key)
            if child is not None:
                self.check(child, item, correlated(old, key), join(path, key))

    def _list(self, node: Node, value: list[Any], old: Any, path: str) -> None:
        if not self._types_only:
            for index in duplicates(node, value):
                identity = list_key(node, value[index])
                self._add(f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {show(identity)}")
        if node.items is not None:
            earlier = by_key(node, old)
            for index, item in enumerate(value):
                before = earlier.get(key_text(node, item), MISSING) if earlier else MISSING
                self.check(node.items, item, before, f"{path}[{index}]")

    def _limits(self, node: Node, value: Any, path: str) -> None:
        text_failed = False
        for name in _LIMIT_ORDER:
            bound = node.limits.get(name)
            if bound is None or (text_failed and name in _OF_TEXT):
                continue
            if name == "enum":
                self._enum(bound, value, path)
            elif (failure := _LIMIT_CHECKS[name](value, bound, node)) is not None:
                kind, detail = failure
                text_failed = text_failed or name in _OF_TEXT
                if kind == "FieldValueInvalid":
                    self._invalid(path, value, detail)
                else:
                    self._add(path, kind, detail)

        low, high = _RANGES.get(node.format, (None, None))
        if low is not None and high is not None and is_integer(value) and not low <= value <= high:
            self._invalid(path, value, f"must be of type {node.format}")

    def _enum(self, allowed: list[Any], value: Any, path: str) -> None:
        if not any(same(value, option) for option in allowed):
            options = ", ".join(map(show, allowed))
            message = f"Unsupported value: {show(value)}: supported values: {options}"
            self._add(path, "FieldValueNotSupported", message)

    def _junctors(self, node: Node, value: Any, path: str) -> None:
        for part in node.all_of:
            self.check(part, value, MISSING, path)
        if node.any_of and not any(_fits(part, value, path) for part in node.any_of):
            self._junctor(path, "must validate at least one schema (anyOf)")
        if node.one_of and sum(_fits(part, value, path) for part in node.one_of) != 1:
            self._junctor(path, "must validate one and only one schema (oneOf)")
        if node.none_of is not None and _fits(node.none_of, value, path):
            self._junctor(path, "must not validate the schema (not)")

    def _junctor(self, path: str, detail: str) -> None:
        # kube-apiserver: the place is told in words only.
        self._add("", "FieldValueInvalid", f'Invalid value: "": "{path}" {detail}')


def _fits(node: Node, value: Any, path: str) -> bool:
    trial = Validation()
    trial.check(node, value, MISSING, path)
    return not trial.causes


def is_integer(value: Any) -> bool:
    """Whether JSON means a whole number: 1.0 counts, true does not."""
    return not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _anything(_: Any) -> bool:
    return True


_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": is_integer,
    "number": _is_number,
    # No type of JSON's own: what built-in kinds take for an amount.
    "quantity": lambda value: isinstance(value, str) or _is_number(value),
}


def type_name(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, float) and not value.is_integer():
        return "number"
    return next(name for name, fits in _TYPES.items() if fits(value))


def same(a: Any, b: Any) -> bool:
    """JSON equality: 1 and 1.0 are one number, true is not 1."""
    if a is b:
        return True
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def correlated(old: Any, key: str) -> Any:
    """The old value of a field, if there was one."""
    return old.get(key, MISSING) if isinstance(old, dict) else MISSING


def list_key(node: Node, item: Any) -> Any:
    """What tells one element of a list from another: its key fields, or all of it."""
    if node.list_type != "map" or not isinstance(item, dict) or node.items is None:
        return item
    keyed = {}
    for name in node.list_keys:
        child = node.items.properties.get(name)
        fallback = child.default if child is not None else MISSING
        if (value := item.get(name, fallback)) is not MISSING:
            keyed[name] = value
    return keyed


def key_text(node: Node, item: Any) -> str:
    """The same, as text that can be compared."""
    return canonical(list_key(node, item))


def canonical(value: Any) -> str:
    """One spelling per JSON value."""
    return _CANONICAL(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def by_key(node: Node, old: Any) -> dict[str, Any]:
    """The old elements of a keyed list that have their keys; nothing else can be told again."""
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    named = [
        item for item in old if isinstance(item, dict) and len(list_key(node, item)) == len(node.list_keys)
    ]
    return {key_text(node, item): item for item in named}


def duplicates(node: Node, value: list[Any]) -> Iterator[int]:
    """Where a set, or a list with keys, has an element for the second time; a third is not told."""
    if node.list_type not in ("set", "map"):
        return
    seen: Counter[str] = Counter()
    for index, item in enumerate(value):
        text = key_text(node, item)
        seen[text] += 1
        if seen[text] == 2:
            yield index


# Of a string only the first of these complains, as on a real server.
_OF_TEXT = ("maxLength", "minLength", "pattern")
Failure = tuple[str, str] | None
_INVALID = "FieldValueInvalid"


def _minimum(value: Any, bound: Any, node: Node) -> Failure:
    if not _is_number(value):
        return None
    exclusive = node.limits.get("exclusiveMinimum") is True
    if value > bound or (value == bound and not exclusive):
        return None
    return _INVALID, f"should be greater than {'' if exclusive else 'or equal to '}{show(bound)}"


def _maximum(value: Any, bound: Any, node: Node) -> Failure:
    if not _is_number(value):
        return None
    exclusive = node.limits.get("exclusiveMaximum") is True
    if value < bound or (value == bound and not exclusive):
        return None
    return _INVALID, f"should be less than {'' if exclusive else 'or equal to '}{show(bound)}"


def _multiple_of(value: Any, bound: Any, node: Node) -> Failure:
    if not _is_number(value) or not bound or (Fraction(str(value)) / Fraction(str(bound))).denominator == 1:
        return None
    return _INVALID, f"should be a multiple of {show(bound)}"


def _pattern(value: Any, bound: Any, node: Node) -> Failure:
    if not isinstance(value, str) or compile_pattern(bound).matches(value):
        return None
    return _INVALID, f"should match '{bound}'"


def _min_length(value: Any, bound: Any, node: Node) -> Failure:
    if not isinstance(value, str) or len(value) >= bound:
        return None
    return _INVALID, f"should be at least {bound} chars long"


def _max_length(value: Any, bound: Any, node: Node) -> Failure:
    if not isinstance(value, str) or len(value) <= bound:
        return None
    return "FieldValueTooLong", f"Too long: may not be more than {bound} bytes"


def _sized(kind: type, noun: str, *, least: bool) -> Callable[[Any, Any, Node], Failure]:
    def check(value: Any, bound: Any, node: Node) -> Failure:
        if not isinstance(value, kind):
            return None
        size = len(value)  # type: ignore[arg-type]  # kind is list or dict
        if least:
            return None if size >= bound else (_INVALID, f"should have at least {bound} {noun}")
        return None if size <= bound else ("FieldValueTooMany", _too_many(size, bound))

    return check


def _too_many(size: int, bound: int) -> str:
    return f"Too many: {size}: must have at most {bound} items"


def _unique(value: Any, bound: Any, node: Node) -> Failure:
    if not bound or not isinstance(value, list) or not _repeated(map(canonical, value)):
        return None
    return _INVALID, "shouldn't contain duplicates"


def _repeated(texts: Iterable[str]) -> bool:
    listed = list(texts)
    return len(set(listed)) < len(listed)


def _with_its_bound(value: Any, bound: Any, node: Node) -> Failure:
    return None


_LIMIT_CHECKS: dict[str, Callable[[Any, Any, Node], Failure]] = {
    "minimum": _minimum,
    "maximum": _maximum,
    "exclusiveMinimum": _with_its_bound,
    "exclusiveMaximum": _with_its_bound,
    "multipleOf": _multiple_of,
    "pattern": _pattern,
    "minLength": _min_length,
    "maxLength": _max_length,
    "minItems": _sized(list, "items", least=True),
    "maxItems": _sized(list, "items", least=False),
    "minProperties": _sized(dict, "properties", least=True),
    "maxProperties": _sized(dict, "properties", least=False),
    "uniqueItems": _unique,
}
_LIMIT_ORDER = ("enum", *_OF_TEXT, *(name for name in _LIMIT_CHECKS if name not in _OF_TEXT))

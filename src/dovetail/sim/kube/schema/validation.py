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
from dovetail.sim.kube.schema.formats import is_well_formed
from dovetail.sim.kube.schema.nodes import MISSING, SchemaNode

# kube-apiserver takes a larger number and leaves the trouble to whoever decodes it; here it is refused.
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class Cause(NamedTuple):
    """One complaint: where, of which kind (`FieldValueInvalid`, …), and in words."""

    field: str
    type: str
    message: str


def join_path(path: str, key: str) -> str:
    """The path of a property."""
    return f"{path}.{key}" if path else key


def format_value(value: Any) -> str:
    """A value as messages quote it."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


class SchemaValidation:
    """One pass over one object, gathering causes."""

    def __init__(self, *, types_only: bool = False) -> None:
        self.causes: list[Cause] = []
        self._types_only = types_only

    def check_value(self, node: SchemaNode, value: Any, old: Any, path: str) -> None:
        """Complain about the value unless it is what it was."""
        if old is not MISSING and is_same_json(value, old):
            return
        if value is None and (node.nullable or node.preserve or not node.type):
            return
        if not self._check_type(node, value, path):
            self._check_any_type(node, value, path)
            return
        if not self._types_only:
            self._check_limits(node, value, path)
            self._check_junctors(node, value, path)
        if isinstance(value, dict):
            self._check_object(node, value, old, path)
        elif isinstance(value, list):
            self._check_list(node, value, old, path)

    def _check_any_type(self, node: SchemaNode, value: Any, path: str) -> None:
        """The checks that a value of the wrong type fails too."""
        if not self._types_only:
            if "enum" in node.limits:
                self._check_enum(node.limits["enum"], value, path)
            self._check_junctors(node, value, path)

    def _add_cause(self, path: str, kind: str, message: str) -> None:
        self.causes.append(Cause(path or "<nil>", kind, message))

    def _add_invalid(self, path: str, value: Any, detail: str) -> None:
        self._add_cause(
            path, "FieldValueInvalid", f"Invalid value: {format_value(value)}: {path} in body {detail}"
        )

    def _check_type(self, node: SchemaNode, value: Any, path: str) -> bool:
        if node.int_or_string:
            expected, fits = "integer,string", isinstance(value, str) or is_integer(value)
        elif not node.type:
            return True
        else:
            expected, fits = node.type, _TYPES.get(node.type, _accept_anything)(value)
        if not fits:
            self._add_wrong_type(path, expected, describe_json_type(value))
        elif isinstance(value, str) and node.format and not is_well_formed(value, node.format):
            self._add_wrong_type(path, node.format, value)
        return fits

    def _add_wrong_type(self, path: str, expected: str, actual: str) -> None:
        detail = f"{path} in body must be of type {expected}: {format_value(actual)}"
        self._add_cause(path, "FieldValueTypeInvalid", f"Invalid value: {format_value(actual)}: {detail}")

    def _check_object(self, node: SchemaNode, value: dict[str, Any], old: Any, path: str) -> None:
        if not self._types_only:
            for key in node.required:
                if key not in value:
                    self._add_cause(join_path(path, key), "FieldValueRequired", "Required value")
        for key, item in value.items():
            child = node.find_child(key)
            if child is not None:
                self.check_value(child, item, find_old_value(old, key), join_path(path, key))

    def _check_list(self, node: SchemaNode, value: list[Any], old: Any, path: str) -> None:
        if not self._types_only:
            for index in find_duplicates(node, value):
                identity = read_list_key(node, value[index])
                self._add_cause(
                    f"{path}[{index}]", "FieldValueDuplicate", f"Duplicate value: {format_value(identity)}"
                )
        if node.items is not None:
            earlier = index_by_key(node, old)
            for index, item in enumerate(value):
                before = earlier.get(encode_list_key(node, item), MISSING) if earlier else MISSING
                self.check_value(node.items, item, before, f"{path}[{index}]")

    def _check_limits(self, node: SchemaNode, value: Any, path: str) -> None:
        text_failed = False
        for name in _LIMIT_ORDER:
            bound = node.limits.get(name)
            if bound is None or (text_failed and name in _OF_TEXT):
                continue
            if name == "enum":
                self._check_enum(bound, value, path)
            elif (failure := _LIMIT_CHECKS[name](value, bound, node)) is not None:
                kind, detail = failure
                text_failed = text_failed or name in _OF_TEXT
                if kind == "FieldValueInvalid":
                    self._add_invalid(path, value, detail)
                else:
                    self._add_cause(path, kind, detail)

        low, high = _RANGES.get(node.format, (None, None))
        if low is not None and high is not None and is_integer(value) and not low <= value <= high:
            self._add_invalid(path, value, f"must be of type {node.format}")

    def _check_enum(self, allowed: list[Any], value: Any, path: str) -> None:
        if not any(is_same_json(value, option) for option in allowed):
            options = ", ".join(map(format_value, allowed))
            message = f"Unsupported value: {format_value(value)}: supported values: {options}"
            self._add_cause(path, "FieldValueNotSupported", message)

    def _check_junctors(self, node: SchemaNode, value: Any, path: str) -> None:
        for part in node.all_of:
            self.check_value(part, value, MISSING, path)
        if node.any_of and not any(_is_valid(part, value, path) for part in node.any_of):
            self._add_junctor(path, "must validate at least one schema (anyOf)")
        if node.one_of and sum(_is_valid(part, value, path) for part in node.one_of) != 1:
            self._add_junctor(path, "must validate one and only one schema (oneOf)")
        if node.none_of is not None and _is_valid(node.none_of, value, path):
            self._add_junctor(path, "must not validate the schema (not)")

    def _add_junctor(self, path: str, detail: str) -> None:
        # kube-apiserver: the place is told in words only.
        self._add_cause("", "FieldValueInvalid", f'Invalid value: "": "{path}" {detail}')


def _is_valid(node: SchemaNode, value: Any, path: str) -> bool:
    trial = SchemaValidation()
    trial.check_value(node, value, MISSING, path)
    return not trial.causes


def is_integer(value: Any) -> bool:
    """Whether JSON means a whole number: 1.0 counts, true does not."""
    return not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _accept_anything(_: Any) -> bool:
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


def describe_json_type(value: Any) -> str:
    """The JSON type of a value."""
    if value is None:
        return "null"
    if isinstance(value, float) and not value.is_integer():
        return "number"
    return next(name for name, fits in _TYPES.items() if fits(value))


def is_same_json(a: Any, b: Any) -> bool:
    """JSON equality: 1 and 1.0 are one number, true is not 1."""
    if a is b:
        return True
    if isinstance(a, bool) != isinstance(b, bool):
        return False
    if isinstance(a, dict):
        return isinstance(b, dict) and a.keys() == b.keys() and all(is_same_json(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return isinstance(b, list) and len(a) == len(b) and all(map(is_same_json, a, b))
    return bool(a == b)


def find_old_value(old: Any, key: str) -> Any:
    """The old value of a field, if there was one."""
    return old.get(key, MISSING) if isinstance(old, dict) else MISSING


def read_list_key(node: SchemaNode, item: Any) -> Any:
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


def encode_list_key(node: SchemaNode, item: Any) -> str:
    """The same, as text that can be compared."""
    return encode_canonical(read_list_key(node, item))


def encode_canonical(value: Any) -> str:
    """One spelling per JSON value."""
    return _CANONICAL(value)


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode


def index_by_key(node: SchemaNode, old: Any) -> dict[str, Any]:
    """The old elements of a keyed list that have their keys; nothing else can be told again."""
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    named = [
        item
        for item in old
        if isinstance(item, dict) and len(read_list_key(node, item)) == len(node.list_keys)
    ]
    return {encode_list_key(node, item): item for item in named}


def find_duplicates(node: SchemaNode, value: list[Any]) -> Iterator[int]:
    """Where a set, or a list with keys, has an element for the second time; a third is not told."""
    if node.list_type not in ("set", "map"):
        return
    seen: Counter[str] = Counter()
    for index, item in enumerate(value):
        text = encode_list_key(node, item)
        seen[text] += 1
        if seen[text] == 2:
            yield index


# Of a string only the first of these complains, as on a real server.
_OF_TEXT = ("maxLength", "minLength", "pattern")
Failure = tuple[str, str] | None
_INVALID = "FieldValueInvalid"


def _check_minimum(value: Any, bound: Any, node: SchemaNode) -> Failure:
    if not _is_number(value):
        return None
    exclusive = node.limits.get("exclusiveMinimum") is True
    if value > bound or (value == bound and not exclusive):
        return None
    return _INVALID, f"should be greater than {'' if exclusive else 'or equal to '}{format_value(bound)}"


def _check_maximum(value: Any, bound: Any, node: SchemaNode) -> Failure:
    if not _is_number(value):
        return None
    exclusive = node.limits.get("exclusiveMaximum") is True
    if value < bound or (value == bound and not exclusive):
        return None
    return _INVALID, f"should be less than {'' if exclusive else 'or equal to '}{format_value(bound)}"


def _check_multiple_of(value: Any, bound: Any, node: SchemaNode) -> Failure:
    if not _is_number(value) or not bound or (Fraction(str(value)) / Fraction(str(bound))).denominator == 1:
        return None
    return _INVALID, f"should be a multiple of {format_value(bound)}"


def _check_pattern(value: Any, bound: Any, node: SchemaNode) -> Failure:
    if not isinstance(value, str) or compile_pattern(bound).has_match(value):
        return None
    return _INVALID, f"should match '{bound}'"


def _check_min_length(value: Any, bound: Any, node: SchemaNode) -> Failure:
    if not isinstance(value, str) or len(value) >= bound:
        return None
    return _INVALID, f"should be at least {bound} chars long"


def _check_max_length(value: Any, bound: Any, node: SchemaNode) -> Failure:
    if not isinstance(value, str) or len(value) <= bound:
        return None
    return "FieldValueTooLong", f"Too long: may not be more than {bound} bytes"


def _build_size_check(kind: type, noun: str, *, least: bool) -> Callable[[Any, Any, SchemaNode], Failure]:
    def check(value: Any, bound: Any, node: SchemaNode) -> Failure:
        if not isinstance(value, kind):
            return None
        size = len(value)  # type: ignore[arg-type]  # kind is list or dict
        if least:
            return None if size >= bound else (_INVALID, f"should have at least {bound} {noun}")
        return None if size <= bound else ("FieldValueTooMany", _describe_too_many(size, bound))

    return check


def _describe_too_many(size: int, bound: int) -> str:
    return f"Too many: {size}: must have at most {bound} items"


def _check_unique(value: Any, bound: Any, node: SchemaNode) -> Failure:
    if not bound or not isinstance(value, list) or not _has_duplicates(map(encode_canonical, value)):
        return None
    return _INVALID, "shouldn't contain duplicates"


def _has_duplicates(texts: Iterable[str]) -> bool:
    listed = list(texts)
    return len(set(listed)) < len(listed)


def _skip_with_bound(value: Any, bound: Any, node: SchemaNode) -> Failure:
    return None


_LIMIT_CHECKS: dict[str, Callable[[Any, Any, SchemaNode], Failure]] = {
    "minimum": _check_minimum,
    "maximum": _check_maximum,
    "exclusiveMinimum": _skip_with_bound,
    "exclusiveMaximum": _skip_with_bound,
    "multipleOf": _check_multiple_of,
    "pattern": _check_pattern,
    "minLength": _check_min_length,
    "maxLength": _check_max_length,
    "minItems": _build_size_check(list, "items", least=True),
    "maxItems": _build_size_check(list, "items", least=False),
    "minProperties": _build_size_check(dict, "properties", least=True),
    "maxProperties": _build_size_check(dict, "properties", least=False),
    "uniqueItems": _check_unique,
}
_LIMIT_ORDER = ("enum", *_OF_TEXT, *(name for name in _LIMIT_CHECKS if name not in _OF_TEXT))

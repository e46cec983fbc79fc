"""Check values against a structural schema: every keyword a value breaks, wherever it stands.

A failure says where and which keyword; whoever asked puts it into words, as kube-apiserver does in
`dovetail.api.schema.causes`. An unchanged value does not fail on an update, so that tightening a schema does
not freeze the objects that were written before it.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from dovetail.api.patterns import compile_pattern
from dovetail.api.schema.formats import is_well_formed
from dovetail.api.schema.nodes import MISSING, SchemaNode

FieldPath = tuple[str | int, ...]
# kube-apiserver takes a larger number and leaves the trouble to whoever decodes it; here it is refused.
_RANGES = {"int32": (-(2**31), 2**31 - 1), "int64": (-(2**63), 2**63 - 1)}


class SchemaFailure(NamedTuple):
    """One keyword that a value breaks: where, the value, the node it breaks, and what the keyword asks for.

    Beside the keywords of OpenAPI there are `range` (of int32 and int64), `unknown` (the value is that of
    a field the node does not have) and `duplicate` (the value is what identifies the item, and `wanted`
    counts its appearances so far).
    """

    path: FieldPath
    keyword: str
    value: Any
    node: SchemaNode
    wanted: Any = None


def find_failures(
    node: SchemaNode, value: Any, old: Any = MISSING, *, types_only: bool = False, unknown: bool = False
) -> list[SchemaFailure]:
    """Every failure of a value that was `old` before; those about unknown fields only where asked for."""
    validation = _SchemaValidation(types_only=types_only, unknown=unknown)
    validation.check_value(node, value, old, ())
    return validation.failures


class _SchemaValidation:
    """One pass over one object, gathering failures."""

    def __init__(self, *, types_only: bool, unknown: bool) -> None:
        self.failures: list[SchemaFailure] = []
        self._types_only = types_only
        self._unknown = unknown

    def check_value(self, node: SchemaNode, value: Any, old: Any, path: FieldPath) -> None:
        """Note what the value breaks, unless it is what it was."""
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

    def _check_any_type(self, node: SchemaNode, value: Any, path: FieldPath) -> None:
        """The checks that a value of the wrong type fails too."""
        if not self._types_only:
            if "enum" in node.limits:
                self._check_enum(node, value, path)
            self._check_junctors(node, value, path)

    def _add_failure(
        self, path: FieldPath, keyword: str, value: Any, node: SchemaNode, wanted: Any = None
    ) -> None:
        self.failures.append(SchemaFailure(path, keyword, value, node, wanted))

    def _check_type(self, node: SchemaNode, value: Any, path: FieldPath) -> bool:
        if node.int_or_string:
            expected, fits = "integer,string", isinstance(value, str) or is_integer(value)
        elif not node.type:
            return True
        else:
            expected, fits = node.type, _TYPES.get(node.type, _accept_anything)(value)
        if not fits:
            self._add_failure(path, "type", value, node, expected)
        elif isinstance(value, str) and node.format and not is_well_formed(value, node.format):
            self._add_failure(path, "format", value, node, node.format)
        return fits

    def _check_object(self, node: SchemaNode, value: dict[str, Any], old: Any, path: FieldPath) -> None:
        if not self._types_only:
            for key in node.required:
                if key not in value:
                    self._add_failure((*path, key), "required", MISSING, node)
        for key, item in value.items():
            child = node.find_child(key)
            if child is not None:
                self.check_value(child, item, find_old_value(old, key), (*path, key))
            elif self._unknown:
                self._add_failure((*path, key), "unknown", item, node)

    def _check_list(self, node: SchemaNode, value: list[Any], old: Any, path: FieldPath) -> None:
        if not self._types_only:
            for index, times in find_duplicates(node, value):
                self._add_failure((*path, index), "duplicate", read_list_key(node, value[index]), node, times)
        if node.items is not None:
            earlier = index_by_key(node, old)
            for index, item in enumerate(value):
                before = earlier.get(encode_list_key(node, item), MISSING) if earlier else MISSING
                self.check_value(node.items, item, before, (*path, index))

    def _check_limits(self, node: SchemaNode, value: Any, path: FieldPath) -> None:
        if node.limits:
            for name in _LIMIT_ORDER:
                bound = node.limits.get(name)
                if bound is None:
                    continue
                if name == "enum":
                    self._check_enum(node, value, path)
                elif not _LIMIT_CHECKS[name](value, bound, node):
                    self._add_failure(path, name, value, node, bound)
        low, high = _RANGES.get(node.format, (None, None))
        if low is not None and high is not None and is_integer(value) and not low <= value <= high:
            self._add_failure(path, "range", value, node, node.format)

    def _check_enum(self, node: SchemaNode, value: Any, path: FieldPath) -> None:
        allowed = node.limits["enum"]
        if not any(is_same_json(value, option) for option in allowed):
            self._add_failure(path, "enum", value, node, allowed)

    def _check_junctors(self, node: SchemaNode, value: Any, path: FieldPath) -> None:
        for part in node.all_of:
            self.failures += (each._replace(path=path + each.path) for each in find_failures(part, value))
        if node.any_of and all(find_failures(part, value) for part in node.any_of):
            self._add_failure(path, "anyOf", value, node)
        if node.one_of and sum(not find_failures(part, value) for part in node.one_of) != 1:
            self._add_failure(path, "oneOf", value, node)
        if node.none_of is not None and not find_failures(node.none_of, value):
            self._add_failure(path, "not", value, node)


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


_CANONICAL = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str).encode


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


def find_duplicates(node: SchemaNode, value: list[Any]) -> Iterator[tuple[int, int]]:
    """Where a set, or a list with keys, has an element again, and its appearances so far."""
    if node.list_type not in ("set", "map"):
        return
    seen: Counter[str] = Counter()
    for index, item in enumerate(value):
        text = encode_list_key(node, item)
        seen[text] += 1
        if seen[text] > 1:
            yield index, seen[text]


# A check says whether the value keeps within its bound; what the keyword is not about, does.
LimitCheck = Callable[[Any, Any, SchemaNode], bool]


def _check_minimum(value: Any, bound: Any, node: SchemaNode) -> bool:
    exclusive = node.limits.get("exclusiveMinimum") is True
    return not _is_number(value) or bool(value > bound or (value == bound and not exclusive))


def _check_maximum(value: Any, bound: Any, node: SchemaNode) -> bool:
    exclusive = node.limits.get("exclusiveMaximum") is True
    return not _is_number(value) or bool(value < bound or (value == bound and not exclusive))


def _check_multiple_of(value: Any, bound: Any, node: SchemaNode) -> bool:
    return (
        not _is_number(value) or not bound or (Fraction(str(value)) / Fraction(str(bound))).denominator == 1
    )


def _check_pattern(value: Any, bound: Any, node: SchemaNode) -> bool:
    return not isinstance(value, str) or compile_pattern(bound).has_match(value)


def _build_size_check(kind: type, *, least: bool) -> LimitCheck:
    def check(value: Any, bound: Any, node: SchemaNode) -> bool:
        if not isinstance(value, kind):
            return True
        size = len(value)  # type: ignore[arg-type]  # kind is str, list or dict
        return bool(size >= bound if least else size <= bound)

    return check


def _check_unique(value: Any, bound: Any, node: SchemaNode) -> bool:
    return not bound or not isinstance(value, list) or not _has_duplicates(map(encode_canonical, value))


def _has_duplicates(texts: Iterable[str]) -> bool:
    listed = list(texts)
    return len(set(listed)) < len(listed)


def _skip_with_bound(value: Any, bound: Any, node: SchemaNode) -> bool:
    return True


_LIMIT_CHECKS: dict[str, LimitCheck] = {
    "maxLength": _build_size_check(str, least=False),
    "minLength": _build_size_check(str, least=True),
    "pattern": _check_pattern,
    "minimum": _check_minimum,
    "maximum": _check_maximum,
    "exclusiveMinimum": _skip_with_bound,
    "exclusiveMaximum": _skip_with_bound,
    "multipleOf": _check_multiple_of,
    "minItems": _build_size_check(list, least=True),
    "maxItems": _build_size_check(list, least=False),
    "minProperties": _build_size_check(dict, least=True),
    "maxProperties": _build_size_check(dict, least=False),
    "uniqueItems": _check_unique,
}
_LIMIT_ORDER = ("enum", *_LIMIT_CHECKS)

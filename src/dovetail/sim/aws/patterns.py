"""EventBridge patterns: does an event match? Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from ipaddress import ip_address, ip_network
from typing import Any

__all__ = ["BadPattern", "check", "matches"]

ABSENT = object()
COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "=": lambda a, b: a == b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class BadPattern(ValueError):
    """The pattern is not one EventBridge takes."""


def check(pattern: object) -> None:
    """Raise BadPattern unless every leaf is a list of values or matchers."""
    if not isinstance(pattern, Mapping) or not pattern:
        raise BadPattern(
            "Event pattern is not valid. Reason: it must be a JSON object with at least one field"
        )
    for key, wanted in pattern.items():
        if key == "$or":
            if not isinstance(wanted, Sequence) or len(wanted) < 2:
                raise BadPattern(
                    "Event pattern is not valid. Reason: $or needs an array of at least 2 patterns"
                )
            for each in wanted:
                check(each)
        elif isinstance(wanted, Mapping):
            check(wanted)
        elif isinstance(wanted, list):
            _check_leaf(key, wanted)
        else:
            raise BadPattern(f'Event pattern is not valid. Reason: "{key}" must be an object or an array')


def _check_leaf(key: str, wanted: list[object]) -> None:
    if not wanted:
        raise BadPattern("Event pattern is not valid. Reason: Empty arrays are not allowed")
    for each in wanted:
        if isinstance(each, Mapping) and (len(each) != 1 or next(iter(each)) not in MATCHERS):
            raise BadPattern(f"Event pattern is not valid. Reason: Unrecognized match type in {key}")
        if isinstance(each, list):
            raise BadPattern(f"Event pattern is not valid. Reason: an array inside the array of {key}")


def matches(pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
    """Every field of the pattern is met; of the values of a field, one."""
    return all(
        any(matches(each, event) for each in wanted)
        if key == "$or"
        else _field(wanted, event.get(key, ABSENT) if isinstance(event, Mapping) else ABSENT)
        for key, wanted in pattern.items()
    )


def _field(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, Mapping):
        if isinstance(value, list):
            return any(isinstance(each, Mapping) and matches(wanted, each) for each in value)
        return matches(wanted, value if isinstance(value, Mapping) else {})
    values = value if isinstance(value, list) else [value]
    if value == []:
        values = [ABSENT]
    return any(_meets(each, one) for each in wanted for one in values)


def _meets(wanted: Any, value: Any) -> bool:
    if isinstance(wanted, Mapping):
        ((name, argument),) = wanted.items()
        return MATCHERS[name](argument, value)
    if value is ABSENT or isinstance(value, Mapping):
        return False
    return (type(wanted) is type(value) and wanted == value) or _same_number(wanted, value)


def _same_number(one: Any, other: Any) -> bool:
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in (one, other))
    return numbers and float(one) == float(other)


def _text(test: Callable[[str, str], bool]) -> Callable[[Any, Any], bool]:
    def meets(wanted: Any, value: Any) -> bool:
        if isinstance(wanted, Mapping):
            wanted, folded = wanted.get("equals-ignore-case", ""), True
            return isinstance(value, str) and folded and test(wanted.casefold(), value.casefold())
        return isinstance(value, str) and test(wanted, value)

    return meets


def _anything_but(wanted: Any, value: Any) -> bool:
    if value is ABSENT:
        return False
    if isinstance(wanted, Mapping):
        ((name, argument),) = wanted.items()
        listed = argument if isinstance(argument, list) else [argument]
        return not any(MATCHERS[name](each, value) for each in listed)
    return value not in (wanted if isinstance(wanted, list) else [wanted])


def _numeric(wanted: list[Any], value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    pairs = zip(wanted[::2], wanted[1::2], strict=True)
    return all(COMPARISONS[sign](float(value), float(bound)) for sign, bound in pairs)


def _exists(wanted: Any, value: Any) -> bool:
    return (value is not ABSENT and not isinstance(value, Mapping)) is bool(wanted)


def _cidr(wanted: str, value: Any) -> bool:
    try:
        return isinstance(value, str) and ip_address(value) in ip_network(wanted)
    except ValueError:
        return False


def _wildcard(wanted: str, value: Any) -> bool:
    pattern = ".*".join(re.escape(part) for part in wanted.split("*"))
    return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None


MATCHERS: dict[str, Callable[[Any, Any], bool]] = {
    "prefix": _text(lambda wanted, value: value.startswith(wanted)),
    "suffix": _text(lambda wanted, value: value.endswith(wanted)),
    "equals-ignore-case": _text(lambda wanted, value: value.casefold() == wanted.casefold()),
    "wildcard": _wildcard,
    "anything-but": _anything_but,
    "numeric": _numeric,
    "exists": _exists,
    "cidr": _cidr,
}

"""The CEL functions Kubernetes has and the library lacks, as plain Python over JSON values.

A method call `x.f(y)` arrives as `f(x, y)`.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dovetail.api.quantity import NANO, BadQuantity, Quantity
from dovetail.api.schema import cel_text as text
from dovetail.api.schema.cel_text import FunctionError, require_type

__all__ = ["FUNCTIONS", "FunctionError"]

_LONGEST_RANGE = 100_000


def _read_list(name: str, items: Any) -> list[Any]:
    require_type(name, items, list)
    return list(items)


def is_sorted(items: Any) -> bool:
    values = _read_list("isSorted", items)
    return all(a <= b for a, b in pairwise(values))


def sum_items(items: Any) -> Any:
    values = _read_list("sum", items)
    if values and isinstance(values[0], timedelta):
        return sum(values, timedelta())
    return sum(values)


def find_smallest(items: Any) -> Any:
    values = _read_list("min", items)
    if not values:
        raise FunctionError("min called on empty list")
    return min(values)


def find_largest(items: Any) -> Any:
    values = _read_list("max", items)
    if not values:
        raise FunctionError("max called on empty list")
    return max(values)


def _is_same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _is_within(item: Any, items: list[Any]) -> bool:
    return any(_is_same(item, other) for other in items)


def contains(items: Any, item: Any) -> bool:
    require_type("contains", items, list)
    return _is_within(item, items)


def distinct(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not _is_within(item, kept):
            kept.append(item)
    return kept


def flatten(items: list[Any], depth: int = 1) -> list[Any]:
    flat: list[Any] = []
    for item in items:
        flat.extend(flatten(item, depth - 1) if isinstance(item, list) and depth > 0 else [item])
    return flat


def slice_(items: list[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise FunctionError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


def list_range(count: int) -> list[int]:
    if not 0 <= count <= _LONGEST_RANGE:
        raise FunctionError(f"range of {count} is out of bounds")
    return list(range(count))


def sets_contains(items: list[Any], wanted: list[Any]) -> bool:
    return all(_is_within(item, items) for item in wanted)


def sets_intersects(items: list[Any], others: list[Any]) -> bool:
    return any(_is_within(item, items) for item in others)


def reverse(items: Any) -> Any:
    require_type("reverse", items, list)
    return items[::-1]


def parse_quantity(text: Any) -> dict[str, Any]:
    """An amount, passed between functions as its billionths."""
    require_type("quantity", text, str)
    try:
        return {"quantity": str(Quantity.parse(text).nano)}
    except BadQuantity as error:
        raise FunctionError(str(error)) from error


def _read_quantity(value: Any) -> Quantity:
    return Quantity(int(_unpack_value("quantity", value)))


def _add_quantities(value: Any, other: Any, sign: int) -> dict[str, Any]:
    more = Quantity.parse(other) if isinstance(other, int) else _read_quantity(other)
    return {"quantity": str(_read_quantity(value).nano + sign * more.nano)}


def _is_whole(value: Any) -> bool:
    return _read_quantity(value).nano % NANO == 0


def as_integer(value: Any) -> int:
    if not _is_whole(value):
        raise FunctionError("cannot convert value to integer")
    return _read_quantity(value).value


def _compare_quantities(a: Any, b: Any) -> int:
    left, right = _read_quantity(a), _read_quantity(b)
    return (left > right) - (left < right)


def parse_url(text: Any) -> dict[str, str]:
    if not is_url(text):
        raise FunctionError(f"URL parse error during conversion from string: {text!r}")
    return {"url": text}


def is_url(text: Any) -> bool:
    if not isinstance(text, str) or re.search(r"[\x00-\x20\x7f]|%(?![0-9A-Fa-f]{2})", text):
        return False
    try:
        parts = urlsplit(text)
        _ = parts.port
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _build_url_getter(part: str) -> Callable[[Any], Any]:
    def get(value: Any) -> Any:
        if not isinstance(value, dict) or "url" not in value:
            raise FunctionError(f"no such overload: {part}")
        parts = urlsplit(value["url"])
        return {
            "getScheme": parts.scheme,
            "getHost": parts.netloc.rpartition("@")[2],
            "getHostname": parts.netloc.rpartition("@")[2].rsplit(":", 1)[0].strip("[]"),
            "getPort": str(parts.port or ""),
            "getEscapedPath": parts.path,
            "getQuery": parse_qs(parts.query, keep_blank_values=True),
        }[part]

    return get


def _parse_address(text: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    require_type("ip", text, str)
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise FunctionError(f"IP Address {text!r} parse error") from error


def _parse_network(text: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    require_type("cidr", text, str)
    try:
        if "/" not in text:
            raise ValueError(text)
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise FunctionError(f"network address parse error during conversion from string: {text!r}") from error


def parse_ip(text: Any) -> dict[str, str]:
    return {"ip": str(_parse_address(text))}


def parse_cidr(text: Any) -> dict[str, str]:
    _parse_network(text)
    return {"cidr": text}


def _build_parse_check(reader: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def check(text: Any) -> bool:
        try:
            reader(text)
        except FunctionError:
            return False
        return True

    return check


def _unpack_value(name: str, value: Any) -> Any:
    if isinstance(value, dict) and name in value:
        return value[name]
    raise FunctionError(f"no such overload: {name}")


def contains_ip(network: Any, address: Any) -> bool:
    wanted = address if isinstance(address, str) else _unpack_value("ip", address)
    return _parse_address(wanted) in _parse_network(_unpack_value("cidr", network))


def contains_cidr(network: Any, other: Any) -> bool:
    inner = _parse_network(other if isinstance(other, str) else _unpack_value("cidr", other))
    outer = _parse_network(_unpack_value("cidr", network))
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def read_ip_family(address: Any) -> int:
    return int(_parse_address(_unpack_value("ip", address)).version)


VALUES: dict[str, Callable[..., Any]] = {
    "quantity": parse_quantity,
    "isQuantity": _build_parse_check(parse_quantity),
    "isGreaterThan": lambda a, b: _compare_quantities(a, b) > 0,
    "isLessThan": lambda a, b: _compare_quantities(a, b) < 0,
    "compareTo": _compare_quantities,
    "sign": lambda a: _compare_quantities(a, {"quantity": "0"}),
    "add": lambda a, b: _add_quantities(a, b, 1),
    "sub": lambda a, b: _add_quantities(a, b, -1),
    "asInteger": as_integer,
    "isInteger": _is_whole,
    "asApproximateFloat": lambda a: _read_quantity(a).nano / NANO,
    "url": parse_url,
    "isURL": is_url,
    **{
        part: _build_url_getter(part)
        for part in ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery")
    },
    "isIP": _build_parse_check(_parse_address),
    "isCIDR": _build_parse_check(_parse_network),
    "ip": parse_ip,
    "cidr": parse_cidr,
    "family": read_ip_family,
    "isLoopback": lambda address: _parse_address(_unpack_value("ip", address)).is_loopback,
    "isUnspecified": lambda address: _parse_address(_unpack_value("ip", address)).is_unspecified,
    "containsIP": contains_ip,
    "containsCIDR": contains_cidr,
    "prefixLength": lambda network: _parse_network(_unpack_value("cidr", network)).prefixlen,
}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "matchesPattern": text.matches,
    "find": text.find,
    "findAll": text.find_all,
    "split": text.split,
    "join": text.join,
    "charAt": text.char_at,
    "indexOf": text.index_of,
    "lastIndexOf": text.last_index_of,
    "substring": text.substring,
    "replace": text.replace,
    "trim": text.trim,
    "lowerAscii": text.lower_ascii,
    "upperAscii": text.upper_ascii,
    "reverse": reverse,
    "format": text.format_,
    "strings.quote": text.quote,
    "textOf": text.to_string,
    "bool": text.to_bool,
    "int": text.to_int,
    "isSorted": is_sorted,
    "sum": sum_items,
    "min": find_smallest,
    "max": find_largest,
    "contains": contains,
    "distinct": distinct,
    "flatten": flatten,
    "slice": slice_,
    "sort": lambda items: sorted(_read_list("sort", items)),
    "lists.range": list_range,
    "sets.contains": sets_contains,
    "sets.intersects": sets_intersects,
    "sets.equivalent": lambda a, b: sets_contains(a, b) and sets_contains(b, a),
    **VALUES,
}

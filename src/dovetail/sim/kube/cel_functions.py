"""The CEL functions Kubernetes has and the library lacks, as plain Python over JSON values.

A method call `x.f(y)` arrives as `f(x, y)`. Quantities and URLs are passed between functions as maps, since
the library carries no types of its own.
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dovetail.sim.kube.patterns import PatternError, compile_pattern


class FunctionError(Exception):
    """A function that has no answer for its arguments."""


def _need(name: str, value: Any, kind: type | tuple[type, ...]) -> None:
    # bool is an int to Python but never to CEL
    if not isinstance(value, kind) or (isinstance(value, bool) and kind in (int, (int, float))):
        raise FunctionError(f"no such overload: {name}")


# --- strings and regular expressions ---


def _text(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose receiver must be a string."""

    def call(text: Any, *rest: Any) -> Any:
        _need(function.__name__.strip("_"), text, str)
        return function(text, *rest)

    return call


def _pattern(pattern: Any) -> re.Pattern[str]:
    _need("find", pattern, str)
    try:
        return compile_pattern(pattern)
    except PatternError as error:
        raise FunctionError(str(error)) from error


@_text
def find(text: str, pattern: str) -> str:
    """The first match, or the empty string."""
    found = _pattern(pattern).search(text)
    return found.group() if found else ""


@_text
def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    found: list[str] = []
    end = -1
    for match in _pattern(pattern).finditer(text):
        if match.group() or match.start() != end:  # RE2 finds nothing right after something
            found.append(match.group())
        end = match.end()
    return found if limit < 0 else found[:limit]


@_text
def split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator == "":
        parts = list(text)
        return (
            parts if limit < 0 or len(parts) <= limit else [*parts[: limit - 1], "".join(parts[limit - 1 :])]
        )
    return text.split(separator, limit - 1 if limit > 0 else -1)


def join(items: Any, separator: str = "") -> str:
    _need("join", items, list)
    for item in items:
        _need("join", item, str)
    return separator.join(items)


@_text
def char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise FunctionError(f"index out of range: {index}")
    return text[index : index + 1]


def index_of(target: Any, wanted: Any, start: int = 0) -> int:
    if isinstance(target, list):
        return next((i for i, item in enumerate(target) if item == wanted), -1)
    _need("indexOf", target, str)
    if start < 0:
        raise FunctionError(f"index out of range: {start}")
    found: int = target.find(wanted, start)
    return found


def last_index_of(target: Any, wanted: Any, end: int | None = None) -> int:
    if isinstance(target, list):
        return next((i for i in range(len(target) - 1, -1, -1) if target[i] == wanted), -1)
    _need("lastIndexOf", target, str)
    if end is not None and not 0 <= end <= len(target):
        raise FunctionError(f"index out of range: {end}")
    found: int = target.rfind(wanted, 0, len(target) if end is None else end + len(wanted))
    return found


@_text
def substring(text: str, start: int, end: int | None = None) -> str:
    stop = len(text) if end is None else end
    if not 0 <= start <= stop <= len(text):
        raise FunctionError(f"invalid substring range. start: {start}, end: {stop}")
    return text[start:stop]


@_text
def replace(text: str, old: str, new: str, limit: int = -1) -> str:
    return text.replace(old, new, limit)


@_text
def trim(text: str) -> str:
    return text.strip()


@_text
def lower_ascii(text: str) -> str:
    return "".join(c.lower() if c.isascii() else c for c in text)


@_text
def upper_ascii(text: str) -> str:
    return "".join(c.upper() if c.isascii() else c for c in text)


def reverse(items: Any) -> Any:
    _need("reverse", items, list)
    return items[::-1]


@_text
def quote(text: str) -> str:
    escapes = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}
    return '"' + "".join(escapes.get(c, c) for c in text) + '"'


@_text
def format_(template: str, arguments: list[Any]) -> str:
    """The verbs %s %d %f %e %x %X %o %b and %%."""
    left = list(arguments)

    def verb(match: re.Match[str]) -> str:
        if match.group() == "%%":
            return "%"
        if not left:
            raise FunctionError(f"index {len(arguments)} out of range")
        return _formatted(match, left.pop(0))

    return re.sub(r"%(?:\.(\d+))?(.)", verb, template, flags=re.DOTALL)


def _formatted(match: re.Match[str], value: Any) -> str:
    digits, verb = match.groups()
    if verb == "s":
        return to_string(value)
    if verb in "fe":
        _need("format", value, (int, float))
        return f"{value:.{digits or 6}{verb}}"
    if verb in "xX" and isinstance(value, str):
        return format(value.encode().hex(), "s").upper() if verb == "X" else value.encode().hex()
    if verb in "dxXob":
        _need("format", value, int)
        return format(value, verb)
    raise FunctionError(f"unrecognized formatting clause {verb!r}")


def to_string(value: Any) -> str:
    """A value as string() and %s write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_string, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_string(k)}: {to_string(v)}" for k, v in sorted(value.items())) + "}"
    if isinstance(value, float):
        return _number(value)
    if isinstance(value, timedelta):
        return f"{_number(value.total_seconds())}s"
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    return value.decode() if isinstance(value, bytes) else str(value)


def _number(value: float) -> str:
    """The shortest text of a number, with an exponent from a million on, as Go writes it."""
    if value != value or value in (math.inf, -math.inf):
        return {math.inf: "+Inf", -math.inf: "-Inf"}.get(value, "NaN")
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    power = len(digits) - 1 + int(exponent)
    if value and not -4 <= power < 6:
        mantissa = "".join(map(str, digits))
        fraction = f".{mantissa[1:]}" if mantissa[1:] else ""
        return f"{'-' * sign}{mantissa[0]}{fraction}e{'-' if power < 0 else '+'}{abs(power):02d}"
    return format(Decimal(repr(value)).normalize(), "f") if value else "0"


def to_bool(value: Any) -> bool:
    known = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
    if isinstance(value, bool):
        return value
    folded = value.lower() if value in ("TRUE", "True", "FALSE", "False", "T", "F") else value
    if folded not in known:
        raise FunctionError(f"type conversion error from {value!r} to bool")
    return known[folded]


def to_int(value: Any) -> int:
    """int() of a timestamp, which the library lacks."""
    if isinstance(value, datetime):
        return int(value.timestamp())
    raise FunctionError("no such overload: int")


# --- lists and sets ---


def _numbers(name: str, items: Any) -> list[Any]:
    _need(name, items, list)
    return list(items)


def is_sorted(items: Any) -> bool:
    values = _numbers("isSorted", items)
    return all(a <= b for a, b in pairwise(values))


def total(items: Any) -> Any:
    values = _numbers("sum", items)
    if values and isinstance(values[0], timedelta):
        return sum(values, timedelta())
    return sum(values)


def smallest(items: Any) -> Any:
    values = _numbers("min", items)
    if not values:
        raise FunctionError("min called on empty list")
    return min(values)


def largest(items: Any) -> Any:
    values = _numbers("max", items)
    if not values:
        raise FunctionError("max called on empty list")
    return max(values)


def _same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _within(item: Any, items: list[Any]) -> bool:
    return any(_same(item, other) for other in items)


def contains(items: Any, item: Any) -> bool:
    _need("contains", items, list)
    return _within(item, items)


def distinct(items: list[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        if not _within(item, kept):
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


def sets_contains(items: list[Any], wanted: list[Any]) -> bool:
    return all(_within(item, items) for item in wanted)


def sets_intersects(items: list[Any], others: list[Any]) -> bool:
    return any(_within(item, items) for item in others)


# --- quantities, URLs, addresses, encodings, arithmetic ---

_SUFFIXES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000), "": Fraction(1)}
_SUFFIXES |= {s: Fraction(1000**i) for i, s in enumerate(("k", "M", "G", "T", "P", "E"), 1)}
_SUFFIXES |= {s: Fraction(1024**i) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)}
_QUANTITY = re.compile(r"([+-]?)(\d+(?:\.\d*)?|\.\d+)(?:([eE][+-]?\d{1,3})|([numkMGTPE]|[KMGTPE]i)?)\Z")


@lru_cache(maxsize=1024)
def amount(text: str) -> Fraction:
    """The exact amount a Kubernetes quantity names."""
    match = _QUANTITY.match(text)
    if match is None:
        raise FunctionError("quantities must match the regular expression of a quantity")
    sign, digits, exponent, suffix = match.groups()
    value = Fraction(Decimal(digits + (exponent or ""))) * _SUFFIXES[suffix or ""]
    return -value if sign == "-" else value


def quantity(text: Any) -> dict[str, str]:
    _need("quantity", text, str)
    value = amount(text)
    return {"quantity": f"{value.numerator}/{value.denominator}"}


def is_quantity(text: Any) -> bool:
    return isinstance(text, str) and _QUANTITY.match(text) is not None


def _fraction(value: Any) -> Fraction:
    if not isinstance(value, dict) or "quantity" not in value:
        raise FunctionError("no such overload: quantity")
    return Fraction(value["quantity"])


def _amount_of(value: Any) -> Fraction:
    return Fraction(value) if isinstance(value, int) else _fraction(value)


def _packed(value: Fraction) -> dict[str, str]:
    return {"quantity": f"{value.numerator}/{value.denominator}"}


def as_integer(value: Any) -> int:
    whole = _fraction(value)
    if whole.denominator != 1:
        raise FunctionError("cannot convert value to integer")
    return int(whole)


def url(text: Any) -> dict[str, str]:
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


def _url_part(part: str) -> Callable[[Any], Any]:
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


def _address(text: Any) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    _need("ip", text, str)
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise FunctionError(f"IP Address {text!r} parse error") from error


def _network(text: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    _need("cidr", text, str)
    try:
        if "/" not in text:
            raise ValueError(text)
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise FunctionError(f"network address parse error during conversion from string: {text!r}") from error


def ip(text: Any) -> dict[str, str]:
    return {"ip": str(_address(text))}


def cidr(text: Any) -> dict[str, str]:
    _network(text)
    return {"cidr": text}


def _parses(reader: Callable[[Any], Any]) -> Callable[[Any], bool]:
    def check(text: Any) -> bool:
        try:
            reader(text)
        except FunctionError:
            return False
        return True

    return check


def _unpacked(name: str, value: Any) -> Any:
    if isinstance(value, dict) and name in value:
        return value[name]
    raise FunctionError(f"no such overload: {name}")


def contains_ip(network: Any, address: Any) -> bool:
    wanted = address if isinstance(address, str) else _unpacked("ip", address)
    return _address(wanted) in _network(_unpacked("cidr", network))


def contains_cidr(network: Any, other: Any) -> bool:
    inner = _network(other if isinstance(other, str) else _unpacked("cidr", other))
    outer = _network(_unpacked("cidr", network))
    return inner.version == outer.version and inner.subnet_of(outer)  # type: ignore[arg-type]


def family(address: Any) -> int:
    return int(_address(_unpacked("ip", address)).version)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "find": find,
    "findAll": find_all,
    "split": split,
    "join": join,
    "charAt": char_at,
    "indexOf": index_of,
    "lastIndexOf": last_index_of,
    "substring": substring,
    "replace": replace,
    "trim": trim,
    "lowerAscii": lower_ascii,
    "upperAscii": upper_ascii,
    "reverse": reverse,
    "format": format_,
    "strings.quote": quote,
    "textOf": to_string,
    "bool": to_bool,
    "int": to_int,
    "isSorted": is_sorted,
    "sum": total,
    "min": smallest,
    "max": largest,
    "contains": contains,
    "distinct": distinct,
    "flatten": flatten,
    "slice": slice_,
    "sort": lambda items: sorted(_numbers("sort", items)),
    "lists.range": lambda count: list(range(count)),
    "sets.contains": sets_contains,
    "sets.intersects": sets_intersects,
    "sets.equivalent": lambda a, b: sets_contains(a, b) and sets_contains(b, a),
    "quantity": quantity,
    "isQuantity": is_quantity,
    "isGreaterThan": lambda a, b: _fraction(a) > _fraction(b),
    "isLessThan": lambda a, b: _fraction(a) < _fraction(b),
    "compareTo": lambda a, b: (_fraction(a) > _fraction(b)) - (_fraction(a) < _fraction(b)),
    "sign": lambda a: (_fraction(a) > 0) - (_fraction(a) < 0),
    "add": lambda a, b: _packed(_fraction(a) + _amount_of(b)),
    "sub": lambda a, b: _packed(_fraction(a) - _amount_of(b)),
    "asInteger": as_integer,
    "isInteger": lambda a: _fraction(a).denominator == 1,
    "asApproximateFloat": lambda a: float(_fraction(a)),
    "url": url,
    "isURL": is_url,
    **{
        part: _url_part(part)
        for part in ("getScheme", "getHost", "getHostname", "getPort", "getEscapedPath", "getQuery")
    },
    "isIP": _parses(_address),
    "isCIDR": _parses(_network),
    "ip": ip,
    "cidr": cidr,
    "family": family,
    "isLoopback": lambda address: _address(_unpacked("ip", address)).is_loopback,
    "isUnspecified": lambda address: _address(_unpacked("ip", address)).is_unspecified,
    "containsIP": contains_ip,
    "containsCIDR": contains_cidr,
    "prefixLength": lambda network: _network(_unpacked("cidr", network)).prefixlen,
}

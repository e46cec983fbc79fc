"""CEL functions over quantities, URLs and addresses, which travel between functions as small maps."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qs, urlsplit

from dovetail.api.quantity import NANO, BadQuantity, Quantity
from dovetail.sim.kube.cel_text import FunctionError, need


def quantity(text: Any) -> dict[str, Any]:
    """An amount, passed between functions as its billionths."""
    need("quantity", text, str)
    try:
        return {"quantity": str(Quantity.parse(text).nano)}
    except BadQuantity as error:
        raise FunctionError(str(error)) from error


def _amount(value: Any) -> Quantity:
    return Quantity(int(_unpacked("quantity", value)))


def _added(value: Any, other: Any, sign: int) -> dict[str, Any]:
    more = Quantity.parse(other) if isinstance(other, int) else _amount(other)
    return {"quantity": str(_amount(value).nano + sign * more.nano)}


def _whole(value: Any) -> bool:
    return _amount(value).nano % NANO == 0


def as_integer(value: Any) -> int:
    if not _whole(value):
        raise FunctionError("cannot convert value to integer")
    return _amount(value).value


def _order(a: Any, b: Any) -> int:
    left, right = _amount(a), _amount(b)
    return (left > right) - (left < right)


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
    need("ip", text, str)
    try:
        return ipaddress.ip_address(text)
    except ValueError as error:
        raise FunctionError(f"IP Address {text!r} parse error") from error


def _network(text: Any) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    need("cidr", text, str)
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


VALUES: dict[str, Callable[..., Any]] = {
    "quantity": quantity,
    "isQuantity": _parses(quantity),
    "isGreaterThan": lambda a, b: _order(a, b) > 0,
    "isLessThan": lambda a, b: _order(a, b) < 0,
    "compareTo": _order,
    "sign": lambda a: _order(a, {"quantity": "0"}),
    "add": lambda a, b: _added(a, b, 1),
    "sub": lambda a, b: _added(a, b, -1),
    "asInteger": as_integer,
    "isInteger": _whole,
    "asApproximateFloat": lambda a: _amount(a).nano / NANO,
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

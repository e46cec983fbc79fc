"""The string formats a structural schema may ask for. An unknown format asks for nothing."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from datetime import date, datetime, timedelta
from urllib.parse import urlsplit

_DATE_TIME = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)\Z")
_DURATION = re.compile(r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_HOSTNAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z"
)
_PATTERNS = {
    "uuid": r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z",
    "uuid3": r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}\Z",
    "uuid4": r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}\Z",
    "uuid5": r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}\Z",
    "mac": r"(?i)[0-9a-f]{2}([:-][0-9a-f]{2}){5}\Z",
    "hexcolor": r"(?i)#?([0-9a-f]{3}|[0-9a-f]{6})\Z",
    "email": r"[^@\s<>]+@[^@\s<>]+\Z",
    "ssn": r"\d{3}[- ]?\d{2}[- ]?\d{4}\Z",
    "k8s-short-name": r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z",
    "k8s-long-name": r"(?=.{1,253}\Z)[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z",
}


def date_time(text: str) -> datetime:
    """An RFC 3339 moment, or ValueError."""
    if not _DATE_TIME.match(text):
        raise ValueError(text)
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper().replace("Z", "+00:00")))


def duration(text: str) -> timedelta:
    """A Go duration such as `1h30m`, or ValueError."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    parts = _DURATION.findall(rest)
    if rest == "0":
        return timedelta()
    if not parts or "".join(parts) != rest or any(part[0] in "+-" for part in parts):
        raise ValueError(text)
    seconds = 0.0
    for part in parts:
        number = re.match(r"[\d.]+", part)
        assert number is not None  # the pattern above starts with digits
        seconds += float(number.group()) * _UNITS[part[number.end() :]]
    try:
        return timedelta(seconds=sign * seconds)
    except OverflowError as error:
        raise ValueError(text) from error


def _uri(text: str) -> bool:
    return bool(urlsplit(text).scheme)


def _byte(text: str) -> bool:
    base64.b64decode(text, validate=True)
    return True


def _matching(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).match


_CHECKS: dict[str, Callable[[str], object]] = {
    "date-time": lambda text: date_time(text) is not None,
    "datetime": lambda text: date_time(text) is not None,
    "date": lambda text: len(text) == 10 and date.fromisoformat(text) is not None,
    "duration": lambda text: duration(text) is not None,
    "byte": _byte,
    "uri": _uri,
    "ipv4": lambda text: ipaddress.IPv4Address(text) is not None,
    "ipv6": lambda text: ipaddress.IPv6Address(text) is not None,
    "cidr": lambda text: "/" in text and ipaddress.ip_network(text, strict=False) is not None,
    "hostname": _HOSTNAME.match,
    **{name: _matching(pattern) for name, pattern in _PATTERNS.items()},
}


def well_formed(text: str, name: str) -> bool:
    """Whether a string has the named format."""
    check = _CHECKS.get(name)
    if check is None:
        return True
    try:
        return bool(check(text))
    except (ValueError, binascii.Error):
        return False

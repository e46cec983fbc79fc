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
_DURATION = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)")
_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_WORDS = (
    (("ns", "nano"), 1e-9),
    (("us", "µs", "micro"), 1e-6),
    (("ms", "milli"), 1e-3),
    (("s", "sec"), 1.0),
    (("m", "min"), 60.0),
    (("h", "hr", "hour"), 3600.0),
    (("d", "day"), 86400.0),
    (("w", "wk", "week"), 604800.0),
)
# A name of several labels ends in one of two letters or more.
_HOSTNAME = re.compile(
    r"(?=.{1,255}\Z)(?:[A-Za-z0-9](?:-?[A-Za-z0-9]){0,62}|"
    r"(?:[A-Za-z0-9](?:-?[A-Za-z0-9]){0,62}\.)+[A-Za-z]{2,63})\Z"
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


def parse_date_time(text: str) -> datetime:
    """An RFC 3339 moment, or ValueError."""
    if not _DATE_TIME.match(text):
        raise ValueError(text)
    return datetime.fromisoformat(re.sub(r"(\.\d{6})\d+", r"\1", text.upper().replace("Z", "+00:00")))


def parse_duration(text: str) -> timedelta:
    """A duration such as `1h30m`, or in words such as `2 days`; ValueError for anything else."""
    sign, rest = (-1, text[1:]) if text[:1] == "-" else (1, text.removeprefix("+"))
    if rest == "0":
        return timedelta()
    parts = _DURATION.findall(rest)
    try:
        if parts and "".join(number + unit for number, unit in parts) == rest:
            return timedelta(seconds=sign * sum(float(number) * _UNITS[unit] for number, unit in parts))
        return timedelta(seconds=_parse_words(text))
    except OverflowError as error:
        raise ValueError(text) from error


def _parse_words(text: str) -> float:
    """Seconds, from whole numbers followed by units or by words that begin with their long form."""
    seconds = [
        int(number) * length
        for number, word in re.findall(r"(\d+)\s*([A-Za-zµ]+)", text)
        for names, length in _WORDS
        if word.lower() in names or word.lower().startswith(names[-1])
    ]
    if not seconds:
        raise ValueError(text)
    return sum(seconds)


def _is_uri(text: str) -> bool:
    return bool(urlsplit(text).scheme)


def _is_base64(text: str) -> bool:
    base64.b64decode(text, validate=True)
    return True


def _build_matcher(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).match


_CHECKS: dict[str, Callable[[str], object]] = {
    "date-time": lambda text: parse_date_time(text) is not None,
    "datetime": lambda text: parse_date_time(text) is not None,
    "date": lambda text: len(text) == 10 and date.fromisoformat(text) is not None,
    "duration": lambda text: parse_duration(text) is not None,
    "byte": _is_base64,
    "uri": _is_uri,
    # Leading zeros are taken, as decimal.
    "ipv4": lambda text: ipaddress.IPv4Address(re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)) is not None,
    "ipv6": lambda text: ipaddress.IPv6Address(text) is not None,
    "cidr": lambda text: "/" in text and ipaddress.ip_network(text, strict=False) is not None,
    "hostname": _HOSTNAME.match,
    **{name: _build_matcher(pattern) for name, pattern in _PATTERNS.items()},
}


def is_well_formed(text: str, name: str) -> bool:
    """Whether a string has the named format."""
    check = _CHECKS.get(name)
    if check is None:
        return True
    try:
        return bool(check(text))
    except (ValueError, binascii.Error):
        return False

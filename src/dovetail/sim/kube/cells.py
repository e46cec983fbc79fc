"""How single values are shown in a table: ages, labels, selectors, ports and access modes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from dovetail.sim.kube.formats import date_time

NONE, UNKNOWN, UNSET = "<none>", "<unknown>", "<unset>"
_MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def age(stamp: Any, now: datetime) -> str:
    """How long ago a moment was, or `<unknown>`."""
    moment = parsed(stamp)
    return UNKNOWN if moment is None else short_duration(now - moment)


def parsed(stamp: Any) -> datetime | None:
    """A timestamp, if it is one."""
    if not isinstance(stamp, str) or not stamp:
        return None
    try:
        return date_time(stamp).astimezone(UTC)
    except ValueError:
        return None


def short_duration(length: timedelta) -> str:
    """A duration to two units at most, coarser as it grows."""
    seconds = int(length.total_seconds())
    if seconds < -1:
        return "<invalid>"
    seconds = max(seconds, 0)
    minutes, hours = seconds // 60, seconds // 3600
    if seconds < 120:
        return f"{seconds}s"
    if minutes < 10:
        return _two(minutes, "m", seconds % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    return _long_duration(hours)


def _long_duration(hours: int) -> str:
    days = hours // 24
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, unit: str, small: int, subunit: str) -> str:
    return f"{large}{unit}{small}{subunit}" if small else f"{large}{unit}"


def labels(pairs: Mapping[str, Any] | None) -> str:
    """Labels as `a=b,c=d`."""
    return ",".join(f"{key}={value}" for key, value in sorted((pairs or {}).items())) or NONE


def selector(value: Mapping[str, Any] | None) -> str:
    """A label selector as one writes it on the command line."""
    value = value or {}
    terms = [(key, f"{key}={text}") for key, text in (value.get("matchLabels") or {}).items()]
    terms += [(term.get("key", ""), _term(term)) for term in value.get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(terms)) or NONE


def _term(term: Mapping[str, Any]) -> str:
    key, values = str(term.get("key", "")), ",".join(sorted(term.get("values") or ()))
    return {
        "In": f"{key} in ({values})",
        "NotIn": f"{key} notin ({values})",
        "Exists": key,
        "DoesNotExist": f"!{key}",
    }.get(term.get("operator", ""), "<error>")


def access_modes(modes: Iterable[str] | None) -> str:
    """Access modes by their initials, each once and in their own order."""
    listed = set(modes or ())
    return ",".join(short for mode, short in _MODES.items() if mode in listed)


def containers(template: Mapping[str, Any]) -> tuple[str, str]:
    """The names and the images of a pod's containers."""
    listed = (template.get("spec") or {}).get("containers") or ()
    return (
        ",".join(str(container.get("name", "")) for container in listed),
        ",".join(str(container.get("image", "")) for container in listed),
    )


def ports(listed: Iterable[Mapping[str, Any]] | None) -> str:
    """Service ports as `80:30080/TCP`."""
    shown = []
    for port in listed or ():
        node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
        shown.append(f"{port.get('port')}{node_port}/{port.get('protocol', 'TCP')}")
    return ",".join(shown) or NONE

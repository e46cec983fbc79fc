"""Rates: so many nodes in so long, written `10/1h`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from dovetail.settings import durations
from dovetail.settings.kinds import Kind

__all__ = ["RATE", "Rate", "parse"]

_RATE = re.compile(r"([0-9]{1,9})/(.+)")


@dataclass(frozen=True, slots=True)
class Rate:
    """At most so many nodes within any span of this length."""

    nodes: int
    per: timedelta

    def __str__(self) -> str:
        return f"{self.nodes}/{durations.render(self.per)}"


def parse(text: str) -> Rate:
    """The rate a text spells; a ValueError when it spells none."""
    found = _RATE.fullmatch(text)
    if found is None:
        raise ValueError(f"invalid rate {text!r}: write a number of nodes and a duration, such as 10/1h")
    per = durations.parse(found[2])
    if per <= timedelta():
        raise ValueError(f"invalid rate {text!r}: its duration must be longer than nothing")
    return Rate(int(found[1]), per)


def _read(text: str) -> Rate | None:
    return parse(text) if text else None


def _show(rate: Rate | None) -> str:
    return "" if rate is None else str(rate)


RATE: Kind[Rate | None] = Kind(
    "a number of nodes per duration such as 10/1h, or empty", _read, _show, blank=True
)

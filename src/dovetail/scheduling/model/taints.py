"""Taints and tolerations. A taint of any effect keeps a pod away unless the pod tolerates it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from dovetail.api.core import Taint
from dovetail.api.numbers import parse_integer
from dovetail.api.pod import Toleration
from dovetail.api.taints import PREFER_NO_SCHEDULE

__all__ = [
    "PREFER_NOT",
    "describe_untolerated",
    "format_taint",
    "list_untolerated",
    "tolerates_all",
    "tolerates_taint",
]

PREFER_NOT: Final = Toleration(operator="Exists", effect=PREFER_NO_SCHEDULE)
"""What a pod is given when nothing but soft taints stands in its way."""

# The numeric operators take a number in its one plain spelling: no sign +, no leading zeros.
_NUMBER = re.compile(r"0|-?[1-9][0-9]*")


def tolerates_taint(toleration: Toleration, taint: Taint) -> bool:
    """Whether one toleration covers one taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    match toleration.operator:
        case "" | "Equal":
            return toleration.value == taint.value
        case "Exists":
            return True
        case "Gt" | "Lt":
            mine, theirs = _parse_number(toleration.value), _parse_number(taint.value)
            if mine is None or theirs is None:
                return False
            return theirs > mine if toleration.operator == "Gt" else theirs < mine
        case _:
            return False


def _parse_number(value: str) -> int | None:
    return parse_integer(value) if _NUMBER.fullmatch(value) else None


def list_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> tuple[Taint, ...]:
    """The taints that keep a pod with these tolerations away."""
    return tuple(taint for taint in taints if not any(tolerates_taint(each, taint) for each in tolerations))


def tolerates_all(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> bool:
    return not taints or not list_untolerated(taints, tolerations)


def describe_untolerated(taints: Iterable[Taint], tolerations: Sequence[Toleration]) -> tuple[str, ...]:
    """Karpenter's words for each taint in the way."""
    return tuple(
        f"did not tolerate taint (taint={format_taint(taint)})"
        for taint in list_untolerated(taints, tolerations)
    )


def format_taint(taint: Taint) -> str:
    """`key=value:Effect`, as kubectl writes it."""
    if not taint.effect:
        return f"{taint.key}={taint.value}:" if taint.value else taint.key
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"

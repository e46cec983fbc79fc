"""The price of a fleet: what nodes cost together, in dollars an hour."""

from __future__ import annotations

from collections.abc import Iterable
from math import isinf
from typing import Protocol

__all__ = ["sum_known_prices", "sum_prices"]


class _Priced(Protocol):
    @property
    def price(self) -> float: ...


def sum_prices(nodes: Iterable[_Priced]) -> float:
    """What these nodes cost; infinite where one of them has no known price."""
    return sum(node.price for node in nodes)


def sum_known_prices(nodes: Iterable[_Priced]) -> float:
    """What those of these nodes cost whose price is known."""
    return sum(node.price for node in nodes if not isinf(node.price))

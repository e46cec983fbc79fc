"""What CEL rules may cost: a limit for one evaluation, a budget for all rules of an object.

The numbers are Kubernetes' own. A unit is a name looked up, an element visited or ten characters read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from time import thread_time
from typing import Any, NamedTuple

from dovetail.api.schema.cel_text import FunctionError

CALL_LIMIT = 1_000_000
OBJECT_BUDGET = 10_000_000
# What an evaluation may make of its data, at most.
NATIVE_LIMIT = 100_000_000
_CHARACTERS = 10
_COPIES = 100
# The last resort, where the data is such that the library takes longer than its cost tells.
_CPU_SECONDS = 3.0


class CostBudget:
    """What is left for the rules of one object."""

    def __init__(self) -> None:
        self.left = OBJECT_BUDGET
        self.deadline = thread_time() + _CPU_SECONDS

    @property
    def exhausted(self) -> bool:
        """Whether no further rule may run."""
        return self.left < 0 or thread_time() > self.deadline

    def exhaust(self) -> None:
        """Let no further rule run."""
        self.left = -1


class CostMeter:
    """The cost of one evaluation, counted while it runs."""

    def __init__(self, budget: CostBudget, cost: int) -> None:
        self.limit = min(CALL_LIMIT, max(0, budget.left))
        self.cost = cost
        self._gathered = 0
        self._deadline = budget.deadline

    @property
    def exceeded(self) -> bool:
        """Whether the evaluation cost more than it may."""
        return self.cost > self.limit

    def count_visit(self, names: int) -> bool:
        """Count an element visited."""
        self.add_cost(names)
        if thread_time() > self._deadline:
            self.add_cost(self.limit)
        return True

    def count_gathered(self, names: int) -> bool:
        """Count an element visited by map() or filter(), which copy what they have gathered at each."""
        self._gathered += 1
        return self.count_visit(names + self._gathered // _COPIES)

    def add_cost(self, cost: int) -> None:
        """Count a cost, and stop the evaluation that has become too dear."""
        self.cost += cost
        if self.exceeded:
            raise FunctionError("actual cost limit exceeded")


class Extent(NamedTuple):
    """How large a value is: its longest text, its longest list or map, and all of it."""

    text: int = 0
    length: int = 0
    whole: int = 1


def measure_extent(value: Any) -> Extent:
    """The extent of a value, by one walk over it."""
    text = length = whole = 0
    waiting = [value]
    while waiting:
        item = waiting.pop()
        whole += 1
        if isinstance(item, str | bytes):
            text = max(text, len(item))
            whole += len(item) // _CHARACTERS
        elif isinstance(item, dict | list):
            length = max(length, len(item))
            waiting += item.values() if isinstance(item, dict) else item
    return Extent(text, length, whole)


def _measure_size(value: Any) -> int:
    return measure_extent(value).whole


def _measure_length(value: Any) -> int:
    return len(value) if isinstance(value, str | bytes | list | dict) else 1


def _price_search(args: Sequence[Any]) -> int:
    # As cel-go: a tenth of the text times a quarter of the pattern.
    return 1 + _measure_size(args[0]) * max(1, _measure_length(args[1]) // 4)


def _price_pairing(args: Sequence[Any]) -> int:
    return _measure_length(args[0]) * sum(map(_measure_size, args))


def _price_replace(args: Sequence[Any]) -> int:
    text, old, new = args[:3]
    if not isinstance(text, str) or not isinstance(old, str) or not isinstance(new, str):
        return 1
    return (len(text) + (text.count(old) + 1) * len(new)) // _CHARACTERS


def _price_join(args: Sequence[Any]) -> int:
    separator = _measure_length(args[1]) if len(args) > 1 else 0
    return _measure_size(args[0]) + _measure_length(args[0]) * separator // _CHARACTERS


def _price_range(args: Sequence[Any]) -> int:
    return abs(args[0]) if isinstance(args[0], int) else 1


# Functions that cost more than reading their arguments once.
_DEAR: Mapping[str, Callable[[Sequence[Any]], int]] = {
    "matchesPattern": _price_search,
    "find": _price_search,
    "findAll": _price_search,
    "distinct": _price_pairing,
    "sets.contains": _price_pairing,
    "sets.intersects": _price_pairing,
    "sets.equivalent": lambda args: 2 * _price_pairing(args),
    "replace": _price_replace,
    "join": _price_join,
    "split": lambda args: _measure_length(args[0]),
    "lists.range": _price_range,
}


def price_call(name: str, args: Sequence[Any]) -> int:
    """What calling one of our functions costs, told from its arguments before it runs."""
    dear = _DEAR.get(name)
    try:
        return sum(map(_measure_size, args)) if dear is None else dear(args)
    except (IndexError, ValueError):
        return 1  # too few arguments: the call itself says so

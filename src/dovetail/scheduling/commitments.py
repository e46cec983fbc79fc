"""The ledger of commitments: which running nodes savings plans and reserved instances have paid for.

As AWS applies them: reserved instances of a zone, then of a region (the smallest sizes first where sizes are
flexible), then plans of a family, then compute plans. Among plans of a kind, what is saved most by its
percentage comes first, and of equals what uses up less. What is left over costs the list price.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import NamedTuple

import numpy as np

from dovetail.api.commitment import COMPUTE_PLAN, FAMILY_PLAN, RESERVED, RESERVED_IN_ZONE
from dovetail.api.meta import Record
from dovetail.scheduling.commitment_terms import CommitmentTerms

__all__ = [
    "NO_COMMITMENTS",
    "CommitmentUse",
    "CoveredUsage",
    "Ledger",
    "NodeCover",
    "UsageKind",
    "UsageLine",
    "is_still_open",
]

DUST = 1e-9
_MOST_ORDERS = 16
_DIGITS = 12  # of a saving's share: what differs by less is equal
# Open again below this part, and full where not even the smallest eligible instance fits any more.
OPEN_BELOW = 0.97


class UsageKind(NamedTuple):
    """On-demand instances that commitments cannot tell apart. `price` is the instance's, without extras."""

    instance_type: str
    zone: str
    price: float
    windows: bool = False


class UsageLine(NamedTuple):
    """One node as commitments see it."""

    node: str
    kind: UsageKind


class CommitmentUse(Record, frozen=True):
    """What is used of one commitment: dollars an hour, and units as its terms count them."""

    name: str
    hourly: float
    used: float
    units: float
    used_units: float
    by_others: float = 0.0

    @property
    def unused(self) -> float:
        return max(0.0, self.hourly - self.used)

    @property
    def left(self) -> float:
        """Units that nothing uses."""
        return max(0.0, self.units - self.used_units)


class NodeCover(NamedTuple):
    """The part of a node's instance that commitments have paid for, and their names in the order applied."""

    share: float
    by: tuple[str, ...]


class CoveredUsage(NamedTuple):
    """What commitments pay for of some usage: instances by kind and commitment, in the order applied."""

    kinds: Mapping[UsageKind, tuple[tuple[str, float], ...]]
    uses: tuple[CommitmentUse, ...]

    @property
    def saved(self) -> float:
        """Dollars an hour of list prices that commitments have paid."""
        return sum(kind.price * amount for kind, parts in self.kinds.items() for _, amount in parts)


class Ledger:
    """Commitments at a moment, ready to be applied to what runs."""

    def __init__(self, terms: Iterable[CommitmentTerms] = ()) -> None:
        self.terms = tuple(sorted(terms, key=lambda each: each.name))
        self._stages = {
            kind: [number for number, each in enumerate(self.terms) if each.kind == kind]
            for kind in (RESERVED_IN_ZONE, RESERVED, FAMILY_PLAN, COMPUTE_PLAN)
        }
        # Exact types before flexible sizes, which can take what the others leave.
        self._stages[RESERVED].sort(key=lambda number: self.terms[number].flexible)
        # What an instance of a kind uses up of every commitment; not a number where it may not.
        self._rows: dict[UsageKind, np.ndarray] = {}
        self._orders: dict[tuple[UsageKind, ...], _KindOrder] = {}

    def __bool__(self) -> bool:
        return bool(self.terms)

    @cached_property
    def committed(self) -> float:
        """Dollars an hour that are paid whatever runs."""
        return sum(each.hourly for each in self.terms)

    def find_payers(self, kind: UsageKind) -> tuple[str, ...]:
        """The names of the commitments that could pay for such an instance."""
        row = self._find_row(kind)
        return tuple(self.terms[number].name for number in np.flatnonzero(~np.isnan(row)).tolist())

    def list_uses(self, kinds: Iterable[UsageKind]) -> dict[str, list[float]]:
        """By commitment, how many of its units each of these uses up that it pays for, the fewest first."""
        rows = [self._find_row(kind) for kind in kinds]
        columns = np.sort(np.array(rows).T) if rows else np.empty((len(self.terms), 0))
        found = zip(self.terms, columns, strict=True)
        return {each.name: column[~np.isnan(column)].tolist() for each, column in found}

    def find_smallest_uses(self, kinds: Iterable[UsageKind]) -> dict[str, float]:
        """By commitment, the fewest of its units that any of these uses up; infinite where none may."""
        return {name: uses[0] if uses else inf for name, uses in self.list_uses(kinds).items()}

    def find_best_values(self, kinds: Iterable[UsageKind]) -> dict[str, float]:
        """By commitment, the most dollars of list prices that a unit of it could pay for, on these."""
        most = np.zeros(len(self.terms))
        with np.errstate(divide="ignore"):
            for kind in kinds:
                most = np.fmax(most, kind.price / self._find_row(kind))
        return {each.name: value for each, value in zip(self.terms, most.tolist(), strict=True)}

    def find_most_saved(self, kinds: Iterable[UsageKind]) -> float:
        """Dollars an hour of list prices that all commitments could pay for at most, on these."""
        best = self.find_best_values(kinds)
        return sum(each.units * best[each.name] for each in self.terms if each.units > 0)

    def apply_kinds(self, usage: Mapping[UsageKind, float]) -> CoveredUsage:
        """Apply all commitments to so many instances of each kind."""
        kinds = sorted(kind for kind, count in usage.items() if count > 0)
        run = _LedgerRun(self, kinds, [float(usage[kind]) for kind in kinds])
        if kinds and self.terms:
            run.order = self._find_order(tuple(kinds))
            run.apply_reserved(self._stages[RESERVED_IN_ZONE])
            run.apply_reserved(self._stages[RESERVED])
            run.apply_plans(self._stages[FAMILY_PLAN])
            run.apply_plans(self._stages[COMPUTE_PLAN])
        return run.build_result()

    def apply_nodes(self, lines: Sequence[UsageLine]) -> tuple[dict[str, NodeCover], CoveredUsage]:
        """Apply all commitments to these nodes: what is paid of each, and what is used of each commitment.

        Of nodes of one kind, those first by name are paid for first.
        """
        members: dict[UsageKind, list[str]] = {}
        for node, kind in lines:
            members.setdefault(kind, []).append(node)
        found = self.apply_kinds({kind: len(nodes) for kind, nodes in members.items()})
        covers: dict[str, NodeCover] = {}
        for kind, parts in found.kinds.items():
            _spread_parts(sorted(members[kind]), parts, covers)
        return covers, found

    def _find_order(self, kinds: tuple[UsageKind, ...]) -> _KindOrder:
        """How commitments look at these kinds; a fleet is mostly of the same kinds as before."""
        order = self._orders.get(kinds)
        if order is None:
            while len(self._orders) >= _MOST_ORDERS:
                del self._orders[next(iter(self._orders))]
            use = np.array([self._find_row(kind) for kind in kinds])
            order = self._orders[kinds] = _KindOrder(use, np.array([kind.price for kind in kinds]))
        return order

    def _find_row(self, kind: UsageKind) -> np.ndarray:
        row = self._rows.get(kind)
        if row is None:
            used = [each.count_use(*kind) for each in self.terms]
            row = self._rows[kind] = np.array(used, dtype=float)
        return row


def _spread_parts(
    nodes: Sequence[str], parts: Sequence[tuple[str, float]], covers: dict[str, NodeCover]
) -> None:
    """Whole nodes one after the other; where one commitment ends within a node, the next goes on there."""
    at, room = 0, 1.0
    shares: dict[str, float] = {}
    for name, amount in parts:
        if not shares and amount >= 1:
            whole = min(int(amount + DUST), len(nodes) - at)
            covers.update(dict.fromkeys(nodes[at : at + whole], NodeCover(1.0, (name,))))
            at, amount = at + whole, amount - whole
        while amount > DUST and at < len(nodes):
            taken = min(room, amount)
            shares[name] = shares.get(name, 0.0) + taken
            amount, room = amount - taken, room - taken
            if room <= DUST:
                covers[nodes[at]] = NodeCover(min(1.0, sum(shares.values())), tuple(shares))
                at, room, shares = at + 1, 1.0, {}
    if shares:
        covers[nodes[at]] = NodeCover(min(1.0, sum(shares.values())), tuple(shares))


class _KindOrder:
    """In which order each commitment pays for some kinds of instances, by the numbers of their rows."""

    def __init__(self, use: np.ndarray, prices: np.ndarray) -> None:
        self._use = use
        self._prices = prices
        self._by_units: dict[int, list[tuple[float, int]]] = {}
        self._by_saving: dict[int, list[tuple[float, float, int]]] = {}

    def order_by_units(self, number: int) -> list[tuple[float, int]]:
        """Of reserved instances: units and row of each kind, the smallest size first."""
        found = self._by_units.get(number)
        if found is None:
            column = self._use[:, number]
            rows = np.flatnonzero(~np.isnan(column))
            rows = rows[np.argsort(column[rows], kind="stable")]
            found = self._by_units[number] = list(zip(column[rows].tolist(), rows.tolist(), strict=True))
        return found

    def order_by_saving(self, number: int) -> list[tuple[float, float, int]]:
        """Of a plan: the part of its price, the rate and the row of each kind, the highest saving first."""
        found = self._by_saving.get(number)
        if found is None:
            rates = self._use[:, number]
            rows = np.flatnonzero(~np.isnan(rates))
            rates = rates[rows]
            lost = np.round(rates / self._prices[rows], _DIGITS)
            order = np.lexsort((rows, rates, lost))
            columns = lost[order].tolist(), rates[order].tolist(), rows[order].tolist()
            found = self._by_saving[number] = list(zip(*columns, strict=True))
        return found


@dataclass
class _LedgerRun:
    """One application of a ledger: what is left of usage and commitments, and who paid for what."""

    ledger: Ledger
    kinds: Sequence[UsageKind]
    left: list[float]

    def __post_init__(self) -> None:
        self.order = _KindOrder(np.empty((0, 0)), np.empty(0))
        self.room = [each.units for each in self.ledger.terms]
        self.parts: list[list[tuple[str, float]]] = [[] for _ in self.kinds]

    def apply_reserved(self, numbers: Sequence[int]) -> None:
        """Reserved instances one after the other, each to the smallest sizes first."""
        for number in numbers:
            for units, row in self.order.order_by_units(number):
                if self.room[number] <= DUST:
                    break
                if self.left[row] > DUST:
                    self._pay(number, row, units)

    def apply_plans(self, numbers: Sequence[int]) -> None:
        """All plans of a kind together: whatever plan and usage save the largest share come first."""
        heap: list[tuple[float, float, int, int, int]] = []
        active = [number for number in numbers if self.room[number] > DUST]
        orders = {number: self.order.order_by_saving(number) for number in active}
        for number in active:
            self._push_next(heap, orders[number], number, 0)
        while heap:
            _, rate, row, number, at = heapq.heappop(heap)
            if self.left[row] > DUST:
                self._pay(number, row, rate)
            if self.room[number] > DUST:
                self._push_next(heap, orders[number], number, at + 1)

    def _push_next(
        self,
        heap: list[tuple[float, float, int, int, int]],
        order: Sequence[tuple[float, float, int]],
        number: int,
        at: int,
    ) -> None:
        for index in range(at, len(order)):
            lost, rate, row = order[index]
            if self.left[row] > DUST:
                heapq.heappush(heap, (lost, rate, row, number, index))
                return

    def _pay(self, number: int, row: int, each: float) -> None:
        """Pay for as many instances of a kind as are left and as the commitment has room for."""
        most = self.room[number] / each if each > 0 else inf
        taken = min(self.left[row], most)
        self.left[row] -= taken
        self.room[number] = max(0.0, self.room[number] - taken * each)
        self.parts[row].append((self.ledger.terms[number].name, taken))

    def build_result(self) -> CoveredUsage:
        kinds = {kind: tuple(parts) for kind, parts in zip(self.kinds, self.parts, strict=True) if parts}
        uses = tuple(map(_describe_use, self.ledger.terms, self.room))
        return CoveredUsage(kinds, uses)


def _describe_use(terms: CommitmentTerms, room: float) -> CommitmentUse:
    used = terms.units - room
    dollars = used if terms.is_plan else (terms.hourly * used / terms.units if terms.units else 0.0)
    return CommitmentUse(
        name=terms.name,
        hourly=terms.hourly,
        used=dollars,
        units=terms.units,
        used_units=used,
        by_others=terms.by_others,
    )


NO_COMMITMENTS = Ledger()


def is_still_open(use: CommitmentUse, smallest: float, was_full: bool | None) -> bool:
    """Whether nodes are bought on a commitment, as if they cost nothing.

    It is full when the smallest eligible instance uses up more than is left, and open again only when
    some more is: below 97 % used, and with room for two of them. So no price moves with every node.
    """
    if smallest == inf or use.left + DUST < smallest:
        return False
    if not was_full:
        return True
    return use.used_units < OPEN_BELOW * use.units and use.left + DUST >= min(use.units, 2 * smallest)

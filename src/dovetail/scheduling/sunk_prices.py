"""What nodes cost while commitments have room: next to nothing, as they are paid for.

A commitment is open while it has room for one more node, and full after that, with a gap between so that
prices do not flicker. Instances that an open one would pay for have a sunk price, a ten-millionth of what is
listed, so that their order is kept. What is bought and moved by it is valued by the bill.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.scheduling.bill import PriceList, find_usage
from dovetail.scheduling.commitment_terms import CommitmentTerms
from dovetail.scheduling.commitments import DUST, Ledger, UsageKind, is_still_open
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.scheduling.spend_prices import list_possible_types

__all__ = [
    "CommitmentBook",
    "CommitmentMarket",
    "PaidZones",
    "add_commitments",
    "find_offering_usage",
    "find_paid_zones",
    "index_offerings",
    "list_usage_kinds",
    "round_to_uses",
    "sink_fitting",
    "sink_prices",
]

SUNK = 10_000_000
_MOST_KEPT = 8
Catalogs = tuple[tuple[InstanceType, ...], ...]


def find_offering_usage(each: InstanceType, offering: Offering) -> UsageKind | None:
    """What commitments would see of an instance that is bought by this offering; None if they would not."""
    if offering.capacity_type != labels.ON_DEMAND:
        return None
    sort = each.requirements.by_key
    known = {key: sort[key].only or "" for key in (labels.OS, labels.INSTANCE_TENANCY) if key in sort}
    if not known.get(labels.INSTANCE_TENANCY, "default"):
        known[labels.INSTANCE_TENANCY] = "default"  # either is sold, and nobody asked for the dearer
    return find_usage(each.name, offering, known)


def list_usage_kinds(catalogs: Iterable[Iterable[InstanceType]]) -> set[UsageKind]:
    """All that can be bought now and that a commitment could pay for."""
    return {
        kind
        for types in catalogs
        for each in types
        for offering in each.offerings
        if offering.available and (kind := find_offering_usage(each, offering)) is not None
    }


class CommitmentMarket(NamedTuple):
    """What can be bought on commitments.

    By commitment: the units that each kind of instance uses up, the fewest first, and the most dollars of
    list prices that a unit can pay for. By resource: the least that a billionth of it costs on demand.
    """

    uses: Mapping[str, Sequence[float]]
    values: Mapping[str, float]
    rates: Mapping[str, float]

    def find_smallest(self, name: str) -> float:
        """The fewest units of a commitment that anything on sale uses up; infinite if it pays for nothing."""
        return self.uses[name][0] if self.uses[name] else inf


def find_lowest_rates(snapshot: Snapshot) -> dict[str, float]:
    """The least that a billionth of CPU or memory costs on demand, by list prices."""
    found: dict[str, float] = {}
    for each in {id(each): each for types in snapshot.catalogs for each in types}.values():
        price = max((deal.listed_price for deal in each.offerings if deal.available), default=inf)
        for name in ("cpu", "memory"):
            amount = each.capacity[name].nano if name in each.capacity else 0
            if amount > 0:
                found[name] = min(found.get(name, inf), price / amount)
    return found


class CommitmentBook:
    """Which commitments nodes are bought on, asked again and again: only nodes that changed are looked at."""

    def __init__(self) -> None:
        self._terms: tuple[CommitmentTerms, ...] = ()
        self._catalogs: Catalogs = ()
        self._pools: dict[str, int] = {}
        self._prices = PriceList((), {})
        self._entries: dict[int, tuple[StateNode, UsageKind | None]] = {}
        self._market: CommitmentMarket | None = None
        self.ledger = Ledger()

    def add_commitments(self, snapshot: Snapshot, terms: tuple[CommitmentTerms, ...]) -> Snapshot:
        """The snapshot with what commitments pay for, and which of them are open where they are followed."""
        if not terms:
            return snapshot
        if not snapshot.options.follow_commitments:
            return replace(snapshot, commitments=terms)
        usage = self.count_usage(snapshot, terms)
        uses = {each.name: each for each in self.ledger.apply_kinds(usage).uses}
        market = self.find_market(snapshot)
        opened = tuple(
            each.name
            for each in self.ledger.terms
            if not each.ending
            and is_still_open(uses[each.name], market.find_smallest(each.name), each.was_full)
        )
        return replace(snapshot, commitments=self.ledger.terms, open_commitments=opened)

    def count_usage(self, snapshot: Snapshot, terms: tuple[CommitmentTerms, ...]) -> dict[UsageKind, float]:
        """How many instances of each kind run or are ordered."""
        self._move_to(snapshot, terms)
        known, self._entries = self._entries, {}
        found: dict[UsageKind, float] = {}
        for state in snapshot.nodes:
            if not views.is_managed(state):
                continue
            # The entry holds its state, so that no other object can have the same id.
            entry = known.get(id(state)) or (state, self._find_usage(state, snapshot))
            self._entries[id(state)] = entry
            if entry[1] is not None:
                found[entry[1]] = found.get(entry[1], 0.0) + 1
        return found

    def find_market(self, snapshot: Snapshot) -> CommitmentMarket:
        """What can be bought, as the commitments that were last asked about see it."""
        if self._market is None:
            kinds = list_usage_kinds(snapshot.catalogs)
            self._market = CommitmentMarket(
                self.ledger.list_uses(kinds), self.ledger.find_best_values(kinds), find_lowest_rates(snapshot)
            )
        return self._market

    def _move_to(self, snapshot: Snapshot, terms: tuple[CommitmentTerms, ...]) -> None:
        pools = {pool.name: pool.catalog for pool in snapshot.pools}
        changed = pools != self._pools or (
            snapshot.catalogs is not self._catalogs and snapshot.catalogs != self._catalogs
        )
        if changed:
            self._prices, self._entries = PriceList.from_snapshot(snapshot), {}
        if terms is not self._terms and terms != self._terms:
            self.ledger, changed = Ledger(terms), True
        if changed:
            self._market = None
        self._pools, self._catalogs, self._terms = pools, snapshot.catalogs, terms

    def _find_usage(self, state: StateNode, snapshot: Snapshot) -> UsageKind | None:
        known, pool = views.read_labels(state), views.read_pool_name(state)
        if labels.INSTANCE_TYPE not in known:
            return _find_ordered_usage(state, snapshot)
        bought = self._prices.find_offering(pool, known)
        return None if bought is None else find_usage(known[labels.INSTANCE_TYPE], bought, known)


def _find_ordered_usage(state: StateNode, snapshot: Snapshot) -> UsageKind | None:
    """What a node is expected to be that is ordered on demand and not launched yet: its cheapest type."""
    assert state.claim is not None
    wanted = Requirements.from_expressions(state.claim.spec.requirements)
    if wanted[labels.CAPACITY_TYPE].only != labels.ON_DEMAND:
        return None
    known = snapshot.options.flavour.well_known
    sold = [
        (offering.listed_price, each.name, offering.zone, each, offering)
        for each in list_possible_types(snapshot, views.read_pool_name(state), wanted)
        for offering in each.offerings
        if offering.available and wanted.is_compatible(offering.requirements, known)
    ]
    if not sold:
        return None
    cheapest = min(sold, key=lambda each: each[:3])
    return find_offering_usage(cheapest[3], cheapest[4])


def add_commitments(snapshot: Snapshot, terms: Sequence[CommitmentTerms]) -> Snapshot:
    """The snapshot with what commitments pay for, and which of them are open where they are followed."""
    return CommitmentBook().add_commitments(snapshot, tuple(terms))


class _SunkCatalogs:
    """Catalogues with sunk prices, made once for as long as nothing opens or closes."""

    def __init__(self) -> None:
        self._kept: dict[tuple[object, ...], tuple[Catalogs, object, Catalogs]] = {}

    def find_catalogs(self, snapshot: Snapshot, opened: Mapping[str, float]) -> Catalogs:
        key = id(snapshot.catalogs), id(snapshot.commitments), tuple(opened.items())
        kept = self._kept.get(key)
        if kept is None:
            made = _sink_catalogs(snapshot, opened)
            kept = snapshot.catalogs, snapshot.commitments, made
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            self._kept[key] = kept
        return kept[2]


def sink_prices(snapshot: Snapshot, opened: Sequence[str], cache: DecisionCache | None = None) -> Snapshot:
    """The snapshot in which all that these commitments would pay for is all but free."""
    return sink_fitting(snapshot, dict.fromkeys(opened, inf), cache)


def sink_fitting(
    snapshot: Snapshot, opened: Mapping[str, float], cache: DecisionCache | None = None
) -> Snapshot:
    """The same of what uses up no more units of a commitment than are given by its name."""
    if not opened:
        return snapshot
    sunk = (DecisionCache() if cache is None else cache).get_part(_SunkCatalogs)
    return replace(snapshot, catalogs=sunk.find_catalogs(snapshot, opened))


def round_to_uses(left: float, uses: Sequence[float]) -> float:
    """The most that anything uses up which fits into what is left; without bound where everything does.

    So prices change only when a size of instance begins or ceases to fit.
    """
    at = bisect_right(uses, left + DUST)
    return inf if at == len(uses) else (uses[at - 1] if at else 0.0)


def _sink_catalogs(snapshot: Snapshot, opened: Mapping[str, float]) -> Catalogs:
    payers = [(each, opened[each.name]) for each in snapshot.commitments if each.name in opened]
    paid: dict[UsageKind, bool] = {}

    def is_paid(kind: UsageKind) -> bool:
        if kind not in paid:
            uses = ((each.count_use(*kind), most) for each, most in payers)
            paid[kind] = any(use is not None and use <= most + DUST for use, most in uses)
        return paid[kind]

    return tuple(tuple(_sink_type(each, is_paid) for each in types) for types in snapshot.catalogs)


def _sink_type(each: InstanceType, is_paid: Callable[[UsageKind], bool]) -> InstanceType:
    offerings = tuple(_sink_offerings(each, is_paid))
    changed = any(new is not old for new, old in zip(offerings, each.offerings, strict=True))
    return replace(each, offerings=offerings) if changed else each


def _sink_offerings(each: InstanceType, is_paid: Callable[[UsageKind], bool]) -> Iterator[Offering]:
    for offering in each.offerings:
        kind = find_offering_usage(each, offering)
        if kind is None or not is_paid(kind):
            yield offering
            continue
        listed = offering.listed_price
        yield replace(offering, price=listed / SUNK, listed=listed)


PaidZones = Mapping[str, Mapping[str, bool]]
"""By instance type, the zones where it is sold on demand, and whether a commitment would pay for it there."""


class _PaidZones:
    """Where what is sold is paid for, found once for each catalogue with sunk prices."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[object, PaidZones]] = {}

    def find_zones(self, types: tuple[InstanceType, ...]) -> PaidZones:
        kept = self._kept.get(id(types))
        if kept is None:
            while len(self._kept) >= _MOST_KEPT:
                del self._kept[next(iter(self._kept))]
            kept = self._kept[id(types)] = types, {each.name: _list_paid_zones(each) for each in types}
        return kept[1]


def _list_paid_zones(each: InstanceType) -> dict[str, bool]:
    return {
        offering.zone: offering.listed is not None
        for offering in each.offerings
        if offering.available and offering.capacity_type == labels.ON_DEMAND
    }


def find_paid_zones(snapshot: Snapshot, pool: str, cache: DecisionCache) -> PaidZones:
    """Where commitments would pay for what a NodePool may buy, by the sunk prices of the snapshot."""
    types = next(snapshot.list_types(each) for each in snapshot.pools if each.name == pool)
    return cache.get_part(_PaidZones).find_zones(types)


def index_offerings(snapshot: Snapshot) -> Mapping[str, Mapping[str, InstanceType]]:
    """The instance types of each NodePool, by name."""
    return {pool.name: {each.name: each for each in snapshot.list_types(pool)} for pool in snapshot.pools}

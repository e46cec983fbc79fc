"""The one bill: what the nodes of a cluster cost an hour, by the price lists that its NodePools buy from.

Metrics, dashboard, `plan`, `plan --disruption`, zonal shift, recordings and the simulator take their dollars
from here, so that one world has one number. A node without a price is named and never counted as free.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import fsum, isfinite, isinf
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import Record
from dovetail.scheduling.commitments import NO_COMMITMENTS, CommitmentUse, Ledger, UsageKind, UsageLine
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import InstanceType, Offering, PriceParts
from dovetail.scheduling.model.snapshot import Snapshot, StateNode

__all__ = [
    "HOURS_A_MONTH",
    "Bill",
    "BillBook",
    "BillLine",
    "PriceList",
    "bill_nodes",
    "find_running_offering",
    "find_running_price",
    "find_usage",
    "sum_known_prices",
    "sum_prices",
]

HOURS_A_MONTH = 730
# So many nodes are priced anew without asking where else they may have been.
FEW_OTHERS = 16
_NO_PARTS = PriceParts(instance=0.0)


class _Priced(Protocol):
    @property
    def price(self) -> float: ...


def sum_prices(nodes: Iterable[_Priced]) -> float:
    """What these nodes cost; infinite where one of them has no known price."""
    return sum(node.price for node in nodes)


def sum_known_prices(nodes: Iterable[_Priced]) -> float:
    """What those of these nodes cost whose price is known."""
    return sum(node.price for node in nodes if not isinf(node.price))


class BillLine(Record, frozen=True):
    """One node on the bill. `listed` is what the price list says, `effective` what is left to pay of it.

    Both are of the whole node. `volumes`, `address` and `added` are those parts of `listed` which are not the
    instance's: disks, a public IPv4 address, and what a person adds.
    """

    node: str
    pool: str
    instance_type: str
    zone: str
    capacity_type: str
    listed: float
    effective: float
    # The commitments that have paid the difference, with commas between.
    covered_by: str = ""
    # It is being deleted, and paid for until its instance is gone.
    terminating: bool = False
    volumes: float = 0.0
    address: float = 0.0
    added: float = 0.0
    # The price stands for one that is not known.
    estimated: bool = False

    @property
    def extras(self) -> float:
        """All of the list price but the instance."""
        return self.volumes + self.address + self.added


class Bill(Record, frozen=True):
    """What nodes cost an hour, line by line, and the names of those whose price nobody knows.

    `committed` is paid whatever runs, `unused` is that part of it which no node uses.
    """

    lines: tuple[BillLine, ...] = ()
    unpriced: tuple[str, ...] = ()
    committed: float = 0.0
    unused: float = 0.0
    # What is used of each commitment, by name.
    commitments: tuple[CommitmentUse, ...] = ()

    @property
    def total(self) -> float:
        """Dollars an hour."""
        return self.committed + fsum(line.effective for line in self.lines)

    @property
    def listed(self) -> float:
        """Dollars an hour by the price list, as if nothing were committed."""
        return fsum(line.listed for line in self.lines)

    @property
    def extras(self) -> float:
        """Dollars an hour of what nodes cost beside their instances."""
        return fsum(line.extras for line in self.lines)

    def sum_by(self, member: str) -> dict[str, float]:
        """Dollars an hour by `pool`, `zone`, `instance_type` or `capacity_type`."""
        parts: dict[str, list[float]] = {}
        for line in self.lines:
            parts.setdefault(getattr(line, member), []).append(line.effective)
        return {name: fsum(amounts) for name, amounts in sorted(parts.items())}


class PriceList:
    """What a running node costs an hour: by its NodePool, type, zone, capacity type and reservation.

    A NodePool's own catalogue counts, since NodeOverlays may give it prices of its own. A node whose NodePool
    is gone, or no longer sells its type, costs what any other NodePool's catalogue says.
    """

    def __init__(self, catalogs: Sequence[Sequence[InstanceType]], pools: Mapping[str, int]) -> None:
        self._pools = pools
        self._types = tuple({each.name: each for each in types} for types in catalogs)
        self._sold: dict[tuple[str, str, str, str], tuple[Offering, ...]] = {}

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot) -> PriceList:
        return cls(snapshot.catalogs, {pool.name: pool.catalog for pool in snapshot.pools})

    @classmethod
    def from_offers(cls, offers: Mapping[str, Sequence[InstanceType]]) -> PriceList:
        """By the name of a NodePool, what it may buy."""
        return cls(tuple(offers.values()), {name: number for number, name in enumerate(offers)})

    def find_price(self, pool: str, known: Mapping[str, str]) -> float | None:
        """Dollars an hour of a node with these labels, whether or not more can be had; None if unknown."""
        found = self.find_offering(pool, known)
        return None if found is None else found.listed_price

    def find_offering(self, pool: str, known: Mapping[str, str]) -> Offering | None:
        """The offering that a node with these labels was bought by; None if its price is unknown."""
        name, zone = known.get(labels.INSTANCE_TYPE, ""), known.get(labels.ZONE, "")
        key = pool, name, zone, known.get(labels.CAPACITY_TYPE, "")
        sold = self._sold.get(key)
        if sold is None:
            sold = self._sold[key] = _list_sold(known, self._find_type(pool, name))
        return _choose_offering(sold, known)

    def _find_type(self, pool: str, name: str) -> InstanceType | None:
        own = self._pools.get(pool, -1)
        if own >= 0 and name in self._types[own]:
            return self._types[own][name]
        return next((types[name] for types in self._types if name in types), None)


def find_running_price(known: Mapping[str, str], instance_type: InstanceType | None) -> float | None:
    """What a node of these labels costs an hour as its type is sold; None when nobody says."""
    found = find_running_offering(known, instance_type)
    return None if found is None else found.price


def find_running_offering(known: Mapping[str, str], instance_type: InstanceType | None) -> Offering | None:
    """What a node of these labels was bought by, as its type is sold; None when nobody says."""
    return _choose_offering(_list_sold(known, instance_type), known)


def _list_sold(known: Mapping[str, str], instance_type: InstanceType | None) -> tuple[Offering, ...]:
    zone, capacity_type = known.get(labels.ZONE, ""), known.get(labels.CAPACITY_TYPE, "")
    return tuple(
        offering
        for offering in (instance_type.offerings if instance_type is not None else ())
        if offering.zone == zone and offering.capacity_type == capacity_type
    )


def _choose_offering(sold: Sequence[Offering], known: Mapping[str, str]) -> Offering | None:
    """The offering that a node was bought by: of several, the one of its own reservation."""
    if not sold:
        return None
    chosen = sold[0] if len(sold) == 1 else next((each for each in sold if _is_of(each, known)), sold[0])
    return None if chosen.price_unknown or not isfinite(chosen.price) else chosen


def _is_of(offering: Offering, known: Mapping[str, str]) -> bool:
    return all(known[key] in values for key, values in offering.requirements.by_key.items() if key in known)


def bill_nodes(nodes: Iterable[StateNode], prices: PriceList, ledger: Ledger = NO_COMMITMENTS) -> Bill:
    """The bill of all nodes among these that a NodeClaim ordered, after what the ledger has paid."""
    return _add_up((_bill_node(state, prices) for state in nodes if views.is_managed(state)), ledger)


class _BilledNode(NamedTuple):
    """A node's line, or its name where nobody knows its price; and what it is to commitments, if anything."""

    line: BillLine | str
    usage: UsageKind | None = None


def _bill_node(state: StateNode, prices: PriceList) -> _BilledNode:
    known = views.read_labels(state)
    pool = known.get(labels.NODEPOOL, "")
    bought = prices.find_offering(pool, known)
    if bought is None:
        return _BilledNode(views.read_name(state))
    parts, listed = bought.parts or _NO_PARTS, bought.listed_price
    line = BillLine(
        node=views.read_name(state),
        pool=pool,
        instance_type=known.get(labels.INSTANCE_TYPE, ""),
        zone=known.get(labels.ZONE, ""),
        capacity_type=known.get(labels.CAPACITY_TYPE, ""),
        listed=listed,
        effective=listed,
        terminating=views.is_deleting(state),
        volumes=parts.volumes,
        address=parts.address,
        added=parts.added,
        estimated=bought.price_estimated,
    )
    return _BilledNode(line, find_usage(line.instance_type, bought, known))


def find_usage(instance_type: str, bought: Offering, known: Mapping[str, str]) -> UsageKind | None:
    """What commitments see of an instance with these labels; None if none of them could pay for it.

    Spot is never covered, nor is what a NodeOverlay prices or what runs on hardware of its own.
    """
    if bought.capacity_type != labels.ON_DEMAND or bought.price_overlaid:
        return None
    price = bought.listed_price - (bought.parts.extras if bought.parts is not None else 0.0)
    if price <= 0 or known.get(labels.INSTANCE_TENANCY, "default") != "default":
        return None
    return UsageKind(instance_type, bought.zone, price, known.get(labels.OS) == "windows")


def _add_up(entries: Iterable[_BilledNode], ledger: Ledger) -> Bill:
    found = list(entries)
    lines = tuple([each.line for each in found if isinstance(each.line, BillLine)])
    unpriced = tuple([each.line for each in found if isinstance(each.line, str)])
    if not ledger:
        return Bill(lines=lines, unpriced=unpriced)
    usage = [
        UsageLine(line.node, kind) for line, kind in found if isinstance(line, BillLine) and kind is not None
    ]
    return _apply_ledger(lines, unpriced, usage, ledger)


def _apply_ledger(
    lines: Iterable[BillLine], unpriced: Iterable[str], usage: Sequence[UsageLine], ledger: Ledger
) -> Bill:
    covers, found = ledger.apply_nodes(usage)
    prices = {node: kind.price for node, kind in usage}

    def cover(line: BillLine) -> BillLine:
        paid = covers.get(line.node)
        if paid is None:
            return line
        left = line.listed - paid.share * prices[line.node]
        return replace(line, effective=left, covered_by=",".join(paid.by))

    return Bill(
        lines=tuple(map(cover, lines)),
        unpriced=tuple(unpriced),
        committed=ledger.committed,
        unused=fsum(each.unused for each in found.uses),
        commitments=found.uses,
    )


class BillBook:
    """The bill of a cluster that is looked at again and again: only nodes that changed are priced anew."""

    def __init__(self) -> None:
        self._nodes: tuple[StateNode, ...] = ()
        # What was billed of each of these, in their order; nothing of those that nobody ordered.
        self._billed: list[_BilledNode | None] = []
        self._catalogs: tuple[tuple[InstanceType, ...], ...] = ()
        self._pools: dict[str, int] = {}
        self._prices = PriceList((), {})
        self._ledger = NO_COMMITMENTS

    def bill_snapshot(self, snapshot: Snapshot) -> Bill:
        """The bill of what a snapshot holds."""
        pools = {pool.name: pool.catalog for pool in snapshot.pools}
        if pools != self._pools or snapshot.catalogs != self._catalogs:  # mostly the very same objects
            self._catalogs, self._pools = snapshot.catalogs, pools
            self._prices, self._nodes, self._billed = PriceList.from_snapshot(snapshot), (), []
        if snapshot.commitments != self._ledger.terms:
            self._ledger = Ledger(snapshot.commitments)
        self._nodes, self._billed = snapshot.nodes, self._bill_nodes(snapshot.nodes)
        return _add_up((each for each in self._billed if each is not None), self._ledger)

    def _bill_nodes(self, nodes: tuple[StateNode, ...]) -> list[_BilledNode | None]:
        before, billed = self._nodes, self._billed
        if len(nodes) == len(before):
            # Mostly a few are others, and all that stayed are where they were.
            others = [at for at, (new, old) in enumerate(zip(nodes, before, strict=True)) if new is not old]
            if len(others) <= FEW_OTHERS:
                found = billed.copy()
                for at in others:
                    found[at] = self._bill_state(nodes[at])
                return found
        # The nodes of before are held until here, so that no other object can have the id of one.
        known = {id(old): line for old, line in zip(before, billed, strict=True)}
        return [known[id(each)] if id(each) in known else self._bill_state(each) for each in nodes]

    def _bill_state(self, state: StateNode) -> _BilledNode | None:
        return _bill_node(state, self._prices) if views.is_managed(state) else None

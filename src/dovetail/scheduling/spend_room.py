"""What is left of spend limits: how far one more node would exceed them, in words.

Nodes are taken one after another, and each leaves less for the next. What NodePools cost is added up once for
each limit, and by NodePool it is known which limits are about it, so that a plan of many nodes under many
limits asks little.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite

from msgspec.structs import replace

from dovetail.api.quantity import Quantity
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.reasons import Reason
from dovetail.scheduling.model.resources import Nano, convert_to_nano
from dovetail.scheduling.spend import PoolSpend, list_covered, sum_dollars
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.spend_prices import DUST, PricedNode

__all__ = ["SpendExcess", "SpendRoom"]


@dataclass(frozen=True, slots=True)
class SpendExcess:
    """Which limit a node would exceed, and by how much, as a sentence."""

    limit: str
    told: str

    def __str__(self) -> str:
        return f"{Reason.SPEND}: {self.told}"


class _CapUse:
    """One limit, what its NodePools cost, and what was taken since: a plan asks this for every node."""

    __slots__ = ("base", "cap", "capacity", "dollars", "nodes")

    def __init__(self, cap: SpendCap, spent: Mapping[str, PoolSpend]) -> None:
        self.cap = cap
        mine = list_covered(cap, spent)
        self.base = (
            sum(sum_dollars(cap, each) for each in mine),
            sum(each.nodes for each in mine),
            {name: sum(each.capacity.get(name, 0) for each in mine) for name in cap.resources},
        )
        self.forget_charges()

    def forget_charges(self) -> None:
        """Begin again with what is spent and ordered."""
        self.dollars, self.nodes, capacity = self.base
        self.capacity = dict(capacity)

    def charge_node(self, priced: PricedNode) -> None:
        self.nodes += 1
        self.dollars += priced.price if isfinite(priced.price) else 0.0
        for name in self.capacity:
            self.capacity[name] += priced.capacity.get(name, 0)


class SpendRoom:
    """What is left of every limit while nodes are taken one after another."""

    def __init__(self, caps: Sequence[SpendCap], spent: Mapping[str, PoolSpend]) -> None:
        self._uses = [_CapUse(cap, spent) for cap in caps]
        self._spent = spent
        self._unpriced = {pool: each.unpriced for pool, each in spent.items() if each.unpriced}
        # By NodePool, the limits that are about it, in their order; those about all of them under no name.
        self._by_pool: dict[str, list[_CapUse]] = {"": [use for use in self._uses if use.cap.every]}
        for pool in {name for cap in caps if not cap.every for name in cap.pools}:
            self._by_pool[pool] = []
        for use in self._uses:
            for pool in self._by_pool if use.cap.every else use.cap.pools:
                if pool:
                    self._by_pool[pool].append(use)

    def _list_uses(self, pool: str) -> Sequence[_CapUse]:
        return self._by_pool.get(pool) or self._by_pool[""]

    def forget_charges(self) -> None:
        """Begin again with what is spent and ordered, without the nodes that were taken since."""
        for use in self._uses:
            use.forget_charges()

    def covers(self, pool: str) -> bool:
        """Whether any of the limits is about this NodePool."""
        return bool(self._list_uses(pool))

    def filter_types(self, pool: str, types: Iterable[InstanceType]) -> tuple[InstanceType, ...]:
        """What the NodePool could still buy: types and offerings that no limit is too small for.

        Limits that some pods may exceed do not say here which: they are asked again when nodes are taken.
        """
        mine = [use for use in self._list_uses(pool) if use.cap.priority is None]
        if any(_is_closed(use, pool, self._unpriced) for use in mine):
            return ()
        dollars = min(
            (use.cap.hourly - use.dollars for use in mine if use.cap.hourly is not None), default=inf
        )
        found = []
        for each in types:
            capacity = convert_to_nano(each.capacity)
            if not all(_has_room_for(use, capacity) for use in mine):
                continue
            offerings = tuple(deal for deal in each.offerings if deal.price <= dollars + DUST)
            if offerings:
                found.append(each if offerings == each.offerings else replace(each, offerings=offerings))
        return tuple(found)

    def find_excess(self, priced: PricedNode, priority: float = -inf) -> SpendExcess | None:
        """The first limit that leaves no room for the node, by name."""
        for use in self._list_uses(priced.node.pool):
            cap = use.cap
            if cap.priority is not None and priority >= cap.priority:
                continue
            told = _explain_closed(cap, priced, self._unpriced) or _explain_excess(use, priced)
            if told:
                return SpendExcess(cap.limit, told)
        return None

    def find_overlap_excess(
        self, priced: Sequence[PricedNode], pool: str, replaced: float
    ) -> SpendExcess | None:
        """The first limit that dearer replacements of a node would exceed by more than its overlap allows.

        What is replaced runs on for a while, and so do nodes that are terminating: they count here.
        """
        for use in self._uses:
            cap = use.cap
            mine = [each for each in priced if cap.covers(each.node.pool)]
            price = sum(each.price for each in mine)
            if not mine or price <= (replaced if cap.covers(pool) else 0.0) + DUST:
                continue
            told = _explain_closed(cap, mine[0], self._unpriced)
            if not told and cap.hourly is not None:
                standing = use.dollars + sum(each.terminating for each in list_covered(cap, self._spent))
                told = _explain_dollars(cap, standing, price, cap.hourly * (1 + cap.overlap))
            if told:
                return SpendExcess(cap.limit, told)
        return None

    def charge_node(self, priced: PricedNode) -> None:
        """Count one more node as ordered."""
        for use in self._list_uses(priced.node.pool):
            use.charge_node(priced)


def _is_closed(use: _CapUse, pool: str, unpriced: Mapping[str, Sequence[str]]) -> bool:
    """Whether the limit lets no node of the NodePool be bought, whatever it costs."""
    cap = use.cap
    if cap.problem or cap.month or (cap.nodes is not None and use.nodes >= cap.nodes):
        return True
    return cap.hourly is not None and pool in unpriced


def _has_room_for(use: _CapUse, capacity: Nano) -> bool:
    return all(
        use.capacity[name] + capacity.get(name, 0) <= most
        for name, most in use.cap.resources.items()
        if capacity.get(name, 0)
    )


def _explain_closed(cap: SpendCap, priced: PricedNode, unpriced: Mapping[str, Sequence[str]]) -> str:
    """Why the limit lets nothing be bought at all, whatever it costs; empty where it does."""
    if cap.problem:
        return (
            f"SpendLimit {cap.limit} cannot be read ({cap.problem}), so nothing is bought for its NodePools"
        )
    if cap.month:
        most = _format_dollars(cap.monthly)
        return f"SpendLimit {cap.limit} allows {most} in {cap.month}{_tell_window(cap)}, and these are spent"
    if cap.hourly is None:
        return ""
    pool = priced.node.pool
    if pool in unpriced:
        return (
            f"SpendLimit {cap.limit} counts dollars, and nobody knows the price of node {unpriced[pool][0]} "
            f"of NodePool {pool}"
        )
    if not isfinite(priced.price):
        return f"SpendLimit {cap.limit} counts dollars, and nobody knows the price of a new node of {pool}"
    return ""


def _explain_excess(use: _CapUse, priced: PricedNode) -> str:
    """How the node would exceed the limit's numbers; empty where it would not."""
    cap = use.cap
    if cap.hourly is not None:
        told = _explain_dollars(cap, use.dollars, priced.price, cap.hourly)
        if told:
            return told
    if cap.nodes is not None and use.nodes + 1 > cap.nodes:
        many = use.nodes + 1 - cap.nodes
        return (
            f"SpendLimit {cap.limit} allows {cap.nodes} nodes{_tell_window(cap)}, and this is {many} too many"
        )
    for name, most in cap.resources.items():
        need, have = priced.capacity.get(name, 0), use.capacity[name]
        over = have + need - most
        if need and over > 0:
            return (
                f"SpendLimit {cap.limit} allows {Quantity(most)} of {name}{_tell_window(cap)}, "
                f"{Quantity(have)} are there or ordered, and one more node may have {Quantity(need)}: "
                f"{Quantity(over)} too many"
            )
    return ""


def _explain_dollars(cap: SpendCap, standing: float, price: float, most: float) -> str:
    over = standing + price - most
    if over <= DUST:
        return ""
    return (
        f"SpendLimit {cap.limit} allows {_format_dollars(most)} an hour{_tell_window(cap)}, "
        f"{_format_dollars(standing)} are spent or ordered, and one more node costs up to "
        f"{_format_dollars(price)}: {_format_dollars(over)} too much"
    )


def _tell_window(cap: SpendCap) -> str:
    return f" in its window {cap.window}" if cap.window else ""


def _format_dollars(amount: float) -> str:
    """Cents, or as many digits as a small amount needs."""
    return f"${amount:,.2f}" if amount >= 0.01 or not amount else f"${amount:.2g}"

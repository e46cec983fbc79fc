"""What a NodeClaim may cost before it is launched, and NodeClaims without what is far dearer than expected.

A node counts at its own price once it is launched, and until then at the dearest price that its NodeClaim may
be launched at, whether or not that offering can be had just now: a launch that finds spot capacity refused
goes on to the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf, isfinite, isinf

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType, check_min_values
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import Nano, convert_to_nano
from dovetail.scheduling.model.snapshot import Snapshot

__all__ = [
    "DUST",
    "LEAST_TYPES",
    "PlannedPrices",
    "PricedNode",
    "find_largest",
    "find_worst_price",
    "list_possible_types",
    "narrow_node",
    "narrow_template",
    "price_node",
]

# A NodeClaim under a limit lists types up to this many times the expected price, and so many in any case.
DEAREST, LEAST_TYPES = 1.5, 15
# Prices are sums of floats: what exceeds a limit by less than this does not exceed it.
DUST = 1e-9


def list_possible_types(snapshot: Snapshot, pool: str, requirements: Requirements) -> list[InstanceType]:
    """What a NodeClaim could become: of its NodePool's catalogue, or of all where that is not known."""
    own = [each for each in snapshot.pools if each.name == pool and each.catalog >= 0]
    catalogs = [snapshot.list_types(each) for each in own] or list(snapshot.catalogs)
    found = {each.name: each for types in reversed(catalogs) for each in types}
    return [each for each in found.values() if _allows_type(requirements, each)]


def _list_node_types(snapshot: Snapshot, node: PlannedNode) -> list[InstanceType]:
    """The types that a planned node lists, in its order; of one that lists none, what it could become."""
    if not node.instance_types:
        return list_possible_types(snapshot, node.pool, node.requirements)
    pool = next((each for each in snapshot.pools if each.name == node.pool), None)
    types = snapshot.list_types(pool) if pool is not None else ()
    order = {name: at for at, name in enumerate(node.instance_types)}
    return sorted((each for each in types if each.name in order), key=lambda each: order[each.name])


def _allows_type(requirements: Requirements, each: InstanceType) -> bool:
    if each.name not in requirements[labels.INSTANCE_TYPE]:
        return False
    known = each.requirements.by_key
    return all(bool(values & known[key]) for key, values in requirements.by_key.items() if key in known)


def find_largest(types: Iterable[InstanceType]) -> Nano:
    """Of each resource the most that any of these types has; itself one node."""
    found: Nano = {}
    for each in types:
        for name, amount in convert_to_nano(each.capacity).items():
            found[name] = max(amount, found.get(name, 0))
    return found | {labels.NODES: views.ONE_NODE} if found else found


def find_worst_price(types: Iterable[InstanceType], requirements: Requirements, snapshot: Snapshot) -> float:
    """The dearest offering that a launch by these requirements could end in; infinite if none is known.

    Offerings that cannot be had now count: by the time of the launch they may be all there is. One whose
    price nobody knows cannot be had before it has a price.
    """
    known = snapshot.options.flavour.well_known
    prices = [
        offering.price
        for each in types
        for offering in each.offerings
        if not offering.price_unknown and requirements.is_compatible(offering.requirements, known)
    ]
    return max(prices, default=inf)


@dataclass(frozen=True, slots=True)
class PricedNode:
    """A planned node, the dearest price its claim may be launched at, and the largest it may become."""

    node: PlannedNode
    price: float
    capacity: Nano


def price_node(snapshot: Snapshot, node: PlannedNode) -> PricedNode:
    """The node with what it counts against limits until it is launched."""
    requirements = node.ordered if node.instance_types else node.requirements
    types = _list_node_types(snapshot, node)
    return PricedNode(node, find_worst_price(types, requirements, snapshot), find_largest(types))


class _OfferingKeys:
    """Of catalogues, the labels that their offerings speak of; looked for once in each."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Sequence[InstanceType], tuple[str, ...]]] = {}

    def list_keys(self, catalogs: Sequence[Sequence[InstanceType]]) -> list[tuple[str, ...]]:
        """The labels, catalogue by catalogue."""
        # The entry holds its catalogue, so that no other object can have the same id.
        self._known = {
            id(types): self._known.get(id(types)) or (types, _list_offering_keys(types)) for types in catalogs
        }
        return [self._known[id(types)][1] for types in catalogs]


def _list_offering_keys(types: Iterable[InstanceType]) -> tuple[str, ...]:
    return tuple(
        sorted({key for each in types for deal in each.offerings for key in deal.requirements.by_key})
    )


class PlannedPrices:
    """Prices and narrows the nodes of plans in one world; of nodes that are bought alike, one for all.

    They are alike whose types, capacity types and values of those labels are the same that offerings speak
    of: nodes of a hundred NodePools mostly are.
    """

    def __init__(self, snapshot: Snapshot, cache: DecisionCache) -> None:
        self._snapshot = snapshot
        keys = cache.get_part(_OfferingKeys).list_keys(snapshot.catalogs)
        self._keys = {
            pool.name: (pool.catalog, keys[pool.catalog]) for pool in snapshot.pools if pool.catalog >= 0
        }
        self._narrowed: dict[object, PlannedNode] = {}
        self._priced: dict[object, PricedNode] = {}

    def narrow_node(self, node: PlannedNode, least: int) -> PlannedNode:
        """The node without what is much dearer than expected."""
        key = self._find_key(node), node.price, least
        like = self._narrowed.get(key)
        if like is None:
            like = self._narrowed[key] = narrow_node(self._snapshot, node, least=least)
        return replace(node, instance_types=like.instance_types, capacity_types=like.capacity_types)

    def price_node(self, node: PlannedNode) -> PricedNode:
        """The node with what it counts against limits until it is launched."""
        key = self._find_key(node)
        like = self._priced.get(key)
        if like is None:
            like = self._priced[key] = price_node(self._snapshot, node)
        return PricedNode(node, like.price, like.capacity)

    def _find_key(self, node: PlannedNode) -> object:
        catalog, keys = self._keys.get(node.pool, (-1, ()))
        if catalog < 0 or not node.instance_types:
            return node.pool, node.instance_types, node.capacity_types, str(node.requirements)
        known = node.requirements.by_key
        wanted = tuple((key, each.min_values) for key, each in known.items() if each.min_values is not None)
        return catalog, node.instance_types, node.capacity_types, tuple(map(known.get, keys)), wanted


def narrow_node(
    snapshot: Snapshot, node: PlannedNode, most: float = inf, least: int = LEAST_TYPES
) -> PlannedNode:
    """The node without types and capacity types that are much dearer than expected, or dearer than `most`.

    The `least` cheapest types stay, and as many as minValues asks for; what is expected always stays.
    """
    if isinf(node.price) or not node.instance_types:
        return node
    dearest = max(node.price, most if isfinite(most) else node.price * DEAREST) + DUST
    types = _list_node_types(snapshot, node)
    narrowed = replace(node, capacity_types=_narrow_capacity_types(snapshot, node, types, dearest))
    ordered = narrowed.ordered
    prices = [find_cheapest_price(each, ordered, snapshot) for each in types]
    wanted = {at for at, price in enumerate(prices) if price <= dearest}
    order = sorted(range(len(types)), key=lambda at: (prices[at], at))
    for at in order:
        kept = [types[each] for each in sorted(wanted)]
        if len(kept) >= least and check_min_values(kept, node.requirements).met:
            break
        wanted.add(at)
    return replace(narrowed, instance_types=tuple(types[at].name for at in sorted(wanted)))


def narrow_template(snapshot: Snapshot, node: PlannedNode) -> PlannedNode:
    """A node as its NodePool's template has it, without what is far dearer than the cheapest."""
    types = list_possible_types(snapshot, node.pool, node.requirements)
    prices = {each.name: find_cheapest_price(each, node.requirements, snapshot) for each in types}
    order = sorted((name for name, price in prices.items() if isfinite(price)), key=lambda n: (prices[n], n))
    if not order:
        return node
    known = node.requirements[labels.CAPACITY_TYPE]
    sold = {deal.capacity_type for each in types for deal in each.offerings if deal.available}
    bought = replace(
        node,
        instance_types=tuple(order),
        capacity_types=tuple(sorted(name for name in sold if name in known)),
        price=prices[order[0]],
    )
    return replace(node, requirements=narrow_node(snapshot, bought).ordered)


def _narrow_capacity_types(
    snapshot: Snapshot, node: PlannedNode, types: Sequence[InstanceType], dearest: float
) -> tuple[str, ...]:
    """The capacity types in which one of these instance types costs no more than this."""
    least = node.requirements[labels.CAPACITY_TYPE].min_values or 1
    if len(node.capacity_types) <= least:
        return node.capacity_types
    prices: dict[str, float] = {}
    for name in node.capacity_types:
        wanted = replace(node, capacity_types=(name,)).ordered
        prices[name] = min((find_cheapest_price(each, wanted, snapshot) for each in types), default=inf)
    order = sorted(prices, key=lambda name: (name != node.capacity_type, prices[name]))
    kept = {name for at, name in enumerate(order) if at < least or prices[name] <= dearest}
    return tuple(sorted(kept))


def find_cheapest_price(each: InstanceType, requirements: Requirements, snapshot: Snapshot) -> float:
    """The cheapest offering of a type that can be had by these requirements."""
    known = snapshot.options.flavour.well_known
    return min(
        (
            offering.price
            for offering in each.offerings
            if offering.available and requirements.is_compatible(offering.requirements, known)
        ),
        default=inf,
    )

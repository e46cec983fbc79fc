"""What a fleet costs: the nodes that run, and the least that any fleet for the same pods could cost."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import isinf

from msgspec.structs import replace

from dovetail.api import labels, predicates
from dovetail.api.hashes import NODEPOOL_HASH_VERSION, hash_nodepool
from dovetail.api.pod import Pod
from dovetail.scheduling.bill import Bill, PriceList, bill_nodes
from dovetail.scheduling.commitments import Ledger
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import convert_to_nano, convert_to_quantities
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode
from dovetail.scheduling.solve import compute_price_floor

__all__ = [
    "bill_running_nodes",
    "compute_fleet_floor",
    "find_node_price",
    "split_cost",
]

Offer = tuple[str, str, str]


def find_node_price(prices: PriceList, state: StateNode) -> float | None:
    """What a node that was ordered costs an hour; None where no catalogue has its offering."""
    return prices.find_price(views.read_pool_name(state), views.read_labels(state))


def bill_running_nodes(snapshot: Snapshot, without: Iterable[str] = ()) -> Bill:
    """The bill of the nodes that were ordered, but for those of these names."""
    gone = frozenset(without)
    staying = (each for each in snapshot.nodes if views.read_name(each) not in gone)
    return bill_nodes(staying, PriceList.from_snapshot(snapshot), Ledger(snapshot.commitments))


def compute_fleet_floor(
    snapshot: Snapshot,
    left_out: AbstractSet[str] = frozenset(),
    cache: DecisionCache | None = None,
    staying: AbstractSet[str] = frozenset(),
) -> float:
    """Dollars an hour that no fleet for all these pods can undercut, whatever is kept of the one that runs.

    All pods but those `left_out` look for a place. A node whose like can be bought counts as one to buy, with
    as much room as it reports; all others that stay, as those that nobody ordered, are there for nothing.
    Nodes `staying` stay in any case, with their pods; what room they have is there for nothing, too.
    """
    prices = PriceList.from_snapshot(snapshot)
    free: list[StateNode] = []
    kept: dict[Offer, list[StateNode]] = {}
    pods = [pod for pod in (*snapshot.pods, *snapshot.moving) if pod.full_name not in left_out]
    there = {pod.full_name for pod in pods}
    offered = {pool.name: _OfferedPool(snapshot, pool) for pool in snapshot.pools}
    for state in snapshot.nodes:
        if views.is_deleting(state):
            continue  # its pods are among those that move
        if views.read_name(state) in staying:
            free.append(state)
            continue
        moved = [pod for pod in state.pods if predicates.is_reschedulable(pod)]
        pods += [pod for pod in moved if pod.full_name not in there and pod.full_name not in left_out]
        pool = offered.get(views.read_pool_name(state)) if views.is_managed(state) else None
        if pool is not None and find_node_price(prices, state) is not None and pool.can_buy_again(state):
            known = views.read_labels(state)
            offer = known[labels.INSTANCE_TYPE], known[labels.ZONE], known[labels.CAPACITY_TYPE]
            kept.setdefault(offer, []).append(state)
        else:
            names = {pod.full_name for pod in moved}
            rest = tuple(pod for pod in state.pods if pod.full_name not in names)
            free.append(replace(state, pods=rest))
    types_kept = _index_by_type(kept)
    catalogs = tuple(
        tuple(_relax_type(each, kept, types_kept.get(each.name, ())) for each in types)
        for types in snapshot.catalogs
    )
    world = replace(snapshot, nodes=tuple(free), pods=(), moving=tuple(pods), virtual=(), catalogs=catalogs)
    return compute_price_floor(world, cache)


class _OfferedPool:
    """A NodePool as a buyer: whether a node that runs could be had from it once more, no smaller."""

    def __init__(self, snapshot: Snapshot, pool: SnapshotPool) -> None:
        self._types = {each.name: each for each in snapshot.list_types(pool)}
        self._wanted = Requirements.from_expressions(pool.nodepool.spec.template.spec.requirements or ())
        # As the controller wrote it: a snapshot's file does not tell an empty list from none.
        self._hash = pool.nodepool.annotations.get(labels.NODEPOOL_HASH) or hash_nodepool(pool.nodepool)

    def can_buy_again(self, state: StateNode) -> bool:
        known, claim = views.read_labels(state), state.claim
        same = self._types.get(known.get(labels.INSTANCE_TYPE, ""))
        if same is None or claim is None:
            return False
        if (
            claim.annotations.get(labels.NODEPOOL_HASH_VERSION, NODEPOOL_HASH_VERSION)
            != NODEPOOL_HASH_VERSION
        ):
            return False
        if claim.annotations.get(labels.NODEPOOL_HASH, self._hash) != self._hash:
            return False
        asked = self._wanted.by_key.items()
        return all(key not in known or known[key] in values for key, values in asked)


def _index_by_type(kept: Mapping[Offer, list[StateNode]]) -> dict[str, list[StateNode]]:
    found: dict[str, list[StateNode]] = {}
    for (name, _, _), states in kept.items():
        found.setdefault(name, []).extend(states)
    return found


def _relax_type(
    each: InstanceType, kept: Mapping[Offer, object], running: Iterable[StateNode]
) -> InstanceType:
    """The instance type as what runs of it shows it: for sale, and with as much room as a node has."""
    sold, reported = convert_to_nano(each.allocatable()), dict[str, int]()
    for state in running:
        for name, amount in views.read_allocatable(state).items():
            reported[name] = max(reported.get(name, 0), amount)
    more = {
        name: amount - sold.get(name, 0) for name, amount in reported.items() if amount > sold.get(name, 0)
    }
    if more:
        capacity = convert_to_nano(each.capacity)
        larger = {name: capacity.get(name, 0) + extra for name, extra in more.items()}
        each = replace(each, capacity={**each.capacity, **convert_to_quantities(larger)})
    closed = [
        offering
        for offering in each.offerings
        if not offering.available and (each.name, offering.zone, offering.capacity_type) in kept
    ]
    if not closed:
        return each
    offerings = tuple(
        replace(offering, available=True) if any(offering is one for one in closed) else offering
        for offering in each.offerings
    )
    return replace(each, offerings=offerings)


def split_cost(snapshot: Snapshot, plan: Plan, without: AbstractSet[str] = frozenset()) -> dict[str, float]:
    """Dollars an hour of each pod that has a place: its node's price by its share of what pods request there.

    CPU and memory count alike, and daemons are paid for by the others. `without` are nodes that leave.
    """
    prices = PriceList.from_snapshot(snapshot)
    waiting = {pod.full_name: pod for pod in (*snapshot.pods, *snapshot.moving)}
    found: dict[str, float] = {}
    for state in snapshot.nodes:
        name = views.read_name(state)
        price = find_node_price(prices, state) if views.is_managed(state) else None
        if price is None or name in without:
            continue
        joined = [waiting[each] for each in plan.existing.get(name, ()) if each in waiting]
        found |= _share_price(price, [*filter(predicates.is_reschedulable, state.pods), *joined])
    for node in plan.new_nodes:
        if not isinf(node.price):
            found |= _share_price(node.price, [waiting[each] for each in node.pods if each in waiting])
    return found


def _share_price(price: float, pods: Sequence[Pod]) -> dict[str, float]:
    totals = {name: sum(pod.spec.nano_requests.get(name, 0) for pod in pods) for name in ("cpu", "memory")}
    asked = [name for name, total in totals.items() if total]
    if not asked:
        return {pod.full_name: price / len(pods) for pod in pods}
    return {
        pod.full_name: price
        * sum(pod.spec.nano_requests.get(name, 0) / totals[name] for name in asked)
        / len(asked)
        for pod in pods
    }

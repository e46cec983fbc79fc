"""Which resources a pod requests that no NodePool can buy, and which requirement of which pool is the reason.

A pod that requests a GPU where every pool is confined to types without one is turned down by each place for
a reason of its own. This says the one thing that matters. Words for people; nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass
from math import inf

from dovetail.api.pod import Pod
from dovetail.api.quantity import ZERO, Quantity
from dovetail.scheduling.model.instance_types import InstanceType, list_usable_offerings
from dovetail.scheduling.model.nodeclaim_template import build_template_requirements, list_dynamic_pools
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.scheduling.model.reasons import Decision
from dovetail.scheduling.model.requirements import Requirements, describe_values
from dovetail.scheduling.model.resources import compute_requests_with_pod
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool

__all__ = ["MissingResource", "TypeExclusion", "describe_decision", "find_missing_resources"]

# Every type has some of these; of too little of them the nearest miss tells.
EVERYWHERE = frozenset(("cpu", "memory", "pods"))
NO_OFFERING = "none of their offerings is available to it"
SHOWN = 3


@dataclass(frozen=True, slots=True)
class TypeExclusion:
    """A requirement of a NodePool, and how many of the instance types with the resource it excludes."""

    pool: str
    requirement: str
    count: int


@dataclass(frozen=True, slots=True)
class MissingResource:
    """A resource that a pod requests and no NodePool's instance types have; `types` are those that do."""

    resource: str
    requested: Quantity
    types: tuple[str, ...] = ()
    excluded_by: tuple[TypeExclusion, ...] = ()
    # The largest amount on any instance type, and that type; empty where no type has any.
    most: str = ""

    def __str__(self) -> str:
        asked = f"requests {self.resource} {self.requested}"
        if self.types:
            return f"{asked}, and no instance type of any pool has it"
        if self.most:
            return f"{asked}, and no instance type has as much: the most is {self.most}"
        return f"{asked}, and no instance type has any"

    def list_lines(self) -> Iterator[str]:
        """The types that have the resource, then each requirement that excludes them."""
        if not self.types:
            return
        more = len(self.types) - SHOWN
        yield f"types with it: {', '.join(self.types[:SHOWN])}{f' and {more:,} more' if more > 0 else ''}"
        for each in self.excluded_by:
            whole = each.count == len(self.types)
            which = "them" if whole else f"{each.count:,} of them"
            yield f"pool {each.pool} excludes {which}: {each.requirement}"


def describe_decision(
    decision: Decision, planned: PlannedNode | None, missing: Sequence[MissingResource] = ()
) -> str:
    """What becomes of a pod, in one sentence; that no pool has what it requests comes before all else."""
    if missing:
        return f"{decision.pod} {missing[0]}"
    return f"{decision.pod} will run on a new node of pool {planned.pool}" if planned else str(decision)


def find_missing_resources(snapshot: Snapshot, pod: Pod) -> tuple[MissingResource, ...]:
    """The resources among the pod's requests that no pool that may grow has an instance type for."""
    pools = list_dynamic_pools(snapshot.pools)
    if not pools:
        return ()
    asked = compute_requests_with_pod(pod)
    names = sorted(name for name, amount in asked.items() if amount > ZERO and name not in EVERYWHERE)
    found = (_find_missing(snapshot, pools, name, asked[name]) for name in names)
    return tuple(each for each in found if each is not None)


def _find_missing(
    snapshot: Snapshot, pools: Sequence[SnapshotPool], name: str, requested: Quantity
) -> MissingResource | None:
    able = {pool.name: _list_types_with_enough(snapshot.list_types(pool), name, requested) for pool in pools}
    demands = {pool.name: build_template_requirements(pool.nodepool) for pool in pools}
    undefined = snapshot.options.flavour.well_known
    if any(_is_allowed(each, demands[pool], undefined) for pool, types in able.items() for each in types):
        return None
    known = {each.name: each for types in able.values() for each in types}
    cheapest = sorted(known.values(), key=lambda each: (_find_lowest_price(each), each.name))
    return MissingResource(
        name,
        requested,
        tuple(each.name for each in cheapest),
        tuple(each for pool, types in able.items() for each in _list_exclusions(pool, types, demands[pool])),
        "" if known else _describe_largest(snapshot, name),
    )


def _list_types_with_enough(
    types: Sequence[InstanceType], name: str, requested: Quantity
) -> list[InstanceType]:
    return [each for each in types if each.allocatable().get(name, ZERO) >= requested]


def _is_allowed(each: InstanceType, demands: Requirements, undefined: Set[str]) -> bool:
    return each.requirements.intersects(demands) and any(
        True for _ in list_usable_offerings(each, demands, undefined)
    )


def _find_lowest_price(each: InstanceType) -> float:
    return min((offering.price for offering in each.offerings if not offering.price_unknown), default=inf)


def _list_exclusions(
    pool: str, types: Sequence[InstanceType], demands: Requirements
) -> Iterator[TypeExclusion]:
    """Each requirement that alone excludes all of these types; where none does, each that excludes some."""
    counts = {
        key: sum(
            key in each.requirements and not each.requirements[key].has_intersection(values) for each in types
        )
        for key, values in demands.by_key.items()
    }
    some = {key: count for key, count in sorted(counts.items()) if count}
    alone = {key: count for key, count in some.items() if count == len(types)}
    if types and not some:
        yield TypeExclusion(pool, NO_OFFERING, len(types))
    for key, count in (alone or some).items():
        yield TypeExclusion(pool, describe_values(key, demands[key]), count)


def _describe_largest(snapshot: Snapshot, name: str) -> str:
    every = (each for catalog in snapshot.catalogs for each in catalog)
    amount, best = max(
        ((each.allocatable().get(name, ZERO), each.name) for each in every), default=(ZERO, "")
    )
    return f"{amount} ({best})" if amount > ZERO else ""

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
from dovetail.scheduling.catalog import InstanceType, usable
from dovetail.scheduling.requirements import Requirements, text
from dovetail.scheduling.resources import requests_with_pod
from dovetail.scheduling.snapshot import Pool, Snapshot
from dovetail.scheduling.templates import dynamic_pools, template_requirements

__all__ = ["Exclusion", "MissingResource", "missing_resources"]

# Every type has some of these; of too little of them the nearest miss tells.
EVERYWHERE = frozenset(("cpu", "memory", "pods"))
NO_OFFERING = "none of their offerings is available to it"
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Exclusion:
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
    excluded_by: tuple[Exclusion, ...] = ()
    # The largest amount on any instance type, and that type; empty where no type has any.
    most: str = ""

    def __str__(self) -> str:
        asked = f"requests {self.resource} {self.requested}"
        if self.types:
            return f"{asked}, and no instance type of any pool has it"
        if self.most:
            return f"{asked}, and no instance type has as much: the most is {self.most}"
        return f"{asked}, and no instance type has any"

    def lines(self) -> Iterator[str]:
        """The types that have the resource, then each requirement that excludes them."""
        if not self.types:
            return
        more = len(self.types) - SHOWN
        yield f"types with it: {', '.join(self.types[:SHOWN])}{f' and {more:,} more' if more > 0 else ''}"
        for each in self.excluded_by:
            whole = each.count == len(self.types)
            which = "them" if whole else f"{each.count:,} of them"
            yield f"pool {each.pool} excludes {which}: {each.requirement}"


def missing_resources(snapshot: Snapshot, pod: Pod) -> tuple[MissingResource, ...]:
    """The resources among the pod's requests that no pool that may grow has an instance type for."""
    pools = dynamic_pools(snapshot.pools)
    if not pools:
        return ()
    asked = requests_with_pod(pod)
    names = sorted(name for name, amount in asked.items() if amount > ZERO and name not in EVERYWHERE)
    found = (_missing(snapshot, pools, name, asked[name]) for name in names)
    return tuple(each for each in found if each is not None)


def _missing(
    snapshot: Snapshot, pools: Sequence[Pool], name: str, requested: Quantity
) -> MissingResource | None:
    able = {pool.name: _with_enough(snapshot.types(pool), name, requested) for pool in pools}
    demands = {pool.name: template_requirements(pool.nodepool) for pool in pools}
    undefined = snapshot.options.flavour.well_known
    if any(_allowed(each, demands[pool], undefined) for pool, types in able.items() for each in types):
        return None
    known = {each.name: each for types in able.values() for each in types}
    cheapest = sorted(known.values(), key=lambda each: (_price(each), each.name))
    return MissingResource(
        name,
        requested,
        tuple(each.name for each in cheapest),
        tuple(each for pool, types in able.items() for each in _exclusions(pool, types, demands[pool])),
        "" if known else _most(snapshot, name),
    )


def _with_enough(types: Sequence[InstanceType], name: str, requested: Quantity) -> list[InstanceType]:
    return [each for each in types if each.allocatable().get(name, ZERO) >= requested]


def _allowed(each: InstanceType, demands: Requirements, undefined: Set[str]) -> bool:
    return each.requirements.intersects(demands) and any(True for _ in usable(each, demands, undefined))


def _price(each: InstanceType) -> float:
    return min((offering.price for offering in each.offerings), default=inf)


def _exclusions(pool: str, types: Sequence[InstanceType], demands: Requirements) -> Iterator[Exclusion]:
    """Each requirement that alone excludes all of these types; where none does, each that excludes some."""
    counts = {
        key: sum(key in each.requirements and not each.requirements[key].meets(values) for each in types)
        for key, values in demands.by_key.items()
    }
    some = {key: count for key, count in sorted(counts.items()) if count}
    alone = {key: count for key, count in some.items() if count == len(types)}
    if types and not some:
        yield Exclusion(pool, NO_OFFERING, len(types))
    for key, count in (alone or some).items():
        yield Exclusion(pool, text(key, demands[key]), count)


def _most(snapshot: Snapshot, name: str) -> str:
    every = (each for catalog in snapshot.catalogs for each in catalog)
    amount, best = max(
        ((each.allocatable().get(name, ZERO), each.name) for each in every), default=(ZERO, "")
    )
    return f"{amount} ({best})" if amount > ZERO else ""

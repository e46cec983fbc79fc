"""Pools made ready for one run: their labels, taints, daemons, and the instance types they may buy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dovetail.api.core import Taint
from dovetail.api.labels import INITIALIZED, REGISTERED, TRUE
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.setaside import reason_of
from dovetail.api.taints import PREFER_NO_SCHEDULE
from dovetail.scheduling import daemons as daemoning
from dovetail.scheduling.catalog import MinValues
from dovetail.scheduling.daemons import DaemonGroup
from dovetail.scheduling.plan import pool_labels
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.snapshot import Pool, Snapshot
from dovetail.scheduling.typetable import TypeTable, table_for

__all__ = ["FILTERED_OUT", "Template", "dynamic_pools", "min_values", "soft_tainted", "templates"]

FILTERED_OUT = "NodePool requirements filtered out all compatible available instance types"


@dataclass(frozen=True, slots=True, eq=False)
class Template:
    """What every new node of a pool starts as."""

    index: int
    nodepool: NodePool
    requirements: Requirements
    taints: tuple[Taint, ...]
    table: TypeTable
    types: int
    daemons: tuple[DaemonGroup, ...]
    min_values: bool

    @property
    def pool(self) -> str:
        return self.nodepool.name


def ready(nodepool: NodePool) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in nodepool.status.conditions)


def dynamic_pools(pools: Iterable[Pool]) -> list[Pool]:
    """The pools pods may use, the weightiest first, then by name from the end of the alphabet."""
    usable = [
        pool
        for pool in pools
        if not pool.nodepool.static and not pool.nodepool.deleting and ready(pool.nodepool)
        if not reason_of(pool.nodepool)
    ]
    usable.sort(key=lambda pool: pool.name, reverse=True)
    return sorted(usable, key=lambda pool: -(pool.nodepool.spec.weight or 0))


def soft_tainted(pools: Iterable[Pool]) -> bool:
    """Whether some pool's taint may be overlooked when nothing else will do."""
    return any(
        taint.effect == PREFER_NO_SCHEDULE
        for pool in pools
        for taint in pool.nodepool.spec.template.spec.taints
    )


def template_requirements(nodepool: NodePool) -> Requirements:
    """What is true of every node of the pool; that it will be registered and initialised, too."""
    pseudo = {REGISTERED: TRUE, INITIALIZED: TRUE}
    return Requirements.of(nodepool.spec.template.spec.requirements or ()) & Requirements.labels(
        pool_labels(nodepool) | pseudo
    )


def min_values(table: TypeTable, types: int, requirements: Requirements) -> MinValues:
    """Whether these types offer as many distinct values as the requirements ask for."""
    if not types:
        return MinValues(needed=0)
    counted = {
        key: (table.counts(key, types), values.min_values)
        for key, values in requirements.by_key.items()
        if values.min_values is not None
    }
    short = {key: count for key, (count, least) in counted.items() if count < least}
    return MinValues(needed=types.bit_count(), unsatisfied=short)


def templates(snapshot: Snapshot, pools: Sequence[Pool]) -> tuple[list[Template], dict[str, str]]:
    """The templates of the run in order, and what is wrong with the pools that have none."""
    found: list[Template] = []
    problems: dict[str, str] = {}
    strict = snapshot.options.min_values == "Strict"
    counted = [pod for pod in snapshot.daemons if not (snapshot.options.ignore_dra and uses_devices(pod))]
    for pool in pools:
        requirements = template_requirements(pool.nodepool)
        table = table_for(snapshot.types(pool), snapshot.options.flavour.well_known)
        types = table.matching_all(requirements) & table.fold(table.offered(requirements) & table.sound)
        short = min_values(table, types, requirements) if strict else MinValues(needed=0)
        if not types or not short.met:
            suffix = "" if short.met else " due to minValues incompatibility"
            problems[pool.name] = FILTERED_OUT + suffix
            continue
        taints = pool.nodepool.spec.template.spec.taints
        groups = daemoning.for_new_nodes(counted, table, types, requirements, taints)
        found.append(
            Template(
                len(found),
                pool.nodepool,
                requirements,
                taints,
                table,
                types,
                groups,
                requirements.has_min_values,
            )
        )
    return found, problems


def uses_devices(pod: Pod) -> bool:
    """Whether the pod asks for devices through resource claims."""
    spec = pod.spec
    return bool(spec.resource_claims) or any(
        each.resources.claims for each in (*spec.containers, *spec.init_containers)
    )

"""Pools made ready for one run: their labels, taints, daemons, and the instance types they may buy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dovetail.api.bad_items import reason_of
from dovetail.api.core import Taint
from dovetail.api.labels import INITIALIZED, REGISTERED, TRUE
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.taints import PREFER_NO_SCHEDULE
from dovetail.scheduling.model import daemonsets as daemoning
from dovetail.scheduling.model.daemonsets import DaemonGroup
from dovetail.scheduling.model.instance_type_table import InstanceTypeTable, TypeTableCache
from dovetail.scheduling.model.instance_types import MinValues
from dovetail.scheduling.model.plan import build_pool_labels
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool

__all__ = [
    "FILTERED_OUT",
    "NodeClaimTemplate",
    "build_templates",
    "check_min_values_of_types",
    "has_soft_taints",
    "list_dynamic_pools",
]

FILTERED_OUT = "NodePool requirements filtered out all compatible available instance types"


@dataclass(frozen=True, slots=True, eq=False)
class NodeClaimTemplate:
    """What every new node of a pool starts as."""

    index: int
    nodepool: NodePool
    requirements: Requirements
    taints: tuple[Taint, ...]
    table: InstanceTypeTable
    types: int
    daemons: tuple[DaemonGroup, ...]
    min_values: bool

    @property
    def pool(self) -> str:
        return self.nodepool.name


def is_ready(nodepool: NodePool) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in nodepool.status.conditions)


def list_dynamic_pools(pools: Iterable[SnapshotPool]) -> list[SnapshotPool]:
    """The pools pods may use, the weightiest first, then by name from the end of the alphabet."""
    usable = [
        pool
        for pool in pools
        if not pool.nodepool.static and not pool.nodepool.deleting and is_ready(pool.nodepool)
        if not reason_of(pool.nodepool)
    ]
    usable.sort(key=lambda pool: pool.name, reverse=True)
    return sorted(usable, key=lambda pool: -(pool.nodepool.spec.weight or 0))


def has_soft_taints(pools: Iterable[SnapshotPool]) -> bool:
    """Whether some pool's taint may be overlooked when nothing else will do."""
    return any(
        taint.effect == PREFER_NO_SCHEDULE
        for pool in pools
        for taint in pool.nodepool.spec.template.spec.taints
    )


def build_template_requirements(nodepool: NodePool) -> Requirements:
    """What is true of every node of the pool; that it will be registered and initialised, too."""
    pseudo = {REGISTERED: TRUE, INITIALIZED: TRUE}
    return Requirements.from_expressions(
        nodepool.spec.template.spec.requirements or ()
    ) & Requirements.from_labels(build_pool_labels(nodepool) | pseudo)


def check_min_values_of_types(table: InstanceTypeTable, types: int, requirements: Requirements) -> MinValues:
    """Whether these types offer as many distinct values as the requirements ask for."""
    if not types:
        return MinValues(needed=0)
    counted = {
        key: (table.count_values(key, types), values.min_values)
        for key, values in requirements.by_key.items()
        if values.min_values is not None
    }
    short = {key: count for key, (count, least) in counted.items() if count < least}
    return MinValues(needed=types.bit_count(), unsatisfied=short)


def build_templates(
    snapshot: Snapshot, pools: Sequence[SnapshotPool], tables: TypeTableCache
) -> tuple[list[NodeClaimTemplate], dict[str, str]]:
    """The templates of the run in order, and what is wrong with the pools that have none."""
    found: list[NodeClaimTemplate] = []
    problems: dict[str, str] = {}
    strict = snapshot.options.min_values == "Strict"
    counted = [pod for pod in snapshot.daemons if not (snapshot.options.ignore_dra and uses_devices(pod))]
    for pool in pools:
        requirements = build_template_requirements(pool.nodepool)
        table = tables.find_table(snapshot.list_types(pool), snapshot.options.flavour.well_known)
        types = table.match_requirements(requirements) & table.fold_variants(
            table.find_offered(requirements) & table.sound
        )
        short = check_min_values_of_types(table, types, requirements) if strict else MinValues(needed=0)
        if not types or not short.met:
            suffix = "" if short.met else " due to minValues incompatibility"
            problems[pool.name] = FILTERED_OUT + suffix
            continue
        taints = pool.nodepool.spec.template.spec.taints
        groups = daemoning.group_types_by_daemons(counted, table, types, requirements, taints)
        found.append(
            NodeClaimTemplate(
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

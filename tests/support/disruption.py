"""Scenes for disruption: nodes of a pool that could be disrupted now, unless a test says otherwise.

The machines are of the kinds that scheduling tests use: `offering` and `instance_type` in support.worlds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.core import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from dovetail.api.meta import Condition, LabelSelector
from dovetail.api.nodepool import Budget, NodePool
from dovetail.api.pod import Pod
from dovetail.disruption.candidates import (
    Candidate,
    DisruptionClass,
    find_candidates,
)
from dovetail.disruption.inputs import DisruptionInput
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    build_pools_and_catalogs,
)
from support.builders import NOW, condition, meta, node, nodeclaim, nodepool
from support.worlds import FLAVOUR, Z1, instance_type, offering

ALL = (Budget(nodes="100%"),)


def pool(name: str = "default", *, nodes: str = "100%", **about: Any) -> NodePool:
    """A pool that may lose all of its nodes."""
    return nodepool(name, **({"budgets": (Budget(nodes=nodes),)} | about))


def machine(name: str, cpu: float, price: float, kinds: Sequence[str] = ("on-demand",)) -> InstanceType:
    """A type sold in one zone; 32 GiB and room for many pods, so that only cpu matters."""
    deals = [offering(Z1, kind, price) for kind in kinds]
    return instance_type(name, cpu, "32Gi", 110, offerings=deals)


SMALL, MEDIUM, LARGE = machine("small", 2, 1.0), machine("medium", 4, 2.0), machine("large", 16, 8.0)
SIZES = (SMALL, MEDIUM, LARGE)


def state(
    name: str,
    *pods: Pod,
    of: InstanceType = LARGE,
    pool: str = "default",
    kind: str = "on-demand",
    zone: str = Z1,
    conditions: Sequence[Condition] = (),
    consolidatable: bool = True,
    drifted: datetime | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    nominated: bool = False,
    marked: bool = False,
    ready: bool = True,
    initialized: bool = True,
    claim: Mapping[str, Any] | None = None,
) -> StateNode:
    """A node of a pool with these pods on it, up and consolidatable."""
    room = {name: str(amount) for name, amount in of.allocatable().items()}
    mine = {names.INSTANCE_TYPE: of.name, names.ZONE: zone, names.CAPACITY_TYPE: kind, **(labels or {})}
    mine = {key: value for key, value in mine.items() if value}
    made = node(
        name,
        nodepool=pool,
        labels=mine,
        annotations=annotations,
        allocatable=room,
        capacity=room,
        ready=ready,
        initialized=initialized,
    )
    for key in (names.INSTANCE_TYPE, names.ZONE, names.CAPACITY_TYPE):
        if key not in mine:
            kept = {k: v for k, v in made.labels.items() if k != key}
            made = replace(made, metadata=replace(made.metadata, labels=kept))
    order = nodeclaim(name, nodepool=pool, node=name, labels=mine, allocatable=room, **(claim or {}))
    said = [*conditions]
    said += [condition("Consolidatable")] if consolidatable else []
    said += [condition("Drifted", since=drifted)] if drifted else []
    status = replace(order.status, conditions=(*order.status.conditions, *said))
    return StateNode(
        node=made,
        claim=replace(order, status=status),
        pods=tuple(replace(each, node_name=name) for each in pods),
        nominated=nominated,
        marked=marked,
    )


def scene(
    *states: StateNode,
    pools: Sequence[NodePool] = (),
    types: Sequence[InstanceType] | Mapping[str, Sequence[InstanceType]] = SIZES,
    pending: Sequence[Pod] = (),
    pdbs: Sequence[PodDisruptionBudget] = (),
    now: datetime = NOW,
    queued: Sequence[str] = (),
    buffered: Sequence[str] = (),
    spot_to_spot: bool = False,
    snapshot: Mapping[str, Any] | None = None,
    **options: Any,
) -> DisruptionInput:
    """The world as disruption sees it."""
    known = pools or (pool(),)
    offers = [(each, types[each.name] if isinstance(types, Mapping) else types) for each in known]
    made, catalogs = build_pools_and_catalogs(offers)
    settings: dict[str, Any] = {
        "now": now,
        "flavour": FLAVOUR,
        "reservation_label": "fake.com/reservation-id",
    }
    picture = Snapshot(
        pools=made,
        catalogs=catalogs,
        nodes=states,
        pods=tuple(pending),
        budgets=tuple(pdbs),
        namespaces={"default": {}},
        options=SchedulingOptions(**(settings | options)),
        **(snapshot or {}),
    )
    return DisruptionInput(picture, frozenset(queued), frozenset(buffered), spot_to_spot)


def pdb(
    name: str = "pdb", *, allowed: int = 0, namespace: str = "default", **spec: Any
) -> PodDisruptionBudget:
    """A budget over pods of app=web."""
    return PodDisruptionBudget(
        metadata=meta("pdb", name, namespace=namespace),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "web"}), **spec),
        status=PodDisruptionBudgetStatus(disruptions_allowed=allowed),
    )


def going(of: DisruptionInput, kind: DisruptionClass = DisruptionClass.GRACEFUL) -> list[Candidate]:
    return find_candidates(of, kind)[0]


def names_of(found: Sequence[Candidate]) -> list[str]:
    return [candidate.name for candidate in found]


def reason_for(of: DisruptionInput, name: str = "a", kind: DisruptionClass = DisruptionClass.GRACEFUL) -> str:
    """Why a node stays; empty when it is a candidate."""
    return next((each.why for each in find_candidates(of, kind)[1] if each.name == name), "")


_SEEN: list[object] = []


def seen_number(thing: object) -> int:
    """A number for this very object and for no other: it is kept, so that its place is not used again."""
    for number, known in enumerate(_SEEN):
        if known is thing:
            return number
    _SEEN.append(thing)
    return len(_SEEN) - 1

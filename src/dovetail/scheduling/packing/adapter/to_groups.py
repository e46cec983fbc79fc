"""From pods to counts: a run's pods, pools and nodes as the arrays the packing works on.

A pod the arrays cannot speak of fully stays with the sequential scheduler, and so do the pods it is bound to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from dovetail.api.labels import HOSTNAME, PODS, ZONE
from dovetail.api.pod import Pod
from dovetail.scheduling.model.instance_type_table import InstanceTypeTable
from dovetail.scheduling.model.nodeclaim_template import NodeClaimTemplate, uses_devices
from dovetail.scheduling.model.pod_requirements import list_required_terms
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.taints import tolerates_all
from dovetail.scheduling.packing import Bools, ExistingCapacity, Ints, PackingBatch
from dovetail.scheduling.packing.adapter.packable_constraints import (
    PackableConstraints,
    find_packable_constraints,
)
from dovetail.scheduling.packing.adapter.purchase_options import (
    PurchaseOption,
    PurchaseOptions,
    build_requirements_key,
)
from dovetail.scheduling.sequential.scheduler import SequentialScheduler

__all__ = ["PodGroups", "build_age_key", "build_bound_batches", "group_pods", "relax_until_packable"]

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False)
class PodGroups:
    """A batch, and how to read it."""

    batch: PackingBatch
    shapes: tuple[SchedulingShape, ...]
    """The shape of each group, at the level of wishes the packing keeps."""
    names: tuple[tuple[str, ...], ...]
    """The pods of each group, those that waited longest first."""
    options: tuple[PurchaseOption, ...]
    zones: tuple[str, ...]
    purchase_options: PurchaseOptions

    @property
    def proven_pods(self) -> int:
        """How many pods the bounds of this batch speak for."""
        return int(self.batch.count.sum())


def group_pods(
    run: SequentialScheduler, by_shape: Mapping[SchedulingShape, Sequence[Pod]], most_pods: int = 0
) -> PodGroups | None:
    """The part of the run's pods that the packing can place; None if there is none.

    No new node gets more than `most_pods`, unless that is zero.
    """
    zones = _list_zones(run)
    purchase_options = PurchaseOptions(run, _list_resources(by_shape), zones, most_pods)
    named = _sort_shapes(by_shape)
    for shape in named:
        run.topology.find_constraints(shape)
    shapes: list[SchedulingShape] = []
    exact: set[int] = set()
    for i, shape in enumerate(named):
        kept = relax_until_packable(run, purchase_options, shape)
        shapes.append(shape if kept is None else kept)
        if kept is None:
            exact.add(i)
    constraints = find_packable_constraints(run.topology, shapes, exact, zones)
    if len(constraints.unpackable) == len(shapes):
        return None
    return _build_pod_groups(run, purchase_options, constraints, shapes, tuple(named.values()))


def _sort_shapes(by_shape: Mapping[SchedulingShape, Sequence[Pod]]) -> dict[SchedulingShape, tuple[str, ...]]:
    """Shapes and names of pods in an order that does not depend on the one they came in."""
    oldest = [(sorted(map(build_age_key, pods)), shape) for shape, pods in by_shape.items()]
    oldest.sort(key=lambda item: item[0][0])
    return {shape: tuple(name for _, name in pods) for pods, shape in oldest}


def build_bound_batches(run: SequentialScheduler, counted: PodGroups) -> tuple[PackingBatch, PackingBatch]:
    """The batch as a bound must see it, where any pool may serve any pod: by hard rules, and as asked.

    A plan may be forced off the heaviest pool, by limits or by pods that share a node; what it then
    costs must still not be less than the bound.
    """
    asked = _allow_any_pool(counted, counted.shapes, counted.batch)
    hard = [shape.hard for shape in counted.shapes]
    if all(bare is shape for bare, shape in zip(hard, counted.shapes, strict=True)):
        return asked, asked
    # A pod with several required terms may use any of them, which one row of options cannot say.
    exact = {
        i
        for i, shape in enumerate(hard)
        if not counted.batch.count[i]
        or len(list_required_terms(shape.spec)) > 1
        or counted.purchase_options.find_mask(shape) is None
    }
    constraints = find_packable_constraints(run.topology, hard, exact, counted.zones)
    bare = _build_pod_groups(run, counted.purchase_options, constraints, hard, counted.names).batch
    return _allow_any_pool(counted, hard, bare), asked


def _allow_any_pool(
    counted: PodGroups, shapes: Sequence[SchedulingShape], batch: PackingBatch
) -> PackingBatch:
    masks = [counted.purchase_options.find_mask(shape, any_pool=True) or 0 for shape in shapes]
    return replace(batch, mask=np.array(masks, np.int64), takes=np.array(counted.purchase_options.takes))


def relax_until_packable(
    run: SequentialScheduler, purchase_options: PurchaseOptions, shape: SchedulingShape
) -> SchedulingShape | None:
    """The shape with as many of its wishes as the packing can keep; None when it is not for the packing."""
    if not _is_plain_shape(shape):
        return None
    level: SchedulingShape | None = shape
    while level is not None:
        if purchase_options.find_mask(level) is not None and not (
            run.topology.preferences and _has_vain_preference(level)
        ):
            template = _find_template(purchase_options, level)
            return None if template.min_values or _uses_reservations(run, template.table) else level
        level = level.relax()
    return None


def _is_plain_shape(shape: SchedulingShape) -> bool:
    """Nothing about the pod that the arrays do not know of."""
    return not (
        shape.ports
        or shape.attachments
        or uses_devices(shape.pod)
        or any(topology.by_key for topology in shape.volume_topologies)
        or HOSTNAME in shape.requirements
    )


def _has_vain_preference(shape: SchedulingShape) -> bool:
    """A wish to be alone in a zone: it comes true for one pod a zone at most, so nobody gets it."""
    anti = shape.spec.affinity.pod_anti_affinity if shape.spec.affinity else None
    return any(each.pod_affinity_term.topology_key == ZONE for each in (anti.preferred if anti else ()))


def _find_template(purchase_options: PurchaseOptions, shape: SchedulingShape) -> NodeClaimTemplate:
    mask = purchase_options.find_mask(shape)
    assert mask is not None
    return purchase_options.options[int(purchase_options.takes[mask].argmax())].template


def _uses_reservations(run: SequentialScheduler, table: InstanceTypeTable) -> bool:
    return bool(table.reserved) and run.options.reserved_capacity


def _build_pod_groups(
    run: SequentialScheduler,
    purchase_options: PurchaseOptions,
    constraints: PackableConstraints,
    shapes: Sequence[SchedulingShape],
    named: tuple[tuple[str, ...], ...],
) -> PodGroups:
    zones = purchase_options.zones
    masks = [
        0 if i in constraints.unpackable else purchase_options.find_mask(shape)
        for i, shape in enumerate(shapes)
    ]
    number = np.array(
        [0 if i in constraints.unpackable else len(each) for i, each in enumerate(named)], np.int64
    )
    open_ = np.ones((len(shapes), len(zones)), bool)
    for i, shape in enumerate(shapes):
        if ZONE in shape.requirements:
            open_[i] = [zone in shape.requirements[ZONE] for zone in zones]
    for i, closed in constraints.closed.items():
        open_[i] &= [zone not in closed for zone in zones]
    pinned = np.array([i in constraints.closed for i in range(len(shapes))], bool)
    for spread in constraints.spreads:
        pinned[[*spread.members, *spread.owners]] = True
    for each in constraints.zone_affinities:
        pinned[list(each.members)] = True
    batch = PackingBatch(
        request=purchase_options.scale_requests(shapes),
        count=number,
        mask=np.array(masks, np.int64),
        takes=np.array(purchase_options.takes),
        open=open_,
        room=purchase_options.room,
        price=purchase_options.price,
        pinned=pinned,
        spreads=tuple(constraints.spreads),
        together=tuple(constraints.zone_affinities),
        hosts=tuple(constraints.hosts),
        running=_build_existing_capacity(run, purchase_options, shapes, constraints),
    )
    return PodGroups(
        batch, tuple(shapes), named, tuple(purchase_options.options), tuple(zones), purchase_options
    )


def _build_existing_capacity(
    run: SequentialScheduler,
    purchase_options: PurchaseOptions,
    shapes: Sequence[SchedulingShape],
    constraints: PackableConstraints,
) -> ExistingCapacity | None:
    if not run.nodes:
        return None
    left = np.array(
        [[node.left.get(name, 0) for name in purchase_options.names] for node in run.nodes], float
    )
    overdrawn = [node.overdrawn for node in run.nodes]
    zones = {zone: i for i, zone in enumerate(purchase_options.zones)}
    where = [zones.get(node.requirements[ZONE].only or "", -1) for node in run.nodes]
    hosts = {node.requirements[HOSTNAME].only: i for i, node in enumerate(run.nodes)}
    counted: dict[int, list[tuple[int, int]]] = {}
    owned: dict[int, list[int]] = {}
    for rule, counts in enumerate(constraints.counted):
        for host, pods in counts.items():
            if host in hosts:
                counted.setdefault(hosts[host], []).append((rule, pods))
    for rule, names in enumerate(constraints.owned):
        for host in names:
            if host in hosts:
                owned.setdefault(hosts[host], []).append(rule)
    kind, takes = _match_existing_nodes(run, shapes)
    takes[:, overdrawn] = False
    return ExistingCapacity(
        np.floor(left / purchase_options.units), np.array(where, np.int64), kind, takes, counted, owned
    )


def _match_existing_nodes(run: SequentialScheduler, shapes: Sequence[SchedulingShape]) -> tuple[Ints, Bools]:
    """Which running node a group may use as far as labels and taints go: kind of group, kind x node."""
    known: dict[tuple[object, ...], int] = {}
    rows: list[list[bool]] = []
    kinds = []
    for shape in shapes:
        key = (build_requirements_key(shape.requirements), shape.tolerations)
        kind = known.setdefault(key, len(rows))
        if kind == len(rows):
            rows.append(
                [
                    tolerates_all(node.taints, shape.tolerations)
                    and node.requirements.is_compatible(shape.requirements)
                    for node in run.nodes
                ]
            )
        kinds.append(kind)
    return np.array(kinds, np.int64), np.array(rows, bool)


def _list_zones(run: SequentialScheduler) -> tuple[str, ...]:
    found = {node.requirements[ZONE].only for node in run.nodes}
    for template in run.templates:
        found |= {deal.requirements[ZONE].only for deal in template.table.offering_groups}
    return tuple(sorted(zone for zone in found if zone))


def _list_resources(shapes: Iterable[SchedulingShape]) -> tuple[str, ...]:
    named = {name for shape in shapes for name, amount in shape.requests.items() if amount}
    return ("cpu", "memory", *sorted(named - {"cpu", "memory", PODS}), PODS)


def build_age_key(pod: Pod) -> tuple[datetime, str]:
    """Sorts those that waited longest first."""
    return pod.metadata.creation_timestamp or _LONG_AGO, pod.full_name

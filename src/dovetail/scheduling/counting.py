"""From pods to counts: a run's pods, pools and nodes as the arrays the packing works on.

A pod the arrays cannot speak of fully stays with the exact placer, and so do the pods it is bound to.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from dovetail.api.labels import HOSTNAME, PODS, ZONE
from dovetail.api.pod import Pod
from dovetail.scheduling.exact import Run
from dovetail.scheduling.packing import Batch, Bools, Ints, Running
from dovetail.scheduling.pods import required_terms
from dovetail.scheduling.shapes import Shape
from dovetail.scheduling.shelf import Option, Shelf, key_of
from dovetail.scheduling.taints import tolerates_all
from dovetail.scheduling.templates import Template, uses_devices
from dovetail.scheduling.ties import Ties, ties_of
from dovetail.scheduling.typetable import TypeTable

__all__ = ["Counted", "count", "for_bounds", "kept_wishes", "waited"]

_LONG_AGO = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, eq=False)
class Counted:
    """A batch, and how to read it."""

    batch: Batch
    shapes: tuple[Shape, ...]
    """The shape of each group, at the level of wishes the packing keeps."""
    names: tuple[tuple[str, ...], ...]
    """The pods of each group, those that waited longest first."""
    options: tuple[Option, ...]
    zones: tuple[str, ...]
    shelf: Shelf

    @property
    def proven_pods(self) -> int:
        """How many pods the bounds of this batch speak for."""
        return int(self.batch.count.sum())


def count(run: Run, by_shape: Mapping[Shape, Sequence[Pod]], most_pods: int = 0) -> Counted | None:
    """The part of the run's pods that the packing can place; None if there is none.

    No new node gets more than `most_pods`, unless that is zero.
    """
    zones = _zones(run)
    shelf = Shelf(run, _resources(by_shape), zones, most_pods)
    named = _in_order(by_shape)
    for shape in named:
        run.topology.constraints(shape)
    shapes: list[Shape] = []
    exact: set[int] = set()
    for i, shape in enumerate(named):
        kept = kept_wishes(run, shelf, shape)
        shapes.append(shape if kept is None else kept)
        if kept is None:
            exact.add(i)
    ties = ties_of(run.topology, shapes, exact, zones)
    if len(ties.exact) == len(shapes):
        return None
    return _counted(run, shelf, ties, shapes, tuple(named.values()))


def _in_order(by_shape: Mapping[Shape, Sequence[Pod]]) -> dict[Shape, tuple[str, ...]]:
    """Shapes and names of pods in an order that does not depend on the one they came in."""
    oldest = [(sorted(map(waited, pods)), shape) for shape, pods in by_shape.items()]
    oldest.sort(key=lambda item: item[0][0])
    return {shape: tuple(name for _, name in pods) for pods, shape in oldest}


def for_bounds(run: Run, counted: Counted) -> tuple[Batch, Batch]:
    """The batch as a bound must see it, where any pool may serve any pod: by hard rules, and as asked.

    A plan may be forced off the heaviest pool, by limits or by pods that share a node; what it then
    costs must still not be less than the bound.
    """
    asked = _on_any_pool(counted, counted.shapes, counted.batch)
    hard = [shape.hard for shape in counted.shapes]
    if all(bare is shape for bare, shape in zip(hard, counted.shapes, strict=True)):
        return asked, asked
    # A pod with several required terms may use any of them, which one row of options cannot say.
    exact = {
        i
        for i, shape in enumerate(hard)
        if not counted.batch.count[i]
        or len(required_terms(shape.spec)) > 1
        or counted.shelf.mask(shape) is None
    }
    ties = ties_of(run.topology, hard, exact, counted.zones)
    bare = _counted(run, counted.shelf, ties, hard, counted.names).batch
    return _on_any_pool(counted, hard, bare), asked


def _on_any_pool(counted: Counted, shapes: Sequence[Shape], batch: Batch) -> Batch:
    masks = [counted.shelf.mask(shape, any_pool=True) or 0 for shape in shapes]
    return replace(batch, mask=np.array(masks, np.int64), takes=np.array(counted.shelf.takes))


def kept_wishes(run: Run, shelf: Shelf, shape: Shape) -> Shape | None:
    """The shape with as many of its wishes as the packing can keep; None when it is not for the packing."""
    if not _plain(shape):
        return None
    level: Shape | None = shape
    while level is not None:
        if shelf.mask(level) is not None and not (run.topology.preferences and _vain(level)):
            template = _template_of(shelf, level)
            return None if template.min_values or _reserved(run, template.table) else level
        level = level.relax()
    return None


def _plain(shape: Shape) -> bool:
    """Nothing about the pod that the arrays do not know of."""
    return not (
        shape.ports
        or shape.attachments
        or uses_devices(shape.pod)
        or any(way.by_key for way in shape.ways)
        or HOSTNAME in shape.requirements
    )


def _vain(shape: Shape) -> bool:
    """A wish to be alone in a zone: it comes true for one pod a zone at most, so nobody gets it."""
    anti = shape.spec.affinity.pod_anti_affinity if shape.spec.affinity else None
    return any(each.pod_affinity_term.topology_key == ZONE for each in (anti.preferred if anti else ()))


def _template_of(shelf: Shelf, shape: Shape) -> Template:
    mask = shelf.mask(shape)
    assert mask is not None
    return shelf.options[int(shelf.takes[mask].argmax())].template


def _reserved(run: Run, table: TypeTable) -> bool:
    return bool(table.reserved) and run.options.reserved_capacity


def _counted(
    run: Run, shelf: Shelf, ties: Ties, shapes: Sequence[Shape], named: tuple[tuple[str, ...], ...]
) -> Counted:
    zones = shelf.zones
    masks = [0 if i in ties.exact else shelf.mask(shape) for i, shape in enumerate(shapes)]
    number = np.array([0 if i in ties.exact else len(each) for i, each in enumerate(named)], np.int64)
    open_ = np.array([[zone in shape.requirements[ZONE] for zone in zones] for shape in shapes], bool)
    for i, closed in ties.closed.items():
        open_[i] &= [zone not in closed for zone in zones]
    pinned = np.array([i in ties.closed for i in range(len(shapes))], bool)
    for spread in ties.spreads:
        pinned[[*spread.members, *spread.owners]] = True
    for each in ties.together:
        pinned[list(each.members)] = True
    batch = Batch(
        request=np.array([shelf.needed(shape) for shape in shapes]),
        count=number,
        mask=np.array(masks, np.int64),
        takes=np.array(shelf.takes),
        open=open_.reshape(len(shapes), len(zones)),
        room=shelf.room,
        price=shelf.price,
        pinned=pinned,
        spreads=tuple(ties.spreads),
        together=tuple(ties.together),
        hosts=tuple(ties.hosts),
        running=_running(run, shelf, shapes, ties),
    )
    return Counted(batch, tuple(shapes), named, tuple(shelf.options), tuple(zones), shelf)


def _running(run: Run, shelf: Shelf, shapes: Sequence[Shape], ties: Ties) -> Running | None:
    if not run.nodes:
        return None
    left = np.array([[node.left.get(name, 0) for name in shelf.names] for node in run.nodes], float)
    overdrawn = [node.overdrawn for node in run.nodes]
    zones = {zone: i for i, zone in enumerate(shelf.zones)}
    where = [zones.get(node.requirements[ZONE].only or "", -1) for node in run.nodes]
    hosts = {node.requirements[HOSTNAME].only: i for i, node in enumerate(run.nodes)}
    counted: dict[int, list[tuple[int, int]]] = {}
    owned: dict[int, list[int]] = {}
    for rule, counts in enumerate(ties.counted):
        for host, pods in counts.items():
            if host in hosts:
                counted.setdefault(hosts[host], []).append((rule, pods))
    for rule, names in enumerate(ties.owned):
        for host in names:
            if host in hosts:
                owned.setdefault(hosts[host], []).append(rule)
    kind, takes = _takes_on_running(run, shapes)
    takes[:, overdrawn] = False
    return Running(np.floor(left / shelf.units), np.array(where, np.int64), kind, takes, counted, owned)


def _takes_on_running(run: Run, shapes: Sequence[Shape]) -> tuple[Ints, Bools]:
    """Which running node a group may use as far as labels and taints go: kind of group, kind x node."""
    known: dict[tuple[object, ...], int] = {}
    rows: list[list[bool]] = []
    kinds = []
    for shape in shapes:
        key = (key_of(shape.requirements), shape.tolerations)
        kind = known.setdefault(key, len(rows))
        if kind == len(rows):
            rows.append(
                [
                    tolerates_all(node.taints, shape.tolerations)
                    and node.requirements.compatible(shape.requirements)
                    for node in run.nodes
                ]
            )
        kinds.append(kind)
    return np.array(kinds, np.int64), np.array(rows, bool)


def _zones(run: Run) -> tuple[str, ...]:
    found = {node.requirements[ZONE].only for node in run.nodes}
    for template in run.templates:
        found |= {deal.requirements[ZONE].only for deal in template.table.deals}
    return tuple(sorted(zone for zone in found if zone))


def _resources(shapes: Iterable[Shape]) -> tuple[str, ...]:
    named = {name for shape in shapes for name, amount in shape.requests.items() if amount}
    return ("cpu", "memory", *sorted(named - {"cpu", "memory", PODS}), PODS)


def waited(pod: Pod) -> tuple[datetime, str]:
    """Sorts those that waited longest first."""
    return pod.metadata.creation_timestamp or _LONG_AGO, pod.full_name

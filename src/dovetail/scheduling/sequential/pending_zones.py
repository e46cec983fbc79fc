"""The zone a waiting pod is bound for, as far as it can be told: one, any, or none at all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from dovetail.api.labels import ZONE
from dovetail.api.pod import Pod
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.requirements import EXISTS, Values
from dovetail.scheduling.model.state_node import is_deleting
from dovetail.scheduling.sequential.scheduler import SequentialScheduler
from dovetail.scheduling.topology.group import TopologyGroup, TopologyType

__all__ = ["FLEXIBLE", "NOWHERE", "count_pending_by_zone", "find_effective_zone"]

FLEXIBLE: Final = "flexible"
NOWHERE: Final = "none"


class _AllowedZones:
    """The zones each rule would let a pod be in, while nobody is placed: pods under one rule share them."""

    def __init__(self) -> None:
        self._known: dict[tuple[TopologyGroup, bool, Values], Values] = {}

    def find_zones(self, group: TopologyGroup, itself: bool, strict: Values) -> Values:
        key = (group, itself, strict)
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = Values(frozenset(_list_allowed_zones(group, itself, strict)))
        return known


def find_effective_zone(
    run: SequentialScheduler, shape: SchedulingShape, allowed: _AllowedZones | None = None
) -> str:
    """The one zone that is left, `flexible` for several or no signal, `none` when nothing is.

    What must hold counts: the pod's selectors, its volumes, and the zonal rules it has; wishes do not.
    """
    left = EXISTS
    for signal in _list_zone_constraints(run, shape, allowed or _AllowedZones()):
        left = left & signal
    if left.open:
        return FLEXIBLE
    return left.only or (FLEXIBLE if left.names else NOWHERE)


def count_pending_by_zone(
    run: SequentialScheduler, batch: Iterable[tuple[SchedulingShape, Sequence[Pod]]]
) -> Mapping[str, int]:
    """How many pods of a run that has placed nobody yet wait for each zone.

    Shapes come in the order in which the run will look at them: rules are counted when first asked for.
    """
    found: Counter[str] = Counter()
    allowed = _AllowedZones()
    waiting = _list_waiting(run)
    for shape, pods in batch:
        number = len(pods) if waiting is None else sum(pod.full_name in waiting for pod in pods)
        if number:
            found[find_effective_zone(run, shape, allowed)] += number
    return dict(found)


def _list_waiting(run: SequentialScheduler) -> frozenset[str] | None:
    """The names of the pods that wait; None where every pod of the batch does, which is how it mostly is."""
    snapshot = run.snapshot
    pending = [pod for pod in snapshot.pods if pod.status.phase in ("", "Pending")]
    others = snapshot.virtual or snapshot.moving or any(map(is_deleting, snapshot.nodes))
    if not others and len(pending) == len(snapshot.pods):
        return None
    return frozenset([pod.full_name for pod in pending])


def _list_zone_constraints(
    run: SequentialScheduler, shape: SchedulingShape, allowed: _AllowedZones
) -> Iterator[Values]:
    strict = shape.strict[ZONE]
    if ZONE in shape.strict:
        yield strict
    pinned = [topology[ZONE] for topology in shape.volume_topologies]
    if not any(values.open for values in pinned):
        yield Values(frozenset(name for values in pinned for name in values.names))
    for group, itself in run.topology.find_constraints(shape):
        if group.key == ZONE:
            yield allowed.find_zones(group, itself, strict)


def _list_allowed_zones(group: TopologyGroup, itself: bool, strict: Values) -> Iterator[str]:
    """The zones in which a rule would let the pod be right now."""
    if group.rule is TopologyType.SPREAD:
        least = group.find_lowest_count(strict)
        more = 1 if itself else 0
        for name, count in group.counts.items():
            if name in strict and count + more - least <= group.max_skew:
                yield name
        return
    allowed = group.find_allowed_domains(itself, strict, EXISTS)
    if allowed is not None:
        yield from allowed.domains.names

"""Gauges that say how shifts stand now, set anew in each pass so that a fresh process shows them, too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from dovetail.api.core import Node
from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.documents import PoolDocument
from dovetail.controllers.zonal.edit import edited_by_zone
from dovetail.controllers.zonal.keeping import Kept
from dovetail.controllers.zonal.protect import zones_protected
from dovetail.controllers.zonal.zones import Ground

if TYPE_CHECKING:
    from prometheus_client import Gauge

__all__ = ["Gauges"]

OVER = ("Restored", "Refused")


class _Board:
    """A gauge of which only what was last put there is more than zero."""

    def __init__(self, gauge: Gauge) -> None:
        self._gauge = gauge
        self._shown: set[tuple[str, ...]] = set()

    def show(self, values: Mapping[tuple[str, ...], float]) -> None:
        for key in self._shown - values.keys():
            self._gauge.labels(*key).set(0)
        for key, value in values.items():
            self._gauge.labels(*key).set(value)
        self._shown |= values.keys()


class Gauges:
    """Everything about shifts that goes up and down."""

    def __init__(self) -> None:
        self._active, self._phase = _Board(counts.ACTIVE), _Board(counts.PHASE)
        self._duration, self._upstream = _Board(counts.DURATION), _Board(counts.UPSTREAM_DURATION)
        self._nodes, self._pools = _Board(counts.NODES), _Board(counts.POOLS)

    def set(
        self,
        kept: Sequence[Kept],
        ground: Ground,
        pools: Sequence[PoolDocument],
        nodes: Iterable[Node],
        now: datetime,
    ) -> None:
        names = ground.names
        live = [each for each in kept if each.record.phase not in OVER]
        self._active.show(
            {
                (_name(each, names), each.record.shift.zone_id, each.record.shift.kind, each.record.policy): 1
                for each in live
            }
        )
        # Of several shifts of a zone the one that is not over counts, or else the last.
        phases = {each.record.shift.zone_id: each.record.phase for each in (*kept, *live)}
        self._phase.show(dict.fromkeys(phases.items(), 1))
        lasted = {each.name: max((now - each.record.since).total_seconds(), 0.0) for each in live}
        self._duration.show({(_name(e, names), e.record.shift.kind): lasted[e.name] for e in live})
        self._upstream.show({(_name(each, names),): lasted[each.name] for each in live})
        marked, edited = zones_protected(nodes, ground), edited_by_zone(pools, ground)
        self._nodes.show({(names.get(zone, zone),): count for zone, count in marked.items()})
        self._pools.show({(names.get(zone, zone),): count for zone, count in edited.items()})


def _name(each: Kept, names: Mapping[str, str]) -> str:
    return names.get(each.record.shift.zone_id, each.record.shift.zone_id)

"""What a shift brings with it besides gates, marks and edits: advice, room, and words for people.

Nothing here can keep a zone from being stepped out of, or back into.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from dovetail.api.core import Node
from dovetail.api.zoneshift import NodeSum, Sum
from dovetail.controllers.zonal.advice import Advice
from dovetail.controllers.zonal.automode import auto_mode
from dovetail.controllers.zonal.balance import Report
from dovetail.controllers.zonal.documents import Documents, PoolDocument
from dovetail.controllers.zonal.edit import edited_for
from dovetail.controllers.zonal.gauges import Gauges
from dovetail.controllers.zonal.keeping import Keeping, Kept
from dovetail.controllers.zonal.options import ZonalOptions
from dovetail.controllers.zonal.orphans import Orphans
from dovetail.controllers.zonal.prescale import Prescale
from dovetail.controllers.zonal.protect import zones_protected
from dovetail.controllers.zonal.seeing import Seeing
from dovetail.controllers.zonal.waiting import Waiting
from dovetail.controllers.zonal.writing import Writer
from dovetail.controllers.zonal.zones import Ground, Zones
from dovetail.ports import Clock, Recorder
from dovetail.zonal.clone import CLONE_OF

__all__ = ["Beside"]

BEGUN = ("Applying", "Active")
WORKING = ("Applying", "Active", "Restoring")


class Beside:
    """Done at the end of each pass, when what must be done is done."""

    def __init__(
        self,
        kube: Documents,
        writer: Writer,
        keeping: Keeping,
        zones: Zones,
        seeing: Seeing | None,
        clock: Clock,
        recorder: Recorder,
        options: ZonalOptions,
    ) -> None:
        self._keeping, self._zones, self._clock = keeping, zones, clock
        self._advice = Advice(seeing, recorder)
        self._prescale = Prescale(kube, writer, seeing, wanted=options.prescale)
        self._orphans = Orphans(writer, recorder, adopt=options.adopt_orphans)
        self._waiting = Waiting(seeing, clock, recorder)
        self._report = Report(seeing, clock, recorder, wanted=options.rebalance != "Off")
        self._gauges = Gauges()

    async def settle(
        self, kept: Sequence[Kept], ground: Ground, pools: Sequence[PoolDocument], nodes: Iterable[Node]
    ) -> None:
        """Everything as this pass left it."""
        marked = tuple(nodes)
        for each in kept:
            await self._advise(each, ground)
        if not self._keeping.options.dry_run:
            acting = self._keeping.acting(kept)
            await self._prescale.settle(acting, ground.names, self._advice.found)
            await self._orphans.settle(acting, ground, pools)
            await self._report.settle(acting)
        self._sum_up(kept, ground, pools, marked)
        self._gauges.set(kept, ground, pools, marked, self._clock.now())
        await self._waiting.settle(_away(kept, ground))

    async def _advise(self, each: Kept, ground: Ground) -> None:
        """Once for each shift, and after its nodes are marked, which is more urgent."""
        busy = each.record.phase != "Active" and each.left.nodes.get(each.record.shift.zone_id, 0) > 0
        if each.record.phase not in BEGUN or busy or "pods" in each.obj.status.impact:
            return
        zone = ground.names.get(each.record.shift.zone_id, "")
        addresses = partial(self._zones.free_addresses, ground)
        noted = await self._advice.about(each.obj, zone, addresses)
        if noted is not None:
            self._keeping.impacts[each.name] = noted

    def _sum_up(
        self, kept: Sequence[Kept], ground: Ground, pools: Sequence[PoolDocument], nodes: Sequence[Node]
    ) -> None:
        """What each shift changed. Pools stay listed until it is over, also if their note is gone."""
        clones = tuple(sorted(pool.name for pool in pools if CLONE_OF in pool.labels))
        count = zones_protected(nodes, ground)
        for each in kept:
            if each.record.phase in WORKING and not each.dry:
                listed = {*each.obj.status.ledger.node_pools, *edited_for(pools, each.key)}
                self._keeping.sums[each.name] = Sum(
                    node_pools=tuple(sorted(listed)),
                    nodes=NodeSum(count=count.get(each.record.shift.zone_id, 0)),
                    clones=clones,
                )
                self._note_auto_mode(each, ground, pools, nodes)

    def _note_auto_mode(
        self, each: Kept, ground: Ground, pools: Sequence[PoolDocument], nodes: Sequence[Node]
    ) -> None:
        told = auto_mode(each.record.shift.zone_id, ground, pools, nodes, self._keeping.options)
        if told:
            known = self._keeping.impacts.get(each.name) or each.obj.status.impact
            self._keeping.impacts[each.name] = {**known, "autoMode": told}

    def planned(self, each: Kept) -> list[str]:
        """What would be written besides marks and edits, in words."""
        return self._prescale.planned(each, self._advice.found)

    @property
    def failures(self) -> Mapping[str, str]:
        return {**self._prescale.failures, **self._orphans.failures}


def _away(kept: Sequence[Kept], ground: Ground) -> dict[str, str]:
    """Zones in which nothing is bought, names by id."""
    zones = {each.record.shift.zone_id for each in kept if each.record.launches_gated and not each.dry}
    return {zone: ground.names[zone] for zone in sorted(zones) if zone in ground.names}

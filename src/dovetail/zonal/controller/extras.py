"""What a shift brings with it besides gates, marks and edits: advice, room, and words for people.

Nothing here can stop a zone from being shifted away, or shifted back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.zoneshift import ShiftNodeCount, ShiftSummary
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.ports import Clock, Recorder
from dovetail.zonal.controller.node_protection import count_protected_by_zone
from dovetail.zonal.controller.pool_edits import list_edited_pools
from dovetail.zonal.controller.prescale import PrescaleBuffers
from dovetail.zonal.controller.rehearsal import ClusterView
from dovetail.zonal.controller.reports import ImpactAdvice, ShiftGauges, SkewReport, ZonePendingPods
from dovetail.zonal.controller.shift_status import ShiftState, ShiftStatusWriter
from dovetail.zonal.controller.writes import Audit, AuditedWriter, PoolDocument
from dovetail.zonal.controller.zone_map import ZoneDiscovery, ZoneMap
from dovetail.zonal.model import clone
from dovetail.zonal.model.clone import CLONE_OF
from dovetail.zonal.model.ledgers import restore_zones
from dovetail.zonal.model.pools import ImpairedZones
from dovetail.zonal.options import ZonalOptions

__all__ = ["OrphanedPools", "ShiftExtras", "describe_auto_mode"]

DAY = 86_400.0
PATH = "/spec/template/spec/requirements"


@dataclass
class OrphanedPools:
    """Looks for them when a shift ends; the shift's own summary says which pools there should be."""

    writer: AuditedWriter
    recorder: Recorder
    adopt: bool = False
    failures: dict[str, str] = field(default_factory=dict)

    async def settle_pools(
        self, acting: Sequence[ShiftState], zone_map: ZoneMap, pools: Sequence[PoolDocument]
    ) -> None:
        away = {each.record.shift.zone_id for each in acting if each.record.edits}
        for each in acting:
            zone = each.record.shift.zone_id
            if each.record.phase != "Restoring" or zone in away or zone not in zone_map.names:
                continue
            for pool in pools:
                if pool.name in each.obj.status.ledger.node_pools and _is_orphaned(pool):
                    await self._settle_pool(pool, _build_zones(pool, zone, zone_map), each)

    async def _settle_pool(self, pool: PoolDocument, zones: ImpairedZones, each: ShiftState) -> None:
        kept = {text.strip() for text in pool.annotations.get(labels.ZONE_KEEP_REMOVED, "").split(",")}
        entries = restore_zones(pool.requirements, zones, kept)
        if entries is None:
            return
        if not self.adopt:
            note = (
                f"{zones.names[0]} was taken out of this pool for a shift that is over, and the note of it "
                "is gone, so it is left as it is: put the zone back, or set adopt-orphans to true in the "
                "policy of zonal shift"
            )
            told = (pool.uid, each.name)
            self.recorder.publish_event(
                pool, "ZonalShiftOrphaned", note, warning=True, dedupe=told, window=DAY
            )
            return
        await self._restore_zones(pool, entries, each)

    async def _restore_zones(self, pool: PoolDocument, entries: Sequence[object], each: ShiftState) -> None:
        name = f"NodePool/{pool.name}"
        audit = Audit(name, "requirements", list(pool.requirements), list(entries), each.key, "adopted")
        # Setting the version makes the server answer Conflict if anyone wrote meanwhile.
        version = {"op": "add", "path": "/metadata/resourceVersion", "value": pool.metadata.resource_version}
        try:
            await self.writer.write_pool(
                pool, [version, {"op": "add", "path": PATH, "value": list(entries)}], [audit]
            )
        except (Conflict, Gone):
            return  # looked at again in the next pass
        except DovetailError as error:
            self.failures[name] = str(error)
            return
        self.failures.pop(name, None)


def _is_orphaned(pool: PoolDocument) -> bool:
    return labels.ZONE_LEDGER not in pool.annotations and not pool.deleting


def _build_zones(pool: PoolDocument, zone: str, zone_map: ZoneMap) -> ImpairedZones:
    reached = zone_map.list_reached(*pool.class_name)
    names = tuple(zone_map.names[each] for each in reached if each in zone_map.names)
    return ImpairedZones((zone_map.names[zone],), (zone,), names, reached)


def describe_auto_mode(
    zone: str, zone_map: ZoneMap, pools: Sequence[PoolDocument], nodes: Iterable[Node], options: ZonalOptions
) -> str:
    """How the zone is withheld there, and how far that goes; empty where there are other pools."""
    if not options.edits_pools or not clone.has_only_managed_pools(
        [pool.name for pool in pools], zone_map.built_in
    ):
        return ""
    if options.auto_mode == "Off":
        return "Off: nothing keeps EKS Auto Mode out of the zone"
    if options.auto_mode == "Native" or (options.auto_mode == "auto" and zone_map.native):
        there = [node for node in nodes if zone_map.find_zone_id(node) == zone]
        cordoned = sum(node.spec.unschedulable for node in there)
        doubt = (
            ""
            if zone_map.native
            else "; zonalShiftConfig is not enabled on the cluster, so EKS may do nothing"
        )
        return f"Native: EKS shifts away by itself; {cordoned} of {len(there)} nodes are cordoned{doubt}"
    return (
        "Clone: a stand-in is preferred; pods that can only run in the zone may still be served there by the "
        "built-in pool"
    )


BEGUN = ("Applying", "Active")
WORKING = ("Applying", "Active", "Restoring")


class ShiftExtras:
    """Done at the end of each pass, when what must be done is done."""

    def __init__(
        self,
        writer: AuditedWriter,
        statuses: ShiftStatusWriter,
        zones: ZoneDiscovery,
        seeing: ClusterView | None,
        *,
        clock: Clock,
        recorder: Recorder,
    ) -> None:
        self._statuses, self._zones, self._clock = statuses, zones, clock
        options = statuses.options
        self._advice = ImpactAdvice(seeing, recorder)
        self._prescale = PrescaleBuffers(writer, seeing, wanted=options.prescale)
        self._orphans = OrphanedPools(writer, recorder, adopt=options.adopt_orphans)
        self._waiting = ZonePendingPods(seeing, clock, recorder)
        self._report = SkewReport(seeing, clock, recorder, wanted=options.rebalance != "Off")
        self._gauges = ShiftGauges()

    async def settle_all(
        self,
        states: Sequence[ShiftState],
        zone_map: ZoneMap,
        pools: Sequence[PoolDocument],
        nodes: Iterable[Node],
    ) -> None:
        """Everything as this pass left it."""
        marked = tuple(nodes)
        for each in states:
            await self._advise_shift(each, zone_map)
        if not self._statuses.options.dry_run:
            acting = self._statuses.list_acting(states)
            await self._prescale.settle_buffers(acting, zone_map.names, self._advice.found)
            await self._orphans.settle_pools(acting, zone_map, pools)
            await self._report.report_skew(acting)
        self._sum_up_changes(states, zone_map, pools, marked)
        self._gauges.set_all(states, zone_map, pools, marked, self._clock.now())
        await self._waiting.report_pods(_list_excluded_zones(states, zone_map))

    async def _advise_shift(self, each: ShiftState, zone_map: ZoneMap) -> None:
        """Once for each shift, and after its nodes are marked, which is more urgent."""
        busy = each.record.phase != "Active" and each.left.nodes.get(each.record.shift.zone_id, 0) > 0
        if each.record.phase not in BEGUN or busy or "pods" in each.obj.status.impact:
            return
        zone = zone_map.names.get(each.record.shift.zone_id, "")
        addresses = partial(self._zones.count_free_addresses, zone_map)
        noted = await self._advice.describe_impact(each.obj, zone, addresses)
        if noted is not None:
            self._statuses.impacts[each.name] = noted

    def _sum_up_changes(
        self,
        states: Sequence[ShiftState],
        zone_map: ZoneMap,
        pools: Sequence[PoolDocument],
        nodes: Sequence[Node],
    ) -> None:
        """What each shift changed. Pools stay listed until it is over, also if their note is gone."""
        clones = tuple(sorted(pool.name for pool in pools if CLONE_OF in pool.labels))
        count = count_protected_by_zone(nodes, zone_map)
        for each in states:
            if each.record.phase in WORKING and not each.dry:
                listed = {*each.obj.status.ledger.node_pools, *list_edited_pools(pools, each.key)}
                self._statuses.sums[each.name] = ShiftSummary(
                    node_pools=tuple(sorted(listed)),
                    nodes=ShiftNodeCount(count=count.get(each.record.shift.zone_id, 0)),
                    clones=clones,
                )
                self._note_auto_mode(each, zone_map, pools, nodes)

    def _note_auto_mode(
        self, each: ShiftState, zone_map: ZoneMap, pools: Sequence[PoolDocument], nodes: Sequence[Node]
    ) -> None:
        told = describe_auto_mode(each.record.shift.zone_id, zone_map, pools, nodes, self._statuses.options)
        if told:
            known = self._statuses.impacts.get(each.name) or each.obj.status.impact
            self._statuses.impacts[each.name] = {**known, "autoMode": told}

    def describe_plan(self, each: ShiftState) -> list[str]:
        """What would be written besides marks and edits, in words."""
        return self._prescale.describe_plan(each, self._advice.found)

    def change_options(self, options: ZonalOptions) -> None:
        """Go on by other options."""
        self._orphans.adopt = options.adopt_orphans

    @property
    def failures(self) -> Mapping[str, str]:
        return {**self._prescale.failures, **self._orphans.failures}


def _list_excluded_zones(states: Sequence[ShiftState], zone_map: ZoneMap) -> dict[str, str]:
    """Zones in which nothing is bought, names by id."""
    zones = {each.record.shift.zone_id for each in states if each.record.launches_gated and not each.dry}
    return {zone: zone_map.names[zone] for zone in sorted(zones) if zone in zone_map.names}

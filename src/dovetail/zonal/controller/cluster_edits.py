"""What shifts in force ask of gates, nodes and NodePools, and the writing of it.

Nodes are marked first, then NodePools edited; on the way back NodePools come first, then nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from dovetail.api import labels, reasons
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import Cache
from dovetail.errors import Conflict
from dovetail.ports import Clock, Recorder
from dovetail.zonal.controller.node_protection import (
    DesiredMarks,
    NodeChange,
    NodeProtection,
    count_protected_by_zone,
    is_half_released,
)
from dovetail.zonal.controller.pool_edits import (
    DesiredPoolEdits,
    LedgerCopies,
    PoolChange,
    PoolEditor,
    list_edited_pools,
)
from dovetail.zonal.controller.shift_status import OutstandingWork, ShiftState
from dovetail.zonal.controller.stand_in_pools import StandInPools
from dovetail.zonal.controller.writes import GUARD, AuditedWriter, JsonPatchKube, PoolDocument
from dovetail.zonal.controller.zone_map import ZoneMap
from dovetail.zonal.model.clone import CLONE_OF
from dovetail.zonal.model.ledgers import read_note_owner
from dovetail.zonal.model.shifts import find_owner
from dovetail.zonal.model.state_machine import STEPS, Step
from dovetail.zonal.options import ZonalOptions
from dovetail.zonal.store.cluster_store import ShiftStore

__all__ = ["CONVERGE", "ClusterEdits", "list_gated_zones"]

# Seconds: how long one pass writes, and when the cluster is looked at again at the latest.
SLICE, CONVERGE = 5.0, 30.0
RELEASING = 5.0
OUR_NOTES = (labels.ZONE_LEDGER, GUARD)


class ClusterEdits:
    """Marks nodes, guards and edits NodePools, and makes stand-ins for those that cannot be edited."""

    def __init__(
        self,
        kube: JsonPatchKube,
        nodes: Cache[Node],
        claims: Cache[NodeClaim],
        store: ShiftStore,
        options: ZonalOptions,
        *,
        clock: Clock,
        recorder: Recorder,
    ) -> None:
        self._kube, self._nodes, self._claims, self._options = kube, nodes, claims, options
        self.writer = AuditedWriter(kube)
        self._protection = NodeProtection(self.writer, nodes, clock, recorder, options)
        self._pool_editor = PoolEditor(self.writer, clock, recorder, options)
        self._clones = StandInPools(kube, claims, options, self.writer, clock)
        self._copies = LedgerCopies(kube, store)

    def change_options(self, options: ZonalOptions) -> None:
        self._options = self._protection.options = options
        self._pool_editor.options = self._clones.options = options

    @property
    def given_up(self) -> frozenset[str]:
        """Pools that someone else puts back as often as they are edited."""
        return self._pool_editor.given_up

    @property
    def failures(self) -> Mapping[str, str]:
        """Objects that could not be written, and why."""
        return {**self._protection.failures, **self._pool_editor.failures}

    def list_nodes(self) -> Iterable[Node]:
        return self._protection.list_nodes()

    async def has_marks(self) -> bool:
        """Whether anything still carries a note of ours."""
        if self.has_node_marks():
            return True
        return any(map(self._has_own_note, await self._kube.list(PoolDocument)))

    def has_node_marks(self) -> bool:
        """Whether a node still carries a note of ours."""
        return any(map(self._has_own_note, self._nodes))

    def _has_own_note(self, obj: Node | PoolDocument) -> bool:
        """Whether a note stands on an object, other than another's; one nobody can read may be ours."""
        texts = [obj.annotations[note] for note in OUR_NOTES if note in obj.annotations]
        return any(read_note_owner(text) in ("", self._options.owner) for text in texts)

    async def list_pools(self) -> list[PoolDocument]:
        """Every pool but stand-ins that another made."""
        listed = await self._kube.list(PoolDocument)
        return [
            each
            for each in listed
            if CLONE_OF not in each.labels or find_owner(each.annotations) == self._options.owner
        ]

    async def restore_ledgers(
        self, pools: Sequence[PoolDocument], acting: Sequence[ShiftState]
    ) -> Sequence[PoolDocument]:
        """The pools with the notes that someone took off them."""
        if self._options.dry_run:
            return pools
        editing = bool(build_desired_pool_edits(acting, self._options).zones)
        return await self._copies.restore_ledgers(pools, editing=editing)

    def count_outstanding(
        self,
        states: Sequence[ShiftState],
        acting: Sequence[ShiftState],
        zone_map: ZoneMap,
        pools: Sequence[PoolDocument],
    ) -> OutstandingWork:
        """What is not yet as these records want it, by zone."""
        marks, releases = self._list_node_changes(acting, zone_map)
        desired = build_desired_pool_edits(acting, self._options)
        cloned = bool(desired.zones) and self._clones.are_needed(pools, zone_map)
        untouched = not self._options.edits_pools or cloned
        edits = [] if untouched else self._pool_editor.list_changes(pools, zone_map, desired)
        open_edits = [each for each in edits if each.pool.uid not in self._pool_editor.given_up]
        left = _count_work(marks, releases, len(open_edits), self._claims)
        done = count_protected_by_zone(self._protection.list_nodes(), zone_map)
        edited = {each.key: len(list_edited_pools(pools, each.key)) for each in states}
        return replace(left, marked=done, edited=edited)

    def _list_node_changes(
        self, acting: Sequence[ShiftState], zone_map: ZoneMap
    ) -> tuple[list[NodeChange], list[NodeChange]]:
        return self._protection.list_changes(zone_map, build_desired_marks(acting, self._options))

    async def write_changes(
        self, acting: Sequence[ShiftState], zone_map: ZoneMap, pools: Sequence[PoolDocument]
    ) -> tuple[bool, float]:
        """A few seconds of it: nodes first, then pools; on the way back pools first, then nodes."""
        if self._options.dry_run:
            return False, CONVERGE  # what was begun in earnest stands as it is until the dry run is over
        marks, releases = self._list_node_changes(acting, zone_map)
        done, tried = await self._protection.mark_nodes(marks, SLICE)
        # A node that could not be marked is kept by its pool's budget instead.
        self._pool_editor.unmarked = bool(self._protection.failures)
        wait = CONVERGE
        if tried:
            edited, wait = await self._edit_pools(acting, zone_map, pools)
            done += edited
        if releases:
            done += await self._protection.release_nodes(releases, SLICE)
            wait = min(wait, RELEASING)
        return done > 0, wait

    async def _edit_pools(
        self, acting: Sequence[ShiftState], zone_map: ZoneMap, pools: Sequence[PoolDocument]
    ) -> tuple[int, float]:
        desired = build_desired_pool_edits(acting, self._options)
        ours = any(note in pool.annotations for pool in pools for note in OUR_NOTES)
        clones = any(CLONE_OF in pool.labels for pool in pools)
        if not (self._options.edits_pools and desired.zones) and not ours and not clones:
            return 0, CONVERGE
        if (
            self._options.edits_pools and desired.zones and self._clones.are_needed(pools, zone_map)
        ) or clones:
            await self._clones.settle_pools(pools, zone_map, desired)
            if not ours and self._clones.are_needed(pools, zone_map):
                return 0, CONVERGE
        done, wait = 0, CONVERGE
        for change in self._pool_editor.list_changes(pools, zone_map, desired):
            pause = self._pool_editor.find_pause(change, desired)
            if pause is None:
                continue
            if pause.total_seconds() > 0:
                wait = min(wait, pause.total_seconds())
            elif await self._write_pool(change, desired):
                done += 1
        return done, wait

    async def _write_pool(self, change: PoolChange, desired: DesiredPoolEdits) -> bool:
        try:
            await self._copies.copy_before_write(change)
        except Conflict:
            return False  # looked at again in a moment
        return await self._pool_editor.write_change(change, desired)

    def describe_plan(
        self, state: ShiftState, zone_map: ZoneMap, pools: Sequence[PoolDocument]
    ) -> tuple[str, ...]:
        """Every gate that this shift alone would close, and every write that it would make."""
        alone = [state]
        marks, _ = self._list_node_changes(alone, zone_map)
        lines = [str(audit) for mark in marks for audit in mark.list_audits()]
        desired = build_desired_pool_edits(alone, self._options)
        if self._options.edits_pools and desired.zones:
            lines += self._clones.describe_plan(pools, zone_map, desired)
            if not self._clones.are_needed(pools, zone_map):
                lines += [str(change) for change in self._pool_editor.list_changes(pools, zone_map, desired)]
        launches, disruption = list_gated_zones(alone, self._options)
        gates = (
            f"gate {gate} in {zone}"
            for gate, zones in (("launches", launches), ("disruption", disruption))
            for zone in zones
        )
        return (*gates, *lines)


def list_gated_zones(
    states: Sequence[ShiftState], options: ZonalOptions
) -> tuple[frozenset[str], frozenset[str]]:
    """Zone ids in which nothing is bought, and in which nothing is taken away by choice."""
    launches = (
        each.record.shift.zone_id
        for each in states
        if each.record.launches_gated and not (options.restore_fast and _has_reached_step(each, "nodes"))
    )
    disruption = (each.record.shift.zone_id for each in states if each.record.disruption_gated)
    return frozenset(launches) if options.gates else frozenset(), frozenset(disruption)


def build_desired_marks(states: Sequence[ShiftState], options: ZonalOptions) -> DesiredMarks:
    protect: dict[str, frozenset[str]] = {}
    hold: set[str] = set()
    sweep: dict[str, str] = {}
    for each in states:
        zone = each.record.shift.zone_id
        if options.protect and each.record.edits:
            protect[zone] = protect.get(zone, frozenset()) | {each.key}
        if each.record.phase == "Pending" or _is_before_step(each, "nodes"):
            hold.add(each.key)
        if options.sweep_legacy and each.record.policy == "Enforce" and _has_reached_step(each, "nodes"):
            sweep[zone] = each.key
    in_force = {each.record.shift.zone_id for each in states if each.record.edits}
    return DesiredMarks(
        protect, frozenset(hold), {zone: key for zone, key in sweep.items() if zone not in in_force}
    )


def build_desired_pool_edits(states: Sequence[ShiftState], options: ZonalOptions) -> DesiredPoolEdits:
    editing = [each for each in states if options.edits_pools and each.record.edits]
    guarding = [each for each in states if each in editing or _is_before_step(each, "nodes")]
    return DesiredPoolEdits(
        zones=frozenset(each.record.shift.zone_id for each in editing),
        shifts=tuple(sorted(each.key for each in editing)),
        guard=tuple(sorted(each.key for each in guarding)),
    )


def _count_work(
    marks: Sequence[NodeChange], releases: Sequence[NodeChange], edits: int, claims: Iterable[NodeClaim]
) -> OutstandingWork:
    """What these writes are, by zone, and the claims whose drift an edit made."""
    return OutstandingWork(
        nodes=_count_by_zone(marks),
        releases=_count_by_zone([each for each in releases if not is_half_released(each)]),
        pools=edits,
        drifted=sum(_is_drifted_by_edit(claim) for claim in claims),
    )


def _count_by_zone(changes: Sequence[NodeChange]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in changes:
        found[each.zone_id] = found.get(each.zone_id, 0) + 1
    return found


def _is_drifted_by_edit(claim: NodeClaim) -> bool:
    found = claim.status.find_condition("Drifted")
    return found is not None and found.status == "True" and found.reason == reasons.REQUIREMENTS_DRIFTED


def _is_before_step(each: ShiftState, step: Step) -> bool:
    """On the way back, and not yet at this step."""
    return each.record.phase == "Restoring" and STEPS.index(each.record.step) < STEPS.index(step)


def _has_reached_step(each: ShiftState, step: Step) -> bool:
    """On the way back, and at this step or beyond it."""
    return each.record.phase == "Restoring" and STEPS.index(each.record.step) >= STEPS.index(step)

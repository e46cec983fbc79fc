"""Marks on the nodes of an impaired zone: who needs one, and putting them there."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.controllers.base import Cache, run_all
from dovetail.errors import Conflict, DovetailError, Gone
from dovetail.ports import Clock, Recorder
from dovetail.zonal import shift_metrics
from dovetail.zonal.controller.writes import Audit, AuditedWriter, note_bad_object
from dovetail.zonal.controller.zone_map import ZoneMap
from dovetail.zonal.model.ledgers import parse_node_ledger, render_ledger
from dovetail.zonal.model.nodes import (
    ANNOTATION,
    CORDON,
    LABEL,
    MarkedNode,
    NodeLedger,
    NodeMarks,
    protect_node,
    release_node,
    sweep_node,
)
from dovetail.zonal.options import ZonalOptions

__all__ = [
    "DesiredMarks",
    "NodeChange",
    "NodeProtection",
    "count_protected_by_zone",
    "find_ready_since",
    "is_half_released",
    "read_marks",
]

READY_FOR = timedelta(seconds=60)
AT_ONCE = 50
# Of a large zone only some nodes carry an event: thousands would crowd out everyone else's.
TOLD = 100


@dataclass(frozen=True, slots=True)
class DesiredMarks:
    """What the nodes should carry: keys of shifts by zone id, keys to be let be, and keys to be taken off."""

    protect: Mapping[str, frozenset[str]]
    hold: frozenset[str] = frozenset()
    # Zones in which marks without a ledger are taken off, too, and for which shift.
    sweep: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node as it stands, and as it should."""

    node: Node
    marked: MarkedNode
    zone_id: str
    shift: str

    @property
    def release(self) -> bool:
        return self.marked.ledger is None

    @property
    def after(self) -> Node:
        standing, ledger = self.marked.standing, self.marked.ledger
        meta = self.node.metadata
        known = {**meta.labels, labels.DO_NOT_DISRUPT: standing.label or ""}
        notes = {
            **meta.annotations,
            labels.DO_NOT_DISRUPT: standing.annotation or "",
            labels.ZONE_LEDGER: render_ledger(ledger) if ledger is not None else "",
        }
        if standing.label is None:
            known.pop(labels.DO_NOT_DISRUPT)
        notes = {key: value for key, value in notes.items() if value or key not in OURS}
        return replace(
            self.node,
            metadata=replace(meta, labels=known, annotations=notes),
            spec=replace(self.node.spec, unschedulable=standing.cordoned),
        )

    def list_audits(self) -> list[Audit]:
        """What is written, field by field; where only our own note changes, that."""
        before, after = read_marks(self.node), self.marked.standing
        reason, name = "released" if self.release else "protected", f"Node/{self.node.name}"
        found = [
            Audit(name, each, before.read_field(each), after.read_field(each), self.shift, reason)
            for each in (LABEL, ANNOTATION, CORDON)
            if before.read_field(each) != after.read_field(each)
        ]
        if found:
            return found
        was = parse_node_ledger(self.node.annotations.get(labels.ZONE_LEDGER))
        noted, note = (list(each.shifts) if each is not None else None for each in (was, self.marked.ledger))
        return [Audit(name, "ledger", noted, note, self.shift, reason)]


OURS = frozenset((labels.DO_NOT_DISRUPT, labels.ZONE_LEDGER))


class NodeProtection:
    """Finds the nodes to be marked or released, and does so no faster than wanted."""

    def __init__(
        self,
        writer: AuditedWriter,
        nodes: Cache[Node],
        clock: Clock,
        recorder: Recorder,
        options: ZonalOptions,
    ) -> None:
        self._writer, self._nodes, self._clock, self._recorder = writer, nodes, clock, recorder
        self.options = options
        # What we wrote and have not heard of yet, by the version it was written over.
        self._own: dict[str, tuple[str, Node]] = {}
        self._batch: dict[str, tuple[float, int]] = {}
        self.failures: dict[str, str] = {}
        self._quiet = False

    def list_nodes(self) -> Iterable[Node]:
        """The nodes as they are, our own last words included."""
        for node in self._nodes:
            mine = self._own.get(node.name)
            if mine is None:
                yield node
            elif mine[0] == node.metadata.resource_version:
                yield mine[1]
            else:
                del self._own[node.name]  # heard of since
                yield node

    def list_changes(
        self, zone_map: ZoneMap, desired: DesiredMarks
    ) -> tuple[list[NodeChange], list[NodeChange]]:
        """Nodes to be marked, the oldest first, and nodes to be released."""
        marks: list[NodeChange] = []
        releases: list[NodeChange] = []
        for node in self.list_nodes():
            try:
                change = self._build_change(node, zone_map, desired)
            except Exception as error:  # noqa: BLE001 (one node nobody can make sense of holds up no other)
                note_bad_object(self.failures, f"Node/{node.name}", error)
                continue
            if change is not None:
                (releases if change.release else marks).append(change)
        marks.sort(key=lambda each: (_ready_timestamp(each.node), each.node.name))
        return marks, releases

    def _build_change(self, node: Node, zone_map: ZoneMap, desired: DesiredMarks) -> NodeChange | None:
        text = node.annotations.get(labels.ZONE_LEDGER)
        if text is None and not desired.protect and not desired.sweep:
            return None
        zone = zone_map.find_zone_id(node)
        keys = desired.protect.get(zone, frozenset())
        if node.deleting:
            return None
        if text is None and not keys:
            return self._sweep_node(node, zone, desired)
        if keys and self.options.managed_only and labels.NODEPOOL not in node.labels and text is None:
            return None
        ledger = parse_node_ledger(text)
        if ledger is not None and ledger.owner != self.options.owner:
            return None  # another's mark, and its to take off
        return self._build_mark_change(node, ledger, zone, keys, desired)

    def _sweep_node(self, node: Node, zone: str, desired: DesiredMarks) -> NodeChange | None:
        if zone not in desired.sweep or (self.options.managed_only and labels.NODEPOOL not in node.labels):
            return None
        marked = sweep_node(read_marks(node))
        return None if marked is None else NodeChange(node, marked, zone, desired.sweep[zone])

    def _build_mark_change(
        self, node: Node, ledger: NodeLedger | None, zone: str, keys: frozenset[str], desired: DesiredMarks
    ) -> NodeChange | None:
        now = read_marks(node)
        marked = MarkedNode(now, ledger)
        for key in sorted(keys):
            marked = protect_node(
                marked.standing, marked.ledger, key, enforce=self.options.enforce, owner=self.options.owner
            )
        left = () if marked.ledger is None else marked.ledger.shifts
        ended = [key for key in left if key not in keys and key not in desired.hold]
        if ended:
            marked = release_node(marked.standing, marked.ledger, ended)
        if (marked.standing, marked.ledger) == (now, ledger):
            return None
        told = ",".join(sorted(keys) or ended)
        return NodeChange(node, marked, zone, told)

    async def mark_nodes(self, changes: Sequence[NodeChange], seconds: float) -> tuple[int, bool]:
        """Mark as many as can be in that time: how many were, and whether all had their turn."""
        return await self._write_changes(changes, seconds)

    async def release_nodes(self, changes: Sequence[NodeChange], seconds: float) -> int:
        """Release a part of each zone's nodes, and no more until some time has passed."""
        now, chosen = self._clock.monotonic(), list[NodeChange]()
        zones = {each.zone_id for each in changes}
        for zone in sorted(zones):
            began, room = self._batch.get(zone, (float("-inf"), 0))
            mine = [each for each in changes if each.zone_id == zone]
            if now - began >= self.options.restore_interval:
                total = self._count_zone_nodes(zone, mine)
                began, room = now, max(1, math.ceil(total * self.options.restore_batch))
            ready = [each for each in mine if self._may_release(each)][:room]
            self._batch[zone] = (began, room - len(ready))
            chosen += [self._keep_cordon(each) for each in ready]
        return (await self._write_changes(chosen, seconds))[0]

    def _count_zone_nodes(self, zone: str, mine: Sequence[NodeChange]) -> int:
        name = next((each.node.labels.get(labels.ZONE, "") for each in mine), "")
        return sum(node.labels.get(labels.ZONE, "") == name for node in self._nodes) if name else len(mine)

    def _may_release(self, change: NodeChange) -> bool:
        since = find_ready_since(change.node)
        if since is None:
            # One that is not well loses its protection so that it can be repaired, once.
            return not is_half_released(change)
        return self._clock.now() - since >= READY_FOR

    def _keep_cordon(self, change: NodeChange) -> NodeChange:
        """A node that is not ready stays cordoned where it will be repaired; it only may be taken away."""
        if (
            find_ready_since(change.node) is not None
            or not self.options.repair
            or not change.node.spec.unschedulable
        ):
            return change
        standing = replace(change.marked.standing, cordoned=True)
        ledger = parse_node_ledger(change.node.annotations.get(labels.ZONE_LEDGER))
        if ledger is None or CORDON not in ledger.set:
            return change
        kept = replace(ledger, set={CORDON: ledger.set[CORDON]})
        return NodeChange(change.node, MarkedNode(standing, kept), change.zone_id, change.shift)

    async def _write_changes(self, changes: Sequence[NodeChange], seconds: float) -> tuple[int, bool]:
        # A few at a time: between them others get their turn, and the time is looked at.
        end, done = self._clock.monotonic() + seconds, 0
        self._quiet = len(changes) > TOLD
        for at in range(0, len(changes), AT_ONCE):
            if self._clock.monotonic() >= end:
                return done, False
            outcomes = await run_all(self._write_change(each) for each in changes[at : at + AT_ONCE])
            done += sum(outcomes)
        return done, True

    async def _write_change(self, change: NodeChange) -> bool:
        name = f"Node/{change.node.name}"
        try:
            written_node = await self._writer.write_node(change.node, change.after, change.list_audits())
        except (Gone, Conflict):
            return False  # nothing to do any more, or looked at again in a moment
        except DovetailError as error:
            self.failures[name] = str(error)
            return False
        self.failures.pop(name, None)
        heard = self._nodes.get(change.node.name)
        if heard is not None:
            self._own[change.node.name] = (heard.metadata.resource_version, written_node)
        self._report_change(change)
        return True

    def _report_change(self, change: NodeChange) -> None:
        for _ in change.marked.external if change.release else ():
            shift_metrics.EXTERNAL.labels("Node").inc()
        if self._quiet:
            return
        reason = "Released" if change.release else "ZonalShiftProtected"
        note = f"zone {change.zone_id} is no longer shifted away" if change.release else ""
        self._recorder.publish_event(
            change.node,
            reason,
            note or f"zone {change.zone_id} is shifted away: nothing is moved here or taken away",
            dedupe=(change.node.uid, change.zone_id),
        )


def is_half_released(change: NodeChange) -> bool:
    """Nothing is left to be undone but a cordon, which waits for the node to be well."""
    ledger = parse_node_ledger(change.node.annotations.get(labels.ZONE_LEDGER))
    return ledger is not None and set(ledger.set) <= {CORDON}


def find_ready_since(node: Node) -> datetime | None:
    """Since when a node has been ready; None while it is not."""
    found = node.status.find_condition("Ready")
    return found.last_transition_time if found is not None and found.status == "True" else None


def read_marks(node: Node) -> NodeMarks:
    """The fields of a node that a shift may touch, as they stand."""
    return NodeMarks(
        uid=node.uid,
        label=node.labels.get(labels.DO_NOT_DISRUPT),
        annotation=node.annotations.get(labels.DO_NOT_DISRUPT),
        cordoned=node.spec.unschedulable,
    )


def _ready_timestamp(node: Node) -> float:
    since = find_ready_since(node) or node.metadata.creation_timestamp
    return since.timestamp() if since is not None else math.inf


def count_protected_by_zone(nodes: Iterable[Node], zone_map: ZoneMap) -> Mapping[str, int]:
    """How many nodes of each zone carry a ledger."""
    found: dict[str, int] = {}
    for node in nodes:
        if labels.ZONE_LEDGER in node.annotations:
            zone = zone_map.find_zone_id(node)
            found[zone] = found.get(zone, 0) + 1
    return found

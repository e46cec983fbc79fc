"""Pools that stay out of impaired zones: which need an edit or its undo, and writing it.

Someone else may keep putting a pool back as it was. That is answered a few times, more and more slowly, and
then left to people: two controllers that fight for ever help nobody.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from dovetail.api import labels
from dovetail.errors import BadInput, Conflict, DovetailError, Gone
from dovetail.ports import Clock, Recorder
from dovetail.zonal import shift_metrics
from dovetail.zonal.controller.writes import (
    GUARD,
    Audit,
    AuditedWriter,
    JsonPatchKube,
    PoolDocument,
    build_patch,
    note_bad_object,
)
from dovetail.zonal.controller.zone_map import ZoneMap
from dovetail.zonal.model.clone import PREFIX
from dovetail.zonal.model.drift_guard import GuardedBudgets, add_drift_guard
from dovetail.zonal.model.ledgers import parse_guard, parse_pool_ledger, render_ledger
from dovetail.zonal.model.pools import ImpairedZones, PoolEdit, PoolLedger, edit_requirements
from dovetail.zonal.options import ZonalOptions
from dovetail.zonal.store.cluster_store import ShiftStore

__all__ = [
    "DesiredPoolEdits",
    "LedgerCopies",
    "PoolChange",
    "PoolEditor",
    "count_edited_by_zone",
    "list_edited_pools",
]

ANSWERS = tuple(timedelta(seconds=each) for each in (10, 30, 120, 300, 600))


@dataclass(frozen=True, slots=True)
class DesiredPoolEdits:
    """Zone ids to stay out of, keys of the shifts that want it, and of those whose guard still stands."""

    zones: frozenset[str]
    shifts: tuple[str, ...]
    guard: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolChange:
    """A pool as it stands, and what is to be written."""

    pool: PoolDocument
    edit: PoolEdit
    guarded: GuardedBudgets
    operations: Sequence[dict[str, Any]]
    shifts: tuple[str, ...]

    def list_audits(self) -> list[Audit]:
        name, told = f"NodePool/{self.pool.name}", ",".join(self.shifts)
        reason = "edited" if self.edit.ledger is not None else "restored"
        before, after = list(self.pool.requirements), list(self.edit.entries)
        found = [] if before == after else [Audit(name, "requirements", before, after, told, reason)]
        had = None if self.pool.budgets is None else list(self.pool.budgets)
        has = None if self.guarded.budgets is None else list(self.guarded.budgets)
        found += [] if had == has else [Audit(name, "budgets", had, has, told, reason)]
        if found:
            return found
        after_note = list(self.edit.ledger.shifts) if self.edit.ledger is not None else None
        return [Audit(name, "ledger", list(_read_shifts(self.pool)) or None, after_note, told, reason)]

    def __str__(self) -> str:
        return "; ".join(map(str, self.list_audits()))


@dataclass
class _ContestedPool:
    """How often a pool was put back, and when we saw it last."""

    answered: int = 0
    seen: datetime | None = None
    told: bool = False


@dataclass
class PoolEditor:
    """Edits of pools and their undo."""

    writer: AuditedWriter
    clock: Clock
    recorder: Recorder
    options: ZonalOptions
    failures: dict[str, str] = field(default_factory=dict)
    # Some node of a zone could not be marked.
    unmarked: bool = False
    # Pools put back by someone else, by uid.
    _fights: dict[str, _ContestedPool] = field(default_factory=dict)
    _edited: dict[str, frozenset[str]] = field(default_factory=dict)

    def list_changes(
        self, pools: Sequence[PoolDocument], zone_map: ZoneMap, desired: DesiredPoolEdits
    ) -> list[PoolChange]:
        """Every pool that does not stand as it should."""
        found = []
        for pool in pools:
            # EKS lets nobody edit the pools it brings along.
            theirs = pool.name in zone_map.built_in and labels.ZONE_LEDGER not in pool.annotations
            if pool.deleting or theirs or pool.name.startswith(PREFIX):
                continue
            try:
                change = self._build_change(pool, zone_map, desired)
            except Exception as error:  # noqa: BLE001 (one pool nobody can make sense of holds up no other)
                note_bad_object(self.failures, f"NodePool/{pool.name}", error)
                continue
            if change is not None:
                found.append(change)
        return found

    def _build_change(
        self, pool: PoolDocument, zone_map: ZoneMap, desired: DesiredPoolEdits
    ) -> PoolChange | None:
        ledger = parse_pool_ledger(pool.annotations.get(labels.ZONE_LEDGER), pool.uid)
        guard = parse_guard(pool.annotations.get(GUARD))
        if any(each is not None and each.owner != self.options.owner for each in (ledger, guard)):
            return None  # another's doing, and its to undo
        excluded = pool.annotations.get(labels.ZONE_EXCLUDE) == labels.TRUE
        zones = self._build_zones(pool, zone_map, frozenset() if excluded else desired.zones)
        if ledger is None and guard is None and not zones.names:
            return None
        edit = self._edit_requirements(pool, ledger, zones, desired)
        keys = desired.guard if edit.ledger is not None or (guard is not None and desired.guard) else ()
        held = add_drift_guard(
            pool.budgets,
            guard,
            keys if self.options.budget_guard or self.unmarked else (),
            uid=pool.uid,
            owner=self.options.owner,
        )
        changes = build_patch(
            pool,
            edit.entries,
            held.budgets,
            render_ledger(edit.ledger) if edit.ledger is not None else "",
            render_ledger(held.ledger) if held.ledger is not None else "",
        )
        if not changes:
            return None
        return PoolChange(pool, edit, held, changes, desired.shifts or (ledger.shifts if ledger else ()))

    def _edit_requirements(
        self, pool: PoolDocument, ledger: PoolLedger | None, zones: ImpairedZones, desired: DesiredPoolEdits
    ) -> PoolEdit:
        return edit_requirements(
            pool.requirements,
            ledger,
            zones,
            desired.shifts,
            uid=pool.uid,
            strategy=self.options.strategy,
            only_zone=self.options.only_zone,
            fallback=_read_list(pool, labels.ZONE_FALLBACK),
            keep_removed=_read_list(pool, labels.ZONE_KEEP_REMOVED),
            owner=self.options.owner,
        )

    def _build_zones(
        self, pool: PoolDocument, zone_map: ZoneMap, excluded_zones: frozenset[str]
    ) -> ImpairedZones:
        reached = zone_map.list_reached(*pool.class_name)
        ids = tuple(sorted(excluded_zones & {*reached}))
        return ImpairedZones(
            names=tuple(zone_map.names[zone] for zone in ids),
            ids=ids,
            eligible=tuple(zone_map.names[zone] for zone in reached if zone in zone_map.names),
            eligible_ids=reached,
        )

    def find_pause(self, change: PoolChange, desired: DesiredPoolEdits) -> timedelta | None:
        """How long to wait before a pool that was put back is edited again; None for not at all any more."""
        if change.edit.ledger is None or not self._was_put_back(change, desired):
            return timedelta()
        fight = self._fights.setdefault(change.pool.uid, _ContestedPool())
        now = self.clock.now()
        if fight.answered >= len(ANSWERS):
            self._report_contested(change.pool, fight)
            return None
        fight.seen = fight.seen or now
        return max(fight.seen + ANSWERS[fight.answered] - now, timedelta())

    def _was_put_back(self, change: PoolChange, desired: DesiredPoolEdits) -> bool:
        """Whether we had edited the pool for these very zones, and somebody undid it."""
        return self._edited.get(change.pool.uid) == desired.zones and list(change.pool.requirements) != list(
            change.edit.entries
        )

    def _report_contested(self, pool: PoolDocument, fight: _ContestedPool) -> None:
        if fight.told:
            return
        fight.told = True
        who = pool.last_writer or "someone"
        note = f"{who} keeps putting back the zones that are shifted away; it is no longer answered"
        self.recorder.publish_event(pool, "ZonalShiftContested", note, warning=True, dedupe=(pool.uid,))
        shift_metrics.CONTESTED.set(len(self.given_up))

    @property
    def given_up(self) -> frozenset[str]:
        """Uids of pools that are left to whoever else edits them."""
        return frozenset(uid for uid, fight in self._fights.items() if fight.told)

    async def write_change(self, change: PoolChange, desired: DesiredPoolEdits) -> bool:
        """One pool, in one write."""
        name = f"NodePool/{change.pool.name}"
        try:
            await self.writer.write_pool(change.pool, change.operations, change.list_audits())
        except (Gone, Conflict):
            return False  # looked at again in a moment
        except DovetailError as error:
            self.failures[name] = str(error)
            return False
        self.failures.pop(name, None)
        self._record_change(change, desired)
        return True

    def _record_change(self, change: PoolChange, desired: DesiredPoolEdits) -> None:
        uid = change.pool.uid
        if change.edit.ledger is None:
            self._edited.pop(uid, None)
            self._fights.pop(uid, None)
            shift_metrics.CONTESTED.set(len(self.given_up))
        else:
            if self._was_put_back(change, desired):
                fight = self._fights.setdefault(uid, _ContestedPool())
                fight.answered, fight.seen = fight.answered + 1, None
            self._edited[uid] = desired.zones
        for note in (*change.edit.notes, *change.guarded.notes):
            reason = "OnlyZoneImpaired" if note.startswith("its only zone") else "ZonalShiftKept"
            self.recorder.publish_event(change.pool, reason, note, warning=True, dedupe=(uid, note))
            if reason == "ZonalShiftKept":
                shift_metrics.EXTERNAL.labels("NodePool").inc()


def _read_list(pool: PoolDocument, annotation: str) -> tuple[str, ...]:
    text = pool.annotations.get(annotation, "")
    return tuple(each.strip() for each in text.split(",") if each.strip())


def list_edited_pools(pools: Sequence[PoolDocument], shift: str) -> list[str]:
    """Names of the pools that were edited for a shift, by its key."""
    return [pool.name for pool in pools if shift in _read_shifts(pool)]


def _read_shifts(pool: PoolDocument) -> tuple[str, ...]:
    """The shifts a pool is edited for; none where its note cannot be read, which is told elsewhere."""
    try:
        ledger = parse_pool_ledger(pool.annotations.get(labels.ZONE_LEDGER), pool.uid)
    except BadInput:
        return ()
    return ledger.shifts if ledger is not None else ()


def count_edited_by_zone(pools: Sequence[PoolDocument], zone_map: ZoneMap) -> Mapping[str, int]:
    """How many pools stay out of each zone by our doing."""
    found: dict[str, int] = {}
    for pool in pools:
        for zone in {key.partition("/")[0] for key in _read_shifts(pool)}:
            found[zone] = found.get(zone, 0) + 1
    return found


class LedgerCopies:
    """Keeps the store's copies in step with pools.

    A copy stands for as long as the edit is meant to: it is made before the edit and dropped before the undo.
    A ledger that is missing while its copy is there was thus stripped by somebody else, or never written.
    """

    def __init__(self, kube: JsonPatchKube, store: ShiftStore) -> None:
        self._kube, self._store = kube, store

    async def restore_ledgers(
        self, pools: Sequence[PoolDocument], *, editing: bool = False
    ) -> tuple[PoolDocument, ...]:
        """The pools, each with the ledger it should carry; copies of pools that are gone go, too.

        A pool that stands as it did before may be `editing` next, for which its copy is there already.
        """
        copies, found = dict(self._store.ledgers), list[PoolDocument]()
        for pool in pools:
            copy = copies.pop(pool.uid, None)
            if copy is None or labels.ZONE_LEDGER in pool.annotations or pool.deleting:
                found.append(pool)
            elif tuple(pool.requirements) == copy.base:
                # Put back as it was by somebody, or never edited: nothing is left to be undone.
                if not editing:
                    await self._store.save_ledger(pool.uid, pool.name, None)
                found.append(pool)
            else:
                found.append(await self._restore_ledger(pool, render_ledger(copy)))
        for uid in copies:
            await self._store.save_ledger(uid, "", None)
        return tuple(found)

    async def _restore_ledger(self, pool: PoolDocument, ledger: str) -> PoolDocument:
        guard = pool.annotations.get(GUARD, "")
        changes = build_patch(pool, pool.requirements, pool.budgets, ledger, guard)
        try:
            return await self._kube.json_patch(pool, changes)
        except (Conflict, Gone):
            return pool  # looked at again in a moment

    async def copy_before_write(self, change: PoolChange) -> None:
        """A pool is about to be written."""
        await self._store.save_ledger(change.pool.uid, change.pool.name, change.edit.ledger)

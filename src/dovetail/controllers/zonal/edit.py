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
from dovetail.controllers.zonal import counts
from dovetail.controllers.zonal.badones import set_aside
from dovetail.controllers.zonal.documents import GUARD, PoolDocument, operations
from dovetail.controllers.zonal.options import ZonalOptions
from dovetail.controllers.zonal.writing import Audit, Writer
from dovetail.controllers.zonal.zones import Ground
from dovetail.errors import BadInput, Conflict, DovetailError, Gone
from dovetail.ports import Clock, Recorder
from dovetail.zonal.clone import PREFIX
from dovetail.zonal.guard import Guarded, guarded
from dovetail.zonal.ledgers import guard_from, pool_ledger_from, written
from dovetail.zonal.pools import Edit, Ledger, Zones, edited

__all__ = ["Editing", "PoolChange", "PoolWish", "edited_by_zone", "edited_for"]

ANSWERS = tuple(timedelta(seconds=each) for each in (10, 30, 120, 300, 600))


@dataclass(frozen=True, slots=True)
class PoolWish:
    """Zone ids to stay out of, keys of the shifts that want it, and of those whose guard still stands."""

    zones: frozenset[str]
    shifts: tuple[str, ...]
    guard: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PoolChange:
    """A pool as it stands, and what is to be written."""

    pool: PoolDocument
    edit: Edit
    guarded: Guarded
    operations: Sequence[dict[str, Any]]
    shifts: tuple[str, ...]

    def audits(self) -> list[Audit]:
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
        return [Audit(name, "ledger", list(_shifts(self.pool)) or None, after_note, told, reason)]

    def __str__(self) -> str:
        return "; ".join(map(str, self.audits()))


@dataclass
class _Fight:
    """How often a pool was put back, and when we saw it last."""

    answered: int = 0
    seen: datetime | None = None
    told: bool = False


@dataclass
class Editing:
    """Edits of pools and their undo."""

    writer: Writer
    clock: Clock
    recorder: Recorder
    options: ZonalOptions
    failures: dict[str, str] = field(default_factory=dict)
    # Some node of a zone could not be marked.
    unmarked: bool = False
    # Pools put back by someone else, by uid.
    _fights: dict[str, _Fight] = field(default_factory=dict)
    _edited: dict[str, frozenset[str]] = field(default_factory=dict)

    def wanted(self, pools: Sequence[PoolDocument], ground: Ground, wish: PoolWish) -> list[PoolChange]:
        """Every pool that does not stand as it should."""
        found = []
        for pool in pools:
            # EKS lets nobody edit the pools it brings along.
            theirs = pool.name in ground.built_in and labels.ZONE_LEDGER not in pool.annotations
            if pool.deleting or theirs or pool.name.startswith(PREFIX):
                continue
            try:
                change = self._change(pool, ground, wish)
            except Exception as error:  # noqa: BLE001 (one pool nobody can make sense of holds up no other)
                set_aside(self.failures, f"NodePool/{pool.name}", error)
                continue
            if change is not None:
                found.append(change)
        return found

    def _change(self, pool: PoolDocument, ground: Ground, wish: PoolWish) -> PoolChange | None:
        ledger = pool_ledger_from(pool.annotations.get(labels.ZONE_LEDGER), pool.uid)
        guard = guard_from(pool.annotations.get(GUARD))
        if any(each is not None and each.owner != self.options.owner for each in (ledger, guard)):
            return None  # another's doing, and its to undo
        excluded = pool.annotations.get(labels.ZONE_EXCLUDE) == labels.TRUE
        zones = self._zones(pool, ground, frozenset() if excluded else wish.zones)
        if ledger is None and guard is None and not zones.names:
            return None
        edit = self._edit(pool, ledger, zones, wish)
        keys = wish.guard if edit.ledger is not None or (guard is not None and wish.guard) else ()
        held = guarded(
            pool.budgets,
            guard,
            keys if self.options.budget_guard or self.unmarked else (),
            uid=pool.uid,
            owner=self.options.owner,
        )
        changes = operations(
            pool,
            edit.entries,
            held.budgets,
            written(edit.ledger) if edit.ledger is not None else "",
            written(held.ledger) if held.ledger is not None else "",
        )
        if not changes:
            return None
        return PoolChange(pool, edit, held, changes, wish.shifts or (ledger.shifts if ledger else ()))

    def _edit(self, pool: PoolDocument, ledger: Ledger | None, zones: Zones, wish: PoolWish) -> Edit:
        return edited(
            pool.requirements,
            ledger,
            zones,
            wish.shifts,
            uid=pool.uid,
            strategy=self.options.strategy,
            only_zone=self.options.only_zone,
            fallback=_listed(pool, labels.ZONE_FALLBACK),
            keep_removed=_listed(pool, labels.ZONE_KEEP_REMOVED),
            owner=self.options.owner,
        )

    def _zones(self, pool: PoolDocument, ground: Ground, away: frozenset[str]) -> Zones:
        reached = ground.reached(*pool.class_name)
        ids = tuple(sorted(away & {*reached}))
        return Zones(
            names=tuple(ground.names[zone] for zone in ids),
            ids=ids,
            eligible=tuple(ground.names[zone] for zone in reached if zone in ground.names),
            eligible_ids=reached,
        )

    def contested(self, change: PoolChange, wish: PoolWish) -> timedelta | None:
        """How long to wait before a pool that was put back is edited again; None for not at all any more."""
        if change.edit.ledger is None or not self._put_back(change, wish):
            return timedelta()
        fight = self._fights.setdefault(change.pool.uid, _Fight())
        now = self.clock.now()
        if fight.answered >= len(ANSWERS):
            self._give_up(change.pool, fight)
            return None
        fight.seen = fight.seen or now
        return max(fight.seen + ANSWERS[fight.answered] - now, timedelta())

    def _put_back(self, change: PoolChange, wish: PoolWish) -> bool:
        """Whether we had edited the pool for these very zones, and somebody undid it."""
        return self._edited.get(change.pool.uid) == wish.zones and list(change.pool.requirements) != list(
            change.edit.entries
        )

    def _give_up(self, pool: PoolDocument, fight: _Fight) -> None:
        if fight.told:
            return
        fight.told = True
        who = pool.last_writer or "someone"
        note = f"{who} keeps putting back the zones that are shifted away; it is no longer answered"
        self.recorder.event(pool, "ZonalShiftContested", note, warning=True, dedupe=(pool.uid,))
        counts.CONTESTED.set(len(self.given_up))

    @property
    def given_up(self) -> frozenset[str]:
        """Uids of pools that are left to whoever else edits them."""
        return frozenset(uid for uid, fight in self._fights.items() if fight.told)

    async def write(self, change: PoolChange, wish: PoolWish) -> bool:
        """One pool, in one write."""
        name = f"NodePool/{change.pool.name}"
        try:
            await self.writer.pool(change.pool, change.operations, change.audits())
        except (Gone, Conflict):
            return False  # looked at again in a moment
        except DovetailError as error:
            self.failures[name] = str(error)
            return False
        self.failures.pop(name, None)
        self._note(change, wish)
        return True

    def _note(self, change: PoolChange, wish: PoolWish) -> None:
        uid = change.pool.uid
        if change.edit.ledger is None:
            self._edited.pop(uid, None)
            self._fights.pop(uid, None)
            counts.CONTESTED.set(len(self.given_up))
        else:
            if self._put_back(change, wish):
                fight = self._fights.setdefault(uid, _Fight())
                fight.answered, fight.seen = fight.answered + 1, None
            self._edited[uid] = wish.zones
        for note in (*change.edit.notes, *change.guarded.notes):
            reason = "OnlyZoneImpaired" if note.startswith("its only zone") else "ZonalShiftKept"
            self.recorder.event(change.pool, reason, note, warning=True, dedupe=(uid, note))
            if reason == "ZonalShiftKept":
                counts.EXTERNAL.labels("NodePool").inc()


def _listed(pool: PoolDocument, annotation: str) -> tuple[str, ...]:
    text = pool.annotations.get(annotation, "")
    return tuple(each.strip() for each in text.split(",") if each.strip())


def edited_for(pools: Sequence[PoolDocument], shift: str) -> list[str]:
    """Names of the pools that were edited for a shift, by its key."""
    return [pool.name for pool in pools if shift in _shifts(pool)]


def _shifts(pool: PoolDocument) -> tuple[str, ...]:
    """The shifts a pool is edited for; none where its note cannot be read, which is told elsewhere."""
    try:
        ledger = pool_ledger_from(pool.annotations.get(labels.ZONE_LEDGER), pool.uid)
    except BadInput:
        return ()
    return ledger.shifts if ledger is not None else ()


def edited_by_zone(pools: Sequence[PoolDocument], ground: Ground) -> Mapping[str, int]:
    """How many pools stay out of each zone by our doing."""
    found: dict[str, int] = {}
    for pool in pools:
        for zone in {key.partition("/")[0] for key in _shifts(pool)}:
            found[zone] = found.get(zone, 0) + 1
    return found

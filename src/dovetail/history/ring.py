"""HistoryRing: the records of the last day in memory, bounded by age and number, found by every name.

Records are kept as the lines a log would hold, which is a third of their size in memory, and read when they
are asked for. A full ring drops the oldest verdict first, and acts only when it holds no verdict.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import islice
from sys import intern

import msgspec

from dovetail.history.record import (
    DecisionRecord,
    RecordGroup,
    RecordKind,
    decode_record,
    encode_record,
)

__all__ = ["HistoryQuery", "HistoryRing"]

KEEP = timedelta(hours=24)
MOST = 50_000
LIMIT = 5_000
# A record, its cause, and the cause of that: no chain is longer than this.
MOST_CAUSES = 8
_VERDICTS = frozenset(kind for kind in RecordKind if kind.group is RecordGroup.VERDICT)
# What says which node a pod was to be on, was on or left: how that node ended is part of its history.
_WHEREABOUTS = frozenset(
    (
        RecordKind.POD_PLACED,
        RecordKind.POD_EVICTED,
        RecordKind.POD_FORCED,
        RecordKind.NODE_ORDERED,
        RecordKind.NODE_DRAINING,
    )
)
# What a name may be written with; `explain` takes the same.
_PREFIXES = ("node/", "nodeclaim/", "claim/", "command/", "pod/", "zone/", "log/")


class HistoryQuery(msgspec.Struct, frozen=True):
    """Which records are asked for. Every field that is given must match."""

    name: str = ""
    since: datetime | None = None
    until: datetime | None = None
    kinds: frozenset[RecordKind] = frozenset()
    pool: str = ""
    reason: str = ""
    acts_only: bool = False
    limit: int = LIMIT


class RingEntry(msgspec.Struct, frozen=True, gc=False):
    """A record in the ring: what it is filtered by, and its line."""

    time: float
    kind: RecordKind
    pool: str
    reason: str
    line: bytes


class _RecordNames(msgspec.Struct, frozen=True, gc=False):
    """What of a line is read when its record goes: the names to forget. All of it takes twice as long."""

    id: str
    subject: str
    pool: str = ""
    names: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()


# Where a line has its id: it comes first.
_ID = slice(len('{"id":"'), len('{"id":"') + 24)
_NAMES = msgspec.json.Decoder(_RecordNames)


class HistoryRing:
    """The leader's memory of what it decided."""

    def __init__(self, keep: timedelta = KEEP, most: int = MOST) -> None:
        self._keep = keep.total_seconds()
        self._most = most
        self._entries: dict[int, RingEntry] = {}
        self._verdicts: deque[int] = deque()
        self._others: deque[int] = deque()
        self._next = 0
        # Most names have one record; those that have several have a list.
        self._by_name: dict[str, int | list[int]] = {}
        self._by_id: dict[int, int] = {}
        self._more_names: dict[int, tuple[str, ...]] = {}
        self.dropped: Counter[RecordGroup] = Counter()

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def enabled(self) -> bool:
        """Whether anything is kept at all."""
        return self._keep > 0 and self._most > 0

    @property
    def oldest(self) -> float | None:
        """The time of the oldest record, in seconds since 1970."""
        heads = [kept[0] for kept in (self._verdicts, self._others) if kept]
        return min((self._entries[head].time for head in heads), default=None)

    def note_record(
        self, record: DecisionRecord, more_names: Iterable[str] = (), line: bytes | None = None
    ) -> bool:
        """Keep a record; false when it is known already or the ring is switched off.

        `more_names` find it too, though it is too long to say them. `line` is its own, where it is known.
        """
        known = int(record.id, 16)
        if known in self._by_id or not self.enabled:
            return False
        serial, self._next = self._next, self._next + 1
        time = record.time.timestamp()
        self._entries[serial] = RingEntry(
            time, record.kind, intern(record.pool), intern(record.reason), line or encode_record(record)
        )
        self._by_id[known] = serial
        names = _list_bare_names(record)
        if more_names:
            more = {name for name in more_names if name not in names and not name.startswith("pool/")}
            self._more_names[serial] = tuple(more)
            names |= more
        self._index_names(serial, names)
        (self._verdicts if record.kind in _VERDICTS else self._others).append(serial)
        self._drop_old(time - self._keep)
        if len(self._entries) > self._most:
            self._drop_one()
        return True

    def find_records(self, query: HistoryQuery) -> list[DecisionRecord]:
        """The records that match, newest first.

        With a name, the records that caused them are among them; with a pod's, how its nodes ended.
        """
        if query.name.startswith("pool/") and not query.pool:
            query = msgspec.structs.replace(query, name="", pool=query.name.removeprefix("pool/"))
        serials: Iterable[int] = self._entries
        if query.name:
            named = self._list_serials(_strip_prefix(query.name))
            serials = self._list_causes([*named, *self._list_ends(named)])
        newest_first = sorted(serials, key=self._read_age, reverse=True)
        matching = (record for serial in newest_first for record in self._match_entry(serial, query))
        return list(islice(matching, max(0, min(query.limit, LIMIT))))

    def find_cause(self, name: str, kinds: frozenset[RecordKind]) -> str:
        """The id of the newest record of these kinds that has this name; empty when there is none."""
        entry = self._find_entry(name, kinds)
        return "" if entry is None else entry.line[_ID].decode()

    def find_record(self, name: str, kinds: frozenset[RecordKind]) -> DecisionRecord | None:
        """The newest record of these kinds that has this name."""
        entry = self._find_entry(name, kinds)
        return None if entry is None else decode_record(entry.line)

    def list_records(self, kinds: frozenset[RecordKind]) -> Iterator[DecisionRecord]:
        """Every record of these kinds, in the order in which they were noted."""
        return (decode_record(entry.line) for entry in self._entries.values() if entry.kind in kinds)

    def _find_entry(self, name: str, kinds: frozenset[RecordKind]) -> RingEntry | None:
        found = self._by_name.get(name, ())
        for serial in (found,) if isinstance(found, int) else reversed(found):
            if self._entries[serial].kind in kinds:
                return self._entries[serial]
        return None

    def list_names(self) -> Iterator[str]:
        """Every name that something is known of, for suggestions."""
        return iter(self._by_name)

    def list_pools(self) -> set[str]:
        """Every NodePool that something is known of."""
        return {entry.pool for entry in self._entries.values()} - {""}

    def knows_name(self, name: str) -> bool:
        """Whether any record is found by this name; every one is found by none."""
        if name.startswith("pool/"):
            return name.removeprefix("pool/") in self.list_pools()
        return not name or bool(self._list_serials(_strip_prefix(name)))

    def _read_age(self, serial: int) -> tuple[float, int]:
        return self._entries[serial].time, serial

    def _match_entry(self, serial: int, query: HistoryQuery) -> Iterator[DecisionRecord]:
        entry = self._entries[serial]
        if query.since is not None and entry.time < query.since.timestamp():
            return
        if query.until is not None and entry.time > query.until.timestamp():
            return
        if query.kinds and entry.kind not in query.kinds:
            return
        if query.acts_only and entry.kind in _VERDICTS:
            return
        if query.reason and entry.reason != query.reason:
            return
        if query.pool and entry.pool and entry.pool != query.pool:
            return
        record = decode_record(entry.line)
        if not query.pool or query.pool in _list_pools(record):
            yield record

    def _list_serials(self, name: str) -> list[int]:
        found = self._by_name.get(name)
        if found is None:
            # Not a whole name: a pod without its namespace, or an instance without its zone.
            return sorted({each for full in self._list_endings(name) for each in self._list_serials(full)})
        return [found] if isinstance(found, int) else list(found)

    def _list_endings(self, name: str) -> list[str]:
        return [] if "/" in name else [full for full in self._by_name if full.endswith(f"/{name}")]

    def _list_ends(self, serials: list[int]) -> list[int]:
        """The ends of the nodes that pods of these records were on, as far as they are not among them."""
        found: dict[int, None] = {}
        for serial in serials:
            if self._entries[serial].kind in _WHEREABOUTS:
                record = _NAMES.decode(self._entries[serial].line)
                for name in (*record.names, record.subject.partition("/")[2]):
                    found |= dict.fromkeys(self._list_next_ends(name, serial))
        return [*(found.keys() - set(serials))]

    def _list_next_ends(self, name: str, after: int) -> Iterator[int]:
        """The first end of a node of this name after that record: its name may be another's later."""
        known = self._by_name.get(name, ())
        ends = (each for each in ((known,) if isinstance(known, int) else known) if each > after)
        return islice((each for each in ends if self._entries[each].kind is RecordKind.NODE_GONE), 1)

    def _list_causes(self, serials: list[int]) -> list[int]:
        """These records and those that caused them, each once."""
        found = dict.fromkeys(serials)
        left = serials
        for _ in range(MOST_CAUSES):
            parents = {decode_record(self._entries[serial].line).parent for serial in left} - {""}
            causes = {self._by_id.get(int(each, 16)) for each in parents}
            left = sorted(each for each in causes if each is not None and each not in found)
            if not left:
                break
            found |= dict.fromkeys(left)
        return list(found)

    def _index_names(self, serial: int, names: Iterable[str]) -> None:
        for name in names:
            found = self._by_name.get(name)
            if found is None:
                self._by_name[name] = serial
            elif isinstance(found, int):
                self._by_name[name] = [found, serial]
            else:
                found.append(serial)

    def _drop_old(self, before: float) -> None:
        for kept in (self._verdicts, self._others):
            while kept and self._entries[kept[0]].time < before:
                self._forget_entry(kept.popleft())

    def _drop_one(self) -> None:
        kept = self._verdicts or self._others
        serial = kept.popleft()
        self.dropped[self._entries[serial].kind.group] += 1
        self._forget_entry(serial)

    def _forget_entry(self, serial: int) -> None:
        record = _NAMES.decode(self._entries.pop(serial).line)
        del self._by_id[int(record.id, 16)]
        for name in (*_list_bare_names(record), *self._more_names.pop(serial, ())):
            found = self._by_name[name]
            if isinstance(found, int):
                del self._by_name[name]
                continue
            found.remove(serial)
            if len(found) == 1:
                self._by_name[name] = found[0]


def _strip_prefix(name: str) -> str:
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return name


def _list_bare_names(record: DecisionRecord | _RecordNames) -> set[str]:
    """Every name of a node, NodeClaim, instance, pod or command that finds the record.

    NodePools are no names: nearly every record has one, and asking for a pool looks at all records.
    """
    subject = record.subject
    names = {*record.names, *record.pods}
    if not subject.startswith("pool/"):
        names.add(subject.partition("/")[2])
    if not record.pool:
        for name in record.names:
            if name.startswith("pool/"):
                names.discard(name)
    return names


def _list_pools(record: DecisionRecord) -> tuple[str, ...]:
    own = record.subject.removeprefix("pool/") if record.subject.startswith("pool/") else ""
    return (*record.pools, own)

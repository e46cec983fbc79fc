"""A record in words: as the columns TIME, WHAT and WHY, and as one sentence.

The command line, the pages and notifications all take their words from here, so that a decision is called
the same everywhere. Names and messages come from clusters that others have written to: characters that a
terminal would obey are spelled out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import NamedTuple

from dovetail.errors import escape_text
from dovetail.history.record import DecisionRecord, RecordKind

__all__ = [
    "COLUMNS",
    "HistoryRow",
    "describe_saving",
    "describe_subject",
    "is_about",
    "tell_row",
    "tell_rows",
    "tell_sentence",
]

COLUMNS = ("TIME", "WHAT", "WHY")
NAMED = 3
# How the same machine is called, before and after it joins.
_MACHINES = ("node", "claim", "nodeclaim")
SHORT_ID = 4


class _KindWords(NamedTuple):
    """How a kind is called in a table, and what it says of its subject in a sentence."""

    what: str
    says: str


WORDS: Mapping[RecordKind, _KindWords] = {
    RecordKind.NODE_ORDERED: _KindWords("ordered", "was ordered"),
    RecordKind.NODE_LAUNCHED: _KindWords("launched", "was launched"),
    RecordKind.LAUNCH_REFUSED: _KindWords("launch refused", "could not be launched"),
    RecordKind.NODE_READY: _KindWords("ready", "is ready"),
    RecordKind.NODE_GIVEN_UP: _KindWords("given up", "was given up"),
    RecordKind.NODE_RELEASED: _KindWords("released", "is no longer wanted by its static pool"),
    RecordKind.COMMAND_DECIDED: _KindWords("decided", "was decided"),
    RecordKind.COMMAND_DROPPED: _KindWords("dropped", "was dropped at the second look"),
    RecordKind.COMMAND_STARTED: _KindWords("started", "was started"),
    RecordKind.COMMAND_DONE: _KindWords("done", "is done"),
    RecordKind.COMMAND_TAKEN_BACK: _KindWords("taken back", "was taken back"),
    RecordKind.NODE_DRAINING: _KindWords("draining", "is draining"),
    RecordKind.POD_EVICTED: _KindWords("evicted", "was evicted"),
    RecordKind.POD_FORCED: _KindWords("forced", "was deleted without regard to its PodDisruptionBudget"),
    RecordKind.NODE_GONE: _KindWords("gone", "is gone"),
    RecordKind.INTERRUPTED: _KindWords("interrupted", "is being interrupted"),
    RecordKind.REPAIRED: _KindWords("repaired", "is replaced because it is unhealthy"),
    RecordKind.EXPIRED: _KindWords("expired", "has expired"),
    RecordKind.SHIFT_BEGAN: _KindWords("shift began", "is shifted away"),
    RecordKind.SHIFT_ENDED: _KindWords("shift ended", "is no longer shifted away"),
    RecordKind.DRIFT_PAUSED: _KindWords("drift paused", "has its drift paused"),
    RecordKind.DRIFT_RESUMED: _KindWords("drift resumed", "has its drift resumed"),
    RecordKind.POD_PLACED: _KindWords("placed", "has a place"),
    RecordKind.POD_UNSCHEDULABLE: _KindWords("unschedulable", "is unschedulable"),
    RecordKind.NODE_BLOCKED: _KindWords("blocked", "is blocked"),
    RecordKind.NODE_REMOVABLE: _KindWords("removable", "is removable"),
    RecordKind.FLAPPING: _KindWords("flapping", "is flapping"),
    RecordKind.TERM_BEGAN: _KindWords("term began", "began a new term"),
    RecordKind.LOG_GAP: _KindWords("log gap", "has a gap"),
}
# Kinds whose message does not say which pods there were.
_WITH_PODS = frozenset((RecordKind.NODE_ORDERED, RecordKind.NODE_DRAINING, RecordKind.NODE_GONE))


class HistoryRow(NamedTuple):
    """A line of a history."""

    time: str
    what: str
    why: str


def tell_rows(records: Iterable[DecisionRecord], now: datetime, asked: str = "") -> list[HistoryRow]:
    """The lines of a history, in the order given. `asked` is the name that the history was asked for."""
    return [tell_row(record, now, asked) for record in records]


def tell_row(record: DecisionRecord, now: datetime, asked: str = "") -> HistoryRow:
    """One line: the time alone if it is of today, the day with it otherwise; all in UTC.

    A line about something else than what was asked for says what it is about.
    """
    same_day = record.time.astimezone(UTC).date() == now.astimezone(UTC).date()
    shown = record.time.astimezone(UTC).strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M:%S")
    what = WORDS[record.kind].what
    if record.subject.startswith("command/") or (asked and not is_about(record, asked)):
        what = f"{describe_subject(record.subject)} {what}"
    return HistoryRow(shown, escape_text(what), escape_text(_tell_why(record)))


def is_about(record: DecisionRecord, asked: str) -> bool:
    """Whether the subject of a record is what was asked for, by whichever of its names."""
    kind, _, bare = record.subject.partition("/")
    names = {bare, record.subject, f"nodeclaim/{bare}" if kind == "claim" else ""}
    if kind in ("node", "claim"):
        names |= {*record.names, *(f"{each}/{name}" for name in record.names for each in _MACHINES)}
        names |= {name.rpartition("/")[2] for name in record.names}
    elif kind == "pod":
        names |= {bare.rpartition("/")[2], f"pod/{bare.rpartition('/')[2]}"}
    return asked in names


def tell_sentence(record: DecisionRecord) -> str:
    """The record as one sentence without a full stop: `node a is blocked: pdb prevents pod evictions`."""
    said = f"{describe_subject(record.subject)} {WORDS[record.kind].says}"
    why = _tell_why(record)
    return _flatten_text(f"{said}: {why}" if why else said)


def _tell_why(record: DecisionRecord) -> str:
    parts = [record.message or record.reason]
    if record.pod_count and record.kind in _WITH_PODS:
        parts.append(_tell_pods(record))
    if record.kind is RecordKind.TERM_BEGAN and record.lost_after is not None:
        parts.append(f"what the term before recorded after number {record.lost_after} may be lost")
    if record.kind is RecordKind.LOG_GAP:
        parts.append(f"records {record.gap_from} to {record.gap_to} could not be written")
    return _flatten_text("; ".join(part for part in parts if part))


def _tell_pods(record: DecisionRecord) -> str:
    """How many pods, and the first of them: `6 pods: shop/web-7, shop/db-1, shop/db-2 +3`."""
    shown = ", ".join(record.pods[:NAMED])
    more = record.pod_count - min(len(record.pods), NAMED)
    named = f": {shown}" + (f" +{more:,}" if more > 0 else "") if shown else ""
    return f"{record.pod_count:,} pod{'' if record.pod_count == 1 else 's'}{named}"


def describe_subject(subject: str) -> str:
    """`node/a` as people say it: node a. Of a command's id its beginning is enough."""
    kind, _, name = subject.partition("/")
    if kind == "claim":
        kind = "nodeclaim"
    return f"{kind} {name[:SHORT_ID] if kind == 'command' else name}"


def describe_saving(record: DecisionRecord) -> str:
    """What it saves or costs more, in the words of `plan --disruption`; empty where that is not known."""
    saving = record.saving
    if not saving:
        return ""
    return f"saves ${saving:.4f} an hour" if saving > 0 else f"costs ${-saving:.4f} more an hour"


def _flatten_text(text: str) -> str:
    """One line of text, whatever a name or an error brought with it."""
    return escape_text(" ".join(text.split()))

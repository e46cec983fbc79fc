"""DecisionRecord: one settled question about a pod, a node or a NodePool, and the id it is known by.

A RecordDraft says what was settled; stamped with an id, a time and a leader it is a DecisionRecord. Records
hold names, reasons and prices. They never hold environment variables, images, arguments or annotations.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from math import isfinite
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from msgspec.structs import asdict, replace

from dovetail.api.meta import Record
from dovetail.errors import BadInput

__all__ = [
    "DecisionRecord",
    "RecordDraft",
    "RecordGroup",
    "RecordIds",
    "RecordKind",
    "RecordSeverity",
    "decode_record",
    "encode_record",
    "stamp_line",
    "stamp_record",
]

MOST_PODS = 20
MOST_BYTES = 2048
MOST_MESSAGE = 800
# The log adds a number and a digest to a record: `,"seq":…,"prev":"…"`.
CHAIN_BYTES = 112
# No record is of a time before or after these; in between, every time zone has a word for a time.
EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
_COUNTERS = 1 << 16
_LAST_MILLISECOND = (1 << 48) - 1


class RecordGroup(StrEnum):
    """Acts are always recorded, verdicts when they change; the log speaks of itself."""

    ACT = "act"
    VERDICT = "verdict"
    LOG = "log"


class RecordSeverity(StrEnum):
    """Whether a person may want to look."""

    INFO = "info"
    WARNING = "warning"


class RecordKind(StrEnum):
    """What happened or what was found. Add freely, never rename: logs, filters and schemas hold these."""

    NODE_ORDERED = "NodeOrdered"
    NODE_LAUNCHED = "NodeLaunched"
    LAUNCH_REFUSED = "LaunchRefused"
    NODE_READY = "NodeReady"
    NODE_GIVEN_UP = "NodeGivenUp"
    NODE_RELEASED = "NodeReleased"
    COMMAND_DECIDED = "CommandDecided"
    COMMAND_DROPPED = "CommandDropped"
    COMMAND_STARTED = "CommandStarted"
    COMMAND_DONE = "CommandDone"
    COMMAND_TAKEN_BACK = "CommandTakenBack"
    NODE_DRAINING = "NodeDraining"
    POD_EVICTED = "PodEvicted"
    POD_FORCED = "PodForced"
    NODE_GONE = "NodeGone"
    INTERRUPTED = "Interrupted"
    REPAIRED = "Repaired"
    EXPIRED = "Expired"
    SHIFT_BEGAN = "ShiftBegan"
    SHIFT_ENDED = "ShiftEnded"
    DRIFT_PAUSED = "DriftPaused"
    DRIFT_RESUMED = "DriftResumed"
    # Verdicts
    POD_PLACED = "PodPlaced"
    POD_UNSCHEDULABLE = "PodUnschedulable"
    NODE_BLOCKED = "NodeBlocked"
    NODE_REMOVABLE = "NodeRemovable"
    FLAPPING = "Flapping"
    # The log's own
    TERM_BEGAN = "TermBegan"
    LOG_GAP = "LogGap"

    # That of its text, and not of its name as an Enum has it: every record is looked up by it several times.
    __hash__ = str.__hash__

    @property
    def group(self) -> RecordGroup:
        if self in _VERDICTS:
            return RecordGroup.VERDICT
        return RecordGroup.LOG if self in _LOG else RecordGroup.ACT

    @property
    def severity(self) -> RecordSeverity:
        return RecordSeverity.WARNING if self in _WARNINGS else RecordSeverity.INFO


_VERDICTS = frozenset(
    (
        RecordKind.POD_PLACED,
        RecordKind.POD_UNSCHEDULABLE,
        RecordKind.NODE_BLOCKED,
        RecordKind.NODE_REMOVABLE,
        RecordKind.FLAPPING,
    )
)
_LOG = frozenset((RecordKind.TERM_BEGAN, RecordKind.LOG_GAP))
_WARNINGS = frozenset(
    (
        RecordKind.LAUNCH_REFUSED,
        RecordKind.NODE_GIVEN_UP,
        RecordKind.COMMAND_TAKEN_BACK,
        RecordKind.POD_FORCED,
        RecordKind.INTERRUPTED,
        RecordKind.REPAIRED,
        RecordKind.SHIFT_BEGAN,
        RecordKind.DRIFT_PAUSED,
        RecordKind.POD_UNSCHEDULABLE,
        RecordKind.FLAPPING,
        RecordKind.LOG_GAP,
    )
)


# Texts, numbers and tuples of texts make no circles: the garbage collector need not look at them.
class RecordDraft(Record, frozen=True, gc=False):
    """What was settled about one subject, before it is known when, by whom and under which id."""

    kind: RecordKind
    subject: str
    reason: str = ""
    message: str = ""
    pool: str = ""
    names: tuple[str, ...] = ()
    pods: tuple[str, ...] = ()
    pod_count: int = 0
    count: int = 0
    price_before: float | None = None
    price_after: float | None = None


Hex24 = Meta(extra_json_schema={"pattern": "^[0-9a-f]{24}$"})
Hex64 = Meta(extra_json_schema={"pattern": "^([0-9a-f]{64})?$"})
Subject = Meta(extra_json_schema={"pattern": "^(node|pod|claim|pool|command|zone|log)/."})


class DecisionRecord(Record, frozen=True, gc=False):
    """One decision of Dovetail about a pod, a node or a NodePool: what, when, by whom and why."""

    id: Annotated[
        str,
        Hex24,
        Meta(description="sorts by time: 48 bits of milliseconds, 16 of a counter, 32 of the cluster"),
    ]
    kind: Annotated[RecordKind, Meta(description="what happened or was found")]
    time: Annotated[datetime, Meta(description="when it was settled, in UTC, to the millisecond", tz=True)]
    subject: Annotated[
        str, Subject, Meta(description="node/NAME, pod/NAMESPACE/NAME, claim/NAME, pool/NAME or command/ID")
    ]
    severity: Annotated[RecordSeverity, Meta(description="follows from the kind")] = RecordSeverity.INFO
    by: Annotated[str, Meta(description="the identity of the leader")] = ""
    reason: Annotated[str, Meta(description="a Reason, a BlockedReason or the reason of an event")] = ""
    message: Annotated[str, Meta(description="one sentence")] = ""
    pool: Annotated[str, Meta(description="the NodePool it is about")] = ""
    names: Annotated[
        tuple[str, ...], Meta(description="every other name it can be found by: NodeClaim, node, provider id")
    ] = ()
    pods: Annotated[
        tuple[str, ...],
        Meta(description="pods it moved or placed, 20 at most", extra_json_schema={"maxItems": 20}),
    ] = ()
    pod_count: Annotated[int, Meta(description="how many pods there were, named or not")] = 0
    count: Annotated[int, Meta(description="Flapping: how many changes of the verdict were left out")] = 0
    price_before: Annotated[float | None, Meta(description="dollars an hour before it")] = None
    price_after: Annotated[float | None, Meta(description="dollars an hour after it")] = None
    situation: Annotated[str, Meta(description="the digest of what the decision saw")] = ""
    parent: Annotated[
        str,
        Meta(
            description="the id of the record that caused it",
            extra_json_schema={"pattern": "^([0-9a-f]{24})?$"},
        ),
    ] = ""
    seq: Annotated[int, Meta(description="in a log: the number of the record in its term, from 1")] = 0
    prev: Annotated[str, Hex64, Meta(description="in a log: the SHA-256 of the line before")] = ""
    lost_after: Annotated[
        int | None,
        Meta(description="TermBegan: what the term before wrote after this number may be lost"),
    ] = None
    told: Annotated[
        tuple[str, ...],
        Meta(description="in a leader's answer: the sinks of notifications that have taken a message of it"),
    ] = ()
    gap_from: Annotated[int, Meta(description="LogGap: the first record that is missing")] = msgspec.field(
        default=0, name="from"
    )
    gap_to: Annotated[int, Meta(description="LogGap: the last record that is missing")] = msgspec.field(
        default=0, name="to"
    )

    @property
    def saving(self) -> float:
        """Dollars an hour that it saves; 0 where a price is not known."""
        if self.price_before is None or self.price_after is None:
            return 0.0
        return self.price_before - self.price_after

    @property
    def pools(self) -> tuple[str, ...]:
        """The NodePools it is about: one for most records, several for a command over several."""
        if self.pool:
            return (self.pool,)
        return tuple(name.removeprefix("pool/") for name in self.names if name.startswith("pool/"))


class RecordIds:
    """Makes ids of records from times; each is greater than the last, even if the clock goes back."""

    def __init__(self, cluster_uid: str) -> None:
        self._cluster = _shorten_uid(cluster_uid)
        self._last = -1
        self._counter = 0

    def make_id(self, time: datetime) -> str:
        """48 bits of milliseconds, 16 of a counter and 32 of the cluster's uid, as 24 hexadecimal digits."""
        # A float holds the microseconds since 1970 exactly for another two centuries.
        now = min(max(round(time.timestamp() * 1_000_000) // 1000, 0), _LAST_MILLISECOND)
        self._counter = 0 if now > self._last else self._counter + 1
        self._last = max(now, self._last)
        if self._counter == _COUNTERS:
            self._last, self._counter = self._last + 1, 0
        return f"{self._last:012x}{self._counter:04x}{self._cluster}"

    def skip_past(self, known: str) -> None:
        """Give only ids that are greater than this one."""
        self._last, self._counter = int(known[:12], 16), int(known[12:16], 16)


def _shorten_uid(uid: str) -> str:
    """The first 32 bits of a UUID; of any other text, those of its digest."""
    start = uid[:8].lower()
    if len(start) == 8 and set(start) <= set("0123456789abcdef"):
        return start
    return sha256(uid.encode("utf-8", "replace")).hexdigest()[:8]


def stamp_record(
    draft: RecordDraft, record_id: str, time: datetime, by: str = "", situation: str = "", parent: str = ""
) -> DecisionRecord:
    """The record of a draft: with its id, its time to the millisecond, and no longer than a record may be."""
    return stamp_line(draft, record_id, time, by, situation, parent)[0]


def stamp_line(
    draft: RecordDraft, record_id: str, time: datetime, by: str = "", situation: str = "", parent: str = ""
) -> tuple[DecisionRecord, bytes]:
    """The record of a draft, and its line: whoever keeps it needs both."""
    moment = time if time.tzinfo is UTC else time.astimezone(UTC)
    message, pods = draft.message, draft.pods
    # By place and not by name, which takes twice as long; the order is that of the record's fields.
    record = DecisionRecord(
        record_id,
        draft.kind,
        moment.replace(microsecond=moment.microsecond // 1000 * 1000),
        draft.subject,
        draft.kind.severity,
        by,
        draft.reason,
        message if len(message) <= MOST_MESSAGE else f"{message[: MOST_MESSAGE - 1]}…",
        draft.pool,
        draft.names,
        pods if len(pods) <= MOST_PODS else pods[:MOST_PODS],
        max(draft.pod_count, len(pods)),
        draft.count,
        _check_price(draft.price_before),
        _check_price(draft.price_after),
        situation,
        parent,
    )
    return _fit_record(record)


def _check_price(price: float | None) -> float | None:
    """A price that can be written: unknown ones are infinite in plans, which JSON has no word for."""
    return price if price is not None and isfinite(price) else None


_RECORD_ID = re.compile("[0-9a-f]{24}")
_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(DecisionRecord)


def encode_record(record: DecisionRecord) -> bytes:
    """The canonical JSON line of a record, without its end: declared order, no defaults, no spaces."""
    return _ENCODER.encode(record)


def decode_record(line: bytes) -> DecisionRecord:
    """The record on a line of JSON; BadInput says what is wrong with it. Unknown fields are left out."""
    try:
        record = _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadInput(f"this is no record: {error}") from error
    # What is reckoned with later must be fit for it: other people may write into a log.
    if not _RECORD_ID.fullmatch(record.id) or (record.parent and not _RECORD_ID.fullmatch(record.parent)):
        raise BadInput("this is no record: an id has 24 hexadecimal digits")
    if not EARLIEST <= record.time < LATEST:
        raise BadInput("this is no record: nothing happened at that time")
    return record


def _fit_record(record: DecisionRecord) -> tuple[DecisionRecord, bytes]:
    """The record within its limit: fewer pods are named, then fewer names, then the message is cut."""
    try:
        line = _ENCODER.encode(record)
    except UnicodeEncodeError:
        record = _replace_surrogates(record)
        line = _ENCODER.encode(record)
    if len(line) <= MOST_BYTES - CHAIN_BYTES:
        return record, line
    for shrink in (_name_fewer_pods, _keep_fewer_names, _cut_message):
        while len(line) > MOST_BYTES - CHAIN_BYTES:
            shorter = shrink(record)
            if shorter is None:
                break
            record, line = shorter, _ENCODER.encode(shorter)
    return record, line


def _name_fewer_pods(record: DecisionRecord) -> DecisionRecord | None:
    return replace(record, pods=record.pods[:-1]) if record.pods else None


def _keep_fewer_names(record: DecisionRecord) -> DecisionRecord | None:
    return replace(record, names=record.names[: len(record.names) * 3 // 4]) if record.names else None


def _cut_message(record: DecisionRecord) -> DecisionRecord | None:
    if not record.message:
        return None
    kept = record.message[: len(record.message) * 3 // 4 - 1]
    return replace(record, message=f"{kept}…" if kept else "")


def _replace_surrogates(record: DecisionRecord) -> DecisionRecord:
    """The record without halves of characters, which are no Unicode and cannot be written."""

    def clean(value: Any) -> Any:
        if isinstance(value, str) and not isinstance(value, StrEnum):
            return value.encode("utf-8", "replace").decode()
        return tuple(map(clean, value)) if isinstance(value, tuple) else value

    return DecisionRecord(**{name: clean(value) for name, value in asdict(record).items()})

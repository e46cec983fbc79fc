"""The parts of a decision log: how files and objects are named and ordered, and what is read of them.

A folder holds a file for each hour, `decisions-20261102-03.jsonl`; closed ones end in `.gz`. A bucket holds
objects of five minutes, `prefix/cluster/2026/11/02/03-05-<leader>-<n>.jsonl.gz`. A leader never writes into a
minute of another one, so that the names alone say what comes after what.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from dovetail.errors import BadInput
from dovetail.history.record import DecisionRecord, decode_record

__all__ = [
    "MOST_PART_BYTES",
    "ObjectName",
    "compress_part",
    "expand_part",
    "floor_minute",
    "list_records",
    "name_hour",
    "parse_hour",
    "parse_object",
    "sort_files",
    "split_lines",
]

COMPRESSED = ".gz"
# An object is written with 4 MiB at most; nobody who leaves other things in a bucket fills our memory.
MOST_PART_BYTES = 64 * 1024 * 1024
_FILE = re.compile(r"decisions-([0-9]{8}-[0-9]{2})\.jsonl(\.gz)?")
_OBJECT = re.compile(
    r"(?P<cluster>.*?/)?(?P<day>[0-9]{4}/[0-9]{2}/[0-9]{2})/(?P<minute>[0-9]{2}-[0-9]{2})"
    r"-(?P<leader>[0-9a-f]{8})-(?P<number>[0-9]{1,9})\.jsonl\.gz",
    re.DOTALL,
)


def name_hour(time: datetime) -> str:
    """The file of the hour a time is in."""
    return f"decisions-{time.astimezone(UTC):%Y%m%d-%H}.jsonl"


def parse_hour(name: str) -> datetime | None:
    """The hour a file is of; None when it is no part of a log."""
    found = _FILE.fullmatch(name)
    try:
        return datetime.strptime(found[1], "%Y%m%d-%H").replace(tzinfo=UTC) if found else None
    except ValueError:
        return None


def sort_files(names: Iterable[str]) -> list[str]:
    """The files of a log, oldest first. Of an hour that is there twice the whole, compressed one counts."""
    found = {name for name in names if parse_hour(name) is not None}
    return sorted(name for name in found if name + COMPRESSED not in found)


class ObjectName(NamedTuple):
    """What the key of a part in a bucket says. It sorts by time, and within a minute by number."""

    minute: datetime
    leader: str
    number: int
    folder: str

    def render_key(self) -> str:
        return f"{self.folder}{self.minute:%Y/%m/%d/%H-%M}-{self.leader}-{self.number}.jsonl{COMPRESSED}"

    def name_next(self, leader: str, time: datetime) -> ObjectName:
        """The part after this one: of this minute if the leader is the same, else of a later one."""
        own = leader == self.leader
        earliest = self.minute if own else self.minute + timedelta(minutes=1)
        return ObjectName(
            max(earliest, floor_minute(time)), leader, self.number + 1 if own else 1, self.folder
        )


def parse_object(key: str) -> ObjectName | None:
    """What a key says; None when it is no part of a log."""
    found = _OBJECT.fullmatch(key)
    if found is None:
        return None
    try:
        minute = datetime.strptime(f"{found['day']}/{found['minute']}", "%Y/%m/%d/%H-%M").replace(tzinfo=UTC)
    except ValueError:
        return None
    return ObjectName(minute, found["leader"], int(found["number"]), found["cluster"] or "")


def floor_minute(time: datetime) -> datetime:
    """The minute a time is in."""
    return time.astimezone(UTC).replace(second=0, microsecond=0)


def compress_part(text: bytes) -> bytes:
    """The text of a part, compressed; the same text gives the same bytes."""
    packing = zlib.compressobj(6, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    return packing.compress(text) + packing.flush()


def expand_part(name: str, data: bytes) -> bytes:
    """The text of a compressed part; BadInput when it is damaged or out of all proportion."""
    reading = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        text = reading.decompress(data, MOST_PART_BYTES)
    except zlib.error as error:
        raise BadInput(f"{name}: it was changed or cut off: {error}") from error
    if reading.unconsumed_tail:
        raise BadInput(f"{name}: it is larger than any part of a log")
    if not reading.eof or reading.unused_data:
        raise BadInput(f"{name}: it was changed or cut off: it is not one whole gzip file")
    return text


def split_lines(text: bytes) -> list[bytes]:
    """The lines of a part with their ends; the last one may have none."""
    lines = [line + b"\n" for line in text.split(b"\n")]
    lines[-1] = lines[-1][:-1]
    return lines if lines[-1] else lines[:-1]


def list_records(
    lines: Iterable[bytes], since: datetime | None = None, until: datetime | None = None
) -> Iterator[DecisionRecord]:
    """The records on these lines within a time, oldest first; lines that are none are for a check to find."""
    for line in lines:
        try:
            record = decode_record(line)
        except BadInput:
            continue
        if (since is None or record.time >= since) and (until is None or record.time <= until):
            yield record

"""Processes that record and are killed with -9 at a random moment, and what is read of what they wrote.

python -m support.killed_recorder FOLDER TIMES
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path
from random import Random

from msgspec.structs import replace

from dovetail.disruption.situation import Situation
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.decision_log import run_inline
from dovetail.runtime.recording import RecordingOptions, RecordingWriter
from dovetail.runtime.recording_folder import RecordingFolder, list_segments, read_recording
from dovetail.scheduling.model.plan import Plan
from support.recordings import different_looks, strip

__all__ = ["kill_and_read"]

KEYFRAME = timedelta(milliseconds=40)


def make_look(seen: list[Situation], number: int) -> Situation:
    return replace(seen[number % len(seen)], unseen=frozenset((str(number),)))


async def record(folder: Path, seen: list[Situation], told: int) -> None:
    """Write looks until killed, and tell of each that is written."""
    writer = RecordingWriter(
        RecordingFolder(folder, run_inline), SystemClock(), run_inline, RecordingOptions(keyframe=KEYFRAME)
    )
    writer.begin_term("cluster")
    task = asyncio.create_task(writer.run())
    number = 0
    while not task.done():
        writer.note_plan(make_look(seen, number), Plan())
        number += 1
        while writer.written < number:  # noqa: ASYNC110 (as soon as can be)
            await asyncio.sleep(0)
        os.write(told, b".")


def kill_and_read(folder: Path, seen: list[Situation], chance: Random) -> Counter[str]:
    """Let a process record, kill it, and hold what can be read to what it said it had written."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reads)
        try:
            asyncio.run(record(folder, seen, writes))
        finally:
            os._exit(1)
    os.close(writes)
    os.read(reads, 1)  # it is at work
    time.sleep(chance.random() * 0.3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    told = 1
    while more := os.read(reads, 1 << 16):
        told += len(more)
    os.close(reads)
    reader = read_recording(str(folder))
    looks = list(reader.looks())
    assert len(looks) >= told, f"{told} looks were written, {len(looks)} are read"
    assert len(looks) <= told + 1, "more looks are read than were made"
    for number, look in enumerate(looks):
        assert look.situation == strip(make_look(seen, number)), f"look {number} is another"
    gaps, files = reader.list_gaps(), list_segments(folder)
    begun = len(files) - len(reader.segments)
    # Killed while it began a segment, it leaves a file without a look; between two, the last one has its end.
    assert begun <= 1, reader.troubles
    assert len(reader.troubles) == begun
    last = reader.segments[-1]
    assert len(gaps) == bool(last.torn), gaps
    assert all("what follows is missing" in gap.why for gap in gaps)
    assert last.torn or last.end is not None
    return Counter(looks=len(looks), segments=len(files), begun=begun, torn=bool(last.torn))


if __name__ == "__main__":
    found, seen, chance = Counter[str](), different_looks(5, 12), Random(19)
    for number in range(int(sys.argv[2])):
        found += kill_and_read(Path(sys.argv[1]) / str(number), seen, chance)
    print(dict(found))

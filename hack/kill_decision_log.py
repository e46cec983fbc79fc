"""Write a decision log by processes that are killed with -9, one after another, and check what is left.

    python hack/kill_decision_log.py --records 100000 --kills 50

After some of the kills the end of the file is cut off as well, as it is when a machine loses its power before
the last lines reached the disk. The log must name every gap and hold no half line, whatever was lost.
"""

from __future__ import annotations

import argparse
import asyncio
import mmap
import os
import signal
import struct
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from random import Random

from dovetail.app.decision_log import check_log, read_log
from dovetail.history.record import DecisionRecord, RecordDraft, RecordIds, RecordKind, stamp_record
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.decision_log import DecisionLog, LogLane
from dovetail.runtime.file_log import FileLog

CLUSTER = "6f1c2ab0-1111-4222-8333-444455556666"
# So many records at once, so often: 4,000 a second.
BURST, PAUSE = 40, 0.01


async def write_until_killed(folder: Path, number: int, noted: mmap.mmap) -> None:
    """Lead the term of this number, and count every record that was noted."""
    clock, ids = SystemClock(), RecordIds(CLUSTER)
    log = DecisionLog(
        [LogLane(FileLog(folder, timedelta(days=30), clock, asyncio.to_thread), clock, asyncio.to_thread)]
    )

    def stamp(kind: RecordKind, subject: str) -> DecisionRecord:
        now = clock.now()
        draft = RecordDraft(kind=kind, subject=subject, message="lived 4h12m, cost $0.81", pool="default")
        return stamp_record(draft, ids.make_id(now), now, f"leader-{number}")

    writers = [asyncio.ensure_future(service()) for service in log.services]
    log.note_record(stamp(RecordKind.TERM_BEGAN, f"log/leader-{number}"))
    while not any(writer.done() for writer in writers):
        for _ in range(BURST):
            (count,) = struct.unpack("<Q", noted[:8])
            log.note_record(stamp(RecordKind.NODE_GONE, f"node/ip-10-0-{number}-{count}"))
            noted[:8] = struct.pack("<Q", count + 1)
        await asyncio.sleep(PAUSE)


def live_and_die(folder: Path, number: int, noted: mmap.mmap, seconds: float, least: int) -> None:
    """A process that writes until it is killed: after that long, and not before it noted that many."""
    child = os.fork()
    if child == 0:
        asyncio.run(write_until_killed(folder, number, noted))
        os._exit(1)
    begun, (before,) = time.monotonic(), struct.unpack("<Q", noted[:8])
    while time.monotonic() - begun < seconds or struct.unpack("<Q", noted[:8])[0] - before < least:
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL, f"the writer ended by itself: {status}"


def cut_end(folder: Path, chance: Random) -> bool:
    """Lose what had not reached the disk, in the middle of a line most of the time."""
    last = max(folder.glob("*.jsonl"), default=None)
    if last is None or chance.random() < 0.5:
        return False
    size = last.stat().st_size
    os.truncate(last, max(0, size - chance.randrange(1, 4000)))
    return True


def main() -> int:
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--records", type=int, default=100_000)
    reading.add_argument("--kills", type=int, default=50)
    reading.add_argument("--seed", type=int, default=19)
    given = reading.parse_args()
    chance, cuts = Random(given.seed), 0
    noted = mmap.mmap(-1, 8)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for number in range(given.kills):
            live_and_die(folder, number, noted, chance.uniform(0.2, 2.5), given.records // given.kills)
            cuts += cut_end(folder, chance)
        # The last term begins after the last kill and ends as it should: what was lost is declared by then.
        last = os.fork()
        if last == 0:
            asyncio.run(lead_last_term(folder, given.kills))
            os._exit(0)
        assert os.waitpid(last, 0)[1] == 0, "the last writer failed"
        report = check_log(str(folder))
        (count,) = struct.unpack("<Q", noted[:8])
        kept = sum(record.kind is RecordKind.NODE_GONE for record in read_log(str(folder)))
        torn = sum(not file.read_bytes().endswith(b"\n") for file in folder.glob("*.jsonl"))
    print(
        f"{count:,} records noted, {kept:,} kept, {given.kills} kills, {cuts} ends cut off: "
        f"{report.terms} terms, {report.unlinked_terms} unlinked, {torn} torn lines; "
        f"{report.fault or 'no fault'}"
    )
    return int(bool(report.fault or torn or report.unlinked_terms or not kept))


async def lead_last_term(folder: Path, number: int) -> None:
    """A term that begins, is written, and ends."""
    task = asyncio.ensure_future(write_until_killed(folder, number, mmap.mmap(-1, 8)))
    await asyncio.sleep(2.5)
    task.cancel()
    others = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


if __name__ == "__main__":
    sys.exit(main())

"""Where a recording cannot be written: decisions go on, one warning, a metric, and a gap that is told."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dovetail import metrics
from dovetail.app.recordings import open_recording
from dovetail.cli import recording as command
from dovetail.history.recording.reader import RecordingReader
from dovetail.providers.aws.recording import PART_SECONDS, RecordingBucket
from dovetail.runtime.decision_log import run_inline
from dovetail.runtime.recording import RecordingOptions, RecordingWriter
from dovetail.runtime.recording_folder import read_recording
from dovetail.scheduling.model.plan import Plan
from dovetail.settings.recording import parse_recording_place
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock, run_virtual
from support.commands import dovetail
from support.log_lines import log_lines
from support.recordings import different_looks, strip

ROOT = Path(__file__).parents[2]
STORY = ROOT / "examples" / "scenarios" / "inflate.yaml"
TROUBLE, AGAIN = "the recording cannot be written; decisions go on", "the recording is written again"
PLACE = "s3://tape/prod"
SEEN = different_looks(5, 30)


@dataclass(frozen=True)
class Played:
    """How a story went: its report, the looks that were counted, and what was said of the recording."""

    report: Any
    looks: dict[str, float]
    said: list[str]


def play(folder: Path | None, most: int) -> Played:
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    env = {**os.environ, "PYTHONPATH": paths}
    arguments = [str(STORY), str(folder or ""), str(most)]
    done = subprocess.run(
        [sys.executable, "-m", "support.full_disk", *arguments],
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    said = [line["message"] for line in lines if "recording" in line["message"]]
    return Played(told["report"], told["looks"], said)


@pytest.mark.spec("TA-5")
def test_a_full_disk_costs_nothing_but_the_recording(tmp_path: Path) -> None:
    free, full = play(None, 1 << 30), play(tmp_path / "full", 4096)
    assert full.report == free.report
    assert full.said == [TROUBLE]
    assert full.looks["failed"] >= 5
    assert full.looks["written"] == 0
    # A segment without its first look would say nothing.
    assert list((tmp_path / "full").iterdir()) == []


@pytest.mark.spec("TA-5")
def test_a_disk_that_has_room_again_has_a_gap_on_the_recording(tmp_path: Path) -> None:
    # The first file cannot grow beyond this, and the next has room of its own.
    found = play(tmp_path / "tight", 15_500)
    assert found.looks["failed"] >= 1
    assert found.said == [TROUBLE, AGAIN] * (len(found.said) // 2)
    reader = read_recording(str(tmp_path / "tight"))
    looks = list(reader.looks())
    assert len(looks) == found.looks["written"]
    torn = [gap for gap in reader.list_gaps() if "looks; what follows until" in gap.why]
    assert len(torn) == len(found.said) // 2 >= 1
    assert reader.troubles == []
    told = dovetail("recording", "info", str(tmp_path / "tight"))
    assert (told.code, "what follows until" in told.err) == (1, True)


class InBucket:
    """A recording in an embedded S3, written in virtual time."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.aws = SimulatedAws(self.clock)
        self.kept = self.aws.add_bucket("tape")
        self.writer = RecordingWriter(
            RecordingBucket(self.aws, parse_recording_place(PLACE), self.clock),
            self.clock,
            run_inline,
            RecordingOptions(identity="leader-1"),
        )

    async def note_all(self, first: int, last: int, every: float = 10.0) -> None:
        for situation in SEEN[first:last]:
            before = self.clock.monotonic()
            self.writer.note_plan(situation, Plan())
            assert self.clock.monotonic() == before, "a decision waits for nobody"
            await asyncio.sleep(every)

    async def stop(self, task: asyncio.Task[None]) -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def read_bucket(aws: SimulatedAws) -> tuple[RecordingReader, list[Any]]:
    with open_recording(PLACE, aws) as reader:
        return reader, [look.situation for look in reader.looks()]


def count_failed() -> float:
    name = "dovetail_recording_looks_total"
    return metrics.REGISTRY.get_sample_value(name, {"result": "failed"}) or 0.0


@pytest.mark.spec("TA-5")
def test_a_bucket_that_refuses_costs_a_gap_and_one_warning() -> None:
    bucket, before = InBucket(), count_failed()

    async def run() -> None:
        bucket.writer.begin_term("cluster")
        task = asyncio.create_task(bucket.writer.run())
        await bucket.note_all(0, 5)
        bucket.aws.faults.refuse("AccessDenied", "s3:PutObject", None, status=403)
        # The part that is due meets the refusal, and so does every try after it.
        await asyncio.sleep(PART_SECONDS)
        await bucket.note_all(5, 15, 60.0)
        bucket.aws.faults.clear()
        await asyncio.sleep(400)
        await bucket.note_all(15, 30)
        await bucket.stop(task)

    with log_lines() as said:
        run_virtual(run())
        lines = [line for line in said() if "recording" in line["message"]]
    assert [line["message"] for line in lines] == [TROUBLE, AGAIN]
    assert lines[0]["level"] == "WARN"
    assert "AccessDenied" in lines[0]["error"]
    assert count_failed() - before >= 5
    reader, found = read_bucket(bucket.aws)
    assert found[0] == strip(SEEN[0])
    assert found[-15:] == [strip(each) for each in SEEN[15:]]
    (gap,) = reader.list_gaps()
    assert "segment 1 ends after 1 looks; what follows until" in gap.why


@pytest.mark.spec("TA-5")
def test_a_recording_in_a_bucket_is_read_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = InBucket()

    async def run() -> None:
        bucket.writer.begin_term("cluster")
        task = asyncio.create_task(bucket.writer.run())
        await bucket.note_all(0, 30, 300.0)
        await bucket.stop(task)

    run_virtual(run())
    puts = [call for call in bucket.aws.calls if call.operation == "PutObject"]
    assert all(call.parameters["IfNoneMatch"] == "*" for call in puts)
    assert len({call.parameters["Key"] for call in puts}) == len(puts) == len(bucket.kept)
    assert all(key.startswith("prod/2026") for key in bucket.kept)
    reader, found = read_bucket(bucket.aws)
    assert found == [strip(each) for each in SEEN]
    assert (reader.troubles, reader.list_gaps()) == ([], [])
    assert len(reader.segments) == 3

    monkeypatch.setattr(command, "open_recording", lambda place: open_recording(place, bucket.aws))
    told = dovetail("recording", "info", PLACE)
    assert told.code == 0, told.err
    assert "looks      30 in 3 segments\ndecisions  30\n" in told.out
    assert f"size       {sum(len(each.body) for each in bucket.kept.values()):,} bytes" in told.out
    none = dovetail("recording", "info", "s3://tape/none")
    assert (none.code, "there is none in it" in none.err) == (1, True)
    missing = dovetail("recording", "info", "s3://nowhere")
    assert missing.code != 0
    assert "Traceback" not in missing.err


@pytest.mark.spec("TA-5")
def test_a_part_whose_answer_was_lost_is_not_missed() -> None:
    bucket = InBucket()

    async def run() -> None:
        place = RecordingBucket(bucket.aws, parse_recording_place(PLACE), bucket.clock)
        await place.begin_segment("20260101T000000.000Z-aaaaaaaa")
        await place.append_bytes(b"first")
        again = RecordingBucket(bucket.aws, parse_recording_place(PLACE), bucket.clock)
        await again.begin_segment("20260101T000000.000Z-aaaaaaaa")
        await again.append_bytes(b"first")
        with pytest.raises(Exception, match="PreconditionFailed"):
            await _put_other(bucket)

    run_virtual(run())
    assert [each.body for each in bucket.kept.values()] == [b"first"]


async def _put_other(bucket: InBucket) -> None:
    place = RecordingBucket(bucket.aws, parse_recording_place(PLACE), bucket.clock)
    await place.begin_segment("20260101T000000.000Z-aaaaaaaa")
    await place.append_bytes(b"other")

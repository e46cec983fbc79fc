"""The writer of a recording: it never holds up a decision, and tells what it could not write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from dovetail import metrics
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import EMPTY
from dovetail.errors import Refused
from dovetail.history.recording.answers import name_method
from dovetail.history.recording.reader import RecordingReader
from dovetail.runtime.recording import RecordingOptions, RecordingWriter, name_segment, parse_segment_time
from dovetail.runtime.recording_folder import SUFFIX, RecordingFolder, read_recording
from dovetail.scheduling.model.plan import Plan
from dovetail.sim.clock import VirtualClock
from support.cluster import in_virtual_time
from support.decision_records import Stamping
from support.recordings import different_looks, random_looks, read_back, strip

R = TypeVar("R")


async def at_once(work: Callable[[], R]) -> R:
    return work()


class MemoryPlace:
    """Segments in memory; it fails while it is told to."""

    def __init__(self) -> None:
        self.segments: dict[str, bytes] = {}
        self.fails: Exception | None = None
        self.full = False
        self.forgotten: list[Any] = []
        self._name = ""

    async def begin_segment(self, name: str) -> None:
        self._check()
        if self.full:
            raise OSError(28, "No space left on device")
        assert name not in self.segments, "segments are never overwritten"
        self.segments[name] = b""
        self._name = name

    async def append_bytes(self, data: bytes) -> None:
        if self.fails is not None:
            self.segments[self._name] += data[: len(data) // 2]
        self._check()
        self.segments[self._name] += data

    async def end_segment(self) -> None:
        self._check()

    async def forget_before(self, time: Any) -> None:
        self.forgotten.append(time)

    def _check(self) -> None:
        if self.fails is not None:
            raise self.fails

    def read(self) -> RecordingReader:
        return read_back(self.segments.values())


def count_looks(result: str) -> float:
    return metrics.REGISTRY.get_sample_value("dovetail_recording_looks_total", {"result": result}) or 0.0


class Writing:
    """A writer that runs in virtual time."""

    def __init__(self, place: MemoryPlace | None = None, in_thread: Any = at_once, **options: Any) -> None:
        self.clock, self.place = VirtualClock(), place or MemoryPlace()
        self.writer = RecordingWriter(
            self.place, self.clock, in_thread, RecordingOptions(identity="leader-1", **options)
        )
        self.writer.begin_term("6f1c2ab0-1111-4222-8333-444455556666")
        self._task = asyncio.create_task(self.writer.run())

    async def settle(self, seconds: float = 0.0) -> None:
        await self.clock.sleep(seconds)
        for _ in range(50):
            await asyncio.sleep(0)

    async def stop(self) -> RecordingReader:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        return self.place.read()


# Each differs from the one before.
SEEN = different_looks(5, 30)


@in_virtual_time
async def test_what_was_decided_stands_beside_what_was_seen() -> None:
    writing = Writing()
    plan = Plan(unschedulable={"default/a": "no room"}, timed_out=True)
    writing.writer.note_plan(SEEN[0], plan)
    choice = DisruptionChoice(allowance=None)  # type: ignore[arg-type]
    writing.writer.note_choice(SEEN[0], name_method(EMPTY), choice, timed_out=False)
    writing.writer.note_record(Stamping()(message="it went"))
    await writing.settle()
    (look,) = (await writing.stop()).looks()

    assert look.situation == strip(SEEN[0])
    assert [(each.question, each.timed_out) for each in look.decisions] == [
        ("plan", True),
        ("Empty/empty", False),
    ]
    assert look.decisions[0].answer.unschedulable == {"default/a": "no room"}
    assert [record.message for record in look.records] == ["it went"]
    assert len(look.digest) == 32


@in_virtual_time
async def test_a_decision_on_a_situation_that_is_written_already_adds_no_look() -> None:
    writing = Writing()
    for _ in range(3):
        writing.writer.note_plan(SEEN[0], Plan())
        await writing.settle(1)
    (look,) = (await writing.stop()).looks()
    assert len(look.decisions) == 3


@in_virtual_time
async def test_a_decision_is_written_though_its_situation_differs_in_nothing() -> None:
    writing = Writing()
    writing.writer.note_look(SEEN[0])
    await writing.settle(10)
    writing.writer.note_plan(strip(SEEN[0]), Plan())
    await writing.settle(10)
    looks = list(writing.place.read().looks())
    assert [len(look.decisions) for look in looks] == [0, 1]
    await writing.stop()


@in_virtual_time
async def test_a_look_that_differs_in_nothing_is_left_out() -> None:
    writing, before = Writing(), count_looks("same")
    for situation in (SEEN[0], strip(SEEN[0]), SEEN[1]):
        writing.writer.note_look(situation)
        await writing.settle(10)
    assert len(list((await writing.stop()).looks())) == 2
    assert count_looks("same") - before == 1


@in_virtual_time
async def test_that_nothing_differs_is_confirmed_once_in_a_while() -> None:
    """Who is killed then leaves a gap no longer than that, however calm the cluster was."""
    writing = Writing(confirm=timedelta(seconds=30))
    for _ in range(8):
        writing.writer.note_look(strip(SEEN[0]))
        await writing.settle(10)
    looks = list(writing.place.read().looks())
    began = looks[0].at
    assert [(look.at - began).total_seconds() for look in looks] == [0, 30, 60]
    assert all(look.situation == looks[0].situation for look in looks)
    await writing.stop()


@in_virtual_time
async def test_a_segment_lasts_until_its_keyframe_is_due_and_the_next_follows_it() -> None:
    writing = Writing(keyframe=timedelta(hours=1), keep=timedelta(hours=2))
    for situation in SEEN[:12]:
        writing.writer.note_look(situation)
        await writing.settle(1000)
    reader = await writing.stop()
    assert len(list(reader.looks())) == 12
    assert [segment.looks for segment in reader.segments] == [4, 4, 4]
    assert reader.list_gaps() == []
    assert len(writing.place.forgotten) == 3


@pytest.mark.spec("TA-5")
@in_virtual_time
async def test_a_place_that_fails_costs_a_gap_and_one_warning(caplog: Any) -> None:
    writing = Writing()
    failed = count_looks("failed")
    writing.writer.note_look(SEEN[0])
    await writing.settle(10)
    writing.place.fails = OSError(28, "No space left on device")
    for situation in SEEN[1:9]:
        writing.writer.note_look(situation)
        await writing.settle(10)
    assert count_looks("failed") - failed >= 2
    writing.place.fails = None
    await writing.settle(400)
    for situation in SEEN[9:12]:
        writing.writer.note_look(situation)
        await writing.settle(10)
    reader = await writing.stop()
    found = [look.situation for look in reader.looks()]
    assert found[0] == strip(SEEN[0])
    assert found[-3:] == [strip(each) for each in SEEN[9:12]]
    (gap,) = reader.list_gaps()
    assert "segment 1 ends after 1 looks; what follows until" in gap.why


@pytest.mark.spec("TA-5")
@in_virtual_time
async def test_what_is_missing_between_two_whole_segments_is_told() -> None:
    """The first ended as it should; the next could not even be begun, and left nothing behind."""
    writing = Writing(keyframe=timedelta(hours=1))
    writing.writer.note_look(SEEN[0])
    await writing.settle(3600)
    writing.place.full = True
    writing.writer.note_look(SEEN[1])
    await writing.settle(10)
    writing.place.full = False
    writing.writer.note_look(SEEN[2])
    await writing.settle(10)
    reader = await writing.stop()
    assert [look.situation for look in reader.looks()] == [strip(SEEN[0]), strip(SEEN[2])]
    assert [gap.why for gap in reader.list_gaps()] == ["writing began anew"]


@pytest.mark.spec("TA-5")
@in_virtual_time
async def test_a_bucket_that_refuses_does_not_fill_memory() -> None:
    writing = Writing()
    writing.place.fails = Refused("s3:PutObject is not allowed")
    most = 0
    for number in range(600):
        seen = replace(SEEN[number % len(SEEN)], unseen=frozenset((f"of {number}",)))
        writing.writer.note_plan(seen, Plan())
        await writing.settle(0.5)
        most = max(most, len(writing.writer._waiting))
    assert most == 64
    assert writing.writer.measure_behind() < 600
    await writing.stop()


@in_virtual_time
async def test_looks_without_a_decision_are_dropped_when_writing_falls_behind() -> None:
    gate = asyncio.Event()

    async def slowly(work: Callable[[], R]) -> R:
        await gate.wait()
        return work()

    writing = Writing(in_thread=slowly)
    before = count_looks("dropped")
    writing.writer.note_look(SEEN[0])
    await writing.settle(1)
    for number, situation in enumerate(SEEN[1:11]):
        writing.writer.note_look(situation)
        if number % 5 == 0:
            writing.writer.note_plan(situation, Plan())
        await writing.settle(1)
    assert writing.writer.measure_behind() == pytest.approx(11)
    gate.set()
    await writing.settle(1)
    reader = await writing.stop()
    looks = list(reader.looks())
    kept = [look for look in looks if look.decisions]
    assert [look.situation for look in kept] == [strip(SEEN[1]), strip(SEEN[6])]
    dropped = [each for look in looks for each in look.dropped]
    assert sum(each.looks for each in dropped) == count_looks("dropped") - before == 11 - len(looks)
    assert writing.writer.measure_behind() == 0.0


@pytest.mark.spec("TA-3")
@in_virtual_time
async def test_a_process_that_is_told_to_stop_while_it_writes_leaves_a_whole_segment() -> None:
    async def slowly(work: Callable[[], R]) -> R:
        made = work()
        await asyncio.sleep(1)
        return made

    writing = Writing(in_thread=slowly)
    writing.writer.note_plan(SEEN[0], Plan())
    writing.writer.note_plan(SEEN[1], Plan())
    await writing.settle(0.5)
    reader = await writing.stop()
    assert [look.situation for look in reader.looks()] == [strip(SEEN[0]), strip(SEEN[1])]
    assert reader.list_gaps() == []


@in_virtual_time
async def test_looks_are_taken_when_nothing_is_decided() -> None:
    writing = Writing(every=timedelta(seconds=10))
    asked: list[float] = []

    async def take() -> Any:
        asked.append(writing.clock.monotonic())
        return SEEN[len(asked)]

    looking = asyncio.create_task(writing.writer.take_looks(take))
    begun = writing.clock.monotonic()
    await writing.settle(25)
    writing.writer.note_plan(SEEN[20], Plan())
    await writing.settle(20)
    looking.cancel()
    await asyncio.gather(looking, return_exceptions=True)
    assert [round(at - begun) for at in asked] == [0, 10, 20, 35, 45]
    assert len(list((await writing.stop()).looks())) == 6


@in_virtual_time
async def test_who_does_not_lead_records_nothing() -> None:
    place, clock = MemoryPlace(), VirtualClock()
    writer = RecordingWriter(place, clock, at_once)
    writer.note_plan(SEEN[0], Plan())
    writer.note_record(Stamping()())
    assert not writer.recording
    assert not writer._waiting
    assert not writer._records


@in_virtual_time
async def test_another_leader_begins_a_segment_of_its_own_and_the_gap_is_told() -> None:
    place = MemoryPlace()
    first = Writing(place)
    first.writer.note_look(SEEN[0])
    await first.settle(60)
    await first.stop()
    second = RecordingWriter(place, first.clock, at_once, RecordingOptions(identity="leader-2"))
    second.begin_term("6f1c2ab0-1111-4222-8333-444455556666")
    task = asyncio.create_task(second.run())
    second.note_look(SEEN[1])
    await first.settle(1)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    reader = place.read()
    assert len(list(reader.looks())) == 2
    assert [gap.why for gap in reader.list_gaps()] == ["another leader began"]


async def test_a_segment_in_a_folder_is_never_overwritten(tmp_path: Path) -> None:
    folder = RecordingFolder(tmp_path / "recording", at_once)
    name = name_segment(random_looks(1)[0][0], "a")
    await folder.begin_segment(name)
    await folder.append_bytes(b"kept")
    await folder.end_segment()
    with pytest.raises(FileExistsError):
        await folder.begin_segment(name)
    assert (tmp_path / "recording" / f"{name}{SUFFIX}").read_bytes() == b"kept"


async def test_a_folder_keeps_segments_as_long_as_it_should(tmp_path: Path) -> None:
    folder = RecordingFolder(tmp_path / "recording", at_once)
    start = random_looks(1)[0][0]
    for hours in range(4):
        await folder.begin_segment(name_segment(start + timedelta(hours=hours), "a"))
        await folder.append_bytes(b"x")
        await folder.end_segment()
    await folder.forget_before(start + timedelta(hours=1, minutes=30))
    names = sorted(path.name for path in (tmp_path / "recording").iterdir())
    assert [parse_segment_time(name) for name in names] == [
        start + timedelta(hours=hours) for hours in (1, 2, 3)
    ]
    assert all(name.endswith(SUFFIX) for name in names)
    assert (tmp_path / "recording" / names[0]).stat().st_mode & 0o777 == 0o600
    assert read_recording(str(tmp_path / "recording")).troubles != []

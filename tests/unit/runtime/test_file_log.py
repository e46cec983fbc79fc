"""A decision log in a folder: hours, compression, age, and what a writer does about what it finds."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
from datetime import timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from dovetail.app.decision_log import check_log, read_log
from dovetail.errors import BadInput
from dovetail.history.record import RecordKind, decode_record
from dovetail.sim.clock import VirtualClock
from support.decision_logs import build_file_lane, lead, virtual
from support.log_lines import log_lines


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def lines_of(folder: Path) -> list[bytes]:
    return [line for path in files_of(folder) for line in path.read_bytes().splitlines()]


@virtual
async def test_records_are_on_their_way_to_the_disk_within_a_second(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with lead([build_file_lane(tmp_path, clock)], clock) as writer:
        await asyncio.sleep(0.5)
        writer.note(3)
        await asyncio.sleep(1.1)
        assert [decode_record(line).kind for line in lines_of(tmp_path)] == [
            RecordKind.TERM_BEGAN,
            *[RecordKind.NODE_GONE] * 3,
        ]


@virtual
async def test_lines_are_synced_each_ten_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, synced, real = VirtualClock(), list[float](), os.fsync

    def sync(file: int) -> None:
        synced.append(clock.monotonic())
        real(file)

    monkeypatch.setattr(os, "fsync", sync)
    async with lead([build_file_lane(tmp_path, clock)], clock) as writer:
        await asyncio.sleep(1)
        synced.clear()
        for _ in range(30):
            writer.note()
            await asyncio.sleep(1)
        assert len(synced) == 3
        assert [round(b - a) for a, b in pairwise(synced)] in ([10, 10], [11, 11])


@virtual
async def test_an_hour_is_a_file_and_closed_ones_are_compressed(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with lead([build_file_lane(tmp_path, clock)], clock) as writer:
        for _ in range(30):
            writer.note(2)
            await asyncio.sleep(600)
        await asyncio.sleep(1)
        assert sorted(os.listdir(tmp_path)) == [
            *(f"decisions-20260101-{hour:02d}.jsonl.gz" for hour in range(5)),
        ]
        writer.note()
    assert sorted(os.listdir(tmp_path))[-1] == "decisions-20260101-05.jsonl"
    report = check_log(str(tmp_path))
    assert (report.parts, report.records, report.terms, report.fault) == (6, 62, 1, "")
    assert len(list(read_log(str(tmp_path)))) == 62
    since = clock.now() - timedelta(hours=1)
    assert len(list(read_log(str(tmp_path), since))) == 11


@virtual
async def test_files_are_deleted_when_they_are_old(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with lead([build_file_lane(tmp_path, clock, timedelta(hours=3))], clock) as writer:
        for _ in range(60):
            writer.note()
            await asyncio.sleep(600)
        await asyncio.sleep(1)
    assert sorted(os.listdir(tmp_path)) == [f"decisions-20260101-0{hour}.jsonl.gz" for hour in (6, 7, 8, 9)]
    assert check_log(str(tmp_path)).fault == ""


@virtual
async def test_half_a_line_of_a_killed_writer_is_cut_off(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with lead([build_file_lane(tmp_path, clock)], clock) as writer:
        writer.note(5)
    (file,) = files_of(tmp_path)
    file.write_bytes(file.read_bytes() + b'{"id":"0123","kind":"Node')
    assert "ends in the middle of a record" in check_log(str(tmp_path)).fault
    async with lead([build_file_lane(tmp_path, clock)], clock, "b") as writer:
        writer.note(5)
    report = check_log(str(tmp_path))
    assert (report.records, report.terms, report.unlinked_terms, report.fault) == (12, 2, 0, "")


@virtual
async def test_a_clock_that_was_set_back_does_not_make_the_log_go_back(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with lead([build_file_lane(tmp_path, clock)], clock) as writer:
        for _ in range(3):
            writer.note()
            await asyncio.sleep(3600)
    clock.skew = -timedelta(hours=2)
    async with lead([build_file_lane(tmp_path, clock)], clock, "b") as writer:
        writer.note(5)
        await asyncio.sleep(2)
    report = check_log(str(tmp_path))
    assert (report.records, report.terms, report.fault) == (10, 2, "")


@virtual
async def test_what_was_broken_off_while_it_was_compressed_is_taken_up(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with lead([build_file_lane(tmp_path, clock)], clock) as writer:
        writer.note(5)
    (file,) = files_of(tmp_path)
    # Killed before the rename, in an earlier hour; and after it, before the plain file was deleted.
    (tmp_path / f"{file.name}.gz.part").write_bytes(gzip.compress(file.read_bytes())[:20])
    assert check_log(str(tmp_path)).fault == ""
    (tmp_path / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert check_log(str(tmp_path)).records == 6
    clock.skew = timedelta(hours=1)
    async with lead([build_file_lane(tmp_path, clock)], clock, "b") as writer:
        writer.note()
        await asyncio.sleep(2)
    assert sorted(os.listdir(tmp_path)) == ["decisions-20260101-00.jsonl.gz", "decisions-20260101-01.jsonl"]
    report = check_log(str(tmp_path))
    assert (report.records, report.terms, report.fault) == (8, 2, "")


@virtual
async def test_a_full_disk_is_survived_and_no_half_line_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, real, full = VirtualClock(), os.write, False

    def write(fd: int, data: memoryview) -> int:
        if full and len(data) > 30:
            real(fd, bytes(data[:30]))
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data)

    monkeypatch.setattr(os, "write", write)
    lane = build_file_lane(tmp_path, clock)
    async with lead([lane], clock) as writer:
        await asyncio.sleep(2)
        full = True
        for _ in range(100):
            writer.note()
            await asyncio.sleep(1)
        assert lane.measure_behind() > 90
        full = False
        await asyncio.sleep(70)
        assert lane.measure_behind() == 0
    report = check_log(str(tmp_path))
    assert (report.records, report.declared_gaps, report.fault) == (101, 0, "")


@virtual
async def test_a_folder_that_cannot_be_written_is_one_warning_and_written_once_it_can_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock, place = VirtualClock(), tmp_path / "log"
    place.write_text("not a folder")
    lane = build_file_lane(place, clock)
    async with lead([lane], clock) as writer:
        for _ in range(300):
            writer.note()
            await asyncio.sleep(1)
        assert lane.measure_behind() == pytest.approx(300)
        assert len(caplog.records) == 1
        assert "cannot be written" in str(caplog.records[0].msg)
        place.unlink()
        await asyncio.sleep(70)
    report = check_log(str(place))
    assert (report.records, report.fault) == (301, "")


@virtual
async def test_who_lost_the_lease_writes_nothing_more(tmp_path: Path) -> None:
    clock, leading = VirtualClock(), True
    async with lead([build_file_lane(tmp_path, clock)], clock, lasts=lambda: leading) as writer:
        writer.note(3)
        await asyncio.sleep(2)
        leading = False
        writer.note(3)
        await asyncio.sleep(2)
    assert check_log(str(tmp_path)).records == 4


def test_a_folder_without_a_log_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no decision log in it; it is written with DECISION_LOG=file"):
        check_log(str(tmp_path))
    with pytest.raises(BadInput, match="there is no such folder"):
        list(read_log(str(tmp_path / "none")))


@virtual
async def test_a_log_of_a_folder_that_is_not_there_yet_is_read_back_without_a_word(tmp_path: Path) -> None:
    clock = VirtualClock()
    with log_lines() as lines:
        found = await build_file_lane(tmp_path / "new", clock).read_back(timedelta(hours=1), 100)
        assert not lines()
    assert found == []

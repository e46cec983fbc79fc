"""The decision log of leaders in turn, in a folder and in S3: complete, or it says what is missing."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path

import pytest

from dovetail.app.decision_log import check_log, read_log
from dovetail.aws import FencedAws
from dovetail.history.record import RecordKind
from dovetail.providers.aws.decision_log import LogBucket, S3Log, name_log_folder
from dovetail.runtime.decision_log import LogLane, run_inline
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock, run_virtual
from support.decision_logs import LogWriter, build_file_lane, build_lane, lead, virtual

PLACE, FOLDER = "s3://trail/prod", "prod/cluster-1/"


def build_s3_lane(aws: SimulatedAws, clock: VirtualClock) -> LogLane:
    fenced = FencedAws(aws, lambda: True)
    return build_lane(S3Log(LogBucket(fenced, "trail", FOLDER), clock, run_inline), clock)


def build_world() -> tuple[VirtualClock, SimulatedAws]:
    clock = VirtualClock()
    return clock, SimulatedAws(clock)


def list_files(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


async def write_steadily(writer: LogWriter, seconds: int, every: int = 10) -> None:
    for _ in range(0, seconds, every):
        writer.note()
        await asyncio.sleep(every)


@pytest.mark.spec("NO-3")
def test_two_leaders_in_turn_give_one_chain_with_two_terms_and_overwrite_nothing() -> None:
    clock, aws = build_world()
    kept = aws.add_bucket("trail")

    async def play() -> None:
        async with lead([build_s3_lane(aws, clock)], clock, "a") as writer:
            await write_steadily(writer, 1800)
        # The second stands up in the same minute; the third has a clock that is five minutes behind.
        async with lead([build_s3_lane(aws, clock)], clock, "b") as writer:
            await write_steadily(writer, 600)
        clock.skew -= 5 * (clock.now() - clock.now().replace(minute=clock.now().minute - 1))
        async with lead([build_s3_lane(aws, clock)], clock, "c") as writer:
            await write_steadily(writer, 600)

    run_virtual(play())
    report = check_log(PLACE, aws=aws)
    assert report.fault == ""
    assert (report.terms, report.unlinked_terms, report.declared_gaps) == (3, 0, 0)
    assert report.records == 3 + 180 + 60 + 60
    puts = [call for call in aws.calls if call.operation == "PutObject"]
    assert all(call.parameters["IfNoneMatch"] == "*" and not call.code for call in puts)
    assert len({call.parameters["Key"] for call in puts}) == len(puts) == len(kept) == report.parts
    assert all(key.startswith("prod/cluster-1/2026/01/01/00-") for key in kept)
    assert [record.by for record in read_log(PLACE, aws=aws) if record.kind is RecordKind.TERM_BEGAN] == [
        *("a", "b", "c"),
    ]


@pytest.mark.spec("NO-3")
def test_parts_are_of_five_minutes_or_four_mebibytes() -> None:
    clock, aws = build_world()
    kept = aws.add_bucket("trail")

    async def play() -> None:
        async with lead([build_s3_lane(aws, clock)], clock) as writer:
            await write_steadily(writer, 3600)
            assert len(kept) in (12, 13)
            before = len(kept)
            writer.note(12_000, "x" * 400)
            await asyncio.sleep(1)
            assert len(kept) - before == 1

    run_virtual(play())
    sizes = [len(gzip.decompress(each.body)) for each in kept.values()]
    assert max(sizes) < 6 * 2**20
    assert check_log(PLACE, aws=aws).fault == ""


@pytest.mark.spec("NO-4")
def test_s3_away_for_two_hours_is_a_declared_gap_and_holds_up_nothing() -> None:
    clock, aws = build_world()
    aws.add_bucket("trail")
    lane = build_s3_lane(aws, clock)
    most = 0

    async def play() -> None:
        nonlocal most
        async with lead([lane], clock) as writer:
            await write_steadily(writer, 1200)
            aws.faults.refuse("ServiceUnavailable", "s3:*", None)
            for _ in range(720):
                before = clock.monotonic()
                writer.note(20, "y" * 300)
                assert clock.monotonic() == before
                most = max(most, lane.waiting_bytes)
                await asyncio.sleep(10)
            assert lane.measure_behind() > 7000
            assert lane.dropped > 0
            aws.faults.clear()
            await write_steadily(writer, 600)
            assert (lane.measure_behind() < 310, lane.dropped) == (True, 0)

    run_virtual(play())
    assert 0 < most <= 16 * 2**20
    report = check_log(PLACE, aws=aws)
    assert (report.fault, report.terms) == ("", 1)
    gaps = [record for record in read_log(PLACE, aws=aws) if record.kind is RecordKind.LOG_GAP]
    assert len(gaps) == report.declared_gaps >= 1
    noted = 120 + 720 * 20 + 60
    assert report.records - 1 - len(gaps) + sum(gap.gap_to - gap.gap_from + 1 for gap in gaps) == noted


@pytest.mark.spec("NO-4")
def test_memory_is_bounded_however_much_is_decided_while_a_log_is_away() -> None:
    clock, aws = build_world()
    aws.add_bucket("trail")
    lane = build_s3_lane(aws, clock)

    async def play() -> None:
        async with lead([lane], clock) as writer:
            aws.faults.refuse("ServiceUnavailable", "s3:*", None)
            for _ in range(30):
                writer.note(1000, "z" * 700)
                assert lane.waiting_bytes <= 16 * 2**20
                await asyncio.sleep(1)
            aws.faults.clear()
            await asyncio.sleep(100)

    run_virtual(play())
    report = check_log(PLACE, aws=aws)
    assert (report.fault, report.declared_gaps) == ("", 1)


def test_a_put_whose_answer_was_lost_is_no_second_part() -> None:
    clock, aws = build_world()
    kept = aws.add_bucket("trail")

    async def play() -> None:
        async with lead([build_s3_lane(aws, clock)], clock) as writer:
            aws.faults.lose_answers("s3:PutObject", 1)
            await write_steadily(writer, 1200)

    run_virtual(play())
    report = check_log(PLACE, aws=aws)
    assert (report.fault, report.records, report.parts) == ("", 121, len(kept))


def test_somebody_elses_object_stays_and_ours_gets_the_next_number() -> None:
    clock, aws = build_world()
    kept = aws.add_bucket("trail")

    async def play() -> None:
        async with lead([build_s3_lane(aws, clock)], clock) as writer:
            await asyncio.sleep(1)
            (first,) = kept
            taken = first.replace("00-00", "00-05").replace("-1.jsonl", "-2.jsonl")
            await aws.call("s3", "PutObject", {"Bucket": "trail", "Key": taken, "Body": b"not ours"})
            await write_steadily(writer, 600)
            assert kept[taken].body == b"not ours"
            del kept[taken]

    run_virtual(play())
    report = check_log(PLACE, aws=aws)
    assert (report.fault, report.records) == ("", 61)


def test_a_bucket_that_is_refused_is_one_warning_and_decisions_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, aws = build_world()
    kept = aws.add_bucket("trail")
    lane = build_s3_lane(aws, clock)

    async def play() -> None:
        aws.faults.refuse("AccessDenied", "s3:PutObject", None)
        async with lead([lane], clock) as writer:
            await write_steadily(writer, 600)
            assert lane.measure_behind() >= 600
        assert kept == {}

    run_virtual(play())
    assert ["cannot be written" in str(each.msg) for each in caplog.records] == [True]


def test_who_may_write_and_not_read_goes_on_with_an_unlinked_term() -> None:
    clock, aws = build_world()
    aws.add_bucket("trail")

    async def play() -> None:
        for operation in ("s3:GetObject", "s3:ListObjectsV2"):
            aws.faults.refuse("AccessDenied", operation, None)
        for leader in ("a", "b"):
            async with lead([build_s3_lane(aws, clock)], clock, leader) as writer:
                await write_steadily(writer, 20)
        aws.faults.clear()

    run_virtual(play())
    report = check_log(PLACE, aws=aws)
    assert (report.fault, report.terms, report.unlinked_terms, report.records) == ("", 2, 1, 6)


def test_logs_of_several_clusters_are_told_apart() -> None:
    from dovetail.errors import BadInput

    clock, aws = build_world()
    aws.add_bucket("trail")

    async def play() -> None:
        for cluster in ("blue", "green"):
            bucket = LogBucket(aws, "trail", name_log_folder("prod", cluster))
            async with lead([build_lane(S3Log(bucket, clock, run_inline), clock)], clock) as writer:
                writer.note(3)

    run_virtual(play())
    with pytest.raises(BadInput, match="logs of 2 clusters, such as blue, green; name one of them"):
        check_log(PLACE, aws=aws)
    assert check_log(f"{PLACE}/green", aws=aws).records == 4


@pytest.mark.spec("NO-2")
@virtual
async def test_a_change_in_any_file_is_found_and_the_file_is_named(tmp_path: Path) -> None:
    clock = VirtualClock()
    async with lead([build_file_lane(tmp_path, clock)], clock) as writer:
        await write_steadily(writer, 4 * 3600, 600)
        await asyncio.sleep(2)
    assert check_log(str(tmp_path)).fault == ""
    for file in list_files(tmp_path):
        whole = file.read_bytes()
        packed = file.name.endswith(".gz")
        lines = (gzip.decompress(whole) if packed else whole).splitlines(keepends=True)
        damaged = {
            "changed": [*lines[:2], lines[2].replace(b"4h12m", b"4h13m"), *lines[3:]],
            "dropped": [*lines[:2], *lines[3:]],
            "swapped": [lines[0], lines[2], lines[1], *lines[3:]],
        }
        for told, changed in damaged.items():
            text = b"".join(changed)
            file.write_bytes(gzip.compress(text) if packed else text)
            fault = check_log(str(tmp_path)).fault
            assert file.name in fault, (told, fault)
        if packed:
            file.write_bytes(whole[:40] + bytes([whole[40] ^ 1]) + whole[41:])
            assert file.name in check_log(str(tmp_path)).fault
            file.write_bytes(whole[:-9])
            assert f"{file.name}: it was changed or cut off" in check_log(str(tmp_path)).fault
        file.write_bytes(whole)
    head = check_log(str(tmp_path)).head
    last = list_files(tmp_path)[-1]
    (tmp_path / last.name).unlink()
    assert head in check_log(str(tmp_path), head).fault


@virtual
async def test_hostile_names_are_logged_and_read_as_they_are(tmp_path: Path) -> None:
    clock = VirtualClock()
    names = ['node/\x1b[2J<script>"', "node/a\nb\r\0", "node/\ud800", "node/" + "ü" * 5000, "node/\u202ex"]
    async with lead([build_file_lane(tmp_path, clock)], clock) as writer:
        for name in names:
            writer.log.note_record(writer.stamp(RecordKind.NODE_GONE, name, name))
        await asyncio.sleep(2)
    report = check_log(str(tmp_path))
    assert (report.records, report.fault) == (6, "")
    found = [record.subject for record in read_log(str(tmp_path))][1:]
    assert found[:2] == names[:2]
    assert found[3:] == names[3:]

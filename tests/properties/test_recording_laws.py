"""A recording gives back what was seen: every look, from any time, as far as its bytes are whole."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from dovetail.disruption.situation import digest_situation
from dovetail.errors import BadInput
from support.recordings import Look, random_looks, read_back, strip, unzip, write_segments

# All 500 with DOVETAIL_RECORDINGS=500; of these a sample is made again in every run.
SEEDS = range(int(os.environ.get("DOVETAIL_RECORDINGS", "40")))

GZIP_END = 12
"""What gzip puts after the last line: an end, a checksum and a length. The line has its own checksum."""


def check_looks(looks: list[Look], per_segment: int) -> None:
    reader = read_back(write_segments(looks, per_segment))
    found = list(reader.looks())
    assert [look.at for look in found] == [at for at, _ in looks]
    for look, (_, seen) in zip(found, looks, strict=True):
        assert look.situation == strip(seen)
        assert digest_situation(look.situation) == digest_situation(seen)
    assert [look.key for look in found] == [number % per_segment == 0 for number in range(len(looks))]
    assert reader.troubles == []
    assert reader.list_gaps() == []


@pytest.mark.spec("TA-1")
@pytest.mark.parametrize("seed", SEEDS)
def test_decoding_gives_the_looks_that_were_encoded(seed: int) -> None:
    looks = random_looks(seed)
    check_looks(looks, per_segment=1000)
    check_looks(looks, per_segment=3)


@pytest.mark.spec("TA-1")
@pytest.mark.parametrize("seed", SEEDS[:20])
def test_the_situation_at_any_time_is_that_of_the_last_look_before(seed: int) -> None:
    looks = random_looks(seed)
    reader = read_back(write_segments(looks, 3))
    for at, seen in Random(seed).sample(looks, 3):
        look = reader.at(at)
        assert look.at == at
        assert look.situation == strip(seen)
    with pytest.raises(BadInput, match="nothing is recorded before 20"):
        reader.at(looks[0][0].replace(year=2000))


@pytest.mark.spec("TA-1")
def test_a_part_of_the_time_is_read_without_the_rest() -> None:
    looks = random_looks(3, 12)
    reader = read_back(write_segments(looks, 3))
    found = [look.at for look in reader.looks(since=looks[4][0], until=looks[7][0])]
    assert found == [at for at, _ in looks[4:8]]


@pytest.mark.spec("TA-3")
@pytest.mark.parametrize("seed", SEEDS[:5])
def test_a_segment_cut_at_any_byte_is_read_as_far_as_it_is_whole(seed: int) -> None:
    looks = random_looks(seed, 5)
    (data,) = write_segments(looks)
    most = 0
    for cut in range(0, len(data), 1 if len(data) < 3000 else 7):
        reader = read_back([data[:cut]])
        found = list(reader.looks())
        assert [look.at for look in found] == [at for at, _ in looks[: len(found)]]
        assert len(found) >= most, "more bytes hold no fewer looks"
        most = len(found)
        if found:
            assert found[-1].situation == strip(looks[len(found) - 1][1])
        if reader.segments and reader.list_gaps():
            (gap,) = reader.list_gaps()
            assert f"segment 1 ends after {len(found)} looks; what follows is missing" in gap.why
        elif reader.segments:
            assert len(data) - cut <= GZIP_END, "all lines are whole, the last one too"
        else:
            assert reader.troubles == ["segment-0: it is no segment of a recording"]
    assert most == len(looks)


@pytest.mark.spec("TA-3")
def test_a_small_segment_cut_at_every_byte_is_read_as_far_as_it_is_whole() -> None:
    looks = random_looks(1, 3)
    data = write_segments(looks)[0]
    most = 0
    for cut in range(len(data) + 1):
        reader = read_back([data[:cut]])
        found = [look.situation for look in reader.looks()]
        assert found == [strip(seen) for _, seen in looks[: len(found)]], cut
        assert len(found) >= most, cut
        most = len(found)
        whole = bool(reader.segments) and not reader.list_gaps()
        assert not whole or len(data) - cut <= GZIP_END, cut
        assert whole or cut < len(data)
        assert reader.segments or reader.troubles, cut
    assert most == len(looks)


@pytest.mark.spec("TA-3")
def test_processes_killed_while_they_record_lose_no_look_that_was_written(tmp_path: Path) -> None:
    """More with DOVETAIL_RECORDINGS_KILLED."""
    times = os.environ.get("DOVETAIL_RECORDINGS_KILLED", "12")
    command = [sys.executable, "-m", "support.killed_recorder", str(tmp_path), times]
    root = Path(__file__).parents[2]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join((str(root / "src"), str(root / "tests")))}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.spec("TA-3")
@pytest.mark.parametrize("seed", SEEDS[:5])
def test_a_byte_that_was_changed_is_found_and_no_look_after_it_is_believed(seed: int) -> None:
    looks = random_looks(seed, 5)
    (data,) = write_segments(looks)
    for at in Random(seed).sample(range(10, len(data)), 60):
        broken = data[:at] + bytes((data[at] ^ 0x55,)) + data[at + 1 :]
        reader = read_back([broken])
        found = list(reader.looks())
        for look, (_, seen) in zip(found, looks, strict=False):
            assert look.situation == strip(seen)
        if not reader.list_gaps() and not reader.troubles:
            assert len(found) == len(looks), "what holds no line was changed"


def zip_lines(lines: list[bytes]) -> bytes:
    """The lines in gzip of their own, as somebody would put them back who edited them."""
    end = [lines.pop()] if b'{"end":' in lines[-1] else []
    return b"".join(gzip.compress(b"".join(part)) for part in (lines, end) if part)


@pytest.mark.spec("TA-3")
def test_a_line_that_was_taken_out_is_missed_by_the_digest() -> None:
    looks = random_looks(2, 4)
    lines = unzip(write_segments(looks)[0]).splitlines(keepends=True)
    whole, cut = zip_lines([*lines]), zip_lines([*lines[:-2], lines[-1]])
    for data, told in ((whole, ""), (cut, "its digest is another than it says")):
        reader = read_back([data])
        assert len(list(reader.looks())) == (4 if data is whole else 3)
        assert reader.segments[0].torn == told
    (gap,) = reader.list_gaps()
    assert "segment 1 ends after 3 of 4 looks" in gap.why


@pytest.mark.spec("TA-3")
def test_a_line_that_was_changed_is_not_believed_and_neither_is_what_follows() -> None:
    looks = random_looks(2, 4)
    lines = unzip(write_segments(looks)[0]).splitlines(keepends=True)
    lines[3] = lines[3].replace(b"2026", b"2027", 1)
    for kept in (lines, lines[:-1]):
        reader = read_back([zip_lines([*kept])])
        assert [look.at for look in reader.looks()] == [at for at, _ in looks[:2]]
        assert reader.segments[0].torn == "a line has another checksum than it says"

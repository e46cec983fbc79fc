"""Followers of a shadow as processes: what was recorded before comes first, and none outlives its shadow."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from dovetail.app.recordings import parse_target
from dovetail.disruption.situation import Situation
from dovetail.history.recording.segment import FORMAT, SegmentHead, SegmentWriter
from dovetail.history.shadow import ShadowReport
from dovetail.play.shadow_follower import FollowerProcess
from dovetail.play.shadow_run import ShadowOptions, catch_up
from dovetail.play.shadow_twins import DIFFERENCES, ShadowTwins, report_recording
from dovetail.runtime.recording_folder import SUFFIX
from support.builders import NOW
from support.disruption import LARGE, scene, state
from support.shadowed import list_sources

BEGAN = NOW
HOUR = timedelta(hours=1)


def write_segment(name: str, hour: int, nodes: int, follows: str = "") -> bytes:
    """An hour with so many nodes."""
    head = SegmentHead(format=FORMAT, name=name, began=BEGAN + hour * HOUR, follows=follows)
    writer = SegmentWriter(head)
    seen = scene(*(state(f"n{each}", of=LARGE) for each in range(nodes)))
    for minutes in (0, 30):
        at = BEGAN + hour * HOUR + timedelta(minutes=minutes)
        writer.write_look(Situation(snapshot=seen.snapshot), at)
    return writer.end_segment(BEGAN + (hour + 1) * HOUR)


def name_file(folder: Path, name: str) -> Path:
    return folder / f"20260105T00000{name}.000Z-00000000{SUFFIX}"


@pytest.mark.spec("SH-5")
def test_a_follower_takes_in_what_was_recorded_before_and_then_what_comes(tmp_path: Path) -> None:
    old, new = write_segment("1", 0, 2), write_segment("2", 1, 3, follows="1")
    name_file(tmp_path, "1").write_bytes(old)
    follower = FollowerProcess(DIFFERENCES, ShadowTwins())
    follower.read_before(str(tmp_path), ["1"])
    name_file(tmp_path, "2").write_bytes(new)  # it is recorded while the follower still reads
    follower.begin_segment("2")
    follower.add_bytes(new)
    follower.close()
    report = msgspec.json.decode(follower.latest, type=ShadowReport)
    # The third was launched with the others, and is told of an hour later.
    assert report.paid.dollars == pytest.approx(2 * 3 * 8.0)
    assert report == report_recording(list_sources(tmp_path), ShadowTwins())


def keep_two_hours(folder: Path) -> ShadowReport:
    """A shadow that sees an hour of two nodes and begins one of three; what it has found by then."""
    old, new = write_segment("1", 0, 2), write_segment("2", 1, 3, follows="1")
    name_file(folder, "1").write_bytes(old)
    name_file(folder, "2").write_bytes(new)
    follower = FollowerProcess(DIFFERENCES, ShadowTwins(), str(folder))
    for name, data in (("1", old), ("2", new)):
        follower.begin_segment(name)
        follower.add_bytes(data)
    follower.close()
    return msgspec.json.decode(follower.latest, type=ShadowReport)


def restart(folder: Path, twins: ShadowTwins) -> tuple[ShadowReport, list[str]]:
    """A follower of a shadow that begins again here, and what was remarked."""
    follower, told = FollowerProcess(DIFFERENCES, twins), list[str]()
    catch_up([follower], ShadowOptions(parse_target(str(folder)), str(folder), twins=twins), told.append)
    follower.close()
    return msgspec.json.decode(follower.latest, type=ShadowReport), told


@pytest.mark.spec("SH-5")
def test_a_restarted_follower_goes_on_at_the_last_keyframe(tmp_path: Path) -> None:
    """The segment before it is not even read: it may be gone."""
    before = keep_two_hours(tmp_path)
    name_file(tmp_path, "1").unlink()
    found, told = restart(tmp_path, ShadowTwins())
    assert told == []
    assert found.since == BEGAN
    assert found.paid.watched_seconds == before.paid.watched_seconds == 2 * 3600
    # The third was launched with the others. Whoever goes on at the second hour does not know its first.
    assert found.paid.dollars == pytest.approx((2 + 3) * 8.0)
    assert [hour.dollars for hour in found.paid.hours] == [16.0, 24.0]


@pytest.mark.spec("SH-5")
def test_whoever_tries_other_rules_takes_in_the_whole_recording(tmp_path: Path) -> None:
    before = keep_two_hours(tmp_path)
    found, told = restart(tmp_path, ShadowTwins(settings=(("CONSOLIDATE_MANY", "true"),)))
    assert (found.paid, told) == (before.paid, [])
    name_file(tmp_path, "1").unlink()
    found, told = restart(tmp_path, ShadowTwins(settings=(("CONSOLIDATE_MANY", "true"),)))
    assert (found.since, told) == (BEGAN + HOUR, [])


@pytest.mark.spec("SH-5")
@pytest.mark.parametrize("kept", [b"{", b'{"rules": "a", "segment": "2", "result": {"since": 7}}', b"\xff"])
def test_what_cannot_be_read_is_told_and_the_whole_recording_taken_in(tmp_path: Path, kept: bytes) -> None:
    before = keep_two_hours(tmp_path)
    (tmp_path / "shadow-differences.json").write_bytes(kept)
    found, (told,) = restart(tmp_path, ShadowTwins())
    assert found.paid == before.paid
    assert "shadow-differences.json" in told
    assert told.endswith("all of its recording is taken in once more")


def test_what_is_kept_of_another_recording_is_not_taken_in(tmp_path: Path) -> None:
    keep_two_hours(tmp_path)
    for name in ("1", "2"):
        name_file(tmp_path, name).unlink()
    data = write_segment("3", 5, 1)
    name_file(tmp_path, "3").write_bytes(data)
    found, told = restart(tmp_path, ShadowTwins())
    assert (found.since, found.paid.dollars, told) == (BEGAN + 5 * HOUR, 8.0, [])


SHADOW = """
import sys, time
from dovetail.play.shadow_follower import FollowerProcess
from dovetail.play.shadow_twins import TWIN, ShadowTwins

if __name__ == "__main__":
    follower = FollowerProcess(TWIN, ShadowTwins())
    follower.read_before(sys.argv[1], ["1"])
    print(follower._process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.spec("SH-5")
def test_a_follower_ends_with_a_shadow_that_is_killed_whatever_it_does(tmp_path: Path) -> None:
    """It waits for a segment that never comes, as one that lives through a week is busy for hours."""
    (tmp_path / "recording").mkdir()
    os.mkfifo(name_file(tmp_path / "recording", "1"))
    script = tmp_path / "shadow.py"
    script.write_text(SHADOW)
    command = [sys.executable, str(script), str(tmp_path / "recording")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as shadow:
        assert shadow.stdout is not None
        follower = int(shadow.stdout.readline())
        shadow.send_signal(signal.SIGKILL)
    for _ in range(2_000):
        if not is_alive(follower):
            return
        time.sleep(0.05)
    os.kill(follower, signal.SIGKILL)
    pytest.fail("it would have gone on for ever")


def is_alive(process: int) -> bool:
    """Whether a process is there; one that has ended and waits to be counted by its parent is not."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[0] != "Z"

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

from dovetail.disruption.situation import Situation
from dovetail.history.recording.segment import FORMAT, SegmentHead, SegmentWriter
from dovetail.history.shadow import ShadowReport
from dovetail.play.shadow_run import FollowerProcess
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


SHADOW = """
import sys, time
from dovetail.play.shadow_run import FollowerProcess
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

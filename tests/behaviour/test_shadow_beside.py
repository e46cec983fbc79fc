"""A shadow beside a running controller: nothing is written, and what it says was paid is what nodes cost."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.app.cluster_recorder import ClusterRecorder
from dovetail.app.live_cluster import LiveCluster, build_sight
from dovetail.history.difference import DifferenceKind
from dovetail.history.shadow import ShadowFold, ShadowReport
from dovetail.play import ScenarioRun, play_scenario, read_scenario
from dovetail.play.shadow_twins import ShadowTwins, report_recording
from dovetail.play.shadowing import SegmentFeed, TeePlace
from dovetail.providers.factory import choose_provider
from dovetail.runtime.kubeconfig import Connection
from dovetail.runtime.recording import RecordingOptions, RecordingWriter
from dovetail.runtime.recording_folder import RecordingFolder, read_recording
from dovetail.settings import read_settings
from dovetail.sim.transport import LocalTransport
from support.read_only import READ_VERBS, ReadOnlyTransport, ReadVerbsOnly

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"
# A whole day takes minutes of CPU; `DOVETAIL_SHADOW_HOURS=24` plays it.
HOURS = os.environ.get("DOVETAIL_SHADOW_HOURS", "1")
PRICE = "eks-node-viewer/instance-price"


async def run_at_once(work: Any) -> Any:
    return work()


@dataclass
class Watched:
    """A scenario that was watched by a shadow, and what the simulated API server knows of it."""

    folder: Path
    fold: ShadowFold = field(default_factory=ShadowFold)
    remarks: list[str] = field(default_factory=list)
    transport: ReadOnlyTransport | None = None
    rights: ReadVerbsOnly = field(default_factory=lambda: ReadVerbsOnly("shadow"))
    task: asyncio.Task[None] | None = None

    def start(self, run: ScenarioRun) -> None:
        """Begin to watch, from outside, with a transport that refuses writes."""
        world = run.world
        world.server.faults = self.rights
        self.transport = ReadOnlyTransport(LocalTransport(world.server, "shadow/1"))
        settings = read_settings((), {}, provider="kwok")
        sight = build_sight(self.transport, settings, choose_provider("kwok"), clock=world.clock)
        sight.kube._may_write = lambda: True  # so that an attempt is seen
        place = TeePlace(RecordingFolder(self.folder, run_at_once), [SegmentFeed(self.fold)])
        writer = RecordingWriter(place, world.clock, run_at_once, RecordingOptions())
        cluster = LiveCluster(
            Connection("http://it.example", lambda: pytest.fail("nobody signs in")), "it", sight
        )
        recorder = ClusterRecorder(cluster, writer, self.remarks.append, eager=True)
        self.task = asyncio.get_running_loop().create_task(recorder.run())


def watch(folder: Path, duration: str, **settings: str) -> Watched:
    story = replace(read_scenario(SCENARIOS / "diurnal-web.yaml"), duration=duration)
    watched = Watched(folder)
    play_scenario(replace(story, settings={**story.settings, **settings}), on_start=watched.start)
    return watched


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Watched:
    """A shadow beside a controller that plans as Karpenter does."""
    return watch(tmp_path_factory.mktemp("foreign") / "recording", f"{HOURS}h", PLANNER="one-by-one")


@pytest.mark.spec("SH-1")
def test_not_one_write_is_sent(foreign: Watched) -> None:
    assert foreign.transport is not None
    assert foreign.transport.attempts == []
    assert foreign.transport.carried > 20
    assert foreign.rights.used <= READ_VERBS
    assert foreign.remarks == []


@pytest.mark.spec("SH-3")
def test_purchases_differ_by_what_was_launched_less_what_we_plan(foreign: Watched) -> None:
    bought = [
        each for each in foreign.fold.differences.list_differences() if each.kind is DifferenceKind.BOUGHT
    ]
    assert bought
    launched = sum(each.their_price for each in bought)
    planned = sum(each.our_price for each in bought)
    assert round(sum(each.rate for each in bought), 2) == round(launched - planned, 2)


@pytest.mark.spec("SH-5")
def test_a_report_of_the_recording_is_that_of_the_shadow_that_watched(foreign: Watched) -> None:
    """A shadow that was killed feeds itself from the recording: nothing else is kept."""
    report = report_recording(
        [segment.source for segment in read_recording(str(foreign.folder)).segments], ShadowTwins()
    )
    live = foreign.fold.build_report()
    assert report.paid == live.paid
    assert report.differences == live.differences
    assert report.promises == live.promises


@pytest.mark.spec("SH-5")
def test_a_recording_that_is_torn_anywhere_is_reported_as_far_as_it_is_whole(
    foreign: Watched, tmp_path: Path
) -> None:
    (path,) = foreign.folder.iterdir()
    data = path.read_bytes()
    whole = foreign.fold.build_report()
    reports = []
    for share in (0.2, 0.5, 0.9):
        torn = tmp_path / path.name
        torn.write_bytes(data[: int(len(data) * share)])
        sources = [segment.source for segment in read_recording(str(tmp_path)).segments]
        reports.append(report_recording(sources, ShadowTwins()))
    assert [each.paid.dollars for each in reports] == sorted(each.paid.dollars for each in reports)
    assert 0 < reports[-1].paid.dollars <= whole.paid.dollars


@pytest.mark.spec("SH-2")
def test_beside_our_own_controller_nothing_differs(tmp_path: Path) -> None:
    found = watch(tmp_path / "recording", "50m").fold
    assert [each.sentence for each in found.differences.list_differences()] == []
    assert found.differences.count_compared() >= 4


def test_nothing_is_claimed_of_an_hour(foreign: Watched) -> None:
    report: ShadowReport = foreign.fold.build_report()
    assert report.claim.share is None
    assert "too short to say anything about money" in report.claim.sentence

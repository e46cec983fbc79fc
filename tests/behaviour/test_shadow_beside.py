"""A shadow beside a running controller: nothing is written, and what it says was paid is what nodes cost."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.app.cluster_recorder import ClusterRecorder
from dovetail.app.live_cluster import LiveCluster, build_sight
from dovetail.history.difference import DifferenceKind
from dovetail.history.shadow import ShadowFold, ShadowReport
from dovetail.play import ScenarioRun, play_scenario, read_scenario
from dovetail.play.shadow_nights import replay_days
from dovetail.play.shadow_twins import TWIN, ShadowTwins, replay_span, report_recording
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


class ClaimLedger:
    """What nodes really cost: by what the API server commits, and by nothing that the shadow uses."""

    def __init__(self, run: ScenarioRun) -> None:
        self._clock = run.world.clock
        self._claims: dict[str, dict[str, Any]] = {}
        self._gone: dict[str, datetime] = {}
        self._prices: dict[str, float] = {}
        run.world.server.store.on_commit(self._note, "nodeclaims.karpenter.sh", "nodes")

    def _note(self, event: Any) -> None:
        obj = event.new.obj
        if event.new.info.plural == "nodes":
            price = (obj["metadata"].get("labels") or {}).get(PRICE)
            if price:
                self._prices[obj["spec"].get("providerID", "")] = float(price)
            return
        uid = obj["metadata"]["uid"]
        self._claims[uid] = obj
        if event.type == "DELETED":
            self._gone[uid] = self._clock.now()

    def sum_paid(self, since: datetime, until: datetime) -> float:
        """Each NodeClaim from its Launched to its InstanceTerminating, or to its deletion, at its price."""
        total = 0.0
        for uid, claim in self._claims.items():
            said = {
                each["type"]: datetime.fromisoformat(each["lastTransitionTime"])
                for each in (claim.get("status") or {}).get("conditions") or ()
                if each["status"] == "True"
            }
            if "Launched" not in said:
                continue
            ends = [each for each in (self._gone.get(uid), said.get("InstanceTerminating")) if each]
            length = (min([*ends, until]) - max(said["Launched"], since)).total_seconds()
            price = self._prices.get(claim["status"].get("providerID", ""))
            if length > 0 and price is not None:
                total += length / 3600 * price
        return total


@dataclass
class Watched:
    """A scenario that was watched by a shadow, and what the simulated API server knows of it."""

    folder: Path
    fold: ShadowFold = field(default_factory=ShadowFold)
    remarks: list[str] = field(default_factory=list)
    transport: ReadOnlyTransport | None = None
    rights: ReadVerbsOnly = field(default_factory=lambda: ReadVerbsOnly("shadow"))
    task: asyncio.Task[None] | None = None
    ledger: ClaimLedger | None = None
    # Seconds after which the shadow begins to watch.
    after: float = 0.0

    def start(self, run: ScenarioRun) -> None:
        """Begin to watch, from outside, with a transport that refuses writes."""
        world = run.world
        world.server.faults = self.rights
        self.ledger = ClaimLedger(run)
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

        async def work() -> None:
            await world.clock.sleep(self.after)
            await recorder.run()

        self.task = asyncio.get_running_loop().create_task(work())


def watch(folder: Path, duration: str, after: float = 0.0, **settings: str) -> Watched:
    story = replace(read_scenario(SCENARIOS / "diurnal-web.yaml"), duration=duration)
    watched = Watched(folder, after=after)
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


def test_what_was_paid_is_the_real_hours_of_nodes_to_the_cent(foreign: Watched) -> None:
    bill = foreign.fold.build_report().paid
    assert foreign.ledger is not None
    assert bill.since is not None
    assert bill.until is not None
    truth = foreign.ledger.sum_paid(bill.since, bill.until)
    assert truth > 0.5
    # A NodeClaim's times are whole seconds: a look may fall into the second in which a machine is launched.
    assert bill.dollars == pytest.approx(truth, abs=0.0001)


def test_purchases_are_attributed_by_the_events_of_their_autoscaler(foreign: Watched) -> None:
    bought = [
        each for each in foreign.fold.differences.list_differences() if each.kind is DifferenceKind.BOUGHT
    ]
    assert {each.attributed_by for each in bought} >= {"event"}


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


@pytest.mark.spec("SH-2")
def test_beside_our_own_controller_the_twins_bill_is_that_of_the_cluster(tmp_path: Path) -> None:
    """Six and a half hours of a morning, from a fleet that stands; decisions one by one differ nowhere."""
    folder = tmp_path / "recording"
    report = watch(folder, "7h", 1800.0).fold.build_report()
    assert report.differences == ()
    sources = [segment.source for segment in read_recording(str(folder)).segments]
    twin = replay_span(sources, TWIN, ShadowTwins())
    assert twin is not None
    assert twin.paid == pytest.approx(report.paid.dollars)
    assert abs(twin.share) < 0.015
    # Each day by itself, as above a thousand nodes: the same day, so the same twin.
    by_days = replay_days(read_recording(str(folder)).segments, ShadowTwins(roles=(TWIN,)))
    assert by_days[TWIN] == twin


def test_nothing_is_claimed_of_an_hour(foreign: Watched) -> None:
    report: ShadowReport = foreign.fold.build_report()
    assert report.claim.share is None
    assert "too short to say anything about money" in report.claim.sentence

"""A shadow beside a running controller: nothing is written, and what it says was paid is what nodes cost."""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from dovetail.history.difference import DifferenceKind
from dovetail.history.shadow import ShadowReport
from dovetail.history.shadow_claim import TwinBill
from dovetail.play.shadow_nights import replay_days
from dovetail.play.shadow_twins import (
    DIFFERENCES,
    TWIN,
    KeyframeResult,
    ShadowTwins,
    TwinConsumer,
    build_consumer,
    replay_span,
    report_recording,
)
from dovetail.play.shadowing import SegmentFeed, feed_segments
from dovetail.runtime.recording_folder import read_recording
from support.read_only import READ_VERBS
from support.shadowed import ClusterShadow, WatchedStory, list_sources, read_story, watch_story

# A whole day takes minutes of CPU; `DOVETAIL_SHADOW_HOURS=24` plays it.
HOURS = os.environ.get("DOVETAIL_SHADOW_HOURS", "1")
OWN_HOURS = os.environ.get("DOVETAIL_SHADOW_HOURS", "3")


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> WatchedStory:
    """A shadow beside a controller that plans as Karpenter does."""
    shadow = ClusterShadow(tmp_path_factory.mktemp("foreign") / "recording")
    return watch_story(read_story("diurnal-web", f"{HOURS}h", PLANNER="one-by-one"), shadow)


@pytest.mark.spec("SH-1")
def test_not_one_write_is_sent(foreign: WatchedStory) -> None:
    assert foreign.shadow.transport.attempts == []
    assert foreign.shadow.transport.carried > 20
    assert foreign.shadow.rights.used <= READ_VERBS
    assert foreign.shadow.remarks == []


def test_what_was_paid_is_the_real_hours_of_nodes_to_the_cent(foreign: WatchedStory) -> None:
    bill = foreign.fold.build_report().paid
    assert bill.since is not None
    assert bill.until is not None
    truth = foreign.ledger.sum_paid(bill.since, bill.until)
    assert truth > 0.5
    # A NodeClaim's times are whole seconds: a look may fall into the second in which a machine is launched.
    assert bill.dollars == pytest.approx(truth, abs=0.0001)


def test_purchases_are_attributed_by_the_events_of_their_autoscaler(foreign: WatchedStory) -> None:
    bought = [
        each for each in foreign.fold.differences.list_differences() if each.kind is DifferenceKind.BOUGHT
    ]
    assert {each.attributed_by for each in bought} >= {"event"}


@pytest.mark.spec("SH-3")
def test_purchases_differ_by_what_was_launched_less_what_we_plan(foreign: WatchedStory) -> None:
    bought = [
        each for each in foreign.fold.differences.list_differences() if each.kind is DifferenceKind.BOUGHT
    ]
    assert bought
    launched = sum(each.their_price for each in bought)
    planned = sum(each.our_price for each in bought)
    assert round(sum(each.rate for each in bought), 2) == round(launched - planned, 2)


@pytest.mark.spec("SH-5")
def test_a_report_of_the_recording_is_that_of_the_shadow_that_watched(foreign: WatchedStory) -> None:
    """A shadow that was killed feeds itself from the recording: nothing else is kept."""
    report = report_recording(list_sources(foreign.shadow.folder), ShadowTwins())
    live = foreign.fold.build_report()
    assert report.paid == live.paid
    assert report.differences == live.differences
    assert report.promises == live.promises


@pytest.mark.spec("SH-5")
def test_a_recording_that_is_torn_anywhere_is_reported_as_far_as_it_is_whole(
    foreign: WatchedStory, tmp_path: Path
) -> None:
    (path,) = foreign.shadow.folder.iterdir()
    data = path.read_bytes()
    whole = foreign.fold.build_report()
    reports = []
    for share in (0.2, 0.5, 0.9):
        torn = tmp_path / path.name
        torn.write_bytes(data[: int(len(data) * share)])
        reports.append(report_recording(list_sources(tmp_path), ShadowTwins()))
    assert [each.paid.dollars for each in reports] == sorted(each.paid.dollars for each in reports)
    assert 0 < reports[-1].paid.dollars <= whole.paid.dollars


@pytest.mark.spec("SH-2")
def test_beside_our_own_controller_nothing_differs(tmp_path: Path) -> None:
    found = watch_story(read_story("diurnal-web", "50m"), ClusterShadow(tmp_path / "recording")).fold
    assert [each.sentence for each in found.differences.list_differences()] == []
    assert found.differences.count_compared() >= 4


class OwnMorning(NamedTuple):
    """Hours of a morning beside our own controller, with two shadows: one of them is killed once."""

    report: ShadowReport
    folder: Path
    killed: Path
    twin: TwinBill


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> OwnMorning:
    """From a fleet that stands. One shadow is killed with nothing to be seen of it for ten seconds."""
    folder = tmp_path_factory.mktemp("own")
    shadow = ClusterShadow(folder / "whole", 1800.0)
    kill = Random("when a shadow is killed").uniform(3600.0, 10_000.0)
    killed = ClusterShadow(folder / "killed", 1800.0, (kill,), client="killed", follows=False)
    report = watch_story(read_story("diurnal-web", f"{OWN_HOURS}h"), shadow, killed).fold.build_report()
    twin = replay_span(list_sources(shadow.folder), TWIN, ShadowTwins())
    assert twin is not None
    return OwnMorning(report, shadow.folder, killed.folder, twin)


@pytest.mark.spec("SH-2")
def test_beside_our_own_controller_the_twins_bill_is_that_of_the_cluster(own: OwnMorning) -> None:
    """Decisions one by one differ nowhere, and what the twin does comes to the same."""
    assert own.report.differences == ()
    assert own.twin.paid == pytest.approx(own.report.paid.dollars)
    assert abs(own.twin.share) < 0.015
    # Each day by itself, as above a thousand nodes: the same day, so the same twin.
    by_days = replay_days(read_recording(str(own.folder)).segments, ShadowTwins(roles=(TWIN,)))
    assert by_days[TWIN] == own.twin


@pytest.mark.spec("SH-5")
def test_a_shadow_that_was_killed_reports_what_an_undisturbed_one_does(own: OwnMorning) -> None:
    """What is missing is the gap, which is told, and nothing else; a minute of a day is 0.07 %."""
    sources = list_sources(own.killed)
    report = report_recording(sources, ShadowTwins(roles=(DIFFERENCES,)))
    twin = replay_span(sources, TWIN, ShadowTwins())
    assert twin is not None
    assert report.gaps == 1
    assert report.gap_seconds < 60
    least = report.gap_seconds / own.report.paid.watched_seconds + 0.001
    assert report.paid.dollars == pytest.approx(own.report.paid.dollars, rel=least)
    assert twin.dollars == pytest.approx(own.twin.dollars, rel=least)
    assert report.differences == own.report.differences


@pytest.mark.spec("SH-5")
def test_a_restarted_twin_lives_from_the_last_keyframe_on(own: OwnMorning) -> None:
    """It begins there with the real fleet, and knows what it came to before."""
    sources, kept = list_sources(own.folder), list[KeyframeResult]()
    first = build_consumer(TWIN, ShadowTwins())
    feed = SegmentFeed(first)
    for source in sources:
        feed_segments((source,), (feed,))
        kept += filter(None, [first.take_keyframe()])
    first.close()
    assert len(kept) >= 2
    last = kept[-1]
    again = build_consumer(TWIN, ShadowTwins())
    again.resume(last.result)
    assert isinstance(again, TwinConsumer)
    names = [each.head.name for each in read_recording(str(own.folder)).segments]
    feed_segments(sources[names.index(last.segment) :], (SegmentFeed(again),))
    again.catch_up()
    again.close()
    bill = again.build_bill()
    assert bill is not None
    assert bill.paid == pytest.approx(own.twin.paid)
    assert bill.dollars == pytest.approx(own.twin.dollars, rel=0.002)
    assert [hour.began for hour in bill.hours] == [hour.began for hour in own.twin.hours]
    assert bill.until == own.twin.until


def test_nothing_is_claimed_of_an_hour(foreign: WatchedStory) -> None:
    report: ShadowReport = foreign.fold.build_report()
    assert report.claim.share is None
    assert "too short to say anything about money" in report.claim.sentence

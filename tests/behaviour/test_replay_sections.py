"""A recording that is replayed in parts: both sides of a gap, and slices that are played side by side."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path

import pytest

from dovetail.cli.views import replays
from dovetail.history.calibration import calibrate, compute_certainty
from dovetail.history.paid import integrate_paid
from dovetail.history.recording.reader import RecordedLook
from dovetail.runtime.recording_folder import SUFFIX, read_recording
from support.commands import dovetail
from support.recordings import begin_segment
from support.replay_stories import build_story
from support.replay_trials import ReplayTrial, play_trial, replay_trial

HOURS = 4.5
GAP = timedelta(hours=2)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> ReplayTrial:
    """Builds that come every hour, for the length of two slices and a half."""
    folder = tmp_path_factory.mktemp("recorded") / "recording"
    return play_trial(build_story("ci", 1, HOURS), "dovetail", folder)


def write_parts(folder: Path, parts: list[list[RecordedLook]]) -> None:
    """Each part as a segment that follows no other."""
    folder.mkdir()
    for number, looks in enumerate(parts):
        writer = begin_segment(f"s{number}", looks[0].at, settings={"PROVIDER": "kwok"})
        for look in looks:
            writer.write_look(look.situation, look.at)
        (folder / f"s{number}{SUFFIX}").write_bytes(writer.flush() + writer.end_segment(looks[-1].at))


@pytest.mark.spec("RP-8")
def test_both_sides_of_a_gap_are_played_and_the_gap_is_told_and_counted_nowhere(
    trial: ReplayTrial, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "SEEDS", 1)
    looks = list(read_recording(trial.folder).looks())
    opens = looks[0].at + timedelta(hours=1, minutes=15)
    sides = [[look for look in looks if look.at <= opens], [look for look in looks if look.at >= opens + GAP]]
    write_parts(tmp_path / "torn", sides)
    told = dovetail("replay", str(tmp_path / "torn"), "--as", "karpenter", "-o", "json")
    assert told.code == 0, told.err
    document = json.loads(told.out)
    before, after = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (sides[0][-1].at, sides[1][0].at))
    assert any(f"from {before} to {after}" in each for each in document["notKnown"])
    paid = [integrate_paid(side).dollars for side in sides]
    assert document["asItWas"]["dollars"] == pytest.approx(sum(paid))
    inside = {f"{opens.replace(minute=0, second=0) + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"}
    (variation,) = document["variations"]
    for bill in (document["asItWas"], variation):
        hours = {each["began"]: each["dollars"] for each in bill["hours"]}
        assert not inside & hours.keys()
        first, second = (
            sum(dollars for began, dollars in hours.items() if (began < min(inside)) is early)
            for early in (True, False)
        )
        assert first == pytest.approx(paid[0], rel=0.4)  # another planner, from the same start
        assert second == pytest.approx(paid[1], rel=0.4)


@pytest.mark.spec("RP-9")
def test_slices_differ_from_one_run_by_less_than_what_is_sure(trial: ReplayTrial) -> None:
    whole = [replay_trial(trial, "dovetail", seed) for seed in (1, 2)]
    sliced = replay_trial(trial, "dovetail", 1, slices="2h")
    found = calibrate(trial.bill.sum_days(), [bill.sum_days() for bill in whole])
    certainty = compute_certainty(found, [bill.dollars for bill in whole])
    assert sliced.dollars != whole[0].dollars  # each slice begins as the recording was
    assert sum(hour.watched_seconds for hour in sliced.hours) == pytest.approx(
        sum(hour.watched_seconds for hour in whole[0].hours)
    )
    assert abs(sliced.dollars / whole[0].dollars - 1) < certainty.within
    assert certainty.within < 0.02

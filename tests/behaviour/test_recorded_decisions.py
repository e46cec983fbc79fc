"""Simulated hours are recorded as decisions saw them, and every decision can be made again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from dovetail.history.recording.reader import RecordedLook
from dovetail.play import play_scenario
from dovetail.runtime.recording_folder import SUFFIX, read_recording
from dovetail.sim.scenario import Scenario
from dovetail.sim.scenario_file import read_scenario
from support.commands import dovetail
from support.remaking import remake_decisions

ROOT = Path(__file__).parents[2]
SCENARIOS = ROOT / "examples" / "scenarios"


def play(name: str, folder: Path, duration: str = "", **settings: str) -> None:
    story: Scenario = read_scenario(SCENARIOS / f"{name}.yaml")
    if duration:
        story = replace(story, duration=duration)
    recorded = {"RECORDING": f"file:{folder}", **settings}
    play_scenario(replace(story, settings={**story.settings, **recorded}))


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two hours of a web fleet, recorded."""
    folder = tmp_path_factory.mktemp("recorded") / "recording"
    play("diurnal-web", folder, "2h")
    return folder


def busy_looks(folder: Path) -> list[RecordedLook]:
    return [
        look
        for look in read_recording(str(folder)).looks()
        if any(decision.answer.commands for decision in look.decisions)
    ]


@pytest.mark.spec("TA-2")
def test_every_decision_is_made_again_the_same_in_another_process(hours: Path) -> None:
    paths = os.pathsep.join((str(ROOT / "src"), str(ROOT / "tests")))
    env = {**os.environ, "PYTHONPATH": paths, "PYTHONHASHSEED": "7"}
    command = [sys.executable, "-m", "support.remaking", str(hours)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 other" in done.stdout


@pytest.mark.spec("TA-2")
def test_a_decision_that_was_another_is_found(tmp_path: Path) -> None:
    play("inflate", tmp_path / "recording")
    (path,) = (tmp_path / "recording").iterdir()
    reader = read_recording(str(path))
    found = remake_decisions(str(tmp_path / "recording"), cached=False)
    assert found.other == []
    assert found.busy > 0
    questions = {decision.question for look in reader.looks() for decision in look.decisions}
    assert {"plan", "Empty/empty", "Drifted/static", "Drifted"} <= questions


def test_two_runs_of_one_seed_are_recorded_in_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        play("inflate", tmp_path / name)
    (first,), (second,) = (list((tmp_path / name).iterdir()) for name in ("first", "second"))
    assert first.name == second.name
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.spec("TA-9")
def test_a_moment_of_a_recording_is_planned_as_it_was_decided(hours: Path, tmp_path: Path) -> None:
    look = busy_looks(hours)[-1]
    file = tmp_path / "then.json"
    moment = look.at.isoformat()
    made = dovetail("recording", "snapshot", str(hours), "--at", moment, "--out", str(file))
    assert made.code == 0, made.err
    told = dovetail("plan", "--disruption", "--snapshot", str(file))
    commands = [command for decision in look.decisions for command in decision.answer.commands]
    assert commands
    for node in commands[0].nodes:
        assert node in told.out, told.out


@pytest.mark.spec("TA-6")
def test_names_are_hashed_while_they_are_recorded(tmp_path: Path) -> None:
    play("inflate", tmp_path / "recording", RECORDING_NAMES="hash")
    reader = read_recording(str(tmp_path / "recording"))
    looks = list(reader.looks())
    assert reader.segments[0].head.names == "hash"
    names = {pod.name for look in looks for state in look.situation.snapshot.nodes for pod in state.pods}
    assert names
    assert not [name for name in names if "inflate" in name]


def test_segments_are_named_by_time_and_the_recording_is_whole(hours: Path) -> None:
    assert len([path for path in hours.iterdir() if path.name.endswith(SUFFIX)]) == 2
    told = dovetail("recording", "info", str(hours))
    assert told.code == 0, told.err
    assert "gaps       none" in told.out

"""Simulated hours are recorded as decisions saw them, and every decision can be made again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail import __version__
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.disruption.situation import Situation
from dovetail.history.record import DecisionRecord
from dovetail.history.recording.reader import RecordedLook
from dovetail.play import play_scenario
from dovetail.runtime.recording_folder import SUFFIX, read_recording
from dovetail.settings import Settings
from dovetail.sim.scenario import Scenario
from dovetail.sim.scenario_file import read_scenario
from support.commands import dovetail
from support.moments import compare_moments
from support.remaking import remake_decisions

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "conformance" / "recordings" / __version__
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


@pytest.mark.spec("TA-9")
def test_every_command_of_the_history_is_what_the_plan_of_its_moment_says(hours: Path) -> None:
    """The commands of a whole day: hack/recording_soak.py."""
    for folder in (hours, KEPT):
        found = compare_moments(str(folder))
        assert found.other == []
        assert found.commands >= 5


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


def print_commands(situation: Situation, file: Path) -> list[dict[str, Any]]:
    """What `plan --disruption` prints of a situation, in a process that knows nothing else."""
    file.write_bytes(encode_snapshot(SeenCluster(situation, {}, Settings(provider="kwok"))))
    told = dovetail("plan", "--disruption", "--snapshot", str(file), "-o", "json")
    assert told.code == 0, told.err
    found: list[dict[str, Any]] = json.loads(told.out)["commands"]
    return found


def tell_printed(command: dict[str, Any]) -> str:
    """A printed command in the words of a record."""
    nodes, count = ", ".join(node["name"] for node in command["nodes"]), len(command["replacements"])
    replaced = f" -> [{count} replacement{'s' if count != 1 else ''}]" if count else ""
    saving = f"saves ${command['savingsHourly']:.4f} an hour"
    return f"{command['reason']}, {command['decision']}: [{nodes}]{replaced}; {saving}"


def list_records(looks: list[RecordedLook], kind: str) -> list[DecisionRecord]:
    return [record for look in looks for record in look.records if record.kind == kind]


@pytest.mark.spec("HI-2")
@pytest.mark.parametrize("story", ["inflate", "diurnal-web"])
def test_a_command_is_recorded_as_the_plan_of_its_situation_prints_it(
    story: str, hours: Path, tmp_path: Path
) -> None:
    folder = hours
    if story == "inflate":
        folder = tmp_path / "recording"
        play(story, folder)
    looks = list(read_recording(str(folder)).looks())
    seen = {look.digest: look.situation for look in looks if look.digest}
    started = list_records(looks, "CommandStarted")
    assert {record.reason for record in started} == {"Empty" if story == "inflate" else "Underutilized"}
    for record in started:
        printed = print_commands(seen[record.situation], tmp_path / "then.json")
        assert record.message in map(tell_printed, printed), "decided and started are told as planned"
        same = next(each for each in printed if tell_printed(each) == record.message)
        assert record.price_before is not None
        assert record.price_before == pytest.approx(same["costHourly"])
        assert record.saving == pytest.approx(same["savingsHourly"])
    decided = {record.id: record for record in list_records(looks, "CommandDecided")}
    assert all(decided[record.parent].situation == record.situation for record in started)


@pytest.mark.spec("HI-2")
def test_orders_and_verdicts_name_the_situation_they_were_decided_in(hours: Path) -> None:
    looks = list(read_recording(str(hours)).looks())
    seen = {look.digest for look in looks if look.digest}
    for kind in ("NodeOrdered", "PodPlaced", "NodeBlocked"):
        found = list_records(looks, kind)
        assert found
        assert all(record.situation in seen for record in found)

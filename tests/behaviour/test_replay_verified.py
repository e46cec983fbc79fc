"""`dovetail replay --verify`: every recorded decision made again, and those that a changed rule touches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace as replace_fields
from pathlib import Path

import pytest
from msgspec.structs import replace

from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.history.recording import deciding
from dovetail.history.recording.reader import RecordedLook, RecordingReader
from dovetail.history.verifying import describe_answer, verify_decisions
from dovetail.play import play_scenario, read_scenario
from dovetail.runtime.recording_folder import read_recording
from support.commands import dovetail

SCENARIOS = Path(__file__).parents[2] / "examples" / "scenarios"
WHEN = "%Y-%m-%dT%H:%M:%SZ"


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Deployment that grows and shrinks, recorded."""
    folder = tmp_path_factory.mktemp("recorded") / "recording"
    story = read_scenario(SCENARIOS / "inflate.yaml")
    play_scenario(replace(story, settings={**story.settings, "RECORDING": f"file:{folder}"}))
    return folder


def keep_nodes(inputs: DisruptionInput) -> DisruptionChoice:
    """The rule of another release: of a command for several empty nodes, the first node stays."""
    choice = choose_empty_nodes(inputs)
    changed = [
        replace_fields(command, candidates=command.candidates[1:]) if len(command.candidates) > 1 else command
        for command in choice.commands
    ]
    return replace_fields(choice, commands=changed)


def list_touched(reader: RecordingReader) -> Iterator[tuple[str, int]]:
    """The decisions that the other rule touches, by time and look."""
    for look in reader.looks():
        for decision in look.decisions:
            for command in decision.answer.commands:
                if decision.question == "Empty/empty" and len(command.nodes) > 1:
                    yield look.at.strftime(WHEN), look.number


@pytest.mark.spec("RP-4")
def test_the_same_version_decides_all_of_it_again(recording: Path) -> None:
    told = dovetail("replay", str(recording), "--verify")
    assert told.code == 0, told.out + told.err
    assert told.out.startswith("all of ")
    assert "differ" not in told.out


@pytest.mark.spec("RP-4")
def test_another_rule_is_found_in_exactly_the_decisions_it_touches(
    recording: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched = list(list_touched(read_recording(str(recording))))
    assert touched
    monkeypatch.setitem(deciding.METHODS, "Empty/empty", keep_nodes)
    told = dovetail("replay", str(recording), "--verify", "-o", "json")
    assert told.code == 3, told.err
    document = json.loads(told.out)
    assert [(each["at"], each["look"]) for each in document["differing"]] == touched
    assert {each["question"] for each in document["differing"]} == {"Empty/empty"}
    assert document["equal"] + len(touched) == document["decisions"]
    page = dovetail("replay", str(recording), "--verify")
    assert page.code == 3
    assert "was decided   remove " in page.out
    assert "would be now  remove " in page.out


def test_what_matters_is_named(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(deciding.METHODS, "Empty/empty", keep_nodes)
    found = verify_decisions(read_recording(str(recording)).looks())
    assert any("disruption.budgets of NodePool default" in each.inputs for each in found.differing)


def test_a_question_nobody_knows_differs(recording: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(deciding.METHODS, "Drifted")
    found = verify_decisions(read_recording(str(recording)).looks())
    assert {each.question for each in found.differing} == {"Drifted"}
    assert describe_answer(found.differing[0].again) == "a question this version does not ask"


def test_a_decision_that_met_a_time_limit_is_not_counted(recording: Path) -> None:
    def limited() -> Iterator[RecordedLook]:
        for look in read_recording(str(recording)).looks():
            look.decisions = [replace(each, timed_out=True) for each in look.decisions]
            yield look

    found = verify_decisions(limited())
    assert found.decisions == 0
    assert found.timed_out > 0


def test_part_of_the_time_is_enough_and_interrupting_gives_what_is_done(recording: Path) -> None:
    looks = [look for look in read_recording(str(recording)).looks() if look.decisions]
    at = looks[len(looks) // 2].at
    told = json.loads(
        dovetail("replay", str(recording), "--verify", "--to", at.isoformat(), "-o", "json").out
    )
    assert 0 < told["decisions"] < sum(len(look.decisions) for look in looks)
    found = verify_decisions(read_recording(str(recording)).looks(), lambda time: time > at)
    assert found.stopped
    assert found.last is not None
    assert found.last <= at


def test_bad_input_is_one_sentence(recording: Path, tmp_path: Path) -> None:
    told = dovetail("replay", str(tmp_path), "--verify")
    assert (told.code, told.err.count("\n")) == (1, 1)
    told = dovetail("replay", str(recording), "--verify", "--from", "1h", "--to", "2h")
    assert told.code == 1
    assert "exchange them" in told.err

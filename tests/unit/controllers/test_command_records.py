"""Commands on record: as they were decided and in which situation, and what a second look left of them."""

from __future__ import annotations

import pytest

from dovetail.controllers.command_records import CommandRecords
from dovetail.controllers.history import DecisionRecorder
from dovetail.disruption.command import EMPTY, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.emptiness import build_delete_command, choose_empty_nodes
from dovetail.disruption.situation import Situation, digest_situation
from dovetail.history.record import DecisionRecord
from dovetail.history.ring import HistoryQuery
from dovetail.settings import Settings
from support.apiserver import HandClock
from support.decision_records import CLUSTER, LEADER
from support.disruption import pool, scene, state


def decide_empty() -> tuple[Situation, Command]:
    """Three empty nodes, and the command that takes them."""
    inputs = scene(*(state(f"node-{number}") for number in range(3)))
    situation = Situation(snapshot=inputs.snapshot)
    (command,) = choose_empty_nodes(DisruptionInput.from_situation(situation)).commands
    return situation, command


def read_last(recorder: DecisionRecorder) -> DecisionRecord:
    return recorder.ring.find_records(HistoryQuery(limit=1))[0]


@pytest.fixture
def recorder() -> DecisionRecorder:
    made = DecisionRecorder(Settings(), HandClock(), LEADER)
    made.begin_term(CLUSTER)
    return made


@pytest.mark.spec("HI-2")
def test_a_started_command_is_told_as_it_was_decided(recorder: DecisionRecorder) -> None:
    situation, command = decide_empty()
    records = CommandRecords(recorder, HandClock())
    records.note_decided([command], situation)
    records.note_started(command)
    started = read_last(recorder)
    assert started.message == f"{command.sentence}; {command.saving}"
    assert started.situation == digest_situation(situation)


@pytest.mark.spec("HI-2")
def test_a_command_that_lost_nodes_is_told_as_it_is_and_as_it_was_decided(recorder: DecisionRecorder) -> None:
    situation, command = decide_empty()
    records = CommandRecords(recorder, HandClock())
    records.note_decided([command], situation)
    less = build_delete_command(command.candidates[1:])
    records.note_started(less)
    started = read_last(recorder)
    assert started.message.startswith(less.sentence)
    assert started.message.endswith(f"decided as {command.sentence}; {command.saving}")
    assert started.situation == digest_situation(situation)
    assert command.candidates[0].name not in started.names
    assert started.price_before == pytest.approx(less.cost)


def test_a_situation_that_cannot_be_digested_stops_no_command(
    recorder: DecisionRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object) -> str:
        raise ValueError("no")

    monkeypatch.setattr("dovetail.controllers.history.digest_situation", fail)
    situation, command = decide_empty()
    records = CommandRecords(recorder, HandClock())
    records.note_decided([command], situation)
    assert records.note_started(command)
    assert read_last(recorder).situation == ""


def test_where_nothing_is_recorded_nothing_is_digested(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> str:
        raise AssertionError("it was digested")

    monkeypatch.setattr("dovetail.controllers.history.digest_situation", fail)
    idle = DecisionRecorder(Settings(), HandClock(), LEADER)
    assert idle.digest_situation(Situation()) == ""


def test_a_pass_that_says_nothing_new_digests_nothing(
    recorder: DecisionRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested: list[object] = []

    def digest(each: Situation, cache: object) -> str:
        digested.append(each)
        return "a"

    monkeypatch.setattr("dovetail.controllers.history.digest_situation", digest)
    inputs = scene(state("node-0"), pools=[pool(nodes="0")])
    situation, choices = Situation(snapshot=inputs.snapshot), [(EMPTY, choose_empty_nodes(inputs))]
    records = CommandRecords(recorder, HandClock())
    for _ in range(3):
        records.note_pass(inputs, choices, situation)
    assert digested == [situation]

"""Trials of replays: a story is played and recorded, its recording replayed, and the sums are compared."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from msgspec.structs import replace

from dovetail.history.calibration import Certainty, calibrate, compute_certainty
from dovetail.history.recording.reader import RecordingReader
from dovetail.play import play_scenario
from dovetail.play.replay_meter import ReplayBill
from dovetail.play.replay_sections import (
    RecordingSurvey,
    ReplayTask,
    add_bills,
    cut_slices,
    play_section,
    survey_recording,
)
from dovetail.play.replaying import Variation
from dovetail.runtime.recording_folder import read_recording
from dovetail.settings.durations import parse_duration
from dovetail.sim.scenario import Scenario

__all__ = ["Foretold", "ReplayTrial", "foretell", "play_trial", "replay_trial"]

# As many as the command plays.
SEEDS = 5
Choices = Literal["dovetail", "karpenter"]
PLANNERS = {"dovetail": "packed", "karpenter": "one-by-one"}


class ReplayTrial(NamedTuple):
    """A story that was played: its recording, and what it came to by that."""

    folder: str
    survey: RecordingSurvey

    @property
    def bill(self) -> ReplayBill:
        return self.survey.bill


class Foretold(NamedTuple):
    """What a replay says about other rules: the change of dollars, and how sure that is."""

    change: float
    certainty: Certainty


@contextmanager
def _open_folder(folder: str) -> Iterator[RecordingReader]:
    yield read_recording(folder)


def play_trial(story: Scenario, whose: Choices, folder: Path, skip: str = "") -> ReplayTrial:
    """Play a story once, and read back what was recorded, without so much of its beginning.

    A story begins with no node, and which it buys first is decided by chance; a cluster that somebody records
    has nodes.
    """
    settings = {**story.settings, "RECORDING": f"file:{folder}", "PLANNER": PLANNERS[whose]}
    play_scenario(replace(story, floor_every="", settings=settings))
    reader = read_recording(str(folder))
    since = reader.segments[0].head.began + parse_duration(skip) if skip else None
    return ReplayTrial(str(folder), survey_recording(reader, since))


def replay_trial(trial: ReplayTrial, whose: Choices, seed: int, slices: str = "") -> ReplayBill:
    """Replay a recording once, with the settings it was made with."""
    recorded = dict(trial.survey.settings)
    provider = recorded.pop("PROVIDER", "kwok")
    settings = {**recorded, "PLANNER": PLANNERS[whose]}
    variation = Variation(whose, whose, provider, settings, recorded)
    length = parse_duration(slices) if slices else None
    bills = [
        play_section(
            partial(_open_folder, trial.folder), ReplayTask(section, variation, seed), trial.survey.facts
        )
        for section in cut_slices(trial.survey.sections, length)
    ]
    return add_bills([bill for bill in bills if bill is not None])


def foretell(trial: ReplayTrial, was: Choices, other: Choices, first: int = 1) -> Foretold:
    """What the command would print about other rules, from the recording alone."""
    seeds = range(first, first + SEEDS)
    modelled = [replay_trial(trial, was, seed) for seed in seeds]
    tried = modelled if was == other else [replay_trial(trial, other, seed) for seed in seeds]
    found = calibrate(trial.bill.sum_days(), [bill.sum_days() for bill in modelled])
    totals, model = [bill.dollars for bill in tried], [bill.dollars for bill in modelled]
    return Foretold(sum(totals) / sum(model) - 1, compute_certainty(found, totals))

"""Does a replay foretell what happens? Scenarios are played, recorded and replayed, and the sums compared.

python hack/replay_trials.py itself --seeds 5 --hours 24     RP-1: the model replays itself
python hack/replay_trials.py certainty --seeds 100           RP-2: does the printed certainty cover the truth?
python hack/replay_trials.py switching --hours 24            RP-3: the foretold saving, and the real one

Each line is one trial; the last line counts. Hours of CPU for the full numbers: give less to see less.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from msgspec.structs import replace

from dovetail.history.calibration import Certainty, calibrate, compute_certainty
from dovetail.history.recording.reader import RecordingReader
from dovetail.play import play_scenario, read_scenario
from dovetail.play.replay_meter import ReplayBill
from dovetail.play.replay_sections import (
    RecordingSurvey,
    ReplayTask,
    add_bills,
    play_section,
    survey_recording,
)
from dovetail.play.replaying import Variation
from dovetail.runtime.recording_folder import read_recording
from dovetail.settings.durations import parse_duration

SCENARIOS = Path(__file__).parents[1] / "examples" / "scenarios"
NAMES = ("diurnal-web", "ci-bursts", "inflate", "spot-reclaim")
SEEDS = 5
Choices = Literal["dovetail", "karpenter"]


class Trial(NamedTuple):
    """A scenario that was played, its recording, and what it came to."""

    folder: str
    survey: RecordingSurvey

    @property
    def bill(self) -> ReplayBill:
        return self.survey.bill


@contextmanager
def open_folder(folder: str) -> Iterator[RecordingReader]:
    yield read_recording(folder)


def play(name: str, seed: int, hours: float, planner: str, folder: Path) -> Trial:
    """Play a scenario once, and read back what was recorded."""
    story = read_scenario(SCENARIOS / f"{name}.yaml")
    length = min(parse_duration(story.duration).total_seconds() / 3600, hours)
    length = max(length, 2.0)  # the smallest story is told twice or more
    settings = {**story.settings, "RECORDING": f"file:{folder}", "PLANNER": planner}
    play_scenario(replace(story, seed=seed, duration=f"{length:g}h", floor_every="", settings=settings))
    return Trial(str(folder), survey_recording(read_recording(str(folder))))


def replay(trial: Trial, choices: Choices, seed: int) -> ReplayBill:
    recorded = dict(trial.survey.settings)
    provider = recorded.pop("PROVIDER", "kwok")
    settings = {key: value for key, value in recorded.items() if key != "PLANNER"}
    if choices == "dovetail":
        settings["PLANNER"] = "packed"
    variation = Variation(choices, choices, provider, settings, recorded)
    bills = [
        play_section(
            partial(open_folder, trial.folder), ReplayTask(section, variation, seed), trial.survey.facts
        )
        for section in trial.survey.sections
    ]
    return add_bills([bill for bill in bills if bill is not None])


def replay_seeds(trial: Trial, choices: Choices, first: int, count: int = SEEDS) -> list[ReplayBill]:
    return [replay(trial, choices, first + number) for number in range(count)]


def foretell(trial: Trial, was: Choices, other: Choices, seed: int) -> tuple[float, float, Certainty]:
    """Dollars foretold under other rules, those of the model for what was, and how sure that is."""
    modelled = replay_seeds(trial, was, seed)
    found = calibrate(trial.bill.sum_days(), [bill.sum_days() for bill in modelled])
    tried = modelled if was == other else replay_seeds(trial, other, seed)
    totals = [bill.dollars for bill in tried]
    return fmean(totals), fmean(bill.dollars for bill in modelled), compute_certainty(found, totals)


def try_itself(arguments: argparse.Namespace, folder: Path) -> bool:
    good = total = 0
    print(f"{'scenario':<14} {'seed':>4} {'paid':>10} {'replayed':>10} {'dollars':>8} {'hours':>8}  evicted")
    for name in NAMES:
        for seed in range(1, arguments.seeds + 1):
            trial = play(name, seed, arguments.hours, "packed", folder / f"{name}-{seed}")
            was, bill = trial.bill, replay(trial, "dovetail", seed)
            dollars, hours = bill.dollars / was.dollars - 1, bill.node_hours / was.node_hours - 1
            evicted = bill.evictions / was.evictions - 1 if was.evictions else float(bool(bill.evictions))
            fits = abs(dollars) <= 0.01 and abs(hours) <= 0.02 and abs(evicted) <= 0.05
            good, total = good + fits, total + 1
            print(
                f"{name:<14} {seed:>4} {was.dollars:>10.4f} {bill.dollars:>10.4f} {dollars:>+8.2%} "
                f"{hours:>+8.2%} {was.evictions:>6} {bill.evictions:>6} {'' if fits else 'outside'}",
                flush=True,
            )
    print(f"{good} of {total} within 1 % of dollars, 2 % of node hours and 5 % of evictions")
    return good == total


def try_certainty(arguments: argparse.Namespace, folder: Path) -> bool:
    """A recording of Karpenter's planner, replayed under a seed that its certainty does not know."""
    covered = near = 0
    print(f"{'seed':>4} {'paid':>10} {'replayed':>10} {'off by':>8} {'sure to':>8}")
    for seed in range(1, arguments.seeds + 1):
        trial = play(arguments.scenario, seed, arguments.hours, "one-by-one", folder / str(seed))
        bills = replay_seeds(trial, "karpenter", seed)
        days = [bill.sum_days() for bill in bills[1:]]
        certainty = compute_certainty(
            calibrate(trial.bill.sum_days(), days), [bill.dollars for bill in bills[1:]]
        )
        off = bills[0].dollars / trial.bill.dollars - 1  # a seed that the certainty does not know
        covered += abs(off) <= certainty.within
        near += abs(off) <= 0.015
        print(
            f"{seed:>4} {trial.bill.dollars:>10.4f} {bills[0].dollars:>10.4f} {off:>+8.2%} "
            f"{certainty.within:>8.2%} {'' if abs(off) <= certainty.within else 'outside'}",
            flush=True,
        )
    print(f"covered in {covered} of {arguments.seeds} seeds; within 1.5 % in {near}")
    return covered >= 0.95 * arguments.seeds


def try_switching(arguments: argparse.Namespace, folder: Path) -> bool:
    good = total = 0
    print(f"{'scenario':<14} {'seed':>4} {'foretold':>9} {'really':>9} {'sure to':>8}")
    for name in NAMES:
        for seed in range(1, arguments.seeds + 1):
            place = folder / f"{name}-{seed}"
            was = play(name, seed, arguments.hours, "one-by-one", place / "was")
            real = play(name, seed, arguments.hours, "packed", place / "real")
            dollars, model, certainty = foretell(was, "karpenter", "dovetail", seed)
            told, true = dollars / model - 1, real.bill.dollars / was.bill.dollars - 1
            sign = not certainty.can_tell(told) or told * true > 0
            fits = sign and abs(told - true) <= certainty.within
            good, total = good + fits, total + 1
            print(
                f"{name:<14} {seed:>4} {told:>+9.2%} {true:>+9.2%} {certainty.within:>8.2%} "
                f"{'' if fits else 'outside'}",
                flush=True,
            )
    print(f"{good} of {total} have the sign and, within the certainty, the size of the real saving")
    return good == total


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trial", choices=("itself", "certainty", "switching"))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--scenario", default="ci-bursts", choices=NAMES)
    arguments = parser.parse_args()
    run = {"itself": try_itself, "certainty": try_certainty, "switching": try_switching}[arguments.trial]
    with TemporaryDirectory() as folder:
        return 0 if run(arguments, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())

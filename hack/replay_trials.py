"""Does a replay foretell what happens? Stories are played, recorded and replayed, and the sums compared.

python hack/replay_trials.py itself --seeds 2 --hours 7 --skip 1h    RP-1: the model replays itself
python hack/replay_trials.py certainty --seeds 100 --hours 1.1       RP-2: is the truth within the certainty?
python hack/replay_trials.py switching --seeds 1 --hours 6           RP-3: savings foretold, and real ones

`itself` and `switching` take every story with every seed, `certainty` one story after the other, a seed each.
Each line is one trial; the last line counts. A trial of `itself` takes a second of CPU an hour, others seven.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from support.replay_stories import STORIES, build_story
from support.replay_trials import Foretold, ReplayTrial, foretell, play_trial, replay_trial

# As far as RP-1 lets a replay of itself be off: dollars, node hours and evictions.
DOLLARS, HOURS, EVICTIONS = 0.01, 0.02, 0.05


def list_trials(arguments: argparse.Namespace) -> Iterator[tuple[str, int]]:
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        if arguments.trial == "certainty":
            yield arguments.stories[seed % len(arguments.stories)], seed
        else:
            yield from ((name, seed) for name in arguments.stories)


def try_itself(arguments: argparse.Namespace, folder: Path) -> bool:
    good = total = 0
    found: list[tuple[int, int]] = []
    print(f"{'story':<10} {'seed':>4} {'paid':>9} {'replayed':>9} {'dollars':>8} {'hours':>8}  evicted")
    for name, seed in list_trials(arguments):
        story = build_story(name, seed, arguments.hours, arguments.scale)
        trial = play_trial(story, "dovetail", folder / f"{name}-{seed}", arguments.skip)
        was, bill = trial.bill, replay_trial(trial, "dovetail", seed)
        dollars, hours = bill.dollars / was.dollars - 1, bill.node_hours / was.node_hours - 1
        evicted = bill.evictions / was.evictions - 1 if was.evictions else float(bool(bill.evictions))
        fits = abs(dollars) <= DOLLARS and abs(hours) <= HOURS and abs(evicted) <= EVICTIONS
        good, total = good + fits, total + 1
        found.append((was.evictions, bill.evictions))
        print(
            f"{name:<10} {seed:>4} {was.dollars:>9.4f} {bill.dollars:>9.4f} {dollars:>+8.2%} {hours:>+8.2%} "
            f"{was.evictions:>5} {bill.evictions:>5} {'' if fits else 'outside'}",
            flush=True,
        )
    evictions = " and ".join(str(sum(each)) for each in zip(*found, strict=True))
    print(f"{good} of {total} within 1 % of dollars, 2 % of node hours and 5 % of evictions ({evictions})")
    return good == total


def foretell_switch(
    arguments: argparse.Namespace, name: str, seed: int, folder: Path
) -> tuple[ReplayTrial, Foretold, float]:
    """A story as Karpenter plans it, what its recording foretells of Dovetail, and what that really does."""
    story, place = build_story(name, seed, arguments.hours, arguments.scale), folder / f"{name}-{seed}"
    was = play_trial(story, "karpenter", place / "was", arguments.skip)
    real = play_trial(story, "dovetail", place / "real", arguments.skip)
    return was, foretell(was, "karpenter", "dovetail", seed), real.bill.dollars / was.bill.dollars - 1


def try_certainty(arguments: argparse.Namespace, folder: Path) -> bool:
    """The change that a recording foretells for another planner, and whether what is printed covers it."""
    covered = near = told = signs = 0
    sure: list[float] = []
    print(f"{'story':<10} {'seed':>4} {'model':>8} {'foretold':>9} {'really':>9} {'sure to':>8}")
    for name, seed in list_trials(arguments):
        was, found, true = foretell_switch(arguments, name, seed, folder)
        within, model = found.certainty.within, found.certainty.error
        covers = abs(found.change - true) <= within
        covered, near = covered + covers, near + (model <= 0.015)
        if found.certainty.can_tell(found.change):
            told, signs = told + 1, signs + (found.change * true > 0)
        sure.append(within)
        print(
            f"{name:<10} {seed:>4} {model:>8.2%} {found.change:>+9.2%} {true:>+9.2%} {within:>8.2%} "
            f"{'' if covers else 'outside'}",
            flush=True,
        )
        del was
    print(
        f"covered in {covered} of {len(sure)}; the model is within 1.5 % in {near}; told in {told}, with the "
        f"right sign in {signs}; sure to within {fmean(sure):.2%} in the mean"
    )
    return covered >= 0.95 * len(sure) and signs == told


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trial", choices=("itself", "certainty", "switching"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--hours", type=float, default=6.0)
    parser.add_argument("--scale", type=int, default=1, help="so many times as many pods")
    parser.add_argument("--skip", default="", help="so much of the beginning, as 1h, is not replayed")
    parser.add_argument("--stories", default=",".join(STORIES), help="some of them, with commas")
    arguments = parser.parse_args()
    arguments.stories = arguments.stories.split(",")
    run = try_itself if arguments.trial == "itself" else try_certainty
    with TemporaryDirectory() as folder:
        return 0 if run(arguments, Path(folder)) else 1


if __name__ == "__main__":
    sys.exit(main())

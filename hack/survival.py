"""Tell many stories of trouble, one per seed, and say which did not end well and how to hear them again."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dovetail.runtime import logs
from support import aws_survival, survival
from support.fault_costs import Budget, Costs
from support.survival import Lost


def told(seed: int, aws: bool = False) -> tuple[str, Costs]:
    """What went wrong in a story, empty when nothing did; and what it cost."""
    logging.disable(logging.CRITICAL)
    logs.configure_logging("error", (os.devnull,))
    try:
        return "", (aws_survival if aws else survival).tell(seed).costs
    except Lost as lost:
        return str(lost), Costs()


def bill(paid: Mapping[str, Sequence[tuple[Costs, Budget]]]) -> str:
    """What each kind of trouble cost at worst, with the budget it is held to."""
    rows = [f"{'trouble':26} stories  leaked instance-s   launches   repair s   unheard"]
    for trouble, costs in sorted(paid.items()):
        leaked, launches, repair, unheard = (
            max(costs, key=lambda each: float(getattr(each[0], name)) - getattr(each[1], name))
            for name in ("leaked", "launches", "repair", "unheard")
        )
        rows.append(
            f"{trouble:26} {len(costs):7}  {leaked[0].leaked:7.0f} / {leaked[1].leaked:5.0f}"
            f"   {launches[0].launches:4} / {launches[1].launches:2}"
            f"   {repair[0].repair:5.0f} / {repair[1].repair:4.0f}"
            f"   {unheard[0].unheard:1} / {unheard[1].unheard}"
        )
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="how many stories (default 200)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="tell this story alone, with everything Dovetail logs")
    parser.add_argument("--aws", action="store_true", help="stories of a simulated AWS")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        return alone(options.seed, options.aws)
    begun, lost = time.monotonic(), 0
    stories = aws_survival.Story.of if options.aws else survival.Story.of
    paid: dict[str, list[tuple[Costs, Budget]]] = {}
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs) as workers:
        tellers = workers.map(partial(told, aws=options.aws), seeds, chunksize=4)
        for seed, (wrong, costs) in zip(seeds, tellers, strict=True):
            story = stories(seed)
            paid.setdefault(story.trouble, []).append((costs, story.budget))
            if wrong:
                lost += 1
                print(wrong, end="\n\n", flush=True)
            elif (seed + 1) % 100 == 0:
                print(f"{seed + 1 - options.first} stories, {time.monotonic() - begun:.0f} s", flush=True)
    print(bill(paid))
    print(f"{options.seeds - lost} of {options.seeds} stories ended well, {time.monotonic() - begun:.0f} s")
    return 1 if lost else 0


def alone(seed: int, aws: bool) -> int:
    logging.captureWarnings(True)
    logs.configure_logging("info", ("stderr",))
    try:
        story = aws_survival.tell(seed) if aws else survival.tell(seed)
    except Lost as lost:
        print(lost)
        return 1
    print(story, *story.diary, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Tell many stories of trouble, one per seed, and say which did not end well and how to hear them again."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dovetail.runtime import logs
from support import awssurvival, survival
from support.survival import Lost


def told(seed: int, aws: bool = False) -> str:
    """What went wrong in a story; empty when nothing did."""
    logging.disable(logging.CRITICAL)
    logs.configure("error", (os.devnull,))
    try:
        (awssurvival if aws else survival).tell(seed)
    except Lost as lost:
        return str(lost)
    return ""


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
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs) as workers:
        tellers = workers.map(partial(told, aws=options.aws), seeds, chunksize=4)
        for seed, wrong in zip(seeds, tellers, strict=True):
            if wrong:
                lost += 1
                print(wrong, end="\n\n", flush=True)
            elif (seed + 1) % 100 == 0:
                print(f"{seed + 1 - options.first} stories, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{options.seeds - lost} of {options.seeds} stories ended well, {time.monotonic() - begun:.0f} s")
    return 1 if lost else 0


def alone(seed: int, aws: bool) -> int:
    logging.captureWarnings(True)
    logs.configure("info", ("stderr",))
    try:
        story = awssurvival.tell(seed) if aws else survival.tell(seed)
    except Lost as lost:
        print(lost)
        return 1
    print(story, *story.diary, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

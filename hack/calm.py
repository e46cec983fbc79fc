"""Leave many random clusters alone with Dovetail, one per seed, and say which did not come to rest."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from dovetail.runtime import logs
from support.calm import Restless, watch


def watched(seed: int) -> str:
    """What went wrong in a cluster; empty when nothing did."""
    logs.configure_logging("error", (os.devnull,))
    try:
        watch(seed)
    except Restless as restless:
        return str(restless)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=100, help="how many clusters (default 100)")
    parser.add_argument("--first", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="watch this cluster alone, with everything Dovetail logs")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    if options.seed is not None:
        return alone(options.seed)
    begun, wrong = time.monotonic(), 0
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs) as workers:
        for seed, said in zip(seeds, workers.map(watched, seeds, chunksize=4), strict=True):
            if said:
                wrong += 1
                print(said, end="\n\n", flush=True)
            elif (seed + 1) % 100 == 0:
                print(f"{seed + 1 - options.first} clusters, {time.monotonic() - begun:.0f} s", flush=True)
    print(f"{options.seeds - wrong} of {options.seeds} came to rest, {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


def alone(seed: int) -> int:
    logging.captureWarnings(True)
    logs.configure_logging("info", ("stderr",))
    try:
        cluster = watch(seed)
    except Restless as restless:
        print(restless)
        return 1
    print(cluster, *cluster.diary, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

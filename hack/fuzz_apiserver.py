"""Let the fuzzer of the embedded API server explore for some time: fresh seeds, one round after another.

    .venv/bin/python hack/fuzz_apiserver.py --minutes 60

Each round prints its seed. The first that finds something ends the run, with the command that shows it again.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = "tests/wire/test_apiserver_fuzz.py"


def run_round(seed: int) -> subprocess.CompletedProcess[str]:
    """One round of every fuzzing test with examples of its own."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-p",
        "no:cacheprovider",
        f"--hypothesis-seed={seed}",
        TESTS,
    ]
    env = {**os.environ, "DOVETAIL_HYPOTHESIS": "explore"}
    return subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)


def main() -> int:
    """Explore until the time is over."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0, help="how long to explore")
    parser.add_argument(
        "--seed", type=int, default=int(time.time()), help="the first seed; each round adds one"
    )
    chosen = parser.parse_args()
    end, seed, rounds = time.monotonic() + 60 * chosen.minutes, chosen.seed, 0
    while time.monotonic() < end:
        ran = run_round(seed)
        if ran.returncode:
            print(ran.stdout[-6000:], ran.stderr[-2000:], sep="\n")
            print(f"found with DOVETAIL_HYPOTHESIS=explore pytest --hypothesis-seed={seed} {TESTS}")
            return 1
        rounds += 1
        print(f"round {rounds}, seed {seed}: {ran.stdout.splitlines()[-1]}", flush=True)
        seed += 1
    print(f"{rounds} rounds in {chosen.minutes:g} minutes, nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())

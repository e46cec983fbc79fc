"""Run the packages that are likeliest to flake many times, and list the tests that do not always pass."""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What meets real sockets, processes, threads and time, or compares what may be freed and made anew.
LIKELY = (
    "tests/unit/disruption",
    "tests/unit/runtime",
    "tests/properties/test_memory.py",
    "tests/properties/test_one_leader.py",
    "tests/behaviour/test_bus_kills.py",
    "tests/behaviour/test_restarted_world.py",
    "tests/wire",
)
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+(?:\[.*?\])?)", re.MULTILINE)


def failures(tests: list[str], jobs: int) -> list[str]:
    """The tests that fail in one run."""
    command = [sys.executable, "-m", "pytest", "-q", "-n", str(jobs), "-p", "no:cacheprovider", *tests]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = FAILED.findall(done.stdout)
    if done.returncode not in (0, 1):
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=20, help="how many times (default 20)")
    parser.add_argument("--jobs", type=int, default=2, help="tests at once (default 2)")
    parser.add_argument("tests", nargs="*", default=list(LIKELY), help=f"what to run ({' '.join(LIKELY)})")
    options = parser.parse_args()
    seen: Counter[str] = Counter()
    for number in range(1, options.runs + 1):
        found = failures(options.tests, options.jobs)
        seen.update(found)
        print(f"run {number} of {options.runs}: {len(found)} failed {' '.join(found)}", flush=True)
    for test, times in seen.most_common():
        print(f"{times} of {options.runs}  {test}")
    print("no flakes" if not seen else f"{len(seen)} tests do not always pass")
    return 1 if seen else 0


if __name__ == "__main__":
    sys.exit(main())

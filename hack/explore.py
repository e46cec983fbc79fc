"""Try the properties with examples nobody has seen, by a seed made of the tree: each change explores anew.

`DOVETAIL_SEED` sets the seed, to see again what was seen; `DOVETAIL_EXPLORE_SECONDS` the processor time (15).
"""

from __future__ import annotations

import os
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).parents[1]
PARTS = ("properties", "unit", "behaviour")


def properties() -> list[str]:
    """The files with properties in them; the rest need not be read."""
    files = (path for part in PARTS for path in (ROOT / "tests" / part).rglob("test_*.py"))
    return sorted(str(path) for path in files if "from hypothesis" in path.read_text(encoding="utf-8"))


def tree_seed() -> str:
    """A number that is another for every state of the files; chance itself where there is no git."""
    asked = (("git", "rev-parse", "HEAD^{tree}"), ("git", "diff", "HEAD"))
    told = [subprocess.run(each, cwd=ROOT, capture_output=True) for each in asked]
    if any(each.returncode for each in told):
        return str(int.from_bytes(os.urandom(4)))
    return str(int.from_bytes(sha256(b"".join(each.stdout for each in told)).digest()[:4]))


def main() -> int:
    seed = os.environ.get("DOVETAIL_SEED") or tree_seed()
    around = {
        "PYTHONPATH": str(ROOT / "tests"),
        "DOVETAIL_HYPOTHESIS": "explore",
        "DOVETAIL_SEED": seed,
        "DOVETAIL_EXPLORE_SECONDS": os.environ.get("DOVETAIL_EXPLORE_SECONDS", "15"),
    }
    print(f"exploring by seed {seed}", flush=True)
    command = ["-m", "pytest", "-p", "support.explore_plugin", f"--hypothesis-seed={seed}", *properties()]
    return subprocess.run([sys.executable, *command], cwd=ROOT, env={**os.environ, **around}).returncode


if __name__ == "__main__":
    sys.exit(main())

"""Plays the shipped scenarios and writes what they say into docs/guides/scenarios.md.

python hack/write_reports.py            all of them, which takes some minutes
python hack/write_reports.py inflate    only these; the others stay as they are
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

from dovetail.cli.playing import play
from dovetail.sim.report import as_text, side_by_side
from dovetail.sim.scenario import Scenario, read_scenario

ROOT = Path(__file__).parents[1]
SCENARIOS = ROOT / "examples" / "scenarios"
PAGE = ROOT / "docs" / "guides" / "scenarios.md"
TABLE = "diurnal-table"
SETTINGS = {
    "as Karpenter": {"PLANNER": "one-by-one"},
    "as it comes": {},
    "spot for spot": {"FEATURE_GATES": "SpotToSpotConsolidation=true"},
}


def main() -> None:
    chosen = sys.argv[1:] or [*(path.stem for path in sorted(SCENARIOS.glob("*.yaml"))), TABLE]
    for name in chosen:
        told = _table() if name == TABLE else as_text(play(read_scenario(SCENARIOS / f"{name}.yaml")))
        _write(name, told)
        print(f"wrote {name}")


def _table() -> str:
    story = read_scenario(SCENARIOS / "diurnal-web.yaml")
    return side_by_side([play(_set(story, name)) for name in SETTINGS])


def _set(story: Scenario, name: str) -> Scenario:
    return msgspec.structs.replace(story, name=name, settings=SETTINGS[name])


def _write(name: str, told: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(rf"<!-- {name} -->\n(```text\n.*?```\n)?", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{PAGE.name} has no place for {name}: give it a line <!-- {name} -->")
    block = f"<!-- {name} -->\n```text\n{told.rstrip()}\n```\n"
    # Written after each, so that an end halfway loses nothing.
    PAGE.write_text(pattern.sub(lambda found: block, page), "utf-8")


if __name__ == "__main__":
    main()

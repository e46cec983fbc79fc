"""Plays the shipped scenarios and writes what they say into docs/guides/scenarios.md.

python hack/write_reports.py            all of them, which takes some minutes
python hack/write_reports.py inflate    only these; the others stay as they are
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.api.labels import GROWTH
from dovetail.play import play_scenario
from dovetail.sim.report import RunReport, render_text
from dovetail.sim.scenario import Scenario, ScenarioEvent
from dovetail.sim.scenario_file import read_scenario

ROOT = Path(__file__).parents[1]
SCENARIOS = ROOT / "examples" / "scenarios"
PAGE = ROOT / "docs" / "guides" / "scenarios.md"
TABLE = "diurnal-table"
GATE = {"FEATURE_GATES": "SpotToSpotConsolidation=true"}
ANNOTATED = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default", "annotations": {GROWTH: "ahead"}},
}
HEADS = ("settings", "dollars", "like for like", "node hours", "most nodes", "pods evicted", "cpu used")
MORE = ("longest pending time", "promises broken")


class Way(NamedTuple):
    """One way to run the day, and whether room is bought ahead; `gate` says which ways are alike."""

    name: str
    settings: dict[str, str]
    gate: bool = False
    ahead: bool = False


DEFAULT = Way("Dovetail as it comes", {})
WAYS = (
    Way("Karpenter's choices: `PLANNER=one-by-one`", {"PLANNER": "one-by-one"}),
    DEFAULT,
    Way("Dovetail, with `growth: ahead`", {}, ahead=True),
    Way("Karpenter's choices, spot for spot", {"PLANNER": "one-by-one", **GATE}, gate=True),
    Way("Dovetail, spot for spot", GATE, gate=True),
    Way("Dovetail, spot for spot, with `growth: ahead`", GATE, gate=True, ahead=True),
    Way("Dovetail, spot for spot, `CONSOLIDATE_MANY=true`", {**GATE, "CONSOLIDATE_MANY": "true"}, gate=True),
)


def main() -> None:
    chosen = sys.argv[1:] or [*(path.stem for path in sorted(SCENARIOS.glob("*.yaml"))), TABLE]
    for name in chosen:
        if name == TABLE:
            _write(name, _table())
        else:
            told = render_text(play_scenario(read_scenario(SCENARIOS / f"{name}.yaml")))
            _write(name, f"```text\n{told.rstrip()}\n```")
        print(f"wrote {name}")


def _table() -> str:
    """The diurnal day in all ways; the floor is the same for all, so one of them asks for it."""
    story = read_scenario(SCENARIOS / "diurnal-web.yaml")
    with ProcessPoolExecutor() as pool:
        reports = list(pool.map(play_scenario, [_in_this_way(story, way) for way in WAYS]))
    return "\n".join(_rows(reports))


def _in_this_way(story: Scenario, way: Way) -> Scenario:
    events = [*story.events, *([ScenarioEvent("0s", apply=[ANNOTATED])] if way.ahead else [])]
    every = story.floor_every if way is DEFAULT else ""
    return replace(story, settings=way.settings, events=events, floor_every=every)


def _rows(reports: Sequence[RunReport]) -> list[str]:
    heads = (*HEADS, *MORE)
    rows = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    base = {way.gate: r.dollars for way, r in zip(WAYS, reports, strict=True) if "PLANNER" in way.settings}
    for way, report in zip(WAYS, reports, strict=True):
        against = "" if "PLANNER" in way.settings else f"{report.dollars / base[way.gate] - 1:+.1%}"
        cells = (
            way.name, f"${report.dollars:.2f}", against, f"{report.node_hours:.0f}", str(report.nodes_most),
            str(report.evictions), f"{report.cpu_utilisation:.1%}", f"{report.wait_most:.0f} s",
            str(report.slo_breaches),
        )  # fmt: skip
        rows.append(f"| {' | '.join(cells)} |")
    floor = reports[WAYS.index(DEFAULT)].dollars_floor
    rows.append(f"| the proven floor | ${floor:.2f}" + " | " * (len(heads) - 2) + "|")
    return rows


def _write(name: str, told: str) -> None:
    page = PAGE.read_text(encoding="utf-8")
    pattern = re.compile(rf"<!-- {name} -->\n((```text\n.*?```\n)|(\|[^\n]*\n)+)?", re.DOTALL)
    if not pattern.search(page):
        raise SystemExit(f"{PAGE.name} has no place for {name}: give it a line <!-- {name} -->")
    # Written after each, so that an end halfway loses nothing.
    PAGE.write_text(pattern.sub(lambda found: f"<!-- {name} -->\n{told}\n", page), "utf-8")


if __name__ == "__main__":
    main()

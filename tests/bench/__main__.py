"""Measure everything, or what `--only` names; print a table and keep the numbers under build/bench.

Run as `python -m tests.bench`. Times are also given as a multiple of a calibration loop, so that numbers
from different machines can be set side by side.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "build" / "bench"
sys.path.insert(0, str(HERE.parent))  # scenarios may use the builders of tests/support

from .registry import SCENARIOS, Figure, calibration  # noqa: E402 - after the path is set

SECONDS = {"s": 1.0, "ms": 1e-3, "µs": 1e-6}


def main() -> int:
    options = _options()
    for file in sorted(HERE.glob("bench_*.py")):
        importlib.import_module(f"{__package__}.{file.stem}")
    chosen = [name for name in SCENARIOS if options.only is None or options.only in name]
    if not chosen:
        print(f"no scenario is named {options.only}; there are: {', '.join(SCENARIOS)}", file=sys.stderr)
        return 2
    console = Console(stderr=options.json)
    unit = calibration()
    rows = list(_measured(chosen, unit, console))
    report = _report(rows, unit)
    path = _stored(report)
    if options.json:
        print(json.dumps(report, indent=2))
    console.print(_table(rows))
    console.print(f"calibration loop {unit * 1000:.1f} ms; stored as {path.relative_to(HERE.parents[1])}")
    return 1 if options.strict and any(row["within"] is False for row in rows) else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", metavar="NAME", help="scenarios with NAME in their name")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--strict", action="store_true", help="fail when a budget is missed")
    return parser.parse_args()


def _measured(chosen: list[str], unit: float, console: Console) -> Iterator[dict[str, Any]]:
    for name in chosen:
        console.print(f"[dim]{name} …")
        for figure in SCENARIOS[name]():
            yield _row(name, figure, unit)


def _row(name: str, figure: Figure, unit: float) -> dict[str, Any]:
    seconds = SECONDS.get(figure.unit)
    return {
        "scenario": name,
        "figure": figure.name,
        "value": figure.value,
        "unit": figure.unit,
        "ratio": None if seconds is None else figure.value * seconds / unit,
        "budget": figure.budget,
        "within": figure.within,
    }


def _report(rows: list[dict[str, Any]], unit: float) -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "calibration": unit,
        "figures": rows,
    }


def _stored(report: dict[str, Any]) -> Path:
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{report['date'].replace(':', '-').removesuffix('+00-00')}.json"
    path.write_text(json.dumps(report, indent=2) + "\n")
    return path


def _table(rows: list[dict[str, Any]]) -> Table:
    table = Table(title="Dovetail benchmarks")
    for column in ("scenario", "figure", "value", "× loop", "budget", ""):
        table.add_column(column, justify="left" if column in ("scenario", "figure") else "right")
    marks = {True: "[green]✓", False: "[red]over", None: ""}
    for row in rows:
        table.add_row(
            row["scenario"],
            row["figure"],
            f"{row['value']:,.4g} {row['unit']}",
            "" if row["ratio"] is None else f"{row['ratio']:.3g}",
            "" if row["budget"] is None else f"{row['budget']:,g}",
            marks[row["within"]],
        )
    return table


if __name__ == "__main__":
    sys.exit(main())

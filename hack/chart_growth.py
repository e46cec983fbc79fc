"""Draw how time and money grow, ours and the original's, from the numbers kept in docs/benchmarks.

    python hack/chart_growth.py                   draw the picture, fill docs/benchmarks.md and README.md
    python hack/chart_growth.py --measure         measure first: hack/bench_peer.py, some minutes, needs Go
    python hack/chart_growth.py --measure pods    measure one series only

The pictures need no library, and the page and the pictures say nothing that is not in the data.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
KEPT, PICTURE, PAGE = (ROOT / "docs" / name for name in ("benchmarks", "images/growth.svg", "benchmarks.md"))
README = ROOT / "README.md"
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 420, 280, 52, 30, 44, 36
OURS, IMPROVED, BOUND, THEIRS = "#2563eb", "#93c5fd", "#6b7280", "#d97706"
TYPES = {"144": 144, "400": 400, "main": 729}
Row = dict[str, Any]


@dataclass(frozen=True)
class Series:
    """One thing that grows: what to measure, and where a measurement stands on the axis."""

    name: str
    about: str
    arguments: tuple[tuple[str, ...], ...]
    position: Callable[[Row], float]


def _types(row: Row) -> float:
    _, mark, subset = str(row["workload"]).partition("-t")
    return TYPES[subset if mark else "main"]


def _sizes(family: str, *sizes: int) -> tuple[str, ...]:
    return ("--family", family, *(word for size in sizes for word in ("--size", str(size))))


SERIES = (
    Series(
        "pods",
        "pods that wait, all different, 729 types",
        (_sizes("diverse", 100, 300, 1000, 3000, 10_000),),
        lambda row: float(str(row["workload"]).split("-")[1]),
    ),
    Series(
        "nodes",
        "half-full nodes, 20 pods for each",
        (_sizes("existing", 100, 400, 1600, 6400),),
        lambda row: max(5.0, float(str(row["workload"]).split("-")[1]) // 20),
    ),
    Series(
        "types",
        "instance types, 1,000 different pods",
        tuple((*_sizes("diverse", 1000), "--subset", subset) for subset in TYPES),
        _types,
    ),
    Series("families", "1,000 pods of each kind", (("--size", "1000"),), lambda row: 0.0),
    Series(
        "goals", "what there are goals for", (("--goals", "--seed", "11", "--seed", "12"),), lambda row: 0.0
    ),
)
SECONDS = (("first_s", OURS), ("improved_s", IMPROVED), ("peer_s", THEIRS))
DOLLARS = (("first_dollars", OURS), ("dollars", IMPROVED), ("bound", BOUND), ("peer_dollars", THEIRS))
COLUMNS = (
    ("workload", "workload", "{}"),
    ("first_s", "first plan, s", "{:.3f}"),
    ("improved_s", "improved, s", "{:.3f}"),
    ("peer_s", "Karpenter, s", "{:.3f}"),
    ("faster", "first plan, times faster", "{:.1f}"),
    ("first_dollars", "first plan, $/h", "{:.2f}"),
    ("dollars", "improved, $/h", "{:.2f}"),
    ("bound", "proven floor, $/h", "{:.2f}"),
    ("peer_dollars", "Karpenter, $/h", "{:.2f}"),
    ("nodes", "nodes", "{}"),
    ("peer_nodes", "Karpenter's", "{}"),
)

AIMED = (
    ("workload", "workload", "{}"),
    ("cold_s", "cold, s", "{:.3f}"),
    ("warm_s", "warm, s", "{:.3f}"),
    ("peer_wall_s", "Karpenter, s", "{:.3f}"),
    ("faster_cold", "times faster, cold", "{:.1f}"),
    ("faster_warm", "warm", "{:.1f}"),
    ("improve_s", "improving, s", "{:.2f}"),
    ("gap", "above the floor", "{:.2%}"),
    ("cheaper", "cheaper than Karpenter's", "{:.1%}"),
    ("missed", "goals missed", "{}"),
)
"""The columns of `goals`: wall clocks of whole processes, so they need a quiet machine."""


def measure(series: Series) -> None:
    """Run both sides through every workload of a series and keep the numbers."""
    rows: list[Row] = []
    for arguments in series.arguments:
        out = ROOT / "build" / "bench" / f"growth-{series.name}.json"
        subprocess.run(
            [sys.executable, str(ROOT / "hack" / "bench_peer.py"), *arguments, "--out", str(out)], check=True
        )
        rows += json.loads(out.read_text())
    kept = {
        "measured": datetime.now(UTC).date().isoformat(),
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
        "rows": rows,
    }
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{series.name}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def kept(series: Series) -> dict[str, Any]:
    """The numbers of a series, with the time of an improved plan as a whole."""
    found: dict[str, Any] = json.loads((KEPT / f"{series.name}.json").read_text(encoding="utf-8"))
    for row in found["rows"]:
        row["improved_s"] = row["first_s"] + max(row["improve_s"], 0.0)
    return found


def picture() -> str:
    """Time against pods, nodes and types, then dollars against pods."""
    panels = [_panel(f"seconds, by {each.about}", _lines(each, SECONDS)) for each in SERIES[:3]]
    panels.append(_panel("dollars an hour, by pods that wait", _lines(SERIES[0], DOLLARS)))
    placed = "".join(
        f'<g transform="translate({WIDTH * (i % 2)},{30 + HEIGHT * (i // 2)})">{panel}</g>'
        for i, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {2 * WIDTH} {30 + 2 * HEIGHT}"'
        ' font-family="system-ui, sans-serif" font-size="11" fill="#374151">'
        f'<rect width="100%" height="100%" fill="#ffffff"/>{_legend()}{placed}</svg>\n'
    )


def _legend() -> str:
    names = (
        ("first plan", OURS),
        ("improved plan", IMPROVED),
        ("proven floor", BOUND),
        ("Karpenter's scheduler", THEIRS),
    )
    return "".join(
        f'<rect x="{LEFT + 160 * i}" y="12" width="18" height="4" fill="{colour}"/>'
        f'<text x="{LEFT + 24 + 160 * i}" y="18">{name}</text>'
        for i, (name, colour) in enumerate(names)
    )


Line = tuple[str, list[tuple[float, float]]]


def _lines(series: Series, keys: Sequence[tuple[str, str]]) -> list[Line]:
    rows = sorted(kept(series)["rows"], key=series.position)
    return [
        (colour, [(series.position(row), row[key]) for row in rows if row.get(key)]) for key, colour in keys
    ]


def _panel(title: str, lines: Sequence[Line]) -> str:
    """One chart with logarithmic axes: a straight line grows by a power."""
    xs, ys = ([point[i] for _, points in lines for point in points] for i in (0, 1))
    across, up = _axis(xs, LEFT, WIDTH - RIGHT), _axis(ys, HEIGHT - BOTTOM, TOP, whole=True)
    drawn = [f'<text x="{LEFT}" y="{TOP - 14}" font-weight="600">{title}</text>']
    for value in _decades(ys):
        y = up(value)
        drawn.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#e5e7eb"/>')
        drawn.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in sorted(set(xs)):
        place = f'x="{across(value):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle"'
        drawn.append(f"<text {place}>{value:,.0f}</text>")
    for colour, points in lines:
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        drawn.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        drawn += [f'<circle cx="{across(x):.1f}" cy="{up(y):.1f}" r="3" fill="{colour}"/>' for x, y in points]
    return "".join(drawn)


def _axis(
    values: Sequence[float], first: float, last: float, whole: bool = False
) -> Callable[[float], float]:
    low, high = math.log10(min(values)), math.log10(max(values))
    if whole:
        low, high = math.floor(low), math.ceil(high)
    return lambda value: first + (math.log10(value) - low) / ((high - low) or 1) * (last - first)


def _decades(values: Sequence[float]) -> Iterator[float]:
    for power in range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1):
        yield float(f"1e{power}")


def table(series: Series) -> str:
    """A series in numbers, with the state the machine was in."""
    found = kept(series)
    rows, columns = found["rows"], AIMED if series.name == "goals" else COLUMNS
    if columns is COLUMNS:
        rows = sorted(rows, key=lambda row: (series.position(row), str(row["workload"])))
    lines = ["| " + " | ".join(name for _, name, _ in columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [shape.format(row[key]) if row.get(key) is not None else "" for key, _, shape in columns]
        lines.append("| " + " | ".join(cells) + " |")
    state = (
        f"Measured {found['measured']} with Python {found['python']} on {found['cores']} cores;"
        f" the load of the machine was {found['load']:g}."
    )
    return "\n".join([*lines, "", state])


def headline() -> str:
    """The sentence of the README."""
    row = next(row for row in kept(SERIES[3])["rows"] if row["workload"] == "mix-1000-s1")
    return (
        "  For a thousand mixed pods the first plan costs ${first_dollars:.2f} an hour, where\n"
        "  Karpenter's own scheduler plans ${peer_dollars:.2f}, and takes {first_s:.2f} s of processor time"
        " instead of\n"
        "  {peer_s:.2f} s. After {improved_s:.2f} s it costs ${dollars:.2f}; no plan at all costs less than"
        " ${bound:.2f}."
    ).format(**row)


def page(text: str) -> str:
    """The page with its tables made anew."""
    for series in SERIES:
        text = _filled(text, series.name, f"\n{table(series)}\n")
    return text


def readme(text: str) -> str:
    return _filled(text, "numbers", headline(), "  ")


def _filled(text: str, name: str, made: str, indent: str = "") -> str:
    """The text with everything between two marks replaced."""
    begin, end = f"<!-- {name}: made by hack/chart_growth.py -->", f"<!-- end of {name} -->"
    before, mark, rest = text.partition(begin)
    _, other, after = rest.partition(end)
    if not mark or not other:
        raise SystemExit(f"the marks around {name} are gone; put them back: {begin} {end}")
    return f"{before}{begin}\n{made}\n{indent}{end}{after}"


def main(arguments: Sequence[str]) -> int:
    if arguments and arguments[0] == "--measure":
        for series in SERIES:
            if series.name in arguments[1:] or not arguments[1:]:
                measure(series)
    elif arguments:
        print(__doc__)
        return 2
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(picture(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    print("made: docs/images/growth.svg, the tables of docs/benchmarks.md, the numbers in README.md")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

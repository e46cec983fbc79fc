"""Lines over time as SVG: round numbers on both axes, and a step where a number stepped."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from math import ceil, floor, log10

__all__ = ["COUNT", "Line", "chart", "legend"]

Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 720, 170
LEFT, RIGHT, TOP, BOTTOM = 52, 10, 10, 22
COUNT = "{:.0f}"  # the shape of what has no halves
CLOCK, MARKS = (1, 2, 3, 5, 6, 10, 12, 15, 20, 24), 8
FINE = 660  # a picture is some hundred points wide; more only make the file larger


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a chart: its name, hours and values; dashed if it is only there to measure by."""

    name: str
    points: Points
    colour: int = 0
    dashed: bool = False


def chart(title: str, lines: Sequence[Line], shape: str = "{:g}") -> str:
    """A titled chart; one that never leaves zero is a sentence instead of an empty frame."""
    most = max((y for line in lines for _, y in line.points), default=0.0)
    head = f"<h2>{html.escape(title)}</h2>"
    if most <= 0:
        return f'{head}<p class="none">None at any time.</p>'
    hours = max((x for line in lines for x, _ in line.points), default=0.0) or 1.0
    ticks = _ticks(most, 1.0 if shape == COUNT else 0.0)
    drawn = "".join(_line(line, hours, ticks[-1]) for line in lines)
    label = html.escape(f"{title}, over {hours:g} hours")
    return (
        f'{head}<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        f"{_values(ticks, shape)}{_hours(hours)}{drawn}</svg>"
    )


def legend(lines: Sequence[Line]) -> str:
    """Which colour is which run; nothing where there is only one."""
    if len(lines) < 2:
        return ""
    keys = "".join(f'<span><i class="c{line.colour}"></i>{html.escape(line.name)}</span>' for line in lines)
    return f'<p class="legend">{keys}</p>'


def _values(ticks: Sequence[float], shape: str) -> str:
    """Horizontal lines at round values, each with its number."""
    drawn = []
    for at in ticks:
        y = _y(at, ticks[-1])
        drawn.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>')
        drawn.append(f'<text x="{LEFT - 8}" y="{y}" dy=".35em" text-anchor="end">{shape.format(at)}</text>')
    return "".join(drawn)


def _hours(hours: float) -> str:
    """Round moments under the chart, in minutes where it is short."""
    scale, unit = (60.0, "min") if hours <= 2 else (1.0, "h")
    last = hours * scale
    # As a clock is divided; what is longer than some days, by days.
    step = next((each for each in CLOCK if last / each <= MARKS), 24 * ceil(last / 24 / MARKS))
    return "".join(
        f'<text x="{_x(at / scale, hours)}" y="{HEIGHT - 6}" text-anchor="{_anchor(at, last)}">'
        f"{at} {unit}</text>"
        for at in range(0, int(last) + 1, step)
    )


def _anchor(at: float, last: float) -> str:
    return "end" if at >= 0.97 * last else "middle" if at else "start"


def _line(line: Line, hours: float, top: float) -> str:
    places = [f"{_x(x, hours)},{_y(y, top)}" for x, y in _stepped(_thinned(line.points, hours))]
    dashes = ' stroke-dasharray="5 4"' if line.dashed else ""
    return f'<polyline class="c{line.colour}"{dashes} points="{" ".join(places)}"/>'


def _x(at: float, hours: float) -> str:
    return f"{LEFT + at / hours * (WIDTH - LEFT - RIGHT):.1f}"


def _y(value: float, top: float) -> str:
    return f"{HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM):.1f}"


def _ticks(most: float, least: float) -> list[float]:
    """Zero and round steps of 1, 2 or 5, none below the least, up to the first at or above the most."""
    rough = most / 4
    power = 10.0 ** floor(log10(rough))
    step = max(least, power * next(each for each in (1, 2, 5, 10) if each * power >= rough * 0.999))
    return [round(step * i, 10) for i in range(ceil(most / step * 0.999) + 1)]


def _stepped(points: Points) -> list[tuple[float, float]]:
    """Each value holds until the next, as it does in the sums."""
    out = list(points[:1])
    for (_, before), (x, y) in pairwise(points):
        if y != before:
            out.append((x, before))
        out.append((x, y))
    return out


def _thinned(points: Points, hours: float) -> list[tuple[float, float]]:
    """One point for each dot of the picture, and it is the highest: a peak must not fall between two."""
    if len(points) <= FINE:
        return list(points)
    dots = groupby(points, key=lambda point: int(point[0] / hours * FINE))
    return [max(group, key=lambda point: point[1]) for _, group in dots]

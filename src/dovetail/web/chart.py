"""Lines over time as SVG: classes and attributes alone, for the policy lets no style through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from math import ceil, floor, log10

__all__ = ["ChartPath", "WebChart", "render_chart"]

WIDTH, HEIGHT = 900, 220
LEFT, RIGHT, TOP, BOTTOM = 70, 12, 10, 24
MOST_MARKS = 6
TONES = ("warn", "good", "quiet")


@dataclass(frozen=True, slots=True)
class ChartPath:
    """One line: its name, and its values by time."""

    name: str
    points: tuple[tuple[datetime, float], ...]
    dashed: bool = False


@dataclass(frozen=True, slots=True)
class WebChart:
    """Lines in one frame; `shape` is how a value is written."""

    key: str
    title: str
    paths: tuple[ChartPath, ...]
    shape: str = "${:,.2f}"


def render_chart(chart: WebChart) -> Iterable[str]:
    """The frame with its lines, and which is which: in words with their last values, not by colour alone."""
    paths = [path for path in chart.paths if len(path.points) > 1]
    if not paths:
        return
    times = [at for path in paths for at, _ in path.points]
    first, last = min(times), max(times)
    most = max(value for path in paths for _, value in path.points)
    ticks = _list_ticks(most)
    yield f'<section id="{escape(chart.key)}"><h2>{escape(chart.title)}</h2>'
    yield f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(chart.title)}">'
    yield from _draw_grid(ticks, chart.shape, first, last)
    for number, path in enumerate(paths):
        places = " ".join(
            f"{_place_x(at, first, last)},{_place_y(value, ticks[-1])}" for at, value in path.points
        )
        dashes = ' stroke-dasharray="6 4"' if path.dashed else ""
        yield f'<polyline class="line {TONES[number % len(TONES)]}"{dashes} points="{places}"/>'
    yield '</svg><p class="legend">'
    for number, path in enumerate(paths):
        said = chart.shape.format(path.points[-1][1])
        tone = TONES[number % len(TONES)]
        yield f'<span class="dot {tone}"></span>{escape(path.name)} {escape(said)} '
    yield "</p></section>"


def _draw_grid(ticks: Sequence[float], shape: str, first: datetime, last: datetime) -> Iterable[str]:
    for value in ticks:
        y = _place_y(value, ticks[-1])
        yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y}" y2="{y}"/>'
        words = escape(shape.format(value))
        yield f'<text x="{LEFT - 8}" y="{y}" dy=".35em" text-anchor="end">{words}</text>'
    span = last - first
    for number in range(MOST_MARKS + 1):
        at = first + span * (number / MOST_MARKS)
        anchor = "start" if number == 0 else "end" if number == MOST_MARKS else "middle"
        words = f"{at:%m-%d %H:%M}"
        yield (
            f'<text x="{_place_x(at, first, last)}" y="{HEIGHT - 6}" text-anchor="{anchor}">{words}</text>'
        )


def _place_x(at: datetime, first: datetime, last: datetime) -> str:
    share = (at - first) / (last - first) if last > first else 0.0
    return f"{LEFT + share * (WIDTH - LEFT - RIGHT):.1f}"


def _place_y(value: float, top: float) -> str:
    return f"{HEIGHT - BOTTOM - (value / top if top else 0.0) * (HEIGHT - TOP - BOTTOM):.1f}"


def _list_ticks(most: float) -> list[float]:
    """Zero, and round steps up to the first at or above the most."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / 4
    power = 10.0 ** floor(log10(rough))
    step = power * next(each for each in (1, 2, 5, 10) if each * power >= rough * 0.999)
    return [round(step * number, 10) for number in range(ceil(most / step * 0.999) + 1)]

"""The page of a report: every number and promise is on it, and its charts can be read."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from dovetail.sim.report import RunReport, build_rows
from dovetail.sim.report_page import COUNT, ChartLine, draw_chart, render_page
from dovetail.sim.run_recorder import ObjectiveResult, Sample


def report(name: str = "a day", hours: int = 24, floor: float | None = None, waiting: int = 0) -> RunReport:
    samples = tuple(
        Sample(60.0 * minute, minute % 7, 2.5, 10, waiting, 4.0, 5.0, 1, floor or 0.0)
        for minute in range(60 * hours + 1)
    )
    kept = (
        ObjectiveResult("pods wait < 60 s", True, 0, "99.9%"),
        ObjectiveResult("front is up", False, 2, "98%"),
    )
    numbers = (name, 1, hours, 60.0, 2.5, 72, 6, 9, 3, 10, 0, 4.0, 8.0, 8.0, 2, 0.8, 1.0)
    return RunReport(*numbers, floor, 0.4, slo_breaches=1, objectives=kept, samples=samples)


def drawn(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


def test_a_page_has_every_number_and_every_promise() -> None:
    page = render_page([report(floor=1.5)])
    for label, (cell,) in build_rows([report(floor=1.5)]):
        assert f"<tr><th>{label}</th><td>{cell}</td></tr>" in page
    assert "pods wait &lt; 60 s: 99.9%" in page
    assert re.search(r'class="broken">broken</b> front is up', page)
    assert "{" not in re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL)


def test_several_runs_share_charts_and_a_legend() -> None:
    page = render_page([report("day one"), report("day two")])
    assert "<h1>day</h1>" in page
    assert re.findall(r'<i class="c(\d)"></i>(.*?)</span>', page) == [("0", "day one"), ("1", "day two")]
    assert all(len(svg.findall("polyline")) == 2 for svg in drawn(page))


def test_names_are_not_markup() -> None:
    assert "<b>bold" not in render_page([report("<b>bold"), report("<i>other")])


def test_the_floor_is_a_dashed_line_under_what_was_paid() -> None:
    first = drawn(render_page([report(floor=1.5)]))[0]
    solid, dashed = first.findall("polyline")
    assert dashed.get("stroke-dasharray")
    heights = [float(line.get("points", "").split()[0].split(",")[1]) for line in (solid, dashed)]
    assert heights[0] < heights[1]  # y grows downwards


def test_a_chart_of_nothing_is_a_sentence() -> None:
    assert "None at any time." in render_page([report(waiting=0)])
    assert "None at any time." not in render_page([report(waiting=2)])


@pytest.mark.parametrize("most", [0.019, 0.7, 3.0, 61.0, 87.3, 4000.0])
def test_values_are_round_and_the_line_stays_inside(most: float) -> None:
    (svg,) = drawn(draw_chart("x", [ChartLine("x", [(0.0, 0.0), (1.0, most)])]))
    ticks = [float(text.text or "") for text in svg.findall("text") if " " not in (text.text or "")]
    assert ticks[0] == 0
    assert max(ticks) >= most * 0.999
    top = min(float(place.split(",")[1]) for place in svg.find("polyline").get("points").split())  # type: ignore[union-attr]
    assert top >= 0


def test_there_are_no_half_pods() -> None:
    (svg,) = drawn(draw_chart("x", [ChartLine("x", [(0.0, 0.0), (1.0, 2.0)])], COUNT))
    assert [text.text for text in svg.findall("text")][:3] == ["0", "1", "2"]


@pytest.mark.parametrize(
    ("hours", "last"), [(0.5, "30 min"), (1.0, "60 min"), (24.0, "24 h"), (168.0, "168 h")]
)
def test_time_is_divided_as_a_clock_is(hours: float, last: str) -> None:
    (svg,) = drawn(draw_chart("x", [ChartLine("x", [(0.0, 1.0), (hours, 1.0)])]))
    moments = [text.text for text in svg.findall("text") if (text.text or "").endswith(("h", "min"))]
    assert moments[-1] == last
    assert 4 <= len(moments) <= 9


def test_a_peak_survives_in_a_long_run() -> None:
    points = [(minute / 60, 9.0 if minute == 4001 else 1.0) for minute in range(10_000)]
    (svg,) = drawn(draw_chart("x", [ChartLine("x", points)]))
    heights = {place.split(",")[1] for place in svg.find("polyline").get("points").split()}  # type: ignore[union-attr]
    assert len(heights) == 2

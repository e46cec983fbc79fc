"""A page as HTML. Every word passes through `escape` here and nowhere else; nothing is written inline that a
content security policy would have to let through."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from importlib.resources import files
from string import Template

from dovetail.web.chart import render_chart
from dovetail.web.page import Cell, Fact, FilterRow, Tile, WebPage, WebTable

__all__ = ["PageFrame", "RecordedTimes", "render_inside", "render_page", "render_problem"]

MENU = (
    ("overview", "Overview"),
    ("nodes", "Nodes"),
    ("pods", "Pending pods"),
    ("plan", "Plan"),
    ("disruption", "Disruption"),
    ("rules", "Rules"),
    ("pools", "NodePools"),
    ("shifts", "Zonal shifts"),
    ("spend", "Spend limits"),
    ("events", "Events"),
    ("history", "History"),
)
MONEY, CHANGE, SHADOW = ("money", "Money"), ("change", "Change"), ("shadow", "Shadow")
ON = ' class="chosen" aria-current="true"'
STATE_CLASSES = {"live": "live", "stale": "live lost", "a snapshot": "still", "a recording": "still"}
# A browser with more rows than this is of no use to anybody; the JSON twin has them all.
MOST_ROWS = 1_000
TILE, GAP, PER_ROW = 26, 4, 32
LEGEND = (
    '<p class="legend"><span class="dot good"></span>running <span class="dot warn"></span>removable '
    '<span class="dot quiet"></span>not of a NodePool</p>'
)
LAYOUT = Template((files("dovetail.web") / "templates" / "page.html").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True)
class RecordedTimes:
    """Where in a recording a page is: its first and last look, this one, and those before and after it."""

    first: datetime
    last: datetime
    at: datetime
    before: datetime
    after: datetime


@dataclass(frozen=True, slots=True)
class PageFrame:
    """What surrounds a page: where it is, whose cluster it shows, and as of when."""

    path: str
    cluster: str
    as_of: str
    live: bool
    version: str
    # Since when and why the cluster cannot be read; empty while it can.
    stale: str = ""
    # What was asked after the path.
    query: str = ""
    times: RecordedTimes | None = None
    # Whether there is a change to be shown.
    changed: bool = False
    # Whether there is a shadow to be shown.
    shadowed: bool = False
    # Whether something is committed.
    committed: bool = False

    @property
    def state(self) -> str:
        if not self.live:
            return "a snapshot" if self.times is None else "a recording"
        return "stale" if self.stale else "live"

    @property
    def root(self) -> str:
        """The way back to the first page, so that a proxy may serve it all below any path."""
        return "../" * self.path.count("/")

    def link_to(self, path: str) -> str:
        """The way to another page, of the same time where there are several."""
        if self.times is None:
            return f"{self.root}{path}"
        return f"{self.root}{path}{'&' if '?' in path else '?'}at={_write_time(self.times.at)}"


def render_page(page: WebPage, frame: PageFrame) -> str:
    """The whole document."""
    return LAYOUT.substitute(
        title=escape(page.title),
        cluster=escape(frame.cluster),
        menu="".join(_render_menu(frame)),
        times="".join(_render_times(frame)),
        main=render_inside(page, frame),
        as_of=escape(frame.as_of),
        state=STATE_CLASSES[frame.state],
        state_words=frame.state,
        version=escape(frame.version),
        root=frame.root or "./",
    )


def render_problem(title: str, sentence: str, frame: PageFrame) -> str:
    """A page that says in one sentence what is wrong."""
    return render_page(WebPage(title, sentence), frame)


def render_inside(page: WebPage, frame: PageFrame) -> str:
    """What changes when the cluster does."""
    twin = f"{frame.root}{frame.path or 'overview'}.json{f'?{frame.query}' if frame.query else ''}"
    parts = [
        *((f'<p class="stale" role="alert">{escape(frame.stale)}</p>',) if frame.stale else ()),
        f"<header><h1>{escape(page.title)}</h1>"
        f'<p class="sentence">{escape(page.sentence)}</p>'
        f'<a class="twin" href="{escape(twin)}">JSON</a></header>',
        *_render_facts(page.facts, frame),
        *_render_tiles(page.tiles, frame),
        *(part for chart in page.charts for part in render_chart(chart)),
        *(f'<p class="remark">{escape(each)}</p>' for each in page.remarks),
        *_render_filters(page.filters, frame),
        *(part for table in page.tables for part in _render_table(table, frame)),
    ]
    return "".join(parts)


def _render_menu(frame: PageFrame) -> Iterable[str]:
    here = (frame.path or "overview").partition("/")[0]
    asked = ((MONEY, frame.committed), (CHANGE, frame.changed), (SHADOW, frame.shadowed))
    for path, title in (*MENU, *(each for each, there in asked if there)):
        current = ' aria-current="page"' if path == here else ""
        yield f'<a href="{escape(frame.link_to(path))}"{current}>{escape(title)}</a>'


def _render_times(frame: PageFrame) -> Iterable[str]:
    """The slider of a recording, and links for those who have no use of it."""
    times = frame.times
    if times is None:
        return
    ways = (("First", times.first), ("Back", times.before), ("Next", times.after), ("Last", times.last))
    here = frame.path or "overview"
    links = "".join(
        f'<a href="{frame.root}{escape(here)}?at={_write_time(to)}">{word}</a>'
        if to != times.at
        else f"<span>{word}</span>"
        for word, to in ways
    )
    ends = f'min="{times.first.timestamp():.0f}" max="{times.last.timestamp():.0f}"'
    span = f"{times.first:%Y-%m-%d %H:%M} to {times.last:%Y-%m-%d %H:%M} UTC"
    yield (
        f'<nav class="times" aria-label="Time">{links}'
        f'<input id="time" type="range" step="1" {ends} value="{times.at.timestamp():.0f}" '
        f'aria-label="Time of the recording, {span}">'
        f'<output id="time-of" for="time">{times.at:%Y-%m-%d %H:%M:%S} UTC</output></nav>'
    )


def _write_time(time: datetime) -> str:
    """A time as a link has it."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _render_facts(facts: tuple[Fact, ...], frame: PageFrame) -> Iterable[str]:
    if not facts:
        return
    yield '<dl class="facts">'
    for fact in facts:
        note = f'<dd class="note">{escape(fact.note)}</dd>' if fact.note else ""
        yield f"<div><dt>{escape(fact.title)}</dt><dd>{_render_fact(fact.cell, frame)}</dd>{note}</div>"
    yield "</dl>"


def _render_fact(cell: Cell, frame: PageFrame) -> str:
    if cell.kind == "share" and cell.value is not None:
        return f"{escape(cell.text)}{_render_bar(cell, 120)}"
    return _render_cell(cell, frame)


def _render_tiles(tiles: tuple[Tile, ...], frame: PageFrame) -> Iterable[str]:
    """Every node as a small box, filled by the share of its CPU that pods request."""
    if not tiles:
        return
    rows = -(-len(tiles) // PER_ROW)
    step = TILE + GAP
    width, height = min(len(tiles), PER_ROW) * step, rows * step
    yield '<section><h2>Nodes, filled by the CPU requested</h2><div class="scroll">'
    size = f'width="{width}" height="{height}"'
    yield f'<svg class="fleet" {size} role="group" aria-label="{len(tiles)} nodes">'
    for number, tile in enumerate(tiles):
        x, y = number % PER_ROW * step, number // PER_ROW * step
        full = round(min(1.0, tile.share) * TILE, 1)
        wide = f'x="{x}" width="{TILE}" rx="3"'
        yield (
            f'<a href="{escape(frame.link_to(tile.link))}"><title>{escape(tile.about)}</title>'
            f'<rect class="vessel {tile.tone}" {wide} y="{y}" height="{TILE}"/>'
            f'<rect class="fill {tile.tone}" {wide} y="{y + TILE - full:g}" height="{full:g}"/>'
            "</a>"
        )
    yield f"</svg></div>{LEGEND}</section>"


def _render_filters(filters: tuple[FilterRow, ...], frame: PageFrame) -> Iterable[str]:
    if not filters:
        return
    yield '<nav class="filters" aria-label="Filters">'
    for row in filters:
        links = " ".join(
            f'<a href="{escape(frame.link_to(each.link))}"{ON if each.chosen else ""}>{escape(each.text)}</a>'
            for each in row.links
        )
        yield f"<p><b>{escape(row.title)}</b> {links}</p>"
    yield "</nav>"


def _render_table(table: WebTable, frame: PageFrame) -> Iterable[str]:
    yield f'<section id="{escape(table.key)}"><h2>{escape(table.title)}'
    yield f' <span class="count">{len(table.rows):,}</span></h2>' if table.rows else "</h2>"
    if not table.rows:
        yield f'<p class="empty">{escape(table.empty)}</p></section>'
        return
    heads = "".join(
        f'<th scope="col"{_build_class(cell)}>{escape(title)}</th>'
        for (_, title), cell in zip(table.columns, table.rows[0], strict=True)
    )
    yield f'<div class="scroll"><table><caption class="hidden">{escape(table.title)}</caption><thead><tr>'
    yield f"{heads}</tr></thead><tbody>"
    for row in table.rows[:MOST_ROWS]:
        first, *rest = (_render_cell(cell, frame) for cell in row)
        kinds = [_build_class(cell) for cell in row]
        tail = "".join(f"<td{kind}>{each}</td>" for kind, each in zip(kinds[1:], rest, strict=True))
        yield f'<tr><th scope="row"{kinds[0]}>{first}</th>{tail}</tr>'
    yield "</tbody></table></div>"
    if len(table.rows) > MOST_ROWS:
        yield f'<p class="empty">and {len(table.rows) - MOST_ROWS:,} more; the JSON has them all</p>'
    yield "</section>"


def _build_class(cell: Cell) -> str:
    return f' class="{cell.kind}"' if cell.kind in ("number", "share", "prose") else ""


def _render_cell(cell: Cell, frame: PageFrame) -> str:
    words = escape(cell.text)
    if cell.link:
        whole = f' title="{escape(cell.value)}"' if cell.value != cell.text else ""
        return f'<a href="{escape(frame.link_to(cell.link))}"{whole}>{words}</a>'
    match cell.kind:
        case "share":
            return f"{_render_bar(cell)} {words}" if cell.value is not None else words
        case "word" if cell.value is not None:
            return f'<span class="word {cell.tone}">{words}</span>'
        case "code" if cell.value is not None:
            return f"<code>{words}</code>"
        case _:
            return f'<span class="{cell.tone}">{words}</span>' if cell.tone else words


def _render_bar(cell: Cell, wide: int = 60) -> str:
    """Words stand beside every bar, so that nothing is said by colour alone."""
    width = round(min(1.0, max(0.0, float(cell.value))) * wide, 1)
    return (
        f'<svg class="bar" width="{wide}" height="8" aria-hidden="true">'
        f'<rect class="vessel" width="{wide}" height="8" rx="2"/>'
        f'<rect class="fill {cell.tone}" width="{width:g}" height="8" rx="2"/></svg>'
    )

"""A page before it has a shape: facts, tables and sentences, each with the value behind its words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dovetail.scheduling.model.resources import convert_to_quantities
from dovetail.web.chart import WebChart

__all__ = ["Cell", "Fact", "FilterLink", "FilterRow", "Tile", "WebPage", "WebTable", "build_document"]

Tone = Literal["", "good", "warn", "bad", "quiet"]
BYTES = frozenset(("memory", "ephemeral-storage"))
UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


@dataclass(frozen=True, slots=True)
class Cell:
    """One thing that is said: its value for programs, its words for people, and how it looks."""

    value: Any
    text: str
    kind: Literal["text", "prose", "number", "share", "word", "code"] = "text"
    tone: Tone = ""
    link: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    """A number at the top of a page. `key` is its name for programs."""

    key: str
    title: str
    cell: Cell
    note: str = ""


@dataclass(frozen=True, slots=True)
class WebTable:
    """Rows under named columns; `empty` is said where there are none."""

    key: str
    title: str
    columns: tuple[tuple[str, str], ...]
    rows: tuple[tuple[Cell, ...], ...]
    empty: str
    about: str = ""


@dataclass(frozen=True, slots=True)
class Tile:
    """One node in the picture of all: how full it is, what it is called, and where its page is."""

    name: str
    share: float
    tone: Tone
    about: str
    link: str


@dataclass(frozen=True, slots=True)
class FilterLink:
    """One choice: its word, the page with it taken or left, and whether it is taken."""

    text: str
    link: str
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class FilterRow:
    """Choices of one sort, side by side."""

    title: str
    links: tuple[FilterLink, ...]


@dataclass(frozen=True, slots=True)
class WebPage:
    """All of a page, in the order in which it is read."""

    title: str
    sentence: str
    facts: tuple[Fact, ...] = ()
    tables: tuple[WebTable, ...] = ()
    tiles: tuple[Tile, ...] = ()
    remarks: tuple[str, ...] = ()
    filters: tuple[FilterRow, ...] = ()
    charts: tuple[WebChart, ...] = ()


def build_document(page: WebPage) -> dict[str, Any]:
    """The page for programs: the same facts and rows, as values."""
    found: dict[str, Any] = {"title": page.title, "sentence": page.sentence, "remarks": list(page.remarks)}
    if page.facts:
        found["facts"] = {fact.key: fact.cell.value for fact in page.facts}
    for chart in page.charts:
        found[chart.key] = {
            path.name: [{"at": at.isoformat(), "value": value} for at, value in path.points]
            for path in chart.paths
        }
    for table in page.tables:
        keys = [key for key, _ in table.columns]
        found[table.key] = [dict(zip(keys, (cell.value for cell in row), strict=True)) for row in table.rows]
    return found


def text_cell(
    value: str | None, *, tone: Tone = "", link: str = "", kind: Literal["text", "code"] = "text"
) -> Cell:
    return Cell(value, value or "–", kind, tone, link)


def word_cell(value: str, tone: Tone = "") -> Cell:
    """One word that matters, such as the state of something."""
    return Cell(value or None, value or "–", "word", tone)


def number_cell(value: int, *, tone: Tone = "", link: str = "") -> Cell:
    return Cell(value, f"{value:,}", "number", tone, link)


def price_cell(value: float | None, digits: int = 4) -> Cell:
    """A price; None where nobody knows it."""
    if value is None:
        return Cell(None, "?", "number", "quiet")
    return Cell(value, f"${value:,.{digits}f}", "number")


def share_cell(value: float | None, *, full: float | None = None) -> Cell:
    """A part of something. From `full` on it deserves a look; 1.0 where nothing is said about that."""
    if value is None:
        return Cell(None, "–", "share", "quiet")
    tone: Tone = "good" if full is None or value < full else "bad" if value >= 1 else "warn"
    return Cell(round(value, 4), f"{value:.0%}", "share", tone)


def prose_cell(value: str | None, *, tone: Tone = "") -> Cell:
    """A sentence, which may take several lines. All that was required of a node is for programs alone."""
    short, cut, _ = (value or "–").partition(", requirements=")
    return Cell(value or None, short + (" …" if cut else ""), "prose", tone)


def amount_cell(resource: str, nano: int) -> Cell:
    """How much of a resource, as people say it; the value is as Kubernetes writes it."""
    exact = str(convert_to_quantities({resource: nano}).get(resource, 0))
    if resource == "cpu":
        return Cell(exact, f"{round(nano / 10**9, 2):,}".removesuffix(".0"), "number")
    if resource not in BYTES:
        return Cell(exact, exact, "number")
    power = min(max((nano // 10**9).bit_length() - 1, 0) // 10, len(UNITS) - 1)
    size, unit = nano / 10**9 / 1024**power, UNITS[power]
    # From 999.5 on, three digits would be written with an exponent.
    return Cell(exact, f"{size:,.0f} {unit}" if size >= 999.5 else f"{size:.3g} {unit}", "number")


def format_count(count: int, noun: str) -> str:
    several = f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{count:,} {noun if count == 1 else several}"


def names_cell(values: Sequence[str], most: int = 3) -> Cell:
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return Cell(list(values), (", ".join(values[:most]) or "–") + more, "prose")

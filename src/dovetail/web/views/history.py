"""What happened, as the leader remembers it: all of it with filters, and of one node, pod or NodePool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from urllib.parse import quote, urlencode

from dovetail.errors import BadInput, escape_text
from dovetail.history.asking import build_query, find_nearest
from dovetail.history.record import DecisionRecord, RecordSeverity
from dovetail.history.ring import HistoryQuery
from dovetail.history.telling import describe_subject, tell_row
from dovetail.picture import Picture
from dovetail.web.page import (
    Cell,
    FilterLink,
    FilterRow,
    Tone,
    WebPage,
    WebTable,
    format_count,
    prose_cell,
)

__all__ = ["build_history_page", "build_history_table", "build_past_page"]

COLUMNS = (
    ("time", "When"),
    ("about", "About"),
    ("kind", "What"),
    ("why", "Why"),
)
TOLD = ("told", "Told")
SHOWN = 500
FEW = 100
SINCE = ("1h", "6h", "24h")
NO_HISTORY = "A snapshot has no history; a live cluster's leader remembers one."
NOT_YET = "The leader has not been asked for its history yet."


def build_history_page(picture: Picture, asked: Mapping[str, str]) -> WebPage:
    """The newest records, fewer with each filter that is chosen."""
    history = picture.history
    if history.ring is None:
        return WebPage("History", _describe_none(picture))
    try:
        query = build_query({"limit": str(SHOWN), **asked}.items(), picture.now)
    except BadInput as error:
        return WebPage("History", f"This cannot be asked: {error}.")
    found = history.ring.find_records(query)
    more = f", the newest {SHOWN:,} of them" if len(found) == query.limit else ""
    near = find_nearest(history.ring, query.name) if not found else ""
    about = f" Did you mean {near}?" if near else ""
    return WebPage(
        "History",
        f"{format_count(len(found), 'record')}{more}. {_describe_memory(picture)}{about}",
        tables=(_build_table("records", found, picture),),
        filters=tuple(_build_filters(found, asked)),
        remarks=(history.why,) if history.why else (),
    )


def _describe_none(picture: Picture) -> str:
    return picture.history.why or (NOT_YET if picture.live else NO_HISTORY)


def _describe_memory(picture: Picture) -> str:
    since = picture.history.since
    return f"Remembered since {since:%Y-%m-%d %H:%M:%S} UTC." if since else "Nothing is remembered yet."


def build_history_table(picture: Picture, name: str) -> WebTable:
    """What happened to one node, pod or NodePool, the latest first."""
    ring = picture.history.ring
    found = ring.find_records(HistoryQuery(name=name, limit=FEW)) if ring is not None else []
    empty = f"Nothing is remembered of it. {_describe_memory(picture)}" if ring is not None else ""
    return _build_table("history", found, picture, empty or _describe_none(picture))


def build_past_page(picture: Picture, name: str) -> WebPage | None:
    """A node or pod that is gone, or not pending, and that something is remembered of."""
    ring = picture.history.ring
    if ring is None or not ring.knows_name(name):
        return None
    kind, _, bare = name.partition("/")
    told = "It is no longer in the cluster." if kind == "node" else "It is not pending."
    return WebPage(bare, f"{told} {_describe_memory(picture)}", tables=(build_history_table(picture, name),))


def _build_table(key: str, records: Iterable[DecisionRecord], picture: Picture, empty: str = "") -> WebTable:
    told = picture.history.told
    columns = COLUMNS if told is None else (*COLUMNS, TOLD)
    rows = tuple(
        (*_build_row(record, picture.now), *(() if told is None else (_build_told(record, told),)))
        for record in records
    )
    return WebTable(key, "What happened", columns, rows, empty or "Nothing that was asked for is remembered.")


def _build_told(record: DecisionRecord, told: Mapping[str, tuple[str, ...]]) -> Cell:
    """The sinks of notifications that heard of a record."""
    names = ", ".join(dict.fromkeys(told.get(record.id, ())))
    return Cell(names, escape_text(names) or "-", "word")


def _build_row(record: DecisionRecord, now: datetime) -> tuple[Cell, ...]:
    told, about = tell_row(record, now), describe_subject(record.subject)
    tone: Tone = "warn" if record.severity is RecordSeverity.WARNING else ""
    return (
        Cell(record.time.isoformat(), told.time, "number"),
        Cell(record.subject, escape_text(about), link=_link_subject(record.subject)),
        Cell(str(record.kind), told.what.removeprefix(f"{about} "), "word", tone),
        prose_cell(told.why),
    )


def _link_subject(subject: str) -> str:
    """The page of a node, a pod or a NodePool; of anything else, its history."""
    kind, _, name = subject.partition("/")
    pages = {"node": f"nodes/{quote(name, safe='')}", "pod": f"pods/{quote(name)}"}
    pages["pool"] = f"pools/{quote(name, safe='')}"
    return pages.get(kind, f"history?{urlencode({'name': subject})}")


def _build_filters(found: Iterable[DecisionRecord], asked: Mapping[str, str]) -> Iterable[FilterRow]:
    """Each filter as links: another click takes it away again."""
    listed = tuple(found)
    kinds = Counter(str(record.kind) for record in listed)
    pools = Counter(pool for record in listed for pool in record.pools)
    reasons = Counter(record.reason for record in listed if record.reason)
    yield _build_row_of_links("Since", "since", SINCE, asked)
    acts = asked.get("acts") == "true"
    yield FilterRow(
        "Show", (FilterLink("only what was done", _link({**asked, "acts": "" if acts else "true"}), acts),)
    )
    for title, key, counts in (
        ("What", "kind", kinds),
        ("NodePool", "pool", pools),
        ("Reason", "reason", reasons),
    ):
        chosen = asked.get(key, "")
        values = [chosen] if chosen else [value for value, _ in counts.most_common(12)]
        if values:
            yield _build_row_of_links(title, key, values, asked)
    if asked.get("name"):
        yield _build_row_of_links("About", "name", [asked["name"]], asked)


def _build_row_of_links(title: str, key: str, values: Iterable[str], asked: Mapping[str, str]) -> FilterRow:
    chosen = asked.get(key, "")
    return FilterRow(
        title,
        tuple(
            FilterLink(value, _link({**asked, key: "" if value == chosen else value}), value == chosen)
            for value in values
        ),
    )


def _link(asked: Mapping[str, str]) -> str:
    given = {key: value for key, value in asked.items() if value}
    return f"history?{urlencode(given)}" if given else "history"

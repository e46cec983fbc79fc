"""Records for people and for programs: a table, documents or lines; and what to say where there are none."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from dovetail.app.history_source import HistoryAnswer, open_leader
from dovetail.cli.views.output import Format, print_structured, print_table, print_text
from dovetail.errors import DovetailError
from dovetail.history.record import DecisionRecord, encode_record
from dovetail.history.ring import HistoryQuery
from dovetail.history.telling import COLUMNS, describe_subject, tell_row, tell_rows
from dovetail.runtime.clock import SystemClock

if TYPE_CHECKING:
    from dovetail.app.cluster_source import ClusterSource

__all__ = ["describe_nothing", "format_moment", "print_history", "print_lately"]

# What `explain` adds must not make anybody wait. Seconds, and lines.
AT_ONCE, LINES = 2.0, 5


def print_history(
    records: Sequence[DecisionRecord], shape: str, asked: str, now: datetime, remembers: datetime | None
) -> None:
    """Write records in the order given."""
    if shape == "jsonl":
        print_text("".join(f"{encode_record(record).decode()}\n" for record in records))
    elif shape in ("json", "yaml"):
        since = {"remembersSince": format_moment(remembers)} if remembers is not None else {}
        listed = [msgspec.to_builtins(record) for record in records]
        print_structured({**since, "records": listed}, Format(shape))
    elif asked and not asked.startswith("pool/"):
        print_table(COLUMNS, tell_rows(records, now, asked))
    else:
        print_table(("TIME", "ABOUT", "WHAT", "WHY"), [_tell_with_subject(each, now) for each in records])


def _tell_with_subject(record: DecisionRecord, now: datetime) -> tuple[str, str, str, str]:
    """A line of a history of many things: what it is about has a column of its own."""
    row, about = tell_row(record, now), describe_subject(record.subject)
    return row.time, about, row.what.removeprefix(f"{about} "), row.why


def describe_nothing(answer: HistoryAnswer, query: HistoryQuery) -> str:
    """What was asked for and not found, and since when anything is remembered."""
    asked = [
        f"of {query.name}" if query.name else "",
        f"in pool {query.pool}" if query.pool else "",
        f"of kind {' or '.join(sorted(query.kinds))}" if query.kinds else "",
        f"for the reason {query.reason}" if query.reason else "",
        f"since {format_moment(query.since)}" if query.since else "",
        f"until {format_moment(query.until)}" if query.until else "",
    ]
    acts = "nothing that was done" if query.acts_only else "nothing"
    told = " ".join([f"{acts} is remembered", *filter(None, asked)])
    known = (
        f"what is remembered begins at {format_moment(answer.remembers)}"
        if answer.remembers is not None
        else "nothing at all is remembered yet"
    )
    near = f"; did you mean {answer.nearest}?" if answer.nearest else ""
    return f"{told}; {known}{near}"


def print_lately(name: str, where: ClusterSource) -> None:
    """Write the last lines of a history under `lately:`; nothing where it cannot be had at once."""
    try:
        answer = asyncio.run(_ask_quickly(name, where))
    except (DovetailError, TimeoutError):
        return
    if not answer.records:
        return
    rows = tell_rows(reversed(answer.records), SystemClock().now(), name)
    widths = [max(len(row[column]) for row in rows) for column in range(2)]
    lines = (f"  {row.time:<{widths[0]}}  {row.what:<{widths[1]}}  {row.why}" for row in rows)
    print_text("lately:\n" + "".join(f"{line.rstrip()}\n" for line in lines))


async def _ask_quickly(name: str, where: ClusterSource) -> HistoryAnswer:
    async with asyncio.timeout(AT_ONCE), open_leader(where.kubeconfig, where.context) as source:
        return await source.ask(HistoryQuery(name=name, limit=LINES))


def format_moment(time: datetime) -> str:
    """A time as people and programs read it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

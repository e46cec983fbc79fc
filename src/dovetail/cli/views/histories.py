"""Records for people and for programs: a table, documents or lines; and what to say where there are none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec

from dovetail.app.history_source import HistoryAnswer
from dovetail.cli.views.output import Format, print_structured, print_table, print_text
from dovetail.history.record import DecisionRecord, encode_record
from dovetail.history.ring import HistoryQuery
from dovetail.history.telling import COLUMNS, describe_subject, tell_row, tell_rows

__all__ = ["describe_nothing", "format_moment", "print_history"]


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


def format_moment(time: datetime) -> str:
    """A time as people and programs read it."""
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

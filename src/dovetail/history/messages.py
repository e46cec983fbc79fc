"""What a sink is sent: records as CloudEvents, and as text for Slack, Teams and people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec

from dovetail.history.filters import DueBatch
from dovetail.history.notify import CLOUDEVENTS, SLACK, TEAMS, NotifySink, is_http
from dovetail.history.record import DecisionRecord, RecordKind, encode_record
from dovetail.history.telling import describe_saving, tell_sentence

__all__ = [
    "NotifyMessage",
    "build_cloud_event",
    "build_event_type",
    "build_link",
    "build_schema",
    "render_batch",
    "render_message",
    "tell_batch",
    "tell_digest",
]

# Where the schema of a record is published; docs/reference holds it.
SCHEMA = "https://dovetail.sh/reference/decision.schema.json"
SPEC_VERSION = "1.0"
TYPE = "sh.dovetail.decision"
LISTED = 10
# Slack reads these; written so, a name cannot call a channel or hide a link.
_SLACK = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"})


class NotifyMessage(NamedTuple):
    """The body of one message, and what it is."""

    content_type: str
    body: bytes


def build_cloud_event(record: DecisionRecord, cluster: str) -> dict[str, Any]:
    """The record as a CloudEvent 1.0 in structured JSON."""
    return {
        "specversion": SPEC_VERSION,
        "id": record.id,
        "source": f"/dovetail/{cluster}",
        "type": build_event_type(record.kind),
        "subject": record.subject,
        "time": _write_time(record),
        "datacontenttype": "application/json",
        "dataschema": SCHEMA,
        "data": _build_data(record),
    }


def build_event_type(kind: str) -> str:
    """The type of the CloudEvent of a kind of record, or of a digest."""
    return f"{TYPE}.{kind}.v1"


def _build_data(record: DecisionRecord) -> dict[str, Any]:
    """The record as plain JSON, just as a log holds it."""
    data: dict[str, Any] = msgspec.json.decode(encode_record(record))
    return data


def _write_time(record: DecisionRecord) -> str:
    return f"{record.time:%Y-%m-%dT%H:%M:%S}.{record.time.microsecond // 1000:03d}Z"


def build_digest_event(records: Sequence[DecisionRecord], cluster: str, link: str) -> dict[str, Any]:
    """Many records as one CloudEvent: how many of each kind, the first ten, and where the others are."""
    last = records[-1]
    return {
        "specversion": SPEC_VERSION,
        "id": f"{last.id}-digest",
        "source": f"/dovetail/{cluster}",
        "type": build_event_type("Digest"),
        "time": _write_time(last),
        "datacontenttype": "application/json",
        "data": {
            "count": len(records),
            "kinds": dict(Counter(str(record.kind) for record in records).most_common()),
            "records": [_build_data(record) for record in records[:LISTED]],
            **({"link" if is_http(link) else "command": link} if link else {}),
        },
    }


def tell_record(record: DecisionRecord) -> str:
    """A record as a line of text: when, what, and what it saves."""
    told = tell_sentence(record)
    saving = describe_saving(record)
    more = f"; {saving}" if saving and saving not in told else ""
    return f"{record.time:%H:%M:%S} {told}{more}"


def tell_digest(records: Sequence[DecisionRecord], link: str = "") -> str:
    """Many records as one text: a count, a list of ten, and where the others are."""
    kinds = Counter(record.kind for record in records).most_common()
    counted = ", ".join(f"{count:,} × {kind}" for kind, count in kinds)
    lines = [f"{len(records):,} decisions: {counted}", *map(tell_record, records[:LISTED])]
    more = len(records) - LISTED
    if more > 0:
        lines.append(f"and {more:,} more")
    return "\n".join([*lines, link] if link else lines)


def build_link(records: Sequence[DecisionRecord], dashboard: str) -> str:
    """Where all records of a digest can be read: on the dashboard, or by a command where none is named."""
    since = f"{min(record.time for record in records):%Y-%m-%dT%H:%M:%SZ}"
    until = f"{max(record.time for record in records) + timedelta(seconds=1):%Y-%m-%dT%H:%M:%SZ}"
    if dashboard:
        return f"{dashboard.rstrip('/')}/history?since={since}&until={until}"
    return f"dovetail history --since {since} --until {until}"


def tell_batch(batch: DueBatch, link: str = "") -> str:
    """A message as text: a record in a line, or a digest in several."""
    return tell_digest(batch.records, link) if batch.digest else tell_record(batch.records[0])


def render_batch(batch: DueBatch, sink: NotifySink, cluster: str, dashboard: str) -> NotifyMessage:
    """What a sink is sent; a digest says where all of it can be read."""
    link = build_link(batch.records, dashboard) if batch.digest else ""
    return render_message(batch, sink.format, cluster, link)


def render_message(batch: DueBatch, form: str, cluster: str, link: str = "") -> NotifyMessage:
    """What a batch is sent as. `link` leads to the pages where all of it can be read."""
    if form == CLOUDEVENTS:
        event = (
            build_digest_event(batch.records, cluster, link)
            if batch.digest
            else build_cloud_event(batch.records[0], cluster)
        )
        return NotifyMessage("application/cloudevents+json", msgspec.json.encode(event))
    text = f"{cluster}: {tell_batch(batch, link)}"
    if form == SLACK:
        return NotifyMessage("application/json", msgspec.json.encode({"text": text.translate(_SLACK)}))
    if form == TEAMS:
        return NotifyMessage("application/json", msgspec.json.encode(_build_card(text)))
    return NotifyMessage("text/plain; charset=utf-8", f"{text}\n".encode())


def _build_card(text: str) -> dict[str, Any]:
    """An adaptive card of plain runs of text: what it holds is never read as markup."""
    body = [
        {"type": "RichTextBlock", "inlines": [{"type": "TextRun", "text": line}]} for line in text.split("\n")
    ]
    card = {"type": "AdaptiveCard", "version": "1.4", "body": body}
    attachment = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attachment]}


def build_schema() -> dict[str, Any]:
    """The JSON schema of a record, and of its CloudEvent's `data`, made from the record itself."""
    made = msgspec.json.decode(msgspec.json.encode(msgspec.json.schema(DecisionRecord)))
    kinds = made["$defs"][RecordKind.__name__]
    kinds["enum"] = [str(kind) for kind in RecordKind]
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA, **made}

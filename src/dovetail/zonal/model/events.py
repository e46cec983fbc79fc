"""What a message says about a shift. A hint to look at ARC, never the truth.

Messages come as EventBridge wrote them, or wrapped by SNS; both give the same Signal with the same key.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

from dovetail.errors import BadInput
from dovetail.zonal.model.shifts import Kind

__all__ = ["SOURCE", "ShiftSignal", "parse_signal", "unwrap_sns"]

SOURCE = "aws.arc-zonal-shift"
# Ids of zones, such as use1-az1; and the longest name there is in AWS, an ARN.
ZONE_IDS = re.compile(r"[a-z0-9-]{1,63}")
LONGEST = 2048
HALF = "reading a message: it has half a character, which nothing can be written in"
Moment = Literal["start", "update", "end", "unknown"]
Source = Literal["sqs", "sns", "poll", "cli", "webhook"]
# The beginning of a detail-type says whose shift it is, the rest what became of it. The longest comes first.
GROUPS: tuple[tuple[str, Kind], ...] = (
    ("FIS Experiment Autoshift", "FIS_EXPERIMENT"),
    ("Practice Run", "PRACTICE_RUN"),
    ("Manual Shift", "ZONAL_SHIFT"),
    ("Autoshift", "ZONAL_AUTOSHIFT"),
)
MOMENTS: Mapping[str, Moment] = {
    "In Progress": "start",
    "Started": "start",
    "Updated": "update",
    "Completed": "end",
    "Canceled": "end",
    "Succeeded": "end",
    "Interrupted": "end",
    "Failed": "end",
}


class ShiftSignal(Struct, frozen=True):
    """One message, as far as it matters. Without a cluster it is about the whole region."""

    key: str
    kind: Kind | None
    moment: Moment
    zone_id: str
    cluster: str | None
    source: Source
    detail_type: str
    digest: str

    @property
    def starts(self) -> bool:
        return self.moment == "start" and self.kind is not None and bool(self.zone_id)


def parse_signal(body: str | bytes, source: Source) -> ShiftSignal:
    """The message in a body; BadInput when there is none in it."""
    try:
        raw = body.encode() if isinstance(body, str) else body
    except UnicodeEncodeError as error:
        raise BadInput(HALF) from error
    event = unwrap_sns(_parse_object(body))
    if event.get("source") != SOURCE:
        raise BadInput(f"reading a message: its source is {event.get('source')!r} and not {SOURCE}")
    named, detail = _read_text(event.get("detail-type")), event.get("detail")
    kind, moment = _parse_detail_type(named)
    resources = event.get("resources") or ()
    if not isinstance(resources, list | tuple) or not all(isinstance(each, str) for each in resources):
        raise BadInput("reading a message: its resources are not a list of names")
    cluster = _read_text(resources[0]) if resources else None
    zone, identity = _read_zone(detail), _read_text(event.get("id"))
    if kind is not None and not ZONE_IDS.fullmatch(zone):
        raise BadInput("reading a message: it names no zone")
    return ShiftSignal(
        key=_hash_bytes("\n".join((str(kind), zone, cluster or "", identity)).encode()),
        kind=kind,
        moment=moment,
        zone_id=zone,
        cluster=cluster,
        source=source,
        detail_type=named,
        digest=_hash_bytes(raw),
    )


def unwrap_sns(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """The event itself, out of the envelope SNS puts around it unless delivery is raw."""
    if "TopicArn" in document and "Type" in document:
        return _parse_object(document.get("Message") or "")
    return document


def _parse_object(body: str | bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadInput("reading a message: it is not JSON") from error
    if not isinstance(found, dict):
        raise BadInput("reading a message: it is not an object")
    return found


def _parse_detail_type(named: str) -> tuple[Kind | None, Moment]:
    for start, kind in GROUPS:
        if named.startswith(start):
            return kind, MOMENTS.get(named.removeprefix(start).strip(), "unknown")
    return None, "unknown"


def _read_zone(detail: Any) -> str:
    metadata = detail.get("metadata") if isinstance(detail, dict) else None
    zone = metadata.get("awayFrom") if isinstance(metadata, dict) else None
    return zone if isinstance(zone, str) else ""


def _read_text(value: Any) -> str:
    """A text of a message, as far as it is one; BadInput for one that could not be written down again."""
    text = value if isinstance(value, str) else ""
    if len(text) > LONGEST:
        raise BadInput(f"reading a message: a name in it has {len(text):,} characters")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BadInput(HALF) from error
    return text


def _hash_bytes(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()

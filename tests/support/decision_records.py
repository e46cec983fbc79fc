"""Records as tests need them: of any kind, at any second, with ids that follow from both."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from dovetail.history.chain import DecisionChain, LogEnd, LogPart
from dovetail.history.record import DecisionRecord, RecordDraft, RecordIds, RecordKind, stamp_record
from support.builders import NOW

LEADER = "dovetail-7d9f4_1c2d"
CLUSTER = "6f1c2ab0-1111-4222-8333-444455556666"


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


class Stamping:
    """Makes records as a controller would: with ids and times that it is handed."""

    def __init__(self) -> None:
        self._ids = RecordIds(CLUSTER)

    def __call__(
        self,
        kind: RecordKind = RecordKind.NODE_GONE,
        subject: str = "node/a",
        seconds: float = 0,
        parent: str = "",
        **draft: Any,
    ) -> DecisionRecord:
        made = RecordDraft(kind=kind, subject=subject, **draft)
        return stamp_record(made, self._ids.make_id(at(seconds)), at(seconds), LEADER, parent=parent)


def one_of_each() -> list[DecisionRecord]:
    """A record of every kind, with every field that kind can have."""
    stamp = Stamping()
    about: dict[str, Any] = {
        "reason": "Underutilized",
        "message": "Underutilized, delete: [a]; saves $0.1920 an hour",
        "pool": "default",
        "names": ("default-x7k2p", "aws:///eu-west-1a/i-0123456789abcdef0"),
        "pods": ("shop/web-7",),
        "pod_count": 6,
        "price_before": 0.192,
        "price_after": 0.0,
    }
    return [stamp(kind, seconds=number, **about) for number, kind in enumerate(RecordKind)]


def write_term(chain: DecisionChain, count: int, end: LogEnd | None = None) -> list[bytes]:
    """The lines of a term with so many records after its first."""
    stamp = Stamping()
    lines = [chain.begin_term(stamp(RecordKind.TERM_BEGAN, f"log/{LEADER}"), end)]
    lines += [
        chain.link_record(stamp(subject=f"node/{number}", seconds=number, message=f"lived {number} h"))
        for number in range(count)
    ]
    return [line + b"\n" for line in lines]


def as_part(lines: Iterable[bytes], name: str = "decisions-20261102-03.jsonl") -> LogPart:
    return LogPart(name, tuple(lines))

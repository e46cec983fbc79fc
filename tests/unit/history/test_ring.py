"""The ring: what it keeps, what it drops first, and by which names records are found."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.history import ring as rings
from dovetail.history.record import DecisionRecord, RecordGroup, RecordKind, decode_record
from dovetail.history.ring import HistoryQuery, HistoryRing
from support.decision_records import Stamping, at

BLOCKED, GONE, STARTED = RecordKind.NODE_BLOCKED, RecordKind.NODE_GONE, RecordKind.COMMAND_STARTED
PROVIDER_ID = "aws:///eu-west-1a/i-0123456789abcdef0"


def filled(*records: DecisionRecord, keep: timedelta = rings.KEEP, most: int = rings.MOST) -> HistoryRing:
    ring = HistoryRing(keep, most)
    for record in records:
        ring.note_record(record)
    return ring


def subjects(ring: HistoryRing, **query: object) -> list[str]:
    found = ring.find_records(HistoryQuery(**query))  # type: ignore[arg-type]
    return [record.subject for record in found]


@pytest.mark.spec("HI-7")
@pytest.mark.parametrize(
    "name",
    [
        *(
            "node/ip-10-0-4-12",
            "ip-10-0-4-12",
            "default-x7k2p",
            "nodeclaim/default-x7k2p",
            "claim/default-x7k2p",
        ),
        *(PROVIDER_ID, "i-0123456789abcdef0", "shop/web-7", "pod/shop/web-7", "web-7"),
    ],
)
def test_a_record_is_found_by_every_name_of_its_node(name: str) -> None:
    stamp = Stamping()
    ring = filled(
        stamp(subject="node/other", names=("default-zzzzz",), pods=("shop/web-8",)),
        stamp(subject="node/ip-10-0-4-12", names=("default-x7k2p", PROVIDER_ID), pods=("shop/web-7",)),
    )
    assert subjects(ring, name=name) == ["node/ip-10-0-4-12"]


def test_a_name_that_nothing_is_known_of_finds_nothing() -> None:
    assert subjects(filled(Stamping()()), name="node/b") == []


def test_a_node_finds_the_command_that_caused_its_end() -> None:
    """Even one over so many nodes that the command's record does not name this one."""
    stamp = Stamping()
    began = stamp(RecordKind.SHIFT_BEGAN, "zone/z1")
    command = stamp(STARTED, "command/41c2", seconds=1, parent=began.id)
    ring = filled(began, command, stamp(seconds=2, parent=command.id), stamp(subject="node/b", seconds=3))
    assert subjects(ring, name="node/a") == ["node/a", "command/41c2", "zone/z1"]


def test_records_come_newest_first_by_when_they_were_settled() -> None:
    stamp = Stamping()
    ring = filled(stamp(seconds=10), stamp(BLOCKED, "node/b", seconds=5), stamp(subject="node/c", seconds=20))
    assert subjects(ring) == ["node/c", "node/a", "node/b"]
    assert subjects(ring, limit=1) == ["node/c"]
    assert subjects(ring, limit=0) == []


def test_queries_are_narrowed_by_time_kind_pool_and_reason() -> None:
    stamp = Stamping()
    ring = filled(
        stamp(BLOCKED, "node/a", 0, pool="web", reason="pdb"),
        stamp(GONE, "node/b", 10, pool="web", reason="Underutilized"),
        stamp(STARTED, "command/c", 20, names=("pool/web", "pool/batch")),
        stamp(RecordKind.DRIFT_PAUSED, "pool/batch", 30),
        stamp(GONE, "node/e", 40, pool="other"),
    )
    assert subjects(ring, since=at(10), until=at(20)) == ["command/c", "node/b"]
    assert subjects(ring, kinds=frozenset((GONE,))) == ["node/e", "node/b"]
    assert subjects(ring, pool="web") == ["command/c", "node/b", "node/a"]
    assert subjects(ring, name="pool/batch") == ["pool/batch", "command/c"]
    assert subjects(ring, reason="pdb") == ["node/a"]
    assert "node/a" not in subjects(ring, acts_only=True)
    assert len(subjects(ring, acts_only=True)) == 4


def test_a_full_ring_drops_verdicts_before_acts_and_counts_them() -> None:
    stamp = Stamping()
    acts = [stamp(GONE, f"node/{number}", number) for number in range(4)]
    verdicts = [stamp(BLOCKED, f"node/v{number}", 10 + number) for number in range(4)]
    ring = filled(*acts, *verdicts, most=5)
    assert sorted(subjects(ring)) == ["node/0", "node/1", "node/2", "node/3", "node/v3"]
    ring.note_record(stamp(GONE, "node/4", 20))
    ring.note_record(stamp(GONE, "node/5", 21))
    assert sorted(subjects(ring)) == [f"node/{number}" for number in range(1, 6)]
    assert ring.dropped == {RecordGroup.VERDICT: 4, RecordGroup.ACT: 1}


def test_what_was_dropped_is_found_by_no_name() -> None:
    stamp = Stamping()
    ring = filled(
        *(stamp(GONE, f"node/{n}", n, names=(f"claim-{n}",), pods=("shop/web",)) for n in range(9)), most=3
    )
    assert subjects(ring, name="claim-0") == []
    assert len(subjects(ring, name="shop/web")) == 3
    assert set(ring.list_names()) == {"6", "7", "8", "claim-6", "claim-7", "claim-8", "shop/web"}


def test_old_records_go_and_are_not_counted_as_dropped() -> None:
    stamp = Stamping()
    ring = filled(
        stamp(seconds=0),
        stamp(BLOCKED, "node/b", 1),
        stamp(subject="node/c", seconds=3601),
        keep=timedelta(hours=1),
    )
    assert subjects(ring) == ["node/c", "node/b"]
    assert (len(ring), ring.oldest, sum(ring.dropped.values())) == (2, at(1).timestamp(), 0)


def test_a_record_that_is_known_is_not_kept_twice() -> None:
    record = Stamping()()
    ring = filled(record)
    assert ring.note_record(record) is False
    assert len(ring) == 1


@pytest.mark.parametrize(("keep", "most"), [(timedelta(), 50_000), (timedelta(hours=1), 0)])
def test_a_ring_that_is_switched_off_keeps_nothing(keep: timedelta, most: int) -> None:
    assert len(filled(Stamping()(), keep=keep, most=most)) == 0


@pytest.mark.spec("HI-8")
def test_a_query_by_name_reads_only_the_records_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work is counted, not timed: `make bench` holds the times and the memory to their budgets."""
    stamp = Stamping()
    ring = filled(*(stamp(subject=f"node/{n % 500}", seconds=n) for n in range(5_000)))
    read: list[bytes] = []

    def count(line: bytes) -> DecisionRecord:
        read.append(line)
        return decode_record(line)

    monkeypatch.setattr(rings, "decode_record", count)
    assert len(subjects(ring, name="node/77")) == 10
    assert len(read) <= 30
    read.clear()
    assert len(subjects(ring, limit=20)) == 20
    assert len(read) <= 20


@pytest.mark.spec("HI-7")
def test_a_pod_finds_the_end_of_its_node_and_not_that_of_a_later_one_of_the_same_name() -> None:
    stamp = Stamping()
    placed = stamp(RecordKind.POD_PLACED, "pod/shop/web-7", names=("node-a", "default-x7k2p"))
    ring = filled(
        stamp(GONE, "node/node-a", names=("default-older",), seconds=-9),
        placed,
        stamp(GONE, "node/node-b", names=("default-other",), seconds=5),
        stamp(GONE, "node/node-a", names=("default-x7k2p",), seconds=6),
        stamp(GONE, "node/node-a", names=("default-later",), seconds=99),
    )
    found = ring.find_records(HistoryQuery(name="pod/shop/web-7"))
    assert [record.names[-1] for record in found] == ["default-x7k2p", "default-x7k2p"]
    assert [record.kind for record in found] == [GONE, RecordKind.POD_PLACED]

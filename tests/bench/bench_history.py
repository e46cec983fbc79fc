"""The ring of a large cluster's last day, and the chain of its log: how small, and how fast."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from tempfile import TemporaryDirectory
from time import process_time

from dovetail.controllers.history import DecisionRecorder
from dovetail.history.chain import DecisionChain, LogPart, check_chain
from dovetail.history.record import DecisionRecord, RecordDraft, RecordIds, RecordKind, stamp_record
from dovetail.history.ring import HistoryQuery, HistoryRing
from dovetail.providers.aws.decision_log import LogBucket, S3Log
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.decision_log import DecisionLog, LogLane, run_inline
from dovetail.runtime.file_log import FileLog
from dovetail.settings import Settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.clock import VirtualClock, run_virtual

from .registry import Figure, best_of, scenario

RECORDS, NODES = 50_000, 5_000
BEGUN = datetime(2026, 11, 2, tzinfo=UTC)
KINDS = (
    *(RecordKind.NODE_BLOCKED, RecordKind.POD_PLACED, RecordKind.NODE_REMOVABLE, RecordKind.POD_EVICTED),
    *(RecordKind.NODE_ORDERED, RecordKind.NODE_READY, RecordKind.NODE_DRAINING, RecordKind.NODE_GONE),
)
WHY = "pdb prevents pod evictions (PodDisruptionBudget=[shop/db]), for pod shop/db"


@cache
def records() -> tuple[DecisionRecord, ...]:
    """A day of 50,000 records about 5,000 nodes, with the names nodes have on EC2."""
    return tuple(_list_records())


def _list_records() -> Iterator[DecisionRecord]:
    ids = RecordIds("6f1c2ab0-1111-4222-8333-444455556666")
    for number in range(RECORDS):
        node, time = number % NODES, BEGUN + timedelta(seconds=1.5 * number)
        draft = RecordDraft(
            kind=KINDS[number // 7 % len(KINDS)],
            subject=_name_node(node),
            reason="pdb",
            message=f"{WHY}-{number}",
            pool=f"pool-{node % 20}",
            names=(f"pool-{node % 20}-{node:05d}", f"aws:///eu-west-1a/i-0123456789ab{node:05x}"),
            pods=(f"shop/web-7d4b9c-{number % 30_000}", f"shop/api-5f6d8-{number % 20_000}"),
            price_before=0.192,
            price_after=0.0,
        )
        yield stamp_record(draft, ids.make_id(time), time, "dovetail-7d9f4_1c2d", "a" * 64)


def _name_node(number: int) -> str:
    return f"node/ip-10-0-{number // 250}-{number % 250}.eu-west-1.compute.internal"


def _fill(most: int = RECORDS) -> HistoryRing:
    ring = HistoryRing(most=most)
    for record in records():
        ring.note_record(record)
    return ring


@scenario("history: 50,000 records of 5,000 nodes")
def the_ring() -> Iterator[Figure]:
    known = records()
    tracemalloc.start()
    ring = _fill()
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert len(ring) == len(known) == RECORDS
    yield Figure("memory of the ring", held / 2**20, "MiB", 60)
    yield Figure("noting a record", 1e6 * best_of(3, _fill) / RECORDS, "µs", 20)
    full = best_of(3, lambda: _fill(RECORDS // 5)) / RECORDS
    yield Figure("noting a record in a full ring", 1e6 * full, "µs", 20)
    queries = [HistoryQuery(name=_name_node(number)) for number in range(0, NODES, 50)]
    assert len(ring.find_records(queries[0])) == RECORDS // NODES
    times = [best_of(3, lambda query=query: ring.find_records(query)) for query in queries]  # type: ignore[misc]
    yield Figure("a query by name, the slowest of 100", 1e3 * max(times), "ms", 20)
    yield Figure(
        "a query by pool", 1e3 * best_of(3, lambda: ring.find_records(HistoryQuery(pool="pool-3"))), "ms"
    )


@scenario("history: the recorder of a leader")
def the_recorder() -> Iterator[Figure]:
    """What a controller pays for a note: stamped, counted, kept, and its cause found by name."""
    drafts = [
        RecordDraft(
            KINDS[number % len(KINDS)], _name_node(number % NODES), "pdb", WHY, names=(f"c-{number}",)
        )
        for number in range(RECORDS)
    ]
    gone = frozenset((RecordKind.NODE_GONE,))

    def note() -> None:
        recorder = DecisionRecorder(Settings(), SystemClock(), "dovetail-7d9f4_1c2d")
        recorder.begin_term("6f1c2ab0-1111-4222-8333-444455556666")
        for draft in drafts:
            recorder.note_decision(draft, parent=recorder.find_cause(draft.names[0], gone))

    yield Figure("noting a decision", 1e6 * best_of(3, note) / RECORDS, "µs", 20)


@scenario("history: the chain of 50,000 records")
def the_chain() -> Iterator[Figure]:
    lines: list[bytes] = []

    def link() -> None:
        chain = DecisionChain()
        lines[:] = [chain.link_record(record) + b"\n" for record in records()]

    yield Figure("linking a record", 1e6 * best_of(3, link) / RECORDS, "µs", 100)
    yield Figure("size of a record", sum(map(len, lines)) / RECORDS, "bytes", 2_048)
    checking = best_of(3, lambda: check_chain([LogPart("log", lines)]))
    assert check_chain([LogPart("log", lines)]).fault is None
    yield Figure("checking the log", checking, "s", 5)


@scenario("history: the decision log at 200 records a second")
def the_decision_log() -> Iterator[Figure]:
    """A minute of records into files and S3: the CPU time of noting, linking, writing and compressing."""
    clock = VirtualClock()
    aws, seconds, rate = SimulatedAws(clock), 60, 200
    aws.add_bucket("trail")
    known = records()[: seconds * rate]

    async def write(folder: str) -> None:
        bucket = LogBucket(aws, "trail", "c/")
        sinks = (FileLog(folder, timedelta(days=1), clock, run_inline), S3Log(bucket, clock, run_inline))
        log = DecisionLog([LogLane(sink, clock, run_inline) for sink in sinks])
        writers = [asyncio.ensure_future(service()) for service in log.services]
        begun = RecordDraft(kind=RecordKind.TERM_BEGAN, subject="log/a")
        log.note_record(stamp_record(begun, f"{0:024x}", BEGUN, "a"))
        for second in range(seconds):
            for record in known[second * rate : (second + 1) * rate]:
                log.note_record(record)
            await asyncio.sleep(1)
        for writer in writers:
            writer.cancel()
        await asyncio.gather(*writers, return_exceptions=True)

    with TemporaryDirectory() as folder:
        begun = process_time()
        run_virtual(write(folder))
        used = process_time() - begun
    yield Figure("share of a core, files and S3", 100 * used / seconds, "%", 2)

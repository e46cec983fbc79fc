"""A large cluster's recording at one pod change a second: what a day of it takes on disk, and of a core.

Looks are taken every ten seconds for an hour, which is one segment, and each is decided on by five methods:
a controller asks them whenever something changed. Only processor time of the recording is counted.
"""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from random import Random
from time import process_time

from msgspec.structs import replace

from dovetail.api.pod import Pod
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.situation import Situation
from dovetail.runtime.decision_log import run_inline
from dovetail.runtime.recording import RecordingOptions, RecordingWriter
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.sim.clock import VirtualClock, run_virtual

from .fleet import fleet
from .registry import Figure, scenario

LOOK, HOUR, DAY = 10, 3600, 86_400
ASKED = ("Empty/empty", "Drifted/static", "Drifted", "Underutilized/multi", "Underutilized/single")


class _Bytes:
    """A place that counts."""

    def __init__(self) -> None:
        self.size = 0

    async def begin_segment(self, name: str) -> None:
        """It has all the room there is."""

    async def append_bytes(self, data: bytes) -> None:
        self.size += len(data)

    async def end_segment(self) -> None:
        """It is counted already."""

    async def forget_before(self, time: datetime) -> None:
        """Nothing is kept."""


def _list_looks(nodes: int, pods: int) -> list[Situation]:
    """An hour of looks; between two of them ten pods went, and ten others came."""
    # Ten pods fill a node; where there are more of them, each has copies.
    copies = -(-pods // (10 * nodes))
    snapshot, chance = fleet(nodes, pods // copies).snapshot, Random(4)
    states = [replace(state, pods=_copy_pods(state.pods, copies)) for state in snapshot.nodes]
    now, found = snapshot.options.now, []
    for number in range(HOUR // LOOK):
        now += timedelta(seconds=LOOK)
        for each in range(LOOK):
            at = chance.randrange(len(states))
            states[at] = _exchange_pod(states[at], f"{number:04d}{each}", now)
        options = replace(snapshot.options, now=now)
        found.append(Situation(snapshot=replace(snapshot, nodes=tuple(states), options=options)))
    return found


def _copy_pods(pods: Sequence[Pod], copies: int) -> tuple[Pod, ...]:
    return tuple(
        replace(each, metadata=replace(each.metadata, name=name, uid=name))
        for each in pods
        for name in (f"{each.name}-{number}" for number in range(copies))
    )


def _exchange_pod(state: StateNode, name: str, now: datetime) -> StateNode:
    gone, *others = state.pods
    metadata = replace(gone.metadata, name=f"web-{name}", uid=f"uid-{name}", creation_timestamp=now)
    status = replace(
        gone.status,
        conditions=tuple(replace(each, last_transition_time=now) for each in gone.status.conditions),
    )
    come: Pod = replace(gone, metadata=metadata, status=status)
    return replace(state, pods=(*others, come))


async def _record(looks: Sequence[Situation]) -> int:
    """The bytes of the segment."""
    place, clock = _Bytes(), VirtualClock()
    writer = RecordingWriter(place, clock, run_inline, RecordingOptions(identity="bench"))
    writer.begin_term("cluster")
    task = asyncio.create_task(writer.run())
    choice = DisruptionChoice(allowance=None)  # type: ignore[arg-type]
    for situation in looks:
        for question in ASKED:
            writer.note_choice(situation, question, choice, timed_out=False)
        await clock.sleep(LOOK)
    assert writer.written == len(looks)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return place.size


def _measure(looks: Sequence[Situation]) -> Iterator[float]:
    """MiB a day, and the share of a core."""
    gc.collect()
    before = process_time()
    yield run_virtual(_record(looks)) * DAY / HOUR / 2**20
    yield (process_time() - before) / HOUR


def _measure_memory(looks: Sequence[Situation]) -> float:
    """MiB at the end of a segment, beside what the controller holds."""
    gc.collect()
    tracemalloc.start()
    run_virtual(_record(looks))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak / 2**20


@scenario("recording: 1,000 nodes, 10,000 pods, one pod change a second")
def of_a_thousand() -> Iterator[Figure]:
    looks = _list_looks(1_000, 10_000)
    disk, core = _measure(looks)
    yield Figure("a day, gzipped", disk, "MiB", 30)
    yield Figure("of a core", 100 * core, "%", 2)
    yield Figure("memory", _measure_memory(looks), "MiB", 40)


@scenario("recording: 5,000 nodes, 100,000 pods, one pod change a second")
def of_five_thousand() -> Iterator[Figure]:
    disk, core = _measure(_list_looks(5_000, 100_000))
    yield Figure("a day, gzipped", disk, "MiB", 300)
    yield Figure("of a core", 100 * core, "%", 5)

"""Disruption at scale: every candidate of a large cluster looked at, and again after one node changed."""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import process_time
from typing import NamedTuple

from msgspec.structs import replace

from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod
from dovetail.disruption.command import ConsolidationVerdict
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import evaluate_nodes, list_single_node_queue
from dovetail.runtime.compute import WorkerPool

from .fleet import fleet
from .registry import Figure, scenario

NODES, PODS, WORKERS = 5_000, 50_000, 2
# 700 MB
MOST = 667


class Spent(NamedTuple):
    """What a worker has spent and holds by now: processor seconds, its most so far and its part of it now."""

    worker: int
    seconds: float
    peak: int
    share: int


def timed_look(scene: DisruptionInput, keys: Sequence[str]) -> list[tuple[ConsolidationVerdict, Spent]]:
    """The verdicts, and with each what it took so far."""
    found = evaluate_nodes(scene, keys)
    spent = _spent()
    return [(verdict, spent) for verdict in found]


def _spent() -> Spent:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    listed = Path("/proc/self/smaps_rollup").read_text().splitlines()
    share = next(int(line.split()[1]) for line in listed if line.startswith("Pss:")) // 1024
    return Spent(os.getpid(), process_time(), peak, share)


def _arrived(scene: DisruptionInput) -> DisruptionInput:
    """One more pod runs on the last node."""
    *others, last = scene.snapshot.nodes
    more = replace(last, pods=(*last.pods, replace(last.pods[0], metadata=_named("newcomer", last.pods[0]))))
    return scene.with_snapshot(replace(scene.snapshot, nodes=(*others, more)))


def _left(scene: DisruptionInput) -> DisruptionInput:
    """One pod has left the last node."""
    *others, last = scene.snapshot.nodes
    return scene.with_snapshot(replace(scene.snapshot, nodes=(*others, replace(last, pods=last.pods[1:]))))


def _named(name: str, pod: Pod) -> ObjectMeta:
    return replace(pod.metadata, name=name, uid=name)


def _room(scene: DisruptionInput) -> DisruptionInput:
    """Two pods have left the first node: most others have a pod that could go there now."""
    first, *others = scene.snapshot.nodes
    return scene.with_snapshot(replace(scene.snapshot, nodes=(replace(first, pods=first.pods[2:]), *others)))


STEPS = (
    ("a whole sweep", 20.0, _arrived),
    ("after a pod came", 0.5, _left),
    ("after a pod left", 0.8, _room),
    ("after room was made for most", 15.0, _room),
)


async def _swept() -> Iterator[Figure]:
    scene, workers = fleet(NODES, PODS), WorkerPool(WORKERS)
    figures: list[Figure] = []
    before: dict[int, Spent] = {}
    try:
        for name, budget, change in STEPS:
            begun = process_time()
            keys = list_single_node_queue(scene)
            looked = await workers.map_items(timed_look, scene, keys)
            here = process_time() - begun
            assert len(looked) == len(keys) == NODES
            now = {spent.worker: spent for _, spent in looked}
            assert len(now) == WORKERS
            longest = max(s.seconds - (before[w].seconds if w in before else 0.0) for w, s in now.items())
            before = now
            figures.append(Figure(f"{name}, {WORKERS} workers", here + longest, "s", budget))
            scene = change(scene)
        everyone = [_spent(), *now.values()]
        figures.append(Figure("memory of all processes", sum(each.share for each in everyone), "MiB", MOST))
        figures.append(Figure("the most each had, together", sum(e.peak for e in everyone), "MiB", MOST))
    finally:
        workers.close()
    return iter(figures)


@scenario("disruption: 5,000 nodes, 50,000 pods")
def a_sweep() -> Iterator[Figure]:
    """Processor seconds of the busiest worker and of the main process, which work one after the other."""
    yield from asyncio.run(_swept())

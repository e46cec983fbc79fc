"""Disruption at scale: every candidate of a large cluster looked at, and again after one node changed."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterator, Sequence
from time import process_time

from msgspec.structs import replace

from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import Pod
from dovetail.disruption import choose
from dovetail.disruption.candidates import Scene
from dovetail.disruption.command import Verdict
from dovetail.runtime.compute import Workers

from .fleet import fleet
from .registry import Figure, scenario

NODES, PODS, WORKERS = 5_000, 50_000, 2


def timed_look(scene: Scene, keys: Sequence[str]) -> list[tuple[Verdict, float, int]]:
    """The verdicts, and with the last of them what this process has spent and holds by now."""
    found = choose.look(scene, keys)
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return [(verdict, process_time(), held) for verdict in found]


def _arrived(scene: Scene) -> Scene:
    """One more pod runs on the last node."""
    *others, last = scene.snapshot.nodes
    more = replace(last, pods=(*last.pods, replace(last.pods[0], metadata=_named("newcomer", last.pods[0]))))
    return Scene(replace(scene.snapshot, nodes=(*others, more)))


def _left(scene: Scene) -> Scene:
    """One pod has left the last node."""
    *others, last = scene.snapshot.nodes
    return Scene(replace(scene.snapshot, nodes=(*others, replace(last, pods=last.pods[1:]))))


def _named(name: str, pod: Pod) -> ObjectMeta:
    return replace(pod.metadata, name=name, uid=name)


STEPS = (
    ("a whole sweep", 90.0, _arrived),
    ("after a pod came", 2.0, _left),
    ("after a pod left", 2.0, _left),
)


async def _swept() -> Iterator[Figure]:
    scene, workers = fleet(NODES, PODS), Workers(WORKERS)
    figures: list[Figure] = []
    spent = [0.0] * WORKERS
    try:
        for name, budget, change in STEPS:
            begun = process_time()
            keys = choose.queue_of(scene)
            looked = await workers.spread(timed_look, scene, keys)
            here = process_time() - begun
            assert len(looked) == len(keys) == NODES
            now = [max(each[1] for each in looked[i::WORKERS]) for i in range(WORKERS)]
            longest = max(after - before for after, before in zip(now, spent, strict=True))
            spent = now
            figures.append(Figure(f"{name}, {WORKERS} workers", here + longest, "s", budget))
            scene = change(scene)
        mine = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        held = mine + sum(max(each[2] for each in looked[i::WORKERS]) for i in range(WORKERS))
        figures.append(Figure("memory of all processes", held, "MiB", 700))
    finally:
        workers.close()
    return iter(figures)


@scenario("disruption: 5,000 nodes, 50,000 pods")
def a_sweep() -> Iterator[Figure]:
    """Processor seconds of the busiest worker and of the main process, which work one after the other."""
    yield from asyncio.run(_swept())

"""One scenario from start to end: the controllers themselves on a simulated cluster, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

from msgspec.structs import replace

from dovetail.api import crds
from dovetail.api.predicates import active, owned_by_daemonset, owned_by_node
from dovetail.app import Dovetail
from dovetail.providers.kwok import KwokProvider
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.solve import price_floor
from dovetail.settings import read
from dovetail.settings.durations import parse as parse_duration
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.cloud import MoodyCloud
from dovetail.sim.cluster.kubelet import KubeletOptions
from dovetail.sim.cluster.neighbours import ClusterOptions
from dovetail.sim.measure import Measure
from dovetail.sim.report import Report, report_of
from dovetail.sim.scenario import Scenario
from dovetail.sim.shifting import ShiftStory
from dovetail.sim.stage import Stage
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World

__all__ = ["Told", "play"]

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
# Leases are most of what happens in a calm cluster: half as many still tell silence from life in time.
HEARTBEAT = 20.0
# Told as time passes: the share that is over, and the moment in the story. True ends the story early.
Told = Callable[[float, str], bool]


def play(story: Scenario, told: Told | None = None) -> Report:
    """Play a scenario through. The same story and seed give the same report, byte for byte."""
    return run_virtual(_play(story, told or (lambda share, moment: False)))


@dataclass
class _Run:
    story: Scenario
    world: World
    dovetail: Dovetail
    stage: Stage
    measure: Measure
    told: Told


async def _play(story: Scenario, told: Told) -> Report:
    clock = VirtualClock(story.start)
    world = World(clock, story.seed, options=ClusterOptions(KubeletOptions(heartbeat=HEARTBEAT)))
    for definition in (*crds.manifests("kwok"), *((crds.zonal_manifest(),) if story.shifts else ())):
        world.api.create(DEFINITIONS, definition)
    types = {"INSTANCE_TYPES_FILE_PATH": str(Path(story.folder) / story.instance_types)}
    # Shifts that are in the story are to be followed, unless it says otherwise.
    follow = {"ENABLE_ZONAL_SHIFT": "true"} if story.shifts else {}
    settings = read((), follow | story.settings | (types if story.instance_types else {}), provider="kwok")
    dovetail = Dovetail(
        settings,
        LocalTransport(world.server),
        clock=clock,
        chance=Random(story.seed),
        make=partial(KwokProvider, cloud=MoodyCloud),
    )
    assert isinstance(dovetail.cloud, MoodyCloud)
    dovetail.cloud.keep_books(world.server.store)
    run = _Run(story, world, dovetail, Stage(story, world, dovetail.cloud), Measure(world), told)
    shifts = ShiftStory(world) if story.shifts else None
    async with world.running():
        working = asyncio.create_task(dovetail.run())
        run.stage.set_up()
        await _through(run)
        dovetail.stop()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    return report_of(story, run.measure, shifts.told() if shifts is not None else ())


async def _through(run: _Run) -> None:
    story, stage, clock = run.story, run.stage, run.world.clock
    length, step = story.length.total_seconds(), parse_duration(story.step).total_seconds()
    every = parse_duration(story.floor_every).total_seconds() if story.floor_every else 0.0
    asked = 0.0
    run.measure.sample()
    while stage.second < length:
        stage.step()
        await clock.sleep(min(step, length - stage.second))
        floor = 0.0
        if every and (stage.second - asked >= every or stage.second >= length):
            asked, floor = stage.second, await _floor(run.dovetail)
        run.measure.sample(stage.wanted, floor)
        if run.told(stage.second / length, clock.now().strftime("%a %d %b %H:%M")):
            return


async def _floor(dovetail: Dovetail) -> float:
    """What the cheapest thinkable fleet for the pods that run now would cost an hour."""
    offers = [(pool, await dovetail.cloud.instance_types(pool)) for pool in dovetail.parts.pools]
    now = dovetail.capture.snapshot(offers, dovetail.options(dovetail.clock.now()))
    return price_floor(afresh(now))


def afresh(now: Snapshot) -> Snapshot:
    """The same pods with no node anywhere: those that run must move."""
    running = (
        pod
        for node in now.nodes
        for pod in node.pods
        if active(pod) and not owned_by_daemonset(pod) and not owned_by_node(pod)
    )
    waiting = tuple(replace(pod, node_name="") for pod in running)
    return replace(now, nodes=(), pods=(), moving=waiting, virtual=())

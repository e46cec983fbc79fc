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
from dovetail.api.commitment import Commitment
from dovetail.api.nodepool import NodePool
from dovetail.api.predicates import is_active, owned_by_daemonset, owned_by_node
from dovetail.app.controller import Dovetail
from dovetail.controllers.provider_port import MakeProvider
from dovetail.play.replay_settings import FOLLOWED_BY
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.kube import KubeClient
from dovetail.scheduling.fleet_cost import bill_running_nodes
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.solve import compute_price_floor
from dovetail.settings import read_settings
from dovetail.settings.durations import parse_duration as parse_duration
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.cluster.controllers import SimClusterOptions
from dovetail.sim.cluster.kubelet import KubeletOptions
from dovetail.sim.report import RunReport, ShiftRecorder, build_report
from dovetail.sim.run_recorder import RunRecorder
from dovetail.sim.scenario import Scenario
from dovetail.sim.scenario_player import ScenarioPlayer, create_config_maps
from dovetail.sim.transport import LocalTransport
from dovetail.sim.volatile_cloud import CatalogueCloud, CatalogueProvider, VolatileCloud
from dovetail.sim.world import World
from dovetail.zonal.policy_map import read_policy
from dovetail.zonal.wiring import find_namespace

__all__ = ["OnProgress", "OnStart", "ScenarioRun", "play_scenario"]

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
# Leases are most of what happens in a calm cluster: half as many still tell silence from life in time.
HEARTBEAT = 20.0
# Told as time passes: the share that is over, and the moment in the story. True ends the story early.
OnProgress = Callable[[float, str], bool]


@dataclass(frozen=True, slots=True)
class ScenarioRun:
    """One scenario while it is played: the simulated cluster, and the autoscaler that runs in it."""

    story: Scenario
    world: World
    dovetail: Dovetail
    player: ScenarioPlayer
    recorder: RunRecorder


# Told once, when everything is put together and nothing has happened yet.
OnStart = Callable[[ScenarioRun], None]


def play_scenario(
    story: Scenario, told: OnProgress | None = None, on_start: OnStart | None = None
) -> RunReport:
    """Play a scenario through. The same story and seed give the same report, byte for byte."""
    return run_virtual(
        _run_scenario(story, told or (lambda share, moment: False), on_start or (lambda run: None))
    )


async def _run_scenario(story: Scenario, told: OnProgress, on_start: OnStart) -> RunReport:
    clock = VirtualClock(story.start)
    world = World(clock, story.seed, options=SimClusterOptions(KubeletOptions(heartbeat=HEARTBEAT)))
    for definition in (
        *crds.build_manifests(story.provider),
        *((crds.build_zonal_manifest(),) if story.shifts else ()),
        *(crds.build_own_manifest(kind) for kind in FOLLOWED_BY if story.brings(kind)),
    ):
        world.api.create(DEFINITIONS, definition)
    types = {"INSTANCE_TYPES_FILE_PATH": str(Path(story.folder) / story.instance_types)}
    # Shifts, limits and commitments that are in the story are to be followed, unless it says otherwise.
    follow = {"ENABLE_ZONAL_SHIFT": "true"} if story.shifts else {}
    follow |= dict(setting for kind, setting in FOLLOWED_BY.items() if story.brings(kind))
    settings = read_settings(
        (), follow | story.settings | (types if story.instance_types else {}), provider="kwok"
    )
    create_config_maps(story, world)
    transport = LocalTransport(world.server)
    settings = await read_policy(settings, KubeClient(transport, clock), find_namespace(settings))
    dovetail = Dovetail(
        settings,
        transport,
        clock=clock,
        chance=Random(story.seed),
        provider=story.provider,
        make=_choose_cloud(story),
    )
    assert isinstance(dovetail.cloud, VolatileCloud)
    dovetail.cloud.keep_books(world.server.store)
    player = ScenarioPlayer(story, world, dovetail.cloud)
    run = ScenarioRun(story, world, dovetail, player, RunRecorder(world))
    shifts = ShiftRecorder(world) if story.shifts else None
    on_start(run)
    async with world.running():
        working = asyncio.create_task(dovetail.run())
        player.set_up()
        await _run_steps(run, told)
        dovetail.stop()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    return build_report(story, run.recorder, shifts.list_results() if shifts is not None else ())


def _choose_cloud(story: Scenario) -> MakeProvider:
    """What makes the simulated cloud: kwok's, or one over the catalogue of another provider."""
    if story.provider == "kwok":
        return partial(KwokProvider, cloud=VolatileCloud)
    # Here, for with EC2's catalogue come the metrics of its provider, which no run of kwok's has.
    from dovetail.providers.catalogs import load_catalogue

    given = str(Path(story.folder) / story.instance_types) if story.instance_types else story.provider
    types = tuple(load_catalogue(given, {}).types_for(NodePool()))
    api = crds.find_provider_api(story.provider)
    return lambda context: CatalogueProvider(CatalogueCloud(context, story.provider, api, types))


async def _run_steps(run: ScenarioRun, told: OnProgress) -> None:
    story, player, clock = run.story, run.player, run.world.clock
    length, step = story.length.total_seconds(), parse_duration(story.step).total_seconds()
    every = parse_duration(story.floor_every).total_seconds() if story.floor_every else 0.0
    asked = 0.0
    run.recorder.take_sample()
    while player.second < length:
        player.run_step()
        await clock.sleep(min(step, length - player.second))
        floor = 0.0
        if every and (player.second - asked >= every or player.second >= length):
            asked, floor = player.second, await _find_floor(run.dovetail)
        committed = await _find_committed(run.dovetail) if story.brings(Commitment) else 0.0
        run.recorder.take_sample(player.wanted, floor, committed)
        if told(player.second / length, clock.now().strftime("%a %d %b %H:%M")):
            return


async def _find_floor(dovetail: Dovetail) -> float:
    """What the cheapest thinkable fleet for the pods that run now would cost an hour."""
    return compute_price_floor(without_nodes(await _take_snapshot(dovetail)), dovetail.parts.cache)


async def _find_committed(dovetail: Dovetail) -> float:
    """What commitments cost an hour, less the list prices of what they pay for."""
    bill = bill_running_nodes(await _take_snapshot(dovetail))
    return bill.total - bill.listed


async def _take_snapshot(dovetail: Dovetail) -> Snapshot:
    offers = [(pool, await dovetail.cloud.list_instance_types(pool)) for pool in dovetail.parts.pools]
    return dovetail.capture.take_snapshot(offers, dovetail.build_options(dovetail.clock.now()))


def without_nodes(now: Snapshot) -> Snapshot:
    """The same pods with no node anywhere: those that run must move."""
    running = (
        pod
        for node in now.nodes
        for pod in node.pods
        if is_active(pod) and not owned_by_daemonset(pod) and not owned_by_node(pod)
    )
    waiting = tuple(replace(pod, node_name="") for pod in running)
    return replace(now, nodes=(), pods=(), moving=waiting, virtual=())

"""``dovetail simulate``: a scenario played through by the real controllers, in virtual time."""

from __future__ import annotations

import asyncio
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Any

import msgspec
import typer

from dovetail.api import crds
from dovetail.app import Dovetail
from dovetail.cli.output import Output, OutputOption, note, put
from dovetail.errors import BadInput
from dovetail.providers.kwok import KwokProvider
from dovetail.runtime import logs
from dovetail.settings import read
from dovetail.settings.durations import parse as parse_duration
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.cloud import MoodyCloud
from dovetail.sim.measure import Measure
from dovetail.sim.report import Report, as_html, as_json, as_text, report_of, side_by_side
from dovetail.sim.scenario import Scenario, as_scenario, read_scenario
from dovetail.sim.stage import Stage
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World

DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


def simulate(
    scenario: Annotated[list[Path], typer.Argument(metavar="SCENARIO", help="A scenario, in YAML.")],
    compare: Annotated[
        bool, typer.Option("--compare", help="Play several scenarios and set them side by side.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Another seed than the scenario's.")] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="PATH=A,B,…", help="Vary a field, such as pools.0.consolidateAfter=0s,5m,30m."),
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with charts here.")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Play a scenario through with the real controllers, and say what it cost.

    Hours pass in moments: the API server, kubelets, scheduler and Dovetail itself run in virtual time,
    and the same seed tells the same story to the byte. Ctrl-C ends a run early, with the report so far.
    """
    logs.configure("error", ("/dev/null",))
    if len(scenario) > 1 and not compare:
        raise BadInput("several scenarios are given: say --compare to set them side by side")
    stories = [_with_seed(read_scenario(path), seed) for path in scenario]
    for text in sweep or ():
        stories = [varied for story in stories for varied in _varied(story, text)]
    reports = _played(stories)
    _show(reports, output)
    if html is not None:
        html.write_text(as_html(reports), encoding="utf-8")
        note(f"charts are in {html}")


def _with_seed(story: Scenario, seed: int | None) -> Scenario:
    return story if seed is None else msgspec.structs.replace(story, seed=seed)


def _varied(story: Scenario, text: str) -> list[Scenario]:
    """The scenario once for each value of a field."""
    path, _, values = text.partition("=")
    if not path or not values:
        raise BadInput(f"--sweep {text}: say it as path=value,value,…")
    found = []
    for value in values.split(","):
        document = msgspec.to_builtins(story)
        _set(document, path.split("."), value, text)
        document["name"] = f"{story.name} {path.split('.')[-1]}={value}"
        found.append(as_scenario(document, Path(story.folder) / "sweep"))
    return found


def _set(document: Any, steps: list[str], value: str, text: str) -> None:
    try:
        for step in steps[:-1]:
            document = document[int(step)] if isinstance(document, list) else document[step]
        document[int(steps[-1]) if isinstance(document, list) else steps[-1]] = value
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise BadInput(f"--sweep {text}: the scenario has no such field") from error


def _played(stories: list[Scenario]) -> list[Report]:
    if len(stories) == 1:
        return [play(stories[0], show=sys.stderr.isatty())]
    with ProcessPoolExecutor() as pool:
        return list(pool.map(play, stories))


def _show(reports: list[Report], output: Output) -> None:
    if output is not Output.table:
        put("".join(as_json(report).decode() for report in reports))
    elif len(reports) == 1:
        put(as_text(reports[0]))
    else:
        put(side_by_side(reports))


def play(story: Scenario, show: bool = False) -> Report:
    """One scenario from start to end, in virtual time."""
    return run_virtual(_play(story, show))


@dataclass
class _Run:
    world: World
    stage: Stage
    measure: Measure


async def _play(story: Scenario, show: bool) -> Report:
    clock = VirtualClock(story.start)
    world = World(clock, story.seed)
    for definition in crds.manifests("kwok"):
        world.api.create(DEFINITIONS, definition)
    types = {"INSTANCE_TYPES_FILE_PATH": str(Path(story.folder) / story.instance_types)}
    settings = read((), story.settings | (types if story.instance_types else {}), provider="kwok")
    dovetail = Dovetail(
        settings,
        LocalTransport(world.server),
        clock=clock,
        chance=Random(story.seed),
        make=partial(KwokProvider, cloud=MoodyCloud),
    )
    assert isinstance(dovetail.cloud, MoodyCloud)
    run = _Run(world, Stage(story, world, dovetail.cloud), Measure(world))
    async with world.running():
        working = asyncio.create_task(dovetail.run())
        run.stage.set_up()
        await _through(story, run, show)
        dovetail.stop()
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    return report_of(story.name, story.seed, run.measure)


async def _through(story: Scenario, run: _Run, show: bool) -> None:
    length, step = story.length.total_seconds(), parse_duration(story.step).total_seconds()
    try:
        while run.stage.second < length:
            run.stage.step()
            run.measure.sample()
            if show:
                put_progress(run.stage.second / length, run.world.clock.now().strftime("%a %H:%M"))
            await run.world.clock.sleep(min(step, length - run.stage.second))
    except KeyboardInterrupt:
        note("\nstopped early; this is the report so far")
    run.measure.sample()
    if show:
        sys.stderr.write("\r" + " " * 60 + "\r")


def put_progress(share: float, moment: str) -> None:
    """A bar with the simulated time, on a terminal only."""
    filled = int(share * 30)
    sys.stderr.write(f"\r{moment}  [{'#' * filled}{'.' * (30 - filled)}] {share:4.0%}")
    sys.stderr.flush()

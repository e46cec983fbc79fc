"""``dovetail simulate``: a scenario played through by the real controllers, in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dovetail.cli.views.files import expect_writable, write_file
from dovetail.cli.views.output import Output, OutputOption, print_note, print_structured, print_text
from dovetail.cli.views.progress import count_interrupts, draw_bar, wipe_bar
from dovetail.cli.views.worker_runs import play_in_processes, play_on_dask
from dovetail.errors import BadInput
from dovetail.play import play_scenario
from dovetail.runtime import logs
from dovetail.sim.report import RunReport, build_document, render_side_by_side, render_text
from dovetail.sim.report_page import render_page
from dovetail.sim.scenario import Scenario
from dovetail.sim.scenario_file import parse_scenario, read_scenario


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
    dask: Annotated[
        str,
        typer.Option(
            metavar="ADDRESS", help="Play on the workers of this Dask scheduler, such as tcp://host:8786."
        ),
    ] = "",
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes for several runs; else one for each core.")
    ] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a page with charts here.")] = None,
    output: OutputOption = Output.table,
) -> None:
    """Play a scenario through with the real controllers, and say what it cost.

    Hours pass in moments: the API server, kubelets, scheduler and Dovetail itself run in virtual time,
    and the same seed tells the same story to the byte. Ctrl-C ends a run early, with the report so far.
    """
    logs.configure_logging("error", ("/dev/null",))
    if len(scenario) > 1 and not compare:
        raise BadInput("several scenarios are given: say --compare to set them side by side")
    stories = [_with_seed(read_scenario(path), seed) for path in scenario]
    for text in sweep or ():
        stories = [varied for story in stories for varied in _vary_scenario(story, text)]
    if html is not None:
        expect_writable(html)
    reports = _play_all(stories, workers, dask)
    _show_reports(reports, output)
    if html is not None:
        write_file(html, render_page(reports).encode())
        print_note(f"charts are in {html}")


def _with_seed(story: Scenario, seed: int | None) -> Scenario:
    return story if seed is None else msgspec.structs.replace(story, seed=seed)


def _vary_scenario(story: Scenario, text: str) -> list[Scenario]:
    """The scenario once for each value of a field."""
    path, _, values = text.partition("=")
    if not path or not values:
        raise BadInput(f"--sweep {text}: say it as path=value,value,…")

    def told(where: str, message: str) -> str:
        return f"--sweep {text}: {where}: {message}"

    found = []
    for value in values.split(","):
        document = msgspec.to_builtins(story)
        _set_field(document, path.split("."), value, text)
        document["name"] = f"{story.name} {path.split('.')[-1]}={value}"
        found.append(parse_scenario(document, Path(story.folder) / "sweep", told))
    return found


def _set_field(document: Any, steps: list[str], value: str, text: str) -> None:
    try:
        for step in steps[:-1]:
            document = document[int(step)] if isinstance(document, list) else document[step]
        document[int(steps[-1]) if isinstance(document, list) else steps[-1]] = value
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise BadInput(f"--sweep {text}: the scenario has no such field") from error


def _play_all(stories: list[Scenario], workers: int | None, dask: str) -> list[RunReport]:
    if len(stories) == 1 and not dask:
        return [_play_one(stories[0])]
    given = [(story,) for story in stories]
    if dask:
        done = play_on_dask(play_scenario, given, dask)
    else:
        done = play_in_processes(play_scenario, given, workers)
    if not done:
        raise KeyboardInterrupt
    return [done[number] for number in sorted(done)]


def _play_one(story: Scenario) -> RunReport:
    """One run under the eyes of a person: a bar with the simulated date, and Ctrl-C for the report so far."""
    show = sys.stderr.isatty()
    with count_interrupts() as interrupted:

        def told(share: float, moment: str) -> bool:
            if show:
                draw_bar(share, moment)
            return interrupted[0] > 0

        report = play_scenario(story, told)
    if show:
        wipe_bar()
    if interrupted[0]:
        print_note("stopped early; this is the report so far")
    return report


def _show_reports(reports: Sequence[RunReport], output: Output) -> None:
    if output is not Output.table:
        documents = [build_document(report) for report in reports]
        print_structured(documents[0] if len(documents) == 1 else {"runs": documents}, output)
    elif len(reports) == 1:
        print_text(render_text(reports[0]))
    else:
        print_text(render_side_by_side(reports))

"""``dovetail simulate``: a scenario played through by the real controllers, in virtual time."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from signal import SIGINT, default_int_handler, getsignal, signal
from typing import Annotated, Any

import msgspec
import typer

from dovetail.cli.files import expect_writable, write_file
from dovetail.cli.output import Output, OutputOption, note, put, structured
from dovetail.cli.playing import play
from dovetail.errors import BadInput, Misconfigured
from dovetail.runtime import logs
from dovetail.sim.page import as_html
from dovetail.sim.report import Report, as_document, as_text, side_by_side
from dovetail.sim.scenario import Scenario
from dovetail.sim.scenariofile import as_scenario, read_scenario


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
    logs.configure("error", ("/dev/null",))
    if len(scenario) > 1 and not compare:
        raise BadInput("several scenarios are given: say --compare to set them side by side")
    stories = [_with_seed(read_scenario(path), seed) for path in scenario]
    for text in sweep or ():
        stories = [varied for story in stories for varied in _varied(story, text)]
    if html is not None:
        expect_writable(html)
    reports = _on_dask(stories, dask) if dask else _played(stories, workers)
    _show(reports, output)
    if html is not None:
        write_file(html, as_html(reports).encode())
        note(f"charts are in {html}")


def _with_seed(story: Scenario, seed: int | None) -> Scenario:
    return story if seed is None else msgspec.structs.replace(story, seed=seed)


def _varied(story: Scenario, text: str) -> list[Scenario]:
    """The scenario once for each value of a field."""
    path, _, values = text.partition("=")
    if not path or not values:
        raise BadInput(f"--sweep {text}: say it as path=value,value,…")

    def told(where: str, message: str) -> str:
        return f"--sweep {text}: {where}: {message}"

    found = []
    for value in values.split(","):
        document = msgspec.to_builtins(story)
        _set(document, path.split("."), value, text)
        document["name"] = f"{story.name} {path.split('.')[-1]}={value}"
        found.append(as_scenario(document, Path(story.folder) / "sweep", told))
    return found


def _set(document: Any, steps: list[str], value: str, text: str) -> None:
    try:
        for step in steps[:-1]:
            document = document[int(step)] if isinstance(document, list) else document[step]
        document[int(steps[-1]) if isinstance(document, list) else steps[-1]] = value
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise BadInput(f"--sweep {text}: the scenario has no such field") from error


def _played(stories: list[Scenario], workers: int | None) -> list[Report]:
    if len(stories) == 1:
        return [_alone(stories[0])]
    done: dict[int, Report] = {}
    with ProcessPoolExecutor(workers) as pool:
        coming = {pool.submit(play, story): number for number, story in enumerate(stories)}
        try:
            for finished in as_completed(coming):
                done[coming[finished]] = finished.result()
                _say_runs(len(done), len(stories))
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            if not done:
                raise
            note(f"stopped early; {len(done)} of {len(stories)} runs were over")
    return [done[number] for number in sorted(done)]


def _on_dask(stories: list[Scenario], address: str) -> list[Report]:
    """The same runs on the workers of a Dask cluster, which must have Dovetail installed."""
    try:
        from distributed import Client
        from distributed import as_completed as as_finished
    except ImportError as error:
        raise Misconfigured(
            "playing on Dask: the dask extra is not installed; run pip install 'dovetail[dask]'"
        ) from error
    try:
        client = Client(address, timeout="10s", set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        raise Misconfigured(f"playing on Dask: no scheduler answers at {address}; is it running?") from error
    with client:
        coming = {client.submit(play, story, pure=False): n for n, story in enumerate(stories)}
        done: dict[int, Report] = {}
        for finished in as_finished(list(coming), loop=client.loop):
            done[coming[finished]] = finished.result()
            _say_runs(len(done), len(stories))
    return [done[number] for number in sorted(done)]


def _say_runs(done: int, of: int) -> None:
    if sys.stderr.isatty():
        _bar(done / of, f"{done} of {of} runs")
        if done == of:
            _wipe()


def _alone(story: Scenario) -> Report:
    """One run under the eyes of a person: a bar with the simulated date, and Ctrl-C for the report so far."""
    show = sys.stderr.isatty()
    with _interrupts() as interrupted:

        def told(share: float, moment: str) -> bool:
            if show:
                _bar(share, moment)
            return interrupted[0] > 0

        report = play(story, told)
    if show:
        _wipe()
    if interrupted[0]:
        note("stopped early; this is the report so far")
    return report


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """Counts Ctrl-C instead of dying of the first; the second is obeyed at once."""
    count, before = [0], getsignal(SIGINT)

    def heard(number: int, frame: Any) -> None:
        count[0] += 1
        if count[0] > 1:
            default_int_handler(number, frame)

    signal(SIGINT, heard)
    try:
        yield count
    finally:
        signal(SIGINT, before)


def _show(reports: Sequence[Report], output: Output) -> None:
    if output is not Output.table:
        documents = [as_document(report) for report in reports]
        structured(documents[0] if len(documents) == 1 else {"runs": documents}, output)
    elif len(reports) == 1:
        put(as_text(reports[0]))
    else:
        put(side_by_side(reports))


def _bar(share: float, text: str) -> None:
    filled = int(share * 30)
    sys.stderr.write(f"\r{text:<18} [{'#' * filled}{'.' * (30 - filled)}] {share:4.0%}")
    sys.stderr.flush()


def _wipe() -> None:
    sys.stderr.write("\r" + " " * 64 + "\r")
    sys.stderr.flush()

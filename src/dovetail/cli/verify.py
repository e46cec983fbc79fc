"""``dovetail verify``: whether a cluster, as it is or after a change, keeps what is expected of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from dovetail.app.changed_plan import change_cluster, change_situation
from dovetail.app.cluster_source import SeenCluster
from dovetail.cli.views.expectations import read_expectations, show_judgements
from dovetail.cli.views.output import LEFT_OUT, Output, OutputOption, print_note
from dovetail.cli.views.progress import ProgressBar
from dovetail.cli.views.world_files import parse_object_name, read_change_files
from dovetail.cli.views.world_source import ChangeOption, DeleteOption, WorldSource, add_world_options
from dovetail.errors import Misconfigured
from dovetail.play.expectations import Judgement, judge_expectations
from dovetail.play.expectations_file import Expectations
from dovetail.play.expected_worlds import GivenWorld, build_worlds
from dovetail.state.changed_pods import WorldChange

ExpectationsOption = Annotated[
    str, typer.Option("--filename", "-f", metavar="FILE", help="The expectations; - for stdin.")
]


@add_world_options
def verify(
    filename: ExpectationsOption,
    change: ChangeOption = None,
    delete: DeleteOption = None,
    *,
    world: WorldSource,
    output: OutputOption = Output.table,
) -> None:
    """Check a cluster, now or after a change, against expectations.

    Expectations are a file: worlds (now, without a zone, after a spot storm, with more pods, at other times)
    and what is to hold in them. Nothing is written to the cluster. Exit codes: 0 everything is kept, 3
    something is broken, 1 the file cannot be read or a world cannot be built.
    """
    expectations = read_expectations(filename)
    altered = read_change_files(change or [], delete or []) if change or delete else None
    names = [parse_object_name(each) for each in delete or []]
    if not world.given:
        raise Misconfigured("nothing to verify: give a --snapshot, a --recording, or --live")
    seen = world.read()
    found = judge_cluster(
        expectations, seen, altered.build_change(names) if altered is not None else None, world.recording
    )
    show_judgements(found, output)
    if any(not each.kept for each in found):
        raise typer.Exit(LEFT_OUT)


def judge_cluster(
    expectations: Expectations, seen: SeenCluster, change: WorldChange | None, recording: str = ""
) -> list[Judgement]:
    """Every expectation of a cluster, after a change if there is one; remarks go to stderr."""
    given = build_given_world(seen, change)
    for remark in given.change.remarks if given.change is not None else ():
        print_note(f"note: {remark}")

    def find_looks(count: int) -> Sequence[GivenWorld]:
        from dovetail.app.recordings import sample_looks

        looks = sample_looks(recording, count)
        return [build_given_world(look, change, f"{when:%Y-%m-%dT%H:%M:%SZ}") for when, look in looks]

    worlds = build_worlds(expectations, given, find_looks if recording else None)
    with ProgressBar(len(expectations.worlds)) as progress:
        return judge_expectations(expectations, worlds, progress.start_step)


def build_given_world(seen: SeenCluster, change: WorldChange | None, name: str = "") -> GivenWorld:
    """A cluster to be judged, with the change applied."""
    if change is None:
        return GivenWorld(seen.situation, None, name)
    changed = change_cluster(seen, change)
    situation, _ = change_situation(seen, changed)
    return GivenWorld(situation, changed, name)

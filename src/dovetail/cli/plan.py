"""``dovetail plan``: which nodes the pods in some files would get, what they cost, and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

import typer

from dovetail.app.changed_plan import change_cluster, plan_change
from dovetail.app.cluster_source import ClusterSource, SeenCluster
from dovetail.cli.views.disruptions import plan_disruption
from dovetail.cli.views.file_plans import CHANGE_STEPS, FilePlanner, find_plan, need_pool, show_result
from dovetail.cli.views.files import MoreFiles, OptionalFiles
from dovetail.cli.views.options import SnapshotOption, add_cluster_options
from dovetail.cli.views.output import LEFT_OUT, Output, OutputOption, print_note
from dovetail.cli.views.plan_changes import show_planned_change
from dovetail.cli.views.progress import ProgressBar
from dovetail.cli.views.world_files import SUBSET, WorldReader, parse_object_name, read_change_files
from dovetail.cli.views.world_source import AtOption, ChangeOption, DeleteOption, RecordingOption, WorldSource
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput, Misconfigured

ASSUME = "assume-region-prices"
LiveOption = Annotated[bool, typer.Option("--live", help="Plan for a live cluster, as it is now.")]
CatalogOption = Annotated[
    str,
    typer.Option(
        metavar="aws|kwok|FILE",
        help="What can be bought: EC2 in us-east-1 (aws:REGION for another), simulated nodes, or "
        "what a file lists. By default, what the pools' node classes suggest.",
    ),
]
AssumeOption = Annotated[
    str,
    typer.Option(
        "--assume-region-prices",
        metavar="REGION",
        help="Plan for a region whose prices are not known with those of this one, marked as estimates.",
    ),
]
SubsetOption = Annotated[
    str, typer.Option(metavar="NAME", help="Use only this subset of the catalogue, if it has subsets.")
]
ExplainOption = Annotated[
    str,
    typer.Option(
        metavar="POD",
        help="Show everything that was considered for one pod (namespace/name); "
        "with --disruption, for one node.",
    ),
]
DisruptionOption = Annotated[
    bool,
    typer.Option(
        "--disruption",
        help="Show which nodes are removable now, what that saves, and why each other node is blocked.",
    ),
]
TurnsOption = Annotated[
    int, typer.Option(min=1, help="With --disruption: how many turns of the loop to look ahead.")
]
DefaultPoolOption = Annotated[
    bool,
    typer.Option("--default-pool", help="Where the files have no NodePool, plan with one that would do."),
]
QuickOption = Annotated[
    bool, typer.Option("--quick", help="Take the first complete plan; do not look for a cheaper one.")
]


@add_cluster_options
def plan(
    filename: OptionalFiles = None,
    more: MoreFiles = None,
    live: LiveOption = False,
    snapshot: SnapshotOption = "",
    recording: RecordingOption = "",
    at: AtOption = "",
    catalog: CatalogOption = "",
    catalog_subset: SubsetOption = "",
    assume_region_prices: AssumeOption = "",
    explain: ExplainOption = "",
    change: ChangeOption = None,
    delete: DeleteOption = None,
    disruption: DisruptionOption = False,
    turns: TurnsOption = 10,
    quick: QuickOption = False,
    default_pool: DefaultPoolOption = False,
    *,
    where: ClusterSource,
    output: OutputOption = Output.table,
) -> None:
    """Plan nodes for pods in files, in a snapshot or in a live cluster.

    Pods, workloads (a Deployment counts as its pods), NodePools, node classes, nodes and the pods that run
    on them are read from manifests, or from a cluster as it is or was. Nothing is created. Exit codes: 0
    every pod is schedulable, 3 some are unschedulable, 1 the files have errors. With --disruption, 3 means
    that a drifted node is blocked until a person does something about it.
    """
    files = [*(filename or ()), *(more or ())]
    world = WorldSource(live, snapshot, recording, at, where)
    altered, other = bool(change or delete), "--disruption" if disruption else "--explain" if explain else ""
    if altered and other:
        raise BadInput(f"{other} and --change exclude each other; leave one out")
    if disruption:
        seen = _read_world(files, world, (catalog, catalog_subset), assume_region_prices)
        left_out = plan_disruption(seen, explain, turns, output)
    elif world.given:
        given = {"catalog": catalog, SUBSET: catalog_subset, ASSUME: assume_region_prices}
        world.exclude_files(files, given | {"explain": explain})
        seen = world.read()
        left_out = (
            _change_cluster(seen, change or [], delete or [], quick, output)
            if altered
            else _plan_cluster(seen.situation, quick, output)
        )
    else:
        planner = _read_files(files, (catalog, catalog_subset), quick, default_pool, assume_region_prices)
        left_out = (
            planner.run_change(change or [], delete or [], output)
            if altered
            else planner.run_plan(explain, output)
        )
    if left_out:
        raise typer.Exit(LEFT_OUT)


def _read_files(
    files: Sequence[str], catalogue: tuple[str, str], quick: bool, default_pool: bool, assumed: str
) -> FilePlanner:
    if not files:
        raise Misconfigured("nothing to plan: give files with --filename, a --snapshot, or --live")
    reader = WorldReader()
    reader.read_files(files)
    need_pool(reader, catalogue[0], default_pool)
    return FilePlanner(reader, *catalogue, quick, assumed)


def _read_world(
    files: Sequence[str], world: WorldSource, catalogue: tuple[str, str], assumed: str
) -> SeenCluster:
    """The world whose nodes are asked about: the files', the snapshot's, or else the live cluster's."""
    if files and not world.given:
        reader = WorldReader()
        reader.read_files(files)
        return SeenCluster(FilePlanner(reader, *catalogue, True, assumed).build_situation())
    world = world if world.given else replace(world, live=True)
    world.exclude_files(files, dict(zip(("catalog", SUBSET, ASSUME), (*catalogue, assumed), strict=True)))
    return world.read()


def _change_cluster(
    seen: SeenCluster, paths: Sequence[str], deleted: Sequence[str], quick: bool, output: Output
) -> bool:
    """Plan for a cluster before and after a change and show it; true when it leaves pods out."""
    changed = read_change_files(paths, deleted)
    found = change_cluster(seen, changed.build_change(parse_object_name(each) for each in deleted))
    with ProgressBar(CHANGE_STEPS) as progress:
        planned = plan_change(seen, found, quick, progress.start_step)
    for bad in {*planned.before.plan.set_aside, *planned.after.plan.set_aside}:
        print_note(f"note: {bad}")
    return show_planned_change(planned, changed, output)


def _plan_cluster(situation: Situation, quick: bool, output: Output) -> bool:
    """Plan for a cluster and show it; true when pods are left out."""
    snapshot = situation.snapshot
    with ProgressBar(3) as progress:
        if not snapshot.pods and not snapshot.moving and not snapshot.virtual:
            print_note("note: no pod is pending in this cluster, so there is nothing to plan")
        found = find_plan(situation, quick, progress)
    for bad in found.plan.set_aside:
        print_note(f"note: {bad}")
    show_result(found, output)
    return bool(found.left_out)

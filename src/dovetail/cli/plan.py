"""``dovetail plan``: which nodes the pods in some files would get, what they cost, and why."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from dovetail.api import codec
from dovetail.api.nodepool import NodePool
from dovetail.cli import planview
from dovetail.cli.files import FilesOption, MoreFiles, manifests_in
from dovetail.cli.output import Output, OutputOption, counted, note, structured
from dovetail.errors import BadInput
from dovetail.scheduling.plan import Plan
from dovetail.scheduling.snapshot import Options, Snapshot
from dovetail.scheduling.solve import QUICK, THOROUGH, solve
from dovetail.state.offline import Offline

LEFT_OUT = 3
SHOW_AFTER = 1.0


class _Item(msgspec.Struct, rename="camel"):
    api_version: str = ""
    kind: str = ""


class _List(msgspec.Struct):
    kind: str
    items: list[msgspec.Raw]


def plan(
    filename: FilesOption,
    more: MoreFiles = None,
    catalog: Annotated[
        str,
        typer.Option(metavar="aws|kwok|FILE", help="What can be bought: a built-in catalogue, or a file."),
    ] = "kwok",
    catalog_subset: Annotated[
        str, typer.Option(metavar="NAME", help="Use only this subset of the catalogue.")
    ] = "",
    explain: Annotated[
        str,
        typer.Option(metavar="POD", help="Show everything that was considered for one pod (namespace/name)."),
    ] = "",
    change: Annotated[
        str, typer.Option(metavar="FILE", help="Show what this change of NodePools would alter.")
    ] = "",
    quick: Annotated[
        bool, typer.Option("--quick", help="Take the first complete plan; do not improve it.")
    ] = False,
    output: OutputOption = Output.table,
) -> None:
    """Plan nodes for the pods in some files, without a cluster.

    Pods, workloads (a Deployment counts as its pods), NodePools, nodes and the pods already running on
    them are read from manifests. Nothing is created. Exit codes: 0 every pod has a place, 3 some have
    none, 1 the files have errors.
    """
    world = _world([*filename, *(more or ())])
    types, flavour = _catalogue(catalog, catalog_subset)
    options = Options(flavour=flavour)
    snapshot = world.snapshot(types, options)
    if not snapshot.pods:
        note("dovetail: there are no waiting pods in these files, so there is nothing to plan")
    before = _solved(snapshot, quick)
    if change:
        changed = world.replace_pools(_pools_in(change)).snapshot(types, options)
        after = _solved(changed, quick)
        planview.show_change(before, after, output)
        raise typer.Exit(LEFT_OUT if after.plan.unschedulable else 0)
    if explain:
        planview.show_explanation(before, explain, output)
    elif output is Output.table:
        planview.show_plan(before)
    else:
        structured(planview.document(before), output)
    if before.plan.unschedulable or before.plan.ignored:
        raise typer.Exit(LEFT_OUT)


def _catalogue(name: str, subset: str) -> tuple[Any, Any]:
    from dovetail.providers.catalogs import catalogue

    return catalogue(name, subset)


def _world(paths: Sequence[str]) -> Offline:
    world = Offline()
    slow: list[str] = []
    for path in paths:
        if path.endswith(".json") and Path(path).is_file():
            if not _taken_fast(world, Path(path)):
                slow.append(path)
        else:
            slow.append(path)
    found = manifests_in(slow) if slow else None
    if found is not None:
        for document in found.documents:
            _take(
                world,
                document.api_version,
                document.kind,
                document.value,
                f"{document.source}:{document.line}",
            )
        for complaint in found.complaints:
            note(str(complaint))
        if found.broken:
            raise BadInput(f"{counted(len(found.complaints), 'complaint')}; nothing was planned")
    return world


def _taken_fast(world: Offline, path: Path) -> bool:
    """A List in JSON goes straight from bytes to records: tens of thousands of pods in a moment."""
    try:
        listed = msgspec.json.decode(path.read_bytes(), type=_List)
        heads = [msgspec.json.decode(item, type=_Item) for item in listed.items]
    except (msgspec.MsgspecError, OSError):
        return False
    for head, item in zip(heads, listed.items, strict=True):
        _take(world, head.api_version, head.kind, bytes(item), str(path))
    return True


def _take(world: Offline, api_version: str, kind: str, document: Any, where: str) -> None:
    try:
        world.add(api_version, kind, document)
    except (BadInput, ValueError) as error:
        raise BadInput(f"{where}: {kind} cannot be read: {error}") from error


def _pools_in(path: str) -> list[NodePool]:
    found = manifests_in([path])
    pools = [codec.convert(NodePool, d.value) for d in found.documents if d.kind == "NodePool"]
    if not pools:
        raise BadInput(f"{path}: there is no NodePool in it, so there is no change to show")
    return pools


def _solved(snapshot: Snapshot, quick: bool) -> planview.Solved:
    started = time.perf_counter()
    first = solve(snapshot, QUICK)
    first_seconds = time.perf_counter() - started
    best: Plan = first
    if not quick:
        if first_seconds > SHOW_AFTER and sys.stderr.isatty():
            note(f"a first plan costs ${first.price:.2f}/h; looking for a cheaper one…")
        best = solve(snapshot, THOROUGH)
    return planview.Solved(
        snapshot=snapshot,
        plan=best,
        seconds=time.perf_counter() - started,
        first_seconds=first_seconds,
        first_price=first.price,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    )

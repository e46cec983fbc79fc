"""``dovetail zonal-shift``: step out of a zone, back into it, and see what that means beforehand."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime
from typing import Annotated, Literal

import typer

from dovetail.cli import zonalacts as acts
from dovetail.cli.output import COMPLAINTS, Output, OutputOption, put, structured
from dovetail.cli.seen import ContextOption, KubeconfigOption, SnapshotOption, find
from dovetail.errors import Misconfigured
from dovetail.settings import read
from dovetail.settings.durations import parse as parse_duration
from dovetail.zonal.rehearsal import Rehearsal, rehearse, zone_named

OPTIONS = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}
Action = Literal["start", "cancel", "extend", "status", "history", "plan", "rehearse", "run"]


def zonal_shift(
    context: typer.Context,
    action: Annotated[
        Action,
        typer.Argument(
            help="start, cancel or extend a shift; status of shifts in force; history of those that ended; "
            "plan tells what a start would write; rehearse tells what losing a zone would mean; run follows "
            "shifts beside another autoscaler until it is told to stop."
        ),
    ] = "status",
    zone: Annotated[str, typer.Option(metavar="ZONE", help="The zone's id, such as use1-az1.")] = "",
    lasts: Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, such as 2h.")] = "2h",
    comment: Annotated[str, typer.Option(help="Why, for people; at most 128 characters.")] = "",
    local: Annotated[
        bool, typer.Option("--local", help="Without ARC: by a ZoneShift object in this cluster alone.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="With start --local: only say what would be done.")
    ] = False,
    snapshot: SnapshotOption = "",
    kubeconfig: KubeconfigOption = "",
    kube_context: ContextOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Step out of an impaired zone and back, or see what that would mean.

    Settings of `dovetail controller`, such as --cluster-name, may be given too. Exit codes: 0 fine, 1 the
    rehearsal found pods without a home, or something was refused.
    """
    if action == "rehearse":
        sys.exit(_rehearsed(snapshot, kubeconfig, kube_context, _needed(zone), output))
    place = acts.Place(kubeconfig, kube_context)
    if action == "run":
        settings = read(
            ("--enable-zonal-shift=true", *_flags(context.args)), dict(os.environ), provider="aws"
        )
        sys.exit(asyncio.run(acts.run(settings, place)))
    cluster = _cluster(context)
    if action in ("status", "history"):
        return acts.shown(asyncio.run(acts.listed(place, over=action == "history")), output)
    if action == "plan":
        lines = asyncio.run(acts.planned(place, _needed(zone), cluster, _flags(context.args)))
        put("".join(f"{line}\n" for line in lines) or "nothing would be written\n")
        return None
    until = datetime.now(UTC) + parse_duration(lasts)
    if action == "start" and local:
        made = asyncio.run(acts.start_local(place, _needed(zone), until, comment, dry_run=dry_run))
        return put(f"{made}\n")
    if action == "start":
        return put(asyncio.run(acts.start(cluster, _needed(zone), lasts, comment)) + "\n")
    if action == "extend":
        return put(asyncio.run(acts.extend(place, _needed(zone), lasts, until)) + "\n")
    return put(asyncio.run(acts.cancel(place, _needed(zone))) + "\n")


def _needed(zone: str) -> str:
    if not zone:
        raise Misconfigured("no zone is named; give one with --zone, such as --zone use1-az1")
    return zone


def _flags(arguments: list[str]) -> tuple[str, ...]:
    return tuple(arguments)


def _cluster(context: typer.Context) -> str:
    """The cluster's name, from a flag or the environment; only asked for where ARC is."""
    for word in context.args:
        if word.startswith("--cluster-name="):
            return word.partition("=")[2]
    return os.environ.get("CLUSTER_NAME", "")


def _rehearsed(snapshot: str, kubeconfig: str, kube_context: str, zone: str, output: Output) -> int:
    world = find(snapshot, kubeconfig, kube_context, "auto").snapshot
    found = rehearse(world, zone_named(world, zone))
    if output is Output.table:
        put(_told(found))
    else:
        structured(_document(found), output)
    return 0 if found.passed else COMPLAINTS


def _told(found: Rehearsal) -> str:
    lines = [
        f"without {found.zone}: {found.nodes} nodes and {found.pods} pods would be lost",
        f"needed elsewhere: {found.new_nodes} nodes, ${found.price:.2f} an hour, "
        f"in about {found.minutes:.0f} minutes",
    ]
    lines += [f"no home: {pod}: {why}" for pod, why in sorted(found.homeless.items())]
    lines += [f"budget in violation: {name}" for name in found.budgets]
    lines += [f"all replicas in the zone: {name}" for name in found.concentrated]
    verdict = "ready" if found.passed else "not ready"
    return "\n".join([*lines, f"readiness {found.readiness:.0%}: {verdict}"]) + "\n"


def _document(found: Rehearsal) -> dict[str, object]:
    return {
        "zone": found.zone,
        "nodes": found.nodes,
        "pods": found.pods,
        "homeless": dict(found.homeless),
        "newNodes": found.new_nodes,
        "pricePerHour": found.price,
        "minutes": found.minutes,
        "budgets": list(found.budgets),
        "concentrated": list(found.concentrated),
        "readiness": found.readiness,
        "passed": found.passed,
    }

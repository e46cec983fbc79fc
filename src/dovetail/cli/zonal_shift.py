"""``dovetail zonal-shift``: step out of a zone, back into it, and see what that means beforehand."""

from __future__ import annotations

import asyncio
import os
import sys
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import typer

from dovetail.cli import zonalacts as acts
from dovetail.cli import zonalstart as starting
from dovetail.cli.output import Output, OutputOption, put
from dovetail.cli.seen import ContextOption, KubeconfigOption, SnapshotOption
from dovetail.cli.zonalrehearsal import RATES, rehearsed
from dovetail.errors import BadInput, Misconfigured
from dovetail.settings import read
from dovetail.settings.durations import parse as parse_duration

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
    launch_rate: Annotated[
        float | None,
        typer.Option(min=0.1, help="With rehearse: nodes a minute that can be launched; 60 if not told."),
    ] = None,
    snapshot: SnapshotOption = "",
    kubeconfig: KubeconfigOption = "",
    kube_context: ContextOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Step out of an impaired zone and back, or see what that would mean.

    Settings of `dovetail controller`, such as --cluster-name, may be given too. Exit codes: 0 fine, 1 the
    rehearsal found pods without a home, or something was refused.
    """
    tabled = _given(context, "zonal-shift-store") == "DynamoDB"
    table = _given(context, "zonal-shift-table") if tabled else ""
    place = acts.Place(kubeconfig, kube_context, table, _given(context, "cluster-name"))
    if action == "rehearse":
        rate = RATES if launch_rate is None else launch_rate
        sys.exit(rehearsed(place, snapshot, _needed(zone), rate, output))
    if action == "run":
        settings = read(
            ("--enable-zonal-shift=true", *_flags(context.args)), dict(os.environ), provider="aws"
        )
        sys.exit(asyncio.run(acts.run(settings, place)))
    cluster = place.cluster
    if action in ("status", "history"):
        return acts.shown(asyncio.run(acts.listed(place, over=action == "history")), output)
    if action == "plan":
        lines = asyncio.run(acts.planned(place, _needed(zone), cluster, _flags(context.args)))
        put("".join(f"{line}\n" for line in lines) or "nothing would be written\n")
        return None
    until = datetime.now(UTC) + _duration(lasts)
    if action == "start" and local:
        made = asyncio.run(starting.start_local(place, _needed(zone), until, comment, dry_run=dry_run))
        return put(f"{made}\n")
    if action == "start":
        return put(asyncio.run(starting.start(place, cluster, _needed(zone), lasts, comment)) + "\n")
    if action == "extend":
        return put(asyncio.run(acts.extend(place, _needed(zone), lasts, until)) + "\n")
    return put(asyncio.run(acts.cancel(place, _needed(zone))) + "\n")


def _needed(zone: str) -> str:
    if not zone:
        raise Misconfigured("no zone is named; give one with --zone, such as --zone use1-az1")
    return zone


def _duration(text: str) -> timedelta:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise BadInput(f"--for is {text!r}, but must be a duration such as 90m or 2h") from error
    if found <= timedelta():
        raise BadInput(f"--for is {text!r}, but a shift must last some time, such as 2h")
    return found


def _flags(arguments: list[str]) -> tuple[str, ...]:
    return tuple(arguments)


def _given(context: typer.Context, name: str) -> str:
    """A setting's text, from a flag or the environment; empty where nobody gave it."""
    for word in context.args:
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return os.environ.get(name.upper().replace("-", "_"), "")

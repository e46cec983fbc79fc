"""``dovetail zonal-shift``: shift away from a zone and back, and see what that means beforehand."""

from __future__ import annotations

import asyncio
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

import typer

from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.zoneshift import ShiftCount, ZoneShift
from dovetail.app import zonal_actions as acts
from dovetail.app import zonal_start as starting
from dovetail.app.cluster_source import ClusterSource
from dovetail.app.snapshot_file import find_cluster
from dovetail.app.zonal_actions import ShiftCluster, open_aws
from dovetail.aws import list_pages
from dovetail.cli.views.options import KubeconfigOption, SnapshotOption
from dovetail.cli.views.output import (
    COMPLAINTS,
    Output,
    OutputOption,
    print_note,
    print_remark,
    print_structured,
    print_table,
    print_text,
)
from dovetail.errors import BadInput, DovetailError, Gone, Misconfigured, NotAuthorized
from dovetail.settings import read_settings
from dovetail.settings.durations import parse_duration as parse_duration
from dovetail.zonal.model.rehearsal import LAUNCHES, Rehearsal, find_zone_name, rehearse

__all__ = ["RATES", "rehearse_shift"]

RATES = LAUNCHES


def rehearse_shift(cluster: ShiftCluster, snapshot: str, zone: str, rate: float, output: Output) -> int:
    """Rehearse and tell; the exit code."""
    world = find_cluster(
        snapshot,
        ClusterSource(cluster.kubeconfig, cluster.context, cluster_name=cluster.cluster),
        print_remark,
    ).snapshot
    free = {} if snapshot else asyncio.run(_count_free_addresses(cluster))
    found = rehearse(world, find_zone_name(world, zone), launches=rate, addresses=free)
    if output is Output.table:
        print_text(_describe_rehearsal(found))
    else:
        print_structured(_build_document(found), output)
    return 0 if found.passed else COMPLAINTS


async def _count_free_addresses(cluster: ShiftCluster) -> Mapping[str, int]:
    """Free addresses by zone, of the subnets that node classes have found; none where there are no such."""
    async with cluster.open_kube() as kube:
        try:
            classes = await kube.list(EC2NodeClass)
        except (Gone, NotAuthorized):
            return {}
    ids = sorted({each.id for one in classes for each in one.status.subnets if each.id})
    free: dict[str, int] = {}
    if not ids:
        return free
    try:
        async with open_aws() as aws:
            async for page in list_pages(aws, "ec2", "DescribeSubnets", {"SubnetIds": ids}):
                for each in page.get("Subnets") or ():
                    zone = str(each["AvailabilityZone"])
                    free[zone] = free.get(zone, 0) + int(each.get("AvailableIpAddressCount", 0))
    except DovetailError as error:
        print_note(f"free addresses are not taken into account: {error}")
        return {}
    return free


def _describe_rehearsal(found: Rehearsal) -> str:
    lines = [
        f"without {found.zone}: {found.nodes} nodes and {found.pods} pods would be lost",
        f"needed in other zones: {found.new_nodes} nodes, ${found.price:.2f} an hour, "
        f"in about {found.minutes:.0f} minutes",
    ]
    lines += [
        f"unschedulable ({found.kinds.get(pod, 'other')}): {pod}: {why}"
        for pod, why in sorted(found.homeless.items())
    ]
    if found.kinds:
        tally = Counter(found.kinds.values()).most_common()
        lines.append("reasons: " + ", ".join(f"{kind} {count}" for kind, count in tally))
    lines += [f"pool at its limits: {name}" for name in found.limited]
    lines += [f"too few addresses: {zone}" for zone in found.crowded]
    lines += [f"budget in violation: {name}" for name in found.budgets]
    lines += [f"all replicas in the zone: {name}" for name in found.concentrated]
    verdict = "ready" if found.passed else "not ready"
    return "\n".join([*lines, f"readiness {found.readiness:.0%}: {verdict}"]) + "\n"


def _build_document(found: Rehearsal) -> dict[str, object]:
    return {
        "zone": found.zone,
        "nodes": found.nodes,
        "pods": found.pods,
        "homeless": [
            {"pod": pod, "reason": found.kinds.get(pod, "other"), "message": why}
            for pod, why in sorted(found.homeless.items())
        ],
        "newNodes": found.new_nodes,
        "pricePerHour": found.price,
        "minutes": found.minutes,
        "poolsAtLimit": list(found.limited),
        "zonesWithoutAddresses": list(found.crowded),
        "budgets": list(found.budgets),
        "concentrated": list(found.concentrated),
        "readiness": found.readiness,
        "passed": found.passed,
    }


def print_shifts(found: Sequence[ZoneShift], output: Output) -> None:
    rows = [
        (
            each.name,
            each.spec.zone_id,
            each.status.zone_name,
            each.spec.kind,
            each.status.phase or "Pending",
            _format_steps(each.status.steps.nodes),
            _format_steps(each.status.steps.node_pools),
            f"{each.status.expiry_time:%Y-%m-%d %H:%M}" if each.status.expiry_time else "",
            each.status.end_reason,
        )
        for each in found
    ]
    names = ("NAME", "ZONE ID", "ZONE", "KIND", "PHASE", "NODES", "POOLS", "UNTIL", "ENDED BY")
    if output is Output.table:
        print_table(names, rows)
    else:
        fields = [name.lower().replace(" ", "-") for name in names]
        print_structured({"shifts": [dict(zip(fields, row, strict=True)) for row in rows]}, output)


def _format_steps(steps: ShiftCount) -> str:
    """How far a step has come; where it has nothing to do, nothing."""
    return f"{steps.done}/{steps.desired}" if steps.desired else "-"


OPTIONS = {"context_settings": {"ignore_unknown_options": True, "allow_extra_args": True}}
Action = Literal["start", "cancel", "extend", "status", "history", "plan", "rehearse", "run"]


ActionArgument = Annotated[
    Action,
    typer.Argument(
        help="start, cancel or extend a shift; status of shifts in force; history of those that ended; "
        "plan tells what a start would write; rehearse tells what losing a zone would mean; run follows "
        "shifts beside another autoscaler until it is told to stop."
    ),
]
ZoneOption = Annotated[str, typer.Option(metavar="ZONE", help="The zone's id, such as use1-az1.")]
LastsOption = Annotated[str, typer.Option("--for", metavar="DURATION", help="How long, such as 2h.")]
CommentOption = Annotated[str, typer.Option(help="Why, for people; at most 128 characters.")]
LocalOption = Annotated[
    bool, typer.Option("--local", help="Without ARC: by a ZoneShift object in this cluster alone.")
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="With start --local: only say what would be done.")
]
RateOption = Annotated[
    float | None,
    typer.Option(min=0.1, help="With rehearse: nodes a minute that can be launched; 60 if not told."),
]


# The parameter cannot bear the option's name: the command's own context has it.
ZonalContextOption = Annotated[
    str, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig to use.")
]

# How it was called until there was one name for it in every command.
OldContextOption = Annotated[str, typer.Option("--kube-context", hidden=True)]


def zonal_shift(
    context: typer.Context,
    action: ActionArgument = "status",
    zone: ZoneOption = "",
    lasts: LastsOption = "2h",
    comment: CommentOption = "",
    local: LocalOption = False,
    dry_run: DryRunOption = False,
    launch_rate: RateOption = None,
    snapshot: SnapshotOption = "",
    kubeconfig: KubeconfigOption = "",
    context_name: ZonalContextOption = "",
    kube_context: OldContextOption = "",
    output: OutputOption = Output.table,
) -> None:
    """Shift away from an impaired zone and back, or see what that would mean.

    Settings of `dovetail controller`, such as --cluster-name, may be given too. Exit codes: 0 fine, 1 the
    rehearsal found unschedulable pods, or something was refused.
    """
    tabled = _read_setting(context, "zonal-shift-store") == "DynamoDB"
    table = _read_setting(context, "zonal-shift-table") if tabled else ""
    place = acts.ShiftCluster(
        kubeconfig, context_name or kube_context, table, _read_setting(context, "cluster-name")
    )
    flags = _list_flags(context.args)
    if action == "rehearse":
        sys.exit(rehearse_shift(place, snapshot, _require_zone(zone), launch_rate or RATES, output))
    if action == "run":
        settings = read_settings(("--enable-zonal-shift=true", *flags), dict(os.environ), provider="aws")
        for warning in settings.warnings:
            print_note(f"dovetail: {warning}")
        sys.exit(asyncio.run(acts.run_stand_alone(settings, place)))
    if action in ("status", "history"):
        return print_shifts(asyncio.run(acts.list_shifts(place, over=action == "history")), output)
    if action == "plan":
        lines = asyncio.run(acts.plan_shift(place, _require_zone(zone), place.cluster, flags))
        return print_text("".join(f"{line}\n" for line in lines) or "nothing would be written\n")
    return print_text(
        asyncio.run(_change_shift(action, place, _require_zone(zone), lasts, comment, local, dry_run)) + "\n"
    )


async def _change_shift(
    action: Action, place: acts.ShiftCluster, zone: str, lasts: str, comment: str, local: bool, dry_run: bool
) -> str:
    """Begin, extend or end a shift, and say so."""
    until = datetime.now(UTC) + _read_duration(lasts)
    if action == "start" and local:
        return await starting.start_local(place, zone, until, comment, dry_run=dry_run)
    if action == "start":
        return await starting.start_shift(place, place.cluster, zone, lasts, comment)
    if action == "extend":
        return await acts.extend_shift(place, zone, lasts, until)
    return await acts.cancel_shift(place, zone)


def _require_zone(zone: str) -> str:
    if not zone:
        raise Misconfigured("no zone is named; give one with --zone, such as --zone use1-az1")
    return zone


def _read_duration(text: str) -> timedelta:
    try:
        found = parse_duration(text)
    except ValueError as error:
        raise BadInput(f"--for is {text!r}, but must be a duration such as 90m or 2h") from error
    if found <= timedelta():
        raise BadInput(f"--for is {text!r}, but a shift must last some time, such as 2h")
    return found


def _list_flags(arguments: list[str]) -> tuple[str, ...]:
    return tuple(arguments)


def _read_setting(context: typer.Context, name: str) -> str:
    """A setting's text, from a flag or the environment; empty where nobody gave it."""
    for word in context.args:
        if word.startswith(f"--{name}="):
            return word.partition("=")[2]
    return os.environ.get(name.upper().replace("-", "_"), "")

"""``dovetail zonal-shift start``: through ARC, or in this cluster alone; what cannot go well is not begun."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.zoneshift import RESTORE_FINALIZER, ZoneShift, ZoneShiftSpec
from dovetail.app.zonal_actions import ShiftCluster, is_ending, list_live_shifts, open_aws
from dovetail.app.zonal_clients import call_arc
from dovetail.aws import Aws
from dovetail.errors import AlreadyExists, BadInput, Gone, Misconfigured, NotAuthorized
from dovetail.runtime.kube import KubeClient

__all__ = ["start_local", "start_shift"]

MOST_LETTERS = 128


async def start_shift(place: ShiftCluster, cluster: str, zone: str, lasts: str, comment: str) -> str:
    """A shift that ARC keeps, for the whole cluster and its load balancers."""
    _check_comment(comment)
    if not re.fullmatch(r"[1-9][0-9]*[mh]", lasts):
        raise BadInput(f"--for is {lasts!r}, but ARC takes whole minutes or hours, such as 90m or 2h")
    known, away = await _read_cluster(place)
    zone = known.get(zone, zone)
    if zone in known.values():
        _check_zones_left(zone, known, away)
    async with open_aws() as aws:
        asked = {
            "resourceIdentifier": await _find_arn(aws, cluster),
            "awayFrom": zone,
            "expiresIn": lasts,
            "comment": comment or "dovetail zonal-shift start",
        }
        made = await call_arc(aws, "StartZonalShift", zone, **asked)
    return f"{made['zonalShiftId']}: away from {zone} until {made['expiryTime']:%Y-%m-%d %H:%M} UTC"


async def _find_arn(aws: Aws, cluster: str) -> str:
    if not cluster:
        raise Misconfigured("no cluster is named; give --cluster-name=NAME, or use --local")
    return str((await aws.call("eks", "DescribeCluster", {"name": cluster}))["cluster"]["arn"])


async def _read_cluster(cluster: ShiftCluster) -> tuple[dict[str, str], list[ZoneShift]]:
    """The cluster's zones and shifts, if it can be reached: for ARC the account alone is enough."""
    try:
        async with cluster.open_kube() as kube:
            return await _list_zones(kube), await list_live_shifts(kube)
    except (Misconfigured, Gone, NotAuthorized):
        return {}, []


async def start_local(
    cluster: ShiftCluster, zone: str, until: datetime, comment: str, *, dry_run: bool
) -> str:
    """A shift of this cluster alone: a ZoneShift object, which whoever runs the controller follows."""
    _check_comment(comment)
    async with cluster.open_kube() as kube:
        known, away = await _list_zones(kube), await list_live_shifts(kube)
        if known and zone not in known:
            listed = ", ".join(sorted({*known.values()}))
            raise BadInput(f"starting the shift of {zone!r}: the cluster has no such zone; it has {listed}")
        zone = known.get(zone, zone)
        mine = [each for each in away if each.spec.zone_id == zone and each.spec.kind == "LOCAL"]
        if not all(map(is_ending, mine)):
            raise AlreadyExists(
                f"starting the shift of {zone}: it is shifted away already; `dovetail zonal-shift extend "
                f"--zone {zone}` lets it last longer"
            )
        _check_zones_left(zone, known, away)
        wanted = ZoneShift(
            metadata=ObjectMeta(name=await _choose_name(kube, zone), finalizers=(RESTORE_FINALIZER,)),
            spec=ZoneShiftSpec(zone_id=zone, kind="LOCAL", expires=until, comment=comment, dry_run=dry_run),
        )
        made = await kube.create(wanted)
    return f"zoneshift {made.name} created; `dovetail zonal-shift status` tells how far it has come"


def _check_comment(comment: str) -> None:
    if len(comment) > MOST_LETTERS:
        raise BadInput(f"--comment has {len(comment)} characters, but at most {MOST_LETTERS} can be kept")


async def _choose_name(kube: KubeClient, zone: str) -> str:
    """One that is free: shifts that are over keep theirs for a week."""
    taken = {each.name for each in await kube.list(ZoneShift)}
    name, again = f"local-{zone}", 1
    while name in taken:
        again += 1
        name = f"local-{zone}-{again}"
    return name


async def _list_zones(kube: KubeClient) -> dict[str, str]:
    """Ids of the cluster's zones, by their ids and by their names; as far as nodes and classes know them."""
    pairs = {
        (each.labels.get(labels.ZONE, ""), each.labels.get(labels.ZONE_ID, ""))
        for each in await kube.list(Node)
    }
    try:
        classes = await kube.list(EC2NodeClass)
    except (Gone, NotAuthorized):
        classes = ()
    pairs |= {(each.zone, each.zone_id) for one in classes for each in one.status.subnets}
    ids = {name: id for name, id in pairs if name and id}
    found = {name: ids.get(name, name) for name, _ in pairs if name}
    return {**found, **{id: id for _, id in pairs if id}}


def _check_zones_left(zone: str, known: dict[str, str], away: Sequence[ZoneShift]) -> None:
    """BadInput for a zone without which none would be left; nothing where no zone is known."""
    zones = {*known.values()}
    others = {each.spec.zone_id for each in away} & zones - {zone}
    if zones - others - {zone} or not zones:
        return
    listed = ", ".join(sorted(others))
    why = (
        f"{listed} is away already; cancel that first" if others else "it is the only one; add another first"
    )
    raise BadInput(f"starting the shift of {zone}: no zone would be left, as {why}")

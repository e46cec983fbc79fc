"""``dovetail zonal-shift rehearse``: what losing a zone would mean, for people and for pipelines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping

from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import pages
from dovetail.cli.output import COMPLAINTS, Output, note, put, structured
from dovetail.cli.seen import Where, find
from dovetail.cli.zonalacts import Place, account
from dovetail.errors import DovetailError, Gone, NotAuthorized
from dovetail.zonal.rehearsal import LAUNCHES, Rehearsal, rehearse, zone_named

__all__ = ["RATES", "rehearsed"]

RATES = LAUNCHES


def rehearsed(place: Place, snapshot: str, zone: str, rate: float, output: Output) -> int:
    """Rehearse and tell; the exit code."""
    world = find(snapshot, Where(place.kubeconfig, place.context, cluster_name=place.cluster)).snapshot
    free = {} if snapshot else asyncio.run(_addresses(place))
    found = rehearse(world, zone_named(world, zone), launches=rate, addresses=free)
    if output is Output.table:
        put(_told(found))
    else:
        structured(_document(found), output)
    return 0 if found.passed else COMPLAINTS


async def _addresses(place: Place) -> Mapping[str, int]:
    """Free addresses by zone, of the subnets that node classes have found; none where there are no such."""
    async with place.kube() as kube:
        try:
            classes = await kube.list(EC2NodeClass)
        except (Gone, NotAuthorized):
            return {}
    ids = sorted({each.id for one in classes for each in one.status.subnets if each.id})
    free: dict[str, int] = {}
    if not ids:
        return free
    try:
        async with account() as aws:
            async for page in pages(aws, "ec2", "DescribeSubnets", {"SubnetIds": ids}):
                for each in page.get("Subnets") or ():
                    zone = str(each["AvailabilityZone"])
                    free[zone] = free.get(zone, 0) + int(each.get("AvailableIpAddressCount", 0))
    except DovetailError as error:
        note(f"free addresses are not taken into account: {error}")
        return {}
    return free


def _told(found: Rehearsal) -> str:
    lines = [
        f"without {found.zone}: {found.nodes} nodes and {found.pods} pods would be lost",
        f"needed elsewhere: {found.new_nodes} nodes, ${found.price:.2f} an hour, "
        f"in about {found.minutes:.0f} minutes",
    ]
    lines += [
        f"no home ({found.kinds.get(pod, 'other')}): {pod}: {why}"
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


def _document(found: Rehearsal) -> dict[str, object]:
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

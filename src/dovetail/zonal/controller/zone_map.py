"""Which zone is which: ids, as ARC says them, and names, as pools and nodes say them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.aws import Aws, list_pages
from dovetail.controllers.base import Cache
from dovetail.errors import DovetailError, Gone, NotAuthorized
from dovetail.ports import Clock, Kube

__all__ = ["ZoneDiscovery", "ZoneMap"]

FRESH = 24 * 3600.0
# Local and wavelength zones have more parts to their ids: usw2-lax1-az1.
ORDINARY = re.compile(r"[a-z0-9]+-az[0-9]+")
# A zone nobody knows may be new; asking again at every look would not help.
ASK_AGAIN = 60.0


@dataclass(frozen=True, slots=True)
class ZoneMap:
    """The zones of the account, those the cluster uses, and those each node class can reach; all by id."""

    names: Mapping[str, str] = field(default_factory=dict)
    # The other way round: ids by name.
    ids: Mapping[str, str] = field(default_factory=dict)
    used: tuple[str, ...] = ()
    classes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    cluster: tuple[str, ...] = ()
    # Ids of the subnets that node classes have found.
    subnets: tuple[str, ...] = ()
    # What EKS says of the cluster: pools of Auto Mode's own, and whether it handles shifts itself.
    built_in: tuple[str, ...] = ()
    native: bool = False

    def find_zone_id(self, node: Node) -> str:
        """The zone a node is in; its own word counts more than its zone's name."""
        told = node.labels.get(labels.ZONE_ID)
        if told:
            return told
        name = node.labels.get(labels.ZONE, "")
        return self.ids.get(name, name)

    def list_reached(self, kind: str, name: str) -> tuple[str, ...]:
        """The zones of a node class; of one we cannot see, those of the cluster."""
        if kind == EC2NodeClass.KIND.kind and name in self.classes:
            return self.classes[name]
        return self.cluster or self.used


class ZoneDiscovery:
    """Learns the zones from node classes, from the cluster's subnets, and from EC2 itself."""

    def __init__(self, kube: Kube, aws: Aws, cluster: str, nodes: Cache[Node], clock: Clock) -> None:
        self._kube, self._aws, self._cluster, self._nodes, self._clock = kube, aws, cluster, nodes, clock
        self._learned = float("-inf")
        self._names: dict[str, str] = {}
        self._subnets: tuple[str, ...] = ()
        self._built_in: tuple[str, ...] = ()
        self._native = False

    async def discover_zones(self, wanted: Iterable[str] = ()) -> ZoneMap:
        """The zones as they are known now; AWS is asked when a wanted one is not among them."""
        classes = await self._list_node_classes()
        found = {each.zone_id: each.zone for one in classes for each in one.status.subnets if each.zone_id}
        age = self._clock.monotonic() - self._learned
        unknown = any(zone not in self._names and zone not in found for zone in wanted)
        if age > FRESH or (unknown and age > ASK_AGAIN):
            await self._refresh_zones()
        names = {**self._names, **found}
        reached = {
            one.name: tuple(sorted({each.zone_id for each in one.status.subnets if each.zone_id}))
            for one in classes
        }
        ids = {name: zone for zone, name in names.items()}
        # Only ordinary zones can be shifted, and only those are in the map.
        seen = {
            told if (told := node.labels.get(labels.ZONE_ID, "")) in names else ids.get(named, "")
            for node in self._nodes
            if (named := node.labels.get(labels.ZONE, "")) or node.labels.get(labels.ZONE_ID)
        }
        used = sorted(
            {zone for zones in reached.values() for zone in zones} | {*self._subnets} | (seen - {""})
        )
        return ZoneMap(
            names=names,
            ids=ids,
            used=tuple(used),
            classes=reached,
            cluster=self._subnets,
            subnets=tuple(sorted({each.id for one in classes for each in one.status.subnets if each.id})),
            built_in=self._built_in,
            native=self._native,
        )

    async def count_free_addresses(self, zone_map: ZoneMap) -> Mapping[str, int]:
        """How many addresses the subnets of node classes have left, by the name of the zone."""
        free: dict[str, int] = {}
        if not zone_map.subnets:
            return free
        try:
            async for page in list_pages(
                self._aws, "ec2", "DescribeSubnets", {"SubnetIds": list(zone_map.subnets)}
            ):
                for each in page.get("Subnets") or ():
                    zone = str(each["AvailabilityZone"])
                    free[zone] = free.get(zone, 0) + int(each.get("AvailableIpAddressCount", 0))
        except DovetailError:
            return {}  # advice can do without
        return free

    async def _list_node_classes(self) -> tuple[EC2NodeClass, ...]:
        try:
            return await self._kube.list(EC2NodeClass)
        except (Gone, NotAuthorized):
            return ()  # another autoscaler's classes, such as Auto Mode's

    async def _refresh_zones(self) -> None:
        try:
            await self._ask_aws()
        except DovetailError:
            # What is known already is better than nothing; the poller tells that AWS does not answer.
            if not self._names:
                self._learned = self._clock.monotonic() - FRESH + ASK_AGAIN
            return
        # A cluster without a pool yet may have no zone yet; that is not what is remembered for a day.
        self._learned = self._clock.monotonic() if self._names else float("-inf")

    async def _ask_aws(self) -> None:
        cluster = (await self._aws.call("eks", "DescribeCluster", {"name": self._cluster}))["cluster"]
        subnets = await self._find_subnet_zones(
            (cluster.get("resourcesVpcConfig") or {}).get("subnetIds") or ()
        )
        names = {**await self._list_account_zones(), **subnets}
        compute = cluster.get("computeConfig") or {}
        self._built_in = tuple(compute.get("nodePools") or ()) if compute.get("enabled") else ()
        self._native = bool((cluster.get("zonalShiftConfig") or {}).get("enabled"))
        self._names, self._subnets = names, tuple(sorted(subnets))

    async def _find_subnet_zones(self, listed: Sequence[str]) -> dict[str, str]:
        """Zones of subnets, names by their ids; only ordinary ones, which alone can be shifted."""
        found: dict[str, str] = {}
        if listed:
            async for page in list_pages(self._aws, "ec2", "DescribeSubnets", {"SubnetIds": list(listed)}):
                found |= {
                    str(each["AvailabilityZoneId"]): str(each["AvailabilityZone"])
                    for each in page.get("Subnets") or ()
                }
        return {zone: name for zone, name in found.items() if ORDINARY.fullmatch(zone)}

    async def _list_account_zones(self) -> dict[str, str]:
        """All ordinary zones of the account; none where that may not be asked: subnets tell enough."""
        try:
            zones = await self._aws.call("ec2", "DescribeAvailabilityZones", {})
        except NotAuthorized:
            return {}
        return {
            str(each["ZoneId"]): str(each["ZoneName"])
            for each in zones.get("AvailabilityZones") or ()
            if each.get("ZoneType", "availability-zone") == "availability-zone"
        }

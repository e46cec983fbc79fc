"""Zonal shifts of clusters outside AWS: zones by name, nothing withheld but by us, and no ARC to ask.

Operators shift away from a zone there by a ZoneShift of kind LOCAL; everything else is the same.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool, Requirement
from dovetail.aws import Answer
from dovetail.controllers.cloud_wrappers import ForwardingCloud
from dovetail.errors import Gone
from dovetail.ports import Instance
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.zonal.model.gates import ZoneGates
from dovetail.zonal.model.manifest_shifts import exclude_offerings

__all__ = ["NonAwsApi", "ZoneExcludingCloud"]

ListSoldZones = Callable[[], Awaitable[Iterable[str]]]


class NonAwsApi:
    """What AWS would say of a cluster whose zones are those its pools can buy in. A zone's id is its name."""

    region = ""

    def __init__(self, sold: ListSoldZones) -> None:
        self._list_sold = sold

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        match operation:
            case "DescribeAvailabilityZones":
                return {
                    "AvailabilityZones": [
                        {"ZoneId": zone, "ZoneName": zone} for zone in await self._list_zones()
                    ]
                }
            case "DescribeSubnets":
                zones = await self._list_zones()
                return {"Subnets": [{"AvailabilityZone": zone, "AvailabilityZoneId": zone} for zone in zones]}
            case "DescribeCluster":
                return {"cluster": {"arn": "local", "resourcesVpcConfig": {"subnetIds": ["every"]}}}
            case "GetManagedResource" | "ListAutoshifts":
                return {}
        raise Gone(f"asking {service} for {operation}: this cluster is not on AWS")

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> NonAwsApi:
        return self

    async def _list_zones(self) -> list[str]:
        return sorted(await self._list_sold())


@dataclass(eq=False)
class ZoneExcludingCloud(ForwardingCloud):
    """A cloud that does not withhold a zone by itself: what it sells there is not for sale meanwhile."""

    _gates: ZoneGates
    _seen: tuple[tuple[InstanceType, ...], frozenset[str], tuple[InstanceType, ...]] | None = field(
        default=None, init=False
    )

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        types, closed = await super().list_instance_types(nodepool), self._gates.closed
        if not closed:
            return types
        if self._seen is None or self._seen[0] is not types or self._seen[1] != closed:
            self._seen = types, closed, tuple(exclude_offerings(each, closed) for each in types)
        return self._seen[2]

    async def create(self, claim: NodeClaim) -> Instance:
        closed = self._gates.closed
        if not closed:
            return await super().create(claim)
        # The order may be older than the shift.
        kept_out = Requirement(key=labels.ZONE, operator="NotIn", values=tuple(sorted(closed)))
        spec = replace(claim.spec, requirements=(*claim.spec.requirements, kept_out))
        return await super().create(replace(claim, spec=spec))

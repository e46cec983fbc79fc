"""Reserved instances: instances of a type that are paid for in advance, in a zone or anywhere in a region."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.sim.aws.ec2.network import zone_ids
from dovetail.sim.aws.ec2.types import SimPrices
from dovetail.sim.aws.filters import Values, apply_filters, tag_list
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["ReservedInstances", "SimReservedInstances"]

YEAR = timedelta(days=365)
# The share of the on-demand price that a year's reservation saves.
SAVES = 0.37
LINUX, WINDOWS = "Linux/UNIX", "Windows"


@dataclass(slots=True)
class ReservedInstances:
    """So many instances of one type; without a zone they count anywhere in the region."""

    id: str
    type: str
    count: int
    zone: str
    starts: datetime
    ends: datetime
    # Dollars an hour for each, and once for each.
    hourly: float
    fixed: float = 0.0
    system: str = LINUX
    tenancy: str = "default"
    offering: str = "standard"
    state: str = ""
    tags: dict[str, str] = field(default_factory=dict)

    def state_at(self, now: datetime) -> str:
        if self.state:
            return self.state
        if now < self.starts:
            return "queued"
        return "active" if now < self.ends else "retired"

    @property
    def scope(self) -> str:
        return "Availability Zone" if self.zone else "Region"


class SimReservedInstances(ServiceState):
    """The reserved instances of an account in a region, by id."""

    def init_state(self) -> None:
        self.by_id: dict[str, ReservedInstances] = {}

    def add(
        self,
        name: str,
        count: int,
        zone: str = "",
        *,
        starts: datetime | None = None,
        lasts: timedelta = YEAR,
        hourly: float | None = None,
        fixed: float = 0.0,
        system: str = LINUX,
        tenancy: str = "default",
    ) -> ReservedInstances:
        """Reserve instances of a type, in a zone or in the whole region."""
        starts = starts or self.clock.now()
        listed = self.world.get_state(SimPrices, self.account, self.region).on_demand_price(name) or 0.0
        made = ReservedInstances(
            self.world.random_uuid(),
            name,
            count,
            zone,
            starts,
            starts + lasts,
            round(listed * (1 - SAVES), 5) if hourly is None else hourly,
            fixed,
            system,
            tenancy,
        )
        self.by_id[made.id] = made
        return made


@operation("ec2", "DescribeReservedInstances")
def describe_reserved(request: AwsRequest) -> Json:
    """All of them: this operation knows no pages."""
    kept, now = request.regional_state(SimReservedInstances), request.world.clock.now()
    wanted = list(kept.by_id.values())
    if ids := request.get("ReservedInstancesIds"):
        if missing := [each for each in ids if each not in kept.by_id]:
            raise request.refuse(
                "InvalidReservedInstancesId",
                f"The ReservedInstance ID '{', '.join(missing)}' does not exist",
            )
        wanted = [kept.by_id[each] for each in ids]
    if offering := request.get("OfferingClass"):
        wanted = [each for each in wanted if each.offering == offering]
    found = apply_filters(request, wanted, lambda each: _read_values(each, now), lambda each: each.tags)
    return {"ReservedInstances": [_render_reserved(each, request) for each in found]}


def _read_values(each: ReservedInstances, now: datetime) -> Values:
    return {
        "availability-zone": (each.zone,),
        "duration": (str(int((each.ends - each.starts).total_seconds())),),
        "end": (f"{each.ends:%Y-%m-%dT%H:%M:%S}.000Z",),
        "fixed-price": (str(each.fixed),),
        "instance-type": (each.type,),
        "product-description": (each.system,),
        "reserved-instances-id": (each.id,),
        "scope": (each.scope,),
        "start": (f"{each.starts:%Y-%m-%dT%H:%M:%S}.000Z",),
        "state": (each.state_at(now),),
        "usage-price": ("0.0",),
    }


def _render_reserved(each: ReservedInstances, request: AwsRequest) -> Json:
    where: Json = {}
    if each.zone:
        zones = zone_ids(request.account, request.region)
        where = {"AvailabilityZone": each.zone, "AvailabilityZoneId": zones.get(each.zone, "")}
    return {
        "ReservedInstancesId": each.id,
        "InstanceType": each.type,
        "InstanceCount": each.count,
        **where,
        "Scope": each.scope,
        "Start": each.starts,
        "End": each.ends,
        "Duration": int((each.ends - each.starts).total_seconds()),
        "UsagePrice": 0.0,
        "FixedPrice": each.fixed,
        "RecurringCharges": [{"Amount": each.hourly, "Frequency": "Hourly"}],
        "ProductDescription": each.system,
        "InstanceTenancy": each.tenancy,
        "CurrencyCode": "USD",
        "OfferingClass": each.offering,
        "OfferingType": "Partial Upfront" if each.fixed else "No Upfront",
        "State": each.state_at(request.world.clock.now()),
        "Tags": tag_list(each.tags),
    }

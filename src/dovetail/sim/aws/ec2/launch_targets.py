"""Capacity reservations, used up by launches that target them, and placement groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.sim.aws.ec2.instance_record import SimInstance
from dovetail.sim.aws.ec2.instances import InstanceChange, SimInstances
from dovetail.sim.aws.ec2.network import zone_ids
from dovetail.sim.aws.filters import apply_filters, tag_list, tags_for, take_page
from dovetail.sim.aws.service import AwsRequest, Json, ServiceState, operation

__all__ = ["SPREAD_MOST", "SimPlacementGroup", "SimPlacementGroups", "SimReservation", "SimReservations"]

# EC2 begins to end the instances of a capacity block half an hour before the block ends.
BLOCK_ENDS_EARLY = timedelta(minutes=30)
BLOCK_ENDED = ("Server.CapacityBlockEnded", "Server.CapacityBlockEnded: the capacity block is over")


@dataclass(slots=True)
class SimReservation:
    """Instances set aside in one zone."""

    id: str
    type: str
    zone: str
    total: int
    owner: str
    created: datetime
    targeted: bool = True
    kind: str = "default"
    interruptible: bool = False
    ends: datetime | None = None
    starts: datetime | None = None
    cancelled: bool = False
    tags: dict[str, str] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)

    @property
    def available(self) -> int:
        return max(0, self.total - len(self.used))

    def state_at(self, now: datetime) -> str:
        if self.cancelled:
            return "cancelled"
        if self.ends is not None and self.ends <= now:
            return "expired"
        return "scheduled" if self.starts is not None and self.starts > now else "active"


class SimReservations(ServiceState):
    """The reservations an account owns, or was given to use, in a region."""

    def init_state(self) -> None:
        self.by_id: dict[str, SimReservation] = {}
        self.world.listen("instance", self._on_change)

    def add(
        self,
        name: str,
        zone: str,
        count: int,
        tags: dict[str, str] | None = None,
        *,
        kind: str = "default",
        targeted: bool = True,
        interruptible: bool = False,
        ends: datetime | None = None,
        owner: str = "",
    ) -> SimReservation:
        """Set instances aside; `kind` is default or capacity-block."""
        made = SimReservation(
            f"cr-0{self.world.random_hex(16)}",
            name,
            zone,
            count,
            owner or self.account,
            self.clock.now(),
            targeted,
            kind,
            interruptible,
            ends,
            tags=dict(tags or {}),
        )
        self.by_id[made.id] = made
        if ends is not None:
            early = BLOCK_ENDS_EARLY if kind == "capacity-block" else timedelta()
            self.world.call_later(
                (ends - early - self.clock.now()).total_seconds(), lambda: self.end_reservation(made)
            )
        return made

    def end_reservation(self, reservation: SimReservation) -> None:
        """It is over: the instances of a block end with it, those of another go on as on-demand ones."""
        instances = self.world.get_state(SimInstances, self.account, self.region)
        for each in sorted(reservation.used):
            machine = instances.by_id.get(each)
            if machine is not None and reservation.kind == "capacity-block":
                instances.terminate(machine, BLOCK_ENDED)
            elif machine is not None:
                machine.capacity_reservation = ""
        reservation.used.clear()

    def _on_change(self, change: InstanceChange) -> None:
        if change.state == "terminated" and change.machine.capacity_reservation:
            found = self.by_id.get(change.machine.capacity_reservation)
            if found is not None:
                found.used.discard(change.machine.id)


@operation("ec2", "DescribeCapacityReservations")
def describe_reservations(request: AwsRequest) -> Json:
    kept, now = request.regional_state(SimReservations), request.world.clock.now()
    wanted = list(kept.by_id.values())
    if ids := request.get("CapacityReservationIds"):
        if missing := [each for each in ids if each not in kept.by_id]:
            raise request.refuse(
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation ID '{', '.join(missing)}' does not exist",
            )
        wanted = [kept.by_id[each] for each in ids]
    found = apply_filters(
        request,
        wanted,
        lambda each: {
            "instance-type": (each.type,),
            "owner-id": (each.owner,),
            "instance-match-criteria": ("targeted" if each.targeted else "open",),
            "availability-zone": (each.zone,),
            "availability-zone-id": (zone_ids(request.account, request.region).get(each.zone, ""),),
            "state": (each.state_at(now),),
            "tenancy": ("default",),
            "reservation-type": (each.kind,),
        },
        lambda each: each.tags,
    )
    chosen, more = take_page(request, found, named="CapacityReservationIds")
    return {"CapacityReservations": [_render_reservation(each, request) for each in chosen], **more}


@operation("ec2", "CreateCapacityReservation")
def create_reservation(request: AwsRequest) -> Json:
    made = request.regional_state(SimReservations).add(
        request.get_required("InstanceType"),
        request.get_required("AvailabilityZone"),
        request.get_required("InstanceCount"),
        tags_for(request, "capacity-reservation"),
        targeted=request.get("InstanceMatchCriteria", "open") == "targeted",
        ends=request.get("EndDate"),
    )
    return {"CapacityReservation": _render_reservation(made, request)}


@operation("ec2", "CancelCapacityReservation")
def cancel_reservation(request: AwsRequest) -> Json:
    found = request.regional_state(SimReservations).by_id.get(request.get_required("CapacityReservationId"))
    if found is None:
        raise request.refuse(
            "InvalidCapacityReservationId.NotFound",
            f"The capacity reservation ID '{request.get_required('CapacityReservationId')}' does not exist",
        )
    found.cancelled = True
    request.regional_state(SimReservations).end_reservation(found)
    return {"Return": True}


def _render_reservation(each: SimReservation, request: AwsRequest) -> Json:
    answer: Json = {
        "CapacityReservationId": each.id,
        "OwnerId": each.owner,
        "CapacityReservationArn": f"arn:aws:ec2:{request.region}:{each.owner}:capacity-reservation/{each.id}",
        "InstanceType": each.type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": each.zone,
        "AvailabilityZoneId": zone_ids(request.account, request.region).get(each.zone, ""),
        "Tenancy": "default",
        "TotalInstanceCount": each.total,
        "AvailableInstanceCount": each.available,
        "EbsOptimized": False,
        "EphemeralStorage": False,
        "State": each.state_at(request.world.clock.now()),
        "StartDate": each.starts or each.created,
        "EndDateType": "limited" if each.ends else "unlimited",
        "InstanceMatchCriteria": "targeted" if each.targeted else "open",
        "CreateDate": each.created,
        "ReservationType": each.kind,
        "Interruptible": each.interruptible,
        "Tags": tag_list(each.tags),
    }
    if each.ends:
        answer["EndDate"] = each.ends
    return answer


# Running instances of a spread group in one zone.
SPREAD_MOST = 7


@dataclass(slots=True)
class SimPlacementGroup:
    """A placement group, and the instances in it."""

    id: str
    name: str
    strategy: str
    partitions: int = 0
    state: str = "available"
    tags: dict[str, str] = field(default_factory=dict)
    members: dict[str, SimInstance] = field(default_factory=dict)

    def count_in_zone(self, zone: str) -> int:
        return sum(each.zone == zone and each.alive for each in self.members.values())

    def choose_partition(self) -> int:
        """The partition with the fewest members: where EC2 puts one that names none."""
        counts = dict.fromkeys(range(1, self.partitions + 1), 0)
        for each in self.members.values():
            number = each.placement.get("PartitionNumber", 0)
            if each.alive and number in counts:
                counts[number] += 1
        return min(counts, key=lambda number: (counts[number], number))


class SimPlacementGroups(ServiceState):
    """The placement groups of an account in a region."""

    def init_state(self) -> None:
        self.by_name: dict[str, SimPlacementGroup] = {}
        self.world.listen("instance", self._on_change)

    def add(
        self, name: str, strategy: str, partitions: int = 0, tags: dict[str, str] | None = None
    ) -> SimPlacementGroup:
        count = (partitions or 2) if strategy == "partition" else 0
        made = SimPlacementGroup(
            f"pg-0{self.world.random_hex(16)}", name, strategy, count, tags=dict(tags or {})
        )
        self.by_name[name] = made
        return made

    def find(self, group_id: str = "", name: str = "") -> SimPlacementGroup | None:
        if name:
            return self.by_name.get(name)
        return next((each for each in self.by_name.values() if each.id == group_id), None)

    def _on_change(self, change: InstanceChange) -> None:
        group = self.find(change.machine.placement.get("GroupId", ""))
        if group is not None and change.state == "terminated":
            group.members.pop(change.machine.id, None)


@operation("ec2", "DescribePlacementGroups")
def describe_groups(request: AwsRequest) -> Json:
    kept = request.regional_state(SimPlacementGroups)
    wanted = list(kept.by_name.values())
    if names := request.get("GroupNames"):
        wanted = [
            _require_group(request, kept.find(name=name), "InvalidPlacementGroup.Unknown", name)
            for name in names
        ]
    if ids := request.get("GroupIds"):
        wanted = [
            _require_group(request, kept.find(each), "InvalidPlacementGroupId.NotFound", each) for each in ids
        ]
    found = apply_filters(
        request,
        wanted,
        lambda each: {"group-name": (each.name,), "state": (each.state,), "strategy": (each.strategy,)},
        lambda each: each.tags,
    )
    chosen, more = take_page(request, found)
    return {"PlacementGroups": [_render_placement_group(each, request) for each in chosen], **more}


@operation("ec2", "CreatePlacementGroup")
def create_group(request: AwsRequest) -> Json:
    kept, name = request.regional_state(SimPlacementGroups), request.get_required("GroupName")
    if name in kept.by_name:
        raise request.refuse(
            "InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists."
        )
    made = kept.add(
        name,
        request.get("Strategy", "cluster"),
        request.get("PartitionCount", 0),
        tags_for(request, "placement-group"),
    )
    return {"PlacementGroup": _render_placement_group(made, request)}


@operation("ec2", "DeletePlacementGroup")
def delete_group(request: AwsRequest) -> Json:
    kept, name = request.regional_state(SimPlacementGroups), request.get_required("GroupName")
    found = _require_group(request, kept.find(name=name), "InvalidPlacementGroup.Unknown", name)
    if any(each.alive for each in found.members.values()):
        raise request.refuse(
            "InvalidPlacementGroup.InUse", f"The placement group '{name}' is in use and may not be deleted."
        )
    del kept.by_name[name]
    return {}


def _require_group(
    request: AwsRequest, group: SimPlacementGroup | None, code: str, name: str
) -> SimPlacementGroup:
    if group is None:
        raise request.refuse(code, f"The Placement Group '{name}' is unknown.")
    return group


def _render_placement_group(each: SimPlacementGroup, request: AwsRequest) -> Json:
    answer: Json = {
        "GroupId": each.id,
        "GroupName": each.name,
        "GroupArn": f"arn:aws:ec2:{request.region}:{request.account}:placement-group/{each.name}",
        "State": each.state,
        "Strategy": each.strategy,
        "Tags": tag_list(each.tags),
    }
    if each.partitions:
        answer["PartitionCount"] = each.partitions
    return answer

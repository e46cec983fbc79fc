"""Capacity reservations: instances set aside, used up by launches that target them."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from dovetail.sim.aws.asking import Ask, Json, Subject, operation
from dovetail.sim.aws.instances import Changed, Instances
from dovetail.sim.aws.network import zone_ids
from dovetail.sim.aws.selecting import filtered, page, tag_list, tags_for

__all__ = ["CapacityReservations", "Reservation"]

# EC2 begins to end the instances of a capacity block half an hour before the block ends.
BLOCK_ENDS_EARLY = timedelta(minutes=30)
BLOCK_ENDED = ("Server.CapacityBlockEnded", "Server.CapacityBlockEnded: the capacity block is over")


@dataclass(slots=True)
class Reservation:
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

    def state(self, now: datetime) -> str:
        if self.cancelled:
            return "cancelled"
        if self.ends is not None and self.ends <= now:
            return "expired"
        return "scheduled" if self.starts is not None and self.starts > now else "active"


class CapacityReservations(Subject):
    """The reservations an account owns, or was given to use, in a region."""

    def begin(self) -> None:
        self.by_id: dict[str, Reservation] = {}
        self.ground.listen("instance", self._changed)

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
    ) -> Reservation:
        """Set instances aside; `kind` is default or capacity-block."""
        made = Reservation(
            f"cr-0{self.ground.hexes(16)}",
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
            self.ground.later((ends - early - self.clock.now()).total_seconds(), lambda: self.release(made))
        return made

    def release(self, reservation: Reservation) -> None:
        """It is over: the instances of a block end with it, those of another go on as on-demand ones."""
        instances = self.ground.subject(Instances, self.account, self.region)
        for each in sorted(reservation.used):
            machine = instances.by_id.get(each)
            if machine is not None and reservation.kind == "capacity-block":
                instances.end(machine, BLOCK_ENDED)
            elif machine is not None:
                machine.capacity_reservation = ""
        reservation.used.clear()

    def _changed(self, change: Changed) -> None:
        if change.state == "terminated" and change.machine.capacity_reservation:
            found = self.by_id.get(change.machine.capacity_reservation)
            if found is not None:
                found.used.discard(change.machine.id)


@operation("ec2", "DescribeCapacityReservations")
def describe_reservations(ask: Ask) -> Json:
    kept, now = ask.here(CapacityReservations), ask.ground.clock.now()
    wanted = list(kept.by_id.values())
    if ids := ask.get("CapacityReservationIds"):
        if missing := [each for each in ids if each not in kept.by_id]:
            raise ask.refuse(
                "InvalidCapacityReservationId.NotFound",
                f"The capacity reservation ID '{', '.join(missing)}' does not exist",
            )
        wanted = [kept.by_id[each] for each in ids]
    found = filtered(
        ask,
        wanted,
        lambda each: {
            "instance-type": (each.type,),
            "owner-id": (each.owner,),
            "instance-match-criteria": ("targeted" if each.targeted else "open",),
            "availability-zone": (each.zone,),
            "availability-zone-id": (zone_ids(ask.account, ask.region).get(each.zone, ""),),
            "state": (each.state(now),),
            "tenancy": ("default",),
            "reservation-type": (each.kind,),
        },
        lambda each: each.tags,
    )
    chosen, more = page(ask, found, named="CapacityReservationIds")
    return {"CapacityReservations": [_shown(each, ask) for each in chosen], **more}


@operation("ec2", "CreateCapacityReservation")
def create_reservation(ask: Ask) -> Json:
    made = ask.here(CapacityReservations).add(
        ask.need("InstanceType"),
        ask.need("AvailabilityZone"),
        ask.need("InstanceCount"),
        tags_for(ask, "capacity-reservation"),
        targeted=ask.get("InstanceMatchCriteria", "open") == "targeted",
        ends=ask.get("EndDate"),
    )
    return {"CapacityReservation": _shown(made, ask)}


@operation("ec2", "CancelCapacityReservation")
def cancel_reservation(ask: Ask) -> Json:
    found = ask.here(CapacityReservations).by_id.get(ask.need("CapacityReservationId"))
    if found is None:
        raise ask.refuse(
            "InvalidCapacityReservationId.NotFound",
            f"The capacity reservation ID '{ask.need('CapacityReservationId')}' does not exist",
        )
    found.cancelled = True
    ask.here(CapacityReservations).release(found)
    return {"Return": True}


def _shown(each: Reservation, ask: Ask) -> Json:
    answer: Json = {
        "CapacityReservationId": each.id,
        "OwnerId": each.owner,
        "CapacityReservationArn": f"arn:aws:ec2:{ask.region}:{each.owner}:capacity-reservation/{each.id}",
        "InstanceType": each.type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": each.zone,
        "AvailabilityZoneId": zone_ids(ask.account, ask.region).get(each.zone, ""),
        "Tenancy": "default",
        "TotalInstanceCount": each.total,
        "AvailableInstanceCount": each.available,
        "EbsOptimized": False,
        "EphemeralStorage": False,
        "State": each.state(ask.ground.clock.now()),
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

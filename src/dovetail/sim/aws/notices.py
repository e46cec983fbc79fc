"""What EC2 and AWS Health tell about instances, as events: state changes, interruptions, retirements."""

from __future__ import annotations

from datetime import datetime, timedelta

from dovetail.sim.aws.asking import Json
from dovetail.sim.aws.bus import Buses
from dovetail.sim.aws.ground import Ground
from dovetail.sim.aws.instances import Changed, Instances, schedule
from dovetail.sim.aws.machine import Machine

__all__ = ["Notices"]

NOTICE = 120.0
RECLAIMED = ("Server.SpotInstanceTermination", "Server.SpotInstanceTermination: Spot instance termination")
RETIRED = ("Server.InstanceRetired", "Server.InstanceRetired: the instance was retired")
RESERVED = ("Server.CapacityReservationInterruption", "Server.CapacityReservationInterruption: reclaimed")
# Health's name for what DescribeInstanceStatus calls by these codes.
HEALTH = {
    "instance-retirement": "AWS_EC2_INSTANCE_RETIREMENT_SCHEDULED",
    "instance-stop": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
    "instance-reboot": "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED",
    "system-reboot": "AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED",
    "system-maintenance": "AWS_EC2_SYSTEM_MAINTENANCE_EVENT",
}


class Notices:
    """Watches every instance of the world, and speaks for EC2 when something is done to one."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        ground.listen("instance", self._changed)
        # Experiments interrupt by way of EC2.
        ground.listen("rebalance", self.rebalance)
        ground.listen("interrupt", self.interrupt)

    def _changed(self, change: Changed) -> None:
        machine = change.machine
        detail = {"instance-id": machine.id, "state": change.state}
        self._emit(machine, "EC2 Instance State-change Notification", detail)

    def interrupt(self, machine: Machine, notice: float = NOTICE, action: str = "terminate") -> None:
        """Spot takes it back: a warning now, the end when the notice is over."""
        detail = {"instance-id": machine.id, "instance-action": action}
        arn = f"arn:aws:ec2:{machine.zone}:instance/{machine.id}"
        self._emit(machine, "EC2 Spot Instance Interruption Warning", detail, arn)
        self._ground.later(notice, lambda: self._instances(machine).end(machine, RECLAIMED))

    def rebalance(self, machine: Machine) -> None:
        self._emit(machine, "EC2 Instance Rebalance Recommendation", {"instance-id": machine.id})

    def interrupt_reservation(self, machine: Machine, notice: float = NOTICE) -> None:
        """An interruptible reservation is wanted back by its owner."""
        end = self._ground.clock.now() + timedelta(seconds=notice)
        detail = {
            "instance-id": machine.id,
            "instance-action": "terminate",
            "instance-termination-time": f"{end:%Y-%m-%dT%H:%M:%SZ}",
            "azId": machine.zone_id,
        }
        self._emit(machine, "EC2 Capacity Reservation Instance Interruption Warning", detail)
        self._ground.later(notice, lambda: self._instances(machine).end(machine, RESERVED))

    def scheduled(self, machines: list[Machine], code: str, starts: timedelta, region: str = "") -> Json:
        """Something is scheduled for instances: in their status at once, and as one event of AWS Health."""
        first, instances = machines[0], self._instances(machines[0])
        listed = [
            schedule(each, code, f"The instance is scheduled for {code}", starts, instances)
            for each in machines
        ]
        if code == "instance-retirement":
            for each in machines:
                self._ground.later(
                    starts.total_seconds(),
                    lambda each=each: instances.end(each, RETIRED),  # type: ignore[misc]
                )
        ids = [each.id for each in machines]
        detail = self._health(first, HEALTH[code], ids, listed[0])
        buses = self._ground.subject(Buses, first.account, region or first.region)
        return buses.emit("aws.health", "AWS Health Event", detail, ids)

    def _health(self, first: Machine, kind: str, ids: list[str], event: Json) -> Json:
        now = _mail_date(self._ground.clock.now())
        return {
            "eventArn": f"arn:aws:health:{first.region}::event/EC2/{kind}/{kind}_{self._ground.hexes(8)}",
            "service": "EC2",
            "eventTypeCode": kind,
            "eventTypeCategory": "scheduledChange",
            "eventScopeCode": "ACCOUNT_SPECIFIC",
            "communicationId": f"{self._ground.hexes(32)}-1",
            "eventRegion": first.region,
            "statusCode": "upcoming",
            "startTime": _mail_date(event["NotBefore"]),
            "endTime": _mail_date(event["NotAfter"]),
            "lastUpdatedTime": now,
            "eventDescription": [{"language": "en_US", "latestDescription": event["Description"]}],
            "affectedEntities": [
                {"entityValue": each, "status": "PENDING", "lastUpdatedTime": now} for each in ids
            ],
            "affectedAccount": first.account,
            "backupEvent": "false",
            "page": "1",
            "totalPages": "1",
        }

    def _instances(self, machine: Machine) -> Instances:
        return self._ground.subject(Instances, machine.account, machine.region)

    def _emit(self, machine: Machine, kind: str, detail: Json, resource: str = "") -> None:
        buses = self._ground.subject(Buses, machine.account, machine.region)
        buses.emit("aws.ec2", kind, detail, [resource or machine.arn])


def _mail_date(when: datetime) -> str:
    return f"{when:%a, %d %b %Y %H:%M:%S} GMT"

"""How a test or a scenario controls the simulated AWS: what is there, and things that happen to it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TypeVar

from dovetail.ports import Clock
from dovetail.sim.aws.ec2.capacity import Ec2Capacity
from dovetail.sim.aws.ec2.images import SimImages, SimParameters
from dovetail.sim.aws.ec2.instance_record import SimInstance
from dovetail.sim.aws.ec2.instances import InstanceChange, SimInstances, schedule_event
from dovetail.sim.aws.ec2.launch_targets import SimPlacementGroups, SimReservations
from dovetail.sim.aws.ec2.network import Network
from dovetail.sim.aws.ec2.reserved_instances import SimReservedInstances
from dovetail.sim.aws.ec2.templates import SimLaunchTemplates
from dovetail.sim.aws.ec2.types import SimPrices
from dovetail.sim.aws.eks import Eks
from dovetail.sim.aws.faults import AwsFaults
from dovetail.sim.aws.iam.roles import Iam
from dovetail.sim.aws.messaging.eventbridge import EventBuses, EventRule
from dovetail.sim.aws.messaging.queues import SimQueue, SimQueues
from dovetail.sim.aws.s3 import S3Buckets, S3Object
from dovetail.sim.aws.savings_plans import SimSavingsPlans
from dovetail.sim.aws.service import AwsWorld, Json, ServiceState
from dovetail.sim.aws.zonal_shifts import ArcShifts

__all__ = ["AwsControl", "InstanceNotices"]

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


class InstanceNotices:
    """Watches every instance of the world, and speaks for EC2 when something is done to one."""

    def __init__(self, world: AwsWorld) -> None:
        self._world = world
        world.listen("instance", self._on_change)
        # Experiments interrupt by way of EC2.
        world.listen("rebalance", self.recommend_rebalance)
        world.listen("interrupt", self.interrupt)

    def _on_change(self, change: InstanceChange) -> None:
        machine = change.machine
        detail = {"instance-id": machine.id, "state": change.state}
        self._emit_event(machine, "EC2 Instance State-change Notification", detail)

    def interrupt(self, machine: SimInstance, notice: float = NOTICE, action: str = "terminate") -> None:
        """Spot takes it back: a warning now, the end when the notice is over."""
        detail = {"instance-id": machine.id, "instance-action": action}
        arn = f"arn:aws:ec2:{machine.zone}:instance/{machine.id}"
        self._emit_event(machine, "EC2 Spot Instance Interruption Warning", detail, arn)
        self._world.call_later(notice, lambda: self._find_instances(machine).terminate(machine, RECLAIMED))

    def recommend_rebalance(self, machine: SimInstance) -> None:
        self._emit_event(machine, "EC2 Instance Rebalance Recommendation", {"instance-id": machine.id})

    def interrupt_reservation(self, machine: SimInstance, notice: float = NOTICE) -> None:
        """An interruptible reservation is wanted back by its owner."""
        end = self._world.clock.now() + timedelta(seconds=notice)
        detail = {
            "instance-id": machine.id,
            "instance-action": "terminate",
            "instance-termination-time": f"{end:%Y-%m-%dT%H:%M:%SZ}",
            "azId": machine.zone_id,
        }
        self._emit_event(machine, "EC2 Capacity Reservation Instance Interruption Warning", detail)
        self._world.call_later(notice, lambda: self._find_instances(machine).terminate(machine, RESERVED))

    def schedule_events(
        self, machines: list[SimInstance], code: str, starts: timedelta, region: str = ""
    ) -> Json:
        """Something is scheduled for instances: in their status at once, and as one event of AWS Health."""
        first, instances = machines[0], self._find_instances(machines[0])
        listed = [
            schedule_event(each, code, f"The instance is scheduled for {code}", starts, instances)
            for each in machines
        ]
        if code == "instance-retirement":
            for each in machines:
                self._world.call_later(
                    starts.total_seconds(),
                    lambda each=each: instances.terminate(each, RETIRED),  # type: ignore[misc]
                )
        ids = [each.id for each in machines]
        detail = self._build_health_event(first, HEALTH[code], ids, listed[0])
        buses = self._world.get_state(EventBuses, first.account, region or first.region)
        return buses.emit_event("aws.health", "AWS Health Event", detail, ids)

    def _build_health_event(self, first: SimInstance, kind: str, ids: list[str], event: Json) -> Json:
        now = _mail_date(self._world.clock.now())
        return {
            "eventArn": f"arn:aws:health:{first.region}::event/EC2/{kind}/{kind}_{self._world.random_hex(8)}",
            "service": "EC2",
            "eventTypeCode": kind,
            "eventTypeCategory": "scheduledChange",
            "eventScopeCode": "ACCOUNT_SPECIFIC",
            "communicationId": f"{self._world.random_hex(32)}-1",
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

    def _find_instances(self, machine: SimInstance) -> SimInstances:
        return self._world.get_state(SimInstances, machine.account, machine.region)

    def _emit_event(self, machine: SimInstance, kind: str, detail: Json, resource: str = "") -> None:
        buses = self._world.get_state(EventBuses, machine.account, machine.region)
        buses.emit_event("aws.ec2", kind, detail, [resource or machine.arn])


def _mail_date(when: datetime) -> str:
    return f"{when:%a, %d %b %Y %H:%M:%S} GMT"


S = TypeVar("S", bound=ServiceState)
# Services that are the same in every region of an account.
GLOBAL: tuple[type[ServiceState], ...] = (Iam, SimSavingsPlans)
# As Karpenter's own stack calls it.
QUEUE_TARGET = "KarpenterInterruptionQueueTarget"
INTERRUPTIONS = {
    "ScheduledChangeRule": ("aws.health", "AWS Health Event"),
    "SpotInterruptionRule": ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    "RebalanceRule": ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    "InstanceStateChangeRule": ("aws.ec2", "EC2 Instance State-change Notification"),
    "CapacityReservationInterruptionRule": (
        "aws.ec2",
        "EC2 Capacity Reservation Instance Interruption Warning",
    ),
}


class AwsControl:
    """One account in one region of a world, from the side AWS's own people see."""

    def __init__(self, clock: Clock, seed: int, region: str, account: str) -> None:
        self.world = AwsWorld(clock, seed)
        self.faults = AwsFaults(clock, self.world.rng)
        self.notices = InstanceNotices(self.world)
        self.account, self._region = account, region

    @property
    def region(self) -> str:
        return self._region

    @property
    def clock(self) -> Clock:
        return self.world.clock

    def get_state(self, kind: type[S]) -> S:
        """What a service of this account and region remembers, for a test to look at and to change."""
        return self.world.get_state(kind, self.account, "" if kind in GLOBAL else self._region)

    @property
    def network(self) -> Network:
        return self.get_state(Network)

    @property
    def images(self) -> SimImages:
        return self.get_state(SimImages)

    @property
    def instances(self) -> SimInstances:
        return self.get_state(SimInstances)

    @property
    def templates(self) -> SimLaunchTemplates:
        return self.get_state(SimLaunchTemplates)

    @property
    def capacity(self) -> Ec2Capacity:
        return self.get_state(Ec2Capacity)

    @property
    def reservations(self) -> SimReservations:
        return self.get_state(SimReservations)

    @property
    def reserved_instances(self) -> SimReservedInstances:
        return self.get_state(SimReservedInstances)

    @property
    def savings_plans(self) -> SimSavingsPlans:
        return self.get_state(SimSavingsPlans)

    @property
    def placement_groups(self) -> SimPlacementGroups:
        return self.get_state(SimPlacementGroups)

    @property
    def prices(self) -> SimPrices:
        return self.get_state(SimPrices)

    @property
    def iam(self) -> Iam:
        return self.get_state(Iam)

    @property
    def eks(self) -> Eks:
        return self.get_state(Eks)

    @property
    def parameters(self) -> SimParameters:
        return self.get_state(SimParameters)

    @property
    def queues(self) -> SimQueues:
        return self.get_state(SimQueues)

    @property
    def buses(self) -> EventBuses:
        return self.get_state(EventBuses)

    @property
    def shifts(self) -> ArcShifts:
        return self.get_state(ArcShifts)

    def get_instance(self, instance_id: str) -> SimInstance:
        """An instance, whether it can be described yet or not."""
        return self.instances.by_id[instance_id]

    def list_running(self) -> list[SimInstance]:
        """Every instance that is not on its way out."""
        return [each for each in self.instances.by_id.values() if each.alive]

    def exhaust(self, name: str = "*", zone: str = "*", capacity_type: str = "*", code: str = "") -> None:
        """A pool has nothing left to give, until `restock`; `*` stands for all types, zones or ways."""
        self.capacity.set_limit(name, zone, capacity_type, 0, code)

    def restock(
        self, name: str = "*", zone: str = "*", capacity_type: str = "*", count: int | None = None
    ) -> None:
        """A pool gives so many more instances; None for as many as anyone wants."""
        self.capacity.set_limit(name, zone, capacity_type, count)

    def refuse(self, code: str, operation: str = "*", times: int | None = 1, message: str = "") -> None:
        self.faults.refuse(code, operation, times, message)

    def reclaim(self, instance_id: str, notice: float = 120.0) -> None:
        """Spot takes an instance back: a warning now, the end when the notice is over."""
        self.notices.interrupt(self.get_instance(instance_id), notice)

    def rebalance(self, instance_id: str) -> None:
        """Spot says that an instance is at a higher risk than others."""
        self.notices.recommend_rebalance(self.get_instance(instance_id))

    def retire(
        self, *instance_ids: str, code: str = "instance-retirement", starts: timedelta = timedelta(days=14)
    ) -> None:
        """Something is scheduled for instances: in their status, and as an event of AWS Health."""
        self.notices.schedule_events([self.get_instance(each) for each in instance_ids], code, starts)

    def interrupt_reservation(self, instance_id: str, notice: float = 120.0) -> None:
        """The owner of an interruptible reservation wants an instance of it back."""
        self.notices.interrupt_reservation(self.get_instance(instance_id), notice)

    def impair(self, instance_id: str, check: str = "instance") -> None:
        """A status check (instance, system or ebs) fails from now on; `recover` ends it."""
        self.get_instance(instance_id).impaired[check] = self.clock.now()

    def recover(self, instance_id: str) -> None:
        self.get_instance(instance_id).impaired.clear()

    def add_interruption_queue(self, name: str) -> SimQueue:
        """A queue, and the five rules that send it what happens to instances."""
        queue = self.queues.add(name, {"MessageRetentionPeriod": "300", "SqsManagedSseEnabled": "true"})
        bus = self.buses.by_name["default"]
        for rule, (source, kind) in INTERRUPTIONS.items():
            arn = f"arn:aws:events:{self.region}:{self.account}:rule/{name}-{rule}"
            made = EventRule(f"{name}-{rule}", arn, {"source": [source], "detail-type": [kind]})
            made.targets[QUEUE_TARGET] = {"Id": QUEUE_TARGET, "Arn": queue.arn}
            bus.rules[made.name] = made
        return queue

    def add_bucket(self, name: str) -> dict[str, S3Object]:
        """A bucket of S3 and what is in it, by key."""
        return self.world.get_state(S3Buckets, self.account, "").by_name.setdefault(name, {})

    def set_up_cluster(self, cluster: str, version: str = "1.35") -> None:
        """What is set up before Karpenter: a network with discovery tags, a node role, an EKS cluster."""
        network, found = self.network, {"karpenter.sh/discovery": cluster}
        vpc = network.add_vpc("10.0.0.0/16", {"Name": cluster})
        for zone in network.zone_ids:
            tags = {
                "Name": f"{cluster}-private-{zone}",
                **found,
                f"kubernetes.io/cluster/{cluster}": "shared",
            }
            network.add_subnet(vpc.id, zone, network.next_cidr(vpc.id), tags)
        group = network.add_group(f"{cluster}-nodes", vpc.id, {"Name": f"{cluster}-nodes", **found})
        self.iam.add_role(f"KarpenterNodeRole-{cluster}")
        subnets = tuple(each.id for each in network.subnets.values() if each.vpc == vpc.id)
        self.eks.add(cluster, version=version, vpc=vpc.id, subnets=subnets, groups=(group.id,))

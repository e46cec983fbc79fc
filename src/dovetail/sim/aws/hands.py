"""The hands of a test or a scenario in the simulated AWS: what is there, and things that happen to it."""

from __future__ import annotations

from datetime import timedelta
from typing import TypeVar

from dovetail.ports import Clock
from dovetail.sim.aws.asking import Subject
from dovetail.sim.aws.bus import Buses, Rule
from dovetail.sim.aws.capacity import Capacity
from dovetail.sim.aws.eks import Eks
from dovetail.sim.aws.faults import Faults
from dovetail.sim.aws.ground import Ground
from dovetail.sim.aws.iam import Iam
from dovetail.sim.aws.images import Images
from dovetail.sim.aws.instances import Instances
from dovetail.sim.aws.machine import Machine
from dovetail.sim.aws.network import Network
from dovetail.sim.aws.notices import Notices
from dovetail.sim.aws.placement import PlacementGroups
from dovetail.sim.aws.prices import Prices
from dovetail.sim.aws.queues import Queue, Queues
from dovetail.sim.aws.reservations import CapacityReservations
from dovetail.sim.aws.shifts import Shifts
from dovetail.sim.aws.ssm import Parameters
from dovetail.sim.aws.templates import Templates

__all__ = ["Hands"]

S = TypeVar("S", bound=Subject)
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


class Hands:
    """One account in one region of a world, from the side AWS's own people see."""

    def __init__(self, clock: Clock, seed: int, region: str, account: str) -> None:
        self.ground = Ground(clock, seed)
        self.faults = Faults(clock, self.ground.rng)
        self.notices = Notices(self.ground)
        self.account, self._region = account, region

    @property
    def region(self) -> str:
        return self._region

    @property
    def clock(self) -> Clock:
        return self.ground.clock

    def subject(self, kind: type[S]) -> S:
        """What a service of this account and region remembers, for a test to look at and to change."""
        return self.ground.subject(kind, self.account, "" if kind is Iam else self._region)

    @property
    def network(self) -> Network:
        return self.subject(Network)

    @property
    def images(self) -> Images:
        return self.subject(Images)

    @property
    def instances(self) -> Instances:
        return self.subject(Instances)

    @property
    def templates(self) -> Templates:
        return self.subject(Templates)

    @property
    def capacity(self) -> Capacity:
        return self.subject(Capacity)

    @property
    def reservations(self) -> CapacityReservations:
        return self.subject(CapacityReservations)

    @property
    def placement_groups(self) -> PlacementGroups:
        return self.subject(PlacementGroups)

    @property
    def prices(self) -> Prices:
        return self.subject(Prices)

    @property
    def iam(self) -> Iam:
        return self.subject(Iam)

    @property
    def eks(self) -> Eks:
        return self.subject(Eks)

    @property
    def parameters(self) -> Parameters:
        return self.subject(Parameters)

    @property
    def queues(self) -> Queues:
        return self.subject(Queues)

    @property
    def buses(self) -> Buses:
        return self.subject(Buses)

    @property
    def shifts(self) -> Shifts:
        return self.subject(Shifts)

    def machine(self, instance_id: str) -> Machine:
        """An instance, whether it can be described yet or not."""
        return self.instances.by_id[instance_id]

    def running(self) -> list[Machine]:
        """Every instance that is not on its way out."""
        return [each for each in self.instances.by_id.values() if each.alive]

    def exhaust(self, name: str = "*", zone: str = "*", way: str = "*", code: str = "") -> None:
        """A pool has nothing left to give, until `restock`; `*` stands for all types, zones or ways."""
        self.capacity.limit(name, zone, way, 0, code)

    def restock(self, name: str = "*", zone: str = "*", way: str = "*", count: int | None = None) -> None:
        """A pool gives so many more instances; None for as many as anyone wants."""
        self.capacity.limit(name, zone, way, count)

    def refuse(self, code: str, operation: str = "*", times: int | None = 1, message: str = "") -> None:
        self.faults.refuse(code, operation, times, message)

    def reclaim(self, instance_id: str, notice: float = 120.0) -> None:
        """Spot takes an instance back: a warning now, the end when the notice is over."""
        self.notices.interrupt(self.machine(instance_id), notice)

    def rebalance(self, instance_id: str) -> None:
        """Spot says that an instance is at a higher risk than others."""
        self.notices.rebalance(self.machine(instance_id))

    def retire(
        self, *instance_ids: str, code: str = "instance-retirement", starts: timedelta = timedelta(days=14)
    ) -> None:
        """Something is scheduled for instances: in their status, and as an event of AWS Health."""
        self.notices.scheduled([self.machine(each) for each in instance_ids], code, starts)

    def interrupt_reservation(self, instance_id: str, notice: float = 120.0) -> None:
        """The owner of an interruptible reservation wants an instance of it back."""
        self.notices.interrupt_reservation(self.machine(instance_id), notice)

    def impair(self, instance_id: str, check: str = "instance") -> None:
        """A status check (instance, system or ebs) fails from now on; `recover` ends it."""
        self.machine(instance_id).impaired[check] = self.clock.now()

    def recover(self, instance_id: str) -> None:
        self.machine(instance_id).impaired.clear()

    def interruption_queue(self, name: str) -> Queue:
        """A queue, and the five rules that send it what happens to instances."""
        queue = self.queues.add(name, {"MessageRetentionPeriod": "300", "SqsManagedSseEnabled": "true"})
        bus = self.buses.by_name["default"]
        for rule, (source, kind) in INTERRUPTIONS.items():
            arn = f"arn:aws:events:{self.region}:{self.account}:rule/{name}-{rule}"
            made = Rule(f"{name}-{rule}", arn, {"source": [source], "detail-type": [kind]})
            made.targets[QUEUE_TARGET] = {"Id": QUEUE_TARGET, "Arn": queue.arn}
            bus.rules[made.name] = made
        return queue

    def furnish(self, cluster: str, version: str = "1.35") -> None:
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

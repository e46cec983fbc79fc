"""How much EC2 has left to give: pools of a type in a zone by capacity type, quotas, and their refusals."""

from __future__ import annotations

from dataclasses import dataclass, field
from zlib import crc32

from dovetail.sim.aws.service import ServiceState

__all__ = ["Ec2Capacity", "Shortage"]

SPOT = "spot"
ANY = "*"


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why there is no instance: an EC2 error code and its sentence."""

    code: str
    message: str


@dataclass(slots=True)
class Quotas:
    """What the account may have at once; None is no limit."""

    on_demand_vcpus: int | None = None
    spot_instances: int | None = None


@dataclass(slots=True)
class _Used:
    on_demand_vcpus: int = 0
    spot_instances: int = 0
    pools: dict[tuple[str, str, str], int] = field(default_factory=dict)


class Ec2Capacity(ServiceState):
    """Pools without a count never run dry; `*` in a pool's name stands for every type, zone or way."""

    def init_state(self) -> None:
        self.counts: dict[tuple[str, str, str], int] = {}
        self.codes: dict[tuple[str, str, str], str] = {}
        self.quotas, self._used = Quotas(), _Used()

    def set_limit(self, name: str, zone: str, capacity_type: str, count: int | None, code: str = "") -> None:
        """This many instances can be launched from the pool from now on; None lifts the limit."""
        key = (name, zone, capacity_type)
        if count is None:
            self.counts.pop(key, None)
            self.codes.pop(key, None)
            return
        # A pool that is dry stays so, whatever comes back to it.
        self.counts[key] = count + self._used.pools.get(key, 0) if count else -1
        if code:
            self.codes[key] = code

    def measure_depth(self, name: str, zone: str, capacity_type: str) -> float:
        """How deep a pool is, from 0 (about to run dry) to 1: always the same for a pool that has plenty."""
        left = self.count_left(name, zone, capacity_type)
        if left is not None and left < 20:
            return left / 40
        return 0.5 + crc32(f"depth/{name}/{zone}/{capacity_type}".encode()) / (1 << 33)

    def count_left(self, name: str, zone: str, capacity_type: str) -> int | None:
        """How many more the pool gives; None when there is no limit."""
        limits = [
            self.counts[key] - self._used.pools.get(key, 0)
            for key in _list_pool_keys(name, zone, capacity_type)
            if key in self.counts
        ]
        return max(0, min(limits)) if limits else None

    def find_shortage(self, name: str, zone: str, capacity_type: str, vcpus: int) -> Shortage | None:
        """Why the next launch from this pool would be refused."""
        for key in _list_pool_keys(name, zone, capacity_type):
            if key in self.counts and self.counts[key] <= self._used.pools.get(key, 0):
                return _describe_shortage(
                    self.codes.get(key, "InsufficientInstanceCapacity"), name, zone, capacity_type
                )
        quotas, used = self.quotas, self._used
        if capacity_type == SPOT:
            if quotas.spot_instances is not None and used.spot_instances >= quotas.spot_instances:
                return Shortage("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
        elif quotas.on_demand_vcpus is not None and used.on_demand_vcpus + vcpus > quotas.on_demand_vcpus:
            return Shortage(
                "VcpuLimitExceeded",
                f"You have requested more vCPU capacity than your current vCPU limit of "
                f"{quotas.on_demand_vcpus} allows for the instance bucket that the specified instance type "
                "belongs to. Please visit http://aws.amazon.com/contact-us/ec2-request to request an "
                "adjustment to this limit.",
            )
        return None

    def take(self, name: str, zone: str, capacity_type: str, vcpus: int, by: int = 1) -> None:
        for key in _list_pool_keys(name, zone, capacity_type):
            self._used.pools[key] = self._used.pools.get(key, 0) + by
        if capacity_type == SPOT:
            self._used.spot_instances += by
        else:
            self._used.on_demand_vcpus += by * vcpus

    def give_back(self, name: str, zone: str, capacity_type: str, vcpus: int) -> None:
        self.take(name, zone, capacity_type, vcpus, -1)


def _list_pool_keys(name: str, zone: str, capacity_type: str) -> list[tuple[str, str, str]]:
    return [(a, b, c) for a in (name, ANY) for b in (zone, ANY) for c in (capacity_type, ANY)]


def _describe_shortage(code: str, name: str, zone: str, capacity_type: str) -> Shortage:
    if code == "UnfulfillableCapacity":
        return Shortage(
            code, "Unable to fulfill capacity due to your request configuration. Please adjust it."
        )
    if code == "InsufficientInstanceCapacity" and capacity_type == SPOT:
        return Shortage(code, "There is no Spot capacity available that matches your request.")
    if code == "InsufficientInstanceCapacity":
        return Shortage(
            code,
            f"We currently do not have sufficient {name} capacity in the Availability Zone you requested "
            f"({zone}). Our system will be working on provisioning additional capacity.",
        )
    return Shortage(code, f"The request for {name} in {zone} was refused: {code}.")

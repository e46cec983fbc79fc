"""Instance types as a node class sees them: labels, capacity, and what a node keeps for itself.

Pure: facts and terms in, an InstanceType out. Where facts come from is `facts.py`, prices are elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache

from dovetail.api import labels
from dovetail.api.hashes import ami_family
from dovetail.api.nodeclass import (
    BlockDeviceMapping,
    CapacityReservation,
    EC2NodeClass,
    KubeletConfiguration,
    NetworkInterface,
    Subnet,
)
from dovetail.providers.aws.capacity import capacity, overhead, pods
from dovetail.providers.aws.expressions import has_expressions, resolved
from dovetail.providers.aws.facts import Facts, Tables
from dovetail.providers.aws.families import FAMILIES, Family
from dovetail.scheduling.catalog import InstanceType, Offering
from dovetail.scheduling.requirements import NOTHING, Requirements, Values

__all__ = ["Terms", "instance_type"]

# Category, then for high-memory types their size, then the generation: u-6tb1.metal is u, 1.
_NAME = re.compile(r"^([a-z]+)(-[0-9]+tb)?([0-9]+).*\.")
PLAIN_KUBELET = KubeletConfiguration()
TENANCIES = ("default", "dedicated")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a node class and the settings say about every instance type."""

    region: str
    family: Family = FAMILIES["AL2023"]
    subnets: tuple[Subnet, ...] = ()
    kubelet: KubeletConfiguration = PLAIN_KUBELET
    block_devices: tuple[BlockDeviceMapping, ...] = ()
    instance_store_policy: str = ""
    interfaces: tuple[NetworkInterface, ...] = ()
    reservations: tuple[CapacityReservation, ...] = ()
    reserved_enis: int = 0
    memory_overhead: float = 0.075
    # Whether kubelet settings may be expressions (the gate NodeClassCEL).
    expressions: bool = False

    @staticmethod
    def of(
        nodeclass: EC2NodeClass,
        region: str,
        reserved_enis: int = 0,
        memory_overhead: float = 0.075,
        expressions: bool = False,
    ) -> Terms:
        """The terms of a class as far as it has been resolved."""
        spec, status = nodeclass.spec, nodeclass.status
        return Terms(
            region=region,
            family=FAMILIES.get(ami_family(spec), FAMILIES["Custom"]),
            subnets=status.subnets,
            kubelet=spec.kubelet or PLAIN_KUBELET,
            block_devices=spec.block_device_mappings,
            instance_store_policy=spec.instance_store_policy or "",
            interfaces=spec.network_interfaces,
            reservations=status.capacity_reservations,
            reserved_enis=reserved_enis,
            memory_overhead=memory_overhead,
            expressions=expressions,
        )

    def on(self, facts: Facts) -> Terms:
        """The terms for one type: expressions among the kubelet's settings have become values."""
        if not has_expressions(self.kubelet):
            return self

        def counted(kubelet: KubeletConfiguration) -> int:
            return pods(facts, replace(self, kubelet=kubelet))

        return replace(self, kubelet=resolved(self.kubelet, facts, counted, self.expressions))


def instance_type(
    facts: Facts, terms: Terms, zones: Collection[str], tables: Tables, offerings: tuple[Offering, ...] = ()
) -> InstanceType:
    """The type as these terms make it; `zones` are those that sell it."""
    terms = terms.on(facts)
    has = capacity(facts, terms, tables.limits.get(facts.name))
    return InstanceType(
        name=facts.name,
        requirements=_requirements(facts, terms, zones, tables.bandwidth.get(facts.name)),
        offerings=offerings,
        capacity=has,
        overhead=overhead(facts, terms, has),
    )


@lru_cache(maxsize=4096)
def _values(*names: str) -> Values:
    return Values(frozenset(names)) if names else NOTHING


def _maybe(value: int | str | None) -> Values:
    return NOTHING if value is None else _values(str(value))


def _requirements(facts: Facts, terms: Terms, zones: Collection[str], bandwidth: int | None) -> Requirements:
    return Requirements(
        {
            **_machine(facts, bandwidth),
            **_devices(facts),
            **_system(facts, terms.family),
            **_places(terms, zones),
            **_reservations(facts, terms),
        }
    )


def _machine(facts: Facts, bandwidth: int | None) -> dict[str, Values]:
    family, _, size = facts.name.partition(".")
    named = _NAME.match(facts.name)
    nvme = facts.store_gb if facts.store_nvme != "unsupported" else None
    return {
        labels.INSTANCE_TYPE: _values(facts.name),
        labels.INSTANCE_CPU: _maybe(facts.vcpus),
        labels.INSTANCE_CPU_MANUFACTURER: _values(_kebab(facts.cpu_manufacturer)),
        labels.INSTANCE_CPU_CLOCK_SPEED: _maybe(facts.clock_mhz),
        labels.INSTANCE_MEMORY: _maybe(facts.memory_mib),
        labels.INSTANCE_EBS_BANDWIDTH: _maybe(facts.ebs_mbps),
        labels.INSTANCE_NETWORK_BANDWIDTH: _maybe(bandwidth),
        labels.INSTANCE_CATEGORY: _maybe(named[1] if named else None),
        labels.INSTANCE_GENERATION: _maybe(named[3] if named else None),
        labels.INSTANCE_FAMILY: _values(family),
        labels.INSTANCE_SIZE: _values(size),
        labels.INSTANCE_CAPABILITY_FLEX: _truth("-flex" in family),
        labels.INSTANCE_LOCAL_NVME: _maybe(nvme),
        labels.INSTANCE_HYPERVISOR: _values(facts.hypervisor),
        labels.INSTANCE_ENCRYPTION_IN_TRANSIT: _truth(facts.encryption_in_transit),
        labels.INSTANCE_TENANCY: _values(*TENANCIES),
    }


def _devices(facts: Facts) -> dict[str, Values]:
    """GPUs and accelerators, named only where there is one kind."""
    gpu = facts.gpus[0] if len(facts.gpus) == 1 else None
    name = manufacturer = count = None
    if len(facts.neurons) == 1:
        name, manufacturer, count = facts.neurons[0].name, "aws", facts.neurons[0].count
    elif len(facts.accelerators) == 1 and not facts.neurons:
        only = facts.accelerators[0]
        name, manufacturer, count = only.name, only.manufacturer, only.count
    return {
        labels.INSTANCE_GPU_NAME: _maybe(_kebab(gpu.name) if gpu else None),
        labels.INSTANCE_GPU_MANUFACTURER: _maybe(_kebab(gpu.manufacturer) if gpu else None),
        labels.INSTANCE_GPU_COUNT: _maybe(gpu.count if gpu else None),
        labels.INSTANCE_GPU_MEMORY: _maybe(gpu.memory_mib if gpu else None),
        labels.INSTANCE_ACCELERATOR_NAME: _maybe(_kebab(name) if name else None),
        labels.INSTANCE_ACCELERATOR_MANUFACTURER: _maybe(_kebab(manufacturer) if manufacturer else None),
        labels.INSTANCE_ACCELERATOR_COUNT: _maybe(count),
    }


def _system(facts: Facts, family: Family) -> dict[str, Values]:
    return {
        labels.ARCH: _values(facts.architecture),
        labels.OS: _maybe(family.system_on(facts.architecture)),
        labels.WINDOWS_BUILD: _maybe(family.windows_build or None),
    }


def _places(terms: Terms, zones: Collection[str]) -> dict[str, Values]:
    here = [subnet for subnet in terms.subnets if subnet.zone in zones]
    ids = {subnet.zone_id for subnet in here if subnet.zone_id}
    found = {
        labels.REGION: _values(terms.region),
        labels.ZONE: _values(*sorted({subnet.zone for subnet in here})),
    }
    if ids:
        found[labels.ZONE_ID] = _values(*sorted(ids))
    return found


def _reservations(facts: Facts, terms: Terms) -> dict[str, Values]:
    own = [each for each in terms.reservations if each.instance_type == facts.name]
    ways = [way for way in facts.usage_classes if way in (labels.ON_DEMAND, labels.SPOT)]
    if own:
        ways.append(labels.RESERVED)
    return {
        labels.CAPACITY_TYPE: _values(*ways),
        labels.CAPACITY_RESERVATION_ID: _values(*sorted(each.id for each in own)),
        labels.CAPACITY_RESERVATION_TYPE: _values(*sorted({each.reservation_type for each in own})),
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: _values(
            *sorted({"true" if each.interruptible else "false" for each in own})
        ),
    }


def _truth(yes: bool) -> Values:
    return _values("true" if yes else "false")


def _kebab(name: str) -> str:
    return name.lower().replace(" ", "-")

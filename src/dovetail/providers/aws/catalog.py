"""Instance types as a node class sees them: labels, capacity, and what a node keeps for itself.

Pure: facts and terms in, an InstanceType out. Where facts come from is `facts.py`, prices are elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import ceil

from dovetail.api import labels
from dovetail.api.hashes import ami_family
from dovetail.api.meta import Amounts
from dovetail.api.nodeclass import (
    BlockDeviceMapping,
    CapacityReservation,
    EC2NodeClass,
    KubeletConfiguration,
    NetworkInterface,
    Subnet,
)
from dovetail.api.quantity import BINARY, NANO, Quantity
from dovetail.providers.aws.instance_type_info import (
    FAMILIES,
    AmiFamily,
    InstanceTypeInfo,
    InstanceTypeTables,
    VpcLimits,
)
from dovetail.providers.aws.kubelet_expressions import has_expressions, resolve_kubelet
from dovetail.scheduling.model.instance_types import InstanceType, Offering, Overhead
from dovetail.scheduling.model.requirements import NOTHING, Requirements, Values

__all__ = ["NodeClassTerms", "build_capacity", "build_instance_type", "build_overhead", "count_pods"]

MIB = 1 << 20
DEFAULT_PODS = 110
EFA_ONLY = "efa-only"
RAID0 = "RAID0"
ARM_FIRMWARE_MIB = 64  # what arm64 machines take before the system sees any memory
STORAGE_KEPT = Quantity.parse("1Gi")
MEMORY_LEFT = Quantity.parse("100Mi")
STORAGE_LEFT = "10%"
# Shares of a core, in hundredths of a percent, that Kubernetes keeps of each further stretch of millicores.
CPU_TIERS = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, 1 << 31, 25))


def build_capacity(
    facts: InstanceTypeInfo, terms: NodeClassTerms, limits: VpcLimits | None
) -> dict[str, Quantity]:
    """Everything a node of this type reports, by resource."""
    found = {
        labels.CPU: _to_quantity(facts.vcpus),
        labels.MEMORY: _estimate_memory(facts, terms.memory_overhead),
        labels.EPHEMERAL_STORAGE: _find_storage(facts, terms),
        labels.PODS: _to_quantity(count_pods(facts, terms)),
        labels.POD_ENI: _to_quantity(limits.branch_interfaces if limits and limits.trunking else 0),
        labels.NVIDIA_GPU: _count_gpus(facts, "NVIDIA"),
        labels.AMD_GPU: _count_gpus(facts, "AMD"),
        labels.GAUDI: _count_gpus(facts, "Habana"),
        labels.NEURON: _to_quantity(sum(device.count for device in facts.neurons)),
        labels.NEURON_CORE: _to_quantity(
            facts.neurons[0].count * facts.neurons[0].cores if facts.neurons else 0
        ),
        labels.EFA: _to_quantity(_count_efa_only(terms) if terms.interfaces else facts.efa_interfaces),
    }
    if terms.family.system_on(facts.architecture) == "windows":
        found[labels.PRIVATE_IPV4] = _to_quantity(limits.ipv4_per_interface - 1 if limits else 0)
    return found


def _to_quantity(number: int) -> Quantity:
    return Quantity(number * NANO)


def _to_mebibytes(number: int) -> Quantity:
    return Quantity(number * MIB * NANO, BINARY)


def _estimate_memory(facts: InstanceTypeInfo, taken: float) -> Quantity:
    """What the hypervisor leaves, as nobody knows it before a node has started."""
    size = facts.memory_mib - (ARM_FIRMWARE_MIB if facts.architectures[:1] == ("arm64",) else 0)
    return _to_mebibytes(size - ceil(size * MIB * taken / 1024 / 1024))


def _count_gpus(facts: InstanceTypeInfo, manufacturer: str) -> Quantity:
    return _to_quantity(sum(gpu.count for gpu in facts.gpus if gpu.manufacturer == manufacturer))


def _find_storage(facts: InstanceTypeInfo, terms: NodeClassTerms) -> Quantity:
    if terms.instance_store_policy == RAID0 and facts.store_gb is not None:
        return Quantity.parse(f"{facts.store_gb}G")
    sized = _list_volume_sizes(terms.block_devices)
    root = next((size for mapping, size in sized if mapping.root_volume and size), None)
    if root is not None:
        return Quantity.parse(root)
    family = terms.family
    if not family.ephemeral_device:
        # Nobody knows which volume a custom image uses: the last one is as good a guess as upstream has.
        last = sized[-1][1] if sized else None
        return Quantity.parse(last or family.ephemeral_size)
    own = (size for mapping, size in sized if mapping.device_name == family.ephemeral_device)
    return Quantity.parse(next((size for size in own if size), None) or family.ephemeral_size)


def _list_volume_sizes(
    mappings: tuple[BlockDeviceMapping, ...],
) -> list[tuple[BlockDeviceMapping, str | None]]:
    return [(mapping, mapping.ebs.volume_size if mapping.ebs else None) for mapping in mappings]


def _count_efa_only(terms: NodeClassTerms, card: int | None = None) -> int:
    chosen = (each for each in terms.interfaces if card is None or each.network_card_index == card)
    return sum(each.interface_type == EFA_ONLY for each in chosen)


def count_pods(facts: InstanceTypeInfo, terms: NodeClassTerms) -> int:
    """The most pods a node of this type runs; an expression that was not resolved counts as not written."""
    asked, family = terms.kubelet.max_pods, terms.family
    most = DEFAULT_PODS
    if isinstance(asked, int):
        most = asked
    elif family.interfaces_limit_pods:
        most = _count_interface_pods(facts, terms, terms.reserved_enis)
    per_core = terms.kubelet.pods_per_core or 0
    if per_core > 0 and family.takes_pods_per_core:
        most = min(most, per_core * facts.vcpus)
    return most


def _count_interface_pods(facts: InstanceTypeInfo, terms: NodeClassTerms, reserved: int) -> int:
    """As many pods as there are addresses: each interface keeps one, two pods use the host's."""
    card = facts.interfaces[facts.default_card] if facts.default_card < len(facts.interfaces) else 0
    usable = card - reserved - _count_efa_only(terms, card=0)
    return usable * (facts.ipv4_per_interface - 1) + 2 if usable > 0 else 0


def build_overhead(facts: InstanceTypeInfo, terms: NodeClassTerms, has: Amounts) -> Overhead:
    """What the kubelet, the system and the eviction threshold keep from pods."""
    kubelet = terms.kubelet
    by_interfaces = terms.family.reserves_by_interfaces
    counted = _count_interface_pods(facts, terms, 0) if by_interfaces else has[labels.PODS].value
    kube = {
        labels.CPU: Quantity(_count_reserved_cpu(facts.vcpus) * NANO // 1000),
        labels.MEMORY: _to_mebibytes(11 * counted + 255),
        labels.EPHEMERAL_STORAGE: STORAGE_KEPT,
    }
    hard = kubelet.eviction_hard
    memory = hard.get("memory.available")
    return Overhead(
        kube_reserved=kube | _parse_amounts(kubelet.kube_reserved),
        system_reserved=_parse_amounts(kubelet.system_reserved),
        eviction_threshold={
            labels.MEMORY: MEMORY_LEFT if memory is None else _parse_threshold(memory, has[labels.MEMORY]),
            labels.EPHEMERAL_STORAGE: _parse_threshold(
                hard.get("nodefs.available", STORAGE_LEFT), has[labels.EPHEMERAL_STORAGE]
            ),
        },
    )


def _count_reserved_cpu(vcpus: int) -> int:
    """Millicores; each stretch is rounded down by itself."""
    total = vcpus * 1000
    return sum((min(total, high) - low) * share // 10_000 for low, high, share in CPU_TIERS if total > low)


def _parse_amounts(reserved: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in reserved.items()}


def _parse_threshold(written: str, of: Quantity) -> Quantity:
    """A share of the whole, or an amount. Karpenter: all of it means none, as for the kubelet."""
    if not written.endswith("%"):
        return Quantity.parse(written)
    percent = float(written.removesuffix("%"))
    return _to_quantity(0 if percent == 100 else ceil(of.value * percent / 100))


# Category, then for high-memory types their size, then the generation: u-6tb1.metal is u, 1.
_NAME = re.compile(r"^([a-z]+)(-[0-9]+tb)?([0-9]+).*\.")
PLAIN_KUBELET = KubeletConfiguration()
TENANCIES = ("default", "dedicated")


@dataclass(frozen=True, slots=True)
class NodeClassTerms:
    """What a node class and the settings say about every instance type."""

    region: str
    family: AmiFamily = FAMILIES["AL2023"]
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
    def from_node_class(
        nodeclass: EC2NodeClass,
        region: str,
        reserved_enis: int = 0,
        memory_overhead: float = 0.075,
        expressions: bool = False,
    ) -> NodeClassTerms:
        """The terms of a class as far as it has been resolved."""
        spec, status = nodeclass.spec, nodeclass.status
        return NodeClassTerms(
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

    def resolve_expressions(self, facts: InstanceTypeInfo) -> NodeClassTerms:
        """The terms for one type: expressions among the kubelet's settings have become values."""
        if not has_expressions(self.kubelet):
            return self

        def counted(kubelet: KubeletConfiguration) -> int:
            return count_pods(facts, replace(self, kubelet=kubelet))

        return replace(self, kubelet=resolve_kubelet(self.kubelet, facts, counted, self.expressions))


def build_instance_type(
    facts: InstanceTypeInfo,
    terms: NodeClassTerms,
    zones: Collection[str],
    tables: InstanceTypeTables,
    offerings: tuple[Offering, ...] = (),
) -> InstanceType:
    """The type as these terms make it; `zones` are those that sell it."""
    terms = terms.resolve_expressions(facts)
    has = build_capacity(facts, terms, tables.limits.get(facts.name))
    return InstanceType(
        name=facts.name,
        requirements=_build_requirements(facts, terms, zones, tables.bandwidth.get(facts.name)),
        offerings=offerings,
        capacity=has,
        overhead=build_overhead(facts, terms, has),
    )


@lru_cache(maxsize=4096)
def _only_values(*names: str) -> Values:
    return Values(frozenset(names)) if names else NOTHING


def _optional_values(value: int | str | None) -> Values:
    return NOTHING if value is None else _only_values(str(value))


def _build_requirements(
    facts: InstanceTypeInfo, terms: NodeClassTerms, zones: Collection[str], bandwidth: int | None
) -> Requirements:
    return Requirements(
        {
            **_list_machine_labels(facts, bandwidth),
            **_list_device_labels(facts),
            **_list_system_labels(facts, terms.family),
            **_list_zone_labels(terms, zones),
            **_list_capacity_labels(facts, terms),
        }
    )


def _list_machine_labels(facts: InstanceTypeInfo, bandwidth: int | None) -> dict[str, Values]:
    family, _, size = facts.name.partition(".")
    named = _NAME.match(facts.name)
    nvme = facts.store_gb if facts.store_nvme != "unsupported" else None
    return {
        labels.INSTANCE_TYPE: _only_values(facts.name),
        labels.INSTANCE_CPU: _optional_values(facts.vcpus),
        labels.INSTANCE_CPU_MANUFACTURER: _only_values(_to_kebab(facts.cpu_manufacturer)),
        labels.INSTANCE_CPU_CLOCK_SPEED: _optional_values(facts.clock_mhz),
        labels.INSTANCE_MEMORY: _optional_values(facts.memory_mib),
        labels.INSTANCE_EBS_BANDWIDTH: _optional_values(facts.ebs_mbps),
        labels.INSTANCE_NETWORK_BANDWIDTH: _optional_values(bandwidth),
        labels.INSTANCE_CATEGORY: _optional_values(named[1] if named else None),
        labels.INSTANCE_GENERATION: _optional_values(named[3] if named else None),
        labels.INSTANCE_FAMILY: _only_values(family),
        labels.INSTANCE_SIZE: _only_values(size),
        labels.INSTANCE_CAPABILITY_FLEX: _boolean_values("-flex" in family),
        labels.INSTANCE_LOCAL_NVME: _optional_values(nvme),
        labels.INSTANCE_HYPERVISOR: _only_values(facts.hypervisor),
        labels.INSTANCE_ENCRYPTION_IN_TRANSIT: _boolean_values(facts.encryption_in_transit),
        labels.INSTANCE_TENANCY: _only_values(*TENANCIES),
    }


def _list_device_labels(facts: InstanceTypeInfo) -> dict[str, Values]:
    """GPUs and accelerators, named only where there is one kind."""
    gpu = facts.gpus[0] if len(facts.gpus) == 1 else None
    name = manufacturer = count = None
    if len(facts.neurons) == 1:
        name, manufacturer, count = facts.neurons[0].name, "aws", facts.neurons[0].count
    elif len(facts.accelerators) == 1 and not facts.neurons:
        only = facts.accelerators[0]
        name, manufacturer, count = only.name, only.manufacturer, only.count
    return {
        labels.INSTANCE_GPU_NAME: _optional_values(_to_kebab(gpu.name) if gpu else None),
        labels.INSTANCE_GPU_MANUFACTURER: _optional_values(_to_kebab(gpu.manufacturer) if gpu else None),
        labels.INSTANCE_GPU_COUNT: _optional_values(gpu.count if gpu else None),
        labels.INSTANCE_GPU_MEMORY: _optional_values(gpu.memory_mib if gpu else None),
        labels.INSTANCE_ACCELERATOR_NAME: _optional_values(_to_kebab(name) if name else None),
        labels.INSTANCE_ACCELERATOR_MANUFACTURER: _optional_values(
            _to_kebab(manufacturer) if manufacturer else None
        ),
        labels.INSTANCE_ACCELERATOR_COUNT: _optional_values(count),
    }


def _list_system_labels(facts: InstanceTypeInfo, family: AmiFamily) -> dict[str, Values]:
    return {
        labels.ARCH: _only_values(facts.architecture),
        labels.OS: _optional_values(family.system_on(facts.architecture)),
        labels.WINDOWS_BUILD: _optional_values(family.windows_build or None),
    }


def _list_zone_labels(terms: NodeClassTerms, zones: Collection[str]) -> dict[str, Values]:
    here = [subnet for subnet in terms.subnets if subnet.zone in zones]
    ids = {subnet.zone_id for subnet in here if subnet.zone_id}
    found = {
        labels.REGION: _only_values(terms.region),
        labels.ZONE: _only_values(*sorted({subnet.zone for subnet in here})),
    }
    if ids:
        found[labels.ZONE_ID] = _only_values(*sorted(ids))
    return found


def _list_capacity_labels(facts: InstanceTypeInfo, terms: NodeClassTerms) -> dict[str, Values]:
    own = [each for each in terms.reservations if each.instance_type == facts.name]
    capacity_types = [
        capacity_type
        for capacity_type in facts.usage_classes
        if capacity_type in (labels.ON_DEMAND, labels.SPOT)
    ]
    if own:
        capacity_types.append(labels.RESERVED)
    return {
        labels.CAPACITY_TYPE: _only_values(*capacity_types),
        labels.CAPACITY_RESERVATION_ID: _only_values(*sorted(each.id for each in own)),
        labels.CAPACITY_RESERVATION_TYPE: _only_values(*sorted({each.reservation_type for each in own})),
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: _only_values(
            *sorted({"true" if each.interruptible else "false" for each in own})
        ),
    }


def _boolean_values(yes: bool) -> Values:
    return _only_values("true" if yes else "false")


def _to_kebab(name: str) -> str:
    return name.lower().replace(" ", "-")

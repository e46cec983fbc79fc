"""How much a node has, and how much of that it keeps for itself."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import TYPE_CHECKING

from dovetail.api import labels
from dovetail.api.meta import Amounts
from dovetail.api.nodeclass import BlockDeviceMapping
from dovetail.api.quantity import BINARY, NANO, Quantity
from dovetail.providers.aws.facts import Facts, Limits
from dovetail.scheduling.catalog import Overhead

if TYPE_CHECKING:
    from dovetail.providers.aws.catalog import Terms

__all__ = ["capacity", "overhead", "pods"]

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


def capacity(facts: Facts, terms: Terms, limits: Limits | None) -> dict[str, Quantity]:
    """Everything a node of this type reports, by resource."""
    found = {
        labels.CPU: _count(facts.vcpus),
        labels.MEMORY: _memory(facts, terms.memory_overhead),
        labels.EPHEMERAL_STORAGE: _storage(facts, terms),
        labels.PODS: _count(pods(facts, terms)),
        labels.POD_ENI: _count(limits.branch_interfaces if limits and limits.trunking else 0),
        labels.NVIDIA_GPU: _gpus(facts, "NVIDIA"),
        labels.AMD_GPU: _gpus(facts, "AMD"),
        labels.GAUDI: _gpus(facts, "Habana"),
        labels.NEURON: _count(sum(device.count for device in facts.neurons)),
        labels.NEURON_CORE: _count(facts.neurons[0].count * facts.neurons[0].cores if facts.neurons else 0),
        labels.EFA: _count(_efa_only(terms) if terms.interfaces else facts.efa_interfaces),
    }
    if terms.family.system_on(facts.architecture) == "windows":
        found[labels.PRIVATE_IPV4] = _count(limits.ipv4_per_interface - 1 if limits else 0)
    return found


def _count(number: int) -> Quantity:
    return Quantity(number * NANO)


def _mebibytes(number: int) -> Quantity:
    return Quantity(number * MIB * NANO, BINARY)


def _memory(facts: Facts, taken: float) -> Quantity:
    """What the hypervisor leaves, as nobody knows it before a node has started."""
    size = facts.memory_mib - (ARM_FIRMWARE_MIB if facts.architectures[:1] == ("arm64",) else 0)
    return _mebibytes(size - ceil(size * MIB * taken / 1024 / 1024))


def _gpus(facts: Facts, manufacturer: str) -> Quantity:
    return _count(sum(gpu.count for gpu in facts.gpus if gpu.manufacturer == manufacturer))


def _storage(facts: Facts, terms: Terms) -> Quantity:
    if terms.instance_store_policy == RAID0 and facts.store_gb is not None:
        return Quantity.parse(f"{facts.store_gb}G")
    sized = _sizes(terms.block_devices)
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


def _sizes(mappings: tuple[BlockDeviceMapping, ...]) -> list[tuple[BlockDeviceMapping, str | None]]:
    return [(mapping, mapping.ebs.volume_size if mapping.ebs else None) for mapping in mappings]


def _efa_only(terms: Terms, card: int | None = None) -> int:
    chosen = (each for each in terms.interfaces if card is None or each.network_card_index == card)
    return sum(each.interface_type == EFA_ONLY for each in chosen)


def pods(facts: Facts, terms: Terms) -> int:
    """The most pods a node of this type runs; an expression that was not resolved counts as not written."""
    asked, family = terms.kubelet.max_pods, terms.family
    most = DEFAULT_PODS
    if isinstance(asked, int):
        most = asked
    elif family.interfaces_limit_pods:
        most = _interface_pods(facts, terms, terms.reserved_enis)
    per_core = terms.kubelet.pods_per_core or 0
    if per_core > 0 and family.takes_pods_per_core:
        most = min(most, per_core * facts.vcpus)
    return most


def _interface_pods(facts: Facts, terms: Terms, reserved: int) -> int:
    """As many pods as there are addresses: each interface keeps one, two pods use the host's."""
    card = facts.interfaces[facts.default_card] if facts.default_card < len(facts.interfaces) else 0
    usable = card - reserved - _efa_only(terms, card=0)
    return usable * (facts.ipv4_per_interface - 1) + 2 if usable > 0 else 0


def overhead(facts: Facts, terms: Terms, has: Amounts) -> Overhead:
    """What the kubelet, the system and the eviction threshold keep from pods."""
    kubelet = terms.kubelet
    by_interfaces = terms.family.reserves_by_interfaces
    counted = _interface_pods(facts, terms, 0) if by_interfaces else has[labels.PODS].value
    kube = {
        labels.CPU: Quantity(_cpu_kept(facts.vcpus) * NANO // 1000),
        labels.MEMORY: _mebibytes(11 * counted + 255),
        labels.EPHEMERAL_STORAGE: STORAGE_KEPT,
    }
    hard = kubelet.eviction_hard
    memory = hard.get("memory.available")
    return Overhead(
        kube_reserved=kube | _parsed(kubelet.kube_reserved),
        system_reserved=_parsed(kubelet.system_reserved),
        eviction_threshold={
            labels.MEMORY: MEMORY_LEFT if memory is None else _threshold(memory, has[labels.MEMORY]),
            labels.EPHEMERAL_STORAGE: _threshold(
                hard.get("nodefs.available", STORAGE_LEFT), has[labels.EPHEMERAL_STORAGE]
            ),
        },
    )


def _cpu_kept(vcpus: int) -> int:
    """Millicores; each stretch is rounded down by itself."""
    total = vcpus * 1000
    return sum((min(total, high) - low) * share // 10_000 for low, high, share in CPU_TIERS if total > low)


def _parsed(reserved: Mapping[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in reserved.items()}


def _threshold(written: str, of: Quantity) -> Quantity:
    """A share of the whole, or an amount. Karpenter: all of it means none, as for the kubelet."""
    if not written.endswith("%"):
        return Quantity.parse(written)
    percent = float(written.removesuffix("%"))
    return _count(0 if percent == 100 else ceil(of.value * percent / 100))

"""What EC2 answers about its instance types, read into facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from dovetail.providers.aws.facts import Accelerator, Facts, Gpu, NeuronDevice

__all__ = ["facts_of", "zones_by_type"]


def facts_of(info: Mapping[str, Any]) -> Facts:
    """One type of a DescribeInstanceTypes answer."""
    network, processor = info.get("NetworkInfo", {}), info.get("ProcessorInfo", {})
    cards = sorted(network.get("NetworkCards", ()), key=lambda card: card.get("NetworkCardIndex", 0))
    store = info.get("InstanceStorageInfo", {})
    return Facts(
        name=info["InstanceType"],
        architectures=tuple(processor.get("SupportedArchitectures", ())),
        vcpus=info["VCpuInfo"]["DefaultVCpus"],
        memory_mib=info["MemoryInfo"]["SizeInMiB"],
        cpu_manufacturer=processor.get("Manufacturer", ""),
        clock_mhz=round(processor.get("SustainedClockSpeedInGhz", 0) * 1000),
        hypervisor=info.get("Hypervisor", ""),
        usage_classes=tuple(info.get("SupportedUsageClasses", ())),
        ebs_mbps=_ebs(info.get("EbsInfo", {})),
        encryption_in_transit=bool(network.get("EncryptionInTransitSupported")),
        ipv4_per_interface=network.get("Ipv4AddressesPerInterface", 0),
        interfaces=tuple(card.get("MaximumNetworkInterfaces", 0) for card in cards),
        default_card=network.get("DefaultNetworkCardIndex", 0),
        efa_interfaces=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        ena=network.get("EnaSupport", "unsupported") != "unsupported",
        store_gb=store.get("TotalSizeInGB"),
        store_nvme=store.get("NvmeSupport", ""),
        gpus=tuple(_gpus(info)),
        neurons=tuple(_neurons(info)),
        accelerators=tuple(_accelerators(info)),
        features=tuple(processor.get("SupportedFeatures", ())),
        placement_strategies=tuple(info.get("PlacementGroupInfo", {}).get("SupportedStrategies", ())),
    )


def zones_by_type(offered: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The zones that sell each type, of the pages of a DescribeInstanceTypeOfferings answer."""
    found: dict[str, set[str]] = {}
    for each in offered:
        found.setdefault(each["InstanceType"], set()).add(each["Location"])
    return {name: tuple(sorted(zones)) for name, zones in found.items()}


def _ebs(ebs: Mapping[str, Any]) -> int | None:
    if ebs.get("EbsOptimizedSupport") != "default":
        return None
    most: int | None = ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps")
    return most


def _gpus(info: Mapping[str, Any]) -> Iterable[Gpu]:
    for each in info.get("GpuInfo", {}).get("Gpus", ()):
        memory = each.get("MemoryInfo", {}).get("SizeInMiB", 0)
        yield Gpu(each.get("Name", ""), each.get("Manufacturer", ""), each.get("Count", 0), memory)


def _neurons(info: Mapping[str, Any]) -> Iterable[NeuronDevice]:
    for each in info.get("NeuronInfo", {}).get("NeuronDevices", ()):
        yield NeuronDevice(
            each.get("Name", ""), each.get("Count", 0), each.get("CoreInfo", {}).get("Count", 0)
        )


def _accelerators(info: Mapping[str, Any]) -> Iterable[Accelerator]:
    for each in info.get("InferenceAcceleratorInfo", {}).get("Accelerators", ()):
        yield Accelerator(each.get("Name", ""), each.get("Manufacturer", ""), each.get("Count", 0))

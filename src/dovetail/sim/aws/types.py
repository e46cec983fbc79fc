"""Instance types and where they are sold, as EC2 tells it, from the bundled facts."""

from __future__ import annotations

from functools import cache

from dovetail.providers.aws.facts import Facts, bundled_facts, bundled_regions
from dovetail.sim.aws.asking import Ask, Json, operation
from dovetail.sim.aws.network import zone_ids
from dovetail.sim.aws.selecting import Values, filtered, page

__all__ = ["facts_of", "sold"]


@cache
def facts_of() -> dict[str, Facts]:
    return {facts.name: facts for facts in bundled_facts()}


@cache
def sold(region: str) -> dict[str, tuple[str, ...]]:
    """The zones that sell each type of a region."""
    known = bundled_regions().get(region)
    return known.zones_by_type() if known else {}


@operation("ec2", "DescribeInstanceTypes")
def describe_types(ask: Ask) -> Json:
    here, known = sold(ask.region), facts_of()
    names = ask.get("InstanceTypes") or here
    if missing := [name for name in names if name not in here]:
        raise ask.refuse(
            "InvalidInstanceType",
            f"The following supplied instance types do not exist: [{', '.join(missing)}]",
        )
    found = filtered(ask, (known[name] for name in names), _values, lambda each: {})
    shown, more = page(ask, found, most=100, named="InstanceTypes", least=5)
    return {"InstanceTypes": [_shown(each) for each in shown], **more}


@operation("ec2", "DescribeInstanceTypeOfferings")
def describe_offerings(ask: Ask) -> Json:
    kind, here = ask.get("LocationType", "region"), sold(ask.region)
    ids = zone_ids(ask.account, ask.region)
    offered = [(name, place) for name, zones in here.items() for place in _places(kind, ask, zones, ids)]
    found = filtered(
        ask, offered, lambda each: {"instance-type": (each[0],), "location": (each[1],)}, lambda each: {}
    )
    shown, more = page(ask, found, least=5)
    return {
        "InstanceTypeOfferings": [
            {"InstanceType": name, "LocationType": kind, "Location": place} for name, place in shown
        ],
        **more,
    }


def _places(kind: str, ask: Ask, zones: tuple[str, ...], ids: dict[str, str]) -> tuple[str, ...]:
    if kind == "availability-zone":
        return zones
    return tuple(ids[zone] for zone in zones) if kind == "availability-zone-id" else (ask.region,)


def _values(facts: Facts) -> Values:
    return {
        "instance-type": (facts.name,),
        "supported-virtualization-type": ("hvm",),
        "processor-info.supported-architecture": facts.architectures,
        "supported-usage-class": facts.usage_classes,
        "bare-metal": (str(not facts.hypervisor).lower(),),
        "hypervisor": (facts.hypervisor,) if facts.hypervisor else (),
        "current-generation": ("true",),
        "vcpu-info.default-vcpus": (str(facts.vcpus),),
        "memory-info.size-in-mib": (str(facts.memory_mib),),
        "instance-storage-supported": (str(facts.store_gb is not None).lower(),),
    }


@cache
def _shown(facts: Facts) -> Json:
    """Shared by every answer: nobody may change it."""
    shown: Json = {
        "InstanceType": facts.name,
        "CurrentGeneration": True,
        "FreeTierEligible": facts.name in ("t2.micro", "t3.micro"),
        "SupportedUsageClasses": list(facts.usage_classes),
        "SupportedRootDeviceTypes": ["ebs"],
        "SupportedVirtualizationTypes": ["hvm"],
        "BareMetal": not facts.hypervisor,
        "ProcessorInfo": _processor(facts),
        "VCpuInfo": {"DefaultVCpus": facts.vcpus},
        "MemoryInfo": {"SizeInMiB": facts.memory_mib},
        "InstanceStorageSupported": facts.store_gb is not None,
        "EbsInfo": _ebs(facts),
        "NetworkInfo": _network(facts),
        "PlacementGroupInfo": {"SupportedStrategies": list(facts.placement_strategies)},
        "HibernationSupported": False,
        "BurstablePerformanceSupported": facts.name.startswith("t"),
        "DedicatedHostsSupported": False,
        "AutoRecoverySupported": True,
    }
    if facts.hypervisor:
        shown["Hypervisor"] = facts.hypervisor
    if facts.store_gb is not None:
        shown["InstanceStorageInfo"] = {"TotalSizeInGB": facts.store_gb, "NvmeSupport": facts.store_nvme}
    return shown | _devices(facts)


def _processor(facts: Facts) -> Json:
    shown: Json = {
        "SupportedArchitectures": list(facts.architectures),
        "Manufacturer": facts.cpu_manufacturer,
    }
    if facts.clock_mhz:
        shown["SustainedClockSpeedInGhz"] = facts.clock_mhz / 1000
    if facts.features:
        shown["SupportedFeatures"] = list(facts.features)
    return shown


def _ebs(facts: Facts) -> Json:
    shown: Json = {"EncryptionSupport": "supported", "NvmeSupport": "required"}
    if facts.ebs_mbps is None:
        return shown | {"EbsOptimizedSupport": "unsupported"}
    info = {"BaselineBandwidthInMbps": facts.ebs_mbps, "MaximumBandwidthInMbps": facts.ebs_mbps}
    return shown | {"EbsOptimizedSupport": "default", "EbsOptimizedInfo": info}


def _network(facts: Facts) -> Json:
    shown: Json = {
        "MaximumNetworkInterfaces": sum(facts.interfaces),
        "MaximumNetworkCards": len(facts.interfaces),
        "DefaultNetworkCardIndex": facts.default_card,
        "NetworkCards": [
            {"NetworkCardIndex": at, "MaximumNetworkInterfaces": most}
            for at, most in enumerate(facts.interfaces)
        ],
        "Ipv4AddressesPerInterface": facts.ipv4_per_interface,
        "Ipv6AddressesPerInterface": facts.ipv4_per_interface,
        "Ipv6Supported": True,
        "EnaSupport": "required" if facts.ena else "unsupported",
        "EfaSupported": facts.efa_interfaces > 0,
        "EncryptionInTransitSupported": facts.encryption_in_transit,
    }
    if facts.efa_interfaces:
        shown["EfaInfo"] = {"MaximumEfaInterfaces": facts.efa_interfaces}
    return shown


def _devices(facts: Facts) -> Json:
    shown: Json = {}
    if facts.gpus:
        shown["GpuInfo"] = {
            "Gpus": [
                {
                    "Name": gpu.name,
                    "Manufacturer": gpu.manufacturer,
                    "Count": gpu.count,
                    "MemoryInfo": {"SizeInMiB": gpu.memory_mib},
                }
                for gpu in facts.gpus
            ],
            "TotalGpuMemoryInMiB": sum(gpu.count * gpu.memory_mib for gpu in facts.gpus),
        }
    if facts.neurons:
        shown["NeuronInfo"] = {
            "NeuronDevices": [
                {"Name": each.name, "Count": each.count, "CoreInfo": {"Count": each.cores, "Version": 2}}
                for each in facts.neurons
            ]
        }
    if facts.accelerators:
        shown["InferenceAcceleratorInfo"] = {
            "Accelerators": [
                {"Name": each.name, "Manufacturer": each.manufacturer, "Count": each.count}
                for each in facts.accelerators
            ]
        }
    return shown

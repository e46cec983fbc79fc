"""What EC2 says about its instance types, and the tables that say what EC2 does not.

The records are the same whether they were read from the bundled files or from EC2's own answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

import msgspec

__all__ = [
    "BUNDLED_DATE",
    "BUNDLED_REGION",
    "FAMILIES",
    "Accelerator",
    "AmiFamily",
    "Gpu",
    "InstanceTypeInfo",
    "InstanceTypeTables",
    "NeuronDevice",
    "Region",
    "VpcLimits",
    "bundled_facts",
    "bundled_prices",
    "bundled_regions",
    "bundled_tables",
]

# The one region whose on-demand prices are bundled, and of when they are.
BUNDLED_REGION: Final = "us-east-1"
BUNDLED_DATE: Final = "July 2026"
ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz+/"


class Gpu(msgspec.Struct, frozen=True, array_like=True):
    """GPUs of one kind."""

    name: str
    manufacturer: str
    count: int
    memory_mib: int


class NeuronDevice(msgspec.Struct, frozen=True, array_like=True):
    """Neuron devices of one kind; `cores` is per device."""

    name: str
    count: int
    cores: int


class Accelerator(msgspec.Struct, frozen=True, array_like=True):
    """Inference accelerators of one kind."""

    name: str
    manufacturer: str
    count: int


class InstanceTypeInfo(msgspec.Struct, frozen=True, array_like=True):
    """One instance type, in the order of the columns of instance-types.json."""

    name: str
    architectures: tuple[str, ...]
    vcpus: int
    memory_mib: int
    cpu_manufacturer: str
    clock_mhz: int = 0  # where unknown, and Karpenter's label says 0 too
    hypervisor: str = ""  # none on bare metal
    usage_classes: tuple[str, ...] = ()
    ebs_mbps: int | None = None  # only where EBS optimisation is on by default
    encryption_in_transit: bool = False
    ipv4_per_interface: int = 0
    interfaces: tuple[int, ...] = ()  # the most of each network card
    default_card: int = 0
    efa_interfaces: int = 0
    ena: bool = False
    store_gb: int | None = None
    store_nvme: str = ""
    gpus: tuple[Gpu, ...] = ()
    neurons: tuple[NeuronDevice, ...] = ()
    accelerators: tuple[Accelerator, ...] = ()
    features: tuple[str, ...] = ()
    placement_strategies: tuple[str, ...] = ()

    @property
    def architecture(self) -> str:
        """The first that Kubernetes has a name for. Karpenter writes the list itself where there is none."""
        known = (ARCHITECTURES[each] for each in self.architectures if each in ARCHITECTURES)
        return next(known, f"[{' '.join(self.architectures)}]")


class VpcLimits(msgspec.Struct, frozen=True):
    """What the VPC allows a type: branch interfaces for pods, addresses per interface."""

    branch_interfaces: int
    ipv4_per_interface: int
    trunking: bool


class InstanceTypeTables(msgspec.Struct, frozen=True):
    """What no API tells, by instance type: VPC limits, and baseline bandwidth in Mb/s."""

    limits: Mapping[str, VpcLimits] = {}
    bandwidth: Mapping[str, int] = {}


class Region(msgspec.Struct, frozen=True):
    """The zones of a region, and for each bundled type in order which of them sell it."""

    zones: tuple[str, ...]
    sold: str

    def zones_by_type(self) -> dict[str, tuple[str, ...]]:
        """The zones that sell each type; types sold nowhere here are left out."""
        sets = [
            tuple(zone for at, zone in enumerate(self.zones) if mask >> at & 1) for mask in range(len(DIGITS))
        ]
        digits = {digit: sets[at] for at, digit in enumerate(DIGITS)}
        found = ((facts.name, digits[digit]) for facts, digit in zip(bundled_facts(), self.sold, strict=True))
        return {name: zones for name, zones in found if zones}


class _Listed(msgspec.Struct):
    types: tuple[InstanceTypeInfo, ...]


@cache
def bundled_facts() -> tuple[InstanceTypeInfo, ...]:
    """Every type, by name."""
    return msgspec.json.decode(_read_file("instance-types.json"), type=_Listed).types


@cache
def bundled_tables() -> InstanceTypeTables:
    return InstanceTypeTables(
        limits=msgspec.json.decode(_read_file("interface-limits.json"), type=dict[str, VpcLimits]),
        bandwidth=msgspec.json.decode(_read_file("network-bandwidth-mbps.json"), type=dict[str, int]),
    )


@cache
def bundled_prices() -> dict[str, float]:
    """On-demand dollars an hour in the one region that has them here."""
    return msgspec.json.decode(_read_file("on-demand-us-east-1.json"), type=dict[str, float])


@cache
def bundled_regions() -> dict[str, Region]:
    return msgspec.json.decode(_read_file("zones.json"), type=dict[str, Region])


def _read_file(name: str) -> bytes:
    return resources.files(__package__).joinpath("data", name).read_bytes()


@dataclass(frozen=True, slots=True)
class AmiFamily:
    """How nodes of a family count their pods, and where they keep what pods write."""

    name: str
    ephemeral_device: str = ""
    ephemeral_size: str = "20Gi"
    interfaces_limit_pods: bool = True
    takes_pods_per_core: bool = True
    # The image's own script reserves memory by what the interfaces allow, whatever maxPods says.
    reserves_by_interfaces: bool = True
    windows_build: str = ""

    def system_on(self, architecture: str) -> str | None:
        """The operating system; Windows runs on amd64 only."""
        if not self.windows_build:
            return "linux"
        return "windows" if architecture == "amd64" else None


def _build_windows(name: str, build: str) -> AmiFamily:
    return AmiFamily(
        name,
        "/dev/sda1",
        "50Gi",
        interfaces_limit_pods=False,
        reserves_by_interfaces=False,
        windows_build=build,
    )


FAMILIES: Final = {
    family.name: family
    for family in (
        AmiFamily("AL2", "/dev/xvda"),
        AmiFamily("AL2023", "/dev/xvda"),
        AmiFamily("Bottlerocket", "/dev/xvdb", takes_pods_per_core=False, reserves_by_interfaces=False),
        _build_windows("Windows2019", "10.0.17763"),
        _build_windows("Windows2022", "10.0.20348"),
        _build_windows("Windows2025", "10.0.26100"),
        AmiFamily("Custom"),
    )
}

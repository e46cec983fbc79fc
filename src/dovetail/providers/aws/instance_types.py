"""The instance types EC2 sells now, as each node class sees them.

What EC2 tells changes rarely and is asked twice a day. What a class makes of it is worked out once for each
way of looking at it, and only offerings follow every refusal, price and shift. Work on many types is cut into
slices, so that nobody waits for all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.hashes import ami_family
from dovetail.api.nodeclass import AMI, EC2NodeClass
from dovetail.api.quantity import Quantity
from dovetail.aws import Aws, list_pages
from dovetail.errors import Retry
from dovetail.ports import Clock
from dovetail.providers.aws.catalog import NodeClassTerms, build_instance_type
from dovetail.providers.aws.compatibility import find_class_incompatibility
from dovetail.providers.aws.instance_type_info import (
    Accelerator,
    Gpu,
    InstanceTypeInfo,
    NeuronDevice,
    bundled_tables,
)
from dovetail.providers.aws.node_extras import NO_EXTRAS, ClassExtras, find_class_extras
from dovetail.providers.aws.offerings import OfferingProvider, PurchaseTerms
from dovetail.providers.aws.placement_groups import PlacementGroup
from dovetail.providers.aws.queries import read_items
from dovetail.providers.aws.ttl_cache import TtlCache
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements, parse_values
from dovetail.settings import Settings

__all__ = ["DiscoveredMemory", "InstanceTypeProvider", "read_type_info", "zones_by_type"]

LASTS = timedelta(days=60)
Key = tuple[str, tuple[str, ...]]


class DiscoveredMemory:
    """Memory by instance type and the images of a class: another image may leave another amount."""

    def __init__(self, clock: Clock) -> None:
        self._seen: TtlCache[Key, Quantity] = TtlCache(clock, LASTS, lambda *_: self._count_change())
        self.changes = 0

    def record_memory(self, instance_type: str, images: Iterable[AMI], memory: Quantity) -> None:
        """A node of the type has that much. The smallest ever seen holds, so that what is planned fits."""
        key = _memory_key(instance_type, images)
        known = self._seen.get(key)
        if known is None or memory <= known:
            self._seen.put(key, memory)
            if memory != known:
                self._count_change()

    def by_type(self, images: Iterable[AMI]) -> dict[str, Quantity]:
        """All that was seen with these images."""
        wanted = _memory_key("", images)[1]
        return {name: memory for (name, with_images), memory in self._seen.items() if with_images == wanted}

    def _count_change(self) -> None:
        self.changes += 1


def _memory_key(instance_type: str, images: Iterable[AMI]) -> Key:
    return instance_type, tuple(sorted({image.id for image in images}))


def read_type_info(info: Mapping[str, Any]) -> InstanceTypeInfo:
    """One type of a DescribeInstanceTypes answer."""
    network, processor = info.get("NetworkInfo", {}), info.get("ProcessorInfo", {})
    cards = sorted(network.get("NetworkCards", ()), key=lambda card: card.get("NetworkCardIndex", 0))
    store = info.get("InstanceStorageInfo", {})
    return InstanceTypeInfo(
        name=info["InstanceType"],
        architectures=tuple(processor.get("SupportedArchitectures", ())),
        vcpus=info["VCpuInfo"]["DefaultVCpus"],
        memory_mib=info["MemoryInfo"]["SizeInMiB"],
        cpu_manufacturer=processor.get("Manufacturer", ""),
        clock_mhz=round(processor.get("SustainedClockSpeedInGhz", 0) * 1000),
        hypervisor=info.get("Hypervisor", ""),
        usage_classes=tuple(info.get("SupportedUsageClasses", ())),
        ebs_mbps=_read_ebs_bandwidth(info.get("EbsInfo", {})),
        encryption_in_transit=bool(network.get("EncryptionInTransitSupported")),
        ipv4_per_interface=network.get("Ipv4AddressesPerInterface", 0),
        interfaces=tuple(card.get("MaximumNetworkInterfaces", 0) for card in cards),
        default_card=network.get("DefaultNetworkCardIndex", 0),
        efa_interfaces=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0),
        ena=network.get("EnaSupport", "unsupported") != "unsupported",
        store_gb=store.get("TotalSizeInGB"),
        store_nvme=store.get("NvmeSupport", ""),
        gpus=tuple(_read_gpus(info)),
        neurons=tuple(_read_neurons(info)),
        accelerators=tuple(_read_accelerators(info)),
        features=tuple(processor.get("SupportedFeatures", ())),
        placement_strategies=tuple(info.get("PlacementGroupInfo", {}).get("SupportedStrategies", ())),
    )


def zones_by_type(offered: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, ...]]:
    """The zones that sell each type, of the pages of a DescribeInstanceTypeOfferings answer."""
    found: dict[str, set[str]] = {}
    for each in offered:
        found.setdefault(each["InstanceType"], set()).add(each["Location"])
    return {name: tuple(sorted(zones)) for name, zones in found.items()}


def _read_ebs_bandwidth(ebs: Mapping[str, Any]) -> int | None:
    if ebs.get("EbsOptimizedSupport") != "default":
        return None
    most: int | None = ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps")
    return most


def _read_gpus(info: Mapping[str, Any]) -> Iterable[Gpu]:
    for each in info.get("GpuInfo", {}).get("Gpus", ()):
        memory = each.get("MemoryInfo", {}).get("SizeInMiB", 0)
        yield Gpu(each.get("Name", ""), each.get("Manufacturer", ""), each.get("Count", 0), memory)


def _read_neurons(info: Mapping[str, Any]) -> Iterable[NeuronDevice]:
    for each in info.get("NeuronInfo", {}).get("NeuronDevices", ()):
        yield NeuronDevice(
            each.get("Name", ""), each.get("Count", 0), each.get("CoreInfo", {}).get("Count", 0)
        )


def _read_accelerators(info: Mapping[str, Any]) -> Iterable[Accelerator]:
    for each in info.get("InferenceAcceleratorInfo", {}).get("Accelerators", ()):
        yield Accelerator(each.get("Name", ""), each.get("Manufacturer", ""), each.get("Count", 0))


KEPT = timedelta(minutes=5)
SLICE = 50  # types worked on before others get their turn: a few milliseconds
FILTERS = (
    {"Name": "supported-virtualization-type", "Values": ["hvm"]},
    {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
)


@dataclass(slots=True)
class _TypeView:
    """One type as a class sees it, and its offerings as they were when last looked at."""

    facts: InstanceTypeInfo
    plain: InstanceType
    sold_in: tuple[str, ...]
    compatible: bool
    reserved: bool
    stamp: object = None
    made: InstanceType | None = None


@dataclass(slots=True)
class _ClassView:
    """All types by one way of looking at them; the answer is kept for as long as its stamp holds."""

    buying: PurchaseTerms
    seen: tuple[_TypeView, ...]
    stamp: object = None
    answer: tuple[InstanceType, ...] = ()


@dataclass(slots=True)
class InstanceTypeProvider:
    """Asks EC2 what it sells, and tells each class what it could buy."""

    aws: Aws
    clock: Clock
    settings: Settings
    offerings: OfferingProvider
    memory: DiscoveredMemory
    group_of: Callable[[EC2NodeClass], PlacementGroup | None] = lambda node_class: None
    # Whether a subnet, by its id, gives a public IPv4 address to what is launched in it.
    gives_address: Callable[[str], bool] = lambda subnet_id: False
    _facts: dict[str, InstanceTypeInfo] = field(default_factory=dict)
    _zones: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _edition: int = 0
    _views: TtlCache[bytes, _ClassView] = field(init=False)
    _being_made: dict[bytes, asyncio.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._views = TtlCache(self.clock, KEPT)

    @property
    def all_facts(self) -> Mapping[str, InstanceTypeInfo]:
        return self._facts

    @property
    def zones(self) -> tuple[str, ...]:
        """Every zone that sells anything."""
        return tuple(sorted({zone for zones in self._zones.values() for zone in zones}))

    async def refresh(self) -> None:
        """Ask EC2 again. An error keeps what was known; an answer, even an empty one, replaces it."""
        facts, zones = await asyncio.gather(self._ask_types(), self._ask_zones())
        if (facts, zones) != (self._facts, self._zones):
            self._facts, self._zones = facts, zones
            self._edition += 1
            self._views.clear()

    async def _ask_types(self) -> dict[str, InstanceTypeInfo]:
        asked = {"Filters": list(FILTERS), "MaxResults": 100}
        found: list[InstanceTypeInfo] = []
        async for page in list_pages(self.aws, "ec2", "DescribeInstanceTypes", asked):
            found += read_items("DescribeInstanceTypes", page.get("InstanceTypes", ()), read_type_info)
            await asyncio.sleep(0)
        return {each.name: each for each in sorted(found, key=lambda each: each.name)}

    async def _ask_zones(self) -> dict[str, tuple[str, ...]]:
        asked = {"LocationType": "availability-zone", "MaxResults": 1000}
        found: list[Any] = []
        async for page in list_pages(self.aws, "ec2", "DescribeInstanceTypeOfferings", asked):
            found += page.get("InstanceTypeOfferings", ())
        return zones_by_type(found)

    async def list_types(self, node_class: EC2NodeClass) -> tuple[InstanceType, ...]:
        """Everything the class could buy, available or not; the same tuple while nothing changed."""
        doing = f"listing the instance types of EC2NodeClass {node_class.name}"
        if not self._facts or not self._zones:
            raise Retry(f"{doing}: EC2 has named none")
        if not node_class.status.subnets:
            raise Retry(f"{doing}: it has no subnets yet; check its subnetSelectorTerms")
        group = self.group_of(node_class)
        key = self._cache_key(node_class, group)
        lock = self._being_made.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                view = self._views.get(key)
                if view is None:
                    view = await self._build_view(node_class, group)
                self._views.put(key, view)
                return await self._update_view(view, node_class)
        except ValueError as error:
            # One type that cannot be made would be missing from plans without anybody knowing why.
            raise Retry(f"{doing}: spec.kubelet or a volume size cannot be understood: {error}") from error
        finally:
            if not lock.locked():
                self._being_made.pop(key, None)

    def _cache_key(self, node_class: EC2NodeClass, group: PlacementGroup | None) -> bytes:
        """Everything a class's view depends on."""
        spec, status = node_class.spec, node_class.status
        parts = (
            # What is being worked out while EC2's answer changes must not be kept as if it knew of that.
            self._edition,
            sorted(image.id for image in status.amis),
            sorted((subnet.zone, subnet.zone_id, subnet.id) for subnet in status.subnets),
            status.capacity_reservations,
            ami_family(spec),
            spec.kubelet,
            spec.block_device_mappings,
            spec.instance_store_policy,
            spec.network_interfaces,
            spec.associate_public_ip_address,
            spec.cpu_options,
            spec.connection_tracking is not None,
            (group.id, group.strategy, group.partitions) if group else None,
        )
        return msgspec.json.encode(parts, order="deterministic")

    async def _build_view(self, node_class: EC2NodeClass, group: PlacementGroup | None) -> _ClassView:
        terms = NodeClassTerms.from_node_class(
            node_class,
            self.aws.region,
            self.settings.reserved_enis,
            self.settings.vm_memory_overhead_percent,
            self.settings.aws_feature_gates.node_class_cel,
        )
        tables, extra = bundled_tables(), _group_requirements(group)
        reserved = {each.instance_type for each in terms.reservations}
        facts_now, zones_now = self._facts, self._zones
        seen: list[_TypeView] = []
        for count, (name, facts) in enumerate(facts_now.items(), start=1):
            sold_in = zones_now.get(name, ())
            plain = build_instance_type(facts, terms, sold_in, tables)
            if extra:
                plain = replace(plain, requirements=plain.requirements & extra)
            fits = not find_class_incompatibility(facts, terms, node_class, group.strategy if group else "")
            seen.append(_TypeView(facts, plain, sold_in, fits, name in reserved))
            if count % SLICE == 0:
                await asyncio.sleep(0)
        return _ClassView(PurchaseTerms.from_status(self.zones, node_class.status, group), tuple(seen))

    async def _update_view(
        self, class_view: _ClassView, node_class: EC2NodeClass
    ) -> tuple[InstanceType, ...]:
        memory = self.memory.by_type(node_class.status.amis)
        extras = self._find_extras(node_class)
        common = (self._common_stamp(class_view), extras)
        stamp = (common, self.offerings.unavailable.changes, self._reserved_stamp(class_view), memory)
        if class_view.stamp != stamp:
            for count, each in enumerate(class_view.seen, start=1):
                self._update_offerings(each, class_view.buying, common, memory.get(each.facts.name), extras)
                if count % SLICE == 0:
                    await asyncio.sleep(0)
            class_view.stamp = stamp
            class_view.answer = tuple(each.made for each in class_view.seen if each.made is not None)
        return class_view.answer

    def _update_offerings(
        self,
        each: _TypeView,
        buying: PurchaseTerms,
        common: object,
        memory: Quantity | None,
        extras: ClassExtras,
    ) -> None:
        # The number is read before the offerings are made: what is refused meanwhile is looked at again.
        stamp = (common, self.offerings.unavailable.sequence_number(each.facts.name), memory)
        if each.stamp == stamp and not each.reserved:
            return
        capacity = each.plain.capacity if memory is None else {**each.plain.capacity, labels.MEMORY: memory}
        offerings = self.offerings.build_offerings(each.facts, each.sold_in, buying, each.compatible, extras)
        each.made = replace(each.plain, offerings=offerings, capacity=capacity)
        each.stamp = stamp

    def _find_extras(self, node_class: EC2NodeClass) -> ClassExtras:
        if self.settings.find_node_extra() is None:
            return NO_EXTRAS
        return find_class_extras(node_class, self.aws.region, self.zones, self.gives_address)

    def _common_stamp(self, class_view: _ClassView) -> object:
        shifted = frozenset(
            zone for zone in class_view.buying.zone_ids.values() if self.offerings.is_excluded_zone(zone)
        )
        return self.offerings.prices.changes, shifted, dict(self.offerings.given_prices())

    def _reserved_stamp(self, class_view: _ClassView) -> object:
        return tuple(
            (each.id, self.offerings.reserved_left(each.id)) for each in class_view.buying.reservations
        )


def _group_requirements(group: PlacementGroup | None) -> Requirements | None:
    if group is None:
        return None
    known = {labels.PLACEMENT_GROUP_ID: parse_values("In", (group.id,))}
    if group.partition_names:
        known[labels.PLACEMENT_GROUP_PARTITION] = parse_values("In", group.partition_names)
    return Requirements(known)

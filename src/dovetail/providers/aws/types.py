"""The instance types EC2 sells now, as each node class sees them.

What EC2 tells changes rarely and is asked twice a day. What a class makes of it is worked out once for each
way of looking at it, and only offerings follow every refusal, price and shift. Work on many types is cut into
slices, so that nobody waits for all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.hashes import ami_family
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.quantity import Quantity
from dovetail.aws import Aws, pages
from dovetail.errors import Retry
from dovetail.ports import Clock
from dovetail.providers.aws.answers import read_items
from dovetail.providers.aws.cached import Cached
from dovetail.providers.aws.catalog import Terms, instance_type
from dovetail.providers.aws.compatibility import unsuited
from dovetail.providers.aws.described import facts_of, zones_by_type
from dovetail.providers.aws.discovered import DiscoveredMemory
from dovetail.providers.aws.facts import Facts, bundled_tables
from dovetail.providers.aws.offerings import Buying, Offerings
from dovetail.providers.aws.placement import PlacementGroup
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.requirements import Requirements, values_of
from dovetail.settings import Settings

__all__ = ["InstanceTypes"]

KEPT = timedelta(minutes=5)
SLICE = 50  # types worked on before others get their turn: a few milliseconds
FILTERS = (
    {"Name": "supported-virtualization-type", "Values": ["hvm"]},
    {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]},
)


@dataclass(slots=True)
class _Seen:
    """One type as a class sees it, and its offerings as they were when last looked at."""

    facts: Facts
    plain: InstanceType
    sold_in: tuple[str, ...]
    compatible: bool
    reserved: bool
    stamp: object = None
    made: InstanceType | None = None


@dataclass(slots=True)
class _Shelf:
    """All types by one way of looking at them; the answer is kept for as long as its stamp holds."""

    buying: Buying
    seen: tuple[_Seen, ...]
    stamp: object = None
    answer: tuple[InstanceType, ...] = ()


@dataclass(slots=True)
class InstanceTypes:
    """Asks EC2 what it sells, and tells each class what it could buy."""

    aws: Aws
    clock: Clock
    settings: Settings
    offerings: Offerings
    memory: DiscoveredMemory
    group_of: Callable[[EC2NodeClass], PlacementGroup | None] = lambda node_class: None
    _facts: dict[str, Facts] = field(default_factory=dict)
    _zones: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _edition: int = 0
    _shelves: Cached[bytes, _Shelf] = field(init=False)
    _being_made: dict[bytes, asyncio.Lock] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._shelves = Cached(self.clock, KEPT)

    def facts(self, name: str) -> Facts | None:
        return self._facts.get(name)

    @property
    def all_facts(self) -> Mapping[str, Facts]:
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
            self._shelves.clear()

    async def _ask_types(self) -> dict[str, Facts]:
        asked = {"Filters": list(FILTERS), "MaxResults": 100}
        found: list[Facts] = []
        async for page in pages(self.aws, "ec2", "DescribeInstanceTypes", asked):
            found += read_items("DescribeInstanceTypes", page.get("InstanceTypes", ()), facts_of)
            await asyncio.sleep(0)
        return {each.name: each for each in sorted(found, key=lambda each: each.name)}

    async def _ask_zones(self) -> dict[str, tuple[str, ...]]:
        asked = {"LocationType": "availability-zone", "MaxResults": 1000}
        found: list[Any] = []
        async for page in pages(self.aws, "ec2", "DescribeInstanceTypeOfferings", asked):
            found += page.get("InstanceTypeOfferings", ())
        return zones_by_type(found)

    async def of(self, node_class: EC2NodeClass) -> tuple[InstanceType, ...]:
        """Everything the class could buy, available or not; the same tuple while nothing changed."""
        doing = f"listing the instance types of EC2NodeClass {node_class.name}"
        if not self._facts or not self._zones:
            raise Retry(f"{doing}: EC2 has named none")
        if not node_class.status.subnets:
            raise Retry(f"{doing}: it has no subnets yet; check its subnetSelectorTerms")
        group = self.group_of(node_class)
        key = self._key(node_class, group)
        lock = self._being_made.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                shelf = self._shelves.get(key)
                if shelf is None:
                    shelf = await self._shelf(node_class, group)
                self._shelves.put(key, shelf)
                return await self._answer(shelf, node_class)
        except ValueError as error:
            # One type that cannot be made would be missing from plans without anybody knowing why.
            raise Retry(f"{doing}: spec.kubelet or a volume size cannot be understood: {error}") from error
        finally:
            if not lock.locked():
                self._being_made.pop(key, None)

    def _key(self, node_class: EC2NodeClass, group: PlacementGroup | None) -> bytes:
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
            spec.cpu_options,
            spec.connection_tracking is not None,
            (group.id, group.strategy, group.partitions) if group else None,
        )
        return msgspec.json.encode(parts, order="deterministic")

    async def _shelf(self, node_class: EC2NodeClass, group: PlacementGroup | None) -> _Shelf:
        terms = Terms.of(
            node_class,
            self.aws.region,
            self.settings.reserved_enis,
            self.settings.vm_memory_overhead_percent,
            self.settings.aws_feature_gates.node_class_cel,
        )
        tables, extra = bundled_tables(), _group_requirements(group)
        reserved = {each.instance_type for each in terms.reservations}
        facts_now, zones_now = self._facts, self._zones
        seen: list[_Seen] = []
        for count, (name, facts) in enumerate(facts_now.items(), start=1):
            sold_in = zones_now.get(name, ())
            plain = instance_type(facts, terms, sold_in, tables)
            if extra:
                plain = replace(plain, requirements=plain.requirements & extra)
            fits = not unsuited(facts, terms, node_class, group.strategy if group else "")
            seen.append(_Seen(facts, plain, sold_in, fits, name in reserved))
            if count % SLICE == 0:
                await asyncio.sleep(0)
        return _Shelf(Buying.of(self.zones, node_class.status, group), tuple(seen))

    async def _answer(self, shelf: _Shelf, node_class: EC2NodeClass) -> tuple[InstanceType, ...]:
        memory = self.memory.by_type(node_class.status.amis)
        common = self._common_stamp(shelf)
        stamp = (common, self.offerings.unavailable.changes, self._reserved_stamp(shelf), memory)
        if shelf.stamp != stamp:
            for count, each in enumerate(shelf.seen, start=1):
                self._look_again(each, shelf.buying, common, memory.get(each.facts.name))
                if count % SLICE == 0:
                    await asyncio.sleep(0)
            shelf.stamp = stamp
            shelf.answer = tuple(each.made for each in shelf.seen if each.made is not None)
        return shelf.answer

    def _look_again(self, each: _Seen, buying: Buying, common: object, memory: Quantity | None) -> None:
        # The number is read before the offerings are made: what is refused meanwhile is looked at again.
        stamp = (common, self.offerings.unavailable.seqnum(each.facts.name), memory)
        if each.stamp == stamp and not each.reserved:
            return
        capacity = each.plain.capacity if memory is None else {**each.plain.capacity, labels.MEMORY: memory}
        offerings = self.offerings.of(each.facts, each.sold_in, buying, each.compatible)
        each.made = replace(each.plain, offerings=offerings, capacity=capacity)
        each.stamp = stamp

    def _common_stamp(self, shelf: _Shelf) -> object:
        shifted = frozenset(zone for zone in shelf.buying.zone_ids.values() if self.offerings.shifted(zone))
        return self.offerings.prices.changes, shifted, dict(self.offerings.given_prices())

    def _reserved_stamp(self, shelf: _Shelf) -> object:
        return tuple((each.id, self.offerings.reserved_left(each.id)) for each in shelf.buying.reservations)


def _group_requirements(group: PlacementGroup | None) -> Requirements | None:
    if group is None:
        return None
    known = {labels.PLACEMENT_GROUP_ID: values_of("In", (group.id,))}
    if group.partition_names:
        known[labels.PLACEMENT_GROUP_PARTITION] = values_of("In", group.partition_names)
    return Requirements(known)

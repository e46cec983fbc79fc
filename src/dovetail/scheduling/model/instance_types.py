"""What the cloud offers: instance types, their offerings, price order, minValues and truncation.

Facts only. Which of them a pod may use is asked elsewhere, over `instance_type_table`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from math import inf

from msgspec.structs import replace

from dovetail.api import quantity
from dovetail.api.labels import CAPACITY_TYPE, CAPACITY_TYPES, RESERVED, WELL_KNOWN, ZONE
from dovetail.api.meta import Amounts, Record
from dovetail.api.quantity import ZERO, Quantity
from dovetail.scheduling.model.device_objects import ResourceSlice
from dovetail.scheduling.model.requirements import Requirements

__all__ = [
    "MOST_TYPES",
    "AllocatableGroup",
    "InstanceType",
    "MinValues",
    "Offering",
    "Overhead",
    "PriceParts",
    "check_min_values",
    "find_cheapest_offering",
    "truncate_types",
]

MOST_TYPES = 600
_HUGE_PAGES = "hugepages-"


class Overhead(Record, frozen=True):
    """What a node keeps for itself."""

    kube_reserved: Amounts = {}
    system_reserved: Amounts = {}
    eviction_threshold: Amounts = {}

    def total(self) -> dict[str, Quantity]:
        return quantity.add_amounts(self.kube_reserved, self.system_reserved, self.eviction_threshold)


class PriceParts(Record, frozen=True):
    """What the price of an offering is made of, in dollars an hour.

    `instance` is the cloud's price of the instance alone, `volumes` and `address` what it bills for disks and
    a public IPv4 address, and `added` what a person adds.
    """

    instance: float
    volumes: float = 0.0
    address: float = 0.0
    added: float = 0.0

    @property
    def extras(self) -> float:
        """All but the instance."""
        return self.volumes + self.address + self.added

    @property
    def total(self) -> float:
        return self.instance + self.extras


class Offering(Record, frozen=True):
    """One way to buy an instance type: a zone, a capacity type, perhaps a reservation; and its price.

    `price` is all that a node bought by it costs; `parts` take it apart where it is more than the instance.

    `requirements` is the truth about it; `zone` and the like only read it. `reservation_id` is kept
    beside it because the label that carries it is the provider's choice.
    """

    requirements: Requirements = Requirements()
    price: float = 0.0
    available: bool = True
    reservation_id: str = ""
    reservation_capacity: int = 0
    capacity_override: Amounts = {}
    overhead_override: Overhead | None = None
    price_overlaid: bool = False
    parts: PriceParts | None = None
    # Nobody sells at this price: it stands for one that is not known.
    price_estimated: bool = False
    # What the price list says, while a commitment has paid for such an instance.
    listed: float | None = None
    # Karpenter: an unknown price is 0. Such an offering cannot be had, and the bill names its nodes. Reserved
    # capacity can: it is paid for already, and only what comes on top of the instance counts.
    price_unknown: bool = False

    @property
    def zone(self) -> str:
        return self.requirements[ZONE].only or ""

    @property
    def capacity_type(self) -> str:
        return self.requirements[CAPACITY_TYPE].only or ""

    @property
    def reserved(self) -> bool:
        return self.capacity_type == RESERVED

    @property
    def listed_price(self) -> float:
        """All that a node bought by it costs by the price list, whatever is committed."""
        return self.price if self.listed is None else self.listed

    @property
    def instance_price(self) -> float:
        """The price of the instance alone, which is all that Karpenter knows of."""
        return self.price if self.parts is None else self.parts.instance

    def change_parts(self, **changed: float) -> Offering:
        """The same offering with other parts of its price; one without extras has no parts.

        An unknown price stays unknown, whatever is added to it.
        """
        if self.price_unknown and not self.reserved:
            return self
        parts = replace(self.parts or PriceParts(instance=self.price), **changed)
        return replace(self, price=parts.total, parts=parts if parts.extras else None)

    @property
    def overrides(self) -> bool:
        return bool(self.capacity_override) or self.overhead_override is not None


class AllocatableGroup(Record, frozen=True):
    """What pods may use of a node, when it is bought by one of these offerings."""

    allocatable: Amounts
    offerings: tuple[Offering, ...] = ()


class InstanceType(Record, frozen=True):
    """A kind of machine. Its requirements say which labels a node of it may have."""

    name: str
    requirements: Requirements = Requirements()
    offerings: tuple[Offering, ...] = ()
    capacity: Amounts = {}
    overhead: Overhead = Overhead()
    capacity_overlaid: bool = False
    # Devices a node of this type will publish once it is up.
    device_slices: tuple[ResourceSlice, ...] = ()

    def allocatable(self) -> dict[str, Quantity]:
        """What pods may use, whichever way the instance is bought without an override."""
        return _subtract_overhead(self.capacity, self.overhead.total())

    def compute_nano_allocatable(self) -> dict[str, int]:
        """The same in billionths, without a Quantity for every step: a catalogue has hundreds of types."""
        left = {name: amount.nano for name, amount in self.capacity.items()}
        overhead = self.overhead
        for kept in (overhead.kube_reserved, overhead.system_reserved, overhead.eviction_threshold):
            for name, amount in kept.items():
                if name in left:
                    left[name] -= amount.nano
        pages = [amount.nano for name, amount in self.capacity.items() if name.startswith(_HUGE_PAGES)]
        if pages:
            left["memory"] = max(0, left.get("memory", 0) - sum(pages))
        return left

    def allocatable_groups(self) -> tuple[AllocatableGroup, ...]:
        """Available offerings by what they leave for pods; those without an override come first."""
        groups: list[tuple[Offering | None, list[Offering]]] = [(None, [])]
        for offering in self.offerings:
            if not offering.available:
                continue
            like = next((each for first, each in groups if _has_same_override(first, offering)), None)
            if like is None:
                groups.append((offering, [offering]))
            else:
                like.append(offering)
        return tuple(
            AllocatableGroup(allocatable=self._compute_allocatable(f), offerings=tuple(o)) for f, o in groups
        )

    def _compute_allocatable(self, offering: Offering | None) -> dict[str, Quantity]:
        if offering is None:
            return self.allocatable()
        overhead = self.overhead.total()
        if offering.overhead_override is not None:
            overhead |= offering.overhead_override.total()
        return _subtract_overhead({**self.capacity, **offering.capacity_override}, overhead)


def _has_same_override(first: Offering | None, other: Offering) -> bool:
    if first is None:
        return not other.overrides
    return (
        first.capacity_override == other.capacity_override
        and first.overhead_override == other.overhead_override
    )


def _subtract_overhead(capacity: Amounts, overhead: Amounts) -> dict[str, Quantity]:
    left = quantity.subtract_amounts(capacity, overhead)
    pages = [amount for name, amount in capacity.items() if name.startswith(_HUGE_PAGES)]
    if pages:
        # Huge pages are memory too, set aside for good.
        rest = sum(pages, start=ZERO)
        memory = left.get("memory", ZERO) - rest
        left["memory"] = memory if memory > ZERO else ZERO
    return left


def list_usable_offerings(
    instance_type: InstanceType, requirements: Requirements, undefined: AbstractSet[str] = WELL_KNOWN
) -> Iterable[Offering]:
    """The available offerings that meet the requirements."""
    return (
        offering
        for offering in instance_type.offerings
        if offering.available and requirements.is_compatible(offering.requirements, undefined)
    )


def find_cheapest_offering(
    instance_type: InstanceType, requirements: Requirements, undefined: AbstractSet[str] = WELL_KNOWN
) -> Offering | None:
    """The cheapest usable offering; the first of equals."""
    return min(
        list_usable_offerings(instance_type, requirements, undefined),
        key=lambda offering: offering.price,
        default=None,
    )


def find_lowest_price(
    instance_type: InstanceType, requirements: Requirements, undefined: AbstractSet[str] = WELL_KNOWN
) -> float:
    """The least a node of this type would cost; infinite when it cannot be had."""
    offering = find_cheapest_offering(instance_type, requirements, undefined)
    return inf if offering is None else offering.price


def worst_launch_price(
    instance_type: InstanceType, requirements: Requirements, undefined: AbstractSet[str] = WELL_KNOWN
) -> float:
    """The most a launch could cost, given that reserved comes before spot and spot before on-demand."""
    offerings = tuple(list_usable_offerings(instance_type, requirements, undefined))
    for capacity_type in CAPACITY_TYPES:
        prices = [each.price for each in offerings if each.capacity_type == capacity_type]
        if prices:
            return max(prices)
    return inf


class MinValues(Record, frozen=True):
    """How a list of instance types does against minValues: the types it takes, and what is short."""

    needed: int
    unsatisfied: Mapping[str, int] = {}

    @property
    def met(self) -> bool:
        return not self.unsatisfied

    def __str__(self) -> str:
        return (
            f"minValues requirement is not met for label(s) (label(s)=[{' '.join(sorted(self.unsatisfied))}])"
        )


def check_min_values(types: Sequence[InstanceType], requirements: Requirements) -> MinValues:
    """Whether these types, taken in order, offer enough distinct values of each key that asks for them.

    Karpenter: values count as the instance type lists them, also those the requirement excludes.
    """
    wanted = {
        key: values.min_values for key, values in requirements.by_key.items() if values.min_values is not None
    }
    if not wanted or not types:
        return MinValues(needed=0)
    seen: dict[str, set[str]] = {key: set() for key in wanted}
    short: dict[str, int] = {}
    for count, each in enumerate(types, start=1):
        for key, names in seen.items():
            names |= each.requirements[key].names
        short = {key: len(seen[key]) for key, least in wanted.items() if len(seen[key]) < least}
        if not short:
            return MinValues(needed=count)
    return MinValues(needed=len(types), unsatisfied=short)


def truncate_types(
    ordered: Sequence[InstanceType], requirements: Requirements, strict: bool, most: int = MOST_TYPES
) -> tuple[list[InstanceType], MinValues]:
    """The first `most` types, and whether they still do for minValues (never asked unless strict)."""
    kept = list(ordered[:most])
    return kept, check_min_values(kept, requirements) if strict else MinValues(needed=0)

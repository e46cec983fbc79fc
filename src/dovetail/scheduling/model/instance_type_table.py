"""A catalogue arranged for asking: sets of instance types are the bits of an integer.

Three questions are asked of it thousands of times a run, and each is a few table look-ups: which
types suit a label requirement, which can be bought under the requirements, and which have room for
a total. An instance type whose offerings override capacity or overhead has a bit of its own for
each such way to be bought (a *variant*); `types` folds variants back into types.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import cached_property
from math import inf
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dovetail.api.labels import CAPACITY_TYPE, RESERVED
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.resources import Nano, convert_to_nano

__all__ = [
    "InstanceTypeTable",
    "OfferingGroup",
    "TypeTableCache",
    "build_mask",
    "convert_to_bools",
    "iterate_bits",
]


def iterate_bits(mask: int) -> Iterator[int]:
    """The positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def build_mask(positions: Iterable[int], length: int) -> int:
    """The set of these positions, each below the length."""
    flags = np.zeros(length, np.bool_)
    flags[list(positions)] = True
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def convert_to_bools(mask: int, length: int) -> NDArray[np.bool_]:
    """The bits of an integer as an array."""
    raw = np.frombuffer(mask.to_bytes((length + 7) // 8, "little"), np.uint8)
    return np.unpackbits(raw, count=length, bitorder="little").view(np.bool_)


class PriceOrder(NamedTuple):
    """All types by what they cost under some requirements, cheapest first, in columns."""

    types: NDArray[np.int64]
    names: NDArray[Any]


class OfferingGroup:
    """All variants that can be bought in one way: one zone, one capacity type and so on.

    Listed by column while a catalogue is read, and indexed when first asked: many groups never are.
    """

    def __init__(self, requirements: Requirements) -> None:
        self.requirements = requirements
        self.variant_column: list[int] = []
        self.type_column: list[int] = []
        self.offering_column: list[Offering] = []

    @property
    def capacity_type(self) -> str:
        return self.requirements[CAPACITY_TYPE].only or ""

    @cached_property
    def variants(self) -> int:
        return build_mask(self.variant_column, max(self.variant_column, default=-1) + 1)

    @cached_property
    def offerings(self) -> dict[int, Offering]:
        """Type index to offering; the cheapest where a type has the same deal twice."""
        found: dict[int, Offering] = {}
        for i, offering in zip(self.type_column, self.offering_column, strict=True):
            known = found.get(i)
            if offering.price < (inf if known is None else known.price):
                found[i] = offering
        return found

    @cached_property
    def prices(self) -> dict[int, float]:
        """Type index to the price of its offering."""
        return {i: offering.price for i, offering in self.offerings.items()}


class _GroupedOfferings:
    """The offerings of a catalogue by what they are: thousands of offerings, a dozen groups."""

    def __init__(self) -> None:
        self.groups: list[OfferingGroup] = []
        self._by_identity: dict[int, OfferingGroup] = {}
        self._by_names: dict[tuple[object, ...], OfferingGroup] = {}
        self._by_terms: dict[tuple[tuple[str, Values], ...], OfferingGroup] = {}

    def _find_group(self, requirements: Requirements) -> OfferingGroup:
        """Where offerings with these requirements belong; most of them at least share their names."""
        by_key = requirements.by_key
        names = (*by_key, *[values.names if _is_plain(values) else values for values in by_key.values()])
        known = self._by_names.get(names)
        if known is None:
            known = self._by_names[names] = self._find_equal(requirements)
        return known

    def _find_equal(self, requirements: Requirements) -> OfferingGroup:
        terms = tuple(sorted(requirements.by_key.items(), key=lambda item: item[0]))
        known = self._by_terms.get(terms)
        if known is None:
            known = self._by_terms[terms] = OfferingGroup(requirements)
            self.groups.append(known)
        return known

    def add(self, variant: int, index: int, offerings: Iterable[Offering]) -> None:
        """Offerings of a type's variant that can be bought now."""
        known = self._by_identity
        for offering in offerings:
            group = known.get(id(offering.requirements))
            if group is None:
                group = known[id(offering.requirements)] = self._find_group(offering.requirements)
            group.variant_column.append(variant)
            group.type_column.append(index)
            group.offering_column.append(offering)


def _is_plain(values: Values) -> bool:
    """A set of names and nothing else, so that equal names are equal values."""
    return not (
        values.open
        or values.min_values is not None
        or values.at_least is not None
        or values.at_most is not None
    )


class InstanceTypeTable:
    """One catalogue, indexed. What is not asked for by everybody is indexed when it is first asked for."""

    def __init__(self, types: Sequence[InstanceType], undefined: AbstractSet[str]) -> None:
        self.types = tuple(types)
        self.undefined = undefined
        self.everything = (1 << len(self.types)) - 1
        self.type_of: list[int] = list(range(len(self.types)))
        """Variant to type. The first variant of each type has the type's own number."""
        self.allocatable: list[Nano] = []
        self.reserved: list[tuple[int, Offering]] = []
        self.offering_groups: list[OfferingGroup] = []
        self._read_variants()
        self.sound = self._find_sound_variants()
        self._room: dict[str, tuple[list[int], list[int]] | None] = {}
        self._labels = _LabelMasks(self.types)
        self._offer_keys = tuple(sorted({key for deal in self.offering_groups for key in deal.requirements}))
        self._matching: dict[tuple[str, Values], int] = {}
        self._offered: dict[tuple[Values | None, ...], tuple[OfferingGroup, ...]] = {}
        self._bought: dict[tuple[Values | None, ...], int] = {}
        self._prices: dict[tuple[Values | None, ...], list[float]] = {}
        self._order: dict[tuple[Values | None, ...], PriceOrder] = {}
        self.capacity_overlaid = self._find_types(lambda each: each.capacity_overlaid)

    @cached_property
    def index(self) -> dict[str, int]:
        return {each.name: i for i, each in enumerate(self.types)}

    @cached_property
    def names(self) -> NDArray[Any]:
        """The name of each type, as a column."""
        found: NDArray[Any] = np.empty(len(self.types), object)
        found[:] = [each.name for each in self.types]
        return found

    @cached_property
    def capacities(self) -> tuple[Nano, ...]:
        return tuple(convert_to_nano(each.capacity) for each in self.types)

    @cached_property
    def price_overlaid(self) -> int:
        return self._find_types(lambda each: any(o.price_overlaid for o in each.offerings))

    def _find_types(self, chosen: Callable[[InstanceType], bool]) -> int:
        return build_mask((i for i, each in enumerate(self.types) if chosen(each)), len(self.types))

    def _read_variants(self) -> None:
        listed: list[tuple[int, Sequence[Offering]]] = []
        more: list[tuple[int, Nano, tuple[Offering, ...]]] = []
        for i, each in enumerate(self.types):
            # Spelled out, as is what follows: a catalogue has thousands of offerings.
            if [1 for o in each.offerings if o.capacity_override or o.overhead_override is not None]:
                base, *overridden = each.allocatable_groups()
                listed.append((i, base.offerings))
                more += [(i, convert_to_nano(group.allocatable), group.offerings) for group in overridden]
            else:
                listed.append((i, [offering for offering in each.offerings if offering.available]))
            self.allocatable.append(each.compute_nano_allocatable())
        for i, room, offerings in more:
            listed.append((i, offerings))
            self.type_of.append(i)
            self.allocatable.append(room)
        grouped = _GroupedOfferings()
        for variant, (i, buyable) in enumerate(listed):
            grouped.add(variant, i, buyable)
        self.offering_groups = grouped.groups
        if any(group.capacity_type == RESERVED for group in self.offering_groups):
            self.reserved = [(i, each) for i, buyable in listed for each in buyable if each.reserved]

    def _find_sound_variants(self) -> int:
        """Variants with nothing overdrawn; no pod fits on the others."""
        sound = (i for i, room in enumerate(self.allocatable) if min(room.values(), default=0) >= 0)
        return build_mask(sound, len(self.allocatable))

    def fold_variants(self, variants: int) -> int:
        """The types some variant of which is in the set."""
        extra = variants & ~self.everything
        found = variants & self.everything
        for i in iterate_bits(extra):
            found |= 1 << self.type_of[i]
        return found

    def unfold_types(self, types: int) -> int:
        """All variants of these types."""
        found = types
        for i in range(len(self.types), len(self.type_of)):
            found |= (types >> self.type_of[i] & 1) << i
        return found

    def match_label(self, key: str, values: Values) -> int:
        """Types that could have a label value out of these. Types that do not know the label could."""
        known = self._matching.get((key, values))
        if known is None:
            known = self._matching[key, values] = self._labels.match_label(key, values, self.everything)
        return known

    def match_requirements(self, requirements: Requirements) -> int:
        found = self.everything
        for key, values in requirements.by_key.items():
            if key in self._labels.keys:
                found &= self.match_label(key, values)
        return found

    def knows_label(self, key: str) -> bool:
        return key in self._labels.keys

    def build_offer_key(self, requirements: Requirements) -> tuple[Values | None, ...]:
        """The part of the requirements that decides which offerings suit."""
        by_key = requirements.by_key
        return tuple(by_key.get(key) for key in self._offer_keys)

    def list_offering_groups(self, requirements: Requirements) -> tuple[OfferingGroup, ...]:
        view = self.build_offer_key(requirements)
        found = self._offered.get(view)
        if found is None:
            found = self._offered[view] = tuple(
                deal
                for deal in self.offering_groups
                if requirements.is_compatible(deal.requirements, self.undefined)
            )
        return found

    def find_offered(self, requirements: Requirements) -> int:
        """Variants with an available offering that meets the requirements."""
        view = self.build_offer_key(requirements)
        found = self._bought.get(view)
        if found is None:
            found = 0
            for deal in self.list_offering_groups(requirements):
                found |= deal.variants
            self._bought[view] = found
        return found

    def list_prices(self, requirements: Requirements) -> list[float]:
        """The least each type costs under the requirements; infinite where it cannot be had."""
        view = self.build_offer_key(requirements)
        found = self._prices.get(view)
        if found is None:
            found = [inf] * len(self.types)
            for deal in self.list_offering_groups(requirements):
                for i, price in deal.prices.items():
                    if price < found[i]:
                        found[i] = price
            self._prices[view] = found
        return found

    def sort_by_price(self, requirements: Requirements, types: int) -> PriceOrder:
        """These types, cheapest first; equals stay as they came."""
        view = self.build_offer_key(requirements)
        found = self._order.get(view)
        if found is None:
            order = np.argsort(np.array(self.list_prices(requirements)), kind="stable")
            found = self._order[view] = PriceOrder(order, self.names[order])
        listed = convert_to_bools(types, len(self.types))[found.types]
        return PriceOrder(found.types[listed], found.names[listed])

    def find_roomy(self, total: Mapping[str, int], among: int | None = None) -> int:
        """Variants with room for the total."""
        found = self.sound if among is None else among & self.sound
        for name, amount in total.items():
            if amount <= 0:
                continue
            room = self._find_rooms(name)
            if room is None:
                return 0
            position = bisect_left(room[0], amount)
            if position == len(room[0]):
                return 0
            found &= room[1][position]
            if not found:
                return 0
        return found

    def _find_rooms(self, name: str) -> tuple[list[int], list[int]] | None:
        if name not in self._room:
            self._room[name] = _index_rooms(self.allocatable, name)
        return self._room[name]

    def list_label_values(self, key: str) -> Iterable[Values]:
        """The distinct sets of values that types have for a label."""
        return self._labels.find_masks(key)

    def count_values(self, key: str, types: int) -> int:
        """How many distinct values of a label these types list between them."""
        return sum(1 for mask in self._labels.index_values(key).values() if mask & types)


def _index_rooms(allocatable: Sequence[Nano], name: str) -> tuple[list[int], list[int]] | None:
    """The distinct amounts of a resource in rising order, and for each the variants with at least that."""
    by_amount: dict[int, int] = {}
    listed = False
    for i, room in enumerate(allocatable):
        amount = room.get(name)
        if amount is None:
            amount = 0
        else:
            listed = True
        by_amount[amount] = by_amount.get(amount, 0) | 1 << i
    if not listed:
        return None
    steps = sorted(by_amount)
    masks: list[int] = []
    above = 0
    for amount in reversed(steps):
        above |= by_amount[amount]
        masks.append(above)
    return steps, masks[::-1]


class _LabelMasks:
    """Which types list which values of which label."""

    def __init__(self, types: Sequence[InstanceType]) -> None:
        self._types = types
        self.keys: frozenset[str] = frozenset().union(*(each.requirements.by_key for each in types))
        self._masks: dict[str, dict[Values, int]] = {}
        self._values: dict[str, dict[str, int]] = {}

    def find_masks(self, key: str) -> dict[Values, int]:
        """The types that list each set of values of a label."""
        known = self._masks.get(key)
        if known is None:
            shared: dict[
                int, tuple[Values, list[int]]
            ] = {}  # types made together often share the very values
            for i, each in enumerate(self._types):
                values = each.requirements.by_key.get(key)
                if values is not None:
                    alike = shared.get(id(values))
                    if alike is None:
                        shared[id(values)] = values, [i]
                    else:
                        alike[1].append(i)
            members: dict[object, tuple[Values, list[int]]] = {}
            for values, found in shared.values():
                same = values.names if _is_plain(values) else values
                members.setdefault(same, (values, []))[1].extend(found)
            many = len(self._types)
            known = self._masks[key] = {values: build_mask(found, many) for values, found in members.values()}
        return known

    def match_label(self, key: str, wanted: Values, everything: int) -> int:
        found = everything
        for values, mask in self.find_masks(key).items():
            if not values.has_intersection(wanted) and not (values.negative and wanted.negative):
                found &= ~mask
        return found

    def index_values(self, key: str) -> dict[str, int]:
        known = self._values.get(key)
        if known is None:
            known = self._values[key] = {}
            for values, mask in self.find_masks(key).items():
                for name in values.names:
                    known[name] = known.get(name, 0) | mask
        return known


class TypeTableCache:
    """The tables of the last catalogues, each kept while the very same catalogue keeps coming."""

    MOST: Final = 16

    def __init__(self) -> None:
        self._recent: list[InstanceTypeTable] = []

    def find_table(self, types: tuple[InstanceType, ...], undefined: AbstractSet[str]) -> InstanceTypeTable:
        """The table of a catalogue, built when it is first asked for."""
        for table in self._recent:
            if table.types is types and table.undefined == undefined:
                return table
        table = InstanceTypeTable(types, undefined)
        self._recent.insert(0, table)
        del self._recent[self.MOST :]
        return table

"""A catalogue arranged for asking: sets of instance types are the bits of an integer.

Three questions are asked of it thousands of times a run, and each is a few table look-ups: which
types suit a label requirement, which can be bought under the requirements, and which have room for
a total. An instance type whose offerings override capacity or overhead has a bit of its own for
each such way to be bought (a *variant*); `types` folds variants back into types.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from math import inf
from typing import Final

from dovetail.api.labels import CAPACITY_TYPE
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.resources import Nano, convert_to_nano

__all__ = ["InstanceTypeTable", "OfferingGroup", "TypeTableCache", "iterate_bits"]


def iterate_bits(mask: int) -> Iterator[int]:
    """The positions of the set bits, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def _build_mask(flags: Iterable[bool]) -> int:
    return sum(1 << i for i, flag in enumerate(flags) if flag)


@dataclass(slots=True)
class OfferingGroup:
    """All variants that can be bought in one way: one zone, one capacity type and so on."""

    requirements: Requirements
    variants: int
    prices: dict[int, float]
    """Type index to price; the cheapest where a type has the same deal twice."""
    offerings: dict[int, Offering]

    @property
    def capacity_type(self) -> str:
        return self.requirements[CAPACITY_TYPE].only or ""


class InstanceTypeTable:
    """One catalogue, indexed."""

    def __init__(self, types: Sequence[InstanceType], undefined: AbstractSet[str]) -> None:
        self.types = tuple(types)
        self.undefined = undefined
        self.everything = (1 << len(self.types)) - 1
        self.index = {each.name: i for i, each in enumerate(self.types)}
        self.capacities: tuple[Nano, ...] = tuple(convert_to_nano(each.capacity) for each in self.types)
        self.type_of: list[int] = list(range(len(self.types)))
        """Variant to type. The first variant of each type has the type's own number."""
        self.allocatable: list[Nano] = []
        self.reserved: list[tuple[int, Offering]] = []
        self.offering_groups: list[OfferingGroup] = []
        self._read_variants()
        self.sound = self._find_sound_variants()
        self._room = _index_rooms(self.allocatable)
        self._labels = _LabelMasks(self.types)
        self._offer_keys = tuple(sorted({key for deal in self.offering_groups for key in deal.requirements}))
        self._matching: dict[tuple[str, Values], int] = {}
        self._offered: dict[tuple[Values | None, ...], tuple[OfferingGroup, ...]] = {}
        self._bought: dict[tuple[Values | None, ...], int] = {}
        self._prices: dict[tuple[Values | None, ...], list[float]] = {}
        self._order: dict[tuple[Values | None, ...], list[int]] = {}
        self.price_overlaid = _build_mask(
            any(o.price_overlaid for o in each.offerings) for each in self.types
        )
        self.capacity_overlaid = _build_mask(each.capacity_overlaid for each in self.types)

    def _read_variants(self) -> None:
        by_deal: dict[tuple[tuple[str, Values], ...], OfferingGroup] = {}
        more: list[tuple[int, Nano, tuple[Offering, ...]]] = []
        for i, each in enumerate(self.types):
            base, *overridden = each.allocatable_groups()
            self.allocatable.append(convert_to_nano(base.allocatable))
            self._add_offerings(by_deal, i, i, base.offerings)
            more += [(i, convert_to_nano(group.allocatable), group.offerings) for group in overridden]
        for i, room, offerings in more:
            self._add_offerings(by_deal, len(self.type_of), i, offerings)
            self.type_of.append(i)
            self.allocatable.append(room)
        self.offering_groups = list(by_deal.values())

    def _add_offerings(
        self,
        by_deal: dict[tuple[tuple[str, Values], ...], OfferingGroup],
        variant: int,
        index: int,
        offerings: Sequence[Offering],
    ) -> None:
        for offering in offerings:
            terms = tuple(sorted(offering.requirements.by_key.items(), key=lambda item: item[0]))
            deal = by_deal.get(terms)
            if deal is None:
                deal = by_deal[terms] = OfferingGroup(offering.requirements, 0, {}, {})
            deal.variants |= 1 << variant
            if offering.price < deal.prices.get(index, inf):
                deal.prices[index] = offering.price
                deal.offerings[index] = offering
            if offering.reserved:
                self.reserved.append((index, offering))

    def _find_sound_variants(self) -> int:
        """Variants with nothing overdrawn; no pod fits on the others."""
        return _build_mask(all(amount >= 0 for amount in room.values()) for room in self.allocatable)

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
            if key in self._labels.by_key:
                found &= self.match_label(key, values)
        return found

    def knows_label(self, key: str) -> bool:
        return key in self._labels.by_key

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

    def sort_by_price(self, requirements: Requirements) -> list[int]:
        """All types, cheapest first; equals stay as they came."""
        view = self.build_offer_key(requirements)
        found = self._order.get(view)
        if found is None:
            prices = self.list_prices(requirements)
            found = self._order[view] = sorted(range(len(self.types)), key=prices.__getitem__)
        return found

    def find_roomy(self, total: Mapping[str, int], among: int | None = None) -> int:
        """Variants with room for the total."""
        found = self.sound if among is None else among & self.sound
        for name, amount in total.items():
            if amount <= 0:
                continue
            room = self._room.get(name)
            if room is None:
                return 0
            position = bisect_left(room[0], amount)
            if position == len(room[0]):
                return 0
            found &= room[1][position]
            if not found:
                return 0
        return found

    @property
    def label_values(self) -> Mapping[str, Mapping[Values, int]]:
        """Per label, the distinct sets of values types have for it."""
        return self._labels.by_key

    def count_values(self, key: str, types: int) -> int:
        """How many distinct values of a label these types list between them."""
        return sum(1 for mask in self._labels.index_values(key).values() if mask & types)


def _index_rooms(allocatable: Sequence[Nano]) -> dict[str, tuple[list[int], list[int]]]:
    """Per resource: the distinct amounts in rising order, and for each the variants with at least that."""
    found: dict[str, tuple[list[int], list[int]]] = {}
    for name in sorted({name for room in allocatable for name in room}):
        by_amount: dict[int, int] = {}
        for i, room in enumerate(allocatable):
            amount = room.get(name, 0)
            by_amount[amount] = by_amount.get(amount, 0) | 1 << i
        steps = sorted(by_amount)
        masks: list[int] = []
        above = 0
        for amount in reversed(steps):
            above |= by_amount[amount]
            masks.append(above)
        found[name] = steps, masks[::-1]
    return found


class _LabelMasks:
    """Which types list which values of which label."""

    def __init__(self, types: Sequence[InstanceType]) -> None:
        self.by_key: dict[str, dict[Values, int]] = {}
        self._values: dict[str, dict[str, int]] = {}
        for i, each in enumerate(types):
            for key, values in each.requirements.by_key.items():
                masks = self.by_key.setdefault(key, {})
                masks[values] = masks.get(values, 0) | 1 << i

    def match_label(self, key: str, wanted: Values, everything: int) -> int:
        found = everything
        for values, mask in self.by_key.get(key, {}).items():
            if not values.has_intersection(wanted) and not (values.negative and wanted.negative):
                found &= ~mask
        return found

    def index_values(self, key: str) -> dict[str, int]:
        known = self._values.get(key)
        if known is None:
            known = self._values[key] = {}
            for values, mask in self.by_key.get(key, {}).items():
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

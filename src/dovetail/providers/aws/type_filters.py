"""Which of the instance types that would do are offered to a fleet: an ordered list of small filters.

Pure: types in, fewer types out, some with fewer offerings. A claim for which nothing is left has no capacity.
The first filter leaves only offerings that the claim could have now; the others look at those.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from math import inf
from typing import Any

from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import Amounts
from dovetail.api.nodeclaim import NodeClaim
from dovetail.errors import InsufficientCapacity
from dovetail.logs import get_logger
from dovetail.scheduling.model.instance_types import InstanceType, Offering, truncate_types
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import convert_to_nano, fits_within

__all__ = ["MOST_TYPES", "TypeChoices", "filter_types"]

MOST_TYPES = 60
SHOWN = 5
DEFAULT, CAPACITY_BLOCK = "default", "capacity-block"
METAL = "metal"
EXOTIC = (labels.NEURON, labels.NEURON_CORE, labels.AMD_GPU, labels.NVIDIA_GPU, labels.GAUDI)
# Reservation type and whether it is interruptible; where prices are equal the first is taken.
KINDS = ((DEFAULT, "false"), (CAPACITY_BLOCK, "false"), (DEFAULT, "true"))
KNOWN = labels.WELL_KNOWN_AWS

log = get_logger()

Types = Sequence[InstanceType]
Filter = Callable[[Types, Requirements], list[InstanceType]]


def filter_types(
    types: Types, requirements: Requirements, requests: Amounts, *, strict: bool = True
) -> list[InstanceType]:
    """At most sixty types, the cheapest first, for a claim; InsufficientCapacity when none is left."""
    left = compatible_and_available(types, requirements, requests)
    for name, keep in FILTERS:
        if not left:
            break
        before, left = left, keep(left, requirements)
        _log_rejected(name, before, left)
        if not left:
            raise InsufficientCapacity(f"no instance type of {len(before)} is left after the {name} filter")
    if not left:
        raise InsufficientCapacity("no instance type meets the requirements, has the room and can be had now")
    ordered = sorted(left, key=lambda each: min(offering.price for offering in each.offerings))
    kept, wanted = truncate_types(ordered, requirements, strict, MOST_TYPES)
    if not wanted.met:
        raise InsufficientCapacity(f"after truncation to the {MOST_TYPES} cheapest instance types, {wanted}")
    return kept


def _log_rejected(name: str, before: Types, left: Types) -> None:
    if log.is_enabled(logging.DEBUG) and len(left) < len(before):
        kept = {each.name for each in left}
        gone = [each.name for each in before if each.name not in kept]
        log.debug(
            "instance types are filtered out", filter=name, count=len(gone), types=", ".join(gone[:SHOWN])
        )


def compatible_and_available(
    types: Types, requirements: Requirements, requests: Amounts
) -> list[InstanceType]:
    """Those with the right labels, and of them the offerings that can be had and leave room enough."""
    wanted = convert_to_nano(requests)

    def offered(each: InstanceType) -> Iterable[Offering]:
        for group in each.allocatable_groups():
            can = [o for o in group.offerings if requirements.is_compatible(o.requirements, KNOWN)]
            if can and fits_within(wanted, convert_to_nano(group.allocatable)):
                yield from can

    return _with_offerings(
        [each for each in types if requirements.is_compatible(each.requirements, KNOWN)],
        lambda each: tuple(offered(each)),
    )


def one_reservation_kind(types: Types, requirements: Requirements) -> list[InstanceType]:
    """A fleet takes one kind of reservation: that of the cheapest reserved offering, and nothing else."""
    if labels.RESERVED not in requirements[labels.CAPACITY_TYPE]:
        return list(types)
    cheapest = dict.fromkeys(KINDS, inf)
    for each in types:
        for offering in _list_reserved(each):
            kind = _find_reservation_kind(offering)
            cheapest[kind] = min(cheapest.get(kind, inf), offering.price)
    best = min(KINDS, key=lambda kind: cheapest[kind])
    if cheapest[best] == inf:
        return list(types)
    return _with_offerings(
        types, lambda each: [o for o in _list_reserved(each) if _find_reservation_kind(o) == best]
    )


def one_capacity_block(types: Types, requirements: Requirements) -> list[InstanceType]:
    """A block is one type in one place: the cheapest of them, alone."""
    if labels.RESERVED not in requirements[labels.CAPACITY_TYPE]:
        return list(types)
    blocks = [
        (offering.price, at, offering)
        for at, each in enumerate(types)
        for offering in _list_reserved(each)
        if _find_reservation_kind(offering)[0] == CAPACITY_BLOCK
    ]
    if not blocks:
        return list(types)
    _, at, offering = min(blocks, key=lambda block: block[:2])
    return [replace(types[at], offerings=(offering,))]


def fullest_reservation(types: Types, requirements: Requirements) -> list[InstanceType]:
    """In each zone the reservation with most left; where any type has one, types without one are dropped."""
    if labels.RESERVED not in requirements[labels.CAPACITY_TYPE]:
        return list(types)

    def fullest(each: InstanceType) -> list[Offering]:
        by_zone: dict[str, Offering] = {}
        for offering in _list_reserved(each):
            held = by_zone.get(offering.zone)
            if held is None or offering.reservation_capacity > held.reservation_capacity:
                by_zone[offering.zone] = offering
        return list(by_zone.values())

    return _with_offerings(types, fullest) or list(types)


def nothing_exotic(types: Types, requirements: Requirements) -> list[InstanceType]:
    """Metal and accelerators only where nothing else would do, unless variety was asked for."""
    if requirements.has_min_values:
        return list(types)
    return [each for each in types if not _is_exotic(each)] or list(types)


def no_dear_spot(types: Types, requirements: Requirements) -> list[InstanceType]:
    """No spot offering dearer than the cheapest on-demand one: it would be less safe and save nothing."""
    ways = requirements[labels.CAPACITY_TYPE]
    if requirements.has_min_values or labels.SPOT not in ways or labels.ON_DEMAND not in ways:
        return list(types)
    offered = [(o.capacity_type, o.price) for each in types for o in each.offerings]
    dearest = min(
        (price for capacity_type, price in offered if capacity_type == labels.ON_DEMAND), default=None
    )
    if dearest is None or all(capacity_type != labels.SPOT for capacity_type, _ in offered):
        return list(types)
    return _with_offerings(
        types,
        lambda each: [o for o in each.offerings if o.capacity_type != labels.SPOT or o.price <= dearest],
    )


FILTERS: tuple[tuple[str, Filter], ...] = (
    ("capacity-reservation-type", one_reservation_kind),
    ("capacity-block", one_capacity_block),
    ("reserved-offering", fullest_reservation),
    ("exotic", nothing_exotic),
    ("spot-offering", no_dear_spot),
)


def _list_reserved(each: InstanceType) -> list[Offering]:
    return [offering for offering in each.offerings if offering.reserved]


def _find_reservation_kind(offering: Offering) -> tuple[str, str]:
    known = offering.requirements
    return (
        known[labels.CAPACITY_RESERVATION_TYPE].only or DEFAULT,
        known[labels.CAPACITY_RESERVATION_INTERRUPTIBLE].only or "false",
    )


def _with_offerings(types: Types, keep: Callable[[InstanceType], Sequence[Offering]]) -> list[InstanceType]:
    """The types with only these offerings; those that have none are left out."""
    kept = ((each, tuple(keep(each))) for each in types)
    return [replace(each, offerings=offerings) for each, offerings in kept if offerings]


def _is_exotic(each: InstanceType) -> bool:
    size = each.requirements[labels.INSTANCE_SIZE].only or each.name
    return METAL in size or any(name in each.capacity and each.capacity[name].nano > 0 for name in EXOTIC)


MOST_CHOICES = 32


class TypeChoices:
    """Remembers the latest choices. Types that changed in any way are another sequence, so none is stale."""

    def __init__(self, *, strict: bool = True) -> None:
        self._strict = strict
        self._known: OrderedDict[Any, tuple[Sequence[InstanceType], list[InstanceType]]] = OrderedDict()

    def choose_types(self, types: Sequence[InstanceType], claim: NodeClaim) -> list[InstanceType]:
        """At most sixty, the cheapest first; InsufficientCapacity when none is left."""
        requests = claim.spec.resources.requests
        asked = frozenset((name, amount.nano) for name, amount in requests.items())
        key = (id(types), claim.spec.requirements, asked)
        known = self._known.get(key)
        # The sequence is kept beside its choice, so that its id is not given to another meanwhile.
        if known is None:
            wanted = Requirements.from_expressions(claim.spec.requirements)
            known = types, filter_types(types, wanted, requests, strict=self._strict)
        self._known[key] = known
        self._known.move_to_end(key)
        if len(self._known) > MOST_CHOICES:
            self._known.popitem(last=False)
        return known[1]

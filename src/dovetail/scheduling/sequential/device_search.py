"""Finding devices for claims: a depth-first search that gives up a choice when nothing follows from it.

An Inventory is what could be had at one place; a Ledger is what of it is taken. Neither knows of pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final

from dovetail.api.quantity import Quantity
from dovetail.api.schema.cel import load_library
from dovetail.scheduling.model.device_objects import (
    CapacityPolicy,
    Device,
    DeviceClass,
    DeviceSelector,
    ExactRequest,
    ResourceClaim,
    ResourceSlice,
)
from dovetail.scheduling.model.requirements import Requirements

__all__ = [
    "MOST_DEVICES",
    "AvailableDevice",
    "ChosenDevice",
    "DeviceInventory",
    "DeviceLedger",
    "DeviceSelectorCache",
    "UnsupportedClaim",
    "allocate_devices",
]

MOST_DEVICES = 32
_MOST_STEPS = 200_000
_MILLI = 1_000_000

Key = tuple[str, str, str]
"""Driver, pool and device."""


class UnsupportedClaim(Exception):
    """A claim that asks for something nobody can promise."""


@dataclass(frozen=True, slots=True)
class AvailableDevice:
    """One device that could be had, and from where it can be reached."""

    driver: str
    pool: str
    device: Device
    reach: Requirements
    complete: bool = True
    template: bool = False

    @property
    def key(self) -> Key:
        return self.driver, self.pool, self.device.name


Counter = tuple[str, str, str, str]
"""Driver, pool, counter set and counter."""


@dataclass(slots=True)
class DeviceInventory:
    """The devices of one place, published ones first, and the counters they share."""

    stock: list[AvailableDevice] = field(default_factory=list)
    counters: dict[Counter, int] = field(default_factory=dict)

    def add(self, slices: Iterable[ResourceSlice], template: bool = False) -> None:
        listed = list(slices)
        for pool in sorted({(each.spec.driver, each.spec.pool.name) for each in listed}):
            self._add_pool([e for e in listed if (e.spec.driver, e.spec.pool.name) == pool], template)

    def _add_pool(self, slices: Sequence[ResourceSlice], template: bool) -> None:
        newest = max(each.spec.pool.generation for each in slices)
        current = [each for each in slices if each.spec.pool.generation == newest]
        names = [device.name for each in current for device in each.spec.devices]
        if len(set(names)) != len(names):
            return  # two devices of one name: there is no telling which is meant
        complete = len(current) >= max(each.spec.pool.resource_slice_count for each in current)
        for each in current:
            spec = each.spec
            for device in spec.devices:
                reach = find_device_reach(each, device)
                self.stock.append(
                    AvailableDevice(spec.driver, spec.pool.name, device, reach, complete, template)
                )
            for shared in spec.shared_counters:
                for name, amount in shared.counters.items():
                    self.counters[spec.driver, spec.pool.name, shared.name, name] = amount.value.nano


def find_device_reach(published: ResourceSlice, device: Device) -> Requirements:
    """The labels a node must have to use the device."""
    selector = device.node_selector or published.spec.node_selector
    terms = selector.node_selector_terms if selector else ()
    return Requirements.from_expressions(terms[0].match_expressions) if terms else Requirements()


@dataclass(slots=True)
class DeviceLedger:
    """What is taken: whole devices, shares of devices, and counters."""

    whole: set[Key] = field(default_factory=set)
    shares: dict[tuple[Key, str], int] = field(default_factory=dict)
    counters: dict[Counter, int] = field(default_factory=dict)

    def copy(self) -> DeviceLedger:
        return DeviceLedger(set(self.whole), dict(self.shares), dict(self.counters))

    def take(self, found: ChosenDevice) -> None:
        key = found.stocked.key
        if found.stocked.device.allow_multiple_allocations:
            for name, amount in found.consumed.items():
                self.shares[key, name] = self.shares.get((key, name), 0) + amount
        else:
            self.whole.add(key)
        for counter, amount in _list_counters(found.stocked):
            self.counters[counter] = self.counters.get(counter, 0) + amount

    def give_back(self, found: ChosenDevice) -> None:
        key = found.stocked.key
        if found.stocked.device.allow_multiple_allocations:
            for name, amount in found.consumed.items():
                self.shares[key, name] -= amount
        else:
            self.whole.discard(key)
        for counter, amount in _list_counters(found.stocked):
            self.counters[counter] -= amount


@dataclass(frozen=True, slots=True)
class ChosenDevice:
    """A device chosen for a request, and how much of it is taken."""

    claim: str
    request: str
    stocked: AvailableDevice
    consumed: Mapping[str, int] = field(default_factory=dict)


def _list_counters(stocked: AvailableDevice) -> Iterator[tuple[Counter, int]]:
    for use in stocked.device.consumes_counters:
        for name, amount in use.counters.items():
            yield (stocked.driver, stocked.pool, use.counter_set, name), amount.value.nano


def allocate_devices(
    claims: Sequence[ResourceClaim],
    classes: Mapping[str, DeviceClass],
    inventory: DeviceInventory,
    taken: DeviceLedger,
    selectors: DeviceSelectorCache,
) -> list[ChosenDevice] | None:
    """Devices for all claims together; None when there are none."""
    for constraint in chain.from_iterable(claim.spec.devices.constraints for claim in claims):
        if constraint.distinct_attribute is not None:
            raise UnsupportedClaim("distinctAttribute is not supported")
    return _Search(claims, classes, inventory, taken.copy(), selectors).run()


class _Search:
    def __init__(
        self,
        claims: Sequence[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        inventory: DeviceInventory,
        taken: DeviceLedger,
        selectors: DeviceSelectorCache,
    ) -> None:
        self.wants = [(claim, request) for claim in claims for request in claim.spec.devices.requests]
        self.classes = classes
        self.inventory = inventory
        self.taken = taken
        self.selectors = selectors
        self.chosen: list[ChosenDevice] = []
        self.steps = 0

    def run(self) -> list[ChosenDevice] | None:
        return list(self.chosen) if self._satisfy_request(0) else None

    def _satisfy_request(self, index: int) -> bool:
        if index == len(self.wants):
            return True
        _, request = self.wants[index]
        options = (request.exactly,) if request.exactly else request.first_available
        return any(self._try_request(index, option) for option in options)

    def _try_request(self, index: int, option: ExactRequest) -> bool:
        known = self.classes.get(option.device_class_name)
        if known is None:
            return False
        selectors = (*known.spec.selectors, *option.selectors)
        fitting = [each for each in self.inventory.stock if self.selectors.match_device(each, selectors)]
        if option.allocation_mode == "All":
            if not fitting or len(fitting) > MOST_DEVICES or not all(each.complete for each in fitting):
                return False
            return self._choose_devices(index, option, fitting, 0, len(fitting))
        return option.count <= MOST_DEVICES and self._choose_devices(index, option, fitting, 0, option.count)

    def _choose_devices(
        self, index: int, option: ExactRequest, fitting: Sequence[AvailableDevice], start: int, left: int
    ) -> bool:
        """Take `left` more devices from those from `start` on, then go on with the next request."""
        if not left:
            return self._satisfy_request(index + 1)
        for i in range(start, len(fitting) - left + 1):
            self.steps += 1
            if self.steps > _MOST_STEPS:
                return False
            found = self._build_choice(index, option, fitting[i])
            if found is None:
                continue
            self.chosen.append(found)
            self.taken.take(found)
            if self._choose_devices(index, option, fitting, i + 1, left - 1):
                return True
            self.chosen.pop()
            self.taken.give_back(found)
        return False

    def _build_choice(
        self, index: int, option: ExactRequest, stocked: AvailableDevice
    ) -> ChosenDevice | None:
        claim, request = self.wants[index]
        consumed = self._compute_consumed(option, stocked)
        if consumed is None or not self._is_free(stocked, consumed):
            return None
        found = ChosenDevice(claim.full_name, request.name, stocked, consumed)
        return found if self._matches_constraints(claim, found) and self._is_reachable(stocked) else None

    def _is_free(self, stocked: AvailableDevice, consumed: Mapping[str, int]) -> bool:
        key, device, taken = stocked.key, stocked.device, self.taken
        if device.allow_multiple_allocations:
            for name, amount in consumed.items():
                if taken.shares.get((key, name), 0) + amount > device.capacity[name].value.nano:
                    return False
        elif key in taken.whole:
            return False
        known = self.inventory.counters
        return all(
            taken.counters.get(counter, 0) + amount <= known.get(counter, 0)
            for counter, amount in _list_counters(stocked)
        )

    @staticmethod
    def _compute_consumed(option: ExactRequest, stocked: AvailableDevice) -> dict[str, int] | None:
        """How much of each capacity is taken; None when what is asked cannot be given."""
        asked = option.capacity.requests if option.capacity else {}
        capacity = stocked.device.capacity
        if any(name not in capacity for name in asked):
            return None
        consumed: dict[str, int] = {}
        for name, there in capacity.items():
            amount = _round_to_policy(asked.get(name), there.value, there.request_policy)
            if amount is None or amount > there.value.nano:
                return None
            consumed[name] = amount
        return consumed

    def _matches_constraints(self, claim: ResourceClaim, found: ChosenDevice) -> bool:
        """Whether the device matches those already chosen for the claim where it has to."""
        for constraint in claim.spec.devices.constraints:
            attribute = constraint.match_attribute
            if attribute is None or (constraint.requests and found.request not in constraint.requests):
                continue
            value = _read_attribute(found.stocked, attribute)
            if value is None:
                return False
            for other in self.chosen:
                bound = not constraint.requests or other.request in constraint.requests
                if (
                    other.claim == found.claim
                    and bound
                    and _read_attribute(other.stocked, attribute) != value
                ):
                    return False
        return True

    def _is_reachable(self, stocked: AvailableDevice) -> bool:
        return all(stocked.reach.intersects(other.stocked.reach) for other in self.chosen)


def _round_to_policy(asked: Quantity | None, whole: Quantity, policy: CapacityPolicy | None) -> int | None:
    """The amount taken for what is asked, rounded up as the policy has it."""
    if policy is None:
        return whole.nano if asked is None else asked.nano
    wanted = (policy.default or whole).nano if asked is None else asked.nano
    if policy.valid_values:
        return min((each.nano for each in policy.valid_values if each.nano >= wanted), default=None)
    if policy.valid_range is None:
        return wanted
    least, step = policy.valid_range.min.nano, policy.valid_range.step
    amount = max(wanted, least)
    if step is not None and step.nano > 0:
        amount = least + -(-(amount - least) // step.nano) * step.nano
    most = policy.valid_range.max
    return None if most is not None and amount > most.nano else amount


def _read_attribute(stocked: AvailableDevice, name: str) -> object:
    """An attribute by its full name; names without a domain are the driver's own."""
    attributes = stocked.device.attributes
    domain, slash, short = name.partition("/")
    found = attributes.get(name)
    if found is None and slash and domain == stocked.driver:
        found = attributes.get(short)
    return found.value if found is not None else None


class DeviceSelectorCache:
    """The CEL selectors of device classes and claims, each compiled when it is first asked."""

    MOST: Final = 1_000

    def __init__(self) -> None:
        self._programs: dict[str, Any] = {}

    def match_device(self, stocked: AvailableDevice, selectors: Sequence[DeviceSelector]) -> bool:
        """Whether the device is what all of the selectors ask for."""
        return all(
            self._evaluate_cel(each.cel.expression, stocked) for each in selectors if each.cel is not None
        )

    def _evaluate_cel(self, expression: str, stocked: AvailableDevice) -> bool:
        context = load_library().Context({"device": _describe_device(stocked)})
        context.add_function("quantity", lambda text: Quantity.parse(text).nano // _MILLI)
        context.add_function("compareTo", lambda a, b: (a > b) - (a < b))
        context.add_function("isGreaterThan", lambda a, b: a > b)
        context.add_function("isLessThan", lambda a, b: a < b)
        try:
            return self._compile_cel(expression).execute(context) is True
        except (KeyError, ValueError, TypeError, RuntimeError):
            return False  # an attribute the device lacks: not the device that is meant

    def _compile_cel(self, expression: str) -> Any:
        known = self._programs.get(expression)
        if known is None:
            if len(self._programs) >= self.MOST:
                self._programs.clear()
            known = self._programs[expression] = load_library().compile(expression)
        return known


def _describe_device(stocked: AvailableDevice) -> dict[str, Any]:
    """The device as selectors see it: attributes and capacities by domain."""
    attributes: dict[str, dict[str, object]] = {stocked.driver: {}}
    capacity: dict[str, dict[str, object]] = {stocked.driver: {}}
    for name, attribute in stocked.device.attributes.items():
        domain, short = _split_domain(name, stocked.driver)
        attributes.setdefault(domain, {})[short] = attribute.value
    for name, amount in stocked.device.capacity.items():
        domain, short = _split_domain(name, stocked.driver)
        capacity.setdefault(domain, {})[short] = amount.value.nano // _MILLI
    return {
        "driver": stocked.driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": stocked.device.allow_multiple_allocations,
    }


def _split_domain(name: str, driver: str) -> tuple[str, str]:
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)

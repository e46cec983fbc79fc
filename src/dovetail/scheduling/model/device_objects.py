"""Devices as the cluster describes them (resource.k8s.io/v1): slices, classes and claims.

Only what placing pods reads: which devices there are, where they can be reached from, and what is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from dovetail.api.core import ObjectReference
from dovetail.api.meta import Amounts, Kind, Object, Record
from dovetail.api.pod import NodeSelector
from dovetail.api.quantity import Quantity

__all__ = [
    "Device",
    "DeviceAttribute",
    "DeviceCapacity",
    "DeviceClass",
    "DeviceRequest",
    "DeviceSelector",
    "DeviceState",
    "ResourceClaim",
    "ResourceSlice",
]


class DeviceAttribute(
    Record, frozen=True, rename={"flag": "bool", "number": "int", "text": "string", "version": "version"}
):
    """One fact about a device; exactly one of the fields is set."""

    flag: bool | None = None
    number: int | None = None
    text: str | None = None
    version: str | None = None

    @property
    def value(self) -> object:
        told = (self.flag, self.number, self.text, self.version)
        return next((each for each in told if each is not None), None)


class CapacityRange(Record, frozen=True):
    """Amounts from a least to a most, in steps."""

    min: Quantity
    max: Quantity | None = None
    step: Quantity | None = None


class CapacityPolicy(Record, frozen=True):
    """Which amounts of a capacity may be asked for, and what is taken when nobody says."""

    default: Quantity | None = None
    valid_values: tuple[Quantity, ...] = ()
    valid_range: CapacityRange | None = None


class DeviceCapacity(Record, frozen=True):
    """How much a device has of something."""

    value: Quantity
    request_policy: CapacityPolicy | None = None


class CounterUse(Record, frozen=True):
    """What a device takes of counters it shares with others."""

    counter_set: str = ""
    counters: Mapping[str, DeviceCapacity] = {}


class Device(Record, frozen=True):
    """One device of a slice."""

    name: str
    attributes: Mapping[str, DeviceAttribute] = {}
    capacity: Mapping[str, DeviceCapacity] = {}
    consumes_counters: tuple[CounterUse, ...] = ()
    allow_multiple_allocations: bool = False
    node_selector: NodeSelector | None = None


class CounterSet(Record, frozen=True):
    """Counters that devices of one pool share."""

    name: str = ""
    counters: Mapping[str, DeviceCapacity] = {}


class SlicePool(Record, frozen=True):
    """The pool a slice is part of, and of how many slices it is made."""

    name: str = ""
    generation: int = 0
    resource_slice_count: int = 1


class ResourceSliceSpec(Record, frozen=True):
    """Devices of one driver, and from where they can be reached."""

    driver: str = ""
    pool: SlicePool = SlicePool()
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()


class ResourceSlice(Object, frozen=True):
    """Some devices of one driver."""

    KIND: ClassVar[Kind] = Kind("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", namespaced=False)

    spec: ResourceSliceSpec = ResourceSliceSpec()


class CELSelector(Record, frozen=True):
    """A condition on devices."""

    expression: str = ""


class DeviceSelector(Record, frozen=True):
    """Which devices will do."""

    cel: CELSelector | None = None


class DeviceClassSpec(Record, frozen=True):
    """What all devices of a class have in common."""

    selectors: tuple[DeviceSelector, ...] = ()


class DeviceClass(Object, frozen=True):
    """A kind of device, by name."""

    KIND: ClassVar[Kind] = Kind("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", namespaced=False)

    spec: DeviceClassSpec = DeviceClassSpec()


class CapacityRequests(Record, frozen=True):
    """How much of a device's capacity is asked for."""

    requests: Amounts = {}


class ExactRequest(Record, frozen=True):
    """Devices of one class: so many, or all there are."""

    name: str = ""
    device_class_name: str = ""
    selectors: tuple[DeviceSelector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 1
    capacity: CapacityRequests | None = None


class DeviceRequest(Record, frozen=True):
    """What is asked for: one thing exactly, or the first of several that can be had."""

    name: str = ""
    exactly: ExactRequest | None = None
    first_available: tuple[ExactRequest, ...] = ()


class DeviceConstraint(Record, frozen=True):
    """Devices of these requests (all, if none are named) agree on an attribute."""

    requests: tuple[str, ...] = ()
    match_attribute: str | None = None
    distinct_attribute: str | None = None


class DeviceClaim(Record, frozen=True):
    """What a claim asks for, all told."""

    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()


class ResourceClaimSpec(Record, frozen=True):
    """What a claim asks for."""

    devices: DeviceClaim = DeviceClaim()


class AllocatedDevice(Record, frozen=True):
    """One device given to a claim, or a share of it."""

    request: str = ""
    driver: str = ""
    pool: str = ""
    device: str = ""
    consumed_capacity: Amounts = {}


class AllocatedDevices(Record, frozen=True):
    """The devices given to a claim."""

    results: tuple[AllocatedDevice, ...] = ()


class Allocation(Record, frozen=True):
    """What a claim was given, and from where that can be reached."""

    devices: AllocatedDevices = AllocatedDevices()
    node_selector: NodeSelector | None = None


class ResourceClaimStatus(Record, frozen=True):
    """What came of a claim, and who uses it."""

    allocation: Allocation | None = None
    reserved_for: tuple[ObjectReference, ...] = ()


class ResourceClaim(Object, frozen=True):
    """A claim on devices."""

    KIND: ClassVar[Kind] = Kind("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims")

    spec: ResourceClaimSpec = ResourceClaimSpec()
    status: ResourceClaimStatus = ResourceClaimStatus()


class DeviceState(Record, frozen=True):
    """All devices of the cluster, and all claims on them; claims by `namespace/name`, classes by name."""

    slices: tuple[ResourceSlice, ...] = ()
    classes: Mapping[str, DeviceClass] = {}
    claims: Mapping[str, ResourceClaim] = {}

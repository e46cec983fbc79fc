"""The instance types of simulated nodes: a built-in list, or one from a file.

Two layouts are read: ours (zones, and a price per capacity type), and Karpenter's own, where every
offering is spelled out with its requirements.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import msgspec

from dovetail.api import labels
from dovetail.api.nodepool import Requirement
from dovetail.api.quantity import Quantity
from dovetail.errors import Misconfigured
from dovetail.scheduling.model.instance_types import InstanceType, Offering, Overhead
from dovetail.scheduling.model.requirements import Requirements, parse_values

__all__ = ["family_and_size", "read_instance_types"]

_FAMILY = re.compile(r"([^.-]*)[.-]")
_AWS_NAME = re.compile(r"\w+\.(nano|micro|small|medium|large|[0-9]*xlarge|metal)", re.ASCII)
RESERVED = {"cpu": Quantity.parse("100m"), "memory": Quantity.parse("10Mi")}


class _Offer(
    msgspec.Struct, rename={"requirements": "Requirements", "price": "Price", "available": "Available"}
):
    requirements: tuple[Requirement, ...] = ()
    price: float = 0.0
    available: bool = True


class _Type(msgspec.Struct, rename="camel"):
    name: str
    architecture: str = "amd64"
    operating_systems: tuple[str, ...] = ("linux",)
    resources: dict[str, str | int | float] = {}
    zones: tuple[str, ...] = ()
    price: dict[str, float] = {}
    offerings: tuple[_Offer, ...] = ()


def read_instance_types(path: str = "") -> tuple[InstanceType, ...]:
    """The types in the file, or the built-in ones."""
    if path:
        try:
            text = Path(path).read_bytes()
        except OSError as error:
            raise Misconfigured(f"reading the instance types {path}: {error.strerror}") from error
    else:
        text = resources.files(__package__).joinpath("instance-types.json").read_bytes()
        path = "instance-types.json"
    try:
        listed = msgspec.json.decode(text, type=tuple[_Type, ...])
        return tuple(_build_instance_type(each) for each in listed)
    except (msgspec.MsgspecError, ValueError) as error:
        raise Misconfigured(f"reading the instance types {path}: {error}") from error


def _build_instance_type(listed: _Type) -> InstanceType:
    offerings = tuple(_read_offer(each) for each in listed.offerings) or tuple(
        _build_offering(zone, capacity_type, price)
        for zone in listed.zones
        for capacity_type, price in sorted(listed.price.items())
    )
    capacity = {name: Quantity.parse(amount) for name, amount in listed.resources.items()}
    capacity.setdefault("pods", Quantity.parse("110"))
    return InstanceType(
        name=listed.name,
        requirements=_build_labels(listed, capacity, offerings),
        offerings=offerings,
        capacity=capacity,
        overhead=Overhead(kube_reserved=RESERVED),
    )


def _build_labels(
    listed: _Type, capacity: dict[str, Quantity], offerings: tuple[Offering, ...]
) -> Requirements:
    cpu = str(capacity["cpu"]) if "cpu" in capacity else ""
    family, size = family_and_size(listed.name, cpu)
    known = {
        labels.INSTANCE_TYPE: (listed.name,),
        labels.ARCH: (listed.architecture,),
        labels.OS: tuple(sorted(listed.operating_systems)),
        labels.ZONE: tuple(sorted({o.zone for o in offerings if o.available})),
        labels.CAPACITY_TYPE: tuple(sorted({o.capacity_type for o in offerings if o.available})),
        labels.KWOK_INSTANCE_FAMILY: (family,),
        labels.KWOK_INSTANCE_SIZE: (size,) if size else (),
        labels.KWOK_INSTANCE_CPU: (cpu,) if cpu else (),
        labels.KWOK_INSTANCE_MEMORY: (str(capacity["memory"]),) if "memory" in capacity else (),
    }
    return Requirements({key: parse_values("In", values) for key, values in known.items()})


def family_and_size(name: str, cpu: str) -> tuple[str, str]:
    """As Karpenter tells them: `m5.large` is family m5 and size large, `c-4x-amd64-linux` family c and as
    large as its cpus are many."""
    family = _FAMILY.match(name)
    size = _AWS_NAME.fullmatch(name)
    return (family[1] if family else name[:1]), (size[1] if size else cpu)


def _build_offering(zone: str, capacity_type: str, price: float) -> Offering:
    requirements = Requirements(
        {labels.ZONE: parse_values("In", (zone,)), labels.CAPACITY_TYPE: parse_values("In", (capacity_type,))}
    )
    return Offering(requirements=requirements, price=price)


def _read_offer(offer: _Offer) -> Offering:
    return Offering(
        requirements=Requirements.from_expressions(offer.requirements),
        price=offer.price,
        available=offer.available,
    )

"""Catalogues for planning without a cloud: built in, or from a file.

Three layouts of file are read: the kwok provider's (ours and Karpenter's), and a catalogue of facts with
`types`, `zones` and, optionally, named `subsets`, as the benchmark harness has it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dovetail.api import labels
from dovetail.api.labels import Flavour
from dovetail.api.quantity import Quantity
from dovetail.errors import BadInput
from dovetail.providers.kwok.catalog import instance_types
from dovetail.scheduling.catalog import InstanceType, Offering, Overhead
from dovetail.scheduling.requirements import Requirements, values_of

__all__ = ["catalogue"]


class _Size(msgspec.Struct, rename={"cpu_milli": "cpuMilli", "memory_mib": "memoryMiB"}):
    cpu_milli: int
    memory_mib: int
    pods: int


class _Fact(msgspec.Struct, rename={"memory_mib": "memoryMiB", "on_demand": "onDemand"}, omit_defaults=True):
    name: str
    arch: str
    cpu: int
    memory_mib: int
    capacity: _Size
    allocatable: _Size
    on_demand: float | None = None
    spot: dict[str, float] = {}
    category: str = ""
    family: str = ""
    generation: int | str = ""
    size: str = ""


class _Facts(msgspec.Struct):
    types: list[_Fact]
    zones: list[str]
    subsets: dict[str, list[str]] = {}


def catalogue(name: str, subset: str = "") -> tuple[tuple[InstanceType, ...], Flavour]:
    """The instance types of a built-in catalogue or a file, and the labels that come with them."""
    if name == "kwok":
        return instance_types(), labels.KWOK
    path = Path(name)
    try:
        text = path.read_bytes()
    except OSError as error:
        raise BadInput(f"reading the catalogue {name}: {error.strerror}; give a file, or kwok") from error
    if text.lstrip()[:1] == b"[":
        return instance_types(name), labels.KWOK
    try:
        facts = msgspec.json.decode(text, type=_Facts)
    except msgspec.MsgspecError as error:
        raise BadInput(f"reading the catalogue {name}: {error}") from error
    wanted = set(facts.subsets.get(subset, ()))
    if subset and not wanted:
        known = ", ".join(sorted(facts.subsets)) or "none"
        raise BadInput(f"reading the catalogue {name}: it has no subset {subset!r}; it has {known}")
    found = tuple(_instance_type(f, facts.zones) for f in facts.types if not wanted or f.name in wanted)
    return found, labels.AWS


def _instance_type(fact: _Fact, zones: list[str]) -> InstanceType:
    known = {
        labels.INSTANCE_TYPE: (fact.name,),
        labels.ARCH: (fact.arch,),
        labels.OS: ("linux",),
        labels.ZONE: tuple(zones),
        labels.CAPACITY_TYPE: _ways(fact),
        labels.INSTANCE_CATEGORY: (fact.category,),
        labels.INSTANCE_FAMILY: (fact.family,),
        labels.INSTANCE_GENERATION: (str(fact.generation),),
        labels.INSTANCE_SIZE: (fact.size,),
        labels.INSTANCE_CPU: (str(fact.cpu),),
        labels.INSTANCE_MEMORY: (str(fact.memory_mib),),
    }
    kept = {
        "cpu": Quantity.parse(f"{fact.capacity.cpu_milli - fact.allocatable.cpu_milli}m"),
        "memory": Quantity.parse(f"{fact.capacity.memory_mib - fact.allocatable.memory_mib}Mi"),
    }
    return InstanceType(
        name=fact.name,
        requirements=Requirements({k: values_of("In", v) for k, v in known.items() if all(v) and v}),
        offerings=tuple(_offering(fact, zone, way) for zone in zones for way in _ways(fact)),
        capacity={
            "cpu": Quantity.parse(f"{fact.capacity.cpu_milli}m"),
            "memory": Quantity.parse(f"{fact.capacity.memory_mib}Mi"),
            "pods": Quantity.parse(str(fact.capacity.pods)),
        },
        overhead=Overhead(kube_reserved=kept),
    )


def _ways(fact: _Fact) -> tuple[str, ...]:
    ways = ((labels.ON_DEMAND, fact.on_demand), (labels.SPOT, fact.spot))
    return tuple(way for way, priced in ways if priced)


def _offering(fact: _Fact, zone: str, way: str) -> Offering:
    price = fact.on_demand if way == labels.ON_DEMAND else fact.spot.get(zone)
    requirements = {labels.ZONE: values_of("In", (zone,)), labels.CAPACITY_TYPE: values_of("In", (way,))}
    return Offering(requirements=Requirements(requirements), price=price or 0.0, available=price is not None)

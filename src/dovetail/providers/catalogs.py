"""Catalogues for planning without a cloud: built in, or from a file.

Three layouts of file are read: the kwok provider's (ours and Karpenter's), and a catalogue of facts with
`types`, `zones` and, optionally, named `subsets`, as the benchmark harness has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import msgspec

from dovetail.api import labels
from dovetail.api.labels import Flavour
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.quantity import Quantity
from dovetail.errors import BadInput, Misconfigured
from dovetail.providers.aws.instance_type_info import BUNDLED_DATE, BUNDLED_REGION
from dovetail.providers.aws.node_extras import knows_volumes
from dovetail.providers.aws.offline_catalog import list_offline_types
from dovetail.providers.kwok.catalog import read_instance_types
from dovetail.providers.pool_prices import PoolPrices
from dovetail.scheduling.model.instance_types import InstanceType, Offering, Overhead
from dovetail.scheduling.model.requirements import Requirements, parse_values
from dovetail.settings import Settings
from dovetail.settings.node_extra import NodeExtra

__all__ = ["Catalogue", "CataloguePricing", "choose_catalogue", "load_catalogue"]

AWS = "aws"
KWOK = "kwok"
ESTIMATED = (
    f"on-demand prices are those of {BUNDLED_REGION} in {BUNDLED_DATE}, and spot prices are estimates: 32 to "
    "48 % of on-demand, by generation and category"
)


@dataclass(frozen=True, slots=True)
class CataloguePricing:
    """How a catalogue is priced without a cloud to ask.

    `extras` is what a person adds to nodes of NodePools that say nothing; None counts instances alone.
    `assumed_region` is the region whose prices stand in for one without.
    """

    extras: NodeExtra | None = None
    assumed_region: str = ""

    @classmethod
    def from_settings(cls, settings: Settings, assumed_region: str = "") -> CataloguePricing:
        return cls(settings.find_node_extra(), assumed_region or settings.assume_region_prices)


INSTANCES_ALONE = CataloguePricing()


@dataclass(frozen=True, slots=True)
class Catalogue:
    """What each pool may buy, the labels that come with it, and what to know about the prices."""

    flavour: Flavour
    types_for: Callable[[NodePool], Sequence[InstanceType]]
    remarks: tuple[str, ...] = ()


def choose_catalogue(pools: Sequence[NodePool]) -> str:
    """The built-in catalogue for these pools, by the node classes they name."""
    ours = any(pool.spec.template.spec.node_class_ref.group == labels.KARPENTER_AWS for pool in pools)
    return AWS if ours else KWOK


def load_catalogue(
    name: str,
    classes: Mapping[str, EC2NodeClass],
    subset: str = "",
    usual_subset: str = "",
    pricing: CataloguePricing = INSTANCES_ALONE,
) -> Catalogue:
    """A built-in catalogue or one from a file. The usual subset is taken if there is one of that name.

    Volumes and addresses are counted where the catalogue is EC2's own; the prices of a file are taken as they
    are. What a person adds is counted everywhere.
    """
    found = _load_plain(name, classes, subset, usual_subset, pricing)
    prices = PoolPrices(pricing.extras)
    return replace(found, types_for=lambda pool: prices.price_types(pool, tuple(found.types_for(pool))))


def _load_plain(
    name: str, classes: Mapping[str, EC2NodeClass], subset: str, usual_subset: str, pricing: CataloguePricing
) -> Catalogue:
    kind, _, region = name.partition(":")
    if kind == AWS and not Path(name).exists():
        if subset:
            raise BadInput(f"the catalogue {AWS} has no subsets; leave {subset!r} out")
        return _load_aws(region or BUNDLED_REGION, classes, pricing)
    if name == KWOK and not Path(name).exists():
        return _build_shared(labels.KWOK, read_instance_types(), name)
    return _load_file(name, subset, usual_subset)


def _build_shared(flavour: Flavour, types: tuple[InstanceType, ...], name: str) -> Catalogue:
    _check_types(types, name)
    return Catalogue(flavour, lambda pool: types)


def _check_types(types: tuple[InstanceType, ...], name: str) -> None:
    """Say it once here, rather than once for every pod."""
    twice = [each for each, count in Counter(each.name for each in types).items() if count > 1]
    if twice:
        raise BadInput(f"reading the catalogue {name}: {twice[0]} is listed more than once")
    offerings = [(each.name, offering) for each in types for offering in each.offerings if offering.available]
    if not offerings:
        raise BadInput(
            f"reading the catalogue {name}: nothing in it has a price, so nothing can be bought; "
            "give its types prices"
        )
    below = next((each for each, offering in offerings if not offering.price >= 0), None)
    if below is not None:
        raise BadInput(f"reading the catalogue {name}: a price of {below} is below zero")


def _load_aws(region: str, classes: Mapping[str, EC2NodeClass], pricing: CataloguePricing) -> Catalogue:
    listing = partial(
        list_offline_types,
        region,
        assumed_region=pricing.assumed_region,
        extras=pricing.extras is not None,
    )
    plain = listing()
    made: dict[str, tuple[InstanceType, ...]] = {}

    def types_for(pool: NodePool) -> tuple[InstanceType, ...]:
        wanted = pool.spec.template.spec.node_class_ref.name
        if wanted not in classes:
            return plain
        if wanted not in made:
            made[wanted] = listing(nodeclass=classes[wanted])
        return made[wanted]

    return Catalogue(labels.AWS, types_for, tuple(_list_remarks(region, classes, pricing)))


def _list_remarks(
    region: str, classes: Mapping[str, EC2NodeClass], pricing: CataloguePricing
) -> Iterator[str]:
    """What to know about the prices: which are estimates, and what is counted beside instances."""
    yield ESTIMATED
    if region != BUNDLED_REGION:
        yield f"prices of {region} are not known: those of {BUNDLED_REGION} stand in, as was asked for"
    if pricing.extras is None:
        return
    unknown = sorted(name for name, each in classes.items() if not knows_volumes(each, region))
    if unknown:
        yield f"volumes of EC2NodeClass {', '.join(unknown)} have no known size or price and are not counted"


def _load_file(name: str, subset: str, usual_subset: str) -> Catalogue:
    try:
        text = Path(name).read_bytes()
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise BadInput(f"reading the catalogue {name}: {why}; give aws, kwok or a file") from error
    if text.lstrip()[:1] == b"[":
        try:
            return _build_shared(labels.KWOK, read_instance_types(name), name)
        except Misconfigured as error:
            raise BadInput(str(error)) from error
    try:
        facts = msgspec.json.decode(text, type=_Facts)
    except msgspec.MsgspecError as error:
        raise BadInput(f"reading the catalogue {name}: {error}") from error
    chosen = subset or (usual_subset if usual_subset in facts.subsets else "")
    if chosen and chosen not in facts.subsets:
        known = ", ".join(sorted(facts.subsets)) or "none"
        raise BadInput(f"reading the catalogue {name}: it has no subset {chosen!r}; it has {known}")
    wanted = set(facts.subsets[chosen]) if chosen else {fact.name for fact in facts.types}
    found = tuple(_build_instance_type(fact, facts.zones) for fact in facts.types if fact.name in wanted)
    return _build_shared(labels.AWS, found, name)


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


def _build_instance_type(fact: _Fact, zones: list[str]) -> InstanceType:
    known = {
        labels.INSTANCE_TYPE: (fact.name,),
        labels.ARCH: (fact.arch,),
        labels.OS: ("linux",),
        labels.ZONE: tuple(zones),
        labels.CAPACITY_TYPE: _list_capacity_types(fact),
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
        requirements=Requirements({k: parse_values("In", v) for k, v in known.items() if all(v) and v}),
        offerings=tuple(
            _build_offering(fact, zone, capacity_type)
            for zone in zones
            for capacity_type in _list_capacity_types(fact)
        ),
        capacity={
            "cpu": Quantity.parse(f"{fact.capacity.cpu_milli}m"),
            "memory": Quantity.parse(f"{fact.capacity.memory_mib}Mi"),
            "pods": Quantity.parse(str(fact.capacity.pods)),
        },
        overhead=Overhead(kube_reserved=kept),
    )


def _list_capacity_types(fact: _Fact) -> tuple[str, ...]:
    priced_types = ((labels.ON_DEMAND, fact.on_demand), (labels.SPOT, fact.spot))
    return tuple(capacity_type for capacity_type, priced in priced_types if priced)


def _build_offering(fact: _Fact, zone: str, capacity_type: str) -> Offering:
    price = fact.on_demand if capacity_type == labels.ON_DEMAND else fact.spot.get(zone)
    requirements = {
        labels.ZONE: parse_values("In", (zone,)),
        labels.CAPACITY_TYPE: parse_values("In", (capacity_type,)),
    }
    return Offering(
        requirements=Requirements(requirements),
        price=price or 0.0,
        available=price is not None,
        price_unknown=price is None,
    )

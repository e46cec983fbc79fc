"""Which instance types a fleet is offered, filter by filter."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from dovetail.api import labels
from dovetail.errors import InsufficientCapacity
from dovetail.providers.aws.fleet import choose_capacity_type, choose_tenancy
from dovetail.providers.aws.type_filters import filter_types
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements, parse_values
from support.builders import amounts, requirement

ON_DEMAND, SPOT, RESERVED = labels.ON_DEMAND, labels.SPOT, labels.RESERVED
ALL = (ON_DEMAND, SPOT, RESERVED)


def offering(
    way: str,
    price: float,
    zone: str = "a",
    *,
    available: bool = True,
    left: int = 0,
    kind: str = "default",
    interruptible: bool = False,
) -> Offering:
    known = {labels.CAPACITY_TYPE: parse_values("In", (way,)), labels.ZONE: parse_values("In", (zone,))}
    name = f"cr-{zone}-{left}-{kind}-{interruptible}" if way == RESERVED else ""
    of_reservation = {
        labels.CAPACITY_RESERVATION_ID: name,
        labels.CAPACITY_RESERVATION_TYPE: kind if name else "",
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: str(interruptible).lower() if name else "",
    }
    known |= {key: parse_values("In", (value,) if value else ()) for key, value in of_reservation.items()}
    return Offering(
        requirements=Requirements(known),
        price=price,
        available=available,
        reservation_id=name,
        reservation_capacity=left,
    )


def instance_type(name: str, *offerings: Offering, cpu: str = "4", **more: str) -> InstanceType:
    size = name.partition(".")[2]
    known = {
        labels.INSTANCE_TYPE: (name,),
        labels.INSTANCE_SIZE: (size,),
        labels.INSTANCE_FAMILY: (name.partition(".")[0],),
        labels.CAPACITY_TYPE: {each.capacity_type for each in offerings},
        labels.ZONE: {each.zone for each in offerings},
    }
    return InstanceType(
        name=name,
        requirements=Requirements({key: parse_values("In", values) for key, values in known.items()}),
        offerings=offerings,
        capacity=amounts({"cpu": cpu, "pods": "110", **more}),
    )


def chosen(
    types: Iterable[InstanceType], *ways: str, min_values: int | None = None, strict: bool = True
) -> dict[str, list[float]]:
    """The types left, with the prices of the offerings left."""
    wanted = [requirement(labels.CAPACITY_TYPE, "In", *(ways or ALL))]
    if min_values is not None:
        wanted.append(requirement(labels.INSTANCE_TYPE, "Exists", min_values=min_values))
    left = filter_types(list(types), Requirements.from_expressions(wanted), amounts(cpu="1"), strict=strict)
    return {each.name: [o.price for o in each.offerings] for each in left}


@pytest.mark.spec("aws-178")
def test_the_sixty_cheapest_types_are_offered_cheapest_first() -> None:
    types = [instance_type(f"m{n}.large", offering(ON_DEMAND, 1 + (n * 37) % 101)) for n in range(101)]
    left = chosen(types)
    assert len(left) == 60
    prices = [price for (price,) in left.values()]
    assert prices == sorted(prices) == [1 + n for n in range(60)]


@pytest.mark.spec("aws-179")
def test_metal_and_accelerators_are_for_those_who_need_or_ask_for_variety() -> None:
    plain = instance_type("m5.large", offering(ON_DEMAND, 3))
    exotic = [
        instance_type("m5.metal", offering(ON_DEMAND, 1)),
        instance_type("m5.metal-24xl", offering(ON_DEMAND, 1)),
        instance_type("g5.large", offering(ON_DEMAND, 1), **{"nvidia.com/gpu": "1"}),
        instance_type("g4ad.large", offering(ON_DEMAND, 1), **{"amd.com/gpu": "1"}),
        instance_type("dl1.large", offering(ON_DEMAND, 1), **{"habana.ai/gaudi": "1"}),
        instance_type("inf2.large", offering(ON_DEMAND, 1), **{"aws.amazon.com/neuron": "1"}),
    ]
    assert list(chosen([plain, *exotic])) == ["m5.large"]
    assert len(chosen(exotic)) == len(exotic)
    assert len(chosen([plain, *exotic], min_values=2)) == len(exotic) + 1


@pytest.mark.spec("aws-180")
def test_spot_dearer_than_the_cheapest_on_demand_is_not_worth_its_risk() -> None:
    types = [
        instance_type("od.large", offering(ON_DEMAND, 5), offering(ON_DEMAND, 10, "b")),
        instance_type("a.large", offering(SPOT, 1), offering(SPOT, 2, "b")),
        instance_type("b.large", offering(SPOT, 1), offering(SPOT, 10, "b")),
        instance_type("c.large", offering(SPOT, 10), offering(SPOT, 15, "b")),
    ]
    assert chosen(types) == {"a.large": [1, 2], "b.large": [1], "od.large": [5, 10]}
    assert len(chosen(types[1:])) == 3, "only spot is there"
    assert len(chosen(types, SPOT)) == 3, "only spot is allowed"
    assert len(chosen(types, min_values=1)) == 4, "variety was asked for"
    assert chosen([types[0]]) == {"od.large": [5, 10]}


@pytest.mark.spec("aws-181")
def test_in_each_zone_the_reservation_with_most_left_is_used() -> None:
    types = [
        instance_type(
            "a.large",
            offering(RESERVED, 1, "a", left=4),
            offering(RESERVED, 2, "b", left=5),
            offering(RESERVED, 3, "b", left=6),
            offering(RESERVED, 4, "c", left=9, available=False),
            offering(RESERVED, 5, "c", left=2),
            offering(ON_DEMAND, 9),
        ),
        instance_type("b.large", offering(ON_DEMAND, 1), offering(SPOT, 1)),
    ]
    assert chosen(types) == {"a.large": [1, 3, 5]}
    assert chosen(types[1:]) == {"b.large": [1, 1]}
    assert chosen(types, ON_DEMAND, SPOT) == {"b.large": [1, 1], "a.large": [9]}


@pytest.mark.spec("aws-182")
def test_a_fleet_takes_one_kind_of_reservation_the_cheapest() -> None:
    default = instance_type("a.large", offering(RESERVED, 2, left=1))
    block = instance_type("b.large", offering(RESERVED, 1, left=1, kind="capacity-block"))
    interruptible = instance_type("c.large", offering(RESERVED, 3, left=1, interruptible=True))
    assert list(chosen([default, block, interruptible])) == ["b.large"]
    assert list(chosen([default, interruptible])) == ["a.large"]
    equal = [
        instance_type("c.large", offering(RESERVED, 1, left=1, interruptible=True)),
        instance_type("b.large", offering(RESERVED, 1, left=1, kind="capacity-block")),
        instance_type("a.large", offering(RESERVED, 1, left=1)),
    ]
    assert list(chosen(equal)) == ["a.large"]
    assert list(chosen(equal[:2])) == ["b.large"]
    other = instance_type("d.large", offering(ON_DEMAND, 9))
    assert list(chosen([*equal, other], ON_DEMAND)) == ["d.large"]


@pytest.mark.spec("aws-183")
def test_a_capacity_block_is_one_type_in_one_place() -> None:
    types = [
        instance_type("a.large", offering(RESERVED, 3, "a", left=1, kind="capacity-block")),
        instance_type(
            "b.large",
            offering(RESERVED, 1, "a", left=0, kind="capacity-block", available=False),
            offering(RESERVED, 4, "b", left=9, kind="capacity-block"),
            offering(RESERVED, 2, "c", left=1, kind="capacity-block"),
        ),
    ]
    assert chosen(types) == {"b.large": [2]}


@pytest.mark.spec("aws-187")
def test_variety_that_truncation_takes_away_is_a_lack_of_capacity_unless_best_effort_will_do() -> None:
    types = [instance_type(f"m{n}.large", offering(ON_DEMAND, n + 1)) for n in range(100)]
    with pytest.raises(InsufficientCapacity, match="truncation"):
        chosen(types, min_values=61)
    assert len(chosen(types, min_values=61, strict=False)) == 60
    assert len(chosen(types, min_values=60)) == 60


@pytest.mark.spec("aws-197")
def test_nothing_that_fits_is_a_lack_of_capacity() -> None:
    small = instance_type("a.small", offering(ON_DEMAND, 1), cpu="500m")
    gone = instance_type("b.large", offering(ON_DEMAND, 1, available=False))
    with pytest.raises(InsufficientCapacity, match="no instance type meets"):
        chosen([small, gone])
    with pytest.raises(InsufficientCapacity, match="no instance type meets"):
        chosen([])


@pytest.mark.spec("aws-184")
def test_reserved_comes_before_spot_and_spot_before_on_demand() -> None:
    reserved = instance_type("a.large", offering(RESERVED, 1, left=1))
    spot = instance_type("b.large", offering(SPOT, 1), offering(ON_DEMAND, 2))
    any_way = Requirements()
    assert choose_capacity_type([reserved, spot], any_way) == RESERVED
    assert choose_capacity_type([spot], any_way) == SPOT
    assert choose_capacity_type([instance_type("c.large", offering(ON_DEMAND, 1))], any_way) == ON_DEMAND
    every = Requirements.from_expressions([requirement(labels.CAPACITY_TYPE, "In", *ALL)])
    assert choose_capacity_type([reserved, spot], every) == RESERVED
    bought = Requirements.from_expressions([requirement(labels.CAPACITY_TYPE, "In", ON_DEMAND)])
    assert choose_capacity_type([reserved, spot], bought) == ON_DEMAND


def test_dedicated_hardware_is_for_those_who_insist() -> None:
    key = labels.INSTANCE_TENANCY
    assert choose_tenancy(Requirements()) == "default"
    assert (
        choose_tenancy(Requirements.from_expressions([requirement(key, "In", "default", "dedicated")]))
        == "default"
    )
    assert choose_tenancy(Requirements.from_expressions([requirement(key, "In", "dedicated")])) == "dedicated"

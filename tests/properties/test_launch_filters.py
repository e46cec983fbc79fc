"""What holds for every launch, whatever is for sale and whatever a claim asks for."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from dovetail.api import labels
from dovetail.api.nodeclass import Subnet
from dovetail.errors import InsufficientCapacity
from dovetail.providers.aws.fleet import build_configurations, choose_capacity_type, with_capacity_type
from dovetail.providers.aws.launch_templates import LaunchTemplate
from dovetail.providers.aws.network import SubnetChoice
from dovetail.providers.aws.type_filters import MOST_TYPES, filter_types
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.requirements import Requirements, parse_values
from support.builders import amounts

ZONES = ("a", "b", "c")
WAYS = (labels.ON_DEMAND, labels.SPOT, labels.RESERVED)
KINDS = (("default", "false"), ("capacity-block", "false"), ("default", "true"))


@st.composite
def offerings(draw: st.DrawFn) -> Offering:
    way, zone = draw(st.sampled_from(WAYS)), draw(st.sampled_from(ZONES))
    known = {labels.CAPACITY_TYPE: parse_values("In", (way,)), labels.ZONE: parse_values("In", (zone,))}
    reservation = ""
    if way == labels.RESERVED:
        reservation = f"cr-{draw(st.integers(1, 5))}"
        kind, interruptible = draw(st.sampled_from(KINDS))
        known |= {
            labels.CAPACITY_RESERVATION_ID: parse_values("In", (reservation,)),
            labels.CAPACITY_RESERVATION_TYPE: parse_values("In", (kind,)),
            labels.CAPACITY_RESERVATION_INTERRUPTIBLE: parse_values("In", (interruptible,)),
        }
    return Offering(
        requirements=Requirements(known),
        price=draw(st.integers(1, 9)),
        available=draw(st.booleans()),
        reservation_id=reservation,
        reservation_capacity=draw(st.integers(0, 3)),
    )


@st.composite
def catalogues(draw: st.DrawFn) -> list[InstanceType]:
    sizes = draw(st.lists(st.sampled_from(("large", "metal")), max_size=8))
    return [
        InstanceType(
            name=f"m{at}.{size}",
            requirements=Requirements({labels.INSTANCE_TYPE: parse_values("In", (f"m{at}.{size}",))}),
            offerings=tuple(draw(st.lists(offerings(), max_size=6))),
            capacity=amounts(cpu=draw(st.integers(1, 4))),
        )
        for at, size in enumerate(sizes)
    ]


@st.composite
def wishes(draw: st.DrawFn) -> Requirements:
    ways = draw(st.sets(st.sampled_from(WAYS), min_size=1))
    zones = draw(st.sets(st.sampled_from(ZONES), min_size=1))
    least = draw(st.none() | st.integers(1, 3))
    return Requirements(
        {
            labels.CAPACITY_TYPE: parse_values("In", ways),
            labels.ZONE: parse_values("In", zones),
            labels.INSTANCE_TYPE: parse_values("Exists", (), least),
        }
    )


def bought(types: Sequence[InstanceType], wanted: Requirements) -> list[tuple[str, str, Offering]]:
    return [
        (each.name, offering.zone, offering)
        for each in types
        for offering in each.offerings
        if offering.capacity_type == choose_capacity_type(types, wanted)
    ]


@given(catalogues(), wishes())
def test_what_is_chosen_was_for_sale_allowed_and_large_enough(
    types: list[InstanceType], wanted: Requirements
) -> None:
    try:
        left = filter_types(types, wanted, amounts(cpu="2"), strict=False)
    except InsufficientCapacity:
        return
    before = {each.name: each for each in types}
    assert 0 < len(left) <= MOST_TYPES
    for each in left:
        assert each.capacity["cpu"].value >= 2
        assert each.offerings
        for offering in each.offerings:
            assert offering in before[each.name].offerings
            assert offering.available
            assert offering.capacity_type in wanted[labels.CAPACITY_TYPE]
            assert offering.zone in wanted[labels.ZONE]
    prices = [min(offering.price for offering in each.offerings) for each in left]
    assert prices == sorted(prices)


@given(catalogues(), wishes())
def test_a_claim_finds_nothing_only_where_nothing_is_for_sale(
    types: list[InstanceType], wanted: Requirements
) -> None:
    sold = any(
        offering.available
        and offering.capacity_type in wanted[labels.CAPACITY_TYPE]
        and offering.zone in wanted[labels.ZONE]
        for each in types
        if each.capacity["cpu"].value >= 2
        for offering in each.offerings
    )
    try:
        found = bool(filter_types(types, wanted, amounts(cpu="2"), strict=False))
    except InsufficientCapacity:
        found = False
    assert found == sold


@given(catalogues(), wishes())
def test_a_fleet_is_offered_each_place_once_and_one_kind_of_reservation(
    types: list[InstanceType], wanted: Requirements
) -> None:
    try:
        left = filter_types(types, wanted, amounts(cpu="2"), strict=False)
    except InsufficientCapacity:
        return
    way = choose_capacity_type(left, wanted)
    choice = SubnetChoice({zone: Subnet(id=f"subnet-{zone}", zone=zone) for zone in ZONES})
    made = build_configurations(
        [LaunchTemplate("t", "ami", tuple(left))], with_capacity_type(wanted, way), choice
    )
    places = [(each["InstanceType"], each["SubnetId"]) for config in made for each in config["Overrides"]]
    assert places
    assert len(places) == len(set(places))
    if way == labels.RESERVED:
        kinds = {
            (
                offering.requirements[labels.CAPACITY_RESERVATION_TYPE].only,
                offering.requirements[labels.CAPACITY_RESERVATION_INTERRUPTIBLE].only,
            )
            for _, _, offering in bought(left, wanted)
        }
        assert len(kinds) == 1
        assert len({(name, zone) for name, zone, _ in bought(left, wanted)}) == len(bought(left, wanted))

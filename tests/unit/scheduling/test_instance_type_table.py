"""The indexed catalogue against its slow twin: asking every instance type in turn."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api import labels as names
from dovetail.scheduling.model.instance_type_table import InstanceTypeTable, iterate_bits
from dovetail.scheduling.model.instance_types import (
    InstanceType,
    Offering,
    find_lowest_price,
    list_usable_offerings,
)
from dovetail.scheduling.model.requirements import NOTHING, Requirements, Values, parse_values
from dovetail.scheduling.model.resources import convert_to_nano, fits_within
from support.builders import amounts
from support.worlds import FLAVOUR, Z1, Z2, Z3, instance_type, offering

WELL_KNOWN = FLAVOUR.well_known


@st.composite
def offerings(draw: st.DrawFn) -> Offering:
    override = draw(st.sampled_from([{}, {}, {"fake.com/x": "2"}, {"cpu": "1"}]))
    return offering(
        draw(st.sampled_from([Z1, Z2, Z3])),
        draw(st.sampled_from(["spot", "on-demand"])),
        draw(st.sampled_from([0.5, 1.0, 2.0])),
        draw(st.booleans()),
        capacity_override=amounts(override),
    )


@st.composite
def catalogs(draw: st.DrawFn) -> list[InstanceType]:
    return [
        instance_type(
            f"type-{i}",
            draw(st.sampled_from([0.05, 1, 2, 4, 8])),
            draw(st.sampled_from(["1Gi", "4Gi", "16Gi"])),
            draw(st.integers(1, 9)),
            draw(st.sampled_from(["amd64", "arm64"])),
            offerings=draw(st.lists(offerings(), max_size=4)),
            labels={"team": draw(st.sampled_from([NOTHING, Values(frozenset("ab"))]))},
        )
        for i in range(draw(st.integers(1, 8)))
    ]


CHOICES: dict[str, list[str]] = {
    names.ZONE: [f"In {Z1}", f"In {Z1} {Z2}", f"NotIn {Z3}"],
    names.CAPACITY_TYPE: ["In spot", "Exists"],
    names.ARCH: ["In arm64", "NotIn arm64"],
    "integer": ["Gt 1", "Lt 4"],
    "team": ["In a", "DoesNotExist", "NotIn a b"],
}


@st.composite
def wanted(draw: st.DrawFn) -> Requirements:
    keys = draw(st.sets(st.sampled_from(sorted(CHOICES))))
    picked = {key: draw(st.sampled_from(CHOICES[key])).split() for key in sorted(keys)}
    return Requirements({key: parse_values(operator, values) for key, (operator, *values) in picked.items()})


totals = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["0", "900m", "3"]), "memory": st.sampled_from(["0", "2Gi", "15Gi"])},
    optional={"pods": st.just("3"), "fake.com/x": st.sampled_from(["0", "1", "3"])},
)


@settings(max_examples=150, deadline=None)
@given(catalogs(), wanted(), totals)
def test_the_table_answers_as_every_type_would(
    types: list[InstanceType], asked: Requirements, total: dict[str, str]
) -> None:
    table = InstanceTypeTable(types, WELL_KNOWN)
    needed = amounts(total)
    suited = {i for i, each in enumerate(types) if each.requirements.intersects(asked)}
    assert set(iterate_bits(table.match_requirements(asked))) == suited
    offered = {i for i, each in enumerate(types) if any(list_usable_offerings(each, asked, WELL_KNOWN))}
    assert set(iterate_bits(table.fold_variants(table.find_offered(asked)))) == offered
    assert table.list_prices(asked) == [find_lowest_price(each, asked, WELL_KNOWN) for each in types]
    roomy = {
        i
        for i, each in enumerate(types)
        for group in each.allocatable_groups()
        if fits_within(convert_to_nano(needed), convert_to_nano(group.allocatable))
        and any(asked.is_compatible(deal.requirements, WELL_KNOWN) for deal in group.offerings)
    }
    assert (
        set(
            iterate_bits(
                table.fold_variants(table.find_roomy(convert_to_nano(needed), table.find_offered(asked)))
            )
        )
        == roomy
    )
    assert table.fold_variants(table.unfold_types(table.everything)) == table.everything

"""The indexed catalogue against its slow twin: asking every instance type in turn."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api import labels as names
from dovetail.api.quantity import fits
from dovetail.scheduling.catalog import InstanceType, Offering, price, usable
from dovetail.scheduling.requirements import NOTHING, Requirements, Values, values_of
from dovetail.scheduling.resources import nano
from dovetail.scheduling.typetable import TypeTable, bits
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
    return Requirements({key: values_of(operator, values) for key, (operator, *values) in picked.items()})


totals = st.fixed_dictionaries(
    {"cpu": st.sampled_from(["0", "900m", "3"]), "memory": st.sampled_from(["0", "2Gi", "15Gi"])},
    optional={"pods": st.just("3"), "fake.com/x": st.sampled_from(["0", "1", "3"])},
)


@settings(max_examples=150, deadline=None)
@given(catalogs(), wanted(), totals)
def test_the_table_answers_as_every_type_would(
    types: list[InstanceType], asked: Requirements, total: dict[str, str]
) -> None:
    table = TypeTable(types, WELL_KNOWN)
    needed = amounts(total)
    suited = {i for i, each in enumerate(types) if each.requirements.intersects(asked)}
    assert set(bits(table.matching_all(asked))) == suited
    offered = {i for i, each in enumerate(types) if any(usable(each, asked, WELL_KNOWN))}
    assert set(bits(table.fold(table.offered(asked)))) == offered
    assert table.prices(asked) == [price(each, asked, WELL_KNOWN) for each in types]
    roomy = {
        i
        for i, each in enumerate(types)
        for group in each.allocatable_groups()
        if fits(needed, group.allocatable)
        and any(asked.compatible(deal.requirements, WELL_KNOWN) for deal in group.offerings)
    }
    assert set(bits(table.fold(table.roomy(nano(needed), table.offered(asked))))) == roomy
    assert table.fold(table.unfold(table.everything)) == table.everything

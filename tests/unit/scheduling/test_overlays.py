"""NodeOverlays: corrected prices and capacities, and who has the last word."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.bad_items import mark_set_aside
from dovetail.api.overlay import NodeOverlay, NodeOverlaySpec
from dovetail.api.pod import NodeSelectorRequirement
from dovetail.api.reasons import CONFLICT
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.node_overlays import (
    RUNTIME_VALIDATION,
    OverlaidTypes,
    adjust_price,
    apply_overlays,
)
from support.builders import amounts, meta, nodepool, pod
from support.vectors import cases
from support.worlds import FLAVOUR, Z1, Z2, World, instance_type, offering


def overlay(
    name: str,
    *asked: tuple[str, ...],
    weight: int | None = None,
    capacity: dict[str, str] | None = None,
    **spec: Any,
) -> NodeOverlay:
    return NodeOverlay(
        metadata=meta("nodeoverlay", name),
        spec=NodeOverlaySpec(
            requirements=tuple(
                NodeSelectorRequirement(key=key, operator=operator, values=values)
                for key, operator, *values_list in asked
                for values in [tuple(values_list)]
            ),
            weight=weight,
            capacity=amounts(capacity),
            **spec,
        ),
    )


TYPES = (
    instance_type("a", offerings=[offering(Z1, "spot", 1.0), offering(Z2, "on-demand", 2.0)]),
    instance_type("b", 8, "16Gi", offerings=[offering(Z1, "spot", 3.0), offering(Z2, "on-demand", 4.0)]),
)
EVERY = (names.ARCH, "Exists")


def judged(*overlays: NodeOverlay, types: tuple[InstanceType, ...] = TYPES) -> OverlaidTypes:
    return apply_overlays([(nodepool(), types)], overlays, FLAVOUR)


def prices(found: OverlaidTypes, pool: str = "default") -> dict[str, list[float]]:
    return {each.name: [o.price for o in each.offerings] for each in found.types[pool]}


def reasons(found: OverlaidTypes) -> dict[str, str]:
    return {each.overlay: each.reason for each in found.statuses}


@pytest.mark.parametrize("price", ["many", "NaN", "1e400", "+x%", ""])
def test_an_overlay_whose_price_is_no_number_is_turned_down_and_no_other_is(price: str) -> None:
    found = judged(overlay("bad", EVERY, price=price), overlay("good", EVERY, price="7", weight=1))
    assert reasons(found)["good"] == ""
    assert reasons(found)["bad"] == (RUNTIME_VALIDATION if price else "")
    assert prices(found) == {"a": [7.0, 7.0], "b": [7.0, 7.0]}


def test_an_overlay_that_is_set_aside_corrects_nothing() -> None:
    """What is left of it may have lost a requirement: it would be about every instance type."""
    found = judged(mark_set_aside(overlay("bad", price="7"), "spec.requirements cannot be read"))
    assert reasons(found) == {"bad": RUNTIME_VALIDATION}
    assert prices(found) == prices(judged())


@pytest.mark.contains_bugs
def test_an_overlay_that_cannot_be_judged_is_turned_down_and_no_other_is() -> None:
    no_text: Any = None
    found = judged(overlay("bad", (names.ARCH, "In", no_text), price="1"), overlay("good", EVERY, price="7"))
    assert reasons(found) == {"good": "", "bad": RUNTIME_VALIDATION}
    assert prices(found)["a"] == [7.0, 7.0]


@pytest.mark.spec("T-280")
@pytest.mark.parametrize(
    ("price", "change", "result"),
    [
        (1.02, "13234.223", 13234.223),
        (1.02, "+1000", 1001.02),
        (10, "-10%", 9),
        (10, "-200%", 0),
        (10, "-15", 0),
        (1.25, "+0.75", 2),
    ],
)
def test_prices_are_set_shifted_or_scaled_but_never_negative(
    price: float, change: str, result: float
) -> None:
    assert adjust_price(price, change) == pytest.approx(result)


def test_prices_change_as_in_the_original() -> None:
    for case in cases("instance-types"):
        if case["kind"] != "adjustedPrice":
            continue
        if "panic" in case:
            with pytest.raises(ValueError):
                adjust_price(case["price"], case["change"])
        else:
            assert adjust_price(case["price"], case["change"]) == pytest.approx(case["result"])


@pytest.mark.spec("T-281")
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ((names.ZONE, "In", Z1), {"a": [9.0, 2.0], "b": [9.0, 4.0]}),
        ((names.CAPACITY_TYPE, "In", "on-demand"), {"a": [1.0, 9.0], "b": [3.0, 9.0]}),
        ((names.INSTANCE_TYPE, "In", "a"), {"a": [9.0, 9.0], "b": [3.0, 4.0]}),
    ],
)
def test_only_matching_offerings_change(asked: tuple[str, ...], expected: dict[str, list[float]]) -> None:
    assert prices(judged(overlay("o", asked, price="9"))) == expected


@pytest.mark.spec("T-282")
@pytest.mark.parametrize("second", ["5", "9"])
def test_of_two_equal_overlays_the_earlier_name_gives_way(second: str) -> None:
    found = judged(overlay("alpha", EVERY, price=second), overlay("beta", EVERY, price="9"))
    assert reasons(found) == {"beta": "", "alpha": CONFLICT}
    assert prices(found)["a"] == [9.0, 9.0]


@pytest.mark.spec("T-282")
def test_different_weights_or_selections_do_not_conflict_and_the_heavier_wins() -> None:
    found = judged(overlay("light", EVERY, price="5"), overlay("heavy", EVERY, price="9", weight=10))
    assert set(reasons(found).values()) == {""}
    assert prices(found)["b"] == [9.0, 9.0]
    apart = judged(
        overlay("one", (names.INSTANCE_TYPE, "In", "a"), price="5"),
        overlay("two", (names.INSTANCE_TYPE, "In", "b"), price="6"),
    )
    assert set(reasons(apart).values()) == {""}


@pytest.mark.spec("T-283")
def test_a_conflicting_overlay_changes_nothing_anywhere() -> None:
    found = apply_overlays(
        [(nodepool("one"), TYPES), (nodepool("two"), TYPES)],
        [
            overlay("wide", EVERY, price="5"),
            overlay("zonal", (names.INSTANCE_TYPE, "In", "a"), (names.NODEPOOL, "In", "one"), price="7"),
        ],
        FLAVOUR,
    )
    assert reasons(found) == {"zonal": "", "wide": CONFLICT}
    assert prices(found, "one") == {"a": [7.0, 7.0], "b": [3.0, 4.0]}
    assert prices(found, "two") == {"a": [1.0, 2.0], "b": [3.0, 4.0]}


@pytest.mark.spec("T-284")
def test_capacities_merge_and_core_resources_are_refused() -> None:
    found = judged(
        overlay("one", EVERY, capacity={"fake.com/x": "1"}),
        overlay("two", EVERY, capacity={"fake.com/y": "2"}),
        overlay("three", EVERY, capacity={"cpu": "9"}),
        overlay("zero", EVERY, capacity={"fake.com/y": "3"}),
    )
    assert reasons(found) == {"zero": "", "two": CONFLICT, "three": RUNTIME_VALIDATION, "one": ""}
    a = found.types["default"][0]
    assert (a.capacity["fake.com/x"], a.capacity["fake.com/y"]) == tuple(
        amounts({"x": "1", "y": "3"}).values()
    )
    assert a.capacity_overlaid


def test_overlaid_types_are_bought_at_their_new_price_and_say_so() -> None:
    found = judged(overlay("o", (names.INSTANCE_TYPE, "In", "b"), price="0.1"))
    (node,) = World(types=found.types["default"]).solve(pod("web")).new_nodes
    assert (node.instance_type, node.price) == ("b", 0.1)
    assert node.annotations == {names.PRICE_OVERLAY_APPLIED: "true"}


def test_keys_the_types_do_not_know_select_nothing() -> None:
    found = judged(overlay("o", ("team", "In", "a"), price="9"))
    assert prices(found) == {"a": [1.0, 2.0], "b": [3.0, 4.0]}


def test_a_price_makes_an_unknown_one_known_and_a_change_leaves_it_unknown() -> None:
    unknown = replace(TYPES[0].offerings[0], price=0.0, price_unknown=True, available=False)
    types = (replace(TYPES[0], offerings=(unknown,)),)
    named, changed = overlay("o", EVERY, price="5"), overlay("o", EVERY, price_adjustment="+5")
    for said, price in ((named, 5.0), (changed, None)):
        found = judged(said, types=types)
        (deal,) = found.types["default"][0].offerings
        assert (None if deal.price_unknown else deal.price) == price
        assert deal.price_overlaid
        assert not deal.available

"""The page of rules, the column of held dollars, and prices that are worked out when somebody looks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace as swap
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from dovetail.app.dashboard_rules import OLD, RulePricer
from dovetail.disruption.pricing_rules import PriceKind, RulePrice
from dovetail.disruption.rules import Rule, RuleKind
from dovetail.disruption.situation import Situation
from dovetail.errors import Retry
from dovetail.picture import PricedRules
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.web import build_document, find_page
from dovetail.web.render import PageFrame, render_page
from support.builders import NOW, pod
from support.dashboard_snapshots import disrupted, pictured
from support.disruption import LARGE, pdb, scene, state

EVIL = "<script>alert(1)</script>"


def make_price(name: str, kind: PriceKind, dollars: float, **nodes: float) -> RulePrice:
    rule = Rule(name=name, kind=RuleKind.PDB, subject=name, words=f"{name} {EVIL}")
    return RulePrice(
        rule=rule, kind=kind, costs_now=dollars, at_most=dollars * 2, how="one node stays", nodes=nodes
    )


def test_the_page_has_held_and_shape_apart_and_says_as_of_when() -> None:
    prices = (make_price("pdb/shop/db", PriceKind.HELD, 0.58), make_price("zone/z", PriceKind.SHAPE, 0.25))
    picture = swap(pictured(disrupted()), rules=PricedRules(prices, NOW))
    page = find_page(picture, "rules")
    assert page is not None
    assert "As of 12:00 UTC, the dearest rule is pdb/shop/db" in page.sentence
    document = build_document(page)
    (held,), (shape,) = document["heldRules"], document["shapeRules"]
    assert (held["name"], held["costsNow"], held["atMost"]) == ("pdb/shop/db", 0.58, 1.16)
    assert shape["monthly"] == 0.25 * 730
    assert any("held and shape never do" in each for each in page.remarks)
    shown = render_page(page, PageFrame("rules", "test", "now", True, "1"))
    assert EVIL not in shown
    assert "&lt;script&gt;" in shown


def test_without_prices_the_page_says_why() -> None:
    for rules, said in (
        (PricedRules(), "`dovetail price-of` does it"),
        (PricedRules(why="It is being worked out."), "It is being worked out."),
        (PricedRules((), NOW), "no rule costs a cent an hour"),
    ):
        page = find_page(swap(pictured(disrupted()), rules=rules), "rules")
        assert page is not None
        assert said in page.sentence


def test_blocked_nodes_have_a_column_of_what_their_dearest_rule_costs_with_them() -> None:
    picture = pictured(disrupted())
    blocked = picture.survey.blocked_nodes[0].name
    page = find_page(picture, "disruption")
    assert page is not None
    assert {row["held"] for row in build_document(page)["staying"]} == {None}
    prices = (
        make_price("pdb/a/b", PriceKind.HELD, 0.5, **{blocked: 0.25}),
        make_price("pdb/a/c", PriceKind.HELD, 0.3, **{blocked: 0.3}),
    )
    page = find_page(swap(picture, rules=PricedRules(prices, NOW)), "disruption")
    assert page is not None
    rows = {row["node"]: row["held"] for row in build_document(page)["staying"]}
    assert rows.pop(blocked) == 0.3
    assert set(rows.values()) <= {None}


class CountingCompute:
    """Work done at once, unless it is to fail."""

    def __init__(self) -> None:
        self.asked = 0
        self.fails = False

    async def __call__(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        if self.fails:
            raise Retry("computing: two workers died on it")
        return work(*args, **kwargs)

    async def map_items(self, work: Callable[..., Any], shared: Any, items: Any) -> list[Any]:
        return list(work(shared, items))


def build_situation(minutes: float = 0.0) -> Situation:
    web = pod("w", cpu="500m", labels={"app": "web"}, node="held")
    found = scene(state("held", web, of=LARGE), pdbs=[pdb(max_unavailable=0)]).snapshot
    later = replace(found.options, now=found.options.now + timedelta(minutes=minutes))
    return Situation(snapshot=replace(found, options=later))


def test_prices_are_worked_out_when_somebody_looks_and_again_when_they_are_old() -> None:
    async def main() -> None:
        clock, compute, told = VirtualClock(NOW), CountingCompute(), list[int]()
        pricer = RulePricer(clock, compute)
        assert "not been looked at" in pricer.find_prices().why
        pricer.start(None, lambda: told.append(1))
        pricer.note_situation(build_situation())
        assert compute.asked == 0, "nobody has looked"
        assert "is being worked out" in pricer.find_prices().why
        assert "is being worked out" in pricer.find_prices().why
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        found = pricer.find_prices()
        assert (compute.asked, len(told)) == (1, 1)
        assert [each.rule.name for each in found.prices] == ["pdb/default/pdb"]
        assert set(found.held) == {"held"}
        pricer.note_situation(build_situation(20))
        assert pricer.find_prices() is found
        await clock.sleep(OLD + 1)
        assert pricer.find_prices() is found, "what is known is shown until there is something new"
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert compute.asked == 2
        assert pricer.find_prices().at == NOW + timedelta(minutes=20)

    run_virtual(main())


def test_a_snapshot_is_priced_once_and_a_failure_is_said() -> None:
    async def main() -> None:
        clock, compute = VirtualClock(NOW), CountingCompute()
        compute.fails = True
        pricer = RulePricer(clock, compute)
        pricer.start(build_situation(), lambda: None)
        pricer.find_prices()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "cannot be worked out now" in pricer.find_prices().why
        compute.fails = False
        await clock.sleep(OLD + 1)
        pricer.find_prices()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert pricer.find_prices().prices
        await clock.sleep(OLD + 1)
        pricer.find_prices()
        assert compute.asked == 2, "the cluster of a file never changes"

    run_virtual(main())

"""One world has one number of dollars: metrics, dashboard, plans, disruption, zones and the bill agree.

The oracle reads the drawn prices from a table of its own and knows none of the code that it judges.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import fsum, nan
from pathlib import Path
from random import Random

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodepool import NodePool
from dovetail.app.changed_plan import change_cluster, plan_change
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.dashboard_watch import build_picture
from dovetail.controllers.observing.costs import NodePoolPricing
from dovetail.controllers.ownership import Ownership
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.report import build_report
from dovetail.disruption.situation import Situation
from dovetail.history.paid import RunningPrices
from dovetail.play import play_scenario
from dovetail.providers.kwok.provider import PRICE_LABEL
from dovetail.runtime.metrics import render_exposition
from dovetail.runtime.recording_folder import read_recording
from dovetail.scheduling.bill import BillBook
from dovetail.scheduling.fleet_cost import bill_running_nodes
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    build_pools_and_catalogs,
)
from dovetail.sim.clock import VirtualClock
from dovetail.sim.scenario import ReplicaCurve, Scenario, ScenarioWorkload
from dovetail.state.changed_pods import WorldChange
from dovetail.state.cluster import Cluster
from dovetail.web.views.overview import build_overview_page
from dovetail.zonal.model.balance import measure_balance
from support.builders import NOW, pod
from support.cloud import FakeCloud
from support.disruption import pool, state
from support.worlds import FLAVOUR, RESERVATION, Z1, Z2, instance_type, offering

WORLDS = int(os.environ.get("DOVETAIL_BILLED_WORLDS", "40"))
SAME = 1e-9
EXTRAS = ("volumes", "address", "added")
PriceTable = dict[tuple[str, str, str, str, str], float]
KINDS = ("spot", "on-demand", "reserved")


@dataclass
class DrawnWorld:
    """A snapshot, and beside it what each node costs by the table it was drawn with; None if unknown."""

    snapshot: Snapshot
    types: dict[str, tuple[InstanceType, ...]]
    prices: dict[str, float | None] = field(default_factory=dict)
    extras: dict[str, float] = field(default_factory=dict)
    zones: dict[str, str] = field(default_factory=dict)
    terminating: set[str] = field(default_factory=set)

    def total(self, *, terminating: bool = True) -> float:
        return fsum(
            price
            for name, price in self.prices.items()
            if price is not None and (terminating or name not in self.terminating)
        )


def draw_world(seed: int) -> DrawnWorld:
    """Pools with prices of their own, reservations that differ, and nodes that no catalogue knows."""
    chance = Random(seed)
    table: PriceTable = {}
    extras: PriceTable = {}
    pools = [pool(f"pool-{number}") for number in range(chance.randint(1, 4))]
    types: dict[str, tuple[InstanceType, ...]] = {}
    for each in pools:
        types[each.name] = tuple(_draw_type(chance, table, extras, each.name, number) for number in range(4))
    made, catalogs = build_pools_and_catalogs([(each, types[each.name]) for each in pools])
    options = SchedulingOptions(now=NOW, flavour=FLAVOUR, reservation_label=RESERVATION)
    drawn = DrawnWorld(Snapshot(), types)
    states = [
        _draw_node(chance, table, extras, drawn, pools, number) for number in range(chance.randint(0, 12))
    ]
    drawn.snapshot = Snapshot(
        pools=made, catalogs=catalogs, nodes=tuple(states), namespaces={"default": {}}, options=options
    )
    return drawn


def _draw_type(
    chance: Random, table: PriceTable, extras: PriceTable, pool_name: str, number: int
) -> InstanceType:
    deals, name = [], f"type-{number}"
    for zone in (Z1, Z2):
        for kind in KINDS:
            for reservation in ("cr-1", "cr-2") if kind == "reserved" else ("",):
                price = nan if chance.random() < 0.05 else round(chance.uniform(0.0, 5.0), 6)
                count = 3 if reservation else 0
                deal = offering(zone, kind, price, chance.random() < 0.7, reservation, count)
                parts = {each: round(chance.uniform(0.0, 0.1), 6) for each in EXTRAS if chance.random() < 0.4}
                table[pool_name, name, zone, kind, reservation] = fsum((price, *parts.values()))
                extras[pool_name, name, zone, kind, reservation] = fsum(parts.values())
                deals.append(deal.change_parts(**parts))
    return instance_type(name, 4 * (number + 1), "32Gi", 110, offerings=deals)


def _draw_node(
    chance: Random,
    table: PriceTable,
    extras: PriceTable,
    drawn: DrawnWorld,
    pools: Sequence[NodePool],
    number: int,
) -> StateNode:
    name, kind, zone = f"node-{number:02d}", chance.choice(KINDS), chance.choice((Z1, Z2))
    owner = chance.choice(pools).name
    reservation = chance.choice(("cr-1", "cr-2")) if kind == "reserved" else ""
    chosen = chance.choice(drawn.types[owner])
    unknown = chance.random() < 0.15
    if unknown:
        chosen = replace(chosen, name="type-of-yesterday")
    made = state(
        name,
        pod(f"web-{number}", cpu="1"),
        of=chosen,
        pool=owner,
        kind=kind,
        zone=zone,
        marked=chance.random() < 0.2,
        labels={RESERVATION: reservation} if reservation else None,
    )
    price = None if unknown else table[owner, chosen.name, zone, kind, reservation]
    if chance.random() < 0.1:
        return replace(made, claim=None)  # nobody ordered it, so nobody here is billed for it
    drawn.prices[name] = None if price is None or price != price else price
    if drawn.prices[name] is not None:
        drawn.extras[name] = extras[owner, chosen.name, zone, kind, reservation]
    drawn.zones[name] = zone
    if made.marked:
        drawn.terminating.add(name)
    return made


class _PricedCloud(FakeCloud):
    """A cloud that sells each pool what was drawn for it."""

    def __init__(self, drawn: DrawnWorld) -> None:
        super().__init__(VirtualClock(NOW))
        self._drawn = drawn

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        return self._drawn.types[nodepool.name]


def _read_metric(drawn: DrawnWorld, name: str = "karpenter_nodepools_cost_total") -> float:
    """A metric of costs, as Prometheus reads it after the real controller looked."""
    cloud, cluster = _PricedCloud(drawn), Cluster(VirtualClock(NOW))
    for each in drawn.snapshot.nodes:
        if each.claim is not None and not each.marked:
            cluster.update_node_claim(None, each.claim)
    pools = [each.nodepool for each in drawn.snapshot.pools]
    pricing = NodePoolPricing(pools, cluster, Ownership(cloud), cloud)  # type: ignore[arg-type]
    asyncio.run(pricing.reconcile(""))
    pricing.report()
    lines = render_exposition().decode().splitlines()
    mine = {each.name for each in drawn.snapshot.pools}
    return fsum(
        float(line.rsplit(" ", 1)[1])
        for line in lines
        if line.startswith(f"{name}{{") and line.split('"')[1] in mine
    )


@pytest.mark.spec("BL-1", "BL-2")
@pytest.mark.parametrize("seed", range(WORLDS))
def test_one_world_has_one_number_of_dollars(seed: int) -> None:
    drawn = draw_world(seed)
    snapshot, wanted = drawn.snapshot, pytest.approx(drawn.total(), abs=SAME)
    unknown = sorted(name for name, price in drawn.prices.items() if price is None)
    bill = bill_running_nodes(snapshot)
    assert bill.total == wanted
    assert sorted(bill.unpriced) == unknown
    assert {line.node: line.listed for line in bill.lines} == pytest.approx(
        {name: price for name, price in drawn.prices.items() if price is not None}, abs=SAME
    )
    assert {line.node: line.extras for line in bill.lines} == pytest.approx(drawn.extras, abs=SAME)
    assert BillBook().bill_snapshot(snapshot) == bill

    # The dashboard: the sum at the top, and the nodes whose price nobody knows.
    picture = build_picture(SeenCluster(Situation(snapshot=snapshot)), "test", live=False)
    facts = {fact.key: fact for fact in build_overview_page(picture).facts}
    assert facts["price"].cell.value == wanted
    assert (f"{len(unknown)} without a price" in facts["price"].note) == bool(unknown)
    assert ("beside the instances" in facts["price"].note) == bool(fsum(drawn.extras.values()))

    # Zones.
    zones = {zone: [name for name, at in drawn.zones.items() if at == zone] for zone in (Z1, Z2)}
    assert {zone: dollars for zone, dollars in measure_balance(snapshot).dollars.items() if dollars} == (
        pytest.approx(
            {
                zone: dollars
                for zone, names in zones.items()
                if (dollars := fsum(drawn.prices[name] or 0.0 for name in names))
            },
            abs=SAME,
        )
    )

    # What `plan --disruption` prints of each node.
    report = build_report(DisruptionInput(snapshot))
    shown = {each.name: each.price for each in report.blocked_nodes}
    shown |= {each.name: each.price for command in report.commands for each in command.candidates}
    assert {name: shown[name] for name in drawn.prices} == pytest.approx(
        {name: price or 0.0 for name, price in drawn.prices.items()}, abs=SAME
    )

    # What a recording is billed by.
    prices = RunningPrices()
    prices.read_snapshot(snapshot)
    recorded = [
        prices.find_price(each.claim.labels[labels.NODEPOOL], each.claim.labels)
        for each in snapshot.nodes
        if each.claim is not None
    ]
    assert fsum(recorded) == wanted

    # Prometheus counts no node that is being deleted, as Karpenter's number does not.
    assert _read_metric(drawn) == pytest.approx(drawn.total(terminating=False), abs=SAME)
    running = (dollars for name, dollars in drawn.extras.items() if name not in drawn.terminating)
    told = _read_metric(drawn, "dovetail_nodepools_extras_cost")
    assert told == pytest.approx(fsum(running), abs=SAME)


@pytest.mark.spec("BL-1")
def test_the_drawn_worlds_hold_every_hard_case() -> None:
    """Else the property above could hold for want of cases."""
    drawn = [draw_world(seed) for seed in range(40)]
    assert any(None in each.prices.values() for each in drawn)
    assert any(each.terminating for each in drawn)
    assert any(state.claim is None for each in drawn for state in each.snapshot.nodes)
    assert any(len(each.snapshot.catalogs) > 1 for each in drawn)
    assert any(each.extras and max(each.extras.values()) > 0 for each in drawn)
    reserved = [each.node.labels for one in drawn for each in one.snapshot.nodes if each.node is not None]
    assert {known.get(RESERVATION) for known in reserved} >= {"cr-1", "cr-2", None}


@pytest.mark.spec("BL-1")
@pytest.mark.parametrize("extra", ["0", "0.01/node,0.002/vcpu"])
def test_a_simulated_story_costs_what_the_bill_of_its_looks_says(extra: str, tmp_path: Path) -> None:
    """The simulator's report against the looks of a recording of it; nodes carry prices of six digits."""
    story = Scenario(
        api_version="dovetail.sh/v1alpha1",
        kind="Scenario",
        name="story",
        duration="20m",
        settings={"NODE_EXTRA_HOURLY": extra, "RECORDING": f"file:{tmp_path / 'recording'}"},
        workloads=[ScenarioWorkload(name="web", cpu="900m", replicas=ReplicaCurve(value=20))],
    )
    report = play_scenario(story)
    looks = [look for look in read_recording(str(tmp_path / "recording")).looks() if look.situation]
    billed = {bill_running_nodes(look.situation.snapshot).total for look in looks}
    sampled = [each for each in report.samples if each.nodes]
    assert sampled
    for each in sampled:
        assert min(abs(each.dollars - dollars) for dollars in billed) <= 1e-6 * each.nodes
    last = looks[-1].situation.snapshot
    by_hand = fsum(
        float(state.node.labels[PRICE_LABEL]) + _read_extra(state, extra)
        for state in last.nodes
        if state.node is not None
    )
    assert bill_running_nodes(last).total == pytest.approx(by_hand, abs=1e-6)
    # What `plan --change` counts as before and after a change of nothing.
    seen = SeenCluster(Situation(snapshot=last))
    before, after = plan_change(seen, change_cluster(seen, WorldChange()), True, lambda step: None).hourly
    assert before == after == pytest.approx(by_hand, abs=1e-6)


def _read_extra(state: StateNode, extra: str) -> float:
    assert state.node is not None
    return 0.0 if extra == "0" else 0.01 + 0.002 * float(state.node.status.capacity["cpu"].value)

"""Claims under a spend limit: narrower, and never so narrow that a pod is left without a node (SL-14)."""

from __future__ import annotations

import os
from random import Random

import pytest

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.scheduling.verify import verify_plan
from support.builders import nodepool, pod, requirement
from support.worlds import Z1, Z2, World, instance_type, offering

# As many in every run; more with the variable.
WORLDS = int(os.environ.get("DOVETAIL_SPEND_WORLDS", "40"))
AMPLE = 1e6


def draw_world(seed: int) -> Snapshot:
    """Types of any size and price, some sold in one zone alone, and pods that ask for some of it."""
    chance = Random(seed)
    types = tuple(_draw_type(chance, number) for number in range(chance.choice((3, 25, 60))))
    least = chance.choice((None, None, 18))
    wanted = [requirement(labels.INSTANCE_TYPE, "Exists", min_values=least)] if least else []
    pools = [nodepool("a", requirements=wanted), nodepool("b", requirements=[])]
    return World(*pools, types=types).snapshot(*(_draw_pod(chance, number) for number in range(12)))


def _draw_type(chance: Random, number: int) -> InstanceType:
    cpu = chance.choice((2, 4, 8, 16))
    deals = [
        offering(zone, kind, round(chance.uniform(0.02, 0.3) * cpu * (1.0 if kind == "spot" else 2.5), 4))
        for zone in (Z1, Z2)
        for kind in ("spot", "on-demand")
        if chance.random() < 0.8
    ]
    deals = deals or [offering(Z1, "on-demand", 1.0 * cpu)]
    return instance_type(f"t{number:02}", cpu, f"{chance.choice((2, 4, 8)) * cpu}Gi", 110, offerings=deals)


def _draw_pod(chance: Random, number: int) -> Pod:
    chosen: dict[str, str] = {}
    if chance.random() < 0.3:
        chosen[labels.ZONE] = chance.choice((Z1, Z2))
    if chance.random() < 0.3:
        chosen[labels.CAPACITY_TYPE] = chance.choice(("spot", "on-demand"))
    cpu = chance.choice(("500m", "1", "3", "7"))
    return pod(f"p-{number}", cpu=cpu, memory=chance.choice(("1Gi", "6Gi")), node_selector=chosen)


def list_placed(plan: Plan) -> set[str]:
    return {name for node in plan.new_nodes for name in node.pods}


def find_deals(snapshot: Snapshot, node: PlannedNode) -> dict[str, list[float]]:
    """By type, the prices of offerings that a claim may be launched by."""
    zones = node.requirements[labels.ZONE]
    return {
        each.name: [
            deal.price
            for deal in each.offerings
            if deal.available and deal.zone in zones and deal.capacity_type in node.capacity_types
        ]
        for each in snapshot.catalogs[0]
        if each.name in node.instance_types
    }


@pytest.mark.spec("SL-14")
def test_narrowing_keeps_fifteen_types_and_every_pod_its_place() -> None:
    narrowed = 0
    for seed in range(WORLDS):
        snapshot = draw_world(seed)
        free = decide_plan(Situation(snapshot=snapshot))
        cap = SpendCap(limit="ample", every=True, hourly=AMPLE)
        plan = decide_plan(Situation(snapshot=snapshot, spend_caps=(cap,)))
        assert list_placed(plan) == list_placed(free), f"seed {seed}"
        assert plan.unschedulable == free.unschedulable
        assert verify_plan(snapshot, plan) == []
        for before, after in zip(free.new_nodes, plan.new_nodes, strict=True):
            assert before.pods == after.pods
            assert set(after.instance_types) <= set(before.instance_types)
            assert len(after.instance_types) >= min(15, len(before.instance_types))
            least = before.requirements[labels.INSTANCE_TYPE].min_values or 0
            assert len(after.instance_types) >= min(least, len(before.instance_types))
            deals = find_deals(snapshot, after)
            assert any(deals.values()), "something of it can be bought"
            # Beyond the fifteen that stay whatever they cost, nothing is half as dear again.
            cheap = [
                name
                for name, prices in deals.items()
                if min(prices, default=AMPLE) <= before.price * 1.5 + 1e-9
            ]
            assert len(after.instance_types) <= max(15, least, len(cheap))
            narrowed += len(after.instance_types) < len(before.instance_types)
    assert narrowed > WORLDS / 4

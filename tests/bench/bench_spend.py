"""Spend limits: what 50 of them over 100 NodePools add to a plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from msgspec.structs import replace

from dovetail.api.meta import ObjectMeta
from dovetail.api.nodepool import NodePool
from dovetail.api.spend_limit import CoveredPools, SpendLimit, SpendLimitSpec, SpendWindow
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.providers.kwok.catalog import read_instance_types
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.spend_caps import build_caps
from dovetail.scheduling.spend_plan import limit_plan
from support.builders import NOW, nodepool, pod
from support.worlds import World

from .registry import Figure, best_of, scenario

POOLS, LIMITS, RUNNING, PLANNED = 100, 50, 1_000, 200
TEAMS = 10
# Of a plan, beside the plan.
BUDGET = 0.005


def build_limits() -> tuple[SpendLimit, ...]:
    """Limits with a night window: most are of a team's ten NodePools, every tenth of all, some warn."""
    found = []
    for number in range(LIMITS):
        night = SpendWindow(schedule=f"0 {15 + number % 8} * * 1-5", duration="12h", hourly="900")
        spec: dict[str, Any] = {"hourly": "1000", "nodes": 5_000, "windows": (night,)}
        if number % 10:
            spec["node_pools"] = CoveredPools(match_labels={"team": f"team-{number % TEAMS}"})
        if number % 5 == 4:
            spec["mode"] = "Warn"
        meta = ObjectMeta(name=f"limit-{number:02}")
        found.append(SpendLimit(metadata=meta, spec=SpendLimitSpec(**spec)))
    return tuple(found)


def build_world() -> tuple[list[NodePool], Snapshot, Plan]:
    """A hundred NodePools with ten nodes each, and a plan of two more for each of them."""
    pools = []
    for number in range(POOLS):
        made = nodepool(f"pool-{number:03}", labels={"pool": f"pool-{number:03}"})
        own = {"team": f"team-{number % TEAMS}"}
        pools.append(replace(made, metadata=replace(made.metadata, labels=own)))
    types = tuple(each for each in read_instance_types() if "amd64-linux" in each.name)
    world = World(*pools, types=types)
    waiting = [
        pod(f"{each.name}-{number}", cpu="1500m", node_selector={"pool": each.name}, host_ports=(80,))
        for each in pools
        for number in range(PLANNED // POOLS)
    ]
    plan = decide_plan(Situation(snapshot=world.snapshot(*waiting)))
    assert len(plan.new_nodes) == PLANNED
    world.nodes = [world._launched(plan.new_nodes[number % PLANNED]) for number in range(RUNNING)]
    return pools, world.snapshot(*waiting), plan


@scenario("spend: 50 limits over 100 NodePools, 1,000 nodes, 200 planned")
def fifty_limits() -> Iterator[Figure]:
    pools, snapshot, plan = build_world()
    limits, cache = build_limits(), DecisionCache()

    def never(asked: Snapshot) -> Plan:
        raise AssertionError("all of it fits")

    def keep_to_limits() -> None:
        kept = limit_plan(snapshot, plan, build_caps(limits, pools, NOW), never, cache)
        assert len(kept.new_nodes) == len(plan.new_nodes)

    keep_to_limits()
    yield Figure("what limits allow, added up and kept to", best_of(20, keep_to_limits), "s", BUDGET)
    yield Figure("of that, what limits allow now", best_of(20, lambda: build_caps(limits, pools, NOW)), "s")

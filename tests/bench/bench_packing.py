"""Packing: how long until the first plan, how long to improve it, and how far above the bound it ends."""

from __future__ import annotations

import random
import resource
import sys
from collections.abc import Iterator
from typing import Any

from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.solve import QUICK, THOROUGH, build_first_plan, solve
from support.peer_workloads import PEER, generated, snapshot_of

from .registry import Figure, best_of, scenario

sys.path.insert(0, str(PEER))

MOST_ABOVE = {
    "web": 0.3,
    "mix": 0.8,
    "spot": 1.2,
    "pools": 0.3,
    "services": 2.0,
    "prefer": 3.0,
    "diverse": 5.0,
}
"""Per cent above the certified bound that a plan for 1,000 pods may end."""
FIRST = {"web": 40, "mix": 80, "spot": 120, "pools": 180, "services": 200, "prefer": 160, "diverse": 250}
"""Milliseconds of processor time that the first plan for 1,000 pods may take, once one was made before."""


@scenario("packing: 1,000 pods")
def a_thousand() -> Iterator[Figure]:
    for family, most in MOST_ABOVE.items():
        yield from _family(family, 1_000, most, improving=1.5, first_plan=FIRST[family])


@scenario("packing: 20,000 pods")
def twenty_thousand() -> Iterator[Figure]:
    for family in ("web", "mix", "diverse"):
        budget = 800.0 if family == "diverse" else 250.0
        yield from _family(family, 20_000, MOST_ABOVE[family], improving=3.0, first_plan=budget)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Figure("peak memory of this process, manifests included", peak, "MiB")


def _family(family: str, size: int, most: float, improving: float, first_plan: float) -> Iterator[Figure]:
    snapshot = snapshot_of(generated(family, size))
    cache = DecisionCache()  # as the controller has one
    first = best_of(3, lambda: build_first_plan(snapshot, QUICK, cache=cache))
    whole = best_of(1, lambda: build_first_plan(snapshot, THOROUGH, cache=cache))
    plan = build_first_plan(snapshot, THOROUGH, cache=cache)
    assert plan is not None
    yield Figure(f"{family}: first plan", 1e3 * first, "ms", first_plan)
    yield Figure(f"{family}: improving it", whole - first, "s", improving)
    yield Figure(f"{family}: above the bound", 100 * (plan.price / plan.bound_as_asked - 1), "%", most)
    yield Figure(f"{family}: nodes", len(plan.new_nodes), "")


@scenario("packing: awkward batches")
def awkward() -> Iterator[Figure]:
    import workloads  # type: ignore[import-not-found]  # hack/peer is not a package

    own = {"app": "spread"}
    rules = [workloads.spread(workloads.HOST, own)]
    spread = workloads.deployment("spread", 2_000, 250, 256, topologySpreadConstraints=rules)
    yield _timed("2,000 pods, each on a host of its own", _world([workloads.pool()], spread), 5.0)

    full = workloads.pool()
    full["spec"]["limits"] = {"cpu": "0"}
    *_, mixed = workloads.mix(random.Random(1), 15_000)
    yield _timed("15,000 pods against a pool at its limit", _world([full], mixed), 3.0)

    chance = random.Random(2)
    pools, _, _, teams = workloads.pools(chance, 2_170)
    others, bound = workloads.fleet(chance, 1_060, 0.35, 0.65)
    for index, each in enumerate(others):
        _hand_over(each, f"team-{index // 2 % 20:02d}")
    world = _world(pools, [*others, *bound, *teams])
    yield _timed("2,170 pods, 1,060 running nodes, 20 pools", world, 10.0)


def _hand_over(item: dict[str, Any], team: str) -> None:
    labels = item["metadata"]["labels"]
    item["metadata"]["labels"] = {**labels, "karpenter.sh/nodepool": team, "team": team}
    if item["kind"] == "Node":
        item["spec"]["taints"] = [{"key": "team", "value": team, "effect": "NoSchedule"}]


def _world(pools: list[Any], rest: list[Any]) -> Snapshot:
    return snapshot_of({"metadata": {"annotations": {"catalog-subset": "main"}}, "items": [*pools, *rest]})


def _timed(name: str, snapshot: Snapshot, budget: float) -> Figure:
    return Figure(name, best_of(1, lambda: solve(snapshot)), "s", budget)

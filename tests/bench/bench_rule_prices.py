"""What the rules of a cluster of 500 nodes and 5,000 pods cost: forty of them, and one by its name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from dovetail.disruption.pricing_rules import (
    PricedCluster,
    Rule,
    find_rules,
    list_rules,
    price_rule,
    price_rules,
)
from dovetail.disruption.situation import Situation
from dovetail.providers.kwok.catalog import read_instance_types
from dovetail.scheduling.model.snapshot import SchedulingOptions
from dovetail.state.offline import OfflineCluster
from support.builders import NOW
from support.random_changes import ZONES, claimed_node, pool, running_pod
from support.worlds import FLAVOUR

from .registry import Figure, scenario

Json = dict[str, Any]
NODES, PODS, APPS, RULES = 500, 10, 20, 40
HARD = "requiredDuringSchedulingIgnoredDuringExecution"


def build_ruled_fleet() -> Situation:
    """500 nodes with ten pods of twenty Deployments on each; every Deployment has two rules of its own."""
    world = OfflineCluster()
    objects: list[Json] = [pool("general", ("spot", "on-demand"))]
    for number in range(NODES):
        name, bought = f"node-{number:03}", ("spot", "on-demand")[number % 4 < 2]
        node, claim = claimed_node(name, "general", "8", ZONES[number % 2], bought)
        claim["status"].setdefault("conditions", []).append({"type": "Consolidatable", "status": "True"})
        objects += [node, claim]
        for each in range(PODS):
            app = (number * PODS + each) % APPS
            cpu = 500 + 25 * (each % 4)
            made = running_pod(f"app{app}-5d9c-{number}-{each}", f"app{app}", name, cpu, 900)
            objects.append(_add_rules(made, app, number))
    objects += [_build_pdb(app) for app in (0, 10)]  # each node is held by one of them
    for made in objects:
        world.add(made["apiVersion"], made["kind"], made)
    types = tuple(each for each in read_instance_types() if "amd64-linux" in each.name)
    return Situation(world.build_snapshot(lambda _: types, SchedulingOptions(now=NOW, flavour=FLAVOUR)))


def _add_rules(made: Json, app: int, number: int) -> Json:
    mine = {"matchLabels": {"app": f"app{app}"}}
    if app % 4 == 1:
        rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": mine}
        made["spec"]["affinity"] = {"podAntiAffinity": {HARD: [rule]}}
    if app % 4 in (1, 2):
        spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "labelSelector": mine}
        made["spec"]["topologySpreadConstraints"] = [spread | {"whenUnsatisfiable": "DoNotSchedule"}]
    if app % 4 == 3:
        made["spec"]["nodeSelector"] = {"kubernetes.io/arch": "amd64"}
    if app % 4 == 0 and number % 50 == 0:
        made["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    return made


def _build_pdb(app: int) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": f"app{app}", "namespace": "shop"},
        "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": f"app{app}"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    }


def choose_rules(situation: Situation) -> tuple[Rule, ...]:
    """As many as the budget speaks of, of every kind."""
    found = list_rules(situation)
    return found[:: max(1, len(found) // RULES)][:RULES]


@scenario("price-of: rules of 500 nodes and 5,000 pods")
def rules_of_a_fleet() -> Iterator[Figure]:
    situation = build_ruled_fleet()
    rules = choose_rules(situation)
    before = time.process_time()
    prices = price_rules(PricedCluster(situation), rules)
    spent = time.process_time() - before
    assert len(prices) >= len(rules)
    # On two cores, as the spread over workers shares it.
    yield Figure(f"{len(rules)} rules, processor time", spent, "s", 120.0)
    for name in ("pdb/shop/app0", "deployment/shop/app1:anti-affinity"):
        before = time.process_time()
        price_rule(PricedCluster(situation), *find_rules(list_rules(situation), [name]))
        yield Figure(f"one rule: {name}", time.process_time() - before, "s", 5.0)

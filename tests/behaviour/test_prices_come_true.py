"""What a rule is said to cost is really saved without it: the rule is lifted, and an hour is played.

A held price is played on: the rule goes, and disruption does what it does. A shape price is played twice
from the start, with the rule and without it. Bills are added up from the catalogue's own offerings.
"""

from __future__ import annotations

import asyncio
import os
from math import fsum
from random import Random
from typing import Any

import pytest

from dovetail.api import crds
from dovetail.app.controller import Dovetail
from dovetail.app.live_cluster import build_sight, see_cluster
from dovetail.disruption.pricing_rules import PricedCluster, RulePrice, find_rules, list_rules, price_rule
from dovetail.providers.factory import choose_provider
from dovetail.providers.kwok.catalog import read_instance_types
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.apiserver import deployment
from support.https_apiserver import DEFINITIONS

Json = dict[str, Any]
# As many in every run; 50 with the variable. A seed gives the same cluster every time.
SEEDS = int(os.environ.get("DOVETAIL_PRICES_COME_TRUE", "6"))
POOLS, CLAIMS, APPS = "nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "deployments.apps"
BUDGETS = "poddisruptionbudgets.policy"
HARD = "requiredDuringSchedulingIgnoredDuringExecution"
HOUR = 3600.0
PRICES = {
    (each.name, offering.zone, offering.capacity_type): offering.price
    for each in read_instance_types()
    for offering in each.offerings
}


class RuledCluster:
    """A cluster and its controller, in virtual time."""

    def __init__(self, seed: int) -> None:
        self.clock = VirtualClock()
        self.world = World(self.clock, seed)
        for definition in crds.build_manifests("kwok"):
            self.world.api.create(DEFINITIONS, definition)
        self.settings = read_settings((), {}, provider="kwok")
        transport = LocalTransport(self.world.server)
        self.ours = Dovetail(self.settings, transport, clock=self.clock, chance=Random(seed), provider="kwok")

    def create_pool(self, cpus: tuple[str, ...] = (), **disruption: Any) -> None:
        api = self.world.api
        api.create("kwoknodeclasses.karpenter.kwok.sh", {"metadata": {"name": "default"}, "spec": {}})
        reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
        wanted = [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
        ]
        if cpus:
            size = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": list(cpus)}
            wanted.append(size)
        template = {"spec": {"nodeClassRef": reference, "requirements": wanted, "expireAfter": "Never"}}
        often = {"consolidateAfter": "10s", "budgets": [{"nodes": "100%"}]} | disruption
        api.create(
            POOLS, {"metadata": {"name": "general"}, "spec": {"template": template, "disruption": often}}
        )

    def create_app(self, name: str, replicas: int, cpu: str, **pod: Any) -> None:
        made: Json = deployment(name, replicas=replicas)
        inner = made["spec"]["template"]
        size = {"requests": {"cpu": cpu, "memory": "200Mi"}}
        inner["spec"]["containers"][0]["resources"] = size
        inner["metadata"]["annotations"] = pod.pop("annotations", {})
        inner["spec"] |= pod
        self.world.api.create(APPS, made, "default")

    def scale_app(self, name: str, replicas: int) -> None:
        app = next(each for each in self.world.api.list(APPS, "default") if each["metadata"]["name"] == name)
        app["spec"]["replicas"] = replicas
        self.world.api.update(APPS, app)

    def create_budget(self, name: str) -> None:
        spec = {"maxUnavailable": 0, "selector": {"matchLabels": {"app": name}}}
        self.world.api.create(BUDGETS, {"metadata": {"name": name}, "spec": spec}, "default")

    def sum_bill(self) -> float:
        """What the nodes that are there cost an hour."""
        found = []
        for claim in self.world.api.list(CLAIMS):
            known = claim["metadata"]["labels"]
            keys = ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone")
            name, zone = (known[key] for key in keys)
            found.append(PRICES[name, zone, known["karpenter.sh/capacity-type"]])
        return fsum(found)

    async def price(self, name: str) -> RulePrice:
        """What a command that only looks says of a rule now."""
        transport = LocalTransport(self.world.server)
        sight = build_sight(transport, self.settings, choose_provider("kwok"), clock=self.clock)
        try:
            seen = await see_cluster(sight, "https://ruled.example", lambda text: None)
        finally:
            sight.close()
        (rule,) = find_rules(list_rules(seen.situation), [name])
        (found,) = price_rule(PricedCluster(seen.situation), rule)
        return found

    async def settle(self, seconds: float) -> None:
        await self.clock.sleep(seconds)
        pods = self.world.api.list("pods", "default")
        assert all(each["spec"].get("nodeName") for each in pods), "every pod has a node"


async def play(cluster: RuledCluster, story: Any) -> None:
    async with cluster.world.running():
        running = asyncio.create_task(cluster.ours.run())
        await story
        cluster.ours.stop()
        await running


# ---------------------------------------------------------------------- held


class HeldStory:
    """Large nodes were bought for many pods; most of these are gone, and a rule holds the rest in place."""

    RULES = ("pdb/default/held", "budget/general[0]", "pool/general:consolidateAfter", "mark")

    def __init__(self, seed: int) -> None:
        self.chance = Random(f"held {seed}")
        self.rule = self.RULES[seed % len(self.RULES)]
        self.cluster = RuledCluster(seed)

    async def run(self) -> None:
        cluster, chance = self.cluster, self.chance
        held: dict[str, Json] = {
            "budget/general[0]": {"budgets": [{"nodes": "0"}]},
            "pool/general:consolidateAfter": {"consolidateAfter": "Never"},
        }
        cluster.create_pool(("2", "4", "8"), **held.get(self.rule, {}))
        marks = {"karpenter.sh/do-not-disrupt": "true"} if self.rule == "mark" else {}
        apart = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "held"}}}
        count = chance.randint(2, 4)
        cluster.create_app(
            "held",
            count,
            chance.choice(("200m", "400m", "700m")),
            annotations=marks,
            affinity={"podAntiAffinity": {HARD: [apart]}},
        )
        cluster.create_app("busy", chance.randint(2, 4) * count, chance.choice(("900m", "1300m")))
        if self.rule.startswith("pdb"):
            cluster.create_budget("held")
        await cluster.settle(300)
        cluster.scale_app("busy", 0)
        await cluster.settle(1200)
        name = self.rule if self.rule != "mark" else "deployment/default/held:do-not-disrupt"
        said = await cluster.price(name)
        before = cluster.sum_bill()
        self.lift()
        await cluster.settle(HOUR)
        saved = before - cluster.sum_bill()
        assert saved == pytest.approx(said.costs_now, rel=0.03, abs=1e-6), said
        assert saved <= said.at_most + 1e-6
        self.said = said

    def lift(self) -> None:
        api = self.cluster.world.api
        if self.rule.startswith("pdb"):
            api.delete(BUDGETS, "held", "default")
            return
        if self.rule == "mark":
            for pod in api.list("pods", "default"):
                pod["metadata"]["annotations"] = {}
                api.update("pods", pod)
            return
        (pool,) = api.list(POOLS)
        pool["spec"]["disruption"] = {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]}
        api.update(POOLS, pool)


# --------------------------------------------------------------------- shape


class ShapeStory:
    """Pods that come at once get a fleet of their own, with the rule or without it.

    There are enough of them that one small node more, for a pod that kube-scheduler puts elsewhere than
    planned, does not make a twentieth of the price.
    """

    RULES = (
        "deployment/default/ruled:anti-affinity",
        "pool/general:requirements[instance-cpu]",
        "deployment/default/ruled:selector",
        "deployment/default/ruled:spread",
    )

    def __init__(self, seed: int, *, ruled: bool) -> None:
        self.chance = Random(f"shape {seed}")
        self.rule = self.RULES[seed % len(self.RULES)]
        self.ruled = ruled
        self.cluster = RuledCluster(seed)
        self.bill = 0.0
        self.said: RulePrice | None = None

    async def run(self) -> None:
        cluster, chance = self.cluster, self.chance
        count, size = chance.randint(15, 30), chance.choice(("300m", "600m", "1100m"))
        others, other = chance.randint(5, 15), chance.choice(("400m", "900m"))
        narrow = self.rule.startswith("pool") and self.ruled
        cluster.create_pool((chance.choice(("48", "64", "96")),) if narrow else ())
        cluster.create_app("ruled", count, size, **(self.build_rule() if self.ruled else {}))
        cluster.create_app("other", others, other)
        await cluster.settle(HOUR)
        self.bill = cluster.sum_bill()
        if self.ruled:
            self.said = await cluster.price(self.rule)

    def build_rule(self) -> Json:
        mine = {"matchLabels": {"app": "ruled"}}
        host = "kubernetes.io/hostname"
        if self.rule.endswith(":anti-affinity"):
            return {"affinity": {"podAntiAffinity": {HARD: [{"topologyKey": host, "labelSelector": mine}]}}}
        if self.rule.endswith(":selector"):
            return {"nodeSelector": {"karpenter.kwok.sh/instance-cpu": "32"}}
        if self.rule.endswith(":spread"):
            spread = {"maxSkew": 1, "topologyKey": host, "whenUnsatisfiable": "DoNotSchedule"}
            return {"topologySpreadConstraints": [{**spread, "labelSelector": mine}]}
        return {}


@pytest.mark.spec("PR-1")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_lifting_a_rule_saves_what_it_was_said_to_cost(seed: int) -> None:
    async def main() -> None:
        if seed % 2:
            with_rule, without = (ShapeStory(seed // 2, ruled=ruled) for ruled in (True, False))
            await play(with_rule.cluster, with_rule.run())
            await play(without.cluster, without.run())
            said, saved = with_rule.said, with_rule.bill - without.bill
            assert said is not None
            assert saved == pytest.approx(said.costs_now, rel=0.05, abs=1e-6), said
            assert saved <= said.at_most + 1e-6
            return
        story = HeldStory(seed // 2)
        await play(story.cluster, story.run())
        assert story.said.costs_now > 0, "a rule that holds nothing proves nothing"

    run_virtual(main())

"""What a change view says comes true: the change is made in a simulated cluster, and everybody watches."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from copy import deepcopy
from random import Random
from typing import Any

import pytest

from dovetail.api import crds
from dovetail.app.changed_plan import ChangedPlan, change_cluster, plan_change
from dovetail.app.controller import Dovetail
from dovetail.app.live_cluster import build_sight, see_cluster
from dovetail.providers.factory import choose_provider
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from dovetail.state.offline import OfflineCluster
from support.apiserver import deployment
from support.https_apiserver import DEFINITIONS

Json = dict[str, Any]
# As many in every run; more with the variable. A seed gives the same cluster every time.
SEEDS = int(os.environ.get("DOVETAIL_CHANGES_COME_TRUE", "6"))
POOLS, CLAIMS, APPS = "nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "deployments.apps"
API = {POOLS: ("karpenter.sh/v1", "NodePool"), APPS: ("apps/v1", "Deployment")}


class ChangingCluster:
    """A cluster and its controller; nodes are replaced only where they drift, one at a time."""

    def __init__(self, seed: int) -> None:
        self.chance, self.clock = Random(f"come true {seed}"), VirtualClock()
        self.world = World(self.clock, seed)
        for definition in crds.build_manifests("kwok"):
            self.world.api.create(DEFINITIONS, definition)
        self.settings = read_settings((), {}, provider="kwok")
        transport = LocalTransport(self.world.server)
        self.ours = Dovetail(self.settings, transport, clock=self.clock, chance=Random(seed), provider="kwok")

    def create_objects(self) -> None:
        api, chance = self.world.api, self.chance
        api.create("kwoknodeclasses.karpenter.kwok.sh", {"metadata": {"name": "default"}, "spec": {}})
        reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
        wanted = [
            {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
            {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["2", "4"]},
        ]
        template = {"spec": {"nodeClassRef": reference, "requirements": wanted, "expireAfter": "Never"}}
        disruption = {"consolidateAfter": "Never", "budgets": [{"nodes": "1"}]}
        api.create(
            POOLS, {"metadata": {"name": "general"}, "spec": {"template": template, "disruption": disruption}}
        )
        for number in range(chance.choice((1, 2, 3))):
            api.create(APPS, self.build_app(f"app-{number}", chance.randrange(1, 6)), "default")

    def build_app(self, name: str, replicas: int) -> Json:
        made: Json = deployment(name, replicas=replicas)
        size = {"cpu": self.chance.choice(("300m", "900m", "1700m")), "memory": "300Mi"}
        made["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": size}
        return made

    def choose_change(self, seed: int) -> tuple[str, Json]:
        """A resource, and an object of it as it is to be: a pool, a number, or pods that fit nowhere."""
        api = self.world.api
        if seed % 3 == 0:
            pool = deepcopy(api.list(POOLS)[0])
            pool["spec"]["template"]["metadata"] = {"labels": {"example.com/edition": "2"}}
            return POOLS, pool
        if seed % 3 == 1:
            app = deepcopy(api.list(APPS, "default")[0])
            app["spec"]["replicas"] += self.chance.randrange(1, 9)
            return APPS, app
        app = self.build_app("stuck", 3)
        app["spec"]["template"]["spec"]["nodeSelector"] = {"disk": "none"}
        app["metadata"]["namespace"] = "default"
        return APPS, app

    async def plan(self, resource: str, obj: Json) -> ChangedPlan:
        """What the change view says, from what a command that only looks sees."""
        transport = LocalTransport(self.world.server)
        sight = build_sight(transport, self.settings, choose_provider("kwok"), clock=self.clock)
        try:
            seen = await see_cluster(sight, "https://changing.example", lambda text: None)
        finally:
            sight.close()
        meta = {key: obj["metadata"][key] for key in ("name", "namespace") if obj["metadata"].get(key)}
        api_version, kind = API[resource]
        document = {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": obj["spec"]}
        world = OfflineCluster()
        world.add(api_version, kind, json.loads(json.dumps(document)))
        return plan_change(seen, change_cluster(seen, world.build_change()), False, lambda text: None)

    def list_claims(self) -> dict[str, Json]:
        return {each["metadata"]["name"]: each for each in self.world.api.list(CLAIMS)}

    async def watch(self, before: set[str]) -> tuple[set[str], list[str], int]:
        """The nodes that drift, the types bought in their order, and the pods that wait in the end."""
        drifted: set[str] = set()
        bought: dict[str, str] = {}
        for _ in range(100):
            await self.clock.sleep(1.0)
            for name, claim in self.list_claims().items():
                status = claim.get("status") or {}
                conditions = {each["type"]: each["status"] for each in status.get("conditions") or ()}
                if name in before and conditions.get("Drifted") == "True":
                    drifted.add(status.get("nodeName", ""))
                kind = claim["metadata"].get("labels", {}).get("node.kubernetes.io/instance-type")
                if name not in before and kind:
                    bought.setdefault(name, kind)
        pods = self.world.api.list("pods", "default")
        waiting = sum(1 for pod in pods if not pod["spec"].get("nodeName"))
        return drifted, list(bought.values()), waiting


@pytest.mark.spec("VF-2")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_what_the_change_view_says_is_what_happens(seed: int) -> None:
    async def main() -> None:
        cluster = ChangingCluster(seed)
        async with cluster.world.running():
            running = asyncio.create_task(cluster.ours.run())
            cluster.create_objects()
            await cluster.clock.sleep(120)
            before = set(cluster.list_claims())
            assert before
            resource, obj = cluster.choose_change(seed)
            planned = await cluster.plan(resource, obj)
            if seed % 3 == 2:
                cluster.world.api.create(resource, obj, "default")
            else:
                cluster.world.api.update(resource, obj)
            drifted, bought, waiting = await cluster.watch(before)
            assert drifted == {each.node for each in planned.drifts}
            assert waiting == len(planned.list_moved()[0])
            if planned.drifts:
                first = [node.instance_type for command in planned.first for node in command.replacements]
                assert bought[: len(first)] == first
            else:
                new = Counter(node.instance_type for node in planned.after.plan.new_nodes)
                assert Counter(bought) == new
            cluster.ours.stop()
            await running

    run_virtual(main())

"""Whoever is asked gives the controller's answer: it, plan --disruption, the dashboard and explain.

Random clusters are run by the real controller in virtual time, with knobs, budgets, capacity buffers, shifted
zones and commands under way. Now and then everybody is asked about the cluster as it is at that moment.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from copy import deepcopy
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import crds
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.controller import Dovetail
from dovetail.app.dashboard_watch import build_picture
from dovetail.app.live_cluster import build_sight, see_cluster
from dovetail.app.solved_plan import build_disruption_input
from dovetail.cli.views.nodes import explain_node
from dovetail.controllers.disruption import DisruptionController
from dovetail.disruption.command import DRIFTED, EMPTY, SINGLE
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.report import DisruptionReport, build_report
from dovetail.disruption.situation import Situation, digest_situation
from dovetail.providers.factory import choose_provider
from dovetail.scheduling.model import state_node as views
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.cluster.controllers import SimClusterOptions
from dovetail.sim.cluster.kubelet import KubeletOptions
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.apiserver import deployment
from support.https_apiserver import DEFINITIONS

Json = dict[str, Any]
# As many in every run; more with the variable. A seed gives the same cluster every time.
SEEDS = int(os.environ.get("DOVETAIL_ONE_ANSWER_SEEDS", "8"))
MOMENTS = 5
POOLS, SHIFTS = "nodepools.karpenter.sh", "zoneshifts.dovetail.sh"
ZONES = ("test-zone-a", "test-zone-b", "test-zone-c", "test-zone-d")
KNOBS = {
    "CONSOLIDATE_MANY": ("true", "false"),
    "CONSOLIDATION_MIN_SAVING": ("0", "0", "0", "0.1", "3"),
    "CONSOLIDATION_MIN_SAVING_PERCENT": ("0", "0", "20"),
    "CONSOLIDATION_REST": ("0s", "0s", "3m"),
    "DISRUPTION_RATE": ("", "", "1/10m"),
    "PREFERENCE_POLICY": ("Respect", "Ignore"),
    "PLANNED_NODE_MAX_PODS": ("0", "3"),
    "PLANNER": ("packed", "one-by-one"),
}


class FuzzedCluster:
    """A cluster and its controller, with workloads and settings by chance."""

    def __init__(self, seed: int) -> None:
        self.chance = Random(seed)
        self.clock = VirtualClock()
        chance = self.chance
        # Replacements that take their time are commands under way when somebody asks.
        slow = KubeletOptions(node_ready=chance.choice((1.0, 45.0)))
        self.world = World(self.clock, seed, options=SimClusterOptions(slow))
        self.has_buffers, self.has_shifts = chance.random() < 0.4, chance.random() < 0.5
        given = {name: chance.choice(values) for name, values in KNOBS.items()}
        given["FEATURE_GATES"] = (
            f"SpotToSpotConsolidation={str(chance.random() < 0.5).lower()},"
            f"CapacityBuffer={str(self.has_buffers).lower()}"
        )
        if self.has_shifts:
            given["ENABLE_ZONAL_SHIFT"] = "true"
        kinds = [*crds.build_manifests("kwok"), crds.build_zonal_manifest()]
        for definition in kinds:
            self.world.api.create(DEFINITIONS, definition)
        self.settings = read_settings((), given, provider="kwok")
        self.ours = Dovetail(
            self.settings,
            LocalTransport(self.world.server),
            clock=self.clock,
            chance=Random(seed),
            provider="kwok",
        )
        (self.disruption,) = (c for c in self.ours.controllers if isinstance(c, DisruptionController))

    def create_objects(self) -> None:
        api, chance = self.world.api, self.chance
        api.create("kwoknodeclasses.karpenter.kwok.sh", {"metadata": {"name": "default"}, "spec": {}})
        for number in range(chance.choice((1, 2))):
            api.create(POOLS, self._pool(f"pool-{number}"))
        for number in range(chance.randrange(3, 8)):
            api.create("deployments.apps", self._deployment(f"app-{number}"), "default")
        if self.has_buffers:
            reference = {"apiGroup": "apps", "kind": "Deployment", "name": "app-0"}
            spec = {"scalableRef": reference, "replicas": chance.choice((1, 3))}
            buffer = {"metadata": {"name": "room", "namespace": "default"}, "spec": spec}
            api.create("capacitybuffers.autoscaling.x-k8s.io", buffer)

    def _pool(self, name: str) -> Json:
        chance = self.chance
        kinds = chance.choice((["spot", "on-demand"], ["on-demand"], ["spot"]))
        template = {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": kinds},
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                ],
            }
        }
        disruption = {
            "consolidateAfter": chance.choice(("0s", "0s", "30s", "5m")),
            "consolidationPolicy": chance.choice(("WhenEmpty", *3 * ("WhenEmptyOrUnderutilized",))),
            "budgets": [{"nodes": chance.choice(("10%", "1", "100%", "100%", "0"))}],
        }
        return {"metadata": {"name": name}, "spec": {"template": template, "disruption": disruption}}

    def _deployment(self, name: str) -> Json:
        chance = self.chance
        made = deployment(name, replicas=chance.randrange(1, 7))
        pod = made["spec"]["template"]
        size = {"cpu": chance.choice(("200m", "900m", "2", "6")), "memory": "300Mi"}
        pod["spec"]["containers"][0]["resources"] = {"requests": size}
        match chance.randrange(7):
            case 0:
                pod["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
            case 1:
                pod["spec"]["topologySpreadConstraints"] = [
                    {
                        "maxSkew": 1,
                        "topologyKey": "topology.kubernetes.io/zone",
                        "whenUnsatisfiable": "DoNotSchedule",
                        "labelSelector": {"matchLabels": {"app": name}},
                    }
                ]
            case 2:
                pod["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": chance.choice(ZONES)}
            case 3:
                pdb = {"selector": {"matchLabels": {"app": name}}, "maxUnavailable": chance.choice((0, 1))}
                self.world.api.create(
                    "poddisruptionbudgets.policy",
                    {"metadata": {"name": name, "namespace": "default"}, "spec": pdb},
                )
            case _:
                pass
        return made

    def change_something(self) -> None:
        """Scale workloads, sometimes change a NodePool, and shift a zone away or back."""
        api, chance = self.world.api, self.chance
        for each in deepcopy(api.list("deployments.apps", "default")):
            if chance.random() < 0.6:
                each["spec"]["replicas"] = chance.choice((0, 1, 2, 8))
                api.update("deployments.apps", each)
        for pool in deepcopy(api.list(POOLS)):
            if chance.random() < 0.3:  # its nodes drift, and are replaced by nodes that take their time
                pool["spec"]["template"]["metadata"] = {
                    "labels": {"example.com/edition": str(chance.random())[2:9]}
                }
                api.update(POOLS, pool)
        if not self.has_shifts:
            return
        away = api.list(SHIFTS)
        if away and chance.random() < 0.5:
            api.delete(SHIFTS, away[0]["metadata"]["name"])
        elif not away:
            zone = chance.choice(ZONES)
            api.create(SHIFTS, {"metadata": {"name": f"shift-{zone}"}, "spec": {"zoneId": zone}})


def describe(report: DisruptionReport) -> dict[str, Any]:
    """What would be done and why every other node is blocked, in words and numbers."""
    return {
        "commands": [
            (
                turn.method,
                str(command),
                round(command.savings, 9),
                [each.price for each in command.replacements],
            )
            for turn in report.turns
            for command in turn.commands
        ],
        "blocked": {
            each.name: [(d.blocked_reason, d.why) for d in each.reasons] for each in report.blocked_nodes
        },
    }


async def take_known(cluster: FuzzedCluster) -> Situation:
    """What the controller decides from, but for the nodes it chose for pods: that it alone knows."""
    return replace(await cluster.disruption.take_situation(), nominated=frozenset())


async def compare_answers(cluster: FuzzedCluster, met: Counter[str]) -> bool:
    """Ask everybody about this moment; False when the controller was in the middle of something."""
    before = await take_known(cluster)
    settings = read_settings((), cluster.settings.list_deciding(), provider="kwok")
    sight = build_sight(
        LocalTransport(cluster.world.server), settings, choose_provider("kwok"), clock=cluster.clock
    )
    try:
        seen = await see_cluster(sight, "https://fuzzed.example", lambda text: None)
    finally:
        sight.close()
    if digest_situation(before) != digest_situation(await take_known(cluster)):
        return False
    inputs = build_disruption_input(seen)
    if inputs.buffered != before.buffered:
        return False  # the controller keeps to the room of its last plan until it plans again
    own = build_report(DisruptionInput.from_situation(before))
    assert describe(build_report(inputs)) == describe(own)
    assert describe(build_picture(seen, "fuzzed", live=True).survey) == describe(own)
    compare_explanations(seen, own)
    met["commands"] += len(own.commands)
    met["blocked"] += len(own.blocked_nodes)
    met["queued"] += len(before.queued)
    met["buffered"] += len(before.buffered)
    met["shifted"] += bool(before.excluded_zones)
    return True


def compare_explanations(seen: SeenCluster, report: DisruptionReport) -> None:
    """`explain` speaks of the cluster as it is: of the first turn, or else of the blocked nodes."""
    states = {views.read_name(each): each for each in seen.snapshot.nodes}
    for command in report.turns[0].commands if report.turns else ():
        for candidate in command.candidates if command.method in (EMPTY, DRIFTED, SINGLE) else ():
            verdicts = {
                each.reason: each.allowed for each in explain_node(seen, states[candidate.name]).verdicts
            }
            assert verdicts[command.method.reason], (candidate.name, verdicts)
    for blocked in () if report.turns else report.blocked_nodes:
        told = explain_node(seen, states[blocked.name])
        said = {told.held, *(each.why for each in told.verdicts)}
        assert {detail.why for detail in blocked.reasons} & said, (blocked.name, blocked.reasons, told)
        assert not any(each.allowed for each in told.verdicts), (blocked.name, told)


def play(seed: int, met: Counter[str]) -> int:
    """Play one cluster; how many moments were compared."""

    async def main() -> int:
        cluster, compared = FuzzedCluster(seed), 0
        async with cluster.world.running():
            running = asyncio.create_task(cluster.ours.run())
            cluster.create_objects()
            for _ in range(MOMENTS):
                await cluster.clock.sleep(40 + 60 * cluster.chance.random())
                cluster.change_something()
                await cluster.clock.sleep(1 + 60 * cluster.chance.random())
                for _ in range(20):
                    if await compare_answers(cluster, met):
                        compared += 1
                        break
                    await cluster.clock.sleep(2.5)
            cluster.ours.stop()
            await running
        return compared

    return run_virtual(main())


@pytest.mark.spec("FN-2")
def test_everybody_gives_the_controllers_answer() -> None:
    met: Counter[str] = Counter()
    compared = sum(play(seed, met) for seed in range(SEEDS))
    assert compared >= SEEDS * MOMENTS // 2, "most moments can be compared"
    for what in ("commands", "blocked", "queued", "buffered", "shifted"):
        assert met[what], f"no cluster had any of: {what}"

"""Everything that can be counted happens once, and what is shown of it is written down.

`python -m support.metrics_run`: its own process, since numbers live as long as one and other tests count.
`story` prints each family's type, labels, bounds and quantiles as JSON; `nodes N` how many series there are
by default with N pods of which few share a node.
"""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta
from random import Random
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from dovetail.api import labels
from dovetail.errors import Retry
from dovetail.ports import RepairPolicy
from dovetail.runtime import logs
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.leader import ElectionTerms, Elector
from dovetail.runtime.metrics import render_exposition
from dovetail.sim.transport import LocalTransport
from support.builders import NOW, nodepool, pod
from support.disruption import LARGE, pool
from support.fleet import Fleet, light
from support.world import POOLS, Scene, virtual

GATES = "--feature-gates=NodeRepair=true,StaticCapacity=true,CapacityBuffer=true,SpotToSpotConsolidation=true"
FULL = (GATES, "--metrics-detail=full")
SICK = RepairPolicy(condition="BadNode", status="False", toleration=timedelta(seconds=30))
Json = dict[str, Any]


class Notes:
    """What was seen of each family, at any moment of the story."""

    def __init__(self) -> None:
        self.families: dict[str, Json] = {}

    def look(self) -> None:
        for family in text_string_to_metric_families(render_exposition().decode()):
            name = family.name + ("_total" if family.type == "counter" else "")
            seen = self.families.setdefault(
                name, {"type": family.type, "labels": [], "bounds": [], "quantiles": []}
            )
            for sample in family.samples:
                about = dict(sample.labels)
                self._add(seen["bounds"], about.pop("le", None))
                self._add(seen["quantiles"], about.pop("quantile", None))
                if sorted(about) not in seen["labels"]:
                    seen["labels"].append(sorted(about))
                if about.get("kind") and name.startswith("operator_"):
                    self._add(seen.setdefault("kinds", []), about["kind"])

    @staticmethod
    def _add(seen: list[str], value: str | None) -> None:
        if value is not None and value not in seen:
            seen.append(value)


@virtual
async def story() -> None:
    """One world in which pods come and go and everything ends that can; then the rare turns of disruption."""
    notes = Notes()
    async with Scene(flags=FULL).running() as scene:
        scene.cloud.repair_policies = (SICK,)
        scene.cloud.ending = 2.0
        # What a provider can mend is asked once, at the start.
        await scene.stop()
        await scene.restart()
        await _lead(scene)
        await _grow(scene, notes)
        await _fall_ill(scene, notes)
        await _shrink(scene, notes)
    await _disturbed(notes)
    await _replacement_lost(notes)
    await _balanced(notes)
    json.dump(notes.families, sys.stdout)


async def _lead(scene: Scene) -> None:
    kube = KubeClient(LocalTransport(scene.world.server), scene.clock)
    elector = Elector(kube, ElectionTerms(namespace="kube-system"), "one", clock=scene.clock, rng=Random(1))
    standing = asyncio.create_task(elector.run())
    await scene.sleep(5)
    standing.cancel()


async def _grow(scene: Scene, notes: Notes) -> None:
    scene.cloud.fail("instance_types", Retry("busy"))
    scene.apply(nodepool(limits={"cpu": "200"}, consolidate_after="30s", weight=1))
    scene.apply(nodepool("static", replicas=1), nodepool("ending", expire_after="60s"))
    scene.api.create("daemonsets.apps", _daemonset())
    scene.api.create("deployments.apps", _deployment(6))
    _buffer(scene)
    scene.create(pod("late", cpu="1", node_selector={labels.NODEPOOL: "ending"}))
    scene.create(pod("nowhere", cpu="1", node_selector={labels.NODEPOOL: "none"}))
    for pause in (0.2, 0.5, 1, 1, 1, 2, 5, 10, 20):
        await scene.sleep(pause)
        notes.look()


async def _fall_ill(scene: Scene, notes: Notes) -> None:
    """A node turns bad and is given up, and its pods move; the node class is not ready for a while."""
    name = next(node.name for node in scene.nodes() if node.labels[labels.NODEPOOL] == "default")
    now = scene.true_clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    known = scene.api.get("nodes", name)["status"]["conditions"]
    bad = {"type": "BadNode", "status": "False", "reason": "x", "message": "", "lastTransitionTime": now}
    scene.set_status("nodes", name, {"conditions": [*known, bad]})
    unready = {"type": "Ready", "status": "False", "reason": "Busy", "message": "", "lastTransitionTime": now}
    for status in ("False", "True"):
        said = {"conditions": [unready | {"status": status}]}
        scene.set_status("kwoknodeclasses.karpenter.kwok.sh", "default", said)
        await scene.sleep(3)
    for pause in (35, 1, 1, 1, 5, 30, 30):
        await scene.sleep(pause)
        notes.look()


async def _shrink(scene: Scene, notes: Notes) -> None:
    """The pool changes, the workload goes, the rest is deleted."""
    scene.api.patch(POOLS, "default", {"spec": {"template": {"metadata": {"labels": {"new": "one"}}}}})
    for _ in range(10):
        await scene.sleep(12)
        notes.look()
    scene.api.patch("deployments.apps", "web", {"spec": {"replicas": 0}}, "default")
    await scene.sleep(90)
    _finalize(scene, "capacitybuffers.autoscaling.x-k8s.io", "room", "default")
    _finalize(scene, "kwoknodeclasses.karpenter.kwok.sh", "default")
    for name in ("default", "static", "ending"):
        _finalize(scene, POOLS, name)
    await scene.sleep(1)
    notes.look()
    for resource, name, namespace in (
        ("capacitybuffers.autoscaling.x-k8s.io", "room", "default"),
        ("kwoknodeclasses.karpenter.kwok.sh", "default", ""),
        *((POOLS, name, "") for name in ("default", "static", "ending")),
    ):
        scene.api.patch(resource, name, {"metadata": {"finalizers": None}}, namespace)
    for pause in (1, 1, 1, 20):
        await scene.sleep(pause)
        notes.look()


def _finalize(scene: Scene, resource: str, name: str, namespace: str = "") -> None:
    """Somebody holds on to it, so that its end can be watched."""
    scene.api.patch(resource, name, {"metadata": {"finalizers": ["example.com/held"]}}, namespace)
    scene.api.delete(resource, name, namespace)


def _container(cpu: str) -> Json:
    amounts = {"cpu": cpu, "memory": "64Mi"}
    return {"name": "app", "image": "app:1", "resources": {"requests": amounts, "limits": amounts}}


def _template(app: str, cpu: str) -> Json:
    return {"metadata": {"labels": {"app": app}}, "spec": {"containers": [_container(cpu)]}}


def _daemonset() -> Json:
    spec = {"selector": {"matchLabels": {"app": "agent"}}, "template": _template("agent", "100m")}
    return {"metadata": {"name": "agent", "namespace": "default"}, "spec": spec}


def _deployment(replicas: int) -> Json:
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": {"app": "web"}},
        "template": _template("web", "2"),
    }
    return {"metadata": {"name": "web", "namespace": "default"}, "spec": spec}


def _buffer(scene: Scene) -> None:
    scene.api.create(
        "podtemplates",
        {"metadata": {"name": "shape", "namespace": "default"}, "template": _template("room", "1")},
    )
    spec = {"podTemplateRef": {"name": "shape"}, "replicas": 2}
    scene.api.create(
        "capacitybuffers.autoscaling.x-k8s.io",
        {"metadata": {"name": "room", "namespace": "default"}, "spec": spec},
    )


async def _disturbed(notes: Notes) -> None:
    """What was right is wrong when it is looked at again."""
    async with Scene(flags=FULL).still() as scene:
        fleet = Fleet(scene, types=[LARGE])
        fleet.node("a", light("p", "a"))
        fleet.node("b", *(light(f"q{i}", "b") for i in range(3)))
        turn = asyncio.create_task(fleet.turn())
        await scene.sleep(10)
        fleet.pod(light("held", "a", annotations={labels.DO_NOT_DISRUPT: "true"}))
        await turn
        notes.look()


async def _replacement_lost(notes: Notes) -> None:
    async with Scene(flags=FULL).still() as scene:
        fleet = Fleet(scene)
        fleet.node("a", light("p", "a", "15"), drifted=NOW, consolidatable=False)
        await fleet.turn()
        for claim in fleet.replacements():
            await scene.live(claim.name)
            fleet.forget(claim.name)
        await fleet.carry_on()
        notes.look()


async def _balanced(notes: Notes) -> None:
    async with Scene(flags=FULL).still() as scene:
        fleet = Fleet(scene, pool("even", consolidation_policy="Balanced"))
        fleet.node("a", light("p", "a"), pool="even")
        await fleet.turn()
        notes.look()


@virtual
async def nodes(count: int) -> None:
    """So many nodes of two pools, of many types in all zones, each with a pod or two."""
    zones = sorted({offering.zone for each in Scene().cloud.types for offering in each.offerings})
    async with Scene().running() as scene:
        scene.apply(nodepool("one", limits={"cpu": "100k"}), nodepool("two"))
        for number in range(count):
            about = {labels.NODEPOOL: ("one", "two")[number % 2], labels.ZONE: zones[number % len(zones)]}
            scene.create(pod(f"web-{number}", cpu="3" if number % 9 else "1500m", node_selector=about))
        await scene.settle(20)
        text = scene.dovetail.render_metrics().decode()
        series = {family.name: len(family.samples) for family in text_string_to_metric_families(text)}
        json.dump({"nodes": len(scene.nodes()), "series": series}, sys.stdout)


if __name__ == "__main__":
    logs.configure_logging("error", ("stderr",))
    if sys.argv[1] == "story":
        story()
    else:
        nodes(int(sys.argv[2]))

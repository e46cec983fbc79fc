"""Plays a scenario on a world: workloads follow their curves, and what is written down happens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dovetail.settings.durations import parse as parse_duration
from dovetail.sim.cloud import MoodyCloud
from dovetail.sim.fleet import settle_in
from dovetail.sim.kube.status import ApiError
from dovetail.sim.scenario import Happening, Pool, Scenario, Workload, ZonalShift
from dovetail.sim.world import World

__all__ = ["Stage"]

Json = dict[str, Any]
POOLS, CLASSES = "nodepools.karpenter.sh", "kwoknodeclasses.karpenter.kwok.sh"
CLAIMS, DEPLOYMENTS = "nodeclaims.karpenter.sh", "deployments.apps"
BUDGETS = "poddisruptionbudgets.policy"
SHIFTS = "zoneshifts.dovetail.sh"
HEARTBEAT = "sim.dovetail.dev/heartbeat"
ZONE, CAPACITY_TYPE = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
NOTICE = 120.0


class Stage:
    """One scenario on one world."""

    def __init__(self, scenario: Scenario, world: World, cloud: MoodyCloud) -> None:
        self.scenario = scenario
        self.world = world
        self.cloud = cloud
        self._began = world.clock.now()
        folder = Path(scenario.folder)
        self._curves: list[tuple[Workload, Callable[[float], int]]] = [
            (workload, workload.replicas.at(folder)) for workload in scenario.workloads
        ]
        self.wanted: dict[str, int] = {}
        self._due = sorted(
            ((parse_duration(event.at).total_seconds(), i, event) for i, event in enumerate(scenario.events)),
            key=lambda entry: entry[:2],
        )
        self._later: list[tuple[float, Callable[[], None]]] = []

    def set_up(self) -> None:
        """Pools, workloads and whatever else the scenario starts with."""
        api = self.world.api
        api.create(CLASSES, {"metadata": {"name": "default"}})
        for pool in self.scenario.pools:
            stored = api.create(POOLS, _nodepool(pool))
            if pool.nodes:
                settle_in(self.world, self.cloud, stored, pool.nodes)
        for manifest in self.scenario.manifests:
            api.create(_resource(manifest), manifest)
        for workload in self.scenario.workloads:
            api.create(DEPLOYMENTS, _deployment(workload))
            if workload.max_unavailable is not None:
                api.create(BUDGETS, _budget(workload))

    @property
    def second(self) -> float:
        return (self.world.clock.now() - self._began).total_seconds()

    def step(self) -> None:
        """Whatever is due now."""
        now = self.second
        for workload, curve in self._curves:
            wanted = max(curve(now), 0)
            if self.wanted.get(workload.name) != wanted:
                self.wanted[workload.name] = wanted
                patch = {"spec": {"replicas": wanted}}
                self.world.api.patch(DEPLOYMENTS, workload.name, patch, "default")
        while self._due and self._due[0][0] <= now:
            self._happens(self._due.pop(0)[2])
        for due, act in [each for each in self._later if each[0] <= now]:
            self._later.remove((due, act))
            act()

    def _happens(self, event: Happening) -> None:
        if event.reclaim is not None:
            self._reclaim(event.reclaim)
        if event.zone_loss is not None:
            self._lose_zone(event.zone_loss)
        if event.zonal_shift is not None:
            self._shift_zone(event.zonal_shift)
        if event.failure is not None:
            self._fail(event.failure)
        if event.rollout is not None:
            self._roll_out(event.rollout)
        if event.drift is not None:
            self._drift(event.drift)
        if event.price is not None:
            factor = float(event.price.get("factor", 1.0))
            self.cloud.change(factors={str(event.price.get("capacityType", "spot")): factor})
        for manifest in event.apply or ():
            name = manifest["metadata"]["name"]
            namespace = manifest["metadata"].get("namespace", "")
            self.world.api.patch(_resource(manifest), name, manifest, namespace)

    def _nodes(self, holds: Callable[[dict[str, str]], bool]) -> list[Json]:
        return [n for n in self.world.api.list("nodes") if holds(n["metadata"].get("labels") or {})]

    def _reclaim(self, what: Json) -> None:
        """Spot machines are taken back: their claims are told now, the machines go two minutes later."""
        spot = self._nodes(lambda known: known.get(CAPACITY_TYPE) == "spot")
        share = float(what.get("share", 1.0))
        chosen = self.world.rng.sample(spot, round(len(spot) * share))
        for node in chosen:
            self._end_claim(node)
            name = node["metadata"]["name"]
            self._later.append((self.second + NOTICE, lambda name=name: self._vanish(name)))  # type: ignore[misc]

    def _end_claim(self, node: Json) -> None:
        for owner in node["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "NodeClaim":
                self._quietly(lambda name=owner["name"]: self.world.api.delete(CLAIMS, name))  # type: ignore[misc]

    def _vanish(self, name: str) -> None:
        """The machine is gone, drained or not: its kubelet falls silent and its Node is released."""
        self._quietly(lambda: self.world.api.patch("nodes", name, {"metadata": {"finalizers": None}}))
        self._quietly(lambda: self.world.api.delete("nodes", name))

    def _lose_zone(self, what: Json) -> None:
        zone = str(what["zone"])
        self.cloud.change(dry_zones=self.cloud.dry_zones | {zone})
        for node in self._nodes(lambda known: known.get(ZONE) == zone):
            self._silence(node["metadata"]["name"])
        if what.get("lasts"):
            end = self.second + parse_duration(str(what["lasts"])).total_seconds()
            self._later.append((end, lambda: self.cloud.change(dry_zones=self.cloud.dry_zones - {zone})))

    def _shift_zone(self, what: ZonalShift) -> None:
        """An operator steps out of the zone; its machines go on, unless another event ends them."""
        until = self.world.clock.now() + parse_duration(what.lasts)
        spec = {"zoneId": what.zone, "kind": "LOCAL", "expires": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
        meta = {"name": f"local-{what.zone}-{int(self.second)}"}
        self.world.api.create(SHIFTS, {"metadata": meta, "spec": spec})

    def _fail(self, what: Json) -> None:
        nodes = self._nodes(lambda known: True)
        for node in self.world.rng.sample(nodes, min(int(what.get("count", 1)), len(nodes))):
            self._silence(node["metadata"]["name"])

    def _silence(self, name: str) -> None:
        patch = {"metadata": {"annotations": {HEARTBEAT: "stopped"}}}
        self._quietly(lambda: self.world.api.patch("nodes", name, patch))

    def _drift(self, what: Json) -> None:
        """The template of a pool changes, as by a new image: every node of it is out of date at once."""
        stamp = {"sim.dovetail.dev/generation": str(int(self.second))}
        patch = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
        for pool in self.scenario.pools:
            if what.get("pool") in (None, pool.name):
                self.world.api.patch(POOLS, pool.name, patch)

    def _roll_out(self, what: Json) -> None:
        stamp = {"sim.dovetail.dev/rollout": str(int(self.second))}
        patch = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
        for workload in self.scenario.workloads:
            if what.get("workload") in (None, workload.name):
                self.world.api.patch(DEPLOYMENTS, workload.name, patch, "default")

    @staticmethod
    def _quietly(act: Callable[[], object]) -> None:
        """What is already gone cannot be taken away again."""
        try:
            act()
        except ApiError as error:
            if error.code not in (404, 409):
                raise


def _nodepool(pool: Pool) -> Json:
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    requirements = pool.requirements or [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}]
    template = {"nodeClassRef": reference, "requirements": requirements, "expireAfter": pool.expire_after}
    disruption = {
        "consolidateAfter": pool.consolidate_after,
        "consolidationPolicy": pool.policy,
        "budgets": pool.budgets,
    }
    spec = {"template": {"spec": template}, "disruption": disruption, **pool.spec}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": pool.name},
        "spec": spec,
    }


def _deployment(workload: Workload) -> Json:
    container = {
        "name": "main",
        "image": "simulated",
        "resources": {"requests": {"cpu": workload.cpu, "memory": workload.memory}},
    }
    labels = {"app": workload.name, **workload.labels}
    template = {
        "metadata": {"labels": labels, "annotations": workload.annotations},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 30, **workload.spec},
    }
    return {
        "metadata": {"name": workload.name, "namespace": "default"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": workload.name}}, "template": template},
    }


def _budget(workload: Workload) -> Json:
    selector = {"matchLabels": {"app": workload.name}}
    return {
        "metadata": {"name": workload.name, "namespace": "default"},
        "spec": {"selector": selector, "maxUnavailable": workload.max_unavailable},
    }


def _resource(manifest: Json) -> str:
    """The plural kubectl would guess; good enough for the kinds scenarios hold."""
    group, _, _ = str(manifest["apiVersion"]).rpartition("/")
    kind = str(manifest["kind"]).lower()
    plural = kind + ("es" if kind.endswith("s") else "s")
    return f"{plural}.{group}" if group else plural

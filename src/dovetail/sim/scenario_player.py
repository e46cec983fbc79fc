"""Plays a scenario on a world: workloads follow their curves, and what is written down happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dovetail.api.crds import find_provider_api
from dovetail.api.meta import Kind
from dovetail.errors import BadInput
from dovetail.settings.durations import parse_duration as parse_duration
from dovetail.sim.initial_nodes import add_initial_nodes
from dovetail.sim.kube.status import ApiError
from dovetail.sim.scenario import (
    NodeFailure,
    PoolDrift,
    Scenario,
    ScenarioEvent,
    ScenarioPool,
    ScenarioRollout,
    ScenarioShift,
    ScenarioWorkload,
    SpotReclaim,
    ZoneLoss,
)
from dovetail.sim.volatile_cloud import VolatileCloud
from dovetail.sim.world import World

__all__ = ["ScenarioPlayer", "create_config_maps"]

Json = dict[str, Any]
POOLS = "nodepools.karpenter.sh"
CLAIMS, DEPLOYMENTS = "nodeclaims.karpenter.sh", "deployments.apps"
BUDGETS = "poddisruptionbudgets.policy"
SHIFTS = "zoneshifts.dovetail.sh"
HEARTBEAT = "sim.dovetail.dev/heartbeat"
ZONE, CAPACITY_TYPE = "topology.kubernetes.io/zone", "karpenter.sh/capacity-type"
NOTICE = 120.0
_SELECTED = [{"tags": {"sim.dovetail.sh/scenario": "any"}}]
# What a node class must say where an empty one is refused, by provider.
NODE_CLASSES: dict[str, Json] = {
    "aws": {
        "role": "simulated",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": _SELECTED,
        "securityGroupSelectorTerms": _SELECTED,
    }
}


class ScenarioPlayer:
    """One scenario on one world."""

    def __init__(self, scenario: Scenario, world: World, cloud: VolatileCloud) -> None:
        self.scenario = scenario
        self.world = world
        self.cloud = cloud
        self._began = world.clock.now()
        folder = Path(scenario.folder)
        self._curves: list[tuple[ScenarioWorkload, Callable[[float], int]]] = [
            (workload, workload.replicas.build_curve(folder)) for workload in scenario.workloads
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
        kind = find_provider_api(self.scenario.provider).kind
        self._create_node_class(kind)
        for pool in self.scenario.pools:
            with _expect_accepted(made := _build_nodepool(pool, kind)):
                stored = api.create(POOLS, made)
            if pool.nodes:
                add_initial_nodes(self.world, self.cloud, stored, pool.nodes)
        _create_manifests(self.scenario, self.world, early=False)
        for workload in self.scenario.workloads:
            with _expect_accepted(made := _build_deployment(workload)):
                api.create(DEPLOYMENTS, made)
            if workload.max_unavailable is not None:
                with _expect_accepted(made := _build_budget(workload)):
                    api.create(BUDGETS, made)

    def _create_node_class(self, kind: Kind) -> None:
        """The class that all pools use. Nobody checks it against a cloud, so it is ready from the start."""
        spec = NODE_CLASSES.get(self.scenario.provider)
        if spec is None:
            self.world.api.create(kind.resource, {"metadata": {"name": "default"}})
            return
        self.world.api.create(kind.resource, {"metadata": {"name": "default"}, "spec": spec})
        now = self._began.strftime("%Y-%m-%dT%H:%M:%SZ")
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": now,
        }
        status = {"status": {"conditions": [ready]}}
        self.world.api.patch(kind.resource, "default", status, subresource="status")

    @property
    def second(self) -> float:
        return (self.world.clock.now() - self._began).total_seconds()

    def run_step(self) -> None:
        """Whatever is due now."""
        now = self.second
        for workload, curve in self._curves:
            wanted = max(curve(now), 0)
            if self.wanted.get(workload.name) != wanted:
                self.wanted[workload.name] = wanted
                patch = {"spec": {"replicas": wanted}}
                self.world.api.patch(DEPLOYMENTS, workload.name, patch, "default")
        while self._due and self._due[0][0] <= now:
            self._apply_event(self._due.pop(0)[2])
        for due, act in [each for each in self._later if each[0] <= now]:
            self._later.remove((due, act))
            act()

    def _apply_event(self, event: ScenarioEvent) -> None:
        if event.reclaim is not None:
            self._reclaim_spot(event.reclaim)
        if event.zone_loss is not None:
            self._lose_zone(event.zone_loss)
        if event.zonal_shift is not None:
            self._shift_zone(event.zonal_shift)
        if event.failure is not None:
            self._fail_nodes(event.failure)
        if event.rollout is not None:
            self._roll_out(event.rollout)
        if event.drift is not None:
            self._drift_pools(event.drift)
        if event.price is not None:
            self.cloud.change_offers(factors={event.price.capacity_type: event.price.factor})
        for manifest in event.apply or ():
            with _expect_accepted(manifest):
                meta = manifest["metadata"]
                self.world.api.patch(
                    _guess_resource(manifest), meta["name"], manifest, meta.get("namespace", "")
                )

    def _list_nodes(self, holds: Callable[[dict[str, str]], bool]) -> list[Json]:
        return [n for n in self.world.api.list("nodes") if holds(n["metadata"].get("labels") or {})]

    def _reclaim_spot(self, what: SpotReclaim) -> None:
        """Spot machines are taken back: their claims are told now, the machines go two minutes later."""
        spot = self._list_nodes(lambda known: known.get(CAPACITY_TYPE) == "spot")
        chosen = self.world.rng.sample(spot, round(len(spot) * what.share))
        for node in chosen:
            self._end_claim(node)
            name = node["metadata"]["name"]
            self._later.append((self.second + NOTICE, lambda name=name: self._remove_machine(name)))  # type: ignore[misc]

    def _end_claim(self, node: Json) -> None:
        for owner in node["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "NodeClaim":
                self._ignore_missing(lambda name=owner["name"]: self.world.api.delete(CLAIMS, name))  # type: ignore[misc]

    def _remove_machine(self, name: str) -> None:
        """The machine is gone, drained or not: its kubelet falls silent and its Node is released."""
        self._ignore_missing(lambda: self.world.api.patch("nodes", name, {"metadata": {"finalizers": None}}))
        self._ignore_missing(lambda: self.world.api.delete("nodes", name))

    def _lose_zone(self, what: ZoneLoss) -> None:
        zone = what.zone
        self.cloud.change_offers(dry_zones=self.cloud.dry_zones | {zone})
        for node in self._list_nodes(lambda known: known.get(ZONE) == zone):
            self._silence_node(node["metadata"]["name"])
        if what.lasts:
            end = self.second + parse_duration(what.lasts).total_seconds()
            self._later.append(
                (end, lambda: self.cloud.change_offers(dry_zones=self.cloud.dry_zones - {zone}))
            )

    def _shift_zone(self, what: ScenarioShift) -> None:
        """An operator shifts away from the zone; its machines go on, unless another event ends them."""
        until = self.world.clock.now() + parse_duration(what.lasts)
        spec = {"zoneId": what.zone, "kind": "LOCAL", "expires": until.strftime("%Y-%m-%dT%H:%M:%SZ")}
        meta = {"name": f"local-{what.zone}-{int(self.second)}"}
        self.world.api.create(SHIFTS, {"metadata": meta, "spec": spec})

    def _fail_nodes(self, what: NodeFailure) -> None:
        nodes = self._list_nodes(lambda known: True)
        for node in self.world.rng.sample(nodes, min(what.count, len(nodes))):
            self._silence_node(node["metadata"]["name"])

    def _silence_node(self, name: str) -> None:
        patch = {"metadata": {"annotations": {HEARTBEAT: "stopped"}}}
        self._ignore_missing(lambda: self.world.api.patch("nodes", name, patch))

    def _drift_pools(self, what: PoolDrift) -> None:
        """The template of a pool changes, as by a new image: every node of it is out of date at once."""
        stamp = {"sim.dovetail.dev/generation": str(int(self.second))}
        patch = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
        for pool in self.scenario.pools:
            if what.pool in (None, pool.name):
                self.world.api.patch(POOLS, pool.name, patch)

    def _roll_out(self, what: ScenarioRollout) -> None:
        stamp = {"sim.dovetail.dev/rollout": str(int(self.second))}
        patch = {"spec": {"template": {"metadata": {"annotations": stamp}}}}
        for workload in self.scenario.workloads:
            if what.workload in (None, workload.name):
                self.world.api.patch(DEPLOYMENTS, workload.name, patch, "default")

    @staticmethod
    def _ignore_missing(act: Callable[[], object]) -> None:
        """What is already gone cannot be taken away again."""
        try:
            act()
        except ApiError as error:
            if error.code not in (404, 409):
                raise


@contextmanager
def _expect_accepted(manifest: Json) -> Iterator[None]:
    """What the API server does not take is bad input, in its own words."""
    try:
        yield
    except ApiError as error:
        name = manifest["metadata"]["name"]
        raise BadInput(f"the scenario's {manifest['kind']} {name} is refused: {error.message}") from error


def _build_nodepool(pool: ScenarioPool, node_class: Kind) -> Json:
    reference = {"group": node_class.group, "kind": node_class.kind, "name": "default"}
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


def _build_deployment(workload: ScenarioWorkload) -> Json:
    container = {
        "name": "main",
        "image": "simulated",
        "resources": {"requests": {"cpu": str(workload.cpu), "memory": str(workload.memory)}},
    }
    labels = {"app": workload.name, **workload.labels}
    template = {
        "metadata": {"labels": labels, "annotations": workload.annotations},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 30, **workload.spec},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": workload.name, "namespace": "default"},
        "spec": {"replicas": 0, "selector": {"matchLabels": {"app": workload.name}}, "template": template},
    }


def _build_budget(workload: ScenarioWorkload) -> Json:
    selector = {"matchLabels": {"app": workload.name}}
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": workload.name, "namespace": "default"},
        "spec": {"selector": selector, "maxUnavailable": workload.max_unavailable},
    }


def create_config_maps(scenario: Scenario, world: World) -> None:
    """Create the scenario's ConfigMaps and their Namespaces: controllers read a policy before they start."""
    _create_manifests(scenario, world, early=True)


def _create_manifests(scenario: Scenario, world: World, *, early: bool) -> None:
    for manifest in scenario.manifests:
        if (manifest.get("kind") in ("Namespace", "ConfigMap")) is early:
            with _expect_accepted(manifest):
                world.api.create(_guess_resource(manifest), manifest)


def _guess_resource(manifest: Json) -> str:
    """The plural kubectl would guess; good enough for the kinds scenarios hold."""
    group, _, _ = str(manifest["apiVersion"]).rpartition("/")
    kind = str(manifest["kind"]).lower()
    plural = kind + ("es" if kind.endswith("s") else "s")
    return f"{plural}.{group}" if group else plural

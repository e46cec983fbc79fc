"""A simulated cluster with spend limits: its controllers, a cloud that sells what it likes, and the books.

The books know nothing of how limits are kept: they read NodeClaims as JSON, and add up the dearest offering
that each may become until it is launched, and its own price after that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from math import inf
from random import Random
from typing import Any

from msgspec.structs import replace

from dovetail.api import crds
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import Requirement
from dovetail.app.controller import Dovetail
from dovetail.errors import InsufficientCapacity
from dovetail.ports import Instance
from dovetail.runtime.transport import ApiReply, ApiRequest
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock
from dovetail.sim.cluster.controllers import SimClusterOptions
from dovetail.sim.cluster.kubelet import KubeletOptions
from dovetail.sim.kube.store import StoreEvent
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.apiserver import deployment
from support.https_apiserver import DEFINITIONS
from support.killable_process import Fate, MortalTransport

__all__ = ["LIMITS", "POOLS", "SpendCluster"]

Json = dict[str, Any]
LIMITS, POOLS, CLAIMS = "spendlimits.dovetail.sh", "nodepools.karpenter.sh", "nodeclaims.karpenter.sh"
COUNTED = ("/spendlimits/", "/nodeclaims", "/events")
TYPE, ZONE, KIND = (
    "node.kubernetes.io/instance-type",
    "topology.kubernetes.io/zone",
    "karpenter.sh/capacity-type",
)


class _CountedWrites(MortalTransport):
    """The transport of a controller that dies at a write to a SpendLimit or NodeClaim, or at an event."""

    async def send(self, request: ApiRequest) -> ApiReply:
        if request.method == "GET" or not any(name in request.path for name in COUNTED):
            if self._fate.dead.is_set():
                await asyncio.Event().wait()
            return await self._transport.send(request)
        await self._fate.strikes(before=True)
        reply = await self._transport.send(request)
        await self._fate.strikes(before=False)
        return reply


class SpendCluster:
    """A cluster in virtual time whose controller follows SpendLimits."""

    def __init__(self, seed: int = 1, *, start: Any = None, node_ready: float = 5.0, **settings: str) -> None:
        # When the controller that runs now dies, counted in writes that have to do with limits.
        self.fate = Fate()
        self.chance = Random(seed)
        self.seed = seed
        self.clock = VirtualClock(start) if start is not None else VirtualClock()
        options = SimClusterOptions(KubeletOptions(node_ready=node_ready))
        self.world = World(self.clock, seed, options=options)
        self.api = self.world.api
        for definition in (*crds.build_manifests("kwok"), *crds.build_own_manifests()):
            self.api.create(DEFINITIONS, definition)
        self.environment = {"SPEND_LIMITS": "true", **settings}
        self.refusals = 0.0
        self.moody = False
        # Spot capacity is refused at every launch: claims that allow it become on-demand nodes.
        self.spot_is_out = False
        self.refused = 0
        self._known: dict[str, float] = {}
        # Dollars an hour of every NodeClaim after each commit, and the most that they ever came to.
        self._books: dict[str, float] = {}
        self.most = 0.0
        self.world.server.store.on_commit(self._note_commit, CLAIMS)
        self.ours = self.build_controller()
        self._running: asyncio.Task[None] | None = None

    def build_controller(self) -> Dovetail:
        settings = read_settings((), self.environment, provider="kwok")
        transport = _CountedWrites(LocalTransport(self.world.server), self.fate)
        made = Dovetail(settings, transport, clock=self.clock, chance=Random(self.seed), provider="kwok")
        launch = made.cloud.create

        async def create(claim: NodeClaim) -> Instance:
            if self.chance.random() < self.refusals:
                self.refused += 1
                raise InsufficientCapacity(f"launching {claim.name}: nothing to be had")
            return await launch(self._choose_offering(claim) if self.moody else claim)

        made.cloud.create = create  # type: ignore[method-assign]
        return made

    def _choose_offering(self, claim: NodeClaim) -> NodeClaim:
        """The claim, bound to any one of the offerings it allows and the cloud has."""
        allowed = list(self._list_allowed(claim.spec.requirements))
        if self.spot_is_out:
            allowed = [each for each in allowed if each[1][KIND] != "spot"]
        if not allowed:
            self.refused += 1
            self._close_spot()
            raise InsufficientCapacity(f"launching {claim.name}: spot is out")
        _, labels = self.chance.choice(allowed)
        chosen = tuple(Requirement(key=key, operator="In", values=(value,)) for key, value in labels.items())
        others = tuple(each for each in claim.spec.requirements if each.key not in labels)
        return replace(claim, spec=replace(claim.spec, requirements=(*others, *chosen)))

    def _close_spot(self) -> None:
        """As the provider for EC2 remembers what was refused: the next plan knows of it."""
        cloud: Any = self.ours.cloud
        cloud._types = tuple(
            replace(
                each,
                offerings=tuple(
                    replace(deal, available=deal.available and deal.capacity_type != "spot")
                    for deal in each.offerings
                ),
            )
            for each in cloud._types
        )

    def _list_allowed(self, requirements: Iterable[Any]) -> Iterable[tuple[float, dict[str, str]]]:
        given = {each.key: set(each.values) for each in requirements if each.operator == "In"}
        return self.list_offerings({key: given[key] for key in (TYPE, ZONE, KIND) if key in given})

    def list_offerings(self, given: Mapping[str, set[str]]) -> Iterable[tuple[float, dict[str, str]]]:
        for each in self.ours.cloud._types:  # type: ignore[attr-defined]
            for deal in each.offerings:
                labels = {TYPE: each.name, ZONE: deal.zone, KIND: deal.capacity_type}
                if all(labels[key] in values for key, values in given.items()):
                    yield deal.price, labels

    def start(self) -> None:
        self._running = asyncio.create_task(self.ours.run())

    async def kill(self, fate: Fate | None = None) -> None:
        """The controller ends where it stands, and another one takes its place, with this fate."""
        assert self._running is not None
        # What it would still say while it is taken apart, nobody hears.
        self.fate.dead.set()
        self.fate = fate or Fate()
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        self.ours = self.build_controller()
        self.start()

    async def stop(self) -> None:
        assert self._running is not None
        self.ours.stop()
        await self._running

    def create_pool(
        self, name: str = "default", *, kinds: tuple[str, ...] = ("on-demand",), **spec: Any
    ) -> None:
        template = {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [
                    {"key": KIND, "operator": "In", "values": list(kinds)},
                    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
                    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
                ],
            }
        }
        disruption = {
            "consolidateAfter": "30s",
            "consolidationPolicy": "WhenEmpty",
            "budgets": [{"nodes": "100%"}],
        }
        labels = spec.pop("labels", {})
        body = {"template": template, "disruption": disruption, **spec}
        self.api.create(POOLS, {"metadata": {"name": name, "labels": labels}, "spec": body})

    def create_class(self) -> None:
        self.api.create("kwoknodeclasses.karpenter.kwok.sh", {"metadata": {"name": "default"}, "spec": {}})

    def create_limit(self, name: str = "development", **spec: Any) -> None:
        self.api.create(LIMITS, {"metadata": {"name": name}, "spec": spec})

    def create_workload(self, name: str, replicas: int, cpu: str = "900m", *, priority: int = 0) -> None:
        made = deployment(name, replicas=replicas)
        pod = made["spec"]["template"]["spec"]
        pod["containers"][0]["resources"] = {"requests": {"cpu": cpu, "memory": "300Mi"}}
        if priority:
            pod["priorityClassName"] = name
            self.api.create(
                "priorityclasses.scheduling.k8s.io", {"metadata": {"name": name}, "value": priority}
            )
        self.api.create("deployments.apps", made, "default")

    def count_pods(self, *, bound: bool) -> int:
        pods = self.api.list("pods", "default")
        return sum(bool(each["spec"].get("nodeName")) == bound for each in pods)

    def list_bound(self) -> set[str]:
        return {
            each["metadata"]["name"]
            for each in self.api.list("pods", "default")
            if each["spec"].get("nodeName")
        }

    def read_limit(self, name: str = "development") -> Json:
        found: Json = self.api.get(LIMITS, name)
        return found

    def list_claims(self) -> list[Json]:
        return [each for each in self.api.list(CLAIMS) if "deletionTimestamp" not in each["metadata"]]

    def _note_commit(self, event: StoreEvent) -> None:
        """No instant is missed: the books are kept with every commit of a NodeClaim."""
        claim = event.new.obj
        name = claim["metadata"]["name"]
        self._books.pop(name, None)
        if event.type != "DELETED" and "deletionTimestamp" not in claim["metadata"]:
            self._books[name] = self._price_claim(claim)
        total = sum(self._books.values())
        if total > self.most:
            # Nodes may have told since what a claim became.
            self.most = max(self.most, min(total, self.add_up()))

    def add_up(self) -> float:
        """Dollars an hour of all NodeClaims that are not being deleted; orders at worst."""
        return sum(map(self._price_claim, self.list_claims()))

    def _price_claim(self, claim: Json) -> float:
        labels = self._find_labels(claim)
        if claim.get("status", {}).get("providerID") and TYPE in labels:
            return self._find_price({key: {labels[key]} for key in (TYPE, ZONE, KIND)})
        entries = claim["spec"]["requirements"]
        given = {
            each["key"]: set(each["values"])
            for each in entries
            if each["operator"] == "In" and each["key"] in (TYPE, ZONE, KIND)
        }
        return self._find_price(given)

    def _find_labels(self, claim: Json) -> dict[str, str]:
        """Those of the claim, and of its Node: who is killed after a launch has not written the former."""
        own: dict[str, str] = claim["metadata"].get("labels", {})
        identity = claim.get("status", {}).get("providerID")
        if TYPE in own or not identity:
            return own
        nodes = (each for each in self.api.list("nodes") if each["spec"].get("providerID") == identity)
        return {**next((each["metadata"]["labels"] for each in nodes), {}), **own}

    def _find_price(self, given: Mapping[str, set[str]]) -> float:
        """The dearest offering among these."""
        key = str(sorted((name, sorted(values)) for name, values in given.items()))
        if key not in self._known:
            self._known[key] = max((price for price, _ in self.list_offerings(given)), default=inf)
        return self._known[key]

    def add_up_paid(self) -> float:
        """Dollars an hour of everything that is launched, until its NodeClaim is gone."""
        total = 0.0
        for claim in self.api.list(CLAIMS):
            labels = self._find_labels(claim)
            if claim.get("status", {}).get("providerID") and TYPE in labels:
                total += self._find_price({key: {labels[key]} for key in (TYPE, ZONE, KIND)})
        return total

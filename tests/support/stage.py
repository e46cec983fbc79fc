"""A stage in virtual time: an API server, informers, belief, a cloud, and the controllers of a node's end.

Nothing moves by itself: a test calls a controller for one pass, or lets all of them run. Unless a World
with its neighbours is handed in, a deleted pod stays until the test ends it, and every moment can be seen.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import wraps
from random import Random
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from msgspec.structs import replace

from dovetail.api import codec, conditions, labels
from dovetail.api.core import Node, PersistentVolumeClaim, VolumeAttachment
from dovetail.api.crds import build_manifests
from dovetail.api.meta import Condition, Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod, Toleration
from dovetail.api.taints import DISRUPTED, is_same_taint
from dovetail.controllers.base import Controller, Result
from dovetail.controllers.claim_history import ClaimHistory
from dovetail.controllers.context import TerminationVolumes
from dovetail.controllers.node.drain import BY_NODE, index_attachment_by_node
from dovetail.controllers.node.eviction import EvictionQueue
from dovetail.controllers.node.health import NodeHealth
from dovetail.controllers.node.termination import NodeTermination
from dovetail.controllers.nodeclaim.finalization import Finalization
from dovetail.controllers.nodeclaim.hydration import NodeHydration
from dovetail.controllers.nodeclaim.lifecycle import Lifecycle
from dovetail.controllers.ownership import (
    BY_PROVIDER_ID,
    Ownership,
    index_claim_by_provider_id,
    index_node_by_provider_id,
)
from dovetail.metrics import REGISTRY
from dovetail.ports import Clock, RepairPolicy
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.manager import Manager
from dovetail.runtime.watch import Follower
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.faults import ApiFaults
from dovetail.sim.kube.status import ApiError
from dovetail.sim.transport import LocalTransport
from dovetail.state.cluster import Cluster
from support import builders
from support.cloud import FakeCloud
from support.contexts import build_context

if TYPE_CHECKING:
    from dovetail.sim.world import World

__all__ = ["Stage", "sample", "virtual"]

Json = dict[str, Any]
P = ParamSpec("P")
T = TypeVar("T", bound=Object)
WRITTEN = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
# Long enough for every watch to be heard, short enough not to matter to anyone's timer.
MOMENT = 0.001


def virtual(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run an async test in virtual time."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run


def sample(name: str, **about: str) -> float:
    """A metric's value now; 0 before it was ever counted."""
    # The collector of this name first: after a thousand tests there are thousands of others.
    for family in REGISTRY.restricted_registry([name]).collect():
        for each in family.samples:
            if each.name == name and each.labels == about:
                return each.value
    return REGISTRY.get_sample_value(name, about) or 0.0


class Stage:
    """Everything a node's end touches."""

    def __init__(
        self,
        *,
        world: World | None = None,
        faults: ApiFaults | None = None,
        policies: tuple[RepairPolicy, ...] = (),
        repair: bool = True,
    ) -> None:
        self.clock: Clock = world.clock if world else VirtualClock()
        self.world = world
        self.server = world.server if world else ApiServer(self.clock, Random(0), faults=faults)
        self.api = self.server.build_local_client("someone")
        for each in build_manifests("kwok"):
            self.api.create("customresourcedefinitions.apiextensions.k8s.io", each)
        self.kube = KubeClient(LocalTransport(self.server), self.clock)
        self.cloud = FakeCloud(self.clock, policies=policies)
        self.recorder = EventRecorder(self.kube, self.clock, Random(1))
        self._tasks: list[asyncio.Task[None]] = []
        self._inform()
        self._employ(repair)

    def _inform(self) -> None:
        self.nodes = self._follow(Node, {BY_PROVIDER_ID: index_node_by_provider_id})
        self.claims = self._follow(NodeClaim, {BY_PROVIDER_ID: index_claim_by_provider_id})
        self.pods = self._follow(Pod)
        self.attachments = self._follow(VolumeAttachment, {BY_NODE: index_attachment_by_node})
        self.volume_claims = self._follow(PersistentVolumeClaim)

    def _employ(self, repair: bool) -> None:
        own = self.ownership = Ownership(self.cloud)
        self.cluster = Cluster(self.clock, manages=own.owns_claim)
        self.nodes.on_change(self.cluster.update_node)
        self.claims.on_change(self.cluster.update_node_claim)
        self.pods.on_change(self.cluster.update_pod)
        kube, nodes, claims, clock, recorder = self.kube, self.nodes, self.claims, self.clock, self.recorder
        self.context = build_context(
            kube=kube,
            pods=self.pods,
            nodes=nodes,
            claims=claims,
            volumes=TerminationVolumes(self.attachments, self.volume_claims),
            cluster=self.cluster,
            ownership=own,
            cloud=self.cloud,
            clock=clock,
            recorder=recorder,
        )
        self.evictions = EvictionQueue(self.context)
        kept = ClaimHistory(self.context.history, clock, self.cluster, own, lambda claim: None)
        self.termination = NodeTermination(self.context, self.evictions, kept)
        self.health = NodeHealth(self.context, enabled=repair)
        self.hydration = NodeHydration(kube, nodes, claims, own)
        finalization = Finalization(kube, nodes, self.cloud, clock, recorder)
        self.lifecycle = Lifecycle(self.context, (), finalization)

    def _follow(
        self, kind: type[T], indexes: Mapping[str, Callable[[T], tuple[str, ...]]] | None = None
    ) -> Informer[T]:
        informer = Informer(kind, indexes)
        follower = Follower(self.kube, kind, informer, clock=self.clock, rng=Random(2))
        self._tasks.append(asyncio.create_task(follower.run()))
        return informer

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Stage]:
        """Informers in step and events published, until the block ends."""
        self._tasks.append(asyncio.create_task(self.recorder.run()))
        if self.world is not None:
            self._tasks.append(asyncio.create_task(self.world.manager.run()))
            self._tasks.append(asyncio.create_task(self.server.run()))
        try:
            await asyncio.gather(self.nodes.wait_synced(), self.claims.wait_synced(), self.pods.wait_synced())
            await self.heard()
            yield self
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self.kube.transport.close()

    async def heard(self) -> None:
        """Let the watches deliver."""
        await self.clock.sleep(MOMENT)

    async def sleep(self, seconds: float) -> None:
        await self.clock.sleep(seconds)

    async def until(self, true: Callable[[], bool], within: float, step: float = 0.5) -> None:
        """Let time pass until something is so; it must be within that many seconds."""
        end = self.clock.monotonic() + within
        while not true():
            assert self.clock.monotonic() < end, f"still not so after {within} s"
            await self.sleep(step)

    async def look(self, controller: Controller, key: str) -> Result:
        """One pass of one controller, on what has been heard by now."""
        await self.heard()
        try:
            return await controller.reconcile(key)
        finally:
            await self.heard()

    async def end(self, node: str = "node") -> Result:
        """One pass of node.termination."""
        return await self.look(self.termination, node)

    async def evict(self, pod: str = "pod", namespace: str = "default") -> Result:
        """One attempt of the eviction queue."""
        return await self.look(self.evictions, f"{namespace}/{pod}")

    @asynccontextmanager
    async def running(self, *controllers: Controller) -> AsyncIterator[Manager]:
        """These controllers at work, or all of them, each woken as it asks to be."""
        manager = Manager(self.clock, Random(3), grace=1.0)
        informers: dict[type[Object], Informer[Any]] = {
            each.kind: each for each in (self.nodes, self.claims, self.pods)
        }
        everyone = controllers or (
            self.lifecycle,
            self.termination,
            self.evictions,
            self.health,
            self.hydration,
        )
        for controller in everyone:
            queue = manager.add(controller)
            if isinstance(controller, EvictionQueue):
                controller.on_item(queue.add)
            for trigger in controller.triggers:
                informers[trigger.kind].on_change(_waking(trigger.keys, queue.add))
        task = asyncio.create_task(manager.run())
        try:
            yield manager
        finally:
            manager.stop()
            await task

    # What is on stage

    def create(self, obj: Object) -> Json:
        """Store a record as people and kubelets would: the object, then its status."""
        document: Json = json.loads(codec.encode(obj))
        document["metadata"] = {k: v for k, v in document["metadata"].items() if k in WRITTEN}
        for container in document.get("spec", {}).get("containers", ()):
            container.setdefault("image", "app:1")
        status = document.pop("status", None)
        made = self.api.create(obj.KIND.resource, document)
        if status:
            meta = made["metadata"]
            made = self.api.patch(
                obj.KIND.resource,
                meta["name"],
                {"status": status},
                meta.get("namespace", ""),
                subresource="status",
            )
        return made

    def node(
        self, name: str = "node", *, claimed: bool = True, machine: str | None = None, **about: Any
    ) -> Node:
        """A node of ours with its claim and its instance; `machine` is its provider ID."""
        built = builders.node(name, created=self.clock.now(), **about)
        if machine is not None:
            built = replace(built, spec=replace(built.spec, provider_id=machine))
        self.create(built)
        if claimed:
            self.claim(name)
        return codec.convert(Node, self.api.get("nodes", name))

    def claim(self, node: str = "node", name: str = "", **about: Any) -> NodeClaim:
        """A claim for the node of this name, launched, registered and initialised."""
        built = builders.nodeclaim(name or node, node=node, created=self.clock.now(), **about)
        # Its pool is not on stage, and what belongs to nobody who exists is collected as garbage.
        made = self.create(replace(built, metadata=replace(built.metadata, owner_references=())))
        claim = codec.convert(NodeClaim, made)
        self.cloud.adopt(claim)
        return claim

    def pod(self, name: str = "pod", node: str = "node", **about: Any) -> Pod:
        """A pod that runs on a node."""
        made = self.create(builders.pod(name, node=node, created=self.clock.now(), **about))
        return codec.convert(Pod, made)

    def ephemeral_pod(self, name: str, volume: str, tolerations: tuple[Toleration, ...]) -> None:
        """A pod on the node whose volume makes its own claim, `<pod>-<volume>`."""
        asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
        spec = {
            "nodeName": "node",
            "containers": [{"name": "app", "image": "app:1"}],
            "tolerations": [{"key": t.key, "operator": t.operator} for t in tolerations],
            "volumes": [{"name": volume, "ephemeral": {"volumeClaimTemplate": {"spec": asked}}}],
        }
        self.api.create("pods", {"metadata": {"name": name, "namespace": "default"}, "spec": spec})

    def budget(self, name: str = "budget", allowed: int = 0, **spec: Any) -> None:
        """A disruption budget over pods of app=web, as its controller left it."""
        spec = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 1} | spec
        status = {
            "observedGeneration": 1,
            "disruptionsAllowed": allowed,
            "currentHealthy": 1,
            "desiredHealthy": 1,
            "expectedPods": 1,
        }
        kind = "poddisruptionbudgets.policy"
        self.api.create(kind, {"metadata": {"name": name, "namespace": "default"}, "spec": spec})
        self.api.patch(kind, name, {"status": status}, "default", subresource="status")

    def delete_node(self, name: str = "node") -> None:
        self.api.delete("nodes", name)

    def doomed_node(self, *, grace: float | None = None, **about: Any) -> None:
        """A node whose end has begun; with `grace`, it must be over that many seconds from now."""
        self.node(**about)
        self.delete_node()
        self.api.delete("nodeclaims.karpenter.sh", "node")
        if grace is not None:
            self.annotate_claim(at=grace)

    def disrupt_claim(self, reason: str, name: str = "node") -> None:
        """Say on the claim why it is being disrupted."""
        claim = self.claim_now(name)
        said = conditions.set_true(claim, conditions.DISRUPTION_REASON, self.clock.now(), reason)
        status = json.loads(codec.encode(said))["status"]
        self.api.patch("nodeclaims.karpenter.sh", name, {"status": status}, subresource="status")

    def end_pods(self, *names: str, namespace: str = "default") -> None:
        """Their containers have stopped: the kubelet says so."""
        for name in names:
            self.api.delete("pods", name, namespace, grace_seconds=0)

    # What became of it

    def has(self, resource: str, name: str, namespace: str = "") -> bool:
        try:
            self.api.get(resource, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def node_now(self, name: str = "node") -> Node:
        return codec.convert(Node, self.api.get("nodes", name))

    def claim_now(self, name: str = "node") -> NodeClaim:
        return codec.convert(NodeClaim, self.api.get("nodeclaims.karpenter.sh", name))

    def pod_now(self, name: str = "pod", namespace: str = "default") -> Pod:
        return codec.convert(Pod, self.api.get("pods", name, namespace))

    def tainted(self, name: str = "node") -> bool:
        """Whether the node is marked as going away."""
        return any(is_same_taint(taint, DISRUPTED) for taint in self.node_now(name).spec.taints)

    def condition(self, kind: str, claim: str = "node") -> Condition | None:
        return self.claim_now(claim).status.find_condition(kind)

    def says(self, kind: str, claim: str = "node") -> tuple[str, str] | None:
        """Status and reason of a claim's condition."""
        found = self.condition(kind, claim)
        return (found.status, found.reason) if found is not None else None

    def queued(self) -> set[str]:
        """Pods the eviction queue holds."""
        return {pod.name for pod in self.pods if pod in self.evictions}

    def events(self, reason: str) -> list[tuple[str, str, str]]:
        """What people were told: type, object, note."""
        return [
            (each["type"], f"{each['regarding']['kind']}/{each['regarding']['name']}", each["note"])
            for each in self.api.list("events.events.k8s.io")
            if each["reason"] == reason
        ]

    def annotate_claim(self, name: str = "node", **seconds: float) -> None:
        """Set the termination timestamp: `stage.annotate_claim(at=300)` is 300 s from now."""
        moment = self.clock.now() + timedelta(seconds=seconds["at"])
        text = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
        patch = {"metadata": {"annotations": {labels.TERMINATION_TIMESTAMP: text}}}
        self.api.patch("nodeclaims.karpenter.sh", name, patch)


def _waking(
    keys: Callable[[Any, Any], Any], add: Callable[[str], None]
) -> Callable[[Any | None, Any | None], None]:
    def woken(before: Any | None, after: Any | None) -> None:
        for key in keys(before, after):
            add(key)

    return woken

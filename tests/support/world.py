"""A whole Dovetail in a small world in virtual time, with a scripted cloud or kwok's.

async with Scene().still() as scene:          nothing moves: a test calls controllers pass by pass
    scene.claim("claim")
    await scene.look("nodeclaim.lifecycle", "claim")
    assert scene.says("Launched") == ("True", "Launched")

async with Scene().running() as scene:        everyone at work: describe, settle, look again
    scene.apply(nodepool(), pod("web"))
    await scene.settle()
    assert scene.node_of("web")
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from random import Random
from typing import Any

from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.core import Node, NodeSpec, NodeStatus, Taint
from dovetail.api.crds import build_manifests
from dovetail.api.meta import Object, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim, NodeClaimStatus
from dovetail.api.nodeclass import KWOKNodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.taints import UNREGISTERED
from dovetail.app.controller import Dovetail
from dovetail.controllers.base import Controller, Result
from dovetail.ports import Clock, Cloud, Instance, RegistrationHook
from dovetail.runtime.transport import Transport
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock
from dovetail.sim.faults import FaultRule, FaultStorm
from dovetail.sim.kube.status import ApiError
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support import builders
from support.cloud import FakeCloud, bare
from support.stage import sample, virtual

__all__ = ["CLAIMS", "POOLS", "Scene", "sample", "virtual"]

Json = dict[str, Any]
CLAIMS, POOLS = "nodeclaims.karpenter.sh", "nodepools.karpenter.sh"
WRITTEN = ("name", "namespace", "labels", "annotations", "finalizers", "ownerReferences")
# Long enough for every watch to be heard, short enough not to matter to anyone's timer.
MOMENT = 0.001
NOT_READY = "node.kubernetes.io/not-ready"


class Scene:
    """One world, one cloud, and the Dovetail of the moment: `restart` brings another."""

    def __init__(
        self,
        seed: int = 0,
        *,
        kwok: bool = False,
        flags: Sequence[str] = (),
        hooks: Sequence[RegistrationHook] = (),
        clock: Clock | None = None,
    ) -> None:
        self.true_clock = VirtualClock()
        self.clock: Clock = clock or self.true_clock
        self.storm = FaultStorm(self.true_clock, seed=seed)
        self.world = World(self.true_clock, seed, faults=self.storm)
        self.api = self.world.server.build_local_client("someone")
        for each in build_manifests("kwok"):
            self.api.create("customresourcedefinitions.apiextensions.k8s.io", each)
        self.cloud = FakeCloud(self.true_clock, hooks=hooks)
        self._kwok = kwok
        self._seed = seed
        self._settings = read_settings(tuple(flags), {}, provider="kwok")
        self._lives = 0
        self.on_made: Callable[[Dovetail], None] = lambda dovetail: None
        self.dovetail = self._made(LocalTransport(self.world.server))
        self._running: asyncio.Task[None] | None = None

    # Who is at work

    def _made(self, transport: Transport, cloud: Cloud | None = None) -> Dovetail:
        """A new process: it remembers nothing of the one before."""
        self._lives += 1
        chance = Random(f"{self._seed}/{self._lives}")
        make = None if self._kwok else bare(cloud or self.cloud)
        made = Dovetail(self._settings, transport, clock=self.clock, chance=chance, make=make)
        self.on_made(made)
        return made

    @asynccontextmanager
    async def still(self) -> AsyncIterator[Scene]:
        """Dovetail listens and does nothing by itself, and neither does anyone but the API server."""
        server = asyncio.create_task(self.world.server.run())
        await self._start(acting=False)
        try:
            await self.heard()
            yield self
        finally:
            await self.stop()
            server.cancel()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Scene]:
        """Everyone at work. Machines of the scripted cloud join as Nodes unless a test says otherwise."""
        if not self._kwok:
            self.cloud.on_launch = self._joins
        async with self.world.running():
            await self._start(acting=True)
            try:
                await self.heard()
                yield self
            finally:
                await self.stop()

    def _joins(self, claim: NodeClaim, instance: Instance) -> None:
        self.join(claim, instance)

    async def _start(self, *, acting: bool) -> None:
        async def never() -> None:
            await asyncio.Event().wait()

        run = self.dovetail.run() if acting else self.dovetail.run(never)
        self._running = asyncio.create_task(run)

    async def stop(self) -> None:
        """As on SIGTERM."""
        self.dovetail.stop()
        if self._running is not None:
            await self._running
        await self.dovetail.kube.transport.close()

    async def kill(self) -> None:
        """As on SIGKILL: nothing is finished and nothing more is said."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def restart(
        self, transport: Transport | None = None, cloud: Cloud | None = None, *, acting: bool = True
    ) -> None:
        """Another process takes over; the one before must have ended."""
        self.dovetail = self._made(transport or LocalTransport(self.world.server), cloud)
        await self._start(acting=acting)
        await self.heard()

    # Time

    async def heard(self) -> None:
        """Let the watches deliver."""
        await self.true_clock.sleep(MOMENT)

    async def sleep(self, seconds: float) -> None:
        await self.true_clock.sleep(seconds)

    async def settle(self, seconds: float = 30.0) -> None:
        """Let that much time pass."""
        await self.true_clock.sleep(seconds)

    async def until(self, true: Callable[[], object], within: float, step: float = 0.5) -> None:
        """Let time pass until something is so; it must be within that many seconds."""
        end = self.true_clock.monotonic() + within
        while not true():
            assert self.true_clock.monotonic() < end, f"still not so after {within} s: {self.told()}"
            await self.sleep(step)

    def trouble(self, *rules: FaultRule) -> None:
        """From now on requests of Dovetail meet this; others never do."""
        self.storm.rules = tuple(
            FaultRule(
                **{
                    **{f: getattr(rule, f) for f in rule.__struct_fields__},
                    "clients": rule.clients or ("karpenter",),
                }
            )
            for rule in rules
        )

    # One pass

    def controller(self, name: str) -> Controller:
        return next(each for each in self.dovetail.controllers if each.name == name)

    async def look(self, name: str, key: str = "") -> Result:
        """One pass of one controller, on what has been heard by now."""
        await self.heard()
        try:
            return await self.controller(name).reconcile(key)
        finally:
            await self.heard()

    async def live(self, claim: str = "claim") -> Result:
        """One pass of nodeclaim.lifecycle."""
        return await self.look("nodeclaim.lifecycle", claim)

    # What is there

    def create(self, obj: Object) -> Json:
        """Store a record as people and kubelets would: the object, then its status."""
        document: Json = json.loads(codec.encode(obj))
        document["metadata"] = {k: v for k, v in document["metadata"].items() if k in WRITTEN}
        for container in document.get("spec", {}).get("containers", ()):
            container.setdefault("image", "app:1")
        status = document.pop("status", None)
        made = self.api.create(obj.KIND.resource, document)
        if status and not isinstance(obj, Pod):
            made = self.set_status(obj.KIND.resource, made["metadata"]["name"], status, obj.namespace)
        return made

    def set_status(self, resource: str, name: str, status: Json, namespace: str = "") -> Json:
        return self.api.patch(resource, name, {"status": status}, namespace, subresource="status")

    def apply(self, *objects: Object) -> None:
        """Create these; a pool brings its node class with it."""
        for obj in objects:
            if isinstance(obj, NodePool) and not self.has(
                "kwoknodeclasses.karpenter.kwok.sh", obj.spec.template.spec.node_class_ref.name
            ):
                self.node_class(obj.spec.template.spec.node_class_ref.name)
            self.create(obj)

    def node_class(self, name: str = "default", ready: str = "True", reason: str = "Ready") -> None:
        """A node class; one whose readiness is empty has no such condition."""
        self.create(KWOKNodeClass(metadata=ObjectMeta(name=name)))
        now = self.true_clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        state = {"type": "Ready", "status": ready, "reason": reason, "message": "", "lastTransitionTime": now}
        conditions = [state] if ready else []
        self.set_status("kwoknodeclasses.karpenter.kwok.sh", name, {"conditions": conditions})

    def pool(self, name: str = "default", **about: Any) -> NodePool:
        """A pool that is ready, with its node class."""
        self.apply(builders.nodepool(name, **about))
        return self.pool_now(name)

    def claim(self, name: str = "claim", *, owned: bool = False, **about: Any) -> NodeClaim:
        """A claim as a person or the provisioner writes it: nothing has happened to it yet."""
        built = builders.nodeclaim(name, true=(), **about)
        owners = built.metadata.owner_references if owned else ()
        if owned:
            pool = self.pool_now(built.labels[labels.NODEPOOL])
            owners = tuple(replace(each, uid=pool.uid, controller=False) for each in owners)
        metadata = replace(built.metadata, owner_references=owners, finalizers=())
        made = self.create(replace(built, metadata=metadata, status=NodeClaimStatus()))
        return codec.convert(NodeClaim, made)

    def join(
        self,
        claim: NodeClaim,
        instance: Instance | None = None,
        *,
        name: str = "",
        taints: Iterable[Taint] = (UNREGISTERED,),
        ready: bool = False,
        marks: dict[str, str] | None = None,
        allocatable: dict[str, str] | None = None,
        annotations: dict[str, str] | None = None,
    ) -> Node:
        """The machine of a launched claim comes up as a Node, as a kubelet would register it."""
        if instance is None:
            instance = self.cloud.instances[self.claim_now(claim.name).status.provider_id]
        known = {**instance.labels, labels.HOSTNAME: claim.name, labels.KWOK_NODE: "fake"}
        room = {**instance.allocatable, **builders.amounts(allocatable)}
        node = Node(
            metadata=ObjectMeta(
                name=name or f"node-{claim.name}",
                labels=known | dict(marks or {}),
                annotations=annotations or {},
            ),
            spec=NodeSpec(provider_id=instance.provider_id, taints=tuple(taints)),
            status=NodeStatus(capacity={**instance.capacity, **room}, allocatable=room),
        )
        self.create(node)
        if ready:
            self.node_ready(node.name)
        return self.node_now(node.name)

    def node_ready(self, name: str, status: str = "True") -> None:
        """The kubelet speaks."""
        now = self.true_clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": status, "reason": "Kubelet", "lastTransitionTime": now}
        self.set_status("nodes", name, {"conditions": [condition]})
        if status == "True":
            # As the node lifecycle controller would; admission put it there.
            self.retaint(name, *(t for t in self.node_now(name).spec.taints if t.key != NOT_READY))

    def retaint(self, name: str, *taints: Taint) -> None:
        """These are the node's taints now."""
        listed = [{"key": t.key, "value": t.value, "effect": t.effect} for t in taints]
        self.api.patch("nodes", name, {"spec": {"taints": listed}})

    async def launched(self, name: str = "claim", **about: Any) -> NodeClaim:
        """A claim that has its machine."""
        self.claim(name, **about)
        await self.live(name)
        return self.claim_now(name)

    async def registered(self, name: str = "claim", **about: Any) -> NodeClaim:
        """A claim whose Node has joined and is not ready yet."""
        claim = await self.launched(name, **about)
        self.join(claim)
        await self.live(name)
        return self.claim_now(name)

    async def initialized(self, name: str = "claim", **about: Any) -> NodeClaim:
        """A claim that is all it was meant to be."""
        claim = await self.registered(name, **about)
        self.node_ready(claim.status.node_name)
        await self.live(name)
        return self.claim_now(name)

    # What became of it

    def has(self, resource: str, name: str, namespace: str = "") -> bool:
        try:
            self.api.get(resource, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return False
        return True

    def claim_now(self, name: str = "claim") -> NodeClaim:
        return codec.convert(NodeClaim, self.api.get(CLAIMS, name))

    def claims(self) -> list[NodeClaim]:
        return [codec.convert(NodeClaim, each) for each in self.api.list(CLAIMS)]

    def node_now(self, name: str) -> Node:
        return codec.convert(Node, self.api.get("nodes", name))

    def nodes(self) -> list[Node]:
        return [codec.convert(Node, each) for each in self.api.list("nodes")]

    def pool_now(self, name: str = "default") -> NodePool:
        return codec.convert(NodePool, self.api.get(POOLS, name))

    def pods(self) -> list[Pod]:
        return [codec.convert(Pod, each) for each in self.api.list("pods")]

    def node_of(self, pod: str, namespace: str = "default") -> Node:
        """The node a pod runs on."""
        found = codec.convert(Pod, self.api.get("pods", pod, namespace))
        assert found.node_name, f"{pod} has no node: {self.told()}"
        return self.node_now(found.node_name)

    def says(self, kind: str, claim: str = "claim") -> tuple[str, str] | None:
        """Status and reason of a claim's condition."""
        found = self.claim_now(claim).status.find_condition(kind)
        return (found.status, found.reason) if found is not None else None

    def pool_says(self, kind: str, pool: str = "default") -> tuple[str, str] | None:
        found = next((c for c in self.pool_now(pool).status.conditions if c.type == kind), None)
        return (found.status, found.reason) if found is not None else None

    def events(self, reason: str) -> list[tuple[str, str, str]]:
        """What people were told: type, object, message."""
        return [
            (e["type"], f"{e['regarding']['kind']}/{e['regarding']['name']}", e.get("note", ""))
            for e in self.api.list("events.events.k8s.io")
            if e["reason"] == reason
        ]

    def told(self) -> str:
        """The world in a few lines, for a test that failed."""
        pods = [f"{p.name}@{p.node_name or '?'}" for p in self.pods()]
        claims = [
            f"{c.name}({','.join(x.type for x in c.status.conditions if x.status == 'True')})"
            for c in self.claims()
        ]
        nodes = [n.name for n in self.nodes()]
        return f"pods {pods}, claims {claims}, nodes {nodes}, instances {list(self.cloud.instances)}"

    def in_(self, seconds: float) -> str:
        """That far from now, as annotations carry it."""
        moment = self.true_clock.now() + timedelta(seconds=seconds)
        return moment.strftime("%Y-%m-%dT%H:%M:%SZ")

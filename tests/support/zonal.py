"""A cluster with nodes and pools that someone else serves, a simulated ARC, and the zonal controller.

    async with Shifted().running() as world:
        world.shift("use1-az1", "2h")
        await world.until(lambda: world.phase() == "Active", within=60)
        assert world.away("default") == ["us-west-2a"]

Everything runs in virtual time on the embedded API server; nothing of ours is stood in for.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from random import Random
from typing import Any

from dovetail.api.core import Node
from dovetail.api.crds import build_manifests, build_zonal_manifest
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.aws import Answer
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.informer import Informer
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.manager import Manager
from dovetail.runtime.transport import ApiReply, ApiRequest
from dovetail.runtime.watch import Follower
from dovetail.settings import read_settings
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.messaging.eventbridge import EventRule
from dovetail.sim.clock import VirtualClock
from dovetail.sim.kube.status import ApiError
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from dovetail.throttle import Throttle
from dovetail.zonal.controller.controller import ShiftedCluster
from dovetail.zonal.model.gates import ZoneGates
from dovetail.zonal.model.state_machine import ShiftTiming
from dovetail.zonal.options import ZonalOptions
from dovetail.zonal.wiring import ShiftClients, ZonalService
from support.aws import CLUSTER

__all__ = [
    *("A", "B", "C", "D", "LEDGER", "POOLS", "SHIFTS", "ZONE", "ZONE_ID"),
    *("Shifted", "Writes", "entry", "pool", "refused"),
]

Json = dict[str, Any]
POOLS, CLASSES = "nodepools.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws"
SHIFTS, CLAIMS = "zoneshifts.dovetail.sh", "nodeclaims.karpenter.sh"
LEDGER = "zonalshift.dovetail.sh/ledger"
ZONE, ZONE_ID = "topology.kubernetes.io/zone", "topology.k8s.aws/zone-id"
A, B, C, D = "us-west-2a", "us-west-2b", "us-west-2c", "us-west-2d"
RULE = "zonal"


def entry(operator: str, *values: str, key: str = ZONE, **more: Any) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {}), **more}


def pool(name: str = "default", *requirements: Json, **spec: Any) -> Json:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"nodeClassRef": reference, "requirements": list(requirements), "expireAfter": "720h"}
    disruption = {"consolidateAfter": "30s", "consolidationPolicy": "WhenEmptyOrUnderutilized"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": {"spec": template}, "disruption": disruption, **spec},
    }


class Writes(LocalTransport):
    """A transport that remembers what was written, and may refuse or break off."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.written: list[tuple[str, str]] = []
        self.refuse: Callable[[ApiRequest], bool] = lambda request: False
        self.cut: Callable[[ApiRequest], bool] = lambda request: False

    async def send(self, request: ApiRequest) -> ApiReply:
        if request.method == "GET":
            return await super().send(request)
        if self.refuse(request):
            body = {"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403}
            body["message"] = "admission webhook denied the request: frozen by policy"
            return ApiReply(403, json.dumps(body).encode(), {})
        reply = await super().send(request)
        if reply.status < 400 and "/events" not in request.path and "/leases" not in request.path:
            self.written.append((request.method, request.path))
        if self.cut(request):
            raise asyncio.CancelledError
        return reply


class AutoMode(SimulatedAws):
    """An EKS that brings pools of its own."""

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Answer:
        answer = await super().call(service, operation, parameters, retried=retried)
        if operation != "DescribeCluster":
            return answer
        compute = {"enabled": True, "nodePools": ["general-purpose", "system"]}
        return {"cluster": {**answer["cluster"], "computeConfig": compute}}


class Shifted:
    """One cluster, one ARC, and the zonal controller of the moment."""

    # How each life reaches the API server.
    reached: type[Writes] = Writes

    def __init__(
        self,
        seed: int = 0,
        *flags: str,
        nodes: Mapping[str, int] | None = None,
        mode: str = "NodePoolEdit",
        protect: bool = True,
        qps: float = 0.0,
        queue: bool = False,
        neighbours: bool = False,
        auto: bool = False,
        **options: Any,
    ) -> None:
        self.clock = VirtualClock()
        self.world = World(self.clock, seed)
        self.api = self.world.server.build_local_client("someone")
        self.gitops = self.world.server.build_local_client("argocd")
        for each in (*build_manifests("aws"), build_zonal_manifest()):
            self.api.create("customresourcedefinitions.apiextensions.k8s.io", each)
        self.aws = (AutoMode if auto else SimulatedAws)(self.clock, seed, cluster=CLUSTER)
        self._neighbours = neighbours
        given = (f"--cluster-name={CLUSTER}", "--enable-zonal-shift=true", *flags)
        if queue:
            self._queue()
            given = (*given, f"--zonal-shift-queue={RULE}")
        self.settings = read_settings((f"--zonal-shift-mode={mode}", *given), {}, provider="aws")
        given_options: dict[str, Any] = {"mode": mode, "protect": protect, "pace": ShiftTiming(), **options}
        self.options = ZonalOptions(cluster=CLUSTER, **given_options)
        self._seed, self._lives, self._qps = seed, 0, qps
        self._running: asyncio.Task[None] | None = None
        self.default_class()
        for zone, count in (nodes if nodes is not None else {A: 2, B: 2, C: 2}).items():
            for number in range(count):
                self.node(f"{zone[-1]}{number}", zone)
        self._make()

    # The world

    def ids(self, zone: str) -> str:
        return self.aws.network.zone_ids[zone]

    @property
    def arn(self) -> str:
        return self.aws.eks.clusters[CLUSTER].arn

    @property
    def managed(self) -> Any:
        found = self.aws.shifts.find_resource(self.arn)
        assert found is not None
        return found

    def default_class(self, zones: Sequence[str] = (A, B, C)) -> None:
        discovered = [{"tags": {"karpenter.sh/discovery": CLUSTER}}]
        spec = {
            "role": "nodes",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": discovered,
            "securityGroupSelectorTerms": discovered,
        }
        kind = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass"}
        self.api.create(CLASSES, {**kind, "metadata": {"name": "default"}, "spec": spec})
        self.subnets(zones)

    def subnets(self, zones: Sequence[str]) -> None:
        """What the class's own controller would have found."""
        found = [{"id": f"subnet-{zone[-1]}", "zone": zone, "zoneID": self.ids(zone)} for zone in zones]
        self.api.patch(CLASSES, "default", {"status": {"subnets": found}}, subresource="status")

    def node(self, name: str, zone: str, **labels: str) -> None:
        known = {ZONE: zone, "karpenter.sh/nodepool": "default", **labels}
        self.world.add_node(name, known)
        moment = self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ") if self._running else "2025-12-31T00:00:00Z"
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastTransitionTime": moment}
        self.api.patch("nodes", name, {"status": {"conditions": [ready]}}, subresource="status")

    def pool(self, name: str = "default", *requirements: Json, **spec: Any) -> Json:
        return self.api.create(POOLS, pool(name, *requirements, **spec))

    # ARC's and people's doing

    def shift(self, zone: str, lasts: str = "2h") -> asyncio.Task[Any]:
        asked = {
            "resourceIdentifier": self.arn,
            "awayFrom": self.ids(zone),
            "expiresIn": lasts,
            "comment": "test",
        }
        return asyncio.ensure_future(self.aws.call("arc-zonal-shift", "StartZonalShift", asked))

    async def cancel(self) -> None:
        for each in self.aws.shifts.list_active(self.managed):
            await self.aws.call("arc-zonal-shift", "CancelZonalShift", {"zonalShiftId": each.id})

    async def extend(self, lasts: str) -> None:
        for each in self.aws.shifts.list_active(self.managed):
            asked = {"zonalShiftId": each.id, "expiresIn": lasts}
            await self.aws.call("arc-zonal-shift", "UpdateZonalShift", asked)

    def autoshift(self, zone: str) -> None:
        """AWS shifts a zone away, for a cluster that takes part."""
        self.managed.practice, self.managed.autoshift = {"outcomeAlarms": []}, True
        self.aws.shifts.start_autoshift(self.ids(zone))

    def local(self, zone: str, name: str = "", **spec: Any) -> None:
        meta = {"name": name or f"local-{self.ids(zone)}"}
        self.api.create(
            SHIFTS, {"metadata": meta, "spec": {"zoneId": self.ids(zone), "kind": "LOCAL", **spec}}
        )

    def _queue(self) -> None:
        queue = self.aws.queues.add(RULE, {})
        arn = f"arn:aws:events:{self.aws.region}:{self.aws.account}:rule/{RULE}"
        made = EventRule(RULE, arn, {"source": ["aws.arc-zonal-shift"]})
        made.targets["queue"] = {"Id": "queue", "Arn": queue.arn}
        self.aws.buses.by_name["default"].rules[RULE] = made

    # What is seen

    def shifts(self) -> list[Json]:
        return [each for each in self.api.list(SHIFTS) if each["spec"]["kind"] != "SIGNAL"]

    def phase(self, zone: str = A) -> str:
        """The phase of a zone's shift that is not over, or else of the last."""
        mine = [each for each in self.shifts() if each["spec"]["zoneId"] == self.ids(zone)]
        phases = [each.get("status", {}).get("phase", "") for each in mine]
        return next((each for each in phases if each != "Restored"), phases[-1] if phases else "")

    def status(self, zone: str = A) -> Json:
        mine = [each for each in self.shifts() if each["spec"]["zoneId"] == self.ids(zone)]
        return dict(mine[-1].get("status", {})) if mine else {}

    def condition(self, kind: str, zone: str = A) -> str:
        listed = self.status(zone).get("conditions", ())
        return next((each["status"] for each in listed if each["type"] == kind), "")

    def requirements(self, name: str = "default") -> list[Json]:
        return list(self.api.get(POOLS, name)["spec"]["template"]["spec"]["requirements"])

    def away(self, name: str = "default") -> list[str]:
        """The zones a pool excludes by name."""
        return [
            value
            for each in self.requirements(name)
            if (each["key"], each["operator"]) == (ZONE, "NotIn")
            for value in each["values"]
        ]

    def wanted(self, name: str = "default") -> bytes:
        """What a person would see of a pool: everything but what the server counts."""
        found = self.api.get(POOLS, name)
        meta = {
            key: value
            for key, value in found["metadata"].items()
            if key in ("name", "labels", "annotations", "finalizers", "uid")
        }
        return json.dumps({"metadata": meta, "spec": found["spec"]}, sort_keys=True).encode()

    def marks(self, name: str) -> tuple[str | None, str | None, bool]:
        found = self.api.get("nodes", name)
        key = "karpenter.sh/do-not-disrupt"
        return (
            found["metadata"].get("labels", {}).get(key),
            found["metadata"].get("annotations", {}).get(key),
            bool(found["spec"].get("unschedulable")),
        )

    def protected(self) -> list[str]:
        return [
            each["metadata"]["name"]
            for each in self.api.list("nodes")
            if LEDGER in each["metadata"].get("annotations", {})
        ]

    def events(self, reason: str) -> list[tuple[str, str]]:
        return [
            (each["regarding"]["name"], each.get("note", ""))
            for each in self.api.list("events.events.k8s.io")
            if each["reason"] == reason
        ]

    def told(self) -> str:
        return json.dumps([{**each["spec"], **each.get("status", {})} for each in self.shifts()])

    # Running

    def _make(self) -> None:
        self._lives += 1
        chance = Random(f"{self._seed}/{self._lives}")
        self.transport = self.reached(self.world.server)
        throttle = Throttle(self.clock, self._qps, int(self._qps * 2)) if self._qps else None
        self.kube = KubeClient(self.transport, self.clock, throttle=throttle)
        self.gates = ZoneGates(self.clock)
        recorder = EventRecorder(self.kube, self.clock, chance)
        self.manager = Manager(self.clock, chance)
        informers: dict[type[Any], Informer[Any]] = {
            kind: Informer(kind) for kind in (Node, NodeClaim, NodePool)
        }
        self.zonal = ZonalService(
            self.settings,
            ShiftClients(self.aws, self.kube, self.kube),
            ShiftedCluster(self.gates, informers[Node], informers[NodeClaim]),
            clock=self.clock,
            rng=chance,
            recorder=recorder,
            options=self.options,
        )
        queue = self.manager.add(self.zonal.controller)
        self.zonal.controller.on_wake(lambda: queue.add(""))
        for trigger in self.zonal.controller.triggers:

            def heard(before: Any, after: Any, keys: Any = trigger.keys) -> None:
                for key in keys(before, after):
                    queue.add(key)

            informers[trigger.kind].on_change(heard)
        for kind, informer in informers.items():
            self.manager.add_service(Follower(self.kube, kind, informer, clock=self.clock, rng=chance).run)
        self.manager.add_service(recorder.run)
        for service in self.zonal.services:
            self.manager.add_service(service)
        queue.add("")
        self._informers = informers

    async def _run(self) -> None:
        async def filled() -> None:
            for each in self._informers.values():
                await each.wait_synced()

        await self.manager.run(filled)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Shifted]:
        async with self._whole():
            self.start()
            await self.settle(1)
            try:
                yield self
            finally:
                await self.stop()

    @asynccontextmanager
    async def _whole(self) -> AsyncIterator[None]:
        if not self._neighbours:
            yield
            return
        async with self.world.running():
            yield

    def start(self) -> None:
        self._running = asyncio.create_task(self._run())

    async def stop(self) -> None:
        assert self._running is not None
        self.manager.stop()
        await asyncio.gather(self._running, return_exceptions=True)
        await self.transport.close()

    async def killed(self, down: float = 5.0, **options: Any) -> None:
        """As on SIGKILL; a while later another process starts, perhaps with other options."""
        assert self._running is not None
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await asyncio.sleep(down)
        self.options = replace(self.options, **options)
        self._make()
        self.start()

    async def settle(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def until(self, true: Callable[[], object], within: float, step: float = 0.5) -> float:
        """Wait for it; how long that took."""
        began = self.clock.monotonic()
        while not true():
            assert self._running is None or not self._running.done(), "the process has ended"
            assert self.clock.monotonic() < began + within, f"not so after {within} s: {self.told()}"
            await asyncio.sleep(step)
        return self.clock.monotonic() - began

    async def restored(self, zone: str = A, within: float = 1800) -> float:
        return await self.until(lambda: self.phase(zone) == "Restored", within, step=2)


def refused(act: Callable[[], object]) -> int:
    """The status with which something is turned down."""
    try:
        act()
    except ApiError as error:
        return error.code
    return 0

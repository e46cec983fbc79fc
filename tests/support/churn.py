"""A busy cluster: many kinds of workload, pods deleted all the time, and what must stay true meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from dovetail.sim.kube.store import StoreEvent
from dovetail.sim.world import World
from support.cluster import ZONE, container, template, workload

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Size:
    """How much of everything."""

    nodes: int = 100
    deployments: int = 30
    replicas: int = 100
    per_second: int = 10


@dataclass(slots=True)
class Watchfulness:
    """How long a commit takes to reach a watcher, in seconds by a clock that really runs."""

    clock: Callable[[], float] = time.process_time
    worst: float = 0.0
    seen: int = 0
    _written: dict[int, float] = field(default_factory=dict)

    def committed(self, event: StoreEvent) -> None:
        # A sample will do: reading the processor's clock can cost more than the write it times.
        if event.new.info.storage == "pods" and event.rv % 25 == 0:
            self._written[event.rv] = self.clock()

    def delivered(self, obj: Json) -> None:
        self.seen += 1
        at = self._written.pop(int(obj["metadata"]["resourceVersion"]), None)
        if at is not None:
            self.worst = max(self.worst, self.clock() - at)


class Churn:
    """Keeps a world busy."""

    def __init__(self, world: World, size: Size, seed: int = 1) -> None:
        self.world = world
        self.size = size
        self.watched = Watchfulness()
        self._chance = Random(seed)
        self._next = 0

    async def fill(self, seconds: float = 60.0) -> None:
        """Nodes and Deployments, and time for them to run."""
        world, size = self.world, self.size
        for number in range(size.nodes):
            zone = {ZONE: f"zone-{number % 3}"}
            world.add_node(f"node-{number:03d}", zone, cpu="16", memory="64Gi")
        requests = {"cpu": "100m", "memory": "128Mi"}
        for number in range(size.deployments):
            body = workload(f"web-{number:03d}", size.replicas, requests=requests)
            world.api.create("deployments.apps", body)
        await world.settle(seconds)

    def more_kinds(self) -> None:
        """One of everything else: daemons, state, jobs by the clock, budgets, volumes."""
        api = self.world.api
        api.create("daemonsets.apps", workload("agent", None))
        storage = {"provisioner": "ebs.csi.aws.com", "volumeBindingMode": "WaitForFirstConsumer"}
        api.create("storageclasses.storage.k8s.io", {"metadata": {"name": "fast"}, **storage})
        claim = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        }
        claims = [{"metadata": {"name": "data"}, "spec": claim}]
        api.create("statefulsets.apps", workload("db", 3, serviceName="db", volumeClaimTemplates=claims))
        job = {
            "template": template({}, {"sim.dovetail.dev/run-for": "20s"}, restartPolicy="Never"),
            "completions": 2,
        }
        cron = {"schedule": "*/2 * * * *", "jobTemplate": {"spec": job}}
        meta = {"name": "tick", "namespace": "default"}
        api.create("cronjobs.batch", {"metadata": meta, "spec": cron})
        budget = {"selector": {"matchLabels": {"app": "web-000"}}, "maxUnavailable": 1}
        api.create("poddisruptionbudgets.policy", {"metadata": meta, "spec": budget})
        scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
        pods = {"volumes": [scratch], "containers": [container(cpu="50m")]}
        api.create("replicasets.apps", workload("scratchy", 2, pods=pods))

    async def run(self, seconds: int) -> None:
        """So many pods deleted each second."""
        for _ in range(seconds):
            self._delete_some()
            await self.world.clock.sleep(1)

    def _delete_some(self) -> None:
        keys = self.world.server.store.get_bucket("pods").keys
        records = self.world.server.store.get_bucket("pods").records
        for namespace, name in [keys[self._chance.randrange(len(keys))] for _ in range(self.size.per_second)]:
            record = records.get((namespace, name))
            if record is not None and not record.obj["metadata"].get("deletionTimestamp"):
                self.world.api.delete("pods", name, namespace)

    async def watch(self) -> None:
        """Follow all pods until cancelled, and time how late each change is heard of."""
        self.world.server.store.on_commit(self.watched.committed)
        watch = self.world.api.watch("pods", resource_version=str(self.world.server.store.revision))
        async for _, obj in watch:
            self.watched.delivered(obj)


def leftovers(world: World) -> dict[str, int]:
    """Things that must not pile up: what waits to go, and what belongs to nobody."""
    counts: dict[str, int] = {}
    uids = {
        r.obj["metadata"]["uid"]
        for b in world.server.store.get_buckets().values()
        for r in b.records.values()
    }
    for name, bucket in world.server.store.get_buckets().items():
        for record in bucket.records.values():
            meta = record.obj["metadata"]
            owners = meta.get("ownerReferences") or ()
            if owners and not any(owner["uid"] in uids for owner in owners):
                counts[f"{name} without owner"] = counts.get(f"{name} without owner", 0) + 1
            if meta.get("deletionTimestamp"):
                counts[f"{name} on their way out"] = counts.get(f"{name} on their way out", 0) + 1
    return counts


def resident_bytes() -> int:
    """How much memory this process holds now."""
    fields = Path("/proc/self/statm").read_text().split()
    return int(fields[1]) * 4096


async def story(world: World, size: Size, seconds: int) -> Churn:
    """Fill a world, keep it busy, then let it come to rest."""
    churn = Churn(world, size)
    async with world.running():
        await churn.fill()
        churn.more_kinds()
        watching = asyncio.create_task(churn.watch())
        await churn.run(seconds)
        await world.settle(120)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return churn

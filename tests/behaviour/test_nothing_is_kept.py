"""Nodes come and go for years; of one that is gone, the controller keeps nothing that grows."""

from __future__ import annotations

import asyncio
import gc
import types
from collections.abc import Iterator
from random import Random
from typing import Any

from dovetail.api import crds, labels
from dovetail.api.pod_codec import Texts
from dovetail.app.controller import Dovetail
from dovetail.disruption.situation import _PartDigests
from dovetail.history.ring import HistoryRing
from dovetail.runtime.events import EventRecorder
from dovetail.runtime.queue import WorkQueue
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock, run_virtual
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.apiserver import deployment
from support.https_apiserver import DEFINITIONS, node_pool

# Where looking ends: the server, code, and what is bounded by itself. Texts are kept once (100,000), events
# for a while (4,096); a queue keeps the key of what is due, such as a claim that would have expired. History
# is there to remember what is gone: 50,000 records of one day at most; its digests are of the last snapshot.
BOUNDED = (EventRecorder, HistoryRing, WorkQueue, Texts, _PartDigests)
CODE = (types.ModuleType, type, types.FunctionType, types.CoroutineType, asyncio.Future)
ELSEWHERE = (*BOUNDED, *CODE, LocalTransport, VirtualClock, ApiServer, asyncio.AbstractEventLoop)
STAYING, MOVING, ROUNDS = 24, 2, 4
CLASSES = "kwoknodeclasses.karpenter.kwok.sh"
GONE_AFTER = 1800.0


def reached(start: object) -> Iterator[tuple[object, object]]:
    """Everything that can be reached from an object, each with who holds it."""
    seen, heap = {id(start)}, [start]
    while heap:
        holder = heap.pop()
        # The collector passes over the keys of a dict that are all texts.
        for each in [*gc.get_referents(holder), *(holder if isinstance(holder, dict) else ())]:
            if isinstance(each, str):
                yield each, holder
            elif id(each) not in seen and not isinstance(each, ELSEWHERE):
                seen.add(id(each))
                heap.append(each)


def spread_out(name: str, replicas: int) -> dict[str, Any]:
    """Pods of which no two may share a node."""
    made = deployment(name, replicas=replicas)
    template = made["spec"]["template"]
    apart = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": template["metadata"]["labels"]},
    }
    template["spec"]["affinity"] = {
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    }
    return made


def moving(name: str) -> dict[str, Any]:
    """The same on nodes of a NodePool where no other pod goes."""
    made = spread_out(name, MOVING)
    made["spec"]["template"]["spec"] |= {
        "nodeSelector": {labels.NODEPOOL: "moving"},
        "tolerations": [{"operator": "Exists"}],
    }
    return made


def test_of_nodes_that_are_gone_nothing_is_kept() -> None:
    async def main() -> tuple[set[str], list[str]]:
        clock = VirtualClock()
        world = World(clock, 1)
        for definition in crds.build_manifests("kwok"):
            world.api.create(DEFINITIONS, definition)
        ours = Dovetail(
            read_settings((), {}, provider="kwok"),
            LocalTransport(world.server),
            clock=clock,
            chance=Random(1),
        )
        ever: set[str] = set()

        def names() -> set[str]:
            return {each["metadata"]["name"] for each in world.api.list("nodes")}

        async with world.running():
            running = asyncio.create_task(ours.run())
            world.api.create(
                "kwoknodeclasses.karpenter.kwok.sh", {"metadata": {"name": "default"}, "spec": {}}
            )
            for name in ("default", "moving"):
                pool = node_pool(name)
                pool["spec"]["disruption"] = {"consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]}
                if name == "moving":
                    pool["spec"]["template"]["spec"]["taints"] = [{"key": name, "effect": "NoSchedule"}]
                world.api.create("nodepools.karpenter.sh", pool)
            # Most of the cluster stays as it is, and so does what was decided about it.
            world.api.create("deployments.apps", spread_out("stays", STAYING), "default")
            await clock.sleep(300)
            for number in range(ROUNDS):
                world.api.create("deployments.apps", moving(f"web{number}"), "default")
                await clock.sleep(300)
                ever |= names()
                world.api.delete("deployments.apps", f"web{number}", "default")
                await clock.sleep(GONE_AFTER)
            gone = ever - names()
            kept = [
                f"{text} in {type(holder).__qualname__} {str(holder)[:200]}"
                for text, holder in reached(ours)
                if any(name in str(text) for name in gone)
            ]
            ours.stop()
            await running
        return gone, kept

    gone, kept = run_virtual(main())
    assert len(gone) >= MOVING * ROUNDS, "the nodes came and went"
    assert not kept, "\n".join(kept[:20])

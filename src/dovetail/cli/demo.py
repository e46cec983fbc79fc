"""``dovetail demo``: a cluster is autoscaled before your eyes, in under a minute, in this one process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from dovetail.cli.embedded import Embedded, EmbeddedOptions, embedded
from dovetail.cli.output import COMPLAINTS, counted, put
from dovetail.runtime import logs
from dovetail.settings import read

PATIENCE = 60.0
# A story should not wait for the second burst of pods: shorter windows than in production.
HURRY = ("--batch-idle-duration=500ms", "--batch-max-duration=1s")
LOOK_EVERY = 0.05
PRICE = "eks-node-viewer/instance-price"
CLAIMS, POOLS = "nodeclaims.karpenter.sh", "nodepools.karpenter.sh"
CLASS = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
}
POOL = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
                "expireAfter": "Never",
            }
        },
        "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "100%"}]},
    },
}


class Failed(Exception):
    """A step of the story did not happen in time."""


def demo(
    replicas: Annotated[int, typer.Option(min=1, max=1000, help="How many pods to ask for.")] = 5,
) -> None:
    """Watch a Deployment get nodes and give them back, on an embedded cluster.

    No cloud, no containers: the cluster, its kubelets and the autoscaler run in this process, and the
    API is the real one. The exit code says whether everything happened.
    """
    logs.configure("error", ("/dev/null",))
    with TemporaryDirectory(prefix="dovetail-demo-") as folder:
        options = EmbeddedOptions(read(HURRY, {}, provider="kwok"), kubeconfig=Path(folder) / "kubeconfig")
        try:
            asyncio.run(_tell(options, replicas))
        except Failed as error:
            put(f"\nThe story stopped: {error}\n")
            raise typer.Exit(COMPLAINTS) from None


class Teller:
    """Says what happens, and when."""

    def __init__(self, cluster: Embedded) -> None:
        self.cluster = cluster
        self.api = cluster.world.server.local("demo")
        self._started = time.monotonic()

    def say(self, text: str) -> None:
        put(f"{time.monotonic() - self._started:6.1f} s  {text}\n")

    async def until(self, what: str, holds: Callable[[], bool]) -> float:
        """Wait for something; returns how long it took."""
        began = time.monotonic()
        while not holds():
            if time.monotonic() - began > PATIENCE:
                raise Failed(f"waited {PATIENCE:.0f} s for {what}")
            await asyncio.sleep(LOOK_EVERY)
        return time.monotonic() - began

    def pods(self, phase: str = "") -> list[dict[str, Any]]:
        found = self.api.list("pods", "default")
        return [pod for pod in found if not phase or (pod.get("status") or {}).get("phase") == phase]

    def scale(self, replicas: int) -> None:
        self.api.patch("deployments.apps", "inflate", {"spec": {"replicas": replicas}}, "default")


async def _tell(options: EmbeddedOptions, replicas: int) -> None:
    async with embedded(options) as cluster:
        teller = Teller(cluster)
        teller.say(f"a Kubernetes API server listens on {cluster.url}, with Dovetail in it")
        await _prepare(teller)
        first, running, price, nodes = await _grow(teller, replicas)
        await _shrink(teller)
        pods, machines = counted(replicas, "pod"), counted(nodes, "node")
        put(f"\nfirst node ready after {first:.1f} s, all {pods} running after {running:.1f} s;\n")
        put(f"{machines} at ${price:.4f} an hour, all gone again at the end.\n")


async def _prepare(teller: Teller) -> None:
    teller.api.create("kwoknodeclasses.karpenter.kwok.sh", CLASS)
    teller.api.create(POOLS, POOL)
    teller.api.create("deployments.apps", _inflate())
    await teller.until("the pool to become ready", lambda: _ready(teller.api.get(POOLS, "default")))
    teller.say("a NodePool is ready; there are no nodes yet")


async def _grow(teller: Teller, replicas: int) -> tuple[float, float, float, int]:
    teller.scale(replicas)
    began = time.monotonic()
    await teller.until("pods", lambda: len(teller.pods("Pending")) == replicas)
    teller.say(
        f"the Deployment inflate wants {counted(replicas, 'pod')}: all are pending, nothing can hold them"
    )
    await teller.until("NodeClaims", lambda: bool(teller.api.list(CLAIMS)))
    for claim in teller.api.list(CLAIMS):
        types = next(
            r for r in claim["spec"]["requirements"] if r["key"] == "node.kubernetes.io/instance-type"
        )
        teller.say(
            f"NodeClaim {claim['metadata']['name']} is ordered: any of {len(types['values'])} instance types"
        )
    await teller.until("a ready node", lambda: any(map(_ready, teller.api.list("nodes"))))
    first = time.monotonic() - began
    for node in teller.api.list("nodes"):
        labels = node["metadata"]["labels"]
        kind, zone = labels["node.kubernetes.io/instance-type"], labels["topology.kubernetes.io/zone"]
        teller.say(f"node {node['metadata']['name']} joined: {kind} in {zone}, ${float(labels[PRICE]):.4f}/h")
    await teller.until("running pods", lambda: len(teller.pods("Running")) == replicas)
    running = time.monotonic() - began
    nodes = teller.api.list("nodes")
    teller.say(f"{counted(replicas, 'pod')} running on {counted(len(nodes), 'node')}")
    price = sum(float(node["metadata"]["labels"][PRICE]) for node in nodes)
    return first, running, price, len(nodes)


async def _shrink(teller: Teller) -> None:
    teller.scale(0)
    await teller.until("the pods to go", lambda: not teller.pods())
    teller.say("scaled to 0: the pods are gone, the nodes are empty")
    await teller.until(
        "the nodes to go", lambda: not teller.api.list("nodes") and not teller.api.list(CLAIMS)
    )
    teller.say("the nodes were drained, ended and forgotten")


def _ready(obj: dict[str, Any]) -> bool:
    conditions = (obj.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _inflate() -> dict[str, Any]:
    container = {
        "name": "inflate",
        "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": "1"}},
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "inflate", "namespace": "default"},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "inflate"}},
            "template": {
                "metadata": {"labels": {"app": "inflate"}},
                "spec": {"terminationGracePeriodSeconds": 0, "containers": [container]},
            },
        },
    }

"""A real control plane with `dovetail controller` as a process of its own, seen through the API alone."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from support.two_servers import MERGE, Api, Json, free_ports, real_api, real_cluster

POOLS, CLAIMS = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.sh/v1/nodeclaims"
CLASSES = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"
NODES = "/api/v1/nodes"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
BUDGETS = "/apis/policy/v1/namespaces/{ns}/poddisruptionbudgets"
POOL_LABEL = "karpenter.sh/nodepool"
DISRUPTED, UNREGISTERED = "karpenter.sh/disrupted", "karpenter.sh/unregistered"
DO_NOT_DISRUPT = "karpenter.sh/do-not-disrupt"
OURS = (sys.executable, "-m", "dovetail", "controller", "--provider", "kwok")
ON_DEMAND: Json = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}


@contextmanager
def cluster_with_kinds(folder: Path) -> Iterator[Path]:
    """A control plane that knew our kinds from the start, as its garbage collector likes it."""
    folder.mkdir(parents=True)
    manifests = folder / "crds.yaml"
    printed = subprocess.run(
        [sys.executable, "-m", "dovetail", "crds", "--flavour", "kwok"], capture_output=True, check=True
    )
    manifests.write_bytes(printed.stdout)
    before = os.environ.get("CLUSTER_MANIFESTS")
    os.environ["CLUSTER_MANIFESTS"] = str(manifests)
    try:
        with real_cluster(folder / "cluster", free_ports(4)) as kubeconfig:
            yield kubeconfig
    finally:
        if before is None:
            del os.environ["CLUSTER_MANIFESTS"]
        else:
            os.environ["CLUSTER_MANIFESTS"] = before


@contextmanager
def controller(
    kubeconfig: Path, log: Path, command: Sequence[str] = OURS, **settings: str
) -> Iterator[subprocess.Popen[bytes]]:
    """`dovetail controller`, or another, while the block lasts; what it says goes to ``log``."""
    port = free_ports(2)
    env = {
        "PATH": os.environ["PATH"],
        "KUBECONFIG": str(kubeconfig),
        "LEADER_ELECTION_NAMESPACE": "default",
        "METRICS_PORT": str(port),
        "HEALTH_PROBE_PORT": str(port + 1),
        **settings,
    }
    with log.open("wb") as said:
        running = subprocess.Popen(command, env=env, stdout=said, stderr=subprocess.STDOUT)
        try:
            yield running
        finally:
            running.terminate()
            try:
                running.wait(30)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()


class Fleet:
    """One pool, its nodes and the workloads of one test, which run on that pool alone."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.pool = f"pool-{api.run}"

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Json:
        code, answer = await self.api.raw(method, path, body, kind)
        assert code < 300, (method, path, code, answer)
        found: Json = answer
        return found

    async def start(
        self, *, spec: Json | None = None, disruption: Json | None = None, **template: Any
    ) -> None:
        """Make the pool; ``template`` goes into its nodes' spec, ``disruption`` over a quick default."""
        requirements = template.pop("requirements", [ON_DEMAND])
        reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": self.pool}
        await self.ask("POST", CLASSES, {**_named("KWOKNodeClass", self.pool, "karpenter.kwok.sh/v1alpha1")})
        quick = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "1s", "budgets": [{"nodes": "100%"}]}
        body = {
            **_named("NodePool", self.pool, "karpenter.sh/v1"),
            "spec": {
                "template": {
                    "spec": {"nodeClassRef": reference, "requirements": requirements, **template},
                },
                "disruption": {**quick, **(disruption or {})},
                **(spec or {}),
            },
        }
        await self.ask("POST", POOLS, body)

    async def change_pool(self, spec: Json) -> None:
        await self.ask("PATCH", f"{POOLS}/{self.pool}", {"spec": spec}, MERGE)

    async def deploy(
        self, name: str, replicas: int, cpu: str = "1", annotations: Json | None = None, **spec: Any
    ) -> None:
        pod = {
            "terminationGracePeriodSeconds": 0,
            "nodeSelector": {POOL_LABEL: self.pool},
            "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu}}}],
            **spec,
        }
        metadata = {"labels": {"app": name}, "annotations": annotations or {}}
        await self.ask(
            "POST",
            DEPLOYMENTS,
            {
                **_named("Deployment", name, "apps/v1"),
                "spec": {
                    "replicas": replicas,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {"metadata": metadata, "spec": pod},
                },
            },
        )

    async def guard(self, name: str, minimum: int) -> None:
        """A PodDisruptionBudget over the deployment, known to the disruption controller."""
        body = {
            **_named("PodDisruptionBudget", name, "policy/v1"),
            "spec": {"minAvailable": minimum, "selector": {"matchLabels": {"app": name}}},
        }
        await self.ask("POST", BUDGETS, body)
        await self.api.until(f"{BUDGETS}/{name}", lambda a: "observedGeneration" in a.get("status", {}))

    async def scale(self, name: str, replicas: int) -> None:
        await self.ask("PATCH", f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": replicas}}, MERGE)

    async def running(self, name: str, replicas: int, seconds: float = 60.0) -> None:
        """Until so many pods of the deployment are ready and no more are left."""

        def there(answer: Json) -> bool:
            status = answer.get("status", {})
            return bool(
                status.get("observedGeneration") == answer["metadata"]["generation"]
                and status.get("readyReplicas", 0) == status.get("replicas", 0) == replicas
            )

        await self.api.until(f"{DEPLOYMENTS}/{name}", there, seconds)

    async def nodes(self) -> list[Json]:
        return await self._listed(NODES)

    async def claims(self) -> list[Json]:
        return await self._listed(CLAIMS)

    async def _listed(self, path: str) -> list[Json]:
        answer = await self.ask("GET", f"{path}?labelSelector={POOL_LABEL}%3D{self.pool}")
        found: list[Json] = answer["items"]
        return found

    async def node_names(self) -> set[str]:
        return {node["metadata"]["name"] for node in await self.nodes()}

    async def until(self, holds: Callable[[], Awaitable[bool]], seconds: float, what: str) -> float:
        """Ask again and again; the seconds it took come back."""
        began = time.monotonic()
        while not await holds():
            waited = time.monotonic() - began
            assert waited < seconds, f"after {waited:.1f} s: not {what}; {await self.told()}"
            await asyncio.sleep(0.05)
        return time.monotonic() - began

    async def told(self) -> str:
        """The claims and pods there are, for whoever wonders why."""
        claims = (
            f"{_born(c)} on {c['status'].get('nodeName')}{' leaves' if deleting(c) else ''}"
            f" for {c['spec']['resources']['requests']}"
            for c in await self.claims()
        )
        pods = (await self.ask("GET", "/api/v1/namespaces/{ns}/pods"))["items"]
        places = (f"{_born(p)} on {p['spec'].get('nodeName')}" for p in pods)
        return f"claims: {'; '.join(claims)}; pods: {'; '.join(places)}"

    async def until_nodes(self, count: int, seconds: float = 90.0) -> None:
        """Until there are so many initialized nodes, as many claims, and no others."""

        async def settled() -> bool:
            nodes, claims = await self.nodes(), await self.claims()
            ready = [c for c in claims if condition(c, "Initialized") == "True" and not deleting(c)]
            return len(nodes) == len(claims) == len(ready) == count

        await self.until(settled, seconds, f"{count} nodes")

    async def until_replaced(self, gone: set[str], seconds: float = 90.0) -> None:
        """Until none of these nodes is left."""

        async def replaced() -> bool:
            return not gone & await self.node_names()

        await self.until(replaced, seconds, f"rid of {sorted(gone)}")

    async def until_tainted(self, name: str, key: str, seconds: float) -> float:
        async def tainted() -> bool:
            return key in taints(await self.ask("GET", f"{NODES}/{name}"))

        return await self.until(tainted, seconds, f"tainted {key}")

    async def clear(self) -> None:
        """Take everything away again; nodes end with their pool."""
        await self.api.raw("DELETE", "/api/v1/namespaces/{ns}")
        for path in (POOLS, CLASSES):
            await self.api.raw("DELETE", f"{path}/{self.pool}")

        async def gone() -> bool:
            return not await self.nodes() and not await self.claims()

        try:
            await self.until(gone, 90.0, "rid of the pool's nodes")
        except AssertionError:  # nobody is left to release them; the next test shall not meet them
            for path, found in ((CLAIMS, await self.claims()), (NODES, await self.nodes())):
                for each in found:
                    await self._release(f"{path}/{each['metadata']['name']}")
            raise

    async def _release(self, path: str) -> None:
        await self.api.raw("DELETE", path)
        await self.api.raw("PATCH", path, {"metadata": {"finalizers": None}}, kind=MERGE)


@asynccontextmanager
async def fleet(kubeconfig: Path) -> AsyncIterator[Fleet]:
    """A fleet of its own for one test, gone with it."""
    async with real_api(kubeconfig) as api:
        found = Fleet(api)
        try:
            yield found
        finally:
            await found.clear()


def condition(thing: Json, name: str) -> str:
    found = [each for each in thing.get("status", {}).get("conditions", ()) if each["type"] == name]
    return str(found[0]["status"]) if found else ""


def deleting(thing: Json) -> bool:
    return "deletionTimestamp" in thing["metadata"]


def taints(node: Json) -> set[str]:
    return {taint["key"] for taint in node["spec"].get("taints", ())}


def _born(thing: Json) -> str:
    return f"{thing['metadata']['name']} of {thing['metadata']['creationTimestamp']}"


def _named(kind: str, name: str, version: str) -> Json:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name}}

"""Both ways of editing pools are accepted by a real API server with its CEL rules, and undone to the byte."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from dovetail.api.crds import manifests, zonal_manifest
from dovetail.cli.zonalacts import Alone
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kubeconfig import connect
from dovetail.runtime.transport import Reply, Request, Transport
from dovetail.settings import read
from dovetail.sim.aws import SimulatedAws
from dovetail.zonal.machine import Pace

Json = dict[str, Any]
ZONE, ZONE_ID = "topology.kubernetes.io/zone", "topology.k8s.aws/zone-id"
A, B, C = "us-west-2a", "us-west-2b", "us-west-2c"
POOLS, CLASSES = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
SHIFTS, NODES = "/apis/dovetail.sh/v1alpha1/zoneshifts", "/api/v1/nodes"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
SHAPES: dict[str, list[Json]] = {
    "none": [],
    "in": [{"key": ZONE, "operator": "In", "values": [A, B, C]}],
    "min-values": [{"key": ZONE, "operator": "In", "values": [A, B, C], "minValues": 3}],
    "not-in": [{"key": ZONE, "operator": "NotIn", "values": [B]}],
    "exists": [{"key": ZONE, "operator": "Exists"}],
    "only": [{"key": ZONE, "operator": "In", "values": [A]}],
    "twice": [
        {"key": ZONE, "operator": "In", "values": [A, B, C]},
        {"key": ZONE, "operator": "In", "values": [A, C]},
    ],
}
QUICK = Pace(
    debounce=timedelta(),
    min_hold=timedelta(),
    confirm=timedelta(),
    settle=timedelta(seconds=1),
    guard=timedelta(seconds=2),
)


class Real:
    """The server, asked plainly."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> Reply:
        data = None if body is None else msgspec.json.encode(body)
        return await self.transport.send(Request(method, path, {}, data, kind))

    async def made(self, path: str, body: Json) -> Json:
        reply = await self.ask("POST", path, body)
        assert reply.status in (200, 201, 409), reply.body
        return dict(msgspec.json.decode(reply.body))

    async def read(self, path: str) -> Json:
        reply = await self.ask("GET", path)
        assert reply.status == 200, reply.body
        return dict(msgspec.json.decode(reply.body))

    async def wanted(self, name: str) -> Json:
        """A pool without what the server counts."""
        found = await self.read(f"{POOLS}/{name}")
        meta = {k: v for k, v in found["metadata"].items() if k in ("name", "labels", "annotations", "uid")}
        return {"metadata": meta, "spec": found["spec"]}

    async def until(self, path: str, true: Any, within: float = 60.0) -> Json:
        async with asyncio.timeout(within):
            while True:
                found = await self.read(path)
                if true(found):
                    return found
                await asyncio.sleep(0.2)


async def _furnished(real: Real, aws: SimulatedAws) -> None:
    for each in (*manifests("aws"), zonal_manifest()):
        await real.made(CRDS, each)
    for each in (*manifests("aws"), zonal_manifest()):
        await real.until(
            f"{CRDS}/{each['metadata']['name']}", lambda crd: "Established" in str(crd.get("status"))
        )
    await asyncio.sleep(1)
    found = [{"tags": {"karpenter.sh/discovery": "test"}}]
    spec = {
        "role": "nodes",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": found,
        "securityGroupSelectorTerms": found,
    }
    meta = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "zonal"}}
    await real.made(CLASSES, {**meta, "spec": spec})
    subnets = [{"id": f"subnet-{z[-1]}", "zone": z, "zoneID": aws.network.zone_ids[z]} for z in (A, B, C)]
    patched = await real.ask("PATCH", f"{CLASSES}/zonal/status", {"status": {"subnets": subnets}}, MERGE)
    assert patched.status == 200, patched.body
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "zonal-a", "labels": {ZONE: A}}}
    await real.made(NODES, node)


def _pool(name: str, requirements: list[Json]) -> Json:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "zonal"}
    template = {"spec": {"nodeClassRef": reference, "requirements": requirements}}
    kind = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool"}
    return {**kind, "metadata": {"name": name}, "spec": {"template": template}}


@pytest.mark.parametrize("strategy", ["AppendNotIn", "RemoveFromIn"])
@pytest.mark.parametrize("protect", [True, False], ids=["marked", "guarded"])
async def test_edits_are_accepted_and_undone_to_the_byte(
    kubeconfig: Path, strategy: str, protect: bool
) -> None:
    clock = SystemClock()
    aws = SimulatedAws(clock, 0, cluster="test")
    transport = connect(clock, str(kubeconfig)).transport("test")
    real = Real(transport)
    await _furnished(real, aws)
    prefix = f"{strategy.lower()}-{'m' if protect else 'g'}"
    names = {shape: f"{prefix}-{shape}" for shape in SHAPES}
    for shape, name in names.items():
        await real.made(POOLS, _pool(name, SHAPES[shape]))
    before = {name: await real.wanted(name) for name in names.values()}
    node = await real.read(f"{NODES}/zonal-a")

    settings = read(("--cluster-name=test", "--enable-zonal-shift=true"), {}, provider="aws")
    options: Json = {"mode": "NodePoolEdit", "strategy": strategy, "protect": protect, "pace": QUICK}
    alone = Alone(settings, transport, aws, restore_interval=0.1, **options)
    running = asyncio.create_task(alone.run(alone.filled))
    zone = aws.network.zone_ids[A]
    try:
        shift = {"zoneId": zone, "kind": "LOCAL"}
        kind = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "ZoneShift"}
        await real.made(SHIFTS, {**kind, "metadata": {"name": prefix}, "spec": shift})
        await real.until(f"{SHIFTS}/{prefix}", lambda o: o.get("status", {}).get("phase") == "Active")
        for name in names.values():
            assert await real.wanted(name) != before[name], name
        marked = (await real.read(f"{NODES}/zonal-a"))["spec"].get("unschedulable", False)
        assert marked is protect
        if not protect:
            budgets = (await real.read(f"{POOLS}/{prefix}-in"))["spec"]["disruption"]["budgets"]
            assert {"nodes": "0", "reasons": ["Drifted"]} in budgets
        await real.ask("DELETE", f"{SHIFTS}/{prefix}")
        await asyncio.wait_for(_gone(real, f"{SHIFTS}/{prefix}"), 90)
    finally:
        alone.stop()
        await running
    after = {name: await real.wanted(name) for name in names.values()}
    restored = await real.read(f"{NODES}/zonal-a")
    for name in names.values():
        await real.ask("DELETE", f"{POOLS}/{name}")
    await transport.close()
    assert after == before
    for part in ("labels", "annotations"):
        assert restored["metadata"].get(part) == node["metadata"].get(part)
    assert restored["spec"].get("unschedulable", False) == node["spec"].get("unschedulable", False)


async def _gone(real: Real, path: str) -> None:
    while True:
        if (await real.ask("GET", path)).status == 404:
            return
        await asyncio.sleep(0.3)

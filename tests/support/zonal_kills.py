"""`dovetail zonal-shift run` as a process of its own, killed without a word between any two writes to pools.

    process ──HTTP──► Gate ──HTTPS──► API server, embedded or real
                       └─ lets so many writes to its NodePools through; at the next one it kills the process

A write that the gate does not let through never reaches the server, and one that it let through is answered
before the process dies: what the server has is exactly what the process had done. NodePools of other tests
pass freely, and a write that the server refuses is none.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from dovetail.api.crds import build_manifests, build_zonal_manifest
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kubeconfig import Connection, connect
from dovetail.runtime.transport import ApiReply, ApiRequest, Transport
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.wire.server import serve_aws

__all__ = [
    "CLASSES",
    "CRDS",
    "NODES",
    "POOLS",
    "SHIFTS",
    "Asker",
    "Gate",
    "clear_after",
    "furnish",
    "killed_at_every_pool",
    "pool",
]

Json = dict[str, Any]
ZONE = "topology.kubernetes.io/zone"
A, B, C = "us-west-2a", "us-west-2b", "us-west-2c"
POOLS, CLASSES = "/apis/karpenter.sh/v1/nodepools", "/apis/karpenter.k8s.aws/v1/ec2nodeclasses"
SHIFTS, NODES = "/apis/dovetail.sh/v1alpha1/zoneshifts", "/api/v1/nodes"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
MERGE = "application/merge-patch+json"
LEDGER = "zonalshift.dovetail.sh/ledger"
# Far more than anything here takes; only a life that hangs meets it.
PATIENCE = 120.0
PASSED_ON = ("Content-Type", "Accept", "User-Agent")


class Asker:
    """The server, asked plainly."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    async def ask(self, method: str, path: str, body: Any = None, kind: str = "application/json") -> ApiReply:
        data = None if body is None else msgspec.json.encode(body)
        return await self.transport.send(ApiRequest(method, path, {}, data, kind))

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

    async def until(self, path: str, true: Callable[[Json], object], within: float = 60.0) -> Json:
        async with asyncio.timeout(within):
            while True:
                found = await self.read(path)
                if true(found):
                    return found
                await asyncio.sleep(0.2)


async def furnish(server: Asker, aws: SimulatedAws, node_class: str = "zonal") -> None:
    """The kinds, a class with a subnet in each of three zones, and a node in one of them."""
    for each in (*build_manifests("aws"), build_zonal_manifest()):
        await server.made(CRDS, each)
    for each in (*build_manifests("aws"), build_zonal_manifest()):
        await server.until(
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
    meta = {"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": node_class}}
    await server.made(CLASSES, {**meta, "spec": spec})
    subnets = [{"id": f"subnet-{z[-1]}", "zone": z, "zoneID": aws.network.zone_ids[z]} for z in (A, B, C)]
    patched = await server.ask(
        "PATCH", f"{CLASSES}/{node_class}/status", {"status": {"subnets": subnets}}, MERGE
    )
    assert patched.status == 200, patched.body
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "zonal-a", "labels": {ZONE: A}}}
    await server.made(NODES, node)


@asynccontextmanager
async def clear_after(server: Asker, shift: str, pools: list[str]) -> AsyncIterator[None]:
    """However a story ends, its shift, pools and node are gone: the next one meets nothing of them."""
    try:
        yield
    finally:
        # Nobody is left to undo the shift, so nothing may hold it back.
        await server.ask("PATCH", f"{SHIFTS}/{shift}", {"metadata": {"finalizers": []}}, MERGE)
        left = (f"{SHIFTS}/{shift}", *(f"{POOLS}/{name}" for name in pools), f"{NODES}/zonal-a")
        for path in left:
            await server.ask("DELETE", path)
        await server.transport.close()


class Gate:
    """Stands between a process and its API server, and decides when that process dies."""

    def __init__(self, connection: Connection, names: Sequence[str]) -> None:
        self._connection = connection
        self._counted = {f"{POOLS}/{name}" for name in names}
        self._victim: asyncio.subprocess.Process | None = None
        self._left = 0
        self._turn = asyncio.Lock()  # one counted write at a time
        self.kills = 0
        self.url = ""

    def let(self, victim: asyncio.subprocess.Process, writes: int) -> None:
        """So many more writes to pools are let through; at the one after, the process is killed."""
        self._victim, self._left = victim, writes

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Gate]:
        connector = aiohttp.TCPConnector(ssl=self._connection.tls or False)
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self._pass)
        async with aiohttp.ClientSession(connector=connector, auto_decompress=False) as self._session:
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
            await runner.setup()
            try:
                site = web.TCPSite(runner, "127.0.0.1", 0)
                await site.start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield self
            finally:
                await runner.cleanup()

    async def _pass(self, request: web.Request) -> web.StreamResponse:
        if request.method != "PATCH" or request.path not in self._counted:
            return await self._forward(request)
        async with self._turn:
            if not self._left:
                self._kill()
                raise web.HTTPServiceUnavailable
            answer = await self._forward(request)
            self._left -= answer.status < 300
            return answer

    async def _forward(self, request: web.Request) -> web.StreamResponse:
        headers = {name: request.headers[name] for name in PASSED_ON if name in request.headers}
        headers |= await self._connection.sign_in().build_headers()
        url = self._connection.server.rstrip("/") + str(request.rel_url)
        body = await request.read()
        timeout = aiohttp.ClientTimeout(total=None)
        async with self._session.request(
            request.method, url, headers=headers, data=body or None, timeout=timeout
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            return response

    def _kill(self) -> None:
        """Whoever made the write that may not pass is no more."""
        if self._victim is not None and self._victim.returncode is None:
            self.kills += 1
            self._victim.send_signal(signal.SIGKILL)
        self._victim = None


class Lives:
    """One process after the other; each starts with nothing but what the cluster says."""

    def __init__(self, gate: Gate, folder: Path, environment: Mapping[str, str]) -> None:
        self._gate, self._environment = gate, dict(environment)
        self._kubeconfig = folder / "through-the-gate"
        cluster = {"name": "c", "cluster": {"server": gate.url}}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [cluster],
            "users": [{"name": "u", "user": {"token": "the gate knows a better one"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        self._kubeconfig.write_text(json.dumps(document))
        self._log = folder / "lives.log"
        self.count = 0

    async def one(self, writes: int, over: Callable[[], Any]) -> bool:
        """A life that may write so often; whether everything was over before it was killed."""
        self.count += 1
        flags = ("--disable-leader-election=true", "--metrics-port=0", "--health-probe-port=0")
        command = (sys.executable, "-m", "dovetail", "zonal-shift", "run", "--cluster-name=test", *flags)
        environment = {"PATH": os.environ["PATH"], "KUBECONFIG": str(self._kubeconfig), **self._environment}
        with self._log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *command, "--zonal-shift-debounce=0s", env=environment, stdout=log, stderr=log
            )
            self._gate.let(process, writes)
            try:
                return await self._watched(process, over)
            finally:
                if process.returncode is None:
                    process.kill()
                await process.wait()

    async def _watched(self, process: asyncio.subprocess.Process, over: Callable[[], Any]) -> bool:
        async with asyncio.timeout(PATIENCE):
            while process.returncode is None:
                if await over():
                    return True
                await asyncio.sleep(0.1)
        assert process.returncode == -signal.SIGKILL, self._log.read_text()[-2000:]
        return False


def pool(name: str, requirements: list[Json], node_class: str = "zonal") -> Json:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": node_class}
    template = {"spec": {"nodeClassRef": reference, "requirements": requirements}}
    kind = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool"}
    return {**kind, "metadata": {"name": name}, "spec": {"template": template}}


async def killed_at_every_pool(kubeconfig: Path, folder: Path, pools: int = 3) -> int:
    """Shift away and back with a process that dies before each write to a pool; how often it died."""
    clock = SystemClock()
    aws = SimulatedAws(clock, 0, cluster="test")
    connection = connect(clock, str(kubeconfig))
    server = Asker(connection.open_transport("judge"))
    names = [f"killed-{number}" for number in range(pools)]
    async with clear_after(server, "killed", names):
        await furnish(server, aws)
        for name in names:
            await server.made(POOLS, pool(name, [{"key": ZONE, "operator": "In", "values": [A, B, C]}]))
        before = {name: await server.wanted(name) for name in names}
        async with serve_aws(aws, moto=False) as door, Gate(connection, names).open() as gate:
            environment = {
                "HOME": str(folder),
                "AWS_ENDPOINT_URL": door.url,
                "AWS_REGION": "us-west-2",
                "AWS_ACCESS_KEY_ID": f"AKIA{aws.account}",
                "AWS_SECRET_ACCESS_KEY": "secret",
            }
            lives = Lives(gate, folder, environment)
            await _there(server, lives, names, aws.network.zone_ids[A])
            await _back(server, lives, before)
            return gate.kills


async def _there(server: Asker, lives: Lives, names: list[str], zone: str) -> None:
    shift = {"apiVersion": "dovetail.sh/v1alpha1", "kind": "ZoneShift", "metadata": {"name": "killed"}}
    await server.made(SHIFTS, {**shift, "spec": {"zoneId": zone, "kind": "LOCAL"}})

    async def active() -> bool:
        found = await server.read(f"{SHIFTS}/killed")
        return bool(found.get("status", {}).get("phase") == "Active")

    edited = 0
    assert not await lives.one(0, active), "killed before its first write"
    while not await lives.one(1, active):
        now = [name for name in names if LEDGER in (await _notes(server, name))]
        assert len(now) == edited + 1, "each life does one pool, and none a second time"
        edited += 1
    for name in names:
        entries = (await server.read(f"{POOLS}/{name}"))["spec"]["template"]["spec"]["requirements"]
        assert [each["values"] for each in entries] == [[A, B, C], [A]], "taken out once, by whichever life"


async def _back(server: Asker, lives: Lives, before: Mapping[str, Json]) -> None:
    await server.ask("DELETE", f"{SHIFTS}/killed")

    async def restored() -> bool:
        return {name: await server.wanted(name) for name in before} == before

    assert not await lives.one(0, restored), "killed before its first undo"
    while not await lives.one(1, restored):
        found = {name: await server.wanted(name) for name in before}
        for name, each in found.items():
            entries = each["spec"]["template"]["spec"]["requirements"]
            assert entries[0] == before[name]["spec"]["template"]["spec"]["requirements"][0]
    assert {name: await server.wanted(name) for name in before} == before


async def _notes(server: Asker, name: str) -> Json:
    return dict((await server.read(f"{POOLS}/{name}"))["metadata"].get("annotations") or {})

"""Attack the ports of a running controller, and see how long a pending pod waits for its node meanwhile.

    python hack/load_ports.py

A controller of its own process (provider kwok) on an embedded cluster; then 100 half-open and 1,000 idle
connections are held against its metrics and health ports and 1 MB gzip bodies are sent at 20 a second. Prints
both waits and the controller's cpu; ends with 1 when the wait under load is far longer.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import resource
import signal
import socket
import ssl
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import yaml

HALF_OPEN, IDLE, PER_SECOND, BODY = 100, 1_000, 20, 2**20
Json = dict[str, Any]
PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
POOL: Json = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "load"},
    "spec": {
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "load"},
                "requirements": [],
            }
        },
        "disruption": {"consolidateAfter": "Never"},
    },
}
CLASS: Json = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "load"},
}


def pod(name: str) -> Json:
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "7"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"containers": [container]},
    }


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


class Api:
    """The embedded cluster's API, by its kubeconfig."""

    def __init__(self, kubeconfig: Path) -> None:
        document = yaml.safe_load(kubeconfig.read_text())
        cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
        authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
        self._tls = ssl.create_default_context(cadata=authority)
        self._session = aiohttp.ClientSession(
            cluster["server"], headers={"Authorization": f"Bearer {user['token']}"}
        )

    async def call(self, method: str, path: str, body: Json | None = None) -> Json:
        async with self._session.request(method, path, json=body, ssl=self._tls) as reply:
            found: Json = await reply.json()
            return found

    async def close(self) -> None:
        await self._session.close()

    async def wait_for_node(self, name: str) -> float:
        """Seconds from the pod's creation until it is bound to a node that was bought for it."""
        began = time.monotonic()
        await self.call("POST", PODS, pod(name))
        while True:
            found = await self.call("GET", f"{PODS}/{name}")
            if found.get("spec", {}).get("nodeName"):
                return time.monotonic() - began
            await asyncio.sleep(0.1)


async def held(port: int, count: int, said: bytes) -> None:
    """Keep so many connections that say no more than this; whoever is cut off comes again."""

    async def one() -> None:
        while True:
            with suppress(OSError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(said)
                await reader.read()
                writer.close()
            await asyncio.sleep(0.5)

    await asyncio.gather(*(one() for _ in range(count)))


async def bombed(port: int) -> None:
    """Send bodies of a megabyte, packed from a gigabyte, so many a second."""
    bomb = gzip.compress(bytes(2**30), 9)[:BODY]
    told = f"Host: a\r\nContent-Encoding: gzip\r\nContent-Length: {BODY}"
    head = f"POST /metrics HTTP/1.1\r\n{told}\r\n\r\n".encode()

    async def one() -> None:
        with suppress(OSError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head + bomb)
            await reader.read()
            writer.close()

    tasks: set[asyncio.Task[None]] = set()
    while True:
        task = asyncio.create_task(one())
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        await asyncio.sleep(1 / PER_SECOND)


def cpu_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measured(kubeconfig: Path, ports: tuple[int, int], pid: int) -> int:
    api = Api(kubeconfig)
    try:
        for path, each in (("/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses", CLASS),
                           ("/apis/karpenter.sh/v1/nodepools", POOL)):  # fmt: skip
            await api.call("POST", path, each)
        await api.wait_for_node("first")  # everything is warm after this one
        quiet = [await api.wait_for_node(f"quiet-{number}") for number in range(3)]
        attack = [
            asyncio.create_task(each)
            for port in ports
            for each in (
                held(port, IDLE // 2, b""),
                held(port, HALF_OPEN // 2, b"GET /healthz HTTP/1.1\r\nHost:"),
                bombed(port),
            )
        ]
        await asyncio.sleep(5)
        before, began = cpu_of(pid), time.monotonic()
        loud = [await api.wait_for_node(f"loud-{number}") for number in range(3)]
        used = (cpu_of(pid) - before) / (time.monotonic() - began)
        for task in attack:
            task.cancel()
        await asyncio.gather(*attack, return_exceptions=True)
    finally:
        await api.close()
    best, worst = sorted(quiet)[1], sorted(loud)[1]
    print(f"a pending pod's node, quiet:       {best:.2f} s (median of 3)")
    print(f"the same under attack:             {worst:.2f} s (median of 3)")
    print(f"cpu of the controller meanwhile:   {100 * used:.0f} %")
    return 0 if worst < 1.5 * best + 1.0 else 1


async def main() -> int:
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (min(8_192, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2
    )
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig, ports = Path(folder) / "kubeconfig", (free_port(), free_port())
        dovetail = (sys.executable, "-m", "dovetail")
        up = await asyncio.create_subprocess_exec(
            *dovetail, "up", "--cloud", "kwok", "--no-controller", "--kubeconfig", str(kubeconfig),
            stdout=asyncio.subprocess.PIPE,
        )  # fmt: skip
        assert up.stdout is not None
        while b"Ctrl-C" not in await up.stdout.readline():
            pass
        env = {**os.environ, "KUBECONFIG": str(kubeconfig), "CLUSTER_NAME": "load", "LOG_LEVEL": "error",
               "METRICS_PORT": str(ports[0]), "HEALTH_PROBE_PORT": str(ports[1]),
               "DISABLE_LEADER_ELECTION": "true"}  # fmt: skip
        controller = await asyncio.create_subprocess_exec(
            *dovetail, "controller", "--provider", "kwok", env=env
        )
        try:
            return await measured(kubeconfig, ports, controller.pid)
        finally:
            for process in (controller, up):
                with suppress(ProcessLookupError):
                    process.send_signal(signal.SIGTERM)
                await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))

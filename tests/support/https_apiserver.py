"""An embedded API server as strangers meet it: HTTPS, a token, and a kubeconfig, in a thread of its own.

Its own thread, since some clients block theirs. What a test does to the server behind a client's back
(cut its streams, forget history) is done on the server's loop.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import pytest

from dovetail.api import crds
from dovetail.runtime.clock import SystemClock
from dovetail.sim.certificates import ClusterCertificates
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.verbs.list_watch import ApiWatch

T = TypeVar("T")
TOKEN = "a-token-of-many-letters"
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


@dataclass(slots=True)
class Secured:
    """A running server, and what a client needs to reach it."""

    server: ApiServer
    loop: asyncio.AbstractEventLoop
    url: str
    kubeconfig: Path
    authority: Path
    token: str = TOKEN

    def call(self, work: Callable[[], T]) -> T:
        """Do something on the server's loop."""

        async def done() -> T:
            return work()

        return asyncio.run_coroutine_threadsafe(done(), self.loop).result(10)

    def cut_streams(self) -> int:
        """Break every watch off, as a failing network does; says how many there were."""

        def cut() -> int:
            watches = self._watches()
            for watch in watches:
                watch.broken = True
                watch.close()
            return len(watches)

        return self.call(cut)

    def end_streams(self) -> int:
        """End every watch as a server does whose time is up."""

        def end() -> int:
            watches = self._watches()
            for watch in watches:
                watch.close()
            return len(watches)

        return self.call(end)

    def streams(self) -> int:
        """How many watches are open."""
        return self.call(lambda: len(self._watches()))

    def forget(self) -> None:
        """Forget all history: whoever resumes from before is told 410."""
        self.call(lambda: self.server.store.compact())

    def create(self, resource: str, obj: dict[str, Any]) -> None:
        """Create something behind the client's back."""
        self.call(lambda: self.server.build_local_client("test").create(resource, obj))

    def _watches(self) -> list[ApiWatch]:
        homes = [
            home
            for bucket in self.server.store.get_buckets().values()
            for home in (bucket.listeners, *bucket.routed.values())
        ]
        return [each for home in homes for each in home.values() if isinstance(each, ApiWatch)]


async def until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Wait for something that happens in another thread or process."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 (nobody over there could set an event)
            await asyncio.sleep(0.02)


def own_namespace(served: Secured, request: pytest.FixtureRequest) -> str:
    """A namespace named after the test that asks."""
    name = str(request.node.name).replace("_", "-").removeprefix("test-")[:60].strip("-")
    served.create("namespaces", {"metadata": {"name": name}})
    return name


@contextmanager
def secured(folder: Path, provider: str = "kwok") -> Iterator[Secured]:
    """A server with our definitions installed, for as long as the block lasts."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    certificates = ClusterCertificates()

    async def start() -> tuple[ApiServer, Any, str]:
        server = ApiServer(SystemClock(), random.Random(1))
        for definition in crds.build_manifests(provider):
            server.build_local_client("test").create(DEFINITIONS, definition)
        context = server.serve(token=TOKEN, tls=certificates.context)
        return server, context, (await context.__aenter__()).url

    server, context, url = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
    try:
        authority, kubeconfig = folder / "ca.pem", folder / "kubeconfig"
        authority.write_bytes(certificates.authority)
        kubeconfig.write_text(json.dumps(_kubeconfig(url, certificates.authority)))
        yield Secured(server, loop, url, kubeconfig, authority)
    finally:
        asyncio.run_coroutine_threadsafe(context.__aexit__(None, None, None), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


def _kubeconfig(url: str, authority: bytes) -> dict[str, Any]:
    trusted = base64.b64encode(authority).decode()
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "it", "cluster": {"server": url, "certificate-authority-data": trusted}}],
        "users": [{"name": "it", "user": {"token": TOKEN}}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it", "namespace": "default"}}],
        "current-context": "it",
    }


def node_pool(name: str = "default") -> dict[str, Any]:
    """A pool that the definition accepts."""
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    requirement = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    template = {"spec": {"nodeClassRef": reference, "requirements": [requirement]}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template},
    }

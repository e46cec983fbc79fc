"""An embedded cluster as commands use it: served over HTTPS on loopback, with Dovetail at work inside."""

from __future__ import annotations

import asyncio
import base64
import os
import secrets
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from dovetail.api import crds, manifests
from dovetail.app import Dovetail
from dovetail.errors import Misconfigured
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.credentials import StaticToken
from dovetail.runtime.transport import HttpTransport
from dovetail.settings import Settings
from dovetail.sim.certificates import Certificates
from dovetail.sim.keeping import Keeping
from dovetail.sim.kube.server import serve
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World

__all__ = ["Embedded", "EmbeddedOptions", "embedded"]

SAVE_EVERY = 5.0
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """How the cluster is started."""

    settings: Settings
    port: int = 0
    seed: int = 0
    data_dir: Path | None = None
    kubeconfig: Path | None = None
    controller: bool = True


@dataclass(slots=True)
class Embedded:
    """A running embedded cluster."""

    world: World
    url: str
    kubeconfig: Path
    dovetail: Dovetail | None = None
    notes: list[str] = field(default_factory=list)


@asynccontextmanager
async def embedded(options: EmbeddedOptions) -> AsyncIterator[Embedded]:
    """Start everything; stop everything, in the reverse order, when the block ends."""
    async with AsyncExitStack() as stack:
        keeping = Keeping(options.data_dir) if options.data_dir else None
        state, complaint = keeping.load() if keeping else (None, "")
        world = World(SystemClock(), options.seed, snapshot=state)
        _install_definitions(world)
        token, certificates = secrets.token_urlsafe(32), Certificates()
        served = serve(world.server, "127.0.0.1", options.port, token, certificates.context)
        try:
            running = await stack.enter_async_context(served)
        except OSError as error:
            raise Misconfigured(
                f"listening on port {options.port}: {error.strerror}; choose another --port"
            ) from error
        _in_background(stack, world.desk.run())
        if keeping is not None:
            _in_background(stack, _keep(world, keeping))
            stack.callback(lambda: keeping.save(world.server.dump()))
        path = _write_kubeconfig(options.kubeconfig, running.url, token, certificates.authority)
        cluster = Embedded(world, running.url, path, notes=[complaint] if complaint else [])
        if options.controller:
            cluster.dovetail = await stack.enter_async_context(
                _controller(options.settings, cluster, token, options.seed)
            )
        yield cluster


@asynccontextmanager
async def _controller(
    settings: Settings, cluster: Embedded, token: str, seed: int
) -> AsyncIterator[Dovetail]:
    """Dovetail speaks to the embedded server as it would to any other: over the wire."""
    from dovetail.runtime.kubeconfig import from_kubeconfig

    clock = SystemClock()
    connection = from_kubeconfig([cluster.kubeconfig], clock)
    transport = HttpTransport(connection.server, StaticToken(token), tls=connection.tls)
    dovetail = Dovetail(settings, transport, clock=clock, chance=Random(seed), provider="kwok")
    running = asyncio.create_task(dovetail.run())
    try:
        yield dovetail
    finally:
        dovetail.stop()
        await asyncio.wait([running], timeout=10)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await transport.close()


def _in_background(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)


async def _keep(world: World, keeping: Keeping) -> None:
    kept = -1
    while True:
        await asyncio.sleep(SAVE_EVERY)
        if world.server.store.revision != kept:
            kept = world.server.store.revision
            keeping.save(world.server.dump())


def _install_definitions(world: World) -> None:
    for definition in crds.manifests("kwok"):
        try:
            world.api.create(DEFINITIONS, definition)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise


def _write_kubeconfig(path: Path | None, url: str, token: str, authority: bytes) -> Path:
    path = path or default_kubeconfig()
    name = "dovetail"
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": url,
                    "certificate-authority-data": base64.b64encode(authority).decode(),
                },
            }
        ],
        "users": [{"name": name, "user": {"token": token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": "default"}}],
        "current-context": name,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(path, "w", opener=lambda p, flags: os.open(p, flags, 0o600), encoding="utf-8") as file:
            file.write(manifests.write(document))
    except OSError as error:
        raise Misconfigured(
            f"writing the kubeconfig {path}: {error.strerror}; choose another --kubeconfig"
        ) from error
    return path


def default_kubeconfig() -> Path:
    """A place of our own: the user's kubeconfig is touched only when asked for by name."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "dovetail" / "kubeconfig"

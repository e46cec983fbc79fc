"""An embedded cluster as commands use it: served over HTTPS on loopback, with Dovetail at work inside."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Literal

from dovetail.api import crds
from dovetail.app.embedded_files import NAME, claim_kubeconfig, write_kubeconfig
from dovetail.app.embedded_objects import (
    create_default_pool,
    create_storage_class,
    publish_settings,
    put_behind_service,
)
from dovetail.errors import Misconfigured
from dovetail.runtime.clock import SystemClock
from dovetail.settings import Settings
from dovetail.sim.certificates import ClusterCertificates
from dovetail.sim.cluster.controllers import SimClusterOptions
from dovetail.sim.kube.http.server import serve_http
from dovetail.sim.kube.status import ApiError
from dovetail.sim.state_folder import StateFolder
from dovetail.sim.world import World, relax_garbage_collector

if TYPE_CHECKING:
    from dovetail.app.controller import Dovetail
    from dovetail.app.simulated_aws import EmbeddedAws
    from dovetail.controllers.provider_port import MakeProvider


__all__ = [
    "EmbeddedCluster",
    "EmbeddedOptions",
    "run_embedded_cluster",
]

SAVE_EVERY = 5.0
# What is under way may finish; nobody waits at a prompt for more.
GRACE = 1.0
DEFINITIONS = "customresourcedefinitions.apiextensions.k8s.io"
ZONES = ("test-zone-a", "test-zone-b", "test-zone-c")


@dataclass(frozen=True, slots=True)
class EmbeddedOptions:
    """How the cluster is started."""

    settings: Settings
    port: int = 0
    seed: int = 0
    data_dir: Path | None = None
    kubeconfig: Path | None = None
    controller: bool = True
    nodes: int = 0
    # Told of trouble that does not end the cluster.
    complain: Callable[[str], None] = lambda text: None
    cloud: Literal["aws", "kwok"] = "kwok"
    # Where to write what a shell needs to see the cluster and its cloud.
    env: Path | None = None
    # Seconds a simulated EC2 instance needs to join, from and to; None for a realistic time.
    boots: tuple[float, float] | None = None
    # What the pool that is there from the start says beside its defaults.
    pool: Mapping[str, Any] = field(default_factory=dict)
    # What the cluster is called, in its cloud and in its kubeconfig.
    name: str = NAME


@dataclass(slots=True)
class EmbeddedCluster:
    """A running embedded cluster. `parts` run until the end; one that ends before is a bug."""

    world: World
    url: str
    kubeconfig: Path
    dovetail: Dovetail | None = None
    beside: EmbeddedAws | None = None
    parts: list[asyncio.Task[None]] = field(default_factory=list)


@asynccontextmanager
async def run_embedded_cluster(options: EmbeddedOptions) -> AsyncIterator[EmbeddedCluster]:
    """Start everything; stop everything, in the reverse order, when the block ends."""
    async with AsyncExitStack() as stack:
        path = stack.enter_context(claim_kubeconfig(options.kubeconfig))
        certificates = ClusterCertificates()
        state_folder = stack.enter_context(StateFolder(options.data_dir)) if options.data_dir else None
        world = _build_world(options, state_folder, certificates.authority)
        token = secrets.token_urlsafe(32)
        served = serve_http(world.server, "127.0.0.1", options.port, token, certificates.context)
        try:
            running = await stack.enter_async_context(served)
        except OSError as error:
            raise Misconfigured(
                f"listening on port {options.port}: {error.strerror}; choose another --port"
            ) from error
        write_kubeconfig(path, running.url, token, certificates.authority, options.name)
        cluster = EmbeddedCluster(world, running.url, path)
        if options.cloud == "aws":
            cluster.beside = await stack.enter_async_context(_run_simulated_aws(options, cluster))
        _create_defaults(options, cluster)
        cluster.parts.append(_in_background(stack, world.manager.run()))
        if state_folder is not None:
            _in_background(stack, _save_regularly(world, state_folder, options.complain))
            stack.callback(lambda: state_folder.save_state(world.server.dump()))
        if options.controller:
            await stack.enter_async_context(_run_controller(options, cluster, token))
        relax_garbage_collector()
        yield cluster


def _build_world(options: EmbeddedOptions, state_folder: StateFolder | None, authority: bytes) -> World:
    state, complaint = state_folder.load_state() if state_folder else (None, "")
    if complaint:
        options.complain(complaint)
    try:
        told = SimClusterOptions(events=True)
        world = World(SystemClock(), options.seed, options=told, snapshot=state, authority=authority.decode())
    except (ApiError, KeyError, ValueError) as error:
        raise Misconfigured(
            f"reading the objects kept in {options.data_dir}: they were written by another version of "
            "Dovetail; choose another --data-dir"
        ) from error
    _install_definitions(world, options.cloud)
    for number in range(options.nodes):
        _ensure_node(world, number)
    return world


def _ensure_node(world: World, number: int) -> None:
    name = f"node-{number + 1}"
    if world.server.store.get("nodes", ("", name)) is None:
        labels = {
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64",
            "topology.kubernetes.io/zone": ZONES[number % len(ZONES)],
        }
        world.add_node(name, labels)


@asynccontextmanager
async def _run_controller(
    options: EmbeddedOptions, cluster: EmbeddedCluster, token: str
) -> AsyncIterator[None]:
    """Dovetail speaks to the embedded server as it would to any other: over the wire."""
    # Half of what there is to import, and not everyone wants it.
    from dovetail.app.controller import Dovetail, ProcessOptions
    from dovetail.runtime.credentials import StaticToken
    from dovetail.runtime.kube import KubeClient
    from dovetail.runtime.kubeconfig import from_kubeconfig
    from dovetail.runtime.transport import HttpTransport
    from dovetail.zonal.policy_map import read_policy
    from dovetail.zonal.wiring import find_namespace

    clock = SystemClock()
    connection = from_kubeconfig([cluster.kubeconfig], clock)
    transport = HttpTransport(connection.server, StaticToken(token), tls=connection.tls)
    settings = await read_policy(
        options.settings, KubeClient(transport, clock), find_namespace(options.settings)
    )
    dovetail = Dovetail(
        settings,
        transport,
        clock=clock,
        chance=Random(options.seed),
        provider=options.cloud,
        make=_choose_provider(cluster),
        process=ProcessOptions(authority=connection.authority, in_thread=asyncio.to_thread),
    )
    put_behind_service(cluster.world, dovetail)
    running = asyncio.create_task(dovetail.run())
    cluster.dovetail = dovetail
    cluster.parts.append(running)
    try:
        yield
    finally:
        dovetail.stop()
        await asyncio.wait([running], timeout=GRACE)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        dovetail.close()
        await transport.close()


def _choose_provider(cluster: EmbeddedCluster) -> MakeProvider | None:
    """The simulated AWS is asked in this process; whoever comes from outside goes over its endpoint."""
    from dovetail.providers.aws.provider import AwsProvider

    beside = cluster.beside
    return (lambda given: AwsProvider(given, beside.aws)) if beside is not None else None


@asynccontextmanager
async def _run_simulated_aws(
    options: EmbeddedOptions, cluster: EmbeddedCluster
) -> AsyncIterator[EmbeddedAws]:
    """The cloud this cluster's nodes come from."""
    # Not everyone wants it, and it is not small.
    from dovetail.app.simulated_aws import BOOTS, run_simulated_aws, write_env

    boots = options.boots or BOOTS
    async with run_simulated_aws(
        cluster.world, cluster.url, options.seed, cluster=options.name, boots=boots
    ) as cloud:
        if options.env is not None:
            write_env(options.env, cloud.build_environment(cluster.kubeconfig))
        yield cloud


def _create_defaults(options: EmbeddedOptions, cluster: EmbeddedCluster) -> None:
    """What is there from the start; a pool only where a controller is there to serve it."""
    world, beside = cluster.world, cluster.beside
    create_storage_class(world)
    if options.controller:
        create_default_pool(world, options.cloud, options.name, options.pool)
    cloud = () if beside is None else (beside.aws.region, beside.url)
    publish_settings(world, options.name, options.settings, *cloud)


def _in_background(stack: AsyncExitStack, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)

    async def end() -> None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    stack.push_async_callback(end)
    return task


async def _save_regularly(world: World, state_folder: StateFolder, complain: Callable[[str], None]) -> None:
    """Save now and then. A disk that is full is told of once, and tried again."""
    kept, told = -1, ""
    while True:
        await asyncio.sleep(SAVE_EVERY)
        revision = world.server.store.revision
        if revision == kept:
            continue
        try:
            await asyncio.to_thread(state_folder.save_state, world.server.dump())
        except Misconfigured as error:
            if str(error) != told:
                told = str(error)
                complain(f"{told}; it will be tried again")
        else:
            kept, told = revision, ""


def _install_definitions(world: World, cloud: Literal["aws", "kwok"]) -> None:
    for definition in crds.build_manifests(cloud):
        try:
            world.api.create(DEFINITIONS, definition)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise

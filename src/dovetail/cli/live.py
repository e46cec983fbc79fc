"""A cluster seen once: everything Dovetail watches is listed, folded as it would fold it, and frozen.

Nothing is written, no lease is taken, and nobody who could act is even loaded.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from random import Random
from typing import Any, Literal

from dovetail.api import labels
from dovetail.api.meta import Kind, Object
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.api.pod import Pod
from dovetail.cli.output import note
from dovetail.cli.seen import Provider, Seen
from dovetail.errors import DovetailError, Expired, Gone, Misconfigured, NotAuthorized, Retry
from dovetail.providers.making import CLASSES, maker
from dovetail.runtime.clock import SystemClock
from dovetail.runtime.informer import Informer
from dovetail.runtime.kubeconfig import Connection, connect
from dovetail.runtime.sight import DISPENSABLE, Sight
from dovetail.runtime.transport import USER_AGENT, Request, Transport
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.overlays import overlaid
from dovetail.scheduling.snapshot import Snapshot
from dovetail.settings import Settings, read

__all__ = ["OURS", "frozen", "look", "looked_around", "provider_of", "sight_of"]

AT_ONCE = 4  # lists under way: each of them costs a connection, and that a handshake
TRIES = 3  # a list that changes faster than it can be read is begun again this often
OURS = (labels.KARPENTER, labels.KARPENTER_AWS, labels.KARPENTER_KWOK)


def look(kubeconfig: str = "", context: str = "", provider: Provider = "auto") -> Seen:
    """See the cluster once, with the settings the controller would read from this environment."""
    if provider != "auto":
        # What is wrong with the settings is said before anybody is asked anything.
        _settings(provider)
    return asyncio.run(_look(connect(SystemClock(), kubeconfig, context), provider))


def _settings(provider: Literal["aws", "kwok"]) -> Settings:
    return read((), dict(os.environ), provider=provider)


class _Silent:
    """Who only looks has nothing to tell."""

    def event(
        self,
        obj: Object,
        reason: str,
        note: str,
        *,
        warning: bool = False,
        dedupe: tuple[str, ...] = (),
        window: float = 120.0,
    ) -> None:
        """Nothing is told."""


def sight_of(connection: Connection, transport: Transport, provider: Literal["aws", "kwok"]) -> Sight:
    """The eyes alone: caches that nobody fills yet, and nothing that could act."""
    return Sight(
        _settings(provider),
        transport,
        clock=SystemClock(),
        chance=Random(0),
        class_kind=CLASSES[provider],
        make=maker(provider),
        record=lambda kube: _Silent(),
        authority=connection.authority,
        may_write=lambda: False,
    )


async def looked_around(sight: Sight) -> None:
    """Learn at once what the controller learns in time, such as EC2's types and prices."""
    look_around = getattr(sight.provider, "look_around", None)
    if look_around is not None:
        await look_around()


async def frozen(sight: Sight, remark: Callable[[str], None]) -> Snapshot:
    """The cluster as it is now, with what can be bought."""
    virtual = sight.buffers.resolve() if sight.buffers is not None else ()
    return sight.capture.snapshot(await _offers(sight, remark), sight.options(sight.clock.now()), virtual)


async def _look(connection: Connection, asked: Provider) -> Seen:
    transport = connection.transport(USER_AGENT)
    provider = await provider_of(transport, connection.server) if asked == "auto" else asked
    sight = sight_of(connection, transport, provider)
    try:
        await _fill_all(sight, connection)
        await sight.provider.prepare()
        await looked_around(sight)
        snapshot = await frozen(sight, lambda text: note(f"dovetail: {text}"))
    finally:
        sight.close()
        await transport.close()
    return Seen(snapshot, {pod.full_name: pod for pod in sight.informer(Pod)})


async def provider_of(transport: Transport, server: str) -> Literal["aws", "kwok"]:
    """Whose node classes the cluster knows; where it knows both, EC2's count."""
    try:
        reply = await transport.send(Request("GET", f"/apis/{labels.KARPENTER_AWS}"))
    except DovetailError as error:
        await transport.close()
        raise _sentence(server, error) from error
    return "aws" if reply.status == 200 else "kwok"


async def _fill_all(sight: Sight, connection: Connection) -> None:
    gate = asyncio.Semaphore(AT_ONCE)

    async def fill(informer: Informer[Any]) -> None:
        async with gate:
            await _fill(sight, informer)

    filled = await asyncio.gather(*map(fill, sight.informers.values()), return_exceptions=True)
    for error in filled:
        if isinstance(error, DovetailError):
            # All lists fail for one reason, mostly; the first will do.
            raise _sentence(connection.server, error) from error
        if error is not None:
            raise error


async def _fill(sight: Sight, informer: Informer[Any]) -> None:
    """List one kind into its informer. A kind the server has never heard of has no objects."""
    kind = informer.kind
    informer.begin()
    try:
        informer.listed(await _listed(sight, kind))
    except Gone as error:
        if kind.KIND.group in OURS:
            raise Misconfigured(_not_installed(kind.KIND)) from error
    except NotAuthorized:
        if kind not in DISPENSABLE:
            raise
    informer.end()


async def _listed(sight: Sight, kind: type[Object]) -> tuple[Object, ...]:
    for _ in range(TRIES - 1):
        try:
            return await sight.kube.list(kind)
        except Expired:
            continue
    return await sight.kube.list(kind)


def _not_installed(kind: Kind) -> str:
    return f"it does not know {kind.resource}; install it with `dovetail crds | kubectl apply -f -`"


def _sentence(server: str, error: DovetailError) -> Misconfigured:
    if isinstance(error, Misconfigured):
        return Misconfigured(f"reading the cluster at {server}: {error}")
    advice = "check --kubeconfig, and that the cluster is up"
    if isinstance(error, NotAuthorized):
        advice = "it takes the right to list what Dovetail watches"
    return Misconfigured(f"reading the cluster at {server}: {error}; {advice}")


async def _types(sight: Sight, pool: NodePool, remark: Callable[[str], None]) -> tuple[InstanceType, ...]:
    """As the controller has it: a pool whose types cannot be listed now has nothing to offer."""
    try:
        return await sight.cloud.instance_types(pool)
    except Retry as error:
        remark(str(error))
        return ()


async def _offers(
    sight: Sight, remark: Callable[[str], None]
) -> list[tuple[NodePool, tuple[InstanceType, ...]]]:
    """Every pool of ours, the heaviest first; those that may not grow are passed over when planning."""
    ours = [pool for pool in sight.informer(NodePool) if sight.ownership.of_pool(pool)]
    ours.sort(key=lambda pool: pool.name, reverse=True)
    ours.sort(key=lambda pool: pool.spec.weight or 0, reverse=True)
    offers = [(pool, await _types(sight, pool, remark)) for pool in ours]
    overlays = sight.informers.get(NodeOverlay)  # none unless the gate is open
    if not overlays:
        return offers
    types = overlaid(offers, overlays, sight.cloud.flavour).types
    return [(pool, types[pool.name]) for pool in ours]

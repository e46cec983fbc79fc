"""Leader election of a process: an elector beside the program, and a program that works while it leads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Protocol

from dovetail.runtime.clock import SystemClock
from dovetail.runtime.kube import KubeClient
from dovetail.runtime.kubeconfig import Connection
from dovetail.runtime.leader import ElectionTerms, Elector, ElectorThread, new_identity
from dovetail.runtime.manager import Manager, at_once
from dovetail.runtime.transport import USER_AGENT
from dovetail.settings import Settings

__all__ = ["LedProgram", "build_elector", "work_while_leading"]


class LedProgram(Protocol):
    """What a leader does: a manager's work, which waits until it is elected."""

    @property
    def manager(self) -> Manager: ...

    async def run(self, elected: Callable[[], Awaitable[None]], /) -> None: ...

    def stop(self) -> None: ...


def build_elector(
    settings: Settings,
    connection: Connection,
    lease: str,
    identity: str = "",
    annotations: Mapping[str, str] | None = None,
) -> ElectorThread | None:
    """The elector for a Lease of this name, to be started; None where election is switched off.

    `annotations` are what the leader says of itself on the Lease.
    """
    if settings.disable_leader_election:
        return None
    namespace = settings.leader_election_namespace or connection.namespace
    terms = ElectionTerms(name=lease, namespace=namespace, annotations=annotations or {})
    identity = identity or new_identity()

    def make(tell: Callable[[bool], None]) -> Elector:
        clock = SystemClock()
        # A client of its own: heavy traffic of the controllers must not hold up a renewal.
        kube = KubeClient(connection.open_transport(USER_AGENT), clock)
        return Elector(kube, terms, identity, clock=clock, rng=Random(identity), on_change=tell)

    return ElectorThread(make)


async def work_while_leading(program: LedProgram, elector: ElectorThread | None) -> bool:
    """Work until told to stop: True. False when the lease is lost: a successor starts with a clear head."""
    program.manager.stop_on_signals()
    if elector is None:
        await program.run(at_once)
        return True
    elector.start()
    lost = asyncio.create_task(elector.wait_lost())
    running = asyncio.create_task(program.run(elector.wait_leading))
    await asyncio.wait({running, lost}, return_when=asyncio.FIRST_COMPLETED)
    if lost.done() and not running.done():
        program.stop()
        await running
        return False
    lost.cancel()
    await running
    return True

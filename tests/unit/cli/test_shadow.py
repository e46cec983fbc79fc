"""What `dovetail shadow` refuses, each in a sentence."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from dovetail.api.nodepool import NodePool
from dovetail.app.cluster_context import ClusterContext
from dovetail.app.live_cluster import build_sight
from dovetail.errors import Misconfigured, Refused
from dovetail.play.shadow_run import require_pools
from dovetail.providers.kwok.provider import KwokProvider
from dovetail.runtime.informer import Informer
from dovetail.settings import read_settings
from dovetail.sim.clock import VirtualClock
from dovetail.sim.transport import LocalTransport
from dovetail.sim.world import World
from support.builders import nodepool
from support.commands import dovetail
from support.read_only import ReadOnlyTransport


class Sight:
    """Eyes that have seen these NodePools."""

    def __init__(self, *pools: NodePool) -> None:
        self._pools: Informer[NodePool] = Informer(NodePool)
        self._pools.begin_list()
        self._pools.add_listed(pools)
        self._pools.end_list()

    def get_informer(self, kind: type[Any]) -> Informer[NodePool]:
        return self._pools


def test_a_cluster_without_a_nodepool_is_refused() -> None:
    async def ask(*pools: NodePool) -> None:
        require_pools(cast("ClusterContext", Sight(*pools)))

    asyncio.run(ask(nodepool()))
    with pytest.raises(Misconfigured, match="there is no NodePool in this cluster"):
        asyncio.run(ask())


async def test_whoever_only_looks_cannot_write_though_somebody_tries() -> None:
    world = World(VirtualClock(), 0)
    transport = ReadOnlyTransport(LocalTransport(world.server, "eyes/1"))
    sight = build_sight(transport, read_settings((), {}, provider="kwok"), KwokProvider, clock=world.clock)
    with pytest.raises(Refused, match="no longer leads"):
        await sight.kube.delete(nodepool())
    assert transport.attempts == []
    sight.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("report", "nowhere"), "reading the recording nowhere: no such file or directory"),
        (("--report", "8091"), "--report 8091: say it as ADDRESS:PORT or :PORT"),
        (("--every", "often"), "--every often: write a duration such as 10s, 24h or 7d"),
        (("--with", "PLANER=packed"), "there is no setting PLANER"),
        (("watch", "here"), "watch takes no RECORDING"),
    ],
)
def test_what_cannot_be_used_is_said_in_a_sentence(arguments: tuple[str, ...], said: str) -> None:
    done = dovetail("shadow", *arguments)
    assert done.code in (1, 2)
    assert said in done.err

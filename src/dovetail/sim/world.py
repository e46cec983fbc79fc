"""A whole cluster in one process: API server, controllers, one clock, one seed.

The same world runs on the wall's clock behind HTTP, or in virtual time, where hours pass in moments
and the same seed tells the same story.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from dovetail.ports import Clock
from dovetail.sim.cluster.base import SimController, SimControllerManager
from dovetail.sim.cluster.controllers import SimClusterOptions, start_controllers
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.faults import ApiFaults
from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.store import HISTORY

__all__ = ["World", "relax_garbage_collector"]

Json = dict[str, Any]


class World:
    """One simulated cluster. With an `authority`, namespaces get what a controller manager puts in them."""

    def __init__(
        self,
        clock: Clock,
        seed: int = 0,
        *,
        faults: ApiFaults | None = None,
        options: SimClusterOptions | None = None,
        snapshot: bytes | None = None,
        history: int = HISTORY,
        authority: str | None = None,
    ) -> None:
        self.clock = clock
        self.rng = Random(seed)
        self.server = ApiServer(clock, self.rng, faults=faults, history=history)
        if snapshot is not None:
            self.server.load(snapshot)
            # Chance begins anew, but not from the same place: uids that are given must not be given again.
            self.rng.seed(f"{seed} from {self.server.store.revision}")
        if authority is not None:
            self.server.start_namespace_defaults(authority)
        self.manager = SimControllerManager(self.server, clock, self.rng)
        self.neighbours: Mapping[str, SimController] = start_controllers(self.manager, options)
        self.api: LocalApi = self.server.build_local_client("test")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[World]:
        """Controllers and housekeeping run until the block ends; an error of one is raised."""
        tasks = [asyncio.create_task(self.manager.run()), asyncio.create_task(self.server.run())]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            for end in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(end, Exception):
                    raise end

    async def settle(self, seconds: float = 30.0) -> None:
        """Let that much time pass; in virtual time that is as long as its work takes."""
        await self.clock.sleep(seconds)

    def add_node(self, name: str, labels: Mapping[str, str] | None = None, **resources: str) -> Json:
        """A simulated node of this size, as a provider would create it."""
        size = {"cpu": "4", "memory": "16Gi", "pods": "110"} | resources
        meta = {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kwok.x-k8s.io/node": "fake", **(labels or {})},
        }
        status = {"capacity": size, "allocatable": size}
        return self.api.create(
            "nodes", {"metadata": meta, "spec": {"providerID": f"kwok://{name}"}, "status": status}
        )


# Young objects are still looked at, for exceptions and tasks do make cycles; the old ones hardly ever.
THRESHOLDS = (10_000, 5, 1_000_000)


def relax_garbage_collector() -> None:
    """Leave what is there now alone for good, and walk the whole heap almost never. Once per process."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*THRESHOLDS)

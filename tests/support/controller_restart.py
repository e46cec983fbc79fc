"""A cluster on the simulated AWS whose controller goes and comes back, and what older releases leave."""

from __future__ import annotations

import asyncio
from typing import Any

from dovetail.api import labels
from dovetail.sim.kube.local import LocalApi
from support.aws_world import CLAIMS, CLASSES, POOLS, AwsWorld

__all__ = ["OLDER", "WHILE", "Changing", "as_an_older_release_left_it", "settled"]

Json = dict[str, Any]
WHILE = 1200.0
# Releases before this one: the version of a hash, and a hash that nobody can work out again.
OLDER = {"nodepool": ("v2", "11111111111111111111"), "nodeclass": ("v4", "2222222222222222222")}


class Changing(AwsWorld):
    """A world whose controller comes and goes."""

    async def leave(self) -> None:
        assert self._running is not None
        self.dovetail.stop()
        await self._running
        await self.dovetail.kube.transport.close()

    def come(self) -> None:
        self.dovetail = self._made()
        self._running = asyncio.create_task(self.dovetail.run())

    def identities(self) -> tuple[set[str], set[str], set[str]]:
        """Which claims, nodes and machines there are."""
        return (
            {each["metadata"]["uid"] for each in self.claims},
            {each["metadata"]["uid"] for each in self.nodes},
            {each.id for each in self.aws.list_running()},
        )


async def settled(world: Changing) -> None:
    world.default()
    world.pods(5, cpu="1", memory="1Gi")
    await world.until(lambda: world.placed() == 5, within=300)
    await world.until(lambda: world.claims and world.ready() == len(world.claims), within=120)
    await asyncio.sleep(WHILE)


def annotate(api: LocalApi, resource: str, each: Json, **values: str | None) -> None:
    api.patch(resource, each["metadata"]["name"], {"metadata": {"annotations": values}})


def as_an_older_release_left_it(world: Changing) -> None:
    """Hashes of older versions on pools, classes and claims; nothing that only this product writes."""
    pool_version, pool_hash = OLDER["nodepool"]
    class_version, class_hash = OLDER["nodeclass"]
    of_pool = {labels.NODEPOOL_HASH: pool_hash, labels.NODEPOOL_HASH_VERSION: pool_version}
    of_class = {labels.EC2_NODECLASS_HASH: class_hash, labels.EC2_NODECLASS_HASH_VERSION: class_version}
    for resource, values in ((POOLS, of_pool), (CLASSES, of_class), (CLAIMS, {**of_pool, **of_class})):
        for each in world.listed(resource):
            foreign = {key for key in each["metadata"].get("annotations", {}) if "dovetail.sh" in key}
            annotate(world.api, resource, each, **values, **dict.fromkeys(foreign))

"""SpotReclaims: the cloud of a replay takes spot nodes back as that of the recording did."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial
from math import exp
from random import Random

from dovetail.api import labels
from dovetail.history.supply import RecordedReclaim, SpotPlace
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World

__all__ = ["SpotReclaims"]

# Between the warning of a reclaim and the end of the machine.
NOTICE = timedelta(seconds=120)
CLAIMS = "nodeclaims.karpenter.sh"


class SpotReclaims:
    """Takes the share of a place that was taken in the recording; of places it never used, by its hazard."""

    def __init__(self, world: World, chance: Random) -> None:
        self._world = world
        self._chance = chance
        self._ending: list[tuple[datetime, str]] = []
        self._since = world.clock.now()

    def list_reclaimed(self) -> list[str]:
        """The nodes that the cloud is taking back now."""
        return [name for _, name in self._ending]

    def reclaim_share(self, reclaim: RecordedReclaim) -> None:
        """Take the same share of a place here as the cloud did in the recording."""
        nodes = self._list_spot_nodes().get(reclaim.place, [])
        wanted = reclaim.share * len(nodes)
        count = int(wanted) + (self._chance.random() < wanted - int(wanted))
        for name in self._chance.sample(nodes, min(count, len(nodes))):
            self._reclaim_node(name)

    def reclaim_unknown(self, at: datetime, hazard: float, known: Collection[SpotPlace]) -> None:
        """Take nodes of places that the recording never used by chance, at this rate an hour."""
        hours, self._since = (at - self._since).total_seconds() / 3600, at
        if hazard <= 0 or hours <= 0:
            return
        for place, nodes in self._list_spot_nodes().items():
            if place not in known:
                for name in nodes:
                    if self._chance.random() < 1 - exp(-hazard * hours):
                        self._reclaim_node(name)

    def find_next_end(self, until: datetime) -> datetime | None:
        """When the next machine that was taken back is gone, if that is not after this time."""
        return self._ending[0][0] if self._ending and self._ending[0][0] <= until else None

    def end_machines(self, now: datetime) -> None:
        """The machines whose notice is over are gone, drained or not."""
        while self._ending and self._ending[0][0] <= now:
            _, name = self._ending.pop(0)
            api = self._world.api
            _ignore_missing(partial(api.patch, "nodes", name, {"metadata": {"finalizers": None}}))
            _ignore_missing(partial(api.delete, "nodes", name))

    def _list_spot_nodes(self) -> dict[SpotPlace, list[str]]:
        """The spot nodes that run now, by their place and in the order of their names."""
        found: dict[SpotPlace, list[str]] = {}
        going = set(self.list_reclaimed())
        for node in self._world.api.list("nodes"):
            meta = node["metadata"]
            known = meta.get("labels") or {}
            if known.get(labels.CAPACITY_TYPE) != labels.SPOT or labels.NODEPOOL not in known:
                continue
            if meta.get("deletionTimestamp") or meta["name"] in going:
                continue
            place = SpotPlace(known.get(labels.INSTANCE_TYPE, ""), known.get(labels.ZONE, ""))
            found.setdefault(place, []).append(meta["name"])
        return found

    def _reclaim_node(self, name: str) -> None:
        node = self._world.api.get("nodes", name)
        for owner in node["metadata"].get("ownerReferences") or ():
            if owner["kind"] == "NodeClaim":
                _ignore_missing(partial(self._world.api.delete, CLAIMS, owner["name"]))
        self._ending.append((self._world.clock.now() + NOTICE, name))


def _ignore_missing(act: Callable[[], object]) -> None:
    try:
        act()
    except ApiError as error:
        if error.code != 404:
            raise

"""state.nodeclaimgc: orders that were taken back before we saw it must not keep us waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import DONE, Backoff, Remembered, Result, Trigger, after
from dovetail.errors import Gone
from dovetail.ports import Clock, Kube
from dovetail.state import Cluster

__all__ = ["Ghosts"]

PATIENCE = 15.0


class Ghosts:
    """Fifteen seconds after an order: if the API server has no such claim, neither have we."""

    name = "state.nodeclaimgc"
    concurrency = 10
    backoff = Backoff()

    def __init__(self, kube: Kube, cluster: Cluster, clock: Clock) -> None:
        self._kube = kube
        self._cluster = cluster
        self._clock = clock
        self._young = Remembered(PATIENCE)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(NodeClaim, self._created),)

    def on_item(self, add: Callable[[str], None]) -> None:
        """Be woken for what we ordered ourselves, too: its whole life may be over before it is heard of."""

        def ordered(claim: NodeClaim) -> None:
            for key in self._created(None, claim):
                add(key)

        self._cluster.on_order(ordered)

    def _created(self, before: NodeClaim | None, claim: NodeClaim | None) -> Iterable[str]:
        if before is not None or claim is None:
            return ()
        self._young.add(claim.name, self._clock.monotonic())
        return (claim.name,)

    async def reconcile(self, key: str) -> Result:
        left = self._young.left(key, self._clock.monotonic())
        if left > 0:
            return after(left)
        place = self._cluster.of_claim(key)
        if place is None or place.claim is None or place.claim.status.provider_id:
            return DONE
        try:
            await self._kube.get(NodeClaim, key)
        except Gone:
            self._cluster.forget_unlaunched(key)
        return DONE

"""Whether nodes of a pool come up at all: the last four outcomes, and a condition that says so.

The condition informs; it never keeps a pool from being used.
"""

from __future__ import annotations

from collections import deque

from dovetail.api import conditions, labels, reasons
from dovetail.api.conditions import LAUNCHED, NODE_REGISTRATION_HEALTHY
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.base import Cache
from dovetail.errors import Gone
from dovetail.ports import Clock, Kube

__all__ = ["Outcomes", "RegistrationHealth"]

KEPT = 4
UNHEALTHY_SHARE = 0.5


class Outcomes:
    """The last few outcomes of a pool: True for a node that came up, False for one that did not."""

    def __init__(self) -> None:
        self._last: deque[bool] = deque(maxlen=KEPT)

    def add(self, came_up: bool) -> None:
        self._last.append(came_up)

    def healthy(self, also: bool | None = None) -> bool | None:
        """How the pool does, with one more outcome if given; None when nothing is known."""
        seen = deque(self._last, maxlen=KEPT)
        if also is not None:
            seen.append(also)
        if not seen:
            return None
        return list(seen).count(False) / KEPT < UNHEALTHY_SHARE

    def restart(self, healthy: bool | None) -> None:
        """Begin again from what is known from elsewhere."""
        self._last.clear()
        if healthy is True:
            self.add(True)
        elif healthy is False:
            self._last.extend((False, False))


class RegistrationHealth:
    """Keeps the outcomes of all pools and writes their condition when it turns."""

    def __init__(self, kube: Kube, pools: Cache[NodePool], clock: Clock) -> None:
        self._kube = kube
        self._pools = pools
        self._clock = clock
        self._outcomes: dict[str, Outcomes] = {}

    def outcomes(self, pool: NodePool) -> Outcomes:
        return self._outcomes.setdefault(pool.uid, Outcomes())

    def forget(self, uid: str) -> None:
        self._outcomes.pop(uid, None)

    async def succeeded(self, claim: NodeClaim) -> None:
        """A node of the claim's pool came up."""
        pool = self._pool(claim)
        if pool is None:
            return
        if self.outcomes(pool).healthy(also=True) is True:
            await self._write(pool, conditions.set_true(pool, NODE_REGISTRATION_HEALTHY, self._clock.now()))
        self.outcomes(pool).add(True)

    async def failed(self, claim: NodeClaim) -> None:
        """A node of the claim's pool did not come up."""
        pool = self._pool(claim)
        if pool is None:
            return
        already = conditions.is_false(pool, NODE_REGISTRATION_HEALTHY)
        if self.outcomes(pool).healthy(also=False) is False and not already:
            reason, message = reasons.REGISTRATION_FAILED, "Failed to register node"
            launched = conditions.find(claim, LAUNCHED)
            if launched is not None and launched.status != conditions.TRUE:
                reason, message = launched.reason, launched.message
            now = self._clock.now()
            await self._write(
                pool, conditions.set_false(pool, NODE_REGISTRATION_HEALTHY, now, reason, message)
            )
        self.outcomes(pool).add(False)

    def _pool(self, claim: NodeClaim) -> NodePool | None:
        """The pool that ordered the claim, if it is still the same one."""
        pool = self._pools.get(claim.labels.get(labels.NODEPOOL, ""))
        if pool is None or not any(owner.uid == pool.uid for owner in claim.metadata.owner_references):
            return None
        return pool

    async def _write(self, pool: NodePool, changed: NodePool) -> None:
        if changed == pool:
            return
        try:
            await self._kube.patch(pool, changed, status=True, guarded=True)
        except Gone:
            return

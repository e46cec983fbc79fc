"""nodeoverlay.controller: judges the overlays, and a cloud that sells what they leave of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from dovetail.api import conditions
from dovetail.api.conditions import VALIDATION_SUCCEEDED
from dovetail.api.meta import Object
from dovetail.api.nodepool import NodePool
from dovetail.api.overlay import NodeOverlay
from dovetail.controllers.base import (
    SINGLETON,
    SOON,
    Backoff,
    Cache,
    Result,
    Trigger,
    requeue_after,
    retry_refusals,
    run_all,
    wake_on,
)
from dovetail.controllers.cloud_wrappers import ForwardingCloud
from dovetail.controllers.ownership import Ownership
from dovetail.errors import Conflict, DovetailError, Gone, Retry
from dovetail.ports import Clock, Cloud, Kube
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.node_overlays import OverlayStatus, apply_overlays

__all__ = ["NodeOverlayController", "OverlaidCloud"]

EVERY = 6 * 3600.0


@dataclass(eq=False)
class OverlaidCloud(ForwardingCloud):
    """Its instance types are another cloud's, as the valid overlays correct them."""

    _valid: tuple[NodeOverlay, ...] = field(default=(), init=False)
    _evaluated: frozenset[str] = field(default=frozenset(), init=False)
    _made: dict[str, tuple[object, NodePool, tuple[InstanceType, ...]]] = field(
        default_factory=dict, init=False
    )

    def use_overlays(self, valid: Iterable[NodeOverlay], pools: Iterable[str]) -> None:
        """From now on these overlays hold; they were judged with the types of these pools."""
        self._valid = tuple(valid)
        self._evaluated = frozenset(pools)
        self._made.clear()

    @property
    def uncorrected(self) -> Cloud:
        return self._cloud

    async def list_instance_types(self, nodepool: NodePool) -> tuple[InstanceType, ...]:
        if nodepool.name not in self._evaluated:
            raise Retry(f"listing the instance types of {nodepool.name}: its overlays are not evaluated yet")
        raw = await self._cloud.list_instance_types(nodepool)
        if not self._valid:
            return raw
        known = self._made.get(nodepool.name)
        if known is None or known[0] is not raw or known[1] is not nodepool:
            corrected = apply_overlays([(nodepool, raw)], self._valid, self.flavour).types[nodepool.name]
            known = self._made[nodepool.name] = (raw, nodepool, corrected)
        return known[2]


class NodeOverlayController:
    """Judges all overlays together whenever one of them, a pool or a node class changes."""

    name = "nodeoverlay.controller"
    concurrency = 1
    backoff = Backoff(first=1.0, last=300.0)
    singleton = True

    def __init__(
        self,
        kube: Kube,
        overlays: Cache[NodeOverlay],
        pools: Cache[NodePool],
        class_kind: type[Object],
        ownership: Ownership,
        cloud: OverlaidCloud,
        clock: Clock,
    ) -> None:
        self._kube = kube
        self._overlays = overlays
        self._pools = pools
        self._class_kind = class_kind
        self._ownership = ownership
        self._cloud = cloud
        self._clock = clock

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        kinds: tuple[type[Object], ...] = (NodeOverlay, self._class_kind)
        return (
            *(wake_on(kind, lambda _: (SINGLETON,)) for kind in kinds),
            Trigger(NodePool, _wake_on_spec_change),
        )

    async def reconcile(self, key: str) -> Result:
        catalogs, failed = await self._list_catalogs()
        overlays = {overlay.name: overlay for overlay in self._overlays}
        judged = apply_overlays(catalogs, overlays.values(), self._cloud.flavour).statuses
        valid = [overlays[each.overlay] for each in judged if each.valid]
        self._cloud.use_overlays(valid, (pool.name for pool, _ in catalogs))
        with retry_refusals():
            told = await run_all(self._write_condition(overlays[each.overlay], each) for each in judged)
        if failed is not None:
            raise Retry(f"evaluating overlays: {failed}") from failed
        return requeue_after(EVERY) if all(told) else SOON

    async def _list_catalogs(
        self,
    ) -> tuple[list[tuple[NodePool, tuple[InstanceType, ...]]], DovetailError | None]:
        """What each pool could buy. One whose types cannot be listed now is left out, and tried again."""
        found: list[tuple[NodePool, tuple[InstanceType, ...]]] = []
        failed: DovetailError | None = None
        for pool in self._pools:
            if not self._ownership.owns_pool(pool):
                continue
            try:
                found.append((pool, await self._cloud.uncorrected.list_instance_types(pool)))
            except DovetailError as error:
                failed = error
        return found, failed

    async def _write_condition(self, overlay: NodeOverlay, judgement: OverlayStatus) -> bool:
        now = self._clock.now()
        if judgement.valid:
            judged = conditions.set_true(overlay, VALIDATION_SUCCEEDED, now)
        else:
            judged = conditions.set_false(
                overlay, VALIDATION_SUCCEEDED, now, judgement.reason, judgement.message
            )
        if judged == overlay:
            return True
        try:
            await self._kube.patch(overlay, judged, status=True, guarded=True)
        except Conflict:
            return False
        except Gone:
            return True
        return True


def _wake_on_spec_change(before: NodePool | None, pool: NodePool | None) -> Iterable[str]:
    """A pool that came, went or is written anew; its counters alone change nothing here."""
    same = before is not None and pool is not None and before.spec == pool.spec
    return () if same else (SINGLETON,)

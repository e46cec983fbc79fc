"""The whole cluster, for questions that nodes and pools alone cannot answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from dovetail.api.core import DaemonSet, Deployment, Job, ReplicaSet, StatefulSet
from dovetail.api.meta import Object, ObjectMeta, OwnerReference
from dovetail.api.pod import Pod
from dovetail.controllers.base import Cache
from dovetail.ports import Compute
from dovetail.scheduling.snapshot import Snapshot
from dovetail.zonal.confined import Confined, waiting_for
from dovetail.zonal.rehearsal import Rehearsal, rehearse

__all__ = ["Seeing"]

MAKERS: Mapping[str, type[Object]] = {
    each.KIND.kind: each for each in (Deployment, ReplicaSet, StatefulSet, DaemonSet, Job)
}


@dataclass(frozen=True, slots=True)
class Seeing:
    """Only who sees everything can say what losing a zone would mean, and which pods wait for it."""

    look: Callable[[], Awaitable[Snapshot]]
    compute: Compute
    replicasets: Cache[ReplicaSet]

    async def rehearsal(self, zone: str, addresses: Mapping[str, int] | None = None) -> Rehearsal:
        """What losing the zone, by its name, would mean now."""
        return await self.compute(rehearse, await self.look(), zone, addresses=addresses)

    async def waiting(self, zones: Mapping[str, str]) -> tuple[Confined, ...]:
        """Pods that only these zones, names by id, could take."""
        return waiting_for(await self.look(), zones)

    def maker(self, pod: Pod) -> Object:
        """Whoever a person would say made the pod; the pod itself where nobody did."""
        owner = pod.metadata.controller
        found = self.made_by(owner.kind, pod.namespace, owner.name, owner.uid) if owner is not None else None
        return found or pod

    def made_by(self, kind: str, namespace: str, name: str, uid: str = "") -> Object | None:
        """A workload as an object to speak of; of a ReplicaSet, the Deployment behind it."""
        if kind == ReplicaSet.KIND.kind:
            there = self.replicasets.get(name, namespace)
            above = there.metadata.controller if there is not None else None
            if above is not None and above.kind in MAKERS:
                return _of(above, namespace)
        made = MAKERS.get(kind)
        return made(metadata=ObjectMeta(name=name, namespace=namespace, uid=uid)) if made else None


def _of(owner: OwnerReference, namespace: str) -> Object:
    return MAKERS[owner.kind](metadata=ObjectMeta(name=owner.name, namespace=namespace, uid=owner.uid))

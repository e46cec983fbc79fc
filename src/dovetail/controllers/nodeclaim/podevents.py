"""nodeclaim.podevents: when a pod last came to, or left, a claim's node."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from dovetail.api import predicates
from dovetail.api.conditions import POD_SCHEDULED
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod
from dovetail.controllers.base import DONE, Backoff, Cache, Result, Trigger
from dovetail.controllers.ownership import Ownership, find_claim_of_node
from dovetail.errors import Gone
from dovetail.ports import Clock, Kube

__all__ = ["PodEvents"]

# Below the fifteen seconds for which a consolidation is reconsidered, on purpose.
AT_MOST_EVERY = 10.0


class PodEvents:
    """Keeps status.lastPodEventTime, which consolidateAfter is counted from. Keys are node names."""

    name = "nodeclaim.podevents"
    singleton = False
    concurrency = 10
    backoff = Backoff()

    def __init__(
        self, kube: Kube, nodes: Cache[Node], claims: Cache[NodeClaim], ownership: Ownership, clock: Clock
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._claims = claims
        self._ownership = ownership
        self._clock = clock

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Pod, self._wake_on_pod_change),)

    async def reconcile(self, key: str) -> Result:
        node = self._nodes.get(key)
        claim = find_claim_of_node(node, self._claims) if node is not None else None
        if claim is None or not self._ownership.owns_claim(claim):
            return DONE
        now, last = self._clock.now(), claim.status.last_pod_event_time
        if last is not None and (now - last).total_seconds() < AT_MOST_EVERY:
            return DONE
        stamped = replace(claim.status, last_pod_event_time=now.replace(microsecond=0))
        try:
            await self._kube.patch(claim, replace(claim, status=stamped), status=True)
        except Gone:
            return DONE
        return DONE

    def _wake_on_pod_change(self, before: Pod | None, after: Pod | None) -> Iterable[str]:
        """The node a pod came to, or begins to leave."""
        if after is None or not after.node_name or predicates.owned_by_daemonset(after):
            return ()
        if before is None:
            # Karpenter takes every pod it meets after a restart for a change, and consolidation waits
            # anew everywhere. One that was bound long ago is no news.
            return (after.node_name,) if self._is_bound_lately(after) else ()
        bound = not before.node_name
        ended = predicates.is_terminal(after) and not predicates.is_terminal(before)
        leaving = predicates.is_terminating(after) and not predicates.is_terminating(before)
        return (after.node_name,) if bound or ended or leaving else ()

    def _is_bound_lately(self, pod: Pod) -> bool:
        bound = pod.status.find_condition(POD_SCHEDULED)
        since = bound.last_transition_time if bound is not None else None
        return since is not None and (self._clock.now() - since).total_seconds() < AT_MOST_EVERY

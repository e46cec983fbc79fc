"""node.health: a node that stays sick longer than its provider tolerates is given up, its pods unasked.

Unless too many are sick at once: then the cause is elsewhere, and taking nodes away would only make it worse.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime

from msgspec.structs import replace

from dovetail import metrics
from dovetail.api import labels, predicates
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.controllers.base import DONE, Backoff, Cache, Pace, Result, Trigger, after
from dovetail.controllers.counts import claim_disrupted
from dovetail.controllers.messages import log_annotated_claim, log_unhealthy_node
from dovetail.controllers.node import notices
from dovetail.controllers.node.termination import termination_time
from dovetail.controllers.nodeclaim.finalization import rfc3339
from dovetail.controllers.owning import Ownership, claim_of
from dovetail.errors import Gone, Retry
from dovetail.ports import Clock, Cloud, Kube, Recorder, RepairPolicy
from dovetail.state import Cluster

__all__ = ["Health", "Sickness", "conditions_changed", "sickness", "too_many_sick"]

PACE = Pace(10, 1000)
BLOCKED_LOOK_AGAIN = 300.0
# A zone that is shifted away looks sick as a whole; its nodes are judged when it is back.
SHIFTED_LOOK_AGAIN = 30.0
TOLERATED_PERCENT = 20

REPAIRED = metrics.counter(
    "karpenter_nodeclaims_unhealthy_disrupted_total",
    "NodeClaims given up because their node was beyond hope.",
    ("condition", "nodepool", "capacity_type", "image_id"),
)


@dataclass(frozen=True, slots=True)
class Sickness:
    """A condition a provider does not tolerate, and when its patience ends."""

    condition: str
    until: datetime


def sickness(node: Node, policies: Iterable[RepairPolicy]) -> Sickness | None:
    """Of all that is wrong with a node, what ends the patience first."""
    found = []
    for policy in policies:
        condition = node.status.condition(policy.condition)
        if condition is None or condition.status != policy.status:
            continue
        if condition.last_transition_time is not None:
            until = condition.last_transition_time + policy.toleration
            found.append(Sickness(policy.condition, until))
    return min(found, key=lambda each: each.until, default=None)


def too_many_sick(nodes: Iterable[Node], policies: tuple[RepairPolicy, ...]) -> bool:
    """More than a fifth of them, rounded up, whether or not their time is over."""
    sick = [sickness(node, policies) is not None for node in nodes]
    return sum(sick) > -(-len(sick) * TOLERATED_PERCENT // 100)


def conditions_changed(before: Node | None, now: Node | None) -> tuple[str, ...]:
    """The node to look at, if a condition came, went, or changed its status or time."""
    if now is None:
        return ()
    if before is not None and _conditions(before) == _conditions(now):
        return ()
    return (now.name,)


def _conditions(node: Node) -> dict[str, tuple[str, datetime | None]]:
    return {each.type: (each.status, each.last_transition_time) for each in node.status.conditions}


class Health:
    """Gives up nodes that are beyond hope. Does nothing unless the NodeRepair gate is on."""

    name = "node.health"
    backoff = Backoff(first=0.1, last=60.0)

    def __init__(
        self,
        kube: Kube,
        nodes: Cache[Node],
        claims: Cache[NodeClaim],
        cluster: Cluster,
        ownership: Ownership,
        cloud: Cloud,
        clock: Clock,
        recorder: Recorder,
        *,
        enabled: bool,
        shifted: Callable[[str], bool] = lambda zone: False,
        millicores: int = 1000,
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._claims = claims
        self._cluster = cluster
        self._ownership = ownership
        self._clock = clock
        self._recorder = recorder
        self._shifted = shifted
        self._policies = cloud.repair_policies if enabled else ()
        self.concurrency = PACE.at(millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Node, conditions_changed),) if self._policies else ()

    async def reconcile(self, key: str) -> Result:
        node = self._nodes.get(key)
        if node is None or not self._ownership.of_node(node):
            return DONE
        claim = claim_of(node, self._claims)
        sick = sickness(node, self._policies)
        if claim is None or sick is None:
            return DONE
        now = self._clock.now()
        if now < sick.until:
            return after(sick.until - now)
        if self._shifted(node.labels.get(labels.ZONE, "")):
            return after(SHIFTED_LOOK_AGAIN)
        pool = claim.labels.get(labels.NODEPOOL)
        if too_many_sick(self._company(pool), self._policies):
            notices.repair_blocked(self._recorder, node, pool=pool is not None)
            return after(BLOCKED_LOOK_AGAIN)
        try:
            await self._give_up(node, claim, sick, now)
        except Gone:
            return DONE
        return DONE

    def _company(self, pool: str | None) -> Iterable[Node]:
        if pool is None:
            return self._nodes
        return (node for node in self._nodes if node.labels.get(labels.NODEPOOL) == pool)

    async def _give_up(self, node: Node, claim: NodeClaim, sick: Sickness, now: datetime) -> None:
        if not _already_over(claim, now):
            # Its pods may not answer at all: from this moment nothing is asked of them.
            annotations = {**claim.annotations, labels.TERMINATION_TIMESTAMP: rfc3339(now)}
            marked = replace(claim, metadata=replace(claim.metadata, annotations=annotations))
            claim = await self._kube.patch(claim, marked)
            log_annotated_claim(claim)
        if claim.deleting:
            return
        await self._kube.delete(claim, guarded=True)
        log_unhealthy_node(node, claim, sick.condition)
        pods = sum(map(predicates.reschedulable, self._cluster.pods_on(node.name)))
        claim_disrupted(claim, "unhealthy", pods)
        REPAIRED.labels(
            _snake(sick.condition),
            claim.labels.get(labels.NODEPOOL, ""),
            node.labels.get(labels.CAPACITY_TYPE, ""),
            claim.status.image_id,
        ).inc()


def _already_over(claim: NodeClaim, now: datetime) -> bool:
    text = claim.annotations.get(labels.TERMINATION_TIMESTAMP, "")
    try:
        return termination_time(text) < now
    except Retry:
        return False


def _snake(name: str) -> str:
    """`BadNode` as metrics spell it: bad_node."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", name).lower()

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
from dovetail.controllers.base import DONE, Backoff, ConcurrencyRange, Result, Trigger, requeue_after
from dovetail.controllers.claim_messages import log_annotated_claim, log_unhealthy_node
from dovetail.controllers.claim_metrics import count_disrupted_claim
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.node import termination_events
from dovetail.controllers.node.termination import parse_termination_time
from dovetail.controllers.nodeclaim.finalization import format_rfc3339
from dovetail.controllers.ownership import find_claim_of_node
from dovetail.errors import Gone, Retry
from dovetail.history.drafts import of_claim
from dovetail.history.record import RecordKind
from dovetail.ports import RepairPolicy

__all__ = [
    "NodeHealth",
    "UnhealthyCondition",
    "find_unhealthy_condition",
    "has_too_many_unhealthy",
    "wake_on_conditions",
]

PACE = ConcurrencyRange(10, 1000)
BLOCKED_LOOK_AGAIN = 300.0
# A zone that is shifted away looks sick as a whole; its nodes are judged when it is back.
EXCLUDED_ZONE_LOOK_AGAIN = 30.0
TOLERATED_PERCENT = 20

REPAIRED = metrics.counter(
    "karpenter_nodeclaims_unhealthy_disrupted_total",
    "NodeClaims given up because their node was beyond hope.",
    ("condition", "nodepool", "capacity_type", "image_id"),
)


@dataclass(frozen=True, slots=True)
class UnhealthyCondition:
    """A condition a provider does not tolerate, and when its patience ends."""

    condition: str
    until: datetime


def find_unhealthy_condition(node: Node, policies: Iterable[RepairPolicy]) -> UnhealthyCondition | None:
    """Of all that is wrong with a node, what ends the patience first."""
    found = []
    for policy in policies:
        condition = node.status.find_condition(policy.condition)
        if condition is None or condition.status != policy.status:
            continue
        if condition.last_transition_time is not None:
            until = condition.last_transition_time + policy.toleration
            found.append(UnhealthyCondition(policy.condition, until))
    return min(found, key=lambda each: each.until, default=None)


def has_too_many_unhealthy(nodes: Iterable[Node], policies: tuple[RepairPolicy, ...]) -> bool:
    """More than a fifth of them, rounded up, whether or not their time is over."""
    sick = [find_unhealthy_condition(node, policies) is not None for node in nodes]
    return sum(sick) > -(-len(sick) * TOLERATED_PERCENT // 100)


def wake_on_conditions(before: Node | None, now: Node | None) -> tuple[str, ...]:
    """The node to look at, if a condition came, went, or changed its status or time."""
    if now is None:
        return ()
    if before is not None and _read_conditions(before) == _read_conditions(now):
        return ()
    return (now.name,)


def _read_conditions(node: Node) -> dict[str, tuple[str, datetime | None]]:
    return {each.type: (each.status, each.last_transition_time) for each in node.status.conditions}


class NodeHealth:
    """Gives up nodes that are beyond hope. Does nothing unless the NodeRepair gate is on."""

    name = "node.health"
    singleton = False
    backoff = Backoff(first=0.1, last=60.0)

    def __init__(
        self,
        context: ControllerContext,
        *,
        enabled: bool,
        shifted: Callable[[str], bool] = lambda zone: False,
    ) -> None:
        self._kube = context.kube
        self._nodes = context.nodes
        self._claims = context.claims
        self._cluster = context.cluster
        self._ownership = context.ownership
        self._clock = context.clock
        self._recorder = context.recorder
        self._history = context.history
        self._is_excluded_zone = shifted
        self._policies = context.cloud.repair_policies if enabled else ()
        self.concurrency = PACE.scale_to(context.millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(Node, wake_on_conditions),) if self._policies else ()

    async def reconcile(self, key: str) -> Result:
        node = self._nodes.get(key)
        if node is None or not self._ownership.owns_node(node):
            return DONE
        claim = find_claim_of_node(node, self._claims)
        sick = find_unhealthy_condition(node, self._policies)
        if claim is None or sick is None:
            return DONE
        now = self._clock.now()
        if now < sick.until:
            return requeue_after(sick.until - now)
        if self._is_excluded_zone(node.labels.get(labels.ZONE, "")):
            return requeue_after(EXCLUDED_ZONE_LOOK_AGAIN)
        pool = claim.labels.get(labels.NODEPOOL)
        if has_too_many_unhealthy(self._list_peers(pool), self._policies):
            termination_events.record_blocked_repair(self._recorder, node, pool=pool is not None)
            return requeue_after(BLOCKED_LOOK_AGAIN)
        try:
            await self._delete_claim(node, claim, sick, now)
        except Gone:
            return DONE
        return DONE

    def _list_peers(self, pool: str | None) -> Iterable[Node]:
        if pool is None:
            return self._nodes
        return (node for node in self._nodes if node.labels.get(labels.NODEPOOL) == pool)

    async def _delete_claim(
        self, node: Node, claim: NodeClaim, sick: UnhealthyCondition, now: datetime
    ) -> None:
        if not _is_already_expired(claim, now):
            # Its pods may not answer at all: from this moment nothing is asked of them.
            annotations = {**claim.annotations, labels.TERMINATION_TIMESTAMP: format_rfc3339(now)}
            marked = replace(claim, metadata=replace(claim.metadata, annotations=annotations))
            claim = await self._kube.patch(claim, marked)
            log_annotated_claim(claim)
        if claim.deleting:
            return
        await self._kube.delete(claim, guarded=True)
        log_unhealthy_node(node, claim, sick.condition)
        told = f"its condition {sick.condition} was tolerated until {format_rfc3339(sick.until)}"
        self._history.note_decision(of_claim(RecordKind.REPAIRED, claim, sick.condition, told))
        pods = sum(map(predicates.is_reschedulable, self._cluster.list_pods_on(node.name)))
        count_disrupted_claim(claim, "unhealthy", pods)
        REPAIRED.labels(
            _to_snake_case(sick.condition),
            claim.labels.get(labels.NODEPOOL, ""),
            node.labels.get(labels.CAPACITY_TYPE, ""),
            claim.status.image_id,
        ).inc()


def _is_already_expired(claim: NodeClaim, now: datetime) -> bool:
    text = claim.annotations.get(labels.TERMINATION_TIMESTAMP, "")
    try:
        return parse_termination_time(text) < now
    except Retry:
        return False


def _to_snake_case(name: str) -> str:
    """`BadNode` as metrics spell it: bad_node."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=.)(?=[A-Z][a-z])", "_", name).lower()

"""nodeclaim.consistency: is the machine that came the one that was promised?"""

from __future__ import annotations

from dovetail.api import conditions, reasons
from dovetail.api.conditions import CONSISTENT_STATE_FOUND, INITIALIZED
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.quantity import ZERO
from dovetail.controllers.base import (
    DONE,
    SOON,
    Backoff,
    Cache,
    ConcurrencyRange,
    RecentKeys,
    Result,
    Trigger,
    requeue_after,
    wake_on,
)
from dovetail.controllers.claim_messages import log_inconsistency
from dovetail.controllers.ownership import BY_PROVIDER_ID, Ownership, find_nodes_of_claim
from dovetail.errors import Conflict, Gone
from dovetail.ports import Clock, Kube, Recorder

__all__ = ["Consistency"]

PACE = ConcurrencyRange(10, 1000)
EVERY = 600.0
ENOUGH = 0.90


class Consistency:
    """Compares a Node's capacity with what its claim was told, every ten minutes."""

    name = "nodeclaim.consistency"
    singleton = False
    backoff = Backoff()

    def __init__(
        self,
        kube: Kube,
        claims: Cache[NodeClaim],
        nodes: Cache[Node],
        ownership: Ownership,
        clock: Clock,
        recorder: Recorder,
        *,
        millicores: int = 1000,
    ) -> None:
        self._kube = kube
        self._claims = claims
        self._nodes = nodes
        self._ownership = ownership
        self._clock = clock
        self._recorder = recorder
        self._checked = RecentKeys(EVERY)
        self.concurrency = PACE.scale_to(millicores)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (wake_on(NodeClaim), wake_on(Node, self._find_claims_of_node))

    def _find_claims_of_node(self, node: Node) -> list[str]:
        provider_id = node.spec.provider_id
        return [c.name for c in self._claims.by(BY_PROVIDER_ID, provider_id)] if provider_id else []

    async def reconcile(self, key: str) -> Result:
        claim = self._claims.get(key)
        if claim is None or not self._ownership.owns_claim(claim) or not claim.status.provider_id:
            return DONE
        left = self._checked.seconds_left(claim.uid, self._clock.monotonic())
        if left > 0:
            return requeue_after(left)
        found = find_nodes_of_claim(claim, self._nodes)
        if len(found) != 1:
            return DONE
        judged = self._check_claim(claim, found[0])
        if judged != claim:
            try:
                await self._kube.patch(claim, judged, status=True, guarded=True)
            except Conflict:
                return SOON
            except Gone:
                return DONE
        self._checked.add(claim.uid, self._clock.monotonic())
        return requeue_after(EVERY)

    def _check_claim(self, claim: NodeClaim, node: Node) -> NodeClaim:
        issues = list_shape_issues(claim, node)
        now = self._clock.now()
        for issue in issues:
            log_inconsistency(claim, issue)
            self._recorder.publish_event(
                claim, "FailedConsistencyCheck", issue, warning=True, dedupe=(claim.name, issue)
            )
        if issues:
            why = "Consistency Check Failed"
            return conditions.set_false(
                claim, CONSISTENT_STATE_FOUND, now, reasons.CONSISTENCY_CHECK_FAILED, why
            )
        if conditions.is_true(claim, CONSISTENT_STATE_FOUND):
            return claim
        return conditions.set_true(claim, CONSISTENT_STATE_FOUND, now)


def list_shape_issues(claim: NodeClaim, node: Node) -> list[str]:
    """Resources of which the Node has markedly less than was promised."""
    if claim.deleting or not conditions.is_true(claim, INITIALIZED):
        return []
    issues = []
    for name, requested in claim.spec.resources.requests.items():
        promised = claim.status.capacity.get(name, ZERO)
        if not requested or not promised:
            continue
        found = node.status.capacity.get(name, ZERO)
        share = found.nano / promised.nano
        if share < ENOUGH:
            issues.append(
                f"expected {promised} of resource {name}, but found {found} ({share * 100:.1f}% of expected)"
            )
    return issues

"""What people hear of disruption: its events and metrics, under the names Karpenter gave them."""

from __future__ import annotations

from collections.abc import Callable

from dovetail import metrics
from dovetail.api import reasons
from dovetail.api.meta import Object
from dovetail.api.nodepool import NodePool
from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.candidates import (
    UNCONSOLIDATABLE,
    BlockedNode,
)
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.command import Command, Method
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.policy import BALANCED, BalanceResult
from dovetail.ports import Recorder
from dovetail.scheduling.model.snapshot import StateNode

__all__ = ["FAILED", "TIMEOUTS", "DisruptionEvents"]

REASONS = (reasons.UNDERUTILIZED, reasons.EMPTY, reasons.DRIFTED)
DEFAULT_POLICY = "WhenEmptyOrUnderutilized"
SECONDS = metrics.histogram(
    "karpenter_voluntary_disruption_decision_evaluation_duration_seconds",
    "How long a method looked for nodes that could go.",
    ("reason", "consolidation_type"),
)
ELIGIBLE = metrics.gauge(
    "karpenter_voluntary_disruption_eligible_nodes", "Nodes a method could choose from.", ("reason",)
)
FAILED = metrics.counter(
    "karpenter_voluntary_disruption_failed_validations_total",
    "Candidates that were no longer right when looked at again.",
    ("consolidation_type",),
)
TIMEOUTS = metrics.counter(
    "karpenter_voluntary_disruption_consolidation_timeouts_total",
    "Searches cut short.",
    ("consolidation_type",),
)
ALLOWED = metrics.gauge(
    "karpenter_nodepools_allowed_disruptions", "What budgets allow.", ("nodepool", "reason")
)
CONSUMING = metrics.gauge(
    "karpenter_nodepools_nodes_consuming_budgets", "Nodes counted against budgets.", ("nodepool", "reason")
)
_MOVE = ("decision", "nodepool", "policy")
SCORE = metrics.histogram(
    "karpenter_consolidation_score",
    "How moves of Balanced pools scored.",
    _MOVE,
    (0.1, 0.25, 0.33, 0.5, 1, 2, 5, 10),
)
MOVES = metrics.counter("karpenter_consolidation_moves_total", "Consolidations considered.", _MOVE)
for kind in ("multi", "single"):
    TIMEOUTS.labels(kind)

UNCONSOLIDATABLE_WINDOW, POOL_WINDOW, WINDOW = 900.0, 60.0, 120.0


class DisruptionEvents:
    """Tells people, once per window, what disruption found and why nodes stay."""

    def __init__(self, recorder: Recorder, pool: Callable[[str], NodePool | None]) -> None:
        self._recorder = recorder
        self._pool = pool

    def report_choice(self, method: Method, choice: DisruptionChoice, seconds: float) -> None:
        """A method has made its choice."""
        reason = method.reason.lower()
        SECONDS.labels(reason, method.kind).observe(seconds)
        ELIGIBLE.labels(reason).set(choice.eligible)
        if choice.timed_out:
            TIMEOUTS.labels(method.kind).inc()
        for stays in choice.blocked:
            self._report_blocked(stays)
        if choice.eligible:
            self._report_shut_budgets(method, choice)
        for command in choice.proposed:
            self._report_proposed(command)
        for judgement in choice.judged:
            self._report_judgement(judgement)

    def report_budgets(self, inputs: DisruptionInput) -> None:
        """What every pool may lose, and what it is losing."""
        for reason in REASONS:
            allowance = compute_allowances(inputs, reason)
            for pool, amount in allowance.allowed.items():
                ALLOWED.labels(pool, reason).set(amount)
                CONSUMING.labels(pool, reason).set(allowance.consumed.get(pool, 0))

    def report_rejected(self, command: Command, kind: str) -> None:
        """What was going to be done turned out wrong when looked at again."""
        for candidate in command.candidates:
            shown = command.describe_for(candidate)
            note = f"Consolidation rejected: {shown}, reason: {kind} ({command.worth})"
            self._record_on_node_and_claim(candidate.state, "ConsolidationRejected", note, (shown, kind))

    def _report_proposed(self, command: Command) -> None:
        for candidate in command.candidates:
            shown = command.describe_for(candidate)
            note = f"Consolidation candidate: {shown} ({command.worth})"
            self._record_on_node_and_claim(candidate.state, "ConsolidationCandidate", note, (shown,))

    def _report_blocked(self, stays: BlockedNode) -> None:
        if stays.event and stays.why:
            window = UNCONSOLIDATABLE_WINDOW if stays.event == UNCONSOLIDATABLE else WINDOW
            self._record_on_node_and_claim(
                stays.state, stays.event, stays.why[0].upper() + stays.why[1:], window=window
            )

    def _report_shut_budgets(self, method: Method, choice: DisruptionChoice) -> None:
        note = f"No allowed disruptions for disruption reason {method.reason} due to blocking budget"
        for name in choice.allowance.shut:
            pool = self._pool(name)
            if pool is not None:
                key = (pool.uid, method.reason)
                self._recorder.publish_event(pool, "DisruptionBlocked", note, dedupe=key, window=POOL_WINDOW)

    def _report_judgement(self, judgement: BalanceResult) -> None:
        candidates = judgement.command.candidates
        pools = {candidate.pool.name: candidate.pool for candidate in candidates}
        for name, pool in pools.items():
            policy = pool.spec.disruption.consolidation_policy or DEFAULT_POLICY
            MOVES.labels(_describe_decision(judgement.approved), name, policy).inc()
            score = judgement.scores.get(name)
            if score is None:
                continue
            SCORE.labels(_describe_decision(score.approved), name, BALANCED).observe(score.value)
            if not score.approved or not judgement.approved:
                continue
            if len(candidates) == 1:
                self._record_on_node_and_claim(candidates[0].state, "ConsolidationApproved", str(score))
            else:
                self._record_event(pool, "ConsolidationApproved", str(score), (), WINDOW)

    def _record_on_node_and_claim(
        self, state: StateNode, reason: str, note: str, key: tuple[str, ...] = (), window: float = WINDOW
    ) -> None:
        for obj in (state.node, state.claim):
            if obj is not None:
                self._record_event(obj, reason, note, key, window)

    def _record_event(self, obj: Object, reason: str, note: str, key: tuple[str, ...], window: float) -> None:
        self._recorder.publish_event(obj, reason, note, dedupe=(obj.uid, *key), window=window)


def _describe_decision(approved: bool) -> str:
    return "approved" if approved else "rejected"

"""disruption.queue: carries a command out, replacement first, and takes it back when that fails.

mark candidates ─► order replacements ─► wait until they are ready ─► delete the candidates
      └─────────────────────┴──────────── failed or too late: unmark, leave what came up
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from msgspec.structs import replace

from dovetail import metrics
from dovetail.api import conditions
from dovetail.api.conditions import DISRUPTION_REASON, INITIALIZED
from dovetail.api.core import Node
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.taints import DISRUPTED, is_same_taint
from dovetail.controllers.base import (
    DONE,
    Backoff,
    ConcurrencyRange,
    Result,
    Trigger,
    requeue_after,
    run_all,
)
from dovetail.controllers.claim_metrics import count_disrupted_claim
from dovetail.controllers.command_records import CommandRecords
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.disruption_history import DriftPausedConditions, LostReplacements
from dovetail.controllers.ordering import REPLACEMENT, NodeOrder, NodeOrdering
from dovetail.controllers.plan_messages import log_command, log_command_done, log_failed_command
from dovetail.disruption.candidates import Candidate
from dovetail.disruption.command import DRIFTED, Command
from dovetail.errors import Conflict, DovetailError, Gone, Refused
from dovetail.scheduling.model import state_node as views

__all__ = ["DisruptionQueue", "replace_candidates"]

PACE = ConcurrencyRange(100, 1000)
RETRY = 1.0
SHORTEST, LONGEST = timedelta(minutes=10), timedelta(hours=1)
PER_CANDIDATE = timedelta(milliseconds=80)
ATTEMPTS, FIRST_WAIT, GROWTH = 4, 0.01, 5
_ABOUT = ("decision", "reason", "consolidation_type")
DECISIONS = metrics.counter(
    "karpenter_voluntary_disruption_decisions_total", "Commands that were started.", _ABOUT
)
DECISIONS_BY_POOL = metrics.counter(
    "karpenter_voluntary_disruption_decisions_by_nodepool_total",
    "Commands that were started, once for each pool in them.",
    ("nodepool", *_ABOUT),
)
FAILURES = metrics.counter(
    "karpenter_voluntary_disruption_queue_failures_total", "Commands that were taken back.", _ABOUT
)


@dataclass
class RunningCommand:
    """A command under way."""

    command: Command
    started: datetime
    replacements: list[str] = field(default_factory=list)
    ready: set[str] = field(default_factory=set)

    @property
    def key(self) -> str:
        return self.command.candidates[0].key


class ReplacementLost(Refused):
    """A replacement will not come: its launch failed, or someone deleted it."""


class DisruptionQueue:
    """Starts commands and sees them through."""

    name = "disruption.queue"
    singleton = False

    def __init__(
        self,
        context: ControllerContext,
        gate: DriftPausedConditions,
        losses: LostReplacements,
        records: CommandRecords,
    ) -> None:
        self._kube = context.kube
        self._gate = gate
        self._losses = losses
        self._records = records
        self._cluster = context.cluster
        self._nodes = context.nodes
        self._claims = context.claims
        self._ordering = NodeOrdering(context)
        self._clock = context.clock
        self._recorder = context.recorder
        self._running: dict[str, RunningCommand] = {}
        self._wake: Callable[[str], None] = lambda key: None
        self.concurrency = PACE.scale_to(context.millicores)
        self.backoff = Backoff(1.0, 10.0, per_second=100.0, burst=1000)

    @property
    def triggers(self) -> tuple[Trigger, ...]:
        return (Trigger(NodeClaim, self._claim_wakes),)

    def _claim_wakes(self, before: NodeClaim | None, claim: NodeClaim | None) -> Iterable[str]:
        """A replacement that goes before it came: its command is over.

        The nodes of the command are unmarked here and now: a moment later, the provisioner might buy room
        for their pods, which need none.
        """
        if before is None or (claim is not None and not claim.deleting):
            return
        for running in tuple(self._running.values()):
            if before.name in running.replacements and before.name not in running.ready:
                self._cluster.unmark_for_deletion(c.key for c in running.command.candidates)
                yield running.key

    def on_item(self, wake: Callable[[str], None]) -> None:
        """Whom to tell that a key has work: the `add` of this controller's queue."""
        self._wake = wake

    @property
    def queued(self) -> frozenset[str]:
        """The keys of all nodes that are part of a command."""
        return frozenset(c.key for running in self._running.values() for c in running.command.candidates)

    async def start_command(self, command: Command, grace: str | None = None) -> None:
        """Begin a command; an error when it could not be begun, with its nodes still marked at worst.

        `grace` is the terminationGracePeriod of replacements whose pool does not name one.
        """
        static = [c for c in command.candidates if c.pool.static]
        try:
            kept = await self._mark_candidates(command)
            log_command(replace_candidates(command, kept))
            started = self._records.note_started(replace_candidates(command, kept))
            reason = command.method.reason.lower()
            orders = [
                NodeOrder(node, REPLACEMENT, reason, node.pods, grace, started)
                for node in command.replacements
            ]
            claims = await run_all(map(self._ordering.order_node, orders))
        except BaseException:
            self._cluster.unmark_for_deletion(candidate.key for candidate in static)
            raise
        finally:
            for candidate in static:
                # Room was reserved for its replacement, which counts by itself now, or will not come.
                self._cluster.nodepool_state.release_nodes(candidate.pool.name)
        # Marked only now: earlier, the provisioner would buy room for the same pods a second time.
        self._cluster.mark_for_deletion(c.key for c in kept)
        running = RunningCommand(
            replace_candidates(command, kept), self._clock.now(), [claim.name for claim in claims]
        )
        self._nominate_nodes(running)
        self._running[running.key] = running
        self._count_decision(running.command)
        self._wake(running.key)

    async def _mark_candidates(self, command: Command) -> tuple[Candidate, ...]:
        """The candidates that could be marked: all of them, or some of a plain deletion."""
        if self.queued & {candidate.key for candidate in command.candidates}:
            raise Refused(f"starting {command}: a node of it is already being disrupted")
        failures = await asyncio.gather(
            *(self._mark_candidate(c, command.method.reason) for c in command.candidates),
            return_exceptions=True,
        )
        kept = tuple(c for c, failed in zip(command.candidates, failures, strict=True) if failed is None)
        if len(kept) < len(command.candidates) and (command.replacements or not kept):
            raise Refused(f"starting {command}: its nodes could not be marked")
        return kept

    def _nominate_nodes(self, running: RunningCommand) -> None:
        """The nodes that will take the pods are left alone meanwhile, and the pods hear where to go."""
        command = running.command
        if command.plan is None:
            return
        pods = {pod.full_name: pod for c in command.candidates for pod in c.pods}
        for name, taken in command.plan.existing.items():
            if taken:
                self._ordering.nominate_node(name, [pods[pod] for pod in taken if pod in pods])
        for planned, claim in zip(command.replacements, running.replacements, strict=True):
            self._ordering.tell_ordered([pods[pod] for pod in planned.pods if pod in pods], claim)

    def _count_decision(self, command: Command) -> None:
        about = (command.decision, command.method.reason.lower(), command.method.kind)
        DECISIONS.labels(*about).inc()
        for pool in {candidate.pool.name for candidate in command.candidates}:
            DECISIONS_BY_POOL.labels(pool, *about).inc()

    async def _mark_candidate(self, candidate: Candidate, reason: str) -> None:
        claim = candidate.state.claim
        assert claim is not None, "a candidate has a claim"
        await self._retry_conflicts(lambda: self._taint_node(candidate.name))
        await self._retry_conflicts(lambda: self._give_reason(claim.name, reason))
        if candidate.pool.static:
            self._cluster.nodepool_state.mark_pending_disruption(candidate.pool.name, claim.name)

    async def _retry_conflicts(self, act: Callable[[], Awaitable[None]]) -> None:
        """A few tries in quick succession: someone else may be writing at this moment."""
        wait = FIRST_WAIT
        for last in (False,) * (ATTEMPTS - 1) + (True,):
            try:
                await act()
                return
            except Conflict:
                if last:
                    raise
            await self._clock.sleep(wait)
            wait *= GROWTH

    async def _taint_node(self, name: str) -> None:
        node = await self._kube.get(Node, name)
        if any(is_same_taint(taint, DISRUPTED) for taint in node.spec.taints):
            return
        taints = (*(t for t in node.spec.taints if t.key != DISRUPTED.key), DISRUPTED)
        await self._kube.patch(node, replace(node, spec=replace(node.spec, taints=taints)), guarded=True)

    async def _give_reason(self, name: str, reason: str) -> None:
        try:
            claim = await self._kube.get(NodeClaim, name)
        except Gone:
            return
        marked = conditions.set_true(claim, DISRUPTION_REASON, self._clock.now(), reason, reason)
        await self._kube.patch(claim, marked, status=True, guarded=True)

    async def reconcile(self, key: str) -> Result:
        running = self._running.get(key)
        if running is None:
            return DONE
        done = lost = False
        try:
            done = self._are_replacements_ready(running) and await self._delete_candidates(running)
        except ReplacementLost:
            lost = True
        if lost or (not done and self._clock.now() - running.started > compute_timeout(len(self.queued))):
            await self._take_back(running)
            return DONE
        if not done:
            return requeue_after(RETRY)
        self._running.pop(key, None)
        log_command_done(running.command)
        self._records.note_done(running.command)
        if running.replacements:
            await self._losses.forget_losses(running.command)
        return DONE

    def _are_replacements_ready(self, running: RunningCommand) -> bool:
        """Every replacement is up, or was once."""
        for name in running.replacements:
            if name not in running.ready and self._is_replacement_ready(name, running.command.method.reason):
                running.ready.add(name)
        return len(running.ready) == len(running.replacements)

    def _is_replacement_ready(self, name: str, reason: str) -> bool:
        claim = self._claims.get(name)
        if claim is None and self._cluster.find_by_claim(name) is not None:
            return False
        if claim is None or claim.deleting:
            raise ReplacementLost(f"waiting for {name}: the replacement was deleted")
        launching = f"Launching NodeClaim: {reason}"
        self._recorder.publish_event(claim, "DisruptionLaunching", launching, dedupe=(claim.uid, reason))
        if conditions.is_true(claim, INITIALIZED):
            return True
        waiting = "Waiting on readiness to continue disruption"
        self._recorder.publish_event(claim, "DisruptionWaitingReadiness", waiting, dedupe=(claim.uid,))
        return False

    async def _delete_candidates(self, running: RunningCommand) -> bool:
        """Every candidate's end was asked for; those where that failed are asked again soon."""
        work = [self._delete_candidate(c, running.command) for c in running.command.candidates]
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None and not isinstance(outcome, DovetailError):
                raise outcome
        return not any(outcomes)

    async def _delete_candidate(self, candidate: Candidate, command: Command) -> None:
        claim = candidate.state.claim
        assert claim is not None
        try:
            await self._kube.delete(claim, guarded=True)
        except Gone:
            return
        reason = command.method.reason
        self._recorder.publish_event(
            claim, "DisruptionTerminating", f"Disrupting NodeClaim: {reason}", dedupe=(claim.uid, reason)
        )
        node = candidate.state.node
        if node is not None:
            self._recorder.publish_event(
                node, "DisruptionTerminating", f"Disrupting Node: {reason}", dedupe=(node.uid, reason)
            )
        policy = _to_snake_case(
            candidate.pool.spec.disruption.consolidation_policy or "WhenEmptyOrUnderutilized"
        )
        count_disrupted_claim(
            claim, _to_snake_case(reason), len(candidate.pods), policy if command.method.kind else ""
        )

    async def _take_back(self, running: RunningCommand) -> None:
        """Nothing was deleted: the nodes are free again, and what came up stays as an ordinary node."""
        command = running.command
        lost = len(running.replacements) - len(running.ready)
        log_failed_command(command, lost)
        self._records.note_taken_back(command, f"{lost} of {len(running.replacements)} replacements are lost")
        FAILURES.labels(command.decision, _to_snake_case(command.method.reason), command.method.kind).inc(
            lost
        )
        if lost:
            # Noted before the nodes are free: nothing may start the same again in between.
            await self._losses.record_loss(command)
        self._running.pop(running.key, None)
        self._cluster.unmark_for_deletion(c.key for c in command.candidates)
        await self.release_nodes(c.name for c in command.candidates)
        if lost and command.method == DRIFTED:
            await self._gate.pause_pools(sorted({c.pool.name for c in command.candidates}))

    async def release_nodes(self, names: Iterable[str]) -> None:
        """Take the marks off nodes that are not going after all."""
        for name in names:
            try:
                await self._unmark_node(name)
            except (Gone, Conflict):
                # The disruption loop cleans up whatever is left over.
                continue

    async def _unmark_node(self, name: str) -> None:
        node = self._nodes.get(name)
        tracked = self._cluster.find_by_node(name)
        if node is not None and not node.deleting:
            taints = tuple(taint for taint in node.spec.taints if not is_same_taint(taint, DISRUPTED))
            if taints != node.spec.taints:
                freed = replace(node, spec=replace(node.spec, taints=taints))
                await self._kube.patch(node, freed, guarded=True)
        if tracked is None or tracked.claim is None or not views.is_initialized(tracked.state):
            return
        claim = self._claims.get(tracked.claim.name)
        if (
            claim is not None
            and not claim.deleting
            and conditions.find_condition(claim, DISRUPTION_REASON) is not None
        ):
            await self._kube.patch(
                claim, conditions.clear_condition(claim, DISRUPTION_REASON), status=True, guarded=True
            )


def compute_timeout(queued: int) -> timedelta:
    """How long a command may take, while so many nodes are in the queue."""
    return min(max(PER_CANDIDATE * queued, SHORTEST), LONGEST)


def replace_candidates(command: Command, kept: tuple[Candidate, ...]) -> Command:
    """The command for these candidates alone."""
    return Command(command.method, kept, command.replacements, command.plan, command.savings)


def _to_snake_case(text: str) -> str:
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(text))

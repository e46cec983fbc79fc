"""disruption: the loop that takes nodes away by choice.

Look, decide, wait, look again, act: the deciding is dovetail.disruption's, the acting orchestration's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial

from dovetail.api import conditions, labels
from dovetail.api.bad_items import reason_of
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.controllers.base import SOON, Backoff, Result, Trigger, requeue_after
from dovetail.controllers.command_records import CommandRecords
from dovetail.controllers.context import ControllerContext
from dovetail.controllers.deadline import Deadline
from dovetail.controllers.disruption_events import FAILED, DisruptionEvents
from dovetail.controllers.disruption_history import DisruptionHistory, DriftPausedConditions, LostReplacements
from dovetail.controllers.orchestration import DisruptionQueue, replace_candidates
from dovetail.controllers.set_aside import SetAsideReporter
from dovetail.controllers.spend_guard import Offers
from dovetail.disruption import policy
from dovetail.disruption.choose import DisruptionChoice, order_methods
from dovetail.disruption.command import (
    DRIFTED,
    EMPTY,
    MANY,
    MULTI,
    REBALANCE,
    SINGLE,
    Command,
    ConsolidationVerdict,
    Method,
)
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.methods.consolidation import (
    choose_multi_node,
    choose_single_node,
    evaluate_nodes,
    list_single_node_queue,
)
from dovetail.disruption.methods.drift import choose_drift, choose_static_drift, count_static_replacements
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.methods.rebalance import choose_rebalance
from dovetail.disruption.methods.split import choose_split
from dovetail.disruption.situation import Situation
from dovetail.disruption.validate import (
    CHURN,
    InvalidCommand,
    validate_candidates,
    validate_command,
    validate_empty_nodes,
)
from dovetail.disruption.verdict_cache import UnchangedCheck
from dovetail.errors import DovetailError, describe_error, note_contained
from dovetail.history.recording.answers import STATIC_DRIFT, name_method
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.spend_caps import SpendCap

__all__ = ["DisruptionController"]

RunMethod = Callable[[DisruptionInput], Awaitable[DisruptionChoice]]

IDLE, UNSYNCED = 10.0, 1.0
VALIDATE_AFTER = 15.0
# A sweep looks at these many nodes and then at more: what is found early need not wait for the rest.
FIRST_PART, LARGEST_PART = 64, 4096
DRIFT_SECONDS, MULTI_SECONDS, SINGLE_SECONDS, MANY_SECONDS = 60.0, 60.0, 180.0, 60.0
TIME_LIMITS = {
    DRIFTED: DRIFT_SECONDS,
    MULTI: MULTI_SECONDS,
    MANY: MANY_SECONDS,
    SINGLE: SINGLE_SECONDS,
    REBALANCE: SINGLE_SECONDS,
}
# A search that found nothing is repeated after this long even if nothing seems to have changed.
MEMORY = 300.0


class DisruptionController:
    """Emptiness, drift and consolidation; the first method that starts a command ends the turn."""

    name = "disruption"
    concurrency = 1
    backoff = Backoff(first=1.0, last=10.0)
    singleton = True
    triggers: tuple[Trigger, ...] = ()

    def __init__(
        self,
        context: ControllerContext,
        orchestration: DisruptionQueue,
        history: DisruptionHistory,
        gate: DriftPausedConditions,
        losses: LostReplacements,
        records: CommandRecords,
        *,
        returned: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._cluster = context.cluster
        self._capture = context.capture
        self._pools = context.pools
        self._ownership = context.ownership
        self._orchestration = orchestration
        self._cloud = context.cloud
        self._clock = context.clock
        self._events = DisruptionEvents(context.recorder, context.pools.get)
        self._bad = SetAsideReporter(context.recorder, context.clock, self.name)
        self._compute = context.compute
        self._options = context.options
        self._history = history
        self._gate = gate
        self._losses = losses
        self._records = records
        self._spot_to_spot = context.settings.feature_gates.spot_to_spot_consolidation
        # Budgets say how fast drift may go; Karpenter starts one command a turn, which 1 gives here.
        self.drift_at_once: int | None = None
        buffers = context.buffers
        self._virtual_pods: Callable[[], tuple[Pod, ...]] = buffers.list_virtual_pods if buffers else tuple
        self._buffer_nodes: Callable[[], frozenset[str]] = buffers.list_nodes if buffers else frozenset
        self._gates = context.gates
        self._returned_zones = returned
        # For each method, the world in which it last found nothing, and when that was.
        self._quiet: dict[str, tuple[int, float]] = {}
        self._turn_began = 0.0
        self._unseen: frozenset[str] = frozenset()
        self._rest = UnchangedCheck(MEMORY)
        self._cache = context.cache
        self._spend = context.spend
        self._recording = context.recording
        # The input that was built last, and the Situation it was built from.
        self._built: tuple[DisruptionInput, Situation] | None = None

    async def reconcile(self, key: str) -> Result:
        if not self._cluster.synced:
            return requeue_after(UNSYNCED)
        self._records.settle_verdicts()
        if self._rest.is_unchanged(await self.build_input(), self._clock.monotonic()):
            return requeue_after(self._seconds_until_next())
        await self._remove_stale_marks()
        seen = self._hash_cluster()
        inputs = first = await self.build_input()
        self._events.report_budgets(inputs)
        await self._gate.settle_pools(inputs)
        await self._losses.settle_pools()
        restless = False
        methods, asked = self._list_methods(), list[tuple[Method, DisruptionChoice]]()
        for method, ask in methods:
            if self._is_known_quiet(method, seen):
                continue
            choice = await self._run_method(method, ask, inputs)
            asked.append((method, choice))
            if method is SINGLE:
                self._unseen = choice.unseen
            restless = restless or choice.timed_out or (method is DRIFTED and choice.eligible > 0)
            if choice.settled and method.kind:
                self._quiet[method.kind] = (seen, self._clock.monotonic())
            if not choice.commands:
                continue
            restless = True
            self._records.note_decided(choice.commands, self._find_situation(inputs))
            valid = await self._validate_commands(choice.commands)
            if valid:
                # What could not be started left marks behind; the next turn takes them off.
                return requeue_after(0) if await self._start_commands(valid) else SOON
            inputs = await self.build_input()
        if len(asked) == len(methods) and inputs is first:
            self._records.note_pass(first, asked, self._find_situation(first))
        if not restless:
            self._rest.remember_input(first, self._clock.monotonic())
        return requeue_after(self._seconds_until_next())

    def _list_methods(self) -> tuple[tuple[Method, RunMethod], ...]:
        """In order, each with its time limit; what is heavy is done by another process."""
        now = self._turn_began = self._clock.monotonic()
        drifted = partial(
            choose_drift,
            at_once=self.drift_at_once,
            should_stop=Deadline(self._clock, now + DRIFT_SECONDS),
        )
        multi = partial(choose_multi_node, should_stop=Deadline(self._clock, now + MULTI_SECONDS))
        several = partial(choose_split, should_stop=Deadline(self._clock, now + MANY_SECONDS))
        single = partial(self._sweep_candidates, should_stop=Deadline(self._clock, now + SINGLE_SECONDS))
        return order_methods(
            empty=self._run_in_worker(choose_empty_nodes),
            # Reserving room for static replacements is done here, where the ledger is; it is no heavy work.
            static_drift=self._choose_static_drift,
            drift=self._run_in_worker(drifted),
            multi_node=self._run_in_worker(multi),
            single_node=single,
            split=self._run_in_worker(several) if self._is_split_enabled() else None,
            rebalance=self._build_rebalance(now),
        )

    def _build_rebalance(self, now: float) -> RunMethod | None:
        """Rebalancing, only where a zone is back that was away."""
        if not self._returned_zones():
            return None
        stop = Deadline(self._clock, now + SINGLE_SECONDS)
        return self._run_in_worker(partial(choose_rebalance, should_stop=stop))

    def _run_in_worker(self, choose: Callable[[DisruptionInput], DisruptionChoice]) -> RunMethod:
        return lambda inputs: self._compute(choose, inputs)

    def _is_split_enabled(self) -> bool:
        return any(policy.read_policy(self._history.add_history(pool)).many for pool in self._pools)

    async def _run_method(self, method: Method, ask: RunMethod, inputs: DisruptionInput) -> DisruptionChoice:
        started = self._clock.monotonic()
        choice = await ask(inputs)
        if ask != self._choose_static_drift:
            self._record_choice(name_method(method), inputs, choice, self._is_cut_short(method, choice))
        self._events.report_choice(method, choice, self._clock.monotonic() - started)
        self._bad.report_all(choice.set_aside)
        return choice

    def _is_cut_short(self, method: Method, choice: DisruptionChoice) -> bool:
        """Whether a time limit may have had a say: some methods keep what they found until then."""
        limit = TIME_LIMITS.get(method)
        return choice.timed_out or (limit is not None and self._clock.monotonic() - self._turn_began >= limit)

    async def _sweep_candidates(
        self, inputs: DisruptionInput, should_stop: Callable[[], bool]
    ) -> DisruptionChoice:
        """Every candidate looked at, a part at a time over all workers, until one may go."""
        keys, looked = list_single_node_queue(inputs), dict[str, ConsolidationVerdict]()
        choice, size = choose_single_node(inputs, looked=looked), FIRST_PART
        while len(looked) < len(keys) and not choice.commands:
            if should_stop():
                choice.timed_out = True
                return choice
            part = keys[len(looked) : len(looked) + size]
            looked |= zip(part, await self._compute.map_items(evaluate_nodes, inputs, part), strict=True)
            choice, size = choose_single_node(inputs, looked=looked), min(size * 4, LARGEST_PART)
        return choice

    async def _choose_static_drift(self, inputs: DisruptionInput) -> DisruptionChoice:
        """Drift of static pools, as far as their limits leave room for a replacement beside each node."""
        choice = choose_static_drift(inputs)
        self._record_choice(STATIC_DRIFT, inputs, choice, timed_out=False)
        by_pool: dict[str, list[Command]] = {}
        for command in choice.commands:
            by_pool.setdefault(command.candidates[0].pool.name, []).append(command)
        choice.commands = []
        for name, wanted in by_pool.items():
            pool = wanted[0].candidates[0].pool
            limit = pool.spec.limits.get(labels.NODES)
            active, pending, _ = self._cluster.nodepool_state.count_claims(name)
            count = count_static_replacements(pool, len(wanted), active, pending)
            most = limit.value if limit is not None else None
            choice.commands += wanted[: self._cluster.nodepool_state.reserve_nodes(name, most, count)]
        return choice

    def _is_known_quiet(self, method: Method, seen: int) -> bool:
        """Nothing was found there last time, and nothing that matters has changed since."""
        before, at = self._quiet.get(method.kind, (0, float("-inf")))
        return bool(method.kind) and before == seen and self._clock.monotonic() - at < MEMORY

    def _hash_cluster(self) -> int:
        """Changes when a pod, a node, a nomination, a pool or a buffer does, as far as it matters here."""
        now = self._clock.now()
        places = frozenset(
            (
                tracked.key,
                tracked.marked,
                # A node passed over because a pod was to land there is to be looked at when none did.
                tracked.is_nominated(now),
                views.is_initialized(tracked.state),
                tracked.claim is not None and conditions.is_true(tracked.claim, conditions.CONSOLIDATABLE),
                tracked.company,
            )
            for tracked in self._cluster
        )
        pools = frozenset(
            (pool.uid, pool.metadata.generation, *map(pool.annotations.get, policy.POLICY_ANNOTATIONS))
            for pool in self._pools
        )
        return hash((places, pools, self._buffer_nodes(), len(self._virtual_pods())))

    def _seconds_until_next(self) -> float:
        """Seconds to rest: a node whose nomination ends sooner than the next look may be the one to go."""
        now = self._clock.now()
        ends = [
            (tracked.nomination_ends - now).total_seconds()
            for tracked in self._cluster
            if tracked.nomination_ends
        ]
        return min([IDLE, *(left for left in ends if left > 0)])

    async def build_input(self) -> DisruptionInput:
        """The cluster as disruption sees it now."""
        situation = await self.take_situation()
        inputs = DisruptionInput.from_situation(situation, self._cache)
        self._built = inputs, situation
        return inputs

    def _record_choice(
        self, question: str, inputs: DisruptionInput, choice: DisruptionChoice, timed_out: bool
    ) -> None:
        """Hand the recording, if there is one, what a method saw and chose."""
        situation = self._find_situation(inputs)
        if self._recording is not None and situation is not None:
            self._recording.note_choice(situation, question, choice, timed_out)

    def _find_situation(self, inputs: DisruptionInput) -> Situation | None:
        """What an input was built from; None unless it is the one that was built last."""
        return self._built[1] if self._built is not None and self._built[0] is inputs else None

    async def take_situation(self) -> Situation:
        """Everything that disruption decides from, as it is now."""
        owned = [pool for pool in self._pools if self._ownership.owns_pool(pool) or reason_of(pool)]
        offers = [
            (self._losses.add_losses(self._history.add_history(pool)), await self._list_instance_types(pool))
            for pool in owned
        ]
        now = self._clock.now()
        snapshot = self._capture.take_snapshot(offers, self._options(now), self._virtual_pods())
        return Situation(
            snapshot=snapshot,
            queued=self._orchestration.queued,
            buffered=self._buffer_nodes(),
            nominated=frozenset(tracked.key for tracked in self._cluster if tracked.is_nominated(now)),
            excluded_zones=self._gates.disrupted,
            closed_zones=self._gates.excluded_zones,
            returned_zones=self._returned_zones(),
            unseen=self._unseen,
            spot_to_spot=self._spot_to_spot,
            spend_caps=self._list_spend_caps(offers),
        )

    def _list_spend_caps(self, offers: Offers) -> tuple[SpendCap, ...]:
        """What spend limits allow now; orders are checked again at the prices of these offers."""
        if self._spend is None:
            return ()
        self._spend.note_offers(offers, self._options(self._clock.now()))
        return self._spend.list_caps()

    async def _list_instance_types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return await self._cloud.list_instance_types(pool)
        except Exception as error:  # noqa: BLE001 - whatever is wrong with it, it is this pool's affair
            note_contained(error)
            # Only this pool's nodes stay for it; the others need not wait.
            return ()

    async def _start_commands(self, commands: list[Command]) -> bool:
        """Begin them side by side; False when one could not be begun."""
        grace = self._options(self._clock.now()).default_termination_grace_period
        outcomes = await asyncio.gather(
            *(self._start_command(command, grace) for command in commands), return_exceptions=True
        )
        failures = [each for each in outcomes if each is not None]
        for failure in failures:
            if not isinstance(failure, DovetailError):
                raise failure
        return not failures

    async def _start_command(self, command: Command, grace: str | None) -> None:
        self._history.expect_command(command)
        try:
            await self._orchestration.start_command(command, grace)
        except DovetailError as error:
            self._records.note_taken_back(command, describe_error(error))
            raise
        await self._history.record_command(command)

    async def _validate_commands(self, commands: list[Command]) -> list[Command]:
        """Savings can wait a moment: what looks spare now may be wanted in a few seconds."""
        if not commands[0].method.kind:
            return commands
        await self._clock.sleep(VALIDATE_AFTER)
        valid = [await self._validate_command(command) for command in commands]
        return [command for command in valid if command is not None]

    async def _validate_command(self, command: Command) -> Command | None:
        kind = command.method.kind
        if command.method == EMPTY:
            found, dropped = validate_empty_nodes(await self.build_input(), command)
            if dropped is not None:
                FAILED.labels(kind).inc(dropped.count)
            self._note_partly_dropped(command, found, dropped)
            return found
        verdict = await self._compute(validate_command, await self.build_input(), command)
        if isinstance(verdict, Command):
            # Simulating took a while too: were they chosen for a pod in the meantime?
            again = validate_candidates(await self.build_input(), verdict)
            if not isinstance(again, InvalidCommand):
                return verdict
            verdict = again
        FAILED.labels(kind).inc(verdict.count)
        self._events.report_rejected(command, verdict.told)
        self._records.note_dropped(command, verdict.told)
        return None

    def _note_partly_dropped(
        self, command: Command, found: Command | None, dropped: InvalidCommand | None
    ) -> None:
        """Of empty nodes, some may have stayed empty and others not."""
        kept = {candidate.key for candidate in found.candidates} if found is not None else set()
        left = tuple(candidate for candidate in command.candidates if candidate.key not in kept)
        if left:
            which = dropped.told if dropped is not None else CHURN
            self._records.note_dropped(replace_candidates(command, left), which)

    async def _remove_stale_marks(self) -> None:
        """Marks left over from a command that ended otherwise, or from before a restart."""
        queued = self._orchestration.queued
        stale = [
            (tracked.node.name, tracked.claim.name)
            for tracked in self._cluster
            if tracked.node is not None and tracked.claim is not None and not tracked.deleting
            if tracked.key not in queued and views.has_disruption_mark(tracked.state)
        ]
        self._records.note_left_behind(claim for _, claim in stale)
        await self._orchestration.release_nodes(node for node, _ in stale)

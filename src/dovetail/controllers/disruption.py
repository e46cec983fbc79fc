"""disruption: the loop that takes nodes away by choice.

Look, decide, wait, look again, act: the deciding is dovetail.disruption's, the acting orchestration's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import datetime
from functools import partial

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.conditions import DISRUPTION_REASON
from dovetail.api.core import Taint
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.setaside import reason_of
from dovetail.api.taints import DISRUPTED as TAINT
from dovetail.api.taints import matches
from dovetail.controllers.baditems import BadItems
from dovetail.controllers.base import SOON, Backoff, Cache, Result, Trigger, after
from dovetail.controllers.driftgate import DriftGate
from dovetail.controllers.moves import Moves
from dovetail.controllers.orchestration import Orchestration
from dovetail.controllers.owning import Ownership
from dovetail.controllers.setbacks import LostReplacements
from dovetail.controllers.signals import FAILED, Signals
from dovetail.controllers.until import Until
from dovetail.disruption import choose as methods
from dovetail.disruption import churn
from dovetail.disruption.candidates import Scene
from dovetail.disruption.choose import Choice
from dovetail.disruption.command import DRIFTED, EMPTY, MANY, MULTI, SINGLE, Command, Method, Verdict
from dovetail.disruption.drift import static_wanted
from dovetail.disruption.rebalance import REBALANCE, rebalance
from dovetail.disruption.rest import Rest
from dovetail.disruption.validate import Invalid, still_candidates, still_empty, still_right
from dovetail.errors import DovetailError
from dovetail.ports import Clock, Cloud, Compute, Recorder
from dovetail.scheduling import nodes as views
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.snapshot import Options, Snapshot
from dovetail.state import Capture, Cluster

__all__ = ["Disruption"]

Ask = Callable[[Scene], Awaitable[Choice]]

IDLE, UNSYNCED = 10.0, 1.0
VALIDATE_AFTER = 15.0
# A sweep looks at these many nodes and then at more: what is found early need not wait for the rest.
FIRST_PART, LARGEST_PART = 64, 4096
DRIFT_SECONDS, MULTI_SECONDS, SINGLE_SECONDS, MANY_SECONDS = 60.0, 60.0, 180.0, 60.0
# A search that found nothing is repeated after this long even if nothing seems to have changed.
MEMORY = 300.0
AWAY = Taint(key="dovetail.sh/zonal-shift", effect="NoSchedule")


class Disruption:
    """Emptiness, drift and consolidation; the first method that starts a command ends the turn."""

    name = "disruption"
    concurrency = 1
    backoff = Backoff(first=1.0, last=10.0)
    singleton = True
    triggers: tuple[Trigger, ...] = ()

    def __init__(
        self,
        cluster: Cluster,
        capture: Capture,
        pools: Cache[NodePool],
        ownership: Ownership,
        orchestration: Orchestration,
        cloud: Cloud,
        clock: Clock,
        recorder: Recorder,
        compute: Compute,
        options: Callable[[datetime], Options],
        moves: Moves,
        gate: DriftGate,
        losses: LostReplacements,
        *,
        spot_to_spot: bool = False,
        drift_at_once: int | None = None,
        virtual: Callable[[], tuple[Pod, ...]] = lambda: (),
        buffered: Callable[[], frozenset[str]] = frozenset,
        shifted: Callable[[], frozenset[str]] = frozenset,
        returned: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self._cluster = cluster
        self._capture = capture
        self._pools = pools
        self._ownership = ownership
        self._orchestration = orchestration
        self._cloud = cloud
        self._clock = clock
        self._signals = Signals(recorder, pools.get)
        self._bad = BadItems(recorder, clock, self.name)
        self._compute = compute
        self._options = options
        self._moves = moves
        self._gate = gate
        self._losses = losses
        self._spot_to_spot = spot_to_spot
        # Budgets say how fast drift may go; Karpenter starts one command a turn, which 1 gives here.
        self.drift_at_once = drift_at_once
        self._virtual = virtual
        self._buffered = buffered
        self._shifted, self._returned = shifted, returned
        # For each method, the world in which it last found nothing, and when that was.
        self._quiet: dict[str, tuple[int, float]] = {}
        self._unseen: frozenset[str] = frozenset()
        self._rest = Rest(MEMORY)

    async def reconcile(self, key: str) -> Result:
        if not self._cluster.synced:
            return after(UNSYNCED)
        if self._rest.holds(await self.scene(), self._clock.monotonic()):
            return after(self._until_next())
        await self._clean_up()
        seen = self._fingerprint()
        scene = first = await self.scene()
        self._signals.budgets(scene)
        await self._gate.settle(scene)
        await self._losses.settle()
        restless = False
        for method, ask in self._methods():
            if self._known_quiet(method, seen):
                continue
            choice = await self._ask(method, ask, scene)
            if method is SINGLE:
                self._unseen = choice.unseen
            restless = restless or choice.timed_out or (method is DRIFTED and choice.eligible > 0)
            if choice.settled and method.kind:
                self._quiet[method.kind] = (seen, self._clock.monotonic())
            if not choice.commands:
                continue
            restless = True
            valid = await self._validated(choice.commands)
            if valid:
                # What could not be started left marks behind; the next turn takes them off.
                return after(0) if await self._started(valid) else SOON
            scene = await self.scene()
        if not restless:
            self._rest.begin(first, self._clock.monotonic())
        return after(self._until_next())

    def _methods(self) -> tuple[tuple[Method, Ask], ...]:
        """In order, each with its time limit; what is heavy is done by another process."""
        now = self._clock.monotonic()
        drifted = partial(
            methods.drifted,
            at_once=self.drift_at_once,
            should_stop=Until(self._clock, now + DRIFT_SECONDS),
        )
        multi = partial(methods.multi, should_stop=Until(self._clock, now + MULTI_SECONDS))
        several = partial(methods.several, should_stop=Until(self._clock, now + MANY_SECONDS))
        single = partial(self._swept, should_stop=Until(self._clock, now + SINGLE_SECONDS))
        return (
            (EMPTY, self._elsewhere(methods.empty)),
            # Reserving room for static replacements is done here, where the ledger is; it is no heavy work.
            (DRIFTED, self._static_drifted),
            (DRIFTED, self._elsewhere(drifted)),
            (MULTI, self._elsewhere(multi)),
            (SINGLE, single),
            *(((MANY, self._elsewhere(several)),) if self._any_many() else ()),
            *self._rebalancing(now),
        )

    def _rebalancing(self, now: float) -> tuple[tuple[Method, Ask], ...]:
        """Last of all, and only where a zone is back that was away."""
        returned = self._returned()
        if not returned:
            return ()
        stop = Until(self._clock, now + SINGLE_SECONDS)
        return ((REBALANCE, self._elsewhere(partial(rebalance, returned=returned, should_stop=stop))),)

    def _elsewhere(self, choose: Callable[[Scene], Choice]) -> Ask:
        return lambda scene: self._compute(choose, scene)

    def _any_many(self) -> bool:
        return any(churn.knobs(self._moves.seen(pool)).many for pool in self._pools)

    async def _ask(self, method: Method, ask: Ask, scene: Scene) -> Choice:
        started = self._clock.monotonic()
        choice = await ask(scene)
        self._signals.looked(method, choice, self._clock.monotonic() - started)
        self._bad.tell(choice.set_aside)
        return choice

    async def _swept(self, scene: Scene, should_stop: Callable[[], bool]) -> Choice:
        """Every candidate looked at, a part at a time over all workers, until one may go."""
        keys, looked = methods.queue_of(scene, self._unseen), dict[str, Verdict]()
        choice, size = methods.single(scene, self._unseen, looked=looked), FIRST_PART
        while len(looked) < len(keys) and not choice.commands:
            if should_stop():
                choice.timed_out = True
                return choice
            part = keys[len(looked) : len(looked) + size]
            looked |= zip(part, await self._compute.spread(methods.look, scene, part), strict=True)
            choice, size = methods.single(scene, self._unseen, looked=looked), min(size * 4, LARGEST_PART)
        return choice

    async def _static_drifted(self, scene: Scene) -> Choice:
        """Drift of static pools, as far as their limits leave room for a replacement beside each node."""
        choice = methods.static_drifted(scene)
        by_pool: dict[str, list[Command]] = {}
        for command in choice.commands:
            by_pool.setdefault(command.candidates[0].pool.name, []).append(command)
        choice.commands = []
        for name, wanted in by_pool.items():
            pool = wanted[0].candidates[0].pool
            limit = pool.spec.limits.get(labels.NODES)
            active, pending, _ = self._cluster.ledger.count(name)
            count = static_wanted(pool, len(wanted), active, pending)
            most = limit.value if limit is not None else None
            choice.commands += wanted[: self._cluster.ledger.reserve(name, most, count)]
        return choice

    def _known_quiet(self, method: Method, seen: int) -> bool:
        """Nothing was found there last time, and nothing that matters has changed since."""
        before, at = self._quiet.get(method.kind, (0, float("-inf")))
        return bool(method.kind) and before == seen and self._clock.monotonic() - at < MEMORY

    def _fingerprint(self) -> int:
        """Changes when a pod, a node, a nomination, a pool or a buffer does, as far as it matters here."""
        now = self._clock.now()
        places = frozenset(
            (
                place.key,
                place.marked,
                # A node passed over because a pod was to land there is to be looked at when none did.
                place.nominated(now),
                views.initialized(place.state),
                place.claim is not None and conditions.is_true(place.claim, conditions.CONSOLIDATABLE),
                place.company,
            )
            for place in self._cluster
        )
        pools = frozenset(
            (pool.uid, pool.metadata.generation, *map(pool.annotations.get, churn.KNOBS))
            for pool in self._pools
        )
        return hash((places, pools, self._buffered(), len(self._virtual())))

    def _until_next(self) -> float:
        """Seconds to rest: a node whose nomination ends sooner than the next look may be the one to go."""
        now = self._clock.now()
        ends = [
            (place.nomination_ends - now).total_seconds() for place in self._cluster if place.nomination_ends
        ]
        return min([IDLE, *(left for left in ends if left > 0)])

    async def scene(self) -> Scene:
        """The world as disruption sees it now."""
        owned = [pool for pool in self._pools if self._ownership.of_pool(pool) or reason_of(pool)]
        offers = [(self._losses.seen(self._moves.seen(pool)), await self._types(pool)) for pool in owned]
        now = self._clock.now()
        snapshot = self._capture.snapshot(offers, self._options(now), self._virtual())
        shifted = self._shifted()
        return Scene(
            _without_places(self._with_nominations(snapshot, now), shifted),
            self._orchestration.queued,
            self._buffered(),
            self._spot_to_spot,
            shifted,
        )

    async def _types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        try:
            return await self._cloud.instance_types(pool)
        except Exception:  # noqa: BLE001 - whatever is wrong with it, it is this pool's affair
            # Only this pool's nodes stay for it; the others need not wait.
            return ()

    def _with_nominations(self, snapshot: Snapshot, now: datetime) -> Snapshot:
        nominated = {place.key for place in self._cluster if place.nominated(now)}
        if not nominated:
            return snapshot
        nodes = tuple(
            replace(state, nominated=True) if views.provider_id(state) in nominated else state
            for state in snapshot.nodes
        )
        return replace(snapshot, nodes=nodes)

    async def _started(self, commands: list[Command]) -> bool:
        """Begin them side by side; False when one could not be begun."""
        grace = self._options(self._clock.now()).default_termination_grace_period
        outcomes = await asyncio.gather(
            *(self._start(command, grace) for command in commands), return_exceptions=True
        )
        failures = [each for each in outcomes if each is not None]
        for failure in failures:
            if not isinstance(failure, DovetailError):
                raise failure
        return not failures

    async def _start(self, command: Command, grace: str | None) -> None:
        self._moves.expect(command)
        await self._orchestration.start(command, grace)
        await self._moves.note(command)

    async def _validated(self, commands: list[Command]) -> list[Command]:
        """Savings can wait a moment: what looks spare now may be wanted in a few seconds."""
        if not commands[0].method.kind:
            return commands
        await self._clock.sleep(VALIDATE_AFTER)
        valid = [await self._still_right(command) for command in commands]
        return [command for command in valid if command is not None]

    async def _still_right(self, command: Command) -> Command | None:
        kind = command.method.kind
        if command.method == EMPTY:
            found, dropped = still_empty(await self.scene(), command)
            if dropped is not None:
                FAILED.labels(kind).inc(dropped.count)
            return found
        verdict = await self._compute(still_right, await self.scene(), command)
        if isinstance(verdict, Command):
            # Simulating took a while too: were they chosen for a pod in the meantime?
            again = still_candidates(await self.scene(), verdict)
            if not isinstance(again, Invalid):
                return verdict
            verdict = again
        FAILED.labels(kind).inc(verdict.count)
        self._signals.rejected(command, verdict.told)
        return None

    async def _clean_up(self) -> None:
        """Marks left over from a command that ended otherwise, or from before a restart."""
        queued = self._orchestration.queued
        stale = [
            place.node.name
            for place in self._cluster
            if place.node is not None and place.claim is not None and not place.deleting
            if place.key not in queued
            if any(matches(taint, TAINT) for taint in place.node.spec.taints)
            or conditions.find(place.claim, DISRUPTION_REASON) is not None
        ]
        await self._orchestration.release(stale)


def _without_places(snapshot: Snapshot, shifted: frozenset[str]) -> Snapshot:
    """The world in which no pod that only moves to save money goes into a zone that is shifted away."""
    if not shifted:
        return snapshot
    nodes = tuple(
        replace(
            state,
            node=replace(state.node, spec=replace(state.node.spec, taints=(*state.node.spec.taints, AWAY))),
        )
        if state.node is not None and state.node.labels.get(labels.ZONE) in shifted
        else state
        for state in snapshot.nodes
    )
    return replace(snapshot, nodes=nodes)

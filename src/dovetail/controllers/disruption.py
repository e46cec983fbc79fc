"""disruption: the loop that takes nodes away by choice.

Look, decide, wait, look again, act: the deciding is dovetail.disruption's, the acting orchestration's.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace

from dovetail import metrics
from dovetail.api import conditions
from dovetail.api.conditions import DISRUPTION_REASON
from dovetail.api.nodepool import NodePool
from dovetail.api.taints import DISRUPTED, matches
from dovetail.controllers.base import Backoff, Cache, Result, Trigger, after
from dovetail.controllers.orchestration import Orchestration
from dovetail.controllers.owning import Ownership
from dovetail.disruption import choose as methods
from dovetail.disruption.allowance import allowances
from dovetail.disruption.candidates import Scene, Stays
from dovetail.disruption.choose import Choice
from dovetail.disruption.command import Command
from dovetail.disruption.validate import Invalid, still_empty, still_right
from dovetail.errors import Refused
from dovetail.ports import Clock, Cloud, Compute, Recorder
from dovetail.scheduling import nodes as views
from dovetail.scheduling.catalog import InstanceType
from dovetail.scheduling.snapshot import Options, Snapshot, StateNode
from dovetail.state import Capture, Cluster

__all__ = ["Disruption"]

IDLE, UNSYNCED = 10.0, 1.0
VALIDATE_AFTER = 15.0
# A search that found nothing is repeated after this long even if nothing seems to have changed.
MEMORY = 300.0
REASONS = ("Underutilized", "Empty", "Drifted")
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
for kind in ("multi", "single"):
    TIMEOUTS.labels(kind)


class Disruption:
    """Emptiness, drift and consolidation, one command at a time; the first with something to do wins."""

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
        *,
        spot_to_spot: bool = False,
    ) -> None:
        self._cluster = cluster
        self._capture = capture
        self._pools = pools
        self._ownership = ownership
        self._orchestration = orchestration
        self._cloud = cloud
        self._clock = clock
        self._recorder = recorder
        self._compute = compute
        self._options = options
        self._spot_to_spot = spot_to_spot
        self._quiet: dict[tuple[str, str], tuple[int, float]] = {}

    async def reconcile(self, key: str) -> Result:
        if not self._cluster.synced:
            return after(UNSYNCED)
        await self._clean_up()
        seen = self._fingerprint()
        for method, label in (
            (methods.empty, ("empty", "empty")),
            (methods.drifted, ("drifted", "")),
            (underutilized, ("underutilized", "multi")),
        ):
            if self._known_quiet(label, seen):
                continue
            choice = await self._ask(method, label)
            if await self._act(choice):
                return after(0)
            if label[1] and not choice.commands and not choice.constrained and not choice.timed_out:
                self._quiet[label] = (seen, self._clock.monotonic())
        return after(self._until_next())

    def _known_quiet(self, label: tuple[str, str], seen: int) -> bool:
        """Nothing was found there last time, and nothing that matters has changed since."""
        before, at = self._quiet.get(label, (0, float("-inf")))
        return before == seen and self._clock.monotonic() - at < MEMORY

    def _fingerprint(self) -> int:
        """Changes when a pod moves, a node comes, goes or turns, or a pool is edited; not with the time."""
        places = frozenset(
            (
                place.key,
                place.marked,
                views.initialized(place.state),
                place.claim is not None and conditions.is_true(place.claim, conditions.CONSOLIDATABLE),
                frozenset(pod.uid for pod in place.pods.values()),
            )
            for place in self._cluster
        )
        pools = frozenset((pool.uid, pool.metadata.generation) for pool in self._pools)
        return hash((places, pools))

    def _until_next(self) -> float:
        """Seconds to rest: a node whose nomination ends sooner than the next look may be the one to go."""
        now = self._clock.now()
        ends = [
            (place.nominated_until - now).total_seconds() for place in self._cluster if place.nominated_until
        ]
        return min([IDLE, *(left for left in ends if left > 0)])

    async def _ask(self, method: Callable[[Scene], Choice], label: tuple[str, str]) -> Choice:
        started = self._clock.monotonic()
        choice = await self._compute(method, await self.scene())
        SECONDS.labels(*label).observe(self._clock.monotonic() - started)
        ELIGIBLE.labels(label[0]).set(choice.eligible)
        for stays in choice.staying:
            self._tell(stays)
        return choice

    async def scene(self) -> Scene:
        """The world as disruption sees it now."""
        now = self._clock.now()
        offers = [(pool, await self._types(pool)) for pool in self._pools if self._ownership.of_pool(pool)]
        snapshot = self._capture.snapshot(offers, self._options(now))
        return Scene(
            self._with_nominations(snapshot, now), self._orchestration.queued, spot_to_spot=self._spot_to_spot
        )

    async def _types(self, pool: NodePool) -> tuple[InstanceType, ...]:
        return await self._cloud.instance_types(pool)

    def _with_nominations(self, snapshot: Snapshot, now: datetime) -> Snapshot:
        nominated = {place.key for place in self._cluster if place.nominated(now)}
        if not nominated:
            return snapshot
        nodes = tuple(
            replace(state, nominated=True) if views.provider_id(state) in nominated else state
            for state in snapshot.nodes
        )
        return replace(snapshot, nodes=nodes)

    async def _act(self, choice: Choice) -> bool:
        started = False
        for command in choice.commands:
            valid = await self._validated(command)
            if valid is None:
                continue
            try:
                await self._orchestration.start(valid)
            except Refused:
                continue
            started = True
        return started

    async def _validated(self, command: Command) -> Command | None:
        """Savings can wait a moment: what looks spare now may be wanted in a few seconds."""
        if not command.method.kind:
            return command
        await self._clock.sleep(VALIDATE_AFTER)
        scene = await self.scene()
        if command.method.kind == "empty":
            found, dropped = still_empty(scene, command)
            if dropped is not None:
                FAILED.labels(command.method.kind).inc(dropped.count)
            return found
        verdict = await self._compute(still_right, scene, command)
        if isinstance(verdict, Invalid):
            FAILED.labels(command.method.kind).inc(verdict.count)
            note = (
                f"Consolidation rejected: {command}, reason: {verdict.kind} (savings: ${command.savings:.2f})"
            )
            for candidate in command.candidates:
                self._event(candidate.state, "ConsolidationRejected", note, 120.0)
            return None
        return verdict

    async def _clean_up(self) -> None:
        """Marks left over from a command that ended otherwise, or from before a restart."""
        queued = self._orchestration.queued
        stale = [
            place.node.name
            for place in self._cluster
            if place.node is not None and place.claim is not None and not place.deleting
            if place.key not in queued
            if any(matches(taint, DISRUPTED) for taint in place.node.spec.taints)
            or conditions.find(place.claim, DISRUPTION_REASON) is not None
        ]
        await self._orchestration.release(stale)
        scene = await self.scene()
        for reason in REASONS:
            allowance = allowances(scene, reason)
            for pool, amount in allowance.allowed.items():
                ALLOWED.labels(pool, reason).set(amount)
                CONSUMING.labels(pool, reason).set(allowance.consumed.get(pool, 0))

    def _tell(self, stays: Stays) -> None:
        if not stays.told or not stays.why or stays.why == "budget":
            return
        text = stays.why[0].upper() + stays.why[1:]
        if _about_consolidation(stays.why):
            self._event(stays.state, "Unconsolidatable", text, 900.0)
        else:
            self._event(stays.state, "DisruptionBlocked", text, 120.0)

    def _event(self, state: StateNode, reason: str, note: str, window: float) -> None:
        for obj in (state.node, state.claim):
            if obj is not None:
                self._recorder.event(obj, reason, note, dedupe=(obj.uid, note), window=window)


def underutilized(scene: Scene) -> Choice:
    """Consolidation, as a function another process can run."""
    return methods.underutilized(scene, {})


def _about_consolidation(why: str) -> bool:
    starts = (
        "Can't ",
        "NodePool ",
        "Instance Type ",
        "Node does",
        "SpotToSpot",
        "Filtering",
        "not all pods",
        'Node "',
    )
    return why.startswith(starts)

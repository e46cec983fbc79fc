"""Pictures for the dashboard: of a snapshot once, or of a live cluster whenever it has changed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Any

from dovetail.api.commitment import Commitment
from dovetail.api.crds import is_own_kind
from dovetail.api.meta import Kind, Object
from dovetail.api.spend_limit import SpendLimit
from dovetail.api.zoneshift import ZoneShift
from dovetail.app.cluster_context import DISPENSABLE
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.dashboard_history import HistoryFollower, SpendCurves
from dovetail.app.dashboard_rules import RulePricer
from dovetail.app.history_source import LeaderHistory
from dovetail.app.live_cluster import OURS, LiveCluster, refresh_provider, take_situation
from dovetail.app.solved_plan import (
    FEW,
    SolvedPlan,
    build_disruption_input,
    solve_situation,
)
from dovetail.disruption.report import build_report
from dovetail.errors import BadInput, DovetailError, Gone, NotAuthorized
from dovetail.picture import SeenSpend
from dovetail.ports import Clock
from dovetail.runtime.events import CoreV1Event
from dovetail.runtime.informer import Informer
from dovetail.runtime.watch import Follower, WatchOptions
from dovetail.scheduling.missing_resources import describe_decision
from dovetail.scheduling.model import state_node as states
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.reasons import Decision
from dovetail.scheduling.spend_report import build_spend_report
from dovetail.web import ChangeDocument, Dashboard, Moment, Picture

__all__ = ["ClusterWatcher", "DescribeChange", "add_change", "build_picture"]

# What a change would alter in a cluster; BadInput where it cannot be applied to it.
DescribeChange = Callable[[SeenCluster], ChangeDocument]

# So long passes between two looks, whatever changes; and at most so long, for budgets follow the clock.
SOONEST, LATEST = 1.0, 60.0
# A look that took long is not taken again for several times as long.
REST = 4.0
LEARN = 300.0
KEPT = 150
# What cannot be read is tried again at least twice a minute. Seconds.
PASSING, FORGOTTEN = 5.0, 40.0
# The API server is asked so often whether it is there, and gets so long to answer. Seconds.
ASKED, ANSWER = 5.0, 4.0
SERVER = "the API server"
# What a cluster may do without, and nobody who looks need be allowed to see.
OPTIONAL: frozenset[type[Object]] = DISPENSABLE | {ZoneShift, CoreV1Event}


def build_picture(
    seen: SeenCluster,
    cluster: str,
    *,
    live: bool,
    shifts: tuple[ZoneShift, ...] = (),
    moments: tuple[Moment, ...] = (),
    problems: tuple[str, ...] = (),
    cache: DecisionCache | None = None,
) -> Picture:
    """What `dovetail plan`, `plan --disruption` and `explain` would say of this world, put together."""
    snapshot, cache = seen.snapshot, DecisionCache() if cache is None else cache
    found = solve_situation(seen.situation, len(snapshot.pods) > FEW, lambda step: None, cache)
    report = build_report(build_disruption_input(seen, found.plan, cache))
    return Picture(
        cluster,
        live,
        snapshot,
        found.plan,
        report,
        dict(_describe_pods(found)),
        found.near_misses,
        shifts,
        moments,
        problems=problems,
        spend=SeenSpend(
            build_spend_report(snapshot, seen.situation.spend_caps, found.plan, cache), seen.spend_limits
        ),
    )


def add_change(picture: Picture, seen: SeenCluster, describe: DescribeChange | None) -> Picture:
    """The picture with what a change would alter; where it cannot be applied now, with a word about that."""
    if describe is None:
        return picture
    try:
        return replace(picture, change=describe(seen))
    except BadInput as error:
        told = f"The change cannot be applied to this cluster: {error}."
        return replace(picture, problems=(*picture.problems, told))


def _describe_pods(found: SolvedPlan) -> Iterator[tuple[str, str]]:
    """As `dovetail explain` says it of each pod that waits."""
    planned = {node.name: node for node in found.plan.new_nodes}
    homes = {pod.full_name: states.read_name(state) for state in found.snapshot.nodes for pod in state.pods}
    for pod in (*found.snapshot.pods, *found.snapshot.moving):
        name = pod.full_name
        decision = found.decisions.get(name) or Decision(name, None, error=found.left_out.get(name, ""))
        before = f"its node {homes[name]} is being removed; " if name in homes else ""
        yield (
            name,
            before + describe_decision(decision, planned.get(decision.place or ""), found.find_missing(name)),
        )


def list_new_decisions(before: Picture | None, now: Picture) -> Iterator[Moment]:
    """What is decided otherwise than it was, or for the first time."""
    known: Mapping[str, str] = before.sentences if before else {}
    for pod, sentence in now.sentences.items():
        if known.get(pod) != sentence:
            stuck = pod in now.plan.unschedulable
            yield Moment(now.now, pod, "unschedulable" if stuck else "schedulable", sentence, stuck)
    old = {str(command) for command in before.survey.commands} if before else set()
    for command in now.survey.commands:
        if str(command) not in old:
            names = ", ".join(candidate.name for candidate in command.candidates)
            saved = f"{command}, saves ${command.savings:.4f} an hour"
            yield Moment(now.now, names, command.method.reason, saved)


@dataclass(frozen=True, slots=True)
class ReadProblem:
    """What cannot be read, since when it is so without a break, and when it was last tried."""

    since: float
    latest: float
    told: str


class ClusterContact:
    """Knows which parts of the cluster cannot be read, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost: dict[str, tuple[float, datetime, str]] = {}

    def mark_lost(self, part: str, why: str) -> None:
        """This part cannot be read; it counts from the first time without a break."""
        began, since, _ = self._lost.get(part) or (self._clock.monotonic(), self._clock.now(), "")
        self._lost[part] = began, since, why

    def mark_regained(self, part: str) -> None:
        self._lost.pop(part, None)

    def find_staleness(self) -> tuple[datetime, str] | None:
        """Since when what is known is old, and why. A break of a moment does not count."""
        now = self._clock.monotonic()
        lasting = [each for each in self._lost.values() if now - each[0] > PASSING]
        if not lasting:
            return None
        # The server's absence explains every other loss.
        why = (self._lost.get(SERVER) or min(lasting))[2]
        return min(lasting)[1], why


class ClusterWatcher:
    """A live cluster: its caches, kept up to date, and a picture whenever they have changed."""

    def __init__(
        self,
        cluster: LiveCluster,
        board: Dashboard,
        describe_change: DescribeChange | None = None,
        rules: RulePricer | None = None,
    ) -> None:
        self._rules = rules
        self._describe_change = describe_change
        self._cluster, self._board = cluster.connection.server, board
        self._sight = cluster.sight
        self._shifts, self._events = Informer(ZoneShift), Informer(CoreV1Event)
        self._changed = asyncio.Event()
        self._decisions: deque[Moment] = deque(maxlen=KEPT)
        self._problems: dict[type[Object], ReadProblem] = {}
        self._contact = ClusterContact(self._sight.clock)
        self._cache = DecisionCache()
        self._last: Picture | None = None
        self._stale = False
        self._months = SpendCurves()
        leader = LeaderHistory(self._sight.kube.transport, self._cluster)
        self._history = HistoryFollower(leader, self._sight.clock, self._changed.set)

    async def run(self) -> None:
        """Follow the cluster and show it, until cancelled."""
        kinds: dict[type[Object], Informer[Any]] = dict(self._sight.informers)
        kinds |= {ZoneShift: self._shifts, CoreV1Event: self._events}
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in kinds.items():
                informer.on_change(lambda before, after: self._changed.set())
                tasks.create_task(self._build_follower(kind, informer).run())
            for informer in kinds.values():
                await informer.wait_synced()
            await self._sight.provider.prepare()
            tasks.create_task(self._refresh_regularly())
            tasks.create_task(self._probe_server())
            tasks.create_task(self._history.run())
            await self._show_pictures()

    def _build_follower(self, kind: type[Object], informer: Informer[Any]) -> Follower[Any]:
        clock, chance = self._sight.clock, Random(0)
        # Of events, only those of ours: a cluster has very many others.
        fields = "source=karpenter" if kind is CoreV1Event else ""

        def trouble(error: DovetailError) -> None:
            unknown = isinstance(error, Gone) and kind.KIND.group not in OURS
            if kind not in OPTIONAL and not unknown and not isinstance(error, BadInput):
                self._contact.mark_lost(kind.KIND.plural, f"the {kind.KIND.plural} cannot be read ({error})")
            if not unknown and not (kind in OPTIONAL and isinstance(error, NotAuthorized)):
                self._record_problem(kind, error)
            elif not informer.synced:
                informer.begin_list()
                informer.end_list()

        def contact() -> None:
            self._contact.mark_regained(kind.KIND.plural)

        return Follower(
            self._sight.kube,
            kind,
            informer,
            clock=clock,
            rng=chance,
            options=WatchOptions(
                fields=fields, on_trouble=trouble, on_contact=contact, optional=is_own_kind(kind)
            ),
        )

    def _record_problem(self, kind: type[Object], error: DovetailError) -> None:
        """While there is no picture, what stands in its way is the page; later it is a line on it."""
        now, known = self._sight.clock.monotonic(), self._problems.get(kind)
        since = known.since if known is not None and now - known.latest < FORGOTTEN else now
        self._problems[kind] = ReadProblem(since, now, _describe_problem(kind.KIND, error))
        if self._last is None:
            self._board.report_trouble(self._problems[kind].told)
        self._changed.set()

    def _list_lasting_problems(self) -> Iterator[str]:
        """What goes on for some time. A stream that broke once was mended before anybody read of it."""
        now = self._sight.clock.monotonic()
        for each in self._problems.values():
            if now - each.latest < FORGOTTEN and each.latest - each.since > PASSING:
                yield each.told

    async def _probe_server(self) -> None:
        """Ask the API server whether it is there: a watch on a dead connection is silent for minutes."""
        while True:
            try:
                async with asyncio.timeout(ANSWER):
                    await self._sight.kube.read_version()
                self._contact.mark_regained(SERVER)
            except TimeoutError:
                self._contact.mark_lost(SERVER, f"the API server at {self._cluster} does not answer")
            except DovetailError as error:
                self._contact.mark_lost(
                    SERVER, f"the API server at {self._cluster} cannot be reached ({error})"
                )
            self._tell_staleness()
            await self._sight.clock.sleep(ASKED)

    def _tell_staleness(self) -> None:
        """Every page says since when it is stale; the first look after that takes the words away."""
        stale = self._contact.find_staleness()
        if stale is not None:
            self._board.mark_stale(*stale)
        elif self._stale:
            self._changed.set()
        self._stale = stale is not None

    async def _refresh_regularly(self) -> None:
        while True:
            await self._sight.clock.sleep(LEARN)
            await refresh_provider(self._sight)
            self._changed.set()

    async def _show_pictures(self) -> None:
        clock = self._sight.clock
        await refresh_provider(self._sight)
        while True:
            self._changed.clear()
            began = clock.monotonic()
            try:
                if not self._stale:
                    picture = await self._take_picture()
                    if self._contact.find_staleness() is None:
                        self._board.show(picture)
            except DovetailError as error:
                self._board.report_trouble(f"The cluster cannot be looked at now: {error}.")
            await clock.sleep(max(SOONEST, REST * (clock.monotonic() - began)))
            try:
                async with asyncio.timeout(LATEST):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _take_picture(self) -> Picture:
        remarks: list[str] = []
        shifts, moments = tuple(self._shifts), tuple(_list_moments(self._events))
        situation = await take_situation(self._sight, shifts, remarks.append)
        problems = (*self._list_lasting_problems(), *dict.fromkeys(remarks))
        limits = tuple(self._sight.informers.get(SpendLimit, ()))
        seen = SeenCluster(situation, settings=self._sight.settings, spend_limits=limits)
        if self._rules is not None:
            self._rules.note_situation(situation)
        picture = await asyncio.to_thread(
            build_picture,
            seen,
            self._cluster,
            live=True,
            shifts=shifts,
            moments=moments,
            problems=problems,
            cache=self._cache,
        )
        picture = await asyncio.to_thread(add_change, picture, seen, self._describe_change)
        self._decisions.extendleft(list_new_decisions(self._last, picture))
        self._last = picture
        spend = replace(picture.spend, points=self._months.note_limits(limits))
        return replace(
            picture,
            decisions=tuple(self._decisions),
            history=self._history.remembered,
            spend=spend,
            commitments=tuple(self._sight.informers.get(Commitment, ())),
        )


def _describe_problem(kind: Kind, error: DovetailError) -> str:
    if isinstance(error, Gone):
        return f"The cluster has no {kind.resource}; install it with `dovetail crds | kubectl apply -f -`."
    return f"The {kind.plural} cannot be read now: {error}."


def _list_moments(events: Informer[CoreV1Event]) -> list[Moment]:
    """The latest first, as many as a page can show."""
    found = [
        Moment(at, _describe_object(each), each.reason, each.message, each.type == "Warning", each.count or 1)
        for each in events
        if (at := _find_time(each)) is not None
    ]
    return sorted(found, key=lambda moment: moment.at, reverse=True)[:KEPT]


def _find_time(event: CoreV1Event) -> datetime | None:
    return event.last_timestamp or event.first_timestamp or event.metadata.creation_timestamp


def _describe_object(event: CoreV1Event) -> str:
    thing = event.involved_object
    place = f"{thing.namespace}/" if thing.namespace and thing.kind == "Pod" else ""
    return f"{thing.kind} {place}{thing.name}"

"""Pictures for the dashboard: of a snapshot once, or of a live cluster whenever it has changed."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Any

from dovetail.api.meta import Kind, Object
from dovetail.api.zoneshift import ZoneShift
from dovetail.cli.live import OURS, Looking, frozen, looked_around
from dovetail.cli.plandisruption import scene_of
from dovetail.cli.podview import FEW, told
from dovetail.cli.solved import Solved, solved
from dovetail.disruption.survey import survey
from dovetail.errors import BadInput, DovetailError, Gone, NotAuthorized
from dovetail.explain import Decision
from dovetail.ports import Clock
from dovetail.runtime.events import Event
from dovetail.runtime.informer import Informer
from dovetail.runtime.sight import DISPENSABLE
from dovetail.runtime.watch import Follower
from dovetail.scheduling import nodes as states
from dovetail.scheduling.snapshot import Snapshot
from dovetail.settings import Settings
from dovetail.web import Dashboard, Moment, Picture

__all__ = ["Watching", "picture_of"]

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
OPTIONAL: frozenset[type[Object]] = DISPENSABLE | {ZoneShift, Event}


def picture_of(
    snapshot: Snapshot,
    cluster: str,
    settings: Settings,
    *,
    live: bool,
    shifts: tuple[ZoneShift, ...] = (),
    moments: tuple[Moment, ...] = (),
    problems: tuple[str, ...] = (),
) -> Picture:
    """What `dovetail plan`, `plan --disruption` and `explain` would say of this world, put together."""
    found = solved(snapshot, len(snapshot.pods) > FEW, lambda step: None)
    seen = survey(scene_of(snapshot, settings))
    return Picture(
        cluster,
        live,
        snapshot,
        found.plan,
        seen,
        dict(_sentences(found)),
        found.near_misses,
        shifts,
        moments,
        problems=problems,
    )


def _sentences(found: Solved) -> Iterator[tuple[str, str]]:
    """As `dovetail explain` says it of each pod that waits."""
    planned = {node.name: node for node in found.plan.new_nodes}
    homes = {pod.full_name: states.name(state) for state in found.snapshot.nodes for pod in state.pods}
    for pod in (*found.snapshot.pods, *found.snapshot.moving):
        name = pod.full_name
        decision = found.decisions.get(name) or Decision(name, None, error=found.left_out.get(name, ""))
        before = f"its node {homes[name]} is being removed; " if name in homes else ""
        yield name, before + told(decision, planned.get(decision.place or ""), found.missing(name))


def decided(before: Picture | None, now: Picture) -> Iterator[Moment]:
    """What is decided otherwise than it was, or for the first time."""
    known: Mapping[str, str] = before.sentences if before else {}
    for pod, sentence in now.sentences.items():
        if known.get(pod) != sentence:
            stuck = pod in now.plan.unschedulable
            yield Moment(now.now, pod, "no place" if stuck else "place", sentence, stuck)
    old = {str(command) for command in before.survey.commands} if before else set()
    for command in now.survey.commands:
        if str(command) not in old:
            names = ", ".join(candidate.name for candidate in command.candidates)
            saved = f"{command}, saves ${command.savings:.4f} an hour"
            yield Moment(now.now, names, command.method.reason, saved)


@dataclass(frozen=True, slots=True)
class Problem:
    """What cannot be read, since when it is so without a break, and when it was last tried."""

    since: float
    latest: float
    told: str


class Contact:
    """Knows which parts of the cluster cannot be read, and since when."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lost: dict[str, tuple[float, datetime, str]] = {}

    def lose(self, part: str, why: str) -> None:
        """This part cannot be read; it counts from the first time without a break."""
        began, since, _ = self._lost.get(part) or (self._clock.monotonic(), self._clock.now(), "")
        self._lost[part] = began, since, why

    def regain(self, part: str) -> None:
        self._lost.pop(part, None)

    def stale(self) -> tuple[datetime, str] | None:
        """Since when what is known is old, and why. A break of a moment does not count."""
        now = self._clock.monotonic()
        lasting = [each for each in self._lost.values() if now - each[0] > PASSING]
        if not lasting:
            return None
        # The server's absence explains every other loss.
        why = (self._lost.get(SERVER) or min(lasting))[2]
        return min(lasting)[1], why


class Watching:
    """A live cluster: its caches, kept up to date, and a picture whenever they have changed."""

    def __init__(self, cluster: Looking, board: Dashboard) -> None:
        self._cluster, self._board = cluster.connection.server, board
        self._sight = cluster.sight
        self._shifts, self._events = Informer(ZoneShift), Informer(Event)
        self._changed = asyncio.Event()
        self._decisions: deque[Moment] = deque(maxlen=KEPT)
        self._problems: dict[type[Object], Problem] = {}
        self._contact = Contact(self._sight.clock)
        self._last: Picture | None = None
        self._stale = False

    async def run(self) -> None:
        """Follow the cluster and show it, until cancelled."""
        kinds: dict[type[Object], Informer[Any]] = dict(self._sight.informers)
        kinds |= {ZoneShift: self._shifts, Event: self._events}
        async with asyncio.TaskGroup() as tasks:
            for kind, informer in kinds.items():
                informer.on_change(lambda before, after: self._changed.set())
                tasks.create_task(self._follower(kind, informer).run())
            for informer in kinds.values():
                await informer.wait_synced()
            await self._sight.provider.prepare()
            tasks.create_task(self._learning())
            tasks.create_task(self._asking())
            await self._showing()

    def _follower(self, kind: type[Object], informer: Informer[Any]) -> Follower[Any]:
        clock, chance = self._sight.clock, Random(0)
        # Of events, only those of ours: a cluster has very many others.
        fields = "source=karpenter" if kind is Event else ""

        def trouble(error: DovetailError) -> None:
            unknown = isinstance(error, Gone) and kind.KIND.group not in OURS
            if kind not in OPTIONAL and not unknown and not isinstance(error, BadInput):
                self._contact.lose(kind.KIND.plural, f"the {kind.KIND.plural} cannot be read ({error})")
            if not unknown and not (kind in OPTIONAL and isinstance(error, NotAuthorized)):
                self._trouble(kind, error)
            elif not informer.synced:
                informer.begin()
                informer.end()

        def contact() -> None:
            self._contact.regain(kind.KIND.plural)

        return Follower(
            self._sight.kube,
            kind,
            informer,
            clock=clock,
            chance=chance,
            fields=fields,
            on_trouble=trouble,
            on_contact=contact,
        )

    def _trouble(self, kind: type[Object], error: DovetailError) -> None:
        """While there is no picture, what stands in its way is the page; later it is a line on it."""
        now, known = self._sight.clock.monotonic(), self._problems.get(kind)
        since = known.since if known is not None and now - known.latest < FORGOTTEN else now
        self._problems[kind] = Problem(since, now, _problem(kind.KIND, error))
        if self._last is None:
            self._board.trouble(self._problems[kind].told)
        self._changed.set()

    def _lasting(self) -> Iterator[str]:
        """What goes on for some time. A stream that broke once was mended before anybody read of it."""
        now = self._sight.clock.monotonic()
        for each in self._problems.values():
            if now - each.latest < FORGOTTEN and each.latest - each.since > PASSING:
                yield each.told

    async def _asking(self) -> None:
        """Ask the API server whether it is there: a watch on a dead connection is silent for minutes."""
        while True:
            try:
                async with asyncio.timeout(ANSWER):
                    await self._sight.kube.version()
                self._contact.regain(SERVER)
            except TimeoutError:
                self._contact.lose(SERVER, f"the API server at {self._cluster} does not answer")
            except DovetailError as error:
                self._contact.lose(SERVER, f"the API server at {self._cluster} cannot be reached ({error})")
            self._tell_staleness()
            await self._sight.clock.sleep(ASKED)

    def _tell_staleness(self) -> None:
        """Every page says since when it is stale; the first look after that takes the words away."""
        stale = self._contact.stale()
        if stale is not None:
            self._board.mark_stale(*stale)
        elif self._stale:
            self._changed.set()
        self._stale = stale is not None

    async def _learning(self) -> None:
        while True:
            await self._sight.clock.sleep(LEARN)
            await looked_around(self._sight)
            self._changed.set()

    async def _showing(self) -> None:
        clock = self._sight.clock
        await looked_around(self._sight)
        while True:
            self._changed.clear()
            began = clock.monotonic()
            try:
                if not self._stale:
                    picture = await self._picture()
                    if self._contact.stale() is None:
                        self._board.show(picture)
            except DovetailError as error:
                self._board.trouble(f"The cluster cannot be looked at now: {error}.")
            await clock.sleep(max(SOONEST, REST * (clock.monotonic() - began)))
            try:
                async with asyncio.timeout(LATEST):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _picture(self) -> Picture:
        remarks: list[str] = []
        snapshot = await frozen(self._sight, remarks.append)
        shifts, moments = tuple(self._shifts), tuple(_moments(self._events))
        problems = (*self._lasting(), *dict.fromkeys(remarks))
        picture = await asyncio.to_thread(
            picture_of,
            snapshot,
            self._cluster,
            self._sight.settings,
            live=True,
            shifts=shifts,
            moments=moments,
            problems=problems,
        )
        self._decisions.extendleft(decided(self._last, picture))
        self._last = picture
        return replace(picture, decisions=tuple(self._decisions))


def _problem(kind: Kind, error: DovetailError) -> str:
    if isinstance(error, Gone):
        return f"The cluster has no {kind.resource}; install it with `dovetail crds | kubectl apply -f -`."
    return f"The {kind.plural} cannot be read now: {error}."


def _moments(events: Informer[Event]) -> list[Moment]:
    """The latest first, as many as a page can show."""
    found = [
        Moment(at, _about(each), each.reason, each.message, each.type == "Warning", each.count or 1)
        for each in events
        if (at := _at(each)) is not None
    ]
    return sorted(found, key=lambda moment: moment.at, reverse=True)[:KEPT]


def _at(event: Event) -> datetime | None:
    return event.last_timestamp or event.first_timestamp or event.metadata.creation_timestamp


def _about(event: Event) -> str:
    thing = event.involved_object
    place = f"{thing.namespace}/" if thing.namespace and thing.kind == "Pod" else ""
    return f"{thing.kind} {place}{thing.name}"

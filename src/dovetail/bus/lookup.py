"""Ask EC2 whose instances are: many ids in a call, an id in one call at a time, and never too often.

What is learnt goes into the cache. Whoever asks waits until everything asked for is settled or the patience
runs out; a warning's ids go first, and stay wanted while EC2 has none of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dovetail.aws import Aws, AwsError, pages
from dovetail.bus.budget import Budget
from dovetail.bus.cache import Owners
from dovetail.bus.clocks import Clock, Log
from dovetail.bus.config import Config
from dovetail.bus.counts import Counts
from dovetail.bus.destinations import Cluster
from dovetail.bus.events import Place
from dovetail.bus.ownership import owners, tag_keys
from dovetail.bus.pushed import Pushed

__all__ = ["Resolver"]

COALESCE = 0.05  # concurrent misses share a call
GATHER = 1.0  # how long ids that are not urgent wait for a call to be full
AGAIN = 1.0  # EC2 may not know yet what it has just launched
URGENT_TRIES, TRIES = 3, 2
FORGOTTEN = 300.0  # by then a warning has long been broadcast
PAGE = 1000
ENDED = ("terminated", "shutting-down")


@dataclass(slots=True, eq=False)
class _Want:
    settled: asyncio.Future[None]
    tries: int
    urgent: bool
    since: float
    after: float = 0.0


@dataclass(slots=True, eq=False)
class _Desk:
    """Questions about one place."""

    place: Place
    aws: Aws
    budget: Budget
    wants: dict[str, _Want] = field(default_factory=dict)
    asking: set[str] = field(default_factory=set)
    worker: asyncio.Task[None] | None = None

    def next(self, now: float, most: int) -> list[str]:
        """Ids to ask for now, those of warnings first."""
        ready = [
            (not want.urgent, id)
            for id, want in self.wants.items()
            if want.after <= now and id not in self.asking
        ]
        if len(ready) >= most:
            ready.sort(key=lambda each: each[0])
        elif not any(self.wants[id].urgent or now - self.wants[id].since >= GATHER for _, id in ready):
            return []  # others will come, or a warning's call will take them along
        return [id for _, id in ready[:most]]


class Resolver:
    """Fills the cache with what EC2, or a cluster itself, says of instances."""

    def __init__(
        self, config: Config, aws: Aws, cache: Owners, *, clock: Clock, counts: Counts, log: Log
    ) -> None:
        self._config, self._aws, self._cache = config, aws, cache
        self._clock, self._counts, self._log = clock, counts, log
        self._roles = {account.id: account for account in config.accounts}
        self._desks: dict[Place, _Desk] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pushed = Pushed(aws, config["pushed.dynamodb"]) if config["pushed.dynamodb"] else None
        self._clusters: dict[Cluster, tuple[Cluster, ...]] = {}

    async def settle(self, place: Place, ids: Iterable[str], *, urgent: bool, patience: float) -> None:
        """Have every id looked up; returns when all are settled, given up, or patience runs out."""
        desk, waiting = self._desk(place), []
        for id in ids:
            want = desk.wants.get(id)
            if want is None:
                future = asyncio.get_running_loop().create_future()
                tries, since = URGENT_TRIES if urgent else TRIES, self._clock.monotonic()
                want = desk.wants[id] = _Want(future, tries, urgent, since)
            elif urgent and not want.urgent:
                want.urgent, want.tries = True, max(want.tries, URGENT_TRIES)
            waiting.append(want.settled)
        if desk.worker is None or desk.worker.done():
            desk.worker = self._start(self._work(desk))
        if waiting:
            await asyncio.wait(waiting, timeout=max(patience, 0.0))

    async def prefetch(self, place: Place) -> int:
        """Read every instance of every cluster at a place, giving way to warnings; returns how many."""
        desk, count = self._desk(place), 0
        filters = [{"Name": "tag-key", "Values": tag_keys(self._config["tags"])}]
        asked: dict[str, Any] = {"Filters": filters, "MaxResults": PAGE}
        while True:
            while any(want.urgent for want in desk.wants.values()):
                await self._clock.sleep(COALESCE)
            await desk.budget.take()
            answer = await self._asked(desk, asked)
            count += len(self._learn(desk.place, answer))
            if not answer.get("NextToken"):
                return count
            asked["NextToken"] = answer["NextToken"]

    def refresh(self, place: Place, ids: Sequence[str]) -> None:
        """Look these up again when there is time; what is known meanwhile stays."""
        if ids:
            self._start(self.settle(place, ids, urgent=False, patience=60.0))

    @property
    def tokens(self) -> float:
        """Calls that could be made at once, at the place that has fewest."""
        return min((desk.budget.tokens for desk in self._desks.values()), default=self._config["ec2.burst"])

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _desk(self, place: Place) -> _Desk:
        desk = self._desks.get(place)
        if desk is None:
            account = self._roles.get(place.account)
            role, external = (account.role_arn, account.external_id) if account else ("", "")
            there = self._aws
            if role or place.region != there.region:
                there = there.at(region=place.region, role=role, external_id=external)
            budget = Budget(self._config["ec2.callsPerSecond"], self._config["ec2.burst"], self._clock)
            desk = self._desks[place] = _Desk(place, there, budget)
        return desk

    async def _work(self, desk: _Desk) -> None:
        await self._clock.sleep(COALESCE)
        while desk.wants:
            if not desk.next(self._clock.monotonic(), self._config["ec2.chunk"]):
                await self._clock.sleep(COALESCE)
                continue
            await desk.budget.take()
            chosen = desk.next(self._clock.monotonic(), self._config["ec2.chunk"])
            if chosen:
                desk.asking.update(chosen)
                self._start(self._ask(desk, chosen))

    async def _ask(self, desk: _Desk, ids: list[str]) -> None:
        try:
            missing = await self._told(desk.place, ids)
            found: set[str] = set(ids) - set(missing)
            if missing:
                filters = [{"Name": "instance-id", "Values": missing}]
                async for answer in pages(
                    _Counted(self, desk), "ec2", "DescribeInstances", {"Filters": filters}
                ):
                    found |= self._learn(desk.place, answer)
        except AwsError as error:
            self._log.warning(
                "looking up instances failed",
                account=desk.place.account,
                region=desk.place.region,
                error=error,
            )
            self._failed(desk, ids)
        except Exception as error:  # noqa: BLE001 (an answer that makes no sense must not keep its ids wanted)
            self._log.error("looking up instances met a bug", region=desk.place.region, error=repr(error))
            self._failed(desk, ids)
        else:
            self._counts.add("lookup_ids_total", len(ids))
            self._found(desk, ids, found)
        finally:
            desk.asking.difference_update(ids)

    async def _told(self, place: Place, ids: list[str]) -> list[str]:
        """Ids that no cluster has published as its own."""
        if self._pushed is None:
            return ids
        now, told = self._now(), await self._pushed.find(ids)
        for id, names in told.items():
            self._cache.owned(id, self._owners(place, names), now)
        return [id for id in ids if id not in told]

    async def _asked(self, desk: _Desk, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        try:
            answer = await desk.aws.call("ec2", "DescribeInstances", parameters, retried=False)
        except AwsError as error:
            self._counts.add("lookup_calls_total", 1, "throttled" if error.status == 503 else "failed")
            desk.budget.complained()
            raise
        self._counts.add("lookup_calls_total", 1, "ok")
        desk.budget.pleased()
        return answer

    def _learn(self, place: Place, answer: Mapping[str, Any]) -> set[str]:
        """Put what EC2 tells into the cache; returns the ids it told of."""
        found, now = set(), self._now()
        for reservation in answer.get("Reservations", ()):
            for instance in reservation.get("Instances", ()):
                id = instance["InstanceId"]
                found.add(id)
                tags = {tag["Key"]: tag.get("Value", "") for tag in instance.get("Tags", ())}
                names = owners(tags, self._config["tags"])
                if not names:
                    self._cache.foreign(id, now, _age(instance.get("LaunchTime"), now))
                    continue
                self._cache.owned(id, self._owners(place, names), now)
                if instance.get("State", {}).get("Name") in ENDED:
                    self._cache.ended(id, now)
        return found

    def _owners(self, place: Place, names: Sequence[str]) -> tuple[Cluster, ...]:
        clusters = tuple(Cluster(place.account, place.region, name) for name in names)
        if len(clusters) != 1:
            return clusters
        return self._clusters.setdefault(clusters[0], clusters)

    def _found(self, desk: _Desk, ids: list[str], found: set[str]) -> None:
        for id in ids:
            want = desk.wants[id]
            want.tries -= 1
            if id not in found:
                if want.tries > 0:
                    want.after = self._clock.monotonic() + AGAIN
                    continue
                self._cache.unknown(id, self._now())
            self._settled(desk, id)

    def _failed(self, desk: _Desk, ids: list[str]) -> None:
        """Warnings stay wanted; the rest is given up, and its messages come again."""
        now = self._clock.monotonic()
        for id in ids:
            want = desk.wants[id]
            if not want.urgent or now - want.since > FORGOTTEN:
                self._settled(desk, id)

    def _settled(self, desk: _Desk, id: str) -> None:
        want = desk.wants.pop(id)
        if not want.settled.done():
            want.settled.set_result(None)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _now(self) -> float:
        return self._clock.now().timestamp()


class _Counted:
    """A desk's door to EC2, every page of an answer counted."""

    def __init__(self, resolver: Resolver, desk: _Desk) -> None:
        self._resolver, self._desk = resolver, desk

    @property
    def region(self) -> str:
        return self._desk.place.region

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Mapping[str, Any]:
        return await self._resolver._asked(self._desk, parameters)

    def at(self, *, region: str = "", role: str = "", external_id: str = "") -> Aws:
        return self._desk.aws.at(region=region, role=role, external_id=external_id)


def _age(launched: object, now: float) -> float | None:
    return now - launched.timestamp() if isinstance(launched, datetime) else None

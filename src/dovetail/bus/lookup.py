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

from dovetail.aws import Aws, AwsError, list_pages
from dovetail.bus.config import BusConfig
from dovetail.bus.destinations import BusCluster
from dovetail.bus.events import BusPlace
from dovetail.bus.owners import InstanceOwners, PublishedInstances, find_owners, list_tag_keys
from dovetail.bus.ports import BusClock, BusCounts
from dovetail.errors import note_contained
from dovetail.logs import get_logger
from dovetail.throttle import Throttle

__all__ = ["Ec2CallBudget", "InstanceResolver"]

log = get_logger("bus")

LEAST = 0.2


class Ec2CallBudget:
    """Calls a second, with a burst; modest, since every Karpenter of an account shares EC2's own bucket."""

    def __init__(self, rate: float, burst: float, clock: BusClock) -> None:
        self._most = float(rate)
        self._throttle = Throttle(clock, rate, burst)

    @property
    def rate(self) -> float:
        return self._throttle.per_second

    @property
    def tokens(self) -> float:
        return self._throttle.tokens

    async def take_token(self) -> None:
        """Return once a call may be made."""
        await self._throttle.wait_for_free()

    def slow_down(self) -> None:
        """EC2 throttled a call: half as many from now on, and none at once."""
        self._throttle.change_rate(max(self.rate / 2, LEAST), most_tokens=0.0)

    def speed_up(self) -> None:
        self._throttle.change_rate(min(self._most, self.rate + self._most / 20))


COALESCE = 0.05  # concurrent misses share a call
GATHER = 1.0  # how long ids that are not urgent wait for a call to be full
LOOKUP_AGAIN = 1.0  # EC2 may not know yet what it has just launched
URGENT_TRIES, TRIES = 3, 2
FORGOTTEN = 300.0  # by then a warning has long been broadcast
PAGE = 1000
ENDED = ("terminated", "shutting-down")


@dataclass(slots=True, eq=False)
class _WantedInstance:
    settled: asyncio.Future[None]
    tries: int
    urgent: bool
    since: float
    after: float = 0.0


@dataclass(slots=True, eq=False)
class _PlaceLookups:
    """Questions about one place."""

    place: BusPlace
    aws: Aws
    budget: Ec2CallBudget
    wants: dict[str, _WantedInstance] = field(default_factory=dict)
    asking: set[str] = field(default_factory=set)
    worker: asyncio.Task[None] | None = None

    def choose_next(self, now: float, most: int) -> list[str]:
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


class InstanceResolver:
    """Fills the cache with what EC2, or a cluster itself, says of instances."""

    def __init__(
        self,
        config: BusConfig,
        aws: Aws,
        cache: InstanceOwners,
        *,
        clock: BusClock,
        counts: BusCounts,
    ) -> None:
        self._config, self._aws, self._cache = config, aws, cache
        self._clock, self._counts = clock, counts
        self._roles = {account.id: account for account in config.accounts}
        self._desks: dict[BusPlace, _PlaceLookups] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._pushed = (
            PublishedInstances(aws, config["pushed.dynamodb"]) if config["pushed.dynamodb"] else None
        )
        self._clusters: dict[BusCluster, tuple[BusCluster, ...]] = {}

    async def resolve_instances(
        self, place: BusPlace, ids: Iterable[str], *, urgent: bool, patience: float
    ) -> None:
        """Have every id looked up; returns when all are settled, given up, or patience runs out."""
        lookups, waiting = self._get_lookups(place), []
        for id in ids:
            want = lookups.wants.get(id)
            if want is None:
                future = asyncio.get_running_loop().create_future()
                tries, since = URGENT_TRIES if urgent else TRIES, self._clock.monotonic()
                want = lookups.wants[id] = _WantedInstance(future, tries, urgent, since)
            elif urgent and not want.urgent:
                want.urgent, want.tries = True, max(want.tries, URGENT_TRIES)
            waiting.append(want.settled)
        if lookups.worker is None or lookups.worker.done():
            lookups.worker = self._start_task(self._run_lookups(lookups))
        if waiting:
            await asyncio.wait(waiting, timeout=max(patience, 0.0))

    async def prefetch_place(self, place: BusPlace) -> int:
        """Read every instance of every cluster at a place, giving way to warnings; returns how many."""
        lookups, count = self._get_lookups(place), 0
        filters = [{"Name": "tag-key", "Values": list_tag_keys(self._config["tags"])}]
        asked: dict[str, Any] = {"Filters": filters, "MaxResults": PAGE}
        while True:
            while any(want.urgent for want in lookups.wants.values()):
                await self._clock.sleep(COALESCE)
            await lookups.budget.take_token()
            answer = await self._describe_instances(lookups, asked)
            count += len(self._cache_answer(lookups.place, answer))
            if not answer.get("NextToken"):
                return count
            asked["NextToken"] = answer["NextToken"]

    def refresh_instances(self, place: BusPlace, ids: Sequence[str]) -> None:
        """Look these up again when there is time; what is known meanwhile stays."""
        if ids:
            self._start_task(self.resolve_instances(place, ids, urgent=False, patience=60.0))

    @property
    def tokens(self) -> float:
        """Calls that could be made at once, at the place that has fewest."""
        return min(
            (lookups.budget.tokens for lookups in self._desks.values()), default=self._config["ec2.burst"]
        )

    async def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _get_lookups(self, place: BusPlace) -> _PlaceLookups:
        lookups = self._desks.get(place)
        if lookups is None:
            account = self._roles.get(place.account)
            role, external = (account.role_arn, account.external_id) if account else ("", "")
            there = self._aws
            if role or place.region != there.region:
                there = there.scope_to(region=place.region, role=role, external_id=external)
            budget = Ec2CallBudget(self._config["ec2.callsPerSecond"], self._config["ec2.burst"], self._clock)
            lookups = self._desks[place] = _PlaceLookups(place, there, budget)
        return lookups

    async def _run_lookups(self, lookups: _PlaceLookups) -> None:
        await self._clock.sleep(COALESCE)
        while lookups.wants:
            if not lookups.choose_next(self._clock.monotonic(), self._config["ec2.chunk"]):
                await self._clock.sleep(COALESCE)
                continue
            await lookups.budget.take_token()
            chosen = lookups.choose_next(self._clock.monotonic(), self._config["ec2.chunk"])
            if chosen:
                lookups.asking.update(chosen)
                self._start_task(self._look_up_ids(lookups, chosen))

    async def _look_up_ids(self, lookups: _PlaceLookups, ids: list[str]) -> None:
        try:
            missing = await self._read_published(lookups.place, ids)
            found: set[str] = set(ids) - set(missing)
            if missing:
                filters = [{"Name": "instance-id", "Values": missing}]
                async for answer in list_pages(
                    _CountedAws(self, lookups), "ec2", "DescribeInstances", {"Filters": filters}
                ):
                    found |= self._cache_answer(lookups.place, answer)
        except AwsError as error:
            log.warning(
                "looking up instances failed",
                account=lookups.place.account,
                region=lookups.place.region,
                error=error,
            )
            self._settle_failed(lookups, ids)
        except Exception as error:  # noqa: BLE001 (an answer that makes no sense must not keep its ids wanted)
            note_contained(error)
            log.error("looking up instances met a bug", region=lookups.place.region, error=repr(error))
            self._settle_failed(lookups, ids)
        else:
            self._counts.add("lookup_ids_total", len(ids))
            self._settle_found(lookups, ids, found)
        finally:
            lookups.asking.difference_update(ids)

    async def _read_published(self, place: BusPlace, ids: list[str]) -> list[str]:
        """Ids that no cluster has published as its own."""
        if self._pushed is None:
            return ids
        now, told = self._now(), await self._pushed.find_owners(ids)
        for id, names in told.items():
            self._cache.set_owned(id, self._build_owners(place, names), now)
        return [id for id in ids if id not in told]

    async def _describe_instances(
        self, lookups: _PlaceLookups, parameters: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        try:
            answer = await lookups.aws.call("ec2", "DescribeInstances", parameters, retried=False)
        except AwsError as error:
            self._counts.add("lookup_calls_total", 1, "throttled" if error.status == 503 else "failed")
            lookups.budget.slow_down()
            raise
        self._counts.add("lookup_calls_total", 1, "ok")
        lookups.budget.speed_up()
        return answer

    def _cache_answer(self, place: BusPlace, answer: Mapping[str, Any]) -> set[str]:
        """Put what EC2 tells into the cache; returns the ids it told of."""
        found, now = set(), self._now()
        for reservation in answer.get("Reservations", ()):
            for instance in reservation.get("Instances", ()):
                id = instance["InstanceId"]
                found.add(id)
                tags = {tag["Key"]: tag.get("Value", "") for tag in instance.get("Tags", ())}
                names = find_owners(tags, self._config["tags"])
                if not names:
                    self._cache.set_foreign(id, now, _compute_age(instance.get("LaunchTime"), now))
                    continue
                self._cache.set_owned(id, self._build_owners(place, names), now)
                if instance.get("State", {}).get("Name") in ENDED:
                    self._cache.mark_ended(id, now)
        return found

    def _build_owners(self, place: BusPlace, names: Sequence[str]) -> tuple[BusCluster, ...]:
        clusters = tuple(BusCluster(place.account, place.region, name) for name in names)
        if len(clusters) != 1:
            return clusters
        return self._clusters.setdefault(clusters[0], clusters)

    def _settle_found(self, lookups: _PlaceLookups, ids: list[str], found: set[str]) -> None:
        for id in ids:
            want = lookups.wants[id]
            want.tries -= 1
            if id not in found:
                if want.tries > 0:
                    want.after = self._clock.monotonic() + LOOKUP_AGAIN
                    continue
                self._cache.set_unknown(id, self._now())
            self._settle_id(lookups, id)

    def _settle_failed(self, lookups: _PlaceLookups, ids: list[str]) -> None:
        """Warnings stay wanted; the rest is given up, and its messages come again."""
        now = self._clock.monotonic()
        for id in ids:
            want = lookups.wants[id]
            if not want.urgent or now - want.since > FORGOTTEN:
                self._settle_id(lookups, id)

    def _settle_id(self, lookups: _PlaceLookups, id: str) -> None:
        want = lookups.wants.pop(id)
        if not want.settled.done():
            want.settled.set_result(None)

    def _start_task(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _now(self) -> float:
        return self._clock.now().timestamp()


class _CountedAws:
    """A desk's door to EC2, every page of an answer counted."""

    def __init__(self, resolver: InstanceResolver, lookups: _PlaceLookups) -> None:
        self._resolver, self._desk = resolver, lookups

    @property
    def region(self) -> str:
        return self._desk.place.region

    async def call(
        self, service: str, operation: str, parameters: Mapping[str, Any], /, *, retried: bool = True
    ) -> Mapping[str, Any]:
        return await self._resolver._describe_instances(self._desk, parameters)

    def scope_to(self, *, region: str = "", role: str = "", external_id: str = "") -> Aws:
        return self._desk.aws.scope_to(region=region, role=role, external_id=external_id)


def _compute_age(launched: object, now: float) -> float | None:
    return now - launched.timestamp() if isinstance(launched, datetime) else None

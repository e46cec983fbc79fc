"""What a replayed cluster comes to: dollars, node hours, evictions and waits, added up as things happen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from math import fsum
from typing import Any

from dovetail.api import conditions, labels
from dovetail.api.commitment import Commitment
from dovetail.api.meta import Record
from dovetail.disruption.situation import Situation
from dovetail.history.paid import PaidHour, RunningPrices, add_hours
from dovetail.history.supply import SpotPlace
from dovetail.ports import Clock
from dovetail.scheduling.commitment_terms import build_terms
from dovetail.scheduling.commitments import Ledger
from dovetail.sim.cluster.objects import parse_time
from dovetail.sim.kube.store import ObjectStore, StoreEvent

__all__ = ["ReplayBill", "ReplayMeter", "UnplacedPods"]

Json = dict[str, Any]
HOUR = timedelta(hours=1)
LONG_WAIT, IN_VAIN = timedelta(seconds=60), timedelta(minutes=5)
WORKLOAD = "replay.dovetail.sh/workload"


class UnplacedPods(Record, frozen=True):
    """Pods of a workload that waited in vain, and the hours they waited together."""

    workload: str
    pods: int
    hours: float


class ReplayBill(Record, frozen=True):
    """What a cluster came to from one time to another: recorded, or replayed.

    `unknown_spot_hours` are those of spot nodes of a type and zone that the recording never used; `estimated`
    of the dollars are at estimated prices.
    """

    since: datetime
    until: datetime
    dollars: float = 0.0
    estimated: float = 0.0
    node_hours: float = 0.0
    evictions: int = 0
    pods_waited: int = 0
    job_hours: float = 0.0
    job_hours_repeated: float = 0.0
    unknown_spot_hours: float = 0.0
    unplaced: tuple[UnplacedPods, ...] = ()
    hours: tuple[PaidHour, ...] = ()
    by_pool: Mapping[str, float] = {}

    def sum_days(self) -> dict[str, float]:
        """The dollars of each day, UTC, by its date."""
        days: dict[str, list[float]] = {}
        for hour in self.hours:
            days.setdefault(f"{hour.began:%Y-%m-%d}", []).append(hour.dollars)
        return {day: fsum(found) for day, found in days.items()}

    def subtract(self, before: ReplayBill) -> ReplayBill:
        """What came after the time of an earlier bill of the same cluster."""
        known = {hour.began: hour for hour in before.hours}
        hours = []
        for hour in self.hours:
            old = known.get(hour.began, PaidHour(began=hour.began))
            left = PaidHour(
                began=hour.began,
                dollars=hour.dollars - old.dollars,
                node_hours=hour.node_hours - old.node_hours,
                watched_seconds=hour.watched_seconds - old.watched_seconds,
            )
            if left.watched_seconds > 0:
                hours.append(left)
        return ReplayBill(
            since=before.until,
            until=self.until,
            dollars=fsum(hour.dollars for hour in hours),
            estimated=self.estimated - before.estimated,
            node_hours=fsum(hour.node_hours for hour in hours),
            evictions=self.evictions - before.evictions,
            pods_waited=self.pods_waited - before.pods_waited,
            job_hours=self.job_hours - before.job_hours,
            job_hours_repeated=self.job_hours_repeated - before.job_hours_repeated,
            unknown_spot_hours=self.unknown_spot_hours - before.unknown_spot_hours,
            unplaced=self.unplaced,
            hours=tuple(hours),
            by_pool=_add_pools(self.by_pool, before.by_pool, -1),
        )

    def add(self, after: ReplayBill) -> ReplayBill:
        """This time and another one together."""
        return ReplayBill(
            since=min(self.since, after.since),
            until=max(self.until, after.until),
            dollars=fsum((self.dollars, after.dollars)),
            estimated=self.estimated + after.estimated,
            node_hours=fsum((self.node_hours, after.node_hours)),
            evictions=self.evictions + after.evictions,
            pods_waited=self.pods_waited + after.pods_waited,
            job_hours=self.job_hours + after.job_hours,
            job_hours_repeated=self.job_hours_repeated + after.job_hours_repeated,
            unknown_spot_hours=self.unknown_spot_hours + after.unknown_spot_hours,
            unplaced=_add_unplaced(self.unplaced, after.unplaced),
            hours=add_hours(self.hours, after.hours),
            by_pool=_add_pools(self.by_pool, after.by_pool, 1),
        )


class _MeteredNode:
    """A node that is paid for, from the last time that it was settled."""

    __slots__ = ("estimated", "known", "price", "since")

    def __init__(self, known: Mapping[str, str], prices: RunningPrices, since: datetime) -> None:
        self.since = since
        self.take_price(known, prices)

    def take_price(self, known: Mapping[str, str], prices: RunningPrices) -> None:
        """From now on it is what these labels say, and costs what such a node does."""
        self.known = known
        self.price = prices.find_price(self.pool, known)
        self.estimated = prices.is_estimated(self.pool, known)

    @property
    def pool(self) -> str:
        return self.known.get(labels.NODEPOOL, "")


class _CommittedRate:
    """What Commitments add to the list prices of nodes an hour: what is committed, less what they pay for."""

    def __init__(self, commitments: Sequence[Commitment], since: datetime) -> None:
        self._commitments = commitments
        self._ledger = Ledger()
        self.since, self.rate = since, 0.0

    def apply_usage(self, nodes: Iterable[_MeteredNode], prices: RunningPrices, now: datetime) -> None:
        """From now on these nodes run."""
        terms = build_terms(self._commitments, now)
        if terms != self._ledger.terms:
            self._ledger = Ledger(terms)
        kinds = (prices.find_usage(node.pool, node.known) for node in nodes)
        usage = Counter(kind for kind in kinds if kind is not None)
        self.rate = self._ledger.committed - self._ledger.apply_kinds(usage).saved


class ReplayMeter:
    """Listens to every commit of the simulated API server, and counts as a recording is counted."""

    def __init__(self, store: ObjectStore, clock: Clock, commitments: Sequence[Commitment] = ()) -> None:
        self._clock = clock
        self._committed = _CommittedRate(commitments, clock.now()) if commitments else None
        self._prices = RunningPrices()
        self._began = self._watched = clock.now()
        self._nodes: dict[str, _MeteredNode] = {}
        self._hours: dict[datetime, list[float]] = {}
        self._by_pool: dict[str, float] = {}
        self._waiting: dict[str, tuple[datetime, str]] = {}
        self._in_vain: list[tuple[str, float]] = []
        self._known_places: set[SpotPlace] = set()
        self._unknown_spot = self._estimated = 0.0
        self.evictions = 0
        self.waited = 0
        store.on_commit(self._on_event, "pods", "nodeclaims.karpenter.sh")

    def take_prices(self, situation: Situation, places: set[SpotPlace]) -> None:
        """From now on nodes cost what this look says; `places` are those that the recording has used."""
        self._settle_all()
        self._prices.read_snapshot(situation.snapshot)
        self._known_places = places
        for node in self._nodes.values():
            node.take_price(node.known, self._prices)
        self._apply_commitments()

    def _on_event(self, event: StoreEvent) -> None:
        if event.new.info.plural == "pods":
            self._on_pod(event)
        else:
            self._on_claim(event)

    def _on_claim(self, event: StoreEvent) -> None:
        claim, now = event.new.obj, self._clock.now()
        uid = claim["metadata"]["uid"]
        known = self._nodes.get(uid)
        found = {each["type"]: each for each in (claim.get("status") or {}).get("conditions") or ()}
        ended = event.type == "DELETED" or _is_true(found.get(conditions.INSTANCE_TERMINATING))
        about = claim["metadata"].get("labels") or {}
        self._settle_commitments(now)
        if known is not None and ended:
            self._settle(self._nodes.pop(uid), now)
        elif (
            known is not None and known.known != about
        ):  # what it became is written after that it was launched
            known.take_price(about, self._prices)
        elif known is None and not ended and _is_true(found.get(conditions.LAUNCHED)):
            self._nodes[uid] = _MeteredNode(about, self._prices, now)
        self._apply_commitments()

    def _on_pod(self, event: StoreEvent) -> None:
        pod = event.new.obj
        meta = pod["metadata"]
        uid = meta["uid"]
        if event.type == "DELETED":
            left = self._waiting.pop(uid, None)
            if left is not None and self._clock.now() - left[0] >= IN_VAIN:
                self._in_vain.append((left[1], (self._clock.now() - left[0]) / HOUR))
            conditions_now = (pod.get("status") or {}).get("conditions") or ()
            daemon = any(each["kind"] == "DaemonSet" for each in meta.get("ownerReferences") or ())
            self.evictions += not daemon and any(
                each["type"] == "DisruptionTarget" and each["status"] == "True" for each in conditions_now
            )
        elif pod["spec"].get("nodeName"):
            began = self._waiting.pop(uid, None)
            if began is not None:
                self.waited += self._clock.now() - began[0] > LONG_WAIT
        elif event.type == "ADDED" and WORKLOAD in (meta.get("labels") or {}):
            workload = (meta.get("annotations") or {}).get(WORKLOAD, meta["name"])
            self._waiting[uid] = parse_time(meta["creationTimestamp"]), f"{meta['namespace']}/{workload}"

    def _settle_all(self) -> None:
        now = self._clock.now()
        for node in self._nodes.values():
            self._settle(node, now)
        self._settle_commitments(now)
        for began, hours in _split_hours(self._watched, now):
            self._hours.setdefault(began, [0.0, 0.0, 0.0])[2] += hours * 3600
        self._watched = now

    def _settle(self, node: _MeteredNode, now: datetime) -> None:
        for began, hours in _split_hours(node.since, now):
            found = self._hours.setdefault(began, [0.0, 0.0, 0.0])
            found[0] += node.price * hours
            found[1] += hours
            self._estimated += node.price * hours if node.estimated else 0.0
            self._by_pool[node.pool] = self._by_pool.get(node.pool, 0.0) + node.price * hours
            if node.known.get(labels.CAPACITY_TYPE) == labels.SPOT:
                place = SpotPlace(node.known.get(labels.INSTANCE_TYPE, ""), node.known.get(labels.ZONE, ""))
                self._unknown_spot += 0.0 if place in self._known_places else hours
        node.since = now

    def _settle_commitments(self, now: datetime) -> None:
        """What is committed is paid whatever runs, and what it pays for is not paid again."""
        if self._committed is not None:
            for began, hours in _split_hours(self._committed.since, now):
                self._hours.setdefault(began, [0.0, 0.0, 0.0])[0] += self._committed.rate * hours
            self._committed.since = now

    def _apply_commitments(self) -> None:
        if self._committed is not None:
            self._committed.apply_usage(self._nodes.values(), self._prices, self._clock.now())

    def list_unplaced(self) -> tuple[UnplacedPods, ...]:
        """Pods that went without ever having a place, or have waited for a while now, by workload."""
        now, found = self._clock.now(), dict[str, list[float]]()
        for workload, hours in self._in_vain:
            found.setdefault(workload, []).append(hours)
        for began, workload in self._waiting.values():
            if now - began >= IN_VAIN:
                found.setdefault(workload, []).append((now - began) / HOUR)
        return tuple(
            UnplacedPods(workload=name, pods=len(hours), hours=fsum(hours))
            for name, hours in sorted(found.items())
        )

    def build_bill(self, job_hours: float, repeated: float) -> ReplayBill:
        """What it comes to until now."""
        self._settle_all()
        hours = tuple(
            PaidHour(began=began, dollars=found[0], node_hours=found[1], watched_seconds=found[2])
            for began, found in sorted(self._hours.items())
        )
        return ReplayBill(
            since=self._began,
            until=self._clock.now(),
            dollars=fsum(hour.dollars for hour in hours),
            estimated=self._estimated,
            node_hours=fsum(hour.node_hours for hour in hours),
            evictions=self.evictions,
            pods_waited=self.waited,
            job_hours=job_hours,
            job_hours_repeated=repeated,
            unknown_spot_hours=self._unknown_spot,
            unplaced=self.list_unplaced(),
            hours=hours,
            by_pool=dict(sorted(self._by_pool.items())),
        )


def _add_unplaced(
    some: tuple[UnplacedPods, ...], others: tuple[UnplacedPods, ...]
) -> tuple[UnplacedPods, ...]:
    found: dict[str, UnplacedPods] = {}
    for each in (*some, *others):
        known = found.get(each.workload, UnplacedPods(workload=each.workload, pods=0, hours=0.0))
        found[each.workload] = UnplacedPods(
            workload=each.workload, pods=known.pods + each.pods, hours=known.hours + each.hours
        )
    return tuple(found[name] for name in sorted(found))


def _add_pools(some: Mapping[str, float], others: Mapping[str, float], sign: int) -> dict[str, float]:
    names = sorted(some.keys() | others.keys())
    return {name: some.get(name, 0.0) + sign * others.get(name, 0.0) for name in names}


def _is_true(condition: Json | None) -> bool:
    return condition is not None and condition["status"] == "True"


def _split_hours(since: datetime, until: datetime) -> Iterator[tuple[datetime, float]]:
    """The time between, as hours by the clock, each with how much of it."""
    while since < until:
        began = since.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
        ends = min(until, began + HOUR)
        yield began, (ends - since) / HOUR
        since = ends

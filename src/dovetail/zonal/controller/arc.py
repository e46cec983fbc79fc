"""Asking ARC what is shifted: often while something is, seldom otherwise, patiently while it is silent."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from dovetail.api.zoneshift import ZoneShift
from dovetail.aws import Aws, AwsAbsent, AwsError, list_pages
from dovetail.errors import DovetailError
from dovetail.logs import get_logger
from dovetail.ports import Clock
from dovetail.zonal import shift_metrics
from dovetail.zonal.model.records import KIND, START
from dovetail.zonal.model.shifts import ArcPoll, Shift, parse_poll
from dovetail.zonal.store.cluster_store import ShiftStore

__all__ = ["ArcPoller", "SignalReader"]

SERVICE = "arc-zonal-shift"
JITTER = 0.2
SOON = 0.01
SLOWEST, UNREGISTERED, OBSERVE, NOTIFIED = 120.0, 3600.0, 60.0, 3600.0
log = get_logger()


class ArcPoller:
    """The poller of one cluster. Its last successful look is the truth until the next."""

    def __init__(
        self,
        aws: Aws,
        cluster: str,
        clock: Clock,
        rng: Random,
        *,
        calm: float = 30.0,
        active: float = 10.0,
        observer: bool = False,
    ) -> None:
        self.aws, self._cluster, self._clock, self._chance = aws, cluster, clock, rng
        self._calm, self._active, self._observer = calm, active, observer
        self.arn = ""
        self.last: ArcPoll | None = None
        # None until ARC has said whether it knows the cluster.
        self.registered: bool | None = None
        self.failing = ""
        self._due = float("-inf")
        self._ask_after = float("-inf")
        self._failures = 0
        self._observed: tuple[Shift, ...] = ()
        self._observe_after = float("-inf")
        # Whether observers are sent messages; None until that is known.
        self.notified: bool | None = None
        self._ask_notified_after = float("-inf")

    def change_pace(self, *, calm: float, active: float, observer: bool) -> None:
        """Look so often from the next look on."""
        self._calm, self._active, self._observer = calm, active, observer
        self._observed = self._observed if observer else ()

    def poll_now(self) -> None:
        """Something may have changed: look at once."""
        self._due = float("-inf")

    @property
    def wait(self) -> float:
        """Seconds until the next look."""
        left = self._due - self._clock.monotonic()
        return left if left > SOON else 0.0

    async def poll_if_due(self, *, active: bool) -> bool:
        """Look if it is time to; whether that was done and ARC answered. What fails is counted and told."""
        if self.wait > 0:
            return False
        try:
            await self._poll()
        except DovetailError as error:
            self._failures += 1
            self.failing = str(error)
            code = error.code if isinstance(error, AwsError) else type(error).__name__
            shift_metrics.POLL_ERRORS.labels(_read_operation(error), code).inc()
            usual = self._active if active else self._calm
            self._schedule_next(min(usual * 2 ** min(self._failures, 10), SLOWEST))
            return False
        self._failures, self.failing = 0, ""
        shift_metrics.CONFIRMED.set(self._clock.now().timestamp())
        self._schedule_next(self._active if active or (self.last and self.last.shifts) else self._calm)
        return True

    def _schedule_next(self, seconds: float) -> None:
        spread = 1 + JITTER * (2 * self._chance.random() - 1)
        self._due = self._clock.monotonic() + seconds * spread

    async def _poll(self) -> None:
        await self.resolve_arn()
        await self._observe_autoshifts()
        shifts = await self._list_managed_shifts()
        self.last = ArcPoll(self._clock.now(), (*shifts, *self._observed))

    async def resolve_arn(self) -> str:
        """The cluster's ARN, by which ARC and the ledger's table know it."""
        if not self.arn:
            answer = await self.aws.call("eks", "DescribeCluster", {"name": self._cluster})
            self.arn = str(answer["cluster"]["arn"])
        return self.arn

    async def _list_managed_shifts(self) -> tuple[Shift, ...]:
        if self._clock.monotonic() < self._ask_after:
            return ()
        try:
            answer = await self.aws.call(SERVICE, "GetManagedResource", {"resourceIdentifier": self.arn})
        except AwsAbsent:
            # Not registered, which a person may change; until then there is nothing to be seen here.
            self.registered, self._ask_after = False, self._clock.monotonic() + UNREGISTERED
            shift_metrics.REGISTERED.set(0)
            return ()
        self.registered = True
        shift_metrics.REGISTERED.set(1)
        return parse_poll(answer, self._clock.now()).shifts

    async def _observe_autoshifts(self) -> None:
        """Autoshifts of the region, whether or not the cluster takes part."""
        if not self._observer or self._clock.monotonic() < self._observe_after:
            return
        found: list[Shift] = []
        async for page in list_pages(self.aws, SERVICE, "ListAutoshifts", {"status": "ACTIVE"}):
            found += [
                Shift(str(each["awayFrom"]), "OBSERVED", started=each.get("startTime"))
                for each in page.get("items") or ()
            ]
        self._observed = tuple(found)
        self._observe_after = self._clock.monotonic() + min(OBSERVE, self._calm)
        await self._check_notifications()

    async def _check_notifications(self) -> None:
        """Whether AWS sends messages about autoshifts of others; without them only looking tells."""
        if self._clock.monotonic() < self._ask_notified_after:
            return
        self._ask_notified_after = self._clock.monotonic() + NOTIFIED
        try:
            answer = await self.aws.call(SERVICE, "GetAutoshiftObserverNotificationStatus", {})
        except DovetailError:
            return  # of no consequence: looking goes on
        was, self.notified = self.notified, answer.get("status") == "ENABLED"
        if not self.notified and was is not False:
            log.warning(
                "autoshifts are seen by looking alone, up to a minute late; for messages of them run "
                "`aws arc-zonal-shift update-autoshift-observer-notification-status --status ENABLED`",
                region=self.aws.region,
            )


def _read_operation(error: DovetailError) -> str:
    return error.operation if isinstance(error, AwsError) else ""


# Seconds for which a message is kept where it can be heard.
KEPT_SECONDS = 7200.0


class SignalReader:
    """Hears every message once."""

    def __init__(self, store: ShiftStore, arc: ArcPoller, clock: Clock) -> None:
        self._store, self._arc, self._clock = store, arc, clock
        self._looked: set[str] = set()

    async def read_signals(self, signals: Sequence[ZoneShift]) -> None:
        """Messages of any replica: each makes us look once; old ones are forgotten."""
        now = self._clock.now()
        for each in signals:
            if each.name not in self._looked:
                self._looked.add(each.name)
                self._arc.poll_now()
            created = each.metadata.creation_timestamp
            if created is not None and (now - created).total_seconds() > KEPT_SECONDS:
                self._looked.discard(each.name)
                await self._store.remove(each)

    def count_stale(self, signals: Sequence[ZoneShift]) -> None:
        """A start that ARC knows nothing of is stale: it came late, and is over."""
        poll = self._arc.last
        zones = {shift.zone_id for shift in poll.shifts} if poll is not None else set()
        for each in signals:
            if each.name in self._looked and each.annotations.get(START) == "true":
                fresh = f"{each.name}/judged"
                if fresh not in self._looked and each.spec.zone_id not in zones:
                    shift_metrics.SIGNALS.labels("any", each.annotations.get(KIND, ""), "stale").inc()
                self._looked.add(fresh)

"""interruption.instancestatus: instances that fail their checks, or have something scheduled for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from functools import partial
from itertools import chain
from typing import Any, Final

from dovetail.aws import Aws, AwsDenied, list_pages
from dovetail.controllers.base import (
    DONE,
    Backoff,
    PeriodicController,
    Result,
    requeue_after,
    retry_refusals,
    run_all,
)
from dovetail.logs import get_logger
from dovetail.metrics import counter
from dovetail.ports import Clock
from dovetail.providers.aws.interruption import (
    EVENT_STATUS,
    INSTANCE_STATUS,
    SYSTEM_STATUS,
    InterruptionHandler,
    InterruptionNotice,
)
from dovetail.providers.aws.queries import read_items

__all__ = ["InstanceStatusController"]

UNHEALTHY = counter(
    "karpenter_interruption_instance_status_unhealthy_total",
    "Instances found unhealthy, once for as long as they stay so.",
    ("category",),
)
CATEGORIES: Final = {
    INSTANCE_STATUS: "InstanceStatus",
    SYSTEM_STATUS: "SystemStatus",
    EVENT_STATUS: "EventStatus",
}
EVERY: Final = 60.0
# How long a check may fail before it counts.
PATIENCE: Final = timedelta(seconds=120)
CODES: Final = (
    "instance-reboot",
    "system-reboot",
    "system-maintenance",
    "instance-retirement",
    "instance-stop",
)
QUERIES: Final = (
    {"Name": "instance-status.status", "Values": ["impaired"]},
    {"Name": "system-status.status", "Values": ["impaired"]},
    {"Name": "event.code", "Values": list(CODES)},
)
# EC2 keeps telling of events for a week after they are over, with this before their description.
OVER: Final = ("[Completed]", "[Canceled]")

log = get_logger()


class InstanceStatusController(PeriodicController):
    """Every minute. Instances of other clusters are seen too, and left alone. Dry, it only counts."""

    name = "interruption.instancestatus"
    backoff = Backoff(first=1.0, last=EVERY)

    def __init__(
        self, aws: Aws, interruptions: InterruptionHandler, clock: Clock, *, dry: bool = False
    ) -> None:
        self._aws = aws
        self._interruptions = interruptions
        self._clock = clock
        self._dry = dry
        self._known: frozenset[InterruptionNotice] = frozenset()

    async def reconcile(self, key: str) -> Result:
        with retry_refusals():
            try:
                found = await self._find_unhealthy()
            except AwsDenied as error:
                if error.code != "UnauthorizedOperation":
                    raise
                log.error("the status of instances is not looked at until the next start", error=error)
                return DONE
            self._count_unhealthy(frozenset(found))
            if not self._dry:
                await run_all(map(self._interruptions.handle_notice, found))
        return requeue_after(EVERY)

    async def _find_unhealthy(self) -> tuple[InterruptionNotice, ...]:
        """What is wrong with which of our instances."""
        statuses: dict[str, Mapping[str, Any]] = {}
        for query in QUERIES:
            asked = {"Filters": [query], "MaxResults": 1000}
            async for page in list_pages(self._aws, "ec2", "DescribeInstanceStatus", asked):
                for each in page.get("InstanceStatuses") or ():
                    statuses.setdefault(each.get("InstanceId", ""), each)
        now = self._clock.now()
        ours = {name: status for name, status in statuses.items() if self._interruptions.find_claims(name)}
        read = read_items("DescribeInstanceStatus", ours.values(), partial(_build_notices, now=now))
        return tuple(chain.from_iterable(read))

    def _count_unhealthy(self, found: frozenset[InterruptionNotice]) -> None:
        for notice in found - self._known:
            UNHEALTHY.labels(CATEGORIES[notice.kind]).inc()
        self._known = found


def _build_notices(status: Mapping[str, Any], now: datetime) -> tuple[InterruptionNotice, ...]:
    return tuple(InterruptionNotice(kind, status["InstanceId"]) for kind in _list_problems(status, now))


def _list_problems(status: Mapping[str, Any], now: datetime) -> Iterator[str]:
    """The kinds of trouble an instance has. Checks of its volumes are none of ours."""
    if _is_failing(status.get("SystemStatus") or {}, now):
        yield SYSTEM_STATUS
    if _is_failing(status.get("InstanceStatus") or {}, now):
        yield INSTANCE_STATUS
    if any(_is_upcoming(event) for event in status.get("Events") or ()):
        yield EVENT_STATUS


def _is_failing(check: Mapping[str, Any], now: datetime) -> bool:
    return any(
        detail.get("Status") == "failed"
        and (since := detail.get("ImpairedSince")) is not None
        and now - since >= PATIENCE
        for detail in check.get("Details") or ()
    )


def _is_upcoming(event: Mapping[str, Any]) -> bool:
    return event.get("Code") in CODES and not (event.get("Description") or "").startswith(OVER)

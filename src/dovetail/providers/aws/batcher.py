"""Many small requests to EC2 become few: launches, look-ups and terminations, each asked for one.

A batcher is asked as EC2 itself is asked for one instance, and answers as EC2 would have answered that
request alone. What the batch did together and what had to be repeated one by one stays in here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from dovetail.aws import Answer, Aws, AwsError, aws_error, list_pages
from dovetail.logs import get_logger
from dovetail.metrics import SIZE_BUCKETS, histogram
from dovetail.ports import Clock
from dovetail.providers.aws.launch_tokens import TOKEN_USED, LaunchAttempts
from dovetail.providers.aws.tags import tag_for_claims

__all__ = ["BatchWindow", "DescribeBatcher", "FleetBatcher", "RequestBatcher", "TerminateBatcher"]

Q = TypeVar("Q")
A = TypeVar("A")
Request = Mapping[str, Any]
Outcome = Answer | Exception

WORKERS = 100
TOO_FEW = "too few instances returned"
TERMINATING_STATES = frozenset(("shutting-down", "terminated"))
WINDOW_TIME = histogram(
    "karpenter_cloudprovider_batcher_batch_time_seconds",
    "How long a batch of requests to the cloud gathered.",
    ("batcher",),
)
BATCH_SIZE = histogram(
    "karpenter_cloudprovider_batcher_batch_size",
    "How many requests to the cloud were made as one.",
    ("batcher",),
    SIZE_BUCKETS,
)
log = get_logger()


@dataclass(frozen=True, slots=True)
class BatchWindow:
    """When a window closes: nothing new for `idle`, open for `longest`, or `most` requests in it."""

    idle: float
    longest: float
    most: int


@dataclass(slots=True)
class _Window(Generic[Q, A]):
    opened: float
    latest: float
    waiting: list[tuple[Q, asyncio.Future[A]]] = field(default_factory=list)

    def closes_at(self, pace: BatchWindow) -> float:
        return min(self.latest + pace.idle, self.opened + pace.longest)


class RequestBatcher(Generic[Q, A]):
    """Gathers requests for a moment, then has each bucket of like ones done together.

    `work` gets the requests of one bucket and gives an outcome for each, in their order; an error it
    raises is everyone's.
    """

    def __init__(
        self,
        clock: Clock,
        name: str,
        pace: BatchWindow,
        work: Callable[[Sequence[Q]], Awaitable[Sequence[A | Exception]]],
        *,
        bucket: Callable[[Q], Hashable],
    ) -> None:
        self._clock = clock
        self._name = name
        self._pace = pace
        self._work = work
        self._bucket = bucket
        self._window: _Window[Q, A] | None = None
        self._workers = asyncio.Semaphore(WORKERS)
        self._tasks: set[asyncio.Task[None]] = set()

    async def __call__(self, request: Q) -> A:
        """The answer to one request, however many were made with it."""
        future: asyncio.Future[A] = asyncio.get_running_loop().create_future()
        now = self._clock.monotonic()
        window = self._window
        if window is None:
            window = self._window = _Window(now, now)
            self._start_task(self._watch_window(window))
        window.latest = now
        window.waiting.append((request, future))
        if len(window.waiting) >= self._pace.most:
            self._close_window(window)
        return await future

    async def _watch_window(self, window: _Window[Q, A]) -> None:
        while (left := window.closes_at(self._pace) - self._clock.monotonic()) > 1e-9:
            await self._clock.sleep(left)
        if window is self._window:
            self._close_window(window)

    def _close_window(self, window: _Window[Q, A]) -> None:
        self._window = None
        WINDOW_TIME.labels(self._name).observe(self._clock.monotonic() - window.opened)
        buckets: dict[Hashable, list[tuple[Q, asyncio.Future[A]]]] = {}
        for request, future in window.waiting:
            buckets.setdefault(self._bucket(request), []).append((request, future))
        for waiting in buckets.values():
            self._start_task(self._run_bucket(waiting))

    async def _run_bucket(self, waiting: Sequence[tuple[Q, asyncio.Future[A]]]) -> None:
        BATCH_SIZE.labels(self._name).observe(len(waiting))
        outcomes: Sequence[A | Exception]
        async with self._workers:
            try:
                outcomes = await self._work([request for request, _ in waiting])
            except Exception as error:  # noqa: BLE001
                # Whatever it is, it belongs to those who asked: nobody else would ever hear of it.
                outcomes = [error] * len(waiting)
        for (_, future), outcome in zip(waiting, outcomes, strict=True):
            if future.done():
                continue  # the caller gave up meanwhile
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

    def _start_task(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@dataclass(frozen=True, slots=True)
class _LaunchRequest:
    """A launch for one claim, and how often its group's token had been refused when it was asked for."""

    request: Request
    claim: str
    group: str
    refused: int

    @property
    def bucket(self) -> Hashable:
        return _as_set(self.request), self.group, self.refused


class FleetBatcher:
    """CreateFleet for one instance; equal requests of a group share a fleet and are dealt its instances.

    Whose a request is does not count for equality, and is told in the tags of the instances. Requests of a
    group are made one after the other, each with the group's next client token.
    """

    PACE = BatchWindow(0.035, 1.0, 1000)

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws = aws
        self._attempts = LaunchAttempts()
        self._batcher: RequestBatcher[_LaunchRequest, Answer] = RequestBatcher(
            clock, "create_fleet", self.PACE, self._launch_claims, bucket=lambda each: each.bucket
        )

    async def __call__(self, request: Request, claim: str = "", group: str = "") -> Answer:
        """The fleet's answer with at most one instance; its errors are told to everyone who shared it.

        After an AwsError of code `TOKEN_USED` an earlier request had the token: look for its instances.
        """
        return await self._batcher(_LaunchRequest(request, claim, group, self._attempts.count_refused(group)))

    async def _launch_claims(self, asked: Sequence[_LaunchRequest]) -> Sequence[Outcome]:
        group = asked[0].group
        if not group:
            answer = await self._create_fleet(asked, {})
            return _deal_instances(answer, range(len(asked)))
        async with self._attempts.find_lock(group):
            if asked[0].refused != self._attempts.count_refused(group):
                raise aws_error("ec2:CreateFleet", TOKEN_USED, "an earlier request had the token", 400)
            try:
                answer = await self._create_fleet(asked, {"ClientToken": self._attempts.next_token(group)})
            except AwsError as error:
                if error.code == TOKEN_USED:
                    self._attempts.mark_used(group, refused=True)
                raise
            self._attempts.mark_used(group)
        # By name: a process that sends the same request again gives each claim the same instance.
        by_name = sorted(range(len(asked)), key=lambda place: asked[place].claim)
        places = {asker: place for place, asker in enumerate(by_name)}
        return _deal_instances(answer, [places[asker] for asker in range(len(asked))])

    async def _create_fleet(self, asked: Sequence[_LaunchRequest], token: Request) -> Answer:
        request = tag_for_claims(asked[0].request, [each.claim for each in asked], asked[0].group)
        target = {**request["TargetCapacitySpecification"], "TotalTargetCapacity": len(asked)}
        return await self._aws.call(
            "ec2", "CreateFleet", {**request, "TargetCapacitySpecification": target, **token}
        )


def _deal_instances(answer: Answer, places: Sequence[int]) -> Sequence[Outcome]:
    """The answer for each who asked, with the instance of its place if there is one."""
    launched = list(_split_instances(answer))
    if len(launched) > len(places):
        surplus = [each["InstanceIds"][0] for each in launched[len(places) :]]
        log.warning("a fleet launched more instances than were requested", instances=", ".join(surplus))
    errors = list(answer.get("Errors") or ())
    if len(launched) < len(places) and not errors:
        errors = [{"ErrorCode": TOO_FEW, "ErrorMessage": TOO_FEW}]
    return [{**answer, "Errors": errors, "Instances": launched[place : place + 1]} for place in places]


def _split_instances(answer: Answer) -> Iterator[dict[str, Any]]:
    for group in answer.get("Instances") or ():
        for instance_id in group.get("InstanceIds") or ():
            yield {**group, "InstanceIds": [instance_id]}


class DescribeBatcher:
    """DescribeInstances for one id; those with the same filters are asked together.

    What the shared request does not return, or does not get to, is asked for one by one.
    """

    PACE = BatchWindow(0.1, 1.0, 500)

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws = aws
        self._batcher: RequestBatcher[Request, Answer] = RequestBatcher(
            clock, "describe_instances", self.PACE, self._describe_instances, bucket=_but_ids
        )

    async def __call__(self, request: Request) -> Answer:
        """The answer about the one id in `InstanceIds`."""
        return await self._batcher(request)

    async def _describe_instances(self, requests: Sequence[Request]) -> Sequence[Outcome]:
        found = await self._describe_together(requests)
        return await _deliver_outcomes(self._aws, "DescribeInstances", requests, found)

    async def _describe_together(self, requests: Sequence[Request]) -> dict[str, Answer]:
        found: dict[str, Answer] = {}
        asked = {**requests[0], "InstanceIds": _merge_ids(requests)}
        try:
            async for page in list_pages(self._aws, "ec2", "DescribeInstances", asked):
                for reservation in page.get("Reservations") or ():
                    for instance in reservation.get("Instances") or ():
                        alone = {"Reservations": [{**reservation, "Instances": [instance]}]}
                        found[instance["InstanceId"]] = alone
        except AwsError as error:
            # One id that is gone fails the whole request; each will be asked for alone and told the truth.
            log.debug("describing instances together failed", error=error)
        return found


class TerminateBatcher:
    """TerminateInstances for one id; what the shared request did not end is ended one by one."""

    PACE = BatchWindow(0.1, 1.0, 500)

    def __init__(self, aws: Aws, clock: Clock) -> None:
        self._aws = aws
        self._batcher: RequestBatcher[Request, Answer] = RequestBatcher(
            clock, "terminate_instances", self.PACE, self._terminate_instances, bucket=lambda _: None
        )

    async def __call__(self, request: Request) -> Answer:
        """The answer about the one id in `InstanceIds`."""
        return await self._batcher(request)

    async def _terminate_instances(self, requests: Sequence[Request]) -> Sequence[Outcome]:
        return await _deliver_outcomes(
            self._aws, "TerminateInstances", requests, await self._terminate_together(requests)
        )

    async def _terminate_together(self, requests: Sequence[Request]) -> dict[str, Answer]:
        try:
            answer = await self._aws.call("ec2", "TerminateInstances", {"InstanceIds": _merge_ids(requests)})
        except AwsError as error:
            log.debug("terminating instances together failed", error=error)
            return {}
        return {
            change["InstanceId"]: {"TerminatingInstances": [change]}
            for change in answer.get("TerminatingInstances") or ()
            if change.get("CurrentState", {}).get("Name") in TERMINATING_STATES
        }


async def _deliver_outcomes(
    aws: Aws, operation: str, requests: Sequence[Request], found: Mapping[str, Answer]
) -> Sequence[Outcome]:
    """Everyone's outcome: as found together, or else as EC2 answers for that id alone."""
    missing = {_instance_id(request): request for request in requests if _instance_id(request) not in found}

    async def alone(request: Request) -> Outcome:
        try:
            return await aws.call("ec2", operation, request)
        except AwsError as error:
            return error

    answers = await asyncio.gather(*map(alone, missing.values()))
    known: dict[str, Outcome] = {**found, **dict(zip(missing, answers, strict=True))}
    return [known[_instance_id(request)] for request in requests]


def _instance_id(request: Request) -> str:
    (only,) = request["InstanceIds"]
    return str(only)


def _merge_ids(requests: Sequence[Request]) -> list[str]:
    return sorted({_instance_id(request) for request in requests})


def _but_ids(request: Request) -> Hashable:
    return _as_set({key: value for key, value in request.items() if key != "InstanceIds"})


def _as_set(value: Any) -> Hashable:
    """Something equal for equal requests; the order of lists does not count."""
    if isinstance(value, Mapping):
        return frozenset((key, _as_set(each)) for key, each in value.items())
    if isinstance(value, list | tuple):
        return frozenset(_as_set(each) for each in value)
    return value  # type: ignore[no-any-return]

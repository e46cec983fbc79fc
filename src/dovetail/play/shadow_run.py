"""A shadow while it runs: the recorder in this process, each follower of the recording in one of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from math import nan
from typing import Literal, TypeVar

import msgspec
from msgspec.structs import replace

from dovetail.api.nodepool import NodePool
from dovetail.app.cluster_context import ClusterContext
from dovetail.app.cluster_recorder import RecordingPace, record_open_cluster
from dovetail.app.cluster_source import ClusterSource
from dovetail.app.given_pools import GivenPools
from dovetail.app.live_cluster import LiveCluster, open_cluster
from dovetail.app.recordings import open_place, open_recording
from dovetail.errors import BadInput, DovetailError, Misconfigured
from dovetail.history.difference import DifferenceKind
from dovetail.history.shadow import ShadowReport
from dovetail.history.shadow_claim import TwinBill
from dovetail.metrics import counter, gauge
from dovetail.play.shadow_follower import FollowerProcess
from dovetail.play.shadow_nights import MANY_NODES, NightBills
from dovetail.play.shadow_state import list_segments_left, read_state
from dovetail.play.shadow_twins import CALIBRATION, DIFFERENCES, TWIN, ShadowTwins, add_bills
from dovetail.play.shadowing import TeePlace
from dovetail.ports import Clock
from dovetail.runtime.transport import ApiRequest, Transport
from dovetail.settings.decision_log import LogPlace

__all__ = ["LiveShadow", "ShadowOptions", "catch_up", "run_shadow"]

DOLLARS = counter(
    "dovetail_shadow_dollars",
    "Dollars at list prices since the shadow began: real, of the twin, and of the calibration twin.",
    ("whose",),
)
DIFFERED = counter(
    "dovetail_shadow_difference_total",
    "Decisions that differ from what Dovetail would do, by kind.",
    ("kind",),
)
BEHIND = gauge("dovetail_shadow_behind_seconds", "How far the slowest follower is behind the recording.")
CERTAINTY = gauge(
    "dovetail_shadow_certainty",
    "The calibration's largest daily error, as a share of 1; not a number until there is one.",
)
TELL_EVERY = 5.0
T = TypeVar("T", bound=msgspec.Struct)
NO_POOLS = "there is no NodePool in this cluster; give the pools Dovetail should use with --pools FILE"
# How often a shadow looks whether a day is over that its twins replay at night. Seconds.
ASK_FOR_NIGHT = 60.0
TwinTime = Literal["auto", "live", "nightly", "off"]


@dataclass(frozen=True, slots=True)
class ShadowOptions:
    """Where the recording is kept, how often is looked, and which followers there are."""

    place: LogPlace
    target: str
    every: timedelta = timedelta(seconds=10)
    twins: ShadowTwins = field(default_factory=ShadowTwins)
    twin_time: TwinTime = "auto"
    given: GivenPools | None = None


class LiveShadow:
    """What the followers of a running shadow say, together; with `nights`, twins speak once a day."""

    def __init__(self, followers: list[FollowerProcess], nights: NightBills | None = None) -> None:
        self._followers = {follower.role: follower for follower in followers}
        self.nights = nights
        self._counted: dict[str, float] = {}
        self.notes: tuple[str, ...] = ()
        # A panel draws nothing where a series is missing, and 0 would claim that the model is never wrong.
        CERTAINTY.set(nan)
        for whose in ("real", "twin", "calibration"):
            DOLLARS.labels(whose)
        for kind in DifferenceKind:
            DIFFERED.labels(kind)

    def build_report(self) -> ShadowReport:
        """The report as of now; the twins may be some minutes behind."""
        said = {role: follower.latest for role, follower in self._followers.items()}
        report = _decode(said.get(DIFFERENCES, b""), ShadowReport) or ShadowReport()
        twin, calibration = (self._find_bill(role, said.get(role, b"")) for role in (TWIN, CALIBRATION))
        return add_bills(replace(report, notes=(*report.notes, *self.notes)), twin, calibration)

    def _find_bill(self, role: str, said: bytes) -> TwinBill | None:
        return self.nights.sum_bills(role) if self.nights is not None else _decode(said, TwinBill)

    def count_metrics(self) -> None:
        """Bring the metrics up to what the followers say."""
        report = self.build_report()
        self._count("real", report.paid.dollars)
        if report.twin is not None:
            self._count("twin", report.twin.dollars)
            if report.until is not None and self.nights is None:
                BEHIND.set(max(0.0, (report.until - report.twin.until).total_seconds()))
        if report.calibration is not None:
            self._count("calibration", report.calibration.dollars)
        for kind, found in report.sums.items():
            grown = found.count - self._counted.get(f"kind {kind}", 0.0)
            if grown > 0:
                DIFFERED.labels(kind).inc(grown)
                self._counted[f"kind {kind}"] = found.count
        if report.claim.certainty is not None:
            CERTAINTY.set(report.claim.certainty)

    def _count(self, whose: str, dollars: float) -> None:
        grown = dollars - self._counted.get(whose, 0.0)
        if grown > 0:
            DOLLARS.labels(whose).inc(grown)
            self._counted[whose] = dollars


async def run_shadow(
    where: ClusterSource,
    options: ShadowOptions,
    stop: asyncio.Event,
    remark: Callable[[str], None],
    on_start: Callable[[LiveShadow], None] = lambda shadow: None,
    on_watching: Callable[[], None] = lambda: None,
) -> ShadowReport:
    """Watch a cluster until told to stop, and say what was found. Nothing is written to the cluster.

    `on_watching` is told when all is listed, right before the first look.
    """

    def check(sight: ClusterContext) -> None:
        require_pools(sight)
        on_watching()

    async with open_cluster(where) as cluster:
        with ExitStack() as stack:
            nights = await _choose_nights(cluster, options)
            followers = []
            for role in options.twins.roles if nights is None else (DIFFERENCES,):
                followers.append(FollowerProcess(role, options.twins, options.target))
                stack.callback(followers[-1].close)
            shadow = LiveShadow(followers, nights)
            on_start(shadow)

            def tell(text: str) -> None:
                shadow.notes = (*shadow.notes, text)
                remark(text)

            await asyncio.to_thread(catch_up, followers, options, tell)
            place = open_place(options.place, cluster.sight.clock, asyncio.to_thread, None)
            beside = [asyncio.create_task(_count_regularly(shadow))]
            if nights is not None:
                beside.append(asyncio.create_task(_replay_nights(nights, cluster.sight.clock)))
            try:
                await record_open_cluster(
                    cluster,
                    TeePlace(place, followers),
                    RecordingPace(options.every),
                    stop,
                    tell,
                    eager=True,
                    check=check,
                    given=options.given,
                )
            except ExceptionGroup as group:
                raise _find_refusal(group) from group
            finally:
                for task in beside:
                    task.cancel()
                await asyncio.gather(*beside, return_exceptions=True)
        return shadow.build_report()


async def _choose_nights(cluster: LiveCluster, options: ShadowOptions) -> NightBills | None:
    """Twins at the end of each day, if asked for or if the cluster is large; None for twins beside it."""
    chosen = options.twin_time
    if chosen == "auto":
        chosen = "nightly" if await count_nodes(cluster.sight.kube.transport) > MANY_NODES else "live"
    return NightBills(options.target, options.twins) if chosen == "nightly" else None


async def count_nodes(transport: Transport) -> int:
    """How many nodes there are, without listing them: a page of one, and how many remain."""
    reply = await transport.send(ApiRequest("GET", "/api/v1/nodes", {"limit": "1"}))
    if reply.status != 200:
        return 0  # whoever lists them says what is wrong
    page = msgspec.json.decode(reply.body, type=_NodePage)
    return len(page.items) + page.metadata.remaining


class _PageMeta(msgspec.Struct):
    remaining: int = msgspec.field(default=0, name="remainingItemCount")


class _NodePage(msgspec.Struct):
    items: list[msgspec.Raw] = []
    metadata: _PageMeta = msgspec.field(default_factory=_PageMeta)


async def _replay_nights(nights: NightBills, clock: Clock) -> None:
    """Replay each day once it is over."""
    while True:
        await asyncio.to_thread(nights.replay_due, clock.now())
        await clock.sleep(ASK_FOR_NIGHT)


def require_pools(sight: ClusterContext) -> None:
    """Refuse a cluster that has no NodePool: there is nothing to compare with."""
    if not any(True for _ in sight.get_informer(NodePool)):
        raise Misconfigured(NO_POOLS)


def _find_refusal(group: ExceptionGroup[Exception]) -> Exception:
    refused = group.subgroup(DovetailError)
    return refused.exceptions[0] if refused is not None else group


def catch_up(
    followers: Iterable[FollowerProcess], options: ShadowOptions, tell: Callable[[str], None]
) -> None:
    """Let followers take in what was recorded before: from the last keyframe at which somebody kept it."""
    names = _list_before(options.target)
    for follower in followers if names else ():
        try:
            state = read_state(options.target, follower.role, options.twins)
        except BadInput as error:
            tell(str(error))
            state = None
        left = list_segments_left(state, names)
        if state is not None and left is not None:
            follower.resume(state)
        follower.read_before(options.target, names if left is None else left)


def _list_before(target: str) -> list[str]:
    """The segments that were recorded at this place before; none where there is nothing."""
    try:
        with open_recording(target) as reader:
            return [segment.head.name for segment in reader.segments]
    except BadInput:
        return []


async def _count_regularly(shadow: LiveShadow) -> None:
    while True:
        await asyncio.sleep(TELL_EVERY)
        shadow.count_metrics()


def _decode(data: bytes, kind: type[T]) -> T | None:
    return msgspec.json.decode(data, type=kind) if data else None

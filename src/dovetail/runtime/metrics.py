"""The numbers the machinery keeps, under the names controller-runtime and client-go gave them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from prometheus_client import Counter, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import generate_latest

from dovetail.api.meta import Kind
from dovetail.metrics import BUCKETS, REGISTRY, BriefRegistry, PartRegistry, counter, gauge, histogram
from dovetail.ports import Clock

__all__ = [
    "REGISTRY",
    "ReconcileMetrics",
    "client_request",
    "prepare_controller",
    "register_reporter",
    "render_exposition",
    "render_part",
]

# The library would add a `_created` series to every one of ours, which nobody asked for.
disable_created_metrics()  # type: ignore[no-untyped-call]
ProcessCollector(registry=REGISTRY)

RECONCILE_BUCKETS = tuple(bucket for bucket in BUCKETS if bucket <= 60)
QUEUE_BUCKETS = tuple(1e-8 * 10**k for k in range(12))
# In brief, how long keys wait and work is a mean: what takes long is seen in the reconcile times.
NO_BUCKETS: tuple[float, ...] = ()
CLIENT_BUCKETS = tuple(0.001 * 1.5**k for k in range(20))

CLIENT_REQUESTS = counter("client_go_request_total", "Requests to the API server.", ("code", "method"))
CLIENT_SECONDS = histogram(
    "client_go_request_duration_seconds",
    "How long requests to the API server took.",
    ("verb", "group", "version", "kind", "subresource"),
    CLIENT_BUCKETS,
)

_CONTROLLER = ("controller",)
RECONCILES = counter(
    "controller_runtime_reconcile_total", "Reconciles by how they ended.", ("controller", "result")
)
RECONCILE_ERRORS = counter(
    "controller_runtime_reconcile_errors_total", "Reconciles that failed.", _CONTROLLER
)
TERMINAL_ERRORS = counter(
    "controller_runtime_terminal_reconcile_errors_total",
    "Reconciles that failed and will not be tried again by themselves.",
    _CONTROLLER,
    brief="nonzero",
)
PANICS = counter("controller_runtime_reconcile_panics_total", "Reconciles that hit a bug.", _CONTROLLER)
TIMEOUTS = counter(
    "controller_runtime_reconcile_timeouts_total",
    "Reconciles that ran out of time.",
    _CONTROLLER,
    brief="nonzero",
)
RECONCILE_SECONDS = histogram(
    "controller_runtime_reconcile_time_seconds", "How long reconciles took.", _CONTROLLER, RECONCILE_BUCKETS
)
MAX_WORKERS = gauge(
    "controller_runtime_max_concurrent_reconciles", "Keys a controller may work on at once.", _CONTROLLER
)
ACTIVE_WORKERS = gauge(
    "controller_runtime_active_workers", "Keys a controller works on now.", _CONTROLLER, brief="nonzero"
)
# Dashboards ask for it; there is no conversion webhook here, so it stays at zero.
CONVERSION_PANICS = counter(
    "controller_runtime_conversion_webhook_panics_total", "Bugs met by a conversion webhook."
)

_QUEUE = ("name", "controller")
QUEUE_DEPTH = gauge("workqueue_depth", "Keys waiting.", ("name", "controller", "priority"))
QUEUE_ADDS = counter("workqueue_adds_total", "Keys added.", _QUEUE)
QUEUE_RETRIES = counter(
    "workqueue_retries_total", "Keys added again after a failure.", _QUEUE, brief="nonzero"
)
QUEUE_WAIT = histogram(
    "workqueue_queue_duration_seconds", "How long keys waited.", _QUEUE, QUEUE_BUCKETS, brief=NO_BUCKETS
)
QUEUE_WORK = histogram(
    "workqueue_work_duration_seconds",
    "How long keys were worked on.",
    _QUEUE,
    QUEUE_BUCKETS,
    brief=NO_BUCKETS,
)
QUEUE_UNFINISHED = gauge(
    "workqueue_unfinished_work_seconds", "Work under way, in seconds so far.", _QUEUE, brief="nonzero"
)
QUEUE_LONGEST = gauge(
    "workqueue_longest_running_processor_seconds",
    "The longest work under way, in seconds.",
    _QUEUE,
    brief="nonzero",
)

LEADING = gauge("leader_election_master_status", "1 while this process leads.", ("name",))
SLOW_RENEWALS = counter(
    "leader_election_slowpath_total", "Renewals that had to read the lease again.", ("name",)
)


class ReconcileMetrics(NamedTuple):
    """What every visit of a controller moves, looked up once: how many ended how, and how long they took."""

    ended: Mapping[str, Counter]
    seconds: Histogram


def prepare_controller(controller: str, concurrency: int) -> ReconcileMetrics:
    """Show a controller's numbers from its first moment, at zero: a rate needs a start."""
    results = ("success", "error", "requeue", "requeue_after")
    for one in (RECONCILE_ERRORS, TERMINAL_ERRORS, PANICS, TIMEOUTS, ACTIVE_WORKERS):
        one.labels(controller)
    MAX_WORKERS.labels(controller).set(concurrency)
    ended = {result: RECONCILES.labels(controller, result) for result in results}
    return ReconcileMetrics(ended, RECONCILE_SECONDS.labels(controller))


class RequestOutcome:
    """What came of a request; zero when nothing did."""

    code = 0


@contextmanager
def client_request(clock: Clock, method: str, kind: Kind, subresource: str) -> Iterator[RequestOutcome]:
    """Time one request and count how it ended."""
    seen, started = RequestOutcome(), clock.monotonic()
    try:
        yield seen
    finally:
        CLIENT_REQUESTS.labels(str(seen.code) if seen.code else "<error>", method).inc()
        CLIENT_SECONDS.labels(method, kind.group, kind.version, kind.kind, subresource).observe(
            clock.monotonic() - started
        )


_reporters: list[Callable[[], None]] = []


@contextmanager
def register_reporter(report: Callable[[], None]) -> Iterator[None]:
    """While the block lasts, whoever asks for the numbers has this called first."""
    _reporters.append(report)
    try:
        yield
    finally:
        _reporters.remove(report)


def render_exposition(*, brief: bool = False) -> bytes:
    """All of it, or all that is shown in brief, as Prometheus reads it."""
    for report in _reporters:
        report()
    return generate_latest(BriefRegistry() if brief else REGISTRY)


def render_part(*prefixes: str) -> bytes:
    """The families whose names begin in one of these ways, for a process that is no controller.

    A controller's gauges at zero would say of a process that only looks that it has not seen its cluster.
    """
    for report in _reporters:
        report()
    return generate_latest(PartRegistry(*prefixes))

"""The numbers the machinery keeps, under the names controller-runtime and client-go gave them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest

from dovetail.api.meta import Kind
from dovetail.ports import Clock

__all__ = ["REGISTRY", "client_request", "exposition"]

REGISTRY = CollectorRegistry(auto_describe=False)

RECONCILE_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0),
    *(1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6, 7, 8, 9, 10, 15, 20, 25, 30, 40, 50, 60),
)
QUEUE_BUCKETS = tuple(1e-8 * 10**k for k in range(12))
CLIENT_BUCKETS = tuple(0.001 * 1.5**k for k in range(20))

CLIENT_REQUESTS = Counter(
    "client_go_request", "Requests to the API server.", ("code", "method"), registry=REGISTRY
)
CLIENT_SECONDS = Histogram(
    "client_go_request_duration_seconds",
    "How long requests to the API server took.",
    ("verb", "group", "version", "kind", "subresource"),
    buckets=CLIENT_BUCKETS,
    registry=REGISTRY,
)
RECONCILES = Counter(
    "controller_runtime_reconcile",
    "Reconciles by how they ended.",
    ("controller", "result"),
    registry=REGISTRY,
)
RECONCILE_ERRORS = Counter(
    "controller_runtime_reconcile_errors", "Reconciles that failed.", ("controller",), registry=REGISTRY
)
TERMINAL_ERRORS = Counter(
    "controller_runtime_terminal_reconcile_errors",
    "Reconciles that failed and will not be tried again by themselves.",
    ("controller",),
    registry=REGISTRY,
)
PANICS = Counter(
    "controller_runtime_reconcile_panics", "Reconciles that hit a bug.", ("controller",), registry=REGISTRY
)
TIMEOUTS = Counter(
    "controller_runtime_reconcile_timeouts",
    "Reconciles that ran out of time.",
    ("controller",),
    registry=REGISTRY,
)
RECONCILE_SECONDS = Histogram(
    "controller_runtime_reconcile_time_seconds",
    "How long reconciles took.",
    ("controller",),
    buckets=RECONCILE_BUCKETS,
    registry=REGISTRY,
)
MAX_WORKERS = Gauge(
    "controller_runtime_max_concurrent_reconciles",
    "Keys a controller may work on at once.",
    ("controller",),
    registry=REGISTRY,
)
ACTIVE_WORKERS = Gauge(
    "controller_runtime_active_workers", "Keys a controller works on now.", ("controller",), registry=REGISTRY
)
QUEUE_DEPTH = Gauge("workqueue_depth", "Keys waiting.", ("name", "controller", "priority"), registry=REGISTRY)
QUEUE_ADDS = Counter("workqueue_adds", "Keys added.", ("name", "controller"), registry=REGISTRY)
QUEUE_RETRIES = Counter(
    "workqueue_retries", "Keys added again after a failure.", ("name", "controller"), registry=REGISTRY
)
QUEUE_WAIT = Histogram(
    "workqueue_queue_duration_seconds",
    "How long keys waited.",
    ("name", "controller"),
    buckets=QUEUE_BUCKETS,
    registry=REGISTRY,
)
QUEUE_WORK = Histogram(
    "workqueue_work_duration_seconds",
    "How long keys were worked on.",
    ("name", "controller"),
    buckets=QUEUE_BUCKETS,
    registry=REGISTRY,
)
QUEUE_UNFINISHED = Gauge(
    "workqueue_unfinished_work_seconds",
    "Work under way, in seconds so far.",
    ("name", "controller"),
    registry=REGISTRY,
)
QUEUE_LONGEST = Gauge(
    "workqueue_longest_running_processor_seconds",
    "The longest work under way.",
    ("name", "controller"),
    registry=REGISTRY,
)
LEADING = Gauge("leader_election_master_status", "1 while this process leads.", ("name",), registry=REGISTRY)
SLOW_RENEWALS = Counter(
    "leader_election_slowpath", "Renewals that had to read the lease again.", ("name",), registry=REGISTRY
)


class Seen:
    """What came of a request; zero when nothing did."""

    code = 0


@contextmanager
def client_request(clock: Clock, method: str, kind: Kind, subresource: str) -> Iterator[Seen]:
    """Time one request and count how it ended."""
    seen, started = Seen(), clock.monotonic()
    try:
        yield seen
    finally:
        CLIENT_REQUESTS.labels(str(seen.code) if seen.code else "<error>", method).inc()
        CLIENT_SECONDS.labels(method, kind.group, kind.version, kind.kind, subresource).observe(
            clock.monotonic() - started
        )


def exposition() -> bytes:
    """All of it, as Prometheus reads it."""
    return generate_latest(REGISTRY)

"""What is counted about zonal shifts."""

from __future__ import annotations

from dovetail import metrics

PREFIX = "dovetail_zonal_shift_"

ACTIVE = metrics.gauge(
    PREFIX + "active", "Zones that are shifted away.", ("zone", "zone_id", "kind", "policy")
)
PHASE = metrics.gauge(PREFIX + "phase", "Where each shift stands.", ("zone_id", "phase"))
DURATION = metrics.gauge(PREFIX + "duration_seconds", "How long a shift has been on.", ("zone", "kind"))
UPSTREAM_DURATION = metrics.gauge(
    "karpenter_cloudprovider_zonal_shift_duration", "How long a shift has been on.", ("zone",)
)
SIGNALS = metrics.counter(
    PREFIX + "signals_total", "Messages about shifts, and what became of them.", ("source", "kind", "result")
)
SIGNATURES = metrics.counter(
    PREFIX + "signature_failures_total", "Deliveries that were not what they claimed to be.", ("reason",)
)
POLL_ERRORS = metrics.counter(PREFIX + "poll_errors_total", "Looks at ARC that failed.", ("op", "code"))
CONFIRMED = metrics.gauge(PREFIX + "last_confirmed_timestamp", "When ARC last answered.")
REGISTERED = metrics.gauge(PREFIX + "registered", "Whether ARC knows the cluster.")
NODES = metrics.gauge(PREFIX + "nodes_protected", "Nodes under protection.", ("zone",))
POOLS = metrics.gauge(PREFIX + "nodepools_edited", "Pools that exclude a zone.", ("zone",))
EXTERNAL = metrics.counter(
    PREFIX + "undo_external_total", "Fields left as someone else wanted them.", ("object",)
)
CONTESTED = metrics.gauge(PREFIX + "contested", "Pools that someone else keeps changing back.")
REFUSED = metrics.counter(PREFIX + "refused_total", "Zones that were not shifted away.", ("zone_id",))
TO_GATE = metrics.histogram(PREFIX + "time_to_gate_seconds", "From the shift's start to the closed gate.")
TO_PROTECT = metrics.histogram(PREFIX + "time_to_protect_seconds", "From first sight to the last mark.")
TO_RESTORE = metrics.histogram(PREFIX + "time_to_restore_seconds", "From the end to the last trace removed.")
PENDING_FOR_ZONE = metrics.gauge(
    PREFIX + "pods_waiting_for_zone", "Pods that can only run in the zone.", ("zone",)
)
READINESS = metrics.gauge(
    "dovetail_zonal_readiness", "Share of the pods that stay schedulable without the zone.", ("zone",)
)
SHIFT_READINESS = metrics.gauge(
    PREFIX + "readiness", "The same as dovetail_zonal_readiness, by the name its neighbours have.", ("zone",)
)
SKEW = metrics.gauge(
    PREFIX + "zone_share", "How nodes, pods and dollars lay over zones when a shift ended.", ("zone", "of")
)


def set_readiness(zone: str, readiness: float) -> None:
    """What a rehearsal found, under both of its names."""
    READINESS.labels(zone).set(readiness)
    SHIFT_READINESS.labels(zone).set(readiness)

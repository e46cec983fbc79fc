"""metrics.node: what nodes have, what their pods take of it, and how old they are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from dovetail.api import predicates
from dovetail.api.labels import Flavour
from dovetail.api.pod import Pod
from dovetail.controllers.observing.series import GaugeSeries, label_name
from dovetail.ports import Clock
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.resources import (
    Nano,
    add_resources,
    compute_limits,
    compute_nano_requests,
    convert_to_nano,
    subtract_resources,
)
from dovetail.state.cluster import Cluster
from dovetail.state.tracked_node import TrackedNode

__all__ = ["NodeGauges"]

ONE = 1_000_000_000
AMOUNTS = {
    "allocatable": "What pods may take.",
    "total_pod_requests": "What all pods request.",
    "total_pod_limits": "What all pods may use at most.",
    "total_daemon_requests": "What pods of DaemonSets request.",
    "total_daemon_limits": "What pods of DaemonSets may use at most.",
    "system_overhead": "What the machine keeps for itself.",
}


# Nodes that are alike in these are added up.
ALIKE = ("nodepool", "capacity_type", "zone", "arch", "phase", "managed")
# What a choice of instance type on a dashboard is about.
BY_TYPE = (("allocatable", "cpu"), ("allocatable", "memory"))


class NodeGauges:
    """Counts nodes when someone looks. `each` gives every node a series of its own."""

    def __init__(self, cluster: Cluster, flavour: Flavour, clock: Clock, *, each: bool = False) -> None:
        self._cluster = cluster
        self._clock = clock
        self._each = each
        self._keys = {label_name(key): key for key in sorted(flavour.well_known)}
        names = (*self._keys, "node_name", "phase", "managed")
        self._amounts = {
            what: GaugeSeries(f"karpenter_nodes_{what}", about, (*names, "resource_type"))
            for what, about in AMOUNTS.items()
        }
        self._age = GaugeSeries(
            "karpenter_nodes_current_lifetime_seconds", "How old nodes are.", names, largest=True
        )
        self._used = GaugeSeries(
            "karpenter_cluster_utilization_percent",
            "What pods request, as a share of what nodes have.",
            ("resource_type",),
        )

    def report(self) -> None:
        totals: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        for tracked in self._cluster:
            if tracked.node is not None:
                self._add_node(tracked, totals)
        for name, (asked, there) in totals.items():
            if there:
                self._used.add({"resource_type": _render_resource(name)}, 100 * asked / there)
        for series in (*self._amounts.values(), self._age, self._used):
            series.show_values()

    def _add_node(self, tracked: TrackedNode, totals: defaultdict[str, list[int]]) -> None:
        node = tracked.node
        assert node is not None
        about = {name: node.labels.get(key, "") for name, key in self._keys.items()}
        about["managed"] = "true" if tracked.claim is not None else "false"
        about["phase"] = "Terminating" if tracked.deleting else "Running"
        about["node_name"] = node.name
        alike = about if self._each else {name: about[name] for name in ALIKE if name in about}
        by_type = alike | {"instance_type": about.get("instance_type", "")}
        allocatable = views.read_allocatable(tracked.state)
        daemons = [pod for pod in tracked.pods.values() if predicates.owned_by_daemonset(pod)]
        found: dict[str, Nano] = {
            "allocatable": allocatable,
            "total_pod_requests": _sum_amounts(map(compute_nano_requests, tracked.pods.values())),
            "total_pod_limits": _sum_amounts(map(_pod_limits, tracked.pods.values())),
            "total_daemon_requests": _sum_amounts(map(compute_nano_requests, daemons)),
            "total_daemon_limits": _sum_amounts(map(_pod_limits, daemons)),
            "system_overhead": subtract_resources(convert_to_nano(node.status.capacity), allocatable),
        }
        for what, amounts in found.items():
            for name, amount in amounts.items():
                whose = by_type if (what, name) in BY_TYPE else alike
                self._amounts[what].add(whose | {"resource_type": _render_resource(name)}, amount / ONE)
        for name, amount in allocatable.items():
            totals[name][0] += found["total_pod_requests"].get(name, 0)
            totals[name][1] += amount
        created = node.metadata.creation_timestamp
        if created is not None:
            self._age.add(alike, (self._clock.now() - created).total_seconds())


def _pod_limits(pod: Pod) -> Nano:
    return convert_to_nano(compute_limits(pod))


def _sum_amounts(amounts: Iterable[Nano]) -> Nano:
    total: Nano = {}
    for each in amounts:
        total = add_resources(total, each)
    return total


def _render_resource(name: str) -> str:
    return name.lower().replace("-", "_")

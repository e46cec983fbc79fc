"""What DaemonSets will take of a node, new or running."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from dovetail.api.bad_items import SetAside, reason_of, set_aside
from dovetail.api.core import DaemonSet, LimitRange, Taint
from dovetail.api.pod import Affinity, NodeAffinity, NodeSelector, Pod
from dovetail.api.quantity import LARGEST
from dovetail.errors import shorten_text
from dovetail.scheduling.model import taints as tainting
from dovetail.scheduling.model.host_ports import HostPort, list_host_ports
from dovetail.scheduling.model.instance_type_table import InstanceTypeTable
from dovetail.scheduling.model.limit_ranges import apply_limit_ranges
from dovetail.scheduling.model.pod_requirements import (
    build_strict_requirements,
    list_requirement_alternatives,
)
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.resources import Nano, add_resources, compute_nano_requests

__all__ = [
    "DaemonGroup",
    "build_daemon_pod",
    "build_daemon_pods",
    "compute_missing_daemon_requests",
    "group_types_by_daemons",
    "list_daemons_on_node",
]


@dataclass(frozen=True, slots=True)
class DaemonGroup:
    """Instance types of a pool that get the same daemons, and what those take of each."""

    types: int
    overhead: Nano
    ports: tuple[HostPort, ...]


def build_daemon_pod(daemonset: DaemonSet, newest: Pod | None, ranges: Iterable[LimitRange] = ()) -> Pod:
    """A pod as the DaemonSet would make it on some node.

    The newest of its pods knows best what it asks for, since admission may have changed it; but the
    controller has pinned that pod to a node, so required node affinity comes from the template. As long as
    there is none, what admission will add is added here.
    """
    template = daemonset.spec.template
    if newest is None:
        spec = apply_limit_ranges(template.spec, daemonset.namespace, ranges)
        metadata = replace(template.metadata, name=daemonset.name, namespace=daemonset.namespace)
        return Pod(metadata=metadata, spec=spec)
    wanted = _find_required_affinity(template.spec.affinity)
    if wanted is None:
        return newest
    affinity = newest.spec.affinity or Affinity()
    node = replace(affinity.node_affinity or NodeAffinity(), required=wanted)
    return replace(newest, spec=replace(newest.spec, affinity=replace(affinity, node_affinity=node)))


def build_daemon_pods(
    daemonsets: Iterable[tuple[DaemonSet, Pod | None]], ranges: Iterable[LimitRange] = ()
) -> tuple[tuple[Pod, ...], tuple[SetAside, ...]]:
    """A pod for each DaemonSet, and those DaemonSets that cannot be counted with.

    A daemon that requests more than any machine has would leave nothing of any new node: it runs nowhere, and
    nobody else waits for it.
    """
    believed = tuple(each for each in ranges if not reason_of(each))
    pods: list[Pod] = []
    bad: list[SetAside] = []
    for daemonset, newest in daemonsets:
        pod = build_daemon_pod(daemonset, newest, believed)
        why = reason_of(daemonset) or _describe_excess(pod)
        if why:
            bad.append(set_aside(daemonset, why))
        else:
            pods.append(pod)
    return tuple(pods), tuple(bad)


def _describe_excess(pod: Pod) -> str:
    asked = compute_nano_requests(pod)
    found = next((name for name, amount in asked.items() if amount >= LARGEST), None)
    return f"its pods request more {shorten_text(found)} than any machine has" if found else ""


def _find_required_affinity(affinity: Affinity | None) -> NodeSelector | None:
    return affinity.node_affinity.required if affinity and affinity.node_affinity else None


def group_types_by_daemons(
    daemons: Sequence[Pod],
    table: InstanceTypeTable,
    types: int,
    requirements: Requirements,
    taints: Sequence[Taint],
) -> tuple[DaemonGroup, ...]:
    """The types of a pool by the daemons a node of them would get."""
    groups: dict[tuple[int, ...], int] = {(): types}
    for i, pod in enumerate(daemons):
        suited = _find_suited_types(pod, table, types, requirements, taints)
        split: dict[tuple[int, ...], int] = {}
        for members, mask in groups.items():
            if mask & suited:
                split[*members, i] = mask & suited
            if mask & ~suited:
                split[members] = mask & ~suited
        groups = split
    return tuple(
        DaemonGroup(mask, sum_requests(daemons[i] for i in members), _list_ports(daemons[i] for i in members))
        for members, mask in groups.items()
        if mask
    )


def _find_suited_types(
    pod: Pod, table: InstanceTypeTable, types: int, requirements: Requirements, taints: Sequence[Taint]
) -> int:
    """The types on which the daemon would run. Its own preferences and pod affinities do not count."""
    if not tainting.tolerates_all(taints, (*pod.spec.tolerations, tainting.PREFER_NOT)):
        return 0
    found = 0
    for wanted in list_requirement_alternatives(pod.spec):
        if requirements.is_compatible(wanted, table.undefined):
            found |= table.match_requirements(wanted)
    return found & types


def sum_requests(pods: Iterable[Pod]) -> Nano:
    total: Nano = {}
    for pod in pods:
        total = add_resources(total, compute_nano_requests(pod))
    return total


def _list_ports(pods: Iterable[Pod]) -> tuple[HostPort, ...]:
    return tuple(port for pod in pods for port in list_host_ports(pod))


def list_daemons_on_node(
    daemons: Iterable[Pod], labels: Requirements, taints: Sequence[Taint]
) -> tuple[Pod, ...]:
    """The daemons that belong on a running node."""
    return tuple(
        pod
        for pod in daemons
        if tainting.tolerates_all(taints, pod.spec.tolerations)
        and labels.is_compatible(build_strict_requirements(pod.spec))
    )


def compute_missing_daemon_requests(expected: Iterable[Pod], present: Iterable[Pod]) -> Nano:
    """What daemons will yet take of a node, given those already there. Never less than nothing."""
    there = sum_requests(present)
    return {name: max(amount - there.get(name, 0), 0) for name, amount in sum_requests(expected).items()}


def is_daemon_pod(pod: Pod) -> bool:
    owners = pod.metadata.owner_references
    return any(owner.kind == "DaemonSet" and owner.api_version == "apps/v1" for owner in owners)

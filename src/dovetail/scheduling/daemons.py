"""What DaemonSets will take of a node, new or running."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from dovetail.api.core import DaemonSet, LimitRange, Taint
from dovetail.api.pod import Affinity, NodeAffinity, NodeSelector, Pod
from dovetail.api.quantity import LARGEST
from dovetail.api.setaside import SetAside, reason_of, set_aside
from dovetail.errors import shorten_text
from dovetail.scheduling import taints as tainting
from dovetail.scheduling.hostports import HostPort, host_ports
from dovetail.scheduling.limitranges import admitted
from dovetail.scheduling.pods import alternatives, strict
from dovetail.scheduling.requirements import Requirements
from dovetail.scheduling.resources import Nano, needs, plus
from dovetail.scheduling.typetable import TypeTable

__all__ = ["DaemonGroup", "for_new_nodes", "on_node", "representative", "representatives", "still_to_come"]


@dataclass(frozen=True, slots=True)
class DaemonGroup:
    """Instance types of a pool that get the same daemons, and what those take of each."""

    types: int
    overhead: Nano
    ports: tuple[HostPort, ...]


def representative(daemonset: DaemonSet, newest: Pod | None, ranges: Iterable[LimitRange] = ()) -> Pod:
    """A pod as the DaemonSet would make it on some node.

    The newest of its pods knows best what it asks for, since admission may have changed it; but the
    controller has pinned that pod to a node, so required node affinity comes from the template. As long as
    there is none, what admission will add is added here.
    """
    template = daemonset.spec.template
    if newest is None:
        spec = admitted(template.spec, daemonset.namespace, ranges)
        metadata = replace(template.metadata, name=daemonset.name, namespace=daemonset.namespace)
        return Pod(metadata=metadata, spec=spec)
    wanted = _required(template.spec.affinity)
    if wanted is None:
        return newest
    affinity = newest.spec.affinity or Affinity()
    node = replace(affinity.node_affinity or NodeAffinity(), required=wanted)
    return replace(newest, spec=replace(newest.spec, affinity=replace(affinity, node_affinity=node)))


def representatives(
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
        pod = representative(daemonset, newest, believed)
        why = reason_of(daemonset) or _doubt(pod)
        if why:
            bad.append(set_aside(daemonset, why))
        else:
            pods.append(pod)
    return tuple(pods), tuple(bad)


def _doubt(pod: Pod) -> str:
    asked = needs(pod)
    found = next((name for name, amount in asked.items() if amount >= LARGEST), None)
    return f"its pods request more {shorten_text(found)} than any machine has" if found else ""


def _required(affinity: Affinity | None) -> NodeSelector | None:
    return affinity.node_affinity.required if affinity and affinity.node_affinity else None


def for_new_nodes(
    daemons: Sequence[Pod], table: TypeTable, types: int, requirements: Requirements, taints: Sequence[Taint]
) -> tuple[DaemonGroup, ...]:
    """The types of a pool by the daemons a node of them would get."""
    groups: dict[tuple[int, ...], int] = {(): types}
    for i, pod in enumerate(daemons):
        suited = _suited(pod, table, types, requirements, taints)
        split: dict[tuple[int, ...], int] = {}
        for members, mask in groups.items():
            if mask & suited:
                split[*members, i] = mask & suited
            if mask & ~suited:
                split[members] = mask & ~suited
        groups = split
    return tuple(
        DaemonGroup(mask, total_of(daemons[i] for i in members), _ports(daemons[i] for i in members))
        for members, mask in groups.items()
        if mask
    )


def _suited(
    pod: Pod, table: TypeTable, types: int, requirements: Requirements, taints: Sequence[Taint]
) -> int:
    """The types on which the daemon would run. Its own preferences and pod affinities do not count."""
    if not tainting.tolerates_all(taints, (*pod.spec.tolerations, tainting.PREFER_NOT)):
        return 0
    found = 0
    for wanted in alternatives(pod.spec):
        if requirements.compatible(wanted, table.undefined):
            found |= table.matching_all(wanted)
    return found & types


def total_of(pods: Iterable[Pod]) -> Nano:
    total: Nano = {}
    for pod in pods:
        total = plus(total, needs(pod))
    return total


def _ports(pods: Iterable[Pod]) -> tuple[HostPort, ...]:
    return tuple(port for pod in pods for port in host_ports(pod))


def on_node(daemons: Iterable[Pod], labels: Requirements, taints: Sequence[Taint]) -> tuple[Pod, ...]:
    """The daemons that belong on a running node."""
    return tuple(
        pod
        for pod in daemons
        if tainting.tolerates_all(taints, pod.spec.tolerations) and labels.compatible(strict(pod.spec))
    )


def still_to_come(expected: Iterable[Pod], present: Iterable[Pod]) -> Nano:
    """What daemons will yet take of a node, given those already there. Never less than nothing."""
    there = total_of(present)
    return {name: max(amount - there.get(name, 0), 0) for name, amount in total_of(expected).items()}


def is_daemon(pod: Pod) -> bool:
    owners = pod.metadata.owner_references
    return any(owner.kind == "DaemonSet" and owner.api_version == "apps/v1" for owner in owners)

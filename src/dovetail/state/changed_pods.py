"""Nodes and pods after a change: of changed workloads, of DaemonSets, and the budgets that guard them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from dovetail.api import core, predicates
from dovetail.api.core import Node
from dovetail.api.meta import Condition, Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod, PodStatus, PodTemplate
from dovetail.errors import BadInput
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.daemonsets import build_daemon_pods
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from dovetail.state.changed_budgets import change_budgets
from dovetail.state.changed_workloads import (
    WorkloadChange,
    change_workload,
    has_template_shape,
    index_pods_by_workload,
    scale_workload,
)
from dovetail.state.workload_pods import Owner, PodWorkload, read_workload

__all__ = [
    "MOST_PODS",
    "PENDING",
    "ChangedPods",
    "DeletedObject",
    "WorldChange",
    "check_pod_count",
    "read_volume_limits",
]

T = TypeVar("T", bound=Object)

# Manifests say nothing of what a scheduler thought of them.
PENDING = PodStatus(
    phase="Pending", conditions=(Condition(type="PodScheduled", status="False", reason="Unschedulable"),)
)
MOST_PODS = 250_000
WORKLOADS = ("Deployment", "ReplicaSet", "StatefulSet", "Job", "CronJob")


@dataclass(frozen=True, slots=True)
class DeletedObject:
    """An object that is to be deleted, by its kind and name."""

    kind: type[Object]
    name: str
    namespace: str = ""

    def __str__(self) -> str:
        return f"{self.kind.KIND.kind} {self.namespace + '/' if self.namespace else ''}{self.name}"


@dataclass(frozen=True, slots=True)
class WorldChange:
    """Objects to apply and names to delete; `rolled` are workloads known to have another template.

    What is to be deleted and is not there is an error, unless `missing_ok`.
    """

    objects: tuple[Object, ...] = ()
    deleted: tuple[DeletedObject, ...] = ()
    rolled: AbstractSet[Owner] = frozenset()
    missing_ok: bool = False

    def list_objects(self, kind: type[T]) -> list[T]:
        return [each for each in self.objects if isinstance(each, kind)]

    def list_deleted(self, kind: type[Object]) -> set[tuple[str, str]]:
        """Namespaces and names of the objects of a kind that are deleted."""
        return {(each.namespace, each.name) for each in self.deleted if each.kind is kind}


class ChangedPods:
    """The pods of a world after a change: on nodes, pending, and while rollouts have most of them."""

    def __init__(
        self,
        snapshot: Snapshot,
        change: WorldChange,
        ranges: Sequence[core.LimitRange],
    ) -> None:
        self._snapshot, self._change = snapshot, change
        own = change.list_objects(core.LimitRange)
        self._ranges = (*(each for each in ranges if all(each.full_name != o.full_name for o in own)), *own)
        self.remarks: list[str] = []
        self.leaving: set[str] = set()
        self._by_workload = index_pods_by_workload(
            (*(pod for state in snapshot.nodes for pod in state.pods), *snapshot.pods)
        )
        self.workloads = [each for each in self._change_workloads() if each.leaving or each.coming]
        self._put: dict[str, Pod] = {each.full_name: _admit_pod(each) for each in change.list_objects(Pod)}
        self._drop = {pod.full_name for each in self.workloads for pod in each.leaving}
        self._drop |= {"/".join(key) for key in change.list_deleted(Pod)}
        self.daemons, self._daemon_specs = self._change_daemons()
        self.nodes = self._build_nodes(self._drop)
        gone = self._drop | self._put.keys()
        coming = [pod for each in self.workloads for pod in each.coming]
        free = [pod for pod in self._put.values() if not pod.node_name]
        self.pending = (*(p for p in snapshot.pods if p.full_name not in gone), *free, *coming)
        self.moving = tuple(pod for pod in snapshot.moving if pod.full_name not in gone)
        self.budgets = change_budgets(
            snapshot.budgets,
            change.list_objects(core.PodDisruptionBudget),
            {"/".join(key) for key in change.list_deleted(core.PodDisruptionBudget)},
            [pod for each in self.workloads for pod in (*each.leaving, *each.coming)],
            [*(pod for state in self.nodes for pod in state.pods), *self.pending],
        )

    # Workloads

    def _change_workloads(self) -> Iterable[WorkloadChange]:
        scalers = {
            (each.namespace, each.spec.scale_target_ref.kind, each.spec.scale_target_ref.name): each
            for each in self._change.list_objects(core.HorizontalPodAutoscaler)
        }
        made = [workload for each in self._change.objects if (workload := read_workload(each)) is not None]
        check_pod_count(sum(each.count for each in made), "this change comes")
        for workload in made:
            each = workload.owner
            running = self._by_workload.get(workload.identity, [])
            scaler = scalers.get((each.namespace, each.KIND.kind, each.name))
            scaled = scale_workload(workload, len(running) or None, scaler)
            self._tell_workload(workload, scaled, scaler, len(running))
            yield change_workload(
                scaled,
                running,
                self._ranges,
                PENDING,
                rolled=workload.identity in self._change.rolled and bool(running),
            )
        for name in self._change.deleted:
            identity = name.kind.KIND.kind, name.namespace, name.name
            if identity[0] in WORKLOADS:
                running = self._by_workload.get(identity, [])
                gone = tuple(running)
                yield WorkloadChange(*identity, before=len(gone), after=0, leaving=gone, running=gone)

    def _tell_workload(
        self,
        asked: PodWorkload,
        scaled: PodWorkload,
        scaler: core.HorizontalPodAutoscaler | None,
        running: int,
    ) -> None:
        name = f"{asked.owner.KIND.kind} {asked.owner.full_name}"
        match asked.owner:
            case core.Job() if asked.owner.spec.suspend:
                self.remarks.append(f"{name} is suspended: it makes no pods")
            case core.CronJob() if asked.owner.spec.suspend:
                self.remarks.append(f"{name} is suspended: it makes no pods")
            case core.CronJob():
                self.remarks.append(f"{name} is counted as one run of it: {_count_pods(asked.count)}")
            case _ if scaler is not None:
                least = 1 if scaler.spec.min_replicas is None else scaler.spec.min_replicas
                how = "as many as run" if running and scaled.count == running else f"its least is {least}"
                counted = f"counted with {_count_pods(scaled.count)}, {how}"
                self.remarks.append(f"{name} is scaled by a HorizontalPodAutoscaler: {counted}")
            case _:
                pass

    def find_template(self, kind: str, namespace: str, name: str) -> tuple[PodTemplate | None, int | None]:
        """The template and number of pods of a workload: of the change, or as its pods show it."""
        for each in self._change.objects:
            workload = read_workload(each)
            if workload is not None and workload.identity == (kind, namespace, name):
                return workload.template, workload.count
        running = self._by_workload.get((kind, namespace, name), [])
        if not running:
            return None, None
        pod = running[-1]
        return PodTemplate(metadata=pod.metadata, spec=pod.spec), len(running)

    # Nodes

    def _build_nodes(self, drop: AbstractSet[str]) -> tuple[StateNode, ...]:
        nodes = {each.name: each for each in self._change.list_objects(Node)}
        claims = {each.name: each for each in self._change.list_objects(NodeClaim)}
        limits = {each.name: read_volume_limits(each) for each in self._change.list_objects(core.CSINode)}
        gone = {each.name for each in self._change.deleted if each.kind in (Node, NodeClaim)}
        bound: dict[str, list[Pod]] = {}
        for pod in self._put.values():
            if pod.node_name and pod.full_name not in drop and not predicates.is_terminal(pod):
                bound.setdefault(pod.node_name, []).append(pod)
        if not (nodes or claims or limits or gone or bound or drop or self._put or self._daemon_specs):
            return self._snapshot.nodes
        found = []
        for state in self._snapshot.nodes:
            node = nodes.pop(state.node.name, state.node) if state.node is not None else None
            claim = claims.pop(state.claim.name, state.claim) if state.claim is not None else None
            name = node.name if node is not None else ""
            pods = self._list_pods(state, drop, bound.pop(name, ()) if name else ())
            found.append(
                state
                if (node, claim, pods) == (state.node, state.claim, state.pods) and name not in limits
                else replace(
                    state,
                    node=node,
                    claim=claim,
                    pods=pods,
                    volume_limits=limits.get(name, state.volume_limits),
                )
            )
        by_machine = {
            each.status.provider_id or f"name:{each.status.node_name or each.name}": each
            for each in claims.values()
        }
        for node in nodes.values():
            claim = by_machine.pop(node.spec.provider_id, None) or by_machine.pop(f"name:{node.name}", None)
            found.append(StateNode(node=node, claim=claim, pods=tuple(bound.pop(node.name, ()))))
        found += [StateNode(claim=claim) for claim in by_machine.values()]
        for state in found:
            if gone & {each.name for each in (state.node, state.claim) if each is not None}:
                self.leaving.add(state_node.read_name(state))
        return tuple(found)

    def _list_pods(self, state: StateNode, drop: AbstractSet[str], more: Iterable[Pod]) -> tuple[Pod, ...]:
        kept = []
        for pod in state.pods:
            if pod.full_name in drop or pod.full_name in self._put:
                continue
            daemon = self._daemon_specs.get(_find_daemonset(pod)) if self._daemon_specs else None
            kept.append(pod if daemon is None else replace(pod, spec=daemon.spec))
        pods = (*kept, *more)
        same = len(pods) == len(state.pods) and all(a is b for a, b in zip(pods, state.pods, strict=True))
        return state.pods if same else pods

    @property
    def has_rollout(self) -> bool:
        return any(each.rolled_out for each in self.workloads)

    @property
    def nodes_at_peak(self) -> tuple[StateNode, ...]:
        """The nodes with all pods of rollouts still on them."""
        rolled = {pod.full_name for each in self.workloads if each.rolled_out for pod in each.leaving}
        return self._build_nodes(self._drop - rolled)

    @property
    def pending_at_peak(self) -> tuple[Pod, ...]:
        """The pods that wait when most pods of rollouts are there: old ones beside the new."""
        rolled = {pod.full_name for each in self.workloads if each.rolled_out for pod in each.leaving}
        early = {pod.full_name for each in self.workloads for pod in each.coming_at_peak}
        coming = {pod.full_name for each in self.workloads for pod in each.coming}
        there = [pod for pod in self._snapshot.pods if pod.full_name in rolled]
        return (*there, *(p for p in self.pending if p.full_name not in coming or p.full_name in early))

    # DaemonSets

    def _change_daemons(self) -> tuple[tuple[Pod, ...], dict[tuple[str, str], Pod]]:
        """One pod for each DaemonSet, and the new ones by namespace and name of their DaemonSet."""
        changed = self._change.list_objects(core.DaemonSet)
        gone = self._change.list_deleted(core.DaemonSet)
        for state in self._snapshot.nodes if gone else ():
            self._drop |= {pod.full_name for pod in state.pods if _find_daemonset(pod) in gone}
        found = {_find_daemonset(pod): pod for pod in self._snapshot.daemons}
        new: dict[tuple[str, str], Pod] = {}
        for each in changed:
            key = each.namespace, each.name
            pods, bad = build_daemon_pods([(each, None)], self._ranges)
            self.remarks += [f"DaemonSet {each.full_name} was left out: {one.why}" for one in bad]
            if pods and not (
                key in found
                and has_template_shape(found[key], PodTemplate(metadata=pods[0].metadata, spec=pods[0].spec))
            ):
                found[key] = new[key] = pods[0]
        if not new and not gone:
            return self._snapshot.daemons, new
        return tuple(pod for key, pod in found.items() if key not in gone), new

    def list_names(self, kind: type[Object]) -> list[str] | None:
        """The names of the pods, claims, DaemonSets or workloads of a kind; None where none can be told."""
        if kind is Pod:
            on_nodes = (pod for state in self._snapshot.nodes for pod in state.pods)
            return [pod.full_name for pod in (*on_nodes, *self._snapshot.pods)]
        if kind is NodeClaim:
            return [state.claim.name for state in self._snapshot.nodes if state.claim is not None]
        if kind is core.DaemonSet:
            return ["/".join(_find_daemonset(pod)) for pod in self._snapshot.daemons]
        if kind.KIND.kind in WORKLOADS:
            return [f"{space}/{name}" for of, space, name in self._by_workload if of == kind.KIND.kind]
        return None


def check_pod_count(pods: int, what: str) -> None:
    """BadInput where there are more pods than are planned at once."""
    if pods > MOST_PODS:
        raise BadInput(f"{what} to {pods:,} pods; at most {MOST_PODS:,} are planned at once")


def _count_pods(count: int) -> str:
    return f"{count:,} pod{'' if count == 1 else 's'}"


def _admit_pod(pod: Pod) -> Pod:
    """A pod of a file as it would be once a scheduler had found no place for it."""
    if pod.node_name or predicates.failed_to_schedule(pod) or pod.spec.scheduling_gates:
        return pod
    return replace(
        pod, status=replace(pod.status, phase=pod.status.phase or "Pending", conditions=PENDING.conditions)
    )


def _find_daemonset(pod: Pod) -> tuple[str, str]:
    """The DaemonSet of a pod; one that was made from a template bears its name."""
    owner = next((each for each in pod.metadata.owner_references if each.kind == "DaemonSet"), None)
    return pod.namespace, owner.name if owner is not None else pod.name


def read_volume_limits(csi_node: core.CSINode) -> Mapping[str, int]:
    """How many volumes of each driver a node can hold."""
    return {
        driver.name: driver.allocatable.count
        for driver in csi_node.spec.drivers
        if driver.allocatable is not None and driver.allocatable.count is not None
    }

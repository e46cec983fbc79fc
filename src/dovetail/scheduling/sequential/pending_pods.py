"""Which pods are ours to place, and what is wrong with those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from dovetail.api.bad_items import reason_of
from dovetail.api.labels import NODEPOOL
from dovetail.api.meta import LabelSelector, LabelSelectorTerm, OwnerReference
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import NodeSelectorRequirement, Pod
from dovetail.api.predicates import is_provisionable
from dovetail.api.validation.runtime import requirement_errors
from dovetail.scheduling.model import label_selectors, pod_requirements, state_node, volumes
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.requirements import DOES_NOT_EXIST
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot, Storage

__all__ = [
    "OPTED_OUT",
    "add_default_spread",
    "build_workload_key",
    "deduce_selector",
    "describe_invalid_pod",
    "list_pods_of_deleting_nodes",
    "list_pods_to_schedule",
]


def add_default_spread(pod: Pod, snapshot: Snapshot) -> Pod:
    """The pod with the default rules, if it has none and a selector can be found for it."""
    defaults = snapshot.options.default_spread
    if not defaults or pod.spec.topology_spread_constraints:
        return pod
    selector = deduce_selector(pod, snapshot)
    if selector is None:
        return pod
    rules = tuple(replace(rule, label_selector=selector) for rule in defaults)
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=rules))


def build_workload_key(owner: OwnerReference, namespace: str) -> str:
    """How `Snapshot.workloads` names a workload."""
    return f"{owner.kind}/{namespace}/{owner.name}"


def deduce_selector(pod: Pod, snapshot: Snapshot) -> LabelSelector | None:
    """Which pods are of a kind with this one; None when nothing says so."""
    labels: dict[str, str] = {}
    for service in snapshot.services:
        wanted = service.spec.selector
        mine = service.namespace == pod.namespace
        if (
            wanted
            and mine
            and label_selectors.matches_selector(LabelSelector(match_labels=wanted), pod.labels)
        ):
            labels |= wanted
    terms: tuple[LabelSelectorTerm, ...] = ()
    owner = pod.metadata.controller
    known = snapshot.workloads.get(build_workload_key(owner, pod.namespace)) if owner else None
    if owner is not None and known is not None:
        if owner.kind == "ReplicationController" and owner.api_version == "v1":
            labels |= known.match_labels
        elif owner.kind in ("ReplicaSet", "StatefulSet") and owner.api_version == "apps/v1":
            terms = _convert_to_terms(known)
    return LabelSelector(match_labels=labels, match_expressions=terms) if labels or terms else None


def _convert_to_terms(selector: LabelSelector) -> tuple[LabelSelectorTerm, ...]:
    labels = (
        LabelSelectorTerm(key=key, operator="In", values=(value,))
        for key, value in sorted(selector.match_labels.items())
    )
    return (*labels, *selector.match_expressions)


OPTED_OUT = f"the pod requires a node without the {NODEPOOL} label"
"""The one complaint nobody is told about: the pod wants no node of ours."""


def list_pods_to_schedule(snapshot: Snapshot) -> tuple[dict[str, Pod], dict[str, str]]:
    """The pods to place in this run by name, and why others that wait are left alone.

    Pods of buffers and of nodes that go are taken as they are: they are ours, or have run before.
    """
    ignored: dict[str, str] = {}
    batch: dict[str, Pod] = {}
    checks = _SpecChecks(snapshot)
    for pod in snapshot.pods:
        if is_provisionable(pod):
            wrong = reason_of(pod) or checks.describe_invalid_pod(pod)
            if wrong is None:
                batch[pod.full_name] = pod
            else:
                ignored[pod.full_name] = wrong
    for pod in (*snapshot.virtual, *snapshot.moving, *list_pods_of_deleting_nodes(snapshot)):
        lost = volumes.describe_lost_claim(pod, snapshot.storage)
        if lost is None:
            batch.setdefault(pod.full_name, pod)
        else:
            ignored[pod.full_name] = lost
    # By name, so that nothing depends on the order in which pods were heard of.
    return {name: add_default_spread(batch[name], snapshot) for name in sorted(batch)}, ignored


class _SpecChecks:
    """What is wrong with the specs of a snapshot's pods. Pods of one workload share theirs: look once."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.storage, self.options = snapshot.storage, snapshot.options
        self._known: dict[int, str | None] = {}  # the snapshot holds on to the specs

    def describe_invalid_pod(self, pod: Pod) -> str | None:
        spec = pod.spec
        if spec.volumes:  # claims may be named after the pod
            return describe_invalid_pod(pod, self.storage, self.options)
        key = id(spec)
        if key not in self._known:
            self._known[key] = describe_invalid_pod(pod, self.storage, self.options)
        return self._known[key]


def list_pods_of_deleting_nodes(snapshot: Snapshot) -> Iterator[Pod]:
    """The pods that will look for a new place because their node goes."""
    limits = PdbLimits(snapshot.budgets, matches_selector)
    for state in snapshot.nodes:
        if state_node.is_deleting(state):
            for pod in state.pods:
                if limits.currently_reschedulable(pod, snapshot.options.now):
                    yield pod


def describe_invalid_pod(pod: Pod, storage: Storage, options: SchedulingOptions) -> str | None:
    """What is wrong with a waiting pod; None if it can be placed."""
    if pod_requirements.build_requirements(pod.spec)[NODEPOOL].operator == DOES_NOT_EXIST:
        return OPTED_OUT
    wrong = [*_list_selector_errors(pod, options), *_list_affinity_errors(pod, options)]
    claims = volumes.describe_invalid_claim(pod, storage, options)
    if claims is not None:
        wrong.append(claims)
    return "; ".join(wrong) or None


def _list_selector_errors(pod: Pod, options: SchedulingOptions) -> Iterator[str]:
    for key, value in sorted(pod.spec.node_selector.items()):
        yield from _list_requirement_errors(
            [NodeSelectorRequirement(key=key, operator="In", values=(value,))], options
        )


def _list_affinity_errors(pod: Pod, options: SchedulingOptions) -> Iterator[str]:
    """Every alternative must be sound, also those that would never be reached."""
    for term in pod_requirements.list_required_terms(pod.spec):
        if term.match_fields:
            yield "node selector term with matchFields is not supported"
        yield from _list_requirement_errors(term.match_expressions, options)


def _list_requirement_errors(
    listed: Iterable[NodeSelectorRequirement], options: SchedulingOptions
) -> Iterator[str]:
    for each in listed:
        yield from requirement_errors(each, options.flavour)

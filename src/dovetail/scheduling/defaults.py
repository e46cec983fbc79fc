"""Default topology spread: pods without rules of their own are spread as the cluster's scheduler would.

The selector is deduced as kube-scheduler does it: from the Services that select the pod, and from the
workload that controls it.
"""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.api.meta import LabelSelector, LabelSelectorTerm, OwnerReference
from dovetail.api.pod import Pod
from dovetail.scheduling import selectors
from dovetail.scheduling.snapshot import Snapshot

__all__ = ["deduced_selector", "with_default_spread", "workload_key"]


def with_default_spread(pod: Pod, snapshot: Snapshot) -> Pod:
    """The pod with the default rules, if it has none and a selector can be found for it."""
    defaults = snapshot.options.default_spread
    if not defaults or pod.spec.topology_spread_constraints:
        return pod
    selector = deduced_selector(pod, snapshot)
    if selector is None:
        return pod
    rules = tuple(replace(rule, label_selector=selector) for rule in defaults)
    return replace(pod, spec=replace(pod.spec, topology_spread_constraints=rules))


def workload_key(owner: OwnerReference, namespace: str) -> str:
    """How `Snapshot.workloads` names a workload."""
    return f"{owner.kind}/{namespace}/{owner.name}"


def deduced_selector(pod: Pod, snapshot: Snapshot) -> LabelSelector | None:
    """Which pods are of a kind with this one; None when nothing says so."""
    labels: dict[str, str] = {}
    for service in snapshot.services:
        wanted = service.spec.selector
        mine = service.namespace == pod.namespace
        if wanted and mine and selectors.matches(LabelSelector(match_labels=wanted), pod.labels):
            labels |= wanted
    terms: tuple[LabelSelectorTerm, ...] = ()
    owner = pod.metadata.controller
    known = snapshot.workloads.get(workload_key(owner, pod.namespace)) if owner else None
    if owner is not None and known is not None:
        if owner.kind == "ReplicationController" and owner.api_version == "v1":
            labels |= known.match_labels
        elif owner.kind in ("ReplicaSet", "StatefulSet") and owner.api_version == "apps/v1":
            terms = _as_terms(known)
    return LabelSelector(match_labels=labels, match_expressions=terms) if labels or terms else None


def _as_terms(selector: LabelSelector) -> tuple[LabelSelectorTerm, ...]:
    labels = (
        LabelSelectorTerm(key=key, operator="In", values=(value,))
        for key, value in sorted(selector.match_labels.items())
    )
    return (*labels, *selector.match_expressions)

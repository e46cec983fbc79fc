"""Which pods are ours to place, and what is wrong with those that are not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from dovetail.api.labels import NODEPOOL
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import NodeSelectorRequirement, Pod
from dovetail.api.predicates import provisionable
from dovetail.api.setaside import reason_of
from dovetail.api.validation.runtime import requirement_errors
from dovetail.scheduling import nodes, pods, volumes
from dovetail.scheduling.defaults import with_default_spread
from dovetail.scheduling.requirements import DOES_NOT_EXIST
from dovetail.scheduling.selectors import matches
from dovetail.scheduling.snapshot import Options, Snapshot, Storage

__all__ = ["OPTED_OUT", "batch_of", "complaint", "moving"]

OPTED_OUT = f"the pod asks for a node without the {NODEPOOL} label"
"""The one complaint nobody is told about: the pod wants no node of ours."""


def batch_of(snapshot: Snapshot) -> tuple[list[Pod], dict[str, str]]:
    """The pods to place in this run, and why others that wait are left alone.

    Pods of buffers and of nodes that go are taken as they are: they are ours, or have run before.
    """
    ignored: dict[str, str] = {}
    batch: dict[str, Pod] = {}
    for pod in snapshot.pods:
        if provisionable(pod):
            wrong = reason_of(pod) or complaint(pod, snapshot.storage, snapshot.options)
            if wrong is None:
                batch[pod.full_name] = pod
            else:
                ignored[pod.full_name] = wrong
    for pod in (*snapshot.virtual, *snapshot.moving, *moving(snapshot)):
        lost = volumes.lost_claim(pod, snapshot.storage)
        if lost is None:
            batch.setdefault(pod.full_name, pod)
        else:
            ignored[pod.full_name] = lost
    # By name, so that nothing depends on the order in which pods were heard of.
    return [with_default_spread(batch[name], snapshot) for name in sorted(batch)], ignored


def moving(snapshot: Snapshot) -> Iterator[Pod]:
    """The pods that will look for a new place because their node goes."""
    limits = PdbLimits(snapshot.budgets, matches)
    for state in snapshot.nodes:
        if nodes.deleting(state):
            for pod in state.pods:
                if limits.currently_reschedulable(pod, snapshot.options.now):
                    yield pod


def complaint(pod: Pod, storage: Storage, options: Options) -> str | None:
    """What is wrong with a waiting pod; None if it can be placed."""
    if pods.requirements(pod.spec)[NODEPOOL].operator == DOES_NOT_EXIST:
        return OPTED_OUT
    wrong = [*_selector_errors(pod, options), *_affinity_errors(pod, options)]
    claims = volumes.complaint(pod, storage, options)
    if claims is not None:
        wrong.append(claims)
    return "; ".join(wrong) or None


def _selector_errors(pod: Pod, options: Options) -> Iterator[str]:
    for key, value in sorted(pod.spec.node_selector.items()):
        yield from _errors([NodeSelectorRequirement(key=key, operator="In", values=(value,))], options)


def _affinity_errors(pod: Pod, options: Options) -> Iterator[str]:
    """Every alternative must be sound, also those that would never be reached."""
    for term in pods.required_terms(pod.spec):
        if term.match_fields:
            yield "node selector term with matchFields is not supported"
        yield from _errors(term.match_expressions, options)


def _errors(listed: Iterable[NodeSelectorRequirement], options: Options) -> Iterator[str]:
    for each in listed:
        yield from requirement_errors(each, options.flavour)

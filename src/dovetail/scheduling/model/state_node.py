"""A Node and its NodeClaim seen as one thing, at every stage of its life.

Until a node has registered its claim speaks for it, and until it is initialised the claim fills in
what the kubelet has not reported yet. These are views; the records themselves are StateNodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from dovetail.api import labels as names
from dovetail.api.bad_items import reason_of
from dovetail.api.conditions import DISRUPTION_REASON
from dovetail.api.core import Taint
from dovetail.api.meta import Amounts
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.taints import DISRUPTED, is_ephemeral, is_same_taint
from dovetail.scheduling.model.resources import (
    Nano,
    add_resources,
    compute_nano_requests,
    convert_to_nano,
    subtract_resources,
)
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.settings import durations

__all__ = [
    "compute_available",
    "has_disruption_mark",
    "is_deleting",
    "is_initialized",
    "is_managed",
    "is_registered",
    "is_too_young",
    "list_active",
    "read_allocatable",
    "read_capacity",
    "read_hostname",
    "read_labels",
    "read_name",
    "read_pool_name",
    "read_raw_taints",
    "read_taints",
]

ONE_NODE = 1_000_000_000


def is_managed(state: StateNode) -> bool:
    """Whether it was ordered by a NodeClaim."""
    return state.claim is not None


def is_registered(state: StateNode) -> bool:
    if state.claim is None:
        return True
    return state.node is not None and state.node.metadata.labels.get(names.REGISTERED) == names.TRUE


def is_initialized(state: StateNode) -> bool:
    return state.initialized


def read_name(state: StateNode) -> str:
    return state.source.metadata.name


def read_labels(state: StateNode) -> Mapping[str, str]:
    return state.source.metadata.labels


def read_hostname(state: StateNode) -> str:
    return read_labels(state).get(names.HOSTNAME) or read_name(state)


def read_pool_name(state: StateNode) -> str:
    return state.source.metadata.labels.get(names.NODEPOOL, "")


def read_provider_id(state: StateNode) -> str:
    return state.provider_id


def read_raw_taints(state: StateNode) -> tuple[Taint, ...]:
    return state.source.spec.taints


def read_taints(state: StateNode) -> tuple[Taint, ...]:
    """The taints that keep pods away. A new node's passing ones do not: they will be gone in time."""
    everything = read_raw_taints(state)
    if state.claim is None or is_initialized(state):
        return everything
    startup = state.claim.spec.startup_taints
    return tuple(
        taint
        for taint in everything
        if not is_ephemeral(taint) and not any(is_same_taint(taint, each) for each in startup)
    )


def read_capacity(state: StateNode) -> Nano:
    """What the machine has, itself counted as one node."""
    return _read_reported(state, "capacity") | {names.NODES: ONE_NODE}


def read_allocatable(state: StateNode) -> Nano:
    return _read_reported(state, "allocatable")


def _read_reported(state: StateNode, field: str) -> Nano:
    claim: Amounts = getattr(state.claim.status, field) if state.claim else {}
    node: Amounts = getattr(state.node.status, field) if state.node else {}
    if state.node is not None and reason_of(state.node):
        return convert_to_nano(claim)  # what the machine was sold as; a Node that is set aside has no say
    if state.node is not None and is_initialized(state):
        return convert_to_nano(node)
    # A kubelet reports extended resources as zero until their plugin is up.
    known = {name: amount for name, amount in convert_to_nano(node).items() if amount}
    return convert_to_nano(claim) | known


def list_running_pods(pods: Iterable[Pod]) -> Iterable[Pod]:
    """The pods that take room: all but those that have finished."""
    return (pod for pod in pods if pod.status.phase not in ("Failed", "Succeeded"))


def compute_available(state: StateNode) -> Nano:
    """What the pods on it leave."""
    used: Nano = {}
    for pod in list_running_pods(state.pods):
        used = add_resources(used, compute_nano_requests(pod))
    return subtract_resources(read_allocatable(state), used)


def is_deleting(state: StateNode) -> bool:
    """Whether it is on its way out. A managed node goes when its claim does."""
    return state.deleting


def has_disruption_mark(state: StateNode) -> bool:
    """Whether a disruption command has marked it: its Node by a taint, or its NodeClaim by a condition."""
    if state.node is None or state.claim is None:
        return False
    return (
        any(is_same_taint(taint, DISRUPTED) for taint in state.node.spec.taints)
        or state.claim.status.find_condition(DISRUPTION_REASON) is not None
    )


def is_too_young(state: StateNode, nodepool: NodePool | None, now: datetime) -> bool:
    """Whether its pods have changed so lately that the pool's consolidateAfter still holds it back."""
    after = nodepool.spec.disruption.consolidate_after if nodepool and not nodepool.static else None
    if after is None or after == durations.NEVER or state.claim is None or not is_initialized(state):
        return False
    settled = state.claim.status.find_condition("Initialized")
    since = state.claim.status.last_pod_event_time or (settled.last_transition_time if settled else None)
    return since is not None and now - since < durations.parse_duration(after)


def list_active(states: Iterable[StateNode]) -> Iterable[StateNode]:
    return (state for state in states if not is_deleting(state))

"""A Node and its NodeClaim seen as one thing, at every stage of its life.

Until a node has registered its claim speaks for it, and until it is initialised the claim fills in
what the kubelet has not reported yet. These are views; the records themselves are StateNodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from dovetail.api import labels as names
from dovetail.api.core import Node, Taint
from dovetail.api.meta import Amounts
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.setaside import reason_of
from dovetail.api.taints import is_ephemeral, matches
from dovetail.scheduling.resources import Nano, minus, nano, needs, plus
from dovetail.scheduling.snapshot import StateNode
from dovetail.settings import durations

__all__ = [
    "active",
    "allocatable",
    "available",
    "capacity",
    "deleting",
    "hostname",
    "initialized",
    "labels",
    "managed",
    "name",
    "pool",
    "raw_taints",
    "registered",
    "taints",
    "too_young",
]

ONE_NODE = 1_000_000_000


def managed(state: StateNode) -> bool:
    """Whether it was ordered by a NodeClaim."""
    return state.claim is not None


def registered(state: StateNode) -> bool:
    return state.claim is None or _labelled(state.node, names.REGISTERED)


def initialized(state: StateNode) -> bool:
    return state.claim is None or _labelled(state.node, names.INITIALIZED)


def _labelled(node: Node | None, key: str) -> bool:
    return node is not None and node.metadata.labels.get(key) == names.TRUE


def _speaker(state: StateNode) -> Node | NodeClaim:
    """Whose word counts for names, labels and taints."""
    if state.node is not None and registered(state):
        return state.node
    assert state.claim is not None, "a StateNode has a Node or a NodeClaim"
    return state.claim


def name(state: StateNode) -> str:
    return _speaker(state).name


def labels(state: StateNode) -> Mapping[str, str]:
    return _speaker(state).labels


def hostname(state: StateNode) -> str:
    return labels(state).get(names.HOSTNAME) or name(state)


def pool(state: StateNode) -> str:
    return _speaker(state).metadata.labels.get(names.NODEPOOL, "")


def provider_id(state: StateNode) -> str:
    if state.node is not None and state.node.spec.provider_id:
        return state.node.spec.provider_id
    return state.claim.status.provider_id if state.claim else name(state)


def raw_taints(state: StateNode) -> tuple[Taint, ...]:
    return _speaker(state).spec.taints


def taints(state: StateNode) -> tuple[Taint, ...]:
    """The taints that keep pods away. A new node's passing ones do not: they will be gone in time."""
    everything = raw_taints(state)
    if state.claim is None or initialized(state):
        return everything
    startup = state.claim.spec.startup_taints
    return tuple(
        taint
        for taint in everything
        if not is_ephemeral(taint) and not any(matches(taint, each) for each in startup)
    )


def capacity(state: StateNode) -> Nano:
    """What the machine has, itself counted as one node."""
    return _reported(state, "capacity") | {names.NODES: ONE_NODE}


def allocatable(state: StateNode) -> Nano:
    return _reported(state, "allocatable")


def _reported(state: StateNode, field: str) -> Nano:
    claim: Amounts = getattr(state.claim.status, field) if state.claim else {}
    node: Amounts = getattr(state.node.status, field) if state.node else {}
    if state.node is not None and reason_of(state.node):
        return nano(claim)  # what the machine was sold as; a Node that is set aside has no say
    if state.node is not None and initialized(state):
        return nano(node)
    # A kubelet reports extended resources as zero until their plugin is up.
    known = {name: amount for name, amount in nano(node).items() if amount}
    return nano(claim) | known


def running(pods: Iterable[Pod]) -> Iterable[Pod]:
    """The pods that take room: all but those that have finished."""
    return (pod for pod in pods if pod.status.phase not in ("Failed", "Succeeded"))


def available(state: StateNode) -> Nano:
    """What the pods on it leave."""
    used: Nano = {}
    for pod in running(state.pods):
        used = plus(used, needs(pod))
    return minus(allocatable(state), used)


def deleting(state: StateNode) -> bool:
    """Whether it is on its way out. A managed node goes when its claim does."""
    if state.marked:
        return True
    if state.claim is None:
        return state.node is not None and state.node.deleting
    if state.claim.metadata.deletion_timestamp is not None:
        return True
    # Asked of every node in every pass, so it is spelled out.
    for each in state.claim.status.conditions:
        if each.type == "InstanceTerminating":
            return each.status == "True"
    return False


def too_young(state: StateNode, nodepool: NodePool | None, now: datetime) -> bool:
    """Whether its pods have changed so lately that the pool's consolidateAfter still holds it back."""
    after = nodepool.spec.disruption.consolidate_after if nodepool and not nodepool.static else None
    if after is None or after == durations.NEVER or state.claim is None or not initialized(state):
        return False
    settled = state.claim.status.condition("Initialized")
    since = state.claim.status.last_pod_event_time or (settled.last_transition_time if settled else None)
    return since is not None and now - since < durations.parse(after)


def active(states: Iterable[StateNode]) -> Iterable[StateNode]:
    return (state for state in states if not deleting(state))

"""A fleet that no NodePool has made, as if given NodePools had: so that whole fleets can be compared.

Cluster Autoscaler grows and shrinks node groups and has no NodeClaims. Each of its nodes gets one here, of
the first given NodePool that sells its instance type and, if there is one, that would allow it. A node of a
type that no given NodePool sells stays what it is: it is the same in every world, and is told.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.core import Node
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.nodeclaim import NodeClaim, NodeClaimSpec, NodeClaimStatus
from dovetail.api.nodepool import Requirement
from dovetail.api.taints import is_ephemeral
from dovetail.disruption.situation import Situation
from dovetail.history.supply import UNKNOWN_BOOT
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode

__all__ = ["ADOPTED", "FleetAdopter", "is_adopted"]

ADOPTED = "shadow.dovetail.sh/adopted"
"""The label of a NodeClaim that stands for a node which none was ever made for."""
# How node groups say in which way their capacity was bought: Karpenter's own word first.
_WAYS: tuple[tuple[str, Mapping[str, str]], ...] = (
    (labels.CAPACITY_TYPE, {}),
    ("eks.amazonaws.com/capacityType", {"SPOT": labels.SPOT, "ON_DEMAND": labels.ON_DEMAND}),
    ("node.kubernetes.io/lifecycle", {"spot": labels.SPOT}),
)


_ORDERED = (labels.INSTANCE_TYPE, labels.ZONE, labels.CAPACITY_TYPE)


def is_adopted(situation: Situation) -> bool:
    """Whether the fleet of a Situation is an adopted one."""
    claims = (state.claim for state in situation.snapshot.nodes if state.claim is not None)
    return any(ADOPTED in claim.labels for claim in claims)


class FleetAdopter:
    """Gives the nodes of each look their NodeClaims; the same node has the same one at every look."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[StateNode, StateNode]] = {}
        self._catalogs: tuple[tuple[InstanceType, ...], ...] = ()
        self._types: tuple[dict[str, InstanceType], ...] = ()
        self._pools: tuple[SnapshotPool, ...] = ()
        # Nodes of types that no given NodePool sells, by name, with their type.
        self.left_out: dict[str, str] = {}

    def adopt(self, situation: Situation) -> Situation:
        """The Situation with a NodeClaim for every node that a given NodePool could have made."""
        snapshot = situation.snapshot
        self._read_pools(snapshot)
        known, self._known = self._known, {}
        nodes = []
        for state in snapshot.nodes:
            before = known.get(id(state))
            made = before[1] if before is not None and before[0] is state else self._adopt_node(state)
            self._known[id(state)] = state, made
            nodes.append(made)
        return situation.with_snapshot(replace(snapshot, nodes=tuple(nodes)))

    def _read_pools(self, snapshot: Snapshot) -> None:
        if snapshot.pools == self._pools and snapshot.catalogs == self._catalogs:
            return
        self._pools, self._catalogs, self._known = snapshot.pools, snapshot.catalogs, {}
        self._types = tuple({each.name: each for each in types} for types in snapshot.catalogs)

    def _adopt_node(self, state: StateNode) -> StateNode:
        node = state.node
        if node is None or state.claim is not None:
            return state
        kind, way = node.labels.get(labels.INSTANCE_TYPE, ""), _find_way(node.labels)
        about = {**node.labels, labels.CAPACITY_TYPE: way}
        pool = self._choose_pool(kind, about)
        if pool is None:
            self.left_out[node.name] = kind or "a type that it does not tell"
            return state
        self.left_out.pop(node.name, None)
        marks = {labels.NODEPOOL: pool.name, labels.REGISTERED: "true", labels.INITIALIZED: "true"}
        known = {**about, **marks}
        return replace(
            state,
            node=replace(node, metadata=replace(node.metadata, labels=known)),
            claim=_build_claim(node, pool, known),
        )

    def _choose_pool(self, kind: str, known: Mapping[str, str]) -> SnapshotPool | None:
        """The first pool that would allow a node like this; else the first that sells its type."""
        selling = [
            (pool, self._types[pool.catalog][kind])
            for pool in self._pools
            if pool.catalog >= 0 and kind in self._types[pool.catalog]
        ]
        have = Requirements.from_labels(known)
        for pool, sold in selling:
            asked = Requirements.from_expressions(pool.nodepool.spec.template.spec.requirements or ())
            if all(
                have[key].has_intersection(asked[key])
                if key in have
                else sold.requirements[key].has_intersection(asked[key])
                for key in asked
            ):
                return pool
        return selling[0][0] if selling else None


def _find_way(known: Mapping[str, str]) -> str:
    for label, words in _WAYS:
        if label in known:
            return words.get(known[label], known[label]) if words else known[label]
    return labels.ON_DEMAND


def _build_claim(node: Node, pool: SnapshotPool, known: Mapping[str, str]) -> NodeClaim:
    """The NodeClaim that a node would have. Nobody tells when its machine was launched: as long before it
    appeared as the model takes for a boot of which nothing is known."""
    template = pool.nodepool.spec.template.spec
    appeared = node.metadata.creation_timestamp
    registers, ready = (timedelta(seconds=each) for each in UNKNOWN_BOOT)
    steps = (
        (conditions.LAUNCHED, -registers),
        (conditions.REGISTERED, timedelta()),
        (conditions.INITIALIZED, ready),
    )
    said = tuple(
        Condition(
            type=kind,
            status=conditions.TRUE,
            reason=kind,
            last_transition_time=appeared + after if appeared is not None else None,
        )
        for kind, after in steps
    )
    kept = tuple(each for each in node.spec.taints if not is_ephemeral(each))
    return NodeClaim(
        metadata=ObjectMeta(
            name=node.name,
            uid=node.uid,
            labels={**known, ADOPTED: "true"},
            creation_timestamp=appeared,
            resource_version=node.metadata.resource_version,
        ),
        spec=NodeClaimSpec(
            node_class_ref=template.node_class_ref,
            requirements=tuple(
                Requirement(key=key, operator="In", values=(known[key],)) for key in _ORDERED if key in known
            ),
            taints=kept,
            expire_after="Never",  # whoever made it lets it live
        ),
        status=NodeClaimStatus(
            node_name=node.name,
            provider_id=node.spec.provider_id,
            capacity=node.status.capacity,
            allocatable=node.status.allocatable,
            conditions=said,
        ),
    )

"""Plan, PlannedNode, and how a plan becomes NodeClaims."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isinf
from typing import Any

from dovetail.api.bad_items import SetAside
from dovetail.api.labels import (
    CAPACITY_TYPE,
    CORE,
    HOSTNAME,
    INITIALIZED,
    INSTANCE_TYPE,
    MIN_VALUES_RELAXED,
    NODEPOOL,
    REGISTERED,
    RESERVED,
    Flavour,
    is_restricted,
    nodeclass_label,
    normalize_label,
)
from dovetail.api.meta import Amounts, ObjectMeta, OwnerReference, Record
from dovetail.api.nodeclaim import ClaimResources, NodeClaim, NodeClaimSpec
from dovetail.api.nodepool import NodePool
from dovetail.scheduling.bill import sum_prices
from dovetail.scheduling.model.instance_types import Offering
from dovetail.scheduling.model.reasons import Decision
from dovetail.scheduling.model.requirements import Requirements, Values

__all__ = ["Plan", "PlannedNode", "describe_purchase"]

_PSEUDO = frozenset((REGISTERED, INITIALIZED, HOSTNAME))


class PlannedNode(Record, frozen=True):
    """A node that should be made: of what pool, as which instance types, for which pods.

    `requirements` are final: reserved capacity is written in, the placeholder hostname is gone.
    `instance_types` come cheapest first, and `instance_type`, `zone`, `capacity_type` and `price`
    describe the cheapest offering among them: an expectation, not an order. `extras` is that part of the
    price which is not the instance's.
    """

    name: str
    pool: str
    requirements: Requirements
    instance_types: tuple[str, ...]
    pods: tuple[str, ...]
    requests: Amounts
    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    price: float = inf
    extras: float = 0.0
    price_estimated: bool = False
    capacity_types: tuple[str, ...] = ()
    reservations: tuple[str, ...] = ()
    annotations: Mapping[str, str] = {}
    min_values_relaxed: bool = False

    def build_claim(self, nodepool: NodePool, options: NodeClaimOptions) -> NodeClaim:
        """The order for this node."""
        template = nodepool.spec.template
        reference = template.spec.node_class_ref
        return NodeClaim(
            metadata=ObjectMeta(
                generate_name=f"{nodepool.name}-",
                labels={
                    **resolve_labels(self.requirements, nodepool, options),
                    **build_pool_labels(nodepool),
                },
                annotations={
                    **template.metadata.annotations,
                    **options.annotations,
                    **self.annotations,
                    MIN_VALUES_RELAXED: "true" if self.min_values_relaxed else "false",
                },
                owner_references=(_build_owner(nodepool),),
            ),
            spec=NodeClaimSpec(
                node_class_ref=reference,
                requirements=self.ordered.list_entries(),
                resources=ClaimResources(requests=self.requests),
                taints=template.spec.taints,
                startup_taints=template.spec.startup_taints,
                expire_after=template.spec.expire_after,
                termination_grace_period=template.spec.termination_grace_period
                or options.termination_grace_period,
            ),
        )

    @property
    def sentence(self) -> str:
        """The node as `plan --disruption` says it: type, NodePool, zone, capacity type and price."""
        guess = " (estimated)" if self.price_estimated else ""
        price = "" if isinf(self.price) else f", ${self.price:.4f} an hour{guess}"
        others = f" or one of {len(self.instance_types) - 1} others" if len(self.instance_types) > 1 else ""
        kind = self.instance_type or "as the template has it"
        return f"{kind}{others} of pool {self.pool} {self.zone} {self.capacity_type}".rstrip() + price

    @property
    def ordered(self) -> Requirements:
        """The requirements as the claim states them: these types, and ways to buy them that exist."""
        kept = self.requirements.drop_keys(_PSEUDO)
        types = Values(frozenset(self.instance_types), min_values=kept[INSTANCE_TYPE].min_values)
        bought = Values(frozenset(self.capacity_types), min_values=kept[CAPACITY_TYPE].min_values)
        return kept.replace_key(INSTANCE_TYPE, types).replace_key(CAPACITY_TYPE, bought)


def describe_purchase(offering: Offering) -> dict[str, Any]:
    """What a PlannedNode says of the offering that it is expected to be bought by."""
    return {
        "zone": offering.zone,
        "capacity_type": offering.capacity_type,
        "price": offering.price,
        "extras": offering.parts.extras if offering.parts is not None else 0.0,
        "price_estimated": offering.price_estimated,
    }


class NodeClaimOptions(Record, frozen=True):
    """What an order needs besides the plan: the pool's hash annotations, and who names which labels."""

    annotations: Mapping[str, str] = {}
    flavour: Flavour = CORE
    termination_grace_period: str | None = None


class Plan(Record, frozen=True):
    """What to do for every pod that waits: join a node that is, or one that should be made.

    Pods are named `namespace/name`. `bound` is a proven floor under the price of any plan for the
    same pods with the hard rules alone, and `bound_as_asked` with preferences kept; 0 when unknown.
    `proven_pods` is how many pods that floor is about. `zones` counts the pods that waited by the zone
    they are bound for, as `count_pending_by_zone` names them. `set_aside` are the objects that nothing could
    be decided with. `spend_held` names the pods that each spend limit holds, or would hold if it only warns.
    """

    new_nodes: tuple[PlannedNode, ...] = ()
    existing: Mapping[str, tuple[str, ...]] = {}
    unschedulable: Mapping[str, str] = {}
    deferred: Mapping[str, str] = {}
    ignored: Mapping[str, str] = {}
    decisions: tuple[Decision, ...] = ()
    pool_problems: Mapping[str, str] = {}
    timed_out: bool = False
    bound: float = 0.0
    bound_as_asked: float = 0.0
    proven_pods: int = 0
    zones: Mapping[str, int] = {}
    set_aside: tuple[SetAside, ...] = ()
    spend_held: Mapping[str, tuple[str, ...]] = {}

    @property
    def price(self) -> float:
        return sum_prices(self.new_nodes)

    @property
    def left_out(self) -> frozenset[str]:
        """The pods that get no place for now, for whatever reason."""
        return frozenset((*self.unschedulable, *self.deferred))


def build_pool_labels(nodepool: NodePool) -> dict[str, str]:
    """The labels every node of the pool has from the start."""
    template = nodepool.spec.template
    reference = template.spec.node_class_ref
    return {
        **template.metadata.labels,
        NODEPOOL: nodepool.name,
        nodeclass_label(reference.group, reference.kind): reference.name,
    }


def resolve_labels(
    requirements: Requirements, nodepool: NodePool, options: NodeClaimOptions
) -> dict[str, str]:
    """A value for each custom label the requirements speak of.

    Where any value will do, only the pool can ask for one: pods that merely exclude values of a label
    nobody defines are best served by its absence.
    """
    asked = {normalize_label(each.key) for each in nodepool.spec.template.spec.requirements or ()}
    chosen = {
        key: _choose_value(values)
        for key, values in requirements.by_key.items()
        if (key in asked or not values.open)
        and key not in options.flavour.well_known
        and key not in _PSEUDO
        and not is_restricted(key, options.flavour)
    }
    return {key: value for key, value in sorted(chosen.items()) if value is not None}


def _choose_value(values: Values) -> str | None:
    """Some allowed value, always the same one: the smallest, or the first free number."""
    if not values.open:
        return min(values.names, default=None)
    number = max(values.at_least or 0, 0)  # a label value cannot start with a minus
    while str(number) in values.names:
        number += 1
    return str(number) if values.at_most is None or number <= values.at_most else None


def _build_owner(nodepool: NodePool) -> OwnerReference:
    return OwnerReference(
        api_version="karpenter.sh/v1",
        kind="NodePool",
        name=nodepool.name,
        uid=nodepool.uid,
        block_owner_deletion=True,
    )


def pin_to_reservations(requirements: Requirements, label: str, ids: frozenset[str]) -> Requirements:
    """A claim that holds reservations may only be launched into them."""
    pinned = requirements.replace_key(CAPACITY_TYPE, Values(frozenset((RESERVED,))))
    return pinned.replace_key(label, Values(ids)) if label else pinned

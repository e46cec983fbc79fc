"""Nodes that are there when the scenario begins, with claims as if they had been bought long ago.

Buying four thousand nodes is a story of its own. One node for each zone is drawn up by the cloud itself, and
the others are its copies but for their names.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec
from msgspec.structs import replace

from dovetail.api import codec, conditions, labels
from dovetail.api.core import Node
from dovetail.api.meta import OwnerReference
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.controllers.ordering import hash_annotations
from dovetail.errors import BadInput
from dovetail.ports import Instance
from dovetail.scheduling.model.instance_types import InstanceType, Offering
from dovetail.scheduling.model.plan import NodeClaimOptions, PlannedNode
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.sim.cluster.kubelet import Kubelet
from dovetail.sim.cluster.kubelet_status import build_node_status
from dovetail.sim.kube.internal_writes import InternalApi
from dovetail.sim.volatile_cloud import VolatileCloud
from dovetail.sim.world import World

__all__ = ["add_initial_nodes"]

Json = dict[str, Any]
CLAIMS = "nodeclaims.karpenter.sh"
NAME, UID = "name-of-this-claim", "uid-of-this-claim"
HAPPENED = (
    conditions.LAUNCHED,
    conditions.REGISTERED,
    conditions.INITIALIZED,
    conditions.CONSISTENT_STATE_FOUND,
)


def add_initial_nodes(world: World, cloud: VolatileCloud, stored: Json, count: int) -> None:
    """Give a pool this many nodes: the cheapest it may have, in one zone after the other."""
    pool = codec.decode(NodePool, msgspec.json.encode(stored))
    patterns = _list_patterns(pool, cloud, world.clock.now())
    api = InternalApi(world.server, "scenario", world.manager.templates)
    kubelet = world.neighbours["kubelet"]
    assert isinstance(kubelet, Kubelet)
    for number in range(count):
        pattern, name = patterns[number % len(patterns)], f"{pool.name}-{number:05d}"
        claim = api.insert(CLAIMS, _copy_pattern(pattern.claim, name))
        node = api.insert("nodes", _copy_pattern(pattern.node, name, claim["metadata"]["uid"]))
        kubelet.mark_started(node["metadata"]["name"])


@dataclass(frozen=True, slots=True)
class _Pattern:
    """A claim and its node, as JSON with a gap where names go."""

    claim: str
    node: str


def _copy_pattern(pattern: str, name: str, uid: str = "") -> Json:
    document: Json = msgspec.json.decode(pattern.replace(NAME, name).replace(UID, uid))
    return document


def _list_patterns(pool: NodePool, cloud: VolatileCloud, now: datetime) -> list[_Pattern]:
    """One for each zone in which the pool may buy."""
    wanted = Requirements.from_expressions(pool.spec.template.spec.requirements or ())
    found: dict[str, tuple[float, str, InstanceType, Offering]] = {}
    for each, offering in cloud.list_offers(wanted):
        option = offering.price, each.name, each, offering
        if offering.zone not in found or option[:2] < found[offering.zone][:2]:
            found[offering.zone] = option
    if not found:
        raise BadInput(f"filling the pool {pool.name}: no instance type meets its requirements")
    return [_build_pattern(pool, cloud, wanted, option[2:], now) for _, option in sorted(found.items())]


def _build_pattern(
    pool: NodePool,
    cloud: VolatileCloud,
    wanted: Requirements,
    bought: tuple[InstanceType, Offering],
    now: datetime,
) -> _Pattern:
    of, offering = bought
    planned = PlannedNode(
        name=NAME,
        pool=pool.name,
        requirements=wanted.replace_key(labels.ZONE, Values(frozenset((offering.zone,)))),
        instance_types=(of.name,),
        capacity_types=(offering.capacity_type,),
        pods=(),
        requests={},
    )
    ordered = planned.build_claim(
        pool, NodeClaimOptions(annotations=hash_annotations(pool), flavour=cloud.flavour)
    )
    about = replace(ordered.metadata, name=NAME, generate_name="", finalizers=(labels.TERMINATION,))
    node, instance = cloud.plan_instance(replace(ordered, metadata=about))
    claim = _initialize_claim(replace(ordered, metadata=about), instance, now)
    document = codec.to_dict(_register_node(node, claim))
    ready = build_node_status(document, now.strftime("%Y-%m-%dT%H:%M:%SZ"), is_ready=True)
    return _Pattern(_encode_json(codec.to_dict(claim)), _encode_json({**document, "status": ready}))


def _encode_json(document: Json) -> str:
    return msgspec.json.encode(document).decode()


def _initialize_claim(claim: NodeClaim, instance: Instance, now: datetime) -> NodeClaim:
    """The claim after launch, registration and initialization."""
    about = replace(
        claim.metadata,
        labels={**instance.labels, **claim.labels},
        annotations={**claim.annotations, **instance.annotations},
    )
    status = replace(
        claim.status,
        provider_id=instance.provider_id,
        node_name=instance.provider_id.rpartition("/")[2],
        capacity=instance.capacity,
        allocatable=instance.allocatable,
    )
    claim = replace(claim, metadata=about, status=status)
    for each in HAPPENED:
        claim = conditions.set_true(claim, each, now)
    return claim


def _register_node(node: Node, claim: NodeClaim) -> Node:
    """The node as its claim has it: owned, tainted as the pool says, and initialized."""
    owner = OwnerReference(
        api_version="karpenter.sh/v1", kind="NodeClaim", name=NAME, uid=UID, block_owner_deletion=True
    )
    about = replace(
        node.metadata,
        labels={**claim.labels, labels.REGISTERED: labels.TRUE, labels.INITIALIZED: labels.TRUE},
        annotations={**node.annotations, **claim.annotations},
        finalizers=(labels.TERMINATION,),
        owner_references=(owner,),
    )
    return replace(node, metadata=about, spec=replace(node.spec, taints=claim.spec.taints))

"""NodePools from a file, for a cluster that has none: one that Cluster Autoscaler grows and shrinks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from dovetail.api import codec, labels
from dovetail.api.core import Node
from dovetail.api.meta import Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass, Subnet
from dovetail.api.nodepool import NodePool
from dovetail.app.cluster_context import ClusterContext
from dovetail.errors import BadInput, Gone, Misconfigured
from dovetail.runtime.informer import Informer
from dovetail.state.changed_pools import assume_ready

__all__ = ["GivenPools", "install_pools", "read_given_pools", "refuse_own_pools"]

OWN_POOLS = (
    "this cluster has NodePools of its own, such as {name}; leave --pools out, and try other pools "
    "with --with"
)


@dataclass(frozen=True, slots=True)
class GivenPools:
    """NodePools, and the node classes that stand beside them in their file."""

    pools: tuple[NodePool, ...]
    classes: tuple[EC2NodeClass, ...] = ()

    def lists_kind(self, kind: type[Object]) -> bool:
        """Whether objects of this kind come from the file, and are not asked of the cluster."""
        return kind in (NodePool, NodeClaim, EC2NodeClass)


def read_given_pools(documents: Iterable[Mapping[str, Any]], source: str) -> GivenPools:
    """The NodePools and EC2NodeClasses of a file; BadInput where there is none, or where one is missing."""
    pools: list[NodePool] = []
    classes: list[EC2NodeClass] = []
    for document in documents:
        name = (document.get("metadata") or {}).get("name", "")
        try:
            if document.get("kind") == "NodePool":
                pools.append(codec.convert(NodePool, document))
            elif document.get("kind") == "EC2NodeClass":
                classes.append(codec.convert(EC2NodeClass, document))
        except (ValueError, TypeError, BadInput) as error:
            raise BadInput(f"--pools {source}: {document['kind']} {name} cannot be read ({error})") from error
    if not pools:
        raise BadInput(f"--pools {source}: there is no NodePool in it")
    known = {each.name for each in classes}
    for pool in pools:
        wanted = pool.spec.template.spec.node_class_ref
        if wanted.kind == "EC2NodeClass" and wanted.name not in known:
            raise BadInput(
                f"--pools {source}: NodePool {pool.name} names EC2NodeClass {wanted.name}, which is not in it"
            )
    return GivenPools(tuple(map(assume_ready, pools)), tuple(classes))


async def refuse_own_pools(sight: ClusterContext) -> None:
    """Misconfigured where the cluster has NodePools: what is given would be compared with another world."""
    try:
        own = await sight.kube.list(NodePool)
    except Gone:
        return  # it does not know the kind
    if own:
        raise Misconfigured(OWN_POOLS.format(name=own[0].name))


def install_pools(sight: ClusterContext, given: GivenPools) -> None:
    """Put what was given where decisions look for it; the cluster's nodes are listed by now."""
    zones = sorted(
        {node.labels[labels.ZONE] for node in sight.get_informer(Node) if labels.ZONE in node.labels}
    )
    _fill(sight.get_informer(NodePool), given.pools)
    _fill(sight.get_informer(NodeClaim), ())
    if EC2NodeClass in sight.informers:
        _fill(sight.get_informer(EC2NodeClass), (_give_zones(each, zones) for each in given.classes))


def _give_zones(node_class: EC2NodeClass, zones: Iterable[str]) -> EC2NodeClass:
    """The class with the zones in which the cluster has nodes, where its controller has not found any."""
    if node_class.status.subnets:
        return node_class
    found = tuple(Subnet(zone=zone) for zone in zones)
    return replace(node_class, status=replace(node_class.status, subnets=found))


def _fill(informer: Informer[Any], objects: Iterable[Object]) -> None:
    informer.begin_list()
    informer.add_listed(objects)
    informer.end_list()

"""Recorded scheduling runs of the original: each case as a Snapshot."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.core import DaemonSet, Node
from dovetail.api.labels import Flavour
from dovetail.api.meta import Condition
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.scheduling.model.daemonsets import build_daemon_pod
from dovetail.scheduling.model.instance_types import InstanceType, Offering, Overhead
from dovetail.scheduling.model.requirements import NOTHING, Requirements, Values
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    build_pools_and_catalogs,
)
from support.manifests import amounts, read, read_pod

FLAVOUR = Flavour(names.WELL_KNOWN | {"example.com/family", "example.com/cpu"}, (names.KARPENTER,))


def instance_type(case: dict[str, Any]) -> InstanceType:
    offerings = [
        Offering(
            requirements=Requirements.from_labels({names.ZONE: zone, names.CAPACITY_TYPE: kind}),
            price=price,
            available=available,
        )
        for zone, kind, price, available in case["offerings"] or ()
    ]
    single = {
        names.INSTANCE_TYPE: case["name"],
        names.ARCH: case["arch"],
        names.OS: "linux",
        names.REGION: "test-region",
        "example.com/family": case["family"],
        "example.com/cpu": str(case["cpu"]),
    }
    several = {
        names.ZONE: Values(frozenset(each.zone for each in offerings)),
        names.CAPACITY_TYPE: Values(frozenset(each.capacity_type for each in offerings)),
        names.WINDOWS_BUILD: NOTHING,
    }
    return InstanceType(
        name=case["name"],
        requirements=Requirements.from_labels(single) & Requirements(several),
        offerings=tuple(offerings),
        capacity=amounts(case["capacity"]),
        overhead=Overhead(kube_reserved=amounts(case["overhead"])),
    )


def snapshot(case: dict[str, Any]) -> Snapshot:
    types = tuple(instance_type(each) for each in case["instanceTypes"])
    pools, catalogs = build_pools_and_catalogs((_ready(each), types) for each in case["nodepools"] or ())
    options = case["options"]
    return Snapshot(
        pools=pools,
        catalogs=catalogs,
        nodes=tuple(_states(case)),
        pods=tuple(read_pod(each) for each in case["pods"] or ()),
        daemons=tuple(build_daemon_pod(read(DaemonSet, each), None) for each in case["daemonsets"] or ()),
        namespaces={"default": {names.NAMESPACE_NAME: "default"}},
        options=SchedulingOptions(
            preferences=options["preferencePolicy"], min_values=options["minValuesPolicy"], flavour=FLAVOUR
        ),
    )


def _ready(manifest: dict[str, Any]) -> NodePool:
    pool = read(NodePool, manifest)
    return replace(pool, status=replace(pool.status, conditions=(Condition(type="Ready", status="True"),)))


def _states(case: dict[str, Any]) -> list[StateNode]:
    bound: dict[str, list[Pod]] = {}
    for each in case["bound"] or ():
        pod = read_pod(each)
        bound.setdefault(pod.node_name, []).append(pod)
    claims = {
        each.status.provider_id: each for each in (read(NodeClaim, c) for c in case["nodeclaims"] or ())
    }
    found = []
    for manifest in case["nodes"] or ():
        node = read(Node, manifest)
        claim = claims.pop(node.spec.provider_id, None)
        found.append(StateNode(node=node, claim=claim, pods=tuple(bound.get(node.name, ()))))
    return found + [StateNode(claim=claim) for claim in claims.values()]

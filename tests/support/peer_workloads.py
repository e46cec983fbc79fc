"""The workload files of hack/peer as snapshots, and their catalogue as instance types."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from msgspec.structs import replace

from dovetail.api.codec import convert
from dovetail.api.core import DaemonSet, Node, PersistentVolume, PersistentVolumeClaim
from dovetail.api.labels import (
    ARCH,
    AWS,
    CAPACITY_TYPE,
    INSTANCE_CATEGORY,
    INSTANCE_CPU,
    INSTANCE_FAMILY,
    INSTANCE_GENERATION,
    INSTANCE_MEMORY,
    INSTANCE_SIZE,
    INSTANCE_TYPE,
    ON_DEMAND,
    OS,
    SPOT,
    ZONE,
)
from dovetail.api.meta import Condition, Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool, NodePoolStatus
from dovetail.api.pod import Pod
from dovetail.api.quantity import Quantity
from dovetail.scheduling.model.daemonsets import build_daemon_pod
from dovetail.scheduling.model.instance_types import InstanceType, Offering, Overhead
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot, SnapshotPool, StateNode, Storage

__all__ = ["PEER", "catalogue", "generated", "snapshot_of"]

T = TypeVar("T", bound=Object)
PEER = Path(__file__).resolve().parents[2] / "hack" / "peer"
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def generated(family: str, size: int, seed: int = 1, subset: str = "main") -> dict[str, Any]:
    """The workload as a v1 List; the same every time."""
    if str(PEER) not in sys.path:
        sys.path.insert(0, str(PEER))
    import workloads  # type: ignore[import-not-found]  # hack/peer is not a package

    made: dict[str, Any] = workloads.build(family, size, str(seed), subset)
    return made


def snapshot_of(document: Mapping[str, Any]) -> Snapshot:
    """Everything in a workload file, as the controllers would have seen it."""
    by_kind: dict[str, list[Any]] = {}
    for item in document["items"]:
        by_kind.setdefault(item["kind"], []).append(item)
    pods = _pods(by_kind.get("Pod", []))
    waiting = tuple(pod for pod in pods if not pod.node_name)
    catalog = catalogue(document["metadata"]["annotations"]["catalog-subset"])
    pools = [convert(NodePool, each) for each in by_kind.get("NodePool", [])]
    ready = NodePoolStatus(conditions=(Condition(type="Ready", status="True"),))
    return Snapshot(
        pools=tuple(SnapshotPool(nodepool=replace(pool, status=ready), catalog=0) for pool in pools),
        catalogs=(catalog,),
        nodes=_nodes(by_kind, pods),
        pods=waiting,
        daemons=tuple(
            build_daemon_pod(convert(DaemonSet, each), None) for each in by_kind.get("DaemonSet", [])
        ),
        namespaces={"default": {}, "kube-system": {}}
        | {each["metadata"]["name"]: each["metadata"]["labels"] for each in by_kind.get("Namespace", [])},
        storage=Storage(
            claims={each.full_name: each for each in _read(PersistentVolumeClaim, by_kind)},
            volumes={each.name: each for each in _read(PersistentVolume, by_kind)},
        ),
        options=SchedulingOptions(now=NOW, flavour=AWS),
    )


def _read(kind: type[T], by_kind: Mapping[str, list[Any]]) -> list[T]:
    return [convert(kind, each) for each in by_kind.get(kind.KIND.kind, [])]


def _pods(items: list[Any]) -> list[Pod]:
    """Pods with equal specs and labels share them, as they do when they come over the wire."""
    specs: dict[str, Any] = {}
    labels: dict[str, Any] = {}
    out = []
    for item in items:
        pod = convert(Pod, item)
        spec = specs.setdefault(json.dumps({**item["spec"], "nodeName": ""}, sort_keys=True), pod.spec)
        own = labels.setdefault(json.dumps(item["metadata"].get("labels"), sort_keys=True), pod.labels)
        out.append(replace(pod, spec=spec, metadata=replace(pod.metadata, labels=own)))
    return out


def _nodes(by_kind: Mapping[str, list[Any]], pods: list[Pod]) -> tuple[StateNode, ...]:
    bound: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_name:
            bound.setdefault(pod.node_name, []).append(pod)
    claims = {item["metadata"]["name"]: convert(NodeClaim, item) for item in by_kind.get("NodeClaim", [])}
    nodes = [convert(Node, item) for item in by_kind.get("Node", [])]
    return tuple(
        StateNode(node=node, claim=claims.get(node.name), pods=tuple(bound.get(node.name, ())))
        for node in nodes
    )


@cache
def catalogue(subset: str = "main") -> tuple[InstanceType, ...]:
    """The instance types of hack/peer/catalog.json."""
    facts = json.loads((PEER / "catalog.json").read_text())
    names = set(facts["subsets"].get(subset, ()))
    return tuple(
        _instance_type(each, facts["zones"]) for each in facts["types"] if not names or each["name"] in names
    )


def _instance_type(facts: Mapping[str, Any], zones: list[str]) -> InstanceType:
    capacity, allocatable = facts["capacity"], facts["allocatable"]
    kept_cpu = capacity["cpuMilli"] - allocatable["cpuMilli"]
    kept_memory = capacity["memoryMiB"] - allocatable["memoryMiB"]
    labels = {
        INSTANCE_TYPE: [facts["name"]],
        ARCH: [facts["arch"]],
        OS: ["linux"],
        ZONE: zones,
        CAPACITY_TYPE: [ON_DEMAND, SPOT],
        INSTANCE_CATEGORY: [facts["category"]],
        INSTANCE_FAMILY: [facts["family"]],
        INSTANCE_GENERATION: [str(facts["generation"])],
        INSTANCE_SIZE: [facts["size"]],
        INSTANCE_CPU: [str(facts["cpu"])],
        INSTANCE_MEMORY: [str(facts["memoryMiB"])],
    }
    return InstanceType(
        name=facts["name"],
        requirements=_requirements(labels),
        offerings=tuple(
            Offering(
                requirements=_way_to_buy(bought, zone),
                price=facts["onDemand"] if bought == ON_DEMAND else facts["spot"][zone],
            )
            for zone in zones
            for bought in (ON_DEMAND, SPOT)
        ),
        capacity={
            "cpu": Quantity.parse(f"{capacity['cpuMilli']}m"),
            "memory": Quantity.parse(f"{capacity['memoryMiB']}Mi"),
            "pods": Quantity.parse(str(capacity["pods"])),
        },
        overhead=Overhead(
            kube_reserved={
                "cpu": Quantity.parse(f"{kept_cpu}m"),
                "memory": Quantity.parse(f"{kept_memory}Mi"),
            }
        ),
    )


@cache
def _way_to_buy(bought: str, zone: str) -> Requirements:
    """Shared by all types, as in the provider's own catalogue."""
    return _requirements({CAPACITY_TYPE: [bought], ZONE: [zone]})


def _requirements(labels: Mapping[str, list[str]]) -> Requirements:
    return Requirements({key: Values(frozenset(values)) for key, values in labels.items()})

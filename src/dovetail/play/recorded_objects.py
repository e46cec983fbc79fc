"""Objects of a recording as the simulated API server takes them.

A recording keeps of each object what decisions read. Images, probes and the like are missing, and a simulated
kubelet needs none of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from zlib import crc32

from msgspec.structs import replace

from dovetail.api import codec, conditions, labels
from dovetail.api.core import Node, PodDisruptionBudget
from dovetail.api.hashes import hash_nodepool
from dovetail.api.meta import ABSENT_MAP, Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.errors import BadInput
from dovetail.history.demand import RecordedWorkload
from dovetail.play.replay_meter import WORKLOAD
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.sim.cluster.kubelet_status import build_node_status, build_running_status
from dovetail.zonal.controller.node_protection import NodeChange, read_marks
from dovetail.zonal.model.ledgers import parse_node_ledger
from dovetail.zonal.model.nodes import release_node

__all__ = [
    "build_budget",
    "build_claim",
    "build_daemonset",
    "build_node",
    "build_nodepool",
    "build_pod",
    "build_replicaset",
    "build_spec",
    "find_deployment",
    "find_start_hash",
    "name_replicaset",
]

Json = dict[str, Any]
TIME = "%Y-%m-%dT%H:%M:%SZ"
PROVIDER_ID = "kwok://"
# In a recording of a simulated cluster; how long its pods work is told by when they ended.
RUN_FOR = "sim.dovetail.dev/run-for"
# What only a server or a controller puts on objects, and does so again.
_SERVER_FIELDS = (
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "ownerReferences",
    "managedFields",
)
TEMPLATE_HASH = "pod-template-hash"
# On the template of a NodePool: its recorded hash, once that has changed.
TEMPLATE = "replay.dovetail.sh/template"
_HASHES = (labels.NODEPOOL_HASH, labels.NODEPOOL_HASH_VERSION)
_MARKS = (labels.DISRUPTED_TAINT, labels.UNREGISTERED_TAINT)
_PASSING = (conditions.DISRUPTION_REASON, conditions.INSTANCE_TERMINATING)


def strip_document(obj: Object) -> Json:
    """The object as a new one."""
    document = codec.to_dict(obj)
    document["metadata"] = {
        name: value for name, value in document["metadata"].items() if name not in _SERVER_FIELDS
    }
    return document


def build_nodepool(pool: NodePool, defaults: Mapping[str, str], knobs: bool, mark: str = "") -> Json:
    """The NodePool as a person wrote it: without what its controller's settings added to it.

    Without `knobs` it has none of those that Karpenter does not know. A `mark` tells its template from that
    of an earlier look: the hash of what is made here changes with it, and nodes drift.
    """
    kept = {
        key: value
        for key, value in pool.annotations.items()
        if defaults.get(key) != value and key not in _HASHES
    }
    if not knobs:
        kept = {key: value for key, value in kept.items() if labels.DOVETAIL not in key.partition("/")[0]}
    document = strip_document(replace(pool, metadata=replace(pool.metadata, annotations=kept)))
    document.pop("status", None)
    document["metadata"].pop("finalizers", None)
    if mark:
        about = document["spec"]["template"].setdefault("metadata", {})
        about["annotations"] = {**(about.get("annotations") or {}), TEMPLATE: mark}
    return document


def find_start_hash(claim: NodeClaim, recorded: NodePool, made: NodePool) -> str | None:
    """The hash of its NodePool that a NodeClaim has at the start; None leaves what it had: it has drifted.

    `recorded` is its NodePool as recorded, and `made` is that of this replay, which a variation may have
    changed: as far as the recording can tell, for it does not keep the annotations of templates.
    """
    theirs = recorded.annotations.get(labels.NODEPOOL_HASH)
    if theirs is None or claim.annotations.get(labels.NODEPOOL_HASH) != theirs:
        return None
    same = _hash_without_annotations(recorded) == _hash_without_annotations(made)
    return hash_nodepool(made) if same else None


def _hash_without_annotations(pool: NodePool) -> str:
    template = pool.spec.template
    about = replace(template.metadata, annotations=ABSENT_MAP)
    return hash_nodepool(replace(pool, spec=replace(pool.spec, template=replace(template, metadata=about))))


def build_claim(claim: NodeClaim, node: str, pool_hash: str | None) -> Json:
    """The NodeClaim of a node that is there, whatever its provider: machines are simulated ones."""
    kept = tuple(each for each in claim.status.conditions if each.type not in _PASSING)
    status = replace(claim.status, provider_id=PROVIDER_ID + node, node_name=node, conditions=kept)
    document = strip_document(replace(claim, status=status))
    if pool_hash is not None:
        document["metadata"]["annotations"] = {**claim.annotations, labels.NODEPOOL_HASH: pool_hash}
    document["metadata"]["finalizers"] = [labels.TERMINATION]
    return document


def _take_off_marks(node: Node) -> Node:
    """The node without what a zonal shift put on it: nobody would take that off in a replay."""
    try:
        ledger = parse_node_ledger(node.annotations.get(labels.ZONE_LEDGER))
    except BadInput:
        return node  # nobody can tell what it was before
    if ledger is None:
        return node
    return NodeChange(node, release_node(read_marks(node), ledger, ledger.shifts), "", "").after


def build_node(state: StateNode, now: str, owner: Json | None) -> Json:
    """The Node with a simulated kubelet; with its NodeClaim as owner, or one that nobody manages."""
    assert state.node is not None
    node = _take_off_marks(state.node)
    taints = tuple(taint for taint in node.spec.taints if taint.key not in _MARKS)
    known = {**node.labels, labels.KWOK_NODE: "fake"} if owner is not None else dict(node.labels)
    about = replace(node.metadata, labels=known, annotations={**node.annotations, labels.KWOK_NODE: "fake"})
    spec = replace(node.spec, provider_id=PROVIDER_ID + node.name, taints=taints)
    document = strip_document(replace(node, metadata=about, spec=spec))
    document["spec"].pop("unschedulable", None)
    if owner is not None:
        meta = owner["metadata"]
        document["metadata"]["finalizers"] = [labels.TERMINATION]
        document["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "karpenter.sh/v1",
                "kind": "NodeClaim",
                "name": meta["name"],
                "uid": meta["uid"],
                "blockOwnerDeletion": True,
            }
        ]
    else:
        document["metadata"].pop("finalizers", None)
    status = document.get("status") or {}
    amounts = {name: status[name] for name in ("capacity", "allocatable") if name in status}
    if not amounts and state.claim is not None:
        amounts = {
            name: each
            for name, each in (codec.to_dict(state.claim).get("status") or {}).items()
            if name in ("capacity", "allocatable")
        }
    ready = build_node_status({**document, "status": amounts}, now, is_ready=True)
    return {**document, "status": ready or amounts}


def name_replicaset(workload: RecordedWorkload) -> str:
    """The ReplicaSet of a workload; each shape of its pods has its own."""
    return f"{workload.name}.{workload.shape}" if workload.shape else workload.name


def find_deployment(workload: RecordedWorkload, pod: Pod) -> str:
    """The name of the Deployment that has made the ReplicaSet of this pod; empty where none has."""
    name, _, suffix = workload.name.rpartition("-")
    return name if suffix and pod.labels.get(TEMPLATE_HASH) == suffix else ""


def build_replicaset(workload: RecordedWorkload, pod: Pod, count: int, family: Json | None = None) -> Json:
    """A ReplicaSet that keeps so many pods like this one; `family` is what it shares with others."""
    name = name_replicaset(workload)
    meta: Json = {"name": name, "namespace": workload.namespace}
    if family is not None:
        about = {key: family["metadata"][key] for key in ("name", "uid")}
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "controller": True, **about}]
    return {
        "metadata": meta,
        "spec": {
            "replicas": count,
            "selector": {"matchLabels": {WORKLOAD: _short(name)}},
            "template": _build_template(pod, name, workload.name),
        },
    }


def build_daemonset(pod: Pod, name: str) -> Json:
    """The DaemonSet that a pod stands for."""
    template = _build_template(pod, name, name)
    # Its own node affinity pins a daemon's pod to its node: the controller adds that again.
    affinity = template["spec"].get("affinity") or {}
    terms = (affinity.get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    if any(term.get("matchFields") for term in terms.get("nodeSelectorTerms") or ()):
        template["spec"]["affinity"] = {key: each for key, each in affinity.items() if key != "nodeAffinity"}
    return {
        "metadata": {"name": name, "namespace": pod.namespace or "default"},
        "spec": {"selector": {"matchLabels": {WORKLOAD: _short(name)}}, "template": template},
    }


def _short(name: str) -> str:
    """A name as a label's value."""
    return name if len(name) <= 63 else f"{name[:40]}-{crc32(name.encode()):x}"


def _build_template(pod: Pod, name: str, workload: str, spec: Json | None = None) -> Json:
    return {
        "metadata": {
            "labels": {**pod.labels, WORKLOAD: _short(name)},
            "annotations": {
                **{key: value for key, value in pod.annotations.items() if key != RUN_FOR},
                WORKLOAD: workload,
            },
        },
        "spec": spec if spec is not None else build_spec(pod),
    }


def build_spec(pod: Pod) -> Json:
    """The spec of a pod like this one, before it has a node."""
    spec: Json = codec.to_dict(pod)["spec"]
    spec = {
        key: value for key, value in spec.items() if key not in ("nodeName", "priority", "resourceClaims")
    }
    for group in ("containers", "initContainers"):
        if group in spec:
            spec[group] = [
                {"image": "recorded", **each, "name": each.get("name") or f"c{number}"}
                for number, each in enumerate(spec[group])
            ]
    if not spec.get("containers"):
        spec["containers"] = [{"name": "main", "image": "recorded"}]
    return spec


def build_pod(
    pod: Pod, workload: RecordedWorkload, owner: Json | None = None, spec: Json | None = None
) -> Json:
    """One pod that waits for a node. With an owner it is its owner's; its spec may be built already."""
    name = name_replicaset(workload)
    template = _build_template(pod, name, workload.name, spec)
    meta: Json = {"name": pod.name, "namespace": pod.namespace or "default", **template["metadata"]}
    if owner is not None:
        meta["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "ReplicaSet",
                "name": owner["metadata"]["name"],
                "uid": owner["metadata"]["uid"],
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ]
    return {"metadata": meta, "spec": template["spec"]}


def bind_pod(document: Json, node: str, began: datetime, uid: str) -> Json:
    """The pod as it runs on a node since a time."""
    document = {**document, "spec": {**document["spec"], "nodeName": node}}
    scheduled = {"type": "PodScheduled", "status": "True", "lastTransitionTime": began.strftime(TIME)}
    named = {**document, "metadata": {**document["metadata"], "uid": uid}}
    named["status"] = {"phase": "Pending", "conditions": [scheduled]}
    return {**document, "status": build_running_status(named, began.strftime(TIME), is_ready=True)}


def build_budget(budget: PodDisruptionBudget, counted: bool) -> Json:
    """The PodDisruptionBudget; where its pods have no owner to count them, as the number it came to."""
    document = strip_document(budget)
    document.pop("status", None)
    if not counted:
        spec = {
            key: value
            for key, value in document["spec"].items()
            if key not in ("minAvailable", "maxUnavailable")
        }
        document["spec"] = {**spec, "minAvailable": budget.status.desired_healthy}
    return document

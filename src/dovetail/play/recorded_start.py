"""The simulated cluster as a look of a recording has it: what is there at first, and what changes later."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dovetail.api import codec, labels
from dovetail.api.core import PodDisruptionBudget
from dovetail.api.meta import Kind, Object
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput
from dovetail.history.demand import COUNTED, DemandChange, RecordedWorkload, is_going
from dovetail.play.kept_pods import KeptPods
from dovetail.play.recorded_objects import (
    TIME,
    bind_pod,
    build_budget,
    build_claim,
    build_daemonset,
    build_node,
    build_nodepool,
    build_pod,
    build_replicaset,
    find_start_hash,
    strip_document,
)
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.snapshot import SnapshotPool, StateNode, Storage
from dovetail.sim.cluster.kubelet import Kubelet
from dovetail.sim.kube.internal_writes import InternalApi
from dovetail.sim.kube.status import ApiError
from dovetail.sim.scenario_player import NODE_CLASSES
from dovetail.sim.world import World

__all__ = ["ReplacedObjects", "StartedWorld", "apply_storage", "apply_world_changes", "fill_world"]

Json = dict[str, Any]
POOLS, CLAIMS, NODES = "nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "nodes"
BUDGETS, REPLICASETS, DAEMONSETS = "poddisruptionbudgets.policy", "replicasets.apps", "daemonsets.apps"
PRIORITIES, STORAGE_CLASSES = "priorityclasses.scheduling.k8s.io", "storageclasses.storage.k8s.io"
VOLUMES, VOLUME_CLAIMS = "persistentvolumes", "persistentvolumeclaims"


@dataclass(frozen=True, slots=True)
class ReplacedObjects:
    """The objects that a variation has its own of: manifests, and the pods of Deployments."""

    manifests: tuple[Json, ...] = ()
    names: frozenset[tuple[str, str, str]] = frozenset()
    pods: Mapping[tuple[str, str], Pod] = field(default_factory=dict)

    @classmethod
    def from_manifests(cls, manifests: tuple[Json, ...]) -> ReplacedObjects:
        """Those of a variation; BadInput for a manifest without a kind or a name."""
        names, pods, others = set(), {}, []
        for manifest in manifests:
            meta = manifest.get("metadata") or {}
            if not manifest.get("kind") or not meta.get("name"):
                raise BadInput("a manifest of a variation has no kind or no name")
            if manifest["kind"] == "Deployment":
                pods[str(meta.get("namespace", "default")), str(meta["name"])] = _read_template(manifest)
                continue
            names.add((str(manifest["kind"]), str(meta.get("namespace", "")), str(meta["name"])))
            others.append(manifest)
        return cls(tuple(others), frozenset(names), pods)

    def covers(self, kind: str, name: str, namespace: str = "") -> bool:
        """Whether the variation has its own of an object."""
        return (kind, namespace, name) in self.names or (kind, "", name) in self.names

    def has_shape(self, workload: RecordedWorkload) -> bool:
        """Whether the Deployment that owns a ReplicaSet is one of the variation's."""
        return (workload.namespace, workload.name.rpartition("-")[0]) in self.pods

    def reshape_pod(self, workload: RecordedWorkload, pod: Pod) -> Pod:
        """The pod as its Deployment makes it in the variation; how many there are is as recorded."""
        return self.pods.get((workload.namespace, workload.name.rpartition("-")[0]), pod)


def _read_template(manifest: Json) -> Pod:
    template = (manifest.get("spec") or {}).get("template") or {}
    about = {
        **(template.get("metadata") or {}),
        "namespace": manifest["metadata"].get("namespace", "default"),
    }
    try:
        return codec.convert(Pod, {"metadata": about, "spec": template["spec"]})
    except (KeyError, ValueError, TypeError) as error:
        raise BadInput(f"Deployment {manifest['metadata']['name']}: its template cannot be read") from error


@dataclass(slots=True)
class StartedWorld:
    """A simulated cluster that follows a recording, and what of it stands in there already."""

    world: World
    api: InternalApi
    class_kind: Kind
    defaults: Mapping[str, str]
    knobs: bool
    replaced: ReplacedObjects
    pools: dict[str, object] = field(default_factory=dict)
    recorded: dict[str, NodePool] = field(default_factory=dict)
    budgets: dict[str, object] = field(default_factory=dict)
    daemons: tuple[Pod, ...] = ()
    storage: Storage = field(default_factory=Storage)
    fixed: dict[str, object] = field(default_factory=dict)

    @property
    def now(self) -> datetime:
        return self.world.clock.now()

    def find(self, resource: str, name: str, namespace: str = "") -> Json | None:
        """An object as it is now."""
        stored = self.world.server.store.get(resource, (namespace, name))
        return stored.obj if stored is not None else None

    def ensure_namespace(self, name: str, about: Mapping[str, str] | None = None) -> None:
        if name and self.find("namespaces", name) is None:
            self.world.api.create("namespaces", {"metadata": {"name": name, "labels": dict(about or {})}})

    def ensure_priority(self, pod: Pod) -> None:
        """The PriorityClass that a pod names, with the value that the pod has of it."""
        name = pod.spec.priority_class_name
        if name and self.find(PRIORITIES, name) is None:
            self.api.insert(PRIORITIES, {"metadata": {"name": name}, "value": pod.spec.priority or 0})

    def keep_time(self, resource: str, stored: Json, obj: Object) -> None:
        """An object that was there before the start is as old as it was."""
        created, meta = obj.metadata.creation_timestamp, stored["metadata"]
        if created is not None:
            about = {**meta, "creationTimestamp": created.strftime(TIME)}
            self.api.amend(resource, (meta.get("namespace", ""), meta["name"]), metadata=about)


def fill_world(
    started: StartedWorld,
    situation: Situation,
    changes: list[DemandChange],
    kept: KeptPods,
    works: Mapping[str, float],
) -> None:
    """Put there what the start look has: classes, NodePools, nodes with their pods, and budgets."""
    snapshot = situation.snapshot
    for name, about in sorted(snapshot.namespaces.items()):
        started.ensure_namespace(name, about)
    _create_classes(started, snapshot.pools)
    apply_world_changes(started, situation)
    for manifest in started.replaced.manifests:
        _apply_manifest(started, manifest)
    started.recorded = {pool.name: pool.nodepool for pool in snapshot.pools}
    there = {views.read_name(state): state for state in snapshot.nodes if _insert_node(started, state)}
    sets: dict[RecordedWorkload, Json] = {}
    slots: dict[str, DemandChange] = {}
    for change in changes:
        started.ensure_namespace(change.workload.namespace)
        started.ensure_priority(change.pod)
        if change.what == "scale":
            pod = started.replaced.reshape_pod(change.workload, change.pod)
            made = started.api.insert(REPLICASETS, build_replicaset(change.workload, pod, change.count))
            if not started.replaced.has_shape(change.workload):  # else its pods are rolled out anew
                sets[change.workload] = made
        else:
            slots[change.slot] = change
    by_owner = {(each.kind, each.namespace, each.name): (each, stored) for each, stored in sets.items()}
    for name, state in there.items():
        for pod in state.pods:
            _insert_pod(started, name, pod, by_owner, slots, kept, works)
    for slot, change in slots.items():
        job = change.workload.kind == "Job"
        kept.keep_pod(slot, build_pod(change.pod, change.workload), job=job, work=works.get(slot))
    for state in there.values():
        if is_going(state) and state.claim is not None and state.claim.deleting:
            started.world.api.delete(CLAIMS, state.claim.name)


def _insert_pod(
    started: StartedWorld,
    node: str,
    pod: Pod,
    by_owner: Mapping[tuple[str, str, str], tuple[RecordedWorkload, Json]],
    slots: dict[str, DemandChange],
    kept: KeptPods,
    works: Mapping[str, float],
) -> None:
    """A pod that runs already: of a ReplicaSet, or one that is kept by itself."""
    if pod.metadata.deletion_timestamp is not None:
        return
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    began = pod.status.start_time or pod.metadata.creation_timestamp or started.now
    if owner is not None and owner.kind in COUNTED:
        found = by_owner.get((owner.kind, pod.namespace, owner.name))
        if found is None:
            return
        document = build_pod(pod, *found)
        stored = started.api.insert("pods", bind_pod(document, node, began, pod.uid or pod.name))
        started.keep_time("pods", stored, pod)
        return
    change = slots.pop(pod.full_name, None)
    if change is None:
        return
    document = build_pod(pod, change.workload)
    job = change.workload.kind == "Job"
    stored = started.api.insert("pods", bind_pod(document, node, began, pod.uid or pod.name))
    started.keep_time("pods", stored, pod)
    kept.keep_running(change.slot, document, stored, job=job, work=works.get(change.slot))


def _create_classes(started: StartedWorld, pools: tuple[SnapshotPool, ...]) -> None:
    """A node class for each that NodePools name; nobody checks it against a cloud, so it is ready."""
    kind = started.class_kind
    provider = next((name for name, spec in NODE_CLASSES.items() if spec and kind.kind.startswith("EC2")), "")
    names = {pool.nodepool.spec.template.spec.node_class_ref.name for pool in pools}
    for name in sorted(names - {""}):
        document: Json = {"metadata": {"name": name}}
        if provider:
            document["spec"] = NODE_CLASSES[provider]
        started.world.api.create(kind.resource, document)
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": started.now.strftime(TIME),
        }
        if provider:
            patch = {"status": {"conditions": [ready]}}
            started.world.api.patch(kind.resource, name, patch, subresource="status")


def _insert_node(started: StartedWorld, state: StateNode) -> bool:
    """The node with its NodeClaim; whether it is there. One that is still booting is ordered anew."""
    node, claim = state.node, state.claim
    if node is None:
        return False
    pool = claim.labels.get(labels.NODEPOOL, "") if claim is not None else ""
    made = started.find(POOLS, pool)
    owner = None
    if claim is not None and made is not None:
        recorded = started.recorded.get(pool)
        known = find_start_hash(claim, recorded, codec.convert(NodePool, made)) if recorded else None
        owner = started.api.insert(CLAIMS, build_claim(claim, node.name, known))
        started.keep_time(CLAIMS, owner, claim)
    stored = started.api.insert(NODES, build_node(state, started.now.strftime(TIME), owner))
    started.keep_time(NODES, stored, node)
    kubelet = started.world.neighbours["kubelet"]
    assert isinstance(kubelet, Kubelet)
    kubelet.mark_started(node.name)
    if owner is None:
        started.fixed[node.name] = state
    return True


def apply_world_changes(started: StartedWorld, situation: Situation) -> None:
    """What others changed since the look before: NodePools, budgets, DaemonSets, volumes."""
    snapshot = situation.snapshot
    for pool in snapshot.pools:
        _apply_pool(started, pool)
    for name in started.pools.keys() - {pool.name for pool in snapshot.pools}:
        del started.pools[name]
        _ignore_missing_delete(started, POOLS, name)
    _apply_budgets(started, snapshot.budgets, situation)
    if snapshot.daemons is not started.daemons:
        _apply_daemons(started, snapshot.daemons)
    apply_storage(started, snapshot.storage)
    _apply_fixed_nodes(started, snapshot.nodes)


def _apply_pool(started: StartedWorld, pool: SnapshotPool) -> None:
    nodepool = pool.nodepool
    if started.replaced.covers("NodePool", pool.name):
        return
    if nodepool.spec.template.spec.node_class_ref.kind not in ("", started.class_kind.kind):
        return
    document = build_nodepool(nodepool, started.defaults, started.knobs)
    told = (document["spec"], document["metadata"].get("annotations"))
    if started.pools.get(pool.name) == told:
        return
    first = pool.name not in started.pools
    started.pools[pool.name] = told
    if first:
        started.world.api.create(POOLS, document)
    else:
        stored = started.find(POOLS, pool.name) or {}
        about = {**stored["metadata"], "annotations": document["metadata"].get("annotations") or {}}
        started.api.amend(POOLS, ("", pool.name), spec=document["spec"], metadata=about)


def _apply_budgets(
    started: StartedWorld, budgets: tuple[PodDisruptionBudget, ...], situation: Situation
) -> None:
    if started.budgets.get("") is budgets:
        return
    listed = {budget.full_name: budget for budget in budgets}
    for name, budget in listed.items():
        if started.replaced.covers("PodDisruptionBudget", budget.name, budget.namespace):
            continue
        counted = _is_counted(budget, situation)
        told = (budget.spec, None if counted else budget.status.desired_healthy)
        if started.budgets.get(name) == told:
            continue
        first, document = name not in started.budgets, build_budget(budget, counted)
        started.budgets[name] = told
        started.ensure_namespace(budget.namespace)
        if first:
            started.api.insert(BUDGETS, document)
        else:
            started.api.amend(BUDGETS, (budget.namespace, budget.name), spec=document["spec"])
    for name in started.budgets.keys() - listed.keys() - {""}:
        del started.budgets[name]
        namespace, _, own = name.partition("/")
        _ignore_missing_delete(started, BUDGETS, own, namespace)
    started.budgets[""] = budgets


def _is_counted(budget: PodDisruptionBudget, situation: Situation) -> bool:
    """Whether all pods of the budget have an owner that says how many there should be."""
    selector = budget.spec.selector
    snapshot = situation.snapshot
    for pods in (snapshot.pods, *(state.pods for state in snapshot.nodes)):
        for pod in pods:
            if pod.namespace == budget.namespace and matches_selector(selector, pod.labels):
                owners = [each.kind for each in pod.metadata.owner_references if each.controller]
                return bool(owners) and owners[0] in COUNTED
    return True


def _apply_daemons(started: StartedWorld, daemons: tuple[Pod, ...]) -> None:
    known = {_name_daemon(pod): pod for pod in started.daemons}
    for pod in daemons:
        name = _name_daemon(pod)
        if name in known:
            continue  # one that is rolled out anew requests what it did, as far as anybody told
        started.ensure_namespace(pod.namespace)
        started.ensure_priority(pod)
        document = build_daemonset(pod, name)
        if started.find(DAEMONSETS, name, document["metadata"]["namespace"]) is None:
            started.api.insert(DAEMONSETS, document)
    for name in known.keys() - {_name_daemon(pod) for pod in daemons}:
        _ignore_missing_delete(started, DAEMONSETS, name, known[name].namespace or "default")
    started.daemons = daemons


def _name_daemon(pod: Pod) -> str:
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    return owner.name if owner is not None else pod.name or "daemon"


def apply_storage(started: StartedWorld, storage: Storage) -> None:
    """Volumes and claims that are new; a claim that the simulated cluster has bound by itself stays so."""
    if storage is started.storage:
        return
    for name, each in sorted(storage.classes.items()):
        if started.find(STORAGE_CLASSES, name) is None:
            started.api.insert(STORAGE_CLASSES, strip_document(each))
    for _, claim in sorted(storage.claims.items()):
        if started.find(VOLUME_CLAIMS, claim.name, claim.namespace) is not None:
            continue
        volume = storage.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        document = strip_document(claim)
        document["metadata"].pop("finalizers", None)
        started.ensure_namespace(claim.namespace)
        stored = started.api.insert(VOLUME_CLAIMS, document)
        if volume is not None:
            started.api.amend(
                VOLUME_CLAIMS, (claim.namespace, claim.name), "status", status={"phase": "Bound"}
            )
            if started.find(VOLUMES, volume.name) is None:
                bound = strip_document(volume)
                bound["metadata"].pop("finalizers", None)
                meta = stored["metadata"]
                reference = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
                bound["spec"] = {**bound.get("spec", {}), "claimRef": reference}
                started.api.insert(VOLUMES, {**bound, "status": {"phase": "Bound"}})
    started.storage = storage


def _apply_fixed_nodes(started: StartedWorld, nodes: tuple[StateNode, ...]) -> None:
    """Nodes that no NodePool has are there while they were there."""
    fixed = {state.node.name: state for state in nodes if state.node is not None and state.claim is None}
    for name in [name for name in started.fixed if name not in fixed]:
        del started.fixed[name]
        _ignore_missing_delete(started, NODES, name)
    for name, state in fixed.items():
        if name not in started.fixed and started.find(NODES, name) is None:
            _insert_node(started, state)


def _ignore_missing_delete(started: StartedWorld, resource: str, name: str, namespace: str = "") -> None:
    try:
        started.world.api.delete(resource, name, namespace)
    except ApiError as error:
        if error.code != 404:
            raise


def _apply_manifest(started: StartedWorld, manifest: Json) -> None:
    """An object of a variation in the place of its namesake; BadInput when the API server refuses it."""
    group, _, _ = str(manifest.get("apiVersion", "v1")).rpartition("/")
    kind, meta = str(manifest["kind"]).lower(), manifest["metadata"]
    plural = kind + ("es" if kind.endswith("s") else "s")
    resource = f"{plural}.{group}" if group else plural
    namespace = str(meta.get("namespace", ""))
    try:
        if started.find(resource, meta["name"], namespace) is None:
            started.world.api.create(resource, manifest, namespace)
        else:
            started.world.api.patch(resource, meta["name"], manifest, namespace)
    except (ApiError, KeyError) as error:
        raise BadInput(f"{manifest['kind']} {meta['name']}: {error}") from error

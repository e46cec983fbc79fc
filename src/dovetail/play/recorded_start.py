"""The simulated cluster as the first look of a recording has it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dovetail.api.pod import Pod, PodSpec
from dovetail.disruption.situation import Situation
from dovetail.errors import BadInput
from dovetail.history.demand import COUNTED, DemandChange, RecordedWorkload, is_going
from dovetail.play.kept_pods import KeptPods
from dovetail.play.recorded_changes import apply_world_changes
from dovetail.play.recorded_objects import TIME, bind_pod, build_pod, build_replicaset, build_spec
from dovetail.play.started_world import CLAIMS, StartedWorld
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot import SnapshotPool
from dovetail.sim.kube.status import ApiError
from dovetail.sim.scenario_player import NODE_CLASSES

__all__ = ["fill_world"]

Json = dict[str, Any]
REPLICASETS = "replicasets.apps"


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
    there = {views.read_name(state): state for state in snapshot.nodes if started.insert_node(state)}
    sets: dict[RecordedWorkload, Json] = {}
    slots: dict[str, DemandChange] = {}
    for change in changes:
        started.ensure_namespace(change.workload.namespace)
        started.ensure_priority(change.pod)
        if change.what == "scale":
            pod = started.replaced.reshape_pod(change.workload, change.pod)
            family = started.ensure_family(change.workload, change.pod)
            document = build_replicaset(change.workload, pod, change.count, family)
            made = started.api.insert(REPLICASETS, document)
            if not started.replaced.has_shape(change.workload):  # else its pods are rolled out anew
                sets[change.workload] = made
        else:
            slots[change.slot] = change
    by_owner = {(each.kind, each.namespace, each.name): (each, stored) for each, stored in sets.items()}
    specs = SharedSpecs()
    for name, state in there.items():
        for pod in state.pods:
            _insert_pod(started, name, pod, specs, by_owner, slots, kept, works)
    for slot, change in slots.items():
        job = change.workload.kind == "Job"
        kept.keep_pod(slot, build_pod(change.pod, change.workload), job=job, work=works.get(slot))
    for state in there.values():
        if is_going(state) and state.claim is not None and state.claim.deleting:
            started.world.api.delete(CLAIMS, state.claim.name)


class SharedSpecs:
    """The specs of pods as documents: most pods of a recording share theirs, and each is built once."""

    def __init__(self) -> None:
        # A spec is kept with its document, so that no other one can take over its id.
        self._built: dict[int, tuple[PodSpec, Json]] = {}

    def find(self, pod: Pod) -> Json:
        """The document of this pod's spec."""
        known = self._built.get(id(pod.spec))
        if known is None:
            known = self._built[id(pod.spec)] = pod.spec, build_spec(pod)
        return known[1]


def _insert_pod(
    started: StartedWorld,
    node: str,
    pod: Pod,
    specs: SharedSpecs,
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
        document = build_pod(pod, *found, specs.find(pod))
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

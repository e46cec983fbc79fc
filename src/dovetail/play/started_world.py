"""StartedWorld: the simulated cluster that follows a recording, and what a variation has its own of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from dovetail.api import codec, labels
from dovetail.api.meta import Kind, Object
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.errors import BadInput
from dovetail.history.demand import RecordedWorkload
from dovetail.play.recorded_objects import TIME, build_claim, build_node, find_deployment, find_start_hash
from dovetail.scheduling.model.snapshot import StateNode, Storage
from dovetail.sim.cluster.kubelet import Kubelet
from dovetail.sim.kube.internal_writes import InternalApi
from dovetail.sim.kube.status import ApiError
from dovetail.sim.world import World

__all__ = ["ReplacedObjects", "StartedWorld"]

Json = dict[str, Any]
POOLS, CLAIMS, NODES = "nodepools.karpenter.sh", "nodeclaims.karpenter.sh", "nodes"
FAMILIES = "configmaps"
PRIORITIES = "priorityclasses.scheduling.k8s.io"


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


class _SeenTemplate(NamedTuple):
    """The template of a NodePool as its hash tells, and what tells apart the nodes made before and after."""

    version: str
    hash: str
    mark: str = ""


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
    templates: dict[str, _SeenTemplate] = field(default_factory=dict)
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

    def ensure_family(self, workload: RecordedWorkload, pod: Pod) -> Json | None:
        """What stands for the Deployment of a ReplicaSet; None where it has none.

        When a ReplicaSet shrinks it lets go first of the pod that has most pods of its Deployment beside it,
        also of those that another ReplicaSet made. There is no Deployment here, for nobody is to roll out.
        """
        name, namespace = find_deployment(workload, pod), workload.namespace
        if not name:
            return None
        known = self.find(FAMILIES, f"{name}.deployment", namespace)
        return known or self.api.insert(
            FAMILIES, {"metadata": {"name": f"{name}.deployment", "namespace": namespace}}
        )

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

    def delete_quietly(self, resource: str, name: str, namespace: str = "") -> None:
        """Delete an object that may be gone already."""
        try:
            self.world.api.delete(resource, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise

    def mark_template(self, pool: NodePool) -> str:
        """What tells the template of a NodePool from that of earlier looks; empty while it is the same.

        A recording does not have all of a template, but its hash. The first hash of a new NodePool changes
        nothing, and neither does one that another version of its controller computes otherwise.
        """
        known = self.templates.get(pool.name)
        current = pool.annotations.get(labels.NODEPOOL_HASH, "")
        version = pool.annotations.get(labels.NODEPOOL_HASH_VERSION, "")
        if not current:
            return known.mark if known is not None else ""
        mark = known.mark if known is not None else ""
        if known is not None and known.version == version and known.hash != current:
            mark = current
        self.templates[pool.name] = _SeenTemplate(version, current, mark)
        return mark

    def insert_node(self, state: StateNode) -> bool:
        """The node with its NodeClaim; whether it is there. One that is still booting is ordered anew."""
        node, claim = state.node, state.claim
        if node is None:
            return False
        if self.find(NODES, node.name) is not None:
            return True  # one that no NodePool has comes with what others change
        pool = claim.labels.get(labels.NODEPOOL, "") if claim is not None else ""
        made = self.find(POOLS, pool)
        owner = None
        if claim is not None and made is not None:
            recorded = self.recorded.get(pool)
            known = find_start_hash(claim, recorded, codec.convert(NodePool, made)) if recorded else None
            owner = self.api.insert(CLAIMS, build_claim(claim, node.name, known))
            self.keep_time(CLAIMS, owner, claim)
        stored = self.api.insert(NODES, build_node(state, self.now.strftime(TIME), owner))
        self.keep_time(NODES, stored, node)
        kubelet = self.world.neighbours["kubelet"]
        assert isinstance(kubelet, Kubelet)
        kubelet.mark_started(node.name)
        if owner is None:
            self.fixed[node.name] = state
        return True

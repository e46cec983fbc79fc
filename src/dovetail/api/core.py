"""The core kinds we read: nodes, workloads, disruption budgets, volumes, leases and events.

Only the fields Dovetail reads are here; the codec carries the others through a read-modify-write.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, ClassVar

from dovetail.api.meta import Amounts, Condition, Kind, LabelSelector, Object, Record
from dovetail.api.pod import NodeSelector, NodeSelectorRequirement, PodTemplate
from dovetail.errors import shorten_text

__all__ = [
    "CSINode",
    "CSINodeDriver",
    "CronJob",
    "DaemonSet",
    "Deployment",
    "DeploymentSpec",
    "Event",
    "HorizontalPodAutoscaler",
    "Job",
    "Lease",
    "LimitRange",
    "LimitRangeItem",
    "Namespace",
    "Node",
    "ObjectReference",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "PodDisruptionBudget",
    "PodTemplateObject",
    "ReplicaSet",
    "Service",
    "StatefulSet",
    "StorageClass",
    "Taint",
    "VolumeAttachment",
]


class Taint(Record, frozen=True):
    """A reason for pods to stay away from a node."""

    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: datetime | None = None


class NodeSpec(Record, frozen=True, rename={"provider_id": "providerID"}):
    """What a node is told."""

    provider_id: str = ""
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False


class AttachedVolume(Record, frozen=True):
    """A volume the node says is attached to it."""

    name: str = ""
    device_path: str = ""


class NodeAddress(Record, frozen=True):
    """One way to reach a node."""

    type: str = ""
    address: str = ""


class NodeStatus(Record, frozen=True):
    """What a node reports."""

    capacity: Amounts = {}
    allocatable: Amounts = {}
    conditions: tuple[Condition, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    volumes_attached: tuple[AttachedVolume, ...] = ()

    def find_condition(self, kind: str) -> Condition | None:
        return next((c for c in self.conditions if c.type == kind), None)


class Node(Object, frozen=True):
    """A node of the cluster."""

    KIND: ClassVar[Kind] = Kind("", "v1", "Node", "nodes", namespaced=False)

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    def find_doubt(self) -> str:
        """A kubelet that reports an amount no machine has is not believed about any amount."""
        for field, listed in (("capacity", self.status.capacity), ("allocatable", self.status.allocatable)):
            for name, amount in listed.items():
                if amount.boundless:
                    return f"status.{field}[{shorten_text(name)}] is more than any machine has"
        return ""


class RollingUpdate(Record, frozen=True):
    """How many pods may be there beyond the number asked for while a Deployment is rolled out."""

    max_surge: int | str | None = None


class RolloutStrategy(Record, frozen=True):
    """How a Deployment goes from its old pods to new ones."""

    type: str = ""
    rolling_update: RollingUpdate | None = None


class WorkloadSpec(Record, frozen=True):
    """What Deployments, ReplicaSets, StatefulSets and DaemonSets have in common."""

    replicas: int | None = None
    selector: LabelSelector | None = None
    template: PodTemplate = PodTemplate()


class DeploymentSpec(WorkloadSpec, frozen=True):
    """Workload fields, plus how a new template is rolled out."""

    strategy: RolloutStrategy = RolloutStrategy()


class WorkloadStatus(Record, frozen=True):
    """How far a workload has come."""

    replicas: int = 0
    ready_replicas: int = 0


class Deployment(Object, frozen=True):
    """A set of interchangeable pods."""

    KIND: ClassVar[Kind] = Kind("apps", "v1", "Deployment", "deployments")

    spec: DeploymentSpec = DeploymentSpec()
    status: WorkloadStatus = WorkloadStatus()


class ReplicaSet(Object, frozen=True):
    """One generation of a Deployment's pods."""

    KIND: ClassVar[Kind] = Kind("apps", "v1", "ReplicaSet", "replicasets")

    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class DaemonSet(Object, frozen=True):
    """One pod on every node that suits it."""

    KIND: ClassVar[Kind] = Kind("apps", "v1", "DaemonSet", "daemonsets")

    spec: WorkloadSpec = WorkloadSpec()


class JobSpec(Record, frozen=True):
    """Pods that run to an end."""

    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    template: PodTemplate = PodTemplate()


class Job(Object, frozen=True):
    """Pods that run to an end."""

    KIND: ClassVar[Kind] = Kind("batch", "v1", "Job", "jobs")

    spec: JobSpec = JobSpec()


class JobTemplate(Record, frozen=True):
    """The jobs a CronJob makes."""

    spec: JobSpec = JobSpec()


class CronJobSpec(Record, frozen=True):
    """When, and what."""

    schedule: str = ""
    suspend: bool | None = None
    job_template: JobTemplate = JobTemplate()


class CronJob(Object, frozen=True):
    """Jobs by the clock."""

    KIND: ClassVar[Kind] = Kind("batch", "v1", "CronJob", "cronjobs")

    spec: CronJobSpec = CronJobSpec()


class ScaleTarget(Record, frozen=True):
    """The workload that an autoscaler scales."""

    kind: str = ""
    name: str = ""


class HorizontalPodAutoscalerSpec(Record, frozen=True):
    """Between which numbers of pods a workload is scaled."""

    scale_target_ref: ScaleTarget = ScaleTarget()
    min_replicas: int | None = None
    max_replicas: int = 1


class HorizontalPodAutoscaler(Object, frozen=True):
    """Something else that says how many pods a workload has."""

    KIND: ClassVar[Kind] = Kind("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers")

    spec: HorizontalPodAutoscalerSpec = HorizontalPodAutoscalerSpec()


class PodTemplateObject(Object, frozen=True):
    """A stored pod template, as capacity buffers refer to."""

    KIND: ClassVar[Kind] = Kind("", "v1", "PodTemplate", "podtemplates")

    template: PodTemplate = PodTemplate()


class ServiceSpec(Record, frozen=True):
    """Which pods a service means."""

    selector: Mapping[str, str] = {}


class Service(Object, frozen=True):
    """A service; read to deduce default spread selectors."""

    KIND: ClassVar[Kind] = Kind("", "v1", "Service", "services")

    spec: ServiceSpec = ServiceSpec()


class PodDisruptionBudgetSpec(Record, frozen=True):
    """How many pods of a set may be down."""

    selector: LabelSelector | None = None
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    unhealthy_pod_eviction_policy: str | None = None


class PodDisruptionBudgetStatus(Record, frozen=True):
    """What the budget allows right now."""

    observed_generation: int = 0
    disruptions_allowed: int = 0
    current_healthy: int = 0
    desired_healthy: int = 0
    expected_pods: int = 0
    disrupted_pods: Mapping[str, datetime] = {}


class PodDisruptionBudget(Object, frozen=True):
    """A limit on voluntary evictions."""

    KIND: ClassVar[Kind] = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")

    spec: PodDisruptionBudgetSpec = PodDisruptionBudgetSpec()
    status: PodDisruptionBudgetStatus = PodDisruptionBudgetStatus()


class ObjectReference(Record, frozen=True):
    """A pointer to another object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class VolumeNodeAffinity(Record, frozen=True):
    """Where a volume can be reached from."""

    required: NodeSelector | None = None


class CSIVolume(Record, frozen=True):
    """A volume made by a CSI driver."""

    driver: str = ""
    volume_handle: str = ""


class PersistentVolumeSpec(Record, frozen=True):
    """A volume, as far as placement cares."""

    node_affinity: VolumeNodeAffinity | None = None
    csi: CSIVolume | None = None
    storage_class_name: str = ""
    claim_ref: ObjectReference | None = None
    # Volumes bound to one machine (local, hostPath) carry no usable topology for a new node.
    local: Mapping[str, str] | None = None
    host_path: Mapping[str, str] | None = None
    aws_elastic_block_store: Mapping[str, Any] | None = None
    gce_persistent_disk: Mapping[str, Any] | None = None
    azure_disk: Mapping[str, Any] | None = None


class PersistentVolume(Object, frozen=True):
    """A piece of storage."""

    KIND: ClassVar[Kind] = Kind("", "v1", "PersistentVolume", "persistentvolumes", namespaced=False)

    spec: PersistentVolumeSpec = PersistentVolumeSpec()


class PersistentVolumeClaimSpec(Record, frozen=True):
    """What storage a pod asks for."""

    storage_class_name: str | None = None
    volume_name: str = ""
    access_modes: tuple[str, ...] = ()


class PersistentVolumeClaimStatus(Record, frozen=True):
    """Whether the claim is bound."""

    phase: str = ""


class PersistentVolumeClaim(Object, frozen=True):
    """A request for storage."""

    KIND: ClassVar[Kind] = Kind("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")

    spec: PersistentVolumeClaimSpec = PersistentVolumeClaimSpec()
    status: PersistentVolumeClaimStatus = PersistentVolumeClaimStatus()


class StatefulSetSpec(WorkloadSpec, frozen=True):
    """Workload fields, plus the claims each pod gets."""

    volume_claim_templates: tuple[PersistentVolumeClaim, ...] = ()


class StatefulSet(Object, frozen=True):
    """Pods with names and volumes of their own."""

    KIND: ClassVar[Kind] = Kind("apps", "v1", "StatefulSet", "statefulsets")

    spec: StatefulSetSpec = StatefulSetSpec()
    status: WorkloadStatus = WorkloadStatus()


class TopologySelectorTerm(Record, frozen=True):
    """All of these label values together."""

    match_label_expressions: tuple[NodeSelectorRequirement, ...] = ()


class StorageClass(Object, frozen=True):
    """A way to make volumes, and where they may lie."""

    KIND: ClassVar[Kind] = Kind("storage.k8s.io", "v1", "StorageClass", "storageclasses", namespaced=False)

    provisioner: str = ""
    volume_binding_mode: str = ""
    allowed_topologies: tuple[TopologySelectorTerm, ...] = ()


class Allocatable(Record, frozen=True):
    """How many volumes of a driver a node can hold."""

    count: int | None = None


class CSINodeDriver(Record, frozen=True, rename={"node_id": "nodeID", "topology_keys": "topologyKeys"}):
    """One CSI driver on one node."""

    name: str = ""
    node_id: str = ""
    allocatable: Allocatable | None = None
    topology_keys: tuple[str, ...] = ()


class CSINodeSpec(Record, frozen=True):
    """The drivers of a node."""

    drivers: tuple[CSINodeDriver, ...] = ()


class CSINode(Object, frozen=True):
    """A node as its CSI drivers see it."""

    KIND: ClassVar[Kind] = Kind("storage.k8s.io", "v1", "CSINode", "csinodes", namespaced=False)

    spec: CSINodeSpec = CSINodeSpec()


class VolumeAttachmentSource(Record, frozen=True):
    """Which volume is attached."""

    persistent_volume_name: str | None = None


class VolumeAttachmentSpec(Record, frozen=True):
    """Which volume, where, by whom."""

    attacher: str = ""
    node_name: str = ""
    source: VolumeAttachmentSource = VolumeAttachmentSource()


class VolumeAttachment(Object, frozen=True):
    """A volume attached to a node, or on its way."""

    KIND: ClassVar[Kind] = Kind(
        "storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", namespaced=False
    )

    spec: VolumeAttachmentSpec = VolumeAttachmentSpec()


class Namespace(Object, frozen=True):
    """A namespace; its labels matter to affinity terms."""

    KIND: ClassVar[Kind] = Kind("", "v1", "Namespace", "namespaces", namespaced=False)


class LimitRangeItem(Record, frozen=True):
    """What a kind of thing (`type`: Container, Pod, …) may ask for, and what it gets without asking."""

    type: str = ""
    default: Amounts = {}
    default_request: Amounts = {}
    min: Amounts = {}
    max: Amounts = {}


class LimitRangeSpec(Record, frozen=True):
    """The ranges, one for each kind of thing."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(Object, frozen=True):
    """Defaults and bounds for the pods of a namespace, applied when they are created."""

    KIND: ClassVar[Kind] = Kind("", "v1", "LimitRange", "limitranges")

    spec: LimitRangeSpec = LimitRangeSpec()


class EventSeries(Record, frozen=True):
    """How often an event happened again."""

    count: int = 0
    last_observed_time: datetime | None = None


class Event(Object, frozen=True):
    """Something that happened to an object, told to people (events.k8s.io/v1)."""

    KIND: ClassVar[Kind] = Kind("events.k8s.io", "v1", "Event", "events")

    event_time: datetime | None = None
    series: EventSeries | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""


class LeaseSpec(Record, frozen=True):
    """Who holds a lease, and for how long."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: datetime | None = None
    renew_time: datetime | None = None
    lease_transitions: int | None = None


class Lease(Object, frozen=True):
    """A lease: leadership, or a node's heartbeat."""

    KIND: ClassVar[Kind] = Kind("coordination.k8s.io", "v1", "Lease", "leases")

    spec: LeaseSpec = LeaseSpec()

"""Pods: only what scheduling, draining and disruption read of them.

Most pods of a workload differ in name and node alone, so a Pod holds what is its own and shares
the rest: `spec` (without the node) and labels are interned by the codec, and pods of one shape
hold the very same object. The node a pod is bound to is `pod.node_name`, not part of the spec.
What the codec drops on the way in is listed in pod_codec.py.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cached_property
from typing import ClassVar, Final

from dovetail.api import quantity
from dovetail.api.labels import PODS
from dovetail.api.meta import Amounts, Condition, Kind, LabelSelector, Object, ObjectMeta, Record
from dovetail.api.quantity import Quantity

__all__ = [
    "Affinity",
    "Container",
    "ContainerPort",
    "ContainerStatus",
    "NodeAffinity",
    "NodeSelector",
    "NodeSelectorRequirement",
    "NodeSelectorTerm",
    "Pod",
    "PodAffinity",
    "PodAffinityTerm",
    "PodResourceClaim",
    "PodSpec",
    "PodStatus",
    "PodTemplate",
    "PreferredTerm",
    "ResourceRequirements",
    "SchedulingGate",
    "Toleration",
    "TopologySpreadConstraint",
    "Volume",
    "WeightedPodAffinityTerm",
]

REQUIRED = {
    "required": "requiredDuringSchedulingIgnoredDuringExecution",
    "preferred": "preferredDuringSchedulingIgnoredDuringExecution",
}


class NodeSelectorRequirement(Record, frozen=True):
    """One condition on a node label (or on a field, in match_fields)."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class NodeSelectorTerm(Record, frozen=True):
    """All of these conditions together."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()


class NodeSelector(Record, frozen=True):
    """Any one of these terms."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredTerm(Record, frozen=True):
    """A term a pod would like its node to meet, and how much."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


class NodeAffinity(Record, frozen=True, rename=REQUIRED):
    """Which nodes a pod needs, and which it would rather have."""

    required: NodeSelector | None = None
    preferred: tuple[PreferredTerm, ...] = ()


class PodAffinityTerm(Record, frozen=True):
    """Which pods to be near to or away from, and what near means."""

    topology_key: str = ""
    label_selector: LabelSelector | None = None
    namespaces: tuple[str, ...] = ()
    namespace_selector: LabelSelector | None = None
    match_label_keys: tuple[str, ...] = ()
    mismatch_label_keys: tuple[str, ...] = ()


class WeightedPodAffinityTerm(Record, frozen=True):
    """A pod affinity a pod would like to have met, and how much."""

    weight: int = 0
    pod_affinity_term: PodAffinityTerm = PodAffinityTerm()


class PodAffinity(Record, frozen=True, rename=REQUIRED):
    """Required and preferred nearness, or distance, to other pods."""

    required: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[WeightedPodAffinityTerm, ...] = ()


class Affinity(Record, frozen=True):
    """The three affinities of a pod."""

    node_affinity: NodeAffinity | None = None
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Toleration(Record, frozen=True):
    """A taint a pod does not mind."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None


class TopologySpreadConstraint(Record, frozen=True):
    """How evenly matching pods must lie over the values of one node label."""

    max_skew: int = 0
    topology_key: str = ""
    when_unsatisfiable: str = ""
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


class ContainerPort(
    Record,
    frozen=True,
    rename={"container_port": "containerPort", "host_port": "hostPort", "host_ip": "hostIP"},
):
    """A port; only those with a host port matter to scheduling."""

    container_port: int = 0
    host_port: int = 0
    host_ip: str = ""
    protocol: str = ""


class ResourceClaimUse(Record, frozen=True):
    """One of the pod's resource claims that a container uses; all of it, or one request of it."""

    name: str = ""
    request: str = ""


class ResourceRequirements(Record, frozen=True):
    """What a container (or a whole pod) asks for and may use at most; `claims` names pod resource claims."""

    requests: Amounts = {}
    limits: Amounts = {}
    claims: tuple[ResourceClaimUse, ...] = ()


class Container(Record, frozen=True):
    """One container; `restart_policy` is Always on a sidecar among the init containers."""

    name: str = ""
    resources: ResourceRequirements = ResourceRequirements()
    ports: tuple[ContainerPort, ...] = ()
    restart_policy: str = ""


class PersistentVolumeClaimSource(Record, frozen=True):
    """A volume that is a claim of that name in the pod's namespace."""

    claim_name: str = ""


class ClaimTemplateSpec(Record, frozen=True):
    """What an ephemeral volume's claim asks for, as far as placement cares."""

    storage_class_name: str | None = None
    volume_name: str = ""


class ClaimTemplate(Record, frozen=True):
    """The claim an ephemeral volume makes for itself; its spec is core.PersistentVolumeClaimSpec."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ClaimTemplateSpec | None = None


class EphemeralSource(Record, frozen=True):
    """A volume whose claim is made with the pod, named `<pod>-<volume>`."""

    volume_claim_template: ClaimTemplate | None = None


class Volume(Record, frozen=True):
    """A volume of a pod; kept only when it is a claim, or makes one."""

    name: str = ""
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    ephemeral: EphemeralSource | None = None


class SchedulingGate(Record, frozen=True):
    """A reason not to schedule this pod yet."""

    name: str = ""


class PodResourceClaim(Record, frozen=True):
    """A device claim of the pod: one that exists, or one made from a template."""

    name: str = ""
    resource_claim_name: str | None = None
    resource_claim_template_name: str | None = None


ONE_POD: Final = Quantity.parse("1")
_ALWAYS: Final = "Always"


class PodSpec(Record, frozen=True, gc=True, dict=True):
    """What a pod asks of its place. The node it was bound to is on the Pod.

    It has a `__dict__` for what follows from its fields alone; that is neither compared, copied nor sent.
    """

    node_selector: Mapping[str, str] = {}
    affinity: Affinity | None = None
    tolerations: tuple[Toleration, ...] = ()
    topology_spread_constraints: tuple[TopologySpreadConstraint, ...] = ()
    containers: tuple[Container, ...] = ()
    init_containers: tuple[Container, ...] = ()
    resources: ResourceRequirements | None = None
    overhead: Amounts = {}
    volumes: tuple[Volume, ...] = ()
    resource_claims: tuple[PodResourceClaim, ...] = ()
    scheduling_gates: tuple[SchedulingGate, ...] = ()
    scheduler_name: str = ""
    priority: int | None = None
    priority_class_name: str = ""
    preemption_policy: str = ""
    restart_policy: str = ""
    host_network: bool = False
    termination_grace_period_seconds: int | None = None

    @cached_property
    def nano_requests(self) -> dict[str, int]:
        """What each pod of this spec requests, in billionths, its pod slot included. Not to be written to.

        It is computed once for all pods that share the spec; a pod that is being resized may request more.
        """
        requested = self.sum_amounts("requests", lambda container: container.resources.requests)
        return {name: amount.nano for name, amount in (requested | {PODS: ONE_POD}).items()}

    def sum_amounts(self, field: str, read: Callable[[Container], Amounts]) -> dict[str, Quantity]:
        """The effective requests or limits of a pod, from what each of its containers has."""
        app = quantity.add_amounts({}, *(read(each) for each in self.containers))
        side: dict[str, Quantity] = {}
        init: dict[str, Quantity] = {}
        for container in self.init_containers:
            own = read(container)
            if container.restart_policy == _ALWAYS:
                app, side = quantity.add_amounts(app, own), quantity.add_amounts(side, own)
                init = quantity.max_amounts(init, side)
            else:
                init = quantity.max_amounts(init, quantity.add_amounts(own, side))
        total = quantity.max_amounts(app, init)
        total |= _read_pod_level(self.resources, field)
        return _add_overhead(total, self.overhead, only_where_set=field == "limits")


def _read_pod_level(resources: ResourceRequirements | None, field: str) -> dict[str, Quantity]:
    if resources is None:
        return {}
    listed: Amounts = getattr(resources, field)
    return {
        name: amount
        for name, amount in listed.items()
        if name in ("cpu", "memory") or name.startswith("hugepages-")
    }


def _add_overhead(total: dict[str, Quantity], overhead: Amounts, only_where_set: bool) -> dict[str, Quantity]:
    if not only_where_set:
        return quantity.add_amounts(total, overhead)
    return {
        name: amount + overhead[name] if amount and name in overhead else amount
        for name, amount in total.items()
    }


class ContainerStatus(Record, frozen=True):
    """What a running container was given; differs from its spec while a resize is under way."""

    name: str = ""
    resources: ResourceRequirements | None = None
    allocated_resources: Amounts = {}


class PodResourceClaimStatus(Record, frozen=True):
    """The device claim made for one of the pod's claim templates."""

    name: str = ""
    resource_claim_name: str | None = None


class PodStatus(Record, frozen=True):
    """Where a pod is in its life."""

    phase: str = ""
    conditions: tuple[Condition, ...] = ()
    nominated_node_name: str = ""
    start_time: datetime | None = None
    resize: str = ""
    resources: ResourceRequirements | None = None
    container_statuses: tuple[ContainerStatus, ...] = ()
    init_container_statuses: tuple[ContainerStatus, ...] = ()
    resource_claim_statuses: tuple[PodResourceClaimStatus, ...] = ()

    def find_condition(self, kind: str) -> Condition | None:
        for condition in self.conditions:  # asked of every pod of a cluster, so it is spelled out
            if condition.type == kind:
                return condition
        return None


class PodTemplate(Record, frozen=True):
    """The pods a workload makes."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()


class Pod(Object, frozen=True):
    """A pod, running or waiting."""

    KIND: ClassVar[Kind] = Kind("", "v1", "Pod", "pods")

    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()
    node_name: str = ""

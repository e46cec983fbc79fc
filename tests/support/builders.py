"""Small builders: name what matters to a test, and the rest is a sensible default.

Amounts are texts (`cpu="1500m"`), times default to NOW, uids follow from names, and requirements may be
written as `("topology.kubernetes.io/zone", "In", "a", "b")`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dovetail.api import labels as names
from dovetail.api.core import DaemonSet, Node, NodeSpec, NodeStatus, Taint, WorkloadSpec
from dovetail.api.meta import ABSENT_LIST, ABSENT_MAP, Condition, LabelSelector, ObjectMeta, OwnerReference
from dovetail.api.nodeclaim import ClaimResources, NodeClaim, NodeClaimSpec, NodeClaimStatus
from dovetail.api.nodepool import (
    Budget,
    Disruption,
    NodeClassReference,
    NodePool,
    NodePoolSpec,
    NodePoolStatus,
    NodePoolTemplate,
    Requirement,
    TemplateMeta,
    TemplateSpec,
)
from dovetail.api.pod import (
    Container,
    ContainerPort,
    Pod,
    PodSpec,
    PodStatus,
    PodTemplate,
    ResourceRequirements,
)
from dovetail.api.quantity import Quantity

NOW = datetime(2026, 6, 1, 12, 0, 0, tzinfo=UTC)
KWOK_CLASS = NodeClassReference(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default")

RequirementLike = Requirement | tuple[str, ...]


def amounts(given: Mapping[str, str | int] | None = None, **named: str | int | None) -> dict[str, Quantity]:
    """A resource list; keyword names stand for cpu, memory and the like (`ephemeral_storage` too)."""
    texts = dict(given or {}) | {
        name.replace("_", "-"): text for name, text in named.items() if text is not None
    }
    return {name: Quantity.parse(text) for name, text in texts.items()}


def requirement(key: str, operator: str, *values: str, min_values: int | None = None) -> Requirement:
    return Requirement(key=key, operator=operator, values=values, min_values=min_values)


def _requirements(given: Iterable[RequirementLike]) -> tuple[Requirement, ...]:
    return tuple(each if isinstance(each, Requirement) else requirement(*each) for each in given)


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> Taint:
    return Taint(key=key, value=value, effect=effect)


def condition(kind: str, status: str = "True", reason: str = "", since: datetime = NOW) -> Condition:
    return Condition(
        type=kind, status=status, reason=reason or kind, last_transition_time=since, observed_generation=1
    )


def owner(kind: str, name: str = "owner", api_version: str = "apps/v1") -> OwnerReference:
    return OwnerReference(
        api_version=api_version, kind=kind, name=name, uid=f"uid-{kind.lower()}-{name}", controller=True
    )


def meta(
    kind: str,
    name: str,
    *,
    namespace: str = "",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    created: datetime = NOW,
    deleted: datetime | None = None,
    finalizers: Sequence[str] = (),
    owners: Sequence[OwnerReference] = (),
) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=namespace,
        uid=f"uid-{kind}-{namespace}-{name}" if namespace else f"uid-{kind}-{name}",
        resource_version="1",
        generation=1,
        creation_timestamp=created,
        deletion_timestamp=deleted,
        labels=labels or {},
        annotations=annotations or {},
        finalizers=tuple(finalizers),
        owner_references=tuple(owners),
    )


def container(
    name: str = "app",
    *,
    cpu: str | int | None = None,
    memory: str | int | None = None,
    requests: Mapping[str, str | int] | None = None,
    limits: Mapping[str, str | int] | None = None,
    host_ports: Sequence[int] = (),
    restart_policy: str = "",
) -> Container:
    return Container(
        name=name,
        resources=ResourceRequirements(
            requests=amounts(requests, cpu=cpu, memory=memory), limits=amounts(limits)
        ),
        ports=tuple(
            ContainerPort(container_port=port, host_port=port, protocol="TCP") for port in host_ports
        ),
        restart_policy=restart_policy,
    )


def pod(
    name: str = "pod",
    *,
    namespace: str = "default",
    cpu: str | int | None = "1",
    memory: str | int | None = "1Gi",
    requests: Mapping[str, str | int] | None = None,
    limits: Mapping[str, str | int] | None = None,
    host_ports: Sequence[int] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    node: str = "",
    owned_by: OwnerReference | None = None,
    created: datetime = NOW,
    deleted: datetime | None = None,
    **spec: Any,
) -> Pod:
    """A pod of one container: waiting and unschedulable, or running when it has a `node`.

    Further keywords are fields of PodSpec, such as `tolerations`, `affinity` or `containers`.
    """
    only = container(cpu=cpu, memory=memory, requests=requests, limits=limits, host_ports=host_ports)
    return Pod(
        metadata=meta(
            "pod",
            name,
            namespace=namespace,
            labels=labels,
            annotations=annotations,
            created=created,
            deleted=deleted,
            owners=[owned_by] if owned_by else [],
        ),
        spec=PodSpec(**({"containers": (only,), "scheduler_name": "default-scheduler"} | spec)),
        status=_running(created) if node else _unschedulable(created),
        node_name=node,
    )


def _running(since: datetime) -> PodStatus:
    ready = (condition("PodScheduled", since=since), condition("Ready", since=since))
    return PodStatus(phase="Running", conditions=ready, start_time=since)


def _unschedulable(since: datetime) -> PodStatus:
    return PodStatus(
        phase="Pending", conditions=(condition("PodScheduled", "False", "Unschedulable", since),)
    )


def daemonset(
    name: str = "daemon",
    *,
    namespace: str = "kube-system",
    cpu: str | int | None = "100m",
    memory: str | int | None = "64Mi",
    labels: Mapping[str, str] | None = None,
    **pod_fields: Any,
) -> DaemonSet:
    """A DaemonSet of one container; further keywords are those of `pod`."""
    own = dict(labels or {"app": name})
    model = pod(name, namespace=namespace, cpu=cpu, memory=memory, labels=own, **pod_fields)
    return DaemonSet(
        metadata=meta("daemonset", name, namespace=namespace),
        spec=WorkloadSpec(
            selector=LabelSelector(match_labels=own),
            template=PodTemplate(metadata=ObjectMeta(labels=own), spec=model.spec),
        ),
    )


def nodepool(
    name: str = "default",
    *,
    requirements: Iterable[RequirementLike] = (),
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    startup_taints: Sequence[Taint] = (),
    node_class: NodeClassReference = KWOK_CLASS,
    limits: Mapping[str, str | int] | None = None,
    weight: int | None = None,
    replicas: int | None = None,
    expire_after: str | None = "720h",
    termination_grace_period: str | None = None,
    consolidate_after: str = "0s",
    consolidation_policy: str = "WhenEmptyOrUnderutilized",
    budgets: Sequence[Budget] = (Budget(nodes="10%"),),
    ready: bool = True,
) -> NodePool:
    """A pool that is Ready and asks for nothing in particular."""
    template = TemplateSpec(
        node_class_ref=node_class,
        requirements=_requirements(requirements),
        taints=tuple(taints) or ABSENT_LIST,
        startup_taints=tuple(startup_taints) or ABSENT_LIST,
        expire_after=expire_after,
        termination_grace_period=termination_grace_period,
    )
    disruption = Disruption(
        consolidate_after=consolidate_after,
        consolidation_policy=consolidation_policy,
        budgets=tuple(budgets),
    )
    status = "True" if ready else "Unknown"
    return NodePool(
        metadata=meta("nodepool", name),
        spec=NodePoolSpec(
            template=NodePoolTemplate(
                metadata=TemplateMeta(labels=labels or ABSENT_MAP, annotations=annotations or ABSENT_MAP),
                spec=template,
            ),
            disruption=disruption,
            limits=amounts(limits),
            weight=weight,
            replicas=replicas,
        ),
        status=NodePoolStatus(
            conditions=tuple(
                condition(each, status) for each in ("ValidationSucceeded", "NodeClassReady", "Ready")
            )
        ),
    )


def nodeclaim(
    name: str = "default-abcde",
    *,
    nodepool: str = "default",
    requirements: Iterable[RequirementLike] = (),
    requests: Mapping[str, str | int] | None = None,
    capacity: Mapping[str, str | int] | None = None,
    allocatable: Mapping[str, str | int] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    startup_taints: Sequence[Taint] = (),
    node: str = "",
    node_class: NodeClassReference = KWOK_CLASS,
    true: Sequence[str] = ("Launched", "Registered", "Initialized"),
    created: datetime = NOW,
    deleted: datetime | None = None,
    **spec: Any,
) -> NodeClaim:
    """A claim whose conditions named in `true` hold; the others of the three are unknown."""
    node_label = names.nodeclass_label(node_class.group, node_class.kind)
    own = {names.NODEPOOL: nodepool, node_label: node_class.name} | dict(labels or {})
    dependents = ("Launched", "Registered", "Initialized")
    states = [condition(each, "True" if each in true else "Unknown", since=created) for each in dependents]
    root = condition("Ready", "True" if set(dependents) <= set(true) else "Unknown", since=created)
    room = capacity or {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return NodeClaim(
        metadata=meta(
            "nodeclaim",
            name,
            labels=own,
            annotations=annotations,
            created=created,
            deleted=deleted,
            finalizers=[names.TERMINATION],
            owners=[owner("NodePool", nodepool, "karpenter.sh/v1")],
        ),
        spec=NodeClaimSpec(
            node_class_ref=node_class,
            requirements=_requirements(requirements),
            resources=ClaimResources(requests=amounts(requests)),
            taints=tuple(taints),
            startup_taints=tuple(startup_taints),
            **spec,
        ),
        status=NodeClaimStatus(
            node_name=node,
            provider_id=f"kwok://{node or name}" if "Launched" in true else "",
            capacity=amounts(room),
            allocatable=amounts(allocatable or room),
            conditions=(*states, root),
        ),
    )


def node(
    name: str = "node",
    *,
    nodepool: str = "default",
    instance_type: str = "s-4x-amd64-linux",
    zone: str = "test-zone-a",
    capacity_type: str = "on-demand",
    capacity: Mapping[str, str | int] | None = None,
    allocatable: Mapping[str, str | int] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Taint] = (),
    ready: bool = True,
    registered: bool = True,
    initialized: bool = True,
    unschedulable: bool = False,
    created: datetime = NOW,
    deleted: datetime | None = None,
) -> Node:
    """A node of a pool, up and ready; pass `nodepool=""` for one that nobody manages."""
    own = {
        names.HOSTNAME: name,
        names.ARCH: "amd64",
        names.OS: "linux",
        names.INSTANCE_TYPE: instance_type,
        names.ZONE: zone,
    }
    if nodepool:
        own |= {names.NODEPOOL: nodepool, names.CAPACITY_TYPE: capacity_type, names.KWOK_NODECLASS: "default"}
        own |= {names.REGISTERED: "true"} if registered else {}
        own |= {names.INITIALIZED: "true"} if initialized else {}
    room = capacity or {"cpu": "4", "memory": "8Gi", "pods": "110"}
    return Node(
        metadata=meta(
            "node",
            name,
            labels=own | dict(labels or {}),
            annotations=annotations,
            created=created,
            deleted=deleted,
            finalizers=[names.TERMINATION] if nodepool else [],
        ),
        spec=NodeSpec(provider_id=f"kwok://{name}", taints=tuple(taints), unschedulable=unschedulable),
        status=NodeStatus(
            capacity=amounts(room),
            allocatable=amounts(allocatable or room),
            conditions=(condition("Ready", "True" if ready else "False", since=created),),
        ),
    )

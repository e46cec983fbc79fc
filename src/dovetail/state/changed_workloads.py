"""What a change does to the pods of a workload: some leave, some come, and a new template is a rollout.

A world that was seen holds pods and not the workloads that made them, so the pods there are compared with the
template as far as a scheduler reads it. Whoever knows that the templates differ in more says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from dataclasses import replace as replaced
from itertools import islice
from math import ceil

from msgspec.structs import replace

from dovetail.api import labels, predicates
from dovetail.api.core import Deployment, HorizontalPodAutoscaler, LimitRange, StatefulSet
from dovetail.api.meta import Object
from dovetail.api.numbers import parse_integer
from dovetail.api.pod import Container, Pod, PodSpec, PodStatus, PodTemplate, Toleration
from dovetail.scheduling.model.host_ports import list_host_ports
from dovetail.scheduling.model.limit_ranges import apply_limit_ranges
from dovetail.state.workload_pods import Owner, PodWorkload, build_pods, list_owners

__all__ = [
    "WorkloadChange",
    "change_workload",
    "has_template_shape",
    "index_pods_by_workload",
    "scale_workload",
]

# Admission gives these to every pod that does not have its own.
ADDED_TOLERATIONS = frozenset((labels.NOT_READY_TAINT, labels.UNREACHABLE_TAINT))
USUAL_GRACE = 30
USUAL_SURGE = "25%"


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """The pods of one workload before and after: who leaves, who comes, and how many stand side by side."""

    kind: str
    namespace: str
    name: str
    before: int
    after: int
    leaving: tuple[Pod, ...] = ()
    coming: tuple[Pod, ...] = ()
    running: tuple[Pod, ...] = ()
    # Pods at most while the template is rolled out; 0 without a rollout.
    peak: int = 0

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def rolled_out(self) -> bool:
        """Whether the template changes, so that every old pod is replaced."""
        return self.peak > 0

    @property
    def coming_at_peak(self) -> tuple[Pod, ...]:
        """The new pods that stand beside all old ones when most pods are there."""
        return self.coming[: max(0, self.peak - self.before)] if self.rolled_out else self.coming


def index_pods_by_workload(pods: Iterable[Pod]) -> dict[Owner, list[Pod]]:
    """The pods that count as a workload's: a Deployment's are found by the name of their ReplicaSet."""
    found: dict[Owner, list[Pod]] = {}
    for pod in pods:
        if predicates.is_active(pod):
            for owner in list_owners((pod,)):
                found.setdefault(owner, []).append(pod)
    return found


def scale_workload(
    workload: PodWorkload, running: int | None, scaler: HorizontalPodAutoscaler | None
) -> PodWorkload:
    """The workload with the number of pods it will have.

    A Deployment that does not say how many keeps what it has; an autoscaler keeps it between its bounds.
    """
    count = running if running and _leaves_number_open(workload.owner) else workload.count
    if scaler is not None and count:
        least = 1 if scaler.spec.min_replicas is None else max(0, scaler.spec.min_replicas)
        count = min(max(count, least), max(scaler.spec.max_replicas, least))
    return workload if count == workload.count else replaced(workload, count=count)


def _leaves_number_open(owner: Object) -> bool:
    return isinstance(owner, (Deployment, StatefulSet)) and owner.spec.replicas is None


def change_workload(
    workload: PodWorkload,
    running: Sequence[Pod],
    ranges: Iterable[LimitRange],
    pending: PodStatus,
    *,
    rolled: bool = False,
) -> WorkloadChange:
    """What becomes of the pods that run when the workload is as given. `rolled`: its template is another."""
    kind, namespace, name = workload.identity
    spec = apply_limit_ranges(workload.template.spec, namespace, ranges)
    template = replace(workload.template, spec=spec)
    kept = [pod for pod in running if not rolled and has_template_shape(pod, template)]
    old = [pod for pod in running if all(pod is not each for each in kept)]
    surplus = order_for_removal(kept, running, ordinal=kind == "StatefulSet")[
        : max(0, len(kept) - workload.count)
    ]
    like = _find_twin(workload, kept) or template
    peak = max(len(running), workload.count + _count_surge(workload)) if old else 0
    return WorkloadChange(
        kind,
        namespace,
        name,
        before=len(running),
        after=workload.count,
        leaving=(*old, *surplus),
        coming=tuple(_build_new_pods(replaced(workload, template=like), running, kept, pending)),
        running=tuple(running),
        peak=peak,
    )


def _find_twin(workload: PodWorkload, kept: Sequence[Pod]) -> PodTemplate | None:
    """The template as admission made it, read off a pod that stays; pods of a StatefulSet are no twins."""
    if not kept or workload.owner.KIND.kind not in ("Deployment", "ReplicaSet"):
        return None
    pod = kept[-1]
    metadata = replace(workload.template.metadata, labels=pod.metadata.labels)
    return replace(workload.template, metadata=metadata, spec=pod.spec)


def _build_new_pods(
    workload: PodWorkload, running: Sequence[Pod], kept: Sequence[Pod], pending: PodStatus
) -> Iterable[Pod]:
    """Pods up to the workload's number, under names that are free; a StatefulSet's come back under theirs."""
    count = max(0, workload.count - len(kept))
    if workload.owner.KIND.kind == "StatefulSet":
        before, stay = {pod.name: pod for pod in running}, {pod.name for pod in kept}
        fresh = (pod for pod in build_pods(workload, pending) if pod.name not in stay)
        again = (_keep_volumes(pod, before[pod.name]) if pod.name in before else pod for pod in fresh)
        return islice(again, count)
    taken = {pod.name for pod in running}
    more = replaced(workload, count=count + len(running))
    return islice((pod for pod in build_pods(more, pending) if pod.name not in taken), count)


def _keep_volumes(pod: Pod, before: Pod) -> Pod:
    """The pod with the volumes that its StatefulSet made for the one of its name."""
    named = {volume.name for volume in pod.spec.volumes}
    own = tuple(volume for volume in before.spec.volumes if volume.name not in named)
    return replace(pod, spec=replace(pod.spec, volumes=(*pod.spec.volumes, *own))) if own else pod


def _count_surge(workload: PodWorkload) -> int:
    """How many pods more than asked for a rollout may have; percentages round up."""
    owner = workload.owner
    if not isinstance(owner, Deployment) or owner.spec.strategy.type == "Recreate":
        return 0
    rolling = owner.spec.strategy.rolling_update
    surge = USUAL_SURGE if rolling is None or rolling.max_surge is None else rolling.max_surge
    if isinstance(surge, int):
        return max(0, surge)
    share = parse_integer(surge.removesuffix("%"))
    return max(0, ceil(workload.count * share / 100)) if share is not None else 0


def order_for_removal(pods: Sequence[Pod], related: Iterable[Pod], *, ordinal: bool = False) -> list[Pod]:
    """Who goes first when there are too many, as ReplicaSets and StatefulSets choose.

    A ReplicaSet's: unbound, pending, not ready, cheap, doubled up on a node, ready last. A StatefulSet's: the
    highest number.
    """
    if ordinal:
        return sorted(pods, key=lambda pod: _read_ordinal(pod.name), reverse=True)
    beside = Counter(pod.node_name for pod in related)
    newest_first = sorted(pods, key=_rank_by_youth, reverse=True)

    def rank(pod: Pod) -> tuple[bool, int, bool, int, int]:
        phase = {"Pending": 0, "": 0, "Unknown": 1}.get(pod.status.phase, 2)
        cost = parse_integer(pod.annotations.get(labels.POD_DELETION_COST, "0")) or 0
        return bool(pod.node_name), phase, _find_ready_since(pod) is not None, cost, -beside[pod.node_name]

    return sorted(newest_first, key=rank)


def _read_ordinal(name: str) -> int:
    return parse_integer(name.rpartition("-")[2]) or 0


def _rank_by_youth(pod: Pod) -> tuple[float, float, str]:
    created = pod.metadata.creation_timestamp
    return _find_ready_since(pod) or 0.0, created.timestamp() if created else 0.0, pod.name


def _find_ready_since(pod: Pod) -> float | None:
    ready = pod.status.find_condition("Ready")
    if ready is None or ready.status != "True":
        return None
    since = ready.last_transition_time or pod.metadata.creation_timestamp
    return since.timestamp() if since else 0.0


def has_template_shape(pod: Pod, template: PodTemplate) -> bool:
    """Whether a scheduler would take a pod of the template for this one.

    What admission adds is no difference: tolerations, labels, sidecars, the volumes of a StatefulSet.
    """
    own, wanted = pod.spec, template.spec
    read = labels.POD_ANNOTATIONS_READ
    return (
        _is_part_of(template.metadata.labels, pod.labels)
        and {key: value for key, value in template.metadata.annotations.items() if key in read}
        == {key: value for key, value in pod.annotations.items() if key in read}
        and _describe_spec(own) == _describe_spec(wanted)
        and _has_containers(own.containers, wanted.containers)
        and _has_containers(own.init_containers, wanted.init_containers)
        and frozenset(list_host_ports(pod)) >= frozenset(list_host_ports(Pod(spec=wanted)))
        and {each.name for each in wanted.volumes} <= {each.name for each in own.volumes}
        and (not wanted.priority_class_name or wanted.priority_class_name == own.priority_class_name)
    )


def _describe_spec(spec: PodSpec) -> tuple[object, ...]:
    """What of a spec a scheduler or a drain reads, containers aside."""
    grace = spec.termination_grace_period_seconds
    return (
        dict(spec.node_selector),
        spec.affinity,
        frozenset(each for each in spec.tolerations if not _is_added(each)),
        spec.topology_spread_constraints,
        spec.resources,
        spec.resource_claims,
        spec.host_network,
        USUAL_GRACE if grace is None else grace,
    )


def _is_added(toleration: Toleration) -> bool:
    return toleration.key in ADDED_TOLERATIONS and toleration.effect == "NoExecute"


def _has_containers(own: Sequence[Container], wanted: Sequence[Container]) -> bool:
    named = {each.name: each for each in own}
    return all(
        (has := named.get(each.name)) is not None
        and dict(has.resources.requests) == dict(each.resources.requests)
        and has.restart_policy == each.restart_policy
        for each in wanted
    )


def _is_part_of(some: Mapping[str, str], whole: Mapping[str, str]) -> bool:
    return some.items() <= whole.items()

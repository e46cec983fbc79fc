"""The pods that workloads would make, and objects of files as an API server would have them.

A Deployment counts as its replicas, a Job as what it runs at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from msgspec.structs import replace

from dovetail.api.core import (
    CronJob,
    DaemonSet,
    Deployment,
    Job,
    JobSpec,
    LimitRange,
    ReplicaSet,
    StatefulSet,
)
from dovetail.api.meta import Object, ObjectMeta, OwnerReference
from dovetail.api.pod import Container, Pod, PodSpec, PodStatus, PodTemplate
from dovetail.api.quantity import ZERO
from dovetail.errors import BadInput
from dovetail.scheduling.model.daemonsets import build_daemon_pods
from dovetail.scheduling.model.limit_ranges import apply_limit_ranges

__all__ = [
    "Owner",
    "PodWorkload",
    "admit_pod",
    "build_pods",
    "check_amounts",
    "fill_metadata",
    "list_owners",
    "read_workload",
]

T = TypeVar("T", bound=Object)

Owner = tuple[str, str, str]
# Who makes whom: the name of the one made begins with its maker's, and ends in a part of its own.
MAKERS = {"ReplicaSet": "Deployment", "Job": "CronJob"}


@dataclass(frozen=True, slots=True)
class PodWorkload:
    """Some object that makes pods, how many, and of what kind."""

    owner: Object
    count: int
    template: PodTemplate

    @property
    def identity(self) -> Owner:
        return self.owner.KIND.kind, self.owner.namespace, self.owner.name


def read_workload(owner: Object) -> PodWorkload | None:
    """An object as a workload; None when it makes no pods by itself."""
    match owner:
        case Deployment() | ReplicaSet() | StatefulSet():
            count = owner.spec.replicas
            return PodWorkload(owner, 1 if count is None else max(0, count), owner.spec.template)
        case Job():
            return PodWorkload(owner, _count_parallel(owner.spec), owner.spec.template)
        case CronJob():
            inner = owner.spec.job_template.spec
            return PodWorkload(owner, 0 if owner.spec.suspend else _count_parallel(inner), inner.template)
        case _:
            return None


def _count_parallel(job: JobSpec) -> int:
    """What a Job runs at once; one that is suspended runs nothing."""
    if job.suspend:
        return 0
    parallel = 1 if job.parallelism is None else max(0, job.parallelism)
    return parallel if job.completions is None else min(parallel, max(0, job.completions))


def list_owners(objects: Iterable[Object]) -> set[Owner]:
    """Everyone who owns one of these, and whoever made those owners."""
    found: set[Owner] = set()
    for each in objects:
        for owner in each.metadata.owner_references:
            found.add((owner.kind, each.namespace, owner.name))
            if owner.kind in MAKERS:
                found.add((MAKERS[owner.kind], each.namespace, owner.name.rpartition("-")[0]))
    return found


def build_pods(workload: PodWorkload, status: PodStatus) -> Iterator[Pod]:
    """The pods, numbered from zero as a StatefulSet would."""
    owner, template = workload.owner, workload.template
    reference = OwnerReference(
        api_version=owner.KIND.api_version,
        kind=owner.KIND.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
    )
    for number in range(workload.count):
        name = f"{owner.name}-{number}"
        metadata = ObjectMeta(
            name=name,
            namespace=owner.namespace,
            uid=f"{owner.namespace}/{name}",
            labels=template.metadata.labels,
            annotations=template.metadata.annotations,
            owner_references=(reference,),
        )
        yield Pod(metadata=metadata, spec=template.spec, status=status)


# Objects of files


def admit_pod(pod: Pod, ranges: Sequence[LimitRange]) -> Pod:
    """The pod as the API server would have it: one that was read from a cluster is so already."""
    if pod.status.phase or not (
        ranges or any(_has_limits_alone(each) for each in _list_containers(pod.spec))
    ):
        return pod
    return replace(pod, spec=apply_limit_ranges(pod.spec, pod.namespace, ranges))


def _has_limits_alone(container: Container) -> bool:
    return not container.resources.limits.keys() <= container.resources.requests.keys()


def _list_containers(spec: PodSpec) -> tuple[Container, ...]:
    return (*spec.containers, *spec.init_containers)


def check_amounts(obj: Object) -> None:
    """An API server would not have let a negative amount in, and nothing here expects one."""
    spec = obj.spec if isinstance(obj, Pod) else None
    made = read_workload(obj)
    if made is not None:
        spec = made.template.spec
    if isinstance(obj, DaemonSet):
        spec = obj.spec.template.spec
        for bad in build_daemon_pods([(obj, None)])[1]:
            raise BadInput(f"DaemonSet {obj.name} makes no sense: {bad.why}")
    for container in _list_containers(spec) if spec else ():
        for name, amount in container.resources.requests.items():
            if amount < ZERO:
                raise BadInput(f"{obj.KIND.kind} {obj.name} requests {amount} of {name}; write 0 or more")


def fill_metadata(obj: T, number: int) -> T:
    """Manifests leave the default namespace out, and nobody gives a uid by hand."""
    meta = obj.metadata
    namespace = meta.namespace or "default" if obj.KIND.namespaced else ""
    if meta.name and meta.uid and meta.namespace == namespace:
        return obj
    name = meta.name or f"{meta.generate_name or obj.KIND.kind.lower() + '-'}{number}"
    metadata = replace(meta, name=name, namespace=namespace, uid=meta.uid or f"{namespace}/{name}")
    changed: T = replace(obj, metadata=metadata)
    return changed

"""The pods that workloads would make: a Deployment counts as its replicas, a Job as what it runs at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from dovetail.api.core import CronJob, Deployment, Job, JobSpec, ReplicaSet, StatefulSet
from dovetail.api.meta import Object, ObjectMeta, OwnerReference
from dovetail.api.pod import Pod, PodStatus, PodTemplate

__all__ = ["Owner", "PodWorkload", "build_pods", "list_owners", "read_workload"]

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

"""Everyone around the API server, in the order they hear of things."""

from __future__ import annotations

from dataclasses import dataclass, field

from dovetail.sim.cluster.attachments import Attacher
from dovetail.sim.cluster.base import Desk, Neighbour
from dovetail.sim.cluster.budgets import Budgets
from dovetail.sim.cluster.cronjobs import CronJobs
from dovetail.sim.cluster.daemonsets import DaemonSets
from dovetail.sim.cluster.deployments import Deployments
from dovetail.sim.cluster.jobs import Jobs
from dovetail.sim.cluster.kubelet import Kubelet, KubeletOptions
from dovetail.sim.cluster.nodelife import NodeLife
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.cluster.podgc import PodCollector
from dovetail.sim.cluster.replicasets import ReplicaSets
from dovetail.sim.cluster.scheduler import Scheduler
from dovetail.sim.cluster.statefulsets import StatefulSets
from dovetail.sim.cluster.storage import Protection, Provisioner
from dovetail.sim.cluster.taints import TaintManager
from dovetail.sim.cluster.workload_events import WorkloadEvents

__all__ = ["ClusterOptions", "move_in"]


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How the neighbours behave."""

    kubelet: KubeletOptions = field(default_factory=KubeletOptions)
    # Whether what controllers do is said in events, for people who look.
    events: bool = False


def move_in(desk: Desk, options: ClusterOptions | None = None) -> dict[str, Neighbour]:
    """Bring everyone in; those who keep indexes for others hear of things first."""
    options = options or ClusterOptions()
    owned = Owned(desk)
    everyone: list[Neighbour] = [
        owned,
        Budgets(desk),
        Scheduler(desk),
        Kubelet(desk, options.kubelet),
        NodeLife(desk),
        TaintManager(desk),
        Deployments(desk, owned),
        ReplicaSets(desk, owned),
        StatefulSets(desk, owned),
        DaemonSets(desk, owned),
        Jobs(desk, owned),
        CronJobs(desk),
        Provisioner(desk),
        Protection(desk),
        Attacher(desk),
        PodCollector(desk),
    ]
    if options.events:
        everyone.append(WorkloadEvents(desk, owned))
    for neighbour in everyone:
        desk.add(neighbour)
    return {neighbour.name: neighbour for neighbour in everyone}

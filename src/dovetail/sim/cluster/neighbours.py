"""Everyone around the API server, in the order they hear of things."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta

from dovetail.sim.cluster.base import Desk, Key, Neighbour
from dovetail.sim.cluster.budgets import Budgets
from dovetail.sim.cluster.daemonsets import DaemonSets
from dovetail.sim.cluster.deployments import Deployments
from dovetail.sim.cluster.jobs import CronJobs, Jobs
from dovetail.sim.cluster.kubelet import Kubelet, KubeletDelays
from dovetail.sim.cluster.nodelife import NodeLife, PodCollector, TaintManager
from dovetail.sim.cluster.objects import parse_time
from dovetail.sim.cluster.owned import Owned
from dovetail.sim.cluster.replicasets import ReplicaSets
from dovetail.sim.cluster.scheduler import Scheduler
from dovetail.sim.cluster.statefulsets import StatefulSets
from dovetail.sim.cluster.storage import Attacher, Provisioner
from dovetail.sim.kube.status import ApiError

__all__ = ["ClusterOptions", "EventSweeper", "move_in"]

EVENT_LIFE = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """How the neighbours behave."""

    delays: KubeletDelays = field(default_factory=KubeletDelays)


class EventSweeper(Neighbour):
    """Forgets events after an hour, as etcd's leases do for a real server."""

    name = "event-ttl"

    def start(self) -> None:
        self.enqueue(("", "sweep"), 60.0)

    def work(self, key: Key) -> None:
        oldest = self.clock.now() - EVENT_LIFE
        for event in self.api.list("events"):
            if parse_time(event["metadata"]["creationTimestamp"]) < oldest:
                try:
                    self.api.delete("events", event["metadata"]["name"], event["metadata"]["namespace"])
                except ApiError as error:
                    if error.code != 404:
                        raise
        self.enqueue(key, 60.0)


def move_in(desk: Desk, options: ClusterOptions | None = None) -> dict[str, Neighbour]:
    """Bring everyone in; those who keep indexes for others hear of things first."""
    options = options or ClusterOptions()
    owned = Owned(desk)
    everyone: list[Neighbour] = [
        owned,
        Budgets(desk, owned),
        Scheduler(desk),
        Kubelet(desk, options.delays),
        NodeLife(desk),
        TaintManager(desk),
        Deployments(desk, owned),
        ReplicaSets(desk, owned),
        StatefulSets(desk, owned),
        DaemonSets(desk, owned),
        Jobs(desk, owned),
        CronJobs(desk),
        Provisioner(desk),
        Attacher(desk),
        PodCollector(desk),
        EventSweeper(desk),
    ]
    for neighbour in everyone:
        desk.add(neighbour)
    return {neighbour.name: neighbour for neighbour in everyone}

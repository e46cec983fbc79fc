"""What a run came to: dollars, waiting, evictions, nodes, sampled as time passes."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dovetail.api.quantity import Quantity
from dovetail.sim.cluster.objects import parse_time
from dovetail.sim.kube.store import Event
from dovetail.sim.world import World

__all__ = ["Measure", "Sample"]

Json = dict[str, Any]
PRICE = "eks-node-viewer/instance-price"
CAPACITY_TYPE = "karpenter.sh/capacity-type"


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment."""

    second: float
    nodes: int
    dollars: float
    running: int
    pending: int
    cpu_used: float
    cpu_offered: float
    spot: int


@dataclass
class Measure:
    """Listens to every commit and samples the rest."""

    world: World
    samples: list[Sample] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    evictions: int = 0
    nodes_added: int = 0
    nodes_removed: int = 0
    _waiting: dict[str, datetime] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._started = self.world.clock.now()
        self.world.server.store.on_commit(self._heard)

    def _heard(self, event: Event) -> None:
        plural = event.new.info.plural
        if plural == "pods":
            self._pod_heard(event)
        elif plural == "nodes":
            self.nodes_added += event.type == "ADDED"
            self.nodes_removed += event.type == "DELETED"

    def _pod_heard(self, event: Event) -> None:
        pod = event.new.obj
        uid, phase = pod["metadata"]["uid"], (pod.get("status") or {}).get("phase", "Pending")
        if event.type == "ADDED":
            self._waiting[uid] = parse_time(pod["metadata"]["creationTimestamp"])
        elif event.type == "DELETED":
            self._waiting.pop(uid, None)
            self.evictions += _disrupted(pod)
        elif phase == "Running" and uid in self._waiting:
            began = self._waiting.pop(uid)
            self.waits.append((self.world.clock.now() - began).total_seconds())

    def sample(self) -> Sample:
        """Look at the cluster now."""
        api = self.world.api
        nodes, pods = api.list("nodes"), api.list("pods")
        running = [p for p in pods if (p.get("status") or {}).get("phase") == "Running"]
        sample = Sample(
            second=(self.world.clock.now() - self._started).total_seconds(),
            nodes=len(nodes),
            dollars=sum(float((n["metadata"].get("labels") or {}).get(PRICE, 0)) for n in nodes),
            running=len(running),
            pending=sum((p.get("status") or {}).get("phase", "Pending") == "Pending" for p in pods),
            cpu_used=sum(map(_cpu, running)),
            cpu_offered=sum(_amount((n.get("status") or {}).get("allocatable") or {}) for n in nodes),
            spot=sum((n["metadata"].get("labels") or {}).get(CAPACITY_TYPE) == "spot" for n in nodes),
        )
        self.samples.append(sample)
        return sample

    def still_waiting(self) -> list[float]:
        """How long the pods that wait now have waited."""
        now = self.world.clock.now()
        return [(now - began).total_seconds() for began in self._waiting.values()]


def _disrupted(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in conditions)


def _cpu(pod: Json) -> float:
    return sum(
        _amount((container.get("resources") or {}).get("requests") or {})
        for container in pod["spec"].get("containers") or ()
    )


def _amount(listed: Json) -> float:
    return Quantity.parse(listed["cpu"]).milli / 1000 if "cpu" in listed else 0.0

"""What a run came to: dollars, waiting, evictions, nodes, sampled as time passes.

Sums are kept as things change, so that a sample costs the same at ten nodes and at four thousand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from math import fsum
from typing import Any, NamedTuple

from dovetail.api.quantity import Quantity
from dovetail.settings.durations import parse_duration as parse_duration
from dovetail.sim.cluster.objects import parse_time
from dovetail.sim.kube.store import StoreEvent
from dovetail.sim.scenario import ScenarioObjective
from dovetail.sim.world import World

__all__ = ["ObjectiveResult", "ObservedWorkload", "RunRecorder", "Sample", "judge_objectives"]


@dataclass(frozen=True, slots=True)
class ObservedWorkload:
    """What happened to one workload: its pods' waits, and how many ran of how many wanted, at each sample."""

    waits: Sequence[float] = ()
    presence: Sequence[tuple[int, int]] = ()
    evictions: int = 0


@dataclass(frozen=True, slots=True)
class ObjectiveResult:
    """One promise after the run. `broken` counts pods, samples or evictions beyond what it allows."""

    promise: str
    kept: bool
    broken: int
    measured: str


def judge_objectives(
    objectives: Sequence[ScenarioObjective], observed: Mapping[str, ObservedWorkload], hours: float
) -> tuple[ObjectiveResult, ...]:
    """Every promise, in the order they were made."""
    found: list[ObjectiveResult] = []
    for objective in objectives:
        about = [seen for name, seen in observed.items() if objective.workload in ("", name)]
        if objective.pending_within:
            found.append(_judge_pending(objective, about))
        if objective.available is not None:
            found.append(_judge_available(objective, objective.available, about))
        if objective.evictions_per_hour is not None:
            found.append(_judge_evictions(objective, objective.evictions_per_hour, about, hours))
    return tuple(found)


def _describe_pods(objective: ScenarioObjective) -> str:
    return f"pods of {objective.workload}" if objective.workload else "pods"


def _judge_pending(objective: ScenarioObjective, about: Sequence[ObservedWorkload]) -> ObjectiveResult:
    limit = parse_duration(objective.pending_within).total_seconds()
    waits = [wait for seen in about for wait in seen.waits]
    late = sum(wait > limit for wait in waits)
    share = 1 - late / len(waits) if waits else 1.0
    promise = f"{objective.share:.6g} of {_describe_pods(objective)} run within {objective.pending_within}"
    return ObjectiveResult(promise, share >= objective.share, late, f"{share:.4f}")


def _judge_available(
    objective: ScenarioObjective, least: float, about: Sequence[ObservedWorkload]
) -> ObjectiveResult:
    shares = [min(ran / wanted, 1.0) for seen in about for ran, wanted in seen.presence if wanted]
    below = sum(share < least for share in shares)
    enough = 1 - below / len(shares) if shares else 1.0
    promise = f"{least:.6g} of the wanted {_describe_pods(objective)} run, {objective.share:.6g} of the time"
    worst = f"{enough:.4f} of the time, {min(shares, default=1.0):.4f} at worst"
    return ObjectiveResult(promise, enough >= objective.share, below, worst)


def _judge_evictions(
    objective: ScenarioObjective, most: float, about: Sequence[ObservedWorkload], hours: float
) -> ObjectiveResult:
    rate = sum(seen.evictions for seen in about) / hours if hours else 0.0
    promise = f"no more than {most:g} {_describe_pods(objective)} evicted an hour"
    return ObjectiveResult(promise, rate <= most, max(0, round((rate - most) * hours)), f"{rate:.3f} an hour")


Json = dict[str, Any]
PRICE = "eks-node-viewer/instance-price"
CAPACITY_TYPE = "karpenter.sh/capacity-type"
# The whole of a node, where that is more than its instance.
NODE_PRICE = "cost.dovetail.sh/node-hourly"


@dataclass(frozen=True, slots=True)
class Sample:
    """The cluster at one moment. `floor` is what the cheapest thinkable fleet would cost; 0 if not asked."""

    second: float
    nodes: int
    dollars: float
    running: int
    pending: int
    cpu_used: float
    cpu_offered: float
    spot: int
    floor: float = 0.0


class _Node(NamedTuple):
    price: float
    cpu: float
    spot: bool


class _Pod(NamedTuple):
    phase: str
    cpu: float
    workload: str


@dataclass
class RunRecorder:
    """Listens to every commit and samples the rest."""

    world: World
    samples: list[Sample] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    evictions: int = 0
    nodes_added: int = 0
    nodes_removed: int = 0
    _waiting: dict[str, tuple[datetime, str]] = field(default_factory=dict)
    _nodes: dict[str, _Node] = field(default_factory=dict)
    _pods: dict[str, _Pod] = field(default_factory=dict)
    _waits_of: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    _presence_of: defaultdict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    _evictions_of: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._started = self.world.clock.now()
        self.world.server.store.on_commit(self._on_event, "pods", "nodes")

    def _on_event(self, event: StoreEvent) -> None:
        plural = event.new.info.plural
        if plural == "pods":
            self._on_pod(event)
        elif plural == "nodes":
            self._on_node(event)

    def _on_node(self, event: StoreEvent) -> None:
        node = event.new.obj
        name = node["metadata"]["name"]
        self.nodes_added += event.type == "ADDED"
        if event.type == "DELETED":
            self.nodes_removed += 1
            self._nodes.pop(name, None)
            return
        labels = node["metadata"].get("labels") or {}
        offered = _read_cpu((node.get("status") or {}).get("allocatable") or {})
        whole = (node["metadata"].get("annotations") or {}).get(NODE_PRICE)
        price = float(labels.get(PRICE, 0) if whole is None else whole)
        self._nodes[name] = _Node(price, offered, labels.get(CAPACITY_TYPE) == "spot")

    def _on_pod(self, event: StoreEvent) -> None:
        pod = event.new.obj
        uid, phase = pod["metadata"]["uid"], (pod.get("status") or {}).get("phase", "Pending")
        workload = (pod["metadata"].get("labels") or {}).get("app", "")
        if event.type == "DELETED":
            self._waiting.pop(uid, None)
            self._pods.pop(uid, None)
            if _is_disrupted(pod):
                self.evictions += 1
                self._evictions_of[workload] += 1
            return
        known = self._pods.get(uid)
        self._pods[uid] = known._replace(phase=phase) if known else _Pod(phase, _sum_cpu(pod), workload)
        if event.type == "ADDED":
            self._waiting[uid] = parse_time(pod["metadata"]["creationTimestamp"]), workload
        elif phase == "Running" and uid in self._waiting:
            began, _ = self._waiting.pop(uid)
            wait = (self.world.clock.now() - began).total_seconds()
            self.waits.append(wait)
            self._waits_of[workload].append(wait)

    def take_sample(
        self, wanted: Mapping[str, int] | None = None, floor: float = 0.0, committed: float = 0.0
    ) -> Sample:
        """Look at the cluster now; `wanted` is how many pods each workload should have.

        `committed` is what commitments add to the list prices of nodes, less what they pay for.
        """
        nodes, pods = self._nodes.values(), self._pods.values()
        running = [pod for pod in pods if pod.phase == "Running"]
        present = Counter(pod.workload for pod in running)
        for workload, number in (wanted or {}).items():
            self._presence_of[workload].append((present[workload], number))
        sample = Sample(
            second=(self.world.clock.now() - self._started).total_seconds(),
            nodes=len(nodes),
            # The order of nodes is the order of their coming; a sum must not depend on it.
            dollars=fsum((*(node.price for node in nodes), committed)),
            running=len(running),
            pending=sum(pod.phase == "Pending" for pod in pods),
            cpu_used=fsum(pod.cpu for pod in running),
            cpu_offered=fsum(node.cpu for node in nodes),
            spot=sum(node.spot for node in nodes),
            # Its last digits depend on the processor that multiplied the matrices.
            floor=round(floor, 9),
        )
        self.samples.append(sample)
        return sample

    def list_pending_waits(self) -> list[float]:
        """How long the pods that wait now have waited."""
        now = self.world.clock.now()
        return [(now - began).total_seconds() for began, _ in self._waiting.values()]

    def list_observed(self) -> dict[str, ObservedWorkload]:
        """What happened, by workload; a pod that still waits counts with its wait so far."""
        now = self.world.clock.now()
        waits = {name: list(each) for name, each in self._waits_of.items()}
        for began, workload in self._waiting.values():
            waits.setdefault(workload, []).append((now - began).total_seconds())
        names = sorted({*waits, *self._presence_of, *self._evictions_of})
        return {
            name: ObservedWorkload(waits.get(name, ()), self._presence_of[name], self._evictions_of[name])
            for name in names
        }


def _is_disrupted(pod: Json) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(c["type"] == "DisruptionTarget" and c["status"] == "True" for c in conditions)


def _sum_cpu(pod: Json) -> float:
    return fsum(
        _read_cpu((container.get("resources") or {}).get("requests") or {})
        for container in pod["spec"].get("containers") or ()
    )


def _read_cpu(listed: Json) -> float:
    return Quantity.parse_clamped(listed["cpu"]).milli / 1000 if "cpu" in listed else 0.0

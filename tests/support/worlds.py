"""A small world for scheduling tests: instance types, pools, nodes, and passes that launch what they plan.

The fixtures are those the numbered checks of the specification speak of.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.core import Taint
from dovetail.api.labels import Flavour
from dovetail.api.meta import LabelSelector
from dovetail.api.nodeclaim import NodeClaim, NodeClaimStatus
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodStatus,
    PreferredTerm,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from dovetail.scheduling.model.instance_types import InstanceType, Offering, Overhead
from dovetail.scheduling.model.plan import NodeClaimOptions, Plan, PlannedNode
from dovetail.scheduling.model.requirements import NOTHING, Requirements, Values
from dovetail.scheduling.model.snapshot import (
    SchedulingOptions,
    Snapshot,
    StateNode,
    Storage,
    build_pools_and_catalogs,
)
from dovetail.scheduling.sequential.schedule import schedule_pods
from support.builders import NOW, amounts, nodepool
from support.builders import node as node_of

Z1, Z2, Z3 = "test-zone-1", "test-zone-2", "test-zone-3"
SIZE, SPECIAL, INTEGER, RESERVATION = "size", "special", "integer", "fake.com/reservation-id"
FLAVOUR = Flavour(names.WELL_KNOWN | {SIZE, SPECIAL, INTEGER, RESERVATION}, (names.KARPENTER,))
FIVE = ((Z1, "spot"), (Z2, "spot"), (Z1, "on-demand"), (Z2, "on-demand"), (Z3, "on-demand"))


def offering(
    zone: str,
    kind: str,
    price: float,
    available: bool = True,
    reservation: str = "",
    count: int = 0,
    **more: Any,
) -> Offering:
    labels = {names.ZONE: zone, names.CAPACITY_TYPE: kind}
    if reservation:
        labels[RESERVATION] = reservation
    return Offering(
        requirements=Requirements.from_labels(labels),
        price=price,
        available=available,
        reservation_id=reservation,
        reservation_capacity=count,
        **more,
    )


def instance_type(
    name: str,
    cpu: float = 4,
    memory: str = "4Gi",
    pods: int = 5,
    arch: str = "amd64",
    systems: Sequence[str] = ("linux", "windows", "darwin"),
    more: Mapping[str, str] | None = None,
    offerings: Sequence[Offering] | None = None,
    price: float | None = None,
    overhead: Overhead | None = None,
    labels: Mapping[str, Values] | None = None,
) -> InstanceType:
    capacity = amounts(more, cpu=str(cpu), memory=memory, pods=pods)
    bytes_of = capacity["memory"].value
    cost = 0.1 * cpu + 0.1 * bytes_of / 1e9 + (1.0 if more else 0.0) if price is None else price
    deals = (
        tuple(offering(zone, kind, cost) for zone, kind in FIVE) if offerings is None else tuple(offerings)
    )
    large = cpu > 4 and bytes_of > 8 << 30
    listed = {
        names.INSTANCE_TYPE: _in(name),
        names.ARCH: _in(arch),
        names.OS: _in(*systems),
        names.ZONE: _in(*(each.zone for each in deals)),
        names.CAPACITY_TYPE: _in(*(each.capacity_type for each in deals)),
        SIZE: _in("large" if large else "small"),
        SPECIAL: _in("optional") if large else NOTHING,
        INTEGER: _in(str(int(cpu))),
    }
    reservations = {each.reservation_id for each in deals if each.reservation_id}
    listed[RESERVATION] = _in(*reservations)
    return InstanceType(
        name=name,
        requirements=Requirements(listed | dict(labels or {})),
        offerings=deals,
        capacity=capacity,
        overhead=overhead or Overhead(kube_reserved=amounts(cpu="100m", memory="10Mi")),
    )


def _in(*values: str) -> Values:
    return Values(frozenset(values))


def default_types() -> tuple[InstanceType, ...]:
    return (
        instance_type("default-instance-type"),
        instance_type("small-instance-type", 2, "2Gi"),
        instance_type("gpu-vendor-instance-type", more={"fake.com/vendor-a": "2"}),
        instance_type("gpu-vendor-b-instance-type", more={"fake.com/vendor-b": "2"}),
        instance_type(
            "arm-instance-type", 16, "128Gi", arch="arm64", systems=("ios", "linux", "windows", "darwin")
        ),
        instance_type("single-pod-instance-type", pods=1),
    )


def series(count: int) -> tuple[InstanceType, ...]:
    return tuple(instance_type(f"fake-it-{i}", i + 1, f"{2 * (i + 1)}Gi", 10 * (i + 1)) for i in range(count))


def assorted() -> tuple[InstanceType, ...]:
    return tuple(
        instance_type(
            f"{cpu}-cpu-{memory}-mem-{arch}-{system}-{zone}-{kind}",
            cpu,
            f"{memory}Gi",
            100,
            arch,
            (system,),
            offerings=[offering(zone, kind, 0.1 * cpu + 0.1 * memory * 1.073741824)],
        )
        for cpu in (1, 2, 4, 8, 16, 32, 64)
        for memory in (1, 2, 4, 8, 16, 32, 64, 128)
        for zone in (Z1, Z2, Z3)
        for kind in ("spot", "on-demand")
        for system in ("linux", "windows")
        for arch in ("amd64", "arm64")
    )


class World:
    """A cluster that only passes change. Launched nodes are registered but not initialised."""

    def __init__(
        self,
        *pools: NodePool,
        types: Sequence[InstanceType] | Mapping[str, Sequence[InstanceType]] | None = None,
        nodes: Sequence[StateNode] = (),
        daemons: Sequence[Pod] = (),
        storage: Storage = Storage(),  # noqa: B008
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        **options: Any,
    ) -> None:
        self.pools = list(pools) or [nodepool(limits={"cpu": "2000"})]
        self.types = default_types() if types is None else types
        self.nodes = list(nodes)
        self.daemons = tuple(daemons)
        self.storage = storage
        self.namespaces = namespaces or {"default": {}}
        self.more: dict[str, Any] = {}
        settings: dict[str, Any] = {"now": NOW, "flavour": FLAVOUR, "reservation_label": RESERVATION}
        self.options = SchedulingOptions(**(settings | options))
        self.plan = Plan()
        self._made = 0

    def types_of(self, pool: NodePool) -> Sequence[InstanceType]:
        return self.types.get(pool.name, ()) if isinstance(self.types, Mapping) else self.types

    def snapshot(self, *pods: Pod) -> Snapshot:
        pools, catalogs = build_pools_and_catalogs((pool, self.types_of(pool)) for pool in self.pools)
        return Snapshot(
            pools=pools,
            catalogs=catalogs,
            nodes=tuple(self.nodes),
            pods=pods,
            daemons=self.daemons,
            storage=self.storage,
            namespaces=self.namespaces,
            options=self.options,
            **self.more,
        )

    def solve(self, *pods: Pod) -> Plan:
        """Plan without doing anything about it."""
        self.plan = schedule_pods(self.snapshot(*pods))
        return self.plan

    def provision(self, *pods: Pod, bind: bool = True) -> Plan:
        """One pass: plan, launch each new node on its cheapest offering, bind the pods."""
        plan = self.solve(*pods)
        by_name = {pod.full_name: pod for pod in pods}
        for state in tuple(self.nodes):
            for pod in state.pods:
                by_name[pod.full_name] = pod
        homes = {name: [by_name[each] for each in each_pods] for name, each_pods in plan.existing.items()}
        self.nodes = [
            self._bound(state, homes.get(_name(state), [])) if bind else state for state in self.nodes
        ]
        for planned in plan.new_nodes:
            state = self._launched(planned)
            self.nodes.append(self._bound(state, [by_name[name] for name in planned.pods]) if bind else state)
        return plan

    def _bound(self, state: StateNode, pods: Iterable[Pod]) -> StateNode:
        bound = [
            replace(pod, node_name=_name(state), status=PodStatus(phase="Running", start_time=NOW))
            for pod in pods
        ]
        return replace(state, pods=(*state.pods, *bound))

    def _launched(self, planned: PlannedNode) -> StateNode:
        pool = next(pool for pool in self.pools if pool.name == planned.pool)
        claim = planned.build_claim(pool, NodeClaimOptions(flavour=FLAVOUR))
        found = next(each for each in self.types_of(pool) if each.name == planned.instance_type)
        self._made += 1
        name = f"{planned.pool}-{self._made:03d}"
        labels = {
            key: values.only
            for key, values in found.requirements.by_key.items()
            if values.only is not None and key != RESERVATION
        }
        labels |= {names.ZONE: planned.zone, names.CAPACITY_TYPE: planned.capacity_type}
        labels |= {names.OS: "linux"} if "linux" in found.requirements[names.OS] else {}
        labels = {**labels, **claim.labels}
        taints = (*claim.spec.taints, *claim.spec.startup_taints)
        launched = replace(
            claim,
            metadata=replace(claim.metadata, name=name, labels=labels),
            status=NodeClaimStatus(
                provider_id=f"fake://{name}", capacity=found.capacity, allocatable=found.allocatable()
            ),
        )
        node = node_of(
            name,
            nodepool=planned.pool,
            labels=labels,
            taints=taints,
            initialized=False,
        )
        status = replace(node.status, capacity=found.capacity, allocatable=found.allocatable())
        labels_of_node = {**labels, names.HOSTNAME: name, names.REGISTERED: "true"}
        return StateNode(
            node=replace(node, metadata=replace(node.metadata, labels=labels_of_node), status=status),
            claim=launched,
        )

    # What came of it

    def node_of(self, pod: str) -> StateNode | None:
        full = pod if "/" in pod else f"default/{pod}"
        return next((s for s in self.nodes if any(each.full_name == full for each in s.pods)), None)

    def scheduled(self, *pods: Pod) -> int:
        return sum(1 for pod in pods if self.node_of(pod.full_name) is not None)

    def zone_of(self, pod: str) -> str:
        state = self.node_of(pod)
        assert state is not None, f"{pod} has no node"
        assert state.node is not None
        return state.node.labels.get(names.ZONE, "")

    def type_of(self, pod: str) -> str:
        state = self.node_of(pod)
        assert state is not None, f"{pod} has no node: {self.plan.unschedulable}"
        assert state.node is not None
        return state.node.labels[names.INSTANCE_TYPE]

    def labels_of(self, pod: str) -> Mapping[str, str]:
        state = self.node_of(pod)
        assert state is not None, f"{pod} has no node: {self.plan.unschedulable}"
        assert state.node is not None
        return state.node.labels

    def skew(self, key: str, **labels: str) -> list[int]:
        """How many pods with these labels each domain has, most first."""
        counts: Counter[str] = Counter()
        for state in self.nodes:
            if state.node is None:
                continue
            domain = state.node.name if key == names.HOSTNAME else state.node.labels.get(key)
            if domain is not None:
                counts[domain] += sum(1 for pod in state.pods if labels.items() <= pod.labels.items())
        return sorted((count for count in counts.values() if count), reverse=True)


def _name(state: StateNode) -> str:
    if state.node is not None:
        return state.node.name
    assert state.claim is not None
    return state.claim.name


def running(
    name: str,
    *pods: Pod,
    labels: Mapping[str, str] | None = None,
    claim: NodeClaim | None = None,
    taints: Sequence[Taint] = (),
    managed: bool = False,
    marked: bool = False,
    volume_limits: Mapping[str, int] | None = None,
    **node: Any,
) -> StateNode:
    """A node that is there, with these pods on it; nobody's, unless it has a claim."""
    made = node_of(name, nodepool="default" if managed or claim else "", labels=labels, taints=taints, **node)
    bound = tuple(
        replace(pod, node_name=name, status=replace(pod.status, phase=pod.status.phase or "Running"))
        for pod in pods
    )
    return StateNode(node=made, claim=claim, pods=bound, marked=marked, volume_limits=volume_limits or {})


# Wishes of pods


def expression(key: str, operator: str, *values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


Condition = tuple[str, ...]


def term(*conditions: Condition) -> NodeSelectorTerm:
    return NodeSelectorTerm(match_expressions=tuple(expression(*each) for each in conditions))


def node_affinity(
    *required: Sequence[Condition], preferred: Sequence[tuple[int, Sequence[Condition]]] = ()
) -> Affinity:
    """Required alternatives, each a list of conditions; preferences with their weights."""
    wanted = NodeSelector(node_selector_terms=tuple(term(*each) for each in required)) if required else None
    liked = tuple(PreferredTerm(weight=weight, preference=term(*each)) for weight, each in preferred)
    return Affinity(node_affinity=NodeAffinity(required=wanted, preferred=liked))


def near(key: str, preferred: bool = False, **labels: str) -> Affinity:
    return Affinity(pod_affinity=_pods(key, labels, preferred))


def apart(key: str, preferred: bool = False, **labels: str) -> Affinity:
    return Affinity(pod_anti_affinity=_pods(key, labels, preferred))


def _pods(key: str, labels: Mapping[str, str], preferred: bool) -> PodAffinity:
    wanted = PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels=labels))
    if preferred:
        return PodAffinity(preferred=(WeightedPodAffinityTerm(weight=50, pod_affinity_term=wanted),))
    return PodAffinity(required=(wanted,))


def spread(
    key: str, skew: int = 1, soft: bool = False, selector: LabelSelector | None = None, **more: Any
) -> TopologySpreadConstraint:
    """A spread over pods of `app=web` unless told otherwise."""
    return TopologySpreadConstraint(
        max_skew=skew,
        topology_key=key,
        when_unsatisfiable="ScheduleAnyway" if soft else "DoNotSchedule",
        label_selector=selector or LabelSelector(match_labels={"app": "web"}),
        **more,
    )

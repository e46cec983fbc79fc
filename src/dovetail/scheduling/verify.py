"""Verification: does a plan keep every rule, whoever made it and in whatever order?

Each place is filled as the plan says and held to the sequential scheduler's own rules for labels, taints,
room, ports, volumes, limits and offerings. Rules between pods are judged on the finished state, which is the
only thing that survives the order in which the cluster's scheduler will bind the pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from dovetail.api.core import Taint
from dovetail.api.labels import HOSTNAME
from dovetail.api.pod import Pod
from dovetail.scheduling.model import host_ports, volumes
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.model.instance_type_table import iterate_bits
from dovetail.scheduling.model.nodeclaim_template import NodeClaimTemplate, check_min_values_of_types
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.pod_requirements import list_requirement_alternatives
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.reasons import Reason
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.resources import Nano
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.model.taints import tolerates_all
from dovetail.scheduling.sequential.nodes import ExistingNode
from dovetail.scheduling.sequential.scheduler import SequentialScheduler
from dovetail.scheduling.topology.group import TopologyGroup, TopologyType

__all__ = ["Violation", "verify_plan"]


@dataclass(frozen=True, slots=True)
class Violation:
    """One rule a plan breaks: where, for which pod if it is about one, and what is wrong."""

    place: str
    pod: str
    reason: Reason
    detail: str = ""

    def __str__(self) -> str:
        about = f"{self.pod} on {self.place}" if self.pod else self.place
        return f"{about}: {self.reason}" + (f" ({self.detail})" if self.detail else "")


def verify_plan(snapshot: Snapshot, plan: Plan, cache: DecisionCache | None = None) -> list[Violation]:
    """Every rule the plan breaks; an empty list is a plan to act on."""
    return _Verifier(snapshot, plan, cache).find_violations()


class PlacedShape(NamedTuple):
    """A pod where the plan puts it, with what must hold for it."""

    shape: SchedulingShape
    place: str
    requirements: Requirements
    taints: Sequence[Taint]


class _Verifier:
    def __init__(self, snapshot: Snapshot, plan: Plan, cache: DecisionCache | None) -> None:
        self.plan = plan
        self.run = SequentialScheduler(snapshot, cache=cache)
        self.pods = {pod.full_name: pod for pod in self.run.batch}
        self.templates = {template.pool: template for template in self.run.templates}
        self.landed: list[PlacedShape] = []
        self._lists: dict[tuple[int, tuple[str, ...]], int] = {}

    def find_violations(self) -> list[Violation]:
        found = list(self._check_each_pod_once())
        for name, pods in self.plan.existing.items():
            found += self._check_existing_node(name, pods)
        for node in self.plan.new_nodes:
            found += self._check_new_node(node)
        return found + list(self._check_topology())

    def _check_each_pod_once(self) -> Iterator[Violation]:
        plan = self.plan
        placed = Counter(pod for pods in plan.existing.values() for pod in pods)
        placed.update(pod for node in plan.new_nodes for pod in node.pods)
        for pod, times in placed.items():
            if pod not in self.pods:
                yield Violation("the plan", pod, Reason.IGNORED, "nobody asked for it")
            elif times > 1:
                yield Violation("the plan", pod, Reason.IGNORED, f"placed {times} times")
        for pod in self.pods:
            told = pod in placed or pod in plan.unschedulable or pod in plan.deferred
            if not told and not plan.timed_out:
                yield Violation("the plan", pod, Reason.IGNORED, "forgotten")

    def _list_shapes(self, names: Iterable[str]) -> Iterator[tuple[str, Pod, SchedulingShape]]:
        for name in names:
            pod = self.pods.get(name)
            if pod is not None:
                yield name, pod, self.run.shapes.find_shape(pod)

    # Running nodes

    def _check_existing_node(self, name: str, pods: Sequence[str]) -> Iterator[Violation]:
        node = self.run.running.find_by_name(name)
        if node is None:
            yield Violation(name, "", Reason.LEAVING, "no such node to place pods on")
            return
        for pod, _, shape in self._list_shapes(pods):
            yield from self._check_pod_on_existing_node(node, pod, shape)
            for resource, amount in shape.requests.items():
                node.left[resource] = node.left.get(resource, 0) - amount
            node.ports.extend(shape.ports)
            for driver, claims in shape.attachments.items():
                node.attached.setdefault(driver, set()).update(claims)
            self.landed.append(PlacedShape(shape.hard, node.name, node.requirements, node.taints))

    def _check_pod_on_existing_node(
        self, node: ExistingNode, pod: str, shape: SchedulingShape
    ) -> Iterator[Violation]:
        if not tolerates_all(node.taints, shape.hard.tolerations):
            yield Violation(node.name, pod, Reason.TAINT)
        if any(amount > node.left.get(name, 0) for name, amount in shape.requests.items()):
            yield Violation(node.name, pod, Reason.RESOURCES)
        if host_ports.find_conflict(shape.ports, node.ports):
            yield Violation(node.name, pod, Reason.HOST_PORT)
        if volumes.find_exceeded_driver(node.limits, node.attached, shape.attachments):
            yield Violation(node.name, pod, Reason.VOLUME_LIMIT)
        if not any(
            node.requirements.is_compatible(alternative)
            for alternative in list_requirement_alternatives(shape.spec)
        ):
            yield Violation(node.name, pod, Reason.LABELS)
        if not any(node.requirements.is_compatible(each) for each in shape.volume_topologies):
            yield Violation(node.name, pod, Reason.VOLUME_ZONE)

    # New nodes

    def _check_new_node(self, node: PlannedNode) -> Iterator[Violation]:
        template = self.templates.get(node.pool)
        if template is None:
            yield Violation(node.name, "", Reason.NO_TYPES, f"pool {node.pool} cannot make nodes")
            return
        types = self._read_types(template, node)
        if not types:
            yield Violation(node.name, "", Reason.NO_TYPES, "no instance type is named")
            return
        shapes = list(self._list_shapes(node.pods))
        host = Values(frozenset((node.name,)))
        requirements = node.requirements.replace_key(HOSTNAME, host)
        yield from self._check_limits(template, node, types)
        yield from self._check_capacity(template, node, types, [shape for _, _, shape in shapes])
        yield from self._check_labels(template, node, types, shapes)
        taints = template.taints
        self.landed += [PlacedShape(shape.hard, node.name, requirements, taints) for _, _, shape in shapes]

    def _read_types(self, template: NodeClaimTemplate, node: PlannedNode) -> int:
        """The listed types as a set; many nodes of a plan list the very same."""
        known = self._lists.get((template.index, node.instance_types))
        if known is None:
            index = template.table.index
            known = sum(1 << index[name] for name in set(node.instance_types) if name in index)
            self._lists[template.index, node.instance_types] = known
        return known

    def _check_limits(
        self, template: NodeClaimTemplate, node: PlannedNode, types: int
    ) -> Iterator[Violation]:
        limits, pool, table = self.run.limits, template.pool, template.table
        if limits.is_exhausted(pool) or limits.filter_types(pool, table, types) != types:
            yield Violation(node.name, "", Reason.LIMIT)
        limits.charge_new_node(pool, table, types)

    def _check_capacity(
        self, template: NodeClaimTemplate, node: PlannedNode, types: int, shapes: Sequence[SchedulingShape]
    ) -> Iterator[Violation]:
        """Every instance type listed must hold all pods and daemons, and be for sale."""
        table = template.table
        total = _sum_requests(shapes)
        ports = [port for shape in shapes for port in shape.ports]
        fit = 0
        for group in template.daemons:
            if not host_ports.find_conflict(ports, group.ports):
                needed = {
                    name: total.get(name, 0) + group.overhead.get(name, 0)
                    for name in (*total, *group.overhead)
                }
                offered = table.find_offered(node.requirements)
                fit |= table.fold_variants(
                    table.find_roomy(needed, table.unfold_types(types & group.types) & offered)
                )
        if fit != types:
            yield Violation(node.name, "", Reason.RESOURCES, "an instance type it lists cannot hold its pods")
        if types & ~table.match_requirements(node.requirements) or types & ~template.types:
            yield Violation(node.name, "", Reason.TYPES, "an instance type it lists does not meet its labels")
        for i, mine in enumerate(shapes):
            if mine.ports and host_ports.find_conflict(mine.ports, [p for s in shapes[:i] for p in s.ports]):
                yield Violation(node.name, "", Reason.HOST_PORT)
        if template.min_values and not check_min_values_of_types(table, types, node.requirements).met:
            yield Violation(node.name, "", Reason.MIN_VALUES)

    def _check_labels(
        self,
        template: NodeClaimTemplate,
        node: PlannedNode,
        types: int,
        shapes: Sequence[tuple[str, Pod, SchedulingShape]],
    ) -> Iterator[Violation]:
        if not template.requirements.is_compatible(node.requirements, template.table.undefined):
            yield Violation(node.name, "", Reason.LABELS, "its labels are not the pool's")
        checked: dict[int, tuple[Reason, ...]] = {}
        for name, _, shape in shapes:
            known = checked.get(id(shape))
            if known is None:
                known = checked[id(shape)] = tuple(self._find_label_reasons(template, node, types, shape))
            for reason in known:
                yield Violation(node.name, name, reason)

    def _find_label_reasons(
        self, template: NodeClaimTemplate, node: PlannedNode, types: int, shape: SchedulingShape
    ) -> Iterator[Reason]:
        if not tolerates_all(template.taints, shape.hard.tolerations):
            yield Reason.TAINT
        if not any(
            self._is_implied(template, node, types, alternative)
            for alternative in list_requirement_alternatives(shape.spec)
        ):
            yield Reason.LABELS
        if not any(self._is_implied(template, node, types, each) for each in shape.volume_topologies):
            yield Reason.VOLUME_ZONE

    @staticmethod
    def _is_implied(template: NodeClaimTemplate, node: PlannedNode, types: int, wanted: Requirements) -> bool:
        """Whether the node will have the labels for sure, whatever it is launched as."""
        table = template.table
        if not node.requirements.is_compatible(wanted, table.undefined):
            return False
        for key, values in wanted.by_key.items():
            if key in node.requirements and _is_within(node.requirements[key], values):
                continue
            if key in node.requirements and not table.knows_label(key) and not values.negative:
                return False
            if types & ~table.match_label(key, values):
                return False
            # A type with several values, such as its zones, may be launched with any the node allows.
            able = (table.types[i].requirements for i in iterate_bits(types))
            left = (each[key] & node.requirements[key] for each in able if key in each)
            if not all(_is_within(each, values) for each in left):
                return False
        return True

    # Between pods

    def _check_topology(self) -> Iterator[Violation]:
        """Count everybody where they are, then ask every rule of every pod about the finished state."""
        topology = self.run.topology
        for each in self.landed:
            topology.find_constraints(each.shape)
        before = {id(group): dict(group.counts) for group in topology.groups}
        for each in self.landed:
            topology.record_pods(each.shape, each.taints, each.requirements)
        finished = _FinishedState(self.landed, before)
        seen: set[tuple[int, str]] = set()
        for each in self.landed:
            if (id(each.shape), each.place) in seen:
                continue
            seen.add((id(each.shape), each.place))
            for group, itself in topology.find_constraints(each.shape):
                reason = finished.find_broken_rule(group, itself, each)
                if reason is not None:
                    yield Violation(each.place, each.shape.pod.full_name, reason, group.key)


class _FinishedState:
    """The state when all pods are where the plan puts them."""

    def __init__(self, landed: Sequence[PlacedShape], before: Mapping[int, Mapping[str, int]]) -> None:
        self._before = before
        self._owners: Counter[tuple[int, str]] = Counter()
        for each in landed:
            for group in each.shape.counted_in:
                domain = each.requirements[group.key].only
                if domain is not None and group in (each.shape.owned or ()):
                    self._owners[id(group), domain] += 1

    def find_broken_rule(self, group: TopologyGroup, itself: bool, landed: PlacedShape) -> Reason | None:
        """Why the rule does not hold for a pod, which is itself among those counted; None if it does."""
        values = landed.requirements[group.key]
        if group.rule is TopologyType.SPREAD:
            return self._check_skew(group, itself, landed)
        if group.rule is TopologyType.AFFINITY:
            near = not values.open and all(group.counts.get(name, 0) > 0 for name in values.names)
            return None if near else Reason.AFFINITY
        # An inverse group counts the pods that have the rule, any other the pods it selects.
        own = group in landed.shape.avoids if group.inverse else itself
        most = 1 if own else 0
        apart = not values.open and all(group.counts.get(name, 0) <= most for name in values.names)
        return None if apart else Reason.ANTI_AFFINITY

    def _check_skew(self, group: TopologyGroup, itself: bool, landed: PlacedShape) -> Reason | None:
        domain = landed.requirements[group.key].only
        if domain is None:
            return Reason.SPREAD if itself else None
        # Pods that are counted but do not have the rule may come later and are not its concern.
        count = self._before[id(group)].get(domain, 0) + self._owners[id(group), domain]
        if group.key == HOSTNAME:
            least = 0
        else:
            alternatives = list_requirement_alternatives(landed.shape.spec)
            least = max(
                (
                    group.find_lowest_count(alternative[group.key])
                    for alternative in alternatives
                    if domain in alternative[group.key]
                ),
                default=0,
            )
        return None if count - least <= group.max_skew else Reason.SPREAD


def _sum_requests(shapes: Iterable[SchedulingShape]) -> Nano:
    total: Nano = {}
    for shape in shapes:
        for name, amount in shape.requests.items():
            total[name] = total.get(name, 0) + amount
    return total


def _is_within(inner: Values, outer: Values) -> bool:
    if inner.open:
        return inner & outer == inner
    return all(name in outer for name in inner.names)

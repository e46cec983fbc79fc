"""From counts back to pods: a bulk plan written into a run, as if each pod had been placed there.

Nothing is trusted: labels, taints, room and instance types are asked again of the run's own tables, and
the whole plan is judged by the verifier afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from dovetail.api.labels import HOSTNAME, ZONE
from dovetail.scheduling.model.instance_type_table import iterate_bits
from dovetail.scheduling.model.nodeclaim_template import NodeClaimTemplate
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.requirements import Requirements, Values
from dovetail.scheduling.model.resources import Nano
from dovetail.scheduling.packing import ANY_ZONE, PackedNode, PackedPlan
from dovetail.scheduling.packing.adapter.to_groups import PodGroups
from dovetail.scheduling.sequential.nodes import Fit, NewNode
from dovetail.scheduling.sequential.scheduler import SequentialScheduler

__all__ = ["PackedPlanInvalid", "apply_packed_plan"]


class PackedPlanInvalid(Exception):
    """The bulk plan does not hold under the exact rules. Never seen outside: another plan is made."""


def apply_packed_plan(run: SequentialScheduler, counted: PodGroups, plan: PackedPlan) -> None:
    """Put the plan's pods where it says; raises Misfit when a place will not have them."""
    waiting = [iter(names) for names in counted.names]
    for index in sorted(plan.running):
        node = run.nodes[index]
        for group, pods in sorted(plan.running[index].items()):
            shape = counted.shapes[group]
            for name in islice(waiting[group], pods):
                node.add_pod(shape, name, Fit(node.requirements & shape.requirements), run.topology)
                run.placements[name] = node, shape
    builder = _NodeBuilder(run, counted, _compute_spare_limits(run, counted, plan.new))
    for planned in _interleave_zones(plan.new):
        claim = builder.build_new_node(planned)
        if claim is not None:
            _record_node(run, counted, planned, claim, waiting)


def _interleave_zones(nodes: Sequence[PackedNode]) -> list[PackedNode]:
    """One node of each zone in turn, so that a limit reached on the way leaves pods evenly spread."""
    seen: dict[int, int] = {}
    turns = []
    for node in nodes:
        turns.append(seen.setdefault(node.zone, 0))
        seen[node.zone] += 1
    return [node for _, node in sorted(zip(turns, nodes, strict=True), key=lambda pair: pair[0])]


def _record_node(
    run: SequentialScheduler,
    counted: PodGroups,
    planned: PackedNode,
    claim: NewNode,
    waiting: Sequence[Iterator[str]],
) -> None:
    for group, pods in sorted(planned.pods.items()):
        shape = counted.shapes[group]
        names = list(islice(waiting[group], pods))
        claim.pods.extend(names)
        run.placements.update(dict.fromkeys(names, (claim, shape)))
        run.topology.record_pods(shape, claim.template.taints, claim.requirements, len(names))
    run.new_nodes.append(claim)
    run.inflight.add(claim)
    run.limits.charge_new_node(claim.template.pool, claim.template.table, claim.types)
    run.progress += 1


def _compute_spare_limits(
    run: SequentialScheduler, counted: PodGroups, nodes: Sequence[PackedNode]
) -> dict[str, dict[str, int]]:
    """By how much each node of a limited pool may turn out larger than planned, if all do."""
    used: dict[str, tuple[int, Nano]] = {}
    for node in nodes:
        option = counted.options[node.option]
        count, total = used.get(option.template.pool, (0, {}))
        for name, amount in option.template.table.capacities[option.type].items():
            total[name] = total.get(name, 0) + amount
        used[option.template.pool] = count + 1, total
    return {
        pool: {
            name: max(0, left - total.get(name, 0)) // count for name, left in run.limits.left[pool].items()
        }
        for pool, (count, total) in used.items()
    }


class _NodeKind(NamedTuple):
    """What nodes for pods with the same wishes share: requirements, and the variants that meet them."""

    requirements: Requirements
    types: int
    offered: int


class _NodeBuilder:
    """Makes the nodes of a bulk plan. There are many of them and few kinds, so a kind is settled once."""

    def __init__(
        self, run: SequentialScheduler, counted: PodGroups, spare: Mapping[str, Mapping[str, int]]
    ) -> None:
        self.run, self.counted, self.spare = run, counted, spare
        self._kinds: dict[tuple[int, int, tuple[int, ...]], _NodeKind] = {}

    def build_new_node(self, planned: PackedNode) -> NewNode | None:
        """The node with everything its pods ask for; None when the pool's limits have no room for it."""
        option = self.counted.options[planned.option]
        template, chosen = option.template, option.type
        candidate = self.run.build_new_node(template)
        if not isinstance(candidate, NewNode) or not candidate.types >> chosen & 1:
            return None
        shapes = [self.counted.shapes[group] for group in sorted(planned.pods)]
        total = _sum_requests(shapes, [planned.pods[group] for group in sorted(planned.pods)])
        kind = self._find_kind(template, planned.zone, shapes)
        types = _find_types(template, candidate.types & kind.types, kind.offered, total)
        if not types >> chosen & 1:
            raise PackedPlanInvalid(
                f"{template.table.types[chosen].name} is too small for what was put on it"
            )
        if self.spare[template.pool]:
            types = _exclude_much_larger(template, types, chosen, self.spare[template.pool])
        host = candidate.requirements.by_key[HOSTNAME]
        candidate.requirements = kind.requirements.replace_key(HOSTNAME, host)
        candidate.total, candidate.types = total, types
        return candidate

    def _find_kind(
        self, template: NodeClaimTemplate, zone: int, shapes: Sequence[SchedulingShape]
    ) -> _NodeKind:
        wishes = {id(each.requirements): each.requirements for each in shapes if each.requirements.by_key}
        key = (template.index, zone, tuple(wishes))
        known = self._kinds.get(key)
        if known is None:
            known = self._kinds[key] = self._settle_kind(template, zone, wishes.values())
        return known

    def _settle_kind(
        self, template: NodeClaimTemplate, zone: int, wishes: Iterable[Requirements]
    ) -> _NodeKind:
        table, requirements = template.table, template.requirements
        for wish in wishes:
            if not requirements.is_compatible(wish, table.undefined):
                raise PackedPlanInvalid("pods that want different nodes were put together")
            requirements = requirements & wish
        if zone != ANY_ZONE:
            name = self.counted.zones[zone]
            requirements = requirements & Requirements({ZONE: Values(frozenset((name,)))})
        return _NodeKind(
            requirements, table.match_requirements(requirements), table.find_offered(requirements)
        )


def _exclude_much_larger(
    template: NodeClaimTemplate, types: int, chosen: int, spare: Mapping[str, int]
) -> int:
    """Where a pool has limits a node counts as the largest it may become, so it may not become too large."""
    capacities = template.table.capacities
    most = {name: capacities[chosen].get(name, 0) + more for name, more in spare.items()}
    return sum(
        1 << i
        for i in iterate_bits(types)
        if all(capacities[i].get(name, 0) <= amount for name, amount in most.items())
    )


def _sum_requests(shapes: Sequence[SchedulingShape], pods: Sequence[int]) -> Nano:
    total: Nano = {}
    for shape, count in zip(shapes, pods, strict=True):
        for name, amount in shape.requests.items():
            total[name] = total.get(name, 0) + amount * count
    return total


def _find_types(template: NodeClaimTemplate, among: int, offered: int, total: Nano) -> int:
    """The instance types that hold the total, among these and the variants on offer."""
    table = template.table
    found = 0
    for group in template.daemons:
        needed = dict(total)
        for name, amount in group.overhead.items():
            needed[name] = needed.get(name, 0) + amount
        found |= table.fold_variants(
            table.find_roomy(needed, table.unfold_types(among & group.types) & offered)
        )
    return found

"""From counts back to pods: a bulk plan written into a run, as if each pod had been placed there.

Nothing is trusted: labels, taints, room and instance types are asked again of the run's own tables, and
the whole plan is judged by the verifier afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from dovetail.api.labels import ZONE
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
    spare = _compute_spare_limits(run, counted, plan.new)
    for planned in _interleave_zones(plan.new):
        claim = _build_new_node(run, counted, planned, spare)
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
        for _ in names:
            run.topology.record_pod(shape, claim.template.taints, claim.requirements)
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


def _build_new_node(
    run: SequentialScheduler, counted: PodGroups, planned: PackedNode, spare: Mapping[str, Mapping[str, int]]
) -> NewNode | None:
    """The node with everything its pods ask for; None when the pool's limits have no room for it."""
    option = counted.options[planned.option]
    template = option.template
    candidate = run.build_new_node(template)
    if not isinstance(candidate, NewNode) or not candidate.types >> option.type & 1:
        return None
    groups = sorted(planned.pods)
    requirements = _combine_requirements(candidate, [counted.shapes[group] for group in groups])
    if planned.zone != ANY_ZONE:
        requirements = requirements & Requirements({ZONE: Values(frozenset((counted.zones[planned.zone],)))})
    total = _sum_requests(
        [counted.shapes[group] for group in groups], [planned.pods[group] for group in groups]
    )
    types = _find_types(template, candidate.types, requirements, total)
    if not types >> option.type & 1:
        raise PackedPlanInvalid(
            f"{template.table.types[option.type].name} is too small for what was put on it"
        )
    if spare[template.pool]:
        types = _exclude_much_larger(template, types, option.type, spare[template.pool])
    candidate.requirements, candidate.total, candidate.types = requirements, total, types
    return candidate


def _combine_requirements(candidate: NewNode, shapes: Sequence[SchedulingShape]) -> Requirements:
    requirements = candidate.requirements
    seen: set[int] = set()
    for shape in shapes:
        if id(shape.requirements) in seen or not shape.requirements.by_key:
            continue
        seen.add(id(shape.requirements))
        if not requirements.is_compatible(shape.requirements, candidate.template.table.undefined):
            raise PackedPlanInvalid("pods that want different nodes were put together")
        requirements = requirements & shape.requirements
    return requirements


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


def _find_types(template: NodeClaimTemplate, among: int, requirements: Requirements, total: Nano) -> int:
    """The instance types that hold the total and can be bought under the requirements."""
    table = template.table
    among &= table.match_requirements(requirements)
    offered = table.find_offered(requirements)
    found = 0
    for group in template.daemons:
        needed = dict(total)
        for name, amount in group.overhead.items():
            needed[name] = needed.get(name, 0) + amount
        found |= table.fold_variants(
            table.find_roomy(needed, table.unfold_types(among & group.types) & offered)
        )
    return found

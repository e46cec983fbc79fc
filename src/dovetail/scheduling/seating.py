"""From counts back to pods: a bulk plan written into a run, as if each pod had been placed there.

Nothing is trusted: labels, taints, room and instance types are asked again of the run's own tables, and
the whole plan is judged by the referee afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from dovetail.api.labels import ZONE
from dovetail.scheduling.counting import Counted
from dovetail.scheduling.exact import Run
from dovetail.scheduling.packing import ANY_ZONE, BulkNode, BulkPlan
from dovetail.scheduling.places import Claim, Fit
from dovetail.scheduling.requirements import Requirements, Values
from dovetail.scheduling.resources import Nano
from dovetail.scheduling.shapes import Shape
from dovetail.scheduling.templates import Template
from dovetail.scheduling.typetable import bits

__all__ = ["Misfit", "seat"]


class Misfit(Exception):
    """The bulk plan does not hold under the exact rules. Never seen outside: another plan is made."""


def seat(run: Run, counted: Counted, plan: BulkPlan) -> None:
    """Put the plan's pods where it says; raises Misfit when a place will not have them."""
    waiting = [iter(names) for names in counted.names]
    for index in sorted(plan.running):
        node = run.nodes[index]
        for group, pods in sorted(plan.running[index].items()):
            shape = counted.shapes[group]
            for name in islice(waiting[group], pods):
                node.take(shape, name, Fit(node.requirements & shape.requirements), run.topology)
                run.homes[name] = node, shape
    spare = _spare(run, counted, plan.new)
    for planned in _zone_by_zone(plan.new):
        claim = _claim(run, counted, planned, spare)
        if claim is not None:
            _settle(run, counted, planned, claim, waiting)


def _zone_by_zone(nodes: Sequence[BulkNode]) -> list[BulkNode]:
    """One node of each zone in turn, so that a limit reached on the way leaves pods evenly spread."""
    seen: dict[int, int] = {}
    turns = []
    for node in nodes:
        turns.append(seen.setdefault(node.zone, 0))
        seen[node.zone] += 1
    return [node for _, node in sorted(zip(turns, nodes, strict=True), key=lambda pair: pair[0])]


def _settle(
    run: Run, counted: Counted, planned: BulkNode, claim: Claim, waiting: Sequence[Iterator[str]]
) -> None:
    for group, pods in sorted(planned.pods.items()):
        shape = counted.shapes[group]
        names = list(islice(waiting[group], pods))
        claim.pods.extend(names)
        run.homes.update(dict.fromkeys(names, (claim, shape)))
        for _ in names:
            run.topology.record(shape, claim.template.taints, claim.requirements)
    run.claims.append(claim)
    run.open.add(claim)
    run.limits.open(claim.template.pool, claim.template.table, claim.types)
    run.progress += 1


def _spare(run: Run, counted: Counted, nodes: Sequence[BulkNode]) -> dict[str, dict[str, int]]:
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


def _claim(
    run: Run, counted: Counted, planned: BulkNode, spare: Mapping[str, Mapping[str, int]]
) -> Claim | None:
    """The node with everything its pods ask for; None when the pool's limits have no room for it."""
    option = counted.options[planned.option]
    template = option.template
    candidate = run.candidate(template)
    if not isinstance(candidate, Claim) or not candidate.types >> option.type & 1:
        return None
    groups = sorted(planned.pods)
    requirements = _requirements(candidate, [counted.shapes[group] for group in groups])
    if planned.zone != ANY_ZONE:
        requirements = requirements & Requirements({ZONE: Values(frozenset((counted.zones[planned.zone],)))})
    total = _total([counted.shapes[group] for group in groups], [planned.pods[group] for group in groups])
    types = _types(template, candidate.types, requirements, total)
    if not types >> option.type & 1:
        raise Misfit(f"{template.table.types[option.type].name} is too small for what was put on it")
    if spare[template.pool]:
        types = _not_much_larger(template, types, option.type, spare[template.pool])
    candidate.requirements, candidate.total, candidate.types = requirements, total, types
    return candidate


def _requirements(candidate: Claim, shapes: Sequence[Shape]) -> Requirements:
    requirements = candidate.requirements
    seen: set[int] = set()
    for shape in shapes:
        if id(shape.requirements) in seen or not shape.requirements.by_key:
            continue
        seen.add(id(shape.requirements))
        if not requirements.compatible(shape.requirements, candidate.template.table.undefined):
            raise Misfit("pods that want different nodes were put together")
        requirements = requirements & shape.requirements
    return requirements


def _not_much_larger(template: Template, types: int, chosen: int, spare: Mapping[str, int]) -> int:
    """Where a pool has limits a node counts as the largest it may become, so it may not become too large."""
    capacities = template.table.capacities
    most = {name: capacities[chosen].get(name, 0) + more for name, more in spare.items()}
    return sum(
        1 << i
        for i in bits(types)
        if all(capacities[i].get(name, 0) <= amount for name, amount in most.items())
    )


def _total(shapes: Sequence[Shape], pods: Sequence[int]) -> Nano:
    total: Nano = {}
    for shape, count in zip(shapes, pods, strict=True):
        for name, amount in shape.requests.items():
            total[name] = total.get(name, 0) + amount * count
    return total


def _types(template: Template, among: int, requirements: Requirements, total: Nano) -> int:
    """The instance types that hold the total and can be bought under the requirements."""
    table = template.table
    among &= table.matching_all(requirements)
    offered = table.offered(requirements)
    found = 0
    for group in template.daemons:
        needed = dict(total)
        for name, amount in group.overhead.items():
            needed[name] = needed.get(name, 0) + amount
        found |= table.fold(table.roomy(needed, table.unfold(among & group.types) & offered))
    return found

"""Which rules between pods the packing can keep by itself, and which pods need the sequential scheduler.

The topology of a run is asked for its groups; each becomes a cap per host, a spread to be dealt over
zones, or a set that stays together. Whatever is none of these sends the pods it binds, and the pods it
counts, to the sequential scheduler.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from dovetail.api.labels import HOSTNAME, ZONE
from dovetail.scheduling.model.pod_shapes import SchedulingShape
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.packing import HostRule, ZoneAffinity, ZoneSpread
from dovetail.scheduling.topology.group import TopologyGroup, TopologyType
from dovetail.scheduling.topology.tracker import Topology

__all__ = ["PackableConstraints", "find_packable_constraints"]


@dataclass(slots=True)
class PackableConstraints:
    """The rules of a batch by index of shape; `exact` are shapes the packing must leave alone."""

    hosts: list[HostRule] = field(default_factory=list)
    spreads: list[ZoneSpread] = field(default_factory=list)
    zone_affinities: list[ZoneAffinity] = field(default_factory=list)
    closed: dict[int, set[str]] = field(default_factory=dict)
    """Zones a shape may not enter because of pods that run there."""
    counted: list[dict[str, int]] = field(default_factory=list)
    """For each host rule, pods it counts on running nodes, by hostname."""
    owned: list[set[str]] = field(default_factory=list)
    """For each host rule, running nodes where a pod carries it."""
    unpackable: set[int] = field(default_factory=set)


class _BoundGroup:
    """A group, the shapes that carry it and the shapes it counts."""

    def __init__(self, group: TopologyGroup, members: frozenset[int]) -> None:
        self.group = group
        self.owners: set[int] = set()
        self.members = members

    def build_sort_key(self) -> tuple[object, ...]:
        """The same whatever order the groups were found in."""
        group = self.group
        return (
            group.rule.value,
            group.key,
            group.inverse,
            sorted(self.owners),
            sorted(self.members),
            group.max_skew,
        )

    @property
    def everyone(self) -> set[int]:
        return self.owners | self.members


def find_packable_constraints(
    topology: Topology, shapes: Sequence[SchedulingShape], exact: set[int], zones: Sequence[str]
) -> PackableConstraints:
    """What binds these shapes to each other and to pods that run; some are `exact` from the start."""
    constraints = PackableConstraints(unpackable=set(exact))
    bound = _list_bound_groups(topology, shapes)
    for each in bound:
        if not _is_packable(each, shapes):
            # Who wants to be near others only needs them there first; the rest must be placed together.
            constraints.unpackable |= (
                each.owners if each.group.rule is TopologyType.AFFINITY else each.everyone
            )
    _exclude_connected(bound, constraints.unpackable)
    for each in bound:
        each.owners -= constraints.unpackable
        each.members -= constraints.unpackable
        if each.owners or (each.group.inverse and each.members):
            _add_constraint(constraints, each, shapes, zones)
    _merge_host_rules(constraints)
    return constraints


class _Kinds:
    """Shapes by namespace and labels, so that a selector is asked about few of them."""

    def __init__(self, shapes: Sequence[SchedulingShape]) -> None:
        self.shapes = shapes
        kinds: dict[tuple[str, int], list[int]] = {}
        for i, shape in enumerate(shapes):
            kinds.setdefault((shape.namespace, id(shape.labels)), []).append(i)
        self.kinds = list(kinds.values())
        self.by_label: dict[tuple[str, str], list[list[int]]] = {}
        for kind in self.kinds:
            for label in shapes[kind[0]].labels.items():
                self.by_label.setdefault(label, []).append(kind)

    def list_selected(self, group: TopologyGroup) -> Iterator[int]:
        """The shapes whose pods the group counts."""
        wanted = group.selector.match_labels if group.selector else {}
        among = min((self.by_label.get(label, []) for label in wanted.items()), key=len, default=self.kinds)
        for kind in among:
            first = self.shapes[kind[0]]
            if group.selects_pod(first.namespace, first.labels):
                yield from kind


def _list_bound_groups(topology: Topology, shapes: Sequence[SchedulingShape]) -> list[_BoundGroup]:
    for shape in shapes:
        topology.find_constraints(shape)
    kinds = _Kinds(shapes)
    found: dict[int, _BoundGroup] = {}
    counted: list[list[TopologyGroup]] = [[] for _ in shapes]
    for group in (*topology.groups, *topology.inverse):
        members = frozenset(kinds.list_selected(group))
        found[id(group)] = _BoundGroup(group, members)
        for i in () if group.inverse else members:
            counted[i].append(group)
    for i, shape in enumerate(shapes):
        for group in (*(shape.owned or ()), *shape.avoids):
            found[id(group)].owners.add(i)
        if not shape.seen_groups:
            # The tracker would find out pod by pod, asking every group about every shape.
            shape.counted_in, shape.seen_groups = counted[i], len(topology.groups)
    return sorted(
        (each for each in found.values() if each.owners or each.group.inverse), key=_BoundGroup.build_sort_key
    )


def _exclude_connected(bound: Sequence[_BoundGroup], exact: set[int]) -> None:
    """A rule that loses one of its pods to the sequential scheduler is no longer ours to keep."""
    grew = True
    while grew:
        grew = False
        for each in bound:
            everyone = each.everyone
            if each.group.rule is TopologyType.AFFINITY:
                everyone = each.owners
            if each.owners and everyone & exact and not everyone <= exact:
                exact |= everyone
                grew = True


def _is_packable(each: _BoundGroup, shapes: Sequence[SchedulingShape]) -> bool:
    group = each.group
    if not each.owners:
        # Only running pods carry it: it can but close hosts and zones.
        return not group.inverse or group.key in (HOSTNAME, ZONE)
    if group.rule is TopologyType.SPREAD:
        return group.key in (HOSTNAME, ZONE) and _is_plain_spread(each, shapes)
    if group.rule is TopologyType.ANTI_AFFINITY:
        return group.key == HOSTNAME
    return group.key == ZONE and (each.owners <= each.members or any(group.counts.values()))


def _is_plain_spread(each: _BoundGroup, shapes: Sequence[SchedulingShape]) -> bool:
    group = each.group
    if group.min_domains is not None or group.filter.taints or group.max_skew < 1:
        return False
    # Pods on nodes the owners could not use are not counted; be sure there are none.
    if any(term.by_key for term in group.filter.terms) and each.owners != each.members:
        return False
    wanted = {_read_zones(shapes[i].strict) for i in each.owners}
    return group.key != ZONE or len(wanted) == 1


def _read_zones(requirements: Requirements) -> object:
    return requirements.by_key.get(ZONE)


def _add_constraint(
    constraints: PackableConstraints,
    each: _BoundGroup,
    shapes: Sequence[SchedulingShape],
    zones: Sequence[str],
) -> None:
    group = each.group
    if group.key == HOSTNAME:
        _add_host_rule(constraints, each)
    elif group.inverse:
        taken = {zone for zone, count in group.counts.items() if count}
        for i in each.members if taken else ():
            constraints.closed.setdefault(i, set()).update(taken)
    elif group.rule is TopologyType.SPREAD:
        _add_zone_spread(constraints, each, shapes, zones)
    else:
        there = tuple(bool(group.counts.get(zone)) for zone in zones)
        constraints.zone_affinities.append(
            ZoneAffinity(tuple(sorted(each.owners)), there if any(there) else ())
        )


def _add_host_rule(constraints: PackableConstraints, each: _BoundGroup) -> None:
    group = each.group
    apart = group.rule is TopologyType.ANTI_AFFINITY
    limit = 1 if apart else group.max_skew
    constraints.hosts.append(HostRule(frozenset(each.owners), frozenset(each.members), limit, apart))
    running = {host: count for host, count in group.counts.items() if count}
    constraints.counted.append({} if group.inverse else running)
    constraints.owned.append(set(running) if group.inverse else set())


def _add_zone_spread(
    constraints: PackableConstraints,
    each: _BoundGroup,
    shapes: Sequence[SchedulingShape],
    zones: Sequence[str],
) -> None:
    group = each.group
    wanted = shapes[min(each.owners)].strict[ZONE]
    constraints.spreads.append(
        ZoneSpread(
            members=tuple(sorted(each.members)),
            skew=group.max_skew,
            before=tuple(group.counts.get(zone, 0) for zone in zones),
            zones=tuple(zone in group.counts and zone in wanted for zone in zones),
            owners=tuple(sorted(each.owners)),
        )
    )


def _merge_host_rules(constraints: PackableConstraints) -> None:
    """An anti-affinity and its inverse bind the same pods: one rule will do for both."""
    kept: dict[HostRule, int] = {}
    hosts: list[HostRule] = []
    counted: list[dict[str, int]] = []
    owned: list[set[str]] = []
    for rule, counts, owns in zip(constraints.hosts, constraints.counted, constraints.owned, strict=True):
        at = kept.setdefault(rule, len(hosts))
        if at == len(hosts):
            hosts.append(rule)
            counted.append(dict(counts))
            owned.append(set(owns))
        else:
            counted[at] |= counts
            owned[at] |= owns
    constraints.hosts, constraints.counted, constraints.owned = hosts, counted, owned

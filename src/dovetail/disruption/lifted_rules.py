"""A cluster without one of its rules: the same nodes, pods and prices, and nothing else changed.

Lifting is done in memory. What can be planned with a rule can be planned without it: every lift leaves all
that was allowed allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.meta import Condition
from dovetail.api.nodepool import Budget, Disruption, NodePool, NodePoolSpec, Requirement, TemplateSpec
from dovetail.api.pod import Affinity, Pod, PodSpec
from dovetail.disruption.inputs import EXCLUDED_ZONE_TAINT
from dovetail.disruption.rules import AT_ONCE, POLICY, Rule, RuleKind, find_workload
from dovetail.disruption.situation import Situation
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.instance_types import InstanceType
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot, SnapshotPool, StateNode

__all__ = ["lift_rule"]

Edit = Callable[[PodSpec], PodSpec]


def lift_rule(situation: Situation, rule: Rule) -> Situation:
    """The cluster without the rule, or without all of its parts."""
    if rule.parts:
        for part in rule.parts:
            situation = lift_rule(situation, part)
        return situation
    snapshot = situation.snapshot
    if rule.kind is RuleKind.SPEND_LIMIT:
        caps = tuple(cap for cap in situation.spend_caps if cap.limit != rule.subject)
        return replace(situation, spend_caps=caps)
    if rule.kind is RuleKind.ZONE:
        return _open_zone(situation, rule.subject)
    if rule.kind is RuleKind.PDB:
        return situation.with_snapshot(_remove_pdb(snapshot, rule.subject))
    if rule.kind is RuleKind.NODE_DO_NOT_DISRUPT:
        return situation.with_snapshot(_change_nodes(snapshot, lambda each: _unmark_node(each, rule.subject)))
    if rule.kind is RuleKind.DO_NOT_DISRUPT:
        return situation.with_snapshot(_change_pods(snapshot, lambda pod: _unmark_pod(pod, rule.subject)))
    if rule.kind in _POD_EDITS:
        return situation.with_snapshot(_edit_workload(snapshot, rule.subject, _POD_EDITS[rule.kind]))
    return situation.with_snapshot(_lift_pool_rule(snapshot, rule))


# Pods and nodes


def _remove_pdb(snapshot: Snapshot, name: str) -> Snapshot:
    return replace(snapshot, budgets=tuple(each for each in snapshot.budgets if each.full_name != name))


def _change_nodes(snapshot: Snapshot, change: Callable[[StateNode], StateNode]) -> Snapshot:
    return replace(snapshot, nodes=tuple(map(change, snapshot.nodes)))


def _change_pods(snapshot: Snapshot, change: Callable[[Pod], Pod]) -> Snapshot:
    """The pods changed wherever they are; a node whose pods stay the same stays the very same."""

    def change_node(state: StateNode) -> StateNode:
        pods = tuple(map(change, state.pods))
        return state if all(map(_is_same, pods, state.pods)) else replace(state, pods=pods)

    return replace(
        _change_nodes(snapshot, change_node),
        pods=tuple(map(change, snapshot.pods)),
        moving=tuple(map(change, snapshot.moving)),
    )


def _is_same(one: object, other: object) -> bool:
    return one is other


def _without_mark(annotations: Mapping[str, str]) -> dict[str, str]:
    return {key: value for key, value in annotations.items() if key != labels.DO_NOT_DISRUPT}


def _unmark_pod(pod: Pod, name: str) -> Pod:
    if pod.full_name != name:
        return pod
    return replace(pod, metadata=replace(pod.metadata, annotations=_without_mark(pod.annotations)))


def _unmark_node(state: StateNode, name: str) -> StateNode:
    node = state.node
    if node is None or node.name != name:
        return state
    metadata = replace(node.metadata, annotations=_without_mark(node.annotations))
    return replace(state, node=replace(node, metadata=metadata))


def _edit_workload(snapshot: Snapshot, workload: str, edit: Edit) -> Snapshot:
    """The pods of a workload with another spec. Those that shared one share one afterwards."""
    known: dict[int, tuple[PodSpec, PodSpec]] = {}

    def change(pod: Pod) -> Pod:
        if "/".join(find_workload(pod)) != workload:
            return pod
        found = known.setdefault(id(pod.spec), (pod.spec, edit(pod.spec)))
        return replace(pod, spec=found[1])

    return _change_pods(snapshot, change)


def _drop_spread(spec: PodSpec) -> PodSpec:
    return replace(spec, topology_spread_constraints=())


def _drop_selector(spec: PodSpec) -> PodSpec:
    return replace(_drop_affinity_part(spec, "node_affinity"), node_selector={})


def _drop_affinity_part(spec: PodSpec, part: str) -> PodSpec:
    affinity: Affinity | None = spec.affinity
    return spec if affinity is None else replace(spec, affinity=replace(affinity, **{part: None}))


_POD_EDITS: Mapping[RuleKind, Edit] = {
    RuleKind.SPREAD: _drop_spread,
    RuleKind.SELECTOR: _drop_selector,
    RuleKind.AFFINITY: lambda spec: _drop_affinity_part(spec, "pod_affinity"),
    RuleKind.ANTI_AFFINITY: lambda spec: _drop_affinity_part(spec, "pod_anti_affinity"),
}


# NodePools


def _lift_pool_rule(snapshot: Snapshot, rule: Rule) -> Snapshot:
    changed = _change_pool(snapshot, rule.subject, lambda spec: _lift_from_spec(spec, rule))
    if rule.kind is not RuleKind.CONSOLIDATE_AFTER:
        return changed
    now = snapshot.options.now
    return _change_nodes(changed, lambda state: _make_consolidatable(state, rule.subject, now))


def _change_pool(snapshot: Snapshot, name: str, change: Callable[[NodePoolSpec], NodePoolSpec]) -> Snapshot:
    def change_pool(pool: SnapshotPool) -> SnapshotPool:
        nodepool: NodePool = pool.nodepool
        if pool.name != name:
            return pool
        return replace(pool, nodepool=replace(nodepool, spec=change(nodepool.spec)))

    return replace(snapshot, pools=tuple(map(change_pool, snapshot.pools)))


def _lift_from_spec(spec: NodePoolSpec, rule: Rule) -> NodePoolSpec:
    template, disruption = spec.template.spec, spec.disruption
    match rule.kind:
        case RuleKind.REQUIREMENTS:
            return _change_template(spec, requirements=_drop_key(template.requirements or (), rule.detail))
        case RuleKind.TAINTS:
            return _change_template(spec, taints=())
        case RuleKind.LIMIT:
            return replace(spec, limits={k: v for k, v in spec.limits.items() if k != rule.detail})
        case RuleKind.CONSOLIDATE_AFTER:
            return replace(spec, disruption=replace(disruption, consolidate_after=AT_ONCE[0]))
        case RuleKind.CONSOLIDATION_POLICY:
            return replace(spec, disruption=replace(disruption, consolidation_policy=POLICY))
        case _:
            assert rule.kind is RuleKind.BUDGET, f"{rule.kind} is no rule of a NodePool"
            return replace(spec, disruption=_drop_budget(disruption, int(rule.detail)))


def _change_template(spec: NodePoolSpec, **changed: object) -> NodePoolSpec:
    template: TemplateSpec = replace(spec.template.spec, **changed)
    return replace(spec, template=replace(spec.template, spec=template))


def _drop_key(listed: Iterable[Requirement], key: str) -> tuple[Requirement, ...]:
    return tuple(each for each in listed if labels.normalize_label(each.key) != key)


# It stands in the place of a budget that was lifted, so that the others keep their numbers.
_NO_BUDGET = Budget(nodes="100%")


def _drop_budget(disruption: Disruption, number: int) -> Disruption:
    listed = disruption.budgets or ()
    return replace(disruption, budgets=(*listed[:number], _NO_BUDGET, *listed[number + 1 :]))


def _make_consolidatable(state: StateNode, pool: str, now: datetime) -> StateNode:
    """The node as it is once its pool's consolidateAfter is over."""
    claim = state.claim
    if claim is None or views.read_pool_name(state) != pool or not views.is_initialized(state):
        return state
    if conditions.is_true(claim, conditions.CONSOLIDATABLE):
        return state
    done = Condition(type=conditions.CONSOLIDATABLE, status=conditions.TRUE, last_transition_time=now)
    return replace(state, claim=conditions.set_condition(claim, done, now, conditions.ROOTLESS))


# Zones


def _open_zone(situation: Situation, zone: str) -> Situation:
    """The zone as any other: not shifted away, and allowed wherever a NodePool names zones."""
    shifted = zone in situation.excluded_zones or zone in situation.closed_zones.values()
    snapshot = situation.snapshot
    pools = tuple(_allow_zone(pool, zone) for pool in snapshot.pools)
    snapshot = replace(snapshot, pools=pools)
    if shifted:
        snapshot = replace(
            _change_nodes(snapshot, lambda state: _untaint_node(state, zone)),
            catalogs=tuple(tuple(_sell_in(each, zone) for each in types) for types in snapshot.catalogs),
        )
    return replace(
        situation,
        snapshot=snapshot,
        excluded_zones=situation.excluded_zones - {zone},
        closed_zones={id_: name for id_, name in situation.closed_zones.items() if name != zone},
    )


def _allow_zone(pool: SnapshotPool, zone: str) -> SnapshotPool:
    spec = pool.nodepool.spec
    listed = spec.template.spec.requirements or ()
    allowed = Requirements.from_expressions(listed)
    if labels.ZONE not in allowed.by_key or zone in allowed[labels.ZONE]:
        return pool
    values = allowed[labels.ZONE]
    if values.open:
        zones = Requirement(key=labels.ZONE, operator="NotIn", values=tuple(sorted(values.names - {zone})))
    else:
        zones = Requirement(key=labels.ZONE, operator="In", values=tuple(sorted(values.names | {zone})))
    kept = _drop_key(listed, labels.ZONE)
    more = (zones,) if zones.values else ()
    changed = _change_template(spec, requirements=(*kept, *more))
    return replace(pool, nodepool=replace(pool.nodepool, spec=changed))


def _untaint_node(state: StateNode, zone: str) -> StateNode:
    node = state.node
    if node is None or node.labels.get(labels.ZONE) != zone or EXCLUDED_ZONE_TAINT not in node.spec.taints:
        return state
    taints = tuple(taint for taint in node.spec.taints if taint != EXCLUDED_ZONE_TAINT)
    return replace(state, node=replace(node, spec=replace(node.spec, taints=taints)))


def _sell_in(each: InstanceType, zone: str) -> InstanceType:
    """The type as if all that is offered in the zone could be had; that a shift closed it cannot be told."""
    if not any(offering.zone == zone and not offering.available for offering in each.offerings):
        return each
    offerings = tuple(
        replace(offering, available=True) if offering.zone == zone else offering
        for offering in each.offerings
    )
    return replace(each, offerings=offerings)

"""What a rule does to the shape of a fleet: nodes for all pods planned afresh, with the rule and without it.

The fleet without the rule is a plan that `verify` accepts. Where that plan happens to keep the rule, the
rule costs nothing: the other plan was merely not as good.
"""

from __future__ import annotations

from collections.abc import Collection

from dovetail.api.pod import Pod
from dovetail.disruption.lifted_rules import lift_rule
from dovetail.disruption.priced_cluster import PricedCluster, PriceKind, RulePrice, bound_bill, sum_bill
from dovetail.disruption.rules import Rule, RuleKind, find_workload
from dovetail.disruption.settling import build_planned_cluster
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.scheduling import verify
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.solve import compute_price_floor

__all__ = ["price_shape"]

# A price is told to be all that can be had when the floor leaves no more than this part of it.
_NO_MORE = 0.01
_WORKLOAD_RULES = frozenset((RuleKind.SPREAD, RuleKind.ANTI_AFFINITY, RuleKind.AFFINITY, RuleKind.SELECTOR))


def price_shape(cluster: PricedCluster, rule: Rule) -> RulePrice:
    """What nodes for all pods cost with the rule, less what they cost without it."""
    lifted = lift_rule(cluster.placed, rule)
    plan = decide_plan(lifted, cluster.effort, cluster.cache)
    if not _is_accepted(cluster, lifted.snapshot, plan):
        # A plan with the rule is one without it, too.
        plan = cluster.fresh_plan
    fleet = build_planned_cluster(lifted.snapshot, plan, "fresh")
    with_rule, without = sum_bill(cluster.fleet), sum_bill(fleet)
    kept = (
        rule.kind is not RuleKind.SPEND_LIMIT
        and _keeps_requirements(cluster.placed.snapshot, fleet)
        and _is_accepted(cluster, cluster.placed.snapshot, plan)
    )
    costs = 0.0 if kept else max(0.0, with_rule - without)
    listed = compute_price_floor(lifted.snapshot, cluster.cache)
    staying = 0.0 if lifted.snapshot.commitments else sum_bill(cluster.placed.snapshot)
    floor = bound_bill(lifted.snapshot, listed + staying)
    most = max(costs, (without if kept else with_rule) - floor)
    more = _count_more_placed(cluster, rule)
    return RulePrice(
        rule=rule,
        kind=PriceKind.SHAPE,
        costs_now=costs,
        at_most=most,
        how=_describe_shape(cluster, rule, fleet, costs, most, more),
    )


def _is_accepted(cluster: PricedCluster, snapshot: Snapshot, plan: Plan) -> bool:
    left_out = plan.left_out or plan.ignored
    return not left_out and not verify.verify_plan(snapshot, plan, cluster.cache)


def _keeps_requirements(snapshot: Snapshot, fleet: Snapshot) -> bool:
    """Whether NodePools may buy the very nodes that are counted; a plan lists other types beside these."""
    asked = {
        pool.name: Requirements.from_expressions(pool.nodepool.spec.template.spec.requirements or ())
        for pool in snapshot.pools
    }
    for state in filter(views.is_managed, fleet.nodes):
        known = views.read_labels(state)
        wanted = asked.get(views.read_pool_name(state), Requirements({}))
        if any(key in known and known[key] not in values for key, values in wanted.by_key.items()):
            return False
    return True


def _count_more_placed(cluster: PricedCluster, rule: Rule) -> int:
    """How many pods have a place without the rule, and none with it."""
    left_out = cluster.fresh_plan.left_out
    if not left_out:
        return 0
    plan = decide_plan(lift_rule(cluster.fresh, rule), cluster.effort, cluster.cache)
    return len(left_out - plan.left_out)


def _describe_shape(
    cluster: PricedCluster, rule: Rule, fleet: Snapshot, costs: float, most: float, more: int
) -> str:
    told = _describe_difference(cluster, rule, fleet) if costs else "a fleet for the same pods costs no less"
    if more:
        told += f"; {more:,} more pod{'' if more == 1 else 's'} would have a place"
    if costs and most - costs <= _NO_MORE * costs:
        told += " (the floor says no more can be had)"
    return told


def _describe_difference(cluster: PricedCluster, rule: Rule, fleet: Snapshot) -> str:
    if rule.kind in _WORKLOAD_RULES:
        pods = _list_pods_of(cluster.placed, rule.subject)
        need, would_do = (_count_hosts(each, pods) for each in (cluster.fleet, fleet))
        if would_do < need:
            some = f"{len(pods):,} pod{'' if len(pods) == 1 else 's'}"
            verb = "needs" if len(pods) == 1 else "need"
            return f"{some} {verb} {need:,} node{'' if need == 1 else 's'}; {would_do:,} would do"
    how, sizes = _describe_freedom(rule, cluster, fleet), _compare_sizes(cluster, fleet)
    return f"a fleet for the same pods {how}: {sizes}"


def _describe_freedom(rule: Rule, cluster: PricedCluster, fleet: Snapshot) -> str:
    match rule.kind:
        case RuleKind.REQUIREMENTS if rule.detail:
            values = _list_new_values(cluster.fleet, fleet, rule.subject, rule.detail)
            return f"with {', '.join(values)} allowed" if values else "without the requirement"
        case RuleKind.REQUIREMENTS:
            return "without any of them"
        case RuleKind.TAINTS:
            return "with the pool open to all of them"
        case RuleKind.LIMIT | RuleKind.SPEND_LIMIT:
            return "without the limit"
        case RuleKind.ZONE:
            return f"with {rule.subject} allowed"
        case _:
            return "without it"


def _list_new_values(before: Snapshot, after: Snapshot, pool: str, key: str) -> list[str]:
    """The values of a label that nodes of the pool have without the rule, and none has with it."""

    def list_values(snapshot: Snapshot) -> set[str]:
        known = (views.read_labels(each) for each in snapshot.nodes if views.read_pool_name(each) == pool)
        return {labels[key] for labels in known if key in labels}

    return sorted(list_values(after) - list_values(before))[:3]


def _compare_sizes(cluster: PricedCluster, fleet: Snapshot) -> str:
    before, after = (sum(map(views.is_managed, each.nodes)) for each in (cluster.fleet, fleet))
    nodes = f"{after:,} node{'' if after == 1 else 's'}"
    return f"{nodes} and not {before:,}" if after != before else f"{nodes} as before, but cheaper ones"


def _list_pods_of(situation: Situation, workload: str) -> frozenset[str]:
    def is_of(pod: Pod) -> bool:
        return "/".join(find_workload(pod)) == workload

    return frozenset(pod.full_name for pod in situation.snapshot.pods if is_of(pod))


def _count_hosts(snapshot: Snapshot, pods: Collection[str]) -> int:
    return sum(any(pod.full_name in pods for pod in state.pods) for state in snapshot.nodes)

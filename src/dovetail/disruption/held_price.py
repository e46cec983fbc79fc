"""What a rule holds back: the nodes that disruption would remove without it, and what they cost.

The cluster is first brought to where disruption leaves it with the rule; what more would be removed without
it is its price. No more than the nodes that it holds can be its fault: whatever disruption could make of the
others, it could with the rule as well. And no more can be saved than a floor leaves of all nodes that may be
disrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.candidates import Candidate, DisruptionClass, find_candidates
from dovetail.disruption.command import EMPTY, MULTI, Command
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.lifted_rules import lift_rule
from dovetail.disruption.methods.consolidation import explain_unconsolidatable
from dovetail.disruption.methods.emptiness import explain_not_empty
from dovetail.disruption.priced_cluster import PricedCluster, PriceKind, RulePrice, bound_bill, sum_bill
from dovetail.disruption.rules import Rule, RuleKind
from dovetail.disruption.settling import settle_disruption
from dovetail.scheduling.bill import sum_prices
from dovetail.scheduling.fleet_cost import compute_fleet_floor
from dovetail.scheduling.model import state_node as views

__all__ = ["list_eligible", "price_held"]

# Lifting these lets pods onto nodes as well, so that others than those they hold may go.
_OPENING = frozenset((RuleKind.CONSOLIDATE_AFTER, RuleKind.ZONE))

NOTHING = "it holds no node that could go"


def price_held(cluster: PricedCluster, rule: Rule) -> RulePrice:
    """What disruption would save without the rule, beyond what it saves with it."""
    before = cluster.settled
    situation = lift_rule(cluster.calm.with_snapshot(before.snapshot), rule)
    lifted = DisruptionInput.from_situation(situation, cluster.cache)
    known, eligible = list_eligible(before.inputs), list_eligible(lifted)
    freed = [eligible[key] for key in sorted(eligible.keys() - known.keys())]
    if not freed and rule.kind not in _OPENING:
        return RulePrice(rule=rule, kind=PriceKind.HELD, how=NOTHING)
    after = settle_disruption(lifted)
    costs = max(0.0, sum_bill(before.snapshot) - sum_bill(after.snapshot))
    gone = [candidate for command in after.commands for candidate in command.candidates]
    whole = sum_prices(gone)
    return RulePrice(
        rule=rule,
        kind=PriceKind.HELD,
        costs_now=costs,
        at_most=_find_most(lifted, eligible, freed, costs, rule),
        how=_describe_held(cluster, rule, freed, after.commands),
        nodes={each.name: costs * each.price / whole for each in gone} if whole else {},
    )


def list_eligible(inputs: DisruptionInput) -> dict[str, Candidate]:
    """The nodes that emptiness or consolidation may choose now, by key."""
    candidates, _ = find_candidates(inputs, DisruptionClass.GRACEFUL)
    empty, full = (compute_allowances(inputs, method.reason) for method in (EMPTY, MULTI))
    return {
        each.key: each
        for each in candidates
        if (explain_unconsolidatable(each) is None and full.count_left(each.pool.name))
        or (explain_not_empty(inputs, each) is None and empty.count_left(each.pool.name))
    }


def _find_most(
    lifted: DisruptionInput,
    eligible: Mapping[str, Candidate],
    freed: Sequence[Candidate],
    costs: float,
    rule: Rule,
) -> float:
    """The most that the rule can cost: all that it holds, or what a floor leaves of all that may go."""
    snapshot = lifted.snapshot
    keys = eligible.keys()
    staying = {views.read_name(each) for each in snapshot.nodes if views.read_provider_id(each) not in keys}
    waiting = {pod.full_name for pod in (*snapshot.pods, *snapshot.moving)}
    if snapshot.commitments:
        proven = sum_bill(snapshot) - bound_bill(snapshot, 0.0)
    else:
        floor = compute_fleet_floor(snapshot, waiting, lifted.cache, staying)
        proven = max(costs, sum_prices(eligible.values()) - floor)
    own = sum_prices(freed)
    return proven if rule.kind in _OPENING or own < costs else min(own, proven)


def _describe_held(
    cluster: PricedCluster, rule: Rule, freed: Sequence[Candidate], commands: Sequence[Command]
) -> str:
    gone = sum(len(command.candidates) for command in commands)
    new = sum(len(command.replacements) for command in commands)
    moved = sum(command.evictions for command in commands)
    since = _describe_since(cluster, rule)
    if not gone and not freed:
        return NOTHING
    if not gone:
        holds = "one node" if len(freed) == 1 else f"{len(freed):,} nodes"
        return f"it holds {holds}, whose pods could run nowhere cheaper{since}"
    nodes = "one node stays" if gone == 1 else f"{gone:,} nodes stay"
    instead = "would go" if not new else f"{'one' if new == 1 else f'{new:,}'} cheaper would replace"
    pods = f"; {moved:,} pod{'' if moved == 1 else 's'} would move" if moved else ""
    return f"{nodes} that {instead}{since}{pods}"


def _describe_since(cluster: PricedCluster, rule: Rule) -> str:
    """How long a mark on pods has held already."""
    if rule.kind is not RuleKind.DO_NOT_DISRUPT:
        return ""
    marked = {part.subject for part in rule.parts} or {rule.subject}
    pods = (pod for state in cluster.situation.snapshot.nodes for pod in state.pods)
    started = [each.status.start_time for each in pods if each.full_name in marked]
    begun = [each for each in started if each is not None]
    return f", since {_format_age(min(begun), cluster.situation.snapshot.options.now)}" if begun else ""


def _format_age(begun: datetime, now: datetime) -> str:
    lasted = max(timedelta(), now - begun)
    for unit, length in (("day", timedelta(days=1)), ("hour", timedelta(hours=1))):
        count = lasted // length
        if count:
            return f"{count:,} {unit}{'' if count == 1 else 's'}"
    minutes = lasted // timedelta(minutes=1)
    return f"{minutes} minute{'' if minutes == 1 else 's'}"

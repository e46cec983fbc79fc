"""What the rules of a cluster cost, in dollars an hour: two kinds of price, which are never added up.

    held    the cluster as it is: what disruption would save without the rule, beyond what it does anyway
    shape   nodes for all pods, planned afresh with the rule and without it

What a rule costs now is saved by plans that `verify` accepts; what it costs at most is proven by a floor. A
rule may well be worth its price: nothing here says that it should go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import combinations

from msgspec.structs import replace

from dovetail.disruption.held_price import price_held
from dovetail.disruption.lifted_rules import lift_rule
from dovetail.disruption.priced_cluster import PricedCluster, PriceKind, RulePrice
from dovetail.disruption.rules import HELD_RULES, Rule, RuleKind, find_rules, list_rules
from dovetail.disruption.shape_price import price_shape

__all__ = [
    "PriceKind",
    "PricedCluster",
    "Rule",
    "RuleKind",
    "RulePrice",
    "build_pairs",
    "find_rules",
    "lift_rule",
    "list_kinds",
    "list_rules",
    "price_rule",
    "price_rules",
    "rank_prices",
    "with_parts",
]

# So many of the dearest rules are tried in pairs.
PAIRED = 10
# Prices are sums of floats.
DUST = 1e-6


def list_kinds(rule: Rule) -> tuple[PriceKind, ...]:
    """The kinds of price that a rule can have."""
    if rule.kind in HELD_RULES:
        return (PriceKind.HELD,)
    return (PriceKind.HELD, PriceKind.SHAPE) if rule.kind is RuleKind.ZONE else (PriceKind.SHAPE,)


def price_rule(cluster: PricedCluster, rule: Rule) -> tuple[RulePrice, ...]:
    """What one rule costs, by each kind of price that it can have."""
    return tuple(
        price_held(cluster, rule) if kind is PriceKind.HELD else price_shape(cluster, rule)
        for kind in list_kinds(rule)
    )


def price_rules(
    cluster: PricedCluster, rules: Iterable[Rule], step: Callable[[str], None] = lambda text: None
) -> list[RulePrice]:
    """What these rules cost, each by itself, in their order."""
    found: list[RulePrice] = []
    for rule in rules:
        step(rule.name)
        found += price_rule(cluster, rule)
    return found


def with_parts(rules: Iterable[Rule]) -> tuple[Rule, ...]:
    """These rules and the parts of each, once."""
    named: dict[str, Rule] = {}
    for rule in rules:
        named |= {each.name: each for each in (rule, *rule.parts) if each.name not in named}
    return tuple(named.values())


def rank_prices(prices: Iterable[RulePrice]) -> list[RulePrice]:
    """The dearest first, equals by name. Lifting several rules saves no less than lifting some of them."""
    listed = tuple(prices)
    settled = (_settle_whole(each, listed) for each in listed)
    return sorted(settled, key=lambda each: (-each.costs_now, each.rule.name, each.kind))


def _settle_whole(price: RulePrice, prices: Sequence[RulePrice]) -> RulePrice:
    """What is saved without one part is saved without all of them; and parts may add up to more."""
    if not price.rule.parts:
        return price
    lifted = _list_leaves(price.rule)
    inside = [each for each in prices if each.kind is price.kind and _list_leaves(each.rule) < lifted]
    dearest = max(inside, key=lambda each: (each.costs_now, each.rule.name), default=price)
    if dearest.costs_now > price.costs_now:
        told = f"as without {dearest.rule.name} alone"
        price = replace(price, costs_now=dearest.costs_now, how=told, nodes=dearest.nodes)
    names = {part.name for part in price.rule.parts}
    added = sum(each.costs_now for each in inside if each.rule.name in names)
    if added > price.costs_now + DUST:
        told = f"its parts add up to ${added:,.2f}, for one will do in place of another"
        price = replace(price, how=f"{price.how}; {told}")
    return replace(price, at_most=max(price.at_most, price.costs_now))


def _list_leaves(rule: Rule) -> frozenset[str]:
    """The names of all that is lifted with a rule."""
    if not rule.parts:
        return frozenset((rule.name,))
    return frozenset().union(*map(_list_leaves, rule.parts))


def build_pairs(prices: Sequence[RulePrice], most: int = PAIRED) -> tuple[Rule, ...]:
    """The dearest rules two by two, each pair a rule with two parts; only prices of a kind are paired."""
    found: list[Rule] = []
    for kind in PriceKind:
        dearest = [each.rule for each in prices if each.kind is kind and each.listed][:most]
        for one, other in combinations(dearest, 2):
            if one in other.parts or other in one.parts:
                continue  # the whole is that pair already
            found.append(_pair_rules(one, other))
    return tuple({rule.name: rule for rule in found}.values())


def _pair_rules(one: Rule, other: Rule) -> Rule:
    return Rule(
        name=f"{one.name} + {other.name}",
        kind=one.kind,
        subject="",
        words=f"{one.words} and {other.words}",
        parts=(one, other),
    )

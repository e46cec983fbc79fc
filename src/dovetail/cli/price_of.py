"""``dovetail price-of``: what the rules of a cluster cost an hour."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from dovetail.cli.views.output import print_note
from dovetail.cli.views.rule_prices import price_in_processes, show_prices, write_csv, write_prices
from dovetail.cli.views.world_source import WorldSource, add_world_options
from dovetail.disruption.pricing_rules import (
    PricedCluster,
    RulePrice,
    build_pairs,
    find_rules,
    list_rules,
    rank_prices,
    with_parts,
)

NONE_LISTED = "note: no rule here costs a cent an hour"
INTERACT = (
    "note: each rule is priced as if all others stayed; prices of rules do not add up, and held and shape "
    "never do"
)


class PriceOutput(StrEnum):
    """The shape of a table of prices."""

    table = "table"
    json = "json"
    csv = "csv"


RuleArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RULE…]",
        help="Rules by name, such as pdb/shop/db, pod/batch/x:do-not-disrupt, deployment/shop/web:spread, "
        "pool/default:requirements[instance-family], budget/default[0], limit/default:cpu, spendlimit/dev or "
        "zone/us-east-1c; else all that cost something.",
        show_default=False,
    ),
]
TopOption = Annotated[int, typer.Option("--top", min=1, metavar="N", help="Show so many, the dearest first.")]
PairsOption = Annotated[bool, typer.Option("--pairs", help="Try the ten dearest two by two as well.")]
WorkersOption = Annotated[
    int, typer.Option("--workers", min=0, metavar="N", help="Processes to use; 0 for one for each CPU.")
]
PriceOutputOption = Annotated[PriceOutput, typer.Option("--output", "-o", help="Shape of the result.")]


@add_world_options
def price_of(
    rules: RuleArgument = None,
    *,
    world: WorldSource,
    top: TopOption = 20,
    pairs: PairsOption = False,
    workers: WorkersOption = 0,
    output: PriceOutputOption = PriceOutput.table,
) -> None:
    """Say what budgets, affinities, requirements and other rules cost.

    Looks at the live cluster unless a snapshot or a recording is given. Each rule is lifted in memory. "held"
    is what disruption would save without it, "shape" what nodes for all pods planned afresh would. A plan
    saves what a rule costs now; that it costs no more than "at most" is proven. Nothing is written to the
    cluster, and a rule may be worth its price.
    """
    situation = world.read().situation
    known = list_rules(situation)
    asked = find_rules(known, rules) if rules else known
    cluster = PricedCluster(situation)
    prices = rank_prices(price_in_processes(cluster, with_parts(asked) if rules else asked, workers))
    named = {each.rule.name for each in prices}
    shown = prices if rules else [each for each in prices if each.listed]
    both: list[RulePrice] = []
    if pairs:
        paired = price_in_processes(cluster, build_pairs(prices), workers)
        both = [each for each in rank_prices([*prices, *paired]) if each.rule.name not in named]
    if output is PriceOutput.json:
        write_prices(shown, both, situation.snapshot.options.now)
    elif output is PriceOutput.csv:
        write_csv((*shown, *both))
    else:
        show_prices(shown[:top], both[:top], len(shown))
        print_note(INTERACT if shown else NONE_LISTED)

"""``dovetail bill``: what a cluster costs an hour, and who has that in use."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from dovetail.cli.views.bills import parse_grouping, show_bill, write_bill, write_focus
from dovetail.cli.views.world_source import WorldSource, add_world_options
from dovetail.scheduling.fleet_cost import bill_running_nodes


class BillOutput(StrEnum):
    """The shape of a bill."""

    table = "table"
    json = "json"
    csv = "csv"


GroupOption = Annotated[
    str,
    typer.Option(
        "--by",
        metavar="pool|zone|type|capacity-type|namespace|label:KEY",
        help="What the dollars are added up by. For a namespace or a label of pods, a node's price is split "
        "by what its pods request, and idle room is shown apart.",
    ),
]
BillOutputOption = Annotated[
    BillOutput,
    typer.Option("--output", "-o", help="Shape of the result; csv has a row a node, with FOCUS columns."),
]


@add_world_options
def bill(
    by: GroupOption = "pool",
    *,
    world: WorldSource,
    output: BillOutputOption = BillOutput.table,
) -> None:
    """Say what the nodes of a cluster cost an hour, and who has them in use.

    Looks at the live cluster unless a snapshot or a recording is given. Prices are list prices of what runs,
    as the NodePools' catalogues have them; nodes that no NodeClaim ordered are not on the bill, and nodes
    whose price nobody knows are named. Nothing is written to the cluster.
    """
    grouping = parse_grouping(by)
    seen = world.read().snapshot
    found = bill_running_nodes(seen)
    if output is BillOutput.csv:
        write_focus(found, seen)
    elif output is BillOutput.json:
        write_bill(found, seen, grouping)
    else:
        show_bill(found, seen, grouping)

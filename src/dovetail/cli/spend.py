"""``dovetail spend``: what SpendLimits allow, what is spent, and who is held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from dovetail.api.spend_limit import SpendLimit
from dovetail.app.cluster_source import SeenCluster
from dovetail.cli.views.output import LEFT_OUT, Output, OutputOption, print_note
from dovetail.cli.views.spending import show_spending
from dovetail.cli.views.world_files import read_change_files
from dovetail.cli.views.world_source import WorldSource, add_world_options
from dovetail.disruption.situation import Situation, decide_plan
from dovetail.errors import BadInput
from dovetail.scheduling.model.decision_cache import DecisionCache
from dovetail.scheduling.spend_report import build_spend_report
from dovetail.state.situation import change_spend_limits

CHECK = "check"
NameArgument = Annotated[
    str,
    typer.Argument(
        metavar="[NAME|check]", help="One SpendLimit; or check, to try those of files.", show_default=False
    ),
]
CheckedFiles = Annotated[
    list[str] | None,
    typer.Option(
        "--filename", "-f", metavar="PATH", help="With check: SpendLimits that are tried as if applied."
    ),
]


@add_world_options
def spend(
    name: NameArgument = "",
    files: CheckedFiles = None,
    *,
    world: WorldSource,
    output: OutputOption = Output.table,
) -> None:
    """Say what SpendLimits allow, what nodes cost, and which pods are held.

    Looks at the live cluster unless a snapshot or a recording is given. `dovetail spend check -f FILE` says
    what SpendLimits in files would hold now, beside those that are there; nothing is written to the cluster.
    Exit code 3 says that pods are held.
    """
    if (name == CHECK) != bool(files):
        raise BadInput("check tries the SpendLimits of files; write `dovetail spend check -f FILE`")
    tried = _read_limits(files) if files else ()
    seen = world.read()
    situation = _add_limits(seen, tried)
    cache = DecisionCache()
    plan = decide_plan(situation, cache=cache)
    lines = build_spend_report(situation.snapshot, situation.spend_caps, plan, cache)
    if name and name != CHECK:
        lines = tuple(line for line in lines if line.limit == name)
        if not lines:
            raise BadInput(f"there is no SpendLimit {name} here; `dovetail spend` lists those that there are")
    if not lines:
        print_note("note: there is no SpendLimit here, or the controller does not follow them (SPEND_LIMITS)")
    show_spending(lines, seen.spend_limits, output)
    if any(line.held and not line.warns for line in lines):
        raise typer.Exit(LEFT_OUT)


def _read_limits(paths: Sequence[str]) -> tuple[SpendLimit, ...]:
    limits = tuple(read_change_files(paths).list_objects(SpendLimit))
    if not limits:
        raise BadInput(f"there is no SpendLimit in {', '.join(paths)}")
    return limits


def _add_limits(seen: SeenCluster, tried: Sequence[SpendLimit]) -> Situation:
    """The cluster with these limits, each in place of its namesake."""
    return change_spend_limits(seen.situation, seen.spend_limits, tried) if tried else seen.situation

"""What would be disrupted, as people and programs read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime, timedelta
from difflib import get_close_matches
from math import isinf

from dovetail.api import labels
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.solved_plan import build_disruption_input
from dovetail.cli.views.output import (
    Output,
    format_count,
    merge_alike,
    print_note,
    print_structured,
    print_table,
    print_text,
    some_of,
)
from dovetail.cli.views.progress import ProgressBar
from dovetail.disruption.blocked_reason import PASSING
from dovetail.disruption.command import Command
from dovetail.disruption.methods.drift_waves import DriftWave, DriftWaves, WaveReplacement
from dovetail.disruption.report import BlockedNodeReport, DisruptionReport, build_report
from dovetail.errors import BadInput
from dovetail.scheduling.bill import HOURS_A_MONTH, PriceList, bill_nodes
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.plan import PlannedNode
from dovetail.settings import durations

__all__ = ["build_wave", "format_duration", "plan_disruption", "show_node", "show_survey", "show_waves"]

SHOWN_WAVES = 12
ESTIMATED = "~"  # as in a plan
LEGEND = f"{ESTIMATED} marks estimates: prices that are not known without asking AWS"


def show_survey(
    found: DisruptionReport, now: datetime, output: Output, estimated: Collection[str] = ()
) -> None:
    """Print the commands turn by turn, the waves of drift, and every blocked node with its reason.

    `estimated` are nodes whose price stands for one that nobody knows.
    """
    if output is not Output.table:
        print_structured(_build_document(found, now, estimated), output)
        return
    rows = [
        _build_row(number, command, estimated)
        for number, turn in enumerate(found.turns, 1)
        for command in turn.commands
    ]
    if rows:
        columns = ("TURN", "WHY", "DECISION", "NODES", "REPLACED BY", "PODS", "SAVES $/H", "PAID BACK IN")
        print_table(columns, rows)
        print_text("\n")
    show_waves(found.waves)
    if found.blocked_nodes:
        print_table(
            ("BLOCKED NODE", "POOL", "$/H", "REASON", "BECAUSE"),
            merge_alike(_build_blocked_row(each, estimated) for each in found.blocked_nodes),
        )
        print_text("\n")
    print_text(_describe_totals(found, estimated))


def _is_estimated(command: Command, estimated: Collection[str]) -> bool:
    """Whether what a command saves hangs on an estimated price."""
    return any(each.name in estimated for each in command.candidates) or any(
        each.price_estimated for each in command.replacements
    )


def _build_row(number: int, command: Command, estimated: Collection[str]) -> tuple[str, ...]:
    mark = ESTIMATED if _is_estimated(command, estimated) else ""
    return (
        str(number),
        command.method.reason,
        command.decision,
        some_of([candidate.name for candidate in command.candidates]),
        _describe_replacements(command.replacements),
        str(command.evictions),
        f"{mark}{command.savings:.4f}",
        _describe_payback(command),
    )


def _describe_replacements(new: Iterable[PlannedNode]) -> str:
    kinds = Counter(f"{n.instance_type or 'any type'} {n.zone} {n.capacity_type}".strip() for n in new)
    return ", ".join(f"{count} × {kind}" for kind, count in kinds.items()) or "-"


def _describe_payback(command: Command) -> str:
    if command.savings <= 0:
        return "-"
    return "at once" if command.payback is None else format_duration(timedelta(hours=command.payback))


def format_duration(length: timedelta) -> str:
    """A length of time to the second, as Go writes it."""
    return durations.render_duration(timedelta(seconds=round(length.total_seconds())))


def _build_blocked_row(blocked: BlockedNodeReport, estimated: Collection[str]) -> tuple[str, ...]:
    mark = ESTIMATED if blocked.name in estimated else ""
    price = f"{mark}{blocked.price:.4f}" if blocked.price else "?"
    return blocked.name, blocked.pool or "-", price, str(blocked.main.blocked_reason), blocked.main.why


def show_waves(found: DriftWaves) -> None:
    """Print the waves of drift, where there is more than one, and the NodePools whose drift is paused."""
    for pool, gate in found.gates.items():
        print_text(f"drift of pool {pool} is {gate.flow}: {gate.why}\n")
    if found.gates:
        print_text("\n")
    if len(found.waves) < 2 and not any(wave.after for wave in found.waves):
        return  # one wave is what the commands above already say
    rows = [_wave_row(number, wave) for number, wave in enumerate(found.waves, 1)]
    print_table(("WAVE", "NODES", "PODS", "AT MOST BOUGHT", "NOT BEFORE"), rows[:SHOWN_WAVES])
    if len(rows) > SHOWN_WAVES:
        print_text(f"and {format_count(len(rows) - SHOWN_WAVES, 'more wave')}\n")
    print_text("\n")


def _wave_row(number: int, wave: DriftWave) -> tuple[str, ...]:
    after = f"in {format_duration(wave.after)}" if wave.after else "-"
    bought = ", ".join(f"{r.count} × {r.instance_type or 'any type'}" for r in wave.replacements) or "-"
    return str(number), some_of(wave.nodes), str(wave.pods), bought, after


def _describe_totals(found: DisruptionReport, estimated: Collection[str]) -> str:
    going = [candidate for command in found.commands for candidate in command.candidates]
    guessed = any(_is_estimated(command, estimated) for command in found.commands)
    marked = guessed or any(each.name in estimated for each in found.blocked_nodes)
    legend = [LEGEND] if marked else []
    if not going:
        return "\n".join([f"nothing would be disrupted now; {_describe_blocked(found)}", *legend]) + "\n"
    moved, bought = sum(c.evictions for c in found.commands), sum(len(c.replacements) for c in found.commands)
    monthly = found.savings * HOURS_A_MONTH
    lines = [
        f"{format_count(len(going), 'node')} removable, {format_count(bought, 'replacement')}, "
        f"{format_count(moved, 'pod')} would move, {_describe_blocked(found)}",
        f"saves {ESTIMATED if guessed else ''}${found.savings:,.4f} an hour, ${monthly:,.0f} a month",
        *legend,
    ]
    if found.more:
        lines.append("there is more to find in later turns: see --turns")
    return "\n".join(lines) + "\n"


def _describe_blocked(found: DisruptionReport) -> str:
    count = len(found.blocked_nodes)
    return f"{format_count(count, 'node')} blocked"


def show_node(found: DisruptionReport, node: str, output: Output, estimated: Collection[str] = ()) -> None:
    """Print the command that removes one node and where its pods go, or every reason that blocks it."""
    if output is not Output.table:
        print_structured(_node_document(found, node, estimated), output)
        return
    for turn, command in _commands_of(found, node):
        print_text(f"{node} is removable in turn {turn}: {command.sentence}\n")
        guess = " (estimated)" if _is_estimated(command, estimated) else ""
        print_text(f"  {command.saving}{guess}, paid back: {_describe_payback(command)}\n")
        for pod, where in _list_moves(command):
            print_text(f"  {pod} moves to {where}\n")
        for new in command.replacements:
            print_text(f"  new: {new.sentence}\n")
        return
    standing = next(each for each in found.blocked_nodes if each.name == node)
    print_text(f"{node} is blocked: {standing.main.why}\n")
    for reason in standing.reasons:
        print_text(
            f"  {reason.method.reason} ({reason.method.kind or 'drift'}): "
            f"{reason.blocked_reason}: {reason.why}\n"
        )


def _commands_of(found: DisruptionReport, node: str) -> Iterator[tuple[int, Command]]:
    for number, turn in enumerate(found.turns, 1):
        for command in turn.commands:
            if any(candidate.name == node for candidate in command.candidates):
                yield number, command


def _list_moves(command: Command) -> Iterator[tuple[str, str]]:
    """Where each pod that moves would be."""
    homes = dict(_list_targets(command))
    for candidate in command.candidates:
        for pod in candidate.pods:
            yield pod.full_name, homes.get(pod.full_name, "any node with free capacity")


def _list_targets(command: Command) -> Iterator[tuple[str, str]]:
    for number, node in enumerate(command.replacements, 1):
        yield from ((pod, f"new node {number}") for pod in node.pods)
    for name, pods in command.plan.existing.items() if command.plan else ():
        yield from ((pod, name) for pod in pods)


def _build_document(found: DisruptionReport, now: datetime, estimated: Collection[str]) -> dict[str, object]:
    return {
        "now": now.isoformat(),
        "commands": [
            _build_command(number, command, estimated)
            for number, turn in enumerate(found.turns, 1)
            for command in turn.commands
        ],
        "staying": [_build_blocked(each, estimated) for each in found.blocked_nodes],
        "waves": [build_wave(each) for each in found.waves.waves],
        "drift": {
            pool: {"flow": str(gate.flow), "reason": gate.reason, "why": gate.why}
            for pool, gate in found.waves.gates.items()
        },
        "savingsHourly": found.savings,
        "more": found.more,
    }


def _build_command(turn: int, command: Command, estimated: Collection[str]) -> dict[str, object]:
    return {
        "turn": turn,
        "reason": command.method.reason,
        "type": command.method.kind or None,
        "decision": command.decision,
        "nodes": [
            {
                "name": candidate.name,
                "nodepool": candidate.pool.name,
                "instanceType": candidate.labels.get(labels.INSTANCE_TYPE),
                "zone": candidate.zone or None,
                "capacityType": candidate.capacity_type or None,
                "price": candidate.price or None,
                **({"priceEstimated": True} if candidate.name in estimated else {}),
            }
            for candidate in command.candidates
        ],
        "replacements": [_build_replacement(node) for node in command.replacements],
        "moves": [{"pod": pod, "to": where} for pod, where in _list_moves(command)],
        "evictions": command.evictions,
        "costHourly": command.cost,
        "savingsHourly": command.savings,
        "paybackHours": command.payback,
    }


def _build_replacement(node: PlannedNode) -> dict[str, object]:
    return {
        "nodepool": node.pool,
        "instanceType": node.instance_type or None,
        "instanceTypes": list(node.instance_types),
        "zone": node.zone or None,
        "capacityType": node.capacity_type or None,
        "price": None if isinf(node.price) else node.price,
        **({"priceEstimated": True} if node.price_estimated else {}),
        "pods": list(node.pods),
    }


def _build_blocked(blocked: BlockedNodeReport, estimated: Collection[str]) -> dict[str, object]:
    return {
        "node": blocked.name,
        "nodepool": blocked.pool or None,
        "nodeClaim": blocked.state.claim.name if blocked.state.claim else None,
        "price": blocked.price or None,
        **({"priceEstimated": True} if blocked.name in estimated else {}),
        "pods": len(list(views.list_running_pods(blocked.state.pods))),
        "reason": str(blocked.main.blocked_reason),
        "why": blocked.main.why,
        "pod": blocked.main.pod or None,
        "reasons": [
            {
                "method": each.method.reason,
                "type": each.method.kind or None,
                "reason": str(each.blocked_reason),
            }
            | {"why": each.why}
            for each in blocked.reasons
        ],
    }


def build_wave(wave: DriftWave) -> dict[str, object]:
    """A wave of drift, for programs."""
    return {
        "nodes": list(wave.nodes),
        "pods": wave.pods,
        "replacements": [_build_wave_replacement(each) for each in wave.replacements],
        "afterSeconds": wave.after.total_seconds(),
    }


def _build_wave_replacement(each: WaveReplacement) -> dict[str, object]:
    return {
        "nodepool": each.pool,
        "instanceType": each.instance_type or None,
        "capacityType": each.capacity_type or None,
        "price": None if isinf(each.price) else each.price,
        "count": each.count,
    }


def _node_document(found: DisruptionReport, node: str, estimated: Collection[str]) -> dict[str, object]:
    for turn, command in _commands_of(found, node):
        return {"node": node, "goes": True, "command": _build_command(turn, command, estimated)}
    standing = next(each for each in found.blocked_nodes if each.name == node)
    return {"goes": False} | _build_blocked(standing, estimated)


STEPS = 20


def plan_disruption(seen: SeenCluster, node: str, turns: int, output: Output) -> bool:
    """Show what would be disrupted; true when a drifted node is blocked until a person does something."""
    inputs, snapshot = build_disruption_input(seen), seen.snapshot
    if not any(state.claim is not None for state in snapshot.nodes):
        print_note("note: there is no node with a NodeClaim, so there is nothing to disrupt")
    with ProgressBar(STEPS) as progress:
        found = build_report(inputs, turns, progress.start_step)
    bill = bill_nodes(snapshot.nodes, PriceList.from_snapshot(snapshot))
    estimated = frozenset(line.node for line in bill.lines if line.estimated)
    if node:
        show_node(found, _check_node(found, node), output, estimated)
    else:
        show_survey(found, snapshot.options.now, output, estimated)
    return any(each.drifted and each.main.blocked_reason not in PASSING for each in found.blocked_nodes)


def _check_node(found: DisruptionReport, node: str) -> str:
    names = [each.name for each in found.blocked_nodes]
    names += [candidate.name for command in found.commands for candidate in command.candidates]
    if node in names:
        return node
    near = get_close_matches(node, names, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise BadInput(f"there is no node {node} here{hint}")

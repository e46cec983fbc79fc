"""What would be disrupted, as people and programs read it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from math import isinf

from dovetail.api import labels
from dovetail.cli.output import Output, alike, counted, put, some_of, structured, table
from dovetail.cli.planview import HOURS_A_MONTH
from dovetail.disruption.command import Command
from dovetail.disruption.survey import Standing, Survey
from dovetail.disruption.waves import Replacement, Wave
from dovetail.scheduling import nodes as views
from dovetail.scheduling.plan import PlannedNode
from dovetail.settings import durations

__all__ = ["show_node", "show_survey"]

SHOWN_WAVES = 12


def show_survey(found: Survey, now: datetime, output: Output) -> None:
    """The whole of it: commands turn by turn, waves of drift, and every node that stays with its reason."""
    if output is not Output.table:
        structured(_document(found, now), output)
        return
    rows = [_row(number, command) for number, turn in enumerate(found.turns, 1) for command in turn.commands]
    if rows:
        columns = ("TURN", "WHY", "DECISION", "NODES", "REPLACED BY", "PODS", "SAVES $/H", "PAID BACK IN")
        table(columns, rows)
        put("\n")
    _show_waves(found)
    if found.standing:
        table(("STAYS", "POOL", "$/H", "REASON", "BECAUSE"), alike(map(_stays, found.standing)))
        put("\n")
    put(_summary(found))


def _row(number: int, command: Command) -> tuple[str, ...]:
    return (
        str(number),
        command.method.reason,
        command.decision,
        some_of([candidate.name for candidate in command.candidates]),
        _bought(command.replacements),
        str(command.evictions),
        f"{command.savings:.4f}",
        _payback(command),
    )


def _bought(new: Iterable[PlannedNode]) -> str:
    kinds = Counter(f"{n.instance_type or 'any type'} {n.zone} {n.capacity_type}".strip() for n in new)
    return ", ".join(f"{count} × {kind}" for kind, count in kinds.items()) or "-"


def _payback(command: Command) -> str:
    if command.savings <= 0:
        return "-"
    return "at once" if command.payback is None else _told(timedelta(hours=command.payback))


def _told(length: timedelta) -> str:
    return durations.render(timedelta(seconds=round(length.total_seconds())))


def _stays(standing: Standing) -> tuple[str, ...]:
    price = f"{standing.price:.4f}" if standing.price else "?"
    return standing.name, standing.pool or "-", price, str(standing.main.held), standing.main.why


def _show_waves(found: Survey) -> None:
    for pool, gate in found.waves.gates.items():
        put(f"drift of pool {pool} is {gate.flow}: {gate.why}\n")
    if found.waves.gates:
        put("\n")
    if len(found.waves.waves) < 2 and not any(wave.after for wave in found.waves.waves):
        return  # one wave is what the commands above already say
    rows = [_wave_row(number, wave) for number, wave in enumerate(found.waves.waves, 1)]
    table(("WAVE", "NODES", "PODS", "AT MOST BOUGHT", "NOT BEFORE"), rows[:SHOWN_WAVES])
    if len(rows) > SHOWN_WAVES:
        put(f"and {counted(len(rows) - SHOWN_WAVES, 'more wave')}\n")
    put("\n")


def _wave_row(number: int, wave: Wave) -> tuple[str, ...]:
    after = f"in {_told(wave.after)}" if wave.after else "-"
    bought = ", ".join(f"{r.count} × {r.instance_type or 'any type'}" for r in wave.replacements) or "-"
    return str(number), some_of(wave.nodes), str(wave.pods), bought, after


def _summary(found: Survey) -> str:
    going = [candidate for command in found.commands for candidate in command.candidates]
    if not going:
        return f"nothing would be disrupted now; {_staying(found)}\n"
    moved, bought = sum(c.evictions for c in found.commands), sum(len(c.replacements) for c in found.commands)
    monthly = found.savings * HOURS_A_MONTH
    lines = [
        f"{counted(len(going), 'node')} would go for {bought}, {counted(moved, 'pod')} would move, "
        f"{_staying(found)}",
        f"saves ${found.savings:,.4f} an hour, ${monthly:,.0f} a month",
    ]
    if found.more:
        lines.append("there is more to find in later turns: see --turns")
    return "\n".join(lines) + "\n"


def _staying(found: Survey) -> str:
    count = len(found.standing)
    return f"{counted(count, 'node')} stay{'s' if count == 1 else ''}"


def show_node(found: Survey, node: str, output: Output) -> None:
    """Everything about one node: the command it is in and where its pods go, or every reason it stays."""
    if output is not Output.table:
        structured(_node_document(found, node), output)
        return
    for turn, command in _commands_of(found, node):
        put(f"{node} would go in turn {turn}: {command.method.reason}, {command}\n")
        put(f"  saves ${command.savings:.4f} an hour, paid back: {_payback(command)}\n")
        for pod, where in _moves(command):
            put(f"  {pod} goes to {where}\n")
        for new in command.replacements:
            put(f"  new: {_node_words(new)}\n")
        return
    standing = next(each for each in found.standing if each.name == node)
    put(f"{node} stays: {standing.main.why}\n")
    for reason in standing.reasons:
        put(f"  {reason.method.reason} ({reason.method.kind or 'drift'}): {reason.held}: {reason.why}\n")


def _commands_of(found: Survey, node: str) -> Iterator[tuple[int, Command]]:
    for number, turn in enumerate(found.turns, 1):
        for command in turn.commands:
            if any(candidate.name == node for candidate in command.candidates):
                yield number, command


def _moves(command: Command) -> Iterator[tuple[str, str]]:
    """Where each pod that moves would be."""
    homes = dict(_homes(command))
    for candidate in command.candidates:
        for pod in candidate.pods:
            yield pod.full_name, homes.get(pod.full_name, "wherever there is room")


def _homes(command: Command) -> Iterator[tuple[str, str]]:
    for number, node in enumerate(command.replacements, 1):
        yield from ((pod, f"new node {number}") for pod in node.pods)
    for name, pods in command.plan.existing.items() if command.plan else ():
        yield from ((pod, name) for pod in pods)


def _node_words(node: PlannedNode) -> str:
    price = "" if isinf(node.price) else f", ${node.price:.4f} an hour"
    others = f" or one of {len(node.instance_types) - 1} others" if len(node.instance_types) > 1 else ""
    kind = node.instance_type or "as the template has it"
    return f"{kind}{others} of pool {node.pool} {node.zone} {node.capacity_type}".rstrip() + price


def _document(found: Survey, now: datetime) -> dict[str, object]:
    return {
        "now": now.isoformat(),
        "commands": [
            _command(number, command)
            for number, turn in enumerate(found.turns, 1)
            for command in turn.commands
        ],
        "staying": [_standing(each) for each in found.standing],
        "waves": [_wave(each) for each in found.waves.waves],
        "drift": {
            pool: {"flow": str(gate.flow), "reason": gate.reason, "why": gate.why}
            for pool, gate in found.waves.gates.items()
        },
        "savingsHourly": found.savings,
        "more": found.more,
    }


def _command(turn: int, command: Command) -> dict[str, object]:
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
            }
            for candidate in command.candidates
        ],
        "replacements": [_replacement(node) for node in command.replacements],
        "moves": [{"pod": pod, "to": where} for pod, where in _moves(command)],
        "evictions": command.evictions,
        "costHourly": command.cost,
        "savingsHourly": command.savings,
        "paybackHours": command.payback,
    }


def _replacement(node: PlannedNode) -> dict[str, object]:
    return {
        "nodepool": node.pool,
        "instanceType": node.instance_type or None,
        "instanceTypes": list(node.instance_types),
        "zone": node.zone or None,
        "capacityType": node.capacity_type or None,
        "price": None if isinf(node.price) else node.price,
        "pods": list(node.pods),
    }


def _standing(standing: Standing) -> dict[str, object]:
    return {
        "node": standing.name,
        "nodepool": standing.pool or None,
        "nodeClaim": standing.state.claim.name if standing.state.claim else None,
        "price": standing.price or None,
        "pods": len(list(views.running(standing.state.pods))),
        "reason": str(standing.main.held),
        "why": standing.main.why,
        "pod": standing.main.pod or None,
        "reasons": [
            {"method": each.method.reason, "type": each.method.kind or None, "reason": str(each.held)}
            | {"why": each.why}
            for each in standing.reasons
        ],
    }


def _wave(wave: Wave) -> dict[str, object]:
    return {
        "nodes": list(wave.nodes),
        "pods": wave.pods,
        "replacements": [_kind(each) for each in wave.replacements],
        "afterSeconds": wave.after.total_seconds(),
    }


def _kind(each: Replacement) -> dict[str, object]:
    return {
        "nodepool": each.pool,
        "instanceType": each.instance_type or None,
        "capacityType": each.capacity_type or None,
        "price": None if isinf(each.price) else each.price,
        "count": each.count,
    }


def _node_document(found: Survey, node: str) -> dict[str, object]:
    for turn, command in _commands_of(found, node):
        return {"node": node, "goes": True, "command": _command(turn, command)}
    standing = next(each for each in found.standing if each.name == node)
    return {"goes": False} | _standing(standing)

"""Disruption: which nodes would go now, for what, what that saves, and which pods would move."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from dovetail.disruption.command import Command
from dovetail.settings import durations
from dovetail.web.page import (
    HOURS_A_MONTH,
    Cell,
    Fact,
    Page,
    Table,
    Tone,
    dollars,
    names,
    number,
    prose,
    text,
    word,
)
from dovetail.web.picture import Picture
from dovetail.web.views.nodes import link

__all__ = ["disruption"]

COMMANDS = (
    ("turn", "Turn"),
    ("reason", "Why"),
    ("decision", "Decision"),
    ("nodes", "Nodes"),
    ("replacedBy", "Replaced by"),
    ("pods", "Pods moved"),
    ("savings", "Saves $/h"),
    ("payback", "Paid back in"),
)
MOVES = (("turn", "Turn"), ("pod", "Pod"), ("from", "From"), ("to", "To"))
STAYS = (("node", "Node"), ("pool", "Pool"), ("price", "$/h"), ("reason", "Reason"), ("why", "Because"))


def disruption(picture: Picture) -> Page:
    """Commands turn by turn, the pods they move, and why every other node stays."""
    found = picture.survey
    numbered = [(n, command) for n, turn in enumerate(found.turns, 1) for command in turn.commands]
    rows = tuple(_row(picture, n, command) for n, command in numbered)
    going = sum(len(command.candidates) for _, command in numbered)
    moved = sum(command.evictions for _, command in numbered)
    return Page(
        "Disruption",
        _sentence(going, moved, found.savings),
        (
            Fact("going", "Nodes that would go", number(going, tone="warn" if going else "")),
            Fact("moved", "Pods that would move", number(moved)),
            Fact("savings", "Saved an hour", dollars(found.savings, 4), _monthly(found.savings)),
            Fact("staying", "Nodes that stay", number(len(found.standing))),
        ),
        (
            Table("commands", "What would go", COMMANDS, rows, NOTHING),
            Table("moves", "Pods that would move", MOVES, _moves(numbered), "No pod would move."),
            _standing(picture),
        ),
        remarks=("There is more to find in later turns.",) if found.more else (),
    )


NOTHING = "Nothing would be disrupted now."


def _sentence(going: int, moved: int, savings: float) -> str:
    if not going:
        return "Nothing would be disrupted now; below is why."
    nodes, pods = ("node" if going == 1 else "nodes"), ("pod" if moved == 1 else "pods")
    return f"{going} {nodes} would go, {moved} {pods} would move, and ${savings:.4f} an hour would be saved."


def _monthly(savings: float) -> str:
    return f"${savings * HOURS_A_MONTH:,.0f} a month"


def _row(picture: Picture, turn: int, command: Command) -> tuple[Cell, ...]:
    gone = [candidate.name for candidate in command.candidates]
    kinds = Counter(
        f"{n.instance_type or 'any type'} {n.zone} {n.capacity_type}".strip() for n in command.replacements
    )
    return (
        number(turn),
        text(command.method.reason),
        word(str(command.decision), "warn"),
        Cell(gone, names([picture.short(name) for name in gone]).text, "prose"),
        names([f"{count} × {kind}" for kind, count in kinds.items()]),
        number(command.evictions),
        dollars(command.savings),
        _payback(command),
    )


def _payback(command: Command) -> Cell:
    if command.savings <= 0:
        return Cell(None, "–", "number", "quiet")
    if command.payback is None:
        return Cell(0, "at once", "number")
    told = durations.render(timedelta(seconds=round(command.payback * 3600)))
    return Cell(round(command.payback, 4), told, "number")


def _moves(numbered: list[tuple[int, Command]]) -> tuple[tuple[Cell, ...], ...]:
    rows = []
    for turn, command in numbered:
        homes = {
            pod: name
            for name, pods in (command.plan.existing if command.plan else {}).items()
            for pod in pods
        }
        homes |= {
            pod: f"a new {new.instance_type or 'node'}" for new in command.replacements for pod in new.pods
        }
        for candidate in command.candidates:
            for pod in candidate.pods:
                to = homes.get(pod.full_name, "wherever there is room")
                rows.append((number(turn), text(pod.full_name), text(candidate.name), text(to)))
    return tuple(rows)


def _standing(picture: Picture) -> Table:
    rows = []
    for each in picture.survey.standing:
        tone: Tone = "warn" if each.drifted else ""
        rows.append(
            (
                Cell(each.name, picture.short(each.name), link=link(each.name)),
                text(each.pool or None),
                dollars(each.price or None),
                word(str(each.main.held), tone),
                prose(each.main.why),
            )
        )
    return Table("staying", "What stays, and why", STAYS, tuple(rows), "Every node would go.")

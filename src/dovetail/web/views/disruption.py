"""Disruption: which nodes are removable now, what replaces them, what that saves, which pods would move."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

from dovetail.disruption.command import Command
from dovetail.picture import Picture
from dovetail.scheduling.bill import HOURS_A_MONTH
from dovetail.settings import durations
from dovetail.web.page import (
    Cell,
    Fact,
    Tone,
    WebPage,
    WebTable,
    names_cell,
    number_cell,
    price_cell,
    prose_cell,
    text_cell,
    word_cell,
)
from dovetail.web.views.nodes import link_node

__all__ = ["build_disruption_page"]

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
BLOCKED = (
    ("node", "Node"),
    ("pool", "Pool"),
    ("price", "$/h"),
    ("held", "Held: $/h"),
    ("reason", "Reason"),
    ("why", "Because"),
)


def build_disruption_page(picture: Picture) -> WebPage:
    """Commands turn by turn, the pods they move, and why every other node is blocked."""
    found = picture.survey
    numbered = [(n, command) for n, turn in enumerate(found.turns, 1) for command in turn.commands]
    rows = tuple(_build_row(picture, n, command) for n, command in numbered)
    going = sum(len(command.candidates) for _, command in numbered)
    moved = sum(command.evictions for _, command in numbered)
    return WebPage(
        "Disruption",
        _describe_savings(going, moved, found.savings),
        (
            Fact("going", "Removable nodes", number_cell(going, tone="warn" if going else "")),
            Fact("moved", "Pods that would move", number_cell(moved)),
            Fact("savings", "Saved an hour", price_cell(found.savings, 4), _format_monthly(found.savings)),
            Fact("staying", "Blocked nodes", number_cell(len(found.blocked_nodes))),
        ),
        (
            WebTable("commands", "Removable nodes", COMMANDS, rows, NOTHING),
            WebTable("moves", "Pods that would move", MOVES, _build_moves(numbered), "No pod would move."),
            _build_blocked(picture),
        ),
        remarks=("There is more to find in later turns.",) if found.more else (),
    )


NOTHING = "Nothing would be disrupted now."


def _describe_savings(going: int, moved: int, savings: float) -> str:
    if not going:
        return "Nothing would be disrupted now; below is why."
    nodes, pods = ("node" if going == 1 else "nodes"), ("pod" if moved == 1 else "pods")
    return f"{going} {nodes} removable, {moved} {pods} would move, and ${savings:.4f} an hour would be saved."


def _format_monthly(savings: float) -> str:
    return f"${savings * HOURS_A_MONTH:,.0f} a month"


def _build_row(picture: Picture, turn: int, command: Command) -> tuple[Cell, ...]:
    gone = [candidate.name for candidate in command.candidates]
    kinds = Counter(
        f"{n.instance_type or 'any type'} {n.zone} {n.capacity_type}".strip() for n in command.replacements
    )
    return (
        number_cell(turn),
        text_cell(command.method.reason),
        word_cell(str(command.decision), "warn"),
        Cell(gone, names_cell([picture.shorten_name(name) for name in gone]).text, "prose"),
        names_cell([f"{count} × {kind}" for kind, count in kinds.items()]),
        number_cell(command.evictions),
        price_cell(command.savings),
        _build_payback(command),
    )


def _build_payback(command: Command) -> Cell:
    if command.savings <= 0:
        return Cell(None, "–", "number", "quiet")
    if command.payback is None:
        return Cell(0, "at once", "number")
    told = durations.render_duration(timedelta(seconds=round(command.payback * 3600)))
    return Cell(round(command.payback, 4), told, "number")


def _build_moves(numbered: list[tuple[int, Command]]) -> tuple[tuple[Cell, ...], ...]:
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
                to = homes.get(pod.full_name, "any node with free capacity")
                rows.append(
                    (number_cell(turn), text_cell(pod.full_name), text_cell(candidate.name), text_cell(to))
                )
    return tuple(rows)


def _build_held(dollars: float | None) -> Cell:
    """What a rule that blocks the node costs with it; nothing where none does, or it is not known yet."""
    return Cell(None, "–", "number", "quiet") if dollars is None else price_cell(dollars)


def _build_blocked(picture: Picture) -> WebTable:
    rows, held = [], picture.rules.held
    for each in picture.survey.blocked_nodes:
        tone: Tone = "warn" if each.drifted else ""
        rows.append(
            (
                Cell(each.name, picture.shorten_name(each.name), link=link_node(each.name)),
                text_cell(each.pool or None),
                price_cell(each.price or None),
                _build_held(held.get(each.name)),
                word_cell(str(each.main.blocked_reason), tone),
                prose_cell(each.main.why),
            )
        )
    return WebTable("staying", "Blocked nodes, and why", BLOCKED, tuple(rows), "Every node is removable.")

"""Nodes: what each is, how full it is, and why it stays or by which command it would go."""

from __future__ import annotations

from urllib.parse import quote

from dovetail.api import labels
from dovetail.scheduling import nodes as states
from dovetail.scheduling.resources import needs
from dovetail.scheduling.snapshot import StateNode
from dovetail.web.page import (
    Cell,
    Fact,
    Page,
    Table,
    Tile,
    Tone,
    amount,
    counted,
    dollars,
    number,
    prose,
    share,
    text,
    word,
)
from dovetail.web.picture import Load, Picture

__all__ = ["link", "load_words", "node", "nodes", "tile"]

COLUMNS = (
    ("name", "Node"),
    ("pool", "Pool"),
    ("instanceType", "Type"),
    ("zone", "Zone"),
    ("capacityType", "Capacity"),
    ("price", "$/h"),
    ("cpu", "CPU asked"),
    ("memory", "Memory asked"),
    ("pods", "Pods"),
    ("state", "State"),
    ("why", "Why"),
)


def link(name: str) -> str:
    return f"nodes/{quote(name, safe='')}"


def nodes(picture: Picture) -> Page:
    """Every node."""
    stay, go = len(picture.standing), len(picture.going)
    return Page(
        "Nodes",
        f"{counted(len(picture.nodes), 'node')}: {go} would go now, {stay} would stay, each for its reason.",
        tables=(
            Table("nodes", "Nodes", COLUMNS, tuple(_row(picture, each) for each in picture.nodes), NONE),
        ),
    )


NONE = "There is no node yet. A pod that finds no room makes Dovetail buy one."


def _row(picture: Picture, state: StateNode) -> tuple[Cell, ...]:
    name, known = states.name(state), states.labels(state)
    capacity = known.get(labels.CAPACITY_TYPE)
    return (
        Cell(name, picture.short(name), link=link(name)),
        text(states.pool(state) or None),
        text(known.get(labels.INSTANCE_TYPE)),
        text(known.get(labels.ZONE)),
        word(capacity or "", "good" if capacity == labels.SPOT else ""),
        dollars(picture.prices.get(name)),
        share(picture.load("cpu", state).share),
        share(picture.load("memory", state).share),
        number(len(list(states.running(state.pods)))),
        _state(picture, state),
        prose(why(picture, name)),
    )


def _state(picture: Picture, state: StateNode) -> Cell:
    words, tone = stage(picture, state)
    return word(words, tone)


def stage(picture: Picture, state: StateNode) -> tuple[str, Tone]:
    """How far it has come, in a word."""
    if states.deleting(state):
        return "leaving", "warn"
    if states.name(state) in picture.going:
        return "would go", "warn"
    if state.claim is None:
        return "not ours", "quiet"
    if state.node is None:
        return "starting", "quiet"
    return ("running", "good") if states.initialized(state) else ("joining", "quiet")


def why(picture: Picture, name: str) -> str:
    """Why it stays, or by which command it would go: the words of `dovetail plan --disruption`."""
    command = picture.going.get(name)
    if command is not None:
        return f"{command.method.reason}: {command}, saves ${command.savings:.4f} an hour"
    standing = picture.standing.get(name)
    return standing.main.why if standing is not None else ""


def tile(picture: Picture, state: StateNode) -> Tile:
    name, used = states.name(state), picture.load("cpu", state).share or 0.0
    words, _ = stage(picture, state)
    known = states.labels(state)
    kind = known.get(labels.INSTANCE_TYPE, "unknown type")
    about = f"{name}: {kind}, {states.pool(state) or 'no pool'}, {words}, {used:.0%} of its CPU asked for"
    tone: Tone = "warn" if words in ("would go", "leaving") else "quiet" if words == "not ours" else "good"
    return Tile(name, used, tone, about, link(name))


def node(picture: Picture, name: str) -> Page | None:
    """One node: what it is, every reason that keeps it, and the pods on it."""
    state = next((each for each in picture.nodes if states.name(each) == name), None)
    if state is None:
        return None
    words, tone = stage(picture, state)
    facts = (
        Fact("state", "State", word(words, tone)),
        Fact("price", "Price an hour", dollars(picture.prices.get(name))),
        Fact("cpu", "CPU asked for", share(picture.load("cpu", state).share), _amount(picture, state, "cpu")),
        Fact(
            "memory",
            "Memory asked for",
            share(picture.load("memory", state).share),
            _amount(picture, state, "memory"),
        ),
    )
    tables = (_about(picture, state), _reasons(picture, name), _conditions(state), _pods(state))
    return Page(name, why(picture, name), facts, tables)


def _amount(picture: Picture, state: StateNode, resource: str) -> str:
    return load_words(resource, picture.load(resource, state))


def load_words(resource: str, load: Load) -> str:
    unit = " cores" if resource == "cpu" else ""
    return f"{amount(resource, load.asked).text} of {amount(resource, load.room).text}{unit}"


def _about(picture: Picture, state: StateNode) -> Table:
    known = states.labels(state)
    told = (
        ("pool", states.pool(state)),
        ("instance type", known.get(labels.INSTANCE_TYPE)),
        ("zone", known.get(labels.ZONE)),
        ("capacity type", known.get(labels.CAPACITY_TYPE)),
        ("claim", state.claim.name if state.claim else None),
        ("provider ID", states.provider_id(state)),
    )
    rows = tuple((text(name), text(value or None)) for name, value in told)
    return Table("about", "About it", (("name", "What"), ("value", "Is")), rows, "Nothing is known of it.")


def _reasons(picture: Picture, name: str) -> Table:
    columns = (("method", "Way to go"), ("held", "Held by"), ("why", "Because"))
    standing = picture.standing.get(name)
    rows = tuple(
        (text(each.method.reason), word(str(each.held)), prose(each.why))
        for each in (standing.reasons if standing else ())
    )
    return Table("reasons", "What keeps it", columns, rows, "Nothing keeps it.")


def _conditions(state: StateNode) -> Table:
    columns = (("type", "Condition"), ("status", "Status"), ("reason", "Reason"), ("message", "Message"))
    said = (
        state.claim.status.conditions if state.claim else state.node.status.conditions if state.node else ()
    )
    rows = tuple((text(c.type), word(c.status), text(c.reason), prose(c.message)) for c in said)
    return Table("conditions", "Conditions", columns, rows, "It has no conditions.")


def _pods(state: StateNode) -> Table:
    columns = (("name", "Pod"), ("cpu", "CPU"), ("memory", "Memory"))
    rows = tuple(
        (text(pod.full_name), *(amount(name, needs(pod).get(name, 0)) for name in ("cpu", "memory")))
        for pod in states.running(state.pods)
    )
    return Table("pods", "Pods on it", columns, rows, "No pod runs on it.")

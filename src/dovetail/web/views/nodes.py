"""Nodes: what each is, how much of it is requested, and why it is blocked or which command removes it."""

from __future__ import annotations

from urllib.parse import quote

from dovetail.api import labels
from dovetail.picture import Picture, ResourceLoad
from dovetail.scheduling.model import state_node as states
from dovetail.scheduling.model.resources import compute_nano_requests
from dovetail.scheduling.model.snapshot import StateNode
from dovetail.web.page import (
    Cell,
    Fact,
    Tile,
    Tone,
    WebPage,
    WebTable,
    amount_cell,
    format_count,
    number_cell,
    price_cell,
    prose_cell,
    share_cell,
    text_cell,
    word_cell,
)
from dovetail.web.views.history import build_history_table

__all__ = ["build_node_page", "build_nodes_page", "build_tile", "describe_load", "link_node"]

COLUMNS = (
    ("name", "Node"),
    ("pool", "Pool"),
    ("instanceType", "Type"),
    ("zone", "Zone"),
    ("capacityType", "Capacity type"),
    ("price", "$/h"),
    ("cpu", "CPU requested"),
    ("memory", "Memory requested"),
    ("pods", "Pods"),
    ("state", "State"),
    ("why", "Why"),
)


def link_node(name: str) -> str:
    return f"nodes/{quote(name, safe='')}"


def build_nodes_page(picture: Picture) -> WebPage:
    """Every node."""
    stay, go = len(picture.blocked), len(picture.candidates)
    return WebPage(
        "Nodes",
        f"{format_count(len(picture.nodes), 'node')}: "
        f"{go} removable now, {stay} blocked, each for its reason.",
        tables=(
            WebTable(
                "nodes", "Nodes", COLUMNS, tuple(_build_row(picture, each) for each in picture.nodes), NONE
            ),
        ),
    )


NONE = "There is no node yet. Dovetail launches one when a pod is unschedulable."


def _build_row(picture: Picture, state: StateNode) -> tuple[Cell, ...]:
    name, known = states.read_name(state), states.read_labels(state)
    capacity = known.get(labels.CAPACITY_TYPE)
    return (
        Cell(name, picture.shorten_name(name), link=link_node(name)),
        text_cell(states.read_pool_name(state) or None),
        text_cell(known.get(labels.INSTANCE_TYPE)),
        text_cell(known.get(labels.ZONE)),
        word_cell(capacity or "", "good" if capacity == labels.SPOT else ""),
        price_cell(picture.prices.get(name)),
        share_cell(picture.sum_load("cpu", state).share),
        share_cell(picture.sum_load("memory", state).share),
        number_cell(len(list(states.list_running_pods(state.pods)))),
        _build_state(picture, state),
        prose_cell(describe_why(picture, name)),
    )


def _build_state(picture: Picture, state: StateNode) -> Cell:
    words, tone = describe_stage(picture, state)
    return word_cell(words, tone)


def describe_stage(picture: Picture, state: StateNode) -> tuple[str, Tone]:
    """How far it has come, in a word."""
    if states.is_deleting(state):
        return "terminating", "warn"
    if states.read_name(state) in picture.candidates:
        return "removable", "warn"
    if state.claim is None:
        return "not managed", "quiet"
    if state.node is None:
        return "starting", "quiet"
    return ("running", "good") if states.is_initialized(state) else ("joining", "quiet")


def describe_why(picture: Picture, name: str) -> str:
    """Why it is blocked, or which command removes it, as `dovetail plan --disruption` says it."""
    command = picture.candidates.get(name)
    if command is not None:
        return f"{command.method.reason}: {command}, saves ${command.savings:.4f} an hour"
    standing = picture.blocked.get(name)
    return standing.main.why if standing is not None else ""


def build_tile(picture: Picture, state: StateNode) -> Tile:
    name, used = states.read_name(state), picture.sum_load("cpu", state).share or 0.0
    words, _ = describe_stage(picture, state)
    known = states.read_labels(state)
    kind = known.get(labels.INSTANCE_TYPE, "unknown type")
    about = f"{name}: {kind}, {states.read_pool_name(state) or 'no pool'}, {words}, "
    about += f"{used:.0%} of its CPU requested"
    tone: Tone = (
        "warn" if words in ("removable", "terminating") else "quiet" if words == "not managed" else "good"
    )
    return Tile(name, used, tone, about, link_node(name))


def _describe_parts(picture: Picture, name: str) -> str:
    """What of a node's price is not its instance's, and whether it is an estimate; empty where neither is."""
    line = next((each for each in picture.bill.lines if each.node == name), None)
    if line is None:
        return ""
    parts = {
        "volumes": line.volumes,
        "a public IPv4 address": line.address,
        "what is added to it": line.added,
    }
    said = [f"${dollars:.4f} for {what}" for what, dollars in parts.items() if dollars]
    return ", ".join(["an estimate", *said] if line.estimated else said)


def build_node_page(picture: Picture, name: str) -> WebPage | None:
    """One node: what it is, every reason that blocks it, and the pods on it."""
    state = next((each for each in picture.nodes if states.read_name(each) == name), None)
    if state is None:
        return None
    words, tone = describe_stage(picture, state)
    facts = (
        Fact("state", "State", word_cell(words, tone)),
        Fact("price", "Price an hour", price_cell(picture.prices.get(name)), _describe_parts(picture, name)),
        Fact(
            "cpu",
            "CPU requested",
            share_cell(picture.sum_load("cpu", state).share),
            _describe_amount(picture, state, "cpu"),
        ),
        Fact(
            "memory",
            "Memory requested",
            share_cell(picture.sum_load("memory", state).share),
            _describe_amount(picture, state, "memory"),
        ),
    )
    tables = (
        _build_about(picture, state),
        _build_reasons(picture, name),
        build_history_table(picture, f"node/{name}"),
        _build_conditions(state),
        _build_pods(state),
    )
    return WebPage(name, describe_why(picture, name), facts, tables)


def _describe_amount(picture: Picture, state: StateNode, resource: str) -> str:
    return describe_load(resource, picture.sum_load(resource, state))


def describe_load(resource: str, load: ResourceLoad) -> str:
    unit = " cores" if resource == "cpu" else ""
    return (
        f"{amount_cell(resource, load.requested).text} of {amount_cell(resource, load.available).text}{unit}"
    )


def _build_about(picture: Picture, state: StateNode) -> WebTable:
    known = states.read_labels(state)
    told = (
        ("pool", states.read_pool_name(state)),
        ("instance type", known.get(labels.INSTANCE_TYPE)),
        ("zone", known.get(labels.ZONE)),
        ("capacity type", known.get(labels.CAPACITY_TYPE)),
        ("claim", state.claim.name if state.claim else None),
        ("provider ID", states.read_provider_id(state)),
    )
    rows = tuple((text_cell(name), text_cell(value or None)) for name, value in told)
    return WebTable("about", "About it", (("name", "What"), ("value", "Is")), rows, "Nothing is known of it.")


def _build_reasons(picture: Picture, name: str) -> WebTable:
    columns = (("method", "Disruption"), ("held", "Blocked by"), ("why", "Because"))
    standing = picture.blocked.get(name)
    rows = tuple(
        (text_cell(each.method.reason), word_cell(str(each.blocked_reason)), prose_cell(each.why))
        for each in (standing.reasons if standing else ())
    )
    return WebTable("reasons", "What blocks it", columns, rows, "Nothing blocks it.")


def _build_conditions(state: StateNode) -> WebTable:
    columns = (("type", "Condition"), ("status", "Status"), ("reason", "Reason"), ("message", "Message"))
    said = (
        state.claim.status.conditions if state.claim else state.node.status.conditions if state.node else ()
    )
    rows = tuple(
        (text_cell(c.type), word_cell(c.status), text_cell(c.reason), prose_cell(c.message)) for c in said
    )
    return WebTable("conditions", "Conditions", columns, rows, "It has no conditions.")


def _build_pods(state: StateNode) -> WebTable:
    columns = (("name", "Pod"), ("cpu", "CPU"), ("memory", "Memory"))
    rows = tuple(
        (
            text_cell(pod.full_name),
            *(amount_cell(name, compute_nano_requests(pod).get(name, 0)) for name in ("cpu", "memory")),
        )
        for pod in states.list_running_pods(state.pods)
    )
    return WebTable("pods", "Pods on it", columns, rows, "No pod runs on it.")

"""The first page: how large the cluster is, what it costs, how full it is, and what is wrong with it."""

from __future__ import annotations

from dovetail.picture import Moment, Picture
from dovetail.scheduling.bill import HOURS_A_MONTH, Bill
from dovetail.scheduling.model import state_node as states
from dovetail.web.page import (
    Cell,
    Fact,
    WebPage,
    WebTable,
    format_count,
    number_cell,
    price_cell,
    prose_cell,
    share_cell,
    text_cell,
    word_cell,
)
from dovetail.web.views.nodes import build_tile, describe_load
from dovetail.web.views.pools import build_pool_table
from dovetail.web.views.shifts import build_zone_table

__all__ = ["build_events_page", "build_overview_page"]

SHOWN = 5


def build_overview_page(picture: Picture) -> WebPage:
    """The cluster in a few numbers."""
    stuck = len(picture.plan.unschedulable)
    return WebPage(
        "Overview",
        _describe_pending(picture, stuck),
        _build_facts(picture, stuck),
        (
            _build_problems(picture),
            build_pool_table(picture),
            build_zone_table(picture),
        ),
        tuple(build_tile(picture, each) for each in picture.nodes),
    )


def _build_facts(picture: Picture, stuck: int) -> tuple[Fact, ...]:
    price, saved = picture.bill.total, picture.survey.savings
    ours = sum(bool(states.read_pool_name(each)) for each in picture.nodes)
    cpu, memory = (picture.sum_load(name, *picture.nodes) for name in ("cpu", "memory"))
    waiting = number_cell(picture.pending, tone="bad" if stuck else "warn" if picture.pending else "good")
    commands = format_count(len(picture.survey.commands), "command")
    return (
        Fact("nodes", "Nodes", number_cell(len(picture.nodes)), f"{ours} of pools"),
        Fact("price", "Price an hour", price_cell(price, 2), _describe_price(picture.bill)),
        Fact("cpu", "CPU requested", share_cell(cpu.share), describe_load("cpu", cpu)),
        Fact("memory", "Memory requested", share_cell(memory.share), describe_load("memory", memory)),
        Fact("waiting", "Pending pods", waiting, f"{stuck} unschedulable" if stuck else "all schedulable"),
        Fact("savings", "Could be saved", price_cell(saved, 2), f"an hour, by {commands}"),
    )


def _describe_price(bill: Bill) -> str:
    monthly = f"${bill.total * HOURS_A_MONTH:,.0f} a month"
    said = [monthly]
    if bill.extras:
        said.append(f"${bill.extras:,.2f} an hour of it beside the instances")
    if bill.unpriced:
        said.append(f"{len(bill.unpriced)} without a price")
    guessed = sum(line.estimated for line in bill.lines)
    if guessed:
        said.append(f"{guessed} at estimated prices")
    return ", ".join(said)


def _describe_pending(picture: Picture, stuck: int) -> str:
    if stuck:
        return f"{format_count(stuck, 'pod')} unschedulable; the page of pending pods says why."
    if picture.pending:
        return f"{format_count(picture.pending, 'pod')} pending, and there is a plan for each."
    return "No pod is pending."


def _build_problems(picture: Picture) -> WebTable:
    """What a person should see to."""
    rows = [(text_cell("this page"), prose_cell(each, tone="bad")) for each in picture.problems]
    rows += [(text_cell(f"pool {name}"), prose_cell(why)) for name, why in picture.plan.pool_problems.items()]
    stuck = sorted(picture.plan.unschedulable)
    rows += [(text_cell(f"pod {pod}"), prose_cell(picture.sentences.get(pod))) for pod in stuck[:SHOWN]]
    if len(stuck) > SHOWN:
        rows.append((text_cell("other pods"), prose_cell(f"{len(stuck) - SHOWN:,} more are unschedulable")))
    for state in picture.nodes:
        for each in state.claim.status.conditions if state.claim else ():
            if each.status == "False" and not states.is_deleting(state):
                said = f"{each.type}: {each.message or each.reason}"
                rows.append((text_cell(f"node {states.read_name(state)}"), prose_cell(said)))
    columns = (("about", "What"), ("why", "Why"))
    return WebTable("problems", "Needs attention", columns, tuple(rows), "Nothing needs attention.")


EVENTS = (("at", "When"), ("about", "About"), ("reason", "Reason"), ("told", "What"), ("times", "Times"))
DECISIONS = (("at", "When"), ("about", "About"), ("reason", "Kind"), ("told", "Decision"))


def build_events_page(picture: Picture) -> WebPage:
    """Both, the latest first."""
    quiet = "No event has been told." if picture.live else "A snapshot has no events."
    return WebPage(
        "Events and decisions",
        f"{format_count(len(picture.moments), 'event')}, and "
        f"{format_count(len(picture.decisions), 'decision')} "
        "as they were seen from here."
        if picture.live
        else "A snapshot is one instant: it has decisions and no events.",
        tables=(
            WebTable(
                "decisions",
                "Decisions",
                DECISIONS,
                tuple(map(_build_decision, picture.decisions)),
                "None yet.",
            ),
            WebTable("events", "Events", EVENTS, tuple(map(_build_event, picture.moments)), quiet),
        ),
    )


def _build_time(moment: Moment) -> Cell:
    return Cell(moment.at.isoformat(), f"{moment.at:%H:%M:%S}", "number")


def _build_event(moment: Moment) -> tuple[Cell, ...]:
    reason = word_cell(moment.reason, "warn" if moment.warning else "")
    return (
        _build_time(moment),
        prose_cell(moment.about),
        reason,
        prose_cell(moment.told),
        number_cell(moment.times),
    )


def _build_decision(moment: Moment) -> tuple[Cell, ...]:
    return (
        _build_time(moment),
        prose_cell(moment.about),
        word_cell(moment.reason, "bad" if moment.warning else ""),
        prose_cell(moment.told),
    )

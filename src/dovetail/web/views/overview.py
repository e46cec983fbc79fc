"""The first page: how large the cluster is, what it costs, how full it is, and what is wrong with it."""

from __future__ import annotations

from dovetail.scheduling import nodes as states
from dovetail.web.page import (
    HOURS_A_MONTH,
    Fact,
    Page,
    Table,
    counted,
    dollars,
    number,
    prose,
    share,
    text,
)
from dovetail.web.picture import Picture
from dovetail.web.views import pools as pool_views
from dovetail.web.views import shifts as shift_views
from dovetail.web.views.nodes import load_words, tile

__all__ = ["overview"]

SHOWN = 5


def overview(picture: Picture) -> Page:
    """The cluster in a few numbers."""
    stuck = len(picture.plan.unschedulable)
    return Page(
        "Overview",
        _sentence(picture, stuck),
        _facts(picture, stuck),
        (
            _problems(picture),
            pool_views.table(picture),
            shift_views.zones(picture),
        ),
        tuple(tile(picture, each) for each in picture.nodes),
    )


def _facts(picture: Picture, stuck: int) -> tuple[Fact, ...]:
    price, saved = sum(picture.prices.values()), picture.survey.savings
    ours = sum(bool(states.pool(each)) for each in picture.nodes)
    cpu, memory = (picture.load(name, *picture.nodes) for name in ("cpu", "memory"))
    waiting = number(picture.waiting, tone="bad" if stuck else "warn" if picture.waiting else "good")
    commands = counted(len(picture.survey.commands), "command")
    return (
        Fact("nodes", "Nodes", number(len(picture.nodes)), f"{ours} of pools"),
        Fact("price", "Price an hour", dollars(price, 2), f"${price * HOURS_A_MONTH:,.0f} a month"),
        Fact("cpu", "CPU asked for", share(cpu.share), load_words("cpu", cpu)),
        Fact("memory", "Memory asked for", share(memory.share), load_words("memory", memory)),
        Fact(
            "waiting", "Pods waiting", waiting, f"{stuck} without a place" if stuck else "all can be placed"
        ),
        Fact("savings", "Could be saved", dollars(saved, 2), f"an hour, by {commands}"),
    )


def _sentence(picture: Picture, stuck: int) -> str:
    if stuck:
        return f"{stuck} pod{' fits' if stuck == 1 else 's fit'} nowhere; the page of waiting pods says why."
    if picture.waiting:
        return f"{counted(picture.waiting, 'pod')} waiting, and there is a plan for each."
    return "Every pod has a place."


def _problems(picture: Picture) -> Table:
    """What a person should look at."""
    rows = [(text("this page"), prose(each, tone="bad")) for each in picture.problems]
    rows += [(text(f"pool {name}"), prose(why)) for name, why in picture.plan.pool_problems.items()]
    stuck = sorted(picture.plan.unschedulable)
    rows += [(text(f"pod {pod}"), prose(picture.sentences.get(pod))) for pod in stuck[:SHOWN]]
    if len(stuck) > SHOWN:
        rows.append((text("other pods"), prose(f"{len(stuck) - SHOWN:,} more fit nowhere")))
    for state in picture.nodes:
        for each in state.claim.status.conditions if state.claim else ():
            if each.status == "False" and not states.deleting(state):
                said = f"{each.type}: {each.message or each.reason}"
                rows.append((text(f"node {states.name(state)}"), prose(said)))
    columns = (("about", "What"), ("why", "Why"))
    return Table("problems", "What needs a look", columns, tuple(rows), "Nothing does.")

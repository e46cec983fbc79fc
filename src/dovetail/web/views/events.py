"""Events: what the cluster was told, and what Dovetail would have decided at each look."""

from __future__ import annotations

from dovetail.web.page import Cell, Page, Table, counted, number, prose, word
from dovetail.web.picture import Moment, Picture

__all__ = ["events"]

EVENTS = (("at", "When"), ("about", "About"), ("reason", "Reason"), ("told", "What"), ("times", "Times"))
DECISIONS = (("at", "When"), ("about", "About"), ("reason", "Kind"), ("told", "Decision"))


def events(picture: Picture) -> Page:
    """Both, the latest first."""
    quiet = "No event has been told." if picture.live else "A snapshot holds no events."
    return Page(
        "Events and decisions",
        f"{counted(len(picture.moments), 'event')}, and {counted(len(picture.decisions), 'decision')} "
        "as they were seen from here."
        if picture.live
        else "A snapshot is one instant: it has decisions and no events.",
        tables=(
            Table("decisions", "Decisions", DECISIONS, tuple(map(_decision, picture.decisions)), "None yet."),
            Table("events", "Events", EVENTS, tuple(map(_event, picture.moments)), quiet),
        ),
    )


def _at(moment: Moment) -> Cell:
    return Cell(moment.at.isoformat(), f"{moment.at:%H:%M:%S}", "number")


def _event(moment: Moment) -> tuple[Cell, ...]:
    reason = word(moment.reason, "warn" if moment.warning else "")
    return _at(moment), prose(moment.about), reason, prose(moment.told), number(moment.times)


def _decision(moment: Moment) -> tuple[Cell, ...]:
    return (
        _at(moment),
        prose(moment.about),
        word(moment.reason, "bad" if moment.warning else ""),
        prose(moment.told),
    )

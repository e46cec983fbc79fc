"""One view for each page: a picture in, a page out. The list below is the menu."""

from __future__ import annotations

from collections.abc import Callable

from dovetail.web.page import Page
from dovetail.web.picture import Picture
from dovetail.web.views.disruption import disruption
from dovetail.web.views.events import events
from dovetail.web.views.nodes import node, nodes
from dovetail.web.views.overview import overview
from dovetail.web.views.planned import planned
from dovetail.web.views.pods import pod, pods
from dovetail.web.views.pools import pools
from dovetail.web.views.shifts import shifts

__all__ = ["MENU", "page_at"]

MENU: dict[str, Callable[[Picture], Page]] = {
    "overview": overview,
    "nodes": nodes,
    "pods": pods,
    "plan": planned,
    "disruption": disruption,
    "pools": pools,
    "shifts": shifts,
    "events": events,
}
ONE: dict[str, Callable[[Picture, str], Page | None]] = {"nodes": node, "pods": pod}


def page_at(picture: Picture, path: str) -> Page | None:
    """The page at a path such as `nodes` or `nodes/a-node`; None where there is none."""
    first, _, rest = path.strip("/").partition("/")
    if not rest:
        view = MENU.get(first or "overview")
        return None if view is None else view(picture)
    one = ONE.get(first)
    return None if one is None else one(picture, rest)

"""One view for each page: a picture in, a page out. The list below is the menu."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from dovetail.picture import Picture
from dovetail.web.page import WebPage
from dovetail.web.views.change import build_change_page
from dovetail.web.views.disruption import build_disruption_page
from dovetail.web.views.history import build_history_page, build_past_page
from dovetail.web.views.money import build_money_page, has_money
from dovetail.web.views.nodes import build_node_page, build_nodes_page
from dovetail.web.views.overview import build_events_page, build_overview_page
from dovetail.web.views.plan import build_plan_page
from dovetail.web.views.pods import build_pod_page, build_pods_page
from dovetail.web.views.pools import build_pool_page, build_pools_page
from dovetail.web.views.rules import build_rules_page
from dovetail.web.views.shadow import build_shadow_page
from dovetail.web.views.shifts import build_shifts_page
from dovetail.web.views.spend import build_spend_page

__all__ = ["CHANGE", "MENU", "MONEY", "SHADOW", "find_page", "has_money"]

# In the menu where somebody asked about a change.
CHANGE = "change"
# In the menu where a shadow is followed, or a recording is shown.
SHADOW = "shadow"
# In the menu where something is committed.
MONEY = "money"

MENU: dict[str, Callable[[Picture], WebPage]] = {
    "overview": build_overview_page,
    "nodes": build_nodes_page,
    "pods": build_pods_page,
    "plan": build_plan_page,
    "disruption": build_disruption_page,
    "rules": build_rules_page,
    "pools": build_pools_page,
    "shifts": build_shifts_page,
    "spend": build_spend_page,
    "events": build_events_page,
    "history": lambda picture: build_history_page(picture, {}),
}
ONE: dict[str, Callable[[Picture, str], WebPage | None]] = {
    "nodes": lambda picture, name: build_node_page(picture, name) or build_past_page(picture, f"node/{name}"),
    "pods": lambda picture, name: build_pod_page(picture, name) or build_past_page(picture, f"pod/{name}"),
    "pools": build_pool_page,
}


def find_page(picture: Picture, path: str, asked: Mapping[str, str] | None = None) -> WebPage | None:
    """The page at a path such as `nodes` or `nodes/a-node`; None where there is none.

    `asked` is what stands after the path; only a history and a shadow can be asked something.
    """
    first, _, rest = path.strip("/").partition("/")
    if first == "history" and not rest and asked:
        return build_history_page(picture, asked)
    if path.strip("/") == SHADOW:
        return build_shadow_page(picture, asked or {})
    if path.strip("/") == MONEY:
        return build_money_page(picture)
    if path.strip("/") == CHANGE:
        return build_change_page(picture)
    if not rest:
        view = MENU.get(first or "overview")
        return None if view is None else view(picture)
    one = ONE.get(first)
    return None if one is None else one(picture, rest)

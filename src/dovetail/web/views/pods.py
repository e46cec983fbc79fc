"""Pods that wait: where each would go, or what stands in its way, in the words of `dovetail explain`."""

from __future__ import annotations

from urllib.parse import quote

from dovetail.api.pod import Pod
from dovetail.picture import Picture
from dovetail.scheduling.model.reasons import Decision
from dovetail.scheduling.model.resources import compute_nano_requests
from dovetail.web.page import (
    Cell,
    Fact,
    Tone,
    WebPage,
    WebTable,
    amount_cell,
    format_count,
    number_cell,
    prose_cell,
    text_cell,
    word_cell,
)
from dovetail.web.views.history import build_history_table

__all__ = ["build_pod_page", "build_pods_page"]

COLUMNS = (
    ("name", "Pod"),
    ("state", "State"),
    ("cpu", "CPU"),
    ("memory", "Memory"),
    ("explanation", "Decision"),
)


def link_pod(name: str) -> str:
    return f"pods/{quote(name)}"


def build_pods_page(picture: Picture) -> WebPage:
    """Every pending pod, the unschedulable ones first."""
    waiting = sorted(
        _list_pending(picture), key=lambda each: (_is_placed(picture, each.full_name), each.full_name)
    )
    stuck = sum(not _is_placed(picture, each.full_name) for each in waiting)
    return WebPage(
        "Pending pods",
        _describe_pending(len(waiting), stuck),
        (
            Fact("waiting", "Pending", number_cell(len(waiting))),
            Fact("stuck", "Unschedulable", number_cell(stuck, tone="bad" if stuck else "good")),
        ),
        (
            WebTable(
                "pods", "Pending pods", COLUMNS, tuple(_build_row(picture, each) for each in waiting), NONE
            ),
        ),
    )


NONE = "No pod is pending."


def _describe_pending(waiting: int, stuck: int) -> str:
    if not waiting:
        return "No pod is pending."
    pending = f"{format_count(waiting, 'pod')} pending"
    if not stuck:
        return f"{pending}, and all are schedulable."
    return f"{pending}, {stuck:,} of them unschedulable."


def _list_pending(picture: Picture) -> tuple[Pod, ...]:
    return (*picture.snapshot.pods, *picture.snapshot.moving)


def _is_placed(picture: Picture, name: str) -> bool:
    plan = picture.plan
    return name not in plan.unschedulable and name not in plan.deferred and name not in plan.ignored


def _build_row(picture: Picture, pod: Pod) -> tuple[Cell, ...]:
    asked = compute_nano_requests(pod)
    return (
        text_cell(pod.full_name, link=link_pod(pod.full_name)),
        _build_state(picture, pod.full_name),
        *(amount_cell(name, asked[name]) if name in asked else text_cell(None) for name in ("cpu", "memory")),
        prose_cell(picture.sentences.get(pod.full_name, "no decision yet")),
    )


def _build_state(picture: Picture, name: str) -> Cell:
    plan = picture.plan
    if name in plan.unschedulable:
        return word_cell("unschedulable", "bad")
    if name in plan.deferred or name in plan.ignored:
        return word_cell("deferred", "warn")
    return word_cell("schedulable", "good")


def build_pod_page(picture: Picture, name: str) -> WebPage | None:
    """One pod: the decision, the nearest miss, and every pool and node that was rejected, by reason."""
    if not any(each.full_name == name for each in _list_pending(picture)):
        return None
    decision = next((each for each in picture.plan.decisions if each.pod == name), None)
    miss = picture.misses.get(name)
    remarks = (f"The nearest miss: {miss}.",) if miss is not None else ()
    tables = (_build_rejections(decision), build_history_table(picture, f"pod/{name}"))
    return WebPage(name, picture.sentences.get(name, ""), (), tables, remarks=remarks)


def _build_rejections(decision: Decision | None) -> WebTable:
    columns = (("place", "Pool or node"), ("reason", "Rejected because"), ("detail", "Detail"))
    tone: Tone = "bad"
    rows = tuple(
        (
            text_cell(each.place),
            word_cell(str(each.reason), tone),
            prose_cell(each.detail.partition(", requirements=")[0]),
        )
        for each in (decision.rejections if decision else ())
    )
    return WebTable("rejections", "Rejected pools and nodes", columns, rows, "No pool or node was rejected.")

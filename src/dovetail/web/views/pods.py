"""Pods that wait: where each would go, or what stands in its way, in the words of `dovetail explain`."""

from __future__ import annotations

from urllib.parse import quote

from dovetail.api.pod import Pod
from dovetail.explain import Decision
from dovetail.scheduling.resources import needs
from dovetail.web.page import Cell, Fact, Page, Table, Tone, amount, counted, number, prose, text, word
from dovetail.web.picture import Picture

__all__ = ["pod", "pods"]

COLUMNS = (
    ("name", "Pod"),
    ("state", "State"),
    ("cpu", "CPU"),
    ("memory", "Memory"),
    ("explanation", "What becomes of it"),
)


def link(name: str) -> str:
    return f"pods/{quote(name)}"


def pods(picture: Picture) -> Page:
    """Every pod that waits for a place, those without one first."""
    waiting = sorted(_waiting(picture), key=lambda each: (_placed(picture, each.full_name), each.full_name))
    stuck = sum(not _placed(picture, each.full_name) for each in waiting)
    return Page(
        "Waiting pods",
        _sentence(len(waiting), stuck),
        (
            Fact("waiting", "Waiting", number(len(waiting))),
            Fact("stuck", "Fit nowhere", number(stuck, tone="bad" if stuck else "good")),
        ),
        (Table("pods", "Waiting pods", COLUMNS, tuple(_row(picture, each) for each in waiting), NONE),),
    )


NONE = "Every pod has a place."


def _sentence(waiting: int, stuck: int) -> str:
    if not waiting:
        return "No pod waits for a place."
    wait = f"{counted(waiting, 'pod')} wait{'s' if waiting == 1 else ''} for a place"
    if not stuck:
        return f"{wait}, and there is one for each."
    return f"{wait}, and {stuck:,} fit{'s' if stuck == 1 else ''} nowhere."


def _waiting(picture: Picture) -> tuple[Pod, ...]:
    return (*picture.snapshot.pods, *picture.snapshot.moving)


def _placed(picture: Picture, name: str) -> bool:
    plan = picture.plan
    return name not in plan.unschedulable and name not in plan.deferred and name not in plan.ignored


def _row(picture: Picture, pod: Pod) -> tuple[Cell, ...]:
    asked = needs(pod)
    return (
        text(pod.full_name, link=link(pod.full_name)),
        _state(picture, pod.full_name),
        *(amount(name, asked[name]) if name in asked else text(None) for name in ("cpu", "memory")),
        prose(picture.sentences.get(pod.full_name, "it has not been looked at")),
    )


def _state(picture: Picture, name: str) -> Cell:
    plan = picture.plan
    if name in plan.unschedulable:
        return word("fits nowhere", "bad")
    if name in plan.deferred or name in plan.ignored:
        return word("put off", "warn")
    return word("gets a place", "good")


def pod(picture: Picture, name: str) -> Page | None:
    """One pod: the answer, the nearest miss, and every place that was turned down by reason."""
    if not any(each.full_name == name for each in _waiting(picture)):
        return None
    decision = next((each for each in picture.plan.decisions if each.pod == name), None)
    miss = picture.misses.get(name)
    remarks = (f"The nearest miss: {miss}.",) if miss is not None else ()
    return Page(name, picture.sentences.get(name, ""), (), (_turned_down(decision),), remarks=remarks)


def _turned_down(decision: Decision | None) -> Table:
    columns = (("place", "Place"), ("reason", "Turned down because"), ("detail", "In particular"))
    tone: Tone = "bad"
    rows = tuple(
        (text(each.place), word(str(each.reason), tone), prose(each.detail.partition(", requirements=")[0]))
        for each in (decision.rejections if decision else ())
    )
    return Table("rejections", "Places turned down", columns, rows, "No place was turned down.")

"""The report of a shadow: what may be claimed, what is told beside it, and what is left out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.cli.views.shadows import format_report
from dovetail.disruption.situation import Situation
from dovetail.history.paid import PaidBill, PaidHour
from dovetail.history.recording.reader import RecordedLook
from dovetail.history.shadow import PromiseMeter, ShadowFold, ShadowReport
from dovetail.history.shadow_claim import PromiseCounts, TwinBill, TwinHour, build_claim
from dovetail.play.shadow_page import render_shadow
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, node, pod
from support.disruption import LARGE, scene, state

HOUR = timedelta(hours=1)


def paid(hours: int = 48, rate: float = 10.0) -> PaidBill:
    listed = tuple(
        PaidHour(began=NOW + number * HOUR, dollars=rate, node_hours=1.0, watched_seconds=3600.0)
        for number in range(hours)
    )
    return PaidBill(since=NOW, until=NOW + hours * HOUR, dollars=rate * hours, hours=listed)


def twin(of: PaidBill, share: float, *, waited: int = 0) -> TwinBill:
    hours = tuple(
        TwinHour(began=each.began, dollars=each.dollars * (1 + share), paid=each.dollars) for each in of.hours
    )
    return TwinBill(
        until=NOW + len(hours) * HOUR,
        dollars=sum(each.dollars for each in hours),
        paid=of.dollars,
        hours=hours,
        promises=PromiseCounts(waited=waited),
    )


def test_a_saving_is_claimed_with_how_sure_it_is() -> None:
    claim = build_claim(paid(), twin(paid(), -0.15), twin(paid(), 0.02))
    assert claim.share == pytest.approx(-0.15)
    assert claim.certainty == pytest.approx(0.02)
    assert claim.sentence == ""


def test_nothing_is_claimed_below_the_certainty() -> None:
    claim = build_claim(paid(), twin(paid(), -0.015), twin(paid(), 0.02))
    assert (claim.share, claim.sentence) == (None, "no difference that can be told")


@pytest.mark.parametrize("missing", [0, 1])
def test_nothing_is_claimed_without_a_calibration(missing: int) -> None:
    both: list[TwinBill | None] = [twin(paid(), -0.2), twin(paid(), 0.01)]
    both[missing] = None
    assert build_claim(paid(), *both).share is None


def test_nothing_is_claimed_of_less_than_six_hours() -> None:
    claim = build_claim(paid(5), twin(paid(5), -0.2), twin(paid(5), 0.0))
    assert claim.share is None
    assert claim.sentence == "5.0 hours are too short to say anything about money; at least 6 hours"


def test_a_model_that_does_not_describe_the_cluster_says_so_and_when() -> None:
    claim = build_claim(paid(72), twin(paid(72), -0.4), twin(paid(72), 0.08))
    assert claim.share is None
    assert claim.sentence.startswith("the model does not describe this cluster well enough yet: ")
    assert "most of all at" in claim.sentence


@pytest.mark.spec("SH-10")
def test_a_cheaper_twin_is_never_shown_without_the_pods_that_waited() -> None:
    cheaper = twin(paid(), -0.15, waited=61)
    claim = build_claim(paid(), cheaper, twin(paid(), 0.01))
    report = ShadowReport(
        paid=paid(), twin=cheaper, claim=claim, promises=PromiseCounts(waited=4, evictions=7)
    )
    text = format_report(report)
    assert "-15.0%" in text
    assert "pods that waited over 60 s: 4 there, 61 here" in text
    page = render_shadow(report)
    assert "4 there, 61 here" in page


@pytest.mark.spec("SH-8")
def test_nodes_of_pools_that_are_not_known_are_left_out_and_told() -> None:
    alien = node("auto-1", nodepool="general-purpose")
    seen = scene(state("a", of=LARGE), StateNode(node=alien)).snapshot
    fold = ShadowFold()
    for minutes in (0, 60):
        at = NOW + timedelta(minutes=minutes)
        fold.add_look(RecordedLook(1, 1, at, Situation(snapshot=seen)))
    report = fold.build_report()
    assert report.left_out == ("general-purpose",)
    assert report.paid.dollars == pytest.approx(8.0)
    assert "general-purpose: NodePools of a node class that Dovetail does not know" in format_report(report)
    assert "general-purpose" in render_shadow(report)


def test_waits_and_evictions_are_counted_once() -> None:
    meter, late = PromiseMeter(), pod("late")
    here = state("a", pod("moved"), of=LARGE)

    def look(seconds: int, *states: StateNode, pending: tuple[object, ...] = ()) -> None:
        at = NOW + timedelta(seconds=seconds)
        meter.add_look(at, Situation(snapshot=scene(*states, pending=pending, now=at).snapshot))  # type: ignore[arg-type]

    look(0, here, pending=(late,))
    look(90, here, pending=(late,))
    look(120, replace(here, marked=True), pending=(late,))
    look(130, replace(here, marked=True, pods=()))
    look(140)
    assert meter.count() == PromiseCounts(waited=1, evictions=1)


def test_hostile_names_are_escaped_on_the_page() -> None:
    page = render_shadow(ShadowReport(left_out=("<script>alert(1)</script>",), paid=paid()))
    assert "<script>alert" not in page

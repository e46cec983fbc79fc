"""The report of a shadow: what may be claimed, what is told beside it, and what is left out."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.api.core import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from dovetail.api.meta import LabelSelector, ObjectMeta
from dovetail.cli.views.shadows import format_report
from dovetail.disruption.situation import Situation
from dovetail.history.boot_days import BootDay
from dovetail.history.difference import Difference, DifferenceKind, DifferenceReason
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


def test_nothing_is_claimed_that_hangs_on_spot_capacity_nobody_knows() -> None:
    unknown = replace(twin(paid(), -0.15), unknown=0.14)
    claim = build_claim(paid(), unknown, twin(paid(), 0.02))
    assert claim.share is None
    assert claim.certainty == pytest.approx(0.16)


@pytest.mark.spec("SH-6")
def test_an_assumption_that_the_cluster_proves_wrong_is_told_beside_the_claim() -> None:
    slow = BootDay(day="2026-01-05", nodes=3, real=1200.0, assumed=40.0)
    calibration = replace(twin(paid(), 0.01), boots=(slow,))
    claim = build_claim(paid(), twin(paid(), -0.15), calibration)
    report = ShadowReport(paid=paid(), twin=twin(paid(), -0.15), claim=claim)
    said = "boot time: nodes took 20 min from launch to ready on 2026-01-05, and the model assumed 40 s"
    assert f"assumed wrongly     {said}" in format_report(report)
    assert said in render_shadow(report)


def test_time_that_nobody_watched_is_not_paid_for() -> None:
    fold = ShadowFold()
    seen = Situation(snapshot=scene(state("a", of=LARGE)).snapshot)
    for minutes in (0, 60):
        fold.add_look(RecordedLook(1, 1, NOW + timedelta(minutes=minutes), seen))
    fold.skip_gap(NOW + timedelta(minutes=600))
    for minutes in (600, 660):
        fold.add_look(RecordedLook(1, 1, NOW + timedelta(minutes=minutes), seen))
    report = fold.build_report()
    assert (report.gaps, report.gap_seconds) == (1, 9 * 3600.0)
    assert report.paid.dollars == pytest.approx(16.0)


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
    look(150, replace(here, marked=True))
    look(160)
    assert meter.count().evictions == 2, "a node that goes with all its pods between two looks"
    look(170, here)
    look(180)
    assert meter.count().evictions == 2, "a node that fails is nobody's choice"


@pytest.mark.parametrize(
    ("evicted", "healthy", "desired", "broken"),
    [(2, 1, 2, 1), (1, 2, 2, 0), (2, 2, 2, 0), (2, 1, 3, 0)],
    ids=["more than allowed", "as many as allowed", "others took their place", "more are wanted now"],
)
def test_a_budget_is_broken_by_more_evictions_than_it_allows(
    evicted: int, healthy: int, desired: int, broken: int
) -> None:
    """Three pods of a budget that wants two; how many are left when some are evicted of a node that goes."""
    pods = [pod(f"p{number}", labels={"app": "web"}) for number in range(3)]
    here, meter = state("a", *pods, of=LARGE), PromiseMeter()

    def look(seconds: int, current: int, wanted: int, *states: StateNode) -> None:
        at = NOW + timedelta(seconds=seconds)
        status = PodDisruptionBudgetStatus(
            current_healthy=current, desired_healthy=wanted, disruptions_allowed=max(0, current - wanted)
        )
        spec = PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": "web"}))
        about = ObjectMeta(name="web", namespace=pods[0].namespace)
        limit = PodDisruptionBudget(metadata=about, spec=spec, status=status)
        seen = scene(*states, pdbs=(limit,), now=at).snapshot
        meter.add_look(at, Situation(snapshot=seen))

    look(0, 3, 2, replace(here, marked=True))
    look(10, healthy, desired, replace(here, marked=True, pods=here.pods[evicted:]))
    look(20, healthy, desired, replace(here, marked=True, pods=here.pods[evicted:]))
    assert meter.count().budgets_broken == broken


def test_hostile_names_are_escaped_on_the_page() -> None:
    page = render_shadow(ShadowReport(left_out=("<script>alert(1)</script>",), paid=paid()))
    assert "<script>alert" not in page


def test_dollars_at_estimated_prices_are_marked() -> None:
    """In what was paid, in the twin's bill, and in each difference that hangs on such a price."""
    bill, ours = replace(paid(), estimated=120.0), replace(twin(paid(), -0.5), estimated=180.0)
    told = Difference(
        kind=DifferenceKind.BOUGHT,
        at=NOW,
        reason=DifferenceReason.SPOT,
        why="cheaper",
        theirs="1 × large on-demand, $8.0000/h",
        ours="1 × large spot, ~$3.0000/h",
        dollars=5.0,
        estimated=True,
    )
    claim = build_claim(bill, ours, twin(paid(), 0.01))
    report = ShadowReport(
        since=NOW,
        until=NOW + 48 * HOUR,
        paid=bill,
        twin=ours,
        calibration=twin(paid(), 0.01),
        claim=claim,
        differences=(told, replace(told, at=NOW + HOUR, estimated=False, dollars=4.0)),
    )
    text = format_report(report)
    assert "(list prices, 25% of it at estimated prices)" in text
    assert "; 75% of it at estimated prices" in text
    assert "  ~−$5.00  1 × large" in text
    assert "  −$4.00  1 × large" in text
    assert text.splitlines()[-1].startswith("~ marks estimates")
    page = render_shadow(report)
    assert "25% of it at estimated prices" in page
    assert "75% of it at estimated prices" in page
    assert "~−$5.00" in page
    sure = replace(report, paid=paid(), twin=twin(paid(), -0.5), differences=report.differences[1:])
    assert not any(word in format_report(sure) + render_shadow(sure) for word in ("estimate", "~−"))

"""What holds a pod where it is: its annotation, and the disruption budgets over it."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels, predicates
from dovetail.api.core import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from dovetail.api.meta import LabelSelector
from dovetail.api.pdb import PdbLimits
from dovetail.api.pod import Pod
from dovetail.controllers.base import DONE, SOON
from dovetail.scheduling.model.label_selectors import matches_selector
from support.builders import NOW, condition, meta, pod
from support.stage import Stage, virtual

HOLD_EVENTS = ("InvalidDoNotDisruptAnnotation", "DoNotDisruptUntil", "DoNotDisruptGracePeriodElapsed")


async def asked(stage: Stage, value: str | None, age: float = 0) -> tuple[bool, dict[str, list[Any]]]:
    """Whether a pod of this age with this annotation is held, and what people are told."""
    made = stage.pod(annotations={labels.DO_NOT_DISRUPT: value} if value is not None else None)
    await stage.sleep(age)
    stage.evictions.add([made], None)
    result = await stage.evict()
    assert result in (DONE, SOON)
    # The queue tells of holds; what no longer holds is told by the drain, which sees every pod.
    return result == SOON, {reason: stage.events(reason) for reason in HOLD_EVENTS if stage.events(reason)}


@pytest.mark.spec("lifecycle-111")
@pytest.mark.parametrize(("value", "held"), [(None, False), ("true", True)])
@virtual
async def test_without_the_annotation_nothing_is_held_and_with_true_for_ever(
    value: str | None, held: bool
) -> None:
    async with Stage().open() as stage:
        assert await asked(stage, value, age=86400) == (held, {})


@pytest.mark.spec("lifecycle-112")
@pytest.mark.parametrize("value", ["abc", "0s", "-5m", "false", ""])
@virtual
async def test_a_value_without_meaning_holds_nothing_and_people_are_told(value: str) -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod(annotations={labels.DO_NOT_DISRUPT: value})

        await stage.end()

        assert stage.queued() == {"pod"}
        ((kind, about, note),) = stage.events("InvalidDoNotDisruptAnnotation")
        assert (kind, about) == ("Warning", "Pod/pod")
        assert note.startswith("Invalid karpenter.sh/do-not-disrupt annotation: ")
        assert note.endswith(", ignoring annotation")


@pytest.mark.spec("lifecycle-113")
@virtual
async def test_a_duration_holds_from_the_pods_start_and_people_are_told_until_when() -> None:
    async with Stage().open() as stage:
        held, told = await asked(stage, "15m", age=600)
        assert held
        ((_, _, note),) = told.pop("DoNotDisruptUntil")
        assert "2026-01-01T00:15:00Z" in note
        assert told == {}


@pytest.mark.spec("lifecycle-113")
@virtual
async def test_a_duration_that_is_over_holds_nothing_and_people_are_told() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod(annotations={labels.DO_NOT_DISRUPT: "5m"})
        await stage.sleep(600)

        await stage.end()

        assert stage.queued() == {"pod"}
        assert len(stage.events("DoNotDisruptGracePeriodElapsed")) == 1


@pytest.mark.spec("lifecycle-114")
@virtual
async def test_a_duration_holds_a_pod_that_has_not_started() -> None:
    async with Stage().open() as stage:
        made = stage.pod(annotations={labels.DO_NOT_DISRUPT: "15m"})
        stage.api.patch("pods", "pod", {"status": {"startTime": None}}, "default", subresource="status")
        stage.evictions.add([made], None)
        await stage.sleep(3600)

        assert stage.pod_now().status.start_time is None
        assert await stage.evict() == SOON


@pytest.mark.spec("lifecycle-115")
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_ended_holds_nothing(phase: str) -> None:
    held = pod(node="n", annotations={labels.DO_NOT_DISRUPT: "true"})
    assert not predicates.is_disruptable(held, NOW)
    assert predicates.is_disruptable(replace(held, status=replace(held.status, phase=phase)), NOW)


def budget(
    name: str = "budget", namespace: str = "default", app: str = "web", **spec: Any
) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        metadata=meta("pdb", name, namespace=namespace),
        spec=PodDisruptionBudgetSpec(selector=LabelSelector(match_labels={"app": app}), **spec),
        status=PodDisruptionBudgetStatus(disruptions_allowed=0, observed_generation=1),
    )


def web(ready: str = "True", **about: Any) -> Pod:
    made = pod(node="n", labels={"app": "web"}, **about)
    return replace(made, status=replace(made.status, conditions=(condition("Ready", ready),)))


def limits(*budgets: PodDisruptionBudget) -> PdbLimits:
    return PdbLimits(budgets, matches_selector)


@pytest.mark.spec("lifecycle-116")
def test_an_unready_pod_may_go_if_its_budget_always_allows_that() -> None:
    lenient = limits(budget(min_available="100%", unhealthy_pod_eviction_policy="AlwaysAllow"))
    strict = limits(budget(min_available="100%"))

    assert lenient.find_blocking_now(web("False"), NOW) == ()
    assert lenient.find_blocking_now(web("True"), NOW) == ("default/budget",)
    assert strict.find_blocking_now(web("False"), NOW) == ("default/budget",)


@pytest.mark.spec("lifecycle-117")
@pytest.mark.parametrize(
    "budgets",
    [
        (budget(max_unavailable=0),),
        (budget(max_unavailable="0%"),),
        (budget(min_available="100%"),),
        (budget("one", max_unavailable=1), budget("two", max_unavailable=1)),
    ],
    ids=["none", "0%", "100%", "two budgets"],
)
def test_a_pod_that_can_never_be_evicted_is_not_counted_on_to_move(
    budgets: tuple[PodDisruptionBudget, ...],
) -> None:
    assert not limits(*budgets).currently_reschedulable(web(), NOW)
    assert limits(*budgets).find_blocking_always(web(), NOW) == tuple(each.full_name for each in budgets)


def test_a_budget_that_only_happens_to_allow_nothing_now_does_not_hold_for_good() -> None:
    for passing in (budget(max_unavailable=1), budget(min_available=1), budget(max_unavailable="10%")):
        assert limits(passing).currently_reschedulable(web(), NOW)
        assert limits(passing).find_blocking_now(web(), NOW) == ("default/budget",)


@pytest.mark.spec("lifecycle-118")
def test_budgets_of_other_namespaces_and_other_pods_have_no_effect() -> None:
    for unrelated in (budget(namespace="other", max_unavailable=0), budget(app="db", max_unavailable=0)):
        assert limits(unrelated).find_blocking_now(web(), NOW) == ()
        assert limits(unrelated).currently_reschedulable(web(), NOW)


@pytest.mark.spec("lifecycle-119")
def test_a_held_pod_is_not_counted_on_to_move() -> None:
    assert limits().currently_reschedulable(web(), NOW)
    assert not limits().currently_reschedulable(web(annotations={labels.DO_NOT_DISRUPT: "true"}), NOW)

"""Pods are asked to leave, asked again while a budget forbids it, and deleted when time is up."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise

import pytest

from dovetail.api import labels
from dovetail.controllers.base import DONE, SOON
from dovetail.controllers.node.eviction import EvictionQueue
from dovetail.errors import Conflict, Retry
from dovetail.settings import Settings
from dovetail.sim.clock import run_virtual
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.status import ApiError
from support.stage import Stage, sample, virtual

WEB = {"app": "web"}


class Refusing:
    """A server that turns our first eviction, or delete, of a pod down with this code."""

    def __init__(self, code: int, verb: str = "create") -> None:
        self._verb = verb
        self._left = [ApiError(code, "Whatever", "not now")]

    def find_fault(self, call: ApiCall) -> Fault | None:
        meant = call.resource == "pods" and call.verb == self._verb and call.client != "someone"
        return Fault(error=self._left.pop()) if meant and self._left else None


def answers(code: str) -> float:
    return sample("karpenter_pods_eviction_requests_total", code=code)


def drained(reason: str) -> float:
    return sample("karpenter_pods_drained_total", reason=reason)


@pytest.mark.spec("lifecycle-100")
@virtual
async def test_a_pod_that_is_not_there_is_a_pod_that_has_left() -> None:
    async with Stage().open() as stage:
        pod = stage.pod()
        stage.evictions.add([pod], None)
        stage.end_pods("pod")

        assert await stage.evict() == DONE
        assert await stage.evict("never-heard-of") == DONE

        assert pod not in stage.evictions
        assert stage.events("Evicted") == []


@pytest.mark.spec("lifecycle-101")
@virtual
async def test_a_pod_without_a_budget_leaves_when_asked() -> None:
    asked, gone = answers("200"), drained("")
    async with Stage().open() as stage:
        pod = stage.pod()
        stage.evictions.add([pod], None)

        assert await stage.evict() == DONE

        assert stage.pod_now().deleting
        assert pod not in stage.evictions
        assert stage.events("Evicted") == [("Normal", "Pod/pod", "Evicted pod: ")]
    assert answers("200") - asked == 1
    assert drained("") - gone == 1


@pytest.mark.spec("lifecycle-102")
@virtual
async def test_the_reason_of_the_disruption_is_passed_on() -> None:
    named, unnamed = drained("SpotInterruption"), drained("Forceful Termination")
    async with Stage().open() as stage:
        stage.node()
        stage.evictions.add([stage.pod("first")], None)
        await stage.evict("first")
        stage.disrupt_claim("SpotInterruption")
        stage.evictions.add([stage.pod("second")], None)
        await stage.evict("second")

        assert stage.events("Evicted") == [
            ("Normal", "Pod/first", "Evicted pod: Forceful Termination"),
            ("Normal", "Pod/second", "Evicted pod: SpotInterruption"),
        ]
    assert drained("SpotInterruption") - named == 1
    assert drained("Forceful Termination") - unnamed == 1


@pytest.mark.spec("lifecycle-103")
@virtual
async def test_a_budget_that_says_no_is_asked_again() -> None:
    before = answers("429")
    async with Stage().open() as stage:
        stage.node()
        stage.budget()
        pod = stage.pod(labels=WEB)
        stage.evictions.add([pod], None)

        assert await stage.evict() == SOON
        assert await stage.evict() == SOON

        assert pod in stage.evictions
        assert not stage.pod_now().deleting
        ((kind, about, note),) = stage.events("FailedDraining")
        assert (kind, about) == ("Warning", "Node/node")
        assert note == "Failed to drain node, evicting pod violates a PDB (Pod=default/pod)"
    assert answers("429") - before == 2


@pytest.mark.spec("lifecycle-104")
@virtual
async def test_two_budgets_over_one_pod_are_told_apart_from_a_failure() -> None:
    before = answers("500")
    async with Stage().open() as stage:
        stage.node()
        stage.budget("one", allowed=1)
        stage.budget("two", allowed=1)
        pod = stage.pod(labels=WEB)
        stage.evictions.add([pod], None)

        assert await stage.evict() == SOON

        assert pod in stage.evictions
        ((_, _, note),) = stage.events("FailedDraining")
        assert "eviction does not support multiple PDBs (Pod=default/pod)" in note
    assert answers("500") - before == 1


@pytest.mark.spec("lifecycle-105")
@virtual
async def test_a_budget_does_not_hold_a_pod_whose_time_is_up() -> None:
    async with Stage().open() as stage:
        stage.node()
        stage.budget()
        pod = stage.pod(labels=WEB, termination_grace_period_seconds=120)
        stage.evictions.add([pod], stage.clock.now() + timedelta(seconds=60))

        assert await stage.evict() == DONE

        assert stage.pod_now().metadata.deletion_grace_period_seconds == 59
        assert pod not in stage.evictions
        ((kind, about, note),) = stage.events("Disrupted")
        assert (kind, about) == ("Normal", "Pod/pod")
        assert "2026-01-01T00:01:00Z" in note
        assert "granted 59 seconds of grace-period of its 120 terminationGracePeriodSeconds" in note
        assert stage.events("FailedDraining") == []


@pytest.mark.spec("lifecycle-106")
@virtual
async def test_a_deadline_given_later_counts() -> None:
    async with Stage().open() as stage:
        stage.node()
        stage.budget()
        pod = stage.pod(labels=WEB, termination_grace_period_seconds=120)
        stage.evictions.add([pod], None)
        assert await stage.evict() == SOON

        stage.evictions.add([pod], stage.clock.now() + timedelta(seconds=60))
        assert await stage.evict() == DONE

        assert stage.pod_now().deleting
        assert len(stage.events("Disrupted")) == 1


@pytest.mark.spec("lifecycle-107")
@pytest.mark.parametrize("loose", [3600, None])
@virtual
async def test_a_deadline_is_never_loosened(loose: float | None) -> None:
    async with Stage().open() as stage:
        stage.node()
        stage.budget()
        pod = stage.pod(labels=WEB, termination_grace_period_seconds=120)
        now = stage.clock.now()
        stage.evictions.add([pod], now + timedelta(seconds=60))
        stage.evictions.add([pod], now + timedelta(seconds=loose) if loose is not None else None)

        assert await stage.evict() == DONE

        assert stage.pod_now().deleting


@pytest.mark.spec("lifecycle-108")
@virtual
async def test_a_deadline_long_past_still_leaves_a_second() -> None:
    async with Stage().open() as stage:
        stage.node()
        pod = stage.pod()
        stage.evictions.add([pod], stage.clock.now() - timedelta(hours=1))

        await stage.evict()

        assert stage.pod_now().metadata.deletion_grace_period_seconds == 1
        ((_, _, note),) = stage.events("Disrupted")
        assert "granted 1 seconds of grace-period" in note


@pytest.mark.spec("lifecycle-109")
@virtual
async def test_a_pod_that_went_while_it_was_to_be_deleted_is_forgotten() -> None:
    gone = drained("")
    async with Stage().open() as stage:
        pod = stage.pod()
        stage.evictions.add([pod], stage.clock.now() - timedelta(hours=1))
        await stage.heard()
        # Not heard of yet when the attempt is made.
        stage.end_pods("pod")

        assert await stage.evictions.reconcile("default/pod") == DONE
        assert len(stage.evictions) == 0
    assert drained("") == gone


@pytest.mark.spec("lifecycle-110")
@virtual
async def test_a_thousand_pods_leave_once_each() -> None:
    asked = answers("200")
    async with Stage().open() as stage, stage.running(stage.evictions):
        pods = [stage.pod(f"pod-{number:04d}", "elsewhere") for number in range(1000)]
        await stage.heard()

        async def offer(part: int) -> None:
            for _ in range(3):
                stage.evictions.add(pods[part::4], None)
                await asyncio.sleep(0)

        await asyncio.gather(*map(offer, range(4)), *map(offer, range(4)))
        await stage.sleep(30)

        assert len(stage.evictions) == 0
        assert all(stage.pod_now(pod.name).deleting for pod in pods)
    assert answers("200") - asked == 1000


@virtual
async def test_a_full_queue_takes_the_rest_when_it_is_offered_again() -> None:
    async with Stage().open() as stage:
        queue = EvictionQueue(stage.context, capacity=2)
        pods = [stage.pod(name) for name in ("a", "b", "c")]
        queue.add(pods, None)
        assert [pod in queue for pod in pods] == [True, True, False]

        await stage.look(queue, "default/a")
        queue.add(pods[1:], None)

        assert pods[2] in queue


@virtual
async def test_a_pod_that_leaves_by_itself_is_not_asked() -> None:
    asked = answers("200")
    async with Stage().open() as stage:
        pod = stage.pod()
        stage.evictions.add([pod], None)
        stage.api.delete("pods", "pod", "default")

        assert await stage.evict() == DONE
        assert pod not in stage.evictions
    assert answers("200") == asked


@virtual
async def test_a_pod_that_is_held_meanwhile_stays_queued_and_unasked() -> None:
    asked = answers("200")
    async with Stage().open() as stage:
        pod = stage.pod()
        stage.evictions.add([pod], None)
        held = {"metadata": {"annotations": {labels.DO_NOT_DISRUPT: "true"}}}
        stage.api.patch("pods", "pod", held, "default")

        assert await stage.evict() == SOON
        assert pod in stage.evictions

        stage.api.patch("pods", "pod", {"metadata": {"annotations": None}}, "default")
        assert await stage.evict() == DONE
    assert answers("200") - asked == 1


@pytest.mark.parametrize("code", [404, 409])
@virtual
async def test_a_pod_the_server_no_longer_knows_is_forgotten_without_a_word(code: int) -> None:
    before = answers(str(code))
    async with Stage().open() as stage:
        stage.evictions.add([stage.pod()], None)
        await stage.heard()
        stage.end_pods("pod")
        if code == 409:
            stage.pod()  # a namesake, of which the informer has not heard

        assert await stage.evictions.reconcile("default/pod") == DONE
        await stage.heard()

        assert len(stage.evictions) == 0
        assert stage.events("Evicted") == []
    assert answers(str(code)) - before == 1


@pytest.mark.parametrize("code", [403, 500, 503])
@virtual
async def test_any_other_answer_is_an_error_that_is_tried_again(code: int) -> None:
    before = answers(str(code))
    async with Stage(faults=Refusing(code)).open() as stage:
        pod = stage.pod()
        stage.evictions.add([pod], None)

        with pytest.raises(Retry):
            await stage.evict()

        assert pod in stage.evictions
        assert await stage.evict() == DONE
    assert answers(str(code)) - before == 1


@pytest.mark.parametrize("code", [403, 500])
@virtual
async def test_a_delete_that_is_turned_down_is_tried_again(code: int) -> None:
    async with Stage(faults=Refusing(code, "delete")).open() as stage:
        pod = stage.pod()
        stage.evictions.add([pod], stage.clock.now() - timedelta(hours=1))

        with pytest.raises(Retry):
            await stage.evict()
        assert pod in stage.evictions
        assert not stage.pod_now().deleting

        assert await stage.evict() == DONE
        assert stage.pod_now().deleting
        assert pod not in stage.evictions


@virtual
async def test_a_namesake_of_a_pod_whose_time_is_up_is_not_deleted_in_its_place() -> None:
    async with Stage().open() as stage:
        stage.evictions.add([stage.pod()], stage.clock.now() - timedelta(hours=1))
        await stage.heard()
        stage.end_pods("pod")
        stage.pod()  # of which the informer has not heard

        with pytest.raises(Conflict):
            await stage.evictions.reconcile("default/pod")

        assert not stage.pod_now().deleting
        assert await stage.evict() == DONE
        assert len(stage.evictions) == 0
        assert not stage.pod_now().deleting


@virtual
async def test_attempts_are_spaced_from_a_tenth_of_a_second_to_ten() -> None:
    async with Stage().open() as stage:
        stage.node()
        stage.budget()
        before = answers("429")
        stage.evictions.add([stage.pod(labels=WEB)], None)
        async with stage.running(stage.evictions):
            times: list[float] = []
            for _ in range(6000):
                seen = answers("429")
                await stage.sleep(0.01)
                if answers("429") > seen:
                    times.append(stage.clock.monotonic())
        gaps = [later - earlier for earlier, later in pairwise(times[:12])]
        assert gaps[:7] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4], abs=0.05)
        assert gaps[7:] == pytest.approx([10.0] * 4, abs=0.05)
        assert answers("429") - before >= 12


def test_the_pace_follows_the_processor() -> None:
    async def paces() -> list[tuple[int, float, int]]:
        queues = []
        async with Stage().open() as stage:
            for millicores in (500, 1000, 60_000):
                queue = EvictionQueue(replace(stage.context, settings=Settings(cpu_requests=millicores)))
                queues.append((queue.concurrency, queue.backoff.per_second, queue.backoff.burst))
        return queues

    assert run_virtual(paces()) == [(100, 100, 1000), (100, 100, 1000), (5000, 5000, 50_000)]

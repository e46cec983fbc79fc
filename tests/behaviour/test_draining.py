"""Who is asked to leave a draining node, in which order, who is not, and what a deadline changes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.api import labels
from dovetail.api.pod import Toleration
from dovetail.controllers.base import requeue_after
from support.builders import owner
from support.stage import Stage, sample, virtual

NODE_CRITICAL, CLUSTER_CRITICAL = "system-node-critical", "system-cluster-critical"
HELD = {labels.DO_NOT_DISRUPT: "true"}


@pytest.mark.spec("lifecycle-77")
@pytest.mark.parametrize(
    "toleration",
    [
        Toleration(key="karpenter.sh/disrupted", operator="Equal", effect="NoSchedule"),
        Toleration(key="karpenter.sh/disrupted", operator="Exists"),
        Toleration(operator="Exists"),
    ],
)
@virtual
async def test_a_pod_that_tolerates_disruption_is_never_asked_and_holds_nothing(
    toleration: Toleration,
) -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod(tolerations=(toleration,))

        await stage.end()
        assert stage.queued() == set()
        await stage.sleep(5)
        await stage.end()
        await stage.end()

        assert not stage.has("nodes", "node")
        assert not stage.pod_now().deleting


@pytest.mark.spec("lifecycle-78")
@virtual
async def test_a_pod_that_tolerates_a_cordon_only_is_evicted() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod(
            tolerations=(Toleration(key=labels.UNSCHEDULABLE_TAINT, operator="Exists", effect="NoSchedule"),)
        )

        assert await stage.end() == requeue_after(1)
        await stage.evict()

        assert stage.pod_now().deleting


@pytest.mark.spec("lifecycle-79")
@virtual
async def test_a_pod_nobody_owns_is_evicted_like_any_other() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        pod = stage.pod()
        assert pod.metadata.owner_references == ()

        await stage.end()
        await stage.evict()

        assert stage.pod_now().deleting


@pytest.mark.spec("lifecycle-80")
@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@virtual
async def test_pods_that_have_run_to_their_end_are_ignored(phase: str) -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod()
        stage.api.patch("pods", "pod", {"status": {"phase": phase}}, "default", subresource="status")

        await stage.end()
        assert stage.queued() == set()
        await stage.sleep(5)
        await stage.end()
        await stage.end()

        assert not stage.has("nodes", "node")
        assert stage.has("pods", "pod", "default")


@pytest.mark.spec("lifecycle-82")
@virtual
async def test_pods_leave_in_four_tiers_each_waiting_for_the_one_before() -> None:
    daemon = owner("DaemonSet")
    tiers = ["plain", "daemon", "critical", "critical-daemon"]
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod("critical-daemon", owned_by=daemon, priority_class_name=NODE_CRITICAL)
        stage.pod("critical", priority_class_name=CLUSTER_CRITICAL)
        stage.pod("daemon", owned_by=daemon)
        stage.pod("plain")

        for gone, name in enumerate(tiers):
            assert await stage.end() == requeue_after(1)
            assert stage.queued() == {name}
            await stage.evict(name)
            assert stage.pod_now(name).deleting
            # Leaving is not gone: the next tier is not asked yet.
            assert await stage.end() == requeue_after(1)
            assert stage.queued() == set()
            assert [each for each in tiers[gone + 1 :] if stage.pod_now(each).deleting] == []
            stage.end_pods(name)

        await stage.sleep(5)
        assert await stage.end() == requeue_after(5)


@pytest.mark.spec("lifecycle-83")
@virtual
async def test_both_critical_classes_leave_together() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod("plain")
        stage.pod("of-node", priority_class_name=NODE_CRITICAL)
        stage.pod("of-cluster", priority_class_name=CLUSTER_CRITICAL)

        await stage.end()
        assert stage.queued() == {"plain"}
        stage.end_pods("plain")
        await stage.end()

        assert stage.queued() == {"of-node", "of-cluster"}


@pytest.mark.spec("lifecycle-84")
@virtual
async def test_a_mirror_of_a_static_pod_is_never_asked() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod(owned_by=owner("Node", "node", "v1"))

        await stage.end()
        assert stage.queued() == set()
        await stage.sleep(5)
        await stage.end()
        await stage.end()

        assert not stage.has("nodes", "node")


@pytest.mark.spec("lifecycle-85")
@virtual
async def test_a_node_stays_until_its_last_pod_is_gone() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod("one")
        stage.pod("two")
        await stage.end()
        await stage.evict("one")
        await stage.evict("two")
        await stage.sleep(6)

        assert await stage.end() == requeue_after(1)
        assert stage.says("Drained") == ("Unknown", "Draining")
        assert stage.events("FailedDraining") == [
            ("Warning", "Node/node", "Failed to drain node, 2 pods are waiting to be evicted")
        ]
        stage.end_pods("one")
        assert await stage.end() == requeue_after(1)
        assert stage.says("Drained") == ("Unknown", "Draining")

        stage.end_pods("two")
        assert await stage.end() == requeue_after(5)
        assert stage.says("Drained") == ("True", "Drained")


@pytest.mark.spec("lifecycle-88")
@virtual
async def test_a_pod_stuck_for_over_a_minute_is_not_waited_for() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod(termination_grace_period_seconds=30)
        await stage.end()
        await stage.evict()

        await stage.sleep(30 + 59)
        assert await stage.end() == requeue_after(1)
        await stage.sleep(3)
        assert await stage.end() == requeue_after(5)
        await stage.end()

        assert not stage.has("nodes", "node")
        assert stage.pod_now().deleting


@pytest.mark.spec("lifecycle-89")
@virtual
async def test_a_namesake_of_a_queued_pod_is_not_evicted_in_its_place() -> None:
    async with Stage().open() as stage:
        stage.node()
        stage.node("other", claimed=False)
        stage.pod()
        stage.delete_node()
        await stage.end()
        assert stage.queued() == {"pod"}

        stage.end_pods("pod")
        stage.pod(node="other")
        await stage.evict()

        assert not stage.pod_now().deleting
        assert len(stage.evictions) == 0
        assert stage.events("Evicted") == []


@pytest.mark.parametrize("claimed", [True, False])
@virtual
async def test_a_pod_we_have_not_heard_of_is_found_before_the_machine_goes(claimed: bool) -> None:
    async with Stage().open() as stage:
        stage.node(claimed=claimed)
        if claimed:
            stage.api.delete("nodeclaims.karpenter.sh", "node")
        stage.delete_node()
        if claimed:
            await stage.end()
        await stage.sleep(6)
        stage.pod()

        assert await stage.termination.reconcile("node") == requeue_after(1)
        await stage.heard()

        assert stage.queued() == {"pod"}
        assert stage.cloud.calls["delete"] == 0
        assert stage.has("nodes", "node")


@virtual
async def test_a_held_pod_holds_its_node_and_is_not_asked() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod(annotations=HELD)

        for _ in range(3):
            assert await stage.end() == requeue_after(1)
            await stage.sleep(600)

        assert stage.queued() == set()
        assert not stage.pod_now().deleting


@virtual
async def test_a_hold_with_a_duration_ends_and_people_are_told() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod(annotations={labels.DO_NOT_DISRUPT: "5m"})

        await stage.end()
        assert stage.queued() == set()
        ((kind, about, note),) = stage.events("DoNotDisruptUntil")
        assert (kind, about) == ("Normal", "Pod/pod")
        assert note.endswith("will elapse at 2026-01-01T00:05:00Z")

        await stage.sleep(301)
        await stage.end()
        assert stage.queued() == {"pod"}
        assert len(stage.events("DoNotDisruptGracePeriodElapsed")) == 1


@pytest.mark.spec("lifecycle-90")
@virtual
async def test_a_pod_that_needs_all_the_time_there_is_is_deleted_at_once() -> None:
    async with Stage().open() as stage:
        stage.doomed_node(grace=300)
        stage.pod(annotations=HELD, termination_grace_period_seconds=300)
        await stage.sleep(10)

        assert await stage.end() == requeue_after(1)

        pod = stage.pod_now()
        assert pod.metadata.deletion_grace_period_seconds == 289
        assert stage.events("Evicted") == []
        ((_, _, note),) = stage.events("Disrupted")
        assert "granted 289 seconds of grace-period" in note
        assert "2026-01-01T00:05:00Z" in note
        ((kind, about, note),) = stage.events("TerminationGracePeriodExpiring")
        assert (kind, about) == ("Warning", "Node/node")
        assert note == "All pods will be deleted by 2026-01-01T00:05:00Z"


@pytest.mark.spec("lifecycle-91")
@virtual
async def test_a_held_pod_is_deleted_when_just_its_own_time_is_left() -> None:
    async with Stage().open() as stage:
        stage.doomed_node(grace=300)
        stage.pod(annotations=HELD, termination_grace_period_seconds=60)

        await stage.sleep(90)
        await stage.end()
        assert not stage.pod_now().deleting

        await stage.sleep(175)
        await stage.end()
        assert stage.pod_now().metadata.deletion_grace_period_seconds == 34


@pytest.mark.spec("lifecycle-92")
@virtual
async def test_a_critical_pod_that_would_overrun_the_deadline_does_not_wait_for_its_tier() -> None:
    async with Stage().open() as stage:
        stage.doomed_node(grace=300)
        stage.pod("plain", termination_grace_period_seconds=30)
        stage.pod("critical", priority_class_name=NODE_CRITICAL, termination_grace_period_seconds=600)
        await stage.sleep(1)

        assert await stage.end() == requeue_after(1)

        assert stage.queued() == {"plain"}
        assert stage.pod_now("critical").deleting
        assert not stage.pod_now("plain").deleting


@pytest.mark.spec("lifecycle-93")
@virtual
async def test_a_pod_that_stops_too_slowly_is_told_to_hurry() -> None:
    async with Stage().open() as stage:
        stage.doomed_node(grace=300)
        stage.pod(termination_grace_period_seconds=6000)
        begun = stage.clock.now()
        stage.api.delete("pods", "pod", "default")
        assert stage.pod_now().metadata.deletion_grace_period_seconds == 6000
        await stage.sleep(90)

        await stage.end()

        pod = stage.pod_now()
        assert pod.metadata.deletion_grace_period_seconds == pytest.approx(210, abs=1)
        assert pod.metadata.deletion_timestamp is not None
        assert pod.metadata.deletion_timestamp <= begun + timedelta(seconds=300)


@virtual
async def test_a_pod_is_told_to_hurry_once_not_with_every_look() -> None:
    async with Stage().open() as stage:
        stage.doomed_node(grace=-10)
        stage.pod()
        await stage.end()
        version = stage.pod_now().metadata.resource_version
        assert stage.pod_now().metadata.deletion_grace_period_seconds == 1
        seen = _deletes()

        for _ in range(5):
            await stage.end()

        assert stage.pod_now().metadata.resource_version == version
        assert _deletes() == seen


@virtual
async def test_a_pod_deleted_by_the_drain_is_not_queued_as_well() -> None:
    async with Stage().open() as stage:
        stage.doomed_node(grace=10)
        stage.pod("slow", termination_grace_period_seconds=60)
        stage.pod("quick", termination_grace_period_seconds=1)

        await stage.end()

        assert stage.pod_now("slow").deleting
        assert stage.queued() == {"quick"}


@virtual
async def test_no_grace_at_all_means_everything_is_forced_at_once() -> None:
    async with Stage().open() as stage:
        stage.doomed_node(grace=0)
        stage.pod("plain", annotations=HELD)
        stage.pod("critical", priority_class_name=NODE_CRITICAL)
        await stage.sleep(1)

        await stage.end()

        assert stage.pod_now("plain").deleting
        assert stage.pod_now("critical").deleting


def _deletes() -> float:
    """Pod deletes sent so far."""
    about = {"verb": "DELETE", "group": "", "version": "v1", "kind": "Pod", "subresource": ""}
    return sample("client_go_request_duration_seconds_count", **about)

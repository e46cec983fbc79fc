"""The end of a node, pass by pass: taint, drain, volumes, instance, and who is not waited for."""

from __future__ import annotations

import pytest

from dovetail.api import labels
from dovetail.api.taints import DISRUPTED, is_same_taint
from dovetail.controllers.base import DONE, SOON, requeue_after
from dovetail.errors import NotAuthorized, Retry
from support.builders import taint
from support.stage import Stage, sample, virtual


@pytest.mark.spec("lifecycle-71")
@virtual
async def test_an_empty_node_is_tainted_drained_and_let_go_in_three_passes() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()

        assert await stage.end() == requeue_after(1)
        assert stage.tainted()
        assert stage.says("Drained") == ("Unknown", "Draining")

        await stage.sleep(5)
        assert await stage.end() == requeue_after(5)
        assert stage.says("Drained") == ("True", "Drained")
        assert stage.says("VolumesDetached") == ("True", "VolumesDetached")
        assert stage.says("InstanceTerminating") == ("True", "InstanceTerminating")
        assert stage.has("nodes", "node")

        assert await stage.end() == DONE
        assert not stage.has("nodes", "node")


@pytest.mark.spec("lifecycle-72")
@virtual
async def test_a_node_without_a_claim_is_let_go_in_one_pass() -> None:
    async with Stage().open() as stage:
        stage.node(claimed=False)
        stage.delete_node()

        assert await stage.end() == DONE
        assert not stage.has("nodes", "node")
        assert stage.cloud.calls["delete"] == 0


@pytest.mark.spec("lifecycle-73")
@virtual
async def test_two_claims_for_one_machine_count_as_none() -> None:
    async with Stage().open() as stage:
        stage.node()
        stage.claim(name="twin")
        stage.delete_node()

        assert await stage.end() == DONE
        assert not stage.has("nodes", "node")
        assert not stage.claim_now().deleting
        assert not stage.claim_now("twin").deleting


@pytest.mark.spec("lifecycle-74")
@virtual
async def test_a_node_of_others_is_left_alone() -> None:
    async with Stage().open() as stage:
        stage.node()
        foreign = {"metadata": {"labels": {labels.KWOK_NODECLASS: None}}}
        stage.api.patch("nodes", "node", foreign)
        stage.delete_node()

        assert await stage.end() == DONE
        assert not stage.tainted()
        assert labels.TERMINATION in stage.node_now().metadata.finalizers
        assert not stage.claim_now().deleting


@virtual
async def test_a_living_node_and_one_without_our_finalizer_are_left_alone() -> None:
    async with Stage().open() as stage:
        stage.node()
        assert await stage.end() == DONE
        assert not stage.tainted()

        others = {"metadata": {"finalizers": ["example.com/hold"]}}
        stage.api.patch("nodes", "node", others)
        stage.delete_node()
        assert await stage.end() == DONE
        assert not stage.tainted()


@pytest.mark.spec("lifecycle-75")
@virtual
async def test_deleting_a_node_deletes_its_claim_and_the_instance_ends_before_the_node_does() -> None:
    async with Stage().open() as stage:
        stage.node()
        stage.delete_node()

        await stage.end()
        assert stage.claim_now().deleting

        said = []
        for _ in range(12):
            if stage.has("nodes", "node"):
                said.append(stage.says("InstanceTerminating"))
                await stage.end()
                await stage.sleep(1)
        assert not stage.has("nodes", "node")
        assert said[-1] == ("True", "InstanceTerminating")


@pytest.mark.spec("lifecycle-76")
@virtual
async def test_a_node_that_drains_is_taken_out_of_load_balancers() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod()

        await stage.end()

        assert stage.node_now().labels[labels.EXCLUDE_FROM_LOAD_BALANCERS] == "karpenter"


@virtual
async def test_a_disrupted_taint_of_another_effect_is_replaced_and_other_taints_stay() -> None:
    async with Stage().open() as stage:
        stage.node(taints=[taint("karpenter.sh/disrupted", "NoExecute"), taint("team", "NoSchedule", "a")])
        stage.delete_node()

        await stage.end()

        taints = stage.node_now().spec.taints
        assert [t.effect for t in taints if t.key == DISRUPTED.key] == ["NoSchedule"]
        assert any(t.key == "team" and t.value == "a" for t in taints)


@virtual
async def test_a_write_in_between_is_answered_with_another_look() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        await stage.heard()
        # The informer has not heard of this when the pass begins.
        stage.api.patch("nodes", "node", {"metadata": {"labels": {"someone": "else"}}})

        assert await stage.termination.reconcile("node") == SOON
        assert not stage.tainted()

        await stage.end()
        assert stage.tainted()
        assert stage.node_now().labels["someone"] == "else"


@pytest.mark.spec("lifecycle-86")
@virtual
async def test_a_silent_node_whose_machine_is_gone_is_let_go_at_once() -> None:
    async with Stage().open() as stage:
        stage.node(ready=False)
        stage.pod()
        stage.delete_node()
        stage.cloud.vanish("kwok://node")

        assert await stage.end() == DONE
        assert not stage.has("nodes", "node")
        assert stage.has("pods", "pod", "default")
        assert len(stage.evictions) == 0


@pytest.mark.spec("lifecycle-87")
@virtual
async def test_a_ready_node_is_drained_even_if_its_machine_is_said_to_be_gone() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        stage.pod()
        stage.cloud.vanish("kwok://node")

        assert await stage.end() == requeue_after(1)
        assert stage.cloud.calls["get"] == 0
        assert stage.queued() == {"pod"}
        assert stage.has("nodes", "node")


@virtual
async def test_a_silent_node_that_names_no_machine_is_drained_like_any_other() -> None:
    async with Stage().open() as stage:
        stage.node(claimed=False, ready=False, machine="")
        stage.pod()
        stage.delete_node()

        assert await stage.end() == requeue_after(1)
        assert stage.queued() == {"pod"}
        assert stage.cloud.calls["get"] == 0


@virtual
async def test_a_cloud_that_does_not_answer_about_a_silent_node_is_asked_again() -> None:
    async with Stage().open() as stage:
        stage.node(ready=False)
        stage.delete_node()
        stage.cloud.fail("get", Retry("no answer"))

        with pytest.raises(Retry):
            await stage.end()
        assert not stage.tainted()

        assert await stage.end() == requeue_after(1)
        assert stage.tainted()


@virtual
async def test_what_the_drain_came_to_is_written_even_if_the_cloud_then_fails() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        await stage.end()
        await stage.sleep(5)
        stage.cloud.fail("delete", NotAuthorized("ec2:TerminateInstances"))

        # A refusal too is tried again: nothing else would wake the controller once it is granted.
        with pytest.raises(Retry):
            await stage.end()

        assert stage.says("Drained") == ("True", "Drained")
        assert stage.says("InstanceTerminating") is None
        assert await stage.end() == requeue_after(5)


@virtual
async def test_a_termination_time_that_cannot_be_read_is_an_error() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        bad = {"metadata": {"annotations": {labels.TERMINATION_TIMESTAMP: "tomorrow"}}}
        stage.api.patch("nodeclaims.karpenter.sh", "node", bad)

        with pytest.raises(Retry, match="tomorrow"):
            await stage.end()
        assert stage.events("TerminationGracePeriodExpiring") == [
            ("Warning", "Node/node", "All pods will be deleted by tomorrow")
        ]


@pytest.mark.spec("lifecycle-94")
@virtual
async def test_an_empty_node_waits_five_seconds_for_pods_bound_at_the_last_moment() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        for _ in range(4):
            assert await stage.end() == requeue_after(1)
            assert stage.says("Drained") == ("Unknown", "Draining")
            await stage.sleep(1)

        # The scheduler had bound this one before it saw the taint.
        stage.pod()
        await stage.sleep(1)
        assert await stage.end() == requeue_after(1)
        assert stage.queued() == {"pod"}
        assert stage.says("Drained") == ("Unknown", "Draining")


@pytest.mark.spec("lifecycle-99")
@virtual
async def test_an_ended_node_is_counted_once_everywhere() -> None:
    about = {"nodepool": "counted"}
    names = {
        "karpenter_nodes_termination_duration_seconds_count": about,
        "karpenter_nodes_terminated_total": about | {"zone": "test-zone-a"},
        "karpenter_nodes_drained_total": about,
        "karpenter_nodes_lifetime_duration_seconds_count": about,
    }
    async with Stage().open() as stage:
        stage.node(claimed=False, nodepool="counted")
        stage.claim(nodepool="counted")
        await stage.sleep(100)
        stage.delete_node()
        for _ in range(12):
            await stage.end()
            await stage.sleep(1)

        assert not stage.has("nodes", "node")
        assert {name: sample(name, **labels) for name, labels in names.items()} == dict.fromkeys(names, 1.0)
        lived = sample("karpenter_nodes_lifetime_duration_seconds_sum", **about)
        assert 100 <= lived <= 110
        assert sample("karpenter_nodes_termination_duration_seconds_sum", **about) <= 10
        assert sample("karpenter_nodes_lifetime_duration_seconds_bucket", le="900.0", **about) == 1


@virtual
async def test_finalizers_of_others_survive_ours() -> None:
    async with Stage().open() as stage:
        stage.node(claimed=False)
        held = {"metadata": {"finalizers": [labels.TERMINATION, "example.com/hold"]}}
        stage.api.patch("nodes", "node", held)
        stage.delete_node()

        assert await stage.end() == DONE
        assert stage.node_now().metadata.finalizers == ("example.com/hold",)


@virtual
async def test_a_finalizer_that_another_takes_off_meanwhile_is_not_put_back() -> None:
    async with Stage().open() as stage:
        stage.node(claimed=False)
        both = {"metadata": {"finalizers": [labels.TERMINATION, "example.com/hold"]}}
        stage.api.patch("nodes", "node", both)
        stage.delete_node()
        stage.pod()
        assert await stage.end() == requeue_after(1)
        stage.end_pods("pod")
        await stage.heard()
        # Not heard of yet when the last pass begins.
        stage.api.patch("nodes", "node", {"metadata": {"finalizers": [labels.TERMINATION]}})

        assert await stage.termination.reconcile("node") == SOON
        assert await stage.end() == DONE
        assert not stage.has("nodes", "node")


@virtual
async def test_conditions_are_not_written_over_what_others_wrote_meanwhile() -> None:
    async with Stage().open() as stage:
        stage.doomed_node()
        await stage.heard()
        stage.disrupt_claim("Drifted")

        assert await stage.termination.reconcile("node") == SOON
        assert stage.says("DisruptionReason") == ("True", "Drifted")
        assert stage.says("Drained") is None

        await stage.end()
        assert stage.says("DisruptionReason") == ("True", "Drifted")
        assert stage.says("Drained") == ("Unknown", "Draining")


@virtual
async def test_the_disrupted_taint_lands_within_a_second_of_the_claims_deletion() -> None:
    async with Stage().open() as stage, stage.running():
        stage.node()
        stage.pod()
        await stage.sleep(60)
        stage.api.delete("nodeclaims.karpenter.sh", "node")

        await stage.sleep(0.9)

        assert any(is_same_taint(t, DISRUPTED) for t in stage.node_now().spec.taints)


@pytest.mark.spec("lifecycle-98")
@virtual
async def test_ten_nodes_end_side_by_side() -> None:
    before = sample("karpenter_nodes_terminated_total", nodepool="default", zone="test-zone-a")
    async with Stage().open() as stage, stage.running():
        names = [f"node-{number}" for number in range(10)]
        for name in names:
            stage.node(name)
            stage.pod(f"pod-of-{name}", name)
        await stage.sleep(1)
        for name in names:
            stage.delete_node(name)
        await stage.sleep(3)
        assert all(pod.metadata.deletion_timestamp for pod in stage.pods)
        stage.end_pods(*(f"pod-of-{name}" for name in names))
        await stage.sleep(30)

        assert [name for name in names if stage.has("nodes", name)] == []
        assert [name for name in names if stage.has("nodeclaims.karpenter.sh", name)] == []
        assert stage.cloud.instances == {}
        after_all = sample("karpenter_nodes_terminated_total", nodepool="default", zone="test-zone-a")
        assert after_all - before == 10

"""The beginning of a claim: its finalizer, its conditions, and the one machine that is launched for it."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.meta import Condition
from dovetail.api.nodepool import NodeClassReference
from dovetail.controllers.base import SOON
from dovetail.errors import ClassNotReady, CreateFailed, InsufficientCapacity, NotAuthorized, Retry
from dovetail.sim.faults import FaultRule
from support.world import CLAIMS, Scene, sample, virtual

FOREIGN = NodeClassReference(group="example.com", kind="OtherClass", name="default")
DISRUPTED = "karpenter_nodeclaims_disrupted_total"
ABOUT = {
    "nodepool": "default",
    "capacity_type": "",
    "consolidation_policy": "",
    "termination_mode": "graceful",
}


@pytest.mark.spec("lifecycle-1")
@virtual
async def test_a_claim_gets_its_finalizer_first() -> None:
    async with Scene().still() as scene:
        scene.claim()
        await scene.live()
        assert labels.TERMINATION in scene.claim_now().metadata.finalizers


@pytest.mark.spec("lifecycle-2")
@virtual
async def test_a_claim_of_others_is_left_alone() -> None:
    async with Scene().still() as scene:
        scene.claim(node_class=FOREIGN)
        await scene.live()
        assert scene.claim_now().metadata.finalizers == ()
        assert scene.claim_now().status.conditions == ()
        assert not scene.cloud.calls


@pytest.mark.spec("lifecycle-3")
@virtual
async def test_nothing_is_launched_while_the_finalizer_cannot_be_stored() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.trouble(FaultRule(trouble="conflict", verbs=("patch",)))
        assert await scene.live() == SOON
        assert scene.cloud.calls["create"] == 0

        scene.trouble()
        await scene.live()
        assert scene.cloud.calls["create"] == 1


@pytest.mark.spec("lifecycle-4")
@virtual
async def test_conditions_of_a_fresh_claim_date_from_its_creation() -> None:
    async with Scene().still() as scene:
        claim = scene.claim()
        scene.cloud.fail("create", Retry("not now"))
        await scene.sleep(7)
        with pytest.raises(Retry):
            await scene.live()
        states = {c.type: c for c in scene.claim_now().status.conditions}
        assert set(states) == {"Launched", "Registered", "Initialized", "Ready"}
        assert {c.status for c in states.values()} == {"Unknown"}
        created = claim.metadata.creation_timestamp
        assert {c.last_transition_time for c in states.values()} == {created}


@pytest.mark.spec("lifecycle-6")
@virtual
async def test_a_new_generation_is_stamped_on_all_conditions_and_readiness_stays() -> None:
    async with Scene().still() as scene:
        claim = await scene.initialized()
        assert scene.says("Ready") == ("True", "Ready")
        old = [{**_raw(c), "observedGeneration": 0} for c in claim.status.conditions]
        scene.set_status(CLAIMS, "claim", {"conditions": old})

        await scene.live()

        after = scene.claim_now()
        assert {c.observed_generation for c in after.status.conditions} == {after.metadata.generation}
        assert scene.says("Ready") == ("True", "Ready")


@pytest.mark.spec("lifecycle-8")
@virtual
async def test_one_false_dependent_makes_the_claim_unready() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        scene.join(claim, name="one")
        scene.join(claim, name="two")
        await scene.live()
        assert scene.says("Registered") == ("False", "MultipleNodesFound")
        assert scene.says("Ready") == ("False", "UnhealthyDependents")


@pytest.mark.spec("lifecycle-9")
@virtual
async def test_one_claim_makes_one_machine() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        await scene.live()
        assert scene.cloud.calls["create"] == 1
        assert (await scene.cloud.get(claim.status.provider_id)).claim == "claim"


@pytest.mark.spec("lifecycle-10")
@virtual
async def test_what_the_cloud_says_of_the_machine_is_stored() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        machine = scene.cloud.instances[claim.status.provider_id]
        assert scene.says("Launched") == ("True", "Launched")
        assert claim.status.image_id == machine.image_id != ""
        assert claim.status.capacity == machine.capacity != {}
        assert claim.status.allocatable == machine.allocatable != {}


@pytest.mark.spec("lifecycle-11")
@virtual
async def test_the_claims_own_labels_win_and_the_clouds_are_added() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched(labels={"size": "mine"})
        machine = scene.cloud.instances[claim.status.provider_id]
        assert machine.labels["size"] != "mine"
        assert claim.labels["size"] == "mine"
        assert claim.labels[labels.INSTANCE_TYPE] == machine.labels[labels.INSTANCE_TYPE]


@pytest.mark.spec("lifecycle-12")
@virtual
async def test_the_clouds_annotations_win() -> None:
    async with Scene().still() as scene:
        scene.claim(annotations={"who": "claim", "kept": "yes"})
        told = scene.cloud.create

        async def create(claim):  # type: ignore[no-untyped-def]
            return replace(await told(claim), annotations={"who": "cloud"})

        scene.cloud.create = create  # type: ignore[method-assign]
        await scene.live()
        assert scene.claim_now().annotations["who"] == "cloud"
        assert scene.claim_now().annotations["kept"] == "yes"


@pytest.mark.spec("lifecycle-13")
@virtual
async def test_without_capacity_the_claim_is_given_up_and_people_are_told() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.cloud.fail("create", InsufficientCapacity("none of it left"))
        before = sample(DISRUPTED, reason="insufficient_capacity", **ABOUT)
        await scene.live()
        assert scene.claim_now().deleting
        assert sample(DISRUPTED, reason="insufficient_capacity", **ABOUT) == before + 1
        told = ("Warning", "NodeClaim/claim", "NodeClaim claim event: none of it left")
        assert scene.events("InsufficientCapacityError") == [told]


@pytest.mark.spec("lifecycle-14")
@virtual
async def test_with_a_class_that_is_not_ready_the_claim_is_given_up_silently() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.cloud.fail("create", ClassNotReady("its subnets are unknown"))
        before = sample(DISRUPTED, reason="nodeclass_not_ready", **ABOUT)
        await scene.live()
        assert scene.claim_now().deleting
        assert sample(DISRUPTED, reason="nodeclass_not_ready", **ABOUT) == before + 1
        assert scene.api.list("events") == []


@pytest.mark.spec("lifecycle-15")
@virtual
async def test_a_refusal_with_a_reason_is_shown_and_tried_again() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.cloud.fail("create", CreateFailed("ImageGone", "the image was deregistered"))
        with pytest.raises(CreateFailed):
            await scene.live()
        state = scene.claim_now().status.find_condition("Launched")
        assert state is not None
        assert (state.status, state.reason, state.message) == (
            "Unknown",
            "ImageGone",
            "the image was deregistered",
        )


@pytest.mark.spec("lifecycle-16")
@virtual
async def test_a_long_error_is_cut() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.cloud.fail("create", Retry("x" * 500))
        with pytest.raises(Retry):
            await scene.live()
        state = scene.claim_now().status.find_condition("Launched")
        assert state is not None
        assert (state.status, state.reason) == ("Unknown", "LaunchFailed")
        assert state.message == "x" * 300 + "..."


@pytest.mark.spec("lifecycle-17")
@virtual
async def test_a_lost_status_write_does_not_launch_a_second_machine() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.trouble(FaultRule(trouble="reset", verbs=("patch",), subresources=("status",), count=1))
        with pytest.raises(Retry):
            await scene.live()
        assert scene.claim_now().status.provider_id == ""

        await scene.sleep(290)
        await scene.live()

        assert scene.cloud.calls["create"] == 1
        assert scene.claim_now().status.provider_id == "fake://instance-0001"


@virtual
async def test_a_claim_given_up_late_still_knows_its_machine() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.trouble(FaultRule(trouble="reset", verbs=("patch",), subresources=("status",), count=1))
        with pytest.raises(Retry):
            await scene.live()
        await scene.sleep(3000)
        await scene.live()
        assert scene.claim_now().deleting
        assert scene.claim_now().status.provider_id == "fake://instance-0001"


@virtual
async def test_a_machine_launched_by_a_process_that_died_is_found_again() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.trouble(FaultRule(trouble="reset", verbs=("patch",), subresources=("status",), count=1))
        with pytest.raises(Retry):
            await scene.live()
        await scene.kill()

        await scene.restart(acting=False)
        await scene.live()

        assert scene.cloud.calls["create"] == 1
        assert scene.claim_now().status.provider_id == "fake://instance-0001"


@virtual
async def test_an_answer_that_never_came_is_asked_for_instead_of_launching_again() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.cloud.lose_answer("create")
        with pytest.raises(Retry):
            await scene.live()
        await scene.live()
        assert scene.cloud.calls["create"] == 1
        assert list(scene.cloud.instances) == [scene.claim_now().status.provider_id]


@virtual
async def test_a_machine_that_is_being_ended_is_not_taken_for_an_earlier_launch() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.cloud.lose_answer("create")
        with pytest.raises(Retry):
            await scene.live()
        (ended,) = scene.cloud.instances.values()
        scene.cloud.instances[ended.provider_id] = replace(ended, deleting=True)
        await scene.live()
        assert scene.cloud.calls["create"] == 2
        assert scene.claim_now().status.provider_id != ended.provider_id


@virtual
async def test_labels_lost_with_the_process_are_made_good() -> None:
    async with Scene().still() as scene:
        scene.claim()
        about_labels = FaultRule(trouble="reset", verbs=("patch",), resources=(CLAIMS,), count=1)
        await scene.look("nodeclaim.hydration", "claim")
        scene.cloud.on_launch = lambda claim, instance: scene.trouble(
            FaultRule(trouble="late-reply", verbs=("patch",), subresources=("status",), amount=0),
            about_labels,
        )
        with pytest.raises(Retry):
            await scene.live()
        assert scene.says("Launched") == ("True", "Launched")
        assert labels.INSTANCE_TYPE not in scene.claim_now().labels
        await scene.kill()

        await scene.restart(acting=False)
        await scene.live()

        assert labels.INSTANCE_TYPE in scene.claim_now().labels


@virtual
async def test_a_launch_that_is_forbidden_is_tried_again_and_given_up_in_time() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.cloud.fail("create", NotAuthorized("no permission to launch"), always=True)
        with pytest.raises(Retry, match="no permission"):
            await scene.live()
        assert scene.says("Launched") == ("Unknown", "LaunchFailed")
        await scene.sleep(301)
        await scene.live()
        assert scene.claim_now().deleting


def _raw(condition: Condition) -> dict[str, object]:
    when = condition.last_transition_time
    return {
        "type": condition.type,
        "status": condition.status,
        "reason": condition.reason,
        "message": condition.message,
        "lastTransitionTime": when.strftime("%Y-%m-%dT%H:%M:%SZ") if when else None,
    }

"""Claims that do not launch or join in time are given up, by the clock of their conditions."""

from __future__ import annotations

from datetime import timedelta

import pytest

from dovetail.api import conditions
from dovetail.api.nodepool import NodeClassReference
from dovetail.controllers.nodeclaim.registration import Liveness
from dovetail.controllers.nodepool.registrationhealth import RegistrationHealth
from dovetail.errors import Retry
from support.world import CLAIMS, Scene, sample, virtual

MINUTE = 60.0
DISRUPTED = "karpenter_nodeclaims_disrupted_total"


def given_up(reason: str, capacity_type: str = "") -> float:
    return sample(
        DISRUPTED,
        reason=reason,
        nodepool="default",
        capacity_type=capacity_type,
        consolidation_policy="",
        termination_mode="graceful",
    )


async def failing(scene: Scene) -> None:
    """One pass over a claim whose launch fails."""
    try:
        await scene.live()
    except Retry:
        return


@pytest.mark.spec("lifecycle-51")
@virtual
async def test_a_machine_that_never_joins_is_given_up() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        kind = claim.labels["karpenter.sh/capacity-type"]
        before = given_up("registration_timeout", kind)
        await scene.sleep(20 * MINUTE)
        await scene.live()
        assert scene.claim_now().deleting
        assert given_up("registration_timeout", kind) == before + 1


@pytest.mark.spec("lifecycle-52")
@virtual
async def test_one_that_joined_in_time_stays() -> None:
    async with Scene().still() as scene:
        await scene.registered()
        await scene.sleep(20 * MINUTE)
        await scene.live()
        assert not scene.claim_now().deleting
        assert scene.has("nodes", "node-claim")


@pytest.mark.spec("lifecycle-53", "lifecycle-54")
@virtual
async def test_a_launch_that_keeps_failing_is_given_up_after_five_minutes() -> None:
    async with Scene().still() as scene:
        scene.claim()
        before = given_up("launch_timeout")
        scene.cloud.fail("create", Retry("not now"), always=True)
        await failing(scene)
        await scene.sleep(MINUTE)
        await failing(scene)
        assert not scene.claim_now().deleting
        await scene.sleep(5 * MINUTE)
        await failing(scene)
        assert scene.claim_now().deleting
        assert given_up("launch_timeout") == before + 1


@pytest.mark.spec("lifecycle-55")
@virtual
async def test_the_patience_for_launches_can_be_set() -> None:
    async with Scene().still() as scene:
        d = scene.dovetail
        health = RegistrationHealth(d.kube, d.parts.pools, scene.clock)
        liveness = Liveness(d.kube, scene.clock, health, d.history, launch=timedelta(seconds=45))
        claim = conditions.open_conditions(scene.claim(), scene.clock.now())
        await scene.sleep(30)
        step = await liveness.step(claim)
        assert not step.over
        assert step.result.after == timedelta(seconds=15) - timedelta(seconds=0.001)
        await scene.sleep(30)
        step = await liveness.step(claim)
        assert step.over
        assert not scene.has(CLAIMS, "claim"), "it had no finalizer yet"


def shifted(scene: Scene, kind: str, minutes: float) -> None:
    """Move a condition's transition time."""
    listed = []
    for each in scene.claim_now().status.conditions:
        when = each.last_transition_time
        assert when is not None
        if each.type == kind:
            when += timedelta(minutes=minutes)
        listed.append(
            {
                "type": each.type,
                "status": each.status,
                "reason": each.reason,
                "message": each.message,
                "observedGeneration": each.observed_generation,
                "lastTransitionTime": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
            }
        )
    scene.set_status(CLAIMS, "claim", {"conditions": listed})


@pytest.mark.spec("lifecycle-56")
@virtual
async def test_the_launch_timer_follows_the_condition() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.cloud.fail("create", Retry("not now"), always=True)
        await failing(scene)
        shifted(scene, "Launched", 10)
        await scene.sleep(12 * MINUTE)
        await failing(scene)
        assert not scene.claim_now().deleting
        await scene.sleep(4 * MINUTE)
        await failing(scene)
        assert scene.claim_now().deleting


@pytest.mark.spec("lifecycle-57")
@virtual
async def test_the_registration_timer_follows_the_condition() -> None:
    async with Scene().still() as scene:
        await scene.launched()
        shifted(scene, "Registered", 10)
        await scene.sleep(16 * MINUTE)
        result = await scene.live()
        assert not scene.claim_now().deleting
        assert result.after is not None
        assert timedelta() < result.after < timedelta(minutes=15)


@pytest.mark.spec("lifecycle-58")
@virtual
async def test_claims_of_others_are_not_given_up() -> None:
    async with Scene().still() as scene:
        foreign = NodeClassReference(group="example.com", kind="OtherClass", name="default")
        scene.claim(node_class=foreign)
        await scene.sleep(60 * MINUTE)
        await scene.live()
        assert not scene.claim_now().deleting


@virtual
async def test_everything_happens_by_itself_when_dovetail_runs() -> None:
    async with Scene().running() as scene:
        scene.cloud.on_launch = lambda claim, instance: None
        scene.claim()
        await scene.until(lambda: scene.says("Launched") == ("True", "Launched"), within=5)
        await scene.sleep(14 * MINUTE)
        assert scene.has(CLAIMS, "claim")
        await scene.until(lambda: not scene.has(CLAIMS, "claim"), within=90)
        assert scene.cloud.instances == {}

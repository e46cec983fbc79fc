"""The end of a claim: its nodes first, then its machine, then the claim."""

from __future__ import annotations

import pytest

from dovetail.api import labels
from dovetail.controllers.base import DONE, SOON, requeue_after
from dovetail.errors import Retry
from dovetail.sim.faults import FaultRule
from support.world import CLAIMS, Scene, sample, virtual

ENDED = "karpenter_nodeclaims_termination_duration_seconds_count"
INSTANCE_ENDED = "karpenter_nodeclaims_instance_termination_duration_seconds_count"


def release(scene: Scene, node: str = "node-claim") -> None:
    """The node's own finalizer has done its work."""
    scene.api.patch("nodes", node, {"metadata": {"finalizers": None}})


@pytest.mark.spec("lifecycle-59")
@virtual
async def test_the_node_goes_first_and_the_claim_waits() -> None:
    async with Scene().still() as scene:
        await scene.initialized()
        scene.api.delete(CLAIMS, "claim")
        assert await scene.live() == DONE
        assert scene.node_now("node-claim").deleting
        assert scene.has(CLAIMS, "claim")
        assert scene.cloud.calls["delete"] == 0


@pytest.mark.spec("lifecycle-7", "lifecycle-60")
@virtual
async def test_then_the_machine_and_then_the_claim() -> None:
    async with Scene().still() as scene:
        scene.cloud.ending = 3.0
        await scene.initialized()
        before = sample(ENDED, nodepool="default"), sample(INSTANCE_ENDED, nodepool="default")
        scene.api.delete(CLAIMS, "claim")
        await scene.live()
        release(scene)

        assert await scene.live() == requeue_after(5)
        assert scene.cloud.calls["delete"] == 1
        assert scene.says("InstanceTerminating") == ("True", "InstanceTerminating")
        ending = scene.claim_now()
        assert scene.says("Ready") == ("True", "Ready")
        assert {c.observed_generation for c in ending.status.conditions} == {ending.metadata.generation}

        await scene.sleep(5)
        assert await scene.live() == DONE
        assert not scene.has(CLAIMS, "claim")
        assert sample(ENDED, nodepool="default") == before[0] + 1
        assert sample(INSTANCE_ENDED, nodepool="default") == before[1] + 1


@pytest.mark.spec("lifecycle-61")
@virtual
async def test_a_cloud_that_fails_keeps_the_claim() -> None:
    async with Scene().still() as scene:
        await scene.launched()
        scene.cloud.fail("delete", Retry("not now"))
        scene.api.delete(CLAIMS, "claim")
        with pytest.raises(Retry):
            await scene.live()
        assert labels.TERMINATION in scene.claim_now().metadata.finalizers
        await scene.live()
        await scene.live()
        assert not scene.has(CLAIMS, "claim")


@pytest.mark.spec("lifecycle-62")
@virtual
async def test_a_machine_that_lingers_keeps_the_claim() -> None:
    async with Scene().still() as scene:
        scene.cloud.ending = 60.0
        await scene.launched()
        scene.api.delete(CLAIMS, "claim")
        for _ in range(3):
            assert await scene.live() == requeue_after(5)
            await scene.sleep(5)
        assert labels.TERMINATION in scene.claim_now().metadata.finalizers


@pytest.mark.spec("lifecycle-63")
@virtual
async def test_all_nodes_that_say_they_are_the_machine_go() -> None:
    async with Scene().still() as scene:
        claim = await scene.initialized()
        scene.join(claim, name="second")
        scene.join(claim, name="third")
        for name in ("second", "third"):
            scene.api.patch("nodes", name, {"metadata": {"finalizers": ["example.com/hold"]}})
        scene.api.delete(CLAIMS, "claim")
        await scene.live()
        assert all(node.deleting for node in scene.nodes())
        assert len(scene.nodes()) == 3


@pytest.mark.spec("lifecycle-64", "lifecycle-65")
@virtual
async def test_a_claim_that_never_launched_is_released_and_touches_nothing() -> None:
    async with Scene().still() as scene:
        scene.claim()
        scene.cloud.fail("create", Retry("not now"), always=True)
        with pytest.raises(Retry):
            await scene.live()
        for name in ("one", "two"):
            scene.api.create("nodes", {"metadata": {"name": name}})
        scene.api.delete(CLAIMS, "claim")
        await scene.live()
        assert not scene.has(CLAIMS, "claim")
        assert scene.cloud.calls["delete"] == 0
        assert {node.name for node in scene.nodes()} == {"one", "two"}


@pytest.mark.spec("lifecycle-66")
@virtual
async def test_the_node_of_an_unregistered_claim_is_not_deleted() -> None:
    async with Scene().still() as scene:
        claim = await scene.launched()
        scene.join(claim)
        scene.api.delete(CLAIMS, "claim")
        await scene.live()
        await scene.live()
        assert not scene.has(CLAIMS, "claim")
        assert scene.cloud.instances == {}
        assert not scene.node_now("node-claim").deleting


@pytest.mark.spec("lifecycle-67")
@virtual
async def test_without_a_grace_period_there_is_no_deadline() -> None:
    async with Scene().still() as scene:
        await scene.initialized()
        scene.api.delete(CLAIMS, "claim")
        await scene.live()
        assert labels.TERMINATION_TIMESTAMP not in scene.claim_now().annotations


@pytest.mark.spec("lifecycle-68")
@virtual
async def test_with_a_grace_period_the_deadline_counts_from_the_deletion() -> None:
    async with Scene().still() as scene:
        await scene.initialized(termination_grace_period="300s")
        scene.api.delete(CLAIMS, "claim")
        deadline = scene.in_(300)
        await scene.sleep(4)
        await scene.live()
        assert scene.claim_now().annotations[labels.TERMINATION_TIMESTAMP] == deadline
        told = ("Warning", "NodeClaim/claim", f"All pods will be deleted by {deadline}")
        assert told in scene.events("TerminationGracePeriodExpiring")


@pytest.mark.spec("lifecycle-69")
@virtual
async def test_a_deadline_that_is_already_there_stays() -> None:
    async with Scene().still() as scene:
        await scene.initialized(termination_grace_period="300s")
        mark = {"metadata": {"annotations": {labels.TERMINATION_TIMESTAMP: "2026-01-01T00:00:09Z"}}}
        scene.api.patch(CLAIMS, "claim", mark)
        scene.api.delete(CLAIMS, "claim")
        await scene.live()
        assert scene.claim_now().annotations[labels.TERMINATION_TIMESTAMP] == "2026-01-01T00:00:09Z"


@pytest.mark.spec("lifecycle-70")
@virtual
async def test_amounts_written_in_another_way_do_not_hold_the_end_up() -> None:
    async with Scene().still() as scene:
        scene.claim(requests={"cpu": "1000m", "memory": "50000k"}, termination_grace_period="300s")
        await scene.live()
        assert scene.says("Launched") == ("True", "Launched")
        scene.api.delete(CLAIMS, "claim")
        await scene.live()
        await scene.live()
        assert not scene.has(CLAIMS, "claim")


@virtual
async def test_conflicts_at_the_end_are_looked_at_again() -> None:
    async with Scene().still() as scene:
        await scene.launched(termination_grace_period="300s")
        scene.api.delete(CLAIMS, "claim")
        await scene.heard()
        scene.trouble(FaultRule(trouble="conflict", verbs=("patch",)))
        assert await scene.live() == SOON
        assert scene.has(CLAIMS, "claim")
        scene.trouble()
        await scene.live()
        await scene.live()
        assert not scene.has(CLAIMS, "claim")

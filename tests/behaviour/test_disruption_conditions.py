"""Consolidatable and Drifted: when a claim has them, since when, and when it is looked at again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.hashes import NODEPOOL_HASH_VERSION, hash_nodepool
from dovetail.api.nodepool import NodeClassReference
from dovetail.controllers.base import DONE
from dovetail.errors import Gone, Retry
from support.builders import pod
from support.world import CLAIMS, POOLS, Scene, virtual

LOOK = "nodeclaim.disruption"
FOREIGN = NodeClassReference(group="example.com", kind="OtherClass", name="default")
FIVE_MINUTES = timedelta(minutes=5)


def pod_event(scene: Scene) -> None:
    now = scene.true_clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    scene.set_status(CLAIMS, "claim", {"lastPodEventTime": now})


def set_condition(scene: Scene, kind: str, status: str) -> None:
    listed = scene.api.get(CLAIMS, "claim")["status"]["conditions"]
    changed = [c | {"status": status} if c["type"] == kind else c for c in listed]
    scene.set_status(CLAIMS, "claim", {"conditions": changed})


def hashed(scene: Scene, **other: str) -> None:
    """The pool and the claim remember the same template, unless a test says otherwise."""
    pool = scene.pool_now()
    notes = {labels.NODEPOOL_HASH: hash_nodepool(pool), labels.NODEPOOL_HASH_VERSION: NODEPOOL_HASH_VERSION}
    scene.api.patch(POOLS, "default", {"metadata": {"annotations": notes}})
    scene.api.patch(CLAIMS, "claim", {"metadata": {"annotations": notes | other}})


def require(scene: Scene, key: str, operator: str, *values: str) -> None:
    wanted = [{"key": key, "operator": operator, "values": list(values)}]
    scene.api.patch(POOLS, "default", {"spec": {"template": {"spec": {"requirements": wanted}}}})


@pytest.mark.spec("disruption-1", "disruption-3")
@virtual
async def test_a_claim_is_consolidatable_a_while_after_its_last_pod_event() -> None:
    async with Scene().still() as scene:
        scene.pool(consolidate_after="1m")
        await scene.initialized()
        pod_event(scene)
        left = (await scene.look(LOOK, "claim")).after
        assert left is not None
        assert timedelta(seconds=58) < left <= timedelta(minutes=1)
        assert scene.says("Consolidatable") is None
        await scene.sleep(60)
        await scene.look(LOOK, "claim")
        assert scene.says("Consolidatable") == ("True", "Consolidatable")
        pod_event(scene)
        await scene.look(LOOK, "claim")
        assert scene.says("Consolidatable") is None


@pytest.mark.spec("disruption-2")
@virtual
async def test_without_a_pod_event_the_while_begins_with_its_initialization() -> None:
    async with Scene().still() as scene:
        scene.pool(consolidate_after="1m")
        await scene.initialized()
        await scene.sleep(30)
        await scene.look(LOOK, "claim")
        assert scene.says("Consolidatable") is None
        await scene.sleep(31)
        await scene.look(LOOK, "claim")
        assert scene.says("Consolidatable") == ("True", "Consolidatable")


@pytest.mark.spec("disruption-4")
@virtual
async def test_never_and_a_claim_that_is_not_up_end_it() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.initialized()
        for status in ("Unknown", "False"):
            await scene.look(LOOK, "claim")
            assert scene.says("Consolidatable") == ("True", "Consolidatable")
            set_condition(scene, "Initialized", status)
            await scene.look(LOOK, "claim")
            assert scene.says("Consolidatable") is None
            set_condition(scene, "Initialized", "True")
        await scene.look(LOOK, "claim")
        scene.api.patch(POOLS, "default", {"spec": {"disruption": {"consolidateAfter": "Never"}}})
        await scene.look(LOOK, "claim")
        assert scene.says("Consolidatable") is None


@pytest.mark.spec("disruption-5")
@virtual
async def test_static_pools_do_not_consolidate_and_foreign_claims_are_left_alone() -> None:
    async with Scene().still() as scene:
        scene.pool(replicas=1)
        await scene.initialized()
        await scene.look(LOOK, "claim")
        assert scene.says("Consolidatable") is None
        scene.claim("foreign", node_class=FOREIGN)
        before = scene.claim_now("foreign")
        assert await scene.look(LOOK, "foreign") == DONE
        assert scene.claim_now("foreign") == before


@pytest.mark.spec("disruption-6", "disruption-9")
@virtual
async def test_the_provider_can_say_that_a_claim_has_drifted_and_take_it_back() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.initialized()
        scene.cloud.drift["claim"] = "ImageDrift"
        assert (await scene.look(LOOK, "claim")).after == FIVE_MINUTES
        assert scene.says("Drifted") == ("True", "ImageDrift")
        scene.cloud.drift.clear()
        await scene.look(LOOK, "claim")
        assert scene.says("Drifted") is None


@pytest.mark.spec("disruption-7")
@virtual
async def test_the_first_reason_wins_and_the_first_time_stays() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.initialized()
        scene.cloud.drift["claim"] = "ImageDrift"
        await scene.look(LOOK, "claim")
        since = scene.claim_now().status.find_condition("Drifted")
        await scene.sleep(60)
        require(scene, labels.ARCH, "In", "riscv")
        await scene.look(LOOK, "claim")
        assert scene.says("Drifted") == ("True", "RequirementsDrifted")
        hashed(scene, **{labels.NODEPOOL_HASH: "another"})
        await scene.look(LOOK, "claim")
        now = scene.claim_now().status.find_condition("Drifted")
        assert since is not None
        assert now is not None
        assert (now.reason, now.message) == ("NodePoolDrifted", "NodePoolDrifted")
        assert now.last_transition_time == since.last_transition_time


@pytest.mark.spec("disruption-8")
@pytest.mark.parametrize("status", ["Unknown", "False"])
def test_a_claim_that_is_not_launched_cannot_have_drifted(status: str) -> None:
    @virtual
    async def play() -> None:
        async with Scene().still() as scene:
            scene.pool()
            await scene.initialized()
            scene.cloud.drift["claim"] = "ImageDrift"
            await scene.look(LOOK, "claim")
            set_condition(scene, "Launched", status)
            await scene.look(LOOK, "claim")
            assert scene.says("Drifted") is None

    play()


@virtual
async def test_a_claim_whose_labels_are_still_on_their_way_has_not_drifted() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.initialized()
        require(scene, labels.CAPACITY_TYPE, "In", "on-demand")
        on_its_way = {labels.INSTANCE_TYPE: None, labels.CAPACITY_TYPE: None}
        scene.api.patch(CLAIMS, "claim", {"metadata": {"labels": on_its_way}})
        await scene.look(LOOK, "claim")
        assert scene.says("Drifted") is None
        arrived = {labels.INSTANCE_TYPE: "c-1x-amd64-linux", labels.CAPACITY_TYPE: "spot"}
        scene.api.patch(CLAIMS, "claim", {"metadata": {"labels": arrived}})
        await scene.look(LOOK, "claim")
        assert scene.says("Drifted") == ("True", "RequirementsDrifted")


@pytest.mark.spec("disruption-9")
@virtual
async def test_without_its_pool_nothing_is_said() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.initialized()
        scene.cloud.drift["claim"] = "ImageDrift"
        await scene.look(LOOK, "claim")
        scene.api.delete(POOLS, "default")
        scene.cloud.drift.clear()
        assert await scene.look(LOOK, "claim") == DONE
        assert scene.says("Drifted") == ("True", "ImageDrift")


@pytest.mark.spec("disruption-10")
@virtual
async def test_both_are_said_in_one_pass_and_taken_back_in_one() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.initialized()
        scene.cloud.drift["claim"] = "ImageDrift"
        before = int(scene.claim_now().metadata.resource_version)
        await scene.look(LOOK, "claim")
        assert (scene.says("Drifted"), scene.says("Consolidatable")) == (
            ("True", "ImageDrift"),
            ("True", "Consolidatable"),
        )
        assert int(scene.claim_now().metadata.resource_version) > before
        scene.cloud.drift.clear()
        scene.api.patch(POOLS, "default", {"spec": {"disruption": {"consolidateAfter": "Never"}}})
        await scene.look(LOOK, "claim")
        assert (scene.says("Drifted"), scene.says("Consolidatable")) == (None, None)


@pytest.mark.spec("disruption-17")
@pytest.mark.parametrize(
    "change",
    [
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"a": "b"}}},
        {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}},
        {"spec": {"startupTaints": [{"key": "a", "effect": "NoSchedule"}]}},
        {"spec": {"nodeClassRef": {"name": "other"}}},
        {"spec": {"expireAfter": "100h"}},
        {"spec": {"terminationGracePeriod": "5m"}},
    ],
)
def test_every_part_of_the_template_that_counts_drifts_its_claims(change: dict[str, Any]) -> None:
    @virtual
    async def play() -> None:
        async with Scene().still() as scene:
            scene.pool()
            await scene.initialized()
            hashed(scene)
            await scene.look(LOOK, "claim")
            assert scene.says("Drifted") is None
            scene.api.patch(POOLS, "default", {"spec": {"template": change}})
            await scene.look("nodepool.hash", "default")
            await scene.look(LOOK, "claim")
            assert scene.says("Drifted") == ("True", "NodePoolDrifted")

    play()


@pytest.mark.spec("disruption-16")
@virtual
async def test_only_the_claim_that_is_outside_has_drifted() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.initialized("claim", labels={"team": "a"})
        await scene.initialized("other", labels={"team": "b"})
        require(scene, "team", "In", "b")
        for name in ("claim", "other"):
            await scene.look(LOOK, name)
        assert scene.says("Drifted", "claim") == ("True", "RequirementsDrifted")
        assert scene.says("Drifted", "other") is None


@pytest.mark.spec("disruption-19")
@virtual
async def test_a_type_is_asked_for_only_after_an_hour_and_then_every_half_hour() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.initialized()
        types, scene.cloud.types = scene.cloud.types, ()
        await scene.sleep(600)
        await scene.look(LOOK, "claim")
        assert scene.says("Drifted") is None
        await scene.sleep(3600)
        await scene.look(LOOK, "claim")
        assert scene.says("Drifted") == ("True", "InstanceTypeNotFound")
        scene.cloud.types = types
        await scene.look(LOOK, "claim")
        assert scene.says("Drifted") is None
        scene.cloud.types = ()
        await scene.look(LOOK, "claim")
        assert scene.says("Drifted") is None
        await scene.sleep(1801)
        await scene.look(LOOK, "claim")
        assert scene.says("Drifted") == ("True", "InstanceTypeNotFound")


@virtual
async def test_a_provider_in_trouble_does_not_stop_the_rest_and_a_lost_instance_is_no_drift() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.initialized()
        scene.cloud.fail("drifted", Retry("busy"))
        with pytest.raises(Retry, match="busy"):
            await scene.look(LOOK, "claim")
        assert scene.says("Consolidatable") == ("True", "Consolidatable")
        scene.cloud.fail("drifted", Gone("no such instance"))
        assert (await scene.look(LOOK, "claim")).after == FIVE_MINUTES
        assert scene.says("Drifted") is None


@virtual
async def test_a_pod_wakes_the_claim_it_runs_on() -> None:
    async with Scene().still() as scene:
        scene.pool()
        claim = await scene.initialized()
        await scene.heard()
        controller = scene.controller(LOOK)
        bound = pod("p", node=claim.status.node_name)
        woken = [
            key
            for trigger in controller.triggers
            if trigger.kind is type(bound)
            for key in trigger.keys(None, bound)
        ]
        assert woken == ["claim"]

"""Housekeeping of pools: hash, counter, readiness, validation, and whether their nodes come up at all."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from dovetail.api import codec, conditions, labels
from dovetail.api.hashes import hash_nodepool
from dovetail.api.nodepool import NodeClassReference
from dovetail.controllers.base import DONE, requeue_after
from dovetail.controllers.nodepool.registrationhealth import RegistrationHealthReset, RegistrationOutcomes
from dovetail.errors import CreateFailed, Retry
from support.builders import nodepool, requirement, taint
from support.world import CLAIMS, POOLS, Scene, sample, virtual

FOREIGN = NodeClassReference(group="example.com", kind="OtherClass", name="default")
CLASSES = "kwoknodeclasses.karpenter.kwok.sh"
HASH, COUNTER, HEALTH = "nodepool.hash", "nodepool.counter", "nodepool.registrationhealth"
READINESS, VALIDATION = "nodepool.readiness", "nodepool.validation"
HEALTHY = "NodeRegistrationHealthy"


def hash_of(scene: Scene, name: str = "default") -> str:
    return scene.pool_now(name).annotations.get(labels.NODEPOOL_HASH, "")


# Hash


@pytest.mark.spec("lifecycle-141", "lifecycle-142")
@virtual
async def test_the_hash_follows_the_template_and_nothing_else() -> None:
    async with Scene().still() as scene:
        scene.pool(taints=[taint("a"), taint("b")], annotations={"x": "1", "y": "2"})
        await scene.look(HASH, "default")
        first = hash_of(scene)
        assert first == hash_nodepool(scene.pool_now())
        assert scene.pool_now().annotations[labels.NODEPOOL_HASH_VERSION] == "v3"

        same: list[dict[str, Any]] = [
            {"template": {"metadata": {"annotations": {"y": "2", "x": "1"}}}},
            {"template": {"spec": {"taints": [_raw("b"), _raw("a")]}}},
            {"limits": {"cpu": "100"}},
            {"disruption": {"consolidateAfter": "30s"}},
            {"weight": 10},
            {"template": {"spec": {"requirements": [_zone()]}}},
        ]
        for change in same:
            scene.api.patch(POOLS, "default", {"spec": change})
            await scene.look(HASH, "default")
            assert hash_of(scene) == first, change

        scene.api.patch(POOLS, "default", {"spec": {"template": {"metadata": {"labels": {"a": "b"}}}}})
        await scene.look(HASH, "default")
        assert hash_of(scene) != first


def _raw(key: str) -> dict[str, str]:
    return {"key": key, "effect": "NoSchedule"}


def _zone() -> dict[str, Any]:
    return {"key": labels.ZONE, "operator": "In", "values": ["test-zone-1"]}


@pytest.mark.spec("lifecycle-143", "lifecycle-144")
@virtual
async def test_a_new_way_of_hashing_is_no_drift() -> None:
    async with Scene().still() as scene:
        scene.pool()
        old = {labels.NODEPOOL_HASH: "123", labels.NODEPOOL_HASH_VERSION: "v2"}
        scene.api.patch(POOLS, "default", {"metadata": {"annotations": old}})
        scene.claim("plain", annotations=old)
        scene.claim("drifted", annotations=old)
        scene.claim("current", annotations={**old, labels.NODEPOOL_HASH_VERSION: "v3"})
        drifted = conditions.set_true(
            scene.claim_now("drifted"), conditions.DRIFTED, scene.clock.now(), "NodePoolDrifted"
        )
        scene.set_status(CLAIMS, "drifted", json.loads(codec.encode(drifted))["status"])

        await scene.look(HASH, "default")

        new = hash_of(scene)
        found = {
            c.name: (c.annotations[labels.NODEPOOL_HASH], c.annotations[labels.NODEPOOL_HASH_VERSION])
            for c in scene.claims()
        }
        assert new != "123"
        assert found == {"plain": (new, "v3"), "drifted": ("123", "v3"), "current": ("123", "v3")}


@pytest.mark.spec("lifecycle-145")
@virtual
async def test_a_pool_of_others_gets_no_hash() -> None:
    async with Scene().still() as scene:
        scene.create(nodepool(node_class=FOREIGN))
        await scene.look(HASH, "default")
        assert hash_of(scene) == ""


# Counter


def counted(scene: Scene, name: str = "default") -> tuple[dict[str, str], int | None]:
    status = scene.pool_now(name).status
    return {key: str(amount) for key, amount in status.resources.items()}, status.nodes


ZEROS = {"cpu": "0", "memory": "0", "pods": "0", "ephemeral-storage": "0", "nodes": "0"}


@pytest.mark.spec("lifecycle-146", "lifecycle-147")
@virtual
async def test_a_pools_nodes_are_added_up_by_what_is_known_of_them() -> None:
    async with Scene().still() as scene:
        scene.pool()
        assert await scene.look(COUNTER, "default") == requeue_after(5)
        assert counted(scene) == (ZEROS, 0)

        await scene.launched("one")
        claimed = scene.claim_now("one").status.capacity["cpu"]
        await scene.look(COUNTER, "default")
        assert counted(scene)[0]["cpu"] == str(claimed)

        await scene.initialized("two")
        scene.set_status("nodes", "node-two", {"capacity": {"cpu": "500m"}})
        scene.join(scene.claim_now("one"))
        await scene.live("one")
        scene.node_ready("node-one")
        await scene.live("one")
        scene.set_status("nodes", "node-one", {"capacity": {"cpu": "100m"}})
        await scene.look(COUNTER, "default")
        resources, nodes = counted(scene)
        assert (resources["cpu"], resources["nodes"], nodes) == ("600m", "2", 2)
        assert sample("karpenter_nodepools_usage", nodepool="default", resource_type="cpu") == 0.6

        for name, left in (("one", ("500m", 1)), ("two", ("0", 0))):
            scene.api.delete(CLAIMS, name)
            await scene.look(COUNTER, "default")
            resources, nodes = counted(scene)
            assert (resources["cpu"], nodes) == left
        assert counted(scene) == (ZEROS, 0)


@virtual
async def test_nothing_is_counted_while_a_launch_is_open() -> None:
    async with Scene().still() as scene:
        scene.pool()
        scene.claim()
        assert await scene.look(COUNTER, "default") == requeue_after(1)
        assert counted(scene)[1] == 0


@pytest.mark.spec("lifecycle-148")
@virtual
async def test_static_and_dynamic_pools_are_counted_apart() -> None:
    async with Scene().still() as scene:
        scene.pool("dynamic")
        scene.pool("static", replicas=1, consolidate_after="0s")
        await scene.launched("one", nodepool="dynamic")
        await scene.launched("two", nodepool="static")
        await scene.launched("three", nodepool="static")
        for name in ("dynamic", "static"):
            await scene.look(COUNTER, name)
        assert (counted(scene, "dynamic")[1], counted(scene, "static")[1]) == (1, 2)


# Readiness and validation


@pytest.mark.spec("lifecycle-149")
@pytest.mark.parametrize(
    ("ready", "reason", "expected"),
    [
        (None, "", ("False", "NodeClassNotFound")),
        ("", "", ("False", "NodeClassReadinessUnknown")),
        ("Unknown", "Waiting", ("False", "NodeClassReadinessUnknown")),
        ("False", "NoSubnets", ("False", "NoSubnets")),
        ("True", "Ready", ("True", "NodeClassReady")),
    ],
)
def test_a_pool_is_as_ready_as_its_class(ready: str | None, reason: str, expected: tuple[str, str]) -> None:
    @virtual
    async def told() -> None:
        async with Scene().still() as scene:
            if ready is not None:
                scene.node_class(ready=ready, reason=reason)
            scene.create(nodepool(ready=False))
            await scene.look(VALIDATION, "default")
            assert await scene.look(READINESS, "default") == DONE
            assert scene.pool_says("NodeClassReady") == expected
            assert scene.pool_says("Ready") == (
                ("True", "Ready") if ready == "True" else ("False", "UnhealthyDependents")
            )

    told()


@pytest.mark.spec("lifecycle-149")
@virtual
async def test_a_class_on_its_way_out_is_not_ready() -> None:
    async with Scene().still() as scene:
        scene.pool()
        scene.api.patch(CLASSES, "default", {"metadata": {"finalizers": ["example.com/hold"]}})
        scene.api.delete(CLASSES, "default")
        await scene.look(READINESS, "default")
        assert scene.pool_says("NodeClassReady") == ("False", "NodeClassTerminating")


@pytest.mark.spec("lifecycle-150")
@pytest.mark.parametrize(
    ("kinds", "valid"), [(("xspot",), False), (("on-demand",), True), (("on-demand", "xspot"), True)]
)
def test_at_least_one_capacity_type_must_be_known(kinds: tuple[str, ...], valid: bool) -> None:
    @virtual
    async def told() -> None:
        async with Scene().still() as scene:
            pool = nodepool(requirements=[requirement(labels.CAPACITY_TYPE, "In", *kinds)], ready=False)
            scene.apply(pool)
            await scene.look(VALIDATION, "default")
            says = scene.pool_says("ValidationSucceeded")
            assert says == (
                ("True", "ValidationSucceeded") if valid else ("False", "NodePoolValidationFailed")
            )

    told()


@pytest.mark.spec("lifecycle-150")
@virtual
async def test_a_taint_key_that_nodes_would_refuse_is_found_before_they_do() -> None:
    async with Scene().still() as scene:
        scene.apply(nodepool(taints=[taint("example.com/" + "x" * 64)], ready=False))
        await scene.look(VALIDATION, "default")
        assert scene.pool_says("ValidationSucceeded") == ("False", "NodePoolValidationFailed")


# Registration health


@pytest.mark.spec("lifecycle-151")
def test_the_last_four_outcomes_say_how_a_pool_does() -> None:
    outcomes = RegistrationOutcomes()
    assert outcomes.is_healthy() is None
    outcomes.add(True)
    assert outcomes.is_healthy() is True
    outcomes = RegistrationOutcomes()
    outcomes.add(False)
    assert outcomes.is_healthy() is True, "one failure of four is forgiven"
    assert outcomes.is_healthy(also=False) is False
    assert outcomes.is_healthy() is True, "a dry run changes nothing"
    outcomes.add(False)
    assert outcomes.is_healthy() is False
    outcomes.add(True)
    assert outcomes.is_healthy() is False
    outcomes.reset_to(healthy=True)
    assert outcomes.is_healthy(also=False) is True
    outcomes.reset_to(healthy=False)
    assert outcomes.is_healthy() is False
    outcomes.reset_to(healthy=None)
    assert outcomes.is_healthy() is None


async def fails(scene: Scene, name: str) -> None:
    """A claim of the pool whose launch times out."""
    scene.cloud.fail("create", CreateFailed("ImageGone", "the image was deregistered"), always=True)
    scene.claim(name, owned=True)
    with pytest.raises(Retry):
        await scene.live(name)
    await scene.sleep(301)
    await scene.live(name)
    assert scene.claim_now(name).deleting
    scene.cloud.mend("create")


@pytest.mark.spec("lifecycle-152", "lifecycle-153")
@pytest.mark.parametrize("known", [False, True])
def test_two_failures_make_a_pool_unhealthy_and_one_success_does_not_mend_it(known: bool) -> None:
    @virtual
    async def told() -> None:
        async with Scene().still() as scene:
            scene.pool()
            await scene.look(HEALTH, "default")
            assert scene.pool_says(HEALTHY) == ("Unknown", "AwaitingReconciliation")
            if known:
                await scene.registered("good", owned=True)
                assert scene.pool_says(HEALTHY) == ("True", HEALTHY)
            before = scene.pool_says(HEALTHY)
            await fails(scene, "one")
            assert scene.pool_says(HEALTHY) == before
            await fails(scene, "two")
            assert scene.pool_says(HEALTHY) == ("False", "ImageGone")
            await scene.registered("better", owned=True)
            assert scene.pool_says(HEALTHY) == ("False", "ImageGone")

    told()


@pytest.mark.spec("lifecycle-153", "lifecycle-155")
@virtual
async def test_after_a_restart_the_stored_condition_is_what_is_known() -> None:
    async with Scene().still() as scene:
        scene.pool()
        await scene.look(HEALTH, "default")
        await fails(scene, "one")
        await fails(scene, "two")
        await scene.kill()
        await scene.restart(acting=False)
        await scene.look(HEALTH, "default")
        assert scene.pool_says(HEALTHY) == ("False", "ImageGone")
        await scene.registered("good", owned=True)
        assert scene.pool_says(HEALTHY) == ("False", "ImageGone"), "two failures are remembered"

        await scene.kill()
        await scene.restart(acting=False)
        await scene.registered("better", owned=True)
        assert scene.pool_says(HEALTHY) == ("True", HEALTHY), "nothing was seeded yet"


@pytest.mark.spec("lifecycle-154")
@virtual
async def test_a_pool_is_not_blamed_for_its_namesake() -> None:
    async with Scene().still() as scene:
        scene.pool()
        scene.claim("old", owned=True)
        scene.api.patch(CLAIMS, "old", {"metadata": {"finalizers": ["example.com/hold"]}})
        uid = scene.pool_now().uid
        scene.api.delete(POOLS, "default", propagation="Orphan")
        scene.create(nodepool())
        assert scene.pool_now().uid != uid
        owner = [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "name": "default", "uid": uid}]
        scene.api.patch(CLAIMS, "old", {"metadata": {"ownerReferences": owner}})
        await scene.look(HEALTH, "default")
        await scene.live("old")
        scene.join(scene.claim_now("old"))
        await scene.live("old")
        assert scene.says("Registered", "old") == ("True", "Registered")
        assert scene.pool_says(HEALTHY) == ("Unknown", "AwaitingReconciliation")


@virtual
async def test_the_outcomes_of_a_deleted_pool_are_forgotten_and_no_others() -> None:
    async with Scene().still() as scene:
        scene.pool()
        scene.create(nodepool("other"))
        for name in ("default", "other"):
            await scene.look(HEALTH, name)
        reset = cast(RegistrationHealthReset, scene.controller(HEALTH))
        other = scene.pool_now("other")
        assert len(reset._health._outcomes) == 2
        scene.api.delete(POOLS, "default")
        await scene.look(HEALTH, "default")
        assert set(reset._health._outcomes) == {other.uid}


@pytest.mark.spec("lifecycle-155")
@pytest.mark.parametrize("changed", ["class", "pool"])
def test_what_changed_has_everything_still_to_prove(changed: str) -> None:
    @virtual
    async def told() -> None:
        async with Scene().still() as scene:
            scene.pool()
            await scene.look(HEALTH, "default")
            await fails(scene, "one")
            await fails(scene, "two")
            assert scene.pool_says(HEALTHY) == ("False", "ImageGone")
            if changed == "class":
                scene.api.patch(CLASSES, "default", {"spec": {"nodeRegistrationDelay": "1s"}})
            else:
                scene.api.patch(POOLS, "default", {"spec": {"weight": 7}})
            await scene.look(HEALTH, "default")
            assert scene.pool_says(HEALTHY) == ("Unknown", "AwaitingReconciliation")
            await fails(scene, "three")
            assert scene.pool_says(HEALTHY) == ("Unknown", "AwaitingReconciliation"), "old failures are over"

    told()


@pytest.mark.spec("lifecycle-156")
@virtual
async def test_health_is_nobodys_business_without_a_class_or_for_others() -> None:
    async with Scene().still() as scene:
        scene.create(nodepool())
        scene.create(nodepool("foreign", node_class=FOREIGN))
        for name in ("default", "foreign"):
            await scene.look(HEALTH, name)
            assert scene.pool_says(HEALTHY, name) is None

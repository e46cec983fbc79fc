"""Static pools keep their number of nodes, whatever pods do."""

from __future__ import annotations

import asyncio

import pytest

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodeClassReference, NodePool
from dovetail.controllers.base import DONE, requeue_after
from dovetail.controllers.static import _wake_on_growth
from dovetail.errors import Retry
from dovetail.sim.faults import FaultRule
from dovetail.state.nodepool_state import NodePoolState
from support.builders import nodepool, owner, pod
from support.world import CLAIMS, POOLS, Scene, virtual

GATE = ("--feature-gates=StaticCapacity=true",)
UP, DOWN = "static.provisioning", "static.deprovisioning"
FOREIGN = NodeClassReference(group="example.com", kind="OtherClass", name="default")


def static(replicas: int, name: str = "default", nodes: int | None = None) -> NodePool:
    limits: dict[str, str | int] | None = {"nodes": nodes} if nodes is not None else None
    return nodepool(name, replicas=replicas, limits=limits)


def scaled(scene: Scene, replicas: int) -> None:
    scene.api.patch(POOLS, "default", {"spec": {"replicas": replicas}})


@pytest.mark.spec("T-290")
@pytest.mark.spec("lifecycle-157")
@virtual
async def test_what_is_missing_is_ordered() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(2))
        assert await scene.look(UP, "default") == requeue_after(60)
        claims = scene.claims()
        assert len(claims) == 2
        for claim in claims:
            assert claim.spec.node_class_ref.name == "default"
            assert claim.labels[labels.NODEPOOL] == "default"
            assert claim.annotations[labels.NODEPOOL_HASH]
            assert claim.metadata.owner_references[0].uid == scene.pool_now().uid


@pytest.mark.spec("lifecycle-158")
@virtual
async def test_only_what_is_missing_is_ordered() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(0))
        await scene.look(UP, "default")
        assert scene.claims() == []
        await scene.launched("one", owned=True)
        scaled(scene, 3)
        await scene.look(UP, "default")
        assert len(scene.claims()) == 3
        scaled(scene, 1)
        await scene.look(UP, "default")
        assert len(scene.claims()) == 3


@pytest.mark.spec("lifecycle-159")
@virtual
async def test_claims_count_from_the_moment_they_are_ordered() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(3))
        await scene.look(UP, "default")
        names = [claim.name for claim in scene.claims()]
        await scene.live(names[0])
        await scene.live(names[1])
        scene.join(scene.claim_now(names[1]))
        await scene.live(names[1])
        for _ in range(10):
            await scene.look(UP, "default")
        assert len(scene.claims()) == 3


@pytest.mark.spec("T-290")
@pytest.mark.spec("lifecycle-160")
@virtual
async def test_the_pools_own_limit_holds() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(3, nodes=1))
        await scene.launched("one", owned=True)
        assert await scene.look(UP, "default") == requeue_after(30)
        assert len(scene.claims()) == 1

        for name in ("two", "three"):
            await scene.launched(name, owned=True)
        scene.api.patch(POOLS, "default", {"spec": {"limits": {"nodes": 10}, "replicas": 15}})
        await scene.look(UP, "default")
        assert len(scene.claims()) == 10


@pytest.mark.spec("lifecycle-161")
@virtual
async def test_pools_that_may_not_grow_do_not() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.node_class()
        scene.create(nodepool("unready", replicas=1, ready=False))
        scene.create(nodepool("foreign", replicas=1, node_class=FOREIGN))
        scene.create(nodepool("dynamic"))
        scene.create(static(1, "leaving"))
        scene.api.patch(POOLS, "leaving", {"metadata": {"finalizers": ["example.com/hold"]}})
        scene.api.delete(POOLS, "leaving")
        for name in ("unready", "foreign", "dynamic", "leaving", "absent"):
            assert await scene.look(UP, name) == DONE
        assert scene.claims() == []


@pytest.mark.spec("lifecycle-161")
@virtual
async def test_an_order_that_cannot_be_stored_is_an_error_and_costs_nothing() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(2, nodes=2))
        scene.trouble(FaultRule(trouble="server-error", verbs=("create",), resources=(CLAIMS,)))
        with pytest.raises(Retry, match="creating nodeclaims of default"):
            await scene.look(UP, "default")
        scene.trouble()
        await scene.look(UP, "default")
        assert len(scene.claims()) == 2


@pytest.mark.spec("lifecycle-162")
@virtual
async def test_many_passes_at_once_do_not_order_too_much() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(5, nodes=10))
        await scene.heard()
        scene.trouble(FaultRule(trouble="latency", verbs=("create",), amount=0.5))
        controller = scene.controller(UP)
        await asyncio.gather(*(controller.reconcile("default") for _ in range(50)))
        assert 5 <= len(scene.claims()) <= 10


@pytest.mark.spec("lifecycle-163")
def test_only_growth_and_readiness_wake_it() -> None:
    two, three = static(2), static(3)
    unready = nodepool(replicas=2, ready=False)
    assert list(_wake_on_growth(None, two)) == ["default"]
    assert list(_wake_on_growth(two, three)) == ["default"]
    assert list(_wake_on_growth(unready, two)) == ["default"]
    assert list(_wake_on_growth(two, unready)) == []
    assert list(_wake_on_growth(two, two)) == []
    assert list(_wake_on_growth(None, nodepool())) == []


async def fleet(scene: Scene, *names: str) -> None:
    for name in names:
        await scene.initialized(name, owned=True)


def left(scene: Scene) -> set[str]:
    return {claim.name for claim in scene.claims() if not claim.deleting}


@pytest.mark.spec("lifecycle-164")
@virtual
async def test_what_is_too_much_is_ended() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(2))
        await fleet(scene, "a", "b", "c", "d")
        assert await scene.look(DOWN, "default") == requeue_after(60)
        assert len(left(scene)) == 2
        active, pending, deleting = scene.dovetail.cluster.nodepool_state.count_claims("default")
        assert (active, deleting, pending) == (2, 2, 0)


@pytest.mark.spec("lifecycle-164")
@virtual
async def test_those_already_on_their_way_out_are_not_counted() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(1))
        await fleet(scene, "a", "b", "c", "d")
        cluster = scene.dovetail.cluster
        await scene.heard()
        cluster.mark_for_deletion(scene.claim_now(name).status.provider_id for name in ("a", "b", "c"))
        await scene.look(DOWN, "default")
        assert left(scene) == {"a", "b", "c", "d"}


@pytest.mark.spec("lifecycle-165")
@virtual
async def test_nothing_is_left_of_a_pool_of_none() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(0))
        await fleet(scene, "a", "b")
        scene.trouble(FaultRule(trouble="server-error", verbs=("delete",)))
        before = scene.dovetail.cluster.nodepool_state.count_claims("default")
        with pytest.raises((Retry, ExceptionGroup)):
            await scene.look(DOWN, "default")
        assert scene.dovetail.cluster.nodepool_state.count_claims("default") == before == (2, 0, 0)
        scene.trouble(FaultRule(trouble="server-error", verbs=("delete",), count=3))
        await scene.look(DOWN, "default")
        assert left(scene) == set()


@pytest.mark.spec("T-291")
@pytest.mark.spec("lifecycle-166")
@virtual
async def test_those_without_a_machine_go_first() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(2))
        await fleet(scene, "zz", "zy")
        scene.claim("a-new", owned=True)
        scene.claim("zzz-new", owned=True)
        await scene.look(DOWN, "default")
        assert left(scene) == {"zz", "zy"}


@pytest.mark.spec("T-291")
@pytest.mark.spec("lifecycle-167")
@virtual
async def test_then_the_empty_then_the_cheap_and_the_protected_last() -> None:
    async with Scene(flags=GATE).still() as scene:
        scene.apply(static(4))
        await fleet(scene, "cheap", "dear", "empty", "held")
        scene.create(pod("daemon", node="node-empty", owned_by=owner("DaemonSet")))
        scene.create(pod("light", node="node-cheap"))
        scene.create(pod("heavy-1", node="node-dear", annotations={labels.POD_DELETION_COST: "100000000"}))
        scene.create(pod("heavy-2", node="node-dear"))
        scene.create(pod("held", node="node-held", annotations={labels.DO_NOT_DISRUPT: "true"}))
        went = []
        for replicas in (3, 2, 1, 0):
            before = left(scene)
            scaled(scene, replicas)
            await scene.look(DOWN, "default")
            went += sorted(before - left(scene))
        assert went == ["empty", "cheap", "dear", "held"]


@pytest.mark.spec("lifecycle-168")
def test_reservations_count_before_the_claims_are_there() -> None:
    ledger = NodePoolState()
    assert ledger.reserve_nodes("a", 5, 3) == 3
    assert ledger.reserve_nodes("a", 5, 2) == 2
    assert ledger.reserve_nodes("a", 5, 1) == 0
    assert ledger.reserve_nodes("b", 5, 4) == 4
    assert ledger.reserve_nodes("b", 5, 5) == 1
    ledger.release_nodes("b", 100)
    assert ledger.reserve_nodes("b", 5, 5) == 5, "what was released too often is not owed"
    ledger.release_nodes("a", 5)
    ledger.mark_active("a", "one")
    ledger.mark_deleting("a", "two")
    ledger.mark_pending_disruption("a", "three")
    assert ledger.reserve_nodes("a", 5, 5) == 2
    assert ledger.reserve_nodes("c", None, 7) == 7


@pytest.mark.spec("lifecycle-168")
def test_a_claim_has_one_place_in_the_ledger() -> None:
    ledger = NodePoolState()
    ledger.mark_active("a", "one")
    ledger.mark_pending_disruption("a", "one")
    ledger.update_claim("a", "one")
    assert ledger.count_claims("a") == (0, 1, 0)
    ledger.mark_deleting("a", "one")
    assert ledger.count_claims("a") == (0, 0, 1)
    ledger.remove_claim("a", "one")
    assert ledger.count_claims("a") == (0, 0, 0)


@virtual
async def test_a_static_pool_is_filled_scaled_and_mended_by_itself() -> None:
    async with Scene(flags=GATE).running() as scene:
        scene.apply(nodepool(replicas=3, ready=False))
        await scene.until(lambda: sum(_initialized(c) for c in scene.claims()) == 3, within=60)
        victim = scene.claims()[0].name
        scene.api.delete(CLAIMS, victim)
        await scene.until(lambda: not scene.has(CLAIMS, victim), within=60)
        await scene.until(lambda: sum(_initialized(c) for c in scene.claims()) == 3, within=60)
        scaled(scene, 1)
        await scene.until(lambda: len(scene.claims()) == 1, within=60)
        assert len(scene.cloud.instances) == 1


def _initialized(claim: NodeClaim) -> bool:
    state = claim.status.find_condition("Initialized")
    return state is not None and state.status == "True" and not claim.deleting

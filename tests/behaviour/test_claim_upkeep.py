"""What watches over claims from the side: expiry, lost and orphaned machines, pod events, consistency."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodeClassReference
from dovetail.controllers.base import DONE, requeue_after
from dovetail.errors import NotAuthorized, Retry
from dovetail.metrics import REGISTRY
from dovetail.ports import Instance
from dovetail.sim.faults import FaultRule
from support.builders import amounts, owner, pod
from support.world import CLAIMS, Scene, sample, virtual

FOREIGN = NodeClassReference(group="example.com", kind="OtherClass", name="default")
EXPIRATION, GARBAGE = "nodeclaim.expiration", "nodeclaim.garbagecollection"
ORPHANS, GHOSTS, PODS = "instance.garbagecollection", "state.nodeclaimgc", "nodeclaim.podevents"
KIND = "karpenter.sh/capacity-type"


def counted(metric: str, reason: str, claim: NodeClaim) -> float:
    about = {"consolidation_policy": "", "termination_mode": "graceful"}
    kind = claim.labels.get(KIND, "")
    return sample(metric, reason=reason, nodepool="default", capacity_type=kind, **about)


# Expiry


@pytest.mark.spec("lifecycle-120")
@virtual
async def test_an_old_claim_is_ended_and_its_pods_are_counted() -> None:
    async with Scene().still() as scene:
        claim = await scene.initialized(expire_after="30s")
        for name in ("one", "two"):
            scene.create(pod(name, node="node-claim"))
        scene.create(pod("daemon", node="node-claim", owned_by=owner("DaemonSet")))
        metrics = "karpenter_nodeclaims_disrupted_total", "karpenter_pods_disruption_initiated_total"
        before = [counted(each, "expired", claim) for each in metrics]
        await scene.sleep(60)
        assert await scene.look(EXPIRATION, "claim") == DONE
        assert scene.claim_now().deleting
        assert [counted(each, "expired", claim) for each in metrics] == [before[0] + 1, before[1] + 2]


@pytest.mark.spec("lifecycle-121")
@virtual
async def test_a_claim_that_is_not_old_enough_is_kept_until_it_is() -> None:
    async with Scene().still() as scene:
        scene.claim("forever", expire_after="Never")
        scene.claim("young", expire_after="200s")
        assert await scene.look(EXPIRATION, "forever") == DONE
        await scene.look(EXPIRATION, "young")
        await scene.sleep(100)
        left = (await scene.look(EXPIRATION, "young")).after
        assert left is not None
        assert timedelta(seconds=99) < left < timedelta(seconds=100)
        assert not any(claim.deleting for claim in scene.claims())


@pytest.mark.spec("lifecycle-122")
@virtual
async def test_an_expired_claim_that_is_held_is_counted_once() -> None:
    async with Scene().still() as scene:
        claim = scene.claim(expire_after="30s")
        scene.api.patch(CLAIMS, "claim", {"metadata": {"finalizers": ["example.com/hold"]}})
        metric = "karpenter_nodeclaims_disrupted_total"
        before = counted(metric, "expired", claim)
        await scene.sleep(60)
        await scene.look(EXPIRATION, "claim")
        await scene.look(EXPIRATION, "claim")
        assert counted(metric, "expired", claim) == before + 1


@virtual
async def test_expiry_comes_by_itself_to_the_second() -> None:
    async with Scene().running() as scene:
        scene.claim(expire_after="1h")
        await scene.sleep(3599)
        assert not scene.claim_now().deleting
        await scene.sleep(1.1)
        assert scene.claim_now().deleting, "its node drains, and the claim stays until that is done"


# Machines that vanished


@pytest.mark.spec("lifecycle-123")
@virtual
async def test_registered_claims_whose_machines_are_gone_are_ended_in_one_pass() -> None:
    async with Scene().still() as scene:
        names = [f"claim-{number}" for number in range(100)]
        for name in names:
            claim = await scene.registered(name)
            scene.node_ready(claim.status.node_name, "False")
            scene.cloud.vanish(claim.status.provider_id)
        assert await scene.look(GARBAGE) == requeue_after(120)
        assert all(scene.claim_now(name).deleting for name in names)


@pytest.mark.spec("lifecycle-124")
@virtual
async def test_a_kubelet_that_speaks_is_believed_over_the_cloud() -> None:
    async with Scene().still() as scene:
        claim = await scene.initialized()
        scene.cloud.forget(claim.status.provider_id)
        await scene.look(GARBAGE)
        assert not scene.claim_now().deleting


@pytest.mark.spec("lifecycle-125", "lifecycle-126")
@virtual
async def test_claims_that_never_registered_or_still_have_their_machine_are_kept() -> None:
    async with Scene().still() as scene:
        coming = await scene.launched("coming")
        scene.cloud.vanish(coming.status.provider_id)
        nodeless = await scene.registered("nodeless")
        scene.api.patch("nodes", nodeless.status.node_name, {"metadata": {"finalizers": None}})
        scene.api.delete("nodes", nodeless.status.node_name)
        await scene.look(GARBAGE)
        assert not any(claim.deleting for claim in scene.claims())


@virtual
async def test_a_cloud_that_forbids_listing_is_asked_again() -> None:
    async with Scene().still() as scene:
        scene.cloud.fail("list", NotAuthorized("no permission to list"), NotAuthorized("still none"))
        for name in (GARBAGE, ORPHANS):
            with pytest.raises(Retry):
                await scene.look(name)


# Machines that nobody claims


def machine(scene: Scene, name: str, claim: str = "gone", age: float = 60.0) -> Instance:
    made = Instance(
        provider_id=f"fake://{name}",
        claim=claim,
        created=scene.true_clock.now() - timedelta(seconds=age),
        labels={labels.INSTANCE_TYPE: "default-instance-type"},
    )
    scene.cloud.instances[made.provider_id] = made
    return made


@pytest.mark.spec("lifecycle-127")
@virtual
async def test_old_orphans_are_ended_with_their_nodes() -> None:
    async with Scene().still() as scene:
        scene.cloud.ending = 5.0
        orphan, young, foreign = (
            machine(scene, "orphan"),
            machine(scene, "young", age=20),
            machine(scene, "foreign", claim=""),
        )
        scene.join(NodeClaim(), orphan, name="orphan")
        assert await scene.look(ORPHANS) == requeue_after(10)
        assert scene.cloud.instances[orphan.provider_id].deleting
        assert not scene.has("nodes", "orphan")
        assert not scene.cloud.instances[young.provider_id].deleting
        assert not scene.cloud.instances[foreign.provider_id].deleting


@virtual
async def test_a_machine_whose_claim_has_yet_to_hear_of_it_is_no_orphan() -> None:
    async with Scene().still() as scene:
        scene.claim()
        launched = machine(scene, "launched", claim="claim", age=200)
        await scene.look(ORPHANS)
        assert not scene.cloud.instances[launched.provider_id].deleting
        scene.api.delete(CLAIMS, "claim")
        await scene.look(ORPHANS)
        assert scene.cloud.instances[launched.provider_id].deleting


@virtual
async def test_orphans_are_looked_for_eagerly_at_first() -> None:
    async with Scene().still() as scene:
        results = [await scene.look(ORPHANS) for _ in range(21)]
        assert results == [requeue_after(10)] * 20 + [requeue_after(120)]


# Pod events


@pytest.mark.spec("lifecycle-128", "lifecycle-129", "lifecycle-130")
@virtual
async def test_pods_that_come_and_go_are_noted_at_most_every_ten_seconds() -> None:
    async with Scene().running() as scene:
        scene.claim()
        await scene.until(lambda: scene.says("Initialized") == ("True", "Initialized"), within=30)
        assert scene.claim_now().status.last_pod_event_time is None
        daemon = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u"}
        _bound(scene, "daemon", [daemon])
        await scene.sleep(1)
        assert scene.claim_now().status.last_pod_event_time is None

        _bound(scene, "first")
        first = scene.true_clock.now().replace(microsecond=0)
        await scene.sleep(1)
        assert scene.claim_now().status.last_pod_event_time == first
        await scene.sleep(4)
        _bound(scene, "second")
        await scene.sleep(1)
        assert scene.claim_now().status.last_pod_event_time == first
        await scene.sleep(5)
        scene.api.delete("pods", "first", "default")
        third = scene.true_clock.now().replace(microsecond=0)
        await scene.sleep(1)
        assert scene.claim_now().status.last_pod_event_time == third


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
@virtual
async def test_a_pod_that_runs_to_its_end_is_noted(phase: str) -> None:
    async with Scene().running() as scene:
        scene.claim()
        await scene.until(lambda: scene.says("Initialized") == ("True", "Initialized"), within=30)
        _bound(scene, "job")
        await scene.sleep(60)
        scene.set_status("pods", "job", {"phase": phase}, "default")
        ended = scene.true_clock.now().replace(microsecond=0)
        await scene.sleep(1)
        assert scene.claim_now().status.last_pod_event_time == ended


def _bound(scene: Scene, name: str, owners: list[dict[str, str]] | None = None) -> None:
    spec = {"containers": [{"name": "app", "image": "app:1"}], "schedulerName": "nobody"}
    meta = {"name": name, "namespace": "default", "ownerReferences": owners or []}
    scene.api.create("pods", {"metadata": meta, "spec": spec})
    scene.api.bind(name, "default", "node-claim")


@pytest.mark.spec("lifecycle-128")
@virtual
async def test_pods_on_nodes_without_a_claim_are_nobodys_business() -> None:
    async with Scene().still() as scene:
        assert await scene.look(PODS, "nowhere") == DONE
        scene.api.create("nodes", {"metadata": {"name": "plain"}, "spec": {"providerID": "x://1"}})
        assert await scene.look(PODS, "plain") == DONE


@virtual
async def test_pods_met_after_a_restart_are_not_news() -> None:
    async with Scene().running() as scene:
        scene.claim()
        await scene.until(lambda: scene.says("Initialized") == ("True", "Initialized"), within=30)
        _bound(scene, "first")
        await scene.sleep(60)
        noted = scene.claim_now().status.last_pod_event_time
        assert noted is not None
        await scene.kill()
        await scene.restart()
        await scene.sleep(30)
        assert scene.claim_now().status.last_pod_event_time == noted


# Hydration, consistency, ghosts


@pytest.mark.spec("lifecycle-131")
@virtual
async def test_objects_of_older_releases_get_the_label_that_makes_them_ours() -> None:
    async with Scene().still() as scene:
        claim = await scene.registered()
        unmarked = {"metadata": {"labels": {labels.KWOK_NODECLASS: None}}}
        scene.api.patch(CLAIMS, "claim", unmarked)
        scene.api.patch("nodes", claim.status.node_name, unmarked)
        scene.claim("foreign", node_class=FOREIGN)
        before = scene.claim_now("foreign")
        for name in ("claim", "foreign"):
            await scene.look("nodeclaim.hydration", name)
        await scene.look("node.hydration", claim.status.node_name)
        assert scene.claim_now().labels[labels.KWOK_NODECLASS] == "default"
        assert scene.node_now(claim.status.node_name).labels[labels.KWOK_NODECLASS] == "default"
        assert scene.claim_now("foreign") == before


async def shaped(scene: Scene, expected: str, found: str) -> None:
    """An initialised claim that was promised some memory, on a node that has some."""
    scene.claim(requests={"memory": "1Gi"})
    told = scene.cloud.create

    async def create(claim: NodeClaim) -> Instance:
        made = await told(claim)
        return replace(made, capacity={**made.capacity, **amounts(memory=expected)})

    scene.cloud.create = create  # type: ignore[method-assign]
    await scene.live()
    scene.join(scene.claim_now())
    await scene.live()
    scene.node_ready("node-claim")
    scene.set_status("nodes", "node-claim", {"capacity": {"memory": found}})
    await scene.live()
    assert scene.says("Initialized") == ("True", "Initialized")


@pytest.mark.spec("lifecycle-132")
@virtual
async def test_a_node_much_smaller_than_promised_is_told_of() -> None:
    async with Scene().still() as scene:
        await shaped(scene, "128Gi", "64Gi")
        assert await scene.look("nodeclaim.consistency", "claim") == requeue_after(600)
        assert scene.says("ConsistentStateFound") == ("False", "ConsistencyCheckFailed")
        note = "expected 128Gi of resource memory, but found 64Gi (50.0% of expected)"
        assert scene.events("FailedConsistencyCheck") == [("Warning", "NodeClaim/claim", note)]


@pytest.mark.spec("lifecycle-132")
@virtual
async def test_a_node_as_promised_is_consistent_and_looked_at_every_ten_minutes() -> None:
    async with Scene().still() as scene:
        await shaped(scene, "128Gi", "128Gi")
        scene.trouble(FaultRule(trouble="conflict", verbs=("patch",), count=1))
        await scene.look("nodeclaim.consistency", "claim")
        assert scene.says("ConsistentStateFound") is None, "someone wrote first"
        await scene.look("nodeclaim.consistency", "claim")
        assert scene.says("ConsistentStateFound") == ("True", "ConsistentStateFound")
        await scene.sleep(100)
        left = (await scene.look("nodeclaim.consistency", "claim")).after
        assert left is not None
        assert timedelta(seconds=499) < left < timedelta(seconds=500)


@virtual
async def test_a_claim_whose_machine_is_gone_is_counted_with_the_pods_that_must_move() -> None:
    def counted(what: str) -> float:
        found = (each for metric in REGISTRY.collect() for each in metric.samples if each.name == what)
        return sum(each.value for each in found if each.labels["reason"] == "garbage_collected")

    async with Scene().still() as scene:
        claim = await scene.registered("claim")
        scene.node_ready(claim.status.node_name, "False")
        for name in ("one", "two"):
            scene.create(pod(name, node=claim.status.node_name, owned_by=owner("ReplicaSet")))
        scene.cloud.vanish(claim.status.provider_id)
        both = "karpenter_nodeclaims_disrupted_total", "karpenter_pods_disruption_initiated_total"
        before = [counted(each) for each in both]
        await scene.look(GARBAGE)
        assert [counted(each) - then for each, then in zip(both, before, strict=True)] == [1, 2]


@pytest.mark.spec("lifecycle-133")
@virtual
async def test_an_order_that_was_taken_back_unseen_is_forgotten_after_a_while() -> None:
    async with Scene().running() as scene:
        cluster = scene.dovetail.cluster
        await scene.until(lambda: cluster.synced, within=5)
        ghost = replace(NodeClaim(), metadata=replace(scene.claim("x").metadata, name="ghost"))
        scene.api.delete(CLAIMS, "x")
        await scene.sleep(1)
        cluster.expect_claim(replace(ghost, spec=replace(ghost.spec, node_class_ref=_ours())))
        assert not cluster.synced
        await scene.sleep(14)
        assert not cluster.synced
        await scene.sleep(2)
        assert cluster.synced
        assert cluster.find_by_claim("ghost") is None


@pytest.mark.spec("lifecycle-133")
@virtual
async def test_orders_that_exist_or_have_a_machine_are_not_forgotten() -> None:
    async with Scene().still() as scene:
        cluster = scene.dovetail.cluster
        scene.claim()
        await scene.sleep(16)
        await scene.look(GHOSTS, "claim")
        assert cluster.find_by_claim("claim") is not None
        ordered = scene.claim_now()
        launched = replace(ordered, metadata=replace(ordered.metadata, name="launched"))
        cluster.expect_claim(replace(launched, status=replace(launched.status, provider_id="fake://x")))
        await scene.sleep(16)
        await scene.look(GHOSTS, "launched")
        assert cluster.find_by_claim("launched") is not None


@virtual
async def test_whoever_writes_to_a_claim_does_not_begin_the_wait_for_it_anew() -> None:
    """Else a claim that is written to every few seconds is asked after for as long as it is not launched."""
    async with Scene().still() as scene:
        scene.claim()
        await scene.sleep(10)
        scene.api.patch(CLAIMS, "claim", {"metadata": {"annotations": {"example.com/note": "1"}}})
        left = (await scene.look(GHOSTS, "claim")).after
        assert left is not None
        assert left <= timedelta(seconds=5)
        await scene.sleep(6)
        scene.api.patch(CLAIMS, "claim", {"metadata": {"annotations": {"example.com/note": "2"}}})
        assert await scene.look(GHOSTS, "claim") == DONE


def _ours() -> NodeClassReference:
    return NodeClassReference(group="karpenter.kwok.sh", kind="KWOKNodeClass", name="default")

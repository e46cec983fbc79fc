"""One bad object in a cluster is one bad item: it is named, and everybody else is served."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.nodepool import Budget, NodePool
from dovetail.disruption.methods.drift import choose_drift
from dovetail.scheduling.model.instance_types import InstanceType
from support.builders import NOW, node, nodepool, pod
from support.disruption import SIZES
from support.disruption import pool as disrupted
from support.fleet import Fleet, light
from support.policies import BINDINGS, refuse_claims_of
from support.world import POOLS, Scene, sample, virtual

DIGITS = "9" * 5_000
SET_ASIDE = "dovetail_set_aside_objects"


def with_spec(name: str, **spec: Any) -> dict[str, Any]:
    """A pod's document with parts of its spec exchanged."""
    containers = [{"name": "app", "image": "example.com/app"}]
    return {"metadata": {"name": name, "namespace": "default"}, "spec": {"containers": containers, **spec}}


@virtual
async def test_a_preferred_affinity_of_five_thousand_digits_stops_nobody() -> None:
    expression = {"key": "example.com/generation", "operator": "Gt", "values": [DIGITS]}
    preferred = [{"weight": 1, "preference": {"matchExpressions": [expression]}}]
    affinity = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    async with Scene().running() as scene:
        scene.apply(nodepool())
        scene.api.create("pods", with_spec("absurd", affinity=affinity))
        scene.create(pod("other"))
        await scene.settle(40)
        assert scene.node_of("other")


@virtual
async def test_a_pod_that_requests_cpu_without_end_is_told_so_and_the_others_get_their_node() -> None:
    endless = [{"name": "app", "image": "example.com/app", "resources": {"requests": {"cpu": "1e30"}}}]
    async with Scene().running() as scene:
        scene.apply(nodepool())
        scene.api.create("pods", with_spec("absurd", containers=endless))
        scene.create(pod("other"))
        await scene.settle(40)
        assert scene.node_of("other")
        told = [each[2] for each in scene.events("FailedScheduling") if each[1] == "Pod/absurd"]
        assert any("Failed to schedule pod" in each for each in told)


@virtual
async def test_a_node_of_four_hundred_digits_of_memory_is_named_and_stops_nobody() -> None:
    async with Scene().running() as scene:
        scene.apply(node("absurd", nodepool=""))
        scene.set_status(
            "nodes", "absurd", {"allocatable": {"cpu": "64", "memory": "9" * 400, "pods": "110"}}
        )
        scene.apply(nodepool(), pod("other", cpu="2", node_selector={"karpenter.sh/nodepool": "default"}))
        await scene.settle(40)
        assert scene.node_of("other").name != "absurd"
        (told,) = scene.events("SetAside")
        assert told[:2] == ("Warning", "Node/absurd")
        assert "memory] is more than any machine has" in told[2]
        assert sample(SET_ASIDE, controller="informer", kind="Node") == 1
        scene.api.delete("nodes", "absurd")
        await scene.settle(5)
        assert sample(SET_ASIDE, controller="informer", kind="Node") == 0


@virtual
async def test_a_node_of_ours_that_turns_absurd_stays_and_is_not_bought_twice() -> None:
    """A compromised kubelet must not make its machine vanish from memory, nor pods buy another for it."""
    async with Scene().running() as scene:
        scene.apply(nodepool(budgets=(Budget(nodes="100%"),)), pod("web", cpu="1"))
        await scene.settle(40)
        name = scene.node_of("web").name
        status = {"allocatable": {"memory": DIGITS}}
        scene.api.patch("nodes", name, {"status": status}, subresource="status")
        scene.create(pod("second", cpu="1"))
        await scene.settle(5)
        scene.api.delete("pods", "web", "default")
        await scene.settle(120)
        assert [each.name for each in scene.nodes()] == [name], scene.told()
        assert len(scene.claims()) == 1, "the claim's own word counts: no machine is bought beside it"
        assert [told[1] for told in scene.events("SetAside")] == [f"Node/{name}"]


@virtual
async def test_a_budget_of_five_thousand_digits_closes_its_own_pool_only() -> None:
    async with Scene().running() as scene:
        absurd = nodepool("absurd", budgets=(Budget(nodes=DIGITS),), labels={"pool": "absurd"})
        scene.apply(absurd, nodepool("plain", budgets=(Budget(nodes="100%"),), labels={"pool": "plain"}))
        for name in ("absurd", "plain"):
            scene.create(pod(name, node_selector={"pool": name}))
        await scene.settle(40)
        assert len(scene.nodes()) == 2
        for name in ("absurd", "plain"):
            scene.api.delete("pods", name, "default")
        await scene.settle(180)
        assert [each.labels["pool"] for each in scene.nodes()] == ["absurd"]


@virtual
async def test_a_daemonset_that_requests_more_than_any_machine_has_is_named_and_not_waited_for() -> None:
    async with Scene().running() as scene:
        endless = {"name": "app", "image": "example.com/app", "resources": {"requests": {"cpu": "1e30"}}}
        template = {"metadata": {"labels": {"app": "absurd"}}, "spec": {"containers": [endless]}}
        spec = {"selector": {"matchLabels": {"app": "absurd"}}, "template": template}
        metadata = {"name": "absurd", "namespace": "default"}
        scene.api.create("daemonsets.apps", {"metadata": metadata, "spec": spec})
        scene.apply(nodepool(), pod("other"))
        await scene.settle(40)
        assert scene.node_of("other")
        assert any(told[1] == "DaemonSet/absurd" for told in scene.events("SetAside"))


@virtual
async def test_a_claim_that_is_refused_holds_up_nobody_and_its_pod_is_told() -> None:
    async with Scene().running() as scene:
        refuse_claims_of(scene, "bad")
        scene.apply(nodepool("bad", labels={"pool": "bad"}), nodepool("good", labels={"pool": "good"}))
        scene.create(pod("stuck", node_selector={"pool": "bad"}))
        await scene.settle(30)
        scene.create(pod("other", node_selector={"pool": "good"}))
        await scene.until(scene.claims, within=3)
        await scene.settle(30)
        assert scene.node_of("other")
        told = [each[2] for each in scene.events("FailedScheduling") if each[1] == "Pod/stuck"]
        assert any("Failed to schedule pod" in each and "refusing" in each for each in told)
        with pytest.raises(AssertionError, match="stuck has no node"):
            scene.node_of("stuck")
        scene.api.delete(BINDINGS, "refusing")
        await scene.settle(60)
        assert scene.node_of("stuck")


@virtual
async def test_min_values_that_a_pod_narrows_below_themselves_are_told_and_never_ordered() -> None:
    zones = {"key": "topology.kubernetes.io/zone", "operator": "In", "minValues": 2}
    async with Scene().running() as scene:
        scene.apply(nodepool())
        values = ["test-zone-1", "test-zone-2"]
        patch = {"spec": {"template": {"spec": {"requirements": [zones | {"values": values}]}}}}
        scene.api.patch(POOLS, "default", patch)
        scene.create(pod("pinned", node_selector={"topology.kubernetes.io/zone": values[0]}))
        scene.create(pod("free"))
        await scene.settle(60)
        assert scene.node_of("free")
        listed = [each for claim in scene.claims() for each in claim.spec.requirements if each.min_values]
        assert all(len(each.values) >= (each.min_values or 0) for each in listed)
        told = [each[2] for each in scene.events("FailedScheduling") if each[1] == "Pod/pinned"]
        assert any("minValues" in each for each in told)


def fail_types_of(scene: Scene, bad: str) -> None:
    """The cloud meets a bug when it is asked what one pool can buy."""
    sold = scene.cloud.list_instance_types

    async def instance_types(nodepool: NodePool) -> tuple[InstanceType, ...]:
        if nodepool.name == bad:
            raise ValueError("a bug nobody knows of yet")
        return await sold(nodepool)

    scene.cloud.list_instance_types = instance_types  # type: ignore[method-assign]


@virtual
async def test_a_pool_whose_types_meet_a_bug_keeps_no_other_from_growing() -> None:
    async with Scene().running() as scene:
        fail_types_of(scene, "bad")
        scene.apply(nodepool("bad", weight=50), nodepool(), pod("web"))
        await scene.settle(40)
        assert scene.node_of("web").labels[labels.NODEPOOL] == "default"


@virtual
async def test_a_pool_whose_types_meet_a_bug_keeps_no_other_from_disruption() -> None:
    async with Scene().still() as scene:
        fleet = Fleet(scene, disrupted(), disrupted("bad"), types=SIZES)
        fail_types_of(scene, "bad")
        fleet.node("a", light("web", "a", "15"), drifted=NOW, consolidatable=False)
        await scene.heard()
        (command,) = choose_drift(await fleet.loop.build_input()).commands
        assert [each.name for each in command.candidates] == ["a"]

from __future__ import annotations

from typing import Any

from dovetail.sim.world import World
from support.cluster import (
    HOST,
    REQUIRED,
    annotate,
    cluster,
    condition,
    in_virtual_time,
    names,
    node_of,
    pods_of,
    running,
    workload,
)

DAEMONS, REVISIONS = "daemonsets.apps", "controllerrevisions.apps"


def daemon(name: str = "agent", **spec: Any) -> dict[str, Any]:
    return workload(name, None, **spec)


def homes(world: World, name: str = "agent") -> list[str]:
    return sorted(p["spec"].get("nodeName", "?") for p in running(pods_of(world, name)))


@in_virtual_time
async def test_every_node_gets_one_pod_pinned_to_it_by_name_and_bound_by_the_scheduler() -> None:
    async with cluster(3) as world:
        world.api.create(DAEMONS, daemon())
        await world.settle(5)
        assert homes(world) == ["a", "b", "c"]
        made = pods_of(world, "agent")[0]
        terms = made["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert terms == [
            {
                "matchFields": [
                    {"key": "metadata.name", "operator": "In", "values": [made["spec"]["nodeName"]]}
                ]
            }
        ]
        tolerated = {(t["key"], t["effect"]) for t in made["spec"]["tolerations"]}
        assert ("node.kubernetes.io/unreachable", "NoExecute") in tolerated
        assert ("node.kubernetes.io/unschedulable", "NoSchedule") in tolerated
        assert ("node.kubernetes.io/network-unavailable", "NoSchedule") not in tolerated
        (revision,) = world.api.list(REVISIONS, "default")
        assert made["metadata"]["labels"]["controller-revision-hash"] in revision["metadata"]["name"]
        assert made["metadata"]["labels"]["pod-template-generation"] == "1"
        status = world.api.get(DAEMONS, "agent", "default")["status"]
        counted = (
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
        )
        assert [status[c] for c in counted] == [3, 3, 3, 3]
        assert status["numberMisscheduled"] == 0


@in_virtual_time
async def test_a_node_that_comes_later_gets_its_pod_and_one_that_leaves_takes_it_along() -> None:
    async with cluster(1) as world:
        world.api.create(DAEMONS, daemon())
        world.add_node("late")
        await world.settle(5)
        assert homes(world) == ["a", "late"]
        world.api.delete("nodes", "late")
        await world.settle(90)
        assert homes(world) == ["a"]
        assert world.api.get(DAEMONS, "agent", "default")["status"]["desiredNumberScheduled"] == 1


@in_virtual_time
async def test_selectors_and_affinity_say_which_nodes_are_meant() -> None:
    async with cluster(3) as world:
        world.api.create(DAEMONS, daemon(pods={"nodeSelector": {HOST: "b"}}))
        not_b = {"key": HOST, "operator": "NotIn", "values": ["b"]}
        affinity = {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [not_b]}]}}}
        world.api.create(DAEMONS, daemon("other", pods={"affinity": affinity}))
        await world.settle(5)
        assert homes(world) == ["b"]
        assert homes(world, "other") == ["a", "c"]
        world.api.patch("nodes", "b", {"metadata": {"labels": {HOST: "elsewhere"}}})
        await world.settle(5)
        assert homes(world) == []


@in_virtual_time
async def test_cordons_do_not_matter_and_foreign_taints_do() -> None:
    async with cluster(3) as world:
        world.api.patch("nodes", "a", {"spec": {"unschedulable": True}})
        world.api.patch("nodes", "b", {"spec": {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}})
        world.api.create(DAEMONS, daemon())
        everywhere = [{"operator": "Exists"}]
        world.api.create(DAEMONS, daemon("all", pods={"tolerations": everywhere}))
        await world.settle(5)
        assert homes(world) == ["a", "c"]
        assert homes(world, "all") == ["a", "b", "c"]


@in_virtual_time
async def test_a_taint_against_new_pods_leaves_a_daemon_where_it_is_and_one_that_evicts_does_not() -> None:
    async with cluster(2) as world:
        world.api.create(DAEMONS, daemon())
        await world.settle(5)
        drain = {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
        world.api.patch("nodes", "a", {"spec": {"taints": [drain]}})
        await world.settle(5)
        assert homes(world) == ["a", "b"]
        status = world.api.get(DAEMONS, "agent", "default")["status"]
        assert (status["desiredNumberScheduled"], status["numberMisscheduled"]) == (1, 1)
        world.api.patch("nodes", "b", {"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}})
        await world.settle(5)
        assert homes(world) == ["a"]


@in_virtual_time
async def test_a_silent_node_keeps_its_daemon() -> None:
    async with cluster(1) as world:
        world.api.create(DAEMONS, daemon())
        await world.settle(5)
        annotate(world, "nodes", "a", heartbeat="stopped")
        await world.settle(900)
        assert len(pods_of(world, "agent")) == 1
        assert not pods_of(world, "agent")[0]["metadata"].get("deletionTimestamp")


@in_virtual_time
async def test_a_new_template_replaces_one_pod_at_a_time() -> None:
    async with cluster(3) as world:
        world.api.create(DAEMONS, daemon())
        await world.settle(5)
        patch = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        world.api.patch(DAEMONS, "agent", patch, "default")
        least = 3
        for _ in range(200):
            await world.settle(0.1)
            least = min(least, len(running(pods_of(world, "agent"))))
        assert least == 2
        assert all(p["metadata"]["annotations"]["version"] == "2" for p in pods_of(world, "agent"))
        assert sorted(r["revision"] for r in world.api.list(REVISIONS, "default")) == [1, 2]
        assert world.api.get(DAEMONS, "agent", "default")["status"]["updatedNumberScheduled"] == 3


@in_virtual_time
async def test_max_unavailable_in_percent_rounds_up_and_on_delete_waits_for_a_hand() -> None:
    async with cluster(3) as world:
        rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "40%"}}
        world.api.create(DAEMONS, daemon(updateStrategy=rolling))
        world.api.create(DAEMONS, daemon("still", updateStrategy={"type": "OnDelete"}))
        await world.settle(5)
        before = names(pods_of(world, "still"))
        patch = {"spec": {"template": {"metadata": {"annotations": {"version": "2"}}}}}
        for name in ("agent", "still"):
            world.api.patch(DAEMONS, name, patch, "default")
        await world.settle(0.5)
        assert len(running(pods_of(world, "agent"))) == 1
        await world.settle(20)
        assert names(pods_of(world, "still")) == before
        world.api.delete("pods", before[0], "default")
        await world.settle(5)
        updated = [p for p in pods_of(world, "still") if p["metadata"].get("annotations", {}).get("version")]
        assert len(updated) == 1


@in_virtual_time
async def test_a_failed_daemon_pod_is_replaced_with_growing_pauses() -> None:
    async with cluster(1) as world:
        notes = {"sim.dovetail.dev/run-for": "1s", "sim.dovetail.dev/fails": "true"}
        world.api.create(DAEMONS, daemon(annotations=notes))
        made: set[str] = set()
        for _ in range(600):
            await world.settle(0.1)
            made |= {p["metadata"]["uid"] for p in pods_of(world, "agent")}
        assert 3 <= len(made) <= 7


@in_virtual_time
async def test_a_daemon_that_does_not_fit_is_pending_on_its_own_node() -> None:
    async with cluster(2, cpu="1") as world:
        world.api.patch("nodes", "b", {"status": {"allocatable": {"cpu": "100m"}}}, subresource="status")
        world.api.create(DAEMONS, daemon(requests={"cpu": "500m"}))
        await world.settle(5)
        assert homes(world) == ["a"]
        (left,) = [p for p in pods_of(world, "agent") if not node_of(world, p["metadata"]["name"])]
        assert "Insufficient cpu" in condition(left, "PodScheduled")["message"]

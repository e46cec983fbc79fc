"""A world from manifests: which pods it has, which nodes, and what a change of pools does to them."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import core
from dovetail.api.labels import CAPACITY_TYPE
from dovetail.api.pod import Pod
from dovetail.errors import BadInput
from dovetail.scheduling.model import state_node
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot
from dovetail.state.changes import apply_change, drain_nodes
from dovetail.state.offline import OfflineCluster
from support.builders import NOW

CONTAINERS = [{"name": "a", "resources": {"requests": {"cpu": "1"}}}]
TEMPLATE = {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": CONTAINERS}}


def thing(kind: str, name: str, api_version: str = "v1", **rest: Any) -> dict[str, Any]:
    metadata = {"name": name, **rest.pop("metadata", {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **rest}


def pod(name: str, **spec: Any) -> dict[str, Any]:
    owner = spec.pop("owner", None)
    metadata = {"ownerReferences": [owner]} if owner else {}
    return thing("Pod", name, metadata=metadata, spec={"containers": CONTAINERS, **spec})


def workload(kind: str, name: str, group: str = "apps/v1", **spec: Any) -> dict[str, Any]:
    return thing(kind, name, group, spec={"template": TEMPLATE, **spec})


def pool(name: str = "p", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    inner = {"requirements": spec.pop("requirements", [])}
    template = {"metadata": {"labels": labels or {}}, "spec": inner}
    return thing("NodePool", name, "karpenter.sh/v1", spec={"template": template, **spec})


def world(*documents: dict[str, Any]) -> OfflineCluster:
    found = OfflineCluster()
    for each in documents:
        found.add(each["apiVersion"], each["kind"], each)
    return found


def taken(found: OfflineCluster) -> Snapshot:
    return found.build_snapshot(lambda pool: (), SchedulingOptions(now=NOW))


def names(snapshot: Snapshot) -> list[str]:
    return [each.full_name for each in snapshot.pods]


def owner(kind: str, name: str) -> dict[str, str]:
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": "u"}


@pytest.mark.parametrize(
    ("document", "count"),
    [
        (workload("Deployment", "d", replicas=3), 3),
        (workload("Deployment", "d"), 1),
        (workload("StatefulSet", "s", replicas=2), 2),
        (workload("ReplicaSet", "r", replicas=0), 0),
        (workload("Job", "j", "batch/v1", parallelism=5, completions=2), 2),
        (workload("Job", "j", "batch/v1"), 1),
        (
            thing(
                "CronJob",
                "c",
                "batch/v1",
                spec={"jobTemplate": {"spec": {"parallelism": 4, "template": TEMPLATE}}},
            ),
            4,
        ),
    ],
)
def test_a_workload_counts_as_its_pods(document: dict[str, Any], count: int) -> None:
    found = taken(world(document)).pods
    assert len(found) == count
    assert all(each.labels == {"app": "x"} and each.namespace == "default" for each in found)


def test_a_workload_whose_pods_are_there_makes_no_more() -> None:
    deployment = workload("Deployment", "web", replicas=9)
    mine = pod("web-abc12-x", owner=owner("ReplicaSet", "web-abc12"))
    assert names(taken(world(deployment, mine))) == ["default/web-abc12-x"]
    replicas = workload("ReplicaSet", "web-abc12", replicas=2)
    replicas["metadata"]["ownerReferences"] = [owner("Deployment", "web")]
    assert len(taken(world(deployment, replicas)).pods) == 2


def test_a_namesake_in_another_namespace_is_somebody_else() -> None:
    deployment = workload("Deployment", "web", replicas=2)
    other = pod("web-abc12-x", owner=owner("ReplicaSet", "web-abc12"))
    other["metadata"]["namespace"] = "elsewhere"
    assert len(taken(world(deployment, other)).pods) == 3


def test_the_later_of_two_namesakes_counts() -> None:
    found = taken(world(workload("Deployment", "d", replicas=3), workload("Deployment", "d", replicas=1)))
    assert names(found) == ["default/d-0"]


def test_only_pods_that_wait_are_to_be_placed() -> None:
    done = {**pod("done"), "status": {"phase": "Succeeded"}}
    daemon = pod("daemon", owner=owner("DaemonSet", "ds"))
    bound = pod("bound", nodeName="n")
    found = taken(world(pod("waits"), done, daemon, bound, thing("Node", "n")))
    assert names(found) == ["default/waits"]
    assert found.pods[0].status.find_condition("PodScheduled") is not None
    assert [each.full_name for each in found.nodes[0].pods] == ["default/bound"]


def test_what_was_left_out_is_told() -> None:
    gated = pod("gated", schedulingGates=[{"name": "g"}])
    lost = pod("lost", nodeName="nowhere")
    found = world(gated, lost, thing("ConfigMap", "c"), pool("fixed", replicas=3))
    told = " ".join(found.list_remarks(lambda pool: (), SchedulingOptions()))
    assert "scheduling gate were left out: 1" in told
    assert "which are not in the files were left out: 1" in told
    assert "1 ConfigMap" in told
    assert "static pools take no part in planning: fixed" in told


def test_a_claim_without_a_node_is_a_node_on_its_way() -> None:
    claim = thing("NodeClaim", "c", "karpenter.sh/v1", metadata={"labels": {"karpenter.sh/nodepool": "p"}})
    node = thing("Node", "n", spec={"providerID": "i-1"})
    joined = thing("NodeClaim", "d", "karpenter.sh/v1", status={"providerID": "i-1"})
    found = taken(world(claim, node, joined)).nodes
    assert [
        (state_node.read_name(each), each.node is not None, each.claim is not None) for each in found
    ] == [
        ("d", True, True),
        ("c", False, True),
    ]


def test_pools_come_in_order_of_weight_and_are_ready_unless_they_say_otherwise() -> None:
    unready = {**pool("c"), "status": {"conditions": [{"type": "Ready", "status": "False"}]}}
    found = taken(world(pool("a"), pool("b", weight=10), unready)).pools
    assert [each.name for each in found] == ["b", "c", "a"]
    states = {each.name: each.nodepool.status.conditions[0].status for each in found}
    assert states == {"a": "True", "b": "True", "c": "False"}


def test_namespaces_have_labels_even_when_nobody_described_them() -> None:
    described = thing("Namespace", "known", metadata={"labels": {"a": "b"}})
    other = pod("p")
    found = taken(world(described, other)).namespaces
    assert found == {"default": {"kubernetes.io/metadata.name": "default"}, "known": {"a": "b"}}


def test_amounts_below_zero_and_endless_workloads_are_refused() -> None:
    bad = pod("p")
    bad["spec"] = {"containers": [{"name": "a", "resources": {"requests": {"cpu": "-1"}}}]}
    with pytest.raises(BadInput, match="requests -1 of cpu"):
        world(bad)
    with pytest.raises(BadInput, match="at most 250,000"):
        taken(world(workload("Deployment", "d", replicas=10**9)))


def test_a_pod_named_by_its_server_gets_a_name() -> None:
    nameless = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "job-"}, "spec": {}}
    found = world(nameless, nameless)
    assert sorted(each.name for each in found.list_objects(Pod)) == ["pod-0", "pod-1"]


def buffer(name: str, **spec: Any) -> dict[str, Any]:
    return thing("CapacityBuffer", name, "autoscaling.x-k8s.io/v1beta1", spec=spec)


def test_buffers_are_room_for_pods_nobody_runs() -> None:
    template = thing("PodTemplate", "t", template=TEMPLATE)
    fixed = buffer("fixed", podTemplateRef={"name": "t"}, replicas=2)
    share = buffer(
        "share", scalableRef={"apiGroup": "apps", "kind": "Deployment", "name": "d"}, percentage=50
    )
    lost = buffer("lost", podTemplateRef={"name": "nowhere"}, replicas=9)
    found = world(template, fixed, share, lost, workload("Deployment", "d", replicas=6))
    assert len(taken(found).virtual) == 2 + 3
    assert len(taken(found).pods) == 6
    told = " ".join(found.list_remarks(lambda pool: (), SchedulingOptions()))
    assert "buffers whose template is not in the files were left out: lost" in told


# ------------------------------------------------------------------ changes of pools


def running(annotations: dict[str, str] | None = None) -> list[dict[str, Any]]:
    labels = {"karpenter.sh/nodepool": "p", CAPACITY_TYPE: "on-demand", "karpenter.sh/registered": "true"}
    node = thing("Node", "n", metadata={"labels": labels}, spec={"providerID": "i-1"})
    claim = thing(
        "NodeClaim", "n", "karpenter.sh/v1", metadata={"labels": labels}, status={"providerID": "i-1"}
    )
    mine = pod("mine", nodeName="n")
    mine["metadata"]["annotations"] = annotations or {}
    return [node, claim, mine, pod("daemon", nodeName="n", owner=owner("DaemonSet", "ds"))]


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (pool(labels={"new": "label"}), "the template of its pool changes"),
        (
            pool(requirements=[{"key": CAPACITY_TYPE, "operator": "In", "values": ["spot"]}]),
            "karpenter.sh/capacity-type In [spot] is required, and it has on-demand",
        ),
    ],
)
def test_nodes_that_are_no_longer_what_their_pool_asks_for_evict_their_pods(
    changed: dict[str, Any], why: str
) -> None:
    before = world(pool(), *running())
    found = apply_change(taken(before), world(changed).build_change())
    (fate,) = found.drifts
    assert (fate.node, fate.why, fate.evicted, fate.held_by) == ("n", why, ("default/mine",), "")
    drained = drain_nodes(found.after, frozenset(("n",)))
    assert drained.nodes[0].marked
    assert [each.full_name for each in drained.moving] == ["default/mine"]


def test_a_limit_or_a_weight_makes_no_node_drift() -> None:
    before = world(pool(), *running())
    found = apply_change(taken(before), world(pool(weight=5, limits={"cpu": "1"})).build_change())
    assert found.drifts == ()


def test_a_pod_that_must_not_be_disrupted_keeps_its_node() -> None:
    before = world(pool(), *running({"karpenter.sh/do-not-disrupt": "true"}))
    (fate,) = apply_change(taken(before), world(pool(labels={"new": "label"})).build_change()).drifts
    assert fate.held_by == "default/mine"


def test_daemonsets_are_known_by_one_pod_each() -> None:
    found = taken(world(workload("DaemonSet", "logs")))
    assert [each.name for each in found.daemons] == ["logs"]
    assert found.pods == ()
    assert isinstance(world(workload("DaemonSet", "logs")).list_objects(core.DaemonSet)[0], core.DaemonSet)

"""A world with objects applied: pods that come and go, nodes that drift, and budgets that hold them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import conditions, core, labels
from dovetail.api.nodepool import NodePool
from dovetail.api.quantity import Quantity
from dovetail.controllers.ordering import hash_annotations
from dovetail.errors import BadInput
from dovetail.providers.kwok.catalog import read_instance_types
from dovetail.scheduling.fleet_cost import bill_running_nodes
from dovetail.scheduling.model.snapshot import SchedulingOptions, Snapshot
from dovetail.state.changed_pods import DeletedObject
from dovetail.state.changed_pools import KnownWorld
from dovetail.state.changes import SnapshotChange, apply_change, drain_nodes
from dovetail.state.offline import OfflineCluster, find_kind
from support.random_changes import budget, claimed_node, deployment, pool, running_pod, thing

NOW = datetime(2026, 6, 2, tzinfo=UTC)
TYPES = read_instance_types()[:12]


def read(*documents: dict[str, Any]) -> OfflineCluster:
    found = OfflineCluster()
    for each in documents:
        found.add(each["apiVersion"], each["kind"], each)
    return found


def world(*more: dict[str, Any]) -> Snapshot:
    """Two nodes, and three pods of the Deployment web on them."""
    pods = [running_pod(f"web-5d9c-{n}", "web", f"node-{n % 2}", 500, 512) for n in range(3)]
    nodes = [
        *claimed_node("node-0", "general", "2", "test-zone-a"),
        *claimed_node("node-1", "general", "2", "test-zone-b"),
    ]
    found = read(pool("general"), *nodes, *pods, *more)
    return found.build_snapshot(lambda pool: TYPES, SchedulingOptions(now=NOW))


def changed(*documents: dict[str, Any], before: Snapshot | None = None) -> SnapshotChange:
    return apply_change(before or world(), read(*documents).build_change())


def names(snapshot: Snapshot) -> list[str]:
    return [pod.name for pod in snapshot.pods]


def on_nodes(snapshot: Snapshot) -> list[str]:
    return [pod.name for state in snapshot.nodes for pod in state.pods]


def test_an_annotation_that_adds_to_prices_changes_the_bill_and_taking_it_away_does_too() -> None:
    node = claimed_node("node-0", "general", "2", "test-zone-a")
    sold = read_instance_types()
    before = read(pool("general"), *node).build_snapshot(lambda pool: sold, SchedulingOptions(now=NOW))
    dearer = pool("general")
    dearer["metadata"]["annotations"] = {labels.NODE_EXTRA: "0.5/node"}
    was, now = bill_running_nodes(before), bill_running_nodes(changed(dearer, before=before).after)
    assert now.total == pytest.approx(was.total + 0.5)
    assert [line.added for line in now.lines] == [0.5]
    back = apply_change(changed(dearer, before=before).after, read(pool("general")).build_change()).after
    assert bill_running_nodes(back) == was
    off = apply_change(before, read(dearer).build_change(), KnownWorld(extra=None)).after
    assert bill_running_nodes(off) == was


def test_a_larger_number_makes_pods_like_those_that_run() -> None:
    found = changed(deployment("web", 5, 500, 512))
    assert names(found.after) == ["web-0", "web-1"]
    assert found.after.pods[0].labels["pod-template-hash"] == "5d9c"
    (workload,) = found.workloads
    assert (workload.before, workload.after, workload.rolled_out) == (3, 5, False)
    assert found.peak is None


def test_a_smaller_number_takes_those_away_that_are_doubled_up() -> None:
    found = changed(deployment("web", 2, 500, 512))
    assert sorted(on_nodes(found.after)) == ["web-5d9c-0", "web-5d9c-1"]


def test_another_template_is_a_rollout_with_the_surge_beside_the_old_pods() -> None:
    found = changed(deployment("web", 3, 900, 512))
    (workload,) = found.workloads
    assert workload.rolled_out
    assert workload.peak == 4  # a quarter of three, rounded up
    assert on_nodes(found.after) == []
    assert len(found.after.pods) == 3
    assert found.peak is not None
    assert len(on_nodes(found.peak)) == 3
    assert len(found.peak.pods) == 1


def test_a_deployment_that_recreates_has_no_peak_above_its_number() -> None:
    changing = deployment("web", 3, 900, 512)
    changing["spec"]["strategy"] = {"type": "Recreate"}
    (workload,) = changed(changing).workloads
    assert workload.peak == 3


def test_what_admission_adds_is_no_other_template() -> None:
    added = [
        {
            "key": "node.kubernetes.io/not-ready",
            "operator": "Exists",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }
    ]
    pod = running_pod(
        "web-5d9c-9", "web", "node-0", 500, 512, tolerations=added, schedulerName="default-scheduler"
    )
    pod["spec"]["containers"].append({"name": "sidecar", "resources": {"requests": {"cpu": "10m"}}})
    found = changed(deployment("web", 4, 500, 512), before=world(pod))
    assert found.workloads == ()


def test_a_deployment_without_a_number_keeps_its_own() -> None:
    assert changed(deployment("web", None, 500, 512)).workloads == ()
    (fresh,) = changed(deployment("api", None, 500, 512)).workloads
    assert (fresh.before, fresh.after) == (0, 1)


@pytest.mark.parametrize(("least", "most", "count"), [(1, 2, 2), (5, 9, 5), (2, 9, 3)])
@pytest.mark.spec("VF-7")
def test_an_autoscaler_keeps_the_number_between_its_bounds(least: int, most: int, count: int) -> None:
    spec = {
        "scaleTargetRef": {"kind": "Deployment", "name": "web"},
        "minReplicas": least,
        "maxReplicas": most,
    }
    scaler = thing("autoscaling/v2", "HorizontalPodAutoscaler", "web", "shop", spec=spec)
    found = changed(deployment("web", None, 500, 512), scaler)
    assert len(on_nodes(found.after)) + len(found.after.pods) == count
    assert f"counted with {count} pods" in " ".join(found.remarks)


@pytest.mark.spec("VF-7")
def test_jobs_that_are_suspended_make_no_pods_and_a_cron_job_counts_as_one_run() -> None:
    job = {"parallelism": 3, "template": {"spec": {"containers": [{"name": "a"}]}}}
    found = changed(
        thing("batch/v1", "Job", "once", "shop", spec={**job, "suspend": True}),
        thing("batch/v1", "CronJob", "paused", "shop", spec={"suspend": True, "jobTemplate": {"spec": job}}),
        thing("batch/v1", "CronJob", "nightly", "shop", spec={"jobTemplate": {"spec": job}}),
    )
    assert names(found.after) == ["nightly-0", "nightly-1", "nightly-2"]
    told = " ".join(found.remarks)
    assert "Job shop/once is suspended: it makes no pods" in told
    assert "CronJob shop/paused is suspended: it makes no pods" in told
    assert "CronJob shop/nightly is counted as one run of it: 3 pods" in told


def test_pods_of_a_statefulset_come_back_under_their_names_with_their_volumes() -> None:
    pods = [running_pod(f"db-{n}", "db", "node-0", 100, 64) for n in range(2)]
    for number, each in enumerate(pods):
        owner = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": "db",
            "uid": "db",
            "controller": True,
        }
        each["metadata"]["ownerReferences"] = [owner]
        claim = {"claimName": f"data-db-{number}"}
        each["spec"]["volumes"] = [{"name": "data", "persistentVolumeClaim": claim}]
    grown = deployment("db", 3, 200, 64) | {"kind": "StatefulSet"}
    found = changed(grown, before=world(*pods))
    assert [(pod.name, len(pod.spec.volumes)) for pod in found.after.pods] == [
        ("db-0", 1),
        ("db-1", 1),
        ("db-2", 0),
    ]
    (smaller,) = changed(
        deployment("db", 1, 100, 64) | {"kind": "StatefulSet"}, before=world(*pods)
    ).workloads
    assert [pod.name for pod in smaller.leaving] == ["db-1"]


def test_a_pool_keeps_what_controllers_know_of_it_and_its_nodes_drift() -> None:
    found = changed(pool("general", labels={"tier": "x"}))
    assert [drift.node for drift in found.drifts] == ["node-0", "node-1"]
    for state in found.after.nodes:
        assert state.claim is not None
        assert conditions.is_true(state.claim, conditions.DRIFTED)
    assert [each.name for each in found.after.pools] == ["general"]
    assert found.after.list_types(found.after.pools[0]) == found.before.list_types(found.before.pools[0])
    assert changed(pool("general")).drifts == ()


def test_a_node_that_is_at_one_with_its_pool_again_has_not_drifted() -> None:
    before = world()
    made_of = hash_annotations(before.pools[0].nodepool)
    claims = [state.claim for state in before.nodes if state.claim is not None]
    claims = [replace(each, metadata=replace(each.metadata, annotations=made_of)) for each in claims]
    nodes = tuple(replace(state, claim=each) for state, each in zip(before.nodes, claims, strict=True))
    before = replace(before, nodes=nodes)
    drifted = changed(pool("general", labels={"tier": "x"}), before=before).after
    back = apply_change(drifted, read(pool("general")).build_change())
    assert back.drifts == ()
    claims = [state.claim for state in back.after.nodes if state.claim is not None]
    assert not any(conditions.is_true(each, conditions.DRIFTED) for each in claims)


def test_a_new_pool_buys_what_others_of_its_class_buy() -> None:
    found = changed(pool("fresh", weight=9))
    assert [each.name for each in found.after.pools] == ["fresh", "general"]
    assert found.after.pools[0].catalog == found.after.pools[1].catalog
    other = pool("other")
    other["spec"]["template"]["spec"]["nodeClassRef"] = {"group": "x.sh", "kind": "Other", "name": "o"}
    assert "what NodePool other can buy is not known" in " ".join(changed(other).remarks)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"maxUnavailable": 0}, 0),
        ({"maxUnavailable": 1}, 1),
        ({"minAvailable": 2}, 1),
        ({"minAvailable": "50%"}, 1),
    ],
)
def test_a_budget_of_the_change_allows_what_its_pods_do(spec: dict[str, Any], allowed: int) -> None:
    (found,) = changed(budget("web", "web", **spec)).after.budgets
    assert found.status.disruptions_allowed == allowed


def test_a_budget_allows_more_when_its_pods_become_more() -> None:
    tight = budget("web", "web", minAvailable=3) | {"status": {"disruptionsAllowed": 0}}
    (found,) = changed(deployment("web", 5, 500, 512), before=world(tight)).after.budgets
    assert found.status.disruptions_allowed == 2


def test_daemons_are_replaced_on_running_nodes_too() -> None:
    pod = running_pod("logs-x", "logs", "node-0", 100, 64)
    pod["metadata"]["ownerReferences"] = [
        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "logs", "uid": "logs", "controller": True}
    ]
    larger = deployment("logs", None, 300, 64) | {"kind": "DaemonSet"}
    found = changed(larger, before=world(pod, deployment("logs", None, 100, 64) | {"kind": "DaemonSet"}))
    requests = [
        pod.spec.nano_requests["cpu"]
        for state in found.after.nodes
        for pod in state.pods
        if pod.name == "logs-x"
    ]
    assert requests == [300_000_000]
    assert len(found.after.daemons) == 1


def delete(word: str, name: str, namespace: str = "", before: Snapshot | None = None) -> SnapshotChange:
    kind = find_kind(word)
    assert kind is not None
    gone = (DeletedObject(kind, name, namespace),)
    return apply_change(before or world(), OfflineCluster().build_change(gone))


def test_what_is_deleted_is_gone_and_its_nodes_leave() -> None:
    assert delete("nodepool", "general").leaving == {"node-0", "node-1"}
    assert delete("Node", "node-1").leaving == {"node-1"}
    assert delete("nodeclaims.karpenter.sh", "node-1-claim").leaving == {"node-1"}
    assert on_nodes(delete("deployments", "web", "shop").after) == []
    assert sorted(on_nodes(delete("pod", "web-5d9c-0", "shop").after)) == ["web-5d9c-1", "web-5d9c-2"]


def test_what_is_not_there_cannot_be_deleted() -> None:
    with pytest.raises(BadInput, match=r"there is no Deployment shop/wep to delete; did you mean shop/web\?"):
        delete("deployment", "wep", "shop")
    both = read(pool("general")).build_change((DeletedObject(NodePool, "general"),))
    with pytest.raises(BadInput, match="NodePool general is to be deleted and is in the change as well"):
        apply_change(world(), both)


def test_pods_that_are_held_for_good_stay_on_a_node_that_is_drained() -> None:
    held = running_pod("held", "held", "node-0", 100, 64)
    held["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    before = world(held)
    drained = drain_nodes(before, {"node-0"})
    moved = {pod.name for pod in drained.moving} - {pod.name for pod in before.moving}
    there = {pod.name for state in before.nodes for pod in state.pods if pod.node_name == "node-0"}
    assert moved == there - {"held"}
    assert moved


def test_a_change_of_too_many_pods_is_refused() -> None:
    with pytest.raises(BadInput, match="this change comes to 9,000,000 pods; at most 250,000"):
        changed(deployment("web", 9_000_000, 1, 1))


def test_a_service_a_namespace_and_a_volume_take_the_place_of_their_namesakes() -> None:
    found = changed(
        thing("v1", "Service", "web", "shop", spec={"selector": {"app": "web"}}),
        thing("v1", "Namespace", "shop") | {"metadata": {"name": "shop", "labels": {"team": "a"}}},
        thing("v1", "PersistentVolumeClaim", "data", "shop"),
    ).after
    assert [each.full_name for each in found.services] == ["shop/web"]
    assert found.namespaces["shop"]["team"] == "a"
    assert list(found.storage.claims) == ["shop/data"]
    assert isinstance(found.services[0], core.Service)


def buffer(name: str, **spec: Any) -> dict[str, Any]:
    return thing("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", name, "shop", spec=spec)


WEB = {"apiGroup": "apps", "kind": "Deployment", "name": "web"}


@pytest.mark.parametrize(
    ("more", "spec", "cpus"),
    [
        # Of what runs, and of what the change makes of it.
        ((), {"scalableRef": WEB, "replicas": 2}, [500, 500]),
        ((), {"scalableRef": WEB, "percentage": 100}, [500, 500, 500]),
        ((deployment("web", 4, 900, 512),), {"scalableRef": WEB, "percentage": 50}, [900, 900]),
        (
            (thing("v1", "PodTemplate", "shape", "shop", template={"spec": {"containers": [
                {"name": "c", "resources": {"requests": {"cpu": "700m"}}}]}}),),
            {"podTemplateRef": {"name": "shape"}, "replicas": 1},
            [700],
        ),
    ],
    ids=["replicas", "a share", "a share of the change", "a template"],
)  # fmt: skip
def test_a_buffer_that_is_applied_keeps_room_for_pods_like_those_it_names(
    more: tuple[dict[str, Any], ...], spec: dict[str, Any], cpus: list[int]
) -> None:
    found = changed(*more, buffer("room", **spec))
    requested = [pod.spec.containers[0].resources.requests["cpu"] for pod in found.after.virtual]
    assert requested == [Quantity.parse(f"{cpu}m") for cpu in cpus]
    assert found.remarks == ()


def test_a_buffer_is_replaced_by_its_namesake_and_goes_when_it_is_deleted() -> None:
    before = changed(
        buffer("room", scalableRef=WEB, replicas=2), buffer("other", scalableRef=WEB, replicas=1)
    )
    assert len(before.after.virtual) == 3
    larger = changed(buffer("room", scalableRef=WEB, replicas=4), before=before.after)
    assert len(larger.after.virtual) == 5
    assert len(delete("CapacityBuffer", "room", "shop", before.after).after.virtual) == 1


def test_a_buffer_for_pods_that_nobody_knows_is_left_out_and_told() -> None:
    nowhere = {"apiGroup": "apps", "kind": "Deployment", "name": "nowhere"}
    found = changed(buffer("lost", scalableRef=nowhere, replicas=2))
    assert found.after.virtual == ()
    assert found.remarks == ("CapacityBuffer shop/lost was left out: its template is not known here",)

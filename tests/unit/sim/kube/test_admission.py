"""Defaults, mutations and rules of built-in kinds."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.sim.kube.local import LocalApi
from dovetail.sim.kube.status import ApiError
from support.apiserver import budget, config_map, deployment, local_api, node, pod


@pytest.fixture
def api() -> LocalApi:
    return local_api()


def causes(error: pytest.ExceptionInfo[ApiError]) -> list[tuple[str, str]]:
    return [(cause["field"], cause["reason"]) for cause in error.value.causes]


def container(**more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "web:1", **more}


def test_a_pod_gets_the_defaults_an_autoscaler_can_notice(api: LocalApi) -> None:
    made = api.create("pods", pod("a"))
    spec = made["spec"]
    expected = {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "enableServiceLinks": True,
        "serviceAccountName": "default",
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }
    assert {key: spec[key] for key in expected} == expected
    assert [(t["key"], t["tolerationSeconds"]) for t in spec["tolerations"]] == [
        ("node.kubernetes.io/not-ready", 300),
        ("node.kubernetes.io/unreachable", 300),
    ]
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("web", "Always"),
        ("web:latest", "Always"),
        ("registry:5000/web", "Always"),
        ("web:1", "IfNotPresent"),
        ("registry:5000/web:2", "IfNotPresent"),
        ("web@sha256:abc", "IfNotPresent"),
    ],
)
def test_the_pull_policy_follows_the_tag(api: LocalApi, image: str, policy: str) -> None:
    made = api.create("pods", pod("a", containers=[container(image=image)]))
    assert made["spec"]["containers"][0]["imagePullPolicy"] == policy


def test_limits_are_requested_and_quantities_are_spelled_one_way(api: LocalApi) -> None:
    limits = {"cpu": "1000m", "memory": "1024Mi", "nvidia.com/gpu": 1}
    resources = {"limits": limits, "requests": {"cpu": 0.5}}
    made = api.create("pods", pod("a", containers=[container(resources=resources)]))
    got = made["spec"]["containers"][0]["resources"]
    assert got["limits"] == {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert got["requests"] == {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    assert made["status"]["qosClass"] == "Burstable"


def test_equal_requests_and_limits_are_guaranteed(api: LocalApi) -> None:
    resources = {"limits": {"cpu": "1", "memory": "1Gi"}}
    made = api.create("pods", pod("a", containers=[container(resources=resources)]))
    assert made["status"]["qosClass"] == "Guaranteed"


def test_existing_tolerations_are_not_doubled(api: LocalApi) -> None:
    everything = [{"operator": "Exists"}]
    assert api.create("pods", pod("a", tolerations=everything))["spec"]["tolerations"] == everything


def test_priorities_come_from_classes(api: LocalApi) -> None:
    api.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": "high"}, "value": 100})
    assert api.create("pods", pod("a", priorityClassName="high"))["spec"]["priority"] == 100
    critical = api.create("pods", pod("c", priorityClassName="system-node-critical"))
    assert critical["spec"]["priority"] == 2000001000
    with pytest.raises(ApiError) as error:
        api.create("pods", pod("b", priorityClassName="nope"))
    assert (error.value.code, error.value.reason) == (403, "Forbidden")
    base = {"metadata": {"name": "base"}, "value": 5, "globalDefault": True, "preemptionPolicy": "Never"}
    api.create("priorityclasses.scheduling.k8s.io", base)
    spec = api.create("pods", pod("d"))["spec"]
    assert (spec["priority"], spec["priorityClassName"], spec["preemptionPolicy"]) == (5, "base", "Never")


def test_runtime_classes_add_overhead_and_scheduling(api: LocalApi) -> None:
    toleration = {"key": "kata", "operator": "Exists"}
    runtime = {
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [toleration]},
    }
    api.create("runtimeclasses.node.k8s.io", runtime)
    spec = api.create("pods", pod("a", runtimeClassName="kata"))["spec"]
    assert spec["overhead"] == {"cpu": "250m"}
    assert spec["nodeSelector"] == {"kata": "yes"}
    assert toleration in spec["tolerations"]
    with pytest.raises(ApiError) as error:
        api.create("pods", pod("b", runtimeClassName="nope"))
    assert error.value.code == 403


def test_limit_ranges_fill_and_bound_containers(api: LocalApi) -> None:
    limit = {
        "type": "Container",
        "default": {"cpu": "500m"},
        "max": {"memory": "1Gi"},
        "min": {"cpu": "100m"},
    }
    api.create("limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    got = api.create("pods", pod("a"))["spec"]["containers"][0]["resources"]
    assert got["limits"] == {"cpu": "500m", "memory": "1Gi"}
    assert got["requests"] == {"cpu": "500m", "memory": "1Gi"}
    for resources in ({"requests": {"cpu": "50m"}}, {"limits": {"memory": "2Gi"}}):
        with pytest.raises(ApiError) as error:
            api.create("pods", pod("b", containers=[container(resources=resources)]))
        assert (error.value.code, error.value.reason) == (403, "Forbidden")


@pytest.mark.parametrize(
    ("spec", "field", "reason"),
    [
        ({"containers": []}, "spec.containers", "FieldValueRequired"),
        ({"containers": [{"name": "x"}]}, "spec.containers[0].image", "FieldValueRequired"),
        ({"containers": [{"image": "x"}]}, "spec.containers[0].name", "FieldValueRequired"),
        ({"containers": [container(), container()]}, "spec.containers[1].name", "FieldValueDuplicate"),
        ({"restartPolicy": "Maybe"}, "spec.restartPolicy", "FieldValueNotSupported"),
        ({"nodeSelector": {"a b": ""}}, "spec.nodeSelector", "FieldValueInvalid"),
        ({"tolerations": [{"operator": "Equal"}]}, "spec.tolerations[0].operator", "FieldValueInvalid"),
        (
            {"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z"}]},
            "spec.topologySpreadConstraints[0].maxSkew",
            "FieldValueInvalid",
        ),
        (
            {"containers": [container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}})]},
            "spec.containers[0].resources.requests",
            "FieldValueInvalid",
        ),
        (
            {"containers": [container(resources={"requests": {"gpu": "2"}})]},
            "spec.containers[0].resources.requests[gpu]",
            "FieldValueInvalid",
        ),
        (
            {"containers": [container(volumeMounts=[{"name": "v", "mountPath": "/v"}])]},
            "spec.containers[0].volumeMounts[0].name",
            "FieldValueNotFound",
        ),
        (
            {
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}]}]
                        }
                    }
                }
            },
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0].values",
            "FieldValueRequired",
        ),
    ],
)
def test_pods_that_make_no_sense_are_invalid(
    api: LocalApi, spec: dict[str, Any], field: str, reason: str
) -> None:
    with pytest.raises(ApiError) as error:
        api.create("pods", pod("a", **spec))
    assert (error.value.code, error.value.details["kind"]) == (422, "Pod")
    assert (field, reason) in causes(error)


@pytest.mark.parametrize(
    "spec", [{"containers": {}}, {"priority": "high"}, {"nodeName": 7}, {"tolerations": [7]}]
)
def test_fields_of_the_wrong_type_cannot_be_decoded(api: LocalApi, spec: dict[str, Any]) -> None:
    with pytest.raises(ApiError) as error:
        api.create("pods", pod("a", **spec))
    assert (error.value.code, error.value.reason) == (400, "BadRequest")


@pytest.mark.parametrize("amount", ["much", "1 Gi", "", True, [1]])
def test_amounts_that_are_none_cannot_be_decoded(api: LocalApi, amount: Any) -> None:
    with pytest.raises(ApiError) as error:
        api.create("pods", pod("a", containers=[container(resources={"requests": {"cpu": amount}})]))
    assert error.value.code == 400


def test_of_a_pod_only_a_few_things_may_change(api: LocalApi) -> None:
    api.create("pods", pod("a", schedulingGates=[{"name": "x"}, {"name": "y"}]))

    def change(**spec: Any) -> dict[str, Any]:
        return api.patch("pods", "a", {"spec": spec}, "default", kind="strategic")

    assert (
        change(containers=[{"name": "main", "image": "web:2"}])["spec"]["containers"][0]["image"] == "web:2"
    )
    assert change(activeDeadlineSeconds=60)["metadata"]["generation"] == 3
    kept = api.get("pods", "a", "default")["spec"]["tolerations"]
    assert len(change(tolerations=[*kept, {"key": "a", "operator": "Exists"}])["spec"]["tolerations"]) == 3
    gates = [{"name": "x", "$patch": "delete"}]
    assert change(schedulingGates=gates)["spec"]["schedulingGates"] == [{"name": "y"}]
    for spec in (
        {"nodeName": "n"},
        {"schedulerName": "other"},
        {"priority": 9},
        {"schedulingGates": [{"name": "z"}]},
    ):
        with pytest.raises(ApiError) as error:
            change(**spec)
        assert (error.value.code, causes(error)[0][1]) == (422, "FieldValueForbidden")
    with pytest.raises(ApiError) as error:
        change(tolerations=[])
    assert error.value.code == 422


def test_a_node_starts_not_ready_and_gives_away_all_it_has(api: LocalApi) -> None:
    made = api.create("nodes", node("n"))
    assert made["spec"]["taints"] == [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert made["status"]["allocatable"] == made["status"]["capacity"]
    again = api.create("nodes", {**node("m"), "spec": {"taints": made["spec"]["taints"]}})
    assert len(again["spec"]["taints"]) == 1


def test_a_nodes_identity_is_set_once(api: LocalApi) -> None:
    api.create("nodes", node("n"))
    api.patch("nodes", "n", {"spec": {"providerID": "aws:///a/i-1"}})
    with pytest.raises(ApiError) as error:
        api.patch("nodes", "n", {"spec": {"providerID": "aws:///a/i-2"}})
    assert causes(error) == [("spec.providerID", "FieldValueForbidden")]
    with pytest.raises(ApiError) as error:
        api.patch("nodes", "n", {"spec": {"taints": [{"key": "a", "effect": "Sometimes"}]}})
    assert causes(error) == [("metadata.taints[0].effect", "FieldValueNotSupported")]


def test_workload_defaults(api: LocalApi) -> None:
    body = deployment("web")
    del body["spec"]["replicas"]
    spec = api.create("deployments.apps", body)["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": "25%", "maxSurge": "25%"}
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    body = {**deployment("set"), "kind": "StatefulSet"}
    spec = api.create("statefulsets.apps", body)["spec"]
    assert spec["podManagementPolicy"] == "OrderedReady"
    assert spec["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert spec["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    body = {**deployment("ds"), "kind": "DaemonSet"}
    del body["spec"]["replicas"]
    made = api.create("daemonsets.apps", body)
    assert made["spec"]["updateStrategy"]["rollingUpdate"] == {"maxUnavailable": 1, "maxSurge": 0}
    assert made["status"]["desiredNumberScheduled"] == 0
    assert api.create("replicasets.apps", {**deployment("rs"), "kind": "ReplicaSet"})["spec"]["replicas"] == 1


def test_a_selector_must_match_its_template_and_never_changes(api: LocalApi) -> None:
    with pytest.raises(ApiError) as error:
        api.create("deployments.apps", deployment("web", selector={"matchLabels": {"app": "other"}}))
    assert ("spec.template.metadata.labels", "FieldValueInvalid") in causes(error)
    api.create("deployments.apps", deployment("web"))
    labels = {"app": "web", "x": "y"}
    patch = {"spec": {"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}}}
    with pytest.raises(ApiError) as error:
        api.patch("deployments.apps", "web", patch, "default")
    assert causes(error) == [("spec.selector", "FieldValueInvalid")]


def test_a_job_selects_its_own_pods(api: LocalApi) -> None:
    template = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
    made = api.create("jobs.batch", {"metadata": {"name": "j"}, "spec": {"template": template}})
    spec, uid = made["spec"], made["metadata"]["uid"]
    assert (spec["completions"], spec["parallelism"], spec["backoffLimit"]) == (1, 1, 6)
    assert spec["completionMode"] == "NonIndexed"
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}
    assert spec["template"]["metadata"]["labels"] == {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": "j",
        "controller-uid": uid,
        "job-name": "j",
    }
    template["spec"] = {"containers": [container()]}
    with pytest.raises(ApiError) as error:
        api.create("jobs.batch", {"metadata": {"name": "k"}, "spec": {"template": template}})
    assert causes(error) == [("spec.template.spec.restartPolicy", "FieldValueRequired")]


def test_storage_defaults_and_protection(api: LocalApi) -> None:
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    body = {"metadata": {"name": "fast", "annotations": annotations}, "provisioner": "x"}
    made = api.create("storageclasses.storage.k8s.io", body)
    assert (made["reclaimPolicy"], made["volumeBindingMode"]) == ("Delete", "Immediate")
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1024Mi"}}}
    made = api.create("persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": claim})
    assert made["spec"]["storageClassName"] == "fast"
    assert made["spec"]["volumeMode"] == "Filesystem"
    assert made["spec"]["resources"]["requests"]["storage"] == "1Gi"
    assert made["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    assert made["status"] == {"phase": "Pending"}
    explicit = {**claim, "storageClassName": ""}
    made = api.create("persistentvolumeclaims", {"metadata": {"name": "d"}, "spec": explicit})
    assert made["spec"]["storageClassName"] == ""
    volume = {
        "metadata": {"name": "v"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    }
    assert api.create("persistentvolumes", volume)["metadata"]["finalizers"] == [
        "kubernetes.io/pv-protection"
    ]
    with pytest.raises(ApiError) as error:
        api.patch("storageclasses.storage.k8s.io", "fast", {"provisioner": "y"})
    assert error.value.code == 422


def test_services_get_addresses_of_their_own(api: LocalApi) -> None:
    spec = {"ports": [{"port": 80}], "selector": {"app": "web"}}
    one = api.create("services", {"metadata": {"name": "one"}, "spec": spec})["spec"]
    two = api.create("services", {"metadata": {"name": "two"}, "spec": spec})["spec"]
    assert one["clusterIP"] != two["clusterIP"]
    assert one["ports"] == [{"port": 80, "protocol": "TCP", "targetPort": 80}]
    assert (one["type"], one["sessionAffinity"]) == ("ClusterIP", "None")
    none = api.create("services", {"metadata": {"name": "none"}, "spec": {**spec, "clusterIP": "None"}})[
        "spec"
    ]
    assert none["clusterIP"] == "None"
    again = api.update("services", {"metadata": {"name": "one", "namespace": "default"}, "spec": spec})
    assert again["spec"]["clusterIP"] == one["clusterIP"]


def test_secrets_fold_their_text(api: LocalApi) -> None:
    body = {"metadata": {"name": "s"}, "data": {"a": "eA=="}, "stringData": {"b": "text"}}
    made = api.create("secrets", body)
    assert made["data"] == {"a": "eA==", "b": "dGV4dA=="}
    assert made["type"] == "Opaque"
    assert "stringData" not in made


def test_immutable_config_keeps_its_promise(api: LocalApi) -> None:
    api.create("configmaps", {**config_map("a", x="1"), "immutable": True})
    with pytest.raises(ApiError) as error:
        api.patch("configmaps", "a", {"data": {"x": "2"}}, "default")
    assert causes(error) == [("data", "FieldValueForbidden")]


def test_a_budget_has_one_measure(api: LocalApi) -> None:
    with pytest.raises(ApiError) as error:
        api.create("poddisruptionbudgets.policy", budget("b", minAvailable=1, maxUnavailable=1))
    assert causes(error) == [("spec", "FieldValueInvalid")]
    with pytest.raises(ApiError) as error:
        api.create("poddisruptionbudgets.policy", budget("b", minAvailable="half"))
    assert causes(error) == [("spec.minAvailable", "FieldValueInvalid")]


def test_empty_lists_and_maps_are_as_good_as_absent(api: LocalApi) -> None:
    made = api.create(
        "pods", pod("a", imagePullSecrets=[], nodeSelector={}, volumes=[{"name": "v", "emptyDir": {}}])
    )
    assert not {"imagePullSecrets", "nodeSelector"} & made["spec"].keys()
    assert made["spec"]["volumes"] == [{"name": "v", "emptyDir": {}}]
    again = {**made, "spec": {**made["spec"], "hostAliases": []}}
    assert api.update("pods", again)["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def test_gated_pods_say_so(api: LocalApi) -> None:
    (condition,) = api.create("pods", pod("a", schedulingGates=[{"name": "x"}]))["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "SchedulingGated")


def test_a_daemon_set_counts_its_templates(api: LocalApi) -> None:
    body = {**deployment("ds"), "kind": "DaemonSet"}
    del body["spec"]["replicas"]
    api.create("daemonsets.apps", body)
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "web:2"}]}}}}
    after = api.patch("daemonsets.apps", "ds", image, "default", kind="strategic")
    assert after["metadata"]["annotations"]["deprecated.daemonset.template.generation"] == "2"


def test_leases_keep_microseconds(api: LocalApi) -> None:
    spec = {
        "holderIdentity": "me",
        "renewTime": "2030-01-01T00:00:00.000001Z",
        "acquireTime": "2030-01-01T01:00:00.000000+01:00",
    }
    made = api.create("leases.coordination.k8s.io", {"metadata": {"name": "l"}, "spec": spec})
    assert made["spec"]["renewTime"] == "2030-01-01T00:00:00.000001Z"
    assert made["spec"]["acquireTime"] == "2030-01-01T00:00:00.000000Z"
    for text in ("2030-01-01T00:00:00Z", "2030-01-01T00:00:00.5Z"):
        with pytest.raises(ApiError) as error:
            api.patch("leases.coordination.k8s.io", "l", {"spec": {"renewTime": text}}, "default")
        assert error.value.code == 400


def test_events_live_beside_what_they_are_about(api: LocalApi) -> None:
    def event(namespace: str, about: str) -> dict[str, Any]:
        involved = {"kind": "Pod", "name": "p", "namespace": about}
        return {"metadata": {"generateName": "e-", "namespace": namespace}, "involvedObject": involved}

    api.create("events", event("default", "default"))
    api.create("events", event("default", ""))
    for namespace, about in (("kube-system", "default"), ("kube-public", "")):
        with pytest.raises(ApiError) as error:
            api.create("events", event(namespace, about))
        assert error.value.code == 422


def test_user_priority_classes_stay_below_the_systems(api: LocalApi) -> None:
    for name, value in (("big", 1_000_000_001), ("system-mine", 1)):
        with pytest.raises(ApiError) as error:
            api.create("priorityclasses.scheduling.k8s.io", {"metadata": {"name": name}, "value": value})
        assert error.value.code == 422

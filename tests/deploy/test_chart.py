"""The charts, rendered by a real helm: names, values, permissions, old names and refusals."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.settings import read_settings
from dovetail.settings.table import SETTINGS
from support.helm import CHARTS, ChartError, by_name, helm, rendered

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "hack"))
import write_chart  # type: ignore[import-not-found]  # noqa: E402  # hack is not a package

Json = dict[str, Any]
# Values of settings that are empty by default and do not take any text.
SPECIAL = {
    "CLUSTER_ENDPOINT": "https://example.test",
    "DECISION_LOG": "log",
    "RECORDING": "file:/somewhere",
    "DISRUPTION_RATE": "10/1h",
    "NODE_EXTRA_HOURLY": "0.01/node",
    "RULE_PRICES": "@weekly",
    "SCHEDULER_CONFIG": "{}",
    "ZONAL_SHIFT_ENDPOINT_URL": "https://example.test",
    "ZONAL_SHIFT_TOPIC_ARN": "arn:aws:sns:us-west-2:111122223333:shifts",
}
READ, CHANGE = ("get", "list", "watch"), ("update", "patch")
# operations.md §4.1: who may do what to what.
CORE_RULES = {
    (
        "karpenter.sh",
        "nodepools nodepools/status nodeclaims nodeclaims/status nodeoverlays nodeoverlays/status",
        READ,
    ),
    ("autoscaling.x-k8s.io", "capacitybuffers capacitybuffers/status", READ),
    (
        "",
        "podtemplates pods nodes persistentvolumes persistentvolumeclaims "
        "replicationcontrollers namespaces events",
        READ,
    ),
    ("storage.k8s.io", "storageclasses csinodes volumeattachments", READ),
    ("apps", "daemonsets deployments replicasets statefulsets", READ),
    ("policy", "poddisruptionbudgets", READ),
    ("karpenter.sh", "nodeclaims nodeclaims/status", ("create", "delete", *CHANGE)),
    ("karpenter.sh", "nodepools nodepools/status nodeoverlays/status", CHANGE),
    ("autoscaling.x-k8s.io", "capacitybuffers/status", CHANGE),
    ("", "events", ("create", "patch")),
    ("", "nodes", ("patch", "update", "delete")),
    ("", "pods/eviction", ("create",)),
    ("", "pods", ("delete",)),
}


def container(objects: list[Json], name: str = "karpenter") -> Json:
    found: Json = by_name(objects, "Deployment", name)["spec"]["template"]["spec"]["containers"][0]
    return found


def variables(objects: list[Json]) -> dict[str, str]:
    return {each["name"]: each["value"] for each in container(objects)["env"] if "value" in each}


def rules(role: Json) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (rule["apiGroups"][0], " ".join(rule["resources"]), tuple(rule["verbs"])) for rule in role["rules"]
    }


@pytest.mark.parametrize("chart", ["dovetail", "dovetail-crd"])
def test_helm_finds_nothing_wrong_with_a_chart(chart: str) -> None:
    assert "0 chart(s) failed" in helm(
        "lint", "--strict", str(CHARTS / chart), "--set", "settings.clusterName=c"
    )


def test_generated_files_of_the_charts_are_current() -> None:
    for path, text in write_chart.files().items():
        assert (CHARTS / path).read_text(encoding="utf-8") == text, f"{path}: run make chart"


@pytest.mark.spec("operations-18.2")
def test_the_objects_have_upstreams_names_and_labels() -> None:
    objects = rendered()

    assert sorted((each["kind"], each["metadata"]["name"]) for each in objects) == [
        ("ClusterRole", "karpenter"),
        ("ClusterRole", "karpenter-admin"),
        ("ClusterRole", "karpenter-core"),
        ("ClusterRole", "karpenter-planning"),
        ("ClusterRoleBinding", "karpenter"),
        ("ClusterRoleBinding", "karpenter-core"),
        ("ClusterRoleBinding", "karpenter-planning"),
        ("Deployment", "karpenter"),
        ("NetworkPolicy", "karpenter-metrics"),  # upstream has none
        ("PodDisruptionBudget", "karpenter"),
        ("Role", "karpenter"),
        ("Role", "karpenter-dns"),
        ("RoleBinding", "karpenter"),
        ("RoleBinding", "karpenter-dns"),
        ("Service", "karpenter"),
        ("ServiceAccount", "karpenter"),
    ]
    for each in objects:
        labels = each["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "karpenter"
        assert labels["app.kubernetes.io/instance"] == "karpenter"
        assert labels["app.kubernetes.io/managed-by"] == "Helm"
        assert {"helm.sh/chart", "app.kubernetes.io/version"} <= labels.keys()
    service = by_name(objects, "Service", "karpenter")["spec"]
    assert service["ports"] == [
        {"name": "http-metrics", "port": 8080, "targetPort": "http-metrics", "protocol": "TCP"}
    ]
    chosen = by_name(objects, "Deployment", "karpenter")["spec"]["selector"]["matchLabels"]
    assert (
        chosen
        == service["selector"]
        == {
            "app.kubernetes.io/name": "karpenter",
            "app.kubernetes.io/instance": "karpenter",
        }
    )


def test_the_controllers_pods_carry_a_label_that_no_selector_asks_for() -> None:
    def labels_of(values: dict[str, Any]) -> dict[str, str]:
        found = by_name(rendered(values), "Deployment", "karpenter")["spec"]
        assert "karpenter" not in found["selector"]["matchLabels"], "an upgrade could not change it"
        return dict(found["template"]["metadata"]["labels"])

    usual = {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "karpenter"}
    assert labels_of({}) == usual | {"karpenter": "controller"}
    asked = {"podLabels": {"karpenter": "mine", "team": "x", "app.kubernetes.io/name": "other"}}
    assert labels_of(asked) == usual | {"karpenter": "mine", "team": "x"}


@pytest.mark.spec("operations-18.2")
def test_permissions_are_exactly_those_upstream_has() -> None:
    # Without planning, and with nothing left to be undone of a feature upstream does not have.
    objects = rendered({"rbac": {"planning": False}, "zonalShift": {"onDisable": "leave"}})

    assert rules(by_name(objects, "ClusterRole", "karpenter-core")) == CORE_RULES
    assert rules(by_name(objects, "ClusterRole", "karpenter")) == {
        ("karpenter.k8s.aws", "ec2nodeclasses", READ),
        ("karpenter.k8s.aws", "ec2nodeclasses ec2nodeclasses/status", ("patch", "update")),
    }
    admin = by_name(objects, "ClusterRole", "karpenter-admin")
    all_but_update = (*READ, "create", "delete", "patch")
    assert rules(admin) == {
        ("karpenter.sh", "nodepools nodepools/status nodeclaims nodeclaims/status", all_but_update),
        ("karpenter.k8s.aws", "ec2nodeclasses", all_but_update),
    }
    assert admin["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-admin"] == "true"
    lease, own_lease = by_name(objects, "Role", "karpenter")["rules"]
    assert lease == {
        "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "watch", "create"],
    }  # fmt: skip
    assert (own_lease["resourceNames"], own_lease["verbs"]) == (
        ["karpenter-leader-election"],
        ["patch", "update"],
    )
    (dns,) = by_name(objects, "Role", "karpenter-dns")["rules"]
    assert (dns["resources"], dns["resourceNames"], dns["verbs"]) == (["services"], ["kube-dns"], ["get"])
    assert not [each for each in objects if each["metadata"]["name"].endswith("planning")]


def test_every_role_is_bound_to_the_controllers_account() -> None:
    objects = rendered({"serviceAccount": {"name": "chosen"}}, namespace="elsewhere")

    for each in objects:
        if each["kind"].endswith("Binding"):
            assert each["subjects"] == [
                {"kind": "ServiceAccount", "name": "chosen", "namespace": "elsewhere"}
            ]
            assert by_name(objects, each["roleRef"]["kind"], each["roleRef"]["name"])


@pytest.mark.spec("operations-18.1")
def test_every_setting_has_a_value_and_the_controller_reads_what_the_chart_gives() -> None:
    below: dict[str, Json] = {"settings": {}, "zonalShift": {"enabled": True, "tlsSecret": "tls"}}
    wanted = {}
    for setting in SETTINGS:
        variable = setting.variable
        if variable in (*write_chart.ELSEWHERE, *write_chart.ZONAL_FIXED) or setting.provider == "kwok":
            continue
        text = setting.kind.show(setting.kind.read(setting.default)) or "some-text"
        wanted[variable] = text = SPECIAL.get(variable, text)
        zonal = write_chart.zonal_name(variable)
        below["zonalShift" if zonal else "settings"][zonal or write_chart.value_name(variable)] = text
    wanted["ENABLE_ZONAL_SHIFT"] = "true"

    objects = rendered(below)
    shifts = by_name(objects, "ConfigMap", "karpenter-zonal-shift")["data"]
    watched = {"ZONAL_SHIFT_POLICY": shifts["policy"], "ZONAL_SHIFT_DRY_RUN": shifts["dry-run"]}
    given = variables(objects) | watched

    assert {name: given[name] for name in wanted} == wanted
    assert read_settings((), given, provider="aws").cluster_name == "some-text"


def test_a_value_of_false_or_zero_is_a_value() -> None:
    # Upstream's chart drops them: there, DRA cannot be switched on, nor can an overhead of nothing be said.
    given = variables(rendered({"settings": {"ignoreDRARequests": False, "vmMemoryOverheadPercent": 0}}))

    assert (given["IGNORE_DRA_REQUESTS"], given["VM_MEMORY_OVERHEAD_PERCENT"]) == ("false", "0")


def test_settings_may_hold_template_expressions() -> None:
    given = variables(rendered({"settings": {"clusterName": "{{ .Release.Name }}-cluster"}}))

    assert given["CLUSTER_NAME"] == "karpenter-cluster"


def test_all_gates_are_always_said() -> None:
    given = variables(rendered({"settings": {"featureGates": {"nodeRepair": True}}}))

    assert given["FEATURE_GATES"].split(",") == [
        "CapacityBuffer=false",
        "NodeOverlay=false",
        "NodeRepair=true",
        "ReservedCapacity=true",
        "SpotToSpotConsolidation=false",
        "StaticCapacity=false",
    ]


def test_the_container_is_locked_down() -> None:
    main = container(
        rendered({"controller": {"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}})
    )

    assert main["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }


@pytest.mark.spec("operations-18.4")
def test_probes_and_ports_are_those_of_the_process() -> None:
    main = container(rendered({"controller": {"healthProbe": {"port": 9091}, "metrics": {"port": 9090}}}))

    assert {each["name"]: each["containerPort"] for each in main["ports"]} == {
        "http-metrics": 9090,
        "http": 9091,
    }
    assert main["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "http"}
    assert (main["livenessProbe"]["initialDelaySeconds"], main["livenessProbe"]["timeoutSeconds"]) == (30, 30)
    assert main["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert (main["readinessProbe"]["initialDelaySeconds"], main["readinessProbe"]["timeoutSeconds"]) == (
        5,
        30,
    )


def test_selectors_left_out_are_the_charts_own() -> None:
    pod = by_name(rendered(release="mine"), "Deployment", "mine-karpenter")["spec"]["template"]["spec"]

    own = {"matchLabels": {"app.kubernetes.io/name": "karpenter", "app.kubernetes.io/instance": "mine"}}
    (term,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"] == own
    assert pod["topologySpreadConstraints"][0]["labelSelector"] == own


def test_a_service_monitor_needs_its_api() -> None:
    values = {"serviceMonitor": {"enabled": True, "sampleLimit": 0, "endpointConfig": {"interval": "15s"}}}

    assert not [each for each in rendered(values) if each["kind"] == "ServiceMonitor"]
    (monitor,) = (
        each
        for each in rendered(values, apis=("monitoring.coreos.com/v1",))
        if each["kind"] == "ServiceMonitor"
    )
    assert monitor["spec"]["sampleLimit"] == 0
    assert monitor["spec"]["endpoints"] == [{"port": "http-metrics", "path": "/metrics", "interval": "15s"}]


OLD: list[tuple[Json, str, str]] = [
    ({"clusterName": "old"}, "CLUSTER_NAME", "old"),
    ({"controller": {"clusterName": "old"}}, "CLUSTER_NAME", "old"),
    ({"settings": {"aws": {"clusterName": "old"}}}, "CLUSTER_NAME", "old"),
    ({"settings": {"aws": {"interruptionQueueName": "q"}}}, "INTERRUPTION_QUEUE", "q"),
    ({"settings": {"aws": {"isolatedVPC": True}}}, "ISOLATED_VPC", "true"),
    ({"settings": {"aws": {"reservedENIs": "2"}}}, "RESERVED_ENIS", "2"),
    ({"settings": {"aws": {"vmMemoryOverheadPercent": 0.1}}}, "VM_MEMORY_OVERHEAD_PERCENT", "0.1"),
    ({"controller": {"batchMaxDuration": "20s"}}, "BATCH_MAX_DURATION", "20s"),
    ({"controller": {"logLevel": "debug"}}, "LOG_LEVEL", "debug"),
    ({"logConfig": {"logLevel": {"global": "error"}}}, "LOG_LEVEL", "error"),
    ({"controller": {"outputPaths": ["stderr"]}}, "LOG_OUTPUT_PATHS", "stderr"),
]


@pytest.mark.spec("operations-18.2")
@pytest.mark.parametrize(("values", "variable", "expected"), OLD, ids=lambda each: str(each)[:40])
def test_an_old_name_is_understood(values: Json, variable: str, expected: str) -> None:
    named = variable == "CLUSTER_NAME"
    objects = rendered(
        {**values, "settings": {**values.get("settings", {}), "clusterName": "" if named else "c"}}
    )

    assert variables(objects)[variable] == expected


def test_old_names_without_a_successor_are_taken_and_ignored() -> None:
    values = {
        "webhook": {"enabled": True, "port": 8443},
        "logEncoding": "console",
        "settings": {"featureGates": {"drift": True}, "aws": {"tags": {"a": "b"}, "enablePodENI": True}},
    }

    assert "Drift" not in variables(rendered(values))["FEATURE_GATES"]


def test_replicas_and_image_of_old_charts_still_count() -> None:
    deployment = by_name(
        rendered({"controller": {"replicas": 5, "image": "somewhere/else:1"}}), "Deployment", "karpenter"
    )

    assert deployment["spec"]["replicas"] == 5
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "somewhere/else:1"


def test_every_old_name_is_known_to_the_schema() -> None:
    allowed = write_chart.schema()
    for path in write_chart.old_names():
        inside = allowed
        for step in path.split("."):
            assert step in inside["properties"], path
            inside = inside["properties"][step]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"replica": 3}, "replica"),
        ({"settings": {"clusterNme": "x"}}, "clusterNme"),
        ({"replicas": "two"}, "/replicas"),
        ({"settings": {"batchMaxDuration": "ten"}}, "/settings/batchMaxDuration"),
        ({"controller": {"metrics": {"port": 99999}}}, "/controller/metrics/port"),
        ({"provider": "gcp"}, "/provider"),
        ({"settings": {"planner": "magic"}}, "/settings/planner"),
    ],
)
def test_a_wrong_value_is_refused_with_its_place(values: Json, told: str) -> None:
    with pytest.raises(ChartError, match=told):
        rendered(values)


def test_without_a_cluster_name_nothing_is_rendered() -> None:
    with pytest.raises(ChartError, match="give the name of the cluster"):
        rendered({"settings": {"clusterName": ""}})


def test_the_kwok_provider_needs_no_cluster_name_and_other_permissions() -> None:
    objects = rendered({"provider": "kwok"})

    assert container(objects)["args"] == ["controller", "--provider", "kwok"]
    assert ("karpenter.kwok.sh", "kwoknodeclasses", READ) in rules(
        by_name(objects, "ClusterRole", "karpenter")
    )
    assert read_settings((), variables(objects), provider="kwok").batch_max_duration.total_seconds() == 10


def test_the_crd_chart_holds_the_five_definitions() -> None:
    objects = rendered({"additionalAnnotations": {"a": "b"}}, chart="dovetail-crd")

    assert [each["metadata"]["name"] for each in objects] == [
        "capacitybuffers.autoscaling.x-k8s.io",
        "ec2nodeclasses.karpenter.k8s.aws",
        "nodeclaims.karpenter.sh",
        "nodeoverlays.karpenter.sh",
        "nodepools.karpenter.sh",
    ]
    assert all(each["metadata"]["annotations"]["a"] == "b" for each in objects)
    plain = rendered(chart="dovetail-crd")
    own = [
        yaml.safe_load(path.read_text()) for path in sorted((ROOT / "deploy" / "crds" / "aws").glob("*.yaml"))
    ]
    assert plain == own


@pytest.mark.parametrize(
    ("value", "name", "folder"),
    [
        ("decisionLog", "decision-log", "/var/lib/dovetail/decisions"),
        ("recording", "recording", "/var/lib/dovetail/recording"),
    ],
)
def test_the_folder_of_a_log_or_a_recording_is_mounted(value: str, name: str, folder: str) -> None:
    def volumes(**values: Json) -> tuple[list[Json], list[Json]]:
        objects = rendered(values)
        spec = by_name(objects, "Deployment", "karpenter")["spec"]["template"]["spec"]
        return spec["volumes"], container(objects)["volumeMounts"]

    assert all(each["name"] != name for listed in volumes() for each in listed)
    places = f"log,file:{folder},s3://trail/prod" if value == "decisionLog" else f"file:{folder}"
    settings = {"clusterName": "c", value: places}
    kept, mounted = volumes(settings=settings)
    assert {"name": name, "emptyDir": {}} in kept
    assert {"name": name, "mountPath": folder} in mounted
    claim = {"persistentVolumeClaim": {"claimName": "decisions"}}
    kept, _ = volumes(settings=settings, **{value: {"volume": claim}})
    assert {"name": name, **claim} in kept

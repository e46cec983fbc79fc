"""The chart's optional parts: the router, zonal shift inside and beside the controller, the dashboard."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import yaml

from dovetail.app.history_source import LeaderHistory
from dovetail.app.zonal_actions import KINDS
from dovetail.bus.config import FIELDS, KEYS, read_config
from dovetail.errors import Misconfigured
from dovetail.history.ring import HistoryQuery
from dovetail.runtime.clock import SystemClock
from dovetail.settings import POLICY_FIELDS, read_settings
from dovetail.settings.table import BY_VARIABLE, SETTINGS
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.faults import ApiCall
from dovetail.sim.transport import LocalTransport
from dovetail.zonal.ingest.sns_endpoint import TLS_DIRECTORY
from support.helm import ChartError, by_name, rendered

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "hack"))
import write_chart  # type: ignore[import-not-found]  # noqa: E402  # hack is not a package

Json = dict[str, Any]
MONITORING = ("monitoring.coreos.com/v1",)
REGION = {"region": "us-east-2"}
ALONE = {"controller": {"enabled": False}, "zonalShift": {"standalone": {"enabled": True}}}
PARTS: dict[str, Json] = {
    "router": {"router": {"enabled": True, "config": REGION}},
    "zonal-shift": ALONE,
    "dashboard": {"dashboard": {"enabled": True}},
    "shadow": {"shadow": {"enabled": True}},
}
TOPICS = {"topicArn": ["arn:aws:sns:us-west-2:111122223333:a"], "tlsSecret": "sns-tls"}


def deployment(objects: list[Json], part: str) -> Json:
    return by_name(objects, "Deployment", f"karpenter-{part}" if part else "karpenter")


def pod(objects: list[Json], part: str) -> Json:
    found: Json = deployment(objects, part)["spec"]["template"]["spec"]
    return found


def container(objects: list[Json], part: str) -> Json:
    (found,) = pod(objects, part)["containers"]
    return dict(found)


def environment(objects: list[Json], part: str = "") -> dict[str, str]:
    """What the process is told, with what it is told by reference."""
    maps = {each["metadata"]["name"]: each["data"] for each in objects if each["kind"] == "ConfigMap"}
    found = {}
    for each in container(objects, part)["env"]:
        if "value" in each:
            found[each["name"]] = each["value"]
        elif reference := each["valueFrom"].get("configMapKeyRef"):
            found[each["name"]] = maps[reference["name"]][reference["key"]]
    return found


def of_part(objects: list[Json], part: str) -> list[Json]:
    return [
        each
        for each in objects
        if each["metadata"].get("labels", {}).get("app.kubernetes.io/component") == part
    ]


def allowed(role: Json) -> dict[str, set[str]]:
    """The verbs, by `resource.group`."""
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource in rule["resources"]:
            found.setdefault(f"{resource}.{rule['apiGroups'][0]}".rstrip("."), set()).update(rule["verbs"])
    return found


def test_none_is_there_unless_asked_for() -> None:
    objects = rendered(apis=MONITORING)

    assert [each["metadata"]["name"] for each in objects if each["kind"] == "Deployment"] == ["karpenter"]
    assert not [each for each in objects if "app.kubernetes.io/component" in each["metadata"]["labels"]]


@pytest.mark.parametrize("part", PARTS)
def test_a_part_runs_locked_down_under_an_account_of_its_own(part: str) -> None:
    objects = rendered(PARTS[part])
    spec, main = pod(objects, part), container(objects, part)

    assert spec["serviceAccountName"] == f"karpenter-{part}"
    account = by_name(objects, "ServiceAccount", f"karpenter-{part}")
    assert account["automountServiceAccountToken"] is False
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert main["securityContext"] == {
        "privileged": False,
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "runAsUser": 65532,
        "runAsGroup": 65532,
        "capabilities": {"drop": ["ALL"]},
    }
    ports = {each["name"] for each in main["ports"]}
    assert {main[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")} <= ports


@pytest.mark.parametrize("part", PARTS)
def test_the_pods_of_a_part_answer_to_no_selector_but_its_own(part: str) -> None:
    objects = rendered({**PARTS[part], "controller": {}} if part != "zonal-shift" else PARTS[part])
    own = deployment(objects, part)["spec"]["template"]["metadata"]["labels"]
    selectors = {
        (each["kind"], each["metadata"]["name"]): each["spec"]["selector"].get(
            "matchLabels", each["spec"]["selector"]
        )
        for each in objects
        if each["kind"] in ("Service", "PodDisruptionBudget", "Deployment")
    }

    chosen = {name for (_, name), labels in selectors.items() if labels.items() <= own.items()}
    assert chosen == {f"karpenter-{part}"}
    policies = [each for each in of_part(objects, part) if each["kind"] == "NetworkPolicy"]
    assert all(each["spec"]["podSelector"]["matchLabels"].items() <= own.items() for each in policies)


@pytest.mark.parametrize("part", ["router", "zonal-shift"])
def test_a_part_is_kept_and_watched(part: str) -> None:
    objects = rendered({**PARTS[part], "serviceMonitor": {"enabled": True}}, apis=MONITORING)

    budget = by_name(objects, "PodDisruptionBudget", f"karpenter-{part}")
    assert budget["spec"]["maxUnavailable"] == 1
    service = by_name(objects, "Service", f"karpenter-{part}")
    monitor = by_name(objects, "ServiceMonitor", f"karpenter-{part}")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"] == [{"port": "http-metrics", "path": "/metrics"}]
    assert pod(objects, part)["priorityClassName"] == "system-cluster-critical"
    assert deployment(objects, part)["spec"]["replicas"] == 2


@pytest.mark.spec("operations-18.1")
def test_every_variable_of_a_part_is_a_setting() -> None:
    objects = rendered({**ALONE, "dashboard": {"enabled": True}})

    for part in ("zonal-shift", "dashboard"):
        given = environment(objects, part)
        assert set(given) <= set(BY_VARIABLE), part
        assert read_settings((), given, provider="aws").cluster_name == "test-cluster"


def test_every_setting_of_zonal_shift_is_a_value_and_reaches_the_process_alone_too() -> None:
    zonal = {write_chart.zonal_name(each.variable): each for each in SETTINGS}
    zonal.pop("")
    special = {"topicArn": "arn:a,arn:b", "endpointUrl": "https://example.test"}
    texts = {
        name: special.get(name, each.kind.show(each.kind.read(each.default)) or "text")
        for name, each in zonal.items()
    }

    objects = rendered({**ALONE, "zonalShift": {**texts, "tlsSecret": "t", "standalone": {"enabled": True}}})

    given = environment(objects, "zonal-shift")
    assert {each.variable: texts[name] for name, each in zonal.items()}.items() <= given.items()
    assert {"ZONAL_SHIFT_POLICY", "ZONAL_SHIFT_DRY_RUN", "ZONAL_SHIFT_QUEUE"} <= given.keys()


def test_every_field_of_the_policy_is_a_value_and_reaches_the_map_and_no_variable() -> None:
    texts = {
        write_chart.zonal_name(each.variable): each.kind.show(each.kind.read(each.default)) or "text"
        for each in POLICY_FIELDS
    }
    for on in ({"enabled": True}, {"standalone": {"enabled": True}}):
        alone = "standalone" in on
        given = {"controller": {"enabled": not alone}, "zonalShift": {**on, **texts}}
        objects = rendered(given)
        data = by_name(objects, "ConfigMap", "karpenter-zonal-shift")["data"]
        wanted = {each.key: texts[write_chart.zonal_name(each.variable)] for each in POLICY_FIELDS}
        assert {key: data[key] for key in wanted} == wanted
        old = {each.variable for each in POLICY_FIELDS}
        assert not old & environment(objects, "zonal-shift" if alone else "").keys()


def test_a_field_that_is_read_at_the_start_restarts_the_pods_and_others_do_not() -> None:
    def pods(**fields: str) -> Json:
        template: Json = deployment(rendered({"zonalShift": {"enabled": True, **fields}}), "")["spec"][
            "template"
        ]
        return template

    assert pods() == pods(minHold="1m", restoreBatch="50%", observer="true")
    names = [write_chart.zonal_name(each.variable) for each in POLICY_FIELDS if not each.live]
    for name in names:
        value = {"rebalance": "Report", "rehearsal": "@weekly", "snsCaFile": "/f"}.get(name, "true")
        assert pods(**{name: value}) != pods(), name


def test_policy_and_dry_run_are_changed_without_a_restart() -> None:
    before, after = (
        rendered({"zonalShift": {"enabled": True, "dryRun": dry, "policy": policy}})
        for dry, policy in ((False, "manual=Enforce"), ("client", "manual=Observe"))
    )

    assert deployment(before, "") == deployment(after, "")
    assert by_name(after, "ConfigMap", "karpenter-zonal-shift")["data"] == {
        "policy": "manual=Observe",
        "dry-run": "client",
    }
    given = environment(after)
    assert given["ZONAL_SHIFT_CONFIG_MAP"] == "kube-system/karpenter-zonal-shift"
    assert given["ENABLE_ZONAL_SHIFT"] == "true"
    role = by_name(after, "Role", "karpenter")
    (watched,) = (rule for rule in role["rules"] if rule["resources"] == ["configmaps"])
    assert watched["resourceNames"] == ["karpenter-zonal-shift"]
    assert set(watched["verbs"]) == {"get", "list", "watch"}


@pytest.mark.spec("zonal-E29")
def test_permissions_outlive_the_switch_while_shifts_are_to_be_restored() -> None:
    off = {"mode": "Both", "enabled": False}
    verbs = {
        choice: allowed(
            by_name(
                rendered({"zonalShift": {**off, "onDisable": choice}}, apis=("dovetail.sh/v1alpha1",)),
                "ClusterRole",
                "karpenter",
            )
        )
        for choice in ("restore", "leave")
    }

    assert {"list", "patch", "delete"} <= verbs["restore"]["zoneshifts.dovetail.sh"]
    # Stand-ins that a shift made are taken away again.
    assert verbs["restore"]["nodepools.karpenter.sh"] == {"create", "delete"}
    assert not {"zoneshifts.dovetail.sh", "nodepools.karpenter.sh"} & verbs["leave"].keys()


def test_a_feature_that_was_never_on_has_no_permissions() -> None:
    objects = rendered({})

    assert "zoneshifts.dovetail.sh" not in allowed(by_name(objects, "ClusterRole", "karpenter"))
    told = {each["name"]: each.get("value") for each in container(objects, "")["env"]}
    assert told["ZONAL_SHIFT_ON_DISABLE"] == "leave"


@pytest.mark.parametrize("values", [{}, {"router": {"enabled": True, "config": {"region": "us-east-2"}}}])
def test_of_a_pod_only_the_metrics_can_be_reached(values: Json) -> None:
    prometheus = [{"namespaceSelector": {"matchLabels": {"team": "sight"}}}]
    objects = rendered({**values, "networkPolicy": {"metricsFrom": prometheus}})
    policies = {tuple(sorted(each["spec"]["podSelector"]["matchLabels"].items())): each["spec"]
                for each in objects if each["kind"] == "NetworkPolicy"}  # fmt: skip
    chosen = [
        tuple(sorted(each["spec"]["selector"]["matchLabels"].items()))
        for each in objects
        if each["kind"] == "Deployment"
    ]

    assert set(chosen) == set(policies)
    for each in policies.values():
        assert each["policyTypes"] == ["Ingress"]
        assert each["ingress"] == [{"ports": [{"port": 8080, "protocol": "TCP"}], "from": prometheus}]
    assert not [
        each
        for each in rendered({**values, "networkPolicy": {"enabled": False}})
        if each["kind"] == "NetworkPolicy"
    ]


def test_buying_room_beforehand_takes_buffers() -> None:
    roles = [
        allowed(by_name(rendered({"zonalShift": {"enabled": True, **more}}), "ClusterRole", "karpenter"))
        for more in ({}, {"prescale": True})
    ]

    assert roles[1]["capacitybuffers.autoscaling.x-k8s.io"] == {"create", "patch", "delete"}
    assert "capacitybuffers.autoscaling.x-k8s.io" not in roles[0]


def test_the_definition_of_zone_shifts_comes_with_them_and_stays() -> None:
    on = {"zonalShift": {"enabled": True}}
    (definition,) = (each for each in rendered(on) if each["kind"] == "CustomResourceDefinition")
    shipped = yaml.safe_load((ROOT / "deploy/crds/zonal/dovetail.sh_zoneshifts.yaml").read_text())

    assert definition["metadata"]["annotations"].pop("helm.sh/resource-policy") == "keep"
    assert definition["spec"] == shipped["spec"]
    without = rendered({"zonalShift": {"enabled": True, "crd": False}})
    assert not [each for each in without if each["kind"] == "CustomResourceDefinition"]


def test_the_definitions_of_our_own_kinds_come_once_where_they_are_wanted_and_stay() -> None:
    shipped = {
        each["metadata"]["name"]: each["spec"]
        for path in (ROOT / "deploy/crds/own").glob("*.yaml")
        for each in [yaml.safe_load(path.read_text())]
    }
    assert "zoneshifts.dovetail.sh" in shipped
    for values in ({"crds": {"own": True}}, {"crds": {"own": True}, "zonalShift": {"enabled": True}}):
        found = [each for each in rendered(values) if each["kind"] == "CustomResourceDefinition"]
        assert [each["metadata"]["annotations"]["helm.sh/resource-policy"] for each in found] == [
            "keep"
        ] * len(shipped)
        assert {each["metadata"]["name"]: each["spec"] for each in found} == shipped
    assert not [each for each in rendered({}) if each["kind"] == "CustomResourceDefinition"]


def test_zonal_shift_alone_has_a_replica_in_each_of_two_zones() -> None:
    objects = rendered(ALONE)
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    (term,) = pod(objects, "zonal-shift")["affinity"]["podAntiAffinity"][required]

    assert term["topologyKey"] == "topology.kubernetes.io/zone"
    assert term["labelSelector"]["matchLabels"]["app.kubernetes.io/name"] == "karpenter-zonal-shift"
    assert deployment(objects, "zonal-shift")["spec"]["strategy"]["rollingUpdate"]["maxSurge"] == 0
    soft = {**ALONE, "zonalShift": {"standalone": {"enabled": True, "zoneSpread": "Preferred"}}}
    affinity = pod(rendered(soft), "zonal-shift")["affinity"]["podAntiAffinity"]
    (wish,) = affinity["preferredDuringSchedulingIgnoredDuringExecution"]
    assert wish["podAffinityTerm"]["topologyKey"] == "topology.kubernetes.io/zone"
    assert [each["topologyKey"] for each in affinity[required]] == ["kubernetes.io/hostname"]


def test_zonal_shift_alone_may_do_what_it_does_and_no_more() -> None:
    objects = rendered(ALONE)
    verbs = allowed(by_name(objects, "ClusterRole", "karpenter-zonal-shift"))

    assert verbs == {
        "nodes": {"get", "list", "watch", "patch"},
        "nodepools.karpenter.sh": {"get", "list", "watch", "patch", "create", "delete"},
        "nodeclaims.karpenter.sh": {"get", "list", "watch"},
        "ec2nodeclasses.karpenter.k8s.aws": {"get", "list", "watch"},
        "events": {"create", "patch"},
        "zoneshifts.dovetail.sh": {"get", "list", "watch", "create", "patch", "update", "delete"},
        "zoneshifts/status.dovetail.sh": {"get", "list", "watch", "create", "patch", "update", "delete"},
    }
    for kind in KINDS:
        assert {"list", "watch"} <= verbs[f"{kind.KIND.plural}.{kind.KIND.group}".rstrip(".")]
    assert not [each for each in objects if each["metadata"]["name"] == "karpenter"]


@pytest.mark.parametrize(
    ("values", "part"),
    [({"zonalShift": {"enabled": True, **TOPICS}}, ""), ({**ALONE, "zonalShift": {
        "standalone": {"enabled": True}, **TOPICS}}, "zonal-shift")],
)  # fmt: skip
def test_topics_open_a_port_with_a_certificate(values: Json, part: str) -> None:
    objects = rendered(values)
    main, spec = container(objects, part), pod(objects, part)

    assert {"name": "https-sns", "containerPort": 8443, "protocol": "TCP"} in main["ports"]
    (mount,) = (each for each in main["volumeMounts"] if each["name"] == "zonal-shift-tls")
    assert Path(mount["mountPath"]) == TLS_DIRECTORY
    (volume,) = (each for each in spec["volumes"] if each["name"] == "zonal-shift-tls")
    assert volume["secret"] == {"secretName": "sns-tls"}
    service = by_name(objects, "Service", deployment(objects, part)["metadata"]["name"])
    assert [each["port"] for each in service["spec"]["ports"]] == [8080, 443]
    policies = [each for each in objects if each["kind"] == "NetworkPolicy"]
    opened = {port["port"] for each in policies for rule in each["spec"]["ingress"] for port in rule["ports"]}
    assert opened == {8443, 8080}


def test_the_routers_configuration_is_a_file_the_router_reads() -> None:
    config = {
        "region": "us-east-2",
        "accounts": [{"id": "123456789012"}],
        "queues": {"urgent": "u"},
        "batch": {"urgent": {"size": 50}},
    }
    objects = rendered({"router": {"enabled": True, "config": config}})
    text = by_name(objects, "ConfigMap", "karpenter-router")["data"]["bus.yaml"]

    found = read_config(yaml.safe_load(text), {})
    assert (found["queues.urgent"], found.get_batch_limits("urgent").size) == ("u", 50)
    assert container(objects, "router")["args"][:3] == [
        "interruption-router",
        "run",
        "--config=/etc/dovetail/bus.yaml",
    ]
    # It asks Kubernetes nothing, and a new configuration is a new pod.
    assert pod(objects, "router")["automountServiceAccountToken"] is False
    other = rendered({"router": {"enabled": True, "config": {**config, "region": "us-east-1"}}})
    sums = [deployment(each, "router")["spec"]["template"]["metadata"] for each in (objects, other)]
    assert sums[0]["annotations"] != sums[1]["annotations"]


def test_every_key_of_the_router_is_known_to_the_schema() -> None:
    allowed_keys = write_chart.schema()["properties"]["router"]["properties"]["config"]
    for path in [each for key in (*KEYS, *FIELDS) for each in (key.path, key.location)]:
        inside = allowed_keys
        for step in path.split("."):
            assert step in inside["properties"], path
            inside = inside["properties"][step]


def test_the_dashboard_reads_and_nothing_else() -> None:
    objects = rendered({"dashboard": {"enabled": True}})
    verbs = allowed(by_name(objects, "ClusterRole", "karpenter-dashboard"))

    assert {verb for each in verbs.values() for verb in each} == {"get", "list", "watch"}
    assert not {"secrets", "configmaps"} & verbs.keys()
    # It plans with the settings of the controller, which its leader writes on its Lease.
    assert verbs["leases.coordination.k8s.io"] == {"list"}
    policy = by_name(objects, "NetworkPolicy", "karpenter-dashboard")["spec"]
    assert (policy["ingress"], policy["policyTypes"]) == ([], ["Ingress"])


@pytest.mark.spec("SH-1")
def test_the_shadow_reads_as_the_dashboard_does_and_takes_no_lease() -> None:
    objects = rendered({"shadow": {"enabled": True}, "controller": {"enabled": False}})
    verbs = allowed(by_name(objects, "ClusterRole", "karpenter-shadow"))

    assert {verb for each in verbs.values() for verb in each} == {"get", "list", "watch"}
    assert not {"secrets", "configmaps"} & verbs.keys()
    assert verbs == allowed(
        by_name(rendered({"dashboard": {"enabled": True}}), "ClusterRole", "karpenter-dashboard")
    )
    assert not [each for each in objects if each["kind"] in ("Role", "RoleBinding")]
    (only,) = deployment(objects, "shadow")["spec"]["template"]["spec"]["containers"]
    assert only["args"][:3] == ["shadow", "--to=/var/lib/dovetail/shadow", "--report=:8091"]
    kept = rendered({"shadow": {"enabled": True, "to": "s3://it/here", "persistentVolumeClaim": "kept"}})
    pod = deployment(kept, "shadow")["spec"]["template"]["spec"]
    assert "--to=s3://it/here" in pod["containers"][0]["args"]
    assert {"claimName": "kept"} in [each.get("persistentVolumeClaim") for each in pod["volumes"]]


def test_the_recorder_reads_the_cluster_and_writes_to_its_volume_alone() -> None:
    claim = {"persistentVolumeClaim": {"claimName": "recording"}}
    objects = rendered({"recorder": {"enabled": True, "volume": claim}})
    verbs = allowed(by_name(objects, "ClusterRole", "karpenter-recorder"))
    assert set().union(*verbs.values()) == {"get", "list", "watch"}
    board = rendered({"dashboard": {"enabled": True}})
    seen = allowed(by_name(board, "ClusterRole", "karpenter-dashboard"))
    assert verbs == seen
    assert not [each for each in of_part(objects, "recorder") if each["kind"] in ("Role", "Service")]
    spec, main = pod(objects, "recorder"), container(objects, "recorder")
    assert deployment(objects, "recorder")["spec"]["strategy"] == {"type": "Recreate"}
    assert spec["serviceAccountName"] == "karpenter-recorder"
    assert main["securityContext"]["readOnlyRootFilesystem"] is True
    assert {"name": "recording", **claim} in spec["volumes"]
    folder = "/var/lib/dovetail/recording"
    assert {"name": "recording", "mountPath": folder} in main["volumeMounts"]
    assert main["args"] == [
        *("record", f"--to={folder}", "--every=10s", "--keep=168h", "--provider=aws"),
    ]
    assert environment(objects, "recorder")["CLUSTER_NAME"] == "test-cluster"


def test_a_recorder_of_a_bucket_has_no_volume_and_the_role_it_is_given() -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/recorder"}
    values = {"enabled": True, "to": "s3://tape/prod", "serviceAccount": {"annotations": role}}
    objects = rendered({"recorder": values, "controller": {"enabled": False}})
    assert [each["name"] for each in pod(objects, "recorder")["volumes"]] == ["scratch"]
    assert "--to=s3://tape/prod" in container(objects, "recorder")["args"]
    assert not [each for each in container(objects, "recorder")["args"] if each.startswith("--keep")]
    account = by_name(objects, "ServiceAccount", "karpenter-recorder")
    assert account["metadata"]["annotations"] == role
    assert not [each for each in objects if each["metadata"]["name"] == "karpenter"]


async def test_the_dashboard_asks_for_the_history_behind_the_controller_and_no_other_service() -> None:
    """What is granted is what is used: get, of this name, in this namespace."""
    objects = rendered({"dashboard": {"enabled": True}})
    role = by_name(objects, "Role", "karpenter-dashboard")
    (granted,) = role["rules"]
    (namespace,) = {each["metadata"].get("namespace") for each in objects if each["kind"] == "Service"}
    assert role["metadata"]["namespace"] == namespace
    server, used = ApiServer(SystemClock(), Random(1)), []

    class Noted:
        def find_fault(self, call: ApiCall) -> None:
            if call.subresource:
                used.append((call.verb, f"{call.resource}/{call.subresource}", call.namespace, call.name))

    server.faults = Noted()
    service = by_name(objects, "Service", "karpenter")
    server.build_local_client("helm").create("services", service)
    with pytest.raises(Misconfigured, match="no endpoints"):
        await LeaderHistory(LocalTransport(server), "here").ask(HistoryQuery())
    (verb,), (resource,), (name,) = granted["verbs"], granted["resources"], granted["resourceNames"]
    assert used == [(verb, resource, namespace, name)]
    assert [each for each in rendered({}) if each["metadata"]["name"] == "karpenter-dashboard"] == []


def test_the_router_alone_needs_no_cluster() -> None:
    values = {
        "controller": {"enabled": False},
        "settings": {"clusterName": ""},
        "router": {"enabled": True, "config": REGION},
    }

    names = {each["metadata"]["name"] for each in rendered(values)}
    assert names == {"karpenter-router", "karpenter-router-metrics"}


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"router": {"enabled": True}}, "router.config.region is empty"),
        ({"router": {"config": {"reigon": "x"}}}, "reigon"),
        ({"zonalShift": {"standalone": {"enabled": True}}}, "set controller.enabled=false"),
        ({"zonalShift": {"standalone": {"replicas": 1}}}, "/zonalShift/standalone/replicas"),
        ({"zonalShift": {"mode": "Some"}}, "/zonalShift/mode"),
        ({"zonalShift": {"enabled": True, "topicArn": ["a"]}}, "zonalShift.tlsSecret is empty"),
        ({"zonalShift": {"enabled": True, "eventsTokenFile": "/t"}}, "zonalShift.tlsSecret is empty"),
        ({"zonalShift": {"minHold": "long"}}, "/zonalShift/minHold"),
        ({"dashboard": {"port": 1}}, "port"),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(values: Json, told: str) -> None:
    with pytest.raises(ChartError, match=told):
        rendered(values)


def test_the_right_to_spend_limits_comes_with_the_setting() -> None:
    off = rendered({"dashboard": {"enabled": True}})
    assert not [each for each in off if each["metadata"]["name"] == "karpenter-spend"]
    assert "spendlimits" not in str(off)
    on = rendered({"dashboard": {"enabled": True}, "settings": {"spendLimits": True}})
    assert allowed(by_name(on, "ClusterRole", "karpenter-spend")) == {
        "spendlimits.dovetail.sh": {"get", "list", "watch"},
        "spendlimits/status.dovetail.sh": {"patch"},
    }
    assert by_name(on, "ClusterRoleBinding", "karpenter-spend")["subjects"][0]["name"] == "karpenter"
    seen = allowed(by_name(on, "ClusterRole", "karpenter-dashboard"))
    assert seen["spendlimits.dovetail.sh"] == {"get", "list", "watch"}


def test_the_right_to_commitments_comes_with_the_setting() -> None:
    for word in ("Off", ""):
        off = rendered({"dashboard": {"enabled": True}, "settings": {"commitments": word} if word else {}})
        assert not [each for each in off if each["metadata"]["name"] == "karpenter-commitments"]
        assert "commitments" not in str([each.get("rules") for each in off])
    for word in ("Show", "Follow"):
        on = rendered({"dashboard": {"enabled": True}, "settings": {"commitments": word}})
        assert allowed(by_name(on, "ClusterRole", "karpenter-commitments")) == {
            "commitments.dovetail.sh": {"get", "list", "watch", "create", "delete", "patch"},
            "commitments/status.dovetail.sh": {"patch"},
        }
        bound = by_name(on, "ClusterRoleBinding", "karpenter-commitments")
        assert bound["subjects"][0]["name"] == "karpenter"
        seen = allowed(by_name(on, "ClusterRole", "karpenter-dashboard"))
        assert seen["commitments.dovetail.sh"] == {"get", "list", "watch"}
    alone = rendered({"provider": "kwok", "settings": {"commitments": "Show"}})
    assert allowed(by_name(alone, "ClusterRole", "karpenter-commitments")) == {
        "commitments.dovetail.sh": {"get", "list", "watch"},  # there is nothing to mirror
        "commitments/status.dovetail.sh": {"patch"},
    }

"""Tables: the exact columns of each kind, and the cells people read them for."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dovetail.sim.kube.builtin.kinds import build_registry
from dovetail.sim.kube.printing.cells import format_duration
from dovetail.sim.kube.printing.tables import PathError, build_table, find_values, list_column_definitions
from dovetail.sim.kube.schema import crd
from dovetail.sim.kube.types import TypeInfo

NOW = datetime(2030, 1, 1, 12, 0, 0, tzinfo=UTC)
REGISTRY = build_registry()
LETTERS = {"string": "", "integer": ":i", "boolean": ":b", "date": ":d"}

COLUMNS = {
    "pods": "Name, Ready, Status, Restarts, Age, IP*, Node*, Nominated Node*, Readiness Gates*",
    "nodes": (
        "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*, Kernel-Version*, "
        "Container-Runtime*"
    ),
    "deployments.apps": "Name, Ready, Up-to-date, Available, Age, Containers*, Images*, Selector*",
    "replicasets.apps": "Name, Desired:i, Current:i, Ready:i, Age, Containers*, Images*, Selector*",
    "replicationcontrollers": "Name, Desired:i, Current:i, Ready:i, Age, Containers*, Images*, Selector*",
    "daemonsets.apps": (
        "Name, Desired:i, Current:i, Ready:i, Up-to-date:i, Available:i, Node Selector, Age, Containers*, "
        "Images*, Selector*"
    ),
    "statefulsets.apps": "Name, Ready, Age, Containers*, Images*",
    "jobs.batch": "Name, Status, Completions, Duration, Age, Containers*, Images*, Selector*",
    "cronjobs.batch": (
        "Name, Schedule, Timezone, Suspend:b, Active:i, Last Schedule, Age, Containers*, Images*, Selector*"
    ),
    "services": "Name, Type, Cluster-IP, External-IP, Port(s), Age, Selector*",
    "events": "Last Seen, Type, Reason, Object, Subobject*, Source*, Message, First Seen*, Count*, Name*",
    "namespaces": "Name, Status, Age",
    "configmaps": "Name, Data, Age",
    "secrets": "Name, Type, Data, Age",
    "serviceaccounts": "Name, Age",
    "poddisruptionbudgets.policy": "Name, Min Available, Max Unavailable, Allowed Disruptions:i, Age",
    "persistentvolumeclaims": (
        "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age, VolumeMode*"
    ),
    "persistentvolumes": (
        "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass, VolumeAttributesClass, "
        "Reason, Age, VolumeMode*"
    ),
    "storageclasses.storage.k8s.io": (
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age"
    ),
    "csinodes.storage.k8s.io": "Name, Drivers:i, Age",
    "volumeattachments.storage.k8s.io": "Name, Attacher, PV, Node, Attached:b, Age",
    "priorityclasses.scheduling.k8s.io": "Name, Value:i, Global-Default:b, Age, PreemptionPolicy",
    "leases.coordination.k8s.io": "Name, Holder, Age",
    "limitranges": "Name, Created At:d",
    "customresourcedefinitions.apiextensions.k8s.io": (
        "Name, Scope, Versions, Created At:d, Group*, Kind*, ShortNames*, Established:b*"
    ),
    "roles.rbac.authorization.k8s.io": "Name, Created At:d",
}


def ago(**length: float) -> str:
    return (NOW - timedelta(**length)).strftime("%Y-%m-%dT%H:%M:%SZ")


def cells(resource: str, obj: dict[str, Any]) -> dict[str, Any]:
    """One row, by column name."""
    info = REGISTRY.resolve_resource(resource)
    obj = {**obj, "metadata": {"name": "x", "creationTimestamp": ago(minutes=5), **obj.get("metadata", {})}}
    shown = build_table(info, [obj], now=NOW)
    names = [column["name"] for column in shown["columnDefinitions"]]
    return dict(zip(names, shown["rows"][0]["cells"], strict=True))


def written(info: TypeInfo) -> str:
    """The columns in shorthand."""
    return ", ".join(
        f"{c['name']}{LETTERS[c['type']]}{'*' if c['priority'] else ''}"
        for c in list_column_definitions(info)
    )


@pytest.mark.parametrize("resource", COLUMNS)
def test_the_columns_of_a_kind(resource: str) -> None:
    info = REGISTRY.resolve_resource(resource)
    assert written(info) == COLUMNS[resource]


@pytest.mark.parametrize("info", REGISTRY.list_all(), ids=lambda info: f"{info.resource}/{info.version}")
def test_an_object_with_nothing_in_it_still_has_a_cell_for_every_column(info: TypeInfo) -> None:
    shown = build_table(info, [{"metadata": {"name": "x"}}], now=NOW)
    assert len(shown["rows"][0]["cells"]) == len(shown["columnDefinitions"])


@pytest.mark.parametrize(
    ("length", "text"),
    [
        (timedelta(seconds=-5), "<invalid>"),
        (timedelta(seconds=-1), "0s"),
        (timedelta(seconds=0), "0s"),
        (timedelta(seconds=119), "119s"),
        (timedelta(seconds=120), "2m"),
        (timedelta(seconds=150), "2m30s"),
        (timedelta(minutes=10, seconds=5), "10m"),
        (timedelta(minutes=179), "179m"),
        (timedelta(hours=3), "3h"),
        (timedelta(hours=7, minutes=59), "7h59m"),
        (timedelta(hours=8, minutes=30), "8h"),
        (timedelta(hours=47), "47h"),
        (timedelta(days=2), "2d"),
        (timedelta(days=7, hours=23), "7d23h"),
        (timedelta(days=8, hours=5), "8d"),
        (timedelta(days=729), "729d"),
        (timedelta(days=730), "2y"),
        (timedelta(days=800), "2y70d"),
        (timedelta(days=365 * 9), "9y"),
    ],
)
def test_ages_get_coarser_as_they_grow(length: timedelta, text: str) -> None:
    assert format_duration(length) == text


def container(name: str = "c", *, ready: bool = True, restarts: int = 0, **state: Any) -> dict[str, Any]:
    return {"name": name, "ready": ready, "restartCount": restarts, "state": state or {"running": {}}}


def pod(**status: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "c"}, {"name": "d"}]}, "status": {"phase": "Running", **status}}


def test_a_running_pod() -> None:
    obj = pod(containerStatuses=[container(), container("d", ready=False, restarts=2)], podIP="10.0.0.7")
    obj["spec"]["nodeName"] = "n1"
    assert cells("pods", obj) == {
        "Name": "x",
        "Ready": "1/2",
        "Status": "Running",
        "Restarts": "2",
        "Age": "5m",
        "IP": "10.0.0.7",
        "Node": "n1",
        "Nominated Node": "<none>",
        "Readiness Gates": "<none>",
    }


@pytest.mark.parametrize(
    ("status", "word"),
    [
        ({"phase": "Pending"}, "Pending"),
        ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
        (
            {"phase": "Pending", "conditions": [{"type": "PodScheduled", "reason": "SchedulingGated"}]},
            "SchedulingGated",
        ),
        (
            {"containerStatuses": [container(waiting={"reason": "CrashLoopBackOff"}), container("d")]},
            "CrashLoopBackOff",
        ),
        ({"containerStatuses": [container(terminated={"exitCode": 0, "reason": "Completed"})]}, "Completed"),
        ({"containerStatuses": [container(terminated={"exitCode": 3})]}, "ExitCode:3"),
        ({"containerStatuses": [container(terminated={"exitCode": 137, "signal": 9})]}, "Signal:9"),
        (
            {
                "containerStatuses": [
                    container(terminated={"exitCode": 0, "reason": "Completed"}),
                    container("d"),
                ],
                "conditions": [{"type": "Ready", "status": "True"}],
            },
            "Running",
        ),
        (
            {
                "containerStatuses": [
                    container(terminated={"exitCode": 0, "reason": "Completed"}),
                    container("d"),
                ]
            },
            "NotReady",
        ),
    ],
)
def test_one_word_for_the_state_of_a_pod(status: dict[str, Any], word: str) -> None:
    assert cells("pods", pod(**status))["Status"] == word


@pytest.mark.parametrize(
    ("first", "word"),
    [
        ({"waiting": {"reason": "PodInitializing"}}, "Init:0/2"),
        ({"waiting": {"reason": "ErrImagePull"}}, "Init:ErrImagePull"),
        ({"terminated": {"exitCode": 1, "reason": "Error"}}, "Init:Error"),
        ({"terminated": {"exitCode": 2}}, "Init:ExitCode:2"),
        ({"terminated": {"exitCode": 0}}, "Init:1/2"),
    ],
)
def test_a_pod_that_is_still_initialising_says_how_far_it_is(first: dict[str, Any], word: str) -> None:
    statuses = [container("i", **first), container("j", waiting={"reason": "PodInitializing"})]
    obj = pod(phase="Pending", initContainerStatuses=statuses)
    obj["spec"]["initContainers"] = [{"name": "i"}, {"name": "j"}]
    assert cells("pods", obj)["Status"] == word


def test_sidecars_count_among_the_ready() -> None:
    obj = pod(
        initContainerStatuses=[{**container("s"), "started": True}],
        containerStatuses=[container(), container("d")],
    )
    obj["spec"]["initContainers"] = [{"name": "s", "restartPolicy": "Always"}]
    assert cells("pods", obj)["Ready"] == "3/3"


def test_a_deleted_pod_is_terminating_unless_it_is_over_or_lost() -> None:
    deleted = {"metadata": {"deletionTimestamp": ago(seconds=3)}}
    assert cells("pods", {**pod(), **deleted})["Status"] == "Terminating"
    assert cells("pods", {**pod(phase="Succeeded"), **deleted})["Status"] == "Succeeded"
    assert cells("pods", {**pod(reason="NodeLost"), **deleted})["Status"] == "Unknown"


def test_the_last_restart_is_dated() -> None:
    status = container(restarts=3) | {"lastState": {"terminated": {"finishedAt": ago(minutes=4)}}}
    assert cells("pods", pod(containerStatuses=[status]))["Restarts"] == "3 (4m ago)"


def test_a_node_is_ready_or_not_and_may_be_cordoned() -> None:
    ready = {"conditions": [{"type": "Ready", "status": "True"}]}
    assert cells("nodes", {"status": ready})["Status"] == "Ready"
    assert cells("nodes", {"status": ready, "spec": {"unschedulable": True}})["Status"] == (
        "Ready,SchedulingDisabled"
    )
    lost = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    assert cells("nodes", {"status": lost})["Status"] == "NotReady"
    assert cells("nodes", {})["Status"] == "Unknown"


def test_a_nodes_roles_come_from_its_labels() -> None:
    labels = {
        "node-role.kubernetes.io/worker": "",
        "node-role.kubernetes.io/infra": "x",
        "kubernetes.io/role": "gpu",
    }
    row = cells("nodes", {"metadata": {"labels": labels}})
    assert row["Roles"] == "gpu,infra,worker"
    assert (row["Internal-IP"], row["OS-Image"]) == ("<none>", "<unknown>")


def test_workloads_count_their_replicas() -> None:
    template = {"spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "j"}]}}
    selector = {
        "matchLabels": {"app": "web"},
        "matchExpressions": [{"key": "tier", "operator": "In", "values": ["b", "a"]}],
    }
    spec = {"replicas": 3, "template": template, "selector": selector}
    row = cells("deployments.apps", {"spec": spec, "status": {"readyReplicas": 2, "updatedReplicas": 1}})
    assert (row["Ready"], row["Up-to-date"], row["Available"]) == ("2/3", 1, 0)
    assert (row["Containers"], row["Images"], row["Selector"]) == ("a,b", "i,j", "app=web,tier in (a,b)")
    row = cells("daemonsets.apps", {"spec": {}, "status": {"desiredNumberScheduled": 4, "numberReady": 1}})
    assert (row["Desired"], row["Ready"], row["Node Selector"]) == (4, 1, "<none>")


def test_jobs_say_how_they_ended_and_how_long_they_took() -> None:
    done = {
        "succeeded": 2,
        "startTime": ago(minutes=4),
        "completionTime": ago(minutes=1),
        "conditions": [{"type": "Complete", "status": "True"}],
    }
    row = cells("jobs.batch", {"spec": {"completions": 2}, "status": done})
    assert (row["Status"], row["Completions"], row["Duration"]) == ("Complete", "2/2", "3m")
    row = cells("jobs.batch", {"spec": {"parallelism": 3}, "status": {"startTime": ago(seconds=30)}})
    assert (row["Status"], row["Completions"], row["Duration"]) == ("Running", "0/1 of 3", "30s")


def test_services_show_where_they_can_be_reached() -> None:
    ports = [{"port": 80, "protocol": "TCP", "nodePort": 30080}, {"port": 53, "protocol": "UDP"}]
    row = cells("services", {"spec": {"type": "LoadBalancer", "clusterIP": "10.0.0.1", "ports": ports}})
    assert (row["External-IP"], row["Port(s)"]) == ("<pending>", "80:30080/TCP,53/UDP")
    status = {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}
    row = cells("services", {"spec": {"type": "LoadBalancer"}, "status": status})
    assert row["External-IP"] == "1.2.3.4"


def test_both_views_of_an_event_read_alike() -> None:
    core = {
        "involvedObject": {"kind": "Pod", "name": "p"},
        "reason": "FailedScheduling",
        "type": "Warning",
        "message": "no\n",
        "lastTimestamp": ago(minutes=3),
        "firstTimestamp": ago(hours=4),
        "count": 7,
        "source": {"component": "s", "host": "h"},
    }
    newer = {
        "regarding": {"kind": "Pod", "name": "p"},
        "reason": "FailedScheduling",
        "type": "Warning",
        "note": "no\n",
        "deprecatedLastTimestamp": ago(minutes=3),
        "deprecatedFirstTimestamp": ago(hours=4),
        "deprecatedCount": 7,
        "deprecatedSource": {"component": "s", "host": "h"},
    }
    row = cells("events", core)
    assert row == cells("events.events.k8s.io", newer)
    assert row == {
        "Last Seen": "3m",
        "Type": "Warning",
        "Reason": "FailedScheduling",
        "Object": "pod/p",
        "Subobject": "",
        "Source": "s, h",
        "Message": "no",
        "First Seen": "4h",
        "Count": 7,
        "Name": "x",
    }


def test_storage_and_budgets() -> None:
    claim = {
        "spec": {"volumeName": "pv", "storageClassName": "gp3"},
        "status": {"phase": "Bound", "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    }
    row = cells("persistentvolumeclaims", claim)
    assert list(row.values()) == ["x", "Bound", "pv", "1Gi", "RWO", "gp3", "<unset>", "5m", "<unset>"]
    budget = {"spec": {"maxUnavailable": "10%"}, "status": {"disruptionsAllowed": 1}}
    assert list(cells("poddisruptionbudgets.policy", budget).values()) == ["x", "N/A", "10%", 1, "5m"]
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    row = cells(
        "storageclasses.storage.k8s.io", {"metadata": {"annotations": annotations}, "provisioner": "p"}
    )
    assert list(row.values()) == ["x (default)", "p", "Delete", "Immediate", False, "5m"]


def test_a_row_carries_as_much_of_its_object_as_was_asked_for() -> None:
    info = REGISTRY.resolve_resource("configmaps")
    obj = {"metadata": {"name": "x", "labels": {"a": "b"}}, "data": {"k": "v"}}
    metadata = {"resourceVersion": "7", "continue": "c", "remainingItemCount": 3}
    shown = build_table(info, [obj], now=NOW, metadata=metadata)
    assert (shown["kind"], shown["apiVersion"], shown["metadata"]) == ("Table", "meta.k8s.io/v1", metadata)
    assert shown["rows"][0]["object"] == {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": obj["metadata"],
    }
    assert build_table(info, [obj], "Object", now=NOW)["rows"][0]["object"] == obj
    assert "object" not in build_table(info, [obj], "None", now=NOW)["rows"][0]
    assert build_table(info, [obj], now=NOW, columns=False)["columnDefinitions"] is None


def custom(columns: list[dict[str, Any]]) -> TypeInfo:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object"}},
        "additionalPrinterColumns": columns,
    }
    names = {"plural": "widgets", "kind": "Widget"}
    spec = {"group": "example.com", "scope": "Cluster", "names": names, "versions": [version]}
    (info,) = crd.compile_definition({"metadata": {"name": "widgets.example.com"}, "spec": spec})
    return info


def test_printer_columns_follow_their_types_and_paths() -> None:
    info = custom(
        [
            {"name": "Ready", "type": "string", "jsonPath": '.status.conditions[?(@.type=="Ready")].status'},
            {"name": "Size", "type": "integer", "jsonPath": ".spec.size"},
            {"name": "Text", "type": "integer", "jsonPath": ".spec.text"},
            {"name": "Zone", "type": "string", "jsonPath": r".metadata.labels.topology\.kubernetes\.io/zone"},
            {"name": "First", "type": "string", "jsonPath": ".spec.list[0]"},
            {"name": "List", "type": "string", "jsonPath": ".spec.list"},
            {"name": "Flag", "type": "boolean", "jsonPath": ".spec.flag", "priority": 1},
            {"name": "Gone", "type": "string", "jsonPath": ".spec.gone.deep"},
            {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"},
            {"name": "Bad", "type": "date", "jsonPath": ".spec.text"},
        ]
    )
    obj = {
        "metadata": {
            "name": "x",
            "creationTimestamp": ago(hours=9),
            "labels": {"topology.kubernetes.io/zone": "a"},
        },
        "spec": {"size": 3, "text": "t", "list": ["p", "q"], "flag": False},
        "status": {"conditions": [{"type": "Other", "status": "False"}, {"type": "Ready", "status": "True"}]},
    }
    shown = build_table(info, [obj], now=NOW)
    assert shown["rows"][0]["cells"] == [
        *("x", "True", 3, None, "a", "p", '["p","q"]', False, None, "9h", "<invalid>")
    ]
    assert [c["priority"] for c in shown["columnDefinitions"]] == [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0]


def test_without_columns_of_its_own_a_custom_kind_shows_its_name_and_age() -> None:
    assert written(custom([])) == "Name, Age"


@pytest.mark.parametrize(
    ("path", "found"),
    [
        (".a.b", [1]),
        ("{.a.b}", [1]),
        (".a['b']", [1]),
        ('.a["b"]', [1]),
        (".list[*].n", ["x", "y"]),
        (".list[-1].n", ["y"]),
        (".list[?(@.n=='y')].v", [2]),
        (".list[?(@.v!=1)].n", ["y"]),
        (".list[?(@.v==1)].n", ["x"]),
        (".list[9]", []),
        (".a.b.c", []),
        ("", [{"a": {"b": 1}, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}]),
    ],
)
def test_a_little_jsonpath(path: str, found: list[Any]) -> None:
    doc = {"a": {"b": 1}, "list": [{"n": "x", "v": 1}, {"n": "y", "v": 2}]}
    assert find_values(path, doc) == found


def test_more_jsonpath_than_that_is_refused() -> None:
    with pytest.raises(PathError, match="not understood"):
        find_values(".a[(@.length-1)]", {})

"""The oracle from the documentation: each rule refuses what it should, and lets in the rest."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from support import kubernetes_rules
from support.kubernetes_rules import REQUIRED, Cluster, amount, daemons_of, refused, requested

Json = dict[str, Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
SELECTOR = {"matchLabels": {"app": "web"}}


def node(name: str = "n", zone: str = "a", *, taints: Any = (), cpu: str = "4", **labels: str) -> Json:
    return {
        "metadata": {"name": name, "labels": {HOST: name, ZONE: zone, **labels}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": cpu, "memory": "8Gi", "pods": "10"}},
    }


def pod(name: str = "p", *, app: str = "web", cpu: str = "1", space: str = "default", **spec: Any) -> Json:
    first = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": space, "labels": {"app": app, "rev": name[-1]}},
        "spec": {"containers": [first], **spec},
    }


def affinity(kind: str, key: str, **term: Any) -> Json:
    return {"affinity": {kind: {REQUIRED: [{"topologyKey": key, "labelSelector": SELECTOR, **term}]}}}


def needs(key: str, operator: str, *values: str) -> Json:
    one = {"key": key, "operator": operator, "values": list(values)}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [one]}]}}}}


def spread(key: str = ZONE, skew: int = 1, **rule: Any) -> Json:
    made = {"topologyKey": key, "maxSkew": skew, "labelSelector": SELECTOR, **rule}
    return {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", **made}]}


def port(number: int, address: str = "", protocol: str = "TCP") -> Json:
    listening = {"containerPort": 1, "hostPort": number, "hostIP": address, "protocol": protocol}
    return {"containers": [{"name": "c", "ports": [listening]}]}


TAINT = {"key": "team", "value": "a", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("target", "wanted", "lets_in"),
    [
        (node(taints=[TAINT]), {}, False),
        (node(taints=[TAINT]), {"tolerations": [{"key": "team", "value": "a"}]}, True),
        (node(taints=[TAINT]), {"tolerations": [{"key": "team", "value": "b"}]}, False),
        (node(taints=[TAINT]), {"tolerations": [{"operator": "Exists"}]}, True),
        (
            node(taints=[TAINT]),
            {"tolerations": [{"key": "team", "operator": "Exists", "effect": "NoExecute"}]},
            False,
        ),
        (node(taints=[{**TAINT, "effect": "PreferNoSchedule"}]), {}, True),
        (node(disk="ssd"), {"nodeSelector": {"disk": "ssd"}}, True),
        (node(), {"nodeSelector": {"disk": "ssd"}}, False),
        (node(), needs("disk", "NotIn", "ssd"), True),
        (node(disk="ssd"), needs("disk", "NotIn", "ssd"), False),
        (node(disk="ssd"), needs("disk", "DoesNotExist"), False),
        (node(cores="8"), needs("cores", "Gt", "7"), True),
        (node(cores="8"), needs("cores", "Lt", "8"), False),
        (node(), needs("cores", "Gt", "7"), False),
        (node(cpu="900m"), {}, False),
        (node(cpu="1000m"), {}, True),
        (node(), {"overhead": {"cpu": "3001m"}}, False),
        (node(), {"resources": {"requests": {"cpu": "5"}}}, False),
        (node(), affinity("podAffinity", ZONE), True),
        (node(), affinity("podAffinity", "rack"), False),
        (node(), spread("rack"), False),
    ],
)
def test_one_pod_and_one_node(target: Json, wanted: Json, lets_in: bool) -> None:
    assert (not Cluster([target]).objections(pod(**wanted), "n")) == lets_in


@pytest.mark.parametrize(
    ("init", "cpu"),
    [
        ([{"resources": {"requests": {"cpu": "3"}}}], 3),
        ([{"resources": {"requests": {"cpu": "500m"}}}], 1),
        ([{"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}}], 3),
        (
            [
                {"restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}},
                {"resources": {"requests": {"cpu": "4"}}},
            ],
            6,
        ),
        ([{"resources": {"limits": {"cpu": "5"}}}], 5),
    ],
)
def test_starting_and_running_are_both_paid_for(init: list[Json], cpu: int) -> None:
    assert requested(pod(initContainers=init))["cpu"] == amount(cpu)


def two(first: Json, second: Json, *, at: str = "n", nodes: Any = None, spaces: Any = ()) -> list[str]:
    """What stands against the second pod once the first is on `n`."""
    cluster = Cluster(nodes or [node(), node("m"), node("far", "b")], spaces)
    cluster.bind(first, "n")
    return cluster.objections(second, at)


BLUE = [{"metadata": {"name": "blue", "labels": {"team": "blue"}}}]


@pytest.mark.parametrize(
    ("first", "second", "at", "lets_in"),
    [
        (pod(cpu="3500m"), pod("q"), "n", False),
        (pod(**port(80)), pod("q", **port(80)), "n", False),
        (pod(**port(80)), pod("q", **port(80)), "m", True),
        (pod(**port(80, "10.0.0.1")), pod("q", **port(80, "10.0.0.2")), "n", True),
        (pod(**port(80, "10.0.0.1")), pod("q", **port(80)), "n", False),
        (pod(**port(80)), pod("q", **port(80, protocol="UDP")), "n", True),
        (pod(), pod("q", **affinity("podAntiAffinity", HOST)), "n", False),
        (pod(), pod("q", **affinity("podAntiAffinity", HOST)), "m", True),
        (pod(), pod("q", **affinity("podAntiAffinity", ZONE)), "m", False),
        (pod(**affinity("podAntiAffinity", ZONE)), pod("q"), "m", False),
        (pod(**affinity("podAntiAffinity", ZONE)), pod("q"), "far", True),
        (pod(**affinity("podAntiAffinity", ZONE)), pod("q", space="blue"), "m", True),
        (pod(**affinity("podAntiAffinity", ZONE, namespaces=["blue"])), pod("q", space="blue"), "m", False),
        (
            pod(**affinity("podAntiAffinity", ZONE, namespaceSelector={"matchLabels": {"team": "blue"}})),
            pod("q", space="blue"),
            "m",
            False,
        ),
        (pod(), pod("q", **affinity("podAffinity", ZONE)), "m", True),
        (pod(), pod("q", **affinity("podAffinity", ZONE)), "far", False),
        (pod(), pod("q", **affinity("podAffinity", ZONE, matchLabelKeys=["rev"])), "far", True),
        (pod("p1"), pod("q1", **affinity("podAffinity", ZONE, matchLabelKeys=["rev"])), "far", False),
        (pod(), pod("q", **spread()), "m", False),
        (pod(), pod("q", **spread()), "far", True),
        (pod(), pod("q", **spread(skew=2)), "m", True),
        (pod(), pod("q", **spread(matchLabelKeys=["rev"])), "m", True),
        (pod(), pod("q", space="blue", **spread()), "m", True),
        (pod(app="db"), pod("q", **spread()), "m", True),
        (pod(), pod("q", **spread(whenUnsatisfiable="ScheduleAnyway")), "m", True),
        (pod(), pod("q", nodeSelector={ZONE: "a"}, **spread()), "m", True),
        (pod(), pod("q", nodeSelector={ZONE: "a"}, **spread(nodeAffinityPolicy="Ignore")), "m", False),
        (pod(), pod("q", nodeSelector={ZONE: "a"}, **spread(minDomains=2)), "m", False),
        ({**pod(), "status": {"phase": "Succeeded"}}, pod("q", **spread()), "m", True),
    ],
)
def test_a_second_pod(first: Json, second: Json, at: str, lets_in: bool) -> None:
    assert (not two(first, second, at=at, spaces=BLUE)) == lets_in


@pytest.mark.parametrize(("policy", "lets_in"), [("Honor", True), ("Ignore", False)])
def test_tainted_nodes_are_domains_by_policy(policy: str, lets_in: bool) -> None:
    nodes = [node(), node("m"), node("far", "b", taints=[TAINT])]
    rule = spread(nodeTaintsPolicy=policy)
    assert (not two(pod(), pod("q", **rule), at="m", nodes=nodes)) == lets_in


def test_a_pod_on_its_way_out_no_longer_counts_in_spreads_and_still_keeps_others_away() -> None:
    leaving = pod(**affinity("podAntiAffinity", HOST))
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert two(leaving, pod("q", **spread()), at="m") == []
    assert two(leaving, pod("q"), at="n") == ["a pod that avoids it"]


def stored(name: str, claim: str = "data") -> Json:
    return pod(name, cpu="1m", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": claim}}])


def storage(*zones: str, limit: int | None = None) -> list[Json]:
    """Claims `data` and `more` on volumes in these zones, and how many a node attaches."""
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": list(zones)}]}
    found: list[Json] = []
    for name in ("data", "more"):
        about = {"name": name, "namespace": "default"}
        spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}, "csi": {"driver": "csi"}}
        found += [
            {"kind": "PersistentVolumeClaim", "metadata": about, "spec": {"volumeName": f"pv-{name}"}},
            {"kind": "PersistentVolume", "metadata": {"name": f"pv-{name}"}, "spec": spec},
        ]
    drivers = [{"name": "csi", "allocatable": {"count": limit}}]
    return [*found, {"kind": "CSINode", "metadata": {"name": "n"}, "spec": {"drivers": drivers}}]


def test_volumes_are_reached_from_their_zone_alone() -> None:
    assert Cluster([node()], storage=storage("a", "b")).objections(stored("p"), "n") == []
    assert Cluster([node()], storage=storage("b")).objections(stored("p"), "n") == [
        "a volume cannot be reached"
    ]


def test_a_node_attaches_each_volume_once_and_no_more_than_its_driver_can() -> None:
    cluster = Cluster([node()], storage=storage("a", limit=1))
    cluster.bind(stored("p"), "n")
    assert cluster.objections(stored("q"), "n") == []
    assert cluster.objections(stored("q", "more"), "n") == ["too many volumes"]


def test_a_volume_yet_to_come_keeps_to_the_zones_of_its_class() -> None:
    topology = [{"matchLabelExpressions": [{"key": ZONE, "values": ["b"]}]}]
    about: Json = {"name": "data"}
    claim: Json = {"kind": "PersistentVolumeClaim", "metadata": about, "spec": {"storageClassName": "sc"}}
    late: Json = {"kind": "StorageClass", "metadata": {"name": "sc"}, "allowedTopologies": topology}
    cluster = Cluster([node(), node("far", "b")], storage=[claim, late])
    assert [bool(cluster.objections(stored("p"), name)) for name in ("n", "far")] == [True, False]


def test_pods_are_let_in_in_an_order_that_works_and_what_no_order_lets_in_is_told() -> None:
    near = pod("near", app="db", **affinity("podAffinity", HOST))
    cluster = Cluster([node(), node("m")])
    assert refused(cluster, [(near, "n"), (pod("web"), "n")]) == []
    (told,) = refused(cluster, [(pod("more", **affinity("podAntiAffinity", HOST)), "n")])
    assert told == "default/more on n: a pod it avoids"


def test_daemons_run_where_their_template_lets_them() -> None:
    made = {"metadata": {"name": "agent"}, "spec": {"template": {"spec": pod()["spec"]}}}
    assert [each["metadata"]["name"] for each in daemons_of([made], node())] == ["agent-n"]
    assert daemons_of([made], node(taints=[TAINT])) == []


def test_the_oracle_shares_no_line_with_what_it_judges() -> None:
    tree = ast.parse(Path(kubernetes_rules.__file__).read_text(encoding="utf-8"))
    named = {each.module for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    named |= {name.name for each in ast.walk(tree) if isinstance(each, ast.Import) for name in each.names}
    assert not [each for each in named if str(each).startswith(("dovetail", "support"))]

"""`dovetail explain` and `dovetail snapshot` against a server they reach over HTTPS, and only read."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.app.published_settings import build_lease_annotations
from dovetail.settings import read_settings
from dovetail.sim.kube.faults import ApiCall, Fault
from dovetail.sim.kube.status import ApiError
from support.commands import Ended, dovetail
from support.https_apiserver import DEFINITIONS, Secured, node_pool, secured

Json = dict[str, Any]

SECRET = "hunter2"
TOLD = {
    "example.com/token": SECRET,
    "kubectl.kubernetes.io/last-applied-configuration": f'{{"env":"{SECRET}"}}',
}
UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes"}
NOTED = {"annotations": TOLD}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
SIZE = {"cpu": "4", "memory": "16Gi", "pods": "110"}


class Heard:
    """Every call a client made, and what it was answered."""

    def __init__(self) -> None:
        self.calls: list[ApiCall] = []
        self.answer: Fault | None = None

    def find_fault(self, call: ApiCall) -> Fault | None:
        self.calls.append(call)
        return self.answer


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    with secured(tmp_path_factory.mktemp("live")) as served:
        _fill(served)
        yield served


@pytest.fixture
def heard(server: Secured) -> Iterator[Heard]:
    before, ear = server.server.faults, Heard()
    server.call(lambda: setattr(server.server, "faults", ear))
    yield ear
    server.call(lambda: setattr(server.server, "faults", before))


def ask(server: Secured, *arguments: str) -> Ended:
    return dovetail(*arguments, env={"KUBECONFIG": str(server.kubeconfig)})


def _pod(name: str, cpu: str, node: str = "", **spec: Any) -> Json:
    """A pod with a secret wherever there is room for one."""
    only = {
        "name": "app",
        "image": "app",
        "args": [f"--password={SECRET}"],
        "command": ["sh", "-c", SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "resources": {"requests": {"cpu": cpu}},
    }
    volumes: list[Json] = [{"name": "s", "secret": {"secretName": SECRET}}]
    if node:  # a pod that waits would wait for the claim to be made, too
        volumes.append(
            {"name": "e", "ephemeral": {"volumeClaimTemplate": {"metadata": NOTED, "spec": CLAIM}}}
        )
    placed = {"nodeName": node} if node else {}
    return {
        "metadata": {"name": name, "namespace": "default", "annotations": TOLD},
        "spec": {"containers": [only], "initContainers": [only | {"name": "init"}], "volumes": volumes}
        | placed
        | spec,
    }


def _node(name: str) -> Json:
    known = {"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name}
    return {
        "metadata": {"name": name, "labels": known, "annotations": TOLD},
        "spec": {"providerID": f"x://{name}"},
    }


def _fill(served: Secured) -> None:
    """A pool, a node with a pod, an unschedulable pod, and secrets in every kind that is read."""
    pool = node_pool()
    pool["metadata"]["annotations"] = TOLD
    pool["spec"]["template"]["metadata"] = {"annotations": {"example.com/token": SECRET}}
    _create(served, "nodepools.karpenter.sh", pool)
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "Ready",
        "lastTransitionTime": "2026-06-01T12:00:00Z",
    }
    _status(served, "nodepools.karpenter.sh", "default", {"conditions": [ready | {"message": ""}]})
    _create(served, "nodes", _node("old"))
    _status(served, "nodes", "old", {"capacity": SIZE, "allocatable": SIZE})
    _create(served, "pods", _pod("here", "3", "old"))
    _create(served, "pods", _pod("stuck", "2", nodeSelector={"team": "blue"}))
    _create(served, "pods", _pod("next", "2"))
    for name in ("stuck", "next"):
        _status(served, "pods", name, {"phase": "Pending", "conditions": [UNSCHEDULABLE]}, "default")
    _create(served, "pods", _pod("gated", "1", schedulingGates=[{"name": "quota"}]))
    own = {"name": "own", "namespace": "default", "annotations": TOLD}
    template = {"metadata": {"labels": {"a": "b"}, "annotations": TOLD}, "spec": _pod("d", "1")["spec"]}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    _create(served, "daemonsets.apps", {"metadata": own, "spec": spec})
    _create(served, "secrets", {"metadata": own, "stringData": {"password": SECRET}})
    _create(served, "configmaps", {"metadata": own, "data": {"password": SECRET}})
    _create(served, "services", {"metadata": own, "spec": {"selector": {"a": "b"}, "ports": [{"port": 80}]}})
    _create(served, "persistentvolumeclaims", {"metadata": own, "spec": CLAIM})
    csi = {"driver": "d", "volumeHandle": "h", "volumeAttributes": {"password": SECRET}}
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": csi}
    _create(served, "persistentvolumes", {"metadata": {"name": "own", "annotations": TOLD}, "spec": volume})
    storage = {
        "metadata": {"name": "own", "annotations": TOLD},
        "provisioner": "p",
        "parameters": {"p": SECRET},
    }
    _create(served, "storageclasses.storage.k8s.io", storage)

    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    overlay = {"metadata": {"name": "dear"}, "spec": {"requirements": [linux], "price": "7.5"}}
    _create(served, "nodeoverlays.karpenter.sh", overlay)


def _create(served: Secured, resource: str, obj: Json) -> None:
    served.create(resource, obj)


def _status(served: Secured, resource: str, name: str, status: Json, namespace: str = "") -> None:
    api = served.server.build_local_client("test")

    def write() -> None:
        api.update(resource, api.get(resource, name, namespace) | {"status": status}, "status")

    served.call(write)


def test_a_pod_that_fits_nowhere_is_explained_from_the_live_cluster(server: Secured) -> None:
    ended = ask(server, "explain", "stuck")
    assert (ended.code, ended.err) == (3, "")
    assert ended.out.startswith("default/stuck fits none of 2 pools and nodes: ")
    assert " but for its node selector: team In [blue]\n" in ended.out


def test_pods_with_a_place_and_pods_held_back_have_an_answer(server: Secured) -> None:
    assert ask(server, "explain", "here").out == "default/here is on node old\n"
    assert ask(server, "explain", "next").out.startswith(
        "default/next will run on a new node of pool default\n"
    )
    gated = ask(server, "explain", "pod/default/gated")
    assert (gated.code, gated.out) == (
        0,
        "default/gated is not scheduled because of its scheduling gates: quota\n",
    )


def test_overlays_count_where_their_gate_is_open(server: Secured) -> None:
    def price(**settings: str) -> float:
        env = {"KUBECONFIG": str(server.kubeconfig), **settings}
        told = json.loads(dovetail("explain", "next", "-o", "json", env=env).out)
        return float(told["newNode"]["price"])

    assert price() < 1
    assert price(FEATURE_GATES="NodeOverlay=true") == 7.5


def test_a_node_is_explained_from_the_live_cluster(server: Secured) -> None:
    told = json.loads(ask(server, "explain", "old", "-o", "json").out)
    assert told["explanation"] == "node old is blocked: node isn't managed by karpenter"
    assert told["requests"]["cpu"] == "3"
    assert [each["name"] for each in told["pods"]] == ["default/here"]


def test_what_was_saved_is_explained_as_it_was_live(server: Secured, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    ended = ask(server, "snapshot", "-o", str(file))
    assert (ended.code, ended.out) == (0, "")
    assert ended.err.startswith(f"{file}: 1 node, 2 pending pods, 1 pool, ")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    for name in ("stuck", "here", "next", "old"):
        live, later = ask(server, "explain", name), dovetail("explain", name, "--snapshot", str(file))
        assert (later.code, later.out) == (live.code, live.out)


def test_a_live_cluster_and_its_snapshot_are_planned_alike(server: Secured, tmp_path: Path) -> None:
    file = tmp_path / "snapshot.json"
    assert ask(server, "snapshot", "-o", str(file)).code == 0
    live, later = ask(server, "plan", "--live"), dovetail("plan", "--snapshot", str(file))
    assert (live.code, live.err) == (3, "")
    assert "\n1 pod on 1 new node: $" in live.out
    assert "default/stuck fits none of " in live.out
    assert (later.code, later.out) == (live.code, live.out)


def test_a_snapshot_holds_no_secrets_arguments_or_environment(server: Secured) -> None:
    everything = server.call(lambda: json.dumps(server.server.build_local_client("test").list("pods")))
    assert everything.count(SECRET) > 20
    ended = ask(server, "snapshot", "-o", "-")
    saved = json.loads(ended.out)
    assert ended.code == 0
    assert [row[0]["name"] for row in saved["pods"]] == ["next", "stuck"]
    assert [row[0]["name"] for row in saved["daemons"]] == ["own"]
    assert list(saved["snapshot"]["storage"]["volumes"]) == ["own"]
    assert SECRET not in ended.out
    assert "example.com/token" not in ended.out
    assert "last-applied" not in ended.out


def test_the_cluster_is_only_read(server: Secured, heard: Heard) -> None:
    before = server.call(lambda: server.server.store.revision)
    assert ask(server, "snapshot", "-o", "-").code == 0
    assert ask(server, "explain", "stuck").code == 3
    assert {call.verb for call in heard.calls} == {"get", "list"}
    assert not any(call.resource == "secrets" for call in heard.calls)
    # By its name: what an embedded cluster says of itself.
    assert {call.name for call in heard.calls if call.resource == "configmaps"} == {"dovetail-up"}
    assert server.call(lambda: server.server.store.revision) == before


def test_a_server_that_refuses_is_one_sentence(server: Secured, heard: Heard) -> None:
    heard.answer = Fault(error=ApiError(403, "Forbidden", "you may not", {}))
    ended = ask(server, "explain", "stuck")
    assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
    assert ended.err.startswith(f"dovetail: reading the cluster at {server.url}: listing ")
    assert ended.err.endswith("; it takes the right to list what Dovetail watches\n")


def test_a_server_that_is_not_there_is_one_sentence(server: Secured, tmp_path: Path) -> None:
    away = tmp_path / "kubeconfig"
    away.write_text(server.kubeconfig.read_text().replace(server.url, "https://127.0.0.1:1"))
    for command in (("explain", "stuck"), ("snapshot", "-o", str(tmp_path / "never"))):
        ended = dovetail(*command, "--kubeconfig", str(away))
        assert (ended.code, ended.out, ended.err.count("\n")) == (2, "", 1)
        assert ended.err.startswith("dovetail: reading the cluster at https://127.0.0.1:1: calling GET ")
        assert ended.err.endswith("; check --kubeconfig, and that the cluster is up\n")
    assert not (tmp_path / "never").exists()


def test_a_context_that_is_not_there_and_a_file_that_cannot_be_written_are_one_sentence(
    server: Secured, tmp_path: Path
) -> None:
    ended = ask(server, "explain", "stuck", "--context", "prod")
    assert (ended.code, ended.err.count("\n")) == (2, 1)
    assert "there is no context named 'prod'; it has it\n" in ended.err
    ended = ask(server, "snapshot", "-o", str(tmp_path))
    assert (ended.code, ended.err) == (
        1,
        f"dovetail: writing {tmp_path}: is a directory; choose another file\n",
    )


def test_a_cluster_without_our_kinds_is_told_how_to_get_them(tmp_path: Path) -> None:
    with secured(tmp_path) as bare:
        bare.call(
            lambda: bare.server.build_local_client("test").delete(DEFINITIONS, "nodepools.karpenter.sh")
        )
        ended = ask(bare, "explain", "web")
    assert (ended.code, ended.err) == (
        2,
        f"dovetail: reading the cluster at {bare.url}: it does not know nodepools.karpenter.sh; "
        "install it with `dovetail crds | kubectl apply -f -`\n",
    )


def test_a_node_that_the_controller_has_marked_is_seen_as_leaving(tmp_path: Path) -> None:
    """Its pods are planned elsewhere, and it is not chosen once more, as in the controller."""
    with secured(tmp_path) as served:
        pool = node_pool()
        _create(served, "nodepools.karpenter.sh", pool)
        named = {"karpenter.sh/nodepool": "default"}
        reference = pool["spec"]["template"]["spec"]["nodeClassRef"]
        claim = {
            "metadata": {"name": "old", "labels": named},
            "spec": {"nodeClassRef": reference, "requirements": []},
        }
        _create(served, "nodeclaims.karpenter.sh", claim)
        _status(served, "nodeclaims.karpenter.sh", "old", {"providerID": "x://old", "nodeName": "old"})
        node = _node("old")
        node["metadata"]["labels"] |= named | {
            "karpenter.sh/registered": "true",
            "karpenter.sh/initialized": "true",
        }
        node["spec"]["taints"] = [{"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}]
        _create(served, "nodes", node)
        _status(served, "nodes", "old", {"capacity": SIZE, "allocatable": SIZE})
        _create(served, "pods", _pod("here", "3", "old"))
        told = ask(served, "explain", "here").out
        planned = json.loads(ask(served, "plan", "--disruption", "-o", "json").out)
    assert told.startswith("its node old is being removed; default/here ")
    assert [(each["node"], each["reason"]) for each in planned["staying"]] == [("old", "under-way")]


@pytest.mark.spec("FN-3a")
def test_a_laptop_without_settings_decides_with_those_on_the_leaders_lease(tmp_path: Path) -> None:
    """And says so; who may not read Leases is told that instead."""
    settings = read_settings((), {"CONSOLIDATION_REST": "100000h"}, provider="kwok")
    lease = {
        "metadata": {
            "name": "karpenter-leader-election",
            "namespace": "kube-system",
            "annotations": build_lease_annotations(settings),
        },
        "spec": {"holderIdentity": "controller-1_x"},
    }
    with secured(tmp_path) as served:
        _create_managed_node(served)
        before = ask(served, "plan", "--disruption", "-o", "json")
        _create(served, "leases.coordination.k8s.io", lease)
        after = ask(served, "plan", "--disruption", "-o", "json")
        explained = ask(served, "explain", "node/old")
        own = {"KUBECONFIG": str(served.kubeconfig), "CONSOLIDATION_REST": "0s"}
        stubborn = dovetail("plan", "--disruption", "-o", "json", env=own)
        served.call(lambda: setattr(served.server, "faults", _NoLeases()))
        refused = ask(served, "plan", "--disruption", "-o", "json")
    assert _find_reasons(before) != ["moved-lately"]
    assert before.err == ""
    assert _find_reasons(after) == _find_reasons(stubborn) == ["moved-lately"]
    source = "from Lease kube-system/karpenter-leader-election"
    assert after.err == f"note: decided with the settings of the controller, {source}\n"
    assert "is left alone for 100000h" in explained.out
    assert _find_reasons(refused) == _find_reasons(before)
    assert refused.err == (
        "note: decided with the settings of this environment: the controller says its own on its Lease, and "
        "reading it takes `list` on leases\n"
    )


class _NoLeases:
    """Nobody may read Leases."""

    def find_fault(self, call: ApiCall) -> Fault | None:
        refused = call.resource.startswith("leases")
        return Fault(error=ApiError(403, "Forbidden", "not for you")) if refused else None


def _find_reasons(ended: Ended) -> list[str]:
    return [each["reason"] for each in json.loads(ended.out)["staying"]]


def _create_managed_node(served: Secured) -> None:
    """A node of a pool with a pod on it, which consolidation may look at."""
    pool = node_pool()
    _create(served, "nodepools.karpenter.sh", pool)
    named = {"karpenter.sh/nodepool": "default"}
    reference = pool["spec"]["template"]["spec"]["nodeClassRef"]
    spec = {"nodeClassRef": reference, "requirements": []}
    _create(served, "nodeclaims.karpenter.sh", {"metadata": {"name": "old", "labels": named}, "spec": spec})
    since = {"status": "True", "reason": "x", "message": "", "lastTransitionTime": "2026-06-01T12:00:00Z"}
    conditions = [
        since | {"type": kind} for kind in ("Launched", "Registered", "Initialized", "Consolidatable")
    ]
    status = {"providerID": "x://old", "nodeName": "old", "conditions": conditions}
    _status(served, "nodeclaims.karpenter.sh", "old", status)
    node = _node("old")
    node["metadata"]["labels"] |= named | {
        "karpenter.sh/registered": "true",
        "karpenter.sh/initialized": "true",
        "karpenter.sh/capacity-type": "on-demand",
        "topology.kubernetes.io/zone": "test-zone-a",
        "node.kubernetes.io/instance-type": "c-4x-amd64-linux",
    }
    _create(served, "nodes", node)
    ready = [since | {"type": "Ready"}]
    _status(served, "nodes", "old", {"capacity": SIZE, "allocatable": SIZE, "conditions": ready})
    _create(served, "pods", _pod("here", "3", "old"))

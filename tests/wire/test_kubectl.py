"""A real kubectl against the server: every command an operator or a guide would type."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from dovetail.runtime.clock import SystemClock
from dovetail.sim.certificates import ClusterCertificates
from dovetail.sim.kube.apiserver import ApiServer
from dovetail.sim.kube.local import LocalApi
from support.apiserver import budget, config_map, definition, deployment, node, pod, widget
from support.corpus import CORPUS
from support.kubectl import Kubectl

CRDS = "customresourcedefinitions.apiextensions.k8s.io"


class Bench:
    """A server, a client in process and kubectl, all looking at the same objects."""

    def __init__(self, server: ApiServer, kubectl: Kubectl) -> None:
        self.server = server
        self.api: LocalApi = server.build_local_client()
        self.kubectl = kubectl

    def running(self, name: str, **more: Any) -> None:
        """A pod that a kubelet has started on n1."""
        self.api.create("pods", pod(name, **more))
        self.api.bind(name, "default", "n1")
        started = {"running": {"startedAt": "2030-01-01T00:00:00Z"}}
        state = {
            "name": "main",
            "image": "web:1",
            "imageID": "x",
            "ready": True,
            "restartCount": 0,
            "state": started,
        }
        conditions = [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady")]
        status = {"phase": "Running", "containerStatuses": [state], "conditions": conditions}
        self.api.patch("pods", name, {"status": status}, "default", subresource="status")


@pytest.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    server = ApiServer(SystemClock(), random.Random(1), bookmark_every=1.0)
    async with server.serve() as running:
        yield Bench(server, Kubectl(running.url, tmp_path))


def text(*documents: dict[str, Any]) -> str:
    return yaml.safe_dump_all(documents)


def header(table: str) -> list[str]:
    return table.splitlines()[0].split()


async def test_get_prints_tables(bench: Bench) -> None:
    bench.api.create("nodes", node("n1"))
    bench.running("a")
    assert header(await bench.kubectl.ok("get", "pods")) == ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]
    row = (await bench.kubectl.ok("get", "pod", "a", "--no-headers")).split()
    assert row[:4] == ["a", "1/1", "Running", "0"]
    wide = await bench.kubectl.ok("get", "pods", "-o", "wide")
    assert "n1" in wide
    assert "NOMINATED NODE" in wide
    assert header(await bench.kubectl.ok("get", "pods", "-A"))[0] == "NAMESPACE"
    nodes = await bench.kubectl.ok("get", "nodes")
    assert header(nodes) == ["NAME", "STATUS", "ROLES", "AGE", "VERSION"]
    assert header(await bench.kubectl.ok("get", "pods", "-L", "app"))[-1] == "APP"


async def test_get_in_other_forms(bench: Bench) -> None:
    bench.api.create("configmaps", config_map("a", x="1"))
    assert yaml.safe_load(await bench.kubectl.ok("get", "cm", "a", "-o", "yaml"))["data"] == {"x": "1"}
    assert json.loads(await bench.kubectl.ok("get", "cm", "-o", "json"))["items"][0]["kind"] == "ConfigMap"
    assert await bench.kubectl.ok("get", "cm", "-o", "name") == "configmap/a\n"
    assert await bench.kubectl.ok("get", "cm", "a", "-o", "jsonpath={.data.x}") == "1"
    assert "a" in await bench.kubectl.ok("get", "cm", "--sort-by=.metadata.name")
    assert 'configmaps "b" not found' in await bench.kubectl.fails("get", "cm", "b")
    outcome = await bench.kubectl.run("get", "pods")
    assert "No resources found in default namespace." in outcome.err


async def test_get_watch_follows(bench: Bench) -> None:
    bench.api.create("configmaps", config_map("a"))
    watching = asyncio.ensure_future(bench.kubectl.run("get", "cm", "-w", "--request-timeout=3s"))
    await asyncio.sleep(1.2)
    bench.api.create("configmaps", config_map("b"))
    outcome = await watching
    assert [line.split()[0] for line in outcome.out.splitlines()] == ["NAME", "a", "b"]


async def test_get_all_asks_for_every_kind_of_the_category(bench: Bench) -> None:
    bench.api.create("deployments.apps", deployment("web"))
    bench.api.create("services", {"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}})
    shown = await bench.kubectl.ok("get", "all")
    assert "deployment.apps/web" in shown
    assert "service/web" in shown


async def test_describe_node_and_pod(bench: Bench) -> None:
    bench.api.create("nodes", node("n1"))
    limits = {"limits": {"cpu": "1", "memory": "1Gi"}}
    bench.running("a", containers=[{"name": "main", "image": "web:1", "resources": limits}])
    uid = bench.api.get("pods", "a", "default")["metadata"]["uid"]
    about = {"kind": "Pod", "name": "a", "namespace": "default", "uid": uid}
    event = {
        "metadata": {"name": "e"},
        "involvedObject": about,
        "reason": "Pulled",
        "message": "image is here",
    }
    bench.api.create("events", {**event, "type": "Normal", "lastTimestamp": "2030-01-01T00:00:00Z"})
    described = await bench.kubectl.ok("describe", "node", "n1")
    assert "Non-terminated Pods:          (1 in total)" in described
    assert "1 (25%)" in described
    described = await bench.kubectl.ok("describe", "pod", "a")
    assert "QoS Class:" in described
    assert "image is here" in described
    assert "Pulled" in await bench.kubectl.ok("get", "events")
    assert "Pulled" in await bench.kubectl.ok("events")


async def test_create_and_apply_from_files(bench: Bench) -> None:
    body = text(deployment("web"))
    assert "deployment.apps/web created" in await bench.kubectl.ok("create", "-f", "-", stdin=body)
    assert "already exists" in await bench.kubectl.fails("create", "-f", "-", stdin=body)
    body = text(deployment("api"))
    assert "deployment.apps/api created" in await bench.kubectl.ok("apply", "-f", "-", stdin=body)
    assert "deployment.apps/api unchanged" in await bench.kubectl.ok("apply", "-f", "-", stdin=body)
    changed = deployment("api", 3)
    changed["spec"]["template"]["spec"]["containers"].append({"name": "side", "image": "side:1"})
    assert "deployment.apps/api configured" in await bench.kubectl.ok("apply", "-f", "-", stdin=text(changed))
    stored = bench.api.get("deployments.apps", "api", "default")
    assert stored["spec"]["replicas"] == 3
    assert [each["name"] for each in stored["spec"]["template"]["spec"]["containers"]] == ["main", "side"]
    await bench.kubectl.ok("apply", "-f", "-", stdin=text(deployment("api", 3)))
    stored = bench.api.get("deployments.apps", "api", "default")
    assert [each["name"] for each in stored["spec"]["template"]["spec"]["containers"]] == ["main"]


async def test_a_misspelt_field_is_refused(bench: Bench) -> None:
    body = deployment("web")
    body["spec"]["replica"] = 3
    assert 'unknown field "spec.replica"' in await bench.kubectl.fails("apply", "-f", "-", stdin=text(body))
    outcome = await bench.kubectl.run("apply", "--validate=warn", "-f", "-", stdin=text(body))
    assert 'Warning: unknown field "spec.replica"' in outcome.err
    assert outcome.code == 0


async def test_custom_resources_appear_and_are_held_to_their_schema(bench: Bench) -> None:
    assert "created" in await bench.kubectl.ok("apply", "-f", "-", stdin=text(definition()))
    await bench.kubectl.ok("wait", "--for=condition=Established", "crd/widgets.example.com", "--timeout=5s")
    assert "created" in await bench.kubectl.ok("apply", "-f", "-", stdin=text(widget("w", size=3)))
    assert "configured" in await bench.kubectl.ok("apply", "-f", "-", stdin=text(widget("w", size=5)))
    shown = await bench.kubectl.ok("get", "wd")
    assert header(shown) == ["NAME", "SIZE"]
    assert shown.splitlines()[1].split() == ["w", "5"]
    complaint = await bench.kubectl.fails("apply", "-f", "-", stdin=text(widget("w", size=1)))
    assert "size may not shrink" in complaint
    complaint = await bench.kubectl.fails("apply", "-f", "-", stdin=text(widget("v", size=900)))
    assert "spec.size" in complaint
    assert "widgets" in await bench.kubectl.ok("api-resources", "--api-group=example.com")
    assert "415" in str((await bench.kubectl.run("patch", "wd", "w", "-p", "{}", "-v6")).err)
    assert "size" in await bench.kubectl.ok("explain", "widgets.spec")
    assert "deleted" in await bench.kubectl.ok("delete", "crd", "widgets.example.com")


async def test_server_side_apply_owns_conflicts_and_migrates(bench: Bench) -> None:
    one = text(config_map("a", x="1"))
    apply = ("apply", "--server-side", "-f", "-")
    assert "serverside-applied" in await bench.kubectl.ok(*apply, stdin=one)
    other = text(config_map("a", x="2"))
    complaint = await bench.kubectl.fails(*apply, "--field-manager=other", stdin=other)
    assert ".data.x" in complaint
    await bench.kubectl.ok(*apply, "--field-manager=other", "--force-conflicts", stdin=other)
    assert bench.api.get("configmaps", "a", "default")["data"] == {"x": "2"}
    await bench.kubectl.ok("apply", "-f", "-", stdin=text(config_map("b", x="1", y="2")))
    await bench.kubectl.ok(*apply, stdin=text(config_map("b", x="1")))
    assert bench.api.get("configmaps", "b", "default")["data"] == {"x": "1"}


async def test_scale_label_annotate_and_set_image(bench: Bench) -> None:
    bench.api.create("deployments.apps", deployment("web"))
    assert "scaled" in await bench.kubectl.ok("scale", "deploy/web", "--replicas=4")
    assert "labeled" in await bench.kubectl.ok("label", "deploy/web", "a=b")
    assert "annotated" in await bench.kubectl.ok("annotate", "deploy/web", "c=d")
    assert "image updated" in await bench.kubectl.ok("set", "image", "deploy/web", "main=web:2")
    assert "restarted" in await bench.kubectl.ok("rollout", "restart", "deploy/web")
    stored = bench.api.get("deployments.apps", "web", "default")
    assert stored["spec"]["replicas"] == 4
    assert (stored["metadata"]["labels"], stored["metadata"]["annotations"]["c"]) == ({"a": "b"}, "d")
    assert stored["spec"]["template"]["spec"]["containers"][0]["image"] == "web:2"
    restarted = stored["spec"]["template"]["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" in restarted
    assert stored["metadata"]["generation"] == 4
    assert "unlabeled" in await bench.kubectl.ok("label", "deploy/web", "a-")


async def test_taint_cordon_and_uncordon(bench: Bench) -> None:
    bench.api.create("nodes", node("n1"))
    assert "tainted" in await bench.kubectl.ok("taint", "node", "n1", "a=b:NoSchedule")
    assert {"key": "a", "value": "b", "effect": "NoSchedule"} in bench.api.get("nodes", "n1")["spec"][
        "taints"
    ]
    assert "untainted" in await bench.kubectl.ok("taint", "node", "n1", "a-")
    assert "cordoned" in await bench.kubectl.ok("cordon", "n1")
    assert bench.api.get("nodes", "n1")["spec"]["unschedulable"] is True
    assert "SchedulingDisabled" in await bench.kubectl.ok("get", "nodes")
    assert "uncordoned" in await bench.kubectl.ok("uncordon", "n1")
    assert "unschedulable" not in bench.api.get("nodes", "n1")["spec"]


async def test_drain_waits_for_the_budget_and_for_the_pods_to_go(bench: Bench) -> None:
    bench.api.create("nodes", node("n1"))
    bench.api.create("poddisruptionbudgets.policy", budget("b", maxUnavailable=1))
    status = {"disruptionsAllowed": 0, "observedGeneration": 1, "desiredHealthy": 1, "currentHealthy": 1}
    budgets = "poddisruptionbudgets.policy"
    bench.api.patch(budgets, "b", {"status": status}, "default", subresource="status")
    bench.running("a")
    draining = asyncio.ensure_future(bench.kubectl.run("drain", "n1", "--force", "--timeout=25s"))
    await asyncio.sleep(2)
    assert bench.api.get("nodes", "n1")["spec"]["unschedulable"] is True
    assert "deletionTimestamp" not in bench.api.get("pods", "a", "default")["metadata"]
    allowed = {"status": {"disruptionsAllowed": 1}}
    bench.api.patch(budgets, "b", allowed, "default", subresource="status")
    await _stop_when_deleted(bench, "a")
    outcome = await draining
    assert "evicting pod default/a" in outcome.out
    assert "node/n1 drained" in outcome.out
    assert "disruption budget" in outcome.err


async def _stop_when_deleted(bench: Bench, name: str) -> None:
    """What a kubelet does."""
    async for _, obj in bench.api.watch("pods"):
        if obj["metadata"].get("deletionTimestamp"):
            bench.api.delete("pods", name, "default", grace_seconds=0)
            return


async def test_delete_waits_until_it_is_done(bench: Bench) -> None:
    bench.api.create("nodes", node("n1"))
    bench.running("a")
    deleting = asyncio.ensure_future(bench.kubectl.ok("delete", "pod", "a"))
    await asyncio.wait_for(_stop_when_deleted(bench, "a"), 10)
    assert 'pod "a" deleted' in await deleting
    for index in range(3):
        bench.api.create("configmaps", config_map(f"m{index}"))
    await bench.kubectl.ok("delete", "cm", "--all")
    assert bench.api.list("configmaps", "default") == []
    bench.api.create("namespaces", {"metadata": {"name": "old"}})
    bench.api.create("configmaps", config_map("x", namespace="old"))
    assert 'namespace "old" deleted' in await bench.kubectl.ok("delete", "ns", "old")
    assert "not found" in await bench.kubectl.fails("delete", "cm", "nope")


async def test_delete_cascades_as_told(bench: Bench) -> None:
    for name, policy in (("one", "orphan"), ("two", "foreground")):
        owner = bench.api.create("configmaps", config_map(name))
        child = config_map(f"{name}-child")
        reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": owner["metadata"]["uid"]}
        child["metadata"]["ownerReferences"] = [reference]
        bench.api.create("configmaps", child)
        await bench.kubectl.ok("delete", "cm", name, f"--cascade={policy}")
    left = [each["metadata"]["name"] for each in bench.api.list("configmaps", "default")]
    assert left == ["one-child"]


async def test_wait_and_rollout_status(bench: Bench) -> None:
    bench.api.create("nodes", node("n1"))
    waiting = asyncio.ensure_future(
        bench.kubectl.ok("wait", "--for=condition=Ready", "node/n1", "--timeout=15s")
    )
    await asyncio.sleep(1)
    condition = {"type": "Ready", "status": "True"}
    bench.api.patch("nodes", "n1", {"status": {"conditions": [condition]}}, subresource="status")
    assert "condition met" in await waiting
    gone = asyncio.ensure_future(bench.kubectl.ok("wait", "--for=delete", "node/n1", "--timeout=15s"))
    await asyncio.sleep(1)
    bench.api.delete("nodes", "n1")
    assert await gone is not None
    bench.api.create("deployments.apps", deployment("web"))
    rolling = asyncio.ensure_future(bench.kubectl.ok("rollout", "status", "deploy/web", "--timeout=15s"))
    await asyncio.sleep(1)
    counts = dict.fromkeys(("replicas", "updatedReplicas", "readyReplicas", "availableReplicas"), 1)
    status = {"status": {**counts, "observedGeneration": 1}}
    bench.api.patch("deployments.apps", "web", status, "default", subresource="status")
    assert "successfully rolled out" in await rolling


async def test_patch_of_every_kind(bench: Bench) -> None:
    bench.api.create("deployments.apps", deployment("web"))
    await bench.kubectl.ok("patch", "deploy", "web", "--type=merge", "-p", '{"spec":{"replicas":2}}')
    operation = '[{"op":"replace","path":"/spec/replicas","value":3}]'
    await bench.kubectl.ok("patch", "deploy", "web", "--type=json", "-p", operation)
    side = '{"spec":{"template":{"spec":{"containers":[{"name":"side","image":"side:1"}]}}}}'
    await bench.kubectl.ok("patch", "deploy", "web", "-p", side)
    stored = bench.api.get("deployments.apps", "web", "default")
    assert stored["spec"]["replicas"] == 3
    names = [each["name"] for each in stored["spec"]["template"]["spec"]["containers"]]
    assert sorted(names) == ["main", "side"]
    status = '{"status":{"replicas":7}}'
    await bench.kubectl.ok("patch", "deploy", "web", "--subresource=status", "--type=merge", "-p", status)
    assert bench.api.get("deployments.apps", "web", "default")["status"]["replicas"] == 7
    operation = '[{"op":"test","path":"/spec/replicas","value":99}]'
    assert (
        "invalid"
        in (await bench.kubectl.fails("patch", "deploy", "web", "--type=json", "-p", operation)).lower()
    )


async def test_replace_and_diff(bench: Bench) -> None:
    bench.api.create("configmaps", config_map("a", x="1"))
    assert "replaced" in await bench.kubectl.ok("replace", "-f", "-", stdin=text(config_map("a", x="2")))
    assert bench.api.get("configmaps", "a", "default")["data"] == {"x": "2"}
    revision = bench.server.store.revision
    outcome = await bench.kubectl.run("diff", "-f", "-", stdin=text(config_map("a", x="3")))
    assert outcome.code == 1
    assert '+  x: "3"' in outcome.out
    assert bench.server.store.revision == revision
    dry = ("apply", "--dry-run=server", "-f", "-")
    assert "server dry run" in await bench.kubectl.ok(*dry, stdin=text(config_map("new", x="3")))
    assert bench.server.store.revision == revision


async def test_edit_writes_back_what_the_editor_made(bench: Bench, tmp_path: Path) -> None:
    bench.api.create("configmaps", config_map("a", x="1"))
    script = tmp_path / "editor.sh"
    script.write_text('#!/bin/sh\nsed -i \'s/x: "1"/x: "9"/\' "$1"\n')
    script.chmod(0o755)
    editing = Kubectl(bench.kubectl.url, bench.kubectl.home, editor=str(script))
    assert "edited" in await editing.ok("edit", "cm", "a")
    assert bench.api.get("configmaps", "a", "default")["data"] == {"x": "9"}


async def test_explain_and_api_resources(bench: Bench) -> None:
    explained = await bench.kubectl.ok("explain", "pod.spec.tolerations")
    assert "tolerationSeconds" in explained
    assert "GROUP:      apps" in await bench.kubectl.ok("explain", "deployment")
    resources = await bench.kubectl.ok("api-resources", "--verbs=list", "-o", "name")
    assert {"pods", "deployments.apps", "nodes"} <= set(resources.split())
    versions = (await bench.kubectl.ok("api-versions")).split()
    assert {"v1", "apps/v1", "policy/v1"} <= set(versions)
    assert "Server Version: v1." in await bench.kubectl.ok("version")


async def test_logs(bench: Bench) -> None:
    bench.running("a")
    assert "started web:1 on n1" in await bench.kubectl.ok("logs", "a")
    assert await bench.kubectl.ok("logs", "a", "--tail=0") == ""
    assert "container nope is not valid" in await bench.kubectl.fails("logs", "a", "-c", "nope")


async def test_questions_about_access(bench: Bench) -> None:
    assert await bench.kubectl.ok("auth", "can-i", "create", "pods") == "yes\n"
    assert "*.*" in await bench.kubectl.ok("auth", "can-i", "--list")
    assert "system:admin" in await bench.kubectl.ok("auth", "whoami")
    bench.api.create("serviceaccounts", {"metadata": {"name": "robot"}})
    assert "robot" in await bench.kubectl.ok("create", "token", "robot")


IMPERATIVE = [
    ("create", "namespace", "x"),
    ("create", "deployment", "x", "--image=web:1", "--replicas=2"),
    ("create", "job", "x", "--image=web:1"),
    ("create", "cronjob", "x", "--image=web:1", "--schedule=*/5 * * * *"),
    ("create", "configmap", "x", "--from-literal=a=b"),
    ("create", "secret", "generic", "x", "--from-literal=a=b"),
    ("create", "serviceaccount", "x"),
    ("create", "poddisruptionbudget", "x", "--selector=app=web", "--min-available=50%"),
    ("create", "priorityclass", "x", "--value=10"),
    ("create", "quota", "x", "--hard=pods=3"),
    ("create", "role", "x", "--verb=get", "--resource=pods"),
    ("create", "rolebinding", "x", "--role=x", "--user=me"),
    ("create", "clusterrole", "x", "--verb=get", "--resource=nodes"),
    ("create", "clusterrolebinding", "x", "--clusterrole=x", "--user=me"),
    ("create", "service", "clusterip", "x", "--tcp=80:8080"),
    ("create", "ingress", "x", "--rule=example.com/=x:80"),
    ("run", "x", "--image=web:1"),
]


@pytest.mark.parametrize("command", IMPERATIVE, ids=lambda command: "-".join(command[:3]))
async def test_imperative_commands(bench: Bench, command: tuple[str, ...]) -> None:
    assert "created" in await bench.kubectl.ok(*command)


async def test_expose_and_autoscale(bench: Bench) -> None:
    bench.api.create("deployments.apps", deployment("web"))
    assert "exposed" in await bench.kubectl.ok("expose", "deploy", "web", "--port=80")
    assert "autoscaled" in await bench.kubectl.ok("autoscale", "deploy", "web", "--max=5")
    scaler = bench.api.get("horizontalpodautoscalers.autoscaling", "web", "default")
    assert scaler["spec"]["maxReplicas"] == 5


async def test_what_is_out_of_scope_fails_plainly(bench: Bench) -> None:
    bench.running("a")
    assert "Metrics API not available" in await bench.kubectl.fails("top", "nodes")
    assert "this cluster runs no containers" in await bench.kubectl.fails("exec", "a", "--", "true")


async def test_a_token_and_a_trusted_certificate_are_needed_when_they_are_set(tmp_path: Path) -> None:
    server = ApiServer(SystemClock(), random.Random(1))
    certificates = ClusterCertificates()
    trusted = tmp_path / "ca.pem"
    trusted.write_bytes(certificates.authority)
    async with server.serve(token="secret", tls=certificates.context) as running:
        kubectl = Kubectl(running.url, tmp_path)
        assert "certificate" in await kubectl.fails("get", "ns", "--token=secret")
        trust = f"--certificate-authority={trusted}"
        assert "provide credentials" in await kubectl.fails("get", "ns", trust, "--token=wrong")
        assert "kube-system" in await kubectl.ok("get", "ns", trust, "--token=secret")


async def test_a_list_is_created_applied_and_replaced(bench: Bench) -> None:
    listed = yaml.safe_dump(
        {"apiVersion": "v1", "kind": "List", "items": [config_map("a", x="1"), deployment("web", replicas=0)]}
    )
    made = await bench.kubectl.ok("create", "--save-config", "-f", "-", stdin=listed)
    assert made.splitlines() == ["configmap/a created", "deployment.apps/web created"]
    assert "unchanged" in await bench.kubectl.ok("apply", "-f", "-", stdin=listed)
    written = await bench.kubectl.ok("get", "configmap,deployment", "-o", "yaml")
    assert "kind: List" in written
    assert "deployment.apps/web" in await bench.kubectl.ok("apply", "-f", "-", stdin=written)
    assert "configmap/a replaced" in await bench.kubectl.ok("replace", "-f", "-", stdin=listed)


async def test_a_list_is_validated_item_by_item(bench: Bench) -> None:
    wrong = {**deployment("web"), "spec": {**deployment("web")["spec"], "replica": 2}}
    listed = yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [wrong]})
    said = await bench.kubectl.fails("create", "-f", "-", stdin=listed)
    assert 'unknown field "replica"' in said


@pytest.mark.parametrize("verb", ["apply", "create", "replace"])
async def test_an_unknown_kind_is_one_sentence(bench: Bench, verb: str) -> None:
    unknown = yaml.safe_dump({"apiVersion": "example.com/v9", "kind": "Gizmo", "metadata": {"name": "a"}})
    said = await bench.kubectl.fails(verb, "-f", "-", stdin=unknown)
    assert 'no matches for kind "Gizmo" in version "example.com/v9"' in said
    assert "ensure CRDs are installed first" in said


@pytest.mark.parametrize(
    "command",
    [
        ("exec", "a", "--", "ls"),
        ("attach", "a"),
        ("port-forward", "pod/a", ":80"),
        ("cp", "/etc/hosts", "a:/tmp/hosts"),
        ("cp", "a:/tmp/hosts", "copied"),
        ("debug", "a", "--image=busybox", "--profile=general"),
        ("debug", "-it", "a", "--image=busybox", "--target=main", "--profile=general"),
    ],
    ids=" ".join,
)
async def test_what_needs_a_container_is_refused_and_does_not_hang(
    bench: Bench, command: tuple[str, ...]
) -> None:
    bench.api.create("nodes", node("n1"))
    bench.running("a")
    said = await bench.kubectl.fails(*command, within=20)
    assert "this cluster runs no containers: pod a is an object only" in said


async def test_a_pod_without_a_node_says_so_as_on_a_real_server(bench: Bench) -> None:
    bench.api.create("pods", pod("a"))
    assert "pod a does not have a host assigned" in await bench.kubectl.fails("exec", "a", "--", "ls")
    assert 'pods "b" not found' in await bench.kubectl.fails("exec", "b", "--", "ls")


async def test_an_autoscaler_is_made_and_shown_in_both_versions(bench: Bench) -> None:
    bench.api.create("deployments.apps", deployment("web"))
    await bench.kubectl.ok("autoscale", "deployment", "web", "--min=2", "--max=5", "--cpu=70%")
    table = await bench.kubectl.ok("get", "hpa")
    assert header(table) == ["NAME", "REFERENCE", "TARGETS", "MINPODS", "MAXPODS", "REPLICAS", "AGE"]
    assert "Deployment/web   cpu: <unknown>/70%   2         5         0" in table
    old = await bench.kubectl.ok("get", "horizontalpodautoscalers.v1.autoscaling", "web", "-o", "yaml")
    assert "targetCPUUtilizationPercentage: 70" in old
    assert "Min replicas:" in await bench.kubectl.ok("describe", "hpa", "web")


async def test_every_kind_of_the_corpus_has_the_columns_of_a_real_server(bench: Bench) -> None:
    await bench.kubectl.ok("apply", "-f", str(CORPUS / "policy"), "-f", str(CORPUS / "ingress"))
    for kind, columns in (
        ("ing", "NAME CLASS HOSTS ADDRESS PORTS AGE"),
        ("netpol", "NAME POD-SELECTOR AGE"),
        ("rolebinding", "NAME ROLE AGE USERS GROUPS SERVICEACCOUNTS"),
        ("quota", "NAME REQUEST LIMIT AGE"),
        ("runtimeclass", "NAME HANDLER AGE"),
        ("mutatingwebhookconfiguration", "NAME WEBHOOKS AGE"),
        ("validatingadmissionpolicy", "NAME VALIDATIONS PARAMKIND AGE"),
        ("endpointslice", "NAME ADDRESSTYPE PORTS ENDPOINTS AGE"),
    ):
        assert header(await bench.kubectl.ok("get", kind, "-o", "wide")) == columns.split()

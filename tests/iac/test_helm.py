"""A real helm on a served API: a matrix of values is taken, a release is installed, upgraded and removed."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from support.helm import CHARTS, ChartError, helm, rendered
from support.kubectl import kubectl_binary
from support.two_servers import free_ports, real_cluster
from support.up_process import up

Json = dict[str, Any]
MATRIX: dict[str, Json] = {
    "nothing but a name": {},
    "kwok": {"provider": "kwok"},
    "one replica": {"replicas": 1, "podDisruptionBudget": {"maxUnavailable": 0}},
    "irsa": {"serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/r"}}},
    "an account of one's own": {"serviceAccount": {"create": False, "name": "mine"}},
    "names": {"nameOverride": "other", "fullnameOverride": "another", "additionalLabels": {"a": "b"}},
    "ports": {"controller": {"metrics": {"port": 9090}, "healthProbe": {"port": 9091}}},
    "least rights": {"rbac": {"planning": False}},
    "settings": {"settings": {"interruptionQueue": "q", "enableZonalShift": True, "batchMaxDuration": "5s"}},
    "resources": {"controller": {"resources": {"requests": {"cpu": "1", "memory": "1Gi"}}}},
    "the router": {"router": {"enabled": True, "config": {"region": "us-east-2"}}},
    "the router alone": {
        "controller": {"enabled": False},
        "router": {"enabled": True, "config": {"region": "us-east-2", "accounts": [{"id": "123456789012"}]}},
    },
    "zonal shift inside": {
        "zonalShift": {
            "enabled": True,
            "mode": "Both",
            "topicArn": ["arn:aws:sns:us-west-2:111122223333:a"],
            "tlsSecret": "tls",
            "networkPolicy": {"enabled": True, "from": [{"ipBlock": {"cidr": "0.0.0.0/0"}}]},
        }
    },
    "zonal shift alone": {
        "controller": {"enabled": False},
        "zonalShift": {"standalone": {"enabled": True, "zoneSpread": "Preferred"}},
    },
    "dashboard": {"dashboard": {"enabled": True, "hosts": ["dovetail.example.test"]}},
    "dashboard for some": {
        "provider": "kwok",
        "dashboard": {"enabled": True, "networkPolicy": {"from": [{"podSelector": {}}]}},
    },
    "old names": {"settings": {"aws": {"interruptionQueueName": "q"}}, "logLevel": "debug"},
}
SERVERS = ("embedded", "real") if os.environ.get("DOVETAIL_TEST_CLUSTER") else ("embedded",)


async def kubectl(kubeconfig: Path, *arguments: str, stdin: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *(str(kubectl_binary()), *arguments),
        env={"HOME": str(kubeconfig.parent), "PATH": os.environ["PATH"], "KUBECONFIG": str(kubeconfig)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(stdin.encode()), 120)
    assert process.returncode == 0, out.decode()
    return out.decode()


@pytest.fixture(params=SERVERS)
async def server(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Path]:
    """The kubeconfig of an API server."""
    if request.param == "embedded":
        async with up(tmp_path, "--no-controller") as cluster:
            yield cluster.kubeconfig
    elif given := os.environ.get("DOVETAIL_REAL_KUBECONFIG"):
        yield Path(given)
    else:
        with real_cluster(tmp_path / "cluster", free_ports(4)) as found:
            yield found


async def with_helm(kubeconfig: Path, *arguments: str) -> str:
    return await asyncio.to_thread(helm, *arguments, environment={"KUBECONFIG": str(kubeconfig)})


async def test_objects_of_every_values_file_are_taken_by_the_server(server: Path) -> None:
    definitions = yaml.safe_dump_all(rendered(chart="dovetail-crd"))
    await kubectl(server, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=definitions)
    for name, values in MATRIX.items():
        objects = rendered(values)
        out = await kubectl(
            server,
            "apply",
            "--server-side",
            "-f",
            "-",
            "--force-conflicts",
            stdin=yaml.safe_dump_all(objects),
        )
        assert len(out.strip().splitlines()) == len(objects), name
    for chart in ("dovetail", "dovetail-crd"):
        assert "0 chart(s) failed" in helm(
            "lint", "--strict", str(CHARTS / chart), "--set", "settings.clusterName=c"
        )


RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


async def test_pods_of_every_part_may_run_where_pod_security_is_restricted(
    server: Path, request: pytest.FixtureRequest
) -> None:
    """The server itself judges: it would refuse a pod that asks for more."""
    await kubectl(server, "create", "namespace", "strict")
    await kubectl(server, "label", "namespace", "strict", RESTRICTED)
    parts = {
        "controller": {"enabled": False},
        "router": {"enabled": True, "config": {"region": "us-east-2"}},
        "dashboard": {"enabled": True},
        "zonalShift": {"standalone": {"enabled": True}},
    }
    for objects in (rendered(parts, namespace="strict"), rendered(namespace="strict")):
        accounts = [each for each in objects if each["kind"] == "ServiceAccount"]
        await kubectl(server, "apply", "-f", "-", stdin=yaml.safe_dump_all(accounts))
        for each in objects:
            if each["kind"] == "Deployment":
                named = {"name": each["metadata"]["name"], "namespace": "strict"}
                template = each["spec"]["template"]
                pod = {"apiVersion": "v1", "kind": "Pod", "metadata": named, "spec": template["spec"]}
                assert "created" in await kubectl(server, "create", "-f", "-", stdin=yaml.safe_dump(pod))
    if request.node.callspec.params["server"] == "real":  # the embedded one lets everybody in
        spec = {"containers": [{"name": "c", "image": "i"}]}
        bad = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "bad", "namespace": "strict"}}
        with pytest.raises(AssertionError, match="restricted"):
            await kubectl(server, "create", "-f", "-", stdin=yaml.safe_dump(bad | {"spec": spec}))


async def found(kubeconfig: Path, *what: str) -> Json:
    document: Json = json.loads(await kubectl(kubeconfig, "get", *what, "-o", "json"))
    return document


async def test_a_release_is_installed_upgraded_and_removed(server: Path) -> None:
    chart, names = str(CHARTS / "dovetail"), ("karpenter", "-n", "kube-system")
    told = await with_helm(
        server,
        "install",
        names[0],
        chart,
        *names[1:],
        "--skip-crds",
        "--set",
        "settings.aws.clusterName=shop,settings.aws.interruptionQueueName=shop,controller.logLevel=debug",
    )
    assert "is installed as karpenter in kube-system" in told
    assert "settings.aws.interruptionQueueName" in told, told
    assert "settings.interruptionQueue" in told
    deployment = await found(server, "deployment", "karpenter", "-n", "kube-system")
    env = {
        each["name"]: each.get("value")
        for each in deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    }
    assert (env["CLUSTER_NAME"], env["INTERRUPTION_QUEUE"], env["LOG_LEVEL"]) == ("shop", "shop", "debug")

    told = await with_helm(
        server,
        "upgrade",
        names[0],
        chart,
        *names[1:],
        "--skip-crds",
        "--set",
        "settings.clusterName=shop,replicas=3",
        "--reset-values",
    )
    assert "WARNING" not in told
    deployment = await found(server, "deployment", "karpenter", "-n", "kube-system")
    assert deployment["spec"]["replicas"] == 3

    with pytest.raises(ChartError, match="clusterName"):
        await with_helm(
            server, "upgrade", names[0], chart, *names[1:], "--set", "settings.clusterName=", "--reset-values"
        )
    history = json.loads(await with_helm(server, "history", *names, "-o", "json"))
    assert [each["status"] for each in history] == ["superseded", "deployed"]

    await with_helm(server, "uninstall", *names, "--wait", "--timeout", "60s")
    left = await found(server, "deployments,services,roles,rolebindings,serviceaccounts", "-n", "kube-system")
    assert not [each for each in left["items"] if each["metadata"]["name"].startswith("karpenter")]


MARKS = {
    "label": "app.kubernetes.io/managed-by=Helm",
    "annotate": "meta.helm.sh/release-name=dovetail-crd meta.helm.sh/release-namespace=kube-system",
}


def _older(definition: Json) -> Json:
    """As a release before this one had it: without columns, and pools without a number of nodes."""
    for version in definition["spec"]["versions"]:
        version.pop("additionalPrinterColumns", None)
        if definition["metadata"]["name"] == "nodepools.karpenter.sh":
            schema = version["schema"]["openAPIV3Schema"]
            schema["properties"]["spec"]["properties"].pop("replicas")
            for each in (schema, schema["properties"]["spec"]):
                each.pop("x-kubernetes-validations", None)
            (version.get("subresources") or {}).pop("scale", None)
    return definition


async def test_definitions_are_upgraded_in_place_and_their_objects_stay(server: Path) -> None:
    """The CRD chart takes over what the main chart's folder made, as the upgrade guide says."""
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "kept"},
        "spec": {
            "template": {
                "spec": {
                    "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                    "requirements": [],
                }
            }
        },
    }
    for path in sorted((CHARTS / "dovetail" / "crds").glob("*.yaml")):
        older = _older(yaml.safe_load(path.read_text()))
        apply = ("apply", "--server-side", "--field-manager=helm", "--force-conflicts", "-f", "-")
        await kubectl(server, *apply, stdin=yaml.safe_dump(older))
        for verb, values in MARKS.items():
            await kubectl(server, verb, "--overwrite", "crd", older["metadata"]["name"], *values.split())
    before = json.loads(await kubectl(server, "create", "-f", "-", "-o", "json", stdin=yaml.safe_dump(pool)))

    await with_helm(server, "install", "dovetail-crd", str(CHARTS / "dovetail-crd"), "-n", "kube-system")

    after = await found(server, "nodepool", "kept")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["spec"] == before["spec"]
    definition = await found(server, "crd", "nodepools.karpenter.sh")
    (version,) = definition["spec"]["versions"]
    assert "replicas" in version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]

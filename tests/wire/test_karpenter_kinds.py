"""Our definitions on an API server, as kubectl shows them: columns, categories, defaults and scaling."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from dovetail.api import crds
from dovetail.runtime.clock import SystemClock
from dovetail.sim.kube.apiserver import ApiServer
from support.kubectl import Kubectl

COLUMNS = {
    "nodepools": "NAME NODECLASS NODES READY AGE WEIGHT CPU MEMORY",
    "nodeclaims": "NAME TYPE CAPACITY ZONE NODE READY AGE IMAGEID ID NODEPOOL NODECLASS DRIFTED",
    "nodeoverlays": "NAME READY AGE WEIGHT",
    "ec2nodeclasses": "NAME READY AGE ROLE",
    "kwoknodeclasses": "NAME AGE",
    "capacitybuffers": (
        "NAME STRATEGY PODTEMPLATE REPLICAS CONDITIONSTYPE CONDITIONSSTATUS CONDITIONSREASON AGE"
    ),
}
REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def pool(name: str, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"nodeClassRef": REFERENCE, "requirements": []}}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template, **spec},
    }


OBJECTS = {
    "nodepools": pool("x"),
    "nodeclaims": {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "x"},
        "spec": {"nodeClassRef": REFERENCE, "requirements": []},
    },
    "nodeoverlays": {
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "x"},
        "spec": {"requirements": [], "price": "1"},
    },
    "ec2nodeclasses": {
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "x"},
        "spec": {
            "role": "node",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "subnetSelectorTerms": [{"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"tags": {"a": "b"}}],
        },
    },
    "kwoknodeclasses": {
        "apiVersion": "karpenter.kwok.sh/v1alpha1",
        "kind": "KWOKNodeClass",
        "metadata": {"name": "x"},
    },
    "capacitybuffers": {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {"podTemplateRef": {"name": "t"}, "replicas": 1},
    },
}


@pytest.fixture(params=["aws", "kwok"])
async def kubectl(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Kubectl]:
    flavour: Literal["aws", "kwok"] = request.param
    server = ApiServer(SystemClock(), random.Random(1))
    async with server.serve() as running:
        client = Kubectl(running.url, tmp_path)
        await client.ok(
            "apply", "--server-side", "-f", "-", stdin=yaml.safe_dump_all(crds.build_manifests(flavour))
        )
        yield client


def _has(kubectl_listing: str, plural: str) -> bool:
    return any(line.split()[0] == plural for line in kubectl_listing.splitlines() if line)


@pytest.mark.spec("api-1")
async def test_every_definition_installs_and_prints_its_columns(kubectl: Kubectl) -> None:
    served = await kubectl.ok("api-resources", "--no-headers")
    shown = 0
    for plural, columns in COLUMNS.items():
        if not _has(served, plural):
            continue
        await kubectl.ok("create", "-f", "-", stdin=yaml.safe_dump(OBJECTS[plural]))
        table = await kubectl.ok("get", plural, "-o", "wide")
        assert table.splitlines()[0].split() == columns.split()
        shown += 1
    assert shown == 5, "the four shared kinds and the flavour's node class"
    both = await kubectl.ok("get", "karpenter", "-o", "name")
    assert "nodepool.karpenter.sh/x" in both
    assert "nodeclaim.karpenter.sh/x" in both


@pytest.mark.spec("api-3")
async def test_defaults_are_stored_as_written_down(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=yaml.safe_dump(pool("x")))
    stored = json.loads(await kubectl.ok("get", "nodepool", "x", "-o", "json"))["spec"]
    assert stored["template"]["spec"]["expireAfter"] == "720h"
    assert stored["disruption"] == {
        "budgets": [{"nodes": "10%"}],
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
    }


@pytest.mark.spec("api-4")
async def test_scaling_works_on_a_static_pool_and_is_refused_on_a_dynamic_one(kubectl: Kubectl) -> None:
    for each in (pool("static", replicas=1), pool("dynamic")):
        await kubectl.ok("create", "-f", "-", stdin=yaml.safe_dump(each))
    await kubectl.ok("scale", "nodepool", "static", "--replicas=4")
    stored = json.loads(await kubectl.ok("get", "nodepool", "static", "-o", "json"))
    assert stored["spec"]["replicas"] == 4
    complaint = await kubectl.fails("scale", "nodepool", "dynamic", "--replicas=4")
    assert ".spec.replicas" in complaint
    assert "replicas" not in json.loads(await kubectl.ok("get", "nodepool", "dynamic", "-o", "json"))["spec"]


@pytest.mark.spec("api-5")
async def test_a_claims_spec_cannot_be_changed(kubectl: Kubectl) -> None:
    await kubectl.ok("create", "-f", "-", stdin=yaml.safe_dump(OBJECTS["nodeclaims"]))
    change = json.dumps({"spec": {"expireAfter": "1h"}})
    complaint = await kubectl.fails("patch", "nodeclaim", "x", "--type=merge", "-p", change)
    assert "cannot change" in complaint

"""`dovetail migrate check`: what is in the way of changing controllers, and what would change."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.api import codec, crds, hashes, labels
from dovetail.api.nodepool import NodePool
from dovetail.cli.migrate import MigrationFinding, MigrationInput, list_findings
from support.commands import dovetail
from support.up_process import up

Json = dict[str, Any]
DEFINITIONS = [each | {"status": {"storedVersions": ["v1"]}} for each in crds.build_manifests("aws")]
for _each in DEFINITIONS:
    _each["status"] = {"storedVersions": [version["name"] for version in _each["spec"]["versions"]]}
POOL: Json = {
    "apiVersion": "karpenter.sh/v1",
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {
        "disruption": {"consolidateAfter": "1m"},
        "template": {
            "spec": {
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
            }
        },
    },
}


def deployment(name: str = "karpenter", replicas: int = 2, **env: str) -> Json:
    container = {"name": "controller", "env": [{"name": k, "value": v} for k, v in env.items()]}
    return {
        "metadata": {"name": name, "namespace": "kube-system", "labels": {"app.kubernetes.io/name": name}},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [container]}}},
    }


def claim(value: str, version: str = hashes.NODEPOOL_HASH_VERSION) -> Json:
    noted = {labels.NODEPOOL_HASH: value, labels.NODEPOOL_HASH_VERSION: version}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "one", "labels": {labels.NODEPOOL: "default"}, "annotations": noted},
        "spec": POOL["spec"]["template"]["spec"],
    }


def told(weight: str, **found: Any) -> list[str]:
    listed: list[MigrationFinding] = list_findings(MigrationInput(**{"definitions": DEFINITIONS, **found}))
    return [f"{each.about}: {each.text}" for each in listed if each.weight == weight]


@pytest.mark.parametrize(("classes", "text"), [(0, "there are none"), (2, "all 2 are valid")])
def test_many_of_a_kind_are_spelled_as_people_spell_them(classes: int, text: str) -> None:
    spec = {"role": "nodes", "amiSelectorTerms": [{"alias": "al2023@latest"}]}
    terms = [{"tags": {"karpenter.sh/discovery": "shop"}}]
    spec |= {"subnetSelectorTerms": terms, "securityGroupSelectorTerms": terms}
    made = [
        {
            "apiVersion": "karpenter.k8s.aws/v1",
            "kind": "EC2NodeClass",
            "metadata": {"name": f"class-{number}"},
            "spec": spec,
        }
        for number in range(classes)
    ]
    fine = told("fine", classes=made)
    assert f"node classes: {text}" in fine
    assert "NodePools: there are none" in fine


def test_nothing_is_in_the_way_of_a_karpenter_at_rest() -> None:
    value = hashes.hash_nodepool(codec.convert(NodePool, POOL))
    resting = deployment(replicas=0, CLUSTER_NAME="c")
    world = {"pools": [POOL], "claims": [claim(value)], "deployments": [resting]}

    assert told("blocker", **world) == []
    assert told("change", **world) == []
    assert "hashes: no claim of 1 would drift" in told("fine", **world)


def test_a_running_controller_is_to_be_scaled_down() -> None:
    (found,) = told("change", deployments=[deployment(CLUSTER_NAME="c")])

    assert "runs 2 of them; scale it to 0" in found


def test_settings_the_controller_would_refuse_are_in_the_way() -> None:
    (found,) = told("blocker", deployments=[deployment(CLUSTER_NAME="c", BATCH_MAX_DURATION="soon")])

    assert "BATCH_MAX_DURATION" in found


def test_variables_that_mean_nothing_here_are_told() -> None:
    changes = told("change", deployments=[deployment(replicas=0, CLUSTER_NAME="c", FANCY="1")])

    assert any("mean nothing here: FANCY" in each for each in changes)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("provisioners.karpenter.sh", 1), ("machines.karpenter.sh", 1), ("widgets.example", 0)],
)
def test_definitions_of_the_past_are_in_the_way(name: str, expected: int) -> None:
    old = {"metadata": {"name": name}, "spec": {"versions": [{"name": "v1alpha5"}]}}

    assert len(told("blocker", definitions=[*DEFINITIONS, old])) == expected


def test_objects_stored_in_a_version_that_is_no_more_are_in_the_way() -> None:
    pools = next(each for each in DEFINITIONS if each["metadata"]["name"] == "nodepools.karpenter.sh")
    stored = [pools | {"status": {"storedVersions": ["v1beta1", "v1"]}}]

    (found,) = told("blocker", definitions=stored)
    assert "stored as v1beta1" in found


def test_an_invalid_pool_is_in_the_way_with_its_place() -> None:
    broken = json.loads(json.dumps(POOL))
    broken["spec"]["template"]["spec"]["requirements"][0]["operator"] = "Equals"

    (found, *_) = told("blocker", pools=[broken])
    assert found.startswith("NodePool default: spec.template.spec.requirements[0].operator")


def test_claims_that_would_drift_and_those_stamped_anew_are_counted() -> None:
    drifting = told("change", pools=[POOL], claims=[claim("1"), claim("2")])
    stamped = told("change", pools=[POOL], claims=[claim("1", "v2")])

    assert any("2 of 2 claims carry another hash" in each for each in drifting)
    assert any("1 claims have hashes of another version" in each for each in stamped)


def test_another_autoscaler_is_in_the_way() -> None:
    (found,) = told("blocker", deployments=[deployment("cluster-autoscaler")])

    assert "two autoscalers" in found


async def test_a_live_cluster_is_looked_at_and_not_touched(tmp_path: Path) -> None:
    async with up(tmp_path, "--no-controller") as cluster:
        before = await cluster.ask("/apis/karpenter.sh/v1/nodepools")
        asked = ("migrate", "check", "--provider", "kwok", "--kubeconfig", str(cluster.kubeconfig))
        ended = await asyncio.to_thread(dovetail, *asked, "-o", "json")
        after = await cluster.ask("/apis/karpenter.sh/v1/nodepools")

    report = json.loads(ended.out)
    assert (ended.code, report["ready"]) == (0, True), ended
    assert {"weight": "fine", "about": "lease", "text": "is free"} in report["findings"]
    assert before == after


def test_a_cluster_that_is_away_is_one_sentence() -> None:
    ended = dovetail("migrate", "check", "--kubeconfig", "/nonexistent")

    assert ended.code == 2
    assert len(ended.err.strip().splitlines()) == 1

"""The static hashes equal upstream's bit for bit, so that taking over a cluster replaces no node."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from dovetail.api.codec import convert, to_dict
from dovetail.api.hashes import (
    NODECLASS_HASH_VERSION,
    NODEPOOL_HASH_VERSION,
    ami_family,
    hash_nodeclass,
    hash_nodepool,
    legacy_instance_profile,
)
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from support.vectors import cases

POOLS = list(cases("nodepool-hash"))
CLASSES = list(cases("nodeclass-hash"))
REFERENCE = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}


def test_every_case_of_the_vector_files_is_here() -> None:
    assert (len(POOLS), len(CLASSES)) == (401, 409)


@pytest.mark.parametrize("case", POOLS, ids=lambda case: f"{case['group']} {case['note']}")
@pytest.mark.spec("api-10.7")
def test_a_pool_hashes_as_upstream_hashes_it(case: dict[str, Any]) -> None:
    assert hash_nodepool(convert(NodePool, case["nodepool"])) == case["hash"]
    assert case["hashVersion"] == NODEPOOL_HASH_VERSION


@pytest.mark.parametrize("case", CLASSES, ids=lambda case: f"{case['group']} {case['note']}")
@pytest.mark.spec("api-10.7")
def test_a_class_hashes_as_upstream_hashes_it(case: dict[str, Any]) -> None:
    nodeclass = convert(EC2NodeClass, {"spec": case["spec"]})
    profile = case["legacyInstanceProfile"]
    assert hash_nodeclass(nodeclass, case["caBundle"]) == case["hash"]
    assert ami_family(nodeclass.spec) == case["amiFamily"]
    assert legacy_instance_profile(profile["cluster"], profile["region"], profile["class"]) == profile["name"]
    assert case["hashVersion"] == NODECLASS_HASH_VERSION


@pytest.mark.parametrize(
    ("metadata", "spec", "expected"),
    [
        ({}, {"expireAfter": "720h"}, "6821555240594823858"),
        ({}, {"expireAfter": "Never"}, "17369979337536258260"),
        ({"labels": {"team": "a"}}, {"expireAfter": "720h"}, "1617844334411263980"),
        (
            {},
            {
                "expireAfter": "720h",
                "taints": [{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}],
            },
            "13579916569126205748",
        ),
        ({}, {"expireAfter": "720h", "terminationGracePeriod": "5m"}, "10273107103804485302"),
        (
            {},
            {
                "expireAfter": "720h",
                "taints": [{"key": "b", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"}],
            },
            "14167228022174156486",
        ),
    ],
)
@pytest.mark.spec("lifecycle-15.1")
def test_the_published_check_values_come_out(
    metadata: dict[str, Any], spec: dict[str, Any], expected: str
) -> None:
    template = {"metadata": metadata, "spec": {"nodeClassRef": REFERENCE, "requirements": []} | spec}
    assert hash_nodepool(convert(NodePool, {"spec": {"template": template}})) == expected


def test_a_list_written_empty_is_not_an_absent_one_and_stays_so() -> None:
    absent: dict[str, Any] = {"spec": {"template": {"spec": {"requirements": []}}}}
    written: dict[str, Any] = {"spec": {"template": {"spec": {"requirements": [], "taints": []}}}}
    pool = convert(NodePool, written)
    assert hash_nodepool(pool) != hash_nodepool(convert(NodePool, absent))
    assert hash_nodepool(convert(NodePool, to_dict(pool))) == hash_nodepool(pool)
    assert hash_nodepool(pickle.loads(pickle.dumps(pool))) == hash_nodepool(pool)

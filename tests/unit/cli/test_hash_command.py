"""dovetail hash: the numbers of the annotations, from the objects as a cluster would store them."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.api import crds, hashes
from dovetail.api.codec import convert
from dovetail.api.nodeclass import EC2NodeClass
from support.commands import Ended, dovetail

POOL = """\
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements: []
"""
CLASS = """\
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: Nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
"""
VECTORS = Path(__file__).parents[2] / "conformance" / "vectors" / "nodepool-hash.jsonl.gz"


def hashed(text: str, *arguments: str) -> list[dict[str, str]]:
    ended = dovetail("hash", "-f", "-", "-o", "json", *arguments, stdin=text.encode())
    assert ended.code == 0, ended.err
    rows: list[dict[str, str]] = json.loads(ended.out)["hashes"]
    return rows


def test_every_pool_and_class_is_hashed_with_its_version() -> None:
    rows = hashed(f"{POOL}---\n{CLASS}")
    assert [(row["kind"], row["name"], row["version"], row["source"]) for row in rows] == [
        ("NodePool", "default", "v3", "stdin:1"),
        ("EC2NodeClass", "default", "v5", "stdin:10"),
    ]
    assert all(row["hash"].isdigit() for row in rows)


def complete_cases() -> list[dict[str, Any]]:
    """The recorded pools that look the same once the API server's defaults are filled in."""
    lines = gzip.decompress(VECTORS.read_bytes()).decode().splitlines()
    cases = [case for case in map(json.loads, lines) if "nodepool" in case]
    return [case for case in cases if "expireAfter" in case["nodepool"]["spec"]["template"]["spec"]]


def test_a_pool_hashes_as_karpenter_hashed_it() -> None:
    cases = complete_cases()[:25]
    pools = [{"apiVersion": "karpenter.sh/v1", "kind": "NodePool", **case["nodepool"]} for case in cases]
    rows = hashed(json.dumps({"apiVersion": "v1", "kind": "List", "items": pools}))
    assert len(cases) == 25
    assert [row["hash"] for row in rows] == [case["hash"] for case in cases]


def test_defaults_are_filled_in_first_as_a_cluster_does() -> None:
    explicit = POOL.replace("requirements: []", "requirements: []\n      expireAfter: 720h")
    assert hashed(POOL)[0]["hash"] == hashed(explicit)[0]["hash"]
    never = POOL.replace("requirements: []", "requirements: []\n      expireAfter: Never")
    assert hashed(POOL)[0]["hash"] != hashed(never)[0]["hash"]


def test_what_causes_no_drift_leaves_the_hash_alone() -> None:
    assert hashed(POOL + "  weight: 10\n")[0]["hash"] == hashed(POOL)[0]["hash"]


def test_the_bundle_is_part_of_a_classs_hash(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("Q0E=\n", encoding="utf-8")
    [row] = hashed(CLASS, "--ca-bundle", str(tmp_path / "ca"))
    document = crds.apply_defaults("EC2NodeClass", {"spec": {
        "role": "Nodes",
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "subnetSelectorTerms": [{"id": "subnet-1"}],
        "securityGroupSelectorTerms": [{"id": "sg-1"}],
    }})  # fmt: skip
    assert row["hash"] == hashes.hash_nodeclass(convert(EC2NodeClass, document), "Q0E=")
    assert row["hash"] != hashed(CLASS)[0]["hash"]


def test_the_table_has_a_line_for_each() -> None:
    ended = dovetail("hash", "-f", "-", stdin=POOL.encode())
    head, line = ended.out.splitlines()
    assert head.split() == ["KIND", "NAME", "HASH", "VERSION", "SOURCE"]
    assert line.split()[:2] == ["NodePool", "default"]


def run(text: str) -> Ended:
    return dovetail("hash", "-f", "-", stdin=text.encode())


@pytest.mark.parametrize(
    "broken",
    [
        POOL.replace("requirements: []", "expireAfter: 1d"),
        POOL.replace("requirements: []", "requirements: 7"),
        POOL.replace("requirements: []", "taints: [{key: [a]}]"),
        "a: [",
    ],
)
def test_an_object_that_cannot_be_hashed_is_said_and_hides_no_other(broken: str) -> None:
    ended = run(f"{broken}\n---\n{POOL}")
    assert ended.code == 1
    assert len(ended.out.splitlines()) == 2
    assert ended.err.startswith("stdin:")
    assert ended.err.count("\n") == 1


def test_a_file_without_pools_and_classes_is_a_complaint() -> None:
    ended = run("apiVersion: v1\nkind: Pod\n")
    assert ended.code == 1
    assert ended.err == "input: error: there is no NodePool and no EC2NodeClass in it\n"


def test_a_bundle_that_is_missing_is_one_sentence() -> None:
    ended = dovetail("hash", "-f", "-", "--ca-bundle", "/nowhere", stdin=POOL.encode())
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "dovetail: reading the CA bundle from /nowhere: there is no such file\n"

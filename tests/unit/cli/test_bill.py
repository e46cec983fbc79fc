"""dovetail bill: what a cluster costs, for people, for programs and for FinOps tools."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from dovetail.app.cluster_source import SeenCluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.cli.views.file_plans import FilePlanner
from dovetail.cli.views.world_files import WorldReader
from support.commands import Ended, dovetail
from support.random_changes import claimed_node, listed, pool, running_pod


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A snapshot of two nodes in two zones with a pod each, and of one whose type nobody sells."""
    nodes = [
        *claimed_node("node-0", "general", "2", "test-zone-a"),
        *claimed_node("node-1", "general", "2", "test-zone-b"),
        *claimed_node("node-2", "general", "2", "test-zone-b"),
    ]
    for each in nodes[4:]:
        each["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "of-yesterday"
    pods = [running_pod(f"web-5d9c-{n}", "web", f"node-{n}", 500, 512) for n in range(2)]
    (tmp_path / "now.json").write_text(json.dumps(listed(pool("general"), *nodes, *pods)))
    reader = WorldReader()
    reader.read_files([str(tmp_path / "now.json")])
    seen = SeenCluster(FilePlanner(reader, "", "", quick=True).build_situation())
    (tmp_path / "cluster.json").write_bytes(encode_snapshot(seen))
    return tmp_path / "cluster.json"


def _bill(cluster: Path, *words: str) -> Ended:
    return dovetail("bill", "--snapshot", str(cluster), *words)


def test_the_table_adds_up_and_names_what_has_no_price(cluster: Path) -> None:
    told = _bill(cluster, "--by", "zone")
    assert told.code == 0, told.err
    lines = told.out.splitlines()
    assert lines[0].split() == ["ZONE", "NODES", "$/H", "$/MONTH", "SHARE"]
    rows = [line.split() for line in lines[1:3]]
    assert [row[0] for row in rows] == ["test-zone-a", "test-zone-b"]
    assert [row[1] for row in rows] == ["1", "1"]
    whole = float(lines[-2].split("$")[1].split()[0])
    assert sum(float(row[2]) for row in rows) == pytest.approx(whole, abs=1e-4)
    assert lines[-1] == "1 node without a known price, not in the sum: node-2"


def test_programs_get_the_same_dollars_by_whatever_they_ask_for(cluster: Path) -> None:
    found = {by: json.loads(_bill(cluster, "--by", by, "-o", "json").out) for by in ("type", "namespace")}
    whole = found["type"]["hourly"]
    assert whole > 0
    for by, document in found.items():
        assert document["by"] == by
        assert document["hourly"] == whole
        assert sum(group["hourly"] for group in document["groups"]) == pytest.approx(whole, abs=1e-9)
        assert sum(node["effective"] for node in document["nodes"]) == pytest.approx(whole, abs=1e-9)
        assert document["unpriced"] == ["node-2"]
    names = [group["name"] for group in found["namespace"]["groups"]]
    assert names == ["shop", "(idle)"]


def test_the_csv_has_the_columns_of_focus(cluster: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(_bill(cluster, "-o", "csv").out)))
    assert [row["ResourceName"] for row in rows] == ["node-0", "node-1"]
    whole = json.loads(_bill(cluster, "-o", "json").out)["hourly"]
    for column in ("ListCost", "EffectiveCost", "BilledCost"):
        assert sum(float(row[column]) for row in rows) == pytest.approx(whole)
    assert all(row["ChargePeriodStart"] < row["ChargePeriodEnd"] for row in rows)
    assert {row["BillingCurrency"] for row in rows} == {"USD"}
    assert json.loads(rows[0]["Tags"])["karpenter.sh/nodepool"] == "general"


@pytest.fixture
def dear_cluster(tmp_path: Path) -> Path:
    """A snapshot of two nodes of a pool that adds to its prices."""
    general = pool("general")
    general["metadata"]["annotations"] = {"cost.dovetail.sh/node-extra-hourly": "0.5/node"}
    nodes = [each for n in range(2) for each in claimed_node(f"node-{n}", "general", "2", "test-zone-a")]
    (tmp_path / "now.json").write_text(json.dumps(listed(general, *nodes)))
    reader = WorldReader()
    reader.read_files([str(tmp_path / "now.json")])
    seen = SeenCluster(FilePlanner(reader, "", "", quick=True).build_situation())
    (tmp_path / "cluster.json").write_bytes(encode_snapshot(seen))
    return tmp_path / "cluster.json"


def test_extras_have_a_column_a_sentence_members_and_rows_of_their_own(dear_cluster: Path) -> None:
    lines = _bill(dear_cluster).out.splitlines()
    assert lines[0].split() == ["POOL", "NODES", "EXTRAS", "$/H", "$/H", "$/MONTH", "SHARE"]
    assert lines[1].split()[:3] == ["general", "2", "1.0000"]
    assert "$1.0000 an hour of it are extras: added by you $1.0000" in lines
    document = json.loads(_bill(dear_cluster, "-o", "json").out)
    assert [node["added"] for node in document["nodes"]] == [0.5, 0.5]
    assert "volumes" not in document["nodes"][0]
    rows = list(csv.DictReader(io.StringIO(_bill(dear_cluster, "-o", "csv").out)))
    assert [row["ServiceCategory"] for row in rows] == ["Compute", "Other", "Compute", "Other"]
    assert [row["BilledCost"] for row in rows[1::2]] == ["0.5", "0.5"]
    for column in ("ListCost", "EffectiveCost", "BilledCost"):
        assert sum(float(row[column]) for row in rows) == pytest.approx(document["hourly"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--by", "colour"), "none of pool, zone, type, capacity-type, namespace and label:KEY"),
        (("--by", "label:"), "none of pool, zone"),
        (("--recording", "somewhere"), "exclude each other"),
        (("--at", "3h ago"), "--at is a moment of a recording"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(cluster: Path, words: tuple[str, ...], said: str) -> None:
    told = _bill(cluster, *words)
    assert told.code == 1
    assert said in told.err
    assert told.err.count("\n") == 1

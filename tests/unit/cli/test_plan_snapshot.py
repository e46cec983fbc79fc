"""`dovetail plan --snapshot`: the plan for a saved cluster, and what does not go together with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.app.cluster_source import SeenCluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.cli.views.file_plans import FilePlanner
from dovetail.cli.views.world_files import WorldReader
from support.builders import pod
from support.commands import dovetail
from support.explain_snapshots import full_node, world
from support.random_changes import budget, claimed_node, deployment, listed, pool, running_pod
from support.seen_clusters import encode_world


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    file = tmp_path / "snapshot.json"
    nodes = [full_node(0), full_node(1, pods=0)]
    file.write_bytes(
        encode_world(world(nodes, [pod("near", cpu="1"), pod("far", cpu="8"), pod("big", cpu="10000")]))
    )
    return file


def test_the_waiting_pods_of_a_snapshot_are_planned(saved: Path) -> None:
    ended = dovetail("plan", "--snapshot", str(saved), "-o", "json")
    told = json.loads(ended.out)
    assert (ended.code, ended.err) == (3, "")
    assert [pods for node in told["nodes"] for pods in node["pods"]] == ["default/far"]
    assert [pods for taken in told["existing"].values() for pods in taken] == ["default/near"]
    assert [each["pod"] for each in told["unschedulable"]] == ["default/big"]


def test_the_same_snapshot_gives_the_same_plan(saved: Path) -> None:
    plans = [json.loads(dovetail("plan", "--snapshot", str(saved), "-o", "json").out) for _ in range(2)]
    assert plans[0]["nodes"] == plans[1]["nodes"]
    assert plans[0]["unschedulable"] == plans[1]["unschedulable"]


def test_a_cluster_where_no_pod_waits_has_nothing_to_plan(tmp_path: Path) -> None:
    ended = dovetail("plan", "--snapshot", "-", stdin=encode_world(world(1)))
    assert (ended.code, ended.err) == (
        0,
        "note: no pod is pending in this cluster, so there is nothing to plan\n",
    )
    assert ended.out == "no pod is pending: looked at 1 node with 3 pods and at 1 NodePool\n"


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        ((), 2, "nothing to plan: give files with --filename, a --snapshot, or --live"),
        (("--live", "-f", "a"), 1, "--live and --filename exclude each other; leave one out"),
        (("--live", "--snapshot", "a"), 1, "--live and --snapshot exclude each other; leave one out"),
        (("--snapshot", "a", "--catalog", "aws"), 1, "--catalog is for files, and --snapshot is none"),
        (
            ("--snapshot", "a", "--recording", "b"),
            1,
            "--snapshot and --recording exclude each other; leave one out",
        ),
        (("--snapshot", "a", "--at", "3h"), 1, "--at is a moment of a recording; give one with --recording"),
        (
            ("--snapshot", "a", "--change", "b", "--explain", "p"),
            1,
            "--explain and --change exclude each other; leave one out",
        ),
        (
            ("--live", "--explain", "web"),
            1,
            "--explain is for files, and --live is none; use `dovetail explain`",
        ),
        (
            ("--snapshot", "nowhere"),
            1,
            "reading the snapshot nowhere: no such file or directory; "
            "take one with `dovetail snapshot -o FILE`",
        ),
    ],
)
def test_what_does_not_go_together_is_one_sentence(
    arguments: tuple[str, ...], code: int, sentence: str
) -> None:
    ended = dovetail("plan", *arguments)
    assert (ended.code, ended.out, ended.err) == (code, "", f"dovetail: {sentence}\n")


def save_world(folder: Path, *objects: dict[str, Any]) -> str:
    """The file that `dovetail snapshot` would write of a cluster of these objects."""
    reader = WorldReader()
    (folder / "now.json").write_text(json.dumps(listed(*objects)))
    reader.read_files([str(folder / "now.json")])
    situation = FilePlanner(reader, "", "", quick=True).build_situation()
    (folder / "taken.json").write_bytes(encode_snapshot(SeenCluster(situation)))
    return str(folder / "taken.json")


def save_change(folder: Path, *objects: dict[str, Any]) -> str:
    (folder / "change.json").write_text(json.dumps(listed(*objects)))
    return str(folder / "change.json")


def shop_objects() -> list[dict[str, Any]]:
    nodes = [each for n in range(2) for each in claimed_node(f"node-{n}", "general", "2", "test-zone-a")]
    pods = [running_pod(f"web-5d9c-{n}", "web", f"node-{n}", 500, 512) for n in range(2)]
    return [pool("general"), *nodes, *pods]


@pytest.mark.spec("VF-6")
def test_a_budget_in_the_change_shows_the_nodes_it_holds_and_their_price(tmp_path: Path) -> None:
    taken = save_world(tmp_path, *shop_objects())
    change = save_change(tmp_path, budget("guard", "web", maxUnavailable=0))
    table = dovetail("plan", "--snapshot", taken, "--change", change)
    assert table.code == 0, table.err
    row = next(line for line in table.out.splitlines() if line.startswith("shop/guard"))
    assert row.split() == ["shop/guard", "node-0,", "node-1", "0.1086", "the", "change"]
    found = json.loads(dovetail("plan", "--snapshot", taken, "--change", change, "-o", "json").out)
    assert found["pdbs"] == [
        {
            "pdb": "shop/guard",
            "nodes": ["node-0", "node-1"],
            "newly": ["node-0", "node-1"],
            "hourly": pytest.approx(0.108589934592),
        }
    ]


def test_a_change_of_a_snapshot_tells_waves_pace_bill_and_floor(tmp_path: Path) -> None:
    taken = save_world(tmp_path, *shop_objects())
    change = save_change(tmp_path, pool("general", ("spot",)), deployment("web", 4, 500, 512))
    told = dovetail("plan", "--snapshot", taken, "--change", change)
    assert told.code == 0, told.err
    assert "Deployment shop/web  2 → 4  scaled" in told.out
    assert "WAVE  NODES" in told.out
    assert "pool general: 2 nodes in 2 waves, 1 at once by its budget of 10 %" in told.out
    assert "all of it takes about 5 min" in told.out
    assert "no fleet for these pods costs less than" in told.out
    assert "bought first: 1 ×" in told.out


def test_a_node_that_a_pod_blocks_for_good_drifts_and_stays(tmp_path: Path) -> None:
    """Nothing is bought in its place, and it is in the bill of both sides."""
    objects = shop_objects()
    objects[-1]["metadata"]["annotations"] = {"karpenter.sh/do-not-disrupt": "true"}
    taken = save_world(tmp_path, *objects)
    change = save_change(tmp_path, pool("general", labels={"tier": "x"}))
    told = dovetail("plan", "--snapshot", taken, "--change", change, "-o", "json")
    found = json.loads(told.out)
    holders = {each["node"]: each["heldBy"] for each in found["replaced"]}
    assert holders["node-0"] is None
    assert holders["node-1"]
    assert (found["leaving"], found["evicted"]) == (["node-0"], ["shop/web-5d9c-0"])


def test_what_drifts_is_bought_anew_and_in_the_bill(tmp_path: Path) -> None:
    taken = save_world(tmp_path, *shop_objects())
    change = save_change(tmp_path, pool("general", labels={"tier": "x"}))
    found = json.loads(dovetail("plan", "--snapshot", taken, "--change", change, "-o", "json").out)
    assert found["leaving"] == ["node-0", "node-1"]
    assert sum(each["after"] for each in found["nodes"]) >= 1
    assert found["hourlyAfter"] >= found["floorAfter"] > 0


def test_a_budget_that_held_before_is_not_told_again(tmp_path: Path) -> None:
    taken = save_world(tmp_path, *shop_objects(), budget("old", "web", maxUnavailable=0))
    change = save_change(tmp_path, deployment("other", 1, 100, 64))
    found = json.loads(dovetail("plan", "--snapshot", taken, "--change", change, "-o", "json").out)
    assert found["pdbs"] == []


def test_pods_that_lose_their_place_are_named_with_the_nearest_miss(tmp_path: Path) -> None:
    taken = save_world(tmp_path, *shop_objects())
    change = save_change(tmp_path, deployment("web", 2, 500, 512, nodeSelector={"disk": "fast"}))
    told = dovetail("plan", "--snapshot", taken, "--change", change)
    assert told.code == 3
    assert "becomes unschedulable: shop/web-0, shop/web-1 fit" in told.out
    assert "but for its node selector: disk In [fast]" in told.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--delete", "deploymnt/web"), "a plan depends on no deploymnt; did you mean deployment?"),
        (("--delete", "web"), "write KIND/NAME or KIND/NAMESPACE/NAME, such as deployment/shop/web"),
        (("--delete", "nodepool/x/y"), "a NodePool is in no namespace"),
        (("--delete", "node/node-9"), "there is no Node node-9 to delete; did you mean node-"),
        (("--change", "nowhere.yaml"), "there is no such file"),
    ],
)
def test_a_change_that_makes_no_sense_is_told_in_one_sentence(
    words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    ended = dovetail("plan", "--snapshot", save_world(tmp_path, *shop_objects()), *words)
    assert (ended.code, said in ended.err) == (1, True), ended.err
    assert "Traceback" not in ended.err

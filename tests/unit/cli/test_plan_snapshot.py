"""`dovetail plan --snapshot`: the plan for a saved cluster, and what does not go together with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.builders import pod
from support.commands import dovetail
from support.explain_snapshots import full_node, world
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
        (("--snapshot", "a", "--change", "b"), 1, "--change is for files, and --snapshot is none"),
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

"""``dovetail spend``, and ``dovetail plan`` with SpendLimits among its files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.app.cluster_source import SeenCluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.disruption.situation import Situation
from dovetail.scheduling.spend_caps import SpendCap
from support.builders import nodepool, pod
from support.commands import dovetail
from support.worlds import World, instance_type

CHECKED = """
apiVersion: dovetail.sh/v1alpha1
kind: SpendLimit
metadata: {name: tried}
spec: {hourly: "HOURLY"}
"""


@pytest.fixture
def cluster(tmp_path: Path) -> str:
    """A file of a cluster with three pods that wait, each for a node of two dollars, and a limit of four."""
    world = World(nodepool(), types=(instance_type("c2", 2, "8Gi", 110, price=2.0),))
    snapshot = world.snapshot(*(pod(f"web-{number}", cpu="1800m") for number in range(3)))
    cap = SpendCap(limit="development", every=True, hourly=4.0, window="0 19 * * 1-5 for 12h")
    path = tmp_path / "snapshot.json"
    path.write_bytes(encode_snapshot(SeenCluster(Situation(snapshot=snapshot, spend_caps=(cap,)))))
    return str(path)


def write(tmp_path: Path, hourly: str) -> str:
    path = tmp_path / "limit.yaml"
    path.write_text(CHECKED.replace("HOURLY", hourly), encoding="utf-8")
    return str(path)


def test_limits_are_shown_with_what_is_spent_and_whom_they_hold(cluster: str) -> None:
    ended = dovetail("spend", "--snapshot", cluster)
    assert ended.code == 3
    assert "development  0 19 * * 1-5 for 12h  Enforce  4.00  0.00" in ended.out
    assert "default/web-2 are held: a spend limit is reached: SpendLimit development" in ended.out
    ended = dovetail("spend", "development", "--snapshot", cluster, "-o", "json")
    (line,) = json.loads(ended.out)["limits"]
    assert (line["limit"], line["hourly"], line["held"]) == ("development", 4.0, ["default/web-2"])


def test_a_name_that_is_no_limit_is_said(cluster: str) -> None:
    ended = dovetail("spend", "develpment", "--snapshot", cluster)
    assert ended.code == 1
    assert "there is no SpendLimit develpment here" in ended.err


def test_a_limit_is_tried_beside_those_that_are_there(cluster: str, tmp_path: Path) -> None:
    ended = dovetail("spend", "check", "-f", write(tmp_path, "2.00"), "--snapshot", cluster, "-o", "json")
    assert ended.code == 3
    found = {each["limit"]: len(each["held"]) for each in json.loads(ended.out)["limits"]}
    assert found == {"development": 0, "tried": 2}
    ended = dovetail("spend", "check", "-f", write(tmp_path, "fourty"), "--snapshot", cluster)
    assert ended.code == 1
    assert 'spec.hourly: "fourty" is not an amount; write dollars such as "40.00"' in ended.err
    ended = dovetail("spend", "check", "--snapshot", cluster)
    assert (ended.code, "dovetail spend check -f FILE" in ended.err) == (1, True)


def test_without_limits_there_is_a_note(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.json"
    path.write_bytes(encode_snapshot(SeenCluster(Situation(snapshot=World(nodepool()).snapshot()))))
    ended = dovetail("spend", "--snapshot", str(path))
    assert (ended.code, ended.out) == (0, "")
    assert "there is no SpendLimit here" in ended.err


@pytest.mark.spec("SL-11")
def test_plans_of_files_keep_to_the_limits_among_them(tmp_path: Path) -> None:
    shop = str(Path(__file__).parents[3] / "examples" / "shop.yaml")
    free = json.loads(dovetail("plan", "-f", shop, "-o", "json").out)
    ended = dovetail("plan", "-f", shop, "-f", write(tmp_path, "0.05"), "-o", "json")
    assert ended.code == 3
    assert "SpendLimit tried allows $0.05 an hour" in ended.out
    held = json.loads(ended.out)
    assert len(held["nodes"]) < len(free["nodes"])

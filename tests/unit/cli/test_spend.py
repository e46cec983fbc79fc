"""``dovetail spend``, and ``dovetail plan`` with SpendLimits among its files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.meta import ObjectMeta
from dovetail.api.spend_limit import (
    CoveredPools,
    MonthSpend,
    SpendLimit,
    SpendLimitSpec,
    SpendLimitStatus,
)
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.disruption.situation import Situation
from dovetail.scheduling.spend_caps import SpendCap, build_caps
from dovetail.state.situation import change_spend_limits
from support.builders import NOW, nodepool, pod
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


def test_a_change_may_bring_a_limit_or_take_one_away(cluster: str, tmp_path: Path) -> None:
    def plan(*asked: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(dovetail("plan", "--snapshot", cluster, *asked, "-o", "json").out)
        return found

    tighter = plan("--change", write(tmp_path, "2.00"))
    assert (tighter["hourlyBefore"], tighter["hourlyAfter"]) == (4.0, 2.0)
    assert len(tighter["newlyUnschedulable"]) == 1
    assert any("set SPEND_LIMITS=true" in each for each in tighter["remarks"])
    freed = plan("--delete", "spendlimit/development")
    assert (freed["hourlyBefore"], freed["hourlyAfter"]) == (4.0, 6.0)
    assert len(freed["newlyPlaced"]) == 1
    ended = dovetail("plan", "--snapshot", cluster, "--delete", "spendlimit/develpment")
    assert ended.code == 1
    assert "there is no SpendLimit develpment to delete; did you mean development?" in ended.err


def test_a_change_of_labels_puts_a_node_pool_under_a_limit() -> None:
    """Limits that were seen are read again with the changed NodePools, and keep their months."""
    world = World(nodepool("a"), types=(instance_type("c2", 2, "8Gi", 110, price=2.0),))
    month = MonthSpend(of="2026-06", spent="100")
    limit = SpendLimit(
        metadata=ObjectMeta(name="development"),
        spec=SpendLimitSpec(node_pools=CoveredPools(match_labels={"team": "dev"}), monthly="100"),
        status=SpendLimitStatus(month=month),
    )
    before = Situation(snapshot=world.snapshot(), spend_caps=build_caps((limit,), world.pools, NOW))
    assert not before.spend_caps[0].covers("a")
    (only,) = world.pools
    world.pools = [replace(only, metadata=replace(only.metadata, labels={"team": "dev"}))]
    (cap,) = change_spend_limits(before.with_snapshot(world.snapshot()), (limit,), ()).spend_caps
    assert cap.covers("a")
    again = replace(limit, status=SpendLimitStatus())
    (cap,) = change_spend_limits(before, (limit,), (again,)).spend_caps
    assert cap.month == "2026-06", "what is tried goes on with the month that it replaces"

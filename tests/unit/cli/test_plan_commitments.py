"""``dovetail plan``, ``dovetail bill`` and ``dovetail explain`` with commitments."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dovetail.api.commitment import Commitment
from dovetail.app.cluster_source import SeenCluster
from dovetail.app.snapshot_file import encode_snapshot
from dovetail.disruption.situation import Situation
from dovetail.settings import examine_settings
from support.builders import pod
from support.commands import dovetail
from support.committed_worlds import TYPES, CommittedWorld, plan_of
from support.disruption import state


def write(path: Path, world: CommittedWorld, mode: str, pods: int = 6) -> str:
    snapshot = world.snapshot(*(pod(f"web-{number}", cpu="1500m", memory="1Gi") for number in range(pods)))
    settings = examine_settings((), {"COMMITMENTS": mode}, "kwok").settings
    path.write_bytes(encode_snapshot(SeenCluster(Situation(snapshot=snapshot), {}, settings)))
    return str(path)


def test_a_plan_shows_what_is_covered_and_what_is_left_to_pay(tmp_path: Path) -> None:
    world = CommittedWorld(plan_of(hourly="0.28"))
    ended = dovetail("plan", "--snapshot", write(tmp_path / "follow.json", world, "Follow"))
    assert ended.code == 0, ended.err
    assert "LEFT TO PAY $/H" in ended.out
    assert "COVERED BY" in ended.out
    rows = [line for line in ended.out.splitlines() if line.rstrip().endswith(" sp")]
    assert rows
    assert all("on-demand" in row for row in rows)
    assert "commitments pay for $0.40 an hour of it: the new nodes add $" in ended.out


def test_showing_commitments_changes_nothing_but_columns(tmp_path: Path) -> None:
    shown = CommittedWorld(plan_of(hourly="0.28"), follow=False)
    off = CommittedWorld(follow=False)
    found = [
        json.loads(
            dovetail("plan", "--snapshot", write(tmp_path / f"{mode}.json", world, mode), "-o", "json").out
        )
        for world, mode in ((shown, "Show"), (off, "Off"))
    ]
    assert found[0]["effectiveHourly"] <= found[0]["totalHourly"]
    for each in found:
        for name in (
            "solveSeconds",
            "firstPlanSeconds",
            "peakRssBytes",
            "effectiveHourly",
            "effectiveLowerBound",
        ):
            each.pop(name, None)
        for node in each["nodes"]:
            node.pop("effective", None)
            node.pop("coveredBy", None)
    assert found[0] == found[1]


@pytest.mark.parametrize("commitments", [(), (plan_of(hourly="0.07"),)])
def test_a_bill_says_which_commitment_paid(tmp_path: Path, commitments: tuple[Commitment, ...]) -> None:
    world = CommittedWorld(
        *commitments, follow=False, nodes=[state("a", of=TYPES[0]), state("b", of=TYPES[0])]
    )
    path = write(tmp_path / "bill.json", world, "Show", pods=0)
    found = json.loads(dovetail("bill", "--snapshot", path, "-o", "json").out)
    assert found["hourly"] == pytest.approx(0.17 if commitments else 0.20)
    assert [each["coveredBy"] for each in found["nodes"]] == ["sp" if commitments else None, None]
    table = dovetail("bill", "--snapshot", path).out
    if not commitments:
        assert "a month at list prices\n" in table
        assert "commitments" not in found
        return
    assert found["commitments"] == [
        {
            "name": "sp",
            "hourly": 0.07,
            "used": pytest.approx(0.07),
            "unused": pytest.approx(0),
            "byOthers": 0.0,
        }
    ]
    assert "a month after commitments, which pay for $0.1000 an hour of list prices" in table


def test_a_node_that_is_paid_for_says_so(tmp_path: Path) -> None:
    world = CommittedWorld(plan_of(hourly="5"), nodes=[state("a", of=TYPES[0])])
    path = write(tmp_path / "node.json", world, "Follow", pods=0)
    said = "its hour is paid for by sp; taking it away saves $0.00"
    assert said in dovetail("plan", "--disruption", "--snapshot", path).out
    assert said in dovetail("explain", "node/a", "--snapshot", path).out
    found = json.loads(dovetail("plan", "--disruption", "--snapshot", path, "-o", "json").out)
    assert "committed" in json.dumps(found)

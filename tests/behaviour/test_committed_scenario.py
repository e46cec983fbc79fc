"""A scenario that brings a Commitment: nodes are bought that it pays for, and the report counts the bill."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dovetail.play import play_scenario
from dovetail.sim.report import RunReport
from dovetail.sim.scenario_file import parse_scenario

STORY: dict[str, Any] = {
    "apiVersion": "dovetail.sh/v1alpha1",
    "kind": "Scenario",
    "name": "committed",
    "duration": "40m",
    "step": "20s",
    "pools": [
        {
            "requirements": [
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]}
            ],
            "budgets": [{"nodes": "100%"}],
        }
    ],
    "workloads": [{"name": "web", "cpu": "1", "memory": "256Mi", "replicas": {"value": 30}}],
}
PLAN = {
    "apiVersion": "dovetail.sh/v1alpha1",
    "kind": "Commitment",
    "metadata": {"name": "plan"},
    "spec": {"kind": "ComputePlan", "hourly": "2.00", "discount": "30%"},
}


def play(mode: str = "") -> RunReport:
    plan = {"settings": {"COMMITMENTS": mode}, "manifests": [PLAN]} if mode else {}
    return play_scenario(parse_scenario({**STORY, **plan}, Path("story.yaml")))


def test_a_plan_is_filled_before_spot_is_bought_and_its_dollars_are_on_the_bill() -> None:
    plain, shown, followed = play(), play("Show"), play("Follow")
    assert plain.spot_share == 1.0
    hours = plain.hours
    # Spot is never covered: a plan that is only shown is paid beside it.
    assert shown.dollars == pytest.approx(plain.dollars + 2.00 * hours, rel=0.02)
    assert (shown.spot_share, shown.nodes_added) == (plain.spot_share, plain.nodes_added)
    # Followed, the pods run on demand, and all of it is paid for.
    assert followed.spot_share == 0.0
    assert followed.dollars == pytest.approx(2.00 * hours, rel=0.02)
    assert followed.pods_started == plain.pods_started
    assert play("Off").dollars == pytest.approx(plain.dollars, rel=1e-9)

"""A plan is paid for as long as its nodes run: some hours with jobs in between, bought for in both ways."""

from __future__ import annotations

from msgspec.structs import replace

from dovetail.play import play_scenario
from dovetail.sim.scenario import ReplicaCurve, Scenario, ScenarioEvent, ScenarioPool, ScenarioWorkload

ALONE = {
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [
                {
                    "topologyKey": "kubernetes.io/hostname",
                    "labelSelector": {"matchLabels": {"app": "base"}},
                }
            ]
        }
    }
}


STAYS = {"karpenter.sh/do-not-disrupt": "true"}


def scaled(at: str, name: str, replicas: int) -> ScenarioEvent:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": replicas}}
    return ScenarioEvent(at, apply=[deployment | {"metadata": {"name": name, "namespace": "default"}}])


def jobs_among_others() -> Scenario:
    """Eight nodes that stay; six jobs for twenty minutes, and web pods that settle beside them."""
    small = {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["33"]}
    linux = {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}
    return Scenario(
        "dovetail.sh/v1alpha1",
        "Scenario",
        duration="2h",
        pools=[ScenarioPool(requirements=[linux, small], consolidate_after="1m", budgets=[{"nodes": "50%"}])],
        workloads=[
            ScenarioWorkload(
                "base",
                cpu="1800m",
                memory="3Gi",
                replicas=ReplicaCurve(value=8),
                spec=ALONE,
                annotations=STAYS,
            ),
            ScenarioWorkload("jobs", cpu="4", memory="16Gi", replicas=ReplicaCurve(value=0)),
            ScenarioWorkload("web", cpu="500m", memory="1Gi", replicas=ReplicaCurve(value=0)),
        ],
        events=[
            scaled("20m", "jobs", 6),
            *(scaled(f"{22 + i}m", "web", 2 * i + 2) for i in range(6)),
            scaled("40m", "jobs", 0),
        ],
    )


def test_jobs_that_come_and_go_leave_less_behind_than_one_by_one() -> None:
    story = jobs_among_others()
    plain = play_scenario(replace(story, settings={"PLANNER": "one-by-one"}))
    ours = play_scenario(story)

    assert ours.pods_waiting == plain.pods_waiting == 0
    # While the jobs run both cost the same, but for the last digit on the labels; then half of it goes.
    assert max(each.dollars for each in ours.samples) <= max(each.dollars for each in plain.samples) + 1e-5
    assert ours.samples[-1].dollars < 0.8 * plain.samples[-1].dollars
    assert ours.dollars < 0.97 * plain.dollars

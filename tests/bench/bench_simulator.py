"""How fast `dovetail simulate` is: simulated seconds for each second of processor time."""

from __future__ import annotations

import time
from collections.abc import Iterator

from dovetail.play import play_scenario
from dovetail.sim.scenario import ReplicaCurve, Scenario, ScenarioPool, ScenarioWorkload

from .registry import Figure, scenario

CPU = "karpenter.kwok.sh/instance-cpu"


def story(nodes: int, duration: str) -> Scenario:
    """Nodes that are well used, and small pods that come and go beside the large ones all day."""
    pool = ScenarioPool(
        nodes=nodes,
        requirements=[{"key": CPU, "operator": "In", "values": ["4"]}],
        consolidate_after="1m",
    )
    large = ScenarioWorkload(
        "large", cpu="3", memory="4Gi", max_unavailable="10%", replicas=ReplicaCurve(value=nodes)
    )
    waves = ReplicaCurve(curve="diurnal", low=nodes // 2, high=nodes * 2, peak="8h")
    small = ScenarioWorkload("small", cpu="250m", memory="256Mi", max_unavailable="10%", replicas=waves)
    return Scenario(
        "dovetail.sh/v1alpha1",
        "Scenario",
        name=f"{nodes} nodes",
        duration=duration,
        pools=[pool],
        workloads=[large, small],
    )


def ratio(nodes: int, duration: str) -> float:
    """The whole run, from an empty world to the report."""
    told = story(nodes, duration)
    begun = time.process_time()
    report = play_scenario(told)
    taken = time.process_time() - begun
    assert report.nodes_most >= nodes
    assert report.pods_waiting == 0
    return told.length.total_seconds() / taken


@scenario("simulator: 100 nodes")
def hundred() -> Iterator[Figure]:
    yield Figure("six hours", ratio(100, "6h"), "times real time", 1000, more_is_better=True)


@scenario("simulator: 1,000 nodes")
def thousand() -> Iterator[Figure]:
    yield Figure("an hour", ratio(1000, "1h"), "times real time", 100, more_is_better=True)

"""The parts of a shadow beside a cluster of 500 nodes and 5,000 pods, each in a process of its own.

    python -m tests.bench.hold_shadow play FOLDER MINUTES
    python -m tests.bench.hold_shadow follow FOLDER ROLE

`play` is the cluster in virtual time, with its controller and the recorder of the shadow in one process: what
it takes is more than the recorder takes. `follow` is one follower, fed as the recorder would feed it. Each
prints its processor seconds, the most memory it had, and how far it fell behind, as JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from dovetail.play.shadow_twins import DIFFERENCES, LAG, ShadowTwins, build_consumer
from dovetail.play.shadowing import SegmentFeed, feed_segments
from dovetail.sim.scenario import ReplicaCurve, Scenario, ScenarioPool, ScenarioWorkload
from support.shadowed import ClusterShadow, list_sources, watch_story

# Minutes until the cluster has all its nodes; the shadow begins then.
WARM_UP = 12
# Followers that share a core.
SHARED = 3


def build_story(minutes: int) -> Scenario:
    """About 500 nodes with ten pods on each; one pod in six comes and goes every quarter of an hour."""
    calm = [
        ScenarioWorkload(
            name=f"web-{n}",
            cpu="700m",
            memory="1Gi",
            replicas=ReplicaCurve(curve="diurnal", low=225, high=255, peak=f"{2 * n}h"),
        )
        for n in range(20)
    ]
    lively = [
        ScenarioWorkload(
            name=f"batch-{n}",
            cpu=("500m", "900m")[n % 2],
            memory="1Gi",
            replicas=ReplicaCurve(curve="bursty", base=40, burst=240, every=f"{13 + n}m", lasts="6m"),
        )
        for n in range(4)
    ]
    limits = [
        {"key": "karpenter.kwok.sh/instance-cpu", "operator": "In", "values": ["8"]},
        {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
    ]
    return Scenario(
        api_version="dovetail.sh/v1alpha1",
        kind="Scenario",
        duration=f"{WARM_UP + minutes}m",
        settings={"PLANNER": "one-by-one"},
        pools=[ScenarioPool(requirements=limits, consolidate_after="1m")],
        workloads=[*calm, *lively],
    )


def play(folder: Path, minutes: int) -> dict[str, Any]:
    """The cluster, recorded, and how long it lived."""
    shadow = ClusterShadow(folder, after=60.0 * WARM_UP)
    watch_story(build_story(minutes), shadow)
    assert shadow.transport.attempts == []
    return {"seconds": 60.0 * (WARM_UP + minutes)}


class TimedConsumer:
    """Hands everything to a follower, and knows how far behind it would be with a third of a core."""

    def __init__(self, role: str) -> None:
        self.inner: Any = build_consumer(role, ShadowTwins())
        self._began = time.process_time()
        self._free: float | None = None
        self.behind = 0.0
        self.nodes = self.pods = 0

    def add_look(self, look: Any) -> None:
        self.nodes = max(self.nodes, len(look.situation.snapshot.nodes))
        self.pods = max(self.pods, sum(len(each.pods) for each in look.situation.snapshot.nodes))
        self.inner.add_look(look)
        self.inner.encode_result()
        spent, self._began = time.process_time() - self._began, time.process_time()
        at = look.at.timestamp()
        self._free = max(at, self._free or at) + SHARED * spent
        self.behind = max(self.behind, self._free - at)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def follow(folder: Path, role: str) -> dict[str, Any]:
    """One follower from the first look to the last."""
    timed = TimedConsumer(role)
    feed_segments(list_sources(folder), (SegmentFeed(timed),))
    timed.inner.close()
    lag = 0.0 if role == DIFFERENCES else LAG.total_seconds()
    return {"behind": lag + timed.behind, "nodes": timed.nodes, "pods": timed.pods}


if __name__ == "__main__":
    what, place, given = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
    before = time.process_time()
    found = play(place, int(given)) if what == "play" else follow(place, given)
    spent = time.process_time() - before
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(json.dumps({"cpu": spent, "memory": peak, **found}))

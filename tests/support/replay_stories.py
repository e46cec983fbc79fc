"""Small stories of a few nodes and some hours that replays are tried on: another seed, other numbers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from dovetail.sim.scenario import (
    NodeFailure,
    PoolDrift,
    PriceChange,
    ReplicaCurve,
    Scenario,
    ScenarioEvent,
    ScenarioPool,
    ScenarioRollout,
    ScenarioWorkload,
    SpotReclaim,
)

__all__ = ["STORIES", "build_story"]

Json = dict[str, Any]
SMALL = [
    {"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]},
    {"key": "karpenter.kwok.sh/instance-cpu", "operator": "Lt", "values": ["17"]},
]
ON_DEMAND = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
SPOT = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]}


class StoryChance(Random):
    """What numbers are drawn from; those of pods are so many times as large."""

    scale = 1


def _curve(chance: StoryChance, low: int, high: int) -> ReplicaCurve:
    """Up and down within the hours of a story, by day or in bursts."""
    if chance.random() < 0.5:
        return ReplicaCurve(curve="diurnal", low=low, high=high, peak=f"{chance.randint(60, 300)}m")
    every = chance.randint(50, 130)
    return ReplicaCurve(
        curve="bursty", base=low, burst=high, every=f"{every}m", lasts=f"{every // chance.randint(2, 4)}m"
    )


def _workload(chance: StoryChance, name: str, cpu: int, memory: int, **given: Any) -> ScenarioWorkload:
    low = chance.randint(2, 5) * chance.scale
    curve = given.pop("curve", None) or _curve(chance, low, low * chance.randint(2, 5))
    return ScenarioWorkload(name=name, cpu=f"{cpu}m", memory=f"{memory}Mi", replicas=curve, **given)


def _pool(**given: Any) -> ScenarioPool:
    return ScenarioPool(
        **{"requirements": SMALL, "consolidate_after": "1m", "budgets": [{"nodes": "50%"}], **given}
    )


def _web(chance: StoryChance) -> Json:
    return {
        "pools": [_pool()],
        "workloads": [
            _workload(chance, "front", 500, 1024, max_unavailable=1),
            _workload(chance, "cart", 250, 2048, max_unavailable=1),
        ],
    }


def _ci(chance: StoryChance) -> Json:
    burst = ReplicaCurve(
        curve="bursty", base=1, burst=chance.randint(8, 16) * chance.scale, every="1h", lasts="14m"
    )
    return {
        "pools": [_pool(budgets=[{"nodes": "100%"}])],
        "workloads": [
            _workload(chance, "builds", 3000, 6144, curve=burst),
            _workload(chance, "runners", 500, 1024, curve=ReplicaCurve(value=6)),
        ],
    }


def _shapes(chance: StoryChance) -> Json:
    return {
        "pools": [_pool()],
        "workloads": [
            _workload(chance, "wide", 1500, 512),
            _workload(chance, "tall", 200, 6144),
            _workload(chance, "even", 700, 1400),
            _workload(chance, "tiny", 100, 128),
        ],
    }


def _spread(chance: StoryChance) -> Json:
    rule = {
        "maxSkew": 1,
        "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "front"}},
    }
    return {
        "pools": [_pool(consolidate_after="3m")],
        "workloads": [
            _workload(chance, "front", 600, 1024, spec={"topologySpreadConstraints": [rule]}),
            _workload(chance, "back", 900, 3072),
        ],
    }


def _prices(chance: StoryChance) -> Json:
    changes = [(90, 1.9), (200, 0.6), (300, 1.2)]
    return {
        "pools": [_pool()],
        "workloads": [_workload(chance, "front", 500, 1024), _workload(chance, "back", 1200, 2048)],
        "events": [
            ScenarioEvent(at=f"{at}m", price=PriceChange(factor=factor, capacity_type="spot"))
            for at, factor in changes
        ],
    }


def _drift(chance: StoryChance) -> Json:
    return {
        "pools": [_pool(requirements=[*SMALL, ON_DEMAND])],
        "workloads": [_workload(chance, "front", 500, 1024), _workload(chance, "back", 1200, 2048)],
        "events": [ScenarioEvent(at="100m", drift=PoolDrift()), ScenarioEvent(at="250m", drift=PoolDrift())],
    }


def _rollouts(chance: StoryChance) -> Json:
    return {
        "pools": [_pool(consolidate_after="5m")],
        "workloads": [
            _workload(chance, "front", 500, 1024, max_unavailable=2),
            _workload(chance, "back", 900, 1024),
        ],
        "events": [
            ScenarioEvent(at=f"{at}m", rollout=ScenarioRollout(workload=chance.choice(("front", "back"))))
            for at in (70, 160, 250, 310)
        ],
    }


def _two_pools(chance: StoryChance) -> Json:
    taint = {"key": "team", "value": "data", "effect": "NoSchedule"}
    data = {
        "template": {
            "metadata": {"labels": {"team": "data"}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [*SMALL, ON_DEMAND],
                "taints": [taint],
                "expireAfter": "2h",
            },
        }
    }
    own = {
        "nodeSelector": {"team": "data"},
        "tolerations": [{"key": "team", "operator": "Exists"}],
    }
    return {
        "pools": [_pool(), _pool(name="data", spec=data)],
        "workloads": [_workload(chance, "front", 500, 1024), _workload(chance, "data", 1500, 6144, spec=own)],
    }


def _failures(chance: StoryChance) -> Json:
    return {
        "settings": {"FEATURE_GATES": "NodeRepair=true"},
        "pools": [_pool()],
        "workloads": [_workload(chance, "front", 500, 1024), _workload(chance, "back", 1500, 2048)],
        "events": [
            ScenarioEvent(at="110m", failure=NodeFailure(count=1)),
            ScenarioEvent(at="260m", failure=NodeFailure(count=1)),
        ],
    }


def _reclaims(chance: StoryChance) -> Json:
    return {
        "pools": [_pool(requirements=[*SMALL, SPOT])],
        "workloads": [_workload(chance, "front", 800, 1024), _workload(chance, "back", 1500, 2048)],
        "events": [ScenarioEvent(at=f"{at}m", reclaim=SpotReclaim(share=0.34)) for at in (80, 170, 280)],
    }


def _jobs(chance: StoryChance) -> Json:
    """Jobs that run for a while, beside pods that keep their names."""
    limits = {"requests": {"cpu": "1500m", "memory": "2Gi"}}
    pod = {
        "metadata": {"annotations": {"sim.dovetail.dev/run-for": f"{chance.randint(12, 25)}m"}},
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "simulated", "resources": limits}],
        },
    }
    cron = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "sums", "namespace": "default"},
        "spec": {
            "schedule": "*/20 * * * *",
            "jobTemplate": {"spec": {"parallelism": 3, "completions": 3, "template": pod}},
        },
    }
    return {
        "pools": [_pool()],
        "workloads": [_workload(chance, "front", 500, 1024)],
        "manifests": [cron],
    }


STORIES: dict[str, Callable[[StoryChance], Json]] = {
    "web": _web,
    "ci": _ci,
    "shapes": _shapes,
    "spread": _spread,
    "prices": _prices,
    "drift": _drift,
    "rollouts": _rollouts,
    "two-pools": _two_pools,
    "failures": _failures,
    "reclaims": _reclaims,
    "jobs": _jobs,
}


def build_story(name: str, seed: int, hours: float = 6.0, scale: int = 1, **settings: str) -> Scenario:
    """A story by its name; its numbers, and what chance does in it, follow from the seed."""
    chance = StoryChance(f"{name} {seed}")
    chance.scale = scale
    parts = STORIES[name](chance)
    return Scenario(
        api_version="dovetail.sh/v1alpha1",
        kind="Scenario",
        name=name,
        seed=seed,
        duration=f"{hours * 60:g}m",
        **{**parts, "settings": {**parts.get("settings", {}), **settings}},
    )

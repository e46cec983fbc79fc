"""Random little clusters as manifests: pools, nodes and pods with every rule that bulk plans speak of."""

from __future__ import annotations

import sys
from random import Random
from typing import Any

from support.peer_workloads import PEER

Json = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def _workloads() -> Any:
    if str(PEER) not in sys.path:
        sys.path.insert(0, str(PEER))
    import workloads  # type: ignore[import-not-found]  # hack/peer is not a package

    return workloads


def cluster(seed: int) -> Json:
    """A v1 List, the same for the same seed."""
    made, chance = _workloads(), Random(seed)
    pools = [_pool(made, chance, number) for number in range(chance.choice([1, 1, 2, 3]))]
    shapes = chance.choice([1, 3, 6, 10])
    pods = [pod for number in range(shapes) for pod in _pods(made, chance, number, shapes)]
    others, bound = made.fleet(chance, chance.choice([1, 4]), 0.2, 0.8) if chance.random() < 0.5 else ([], [])
    for each in others:
        each["metadata"]["labels"] = {**each["metadata"]["labels"], "karpenter.sh/nodepool": "pool-0"}
    notes = {"annotations": {"catalog-subset": "144"}}
    return {"kind": "List", "metadata": notes, "items": [*pools, *others, *bound, *pods]}


def _pool(made: Any, chance: Random, number: int) -> Json:
    taints = [{"key": "team", "value": "a", "effect": "NoSchedule"}] if chance.random() < 0.25 else []
    pool: Json = made.pool(
        f"pool-{number}",
        taints=taints,
        labels={"tier": chance.choice("xy")} if chance.random() < 0.4 else None,
        weight=chance.choice([None, 1, 5]),
        capacity=chance.choice([("on-demand",), ("spot", "on-demand"), ("spot",)]),
        zones=chance.choice([None, None, chance.sample(made.ZONES, 2)]),
        arch=chance.choice([("amd64",), ("amd64", "arm64")]),
    )
    if chance.random() < 0.2:
        pool["spec"]["limits"] = {"cpu": str(chance.choice([0, 20, 100, 400]))}
    return pool


def _pods(made: Any, chance: Random, number: int, shapes: int) -> list[Json]:
    own = {"app": f"d{number}"} | ({"grp": chance.choice("ab")} if chance.random() < 0.3 else {})
    extra: Json = {}
    spreads = [_spread(made, chance, own, shapes) for _ in range(chance.choice([0, 0, 1, 1, 2]))]
    if spreads:
        extra["topologySpreadConstraints"] = spreads
    affinity = _affinity(made, chance, own, shapes)
    if affinity:
        extra["affinity"] = affinity
    if chance.random() < 0.15:
        extra["nodeSelector"] = chance.choice(
            [{made.ZONE: chance.choice(made.ZONES)}, {"kubernetes.io/arch": "arm64"}, {"tier": "x"}]
        )
    if chance.random() < 0.4:
        extra["tolerations"] = [{"key": "team", "operator": "Exists"}]
    cpu, memory = chance.choice([100, 250, 900, 3000, 7000]), chance.choice([128, 512, 3000, 9000])
    pods: list[Json] = made.deployment(f"d{number}", chance.choice([1, 2, 5, 13]), cpu, memory, **extra)
    for pod in pods:
        pod["metadata"]["labels"] = dict(own)
    return pods


def _selector(chance: Random, own: Json, shapes: int) -> Json:
    return chance.choice([own, {"app": f"d{chance.randrange(shapes)}"}, {"grp": chance.choice("ab")}])


def _spread(made: Any, chance: Random, own: Json, shapes: int) -> Json:
    key = chance.choice([made.ZONE, made.HOST, made.HOST])
    selector = chance.choice([own, own, _selector(chance, own, shapes)])
    found: Json = made.spread(key, selector, chance.choice(["DoNotSchedule", "ScheduleAnyway"]))
    found["maxSkew"] = chance.choice([1, 1, 2, 5])
    return found


def _affinity(made: Any, chance: Random, own: Json, shapes: int) -> Json:
    found: Json = {}
    if chance.random() < 0.15:
        term = made.term(chance.choice([made.ZONE, made.ZONE, made.HOST]), _selector(chance, own, shapes))
        found["podAffinity"] = {REQUIRED: [term]}
    if chance.random() < 0.2:
        term = made.term(chance.choice([made.HOST, made.HOST, made.ZONE]), _selector(chance, own, shapes))
        found["podAntiAffinity"] = {REQUIRED: [term]}
    if chance.random() < 0.2:
        value = chance.choice([made.ZONES[0], "x", "y"])
        wish = {"key": chance.choice([made.ZONE, "tier"]), "operator": "In", "values": [value]}
        found["nodeAffinity"] = {PREFERRED: [{"weight": 2, "preference": {"matchExpressions": [wish]}}]}
    return found

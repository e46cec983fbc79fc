"""A finished plan, judged by the embedded kube-scheduler's own rules: every pod it places would be bound."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api import codec
from dovetail.api.labels import CAPACITY_TYPE, HOSTNAME, INSTANCE_TYPE, ZONE
from dovetail.scheduling.plan import Plan, PlannedNode, pool_labels
from dovetail.scheduling.snapshot import Snapshot
from dovetail.scheduling.solve import solve
from dovetail.sim.cluster.scheduler.judge import judge
from support.fuzzed import cluster
from support.peer_workloads import snapshot_of

Json = dict[str, Any]
TRIES = 4


def _launched(node: PlannedNode, snapshot: Snapshot) -> Json:
    """The planned node as its cheapest offering would make it."""
    pool = next(each for each in snapshot.pools if each.name == node.pool)
    chosen = next(each for each in snapshot.types(pool) if each.name == node.instance_type)
    known = {key: only for key in chosen.requirements if (only := chosen.requirements[key].only) is not None}
    known |= {key: only for key in node.requirements if (only := node.requirements[key].only) is not None}
    known |= pool_labels(pool.nodepool)
    known |= {ZONE: node.zone, CAPACITY_TYPE: node.capacity_type, INSTANCE_TYPE: node.instance_type}
    taints = [codec.to_dict(taint) for taint in pool.nodepool.spec.template.spec.taints]
    return {
        "metadata": {"name": node.name, "labels": {**known, HOSTNAME: node.name}},
        "spec": {"taints": taints},
        "status": {"allocatable": {name: str(amount) for name, amount in chosen.allocatable().items()}},
    }


def _objections(document: Json, snapshot: Snapshot, plan: Plan) -> list[str]:
    items = document["items"]
    pods = {_name(item): item for item in items if item["kind"] == "Pod"}
    nodes = [item for item in items if item["kind"] == "Node"]
    nodes += [_launched(node, snapshot) for node in plan.new_nodes]
    placements = [(pods[name], node.name) for node in plan.new_nodes for name in node.pods]
    placements += [(pods[name], node) for node, names in plan.existing.items() for name in names]
    bound = [pod for pod in pods.values() if pod["spec"].get("nodeName")]
    for _ in range(TRIES):
        found = judge(nodes, bound, placements)
        if not found:
            break
        # A rule about other pods may hold only if its owners come before them: let their kind go first.
        refused = {pods[text.split(" on ")[0]]["metadata"]["labels"]["app"] for text in found}
        first = [each for each in placements if each[0]["metadata"]["labels"]["app"] in refused]
        if judge(nodes, bound, first):
            break
        bound += [{**pod, "spec": {**pod["spec"], "nodeName": node}} for pod, node in first]
        placements = [each for each in placements if each not in first]
    return found


def _name(pod: Json) -> str:
    return f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000))
def test_every_pod_a_plan_places_would_be_bound_there(seed: int) -> None:
    document = cluster(seed)
    snapshot = snapshot_of(document)
    plan = solve(snapshot)
    assert _objections(document, snapshot, plan) == []

"""A finished plan, judged by two oracles that share nothing with the placer: all it places would be bound.

One is the embedded kube-scheduler, the other is written from the documentation of Kubernetes alone.
"""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.solve import solve
from dovetail.sim.cluster.scheduler.plan_check import find_refused_placements
from support.peer_workloads import snapshot_of
from support.random_clusters import furnished, launched, name_of, objections
from support.random_manifests import cluster

Json = dict[str, Any]
TRIES = 4


def _objections(document: Json, snapshot: Snapshot, plan: Plan) -> list[str]:
    items = document["items"]
    pods = {name_of(item): item for item in items if item["kind"] == "Pod"}
    nodes = [item for item in items if item["kind"] == "Node"]
    nodes += [launched(node, snapshot) for node in plan.new_nodes]
    placements = [(pods[name], node.name) for node in plan.new_nodes for name in node.pods]
    placements += [(pods[name], node) for node, names in plan.existing.items() for name in names]
    spaces = [item for item in items if item["kind"] == "Namespace"]
    storage = [item for item in items if item["kind"].startswith("PersistentVolume")]
    bound = [pod for pod in pods.values() if pod["spec"].get("nodeName")]
    for _ in range(TRIES):
        found = find_refused_placements(nodes, bound, placements, namespaces=spaces, storage=storage)
        if not found:
            break
        # A rule about other pods may hold only if its owners come before them: let their kind go first.
        refused = {pods[text.split(" on ")[0]]["metadata"]["labels"]["app"] for text in found}
        first = [each for each in placements if each[0]["metadata"]["labels"]["app"] in refused]
        if find_refused_placements(nodes, bound, first, namespaces=spaces, storage=storage):
            break
        bound += [{**pod, "spec": {**pod["spec"], "nodeName": node}} for pod, node in first]
        placements = [each for each in placements if each not in first]
    return found


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000))
def test_every_pod_a_plan_places_would_be_bound_there(seed: int) -> None:
    document = cluster(seed)
    snapshot = snapshot_of(document)
    plan = solve(snapshot)
    assert _objections(document, snapshot, plan) == []
    assert objections(document, snapshot, plan) == []


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 100_000))
def test_volumes_ports_sidecars_daemons_and_namespaces_are_all_kept_to(seed: int) -> None:
    document = furnished(seed)
    snapshot = snapshot_of(document)
    plan = solve(snapshot)
    assert objections(document, snapshot, plan) == []
    assert _objections(document, snapshot, plan) == []


def test_plans_of_furnished_clusters_place_most_pods() -> None:
    """Else there would be nothing to object to."""
    plans = [(solve(snapshot_of(document)), document) for document in map(furnished, range(12))]
    placed = sum(len(node.pods) for plan, _ in plans for node in plan.new_nodes)
    waiting = sum(len(plan.left_out) for plan, _ in plans)
    assert placed > 2 * waiting > 0

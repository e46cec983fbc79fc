"""What others change in a recorded cluster while it is replayed: NodePools, budgets, DaemonSets, volumes."""

from __future__ import annotations

from dovetail.api.core import PodDisruptionBudget
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation
from dovetail.history.demand import COUNTED
from dovetail.play.recorded_objects import build_budget, build_daemonset, build_nodepool, strip_document
from dovetail.play.started_world import NODES, POOLS, StartedWorld
from dovetail.scheduling.model.label_selectors import matches_selector
from dovetail.scheduling.model.snapshot import SnapshotPool, StateNode, Storage

__all__ = ["apply_storage", "apply_world_changes"]

BUDGETS, DAEMONSETS = "poddisruptionbudgets.policy", "daemonsets.apps"
STORAGE_CLASSES = "storageclasses.storage.k8s.io"
VOLUMES, VOLUME_CLAIMS = "persistentvolumes", "persistentvolumeclaims"


def apply_world_changes(started: StartedWorld, situation: Situation) -> None:
    """What others changed since the look before: NodePools, budgets, DaemonSets, volumes."""
    snapshot = situation.snapshot
    for pool in snapshot.pools:
        _apply_pool(started, pool)
    for name in started.pools.keys() - {pool.name for pool in snapshot.pools}:
        del started.pools[name]
        started.delete_quietly(POOLS, name)
    _apply_budgets(started, snapshot.budgets, situation)
    if snapshot.daemons is not started.daemons:
        _apply_daemons(started, snapshot.daemons)
    apply_storage(started, snapshot.storage)
    _apply_fixed_nodes(started, snapshot.nodes)


def _apply_pool(started: StartedWorld, pool: SnapshotPool) -> None:
    nodepool = pool.nodepool
    if started.replaced.covers("NodePool", pool.name):
        return
    if nodepool.spec.template.spec.node_class_ref.kind not in ("", started.class_kind.kind):
        return
    document = build_nodepool(nodepool, started.defaults, started.knobs, started.mark_template(nodepool))
    told = (document["spec"], document["metadata"].get("annotations"))
    if started.pools.get(pool.name) == told:
        return
    first = pool.name not in started.pools
    started.pools[pool.name] = told
    if first:
        started.world.api.create(POOLS, document)
    else:
        stored = started.find(POOLS, pool.name) or {}
        about = {**stored["metadata"], "annotations": document["metadata"].get("annotations") or {}}
        started.api.amend(POOLS, ("", pool.name), spec=document["spec"], metadata=about)


def _apply_budgets(
    started: StartedWorld, budgets: tuple[PodDisruptionBudget, ...], situation: Situation
) -> None:
    if started.budgets.get("") is budgets:
        return
    listed = {budget.full_name: budget for budget in budgets}
    for name, budget in listed.items():
        if started.replaced.covers("PodDisruptionBudget", budget.name, budget.namespace):
            continue
        counted = _is_counted(budget, situation)
        told = (budget.spec, None if counted else budget.status.desired_healthy)
        if started.budgets.get(name) == told:
            continue
        first, document = name not in started.budgets, build_budget(budget, counted)
        started.budgets[name] = told
        started.ensure_namespace(budget.namespace)
        if first:
            started.api.insert(BUDGETS, document)
        else:
            started.api.amend(BUDGETS, (budget.namespace, budget.name), spec=document["spec"])
    for name in started.budgets.keys() - listed.keys() - {""}:
        del started.budgets[name]
        namespace, _, own = name.partition("/")
        started.delete_quietly(BUDGETS, own, namespace)
    started.budgets[""] = budgets


def _is_counted(budget: PodDisruptionBudget, situation: Situation) -> bool:
    """Whether all pods of the budget have an owner that says how many there should be."""
    selector = budget.spec.selector
    snapshot = situation.snapshot
    for pods in (snapshot.pods, *(state.pods for state in snapshot.nodes)):
        for pod in pods:
            if pod.namespace == budget.namespace and matches_selector(selector, pod.labels):
                owners = [each.kind for each in pod.metadata.owner_references if each.controller]
                return bool(owners) and owners[0] in COUNTED
    return True


def _apply_daemons(started: StartedWorld, daemons: tuple[Pod, ...]) -> None:
    known = {_name_daemon(pod): pod for pod in started.daemons}
    for pod in daemons:
        name = _name_daemon(pod)
        if name in known:
            continue  # one that is rolled out anew requests what it did, as far as anybody told
        started.ensure_namespace(pod.namespace)
        started.ensure_priority(pod)
        document = build_daemonset(pod, name)
        if started.find(DAEMONSETS, name, document["metadata"]["namespace"]) is None:
            started.api.insert(DAEMONSETS, document)
    for name in known.keys() - {_name_daemon(pod) for pod in daemons}:
        started.delete_quietly(DAEMONSETS, name, known[name].namespace or "default")
    started.daemons = daemons


def _name_daemon(pod: Pod) -> str:
    owner = next((each for each in pod.metadata.owner_references if each.controller), None)
    return owner.name if owner is not None else pod.name or "daemon"


def apply_storage(started: StartedWorld, storage: Storage) -> None:
    """Volumes and claims that are new; a claim that the simulated cluster has bound by itself stays so."""
    if storage is started.storage:
        return
    for name, each in sorted(storage.classes.items()):
        if started.find(STORAGE_CLASSES, name) is None:
            started.api.insert(STORAGE_CLASSES, strip_document(each))
    for _, claim in sorted(storage.claims.items()):
        if started.find(VOLUME_CLAIMS, claim.name, claim.namespace) is not None:
            continue
        volume = storage.volumes.get(claim.spec.volume_name) if claim.spec.volume_name else None
        document = strip_document(claim)
        document["metadata"].pop("finalizers", None)
        started.ensure_namespace(claim.namespace)
        stored = started.api.insert(VOLUME_CLAIMS, document)
        if volume is not None:
            started.api.amend(
                VOLUME_CLAIMS, (claim.namespace, claim.name), "status", status={"phase": "Bound"}
            )
            if started.find(VOLUMES, volume.name) is None:
                bound = strip_document(volume)
                bound["metadata"].pop("finalizers", None)
                meta = stored["metadata"]
                reference = {"namespace": meta["namespace"], "name": meta["name"], "uid": meta["uid"]}
                bound["spec"] = {**bound.get("spec", {}), "claimRef": reference}
                started.api.insert(VOLUMES, {**bound, "status": {"phase": "Bound"}})
    started.storage = storage


def _apply_fixed_nodes(started: StartedWorld, nodes: tuple[StateNode, ...]) -> None:
    """Nodes that no NodePool has are there while they were there."""
    fixed = {state.node.name: state for state in nodes if state.node is not None and state.claim is None}
    for name in [name for name in started.fixed if name not in fixed]:
        del started.fixed[name]
        started.delete_quietly(NODES, name)
    for name, state in fixed.items():
        if name not in started.fixed and started.find(NODES, name) is None:
            started.insert_node(state)

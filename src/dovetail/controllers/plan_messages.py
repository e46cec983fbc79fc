"""What is said of decisions: what pods get, what stands in their way, and the commands of disruption.

Where the same would be said in every pass, it is said once for each reason and hour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from uuid import NAMESPACE_OID, uuid5

from dovetail.api import conditions, labels
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.disruption.command import Command
from dovetail.logs import Changes, build_reference, debug, error, first_of, info
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.settings.durations import render_duration

__all__ = [
    "log_command",
    "log_command_done",
    "log_failed_command",
    "log_limit_reached",
    "log_plan",
    "log_pools_not_ready",
    "log_preferences",
    "log_refused_claim",
    "log_replicas_missing",
    "log_types_missing",
]

FOUND_PODS = info(
    "found provisionable pod(s)",
    "Pods are pending, and NodeClaims are created for them.",
    ("Pods", "duration"),
)
COMPUTED = info(
    "computed new nodeclaim(s) to fit pod(s)",
    "How many NodeClaims for how many pods.",
    ("nodeclaims", "pods"),
)
COMPUTED_EXISTING = info(
    "computed unready node(s) will fit pod(s)", "Other pods fit on nodes that exist.", ("nodes", "pods")
)
UNSCHEDULABLE = error(
    "could not schedule pod", "A pod is unschedulable; once for each reason and hour.", ("Pod", "error")
)
NOT_READY = error(
    "ignoring nodepool, not ready",
    "A pool cannot grow, and why; once for each reason and hour.",
    ("NodePool", "error"),
)
NO_POOLS = info("no dynamic nodepools found", "Pods are pending and no pool can grow; once an hour.")
PREFER_APART = info(
    "pod(s) have a preferred Anti-Affinity which can prevent consolidation",
    "Pending pods prefer to be apart; once for each pod and hour.",
    ("pods",),
)
PREFER_SPREAD = info(
    "pod(s) have a preferred TopologySpreadConstraint which can prevent consolidation",
    "Pending pods prefer to be spread; once for each pod and hour.",
    ("pods",),
)
LIMIT_REACHED = info("nodepool node limit reached", "A static pool may not grow.", ("NodePool",))
REPLICAS_MISSING = info(
    "provisioning nodeclaims to satisfy replica count",
    "A static pool has too few nodes.",
    ("NodePool", "current", "desired", "provision-count"),
)
NO_TYPES = info(
    "skipping, no resolved instance types found", "A pool has no instance types; once an hour.", ("NodePool",)
)
TYPES_FAILED = error(
    "skipping, unable to resolve instance types",
    "A pool's instance types cannot be listed; once for each reason and hour.",
    ("NodePool", "error"),
)
FILTERED_OUT = info(
    "skipping, nodepool requirements filtered out all instance types",
    "A pool's own requirements allow no instance type; once for each reason and hour.",
    ("NodePool",),
)
DISRUPTING = info(
    "disrupting node(s)",
    "A command of emptiness, drift or consolidation begins.",
    (
        *("command", "command-id", "reason", "decision", "disrupted-node-count", "replacement-node-count"),
        *("pod-count", "disrupted-nodes", "replacement-nodes"),
    ),
)
COMMAND_DONE = debug("command succeeded", "Every node of a command is being removed.", ("command",))
COMMAND_FAILED = error(
    "failed terminating nodes while executing a disruption command",
    "A command is undone, and its nodes are kept.",
    ("command", "nodes", "error"),
)


REFUSED = error(
    "could not create nodeclaim",
    "The API server, or a limit of the pool, refuses a NodeClaim that pods need.",
    ("NodePool", "Pods", "error"),
    ours=True,
)


def log_plan(plan: Plan, took: float, changes: Changes) -> None:
    """Say what was decided for pods that wait: lines when something is ordered, or cannot be."""
    placed = sum(len(node.pods) for node in plan.new_nodes)
    if placed:
        pods = first_of((each.pod for each in plan.decisions), len(plan.decisions))
        FOUND_PODS({"Pods": pods, "duration": render_duration(timedelta(seconds=took))})
        COMPUTED({"nodeclaims": len(plan.new_nodes), "pods": placed})
        existing = [pods for pods in plan.existing.values() if pods]
        if existing:
            COMPUTED_EXISTING({"nodes": len(existing), "pods": sum(map(len, existing))})
    for name, why in plan.unschedulable.items():
        if why and changes.has_changed(f"pod/{name}", why):
            namespace, _, pod = name.rpartition("/")
            UNSCHEDULABLE({"Pod": build_reference(pod, namespace), "error": why})
    for name, why in plan.pool_problems.items():
        if changes.has_changed(f"filtered/{name}", why):
            FILTERED_OUT({"NodePool": build_reference(name)})


def log_refused_claim(node: PlannedNode, why: Exception, changes: Changes) -> None:
    """Say that a NodeClaim was ordered and refused; the others are ordered all the same."""
    if changes.has_changed(f"refused/{node.pool}", str(why)):
        REFUSED(
            {
                "NodePool": build_reference(node.pool),
                "Pods": first_of(node.pods, len(node.pods)),
                "error": why,
            }
        )


def log_pools_not_ready(pools: Iterable[NodePool], usable: int, changes: Changes) -> None:
    """Say which pools cannot grow and why, and when none can."""
    for pool in pools:
        why = _explain_not_ready(pool)
        if why and changes.has_changed(f"pool/{pool.name}", why):
            NOT_READY({"NodePool": build_reference(pool.name), "error": why})
    if not usable and changes.has_changed("pools", "none"):
        NO_POOLS()


def _explain_not_ready(pool: NodePool) -> str:
    if conditions.is_true(pool, conditions.READY):
        return ""
    false = [each for each in pool.status.conditions if each.status == conditions.FALSE]
    causes = [each for each in false if each.type != conditions.READY] or false
    told = "; ".join(f"{each.type}=False, {each.message or each.reason}" for each in causes)
    return told or "its conditions are not known yet"


def log_types_missing(pool: NodePool, why: object, changes: Changes) -> None:
    """Say that a pool has nothing to offer now."""
    if why is None and changes.has_changed(f"types/{pool.name}", ""):
        NO_TYPES({"NodePool": build_reference(pool.name)})
    elif why is not None and changes.has_changed(f"types/{pool.name}", str(why)):
        TYPES_FAILED({"NodePool": build_reference(pool.name), "error": why})


def log_command(command: Command) -> None:
    """Say that a command begins, in the words of both generations of Karpenter that people's tools know."""
    if not DISRUPTING.heard:
        return
    name = _command_id(command)
    DISRUPTING(
        {
            "command": _command_text(command, name),
            "command-id": name,
            "reason": command.method.reason.lower(),
            "decision": command.decision,
            "disrupted-node-count": len(command.candidates),
            "replacement-node-count": len(command.replacements),
            "pod-count": command.evictions,
            "disrupted-nodes": [
                {
                    "Node": build_reference(each.name),
                    "NodeClaim": build_reference(each.state.claim.name if each.state.claim else ""),
                    "capacity-type": each.capacity_type,
                    "instance-type": each.labels.get(labels.INSTANCE_TYPE, ""),
                }
                for each in command.candidates
            ],
            "replacement-nodes": [
                _describe_replacement(each, alone=len(command.replacements) == 1)
                for each in command.replacements
            ],
        }
    )


def log_command_done(command: Command) -> None:
    if COMMAND_DONE.heard:
        COMMAND_DONE({"command": _command_text(command, _command_id(command))})


def log_failed_command(command: Command, lost: int) -> None:
    nodes = ",".join(each.name for each in command.candidates)
    why = f"{lost} of its replacements did not come" if lost else "it took too long"
    COMMAND_FAILED({"command": _command_text(command, _command_id(command)), "nodes": nodes, "error": why})


def _command_id(command: Command) -> str:
    """The same for a command wherever it is told of, with no memory of it."""
    claims = (each.state.claim for each in command.candidates)
    return str(uuid5(NAMESPACE_OID, "/".join(claim.uid for claim in claims if claim is not None)))


def _command_text(command: Command, name: str) -> str:
    pools = ",".join(dict.fromkeys(each.pool.name for each in command.candidates))
    decided = str(command).removeprefix(command.decision)
    about = f"{command.method.reason}/{name}: {command.decision}: nodepools=[{pools}]{decided}"
    return f"{about} ({command.worth})"


def _describe_replacement(node: PlannedNode, *, alone: bool) -> Mapping[str, str]:
    """The way it would be bought; of a single one, what as."""
    known = (labels.RESERVED, labels.SPOT, labels.ON_DEMAND)
    capacity_type = next((each for each in known if each in node.capacity_types), node.capacity_type)
    types = {"instance-types": first_of(node.instance_types, len(node.instance_types))} if alone else {}
    return {"capacity-type": capacity_type, **types}


def log_preferences(pods: Collection[Pod], changes: Changes) -> None:
    """Say whose wishes may keep nodes that could otherwise go."""
    if not PREFER_APART.heard:
        return
    for message, wishes in ((PREFER_APART, _prefers_apart), (PREFER_SPREAD, _prefers_spread)):
        found = [
            pod.full_name for pod in pods if wishes(pod) and changes.has_changed(message.text + pod.uid, "")
        ]
        if found:
            message({"pods": first_of(found, len(found), 10)})


def _prefers_apart(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    anti = affinity.pod_anti_affinity if affinity is not None else None
    return anti is not None and bool(anti.preferred)


def _prefers_spread(pod: Pod) -> bool:
    return any(each.when_unsatisfiable == "ScheduleAnyway" for each in pod.spec.topology_spread_constraints)


def log_limit_reached(pool: str) -> None:
    LIMIT_REACHED({"NodePool": build_reference(pool)})


def log_replicas_missing(pool: str, current: int, desired: int, ordered: int) -> None:
    about = {"current": current, "desired": desired, "provision-count": ordered}
    REPLICAS_MISSING({"NodePool": build_reference(pool), **about})

"""What controllers say in the log, with Karpenter's words and keys: its runbooks and tools read them.

A line carries the controller, its object and the reconcile's id already; here is what each message adds.
Where several objects would say the same over and over, `Changes` says it once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from uuid import NAMESPACE_OID, uuid5

from dovetail.api import conditions, labels
from dovetail.api.core import Node
from dovetail.api.meta import Amounts
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.taints import DISRUPTED
from dovetail.disruption.command import Command
from dovetail.logs import Changes, debug, error, first_of, info, reference
from dovetail.ports import Instance
from dovetail.scheduling.plan import Plan, PlannedNode
from dovetail.settings.durations import render

__all__ = [
    "log_annotated_claim",
    "log_collected_instance",
    "log_collected_node",
    "log_collecting_claim",
    "log_command",
    "log_command_done",
    "log_created_claim",
    "log_deleted_claim",
    "log_deleted_node",
    "log_drained_node",
    "log_expired_claim",
    "log_failed_command",
    "log_failed_launch",
    "log_inconsistency",
    "log_initialized_claim",
    "log_launched_claim",
    "log_plan",
    "log_pools_not_ready",
    "log_registered_claim",
    "log_tainted_node",
    "log_timed_out_claim",
    "log_types_missing",
    "log_unhealthy_node",
]

FOUND_PODS = info(
    "found provisionable pod(s)", "Pods wait, and NodeClaims are ordered for them.", ("Pods", "duration")
)
COMPUTED = info(
    "computed new nodeclaim(s) to fit pod(s)",
    "How many NodeClaims for how many pods.",
    ("nodeclaims", "pods"),
)
COMPUTED_EXISTING = info(
    "computed unready node(s) will fit pod(s)", "Other pods go to nodes that are there.", ("nodes", "pods")
)
UNSCHEDULABLE = error(
    "could not schedule pod", "A pod fits nowhere; once for each reason and hour.", ("Pod", "error")
)
NOT_READY = error(
    "ignoring nodepool, not ready",
    "A pool cannot grow, and why; once for each reason and hour.",
    ("NodePool", "error"),
)
NO_POOLS = info("no nodepools found", "Pods wait and no pool can grow; once an hour.")
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
    "A pool's own requirements leave nothing to buy; once for each reason and hour.",
    ("NodePool",),
)
CREATED = info(
    "created nodeclaim",
    "A NodeClaim was ordered, by the provisioner, by disruption or for a static pool.",
    ("NodePool", "NodeClaim", "requests", "instance-types"),
)
LAUNCHED = info(
    "launched nodeclaim",
    "The cloud gave the machine of a NodeClaim.",
    ("NodeClaim", "provider-id", "instance-type", "zone", "capacity-type", "allocatable"),
)
LAUNCH_FAILED = error(
    "failed launching nodeclaim",
    "The cloud has no such machine, or the class is not ready.",
    ("NodeClaim", "error"),
)
REGISTERED = info("registered nodeclaim", "The Node has joined.", ("NodeClaim", "provider-id", "Node"))
INITIALIZED = info(
    "initialized nodeclaim",
    "The Node may be counted on.",
    ("NodeClaim", "provider-id", "Node", "allocatable"),
)
TIMED_OUT = info(
    "terminating due to timeout", "A NodeClaim did not launch or register in time.", ("NodeClaim", "reason")
)
DISRUPTING = info(
    "disrupting node(s)",
    "A command of emptiness, drift or consolidation begins.",
    (
        *("command", "command-id", "reason", "decision", "disrupted-node-count", "replacement-node-count"),
        *("pod-count", "disrupted-nodes", "replacement-nodes"),
    ),
)
COMMAND_DONE = debug("command succeeded", "Every node of a command is on its way out.", ("command",))
COMMAND_FAILED = error(
    "failed terminating nodes while executing a disruption command",
    "A command is taken back, and its nodes stay.",
    ("command", "nodes", "error"),
)
ANNOTATED = info(
    "annotated nodeclaim",
    "From that moment on nothing is asked of the node's pods.",
    ("NodeClaim", labels.TERMINATION_TIMESTAMP),
)
TAINTED = info(
    "tainted node",
    "A Node is ending: nothing new comes to it.",
    ("Node", "NodeClaim", "taint.Key", "taint.Value", "taint.Effect"),
)
DRAINED = info("drained node", "No pod is left that has to be asked.", ("Node", "NodeClaim"), ours=True)
DELETED_NODE = info("deleted node", "A Node's finalizer is off.", ("Node", "NodeClaim"))
DELETED_CLAIM = info("deleted nodeclaim", "A NodeClaim is over.", ("NodeClaim", "provider-id", "Node"))
EXPIRED = info("deleting expired nodeclaim", "A NodeClaim has reached its age.", ("NodeClaim",))
UNHEALTHY = info(
    "deleting unhealthy node",
    "A node stayed sick for longer than is tolerated.",
    ("Node", "NodeClaim", "condition"),
)
INCONSISTENT = error(
    "consistency error", "A Node is not what its NodeClaim was told.", ("NodeClaim", "error")
)
COLLECTED_CLAIM = info(
    "garbage collecting nodeclaim with no cloudprovider representation",
    "A registered NodeClaim's machine is gone.",
    ("NodeClaim", "Node", "provider-id", "nodepool"),
)
COLLECTED_INSTANCE = info(
    "garbage collected cloudprovider instance", "A machine that no NodeClaim asks for.", ("provider-id",)
)
COLLECTED_NODE = info("garbage collected node", "The Node of such a machine.", ("provider-id", "Node"))


def log_plan(plan: Plan, took: float, changes: Changes) -> None:
    """Say what was decided for pods that wait: lines when something is ordered, or cannot be."""
    placed = sum(len(node.pods) for node in plan.new_nodes)
    if placed:
        pods = first_of((each.pod for each in plan.decisions), len(plan.decisions))
        FOUND_PODS({"Pods": pods, "duration": render(timedelta(seconds=took))})
        COMPUTED({"nodeclaims": len(plan.new_nodes), "pods": placed})
        existing = [pods for pods in plan.existing.values() if pods]
        if existing:
            COMPUTED_EXISTING({"nodes": len(existing), "pods": sum(map(len, existing))})
    for name, why in plan.unschedulable.items():
        if why and changes.changed(f"pod/{name}", why):
            namespace, _, pod = name.rpartition("/")
            UNSCHEDULABLE({"Pod": reference(pod, namespace), "error": why})
    for name, why in plan.pool_problems.items():
        if changes.changed(f"filtered/{name}", why):
            FILTERED_OUT({"NodePool": reference(name)})


def log_pools_not_ready(pools: Iterable[NodePool], usable: int, changes: Changes) -> None:
    """Say which pools cannot grow and why, and when none can."""
    for pool in pools:
        why = _why_not_ready(pool)
        if why and changes.changed(f"pool/{pool.name}", why):
            NOT_READY({"NodePool": reference(pool.name), "error": why})
    if not usable and changes.changed("pools", "none"):
        NO_POOLS()


def _why_not_ready(pool: NodePool) -> str:
    if conditions.is_true(pool, conditions.READY):
        return ""
    false = [each for each in pool.status.conditions if each.status == conditions.FALSE]
    causes = [each for each in false if each.type != conditions.READY] or false
    told = "; ".join(f"{each.type}=False, {each.message or each.reason}" for each in causes)
    return told or "its conditions are not known yet"


def log_types_missing(pool: NodePool, why: object, changes: Changes) -> None:
    """Say that a pool has nothing to offer now."""
    if why is None and changes.changed(f"types/{pool.name}", ""):
        NO_TYPES({"NodePool": reference(pool.name)})
    elif why is not None and changes.changed(f"types/{pool.name}", str(why)):
        TYPES_FAILED({"NodePool": reference(pool.name), "error": why})


def log_created_claim(claim: NodeClaim) -> None:
    types = next((each for each in claim.spec.requirements if each.key == labels.INSTANCE_TYPE), None)
    names = tuple(types.values) if types is not None else ()
    CREATED(
        {
            "NodePool": reference(claim.labels.get(labels.NODEPOOL, "")),
            "NodeClaim": reference(claim.name),
            "requests": _amounts(claim.spec.resources.requests),
            "instance-types": first_of(sorted(names), len(names)),
        }
    )


def log_launched_claim(claim: NodeClaim, instance: Instance) -> None:
    told = {**instance.labels, **claim.labels}
    LAUNCHED(
        {
            "NodeClaim": reference(claim.name),
            "provider-id": instance.provider_id,
            "instance-type": told.get(labels.INSTANCE_TYPE, ""),
            "zone": told.get(labels.ZONE, ""),
            "capacity-type": told.get(labels.CAPACITY_TYPE, ""),
            "allocatable": _amounts(instance.allocatable),
        }
    )


def log_failed_launch(claim: NodeClaim, why: Exception) -> None:
    LAUNCH_FAILED({"NodeClaim": reference(claim.name), "error": why})


def log_registered_claim(claim: NodeClaim, node: Node) -> None:
    REGISTERED(_machine(claim, node))


def log_initialized_claim(claim: NodeClaim, node: Node) -> None:
    INITIALIZED({**_machine(claim, node), "allocatable": _amounts(node.status.allocatable)})


def log_timed_out_claim(claim: NodeClaim, reason: str) -> None:
    TIMED_OUT({"NodeClaim": reference(claim.name), "reason": reason})


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
                    "Node": reference(each.name),
                    "NodeClaim": reference(each.state.claim.name if each.state.claim else ""),
                    "capacity-type": each.capacity_type,
                    "instance-type": each.labels.get(labels.INSTANCE_TYPE, ""),
                }
                for each in command.candidates
            ],
            "replacement-nodes": [_replacement(each) for each in command.replacements],
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
    pools = ", ".join(sorted({each.pool.name for each in command.candidates}))
    nodes = ", ".join(each.name for each in command.candidates)
    about = f"{command.method.reason}/{name}: {command.decision}: nodepools=[{pools}]: [{nodes}]"
    return f"{about} ({command.worth})" if command.method.kind else about


def _replacement(node: PlannedNode) -> Mapping[str, str]:
    types = first_of(node.instance_types, len(node.instance_types))
    return {"capacity-type": node.capacity_type, "instance-types": types}


def log_annotated_claim(claim: NodeClaim) -> None:
    at = claim.annotations.get(labels.TERMINATION_TIMESTAMP, "")
    ANNOTATED({"NodeClaim": reference(claim.name), labels.TERMINATION_TIMESTAMP: at})


def log_tainted_node(node: Node, claim: NodeClaim | None) -> None:
    taint = {"taint.Key": DISRUPTED.key, "taint.Value": DISRUPTED.value, "taint.Effect": DISRUPTED.effect}
    TAINTED({**_pair(node, claim), **taint})


def log_drained_node(node: Node, claim: NodeClaim | None) -> None:
    DRAINED(_pair(node, claim))


def log_deleted_node(node: Node, claim: NodeClaim | None) -> None:
    DELETED_NODE(_pair(node, claim))


def log_deleted_claim(claim: NodeClaim) -> None:
    node = {"Node": reference(claim.status.node_name)} if claim.status.node_name else {}
    DELETED_CLAIM({"NodeClaim": reference(claim.name), "provider-id": claim.status.provider_id, **node})


def log_expired_claim(claim: NodeClaim) -> None:
    EXPIRED({"NodeClaim": reference(claim.name)})


def log_unhealthy_node(node: Node, claim: NodeClaim, condition: str) -> None:
    UNHEALTHY({**_pair(node, claim), "condition": condition})


def log_inconsistency(claim: NodeClaim, why: str) -> None:
    INCONSISTENT({"NodeClaim": reference(claim.name), "error": why})


def log_collecting_claim(claim: NodeClaim) -> None:
    COLLECTED_CLAIM(
        {
            "NodeClaim": reference(claim.name),
            "Node": reference(claim.status.node_name),
            "provider-id": claim.status.provider_id,
            "nodepool": claim.labels.get(labels.NODEPOOL, ""),
        }
    )


def log_collected_instance(instance: Instance) -> None:
    COLLECTED_INSTANCE({"provider-id": instance.provider_id})


def log_collected_node(instance: Instance, node: Node) -> None:
    COLLECTED_NODE({"provider-id": instance.provider_id, "Node": reference(node.name)})


def _machine(claim: NodeClaim, node: Node) -> dict[str, object]:
    return {
        "NodeClaim": reference(claim.name),
        "provider-id": claim.status.provider_id,
        "Node": reference(node.name),
    }


def _pair(node: Node, claim: NodeClaim | None) -> dict[str, object]:
    of_claim = {"NodeClaim": reference(claim.name)} if claim is not None else {}
    return {"Node": reference(node.name), **of_claim}


def _amounts(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items())}

"""What controllers say in the log, with Karpenter's words and keys: its runbooks and tools read them.

A line carries the controller, its object and the reconcile's id already; here is what each message of claims
and nodes adds. What is said of decisions is in planmessages.
"""

from __future__ import annotations

from datetime import timedelta

from dovetail.api import labels
from dovetail.api.core import Node
from dovetail.api.meta import Amounts
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.taints import DISRUPTED
from dovetail.logs import build_reference, error, first_of, info
from dovetail.ports import Instance
from dovetail.settings.durations import render_duration

__all__ = [
    "log_annotated_claim",
    "log_collected_instance",
    "log_collected_node",
    "log_collecting_claim",
    "log_created_claim",
    "log_deleted_claim",
    "log_deleted_node",
    "log_drained_node",
    "log_expired_claim",
    "log_failed_launch",
    "log_inconsistency",
    "log_initialized_claim",
    "log_launched_claim",
    "log_registered_claim",
    "log_tainted_node",
    "log_timed_out_claim",
    "log_unhealthy_node",
]

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
    "terminating due to timeout",
    "A NodeClaim did not launch or register in time.",
    ("NodeClaim", "timeout", "reason"),
)
ANNOTATED = info(
    "annotated nodeclaim",
    "From that moment on pods are deleted without asking their PodDisruptionBudgets.",
    ("NodeClaim", labels.TERMINATION_TIMESTAMP),
)
TAINTED = info(
    "tainted node",
    "A Node is being removed: no new pod is scheduled to it.",
    ("Node", "NodeClaim", "taint.Key", "taint.Value", "taint.Effect"),
)
DRAINED = info("drained node", "No pod is left that has to be evicted.", ("Node", "NodeClaim"), ours=True)
DELETED_NODE = info("deleted node", "A Node's finalizer is off.", ("Node", "NodeClaim"))
DELETED_CLAIM = info("deleted nodeclaim", "A NodeClaim is deleted.", ("NodeClaim", "provider-id", "Node"))
EXPIRED = info("deleting expired nodeclaim", "A NodeClaim has reached its age.", ("NodeClaim",))
UNHEALTHY = info(
    "deleting unhealthy node",
    "A node was unhealthy for longer than is tolerated.",
    ("Node", "NodeClaim", "condition"),
)
INCONSISTENT = info(
    "failed consistency check", "A Node is not what its NodeClaim was told.", ("NodeClaim", "issue")
)
COLLECTED_CLAIM = info(
    "garbage collecting nodeclaim with no cloudprovider representation",
    "The instance of a registered NodeClaim no longer exists.",
    ("NodeClaim", "Node", "provider-id"),
)
COLLECTED_INSTANCE = info(
    "garbage collected cloudprovider instance", "An instance that belongs to no NodeClaim.", ("provider-id",)
)
COLLECTED_NODE = info("garbage collected node", "The Node of such an instance.", ("provider-id", "Node"))


def log_created_claim(claim: NodeClaim) -> None:
    types = next((each for each in claim.spec.requirements if each.key == labels.INSTANCE_TYPE), None)
    names = tuple(types.values) if types is not None else ()
    CREATED(
        {
            "NodePool": build_reference(claim.labels.get(labels.NODEPOOL, "")),
            "NodeClaim": build_reference(claim.name),
            "requests": _render_amounts(claim.spec.resources.requests),
            "instance-types": first_of(sorted(names), len(names)),
        }
    )


def log_launched_claim(claim: NodeClaim, instance: Instance) -> None:
    told = {**instance.labels, **claim.labels}
    LAUNCHED(
        {
            "NodeClaim": build_reference(claim.name),
            "provider-id": instance.provider_id,
            "instance-type": told.get(labels.INSTANCE_TYPE, ""),
            "zone": told.get(labels.ZONE, ""),
            "capacity-type": told.get(labels.CAPACITY_TYPE, ""),
            "allocatable": _render_amounts(instance.allocatable),
        }
    )


def log_failed_launch(claim: NodeClaim, why: Exception) -> None:
    LAUNCH_FAILED({"NodeClaim": build_reference(claim.name), "error": why})


def log_registered_claim(claim: NodeClaim, node: Node) -> None:
    REGISTERED(_describe_machine(claim, node))


def log_initialized_claim(claim: NodeClaim, node: Node) -> None:
    INITIALIZED({**_describe_machine(claim, node), "allocatable": _render_amounts(node.status.allocatable)})


def log_timed_out_claim(claim: NodeClaim, timeout: timedelta, reason: str) -> None:
    TIMED_OUT(
        {"NodeClaim": build_reference(claim.name), "timeout": render_duration(timeout), "reason": reason}
    )


def log_annotated_claim(claim: NodeClaim) -> None:
    at = claim.annotations.get(labels.TERMINATION_TIMESTAMP, "")
    ANNOTATED({"NodeClaim": build_reference(claim.name), labels.TERMINATION_TIMESTAMP: at})


def log_tainted_node(node: Node, claim: NodeClaim | None) -> None:
    taint = {"taint.Key": DISRUPTED.key, "taint.Value": DISRUPTED.value, "taint.Effect": DISRUPTED.effect}
    TAINTED({**_describe_node(node, claim), **taint})


def log_drained_node(node: Node, claim: NodeClaim | None) -> None:
    DRAINED(_describe_node(node, claim))


def log_deleted_node(node: Node, claim: NodeClaim | None) -> None:
    DELETED_NODE(_describe_node(node, claim))


def log_deleted_claim(claim: NodeClaim) -> None:
    node = {"Node": build_reference(claim.status.node_name)} if claim.status.node_name else {}
    DELETED_CLAIM({"NodeClaim": build_reference(claim.name), "provider-id": claim.status.provider_id, **node})


def log_expired_claim(claim: NodeClaim) -> None:
    EXPIRED({"NodeClaim": build_reference(claim.name)})


def log_unhealthy_node(node: Node, claim: NodeClaim, condition: str) -> None:
    UNHEALTHY({**_describe_node(node, claim), "condition": condition})


def log_inconsistency(claim: NodeClaim, why: str) -> None:
    INCONSISTENT({"NodeClaim": build_reference(claim.name), "issue": why})


def log_collecting_claim(claim: NodeClaim) -> None:
    COLLECTED_CLAIM(
        {
            "NodeClaim": build_reference(claim.name),
            "Node": build_reference(claim.status.node_name),
            "provider-id": claim.status.provider_id,
        }
    )


def log_collected_instance(instance: Instance) -> None:
    COLLECTED_INSTANCE({"provider-id": instance.provider_id})


def log_collected_node(instance: Instance, node: Node) -> None:
    COLLECTED_NODE({"provider-id": instance.provider_id, "Node": build_reference(node.name)})


def _describe_machine(claim: NodeClaim, node: Node) -> dict[str, object]:
    return {
        "NodeClaim": build_reference(claim.name),
        "provider-id": claim.status.provider_id,
        "Node": build_reference(node.name),
    }


def _describe_node(node: Node, claim: NodeClaim | None) -> dict[str, object]:
    of_claim = {"NodeClaim": build_reference(claim.name)} if claim is not None else {}
    return {"Node": build_reference(node.name), **of_claim}


def _render_amounts(amounts: Amounts) -> dict[str, str]:
    return {name: str(amount) for name, amount in sorted(amounts.items())}

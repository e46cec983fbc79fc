"""NodeClaim as admitted: karpenter.sh/v1."""

from __future__ import annotations

from dovetail.api import labels
from dovetail.api.crds import patterns
from dovetail.api.crds.definition import AGE, READY, Column, Definition, Field, Rule, constrained, mounted
from dovetail.api.crds.parts import (
    AWS_ALLOWED,
    CLAIM_CONDITION,
    CONDITIONS,
    CORE_ALLOWED,
    REFERENCE,
    REFERENCE_RULES,
    REQUIREMENT,
    TAINT,
    closed_domain_key,
    forbidden_key,
    requirement_rules,
)
from dovetail.api.nodeclaim import NodeClaim

_REQUIREMENTS = "spec.requirements"

FIELDS: dict[str, Field] = {
    "spec": constrained("The order, which never changes.", required=True),
    "spec.nodeClassRef": constrained("The node class that says how the node is made.", required=True),
    **mounted("spec.nodeClassRef", REFERENCE),
    _REQUIREMENTS: constrained(
        "What the node may be, label by label.", required=True, maxItems=100, listType="atomic"
    ),
    **mounted(f"{_REQUIREMENTS}[]", REQUIREMENT),
    "spec.resources": constrained("The resources the node must have."),
    "spec.resources.requests": constrained("The least the node must offer to its pods and daemons."),
    "spec.taints": constrained("Taints of the node.", listType="atomic"),
    **mounted("spec.taints[]", TAINT),
    "spec.startupTaints": constrained(
        "Taints that someone else removes before the node counts as ready.", listType="atomic"
    ),
    **mounted("spec.startupTaints[]", TAINT),
    "spec.expireAfter": constrained(
        "How long the node may live, or Never.", default="720h", pattern=patterns.DURATION_OR_NEVER
    ),
    "spec.terminationGracePeriod": constrained(
        "The longest the node may drain before its remaining pods are deleted.", pattern=patterns.DURATION
    ),
    "status": constrained("What came of the order."),
    "status.nodeName": constrained("The name of the Node object."),
    "status.providerID": constrained("The instance, as its provider names it."),
    "status.imageID": constrained("The image the instance runs."),
    "status.capacity": constrained("What the node has, estimated until it reports."),
    "status.allocatable": constrained("What the node has for pods, estimated until it reports."),
    "status.lastPodEventTime": constrained("When a pod last came to the node or left it."),
    "status.conditions": CONDITIONS,
    **mounted("status.conditions[]", CLAIM_CONDITION),
}

RULES: tuple[Rule, ...] = (
    Rule(
        "NC-1",
        "spec",
        "the spec of a NodeClaim cannot change",
        "self == oldSelf",
        lambda spec, old: bool(spec == old),
        transition=True,
    ),
    *(rule.under("spec.nodeClassRef") for rule in REFERENCE_RULES),
    closed_domain_key("NC-2", labels.KARPENTER, CORE_ALLOWED).under(f"{_REQUIREMENTS}[]"),
    forbidden_key("NC-3", labels.HOSTNAME).under(f"{_REQUIREMENTS}[]"),
    closed_domain_key("NC-4", labels.KARPENTER_AWS, AWS_ALLOWED, "aws").under(f"{_REQUIREMENTS}[]"),
    *(rule.under(_REQUIREMENTS) for rule in requirement_rules("NC-5", "NC-6", "NC-7")),
)

NODECLAIM = Definition(
    NodeClaim,
    "One node: ordered, coming or here.",
    FIELDS,
    RULES,
    (
        Column("Type", r".metadata.labels.node\.kubernetes\.io/instance-type"),
        Column("Capacity", r".metadata.labels.karpenter\.sh/capacity-type"),
        Column("Zone", r".metadata.labels.topology\.kubernetes\.io/zone"),
        Column("Node", ".status.nodeName"),
        READY,
        AGE,
        Column("ImageID", ".status.imageID", priority=1),
        Column("ID", ".status.providerID", priority=1),
        Column("NodePool", r".metadata.labels.karpenter\.sh/nodepool", priority=1),
        Column("NodeClass", ".spec.nodeClassRef.name", priority=1),
        Column("Drifted", '.status.conditions[?(@.type=="Drifted")].status', priority=1),
    ),
)

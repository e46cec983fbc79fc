"""NodeClaim as admitted: karpenter.sh/v1."""

from __future__ import annotations

from dovetail.api import labels
from dovetail.api.crds import patterns
from dovetail.api.crds.definition import (
    AGE,
    AWS_ALLOWED,
    CLAIM_CONDITION,
    CONDITIONS,
    CORE_ALLOWED,
    READY,
    REFERENCE,
    REFERENCE_RULES,
    REQUIREMENT,
    TAINT,
    AdmissionRule,
    CrdDefinition,
    FieldSchema,
    PrinterColumn,
    closed_domain_key,
    constrain_field,
    forbidden_key,
    mount_fields,
    requirement_rules,
)
from dovetail.api.nodeclaim import NodeClaim

_CLAIM_REQUIREMENTS = "spec.requirements"

NODECLAIM_FIELDS: dict[str, FieldSchema] = {
    "spec": constrain_field("The order, which never changes.", required=True),
    "spec.nodeClassRef": constrain_field("The node class that says how the node is made.", required=True),
    **mount_fields("spec.nodeClassRef", REFERENCE),
    _CLAIM_REQUIREMENTS: constrain_field(
        "What the node may be, label by label.", required=True, maxItems=100, listType="atomic"
    ),
    **mount_fields(f"{_CLAIM_REQUIREMENTS}[]", REQUIREMENT),
    "spec.resources": constrain_field("The resources the node must have."),
    "spec.resources.requests": constrain_field("The least the node must offer to its pods and daemons."),
    "spec.taints": constrain_field("Taints of the node.", listType="atomic"),
    **mount_fields("spec.taints[]", TAINT),
    "spec.startupTaints": constrain_field(
        "Taints that someone else removes before the node counts as ready.", listType="atomic"
    ),
    **mount_fields("spec.startupTaints[]", TAINT),
    "spec.expireAfter": constrain_field(
        "How long the node may live, or Never.", default="720h", pattern=patterns.DURATION_OR_NEVER
    ),
    "spec.terminationGracePeriod": constrain_field(
        "The longest the node may drain before its remaining pods are deleted.", pattern=patterns.DURATION
    ),
    "status": constrain_field("What came of the order."),
    "status.nodeName": constrain_field("The name of the Node object."),
    "status.providerID": constrain_field("The instance, as its provider names it."),
    "status.imageID": constrain_field("The image the instance runs."),
    "status.capacity": constrain_field("What the node has, estimated until it reports."),
    "status.allocatable": constrain_field("What the node has for pods, estimated until it reports."),
    "status.lastPodEventTime": constrain_field("When a pod last came to the node or left it."),
    "status.conditions": CONDITIONS,
    **mount_fields("status.conditions[]", CLAIM_CONDITION),
}

NODECLAIM_RULES: tuple[AdmissionRule, ...] = (
    AdmissionRule(
        "NC-1",
        "spec",
        "the spec of a NodeClaim cannot change",
        "self == oldSelf",
        lambda spec, old: bool(spec == old),
        transition=True,
    ),
    *(rule.move_under("spec.nodeClassRef") for rule in REFERENCE_RULES),
    closed_domain_key("NC-2", labels.KARPENTER, CORE_ALLOWED).move_under(f"{_CLAIM_REQUIREMENTS}[]"),
    forbidden_key("NC-3", labels.HOSTNAME).move_under(f"{_CLAIM_REQUIREMENTS}[]"),
    closed_domain_key("NC-4", labels.KARPENTER_AWS, AWS_ALLOWED, "aws").move_under(
        f"{_CLAIM_REQUIREMENTS}[]"
    ),
    *(rule.move_under(_CLAIM_REQUIREMENTS) for rule in requirement_rules("NC-5", "NC-6", "NC-7")),
)

NODECLAIM = CrdDefinition(
    NodeClaim,
    "One node: ordered, coming or here.",
    NODECLAIM_FIELDS,
    NODECLAIM_RULES,
    (
        PrinterColumn("Type", r".metadata.labels.node\.kubernetes\.io/instance-type"),
        PrinterColumn("Capacity", r".metadata.labels.karpenter\.sh/capacity-type"),
        PrinterColumn("Zone", r".metadata.labels.topology\.kubernetes\.io/zone"),
        PrinterColumn("Node", ".status.nodeName"),
        READY,
        AGE,
        PrinterColumn("ImageID", ".status.imageID", priority=1),
        PrinterColumn("ID", ".status.providerID", priority=1),
        PrinterColumn("NodePool", r".metadata.labels.karpenter\.sh/nodepool", priority=1),
        PrinterColumn("NodeClass", ".spec.nodeClassRef.name", priority=1),
        PrinterColumn("Drifted", '.status.conditions[?(@.type=="Drifted")].status', priority=1),
    ),
)

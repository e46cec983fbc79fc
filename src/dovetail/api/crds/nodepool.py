"""NodePool as admitted: karpenter.sh/v1."""

from __future__ import annotations

from typing import Any

from dovetail.api import labels
from dovetail.api.crds import patterns
from dovetail.api.crds.definition import (
    AGE,
    AWS_ALLOWED,
    CONDITION,
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
    closed_domain_keys,
    constrain_field,
    forbidden_key,
    mount_fields,
    requirement_rules,
)
from dovetail.api.nodepool import NodePool

_LABELS = "spec.template.metadata.labels"
_REF = "spec.template.spec.nodeClassRef"
_REQUIREMENTS = "spec.template.spec.requirements"

NODEPOOL_FIELDS: dict[str, FieldSchema] = {
    "spec": constrain_field("What a person wants of the pool.", required=True),
    "spec.template": constrain_field("The blueprint of the pool's NodeClaims.", required=True),
    "spec.template.metadata": constrain_field("Labels and annotations of every node."),
    _LABELS: constrain_field(
        "Labels of every node; each also acts as a requirement with that one value.",
        mapType="atomic",
        maxProperties=100,
        inner={"maxLength": 63, "pattern": patterns.LABEL_VALUE},
    ),
    "spec.template.metadata.annotations": constrain_field("Annotations of every node."),
    "spec.template.spec": constrain_field("What every NodeClaim of the pool asks for.", required=True),
    _REF: constrain_field("The node class that says how nodes are made.", required=True),
    **mount_fields(_REF, REFERENCE),
    _REQUIREMENTS: constrain_field(
        "What nodes may be, label by label.", required=True, maxItems=100, listType="atomic"
    ),
    **mount_fields(f"{_REQUIREMENTS}[]", REQUIREMENT),
    "spec.template.spec.taints": constrain_field(
        "Taints that pods must tolerate to come here.", listType="atomic"
    ),
    **mount_fields("spec.template.spec.taints[]", TAINT),
    "spec.template.spec.startupTaints": constrain_field(
        "Taints that someone else removes before the node counts as ready; pods need not tolerate them.",
        listType="atomic",
    ),
    **mount_fields("spec.template.spec.startupTaints[]", TAINT),
    "spec.template.spec.expireAfter": constrain_field(
        "How long a node may live, or Never.", default="720h", pattern=patterns.DURATION_OR_NEVER
    ),
    "spec.template.spec.terminationGracePeriod": constrain_field(
        "The longest a node may drain before its remaining pods are deleted.", pattern=patterns.DURATION
    ),
    "spec.disruption": constrain_field(
        "When nodes may be taken away by choice.", default={"consolidateAfter": "0s"}
    ),
    "spec.disruption.consolidateAfter": constrain_field(
        "How long a node must be undisturbed before it may be consolidated, or Never.",
        required=True,
        pattern=patterns.DURATION_OR_NEVER,
    ),
    "spec.disruption.consolidationPolicy": constrain_field(
        "Which nodes may be consolidated.",
        default="WhenEmptyOrUnderutilized",
        enum=["WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"],
    ),
    "spec.disruption.budgets": constrain_field(
        "How many nodes may be disrupted at once; the strictest active budget counts.",
        default=[{"nodes": "10%"}],
        maxItems=50,
        listType="atomic",
    ),
    "spec.disruption.budgets[].nodes": constrain_field(
        "A number of nodes, or a percentage of the pool.",
        required=True,
        default="10%",
        pattern=patterns.BUDGET_NODES,
    ),
    "spec.disruption.budgets[].schedule": constrain_field(
        "When the budget becomes active: five cron fields or a macro, in UTC.", pattern=patterns.CRON
    ),
    "spec.disruption.budgets[].duration": constrain_field(
        "How long the budget stays active: hours and minutes.", pattern=patterns.BUDGET_DURATION
    ),
    "spec.disruption.budgets[].reasons": constrain_field(
        "The reasons this budget is about; all when absent.",
        maxItems=50,
        listType="set",
        inner={"enum": ["Underutilized", "Empty", "Drifted"]},
    ),
    "spec.limits": constrain_field("The most the pool may provision, by resource name."),
    "spec.weight": constrain_field(
        "Pools of greater weight are tried first.", format="int32", minimum=1, maximum=100
    ),
    "spec.replicas": constrain_field(
        "The number of nodes to keep, which makes the pool static (alpha).", format="int64", minimum=0
    ),
    "status": constrain_field("What the pool has."),
    "status.nodes": constrain_field("The number of nodes of the pool.", format="int64", default=0),
    "status.resources": constrain_field("What the pool's nodes provide together."),
    "status.nodeClassObservedGeneration": constrain_field(
        "The generation of the node class last seen.", format="int64"
    ),
    "status.conditions": CONDITIONS,
    **mount_fields("status.conditions[]", CONDITION),
}


def _keeps_its_mode(spec: Any, old: Any) -> bool:
    return ("replicas" in spec) == ("replicas" in old)


def _static_limits_nodes_only(spec: Any, _: Any) -> bool:
    return "replicas" not in spec or set(spec.get("limits", ())) <= {"nodes"}


def _static_has_no_weight(spec: Any, _: Any) -> bool:
    return not ("replicas" in spec and "weight" in spec)


def _windows_are_whole(budgets: Any, _: Any) -> bool:
    return all(("schedule" in budget) == ("duration" in budget) for budget in budgets)


NODEPOOL_RULES: tuple[AdmissionRule, ...] = (
    AdmissionRule(
        "NP-1",
        "spec",
        "replicas cannot be added to or removed from a pool: make a new pool instead",
        "has(self.replicas) == has(oldSelf.replicas)",
        _keeps_its_mode,
        transition=True,
    ),
    AdmissionRule(
        "NP-2",
        "spec",
        "a pool with replicas may only limit nodes",
        "!has(self.replicas) || !has(self.limits) || self.limits.size() == 0 || "
        "(self.limits.size() == 1 && 'nodes' in self.limits)",
        _static_limits_nodes_only,
    ),
    AdmissionRule(
        "NP-3",
        "spec",
        "a pool with replicas has no weight",
        "!has(self.replicas) || !has(self.weight)",
        _static_has_no_weight,
    ),
    AdmissionRule(
        "NP-4",
        "spec.disruption.budgets",
        "schedule and duration come together",
        "self.all(b, has(b.schedule) == has(b.duration))",
        _windows_are_whole,
    ),
    AdmissionRule(
        "NP-5",
        _REF,
        "the group of the node class cannot change",
        "self.group == oldSelf.group",
        lambda ref, old: bool(ref["group"] == old["group"]),
        transition=True,
    ),
    AdmissionRule(
        "NP-6",
        _REF,
        "the kind of the node class cannot change",
        "self.kind == oldSelf.kind",
        lambda ref, old: bool(ref["kind"] == old["kind"]),
        transition=True,
    ),
    *(rule.move_under(_REF) for rule in REFERENCE_RULES),
    closed_domain_keys("NP-7", labels.KARPENTER, CORE_ALLOWED).move_under(_LABELS),
    AdmissionRule(
        "NP-8",
        _LABELS,
        f"the label {labels.NODEPOOL} cannot be chosen",
        f"!('{labels.NODEPOOL}' in self)",
        lambda chosen, _: labels.NODEPOOL not in chosen,
    ),
    AdmissionRule(
        "NP-9",
        _LABELS,
        f"the label {labels.HOSTNAME} cannot be chosen",
        f"!('{labels.HOSTNAME}' in self)",
        lambda chosen, _: labels.HOSTNAME not in chosen,
    ),
    closed_domain_keys("NP-10", labels.KARPENTER_AWS, AWS_ALLOWED, "aws").move_under(_LABELS),
    closed_domain_key("NP-11:core", labels.KARPENTER, CORE_ALLOWED).move_under(f"{_REQUIREMENTS}[]"),
    forbidden_key("NP-11:pool", labels.NODEPOOL).move_under(f"{_REQUIREMENTS}[]"),
    forbidden_key("NP-11:hostname", labels.HOSTNAME).move_under(f"{_REQUIREMENTS}[]"),
    closed_domain_key("NP-11:aws", labels.KARPENTER_AWS, AWS_ALLOWED, "aws").move_under(f"{_REQUIREMENTS}[]"),
    *(rule.move_under(_REQUIREMENTS) for rule in requirement_rules("NP-12", "NP-13", "NP-14")),
)

NODEPOOL = CrdDefinition(
    NodePool,
    "A kind of node the cluster may have more of.",
    NODEPOOL_FIELDS,
    NODEPOOL_RULES,
    (
        PrinterColumn("NodeClass", ".spec.template.spec.nodeClassRef.name"),
        PrinterColumn("Nodes", ".status.nodes"),
        READY,
        AGE,
        PrinterColumn("Weight", ".spec.weight", "integer", 1),
        PrinterColumn("CPU", ".status.resources.cpu", priority=1),
        PrinterColumn("Memory", ".status.resources.memory", priority=1),
    ),
    scale={"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.nodes"},
)

"""NodeOverlay as admitted: karpenter.sh/v1alpha1."""

from __future__ import annotations

from typing import Any

from dovetail.api import labels
from dovetail.api.buffers import CapacityBuffer
from dovetail.api.crds import patterns
from dovetail.api.crds.definition import (
    AGE,
    CONDITION,
    CONDITIONS,
    CORE_ALLOWED,
    OVERLAY_AWS_ALLOWED,
    PLAIN_CONDITIONS,
    READY,
    SELECTOR_REQUIREMENT,
    AdmissionRule,
    CrdDefinition,
    FieldSchema,
    PrinterColumn,
    closed_domain_key,
    constrain_field,
    forbidden_key,
    mount_fields,
    needs_a_number,
    needs_values,
)
from dovetail.api.nodeclass import KWOKNodeClass
from dovetail.api.overlay import NodeOverlay
from dovetail.api.zoneshift import ZoneShift

_REQUIREMENTS = "spec.requirements"
_CORE_RESOURCES = ("cpu", "memory", "ephemeral-storage", "pods")

OVERLAY_FIELDS: dict[str, FieldSchema] = {
    "spec": constrain_field("Which instance types, and what to believe of them.", required=True),
    _REQUIREMENTS: constrain_field(
        "Which instance types are meant.", required=True, maxItems=100, listType="atomic"
    ),
    **mount_fields(f"{_REQUIREMENTS}[]", SELECTOR_REQUIREMENT),
    "spec.price": constrain_field("The price to use instead.", pattern=patterns.PRICE),
    "spec.priceAdjustment": constrain_field(
        "A signed amount or percentage to add to the price.", pattern=patterns.PRICE_ADJUSTMENT
    ),
    "spec.capacity": constrain_field("Extended resources the instance types also have."),
    "spec.weight": constrain_field(
        "Overlays of greater weight win.", format="int32", minimum=1, maximum=10000
    ),
    "status": constrain_field("Whether the overlay is in force."),
    "status.conditions": CONDITIONS,
    **mount_fields("status.conditions[]", CONDITION),
}


def _one_price(spec: Any, _: Any) -> bool:
    return not ("price" in spec and "priceAdjustment" in spec)


def _extended_only(capacity: Any, _: Any) -> bool:
    return not any(name in _CORE_RESOURCES for name in capacity)


OVERLAY_RULES: tuple[AdmissionRule, ...] = (
    AdmissionRule(
        "NO-1",
        "spec",
        "price and priceAdjustment exclude each other",
        "!has(self.price) || !has(self.priceAdjustment)",
        _one_price,
    ),
    AdmissionRule(
        "NO-2",
        "spec.capacity",
        "cpu, memory, ephemeral-storage and pods cannot be overlaid",
        " && ".join(f"!('{name}' in self)" for name in _CORE_RESOURCES),
        _extended_only,
    ),
    needs_values("NO-3", "NotIn").move_under(_REQUIREMENTS),
    needs_values("NO-4", "In").move_under(_REQUIREMENTS),
    needs_a_number("NO-5").move_under(_REQUIREMENTS),
    closed_domain_key("NO-6", labels.KARPENTER, CORE_ALLOWED).move_under(f"{_REQUIREMENTS}[]"),
    forbidden_key("NO-7", labels.HOSTNAME).move_under(f"{_REQUIREMENTS}[]"),
    closed_domain_key("NO-8", labels.KARPENTER_AWS, OVERLAY_AWS_ALLOWED, "aws").move_under(
        f"{_REQUIREMENTS}[]"
    ),
)

NODEOVERLAY = CrdDefinition(
    NodeOverlay,
    "A correction to what the provider says of its instance types.",
    OVERLAY_FIELDS,
    OVERLAY_RULES,
    (READY, AGE, PrinterColumn("Weight", ".spec.weight", "integer", 1)),
    short_names=("overlays",),
)


BUFFER_FIELDS: dict[str, FieldSchema] = {
    "spec": constrain_field("How much room, and for pods of what shape.", required=True),
    "spec.provisioningStrategy": constrain_field(
        "How the room is kept; other strategies than the default are left to others.",
        default="buffer.x-k8s.io/active-capacity",
    ),
    "spec.podTemplateRef": constrain_field("A PodTemplate that gives the shape of the pods."),
    "spec.podTemplateRef.name": constrain_field("The name of the PodTemplate.", required=True, minLength=1),
    "spec.scalableRef": constrain_field("A workload that gives the shape of the pods."),
    "spec.scalableRef.apiGroup": constrain_field("The workload's API group; empty means apps."),
    "spec.scalableRef.kind": constrain_field("Deployment, StatefulSet or ReplicaSet.", required=True),
    "spec.scalableRef.name": constrain_field("The name of the workload.", required=True, minLength=1),
    "spec.replicas": constrain_field("Room for this many pods.", format="int32", minimum=0),
    "spec.percentage": constrain_field(
        "Room for this share of the workload's replicas; the larger of this and replicas counts.",
        format="int32",
        minimum=0,
    ),
    "spec.limits": constrain_field("The most the buffer may hold, by resource name."),
    "status": constrain_field("What the buffer came to."),
    "status.podTemplateRef": constrain_field("The PodTemplate in use."),
    "status.podTemplateRef.name": constrain_field("The name of the PodTemplate.", required=True, minLength=1),
    "status.podTemplateGeneration": constrain_field(
        "The generation of the PodTemplate in use.", format="int64"
    ),
    "status.replicas": constrain_field("How many pods room is kept for.", format="int32"),
    "status.provisioningStrategy": constrain_field("The strategy in use."),
    "status.conditions": CONDITIONS,
    **mount_fields("status.conditions[]", CONDITION),
}


def _template_has_a_size(spec: Any, _: Any) -> bool:
    return "podTemplateRef" not in spec or "replicas" in spec or "limits" in spec


def _one_reference(spec: Any, _: Any) -> bool:
    return not ("podTemplateRef" in spec and "scalableRef" in spec)


BUFFER_RULES: tuple[AdmissionRule, ...] = (
    AdmissionRule(
        "CB-1",
        "spec",
        "a buffer with podTemplateRef needs replicas or limits",
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        _template_has_a_size,
    ),
    AdmissionRule(
        "CB-2",
        "spec",
        "podTemplateRef and scalableRef exclude each other",
        "!has(self.podTemplateRef) || !has(self.scalableRef)",
        _one_reference,
    ),
)

CAPACITYBUFFER = CrdDefinition(
    CapacityBuffer,
    "Room kept free for pods to come.",
    BUFFER_FIELDS,
    BUFFER_RULES,
    (
        PrinterColumn("Strategy", ".spec.provisioningStrategy"),
        PrinterColumn("PodTemplate", ".status.podTemplateRef.name"),
        PrinterColumn("Replicas", ".status.replicas", "integer"),
        PrinterColumn("ConditionsType", ".status.conditions[*].type"),
        PrinterColumn("ConditionsStatus", ".status.conditions[*].status"),
        PrinterColumn("ConditionsReason", ".status.conditions[*].reason"),
        AGE,
    ),
    categories=("autoscaling",),
    short_names=("cb",),
)


# Nothing reconciles this class, so it is born ready.
_BORN_READY = {
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Ready",
            "message": "",
            "lastTransitionTime": "2024-01-01T01:01:01Z",
        }
    ]
}

KWOK_FIELDS: dict[str, FieldSchema] = {
    "spec": constrain_field("How simulated nodes are made."),
    "spec.nodeRegistrationDelay": constrain_field(
        "How long a simulated node takes to appear.", pattern=patterns.DURATION
    ),
    "status": constrain_field("Whether the class can be used.", default=_BORN_READY),
    "status.conditions": PLAIN_CONDITIONS,
    **mount_fields("status.conditions[]", CONDITION),
}

KWOKNODECLASS = CrdDefinition(
    KWOKNodeClass, "How simulated nodes are made.", KWOK_FIELDS, short_names=("kwoknc", "kwokncs")
)


_KINDS = [
    *("ZONAL_SHIFT", "ZONAL_AUTOSHIFT", "PRACTICE_RUN", "FIS_EXPERIMENT", "OBSERVED", "LOCAL"),
    # A message that was received, kept for whoever leads to look at.
    "SIGNAL",
]
_PHASES = ["", "Pending", "Applying", "Active", "Restoring", "Restored", "Refused", "Failed"]
_COUNT = {
    "desired": constrain_field("How many there are to do."),
    "done": constrain_field("How many are done."),
}

ZONESHIFT_FIELDS: dict[str, FieldSchema] = {
    "spec": constrain_field("Which zone, by whose wish, and what to do about it.", required=True),
    "spec.zoneId": constrain_field(
        "The zone's id, such as use1-az1.", required=True, minLength=1, maxLength=32
    ),
    "spec.kind": constrain_field("Who asked for it.", enum=_KINDS, default="LOCAL"),
    "spec.shiftId": constrain_field("ARC's name for the shift."),
    "spec.clusterArn": constrain_field("The cluster it is about."),
    "spec.policy": constrain_field(
        "What to do about it.", enum=["Enforce", "Protect", "Observe", "Ignore"], default="Enforce"
    ),
    "spec.dryRun": constrain_field("Only say what would be done."),
    "spec.expires": constrain_field("When a LOCAL shift ends by itself.", format="date-time"),
    "spec.comment": constrain_field("Why, for people.", maxLength=128),
    "status": constrain_field("How far it has come."),
    "status.phase": constrain_field("Where the shift stands.", enum=_PHASES),
    "status.zoneName": constrain_field("The zone's name in this account."),
    "status.startedAt": constrain_field("When it began.", format="date-time"),
    "status.expiryTime": constrain_field("When it ends, if it says so.", format="date-time"),
    "status.lastConfirmedAt": constrain_field("When ARC last showed it.", format="date-time"),
    "status.goneAt": constrain_field("When ARC first no longer showed it.", format="date-time"),
    "status.endedAt": constrain_field("When everything was as before.", format="date-time"),
    "status.endReason": constrain_field("Why it ended."),
    "status.step": constrain_field("The step of the way back."),
    "status.steppedAt": constrain_field(
        "When that step began; before the way back, when everything was first applied.", format="date-time"
    ),
    "status.steps": constrain_field("How far each step has come."),
    "status.steps.gate": constrain_field("Whether nothing is bought in the zone."),
    "status.steps.disruption": constrain_field("Whether nothing is taken away by choice in the zone."),
    "status.steps.nodes": constrain_field("Nodes marked."),
    **mount_fields("status.steps.nodes", _COUNT),
    "status.steps.nodePools": constrain_field("Pools edited."),
    **mount_fields("status.steps.nodePools", _COUNT),
    "status.ledger": constrain_field("What was changed, in sum; each object says for itself what and how."),
    "status.ledger.nodePools": constrain_field("Pools that were edited."),
    "status.ledger.nodes": constrain_field("Nodes that were marked."),
    "status.ledger.nodes.count": constrain_field("How many."),
    "status.ledger.clones": constrain_field("Pools that stand in for those of EKS Auto Mode."),
    "status.impact": constrain_field("What losing the zone would mean."),
    "status.plan": constrain_field("What a dry run would write.", maxItems=1000),
    "status.conditions": PLAIN_CONDITIONS,
    **mount_fields("status.conditions[]", CONDITION),
}

ZONESHIFT = CrdDefinition(
    ZoneShift,
    "A zone that is shifted away.",
    ZONESHIFT_FIELDS,
    (),
    (
        PrinterColumn("Zone", ".spec.zoneId", "string"),
        PrinterColumn("Kind", ".spec.kind", "string"),
        PrinterColumn("Phase", ".status.phase", "string"),
        AGE,
    ),
    short_names=("zs",),
)

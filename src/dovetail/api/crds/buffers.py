"""CapacityBuffer as admitted: autoscaling.x-k8s.io/v1beta1."""

from __future__ import annotations

from typing import Any

from dovetail.api.buffers import CapacityBuffer
from dovetail.api.crds.definition import AGE, Column, Definition, Field, Rule, constrained, mounted
from dovetail.api.crds.parts import CONDITION, CONDITIONS

FIELDS: dict[str, Field] = {
    "spec": constrained("How much room, and for pods of what shape.", required=True),
    "spec.provisioningStrategy": constrained(
        "How the room is kept; other strategies than the default are left to others.",
        default="buffer.x-k8s.io/active-capacity",
    ),
    "spec.podTemplateRef": constrained("A PodTemplate that gives the shape of the pods."),
    "spec.podTemplateRef.name": constrained("The name of the PodTemplate.", required=True, minLength=1),
    "spec.scalableRef": constrained("A workload that gives the shape of the pods."),
    "spec.scalableRef.apiGroup": constrained("The workload's API group; empty means apps."),
    "spec.scalableRef.kind": constrained("Deployment, StatefulSet or ReplicaSet.", required=True),
    "spec.scalableRef.name": constrained("The name of the workload.", required=True, minLength=1),
    "spec.replicas": constrained("Room for this many pods.", format="int32", minimum=0),
    "spec.percentage": constrained(
        "Room for this share of the workload's replicas; the larger of this and replicas counts.",
        format="int32",
        minimum=0,
    ),
    "spec.limits": constrained("The most the buffer may hold, by resource name."),
    "status": constrained("What the buffer came to."),
    "status.podTemplateRef": constrained("The PodTemplate in use."),
    "status.podTemplateRef.name": constrained("The name of the PodTemplate.", required=True, minLength=1),
    "status.podTemplateGeneration": constrained("The generation of the PodTemplate in use.", format="int64"),
    "status.replicas": constrained("How many pods room is kept for.", format="int32"),
    "status.provisioningStrategy": constrained("The strategy in use."),
    "status.conditions": CONDITIONS,
    **mounted("status.conditions[]", CONDITION),
}


def _template_has_a_size(spec: Any, _: Any) -> bool:
    return "podTemplateRef" not in spec or "replicas" in spec or "limits" in spec


def _one_reference(spec: Any, _: Any) -> bool:
    return not ("podTemplateRef" in spec and "scalableRef" in spec)


RULES: tuple[Rule, ...] = (
    Rule(
        "CB-1",
        "spec",
        "a buffer with podTemplateRef needs replicas or limits",
        "!has(self.podTemplateRef) || has(self.replicas) || has(self.limits)",
        _template_has_a_size,
    ),
    Rule(
        "CB-2",
        "spec",
        "podTemplateRef and scalableRef exclude each other",
        "!has(self.podTemplateRef) || !has(self.scalableRef)",
        _one_reference,
    ),
)

CAPACITYBUFFER = Definition(
    CapacityBuffer,
    "Room kept free for pods to come.",
    FIELDS,
    RULES,
    (
        Column("Strategy", ".spec.provisioningStrategy"),
        Column("PodTemplate", ".status.podTemplateRef.name"),
        Column("Replicas", ".status.replicas", "integer"),
        Column("ConditionsType", ".status.conditions[*].type"),
        Column("ConditionsStatus", ".status.conditions[*].status"),
        Column("ConditionsReason", ".status.conditions[*].reason"),
        AGE,
    ),
    categories=("autoscaling",),
    short_names=("cb",),
)

"""What one kind's CRD is made of: its record, a row for every field, the rules, and how kubectl shows it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from dovetail.api import labels
from dovetail.api.crds import patterns
from dovetail.api.meta import Object

_EXTENSIONS = {
    "listType": "x-kubernetes-list-type",
    "listMapKeys": "x-kubernetes-list-map-keys",
    "mapType": "x-kubernetes-map-type",
    "preserveUnknownFields": "x-kubernetes-preserve-unknown-fields",
}


@dataclass(frozen=True, slots=True)
class FieldSchema:
    """What the schema says of one field beyond its type; `inner`, of a list's items or a map's values."""

    says: str
    required: bool = False
    schema: Mapping[str, Any] = field(default_factory=dict)
    inner: Mapping[str, Any] = field(default_factory=dict)


def constrain_field(
    says: str, *, required: bool = False, inner: Mapping[str, Any] | None = None, **schema: Any
) -> FieldSchema:
    """A row of a field table: constraints as OpenAPI spells them, Kubernetes' own without their prefix."""
    return FieldSchema(
        says, required, {_EXTENSIONS.get(key, key): value for key, value in schema.items()}, inner or {}
    )


def mount_fields(path: str, fields: Mapping[str, FieldSchema]) -> dict[str, FieldSchema]:
    """A shared part's rows, as they read below `path`."""
    return {f"{path}.{name}": row for name, row in fields.items()}


@dataclass(frozen=True, slots=True)
class AdmissionRule:
    """One admission rule in both its forms: CEL for the API server, a function for everyone else.

    `at` is the field the rule is about, `[]` standing for every item of a list. A rule with `transition`
    compares with the value stored before, and has no say where there was none.
    """

    id: str
    at: str
    says: str
    cel: str
    holds: Callable[[Any, Any], bool]
    transition: bool = False
    provider: str | None = None  # None: wherever the kind is installed

    def move_under(self, path: str) -> AdmissionRule:
        """The same rule on a shared part that stands at `path`."""
        return replace(self, at=f"{path}.{self.at}" if self.at else path)


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of `kubectl get`; those of priority 1 need `-o wide`."""

    name: str
    path: str
    type: str = "string"
    priority: int = 0


READY = PrinterColumn("Ready", '.status.conditions[?(@.type=="Ready")].status')
AGE = PrinterColumn("Age", ".metadata.creationTimestamp", "date")


@dataclass(frozen=True, slots=True)
class CrdDefinition:
    """Everything a CRD says that the record alone does not."""

    record: type[Object]
    says: str
    fields: Mapping[str, FieldSchema]
    rules: tuple[AdmissionRule, ...] = ()
    columns: tuple[PrinterColumn, ...] = ()
    categories: tuple[str, ...] = ("karpenter",)
    short_names: tuple[str, ...] = ()
    scale: Mapping[str, str] | None = None

    def rules_of(self, provider: str) -> tuple[AdmissionRule, ...]:
        return tuple(rule for rule in self.rules if rule.provider in (None, provider))


OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]
NUMERIC = ("Gt", "Lt", "Gte", "Lte")
CORE_ALLOWED = (labels.CAPACITY_TYPE, labels.NODEPOOL)
AWS_ALLOWED = tuple(sorted(labels.ADMITTED_AWS))
OVERLAY_AWS_ALLOWED = tuple(sorted(labels.ADMITTED_AWS_IN_OVERLAYS))

REFERENCE: Mapping[str, FieldSchema] = {
    "group": constrain_field("The API group of the node class.", required=True, pattern=r"^[^/]*$"),
    "kind": constrain_field("The kind of the node class.", required=True),
    "name": constrain_field("The name of the node class.", required=True),
}
SELECTOR_REQUIREMENT: Mapping[str, FieldSchema] = {
    "key": constrain_field(
        "The label this is about.", required=True, maxLength=316, pattern=patterns.QUALIFIED_NAME
    ),
    "operator": constrain_field("How the label relates to the values.", required=True, enum=OPERATORS),
    "values": constrain_field("The values; one whole number for Gt, Lt, Gte and Lte.", listType="atomic"),
}
REQUIREMENT: Mapping[str, FieldSchema] = {
    **SELECTOR_REQUIREMENT,
    "minValues": constrain_field(
        "The least number of distinct values the instance types must offer together (alpha).",
        minimum=1,
        maximum=50,
    ),
}
TAINT: Mapping[str, FieldSchema] = {
    "key": constrain_field("The taint's key.", required=True, minLength=1, pattern=patterns.QUALIFIED_NAME),
    "value": constrain_field("The taint's value.", pattern=patterns.QUALIFIED_NAME),
    "effect": constrain_field(
        "What happens to pods that do not tolerate the taint.",
        required=True,
        enum=["NoSchedule", "PreferNoSchedule", "NoExecute"],
    ),
    "timeAdded": constrain_field("When the taint was added."),
}
CONDITION: Mapping[str, FieldSchema] = {
    "type": constrain_field(
        "What the condition is about.", required=True, maxLength=316, pattern=patterns.CONDITION_TYPE
    ),
    "status": constrain_field("Whether it holds.", required=True, enum=["True", "False", "Unknown"]),
    "lastTransitionTime": constrain_field("When the status last changed.", required=True),
    "reason": constrain_field(
        "Why, in one word.", required=True, minLength=1, maxLength=1024, pattern=patterns.REASON
    ),
    "message": constrain_field("Why, in a sentence.", required=True, maxLength=32768),
    "observedGeneration": constrain_field(
        "The generation of the object this was said of.", format="int64", minimum=0
    ),
}
CLAIM_CONDITION: Mapping[str, FieldSchema] = {
    **CONDITION,
    "reason": constrain_field("Why, in one word.", maxLength=1024, pattern=patterns.REASON_OR_EMPTY),
    "message": constrain_field("Why, in a sentence.", maxLength=32768),
}
CONDITIONS = constrain_field("What is known about the object.", listType="map", listMapKeys=["type"])
# Karpenter: the node classes keep their conditions in a plain list.
PLAIN_CONDITIONS = constrain_field("What is known about the object.")

REFERENCE_RULES = (
    AdmissionRule(
        "REF-1", "group", "the node class group may not be empty", "self != ''", lambda v, _: v != ""
    ),
    AdmissionRule(
        "REF-2", "kind", "the node class kind may not be empty", "self != ''", lambda v, _: v != ""
    ),
    AdmissionRule(
        "REF-3", "name", "the node class name may not be empty", "self != ''", lambda v, _: v != ""
    ),
)


def in_closed_domain(key: str, domain: str) -> bool:
    """Whether the text before the first slash ends in the domain; a plain suffix, not a DNS one."""
    return key.split("/", 1)[0].endswith(domain)


def cel_list(items: tuple[str, ...] | list[str]) -> str:
    return "[" + ", ".join(f"'{item}'" for item in items) + "]"


def closed_domain_key(
    id: str, domain: str, allowed: tuple[str, ...], provider: str | None = None
) -> AdmissionRule:
    """On one key: only the listed labels of a domain may be used."""
    return AdmissionRule(
        id,
        "key",
        f"labels of the domain {domain} are reserved, apart from the well-known ones",
        f"self in {cel_list(allowed)} || !self.find('^[^/]*').endsWith('{domain}')",
        lambda key, _: key in allowed or not in_closed_domain(key, domain),
        provider=provider,
    )


def closed_domain_keys(
    id: str, domain: str, allowed: tuple[str, ...], provider: str | None = None
) -> AdmissionRule:
    """On a map: the same of every key."""
    return AdmissionRule(
        id,
        "",
        f"labels of the domain {domain} are reserved, apart from the well-known ones",
        f"self.all(k, k in {cel_list(allowed)} || !k.find('^[^/]*').endsWith('{domain}'))",
        lambda chosen, _: all(k in allowed or not in_closed_domain(k, domain) for k in chosen),
        provider=provider,
    )


def forbidden_key(id: str, key: str, at: str = "key") -> AdmissionRule:
    return AdmissionRule(
        id, at, f"the label {key} cannot be chosen", f"self != '{key}'", lambda value, _: value != key
    )


def needs_values(id: str, operator: str) -> AdmissionRule:
    """On a list of requirements: this operator says nothing without values."""
    return AdmissionRule(
        id,
        "",
        f"the operator {operator} needs at least one value",
        f"self.all(r, r.operator != '{operator}' || (has(r.values) && r.values.size() > 0))",
        lambda requirements, _: all(
            r["operator"] != operator or len(r.get("values", ())) > 0 for r in requirements
        ),
    )


def needs_a_number(id: str) -> AdmissionRule:
    return AdmissionRule(
        id,
        "",
        "the operators Gt, Lt, Gte and Lte need exactly one whole number that is not negative",
        f"self.all(r, !(r.operator in {cel_list(NUMERIC)}) || "
        "(has(r.values) && r.values.size() == 1 && int(r.values[0]) >= 0))",
        lambda requirements, _: all(
            r["operator"] not in NUMERIC or _one_natural(r.get("values", ())) for r in requirements
        ),
    )


def needs_min_values(id: str) -> AdmissionRule:
    return AdmissionRule(
        id,
        "",
        "the operator In with minValues must list at least that many values",
        "self.all(r, r.operator != 'In' || !has(r.minValues) || "
        "(has(r.values) && r.values.size() >= r.minValues))",
        lambda requirements, _: all(
            r["operator"] != "In" or len(r.get("values", ())) >= r.get("minValues", 0) for r in requirements
        ),
    )


def _one_natural(values: Any) -> bool:
    return len(values) == 1 and parse_natural(values[0]) is not None


def parse_natural(text: str) -> int | None:
    """The number a text spells if CEL's int() takes it and it is not negative: `+5`, `007` and `-0` pass."""
    spelled = re.fullmatch(r"([+-]?)0*([0-9]*)", text, re.ASCII)
    if not spelled or text in ("", "+", "-") or len(spelled[2]) > 19:
        return None
    number = int(spelled[2] or "0")
    return number if number < 1 << 63 and (spelled[1] != "-" or number == 0) else None


def requirement_rules(values: str, number: str, least: str) -> tuple[AdmissionRule, ...]:
    """What holds for the requirements of pools and claims alike, under each one's own ids."""
    return (needs_values(values, "In"), needs_a_number(number), needs_min_values(least))

"""The parts that several kinds share: conditions, node class references, requirements and taints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from dovetail.api import labels
from dovetail.api.crds import patterns
from dovetail.api.crds.definition import Field, Flavour, Rule, constrained

OPERATORS = ["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte"]
NUMERIC = ("Gt", "Lt", "Gte", "Lte")
CORE_ALLOWED = (labels.CAPACITY_TYPE, labels.NODEPOOL)
AWS_ALLOWED = tuple(sorted(labels.ADMITTED_AWS))
OVERLAY_AWS_ALLOWED = tuple(sorted(labels.ADMITTED_AWS_IN_OVERLAYS))

REFERENCE: Mapping[str, Field] = {
    "group": constrained("The API group of the node class.", required=True, pattern=r"^[^/]*$"),
    "kind": constrained("The kind of the node class.", required=True),
    "name": constrained("The name of the node class.", required=True),
}
SELECTOR_REQUIREMENT: Mapping[str, Field] = {
    "key": constrained(
        "The label this is about.", required=True, maxLength=316, pattern=patterns.QUALIFIED_NAME
    ),
    "operator": constrained("How the label relates to the values.", required=True, enum=OPERATORS),
    "values": constrained("The values; one whole number for Gt, Lt, Gte and Lte.", listType="atomic"),
}
REQUIREMENT: Mapping[str, Field] = {
    **SELECTOR_REQUIREMENT,
    "minValues": constrained(
        "The least number of distinct values the instance types must offer together (alpha).",
        minimum=1,
        maximum=50,
    ),
}
TAINT: Mapping[str, Field] = {
    "key": constrained("The taint's key.", required=True, minLength=1, pattern=patterns.QUALIFIED_NAME),
    "value": constrained("The taint's value.", pattern=patterns.QUALIFIED_NAME),
    "effect": constrained(
        "What happens to pods that do not tolerate the taint.",
        required=True,
        enum=["NoSchedule", "PreferNoSchedule", "NoExecute"],
    ),
    "timeAdded": constrained("When the taint was added."),
}
CONDITION: Mapping[str, Field] = {
    "type": constrained(
        "What the condition is about.", required=True, maxLength=316, pattern=patterns.CONDITION_TYPE
    ),
    "status": constrained("Whether it holds.", required=True, enum=["True", "False", "Unknown"]),
    "lastTransitionTime": constrained("When the status last changed.", required=True),
    "reason": constrained(
        "Why, in one word.", required=True, minLength=1, maxLength=1024, pattern=patterns.REASON
    ),
    "message": constrained("Why, in a sentence.", required=True, maxLength=32768),
    "observedGeneration": constrained(
        "The generation of the object this was said of.", format="int64", minimum=0
    ),
}
CLAIM_CONDITION: Mapping[str, Field] = {
    **CONDITION,
    "reason": constrained("Why, in one word.", maxLength=1024, pattern=patterns.REASON_OR_EMPTY),
    "message": constrained("Why, in a sentence.", maxLength=32768),
}
CONDITIONS = constrained("What is known about the object.", listType="map", listMapKeys=["type"])
# Karpenter: the node classes keep their conditions in a plain list.
PLAIN_CONDITIONS = constrained("What is known about the object.")

REFERENCE_RULES = (
    Rule("REF-1", "group", "the node class group may not be empty", "self != ''", lambda v, _: v != ""),
    Rule("REF-2", "kind", "the node class kind may not be empty", "self != ''", lambda v, _: v != ""),
    Rule("REF-3", "name", "the node class name may not be empty", "self != ''", lambda v, _: v != ""),
)


def in_closed_domain(key: str, domain: str) -> bool:
    """Whether the text before the first slash ends in the domain; a plain suffix, not a DNS one."""
    return key.split("/", 1)[0].endswith(domain)


def cel_list(items: tuple[str, ...] | list[str]) -> str:
    return "[" + ", ".join(f"'{item}'" for item in items) + "]"


def closed_domain_key(id: str, domain: str, allowed: tuple[str, ...], flavour: Flavour | None = None) -> Rule:
    """On one key: only the listed labels of a domain may be used."""
    return Rule(
        id,
        "key",
        f"labels of the domain {domain} are reserved, apart from the well-known ones",
        f"self in {cel_list(allowed)} || !self.find('^[^/]*').endsWith('{domain}')",
        lambda key, _: key in allowed or not in_closed_domain(key, domain),
        flavour=flavour,
    )


def closed_domain_keys(
    id: str, domain: str, allowed: tuple[str, ...], flavour: Flavour | None = None
) -> Rule:
    """On a map: the same of every key."""
    return Rule(
        id,
        "",
        f"labels of the domain {domain} are reserved, apart from the well-known ones",
        f"self.all(k, k in {cel_list(allowed)} || !k.find('^[^/]*').endsWith('{domain}'))",
        lambda chosen, _: all(k in allowed or not in_closed_domain(k, domain) for k in chosen),
        flavour=flavour,
    )


def forbidden_key(id: str, key: str, at: str = "key") -> Rule:
    return Rule(
        id, at, f"the label {key} cannot be chosen", f"self != '{key}'", lambda value, _: value != key
    )


def needs_values(id: str, operator: str) -> Rule:
    """On a list of requirements: this operator says nothing without values."""
    return Rule(
        id,
        "",
        f"the operator {operator} needs at least one value",
        f"self.all(r, r.operator != '{operator}' || (has(r.values) && r.values.size() > 0))",
        lambda requirements, _: all(
            r["operator"] != operator or len(r.get("values", ())) > 0 for r in requirements
        ),
    )


def needs_a_number(id: str) -> Rule:
    return Rule(
        id,
        "",
        "the operators Gt, Lt, Gte and Lte need exactly one whole number that is not negative",
        f"self.all(r, !(r.operator in {cel_list(NUMERIC)}) || "
        "(has(r.values) && r.values.size() == 1 && int(r.values[0]) >= 0))",
        lambda requirements, _: all(
            r["operator"] not in NUMERIC or _one_natural(r.get("values", ())) for r in requirements
        ),
    )


def needs_min_values(id: str) -> Rule:
    return Rule(
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
    return len(values) == 1 and natural(values[0]) is not None


def natural(text: str) -> int | None:
    """The number a text spells if CEL's int() takes it and it is not negative: `+5`, `007` and `-0` pass."""
    spelled = re.fullmatch(r"([+-]?)0*([0-9]*)", text, re.ASCII)
    if not spelled or text in ("", "+", "-") or len(spelled[2]) > 19:
        return None
    number = int(spelled[2] or "0")
    return number if number < 1 << 63 and (spelled[1] != "-" or number == 0) else None


def requirement_rules(values: str, number: str, least: str) -> tuple[Rule, ...]:
    """What holds for the requirements of pools and claims alike, under each one's own ids."""
    return (needs_values(values, "In"), needs_a_number(number), needs_min_values(least))

"""Whether a node is one a pod may be on, by labels, fields and taints: kube-scheduler's own reading."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dovetail.api.numbers import parse_integer

Json = dict[str, Any]

__all__ = ["find_untolerated_taint", "is_node_selected", "selector_term_matches", "tolerates_taint"]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def is_node_selected(spec: Json, node: Json) -> bool:
    """The pod's nodeSelector and required node affinity both accept the node."""
    labels = node["metadata"].get("labels") or {}
    for key, value in (spec.get("nodeSelector") or {}).items():
        if labels.get(key) != value:
            return False
    required = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(_REQUIRED)
    if required is None:
        return True
    return any(selector_term_matches(term, node) for term in required.get("nodeSelectorTerms") or ())


def selector_term_matches(term: Json, node: Json) -> bool:
    """All conditions of a term hold; an empty term accepts nothing."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels = node["metadata"].get("labels") or {}
    names = {"metadata.name": node["metadata"]["name"]}
    return all(_expression_holds(e, labels) for e in expressions) and all(
        _expression_holds(f, names) for f in fields
    )


def _expression_holds(condition: Json, labels: dict[str, str]) -> bool:
    key, operator = condition["key"], condition["operator"]
    values: Sequence[str] = condition.get("values") or ()
    have = labels.get(key)
    if operator == "In":
        return have is not None and have in values
    if operator == "NotIn":
        return have is None or have not in values
    if operator == "Exists":
        return have is not None
    if operator == "DoesNotExist":
        return have is None
    if have is None or len(values) != 1:
        return False
    mine, bound = parse_integer(have), parse_integer(values[0])
    if mine is None or bound is None:
        return False
    return mine > bound if operator == "Gt" else mine < bound


def find_untolerated_taint(spec: Json, node: Json, effects: Sequence[str]) -> Json | None:
    """The first taint of these effects that the pod does not tolerate."""
    tolerations = spec.get("tolerations") or ()
    for taint in node["spec"].get("taints") or ():
        if taint.get("effect") in effects and not any(tolerates_taint(t, taint) for t in tolerations):
            found: Json = taint
            return found
    return None


def tolerates_taint(toleration: Json, taint: Json) -> bool:
    """Whether this toleration covers this taint."""
    if toleration.get("effect") not in (None, "", taint.get("effect")):
        return False
    if toleration.get("key") not in (None, "", taint["key"]):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    if operator in ("Gt", "Lt"):
        return _is_beyond(operator, taint.get("value", ""), toleration.get("value", ""))
    return bool(toleration.get("key")) and toleration.get("value", "") == taint.get("value", "")


def _is_beyond(operator: str, have: str, bound: str) -> bool:
    mine, most = _parse_plain_integer(have), _parse_plain_integer(bound)
    if mine is None or most is None:
        return False
    return mine > most if operator == "Gt" else mine < most


def _parse_plain_integer(text: str) -> int | None:
    """A number in its one plain spelling: no sign +, no leading zeros."""
    digits = text.removeprefix("-")
    return parse_integer(text) if digits == "0" or digits[:1] not in ("0", "+", "") else None

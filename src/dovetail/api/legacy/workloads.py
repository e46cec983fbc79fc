"""Pods and workloads that select nodes by old keys, rewritten to the v1 ones."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from dovetail.api import labels
from dovetail.api.legacy.names import ANNOTATIONS, GONE_LABELS, LABELS
from dovetail.api.legacy.notes import Scribe

_TEMPLATES = (("spec", "template"), ("spec", "jobTemplate", "spec", "template"), ("template",))
_NODE_ANNOTATIONS = frozenset({"karpenter.sh/do-not-evict", "karpenter.sh/do-not-consolidate"})


def rewrite_workload(writer: Scribe) -> dict[str, Any]:
    """The object with every old key renamed; the very same object when it has none."""
    value = deepcopy(writer.document.value)
    for pod, path in _find_pods(value, writer.document.kind):
        _rewrite_annotations(writer, pod, path)
        spec = pod.get("spec")
        if isinstance(spec, dict) and writer.document.kind != "Node":
            _rewrite_pod_spec(writer, spec, f"{path}spec")
    return value if writer.notes else writer.document.value


def _find_pods(value: dict[str, Any], kind: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Everything in the object that is, or describes, a pod; a Node counts for its annotations."""
    if kind in ("Pod", "Node"):
        yield value, ""
    for steps in _TEMPLATES:
        found: Any = value
        for step in steps:
            found = found.get(step) if isinstance(found, dict) else None
        if isinstance(found, dict):
            yield found, ".".join(steps) + "."


def _rewrite_annotations(writer: Scribe, pod: dict[str, Any], path: str) -> None:
    head = pod.get("metadata")
    marks = head.get("annotations") if isinstance(head, dict) else None
    if not isinstance(marks, dict):
        return
    for old in [key for key in marks if key in _NODE_ANNOTATIONS]:
        value = marks.pop(old)
        marks.setdefault(ANNOTATIONS[old], value)
        writer.info(f"{path}metadata.annotations[{old}]", f"is {ANNOTATIONS[old]} in v1")


def _rewrite_pod_spec(writer: Scribe, spec: dict[str, Any], path: str) -> None:
    selector = spec.get("nodeSelector")
    if isinstance(selector, dict):
        _rewrite_node_selector(writer, selector, f"{path}.nodeSelector")
    affinity = spec.get("affinity")
    if isinstance(affinity, dict):
        for terms, place in _list_node_terms(affinity, f"{path}.affinity"):
            _rewrite_expressions(writer, terms, place)
        for term, place in _list_pod_terms(affinity, f"{path}.affinity"):
            _rewrite_topology_key(writer, term, place)
    for i, spread in enumerate(_list_mappings(spec.get("topologySpreadConstraints"))):
        _rewrite_topology_key(writer, spread, f"{path}.topologySpreadConstraints[{i}]")
    for i, toleration in enumerate(_list_mappings(spec.get("tolerations"))):
        _rewrite_toleration(writer, toleration, f"{path}.tolerations[{i}]")


def _rewrite_node_selector(writer: Scribe, selector: dict[str, Any], path: str) -> None:
    for old in [key for key in selector if key in LABELS or key in GONE_LABELS]:
        value = selector.pop(old)
        if old in LABELS:
            selector.setdefault(LABELS[old], value)
            writer.info(f"{path}[{old}]", f"is {LABELS[old]} in v1")
        else:
            writer.warn(f"{path}[{old}]", "is a label that no v1 node has; it is left out")


def _list_node_terms(affinity: dict[str, Any], path: str) -> Iterator[tuple[dict[str, Any], str]]:
    node = affinity.get("nodeAffinity")
    if not isinstance(node, dict):
        return
    required = node.get("requiredDuringSchedulingIgnoredDuringExecution")
    if isinstance(required, dict):
        place = f"{path}.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        for i, term in enumerate(_list_mappings(required.get("nodeSelectorTerms"))):
            yield term, f"{place}[{i}]"
    preferred = "preferredDuringSchedulingIgnoredDuringExecution"
    for i, weighted in enumerate(_list_mappings(node.get(preferred))):
        if isinstance(weighted.get("preference"), dict):
            yield weighted["preference"], f"{path}.nodeAffinity.{preferred}[{i}].preference"


def _rewrite_expressions(writer: Scribe, term: dict[str, Any], path: str) -> None:
    kept = []
    for i, expression in enumerate(_list_mappings(term.get("matchExpressions"))):
        key, place = _read_word(expression, "key"), f"{path}.matchExpressions[{i}].key"
        if key in GONE_LABELS:
            writer.warn(place, f"{key} is a label that no v1 node has; the expression is left out")
            continue
        if key in LABELS:
            writer.info(place, f"{key} is {LABELS[key]} in v1")
            expression["key"] = LABELS[key]
        kept.append(expression)
    if isinstance(term.get("matchExpressions"), list):
        term["matchExpressions"] = kept


def _list_pod_terms(affinity: dict[str, Any], path: str) -> Iterator[tuple[dict[str, Any], str]]:
    for kind in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(kind)
        if not isinstance(rules, dict):
            continue
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        for i, term in enumerate(_list_mappings(rules.get(required))):
            yield term, f"{path}.{kind}.{required}[{i}]"
        preferred = "preferredDuringSchedulingIgnoredDuringExecution"
        for i, weighted in enumerate(_list_mappings(rules.get(preferred))):
            if isinstance(weighted.get("podAffinityTerm"), dict):
                yield weighted["podAffinityTerm"], f"{path}.{kind}.{preferred}[{i}].podAffinityTerm"


def _rewrite_topology_key(writer: Scribe, term: dict[str, Any], path: str) -> None:
    old = _read_word(term, "topologyKey")
    if old in LABELS:
        term["topologyKey"] = LABELS[old]
        writer.info(f"{path}.topologyKey", f"{old} is {LABELS[old]} in v1")
    elif old in GONE_LABELS:
        writer.warn(f"{path}.topologyKey", f"{old} is a label that no v1 node has; choose another")


def _rewrite_toleration(writer: Scribe, toleration: dict[str, Any], path: str) -> None:
    key = _read_word(toleration, "key")
    if key == "karpenter.sh/disruption":
        # Beta's taint had a value and v1's has none, so that only Exists still matches.
        toleration.pop("value", None)
        toleration |= {"key": labels.DISRUPTED_TAINT, "operator": "Exists"}
        writer.info(f"{path}.key", "karpenter.sh/disruption is karpenter.sh/disrupted in v1")
    elif key == labels.UNSCHEDULABLE_TAINT:
        message = "nodes on their way out carry karpenter.sh/disrupted in v1; tolerate that too if need be"
        writer.info(f"{path}.key", message)


def _read_word(value: dict[str, Any], key: str) -> str:
    found = value.get(key)
    return found if isinstance(found, str) else ""


def _list_mappings(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []

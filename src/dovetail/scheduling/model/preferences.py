"""Which preference to give up next.

Karpenter: one per failed attempt, always the first that applies in a fixed order: a required node
affinity alternative, then preferred pod affinity, pod anti-affinity and node affinity (heaviest
first), then a soft spread, then soft taints (preferences.go).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeVar

from msgspec.structs import replace

from dovetail.api.pod import Affinity, NodeAffinity, NodeSelector, PodAffinity, PodSpec
from dovetail.scheduling.model.pod_requirements import list_required_terms
from dovetail.scheduling.model.taints import PREFER_NOT

__all__ = ["RelaxedSpec", "drop_preferences", "relax_spec"]

SOFT = "ScheduleAnyway"


class RelaxedSpec(NamedTuple):
    """The pod without one of its wishes, and which one that was."""

    spec: PodSpec
    gave_up: str


class _Weighted(Protocol):
    @property
    def weight(self) -> int: ...


W = TypeVar("W", bound=_Weighted)


def relax_spec(spec: PodSpec, soft_taints: bool) -> RelaxedSpec | None:
    """The pod with its next wish given up; None when only what must hold is left."""
    for rule in (
        _drop_required_term,
        _drop_pod_affinity,
        _drop_pod_anti_affinity,
        _drop_node_affinity,
        _drop_soft_spread,
    ):
        found = rule(spec)
        if found is not None:
            return found
    return _tolerate_soft_taints(spec) if soft_taints else None


def drop_preferences(spec: PodSpec, soft_taints: bool) -> PodSpec:
    """The pod with what must hold and nothing else; its required alternatives all stand."""
    kept = replace(
        spec,
        topology_spread_constraints=tuple(
            rule for rule in spec.topology_spread_constraints if rule.when_unsatisfiable != SOFT
        ),
        tolerations=(*spec.tolerations, PREFER_NOT) if soft_taints else spec.tolerations,
    )
    affinity = spec.affinity
    if affinity is None:
        return kept
    node, near, apart = affinity.node_affinity, affinity.pod_affinity, affinity.pod_anti_affinity
    return _replace_affinity(
        kept,
        Affinity(
            node_affinity=replace(node, preferred=()) if node else None,
            pod_affinity=replace(near, preferred=()) if near else None,
            pod_anti_affinity=replace(apart, preferred=()) if apart else None,
        ),
    )


def _drop_required_term(spec: PodSpec) -> RelaxedSpec | None:
    terms = list_required_terms(spec)
    if len(terms) < 2:
        return None
    assert spec.affinity is not None
    node = spec.affinity.node_affinity or NodeAffinity()
    kept = replace(node, required=NodeSelector(node_selector_terms=terms[1:]))
    return RelaxedSpec(
        _replace_affinity(spec, replace(spec.affinity, node_affinity=kept)), "a required node affinity term"
    )


def _drop_pod_affinity(spec: PodSpec) -> RelaxedSpec | None:
    affinity = spec.affinity
    if affinity is None or affinity.pod_affinity is None or not affinity.pod_affinity.preferred:
        return None
    kept = _drop_heaviest_affinity(affinity.pod_affinity)
    return RelaxedSpec(
        _replace_affinity(spec, replace(affinity, pod_affinity=kept)), "a preferred pod affinity"
    )


def _drop_pod_anti_affinity(spec: PodSpec) -> RelaxedSpec | None:
    affinity = spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None or not affinity.pod_anti_affinity.preferred:
        return None
    kept = _drop_heaviest_affinity(affinity.pod_anti_affinity)
    return RelaxedSpec(
        _replace_affinity(spec, replace(affinity, pod_anti_affinity=kept)), "a preferred pod anti-affinity"
    )


def _drop_node_affinity(spec: PodSpec) -> RelaxedSpec | None:
    affinity = spec.affinity
    if affinity is None or affinity.node_affinity is None or not affinity.node_affinity.preferred:
        return None
    kept = replace(affinity.node_affinity, preferred=_drop_heaviest(affinity.node_affinity.preferred))
    return RelaxedSpec(
        _replace_affinity(spec, replace(affinity, node_affinity=kept)), "a preferred node affinity"
    )


def _drop_soft_spread(spec: PodSpec) -> RelaxedSpec | None:
    rules = list(spec.topology_spread_constraints)
    soft = next((i for i, rule in enumerate(rules) if rule.when_unsatisfiable == SOFT), None)
    if soft is None:
        return None
    # Karpenter: the last rule takes the place of the dropped one, which decides what is dropped next.
    last = rules.pop()
    if soft < len(rules):
        rules[soft] = last
    return RelaxedSpec(replace(spec, topology_spread_constraints=tuple(rules)), "a soft topology spread")


def _tolerate_soft_taints(spec: PodSpec) -> RelaxedSpec | None:
    if PREFER_NOT in spec.tolerations:
        return None
    return RelaxedSpec(replace(spec, tolerations=(*spec.tolerations, PREFER_NOT)), "staying off soft taints")


def _replace_affinity(spec: PodSpec, affinity: Affinity) -> PodSpec:
    return replace(spec, affinity=affinity)


def _drop_heaviest_affinity(affinity: PodAffinity) -> PodAffinity:
    return replace(affinity, preferred=_drop_heaviest(affinity.preferred))


def _drop_heaviest(terms: Sequence[W]) -> tuple[W, ...]:
    ordered = sorted(terms, key=lambda term: -term.weight)
    return tuple(ordered[1:])

"""From a pod to what it requires of a node's labels."""

from __future__ import annotations

from dovetail.api.pod import NodeSelectorTerm, PodSpec, PreferredTerm
from dovetail.scheduling.model.requirements import Requirements

__all__ = [
    "build_requirements",
    "build_strict_requirements",
    "find_heaviest_term",
    "has_conflicting_preference",
    "list_preferred_terms",
    "list_required_terms",
    "list_requirement_alternatives",
]


def list_required_terms(spec: PodSpec) -> tuple[NodeSelectorTerm, ...]:
    """The node affinity terms of which one must hold."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required.node_selector_terms if affinity and affinity.required else ()


def list_preferred_terms(spec: PodSpec) -> tuple[PreferredTerm, ...]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.preferred if affinity else ()


def build_strict_requirements(spec: PodSpec) -> Requirements:
    """What must hold: the node selector and the first required term still standing."""
    selected = Requirements.from_labels(spec.node_selector)
    terms = list_required_terms(spec)
    return selected & Requirements.from_expressions(terms[0].match_expressions) if terms else selected


def build_requirements(spec: PodSpec, preferences: bool = True) -> Requirements:
    """What must hold, and the heaviest preference as if it had to."""
    preferred = find_heaviest_term(list_preferred_terms(spec)) if preferences else None
    if preferred is None:
        return build_strict_requirements(spec)
    return build_strict_requirements(spec) & Requirements.from_expressions(
        preferred.preference.match_expressions
    )


def has_conflicting_preference(spec: PodSpec, preferences: bool = True) -> bool:
    """Whether the heaviest preference excludes, label by label, what must hold.

    Karpenter: both together then read as "the label is not there", and a node without it is made for a
    pod that can never run on it. Here such a wish is given up at once.
    """
    preferred = find_heaviest_term(list_preferred_terms(spec)) if preferences else None
    if preferred is None:
        return False
    must, wish = (
        build_strict_requirements(spec),
        Requirements.from_expressions(preferred.preference.match_expressions),
    )
    return any(must[key] and wish[key] and not must[key] & wish[key] for key in wish if key in must)


def find_heaviest_term(terms: tuple[PreferredTerm, ...]) -> PreferredTerm | None:
    """The weightiest preference; the first of equals."""
    return max(terms, key=lambda term: term.weight, default=None)


def list_requirement_alternatives(spec: PodSpec) -> tuple[Requirements, ...]:
    """The node selector with each required term in turn: a pod may run where any of these hold."""
    selected = Requirements.from_labels(spec.node_selector)
    terms = list_required_terms(spec)
    if not terms:
        return (selected,)
    return tuple(selected & Requirements.from_expressions(term.match_expressions) for term in terms)

"""From a pod to what it requires of a node's labels."""

from __future__ import annotations

from dovetail.api.pod import NodeSelectorTerm, PodSpec, PreferredTerm
from dovetail.scheduling.requirements import Requirements

__all__ = [
    "alternatives",
    "at_odds",
    "heaviest",
    "preferred_terms",
    "required_terms",
    "requirements",
    "strict",
]


def required_terms(spec: PodSpec) -> tuple[NodeSelectorTerm, ...]:
    """The node affinity terms of which one must hold."""
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.required.node_selector_terms if affinity and affinity.required else ()


def preferred_terms(spec: PodSpec) -> tuple[PreferredTerm, ...]:
    affinity = spec.affinity.node_affinity if spec.affinity else None
    return affinity.preferred if affinity else ()


def strict(spec: PodSpec) -> Requirements:
    """What must hold: the node selector and the first required term still standing."""
    selected = Requirements.labels(spec.node_selector)
    terms = required_terms(spec)
    return selected & Requirements.of(terms[0].match_expressions) if terms else selected


def requirements(spec: PodSpec, preferences: bool = True) -> Requirements:
    """What must hold, and the heaviest preference as if it had to."""
    preferred = heaviest(preferred_terms(spec)) if preferences else None
    if preferred is None:
        return strict(spec)
    return strict(spec) & Requirements.of(preferred.preference.match_expressions)


def at_odds(spec: PodSpec, preferences: bool = True) -> bool:
    """Whether the heaviest preference excludes, label by label, what must hold.

    Karpenter: both together then read as "the label is not there", and a node without it is made for a
    pod that can never run on it. Here such a wish is given up at once.
    """
    preferred = heaviest(preferred_terms(spec)) if preferences else None
    if preferred is None:
        return False
    must, wish = strict(spec), Requirements.of(preferred.preference.match_expressions)
    return any(must[key] and wish[key] and not must[key] & wish[key] for key in wish if key in must)


def heaviest(terms: tuple[PreferredTerm, ...]) -> PreferredTerm | None:
    """The weightiest preference; the first of equals."""
    return max(terms, key=lambda term: term.weight, default=None)


def alternatives(spec: PodSpec) -> tuple[Requirements, ...]:
    """The node selector with each required term in turn: a pod may run where any of these hold."""
    selected = Requirements.labels(spec.node_selector)
    terms = required_terms(spec)
    if not terms:
        return (selected,)
    return tuple(selected & Requirements.of(term.match_expressions) for term in terms)

"""Label selectors: which objects are meant by their labels."""

from __future__ import annotations

from collections.abc import Mapping

from dovetail.api.meta import LabelSelector, LabelSelectorTerm

__all__ = ["add_labels", "build_selector_key", "matches_selector"]


def matches_selector(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """A missing selector means nothing, an empty one everything, an invalid one nothing."""
    if selector is None:
        return False
    for key, value in selector.match_labels.items():
        if labels.get(key) != value:
            return False
    return all(_matches_term(term, labels) for term in selector.match_expressions)


def _matches_term(term: LabelSelectorTerm, labels: Mapping[str, str]) -> bool:
    value = labels.get(term.key)
    match term.operator:
        case "In":
            return value is not None and value in term.values
        case "NotIn":
            return bool(term.values) and (value is None or value not in term.values)
        case "Exists":
            return not term.values and value is not None
        case "DoesNotExist":
            return not term.values and value is None
        case _:
            return False


def add_labels(selector: LabelSelector | None, labels: Mapping[str, str]) -> LabelSelector | None:
    """The selector narrowed to objects that also have these labels."""
    if selector is None or not labels:
        return selector
    more = tuple(LabelSelectorTerm(key=k, operator="In", values=(v,)) for k, v in sorted(labels.items()))
    return LabelSelector(
        match_labels=selector.match_labels, match_expressions=(*selector.match_expressions, *more)
    )


SelectorKey = tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str, tuple[str, ...]], ...]] | None


def build_selector_key(selector: LabelSelector | None) -> SelectorKey:
    """Equal for selectors that say the same in the same words, whatever their order."""
    if selector is None:
        return None
    terms = {(term.key, term.operator, tuple(sorted(term.values))) for term in selector.match_expressions}
    return tuple(sorted(selector.match_labels.items())), tuple(sorted(terms))

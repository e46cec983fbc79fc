"""Label selectors: what each operator takes, and what an invalid term takes: nothing."""

from __future__ import annotations

import pytest

from dovetail.api.meta import LabelSelector, LabelSelectorTerm
from dovetail.scheduling.model.label_selectors import add_labels, build_selector_key, matches_selector

LABELS: tuple[dict[str, str], ...] = ({}, {"app": "web"}, {"app": "db"}, {"tier": "web"})


def taken(selector: LabelSelector | None) -> list[dict[str, str]]:
    return [each for each in LABELS if matches_selector(selector, each)]


@pytest.mark.parametrize(
    ("operator", "values", "expected"),
    [
        ("In", ("web", "cache"), [1]),
        ("In", (), []),
        ("NotIn", ("web",), [0, 2, 3]),
        ("NotIn", (), []),
        ("Exists", (), [1, 2]),
        ("Exists", ("web",), []),
        ("DoesNotExist", (), [0, 3]),
        ("DoesNotExist", ("web",), []),
        ("Gt", ("1",), []),
    ],
)
def test_a_term_takes_what_its_operator_says_and_an_invalid_one_nothing(
    operator: str, values: tuple[str, ...], expected: list[int]
) -> None:
    term = LabelSelectorTerm(key="app", operator=operator, values=values)
    assert taken(LabelSelector(match_expressions=(term,))) == [LABELS[i] for i in expected]


def test_no_selector_takes_nothing_and_an_empty_one_everything() -> None:
    assert taken(None) == []
    assert taken(LabelSelector()) == list(LABELS)


def test_labels_and_terms_must_all_agree() -> None:
    there = LabelSelectorTerm(key="app", operator="Exists")
    assert taken(LabelSelector(match_labels={"app": "web"}, match_expressions=(there,))) == [{"app": "web"}]
    assert taken(LabelSelector(match_labels={"tier": "web"}, match_expressions=(there,))) == []


def test_labels_narrow_a_selector_and_leave_none_and_nothing_alone() -> None:
    there = LabelSelector(match_expressions=(LabelSelectorTerm(key="app", operator="Exists"),))
    assert taken(add_labels(there, {"app": "db"})) == [{"app": "db"}]
    assert add_labels(there, {}) is there
    assert add_labels(None, {"app": "db"}) is None


def test_selectors_that_say_the_same_in_another_order_have_one_key() -> None:
    first = LabelSelectorTerm(key="a", operator="In", values=("x", "y"))
    again = LabelSelectorTerm(key="a", operator="In", values=("y", "x"))
    second = LabelSelectorTerm(key="b", operator="Exists")
    one = LabelSelector(match_labels={"k": "1", "l": "2"}, match_expressions=(first, second))
    same = LabelSelector(match_labels={"l": "2", "k": "1"}, match_expressions=(second, again))
    assert build_selector_key(one) == build_selector_key(same)
    assert build_selector_key(None) is None
    assert build_selector_key(LabelSelector()) is not None
    assert build_selector_key(one) != build_selector_key(LabelSelector(match_labels={"k": "1", "l": "2"}))

"""Whatever is done to a valid object, the server's verdict and plain validation's are the same."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dovetail.api.crds import apply_defaults
from dovetail.api.validation import admit_object, check_document
from support.admission import (
    data,
    field_examples,
    flavour_of,
    full_object,
    rule_examples,
    server_complaints,
    server_schema,
)

KINDS = ["NodePool", "NodeClaim", "NodeOverlay", "CapacityBuffer", "EC2NodeClass", "KWOKNodeClass"]


def _leaves(value: Any) -> list[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(leaf for child in children for leaf in _leaves(child))]


def _words(kind: str) -> list[Any]:
    """Values and names that occur somewhere in the examples of a kind: mutations made of them go deep."""
    examples = [e.new for e in (*rule_examples(), *field_examples()) if e.kind == kind]
    texts = {leaf for example in examples for leaf in _leaves(example) if isinstance(leaf, str)}
    return sorted(text for text in texts if len(text) < 100)


WORDS = {kind: _words(kind) for kind in KINDS}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 200) | st.sampled_from([1.0, 1.5]) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=3,
)


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a document, apart from its metadata."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
    found = [(value, key) for key in keys]
    return found + [place for key in keys for place in _places(value[key])]


@st.composite
def mutated(draw: st.DrawFn, kind: str) -> dict[str, Any]:
    document = full_object(kind)
    for _ in range(draw(st.integers(1, 3))):
        places = [place for place in _places(document) if place[1] not in ("apiVersion", "kind", "metadata")]
        if not places:
            break
        container, key = draw(st.sampled_from(places))
        _mutate(draw, kind, document, container, key)
    return document


def _mutate(draw: st.DrawFn, kind: str, document: Any, container: Any, key: Any) -> None:
    match draw(st.sampled_from(["drop", "word", "json", "transplant", "add", "repeat"])):
        case "drop":
            del container[key]
        case "word":
            container[key] = draw(st.sampled_from(WORDS[kind]))
        case "json":
            container[key] = draw(JSON)
        case "transplant":
            other, where = draw(st.sampled_from(_places(full_object(kind))))
            container[key] = copy.deepcopy(other[where])
        case "add" if isinstance(container, dict):
            names = WORDS[kind] + sorted(set(container) - {"apiVersion", "kind", "metadata"})
            container[draw(st.sampled_from(names))] = draw(JSON)
        case _ if isinstance(container, list):
            container.append(copy.deepcopy(container[key]))


def _storable(kind: str, document: dict[str, Any]) -> bool:
    """Whether some earlier and looser schema could have let the object in: its types are right."""
    found = admit_object(kind, document, provider=flavour_of(kind))
    return not any(complaint.rule in ("type", "required") for complaint in found)


def _same_verdict(kind: str, new: dict[str, Any], old: dict[str, Any] | None) -> None:
    plain = admit_object(kind, new, old, flavour_of(kind))
    server = server_complaints(kind, new, old, flavour_of(kind))
    assert (plain == ()) == (server == []), (plain, server)


@pytest.mark.spec("api-2")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(choices=st.data())
def test_a_mutated_object_gets_the_same_verdict_from_both(kind: str, choices: st.DataObject) -> None:
    _same_verdict(kind, choices.draw(mutated(kind)), None)


@pytest.mark.spec("api-2")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(choices=st.data())
def test_an_update_gets_the_same_verdict_from_both(kind: str, choices: st.DataObject) -> None:
    old = choices.draw(
        st.just(full_object(kind)) | mutated(kind).filter(lambda document: _storable(kind, document))
    )
    _same_verdict(kind, choices.draw(mutated(kind)), old)


@pytest.mark.spec("api-3")
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(choices=st.data())
def test_defaults_are_filled_in_alike(kind: str, choices: st.DataObject) -> None:
    document = choices.draw(mutated(kind))
    # A null kubelet: dropped by a real server and by us, kept by the embedded one because the block is open.
    assume(not (isinstance(document.get("spec"), dict) and document["spec"].get("kubelet", "") is None))
    assert apply_defaults(kind, document) == server_schema(kind, flavour_of(kind)).apply_defaults(document)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(choices=st.data())
def test_checking_never_falls_over(kind: str, choices: st.DataObject) -> None:
    found = check_document(choices.draw(mutated(kind)), flavour_of(kind))
    assert all(complaint.message for complaint in found)


def test_the_objects_that_are_mutated_are_valid_to_begin_with() -> None:
    assert sorted(data("objects")) == sorted(KINDS)
    for kind in KINDS:
        assert server_complaints(kind, full_object(kind), None, flavour_of(kind)) == []

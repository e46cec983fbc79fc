"""Every admission rule, by example: in CEL, through the server's schema and as a plain function alike."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dovetail.api.crds import PROVIDER_APIS, AdmissionRule, apply_defaults, build_schema, list_definitions
from dovetail.api.crds.patterns import MEANING
from dovetail.api.schema.cel import CelError, compile_rule
from dovetail.api.schema.nodes import MISSING
from dovetail.api.validation import admit_object
from dovetail.api.validation.checking import _find_places
from support.admission import (
    Example,
    definition,
    field_examples,
    flavour_of,
    full_object,
    rule_examples,
    server_complaints,
)

RULES = [*rule_examples()]
FIELDS = [*field_examples()]


def _named(example: Example) -> str:
    return f"{example.kind}-{example.subject}-{'taken' if example.accepted else 'refused'}"


def _cel_holds(rule: AdmissionRule, example: Example) -> bool:
    old = MISSING if example.old is None else apply_defaults(example.kind, example.old)
    for _, value, before in _find_places(rule.at, apply_defaults(example.kind, example.new), old):
        if rule.transition and before is MISSING:
            continue
        try:
            if not compile_rule(rule.cel).evaluate(value, before if rule.transition else None):
                return False
        except CelError:
            return False
    return True


@pytest.mark.spec("api-2")
@pytest.mark.parametrize("example", RULES, ids=_named)
def test_a_rule_says_the_same_in_cel_as_in_python(example: Example) -> None:
    (rule,) = (r for r in definition(example.kind).rules if r.id == example.subject)

    broken = {c.rule for c in admit_object(example.kind, example.new, example.old, flavour_of(example.kind))}

    assert _cel_holds(rule, example) is example.accepted
    assert (rule.id not in broken) is example.accepted


@pytest.mark.spec("api-2")
@pytest.mark.parametrize("example", [*RULES, *FIELDS], ids=_named)
def test_the_server_and_plain_validation_give_the_example_the_same_verdict(example: Example) -> None:
    flavour = flavour_of(example.kind)

    plain = admit_object(example.kind, example.new, example.old, flavour)
    server = server_complaints(example.kind, example.new, example.old, flavour)

    assert (plain == ()) is example.accepted, plain
    assert (server == []) is example.accepted, server


@pytest.mark.spec("api-2")
def test_every_rule_has_an_example_it_takes_and_one_it_refuses() -> None:
    shown = {(example.kind, example.subject, example.accepted) for example in RULES}
    wanted = {
        (each.record.KIND.kind, rule.id, accepted)
        for definitions in map(list_definitions, PROVIDER_APIS)
        for each in definitions
        for rule in each.rules
        for accepted in (True, False)
    }
    assert shown == wanted


@pytest.mark.parametrize("kind", ["NodePool", "NodeClaim", "NodeOverlay", "CapacityBuffer", "EC2NodeClass"])
def test_the_full_object_is_valid_in_its_own_flavour(kind: str) -> None:
    assert admit_object(kind, full_object(kind)) == ()


def test_rule_ids_are_unique_within_a_kind() -> None:
    for definitions in map(list_definitions, PROVIDER_APIS):
        for each in definitions:
            ids = [rule.id for rule in each.rules]
            assert len(ids) == len(set(ids))


@pytest.mark.parametrize(
    ("kind", "at"), [("NodePool", "spec.template.spec.requirements"), ("NodeOverlay", "spec.requirements")]
)
def test_the_aws_domain_is_closed_with_the_aws_provider_only(kind: str, at: str) -> None:
    document = full_object(kind)
    requirements: Any = document
    for step in at.split("."):
        requirements = requirements[step]
    requirements.append({"key": "karpenter.k8s.aws/unheard-of", "operator": "Exists"})
    verdicts: dict[str, bool] = {}
    for flavour in PROVIDER_APIS:
        verdicts[flavour] = admit_object(kind, document, provider=flavour) == ()
        assert (server_complaints(kind, document, None, flavour) == []) is verdicts[flavour]
    assert verdicts == {"aws": False, "kwok": True}


def test_what_was_stored_before_a_rule_came_stays_writable() -> None:
    """Values that did not change are not judged again, as on Kubernetes 1.30 and later."""
    old = full_object("EC2NodeClass")
    old["spec"]["tags"] = {"karpenter.sh/nodepool": "old"}
    new = full_object("EC2NodeClass")
    new["spec"]["tags"] = {"karpenter.sh/nodepool": "old"}
    new["spec"]["kubelet"]["maxPods"] = 20

    assert admit_object("EC2NodeClass", new, old) == ()
    assert server_complaints("EC2NodeClass", new, old, "aws") == []
    new["spec"]["tags"]["other"] = "new"
    assert [c.rule for c in admit_object("EC2NodeClass", new, old)] == ["EC-25"]


def test_a_stored_object_of_the_wrong_shape_does_not_stop_an_update() -> None:
    new = full_object("NodePool")
    for old in ({"spec": ""}, {"spec": {"template": {"spec": {"nodeClassRef": ""}}}}, {}):
        assert admit_object("NodePool", new, {**new, **old} if old else old) == ()


def test_every_pattern_in_the_crds_has_a_value_it_refuses() -> None:
    patterns = {
        MEANING.get(pattern, f"of the form {pattern}")
        for flavour, definitions in zip(PROVIDER_APIS, map(list_definitions, PROVIDER_APIS), strict=True)
        for each in definitions
        for pattern in _patterns(build_schema(each.record.KIND.kind, flavour))
    }
    refused = {
        complaint.message.partition(" is not ")[2]
        for example in FIELDS
        if not example.accepted
        for complaint in admit_object(example.kind, example.new, provider=flavour_of(example.kind))
        if complaint.rule == "pattern"
    }
    assert refused == patterns


def _patterns(schema: dict[str, Any]) -> Iterator[str]:
    if isinstance(schema.get("pattern"), str):
        yield schema["pattern"]
    for value in schema.values():
        if isinstance(value, dict):
            yield from _patterns(value)

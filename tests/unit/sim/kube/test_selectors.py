"""Label and field selectors."""

from __future__ import annotations

import pytest

from dovetail.sim.kube.selectors import parse_fields, parse_labels
from dovetail.sim.kube.status import ApiError
from support.apiserver import config_map, definition, local_api, node, pod, widget

LABELS = {"app": "web", "tier": "front", "n": "7", "example.com/x": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        (" ", True),
        ("app", True),
        ("!app", False),
        ("! gone", True),
        ("app=web", True),
        ("app == web", True),
        ("app=api", False),
        ("app!=api", True),
        ("gone!=x", True),
        ("app in (api, web)", True),
        ("app in (api)", False),
        ("app notin (api)", True),
        ("gone notin (a,b)", True),
        ("n>6", True),
        ("n > 7", False),
        ("n<8,n>6", True),
        ("app>6", False),
        ("gone>6", False),
        ("example.com/x=", True),
        ("example.com/x", True),
        ("app=web,tier=front", True),
        ("app=web,tier=back", False),
        ("tier in (),!gone", False),
        ("in", False),
        ("notin in (x)", False),
    ],
)
def test_label_selectors(text: str, matches: bool) -> None:
    assert all(term(LABELS) for term in parse_labels(text)) is matches


@pytest.mark.parametrize(
    "text",
    ["=", "a=b=c", "a in b", "a in (b", "a>x", ",", "a,", "a b", "-a", "a=$", "!", "a/b/c", "(a)", "a=-"],
)
def test_bad_label_selectors_are_refused(text: str) -> None:
    with pytest.raises(ApiError) as error:
        parse_labels(text)
    assert error.value.code == 400


def test_field_selectors_of_pods_and_nodes() -> None:
    api = local_api()
    api.create("pods", pod("a", nodeName="n1"))
    api.create("pods", pod("b"))
    api.create("pods", pod("c", namespace="kube-system", nodeName="n1", hostNetwork=True))

    def found(selector: str, namespace: str = "") -> list[str]:
        return [each["metadata"]["name"] for each in api.list("pods", namespace, field_selector=selector)]

    assert found("spec.nodeName=n1") == ["a", "c"]
    assert found("spec.nodeName=n1", "default") == ["a"]
    assert found("spec.nodeName=") == ["b"]
    assert found("spec.nodeName!=n1") == ["b"]
    assert found("spec.nodeName=n1,metadata.namespace=kube-system") == ["c"]
    assert found("spec.hostNetwork=true") == ["c"]
    assert found("metadata.name=b") == ["b"]
    assert found("metadata.name=b", "default") == ["b"]
    assert found("status.phase==Pending,status.phase!=Failed") == ["a", "b", "c"]
    api.delete("pods", "a", "default", grace_seconds=0)
    assert found("spec.nodeName=n1") == ["c"]
    api.create("nodes", node("n1"))
    assert len(api.list("nodes", field_selector="spec.unschedulable=false")) == 1


def test_a_definition_chooses_what_can_be_selected() -> None:
    api = local_api()
    api.create("customresourcedefinitions.apiextensions.k8s.io", definition())
    api.create("widgets.example.com", widget("r"))
    api.create("widgets.example.com", widget("b", colour="blue"))
    (only,) = api.list("widgets.example.com", field_selector="spec.colour=blue")
    assert only["metadata"]["name"] == "b"
    with pytest.raises(ApiError) as error:
        api.list("widgets.example.com", field_selector="spec.size=1")
    assert error.value.code == 400


def test_escaped_values_and_odd_terms() -> None:
    (term,) = parse_fields(r"metadata.name=a\,b\=c", (), "Pod")
    assert term.value == "a,b=c"
    with pytest.raises(ApiError):
        parse_fields("metadata.name", (), "Pod")


def test_secrets_select_by_type() -> None:
    api = local_api()
    api.create("secrets", {"metadata": {"name": "s"}, "stringData": {"a": "b"}})
    assert len(api.list("secrets", field_selector="type=Opaque")) == 1
    api.create("configmaps", config_map("c"))
    with pytest.raises(ApiError):
        api.list("configmaps", field_selector="type=Opaque")

"""Whole conversions against recorded ones, how they are printed, and what no input may do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.api.legacy import Conversion, ConvertOptions, NoteSeverity, convert_documents, render_conversion
from dovetail.api.manifests import parse_manifests
from support.conversion import (
    beta_class,
    beta_pool,
    complaints_about,
    converted,
    provisioner,
    template,
)

ROOT = Path(__file__).parents[3]
CASES = sorted(path.parent for path in (ROOT / "tests/conformance/conversion").glob("*/input.yaml"))
EXAMPLES = sorted((ROOT / "examples/legacy").glob("*.yaml"))


def run(case: Path) -> tuple[Conversion, list[str]]:
    """A case's conversion, and everything said on the way, without the sources' names."""
    found = parse_manifests((case / "input.yaml").read_bytes(), "input.yaml")
    options = ConvertOptions(**json.loads((case / "options.json").read_text()))
    conversion = convert_documents(found.documents, options)
    return conversion, [str(said) for said in (*found.complaints, *conversion.notes)]


@pytest.mark.spec("api-9")
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_recorded_conversion_comes_out_as_written_down(case: Path) -> None:
    conversion, said = run(case)
    expected = parse_manifests((case / "expected.yaml").read_bytes(), "expected.yaml")
    assert expected.complaints == ()
    assert list(conversion.manifests) == [document.value for document in expected.documents]
    assert said == (case / "notes.txt").read_text().splitlines()
    assert [complaints_about(manifest) for manifest in conversion.manifests] == [
        [] for _ in conversion.manifests
    ]


@pytest.mark.spec("api-9")
def test_the_damaged_manifest_is_reported_at_the_line_that_is_out_of_place() -> None:
    conversion, said = run(ROOT / "tests/conformance/conversion/damaged-as-printed")
    assert conversion.manifests == ()
    (only,) = said
    assert only.startswith("input.yaml:11:5: error: this is not YAML")


@pytest.mark.parametrize("example", EXAMPLES, ids=[example.stem for example in EXAMPLES])
def test_every_example_converts_completely(example: Path) -> None:
    found = parse_manifests(example.read_bytes(), example.name)
    conversion = convert_documents(
        found.documents, ConvertOptions(cluster_name="my-cluster", rewrite_workloads=True)
    )
    assert found.complaints == ()
    assert conversion.complete
    assert all(complaints_about(manifest) == [] for manifest in conversion.manifests)
    assert conversion.manifests != tuple(document.value for document in found.documents)


def test_the_judge_of_v1_manifests_can_say_no() -> None:
    (pool, _) = converted(provisioner()).manifests
    pool["spec"]["template"]["spec"]["requirements"] = [{"key": "karpenter.sh/x", "operator": "Exists"}]
    assert complaints_about(pool)
    assert complaints_about(pool | {"spec": {}})


def test_yaml_shows_each_note_above_its_object() -> None:
    text = render_conversion(converted(provisioner("web", ttlSecondsUntilExpired=60)))
    first, second = text.split("---\n")
    assert "# warning: Provisioner/web spec.ttlSecondsUntilExpired: expiry is forceful" in first
    assert "# info: Provisioner/web spec.provider.instanceProfile: " in second
    lines = [line for line in first.splitlines() if not line.startswith(("#", " ", "-"))]
    assert lines == ["apiVersion: karpenter.sh/v1", "kind: NodePool", "metadata:", "spec:"]


def test_notes_about_nothing_that_came_out_stand_at_the_top() -> None:
    text = render_conversion(converted(template("bad", launchTemplate="x"), template("good")))
    assert text.startswith("# error: AWSNodeTemplate/bad spec.launchTemplate: ")
    assert [document.name for document in parse_manifests(text, "x").documents] == ["good"]


@pytest.mark.parametrize("fmt", ["yaml", "json"])
def test_what_is_printed_is_read_back_the_same(fmt: Any) -> None:
    conversion = converted(
        provisioner("a"),
        template("t", userData="#!/bin/sh\necho on\n", tags={"yes": "0123"}),
        beta_pool(),
        beta_class(),
    )
    found = parse_manifests(render_conversion(conversion, fmt), "x")
    assert found.complaints == ()
    assert [document.value for document in found.documents] == list(conversion.manifests)


def test_metadata_is_printed_in_the_usual_order() -> None:
    odd = {"spec": {}, "metadata": {"labels": {}, "name": "x"}, "kind": "Foo", "apiVersion": "v1"}
    text = render_conversion(converted(odd))
    assert text == "apiVersion: v1\nkind: Foo\nmetadata:\n  name: x\n  labels: {}\nspec: {}\n"


def test_a_name_with_a_line_break_cannot_leave_its_comment() -> None:
    nasty = template("a\nkind: Evil\u2028x", launchTemplate="x")
    text = render_conversion(converted(nasty))
    assert all(line.startswith("#") for line in text.splitlines())


def test_what_v1_refuses_is_left_out_together_with_what_needs_it() -> None:
    conversion = converted(beta_pool(disruption={"budgets": [{"nodes": "many"}]}), beta_class())
    assert [m["kind"] for m in conversion.manifests] == ["EC2NodeClass"]
    assert any("spec.disruption.budgets[0].nodes" in note.message for note in conversion.notes)
    conversion = converted(beta_pool(), beta_class(subnetSelectorTerms=[{"id": "x"}]))
    assert conversion.manifests == ()
    assert {note.kind for note in conversion.notes if note.severity is NoteSeverity.ERROR} == {
        "NodePool",
        "EC2NodeClass",
    }


@pytest.mark.parametrize(
    "old", [provisioner(), template(), beta_pool(), beta_class()], ids=lambda old: old["kind"]
)
def test_an_object_given_twice_is_converted_twice_and_that_is_said(old: dict[str, Any]) -> None:
    conversion = converted(old, old)
    assert conversion.manifests == converted(old).manifests * 2
    assert [note.severity for note in conversion.notes if "more than once" in note.message] == [
        NoteSeverity.WARNING
    ]


def test_a_pool_uses_the_class_beside_it_when_folders_repeat_names() -> None:
    pools = [beta_pool(template_kubelet={"maxPods": pods}) for pods in (10, 20)]
    files = [
        parse_manifests(json.dumps([old, beta_class()]), f"{i}.json").documents for i, old in enumerate(pools)
    ]
    made = convert_documents([document for file in files for document in file]).manifests
    classes = [(m["metadata"]["name"], m["spec"]["kubelet"]) for m in made if m["kind"] == "EC2NodeClass"]
    assert classes == [("default", {"maxPods": 10}), ("default", {"maxPods": 20})]


def test_notes_know_their_place_and_their_manifest() -> None:
    text = (ROOT / "tests/conformance/conversion/first-release/input.yaml").read_bytes()
    conversion = convert_documents(
        parse_manifests(text, "f.yaml").documents, ConvertOptions(cluster_name="C")
    )
    note = next(note for note in conversion.notes if note.path == "spec.provider.instanceProfile")
    assert (note.source, note.line, note.kind, note.name, note.target) == (
        "f.yaml",
        20,
        "Provisioner",
        "default",
        1,
    )
    assert str(note).startswith("f.yaml:20: info: Provisioner/default spec.provider.instanceProfile: ")


def test_converting_a_conversion_changes_nothing() -> None:
    first = converted(provisioner("a"), template("t"), beta_pool("b"), beta_class("c"))
    again = converted(*first.manifests)
    assert again.manifests == first.manifests
    assert all(note.severity is not NoteSeverity.ERROR for note in again.notes)


WORDS = st.sampled_from(
    [
        "",
        "a",
        "AL2",
        "Ubuntu",
        "In",
        "Gt",
        "NoSchedule",
        "aws-ids",
        "subnet-1",
        "1",
        "10Gi",
        "karpenter.sh/legacy",
        "WhenEmpty",
        "b,c",
    ]
)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 200) | st.floats(0, 9) | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=6,
)
FIELDS = {
    "provisioner": [
        "labels",
        "annotations",
        "taints",
        "requirements",
        "kubeletConfiguration",
        "provider",
        "providerRef",
        "ttlSecondsAfterEmpty",
        "ttlSecondsUntilExpired",
        "limits",
        "weight",
        "consolidation",
    ],
    "template": [
        "amiFamily",
        "amiSelector",
        "subnetSelector",
        "securityGroupSelector",
        "instanceProfile",
        "tags",
        "launchTemplate",
        "metadataOptions",
        "blockDeviceMappings",
        "userData",
        "detailedMonitoring",
    ],
    "pool": ["template", "disruption", "limits", "weight"],
    "class": [
        "amiFamily",
        "amiSelectorTerms",
        "subnetSelectorTerms",
        "role",
        "metadataOptions",
        "blockDeviceMappings",
    ],
    "pod": ["nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"],
}


def broken(kind: str, damage: dict[str, Any]) -> dict[str, Any]:
    whole = {
        "provisioner": provisioner("p"),
        "template": template("t"),
        "pool": beta_pool("b"),
        "class": beta_class("default"),
        "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {}},
    }[kind]
    spec: dict[str, Any] = {**whole["spec"], **damage}
    return whole | {"spec": spec}


@st.composite
def manifests(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(sorted(FIELDS)))
    made = broken(kind, draw(st.dictionaries(st.sampled_from(FIELDS[kind]), ANY, max_size=3)))
    return made | draw(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), ANY, max_size=1))


@given(st.lists(manifests(), max_size=4))
@settings(max_examples=600)
def test_no_manifest_however_damaged_raises_anything_or_becomes_one_that_v1_refuses(
    objects: list[dict[str, Any]],
) -> None:
    documents = parse_manifests(json.dumps(objects), "f").documents
    options = ConvertOptions(cluster_name="C", rewrite_workloads=True, eni_limited_pod_density=False)
    conversion = convert_documents(documents, options)
    assert conversion == convert_documents(documents, options)
    assert parse_manifests(render_conversion(conversion), "x").complaints == ()
    assert [complaints_about(manifest) for manifest in conversion.manifests] == [
        [] for _ in conversion.manifests
    ]
    assert all(note.target is None or note.target < len(conversion.manifests) for note in conversion.notes)

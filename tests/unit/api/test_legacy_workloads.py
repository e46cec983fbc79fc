"""Workloads that select nodes by old keys."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest

from dovetail.api.legacy import Conversion, NoteSeverity
from support.conversion import converted, notes_at

pytestmark = pytest.mark.spec("api-9")

OLD, NEW = "karpenter.sh/provisioner-name", "karpenter.sh/nodepool"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}


def rewritten(manifest: dict[str, Any]) -> Conversion:
    return converted(manifest, rewrite_workloads=True)


def spec_of(manifest: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = rewritten(manifest).manifests[0]["spec"]
    return spec


def test_nothing_is_rewritten_unless_asked_for() -> None:
    old = pod(nodeSelector={OLD: "a"})
    conversion = converted(old)
    assert conversion.manifests == (old,)
    assert conversion.notes == ()


def test_node_selectors_are_renamed_and_labels_that_are_gone_are_dropped() -> None:
    conversion = rewritten(pod(nodeSelector={OLD: "a", "karpenter.k8s.aws/instance-pods": "8", "x": "y"}))
    assert conversion.manifests[0]["spec"]["nodeSelector"] == {NEW: "a", "x": "y"}
    path = "spec.nodeSelector[karpenter.k8s.aws/instance-pods]"
    assert notes_at(conversion, path, NoteSeverity.WARNING)
    assert notes_at(conversion, f"spec.nodeSelector[{OLD}]", NoteSeverity.INFO)


def test_where_both_spellings_stand_the_new_one_stays() -> None:
    assert spec_of(pod(nodeSelector={OLD: "old", NEW: "new"}))["nodeSelector"] == {NEW: "new"}


def test_the_idiom_that_keeps_pods_off_karpenter_nodes_still_does() -> None:
    def affinity(key: str) -> dict[str, Any]:
        term = {"matchExpressions": [{"key": key, "operator": "DoesNotExist"}]}
        return {
            "nodeAffinity": {
                REQUIRED: {"nodeSelectorTerms": [term]},
                PREFERRED: [{"weight": 1, "preference": term}],
            }
        }

    assert spec_of(pod(affinity=affinity(OLD)))["affinity"] == affinity(NEW)


def test_expressions_over_labels_that_are_gone_are_left_out() -> None:
    gone = {"key": "karpenter.k8s.aws/instance-ami-id", "operator": "Exists"}
    kept = {"key": "a", "operator": "Exists"}
    term = {"matchExpressions": [gone, kept]}
    made = spec_of(pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}}))
    assert made["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == [{"matchExpressions": [kept]}]


@pytest.mark.parametrize("kind", ["podAffinity", "podAntiAffinity"])
def test_topology_keys_of_affinities_are_renamed(kind: str) -> None:
    def affinity(key: str) -> dict[str, Any]:
        return {
            kind: {
                REQUIRED: [{"topologyKey": key}],
                PREFERRED: [{"weight": 1, "podAffinityTerm": {"topologyKey": key}}],
            }
        }

    assert spec_of(pod(affinity=affinity(OLD)))["affinity"] == affinity(NEW)


def test_topology_keys_of_spreads_are_renamed() -> None:
    made = spec_of(pod(topologySpreadConstraints=[{"topologyKey": OLD, "maxSkew": 1}]))
    assert made["topologySpreadConstraints"] == [{"topologyKey": NEW, "maxSkew": 1}]


def test_pod_annotations_are_renamed() -> None:
    old = pod() | {"metadata": {"name": "p", "annotations": {"karpenter.sh/do-not-evict": "true"}}}
    made = rewritten(old).manifests[0]
    assert made["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


def test_node_annotations_are_renamed() -> None:
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "n", "annotations": {"karpenter.sh/do-not-consolidate": "true"}},
    }
    assert rewritten(node).manifests[0]["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}


def test_tolerations_of_the_beta_taint_tolerate_the_v1_taint() -> None:
    beta = {
        "key": "karpenter.sh/disruption",
        "operator": "Equal",
        "value": "disrupting",
        "effect": "NoSchedule",
    }
    assert spec_of(pod(tolerations=[beta]))["tolerations"] == [
        {"key": "karpenter.sh/disrupted", "operator": "Exists", "effect": "NoSchedule"}
    ]


def test_tolerations_of_cordoned_nodes_stay_and_the_new_taint_is_mentioned() -> None:
    cordoned = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}
    conversion = rewritten(pod(tolerations=[cordoned]))
    assert conversion.manifests[0]["spec"]["tolerations"] == [cordoned]
    assert any("karpenter.sh/disrupted" in note.message for note in conversion.notes)


@pytest.mark.parametrize(
    ("kind", "version", "steps"),
    [
        ("Deployment", "apps/v1", ("spec", "template")),
        ("ReplicaSet", "apps/v1", ("spec", "template")),
        ("StatefulSet", "apps/v1", ("spec", "template")),
        ("DaemonSet", "apps/v1", ("spec", "template")),
        ("ReplicationController", "v1", ("spec", "template")),
        ("Job", "batch/v1", ("spec", "template")),
        ("CronJob", "batch/v1", ("spec", "jobTemplate", "spec", "template")),
        ("PodTemplate", "v1", ("template",)),
        ("Rollout", "argoproj.io/v1alpha1", ("spec", "template")),
    ],
)
def test_every_workload_kind_is_rewritten_in_its_pod_template(
    kind: str, version: str, steps: tuple[str, ...]
) -> None:
    inner: dict[str, Any] = {
        "metadata": {"annotations": {"karpenter.sh/do-not-evict": "true"}},
        "spec": {"nodeSelector": {OLD: "a"}},
    }
    for step in reversed(steps):
        inner = {step: inner}
    old = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}} | inner
    before = deepcopy(old)
    found: Any = rewritten(old).manifests[0]
    for step in steps:
        found = found[step]
    assert found["spec"]["nodeSelector"] == {NEW: "a"}
    assert found["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "true"}
    assert old == before


def test_a_workload_without_old_keys_is_the_very_same() -> None:
    conversion = rewritten(pod(nodeSelector={"a": "b"}, tolerations=[{"operator": "Exists"}]))
    assert conversion.manifests == (pod(nodeSelector={"a": "b"}, tolerations=[{"operator": "Exists"}]),)
    assert conversion.notes == ()

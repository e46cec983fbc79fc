"""Kubelet settings move from pools to classes, and classes multiply where pools differ."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api.legacy import Conversion, NoteSeverity
from support.conversion import (
    beta_class,
    beta_pool,
    converted,
    node_class,
    notes_at,
    only,
    provisioner,
    template,
)

pytestmark = pytest.mark.spec("api-9")

T = {"providerRef": {"name": "t"}}


def refs(conversion: Conversion) -> dict[str, str]:
    """Which class each pool or claim uses."""
    found = {}
    for manifest in conversion.manifests:
        spec = manifest["spec"]
        if manifest["kind"] in ("NodePool", "NodeClaim"):
            body = spec.get("template", {}).get("spec") or spec
            found[manifest["metadata"]["name"]] = body["nodeClassRef"]["name"]
    return found


def kubelets(conversion: Conversion) -> dict[str, dict[str, Any] | None]:
    classes = [m for m in conversion.manifests if m["kind"] == "EC2NodeClass"]
    return {m["metadata"]["name"]: m["spec"].get("kubelet") for m in classes}


def test_a_single_block_moves_to_the_class() -> None:
    conversion = converted(template("t"), provisioner("a", kubeletConfiguration={"maxPods": 20}, **T))
    assert kubelets(conversion) == {"t": {"maxPods": 20}}
    assert "kubelet" not in only(conversion, "NodePool")["spec"]["template"]["spec"]


def test_every_distinct_block_gets_a_class_and_equal_blocks_share_one() -> None:
    conversion = converted(
        provisioner("a", kubeletConfiguration={"maxPods": 20, "podsPerCore": 2}, **T),
        template("t"),
        provisioner("b", kubeletConfiguration={"podsPerCore": 2, "maxPods": 20}, **T),
        provisioner("c", **T),
        provisioner("d", kubeletConfiguration={"maxPods": 30}, **T),
    )
    assert refs(conversion) == {"a": "t", "b": "t", "c": "t-c", "d": "t-d"}
    assert kubelets(conversion) == {
        "t": {"maxPods": 20, "podsPerCore": 2},
        "t-c": None,
        "t-d": {"maxPods": 30},
    }
    assert any("t, t-c, t-d" in note.message for note in conversion.notes if note.kind == "AWSNodeTemplate")


def test_a_new_class_takes_no_name_that_is_taken() -> None:
    conversion = converted(
        template("t"),
        template("t-b"),
        provisioner("a", **T),
        provisioner("b", kubeletConfiguration={"maxPods": 1}, **T),
    )
    assert refs(conversion) == {"a": "t", "b": "t-b-2"}
    assert kubelets(conversion).keys() == {"t", "t-b", "t-b-2"}


def test_a_template_nobody_uses_is_converted_all_the_same() -> None:
    assert kubelets(converted(template("t"))) == {"t": None}


def test_the_runtime_is_dropped_and_docker_is_mourned() -> None:
    assert "kubelet" not in node_class(provisioner(kubeletConfiguration={"containerRuntime": "containerd"}))
    conversion = converted(provisioner(kubeletConfiguration={"containerRuntime": "dockerd", "maxPods": 5}))
    assert only(conversion, "EC2NodeClass")["spec"]["kubelet"] == {"maxPods": 5}
    assert notes_at(conversion, "spec.kubeletConfiguration.containerRuntime", NoteSeverity.WARNING)


def test_every_alpha_member_is_carried_over() -> None:
    block = {
        "clusterDNS": ["10.0.0.10"], "maxPods": 20, "podsPerCore": 2, "systemReserved": {"cpu": "100m"},
        "kubeReserved": {"memory": "1Gi"}, "evictionHard": {"memory.available": "5%"},
        "evictionSoft": {"nodefs.available": "10%"}, "evictionSoftGracePeriod": {"nodefs.available": "1m0s"},
        "evictionMaxPodGracePeriod": 60, "imageGCHighThresholdPercent": 85, "imageGCLowThresholdPercent": 80,
        "cpuCFSQuota": True,
    }  # fmt: skip
    assert node_class(provisioner(kubeletConfiguration=block))["kubelet"] == block


def test_amounts_given_as_numbers_become_text_and_unknown_members_are_named() -> None:
    conversion = converted(provisioner(kubeletConfiguration={"kubeReserved": {"cpu": 1}, "typo": 1}))
    assert only(conversion, "EC2NodeClass")["spec"]["kubelet"] == {"kubeReserved": {"cpu": "1"}}
    assert notes_at(conversion, "spec.kubeletConfiguration.typo", NoteSeverity.WARNING)


def test_beta_pools_hand_their_kubelet_to_the_class_too() -> None:
    conversion = converted(
        beta_pool("a", template_kubelet={"maxPods": 110}), beta_pool("b"), beta_class("default")
    )
    assert refs(conversion) == {"a": "default", "b": "default-b"}
    assert kubelets(conversion) == {"default": {"maxPods": 110}, "default-b": None}


def test_a_v1_class_stays_as_it_is_and_gets_a_copy() -> None:
    v1 = only(converted(beta_class("default")), "EC2NodeClass")
    conversion = converted(v1, beta_pool("a", template_kubelet={"maxPods": 110}), beta_pool("b"))
    assert refs(conversion) == {"a": "default-a", "b": "default"}
    assert conversion.manifests[0] == v1
    assert kubelets(conversion) == {"default": None, "default-a": {"maxPods": 110}}


def test_a_class_that_a_v1_pool_uses_keeps_its_name_for_it() -> None:
    v1 = only(converted(beta_pool("v", {"name": "t"}), beta_class("t")), "NodePool")
    conversion = converted(template("t"), provisioner("a", kubeletConfiguration={"maxPods": 1}, **T), v1)
    assert refs(conversion) == {"a": "t-a", "v": "t"}


def test_an_inline_class_gives_way_to_a_template_of_the_same_name() -> None:
    conversion = converted(template("default"), provisioner("default"))
    assert refs(conversion) == {"default": "default-2"}
    assert kubelets(conversion).keys() == {"default", "default-2"}

"""Of an object that cannot be read, what can be is kept, and it says that it is set aside."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from dovetail.api import codec
from dovetail.api.bad_items import reason_of
from dovetail.api.core import Node
from dovetail.api.meta import Kind, Object
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.salvage import find_losses, salvage_object
from support.builders import node, nodeclaim, nodepool, pod


def spoiled(obj: Object, value: Any, *path: str | int) -> dict[str, Any]:
    """The object's document with one value exchanged."""
    document = codec.to_dict(obj)
    at: Any = document
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return document


class Fragile(Object, frozen=True):
    """A kind whose repair fails on some documents."""

    KIND: ClassVar[Kind] = Kind("example.com", "v1", "Fragile", "fragiles")
    MENDED: ClassVar[Callable[[Any], Any] | None] = lambda document: document["spec"]["missing"]

    size: int = 0


@pytest.mark.contains_bugs
def test_an_object_that_fails_in_a_way_nobody_thought_of_hides_no_other() -> None:
    items = [{"metadata": {"name": "bad"}, "size": "large"}, {"metadata": {"name": "good"}, "size": 3}]
    listed = codec.decode_list(Fragile, json.dumps({"items": items}).encode()).items
    assert [(each.name, each.size, bool(reason_of(each))) for each in listed] == [
        ("bad", 0, True),
        ("good", 3, False),
    ]


@pytest.mark.parametrize("kubelet", ["large", 7, ["maxPods"], True])
def test_a_kubelet_section_that_is_no_object_keeps_no_class_from_being_read(kubelet: Any) -> None:
    items = [{"metadata": {"name": "bad"}, "spec": {"kubelet": kubelet}}, {"metadata": {"name": "good"}}]
    listed = codec.decode_list(EC2NodeClass, json.dumps({"items": items}).encode()).items
    assert [each.name for each in listed] == ["bad", "good"]
    assert reason_of(listed[0]).startswith("spec.kubelet cannot be read")


def test_the_fields_that_are_lost_are_told_one_by_one() -> None:
    odd = spoiled(pod("a"), [{"resources": {"requests": {"cpu": "many"}}}, 7], "spec", "containers")
    assert [loss.path for loss in find_losses(Pod, odd)] == [
        "spec.containers[0].resources.requests[cpu]",
        "spec.containers[1]",
    ]
    assert find_losses(Pod, codec.to_dict(pod("a"))) == ()


def test_a_condition_from_before_our_calendar_costs_a_node_its_date_and_nothing_else() -> None:
    """Go reads the year 0, and Python has none."""
    whole = node("a")
    odd = spoiled(whole, "0000-01-01T00:00:00Z", "status", "conditions", 0, "lastTransitionTime")
    kept = salvage_object(Node, odd)
    assert kept is not None
    assert "status.conditions[0].lastTransitionTime cannot be read" in reason_of(kept)
    assert kept.status.conditions[0].last_transition_time is None
    assert kept.status.conditions[0].type == whole.status.conditions[0].type
    assert (kept.spec, kept.status.allocatable) == (whole.spec, whole.status.allocatable)


def test_a_bound_pod_that_cannot_be_read_is_still_on_its_node() -> None:
    odd = spoiled(pod("web", node="a"), "much", "spec", "containers", 0, "resources", "requests", "cpu")
    odd["metadata"]["annotations"] = {"example.com/note": "x", "karpenter.sh/do-not-disrupt": "true"}
    kept = salvage_object(Pod, odd)
    assert kept is not None
    assert (kept.full_name, kept.node_name) == ("default/web", "a")
    assert "spec.containers[0].resources.requests[cpu] cannot be read" in reason_of(kept)
    assert "memory" in kept.spec.containers[0].resources.requests
    assert "example.com/note" not in kept.annotations
    assert kept.annotations["karpenter.sh/do-not-disrupt"] == "true"


def test_a_claim_that_cannot_be_read_still_names_its_machine() -> None:
    kept = salvage_object(NodeClaim, spoiled(nodeclaim("c", node="a"), 7, "spec", "expireAfter"))
    assert kept is not None
    assert kept.status.provider_id == nodeclaim("c", node="a").status.provider_id


def test_what_has_no_name_is_nothing() -> None:
    assert salvage_object(NodePool, spoiled(nodepool(), 5, "metadata", "name")) is None
    assert salvage_object(NodePool, "text") is None


def test_several_losses_are_counted_and_long_ones_are_cut() -> None:
    odd = spoiled(nodepool(), "x" * 100_000, "spec", "weight")
    odd["spec"]["template"]["spec"]["taints"] = "none"
    kept = salvage_object(NodePool, odd)
    assert kept is not None
    assert ", and 1 more" in reason_of(kept)
    assert len(reason_of(kept)) < 400


@pytest.mark.parametrize("depth", [100, 500])
def test_a_document_nested_without_end_is_one_bad_item(depth: int) -> None:
    inner = "[" * depth + "]" * depth
    good = json.dumps(codec.to_dict(nodepool("good")))
    bad = '{"metadata": {"name": "bad"}, "spec": {"limits": ' + inner + "}}"
    listed = codec.decode_list(NodePool, f'{{"items": [{bad}, {good}]}}'.encode())
    assert [each.name for each in listed.items][-1] == "good"


def test_one_item_of_a_list_that_cannot_be_read_leaves_the_others_whole() -> None:
    odd = spoiled(node("odd"), "none", "spec", "taints")
    page = {"items": [codec.to_dict(node("a")), odd, codec.to_dict(node("b"))], "metadata": {}}
    listed = codec.decode_list(Node, json.dumps(page).encode()).items
    assert [each.name for each in listed] == ["a", "odd", "b"]
    assert [bool(reason_of(each)) for each in listed] == [False, True, False]

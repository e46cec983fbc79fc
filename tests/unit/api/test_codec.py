"""The codec at its edges: times, nulls, watch lines, errors, and objects of a later version."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.codec import (
    Interner,
    convert,
    decode,
    decode_list,
    encode,
    merge_patch,
    overlay_document,
    to_dict,
)
from dovetail.api.core import Event, Lease, LeaseSpec, Node
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.nodeclass import EC2NodeClass
from dovetail.api.nodepool import NodePool, NodePoolStatus, Requirement
from dovetail.api.pod import Pod
from dovetail.api.quantity import Quantity
from dovetail.errors import BadInput
from support.builders import NOW, condition, node, nodepool, pod, taint

LATER: dict[str, Any] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "later", "labels": {"karpenter.k8s.aws/nitro-sandbox": "true"}},
    "spec": {
        "role": "nodes",
        "kubelet": {"maxPods": "max(110, ips_per_eni * 2)", "shutdownGracePeriod": "30s"},
        "amiSelectorTerms": [{"alias": "al2023@latest", "futureField": 1}],
        "blockDeviceMappings": [
            {"deviceName": "/dev/xvda", "ebs": {"volumeSize": "20Gi", "tiering": "auto"}}
        ],
    },
}


@pytest.mark.spec("api-10.10")
def test_an_object_of_the_next_line_survives_a_change() -> None:
    before = convert(EC2NodeClass, LATER)
    after = replace(before, spec=replace(before.spec, role="other", detailed_monitoring=True))
    changed = overlay_document(LATER, before, after)
    assert changed == LATER | {"spec": LATER["spec"] | {"role": "other", "detailedMonitoring": True}}
    assert before.spec.kubelet is not None
    assert before.spec.kubelet.max_pods == "max(110, ips_per_eni * 2)"


@pytest.mark.spec("api-10.10")
def test_a_label_of_the_next_line_survives_a_change_to_a_pool() -> None:
    raw = to_dict(nodepool(requirements=[("karpenter.k8s.aws/nitro-sandbox", "In", "true")]))
    raw["spec"]["template"]["spec"]["requirements"][0]["weightInTheFuture"] = 3
    before = convert(NodePool, raw)
    template = before.spec.template
    requirements = (
        Requirement(key="kubernetes.io/arch", operator="Exists"),
        *(template.spec.requirements or ()),
    )
    after_spec = replace(
        before.spec, template=replace(template, spec=replace(template.spec, requirements=requirements))
    )
    changed = overlay_document(raw, before, replace(before, spec=after_spec))
    assert changed["spec"]["template"]["spec"]["requirements"] == [
        {"key": "kubernetes.io/arch", "operator": "Exists"},
        {
            "key": "karpenter.k8s.aws/nitro-sandbox",
            "operator": "In",
            "values": ["true"],
            "weightInTheFuture": 3,
        },
    ]


def test_what_a_patch_takes_away_is_null_and_the_rest_of_the_object_stays() -> None:
    before = node(taints=[taint("a")], unschedulable=True)
    after = replace(before, spec=replace(before.spec, taints=(), unschedulable=False, provider_id=""))
    assert merge_patch(before, after) == {"spec": {"taints": None, "unschedulable": None, "providerID": None}}


def test_a_patch_names_only_the_label_that_changed() -> None:
    before = node(labels={"a": "1", "b": "2"})
    labels = {name: value for name, value in before.labels.items() if name != "a"} | {"b": "3"}
    after = replace(before, metadata=replace(before.metadata, labels=labels))
    assert merge_patch(before, after) == {"metadata": {"labels": {"a": None, "b": "3"}}}


def test_times_are_whole_seconds_except_where_the_api_wants_microseconds() -> None:
    moment = datetime(2026, 6, 1, 12, 0, 0, 123456, tzinfo=UTC)
    lease = Lease(metadata=ObjectMeta(creation_timestamp=moment), spec=LeaseSpec(renew_time=moment))
    document = to_dict(lease)
    assert document["metadata"]["creationTimestamp"] == "2026-06-01T12:00:00Z"
    assert document["spec"]["renewTime"] == "2026-06-01T12:00:00.123456Z"
    assert to_dict(Event(event_time=NOW))["eventTime"] == "2026-06-01T12:00:00.000000Z"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-06-01T12:00:00Z", NOW),
        ("2026-06-01T14:00:00+02:00", NOW),
        ("2026-06-01T12:00:00.000000Z", NOW),
        ("2026-06-01T12:00:00.123456789Z", NOW.replace(microsecond=123457)),
    ],
)
def test_times_are_read_in_every_form_the_api_writes(text: str, expected: datetime) -> None:
    read = convert(Lease, {"spec": {"renewTime": text}}).spec.renew_time
    assert read is not None
    assert abs((read - expected).total_seconds()) <= 1e-6


def test_a_condition_is_written_with_all_the_fields_the_api_insists_on() -> None:
    pool = NodePool(status=NodePoolStatus(conditions=(Condition(type="Ready", reason="R"),)))
    assert to_dict(pool)["status"]["conditions"] == [
        {"type": "Ready", "status": "Unknown", "reason": "R", "message": ""}
    ]


def test_amounts_may_be_numbers_or_texts() -> None:
    pool = convert(NodePool, {"spec": {"limits": {"cpu": 10, "memory": "20Gi", "nodes": 2.5}}})
    assert [str(amount) for amount in pool.spec.limits.values()] == ["10", "20Gi", "2500m"]
    assert pool.spec.limits["cpu"] == Quantity.parse("10000m")


def test_nulls_are_tolerated_deep_inside_a_pod() -> None:
    document = {
        "metadata": {"name": "p", "labels": None, "annotations": None, "ownerReferences": None},
        "spec": {
            "containers": [{"name": "app", "resources": None, "ports": [None]}],
            "tolerations": None,
            "affinity": None,
            "volumes": [None],
        },
        "status": {"phase": None, "conditions": [None], "containerStatuses": None},
    }
    read = convert(Pod, document)
    assert read.name == "p"
    assert read.spec.containers[0].name == "app"
    assert read.spec.containers[0].ports == ()


def test_pods_of_one_owner_hold_the_same_spec_and_their_own_node() -> None:
    table = Interner()
    one, two = (pod(name, node=f"node-{name}", labels={"app": "web"}) for name in ("a", "b"))
    first, second = (decode(Pod, encode(each), table) for each in (one, two))
    assert (first, second) == (one, two)
    assert first.spec is second.spec
    assert first.labels is second.labels
    assert (first.node_name, second.node_name) == ("node-a", "node-b")
    assert len(table) == 1


def test_a_pod_keeps_only_what_is_read_of_it() -> None:
    raw = to_dict(pod(annotations={"karpenter.sh/do-not-disrupt": "true"}, node="n"))
    raw["metadata"]["annotations"]["example.com/checksum"] = "x" * 64
    raw["spec"]["volumes"] = [{"name": "tmp", "emptyDir": {}}]
    raw["status"]["conditions"].append({"type": "ContainersReady", "status": "True"})
    kept = convert(Pod, raw)
    assert kept.annotations == {"karpenter.sh/do-not-disrupt": "true"}
    assert kept.spec.volumes == ()
    assert [c.type for c in kept.status.conditions] == ["PodScheduled", "Ready"]


def test_a_pod_being_resized_has_a_status_of_its_own() -> None:
    table = Interner()
    raw = to_dict(pod("a", node="n"))
    raw["status"]["containerStatuses"] = [{"name": "app", "allocatedResources": {"cpu": "1"}}]
    settled = convert(Pod, raw, table)
    raw["status"]["containerStatuses"] = [{"name": "app", "allocatedResources": {"cpu": "2"}}]
    resized = convert(Pod, raw, table)
    assert settled.spec is resized.spec
    assert resized.status.container_statuses[0].allocated_resources == {"cpu": Quantity.parse("2")}


def test_a_list_says_where_to_go_on() -> None:
    page = b'{"metadata":{"resourceVersion":"9","continue":"x","remainingItemCount":3},"items":null}'
    nodes, meta = decode_list(Node, page)
    assert nodes == []
    assert (meta.resource_version, meta.continue_token, meta.remaining_item_count) == ("9", "x", 3)


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        (b"{", "this is not JSON"),
        (b'{"spec":3}', r"Expected `object`, got `int` - at `\$\.spec`"),
        (b'{"spec":{"limits":{"cpu":"ten"}}}', "'ten' is not a quantity"),
        (b'{"spec":{"limits":{"cpu":true}}}', "True is not a Quantity"),
    ],
)
def test_what_cannot_be_read_is_named_in_one_sentence(document: bytes, complaint: str) -> None:
    with pytest.raises(BadInput, match=complaint) as caught:
        decode(NodePool, document)
    assert str(caught.value).startswith("reading a NodePool: ")


def test_conditions_are_matched_by_type_when_a_document_changes() -> None:
    raw = to_dict(node())
    raw["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-06-01T12:00:00Z"
    before = convert(Node, raw)
    conditions = (condition("MemoryPressure", "False"), replace(before.status.conditions[0], status="False"))
    changed = overlay_document(
        raw, before, replace(before, status=replace(before.status, conditions=conditions))
    )
    pressure, ready = changed["status"]["conditions"]
    assert "lastHeartbeatTime" not in pressure
    assert ready == raw["status"]["conditions"][0] | {"status": "False"}

"""Which waiting pods are ours, and what keeps others from being placed."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.core import (
    CSIVolume,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeSpec,
    StorageClass,
    TopologySelectorTerm,
)
from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.pod import (
    EphemeralSource,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PersistentVolumeClaimSource,
    Pod,
    PodStatus,
    Volume,
)
from dovetail.api.predicates import is_provisionable
from dovetail.scheduling.model.snapshot import Storage
from dovetail.scheduling.sequential.pending_pods import OPTED_OUT
from support.builders import NOW, nodepool, owner, pod
from support.worlds import Z1, World, node_affinity


def with_reason(reason: str | None, **status: Any) -> Pod:
    conditions = (Condition(type="PodScheduled", status="False", reason=reason),) if reason else ()
    return replace(pod("web"), status=PodStatus(phase="Pending", conditions=conditions, **status))


@pytest.mark.spec("T-001", "T-002", "T-003", "T-004", "T-005")
@pytest.mark.parametrize(
    ("waiting", "ours"),
    [
        pytest.param(with_reason("Unschedulable"), True, id="T-001 given up by the scheduler"),
        pytest.param(with_reason(None), False, id="T-002 not seen by the scheduler"),
        pytest.param(with_reason("SchedulingGated"), False, id="T-003 gated"),
        pytest.param(with_reason("Unschedulable", nominated_node_name="n"), False, id="T-004 nominated"),
        pytest.param(pod(owned_by=owner("DaemonSet")), False, id="T-005 a daemon"),
        pytest.param(pod(owned_by=owner("Node", api_version="v1")), False, id="T-005 a static pod"),
        pytest.param(pod(owned_by=owner("Node")), True, id="T-005 an owner of another group"),
        pytest.param(pod(node="n"), False, id="bound"),
    ],
)
def test_a_pod_is_ours_when_it_waits_and_nobody_else_will_place_it(waiting: Pod, ours: bool) -> None:
    assert is_provisionable(waiting) == ours
    world = World()
    world.provision(waiting)
    assert (world.scheduled(waiting) == 1) == ours


@pytest.mark.spec("T-007", "T-008", "T-010", "T-012")
@pytest.mark.parametrize(
    "wishes",
    [
        pytest.param({"node_selector": {names.HOSTNAME: "red-node"}}, id="T-007 a hostname"),
        pytest.param({"affinity": node_affinity([("karpenter.sh/test", "Exists")])}, id="T-008 our domain"),
        pytest.param({"node_selector": {names.CAPACITY_TYPE: "unknown"}}, id="T-012 unknown capacity type"),
    ],
)
def test_a_pod_that_asks_for_what_cannot_be_asked_is_ignored(wishes: dict[str, Any]) -> None:
    world = World()
    plan = world.provision(pod("bad", **wishes), pod("good"))
    assert list(plan.ignored) == ["default/bad"]
    assert plan.ignored["default/bad"] != OPTED_OUT
    assert world.node_of("good") is not None


@pytest.mark.spec("T-010")
def test_field_selectors_are_refused() -> None:
    wanted = node_affinity([("a", "Exists")])
    assert wanted.node_affinity is not None
    assert wanted.node_affinity.required is not None
    by_name = NodeSelectorTerm(
        match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("n",)),)
    )
    terms = replace(wanted.node_affinity.required, node_selector_terms=(by_name,))
    affinity = replace(wanted, node_affinity=replace(wanted.node_affinity, required=terms))
    plan = World().solve(pod("web", affinity=affinity))
    assert "matchFields" in plan.ignored["default/web"]


@pytest.mark.spec("T-009")
@pytest.mark.parametrize("key", ["kubernetes.io/test", "sub.k8s.io/test"])
def test_labels_of_kubernetes_domains_are_fine_when_the_pool_has_them(key: str) -> None:
    world = World(nodepool(labels={key: "yes"}))
    world.provision(pod("web", affinity=node_affinity([(key, "In", "yes")])))
    assert world.labels_of("web")[key] == "yes"


@pytest.mark.spec("T-011")
def test_a_pod_that_wants_no_node_of_ours_is_left_alone_without_a_word() -> None:
    plan = World().solve(pod("web", affinity=node_affinity([(names.NODEPOOL, "DoesNotExist")])))
    assert plan.ignored == {"default/web": OPTED_OUT}
    assert not plan.unschedulable


@pytest.mark.spec("T-013")
@pytest.mark.parametrize("by_affinity", [False, True])
@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        (names.NODEPOOL, "default", True),
        (names.ZONE, Z1, True),
        (names.INSTANCE_TYPE, "small-instance-type", True),
        (names.ARCH, "arm64", True),
        (names.OS, "linux", True),
        (names.NODEPOOL, "unknown", False),
        (names.ZONE, "unknown", False),
        (names.INSTANCE_TYPE, "unknown", False),
        (names.ARCH, "unknown", False),
        (names.OS, "unknown", False),
        ("foo", "bar", False),
    ],
)
def test_a_selector_finds_values_that_exist(key: str, value: str, found: bool, by_affinity: bool) -> None:
    wishes: dict[str, Any] = {"affinity": node_affinity([(key, "In", value)])}
    wanting = pod("web", **(wishes if by_affinity else {"node_selector": {key: value}}))
    world = World()
    plan = world.provision(wanting)
    assert (world.scheduled(wanting) == 1) == found
    assert found or plan.unschedulable or plan.ignored


def claimed(name: str = "data") -> Volume:
    return Volume(name="v", persistent_volume_claim=PersistentVolumeClaimSource(claim_name=name))


def claim(
    name: str = "data",
    storage_class: str | None = None,
    volume: str = "",
    bound: bool = False,
    phase: str = "",
    deleting: bool = False,
) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            annotations={names.BIND_COMPLETED: "yes"} if bound else {},
            deletion_timestamp=NOW if deleting else None,
        ),
        spec=PersistentVolumeClaimSpec(storage_class_name=storage_class, volume_name=volume),
        status=PersistentVolumeClaimStatus(phase=phase),
    )


def storage(*claims: PersistentVolumeClaim, deleting: bool = False) -> Storage:
    gone = NOW if deleting else None
    volume = PersistentVolume(
        metadata=ObjectMeta(name="pv", deletion_timestamp=gone),
        spec=PersistentVolumeSpec(csi=CSIVolume(driver="bad.csi")),
    )
    topology = TopologySelectorTerm(
        match_label_expressions=(NodeSelectorRequirement(key="odd", operator="", values=("x",)),)
    )
    classes = (
        StorageClass(metadata=ObjectMeta(name="late"), volume_binding_mode="WaitForFirstConsumer"),
        StorageClass(metadata=ObjectMeta(name="early"), volume_binding_mode="Immediate"),
        StorageClass(metadata=ObjectMeta(name="bad"), provisioner="bad.csi"),
        StorageClass(metadata=ObjectMeta(name="odd"), allowed_topologies=(topology,)),
    )
    return Storage(
        claims={each.full_name: each for each in claims},
        volumes={"pv": volume},
        classes={each.name: each for each in classes},
    )


REFUSED: dict[str, Any] = {"unsupported_provisioners": frozenset({"bad.csi"})}
ODD: dict[str, Any] = {"unsupported_volume_keys": frozenset({"odd"})}


@pytest.mark.spec("T-006", "T-014", "T-015", "T-016", "T-017", "T-018", "T-019", "T-020", "T-021")
@pytest.mark.parametrize(
    ("there", "options", "placed"),
    [
        pytest.param(storage(), {}, False, id="T-006 unknown claim"),
        pytest.param(storage(claim(storage_class="")), {}, False, id="T-014 unbound, no class"),
        pytest.param(storage(claim(storage_class="", volume="pv", bound=True)), {}, True, id="T-014 bound"),
        pytest.param(storage(claim(storage_class="gone")), {}, False, id="T-015 unbound, missing class"),
        pytest.param(
            storage(claim(storage_class="gone", volume="pv", bound=True)), {}, True, id="T-015 bound"
        ),
        pytest.param(storage(claim(volume="none", bound=True)), {}, False, id="T-016 missing volume"),
        pytest.param(storage(claim(storage_class="early")), {}, False, id="T-017 immediate binding"),
        pytest.param(storage(claim(storage_class="late")), {}, True, id="T-017 binding when used"),
        pytest.param(storage(claim(storage_class="late", deleting=True)), {}, False, id="T-018 claim goes"),
        pytest.param(storage(claim(storage_class="late", phase="Lost")), {}, False, id="T-018 claim lost"),
        pytest.param(
            storage(claim(volume="pv", bound=True), deleting=True), {}, False, id="T-018 volume goes"
        ),
        pytest.param(storage(claim(volume="pv")), {}, False, id="T-019 binding not complete"),
        pytest.param(storage(claim(volume="pv", bound=True)), {}, True, id="T-019 binding complete"),
        pytest.param(storage(claim(storage_class="bad")), REFUSED, False, id="T-020 class"),
        pytest.param(storage(claim(volume="pv", bound=True)), REFUSED, False, id="T-020 driver"),
        pytest.param(storage(claim(storage_class="odd")), ODD, False, id="T-021 unsupported key"),
    ],
)
def test_a_claim_must_be_usable_before_its_pod_is_placed(
    there: Storage, options: dict[str, Any], placed: bool
) -> None:
    world = World(storage=there, **options)
    wanting, other = pod("web", volumes=(claimed(),)), pod("other")
    plan = world.provision(wanting, other)
    assert ("default/web" in plan.ignored) != placed
    assert world.scheduled(wanting, other) == (2 if placed else 1)


@pytest.mark.spec("T-022")
@pytest.mark.parametrize("there", [True, False])
def test_an_ephemeral_volume_uses_the_claim_named_after_pod_and_volume(there: bool) -> None:
    volume = Volume(name="scratch", ephemeral=EphemeralSource())
    bound = claim("web-scratch", volume="pv", bound=True)
    world = World(storage=storage(bound) if there else storage())
    wanting = pod("web", volumes=(volume,))
    world.provision(wanting)
    assert (world.scheduled(wanting) == 1) == there


@pytest.mark.spec("T-023", "T-024")
@pytest.mark.parametrize("state", ["terminating", "not ready"])
def test_a_pool_that_is_going_or_not_ready_makes_no_nodes(state: str) -> None:
    pool = nodepool(ready=state != "not ready")
    if state == "terminating":
        pool = replace(pool, metadata=replace(pool.metadata, deletion_timestamp=NOW))
    plan = World(pool).solve(pod("web"))
    assert plan.unschedulable == {"default/web": "no dynamic nodepools found"}


@pytest.mark.spec("T-034")
def test_a_hundred_pods_of_one_batch_are_all_decided() -> None:
    plan = World().solve(*(pod(f"web-{i}", cpu="10m", memory="10M") for i in range(100)))
    assert len(plan.decisions) == 100
    assert all(decision.place for decision in plan.decisions)

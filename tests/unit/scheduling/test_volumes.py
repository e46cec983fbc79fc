"""Volumes: where they let a pod run, and how many a node can attach."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.core import (
    CSIVolume,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    StorageClass,
    TopologySelectorTerm,
    VolumeNodeAffinity,
)
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import EphemeralSource, NodeSelector, PersistentVolumeClaimSource, Pod, Volume
from dovetail.scheduling.model.snapshot import Storage
from dovetail.scheduling.model.volumes import list_attachments
from support.builders import NOW, pod
from support.worlds import Z1, Z2, Z3, World, apart, expression, node_affinity, running, spread, term

ZONE, HOST = names.ZONE, names.HOSTNAME


def claim(name: str, storage_class: str | None = None, volume: str = "") -> PersistentVolumeClaim:
    return PersistentVolumeClaim(
        metadata=ObjectMeta(name=name, namespace="default", annotations={names.BIND_COMPLETED: "yes"}),
        spec=PersistentVolumeClaimSpec(storage_class_name=storage_class, volume_name=volume),
    )


def volume(name: str, *terms: Sequence[tuple[str, ...]], **spec: Any) -> PersistentVolume:
    """A volume reachable where one of the terms holds."""
    selector = NodeSelector(node_selector_terms=tuple(term(*each) for each in terms))
    return PersistentVolume(
        metadata=ObjectMeta(name=name),
        spec=PersistentVolumeSpec(node_affinity=VolumeNodeAffinity(required=selector), **spec),
    )


def storage_class(
    name: str, *zones: Sequence[str], provisioner: str = "csi", default: bool = False, age: int = 0
) -> StorageClass:
    """A class whose volumes lie in one of these sets of zones."""
    allowed = tuple(
        TopologySelectorTerm(match_label_expressions=(expression(ZONE, "", *each),)) for each in zones
    )
    return StorageClass(
        metadata=ObjectMeta(
            name=name,
            annotations={names.DEFAULT_STORAGE_CLASS: "true"} if default else {},
            creation_timestamp=NOW - timedelta(days=age),
        ),
        provisioner=provisioner,
        volume_binding_mode="WaitForFirstConsumer",
        allowed_topologies=allowed,
    )


def storage(*things: PersistentVolumeClaim | PersistentVolume | StorageClass) -> Storage:
    return Storage(
        claims={each.full_name: each for each in things if isinstance(each, PersistentVolumeClaim)},
        volumes={each.name: each for each in things if isinstance(each, PersistentVolume)},
        classes={each.name: each for each in things if isinstance(each, StorageClass)},
    )


def using(name: str, *claims: str, ephemeral: bool = False, **more: Any) -> Pod:
    sources = tuple(
        Volume(name=each, ephemeral=EphemeralSource())
        if ephemeral
        else Volume(name=each, persistent_volume_claim=PersistentVolumeClaimSource(claim_name=each))
        for each in claims
    )
    return pod(name, cpu="10m", memory="10M", volumes=sources, **more)


def zones(*allowed: str) -> dict[str, Any]:
    return {"affinity": node_affinity([(ZONE, "In", *allowed)])}


@pytest.mark.spec("T-170", "T-171")
@pytest.mark.parametrize(
    ("there", "wishes", "zone"),
    [
        pytest.param([claim("data", "sc"), storage_class("sc", (Z2, Z3))], zones(Z1, Z3), Z3, id="T-170"),
        pytest.param([claim("data", "sc"), storage_class("sc", (Z2, Z3))], zones(Z1), None, id="T-170 none"),
        pytest.param([claim("data", volume="pv"), volume("pv", [(ZONE, "In", Z3)])], {}, Z3, id="T-171"),
        pytest.param(
            [claim("data", volume="pv"), volume("pv", [(ZONE, "In", Z3)])], zones(Z1), None, id="T-171 none"
        ),
    ],
)
@pytest.mark.parametrize("ephemeral", [False, True])
def test_a_pod_goes_where_its_volumes_can_be_reached(
    there: list[Any], wishes: dict[str, Any], zone: str | None, ephemeral: bool
) -> None:
    if ephemeral:
        own, *rest = there
        there = [claim("web-data", own.spec.storage_class_name, own.spec.volume_name), *rest]
    world = World(storage=storage(*there))
    world.provision(using("web", "data", ephemeral=ephemeral, **wishes))
    assert (world.zone_of("web") if world.node_of("web") else None) == zone


@pytest.mark.spec("T-172", "T-173")
@pytest.mark.parametrize(
    ("kind", "terms", "placed"),
    [
        ({"local": {"path": "/x"}}, [[(HOST, "In", "gone")]], True),
        ({"host_path": {"path": "/x"}}, [[(HOST, "In", "gone")]], True),
        ({"csi": CSIVolume(driver="csi")}, [[(HOST, "In", "gone")]], False),
        ({"local": {"path": "/x"}}, [[(HOST, "In", "gone")], [(ZONE, "In", "nowhere")]], True),
        ({"host_path": {"path": "/x"}}, [[(HOST, "In", "gone")], [(ZONE, "In", "nowhere")]], True),
    ],
)
def test_a_machine_named_by_a_local_volume_is_forgotten(
    kind: dict[str, Any], terms: list[Any], placed: bool
) -> None:
    world = World(storage=storage(claim("data", volume="pv"), volume("pv", *terms, **kind)))
    world.provision(using("web", "data"))
    assert (world.node_of("web") is not None) == placed


@pytest.mark.spec("T-174")
def test_a_volumes_zone_outlives_the_alternatives_of_its_pod() -> None:
    affinity = node_affinity([("unsupported", "Exists")], [(names.CAPACITY_TYPE, "In", "on-demand")])
    world = World(storage=storage(claim("data", volume="pv"), volume("pv", [(ZONE, "In", Z3)])))
    world.provision(using("web", "data", affinity=affinity))
    assert world.zone_of("web") == Z3


@pytest.mark.spec("T-175")
@pytest.mark.parametrize("by_class", [False, True])
def test_a_volume_reachable_from_two_zones_leaves_the_choice(by_class: bool) -> None:
    if by_class:
        there = storage(claim("data", "sc"), storage_class("sc", (Z1,), (Z2,)))
    else:
        there = storage(claim("data", volume="pv"), volume("pv", [(ZONE, "In", Z1)], [(ZONE, "In", Z2)]))
    world = World(storage=there)
    wishes: dict[str, Any] = {"labels": {"app": "web"}, "affinity": apart(ZONE, app="web")}
    world.provision(using("one", "data", **wishes), using("two", "data", **wishes))
    assert {world.zone_of("one"), world.zone_of("two")} == {Z1, Z2}


@pytest.mark.spec("T-176")
def test_the_one_combination_of_volumes_that_works_is_found() -> None:
    there = storage(
        claim("a", "first"), claim("b", "second"), storage_class("first", (Z1,), (Z2,)),
        storage_class("second", (Z3,), (Z2,)),
    )  # fmt: skip
    world = World(storage=there)
    world.provision(using("web", "a", "b"))
    assert world.zone_of("web") == Z2


@pytest.mark.spec("T-177")
def test_volumes_do_not_narrow_what_a_spread_counts() -> None:
    world = World(storage=storage(claim("data", volume="pv"), volume("pv", [(ZONE, "In", Z1)])))
    labels = {"app": "web"}
    rule = (spread(ZONE, min_domains=3),)
    world.provision(
        *(pod(f"w{i}", labels=labels, node_selector={ZONE: z}) for i, z in enumerate((Z1, Z2, Z3)))
    )
    world.provision(using("web", "data", labels=labels, topology_spread_constraints=rule))
    assert world.zone_of("web") == Z1
    assert world.skew(ZONE, app="web") == [2, 1, 1]


ROOMY = {"cpu": "100", "memory": "100Gi", "pods": "200"}


@pytest.mark.spec("T-178")
def test_a_node_attaches_no_more_volumes_than_its_driver_can() -> None:
    claims = [claim(f"c{i}", "sc") for i in range(12)]
    node = running("n", capacity=ROOMY, volume_limits={"csi": 10})
    world = World(nodes=[node], storage=storage(*claims, storage_class("sc")))
    plan = world.solve(*(using(f"web-{i}", f"c{2 * i}", f"c{2 * i + 1}") for i in range(6)))
    assert len(plan.existing["n"]) == 5
    assert len(plan.new_nodes) == 1


@pytest.mark.spec("T-179")
def test_a_shared_claim_counts_once_and_volumes_without_a_driver_not_at_all() -> None:
    node = running("n", capacity=ROOMY, volume_limits={"csi": 1})
    shared = storage(claim("data", "sc"), storage_class("sc"))
    plan = World(nodes=[node], storage=shared).solve(*(using(f"w{i}", "data") for i in range(100)))
    assert len(plan.existing["n"]) == 100
    nfs = [volume(f"pv{i}") for i in range(5)]
    there = storage(*nfs, *(claim(f"c{i}", volume=f"pv{i}") for i in range(5)))
    plan = World(nodes=[node], storage=there).solve(*(using(f"w{i}", f"c{i}") for i in range(5)))
    assert len(plan.existing["n"]) == 5


@pytest.mark.spec("T-180")
@pytest.mark.parametrize("kind", ["named", "default", "newest default"])
def test_an_ephemeral_volume_counts_against_its_class(kind: str) -> None:
    classes = [storage_class("fast", provisioner="fast.csi", default=kind != "named")]
    if kind == "newest default":
        classes.append(storage_class("old", provisioner="old.csi", default=True, age=9))
    name = "fast" if kind == "named" else None
    there = storage(*classes, claim("web-scratch", name))
    assert list_attachments(using("web", "scratch", ephemeral=True), there) == {
        "fast.csi": frozenset({"default/web-scratch"})
    }


@pytest.mark.spec("T-180")
def test_the_second_ephemeral_volume_needs_a_new_node_when_one_is_the_limit() -> None:
    there = storage(storage_class("fast"), *(claim(f"w{i}-scratch", "fast") for i in range(2)))
    world = World(nodes=[running("n", capacity=ROOMY, volume_limits={"csi": 1})], storage=there)
    plan = world.solve(*(using(f"w{i}", "scratch", ephemeral=True) for i in range(2)))
    assert (len(plan.existing["n"]), len(plan.new_nodes)) == (1, 1)


@pytest.mark.spec("T-181")
@pytest.mark.parametrize("by_class", [False, True])
def test_in_tree_ebs_volumes_count_against_the_csi_driver(by_class: bool) -> None:
    there = (
        storage(claim("data", "gp2"), storage_class("gp2", provisioner="kubernetes.io/aws-ebs"))
        if by_class
        else storage(claim("data", volume="pv"), volume("pv", aws_elastic_block_store={"volumeID": "v"}))
    )
    assert list(list_attachments(using("web", "data"), there)) == ["ebs.csi.aws.com"]


@pytest.mark.parametrize("by_class", [False, True])
def test_a_drivers_own_name_for_zones_is_understood(by_class: bool) -> None:
    key = "topology.ebs.csi.aws.com/zone"
    topology = TopologySelectorTerm(match_label_expressions=(expression(key, "", Z2),))
    made = StorageClass(metadata=ObjectMeta(name="ebs"), allowed_topologies=(topology,))
    there = (
        storage(claim("data", "ebs"), made)
        if by_class
        else storage(claim("data", volume="pv"), volume("pv", [(key, "In", Z2)]))
    )
    world = World(storage=there)
    world.provision(using("web", "data"))
    assert world.zone_of("web") == Z2


def test_a_claim_without_a_class_counts_against_the_newest_default_class() -> None:
    there = storage(
        claim("data"),
        storage_class("plain", provisioner="plain.csi"),
        storage_class("old", provisioner="old.csi", default=True, age=2),
        storage_class("new", provisioner="new.csi", default=True, age=1),
    )
    assert list_attachments(using("web", "data"), there) == {"new.csi": {"default/data"}}


def test_a_claim_that_wants_no_class_counts_against_none() -> None:
    there = storage(claim("data", ""), storage_class("default", provisioner="csi", default=True))
    assert list_attachments(using("web", "data"), there) == {}


def test_a_class_marked_false_is_no_default() -> None:
    unmarked = storage_class("sc", provisioner="csi", default=True)
    notes = {names.DEFAULT_STORAGE_CLASS: "false"}
    unmarked = replace(unmarked, metadata=replace(unmarked.metadata, annotations=notes))
    assert list_attachments(using("web", "data"), storage(claim("data"), unmarked)) == {}

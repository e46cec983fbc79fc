"""Labels and requirements of pools, and what pods may ask of them."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.api.nodepool import NodePool
from dovetail.scheduling.model.plan import NodeClaimOptions
from support.builders import nodepool, pod
from support.worlds import INTEGER, SIZE, SPECIAL, Z1, Z2, Z3, World, node_affinity, series


def asking(*conditions: tuple[str, ...], **more: Any) -> dict[str, Any]:
    return {"affinity": node_affinity(list(conditions), **more)}


@pytest.mark.spec("T-058")
def test_a_nodes_labels_include_the_pools() -> None:
    world = World(nodepool(labels={"k": "v"}))
    world.provision(pod("web"))
    assert world.labels_of("web")["k"] == "v"


LABELLED = nodepool(labels={"k": "v"})
TWO_ZONES = nodepool(requirements=[(names.ZONE, "In", Z1, Z2)])


@pytest.mark.spec("T-059", "T-060", "T-061", "T-062", "T-064", "T-065", "T-068")
@pytest.mark.parametrize(
    ("pool", "wishes", "placed"),
    [
        pytest.param(LABELLED, {"node_selector": {"k": "other"}}, False, id="T-059 another value"),
        pytest.param(nodepool(), {"node_selector": {"k": "v"}}, False, id="T-059 undefined"),
        pytest.param(LABELLED, asking(("k", "In", "v", "w")), True, id="T-060 one of several"),
        pytest.param(LABELLED, asking(("k", "In", "w")), False, id="T-060 none"),
        pytest.param(TWO_ZONES, {"node_selector": {names.ZONE: Z3}}, False, id="T-061 outside"),
        pytest.param(nodepool(), asking((names.ZONE, "NotIn", Z1, Z2, Z3)), False, id="T-062 nowhere"),
        pytest.param(nodepool(), asking(("k", "In", "v")), False, id="T-064 In"),
        pytest.param(nodepool(), asking(("k", "Exists")), False, id="T-064 Exists"),
        pytest.param(nodepool(), asking(("k", "NotIn", "v")), True, id="T-064 NotIn"),
        pytest.param(nodepool(), asking(("k", "DoesNotExist")), True, id="T-064 DoesNotExist"),
        pytest.param(LABELLED, asking(("k", "NotIn", "v")), False, id="T-065 NotIn its value"),
        pytest.param(LABELLED, asking(("k", "Exists")), True, id="T-065 Exists"),
        pytest.param(LABELLED, asking(("k", "DoesNotExist")), False, id="T-065 DoesNotExist"),
        pytest.param(LABELLED, asking(("k", "In", "other")), False, id="T-065 In another"),
        pytest.param(LABELLED, asking(("k", "NotIn", "other")), True, id="T-065 NotIn another"),
        pytest.param(
            nodepool(), asking((names.ZONE, "In", "missing"), (names.ZONE, "Exists")), False, id="T-068"
        ),
    ],
)
def test_a_pod_is_placed_when_the_pool_can_have_its_labels(
    pool: NodePool, wishes: dict[str, Any], placed: bool
) -> None:
    world = World(pool)
    wanting = pod("web", **wishes)
    world.provision(wanting)
    assert (world.scheduled(wanting) == 1) == placed
    if placed and "k" not in pool.spec.template.metadata.labels:
        assert "k" not in world.labels_of("web")


@pytest.mark.spec("T-061", "T-062", "T-069")
@pytest.mark.parametrize(
    ("pool", "wishes", "zone"),
    [
        (nodepool(requirements=[(names.ZONE, "In", Z2)]), {}, Z2),
        (TWO_ZONES, {"node_selector": {names.ZONE: Z2}}, Z2),
        (nodepool(), asking((names.ZONE, "NotIn", Z1, Z2, "unknown")), Z3),
        (
            nodepool(),
            {"node_selector": {names.ZONE: Z3}}
            | asking((names.ZONE, "In", Z1, Z2, Z3), preferred=[(1, [(names.ZONE, "In", Z1, Z2, Z3)])]),
            Z3,
        ),
    ],
)
def test_zones_are_narrowed_by_pool_and_pod(pool: NodePool, wishes: dict[str, Any], zone: str) -> None:
    world = World(pool)
    world.provision(pod("web", **wishes))
    assert world.zone_of("web") == zone


@pytest.mark.spec("T-063")
@pytest.mark.parametrize(
    ("operator", "bound", "cpus"), [("Gt", 8, 16), ("Lt", 8, 2), ("Gte", 16, 16), ("Lte", 2, 2)]
)
def test_numeric_requirements_of_a_pool_choose_types(operator: str, bound: int, cpus: int) -> None:
    world = World(nodepool(requirements=[(INTEGER, operator, str(bound))]))
    world.provision(pod("web", cpu="10m", memory="10M"))
    assert world.labels_of("web")[INTEGER] == str(cpus)


@pytest.mark.spec("T-066")
def test_pods_that_agree_on_a_value_share_a_node() -> None:
    world = World(nodepool(requirements=[("k", "In", "a", "b")]))
    plan = world.provision(
        pod("one", cpu="10m", memory="10M", **asking(("k", "In", "a"))),
        pod("two", cpu="10m", memory="10M", **asking(("k", "NotIn", "b"))),
    )
    assert len(plan.new_nodes) == 1
    assert world.labels_of("one")["k"] == "a"


@pytest.mark.spec("T-067")
def test_pods_that_disagree_on_a_value_get_a_node_each() -> None:
    world = World(nodepool(requirements=[("k", "In", "a", "b")]))
    world.provision(pod("one", node_selector={"k": "a"}), pod("two", node_selector={"k": "b"}))
    assert (world.labels_of("one")["k"], world.labels_of("two")["k"]) == ("a", "b")


@pytest.mark.spec("T-070")
def test_selector_requirement_and_preference_together_find_the_one_type() -> None:
    unknown = [(names.ZONE, "NotIn", "unknown"), (names.INSTANCE_TYPE, "NotIn", "unknown")]
    world = World()
    wishes = asking(
        (names.ZONE, "In", Z3), (names.INSTANCE_TYPE, "In", "arm-instance-type"), preferred=[(1, unknown)]
    )
    chosen = {names.ZONE: Z3, names.INSTANCE_TYPE: "arm-instance-type"}
    world.provision(pod("web", node_selector=chosen, **wishes))
    assert (world.zone_of("web"), world.type_of("web")) == (Z3, "arm-instance-type")


@pytest.mark.spec("T-071")
def test_custom_labels_are_resolved_from_requirements() -> None:
    asked = [
        ("in", "In", "value"),
        ("not-in", "NotIn", "value"),
        ("gt", "Gt", "1"),
        ("lt", "Lt", "9"),
        ("exists", "Exists"),
        ("absent", "DoesNotExist"),
        (names.ARCH, "In", "amd64"),
    ]
    world = World(nodepool(requirements=asked))
    plan = world.provision(pod("web"))
    labels = world.labels_of("web")
    assert labels["in"] == "value"
    assert labels["not-in"] != "value"
    assert int(labels["gt"]) > 1
    assert int(labels["lt"]) < 9
    assert "exists" in labels
    assert "absent" not in labels
    claim = plan.new_nodes[0].build_claim(world.pools[0], NodeClaimOptions(flavour=world.options.flavour))
    assert names.ARCH not in claim.labels


@pytest.mark.spec("T-072")
def test_size_labels_choose_types() -> None:
    world = World(types=series(5))
    world.provision(
        pod("big", cpu="10m", memory="10M", node_selector={SIZE: "large"}),
        pod("tiny", cpu="10m", memory="10M", node_selector={SIZE: "small"}),
        pod("torn", node_selector={SIZE: "large", names.INSTANCE_TYPE: "fake-it-1"}),
    )
    assert (world.type_of("big"), world.type_of("tiny")) == ("fake-it-4", "fake-it-0")
    assert world.node_of("torn") is None


@pytest.mark.spec("T-073")
def test_a_label_some_types_lack_can_be_wanted_or_not() -> None:
    world = World(types=series(5))
    world.provision(
        pod("with", cpu="10m", memory="10M", **asking((SPECIAL, "Exists"))),
        pod("without", cpu="10m", memory="10M", **asking((SPECIAL, "DoesNotExist"))),
    )
    assert world.type_of("with") == "fake-it-4"
    assert SPECIAL not in world.labels_of("without")

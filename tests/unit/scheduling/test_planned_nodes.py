"""How a planned node becomes a NodeClaim."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.scheduling.model.plan import NodeClaimOptions
from support.builders import KWOK_CLASS, amounts, nodepool, pod
from support.worlds import FLAVOUR, World


def ordered(pool: NodePool, *pods: Any, options: NodeClaimOptions | None = None) -> NodeClaim:
    (node,) = World(pool).solve(*(pods or (pod("web"),))).new_nodes
    return node.build_claim(pool, options or NodeClaimOptions(flavour=FLAVOUR))


@pytest.mark.spec("T-261")
def test_a_claim_lists_its_types_and_carries_the_pools_requirements() -> None:
    claim = ordered(nodepool(requirements=[("team", "In", "a", "b"), (names.ZONE, "NotIn", "x")]))
    by_key = {each.key: each for each in claim.spec.requirements}
    assert "small-instance-type" in by_key[names.INSTANCE_TYPE].values
    assert by_key[names.NODEPOOL].values == ("default",)
    assert by_key["team"].values == ("a", "b")
    assert (by_key[names.ZONE].operator, by_key[names.ZONE].values) == ("NotIn", ("x",))
    assert by_key[names.CAPACITY_TYPE].values == ("on-demand", "spot")
    assert names.HOSTNAME not in by_key


@pytest.mark.spec("T-262")
def test_a_claim_belongs_to_its_pool_and_names_its_class() -> None:
    pool = nodepool()
    claim = ordered(pool)
    (owner,) = claim.metadata.owner_references
    assert (owner.api_version, owner.kind, owner.name, owner.uid) == (
        "karpenter.sh/v1",
        "NodePool",
        "default",
        pool.uid,
    )
    assert (owner.block_owner_deletion, owner.controller) == (True, False)
    assert claim.spec.node_class_ref == KWOK_CLASS
    assert claim.metadata.generate_name == "default-"
    assert claim.labels[names.NODEPOOL] == "default"
    assert claim.labels["karpenter.kwok.sh/kwoknodeclass"] == "default"


@pytest.mark.spec("T-263")
def test_a_claim_asks_for_exactly_what_its_pods_do() -> None:
    claim = ordered(nodepool(), pod("web", cpu="1", memory="1Mi", requests={"fake.com/vendor-a": "1"}))
    assert claim.spec.resources.requests == amounts(
        {"fake.com/vendor-a": "1"}, cpu="1", memory="1Mi", pods="1"
    )


@pytest.mark.spec("T-264")
def test_annotations_of_the_template_reach_the_claim() -> None:
    claim = ordered(nodepool(annotations={"note": "x"}))
    assert claim.annotations["note"] == "x"
    assert claim.annotations[names.MIN_VALUES_RELAXED] == "false"


@pytest.mark.spec("T-265")
@pytest.mark.parametrize(
    ("own", "provider", "given"), [("1m", "5m", "1m"), (None, "5m", "5m"), (None, None, None)]
)
def test_the_grace_period_is_the_pools_or_the_providers(
    own: str | None, provider: str | None, given: str | None
) -> None:
    options = NodeClaimOptions(flavour=FLAVOUR, termination_grace_period=provider)
    claim = ordered(nodepool(termination_grace_period=own), options=options)
    assert claim.spec.termination_grace_period == given


@pytest.mark.spec("T-266")
def test_the_hash_is_of_the_pool_that_was_planned_with() -> None:
    planned = NodeClaimOptions(
        flavour=FLAVOUR, annotations={names.NODEPOOL_HASH: "1", names.NODEPOOL_HASH_VERSION: "v3"}
    )
    claim = ordered(nodepool(labels={"since": "edited"}), options=planned)
    assert claim.annotations[names.NODEPOOL_HASH] == "1"


@pytest.mark.spec("T-267")
@pytest.mark.parametrize("dynamic", [True, False])
def test_static_pools_make_no_nodes_for_pods(dynamic: bool) -> None:
    static = nodepool("static", replicas=5)
    world = World(static, *([nodepool("dynamic")] if dynamic else []))
    plan = world.solve(pod("web"))
    assert [node.pool for node in plan.new_nodes] == (["dynamic"] if dynamic else [])


@pytest.mark.parametrize(
    ("asked", "label"),
    [
        (("k", "Exists"), "0"),
        (("k", "NotIn", "0", "1"), "2"),
        (("k", "Gt", "7"), "8"),
        (("k", "Lt", "5"), "0"),
        (("k", "In", "b", "a"), "a"),
        (("k", "Lt", "0"), None),
        (("k", "DoesNotExist"), None),
    ],
)
def test_a_custom_label_gets_the_first_value_that_will_do(asked: tuple[str, ...], label: str | None) -> None:
    claim = ordered(nodepool(requirements=[asked]))
    assert claim.labels.get("k") == label

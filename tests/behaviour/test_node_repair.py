"""Nodes that stay sick are given up, unless too many are sick at once."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.core import Node, NodeStatus
from dovetail.api.meta import Condition
from dovetail.api.nodepool import Budget
from dovetail.controllers.base import DONE, requeue_after
from dovetail.controllers.node.health import (
    find_unhealthy_condition,
    has_too_many_unhealthy,
    wake_on_conditions,
)
from dovetail.ports import RepairPolicy
from support import builders
from support.builders import NOW, condition, owner
from support.stage import Stage, sample, virtual

BAD = RepairPolicy(condition="BadNode", status="False", toleration=timedelta(minutes=30))
SLOW = RepairPolicy(condition="SlowNode", status="False", toleration=timedelta(minutes=60))
MINUTE = 60.0


def ill(stage: Stage, name: str = "node", kind: str = "BadNode", status: str = "False") -> None:
    """The node reports a condition, from now on."""
    now = stage.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
    said = {"type": kind, "status": status, "reason": "x", "message": "", "lastTransitionTime": now}
    known = [c for c in stage.api.get("nodes", name)["status"]["conditions"] if c["type"] != kind]
    stage.api.patch("nodes", name, {"status": {"conditions": [*known, said]}}, subresource="status")


@pytest.mark.spec("lifecycle-134")
@virtual
async def test_a_node_sick_for_too_long_is_given_up() -> None:
    about = {"nodepool": "default", "capacity_type": "on-demand"}
    kind = {"condition": "bad_node", "image_id": ""}
    whole = {"reason": "unhealthy", "consolidation_policy": "", "termination_mode": "graceful"}
    names = ("karpenter_nodeclaims_disrupted_total", "karpenter_pods_disruption_initiated_total")
    async with Stage(policies=(BAD,)).open() as stage:
        stage.node(claimed=False)
        stage.claim(labels={labels.CAPACITY_TYPE: "on-demand"})
        stage.pod("one")
        stage.pod("two")
        stage.pod("daemon", owned_by=owner("DaemonSet"))
        ill(stage)
        await stage.sleep(60 * MINUTE)
        repaired = sample("karpenter_nodeclaims_unhealthy_disrupted_total", **about, **kind)
        before = [sample(name, **about, **whole) for name in names]

        assert await stage.look(stage.health, "node") == DONE

        assert stage.claim_now().deleting
        assert sample("karpenter_nodeclaims_unhealthy_disrupted_total", **about, **kind) - repaired == 1
        counted = [sample(name, **about, **whole) for name in names]
        assert [now - then for now, then in zip(counted, before, strict=True)] == [1, 2]


@pytest.mark.spec("lifecycle-135")
@pytest.mark.parametrize(
    ("kind", "status", "minutes"),
    [
        ("OtherNode", "False", 60),
        ("BadNode", "True", 60),
        ("BadNode", "Unknown", 60),
        ("BadNode", "False", 20),
    ],
)
@virtual
async def test_other_conditions_other_statuses_and_short_illness_are_tolerated(
    kind: str, status: str, minutes: int
) -> None:
    async with Stage(policies=(BAD,)).open() as stage:
        stage.node()
        ill(stage, kind=kind, status=status)
        await stage.sleep(minutes * MINUTE)

        await stage.look(stage.health, "node")

        assert not stage.claim_now().deleting
        assert labels.TERMINATION_TIMESTAMP not in stage.claim_now().annotations


@pytest.mark.spec("lifecycle-136")
@pytest.mark.parametrize(("preset", "kept"), [(None, False), (3600.0, False), (-3600.0, True)])
@virtual
async def test_the_end_of_a_sick_node_is_now_unless_it_was_before(preset: float | None, kept: bool) -> None:
    async with Stage(policies=(BAD,)).open() as stage:
        stage.node()
        ill(stage)
        await stage.sleep(60 * MINUTE)
        if preset is not None:
            stage.annotate_claim(at=preset)
        before = stage.claim_now().annotations.get(labels.TERMINATION_TIMESTAMP)

        await stage.look(stage.health, "node")

        text = stage.claim_now().annotations[labels.TERMINATION_TIMESTAMP]
        assert stage.claim_now().deleting
        assert (text == before) == kept
        if not kept:
            assert abs(datetime.fromisoformat(text) - stage.clock.now()) < timedelta(seconds=2)


@virtual
async def test_an_end_that_cannot_be_read_is_set_anew() -> None:
    async with Stage(policies=(BAD,)).open() as stage:
        stage.node()
        ill(stage)
        bad = {"metadata": {"annotations": {labels.TERMINATION_TIMESTAMP: "soon"}}}
        stage.api.patch("nodeclaims.karpenter.sh", "node", bad)
        await stage.sleep(60 * MINUTE)

        await stage.look(stage.health, "node")

        assert datetime.fromisoformat(stage.claim_now().annotations[labels.TERMINATION_TIMESTAMP]).tzinfo


@virtual
async def test_a_claim_already_on_its_way_out_is_hurried_and_not_counted_again() -> None:
    about = {"condition": "bad_node", "nodepool": "default", "capacity_type": "on-demand", "image_id": ""}
    async with Stage(policies=(BAD,)).open() as stage:
        stage.node()
        ill(stage)
        await stage.sleep(60 * MINUTE)
        stage.api.delete("nodeclaims.karpenter.sh", "node")
        stage.annotate_claim(at=7200)
        before = sample("karpenter_nodeclaims_unhealthy_disrupted_total", **about)

        await stage.look(stage.health, "node")

        end = datetime.fromisoformat(stage.claim_now().annotations[labels.TERMINATION_TIMESTAMP])
        assert end <= stage.clock.now()
        assert sample("karpenter_nodeclaims_unhealthy_disrupted_total", **about) == before


@pytest.mark.spec("lifecycle-137")
@virtual
async def test_of_two_illnesses_the_one_that_ends_patience_first_counts() -> None:
    async with Stage(policies=(SLOW, BAD)).open() as stage:
        stage.node()
        ill(stage, kind="SlowNode")
        ill(stage, kind="BadNode")
        await stage.sleep(27 * MINUTE)

        result = await stage.look(stage.health, "node")

        assert result.after is not None
        assert result.after.total_seconds() == pytest.approx(3 * MINUTE, abs=1)


@pytest.mark.spec("lifecycle-138")
@virtual
async def test_neither_budgets_nor_holds_nor_pdbs_stand_in_the_way() -> None:
    async with Stage(policies=(BAD,)).open() as stage:
        pool = builders.nodepool(budgets=[Budget(nodes="0")])
        stage.create(pool)
        stage.budget(maxUnavailable=0, minAvailable=None)
        stage.node(annotations={labels.DO_NOT_DISRUPT: "true"})
        stage.pod("held", annotations={labels.DO_NOT_DISRUPT: "true"}, labels={"app": "web"})
        ill(stage)
        await stage.sleep(60 * MINUTE)
        async with stage.running():
            await stage.sleep(5)

            assert stage.claim_now().deleting
            assert stage.pod_now("held").metadata.deletion_grace_period_seconds == 1


async def _ten(stage: Stage, sick: int, pool: bool = True) -> None:
    for number in range(10):
        name = f"node-{number}"
        stage.node(name, claimed=False)
        stage.claim(name)
        if not pool:
            nameless = {"metadata": {"labels": {labels.NODEPOOL: None}}}
            stage.api.patch("nodeclaims.karpenter.sh", name, nameless)
        if number < sick:
            ill(stage, name)
    await stage.sleep(60 * MINUTE)


@pytest.mark.spec("lifecycle-139")
@pytest.mark.parametrize(
    ("pool", "note"),
    [
        (True, "more than 20% nodes are unhealthy in the nodepool"),
        (False, "more then 20% nodes are unhealthy in the cluster"),
    ],
)
@virtual
async def test_three_sick_of_ten_are_left_alone(pool: bool, note: str) -> None:
    async with Stage(policies=(BAD,)).open() as stage:
        await _ten(stage, sick=3, pool=pool)

        for number in range(3):
            assert await stage.look(stage.health, f"node-{number}") == requeue_after(300)

        assert not any(claim.deleting for claim in stage.claims)
        told = stage.events("NodeRepairBlocked")
        assert sorted(told) == [("Warning", f"Node/node-{number}", note) for number in range(3)]


@virtual
async def test_two_sick_of_ten_are_given_up_and_other_pools_do_not_count() -> None:
    async with Stage(policies=(BAD,)).open() as stage:
        await _ten(stage, sick=2)
        for number in range(5):
            stage.node(f"other-{number}", claimed=False, nodepool="other")
            ill(stage, f"other-{number}")

        assert await stage.look(stage.health, "node-0") == DONE
        assert stage.claim_now("node-0").deleting


@pytest.mark.spec("lifecycle-140")
@virtual
async def test_one_sick_of_three_is_given_up() -> None:
    async with Stage(policies=(BAD,)).open() as stage:
        for name in ("node", "second", "third"):
            stage.node(name)
        ill(stage)
        await stage.sleep(60 * MINUTE)

        assert await stage.look(stage.health, "node") == DONE
        assert stage.claim_now().deleting


@virtual
async def test_a_sick_node_is_given_up_when_its_time_comes_without_being_asked() -> None:
    async with Stage(policies=(BAD,)).open() as stage, stage.running(stage.health):
        stage.node()
        ill(stage)
        await stage.sleep(29 * MINUTE)
        assert not stage.claim_now().deleting
        await stage.sleep(2 * MINUTE)
        assert stage.claim_now().deleting


@pytest.mark.parametrize(("policies", "gate"), [((BAD,), False), ((), True)])
@virtual
async def test_without_the_gate_or_without_policies_nothing_is_watched(
    policies: tuple[RepairPolicy, ...], gate: bool
) -> None:
    async with Stage(policies=policies, repair=gate).open() as stage:
        stage.node()
        ill(stage)
        await stage.sleep(60 * MINUTE)

        assert stage.health.triggers == ()
        assert await stage.look(stage.health, "node") == DONE
        assert not stage.claim_now().deleting


@virtual
async def test_nodes_of_others_without_a_claim_or_with_two_are_left_alone() -> None:
    async with Stage(policies=(BAD,)).open() as stage:
        stage.node("foreign")
        stage.api.patch("nodes", "foreign", {"metadata": {"labels": {labels.KWOK_NODECLASS: None}}})
        ill(stage, "foreign")
        stage.node("orphan", claimed=False)
        stage.node("twice")
        stage.claim("twice", name="twin")
        ill(stage, "orphan")
        ill(stage, "twice")
        await stage.sleep(60 * MINUTE)

        assert await stage.look(stage.health, "foreign") == DONE
        assert await stage.look(stage.health, "orphan") == DONE
        assert await stage.look(stage.health, "twice") == DONE
        assert not any(claim.deleting for claim in stage.claims)


def _node(*conditions: Condition, **about: Any) -> Node:
    return replace(builders.node(**about), status=NodeStatus(conditions=conditions))


def test_only_changes_of_conditions_wake_the_controller() -> None:
    bad = condition("BadNode", "False")
    node = _node(bad)
    later = condition("BadNode", "False", since=NOW + timedelta(seconds=1))
    assert wake_on_conditions(None, node) == ("node",)
    assert wake_on_conditions(node, _node(condition("BadNode", "False", "AnotherReason"))) == ()
    assert wake_on_conditions(node, _node(bad, labels={"a": "b"})) == ()
    for changed in (
        _node(bad, condition("Ready")),
        _node(condition("Ready")),
        _node(condition("BadNode")),
        _node(later),
    ):
        assert wake_on_conditions(node, changed) == ("node",)


@pytest.mark.parametrize(
    ("sick", "of", "blocked"), [(1, 1, False), (1, 3, False), (2, 5, True), (2, 10, False)]
)
def test_a_fifth_is_rounded_up(sick: int, of: int, blocked: bool) -> None:
    nodes = [_node(condition("BadNode", "False" if number < sick else "True")) for number in range(of)]
    assert has_too_many_unhealthy(nodes, (BAD,)) is blocked
    assert [find_unhealthy_condition(node, (BAD,)) is not None for node in nodes] == [
        n < sick for n in range(of)
    ]

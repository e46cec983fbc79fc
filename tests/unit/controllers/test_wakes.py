"""Which change of an object wakes a controller, and for which key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.spend_limit import SpendLimit, SpendLimitSpec
from dovetail.controllers import nodeoverlay, spend, static
from dovetail.controllers.base import SINGLETON
from dovetail.controllers.node.health import wake_on_conditions
from dovetail.controllers.nodepool import counter
from dovetail.controllers.observing import costs
from support.builders import NOW, condition, meta, node, nodeclaim, nodepool

Keys = Callable[[Any, Any], Iterable[str]]


def sized(replicas: int | None, ready: bool = True) -> NodePool:
    return nodepool("web", replicas=replicas, ready=ready)


def claim(deleted: bool = False) -> NodeClaim:
    return nodeclaim("c", nodepool="web", deleted=NOW if deleted else None)


def limit(dollars: str) -> SpendLimit:
    return SpendLimit(metadata=meta("spendlimit", "cap"), spec=SpendLimitSpec(hourly=dollars))


GROWTH: Keys = static._wake_on_growth
RESIZE: Keys = static._wake_on_resize
TERMINATING: Keys = static._wake_on_terminating
ARRIVAL: Keys = static._wake_on_arrival
COUNTED: Keys = counter._wake_on_created_or_deleted
PRICED: Keys = costs._wake_on_created_or_deleted
OVERLAID: Keys = nodeoverlay._wake_on_spec_change
LIMITED: Keys = spend._wake_on_spec
WEB, ONE = ["web"], [SINGLETON]


@pytest.mark.parametrize(
    ("keys", "before", "now", "woken"),
    [
        pytest.param(GROWTH, None, sized(2), WEB, id="a static pool comes"),
        pytest.param(GROWTH, None, sized(None), [], id="another pool comes"),
        pytest.param(GROWTH, sized(2), None, [], id="a static pool goes"),
        pytest.param(GROWTH, sized(2), sized(3), WEB, id="a static pool is to grow"),
        pytest.param(GROWTH, sized(2), sized(2), [], id="a static pool is told again"),
        pytest.param(GROWTH, sized(2, ready=False), sized(2), WEB, id="a static pool becomes ready"),
        pytest.param(GROWTH, sized(2), sized(2, ready=False), [], id="a static pool is ready no more"),
        pytest.param(RESIZE, None, sized(2), WEB, id="a static pool is found"),
        pytest.param(RESIZE, None, sized(None), [], id="another pool is found"),
        pytest.param(RESIZE, sized(3), sized(2), WEB, id="a static pool is to shrink"),
        pytest.param(RESIZE, sized(2, ready=False), sized(2), [], id="a static pool of the same size"),
        pytest.param(RESIZE, sized(2), None, [], id="a static pool that is gone"),
        pytest.param(TERMINATING, None, claim(), [], id="a claim comes"),
        pytest.param(TERMINATING, claim(), None, WEB, id="a claim goes"),
        pytest.param(TERMINATING, claim(), claim(deleted=True), WEB, id="a claim begins to terminate"),
        pytest.param(TERMINATING, claim(True), claim(True), [], id="a claim that terminates is told again"),
        pytest.param(TERMINATING, claim(), claim(), [], id="a claim is told again"),
        pytest.param(ARRIVAL, None, claim(), WEB, id="a claim arrives"),
        pytest.param(ARRIVAL, claim(), claim(), [], id="a claim that was there"),
        pytest.param(ARRIVAL, claim(), None, [], id="a claim that is gone"),
        pytest.param(COUNTED, None, sized(None), WEB, id="a pool to count comes"),
        pytest.param(COUNTED, sized(None), None, WEB, id="a pool to count goes"),
        pytest.param(COUNTED, sized(None), sized(1), [], id="a pool to count changes"),
        pytest.param(PRICED, None, sized(None), ONE, id="a pool with prices comes"),
        pytest.param(PRICED, sized(None), None, ONE, id="a pool with prices goes"),
        pytest.param(PRICED, sized(None), sized(1), [], id="a pool with prices changes"),
        pytest.param(OVERLAID, None, sized(1), ONE, id="a pool to overlay comes"),
        pytest.param(OVERLAID, sized(1), None, ONE, id="a pool to overlay goes"),
        pytest.param(OVERLAID, sized(1), sized(2), ONE, id="a pool to overlay is written anew"),
        pytest.param(OVERLAID, sized(1, ready=False), sized(1), [], id="news of a pool to overlay"),
        pytest.param(LIMITED, None, limit("1"), ONE, id="a limit comes"),
        pytest.param(LIMITED, limit("1"), None, ONE, id="a limit goes"),
        pytest.param(LIMITED, limit("1"), limit("2"), ONE, id="a limit is written anew"),
        pytest.param(LIMITED, limit("1"), limit("1"), [], id="a limit is told again"),
    ],
)
def test_a_change_wakes_whom_it_concerns_and_nobody_else(
    keys: Keys, before: Any, now: Any, woken: list[str]
) -> None:
    assert list(keys(before, now)) == woken


def test_a_claim_wakes_the_pool_of_its_label() -> None:
    bare = claim()
    bare = replace(bare, metadata=replace(bare.metadata, labels={}))
    assert list(TERMINATING(bare, None)) == [""]
    assert list(TERMINATING(claim(), None)) == [claim().labels[names.NODEPOOL]]


def test_a_node_wakes_its_repair_when_a_condition_changes_and_not_by_a_heartbeat() -> None:
    def told(**about: Any) -> Any:
        made = node("n")
        return replace(made, status=replace(made.status, conditions=(condition("Ready", **about),)))

    well, later = told(), told(since=NOW + timedelta(minutes=1))
    assert wake_on_conditions(None, well) == ("n",)
    assert wake_on_conditions(well, well) == ()
    assert wake_on_conditions(well, replace(well, metadata=meta("node", "n", labels={"a": "b"}))) == ()
    assert wake_on_conditions(well, told(status="False")) == ("n",)
    assert wake_on_conditions(well, later) == ("n",)
    assert wake_on_conditions(well, None) == ()

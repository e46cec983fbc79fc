"""The referee finds whatever is wrong with a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.explain import Reason
from dovetail.scheduling.exact import place
from dovetail.scheduling.plan import Plan, PlannedNode
from dovetail.scheduling.referee import verify
from dovetail.scheduling.requirements import Values
from dovetail.scheduling.snapshot import Snapshot
from support.builders import nodepool, pod, taint
from support.worlds import Z1, Z2, World, apart, near, running, series, spread

WEB = {"app": "web"}


def first(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, new_nodes=(replace(plan.new_nodes[0], **changes), *plan.new_nodes[1:]))


def together(plan: Plan) -> Plan:
    """All pods of new nodes on the first of them."""
    pods = tuple(name for node in plan.new_nodes for name in node.pods)
    return replace(plan, new_nodes=(replace(plan.new_nodes[0], pods=pods),))


def elsewhere(plan: Plan, key: str, value: str) -> Plan:
    node = plan.new_nodes[0]
    moved = node.requirements.replacing(key, Values(frozenset((value,))))
    return first(plan, requirements=moved)


def world(*pods: Any, **more: Any) -> Snapshot:
    pools = more.pop("pools", [nodepool()])
    return World(*pools, types=more.pop("types", series(5)), **more).snapshot(*pods)


def all_types(node: PlannedNode) -> tuple[str, ...]:
    return (*node.instance_types, "fake-it-0")


PLAIN = world(pod("a", cpu="1500m"), pod("b", cpu="1500m"))
SHY = world(*(pod(n, labels=WEB, affinity=apart(names.HOSTNAME, app="web")) for n in "ab"))
PORTS = world(*(pod(n, host_ports=[80]) for n in "ab"))
HOSTS = world(*(pod(n, labels=WEB, topology_spread_constraints=(spread(names.HOSTNAME),)) for n in "ab"))
ZONED = world(pod("a", node_selector={names.ZONE: Z1}))
FRIEND = running("n1", pod("db", labels={"app": "db"}, node="n1"), zone=Z1)
NEAR = world(pod("a", affinity=near(names.ZONE, app="db"), cpu="4500m"), nodes=[FRIEND])
SMALL = running("tiny", capacity={"cpu": "1", "memory": "1Gi", "pods": "1"})
CLOSED = running("closed", taints=[taint("k")])
HELD = world(pod("a", cpu="2"), nodes=[SMALL, CLOSED])
LIMITED = world(pod("a", cpu="10m"), pools=[nodepool(limits={"cpu": "2"})])


@pytest.mark.parametrize(
    ("snapshot", "tampered", "reason"),
    [
        pytest.param(PLAIN, lambda p: replace(p, new_nodes=()), Reason.IGNORED, id="forgotten"),
        pytest.param(
            PLAIN, lambda p: replace(p, new_nodes=(*p.new_nodes, *p.new_nodes)), Reason.IGNORED, id="twice"
        ),
        pytest.param(
            PLAIN, lambda p: first(p, pods=(*p.new_nodes[0].pods, "x/y")), Reason.IGNORED, id="unasked"
        ),
        pytest.param(
            PLAIN,
            lambda p: first(p, instance_types=all_types(p.new_nodes[0])),
            Reason.RESOURCES,
            id="too small",
        ),
        pytest.param(PLAIN, lambda p: first(p, pool="none"), Reason.NO_TYPES, id="no such pool"),
        pytest.param(PLAIN, lambda p: first(p, instance_types=()), Reason.NO_TYPES, id="no types"),
        pytest.param(SHY, together, Reason.ANTI_AFFINITY, id="shy pods together"),
        pytest.param(PORTS, together, Reason.HOST_PORT, id="one port twice"),
        pytest.param(HOSTS, together, Reason.SPREAD, id="one host for all"),
        pytest.param(ZONED, lambda p: elsewhere(p, names.ZONE, Z2), Reason.LABELS, id="another zone"),
        pytest.param(NEAR, lambda p: elsewhere(p, names.ZONE, Z2), Reason.AFFINITY, id="far from its friend"),
        pytest.param(
            HELD,
            lambda p: replace(p, new_nodes=(), existing={"tiny": ("default/a",)}),
            Reason.RESOURCES,
            id="a node that is too small",
        ),
        pytest.param(
            HELD,
            lambda p: replace(p, new_nodes=(), existing={"closed": ("default/a",)}),
            Reason.TAINT,
            id="a node with a taint",
        ),
        pytest.param(
            HELD,
            lambda p: replace(p, new_nodes=(), existing={"gone": ("default/a",)}),
            Reason.LEAVING,
            id="a node that is not there",
        ),
        pytest.param(
            LIMITED, lambda p: first(p, instance_types=("fake-it-4",)), Reason.LIMIT, id="beyond the limit"
        ),
    ],
)
def test_every_broken_rule_is_found(
    snapshot: Snapshot, tampered: Callable[[Plan], Plan], reason: Reason
) -> None:
    plan = place(snapshot)
    assert verify(snapshot, plan) == []
    found = verify(snapshot, tampered(plan))
    assert reason in {each.reason for each in found}
    assert all(str(each) for each in found)

"""verify_plan finds whatever is wrong with a plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.core import (
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)
from dovetail.api.meta import ObjectMeta
from dovetail.api.pod import NodeSelector, PersistentVolumeClaimSource, Pod, Toleration, Volume
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.reasons import Reason
from dovetail.scheduling.model.requirements import Values
from dovetail.scheduling.model.snapshot import Snapshot, Storage
from dovetail.scheduling.sequential.schedule import schedule_pods
from dovetail.scheduling.verify import verify_plan
from support.builders import nodepool, pod, taint
from support.worlds import Z1, Z2, World, apart, near, running, series, spread, term

WEB = {"app": "web"}


def first(plan: Plan, **changes: Any) -> Plan:
    return replace(plan, new_nodes=(replace(plan.new_nodes[0], **changes), *plan.new_nodes[1:]))


def together(plan: Plan) -> Plan:
    """All pods of new nodes on the first of them."""
    pods = tuple(name for node in plan.new_nodes for name in node.pods)
    return replace(plan, new_nodes=(replace(plan.new_nodes[0], pods=pods),))


def elsewhere(plan: Plan, key: str, value: str) -> Plan:
    node = plan.new_nodes[0]
    moved = node.requirements.replace_key(key, Values(frozenset((value,))))
    return first(plan, requirements=moved)


def world(*pods: Any, **more: Any) -> Snapshot:
    pools = more.pop("pools", [nodepool()])
    return World(*pools, types=more.pop("types", series(5)), **more).snapshot(*pods)


def all_types(node: PlannedNode) -> tuple[str, ...]:
    return (*node.instance_types, "fake-it-0")


SHUT = nodepool("shut", taints=[taint("k")])
DATA = Storage(
    claims={
        "default/data": PersistentVolumeClaim(
            metadata=ObjectMeta(name="data", namespace="default", annotations={names.BIND_COMPLETED: "yes"}),
            spec=PersistentVolumeClaimSpec(volume_name="pv"),
        )
    },
    volumes={
        "pv": PersistentVolume(
            metadata=ObjectMeta(name="pv"),
            spec=PersistentVolumeSpec(
                node_affinity=VolumeNodeAffinity(
                    required=NodeSelector(node_selector_terms=(term((names.ZONE, "In", Z1)),))
                )
            ),
        )
    },
)


def stored(name: str) -> Pod:
    """A pod with a volume that is in the first zone."""
    source = PersistentVolumeClaimSource(claim_name="data")
    return pod(name, cpu="100m", volumes=(Volume(name="data", persistent_volume_claim=source),))


def without(plan: Plan, key: str) -> Plan:
    """The first node with a label left open."""
    return first(plan, requirements=plan.new_nodes[0].requirements.drop_keys(frozenset((key,))))


def opened(plan: Plan, key: str) -> Plan:
    """The first node with any value for a label."""
    return first(plan, requirements=plan.new_nodes[0].requirements.replace_key(key, Values(open=True)))


def moved_here(plan: Plan) -> Plan:
    """Everybody of new nodes on the running node in the second zone."""
    pods = tuple(name for node in plan.new_nodes for name in node.pods)
    return replace(plan, new_nodes=(), existing={"far": pods})


def in_zone(plan: Plan, zone: str) -> Plan:
    """All new nodes in one zone."""
    only = Values(frozenset((zone,)))
    nodes = (
        replace(node, zone=zone, requirements=node.requirements.replace_key(names.ZONE, only))
        for node in plan.new_nodes
    )
    return replace(plan, new_nodes=tuple(nodes))


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
TAINTED = world(
    pod("a"), pod("b", tolerations=(Toleration(key="k", operator="Exists"),)), pools=[nodepool(), SHUT]
)
STORED = world(stored("a"), storage=DATA)
STORED_HERE = world(stored("a"), storage=DATA, nodes=[running("far", zone=Z2)])
SPREAD = world(*(pod(n, labels=WEB, topology_spread_constraints=(spread(names.ZONE),)) for n in "abc"))
LONE = world(pod("a", labels=WEB, topology_spread_constraints=(spread(names.ZONE),)))
SHY_ZONE = world(pod("a", labels=WEB, affinity=apart(names.ZONE, app="db")), nodes=[FRIEND])
OPEN = world(pod("a", node_selector={"team": "red"}), pools=[nodepool(requirements=[("team", "Exists")])])
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
        pytest.param(TAINTED, lambda p: first(p, pool="shut"), Reason.TAINT, id="a new node with a taint"),
        pytest.param(
            STORED,
            lambda p: elsewhere(p, names.ZONE, Z2),
            Reason.VOLUME_ZONE,
            id="a new node far from its volume",
        ),
        pytest.param(
            STORED,
            lambda p: without(p, names.ZONE),
            Reason.VOLUME_ZONE,
            id="a new node anywhere, and its volume not",
        ),
        pytest.param(STORED_HERE, moved_here, Reason.VOLUME_ZONE, id="a node far from its volume"),
        pytest.param(SPREAD, lambda p: in_zone(p, Z1), Reason.SPREAD, id="one zone for all"),
        pytest.param(
            LONE, lambda p: without(p, names.ZONE), Reason.SPREAD, id="a spread over zones left open"
        ),
        pytest.param(NEAR, lambda p: without(p, names.ZONE), Reason.AFFINITY, id="perhaps near its friend"),
        pytest.param(
            SHY_ZONE,
            lambda p: without(p, names.ZONE),
            Reason.ANTI_AFFINITY,
            id="perhaps beside one it avoids",
        ),
        pytest.param(
            ZONED,
            lambda p: without(p, names.ZONE),
            Reason.LABELS,
            id="a zone left open, and the pod needs one",
        ),
        pytest.param(OPEN, lambda p: opened(p, "team"), Reason.LABELS, id="a custom label left open"),
    ],
)
def test_every_broken_rule_is_found(
    snapshot: Snapshot, tampered: Callable[[Plan], Plan], reason: Reason
) -> None:
    plan = schedule_pods(snapshot)
    assert verify_plan(snapshot, plan) == []
    found = verify_plan(snapshot, tampered(plan))
    assert reason in {each.reason for each in found}
    assert all(str(each) for each in found)

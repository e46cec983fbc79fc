"""Default spreading for pods without rules of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.api.core import Service, ServiceSpec
from dovetail.api.meta import LabelSelector, LabelSelectorTerm, ObjectMeta, OwnerReference
from dovetail.api.pod import Pod, TopologySpreadConstraint
from dovetail.scheduling.model.snapshot import Snapshot
from dovetail.scheduling.sequential.pending_pods import deduce_selector
from support.builders import nodepool, owner, pod
from support.worlds import Z1, Z2, World, running, spread

ZONE, HOST = names.ZONE, names.HOSTNAME
WEB = {"app": "web"}
RS = owner("ReplicaSet", "rs")


def default(key: str, soft: bool = False, **more: Any) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=1,
        topology_key=key,
        when_unsatisfiable="ScheduleAnyway" if soft else "DoNotSchedule",
        **more,
    )


def world(
    *pools: Any, rule: TopologySpreadConstraint | None = None, nodes: Any = (), **workloads: Any
) -> World:
    made = World(*pools, nodes=nodes, default_spread=(rule,) if rule else ())
    known = workloads or {"rs": WEB}
    made.more["workloads"] = {
        f"ReplicaSet/default/{name}": LabelSelector(match_labels=labels) for name, labels in known.items()
    }
    return made


def owned(
    count: int, prefix: str = "web", by: OwnerReference | None = RS, labels: Any = WEB, **more: Any
) -> list[Pod]:
    return [
        pod(f"{prefix}-{i}", cpu="10m", memory="10M", labels=labels, owned_by=by, **more)
        for i in range(count)
    ]


@pytest.mark.spec("T-273")
def test_owned_pods_are_spread_by_default() -> None:
    zonal = world(rule=default(ZONE))
    zonal.provision(*owned(4))
    assert zonal.skew(ZONE, **WEB) == [2, 1, 1]
    assert len(world(rule=default(HOST)).solve(*owned(3)).new_nodes) == 3


@pytest.mark.spec("T-274")
@pytest.mark.parametrize("why", ["rules of its own", "nobody's pod", "no defaults"])
def test_the_default_is_for_pods_that_have_no_rules_and_an_owner(why: str) -> None:
    rule = None if why == "no defaults" else default(HOST)
    own: dict[str, Any] = (
        {"topology_spread_constraints": (spread(HOST, 4),)} if why == "rules of its own" else {}
    )
    pods = owned(3, by=None if why == "nobody's pod" else RS, **own)
    assert len(world(rule=rule).solve(*pods).new_nodes) == 1


@pytest.mark.spec("T-275")
def test_defaults_obey_min_domains_and_how_strict_they_are() -> None:
    two = world(nodepool(requirements=[(ZONE, "In", Z1, Z2)]), rule=default(ZONE, min_domains=3))
    two.provision(*owned(3))
    assert two.skew(ZONE, **WEB) == [1, 1]
    one = nodepool(requirements=[(ZONE, "In", Z1)])
    held = world(one, rule=default(ZONE, min_domains=2))
    assert len(held.solve(*owned(3)).unschedulable) == 2
    assert not world(one, rule=default(ZONE, soft=True, min_domains=2)).solve(*owned(3)).unschedulable


@pytest.mark.spec("T-276")
def test_each_workload_is_spread_by_itself() -> None:
    both = world(rule=default(ZONE), a={"rs": "a"}, b={"rs": "b"})
    both.provision(
        *owned(3, "a", owner("ReplicaSet", "a"), WEB | {"rs": "a"}),
        *owned(3, "b", owner("ReplicaSet", "b"), WEB | {"rs": "b"}),
    )
    assert both.skew(ZONE, rs="a") == [1, 1, 1]
    assert both.skew(ZONE, rs="b") == [1, 1, 1]


@pytest.mark.spec("T-276")
def test_running_pods_count_against_the_default() -> None:
    old = [pod(f"old-{i}", cpu="1m", memory="1M", labels=WEB, node="n", owned_by=RS) for i in range(2)]
    node = running("n", *old, zone=Z1, capacity={"cpu": "2m", "memory": "1Gi", "pods": "5"})
    made = world(nodepool(requirements=[(ZONE, "In", Z1, Z2)]), rule=default(ZONE), nodes=[node])
    made.provision(*owned(2))
    assert {made.zone_of("web-0"), made.zone_of("web-1")} == {Z2}


def service(selector: Mapping[str, str], name: str = "svc", namespace: str = "default") -> Service:
    return Service(metadata=ObjectMeta(name=name, namespace=namespace), spec=ServiceSpec(selector=selector))


@pytest.mark.spec("T-277")
def test_a_service_is_enough_to_be_spread_by() -> None:
    made = world(rule=default(HOST))
    made.more["services"] = (service(WEB),)
    job = owner("Job", "j", "batch/v1")
    assert len(made.solve(*owned(3, by=job)).new_nodes) == 3


def terms(**labels: str) -> tuple[LabelSelectorTerm, ...]:
    return tuple(LabelSelectorTerm(key=k, operator="In", values=(v,)) for k, v in labels.items())


RC = owner("ReplicationController", "rc", "v1")
SELECTORS = {
    "ReplicaSet/default/rs": LabelSelector(match_labels=WEB),
    "StatefulSet/default/ss": LabelSelector(match_expressions=terms(app="web")),
    "ReplicationController/default/rc": LabelSelector(match_labels={"app": "rc"}),
}


@pytest.mark.spec("T-278")
@pytest.mark.parametrize(
    ("by", "services", "found"),
    [
        pytest.param(RS, [], LabelSelector(match_expressions=terms(app="web")), id="ReplicaSet"),
        pytest.param(
            owner("StatefulSet", "ss"),
            [],
            LabelSelector(match_expressions=terms(app="web")),
            id="StatefulSet",
        ),
        pytest.param(RC, [], LabelSelector(match_labels={"app": "rc"}), id="ReplicationController"),
        pytest.param(
            None,
            [service({"app": "web"}), service({"tier": "front"}, "two")],
            LabelSelector(match_labels={"app": "web", "tier": "front"}),
            id="services merged",
        ),
        pytest.param(None, [service({})], None, id="a service without a selector"),
        pytest.param(None, [service(WEB, namespace="other")], None, id="another namespace"),
        pytest.param(None, [service({"app": "other"})], None, id="a service of others"),
        pytest.param(
            OwnerReference(api_version="apps/v1", kind="ReplicaSet", name="rs"), [], None, id="no controller"
        ),
        pytest.param(owner("ReplicaSet", "gone"), [], None, id="an owner that is gone"),
        pytest.param(
            RC, [service(WEB)], LabelSelector(match_labels={"app": "rc"}), id="the controller overwrites"
        ),
        pytest.param(
            RS,
            [service({"app": "web"})],
            LabelSelector(match_labels={"app": "web"}, match_expressions=terms(app="web")),
            id="service and ReplicaSet",
        ),
    ],
)
def test_the_selector_is_deduced_as_the_clusters_scheduler_would(
    by: OwnerReference | None, services: list[Service], found: LabelSelector | None
) -> None:
    waiting = pod("web", labels=WEB | {"tier": "front"}, owned_by=by)
    snapshot = Snapshot(services=tuple(services), workloads=SELECTORS)
    assert deduce_selector(waiting, snapshot) == found

"""Room for DaemonSets, on new nodes and on running ones."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels as names
from dovetail.api.pod import NodeSelectorRequirement, NodeSelectorTerm, Pod, Toleration
from dovetail.scheduling.model.daemonsets import build_daemon_pod
from dovetail.scheduling.model.plan import NodeClaimOptions
from support.builders import amounts, container, daemonset, nodepool, owner, pod, taint
from support.worlds import FLAVOUR, SIZE, Z1, World, instance_type, node_affinity, running

FOUR, TWO = "default-instance-type", "small-instance-type"


def daemon(newest: Pod | None = None, cpu: str = "2", memory: str = "2Gi", **spec: Any) -> Pod:
    return build_daemon_pod(daemonset(cpu=cpu, memory=memory, **spec), newest)


def type_with(*daemons: Pod, pool: Any = None, **world: Any) -> str | None:
    """The type a pod of one cpu gets beside these daemons."""
    made = World(pool or nodepool(), daemons=daemons, **world)
    made.provision(pod("web", cpu="1", memory="1Gi"))
    return made.type_of("web") if made.node_of("web") else None


STARTUP = nodepool(startup_taints=[taint("starting")])
TAINTED = nodepool(taints=[taint("dedicated")])


@pytest.mark.spec("T-133", "T-134", "T-135", "T-137", "T-138", "T-139", "T-141", "T-143", "T-145")
@pytest.mark.parametrize(
    ("made", "pool", "chosen"),
    [
        pytest.param(daemon(), None, FOUR, id="T-133 counted"),
        pytest.param(daemon(), STARTUP, FOUR, id="T-134 despite a startup taint"),
        pytest.param(daemon(cpu="10000"), None, None, id="T-135 too large"),
        pytest.param(
            daemon(containers=(container(limits={"cpu": "10000", "memory": "10000Gi"}),)),
            None,
            None,
            id="T-135 limits stand for requests",
        ),
        pytest.param(
            daemon(cpu="1", memory="1Gi", init_containers=(container("i", cpu="2500m", memory="2500Mi"),)),
            None,
            FOUR,
            id="T-137 init counts",
        ),
        pytest.param(
            daemon(init_containers=(container("i", cpu="10000"),)), None, None, id="T-137 init too large"
        ),
        pytest.param(daemon(node_selector={"node": "invalid"}), None, TWO, id="T-138 unmatched selector"),
        pytest.param(
            daemon(node_selector={names.INSTANCE_TYPE: "arm-instance-type"}),
            None,
            TWO,
            id="T-138 another type",
        ),
        pytest.param(
            daemon(node_selector={"team": "a"}), nodepool(labels={"team": "a"}), FOUR, id="T-139 pool label"
        ),
        pytest.param(daemon(affinity=node_affinity([("foo", "NotIn", "bar")])), None, FOUR, id="T-141"),
        pytest.param(
            daemon(affinity=node_affinity([("foo", "In", "bar")], [(names.ZONE, "In", Z1)])),
            None,
            FOUR,
            id="T-143 the second alternative",
        ),
        pytest.param(
            daemon(affinity=node_affinity(preferred=[(1, [("foo", "In", "bar")])])),
            None,
            FOUR,
            id="T-143 a mere preference",
        ),
        pytest.param(
            daemon(node_selector={names.INITIALIZED: "true", names.REGISTERED: "true"}),
            None,
            FOUR,
            id="T-145",
        ),
    ],
)
def test_new_nodes_have_room_for_the_daemons_they_will_get(made: Pod, pool: Any, chosen: str | None) -> None:
    assert type_with(made, pool=pool) == chosen


@pytest.mark.spec("T-138")
def test_a_daemon_that_does_not_tolerate_the_pool_is_not_counted() -> None:
    world = World(TAINTED, daemons=[daemon()])
    world.provision(pod("web", tolerations=(Toleration(operator="Exists"),)))
    assert world.type_of("web") == TWO


@pytest.mark.spec("T-143")
def test_a_soft_taint_does_not_keep_daemons_away() -> None:
    assert type_with(daemon(), pool=nodepool(taints=[taint("soft", "PreferNoSchedule")])) == FOUR


@pytest.mark.spec("T-145")
def test_pseudo_labels_are_not_ordered() -> None:
    pool = nodepool()
    (node,) = World(pool, daemons=[daemon()]).solve(pod("web")).new_nodes
    claim = node.build_claim(pool, NodeClaimOptions(flavour=FLAVOUR))
    ordered = {each.key for each in claim.spec.requirements} | set(claim.labels)
    assert not ordered & {names.REGISTERED, names.INITIALIZED, names.HOSTNAME}


@pytest.mark.spec("T-136")
def test_the_newest_pod_of_a_daemonset_knows_best_what_it_asks_for() -> None:
    actual = pod("daemon-x", cpu="2", memory="2Gi")
    made = build_daemon_pod(daemonset(cpu="4", memory="4Gi"), actual)
    assert type_with(made) == FOUR


@pytest.mark.spec("T-142")
def test_the_node_a_daemon_pod_was_pinned_to_is_forgotten() -> None:
    template = daemonset(cpu="2", memory="2Gi", affinity=node_affinity([(names.ZONE, "Exists")]))
    pinned = node_affinity([("kubernetes.io/hostname", "In", "old")])
    actual = pod("daemon-x", cpu="2", memory="2Gi", affinity=pinned)
    assert type_with(build_daemon_pod(template, actual)) == FOUR
    by_field = NodeSelectorTerm(
        match_fields=(NodeSelectorRequirement(key="metadata.name", operator="In", values=("old",)),)
    )
    assert pinned.node_affinity is not None
    assert by_field.match_fields


@pytest.mark.spec("T-140")
def test_daemons_count_by_type() -> None:
    small = daemon(cpu="1", memory="1Gi", node_selector={SIZE: "small"})
    large = daemon(cpu="10", memory="1Gi", node_selector={SIZE: "large"})
    world = World(daemons=[small, large])
    world.provision(pod("web", cpu="1500m", memory="1Gi"))
    assert world.type_of("web") == FOUR


@pytest.mark.spec("T-144")
def test_a_daemons_host_port_closes_the_types_it_runs_on() -> None:
    everywhere = daemon(cpu="10m", memory="10Mi", host_ports=[8080])
    wanting = pod("web", host_ports=[8080])
    plan = World(daemons=[everywhere]).solve(wanting)
    assert not plan.new_nodes
    types = [instance_type("small", 2, "2Gi"), instance_type("large", 16, "64Gi", price=0.01)]
    on_large = daemon(cpu="10m", memory="10Mi", host_ports=[8080], node_selector={SIZE: "large"})
    (node,) = World(daemons=[on_large], types=types).solve(wanting).new_nodes
    assert node.instance_types == ("small",)


def daemon_pod(cpu: str) -> Pod:
    return pod("daemon-x", cpu=cpu, memory="1Mi", node="big", owned_by=owner("DaemonSet", "daemon"))


ROOM = {"cpu": "16", "memory": "64Gi", "pods": "110"}
USABLE = {"cpu": "15900m", "memory": "64Gi", "pods": "110"}


@pytest.mark.spec("T-146", "T-147")
@pytest.mark.parametrize(
    ("present", "wanted", "there"),
    [
        pytest.param("1", "14900m", True, id="T-146 the daemon is there already"),
        pytest.param("3", "12900m", True, id="T-147 larger than expected"),
        pytest.param("1", "15500m", False, id="T-147 too much"),
    ],
)
def test_daemons_on_a_running_node_are_not_counted_twice(present: str, wanted: str, there: bool) -> None:
    node = running("big", daemon_pod(present), capacity=ROOM, allocatable=USABLE)
    world = World(nodes=[node], daemons=[daemon(cpu="1", memory="1Mi")])
    plan = world.solve(pod("web", cpu=wanted, memory="1Mi"))
    assert list(plan.existing) == (["big"] if there else [])


@pytest.mark.spec("T-148")
def test_a_daemon_for_one_zone_is_not_kept_room_for_on_a_node_without_a_zone() -> None:
    node = running("big", capacity=ROOM, allocatable=USABLE, zone="")
    assert node.node is not None
    bare = {key: value for key, value in node.node.labels.items() if key != names.ZONE}
    zonal = daemon(cpu="1", memory="1Mi", node_selector={names.ZONE: Z1})
    unzoned = running("big", capacity=ROOM, allocatable=USABLE)
    assert unzoned.node is not None
    from msgspec.structs import replace

    unzoned = replace(
        unzoned, node=replace(unzoned.node, metadata=replace(unzoned.node.metadata, labels=bare))
    )
    plan = World(nodes=[unzoned], daemons=[zonal]).solve(pod("web", cpu="15900m", memory="1Mi"))
    assert list(plan.existing) == ["big"]
    types = [instance_type("small", 2, "2Gi"), instance_type("large", 4, "4Gi")]
    (new,) = World(types=types, daemons=[zonal]).solve(pod("web", cpu="1500m", memory="1Mi")).new_nodes
    assert new.instance_type == "large"


@pytest.mark.spec("T-149")
@pytest.mark.parametrize("count", [1, 2])
def test_a_claim_asks_for_its_pods_and_daemons_once(count: int) -> None:
    pods = [pod(f"web-{i}", cpu="1", memory="1Mi") for i in range(count)]
    (node,) = World(daemons=[daemon(cpu="1", memory="1Mi")]).solve(*pods).new_nodes
    total = count + 1
    assert node.requests == amounts(cpu=total, memory=f"{total}Mi", pods=total)

"""Drift: what counts as drifted, in which order, and in exchange for what."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodepool import NodePool
from dovetail.api.pod import Pod
from dovetail.api.reasons import NODEPOOL_DRIFTED, REQUIREMENTS_DRIFTED
from dovetail.disruption.candidates import BLOCKED, DisruptionClass
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.methods.drift import (
    choose_drift,
    choose_static_drift,
    count_static_replacements,
    find_pool_drift,
    is_old_enough,
    is_type_gone,
)
from dovetail.disruption.methods.drift_waves import sort_by_drift
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, condition, nodeclaim, nodepool, owner, pod
from support.disruption import going, names_of, pdb, pool, scene, state
from support.worlds import RESERVATION, Z1, Z2, apart, instance_type, offering

RS = owner("ReplicaSet")
HOUR = timedelta(hours=1)
GRACE = {"termination_grace_period": "5m"}


def noted(obj: Any, hash: str = "1", version: str = "v3") -> Any:
    notes = {labels.NODEPOOL_HASH: hash, labels.NODEPOOL_HASH_VERSION: version}
    kept = {key: value for key, value in notes.items() if value}
    return replace(obj, metadata=replace(obj.metadata, annotations=kept))


def claim(**known: str) -> NodeClaim:
    return nodeclaim(labels={labels.OS: "linux", **known})


def asks(*requirement: str) -> NodePool:
    return nodepool(requirements=[requirement])


# What counts as drifted


@pytest.mark.spec("disruption-17", "disruption-18")
def test_a_claim_has_drifted_when_the_hashes_differ_and_can_be_compared() -> None:
    assert find_pool_drift(noted(nodepool(), "2"), noted(claim(), "1")) == NODEPOOL_DRIFTED
    assert find_pool_drift(noted(nodepool()), noted(claim())) == ""
    silent = [
        (noted(nodepool(), ""), noted(claim(), "1")),
        (noted(nodepool(), "2"), noted(claim(), "")),
        (noted(nodepool(), "2", ""), noted(claim(), "1")),
        (noted(nodepool(), "2"), noted(claim(), "1", "")),
        (noted(nodepool(), "2", "v2"), noted(claim(), "1", "v3")),
    ]
    assert [find_pool_drift(a, b) for a, b in silent] == [""] * len(silent)


@pytest.mark.spec("disruption-7")
def test_the_hash_comes_before_requirements() -> None:
    both = noted(asks(labels.OS, "In", "windows"), "2")
    assert find_pool_drift(both, noted(claim(), "1")) == NODEPOOL_DRIFTED


@pytest.mark.spec(
    "disruption-11", "disruption-12", "disruption-13", "disruption-14", "disruption-15", "disruption-16"
)
@pytest.mark.parametrize(
    ("wanted", "known", "found"),
    [
        ((labels.CAPACITY_TYPE, "In", "spot"), {labels.CAPACITY_TYPE: "on-demand"}, True),
        ((labels.ARCH, "In", "amd64"), {}, True),
        ((labels.ARCH, "NotIn", "amd64"), {}, False),
        ((labels.ARCH, "DoesNotExist"), {}, False),
        ((labels.OS, "In", "windows"), {}, True),
        ((labels.OS, "In", "linux", "windows"), {}, False),
        ((labels.OS, "Exists"), {}, False),
        ((labels.OS, "DoesNotExist"), {}, True),
        (("cpu", "Gt", "10"), {"cpu": "5"}, True),
        (("cpu", "Gt", "2"), {"cpu": "5"}, False),
        (("cpu", "Lt", "1"), {"cpu": "2"}, True),
        (("cpu", "Lt", "5"), {"cpu": "2"}, False),
    ],
)
def test_a_claim_has_drifted_when_its_labels_are_outside_what_the_pool_asks(
    wanted: tuple[str, ...], known: dict[str, str], found: bool
) -> None:
    assert find_pool_drift(asks(*wanted), claim(**known)) == (REQUIREMENTS_DRIFTED if found else "")


@pytest.mark.spec("disruption-19")
def test_a_type_that_is_no_longer_sold_is_drift_after_an_hour() -> None:
    sold = instance_type("mine", offerings=[offering(Z1, "on-demand", 1.0, available=False)])
    known = {labels.INSTANCE_TYPE: "mine", labels.ZONE: Z1, labels.CAPACITY_TYPE: "on-demand"}
    assert not is_type_gone(claim(**known), [sold])
    assert is_type_gone(claim(), [sold])
    assert is_type_gone(claim(**known), [])
    assert is_type_gone(claim(**known), [replace(sold, offerings=())])
    assert is_type_gone(claim(**known | {labels.ZONE: Z2}), [sold])
    young, old = nodeclaim(created=NOW - HOUR / 6), nodeclaim(created=NOW - 2 * HOUR)
    assert (is_old_enough(young, NOW), is_old_enough(old, NOW)) == (False, True)


@pytest.mark.spec("disruption-20")
@pytest.mark.parametrize(
    ("kinds", "gone"),
    [
        (("reserved", "on-demand"), False),
        (("reserved",), False),
        (("on-demand",), False),
        (("spot",), True),
        ((), True),
    ],
)
def test_a_reserved_machine_may_have_become_an_on_demand_one(kinds: tuple[str, ...], gone: bool) -> None:
    deals = [
        offering(Z1, kind, 1.0, reservation="r-other" if kind == "reserved" else "", count=1)
        for kind in kinds
    ]
    known = {
        labels.INSTANCE_TYPE: "mine",
        labels.ZONE: Z1,
        labels.CAPACITY_TYPE: "reserved",
        RESERVATION: "r-mine",
    }
    assert is_type_gone(claim(**known), [instance_type("mine", offerings=deals)]) is gone


# Who goes


def light(name: str, on: str, cpu: str = "500m", **about: Any) -> Pod:
    return pod(name, cpu=cpu, memory="10Mi", node=on, owned_by=RS, **about)


def gone(choice: DisruptionChoice) -> list[str]:
    return [candidate.name for command in choice.commands for candidate in command.candidates]


@pytest.mark.spec("disruption-124", "disruption-125")
def test_a_drifted_node_is_replaced_or_goes_if_its_pods_fit_elsewhere() -> None:
    (replaced,) = choose_drift(scene(state("a", light("p", "a"), drifted=NOW))).commands
    assert (replaced.decision, len(replaced.replacements)) == ("replace", 1)
    other = state("b", light("q", "b"))
    (deleted,) = choose_drift(scene(state("a", light("p", "a"), drifted=NOW), other)).commands
    assert (deleted.decision, deleted.replacements) == ("delete", ())
    never = pool(consolidate_after="Never")
    (bare,) = choose_drift(scene(state("a", drifted=NOW, consolidatable=False), pools=[never])).commands
    assert bare.decision == "delete"


@pytest.mark.spec("disruption-126")
def test_only_drifted_nodes_that_nobody_holds_are_taken() -> None:
    false = state("b", conditions=[condition("Drifted", "False")])
    assert gone(choose_drift(scene(state("a"), false))) == []
    hold = {labels.DO_NOT_DISRUPT: "true"}
    assert gone(choose_drift(scene(state("a", drifted=NOW, annotations=hold)))) == []
    allow = {labels.DO_NOT_DISRUPT: "false"}
    assert gone(choose_drift(scene(state("a", drifted=NOW, annotations=allow)))) == ["a"]


@pytest.mark.spec("disruption-127")
def test_a_held_pod_stops_drift_unless_there_is_a_deadline_and_nothing_is_bought_for_it() -> None:
    held = light("p", "a", annotations={labels.DO_NOT_DISRUPT: "true"})
    assert gone(choose_drift(scene(state("a", held, drifted=NOW)))) == []
    (command,) = choose_drift(scene(state("a", held, drifted=NOW, claim=GRACE))).commands
    assert command.replacements == ()
    web = light("p", "a", labels={"app": "web"})
    world = scene(state("a", web, drifted=NOW, claim=GRACE), pdbs=[pdb(max_unavailable=0)])
    assert choose_drift(world).commands[0].replacements == ()
    mixed = state("a", held, light("free", "a"), drifted=NOW, claim=GRACE)
    assert len(choose_drift(scene(mixed)).commands[0].replacements) == 1


@pytest.mark.spec("disruption-128")
def test_drift_waits_for_the_longest_rest_a_pod_asked_for() -> None:
    pods = [light(f"p{n}", "a", annotations={labels.DO_NOT_DISRUPT: f"{n}m"}) for n in (1, 3)]
    node = state("a", *pods, drifted=NOW)
    taken = [gone(choose_drift(scene(node, now=NOW + timedelta(minutes=m)))) for m in (0, 2, 3.1)]
    assert taken == [[], [], ["a"]]


@pytest.mark.spec("disruption-129")
def test_a_node_whose_pods_find_no_place_is_told_of_and_the_next_one_goes() -> None:
    stuck = light("stuck", "a", node_selector={"no": "such"})
    first = state("a", stuck, drifted=NOW - HOUR)
    choice = choose_drift(scene(first, state("b", light("q", "b"), drifted=NOW)))
    assert gone(choice) == ["b"]
    (told,) = [s for s in choice.blocked if s.name == "a"]
    assert told.event == BLOCKED
    assert told.why.startswith("not all pods would schedule, default/stuck => ")


@pytest.mark.spec("disruption-130")
def test_pods_that_each_need_a_node_get_one_each() -> None:
    rule = apart(labels.HOSTNAME, app="web")
    pods = [light(f"p{i}", "a", labels={"app": "web"}, affinity=rule) for i in range(3)]
    (command,) = choose_drift(scene(state("a", *pods, drifted=NOW))).commands
    assert len(command.replacements) == 3


@pytest.mark.spec("disruption-131")
def test_nodes_without_pods_go_first_and_then_the_longest_drifted() -> None:
    young, old = state("a", light("p", "a"), drifted=NOW), state("b", light("q", "b"), drifted=NOW - HOUR)
    bare = state("c", drifted=NOW)
    assert gone(choose_drift(scene(young, bare))) == ["c"]
    assert gone(choose_drift(scene(young, old))) == ["b"]
    order = sort_by_drift(going(scene(young, old, bare), DisruptionClass.EVENTUAL))
    assert names_of(order) == ["c", "b", "a"]


def test_room_kept_for_a_buffer_does_not_keep_its_node_from_drift() -> None:
    """Upstream's B10: the node goes, and the provisioner buys room for the buffer on a new one."""
    room = {"virtual": (pod("room", cpu="15"),)}
    assert gone(choose_drift(scene(state("a", drifted=NOW), snapshot=room))) == ["a"]
    pending = [pod("web", cpu="15500m")]  # the larger pod is placed first
    assert gone(choose_drift(scene(state("a", drifted=NOW), pending=pending, snapshot=room))) == []


@pytest.mark.spec("disruption-135")
def test_drift_leaves_static_pools_to_their_own_method() -> None:
    world = scene(state("a", drifted=NOW), pools=[pool(replicas=1)])
    assert choose_drift(world).eligible == 0
    assert gone(choose_static_drift(world)) == ["a"]


# Static pools


def fleet(count: int, of: str = "default", **about: Any) -> list[StateNode]:
    return [
        state(f"{of}-{i}", light(f"p-{of}-{i}", f"{of}-{i}"), pool=of, drifted=NOW, **about)
        for i in range(count)
    ]


@pytest.mark.spec("disruption-136", "disruption-140")
def test_static_nodes_are_replaced_one_for_one_within_budget() -> None:
    wanted = [(labels.INSTANCE_TYPE, "In", "large")]
    for nodes in ("2", "20%"):
        choice = choose_static_drift(
            scene(*fleet(10), pools=[pool(replicas=10, nodes=nodes, requirements=wanted)])
        )
        assert [len(command.candidates) for command in choice.commands] == [1, 1]
        (new,) = choice.commands[0].replacements
        assert (new.pool, new.instance_types) == ("default", ())
        assert new.requirements[labels.INSTANCE_TYPE].names == {"large"}
    pools = [pool("x", replicas=3, nodes="1"), pool("y", replicas=3)]
    both = choose_static_drift(scene(*fleet(3, "x"), *fleet(3, "y"), pools=pools))
    assert sorted(c.candidates[0].pool.name for c in both.commands) == ["x", "y", "y", "y"]


@pytest.mark.spec("disruption-139", "disruption-140")
def test_a_static_pool_that_is_too_large_shrinks_before_it_drifts() -> None:
    one = pool(replicas=1)
    assert count_static_replacements(one, 2, active=2, pending=0) == 0
    assert count_static_replacements(one, 1, active=1, pending=0) == 1
    assert count_static_replacements(pool(replicas=0), 1, active=1, pending=0) == 0


@pytest.mark.spec("disruption-140")
def test_static_nodes_that_are_held_or_have_not_drifted_stay() -> None:
    hold = {labels.DO_NOT_DISRUPT: "true"}
    states = [*fleet(1, annotations=hold), state("b"), state("c", conditions=[condition("Drifted", "False")])]
    assert choose_static_drift(scene(*states, pools=[pool(replicas=3)])).commands == []
    assert choose_static_drift(scene(*fleet(1), pools=[pool(replicas=1, nodes="0")])).commands == []

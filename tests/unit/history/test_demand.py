"""Demand is read from looks: numbers of alike pods, single pods, and what an eviction does not change."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from dovetail.api.core import Node, NodeSpec, Taint
from dovetail.api.meta import ObjectMeta, OwnerReference
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.pod import Pod
from dovetail.disruption.situation import Situation
from dovetail.history.demand import DemandChange, DemandReader
from dovetail.scheduling.model.snapshot import Snapshot, StateNode
from support.builders import NOW, condition, pod

DISRUPTED = Taint(key="karpenter.sh/disrupted", effect="NoSchedule")


def owned(name: str, kind: str = "ReplicaSet", owner: str = "web-1") -> Pod:
    made = pod(name)
    reference = OwnerReference(api_version="apps/v1", kind=kind, name=owner, uid=owner, controller=True)
    return replace(made, metadata=replace(made.metadata, uid=name, owner_references=(reference,)))


def node(name: str, *pods: Pod, going: bool = False) -> StateNode:
    taints = (DISRUPTED,) if going else ()
    bound = tuple(replace(each, node_name=name) for each in pods)
    made = Node(metadata=ObjectMeta(name=name), spec=NodeSpec(taints=taints))
    ends = NOW if going else None
    claim = NodeClaim(metadata=ObjectMeta(name=f"claim-{name}", deletion_timestamp=ends))
    return StateNode(node=made, claim=claim, pods=bound)


def look(*nodes: StateNode, waiting: tuple[Pod, ...] = ()) -> Situation:
    return Situation(snapshot=Snapshot(nodes=nodes, pods=waiting))


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def told(changes: list[DemandChange]) -> list[tuple[str, str, int]]:
    return [(each.what, each.slot or each.workload.name, each.count) for each in changes]


def test_alike_pods_are_a_number_wherever_they_are() -> None:
    reader = DemandReader()
    first = reader.read_look(NOW, look(node("a", owned("w1")), waiting=(owned("w2"),)))
    assert told(first) == [("scale", "web-1", 2)]
    assert reader.read_look(after(10), look(node("a", owned("w1"), owned("w2")))) == []
    assert told(reader.read_look(after(20), look(node("a", owned("w1"))))) == [("scale", "web-1", 1)]
    assert reader.evictions == 0


def test_a_pod_that_is_evicted_and_made_again_was_wanted_all_the_while() -> None:
    reader = DemandReader()
    reader.read_look(NOW, look(node("a", owned("w1")), node("b")))
    assert reader.read_look(after(10), look(node("a", going=True), node("b"))) == []
    assert reader.read_look(after(20), look(node("b"), waiting=(owned("w2"),))) == []
    assert reader.evictions == 1


def test_a_pod_that_nobody_makes_again_is_wanted_no_more() -> None:
    reader = DemandReader()
    reader.read_look(NOW, look(node("a", owned("w1"))))
    assert reader.read_look(after(10), look(node("a", going=True))) == []
    assert told(reader.read_look(after(45), look())) == [("scale", "web-1", 0)]


@pytest.mark.spec("RP-6")
def test_a_job_has_done_the_work_of_the_pod_that_finished() -> None:
    reader = DemandReader()
    come = reader.read_look(NOW, look(node("a", owned("j1", "Job", "sum"))))
    assert told(come) == [("come", "default/j1", 0)]
    assert reader.read_look(after(100), look(node("a", going=True), node("b"))) == []
    assert reader.read_look(after(110), look(node("b", owned("j2", "Job", "sum")))) == []
    (gone,) = reader.read_look(after(410), look(node("b")))
    assert (gone.what, gone.slot, gone.work) == ("go", "default/j1", 295.0)
    assert reader.repeated_hours == pytest.approx(95 / 3600)


@pytest.mark.spec("RP-6")
def test_a_job_that_is_done_on_a_node_that_goes_was_not_evicted() -> None:
    reader = DemandReader()
    reader.read_look(NOW, look(node("a", owned("j1", "Job", "sum"), owned("w1"))))
    assert reader.read_look(after(100), look(node("a", going=True))) == []
    (done, fewer) = reader.read_look(after(140), look())
    assert (done.what, done.work) == ("go", 95.0)
    assert told([fewer]) == [("scale", "web-1", 0)]
    assert (reader.evictions, reader.repeated_hours) == (0, 0.0)


def test_single_pods_come_and_go_and_those_of_nodes_and_daemons_are_nobodys() -> None:
    reader = DemandReader()
    bare, daemon = pod("lone"), owned("d", "DaemonSet", "logs")
    daemon = replace(
        daemon,
        metadata=replace(
            daemon.metadata,
            owner_references=tuple(
                replace(each, api_version="apps/v1") for each in daemon.metadata.owner_references
            ),
        ),
    )
    assert told(reader.read_look(NOW, look(node("a", bare, daemon)))) == [("come", "default/lone", 0)]
    (gone,) = reader.read_look(after(10), look(node("a", daemon)))
    assert (gone.what, gone.slot, gone.work) == ("go", "default/lone", None)


def made(name: str, owner: str, created: float, written: int = 1) -> Pod:
    found = owned(name, owner=owner)
    about = replace(
        found.metadata, creation_timestamp=after(created), resource_version=str(written), generation=1
    )
    return replace(found, metadata=about)


@pytest.mark.spec("RP-1")
def test_pods_of_one_second_come_in_the_order_in_which_they_were_written() -> None:
    waiting = (made("a1", "alpha", 0, 30), made("a2", "alpha", 0, 31), made("z1", "zeta", 0, 20))
    first = DemandReader().read_look(NOW, look(waiting=waiting))
    assert told(first) == [("scale", "zeta", 1), ("scale", "alpha", 2)]


@pytest.mark.spec("RP-1")
def test_a_pod_of_a_job_comes_before_those_that_were_written_after_it() -> None:
    reader = DemandReader()
    reader.read_look(NOW, look())
    written = made("s1", "sum", 5, 20).metadata
    references = tuple(replace(each, kind="Job") for each in written.owner_references)
    job = replace(pod("s1"), metadata=replace(written, owner_references=references))
    waiting = (made("a1", "alpha", 5, 30), job, made("z1", "zeta", 5, 10))
    changes = reader.read_look(after(10), look(waiting=waiting))
    assert told(changes) == [("scale", "zeta", 1), ("come", "default/s1", 0), ("scale", "alpha", 1)]


@pytest.mark.spec("RP-1")
def test_what_is_wanted_changes_when_pods_say_that_they_came_or_were_told_to_go() -> None:
    reader = DemandReader()
    old = made("w1", "web", -100)
    reader.read_look(NOW, look(node("a", old)))
    coming = (made("w2", "web", 3), made("w3", "web", 3), made("w4", "web", 7), made("late", "web", -5))
    changes = reader.read_look(after(10), look(node("a", old), waiting=coming))
    assert [(each.at, each.count) for each in changes] == [(NOW, 2), (after(3), 4), (after(7), 5)]
    ends = replace(old.metadata, deletion_timestamp=after(14 + 30), deletion_grace_period_seconds=30)
    changes = reader.read_look(after(20), look(node("a", replace(old, metadata=ends)), waiting=coming))
    assert [(each.at, each.count) for each in changes] == [(after(14), 4)]
    changes = reader.read_look(after(30), look(node("a"), waiting=coming[:3]))  # nobody said when it went
    assert [(each.at, each.count) for each in changes] == [(after(25), 3)]


@pytest.mark.spec("RP-1")
def test_of_a_rollout_one_pod_goes_for_each_that_comes_where_nobody_saw_them_go() -> None:
    reader = DemandReader()
    old = tuple(made(f"o{number}", "web-old", -100) for number in range(3))
    reader.read_look(NOW, look(node("a", *old)))
    fresh = (made("n0", "web-new", 2), made("n1", "web-new", 4))
    changes = reader.read_look(after(20), look(node("a", *fresh)))
    going = [(each.at, each.count) for each in changes if each.workload.name == "web-old"]
    assert going == [(after(2), 2), (after(4), 0)]


@pytest.mark.spec("RP-1")
def test_a_pod_that_is_gone_was_told_before_those_that_are_still_going() -> None:
    reader = DemandReader()
    gone = made("w0", "web-old", -100), made("w1", "web-old", -100)
    slow = made("w2", "web-old", -100)
    reader.read_look(NOW, look(node("a", *gone, slow)))
    ends = replace(slow.metadata, deletion_timestamp=after(6 + 30), deletion_grace_period_seconds=30)
    fresh = (made("n0", "web-new", 3), made("n1", "web-new", 8))
    there = node("a", replace(slow, metadata=ends), *fresh)
    changes = reader.read_look(after(10), look(there))
    going = [(each.at, each.count) for each in changes if each.workload.name == "web-old"]
    assert going == [(after(3), 1), (after(6), 0)]


@pytest.mark.spec("RP-1")
def test_of_a_rollout_pods_go_as_new_ones_are_ready() -> None:
    """It begins with two new ones: one that may be too many, and one for a pod that goes at once."""
    reader = DemandReader()
    old = tuple(made(f"o{number}", "web-old", -100) for number in range(4))
    reader.read_look(NOW, look(node("a", *old)))
    fresh = [made(f"n{number}", "web-new", at) for number, at in enumerate((1, 1, 4, 6))]
    first = (get_ready(fresh[0], 4), get_ready(fresh[1], 6), *fresh[2:])
    changes = reader.read_look(after(8), look(node("a", old[3], *first)))
    going = [(each.at, each.count) for each in changes if each.workload.name == "web-old"]
    assert going == [(after(1), 3), (after(4), 2), (after(6), 1)]
    # Of the next look only those count that have become ready since, whatever else is new of the others.
    relabelled = replace(first[0], status=replace(first[0].status, phase="Running"))
    second = (relabelled, first[1], get_ready(fresh[2], 9), fresh[3])
    changes = reader.read_look(after(12), look(node("a", *second)))
    assert [(each.at, each.count) for each in changes] == [(after(9), 0)]


def get_ready(pod: Pod, seconds: float) -> Pod:
    ready = condition("Ready", since=after(seconds))
    return replace(pod, status=replace(pod.status, conditions=(ready,)))

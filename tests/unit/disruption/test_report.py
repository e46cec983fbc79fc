"""What would be disrupted now, and why each other node is blocked."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodepool import Budget
from dovetail.api.pod import Pod
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.report import BlockedDetail, DisruptionReport, build_report
from dovetail.scheduling.model import state_node as views
from dovetail.scheduling.model.snapshot_codec import encode_snapshot
from support.builders import NOW, owner, pod
from support.disruption import LARGE, MEDIUM, SMALL, machine, pdb, pool, scene, state
from support.disruption_policies import asking

RS = owner("ReplicaSet")
HOUR = timedelta(hours=1)


def light(name: str, node: str, cpu: str = "1", **about: Any) -> Pod:
    return pod(name, cpu=cpu, memory="10Mi", node=node, owned_by=RS, **about)


def full(name: str, node: str, **about: Any) -> Pod:
    return light(name, node, "15", **about)


def reason(found: DisruptionReport, node: str) -> BlockedDetail:
    return next(each for each in found.blocked_nodes if each.name == node).main


def going(found: DisruptionReport) -> list[str]:
    return [candidate.name for command in found.commands for candidate in command.candidates]


def test_every_node_goes_or_has_a_reason_to_stay() -> None:
    found = build_report(
        scene(
            state("empty"),
            state("drifted", light("p", "drifted"), drifted=NOW - HOUR),
            state("spare", light("q", "spare")),
            state("full", full("r", "full")),
        )
    )
    assert going(found) == ["empty", "drifted"]
    assert [turn.method.reason for turn in found.turns] == ["Empty", "Drifted"]
    assert [(each.name, each.main.blocked_reason) for each in found.blocked_nodes] == [
        ("spare", BlockedReason.NOMINATED),
        ("full", BlockedReason.NO_CHEAPER),
    ]
    assert found.savings == pytest.approx(sum(command.savings for command in found.commands))
    assert not found.more


def test_turns_are_those_of_the_loop_and_can_be_cut_short() -> None:
    world = scene(state("empty"), state("drifted", light("p", "drifted"), drifted=NOW - HOUR))
    found = build_report(world, most=1)
    assert going(found) == ["empty"]
    assert found.more
    assert reason(found, "drifted").why == "it is removable in a later turn"


@pytest.mark.parametrize(
    ("about", "held", "words"),
    [
        ({"nominated": True}, BlockedReason.NOMINATED, "nominated for a pending pod"),
        ({"initialized": False}, BlockedReason.UNINITIALIZED, "isn't initialized"),
        ({"marked": True}, BlockedReason.DELETING, "deleting"),
        ({"annotations": {labels.DO_NOT_DISRUPT: "true"}}, BlockedReason.NODE_DO_NOT_DISRUPT, "annotation"),
        ({"consolidatable": False}, BlockedReason.NOT_YET, "not consolidatable yet (consolidateAfter is 0s"),
        ({"pool": "other"}, BlockedReason.NO_POOL, "NodePool not found (NodePool=other)"),
    ],
)
def test_a_node_says_what_holds_it(about: dict[str, Any], held: BlockedReason, words: str) -> None:
    found = reason(build_report(scene(state("n", light("p", "n"), **about))), "n")
    assert (found.blocked_reason, words in found.why) == (held, True), found


def test_a_pod_that_holds_a_node_is_named() -> None:
    held = light("p", "n", annotations={labels.DO_NOT_DISRUPT: "true"})
    found = reason(build_report(scene(state("n", held))), "n")
    assert (found.blocked_reason, found.pod) == (BlockedReason.POD_DO_NOT_DISRUPT, "default/p")


def test_a_pdb_is_named_with_the_pod_it_protects() -> None:
    guarded = light("p", "n", labels={"app": "web"})
    found = reason(build_report(scene(state("n", guarded), pdbs=[pdb(allowed=0)])), "n")
    assert (found.blocked_reason, found.pod) == (BlockedReason.PDB, "default/p")
    assert found.why.endswith(", for pod default/p")
    assert "PodDisruptionBudget=[" in found.why


def test_a_budget_is_named_with_what_it_allows() -> None:
    budgets = (Budget(nodes="50%"), Budget(nodes="1", reasons=("Drifted",)))
    world = scene(
        *(state(name, full(f"p-{name}", name), drifted=NOW - HOUR) for name in "ab"),
        pools=[pool(budgets=budgets)],
    )
    found = build_report(world)
    assert going(found) == ["a"]
    said = reason(found, "b")
    assert said.blocked_reason is BlockedReason.BUDGET
    assert 'budget "1" for Drifted of pool default allows 1 at once for Drifted' in said.why


@pytest.mark.parametrize(
    ("budgets", "named"),
    [
        ((Budget(nodes="50%"), Budget(nodes="1")), '"1" of pool default allows 1 '),  # half of four is two
        ((Budget(nodes="3"), Budget(nodes="50%")), '"50%" of pool default allows 2 '),
        ((Budget(nodes="0", reasons=("Empty",)), Budget(nodes="2")), '"2" of pool default allows 2 '),
        (
            (Budget(nodes="0", schedule="@daily", duration="24h"), Budget(nodes="0")),
            '"0" at @daily for 24h of pool default allows 0 ',
        ),
        ((Budget(nodes="many"),), '"many" of pool default, which cannot be read ('),
    ],
)
def test_the_budget_that_binds_is_named_and_not_one_that_would_allow_more(
    budgets: tuple[Budget, ...], named: str
) -> None:
    world = scene(
        *(state(name, full(f"p-{name}", name), drifted=NOW - HOUR) for name in "abcd"),
        *(state(name, full(f"p-{name}", name), pool="other") for name in "efgh"),
        pools=[pool(budgets=budgets), pool("other")],
    )
    blocked = build_report(world).blocked_nodes
    said = [each.main for each in blocked if each.main.blocked_reason is BlockedReason.BUDGET]
    assert said
    assert all(f"budget {named}" in each.why for each in said), said


def test_a_static_node_that_has_not_drifted_stays() -> None:
    found = build_report(scene(state("n", light("p", "n")), pools=[pool(replicas=1)]))
    assert reason(found, "n").blocked_reason is BlockedReason.STATIC


def test_a_static_node_goes_only_as_far_as_limits_leave_room_beside_it() -> None:
    nodes = [state(name, full(f"p-{name}", name), drifted=NOW - HOUR) for name in "abc"]
    assert going(build_report(scene(*nodes, pools=[pool(replicas=3, limits={"nodes": "4"})]))) == ["a"]
    assert going(build_report(scene(*nodes, pools=[pool(replicas=3, limits={"nodes": "3"})]))) == []


def test_time_left_of_consolidate_after_is_told() -> None:
    young = state("n", light("p", "n"), consolidatable=False)
    assert young.claim is not None
    claim = replace(young.claim, status=replace(young.claim.status, last_pod_event_time=NOW - 2 * HOUR))
    found = build_report(scene(replace(young, claim=claim), pools=[pool(consolidate_after="3h")]))
    assert "consolidateAfter is 3h, 1h0m0s to go" in reason(found, "n").why


def test_a_node_that_takes_the_pods_of_another_says_so() -> None:
    found = build_report(scene(state("a", light("p", "a")), state("b", light("q", "b", "3")), types=[LARGE]))
    assert going(found) == ["a"]
    assert reason(found, "b").why == "pods of removed nodes would move to it"


def test_a_saving_that_is_too_small_is_short_by_so_much() -> None:
    slightly = machine("slightly", 16, 7.9)
    world = scene(
        state("n", full("p", "n")),
        types=[LARGE, slightly],
        pools=[asking(pool(), min_saving="0.112")],
    )
    found = reason(build_report(world), "n")
    assert found.blocked_reason is BlockedReason.SAVING
    assert found.why.startswith("saving too small by $0.012/h: it saves $0.100")


def test_waves_are_part_of_it() -> None:
    nodes = [state(f"n{i}", full(f"p{i}", f"n{i}"), drifted=NOW - HOUR) for i in range(5)]
    found = build_report(scene(*nodes, pools=[pool(nodes="2")]))
    assert [len(wave.nodes) for wave in found.waves.waves] == [2, 2, 1]
    assert len(found.commands) == 2


def test_the_next_turn_sees_what_was_ordered_for_the_pods_that_move() -> None:
    """The second turn must not buy for the first one's pods again, nor move onto what is not there yet."""
    world = scene(
        state("a", full("p", "a"), drifted=NOW - HOUR),
        state("b", light("q", "b", "3")),
        types=[LARGE, MEDIUM, SMALL],
        pools=[pool(nodes="2")],
    )
    found = build_report(world)
    assert [str(command) for command in found.commands] == [
        "replace: [a] -> [1 replacement]",
        "replace: [b] -> [1 replacement]",
    ]
    assert [node.instance_type for c in found.commands for node in c.replacements] == ["large", "medium"]


def test_a_survey_changes_nothing() -> None:
    world = scene(state("empty"), state("spare", light("q", "spare")))
    before = encode_snapshot(world.snapshot)
    build_report(world)
    assert encode_snapshot(world.snapshot) == before
    assert isinstance(world, DisruptionInput)
    assert all(not views.is_deleting(each) for each in world.snapshot.nodes)

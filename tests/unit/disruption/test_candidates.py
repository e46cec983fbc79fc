"""Which nodes could go at all, and the words for why the others stay."""

from __future__ import annotations

from datetime import timedelta

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.pod import Pod, PodStatus
from dovetail.disruption.candidates import BLOCKED, QUIET, DisruptionClass, find_candidates, sort_by_ratio
from dovetail.scheduling.model.snapshot import StateNode
from support.builders import NOW, condition, node, nodeclaim, owner, pod
from support.disruption import going, machine, names_of, pdb, reason_for, scene, state
from support.worlds import Z1, Z2, instance_type, offering

HOLD = {labels.DO_NOT_DISRUPT: "true"}
WEB = {"app": "web"}
GRACE = {"termination_grace_period": "5m"}
BOTH = (DisruptionClass.GRACEFUL, DisruptionClass.EVENTUAL)


def held(**about: object) -> Pod:
    return pod("held", node="a", annotations=HOLD, **about)  # type: ignore[arg-type]


def phase(pod: Pod, text: str) -> Pod:
    return replace(pod, status=PodStatus(phase=text))


@pytest.mark.spec("disruption-21")
def test_a_pod_that_must_not_be_disrupted_holds_its_node_and_is_named() -> None:
    for kind in BOTH:
        why = reason_for(scene(state("a", held())), "a", kind)
        assert why == 'pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/held)'


@pytest.mark.spec("disruption-22")
@pytest.mark.parametrize("of", [owner("Node", api_version="v1"), owner("DaemonSet")])
def test_mirror_and_daemon_pods_hold_it_too(of: object) -> None:
    assert "do-not-disrupt" in reason_for(scene(state("a", held(owned_by=of))))


@pytest.mark.spec("disruption-23")
def test_a_deadline_lets_drift_take_a_held_node_and_nobody_else() -> None:
    world = scene(state("a", held(), claim=GRACE))
    assert names_of(going(world, DisruptionClass.EVENTUAL)) == ["a"]
    assert going(world, DisruptionClass.GRACEFUL) == []


@pytest.mark.spec("disruption-24")
def test_a_deadline_lets_drift_take_a_node_behind_a_budget_of_pods() -> None:
    web = pod("web", node="a", labels=WEB)
    world = scene(state("a", web, claim=GRACE), pdbs=[pdb()])
    assert names_of(going(world, DisruptionClass.EVENTUAL)) == ["a"]
    assert going(world, DisruptionClass.GRACEFUL) == []
    bare = scene(state("a", web), pdbs=[pdb()])
    for kind in BOTH:
        expected = "pdb prevents pod evictions (PodDisruptionBudget=[default/pdb])"
        assert reason_for(bare, "a", kind) == expected


@pytest.mark.spec("disruption-25")
def test_pods_that_have_ended_or_are_ending_hold_nothing() -> None:
    ended = [phase(held(), "Succeeded"), phase(held(), "Failed"), held(deleted=NOW)]
    for each in ended:
        assert names_of(going(scene(state("a", each)))) == ["a"]


@pytest.mark.spec("disruption-26")
def test_a_node_that_asks_not_to_be_disrupted_is_left_alone() -> None:
    why = reason_for(scene(state("a", annotations=HOLD)))
    assert why == 'disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation'
    assert names_of(going(scene(state("a", annotations={labels.DO_NOT_DISRUPT: "false"})))) == ["a"]


@pytest.mark.spec("disruption-27")
def test_budgets_of_pods_hold_a_node_and_are_named() -> None:
    web = pod("web", node="a", labels=WEB)
    two = reason_for(scene(state("a", web), pdbs=[pdb("one", allowed=1), pdb("two", allowed=1)]))
    assert two.startswith("eviction does not support multiple PDBs")
    assert "default/one" in two
    assert "default/two" in two
    daemon = pod("web", node="a", labels=WEB, owned_by=owner("DaemonSet"))
    assert "pdb prevents" in reason_for(scene(state("a", daemon), pdbs=[pdb(max_unavailable=0)]))
    mirror = pod("web", node="a", labels=WEB, owned_by=owner("Node", api_version="v1"))
    for free in (mirror, phase(web, "Succeeded"), replace(web, metadata=held(deleted=NOW).metadata)):
        assert names_of(going(scene(state("a", free), pdbs=[pdb(max_unavailable=0)]))) == ["a"]


@pytest.mark.spec("disruption-74")
def test_lenient_and_foreign_budgets_hold_nothing() -> None:
    unready = replace(
        pod("web", node="a", labels=WEB),
        status=PodStatus(phase="Running", conditions=(condition("Ready", "False"),)),
    )
    lenient = pdb(unhealthy_pod_eviction_policy="AlwaysAllow")
    assert names_of(going(scene(state("a", unready), pdbs=[lenient]))) == ["a"]
    web = pod("web", node="a", labels=WEB)
    assert names_of(going(scene(state("a", web), pdbs=[pdb(namespace="other")]))) == ["a"]
    both = scene(state("a", web), state("b", pod("plain", node="b")), pdbs=[pdb()])
    assert names_of(going(both)) == ["b"]


@pytest.mark.spec("disruption-28")
@pytest.mark.parametrize(
    ("given", "why", "event"),
    [
        (StateNode(node=node("a", nodepool="")), "node isn't managed by karpenter", QUIET),
        (StateNode(claim=nodeclaim("a")), "nodeclaim does not have an associated node", BLOCKED),
        (state("a", initialized=False), "node isn't initialized", BLOCKED),
        (state("a", marked=True), "node is deleting or marked for deletion", BLOCKED),
        (state("a", claim={"deleted": NOW}), "node is deleting or marked for deletion", BLOCKED),
        (state("a", nominated=True), "node is nominated for a pending pod", BLOCKED),
    ],
)
def test_a_node_that_is_not_ready_to_go_stays_and_says_why(given: StateNode, why: str, event: str) -> None:
    found, staying = find_candidates(scene(given), DisruptionClass.GRACEFUL)
    assert found == []
    assert [(each.why, each.event) for each in staying] == [(why, event)]


@pytest.mark.spec("disruption-29")
def test_a_node_of_no_pool_or_of_one_that_is_gone_stays() -> None:
    lost = state("a")
    assert lost.node is not None
    kept = {key: value for key, value in lost.node.labels.items() if key != labels.NODEPOOL}
    bare = replace(lost, node=replace(lost.node, metadata=replace(lost.node.metadata, labels=kept)))
    assert reason_for(scene(bare)) == "node doesn't have required label (label=karpenter.sh/nodepool)"
    assert reason_for(scene(state("a", pool="other"))) == "NodePool not found (NodePool=other)"
    nothing_to_buy = scene(state("a"), types=())
    assert reason_for(nothing_to_buy) == "NodePool not found (NodePool=default)"
    assert all(each.event == BLOCKED for each in find_candidates(nothing_to_buy, DisruptionClass.GRACEFUL)[1])


@pytest.mark.spec("disruption-30")
@pytest.mark.parametrize("key", [labels.CAPACITY_TYPE, labels.ZONE, labels.INSTANCE_TYPE])
def test_a_node_whose_price_cannot_be_known_is_a_candidate_still(key: str) -> None:
    (found,) = going(scene(state("a", labels={key: ""})))
    assert found.price == 0.0
    (unknown,) = going(scene(state("a", labels={labels.INSTANCE_TYPE: "no-such-type"})))
    assert unknown.instance_type is None


@pytest.mark.spec("disruption-31")
def test_a_node_in_the_queue_is_not_chosen_again() -> None:
    world = scene(state("a"), queued=["kwok://a"])
    found, staying = find_candidates(world, DisruptionClass.GRACEFUL)
    assert found == []
    assert [(each.why, each.event) for each in staying] == [("candidate is already being disrupted", QUIET)]


@pytest.mark.spec("disruption-33")
def test_a_candidate_costs_what_its_own_offering_costs_available_or_not() -> None:
    mixed = instance_type(
        "mixed",
        offerings=[offering(Z2, "on-demand", 5.0), offering(Z1, "on-demand", 1.0, available=False)],
    )
    (found,) = going(scene(state("a", of=mixed), types=[mixed]))
    assert found.price == 1.0


@pytest.mark.spec("disruption-34")
def test_a_price_that_is_no_number_counts_as_nothing() -> None:
    strange = machine("strange", 4, float("nan"))
    (found,) = going(scene(state("a", of=strange), types=[strange]))
    assert found.price == 0.0
    (unknown,) = going(scene(state("a", labels={labels.INSTANCE_TYPE: "gone"})))
    assert unknown.price == 0.0


@pytest.mark.spec("disruption-35")
def test_of_equal_prices_the_least_disruption_goes_first() -> None:
    def crowd(name: str, count: int) -> StateNode:
        return state(name, *(pod(f"{name}-{i}", cpu="10m", node=name) for i in range(count)))

    found = going(scene(crowd("c", 19), crowd("a", 4), crowd("b", 0)))
    assert sorted(candidate.cost for candidate in found) == [1.0, 5.0, 20.0]
    assert names_of(sort_by_ratio(found)) == ["b", "a", "c"]


@pytest.mark.spec("disruption-93")
def test_a_pod_may_ask_for_peace_for_a_while() -> None:
    resting = pod("resting", node="a", annotations={labels.DO_NOT_DISRUPT: "2m"})
    assert "do-not-disrupt" in reason_for(scene(state("a", resting)))
    later = NOW + timedelta(minutes=2, seconds=1)
    assert names_of(going(scene(state("a", resting), now=later))) == ["a"]
    wrong = pod("wrong", node="a", annotations={labels.DO_NOT_DISRUPT: "for ever"})
    assert names_of(going(scene(state("a", wrong)))) == ["a"]


@pytest.mark.spec("disruption-92")
def test_a_deadline_does_not_open_held_nodes_to_consolidation() -> None:
    web = pod("web", node="b", labels=WEB)
    world = scene(state("a", held(), claim=GRACE), state("b", web, claim=GRACE), pdbs=[pdb()])
    assert going(world, DisruptionClass.GRACEFUL) == []


def test_pods_that_weigh_nothing_leave_a_node_empty() -> None:
    light = pod("light", node="a", annotations={labels.POD_DELETION_COST: str(-(2**27))})
    assert [candidate.empty for candidate in going(scene(state("a", light)))] == [True]
    assert [candidate.empty for candidate in going(scene(state("a", pod("p", node="a"))))] == [False]

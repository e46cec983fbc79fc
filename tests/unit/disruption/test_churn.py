"""Not too often and not for too little."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.pod import Pod
from dovetail.disruption import policy
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.budgets import compute_allowances
from dovetail.disruption.choose import DisruptionChoice
from dovetail.disruption.methods.consolidation import choose_multi_node, choose_single_node
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.validate import CHURN, InvalidCommand, validate_candidates
from dovetail.settings import Settings
from dovetail.settings.value_kinds import Rate
from support.builders import NOW, owner, pod
from support.disruption import LARGE, MEDIUM, machine, pool, scene, state
from support.disruption_policies import asking

RS = owner("ReplicaSet")
HOUR = timedelta(hours=1)
SLIGHTLY = machine("slightly", 16, 7.9)


def light(name: str, node: str, cpu: str = "1", created: datetime = NOW - 9 * HOUR, **about: Any) -> Pod:
    return pod(name, cpu=cpu, memory="10Mi", node=node, owned_by=RS, created=created, **about)


def old(name: str, *pods: Pod, **about: Any) -> Any:
    return state(name, *pods, claim={"created": NOW - 9 * HOUR}, **about)


def held(choice: DisruptionChoice) -> list[tuple[str, BlockedReason]]:
    return [(each.name, each.blocked_reason) for each in choice.blocked]


def stamped(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")


def test_all_knobs_are_off_by_default() -> None:
    assert policy.read_policy(pool()) == policy.DisruptionPolicy()
    defaults = policy.read_default_annotations(Settings())
    assert set(defaults) == {labels.DRIFT_PAUSE_AFTER}
    assert policy.read_policy(policy.add_default_annotations(pool(), defaults)) == policy.DisruptionPolicy()


def test_a_setting_holds_for_every_pool_and_an_annotation_wins() -> None:
    settings = Settings(
        consolidate_many=True,
        consolidation_min_saving=0.5,
        consolidation_min_saving_percent=10,
        consolidation_max_payback=2 * HOUR,
        consolidation_rest=HOUR,
        disruption_rate=Rate(3, HOUR),
    )
    defaults = policy.read_default_annotations(settings)
    assert policy.read_policy(policy.add_default_annotations(pool(), defaults)) == policy.DisruptionPolicy(
        many=True, min_saving=0.5, min_percent=10, max_payback=2 * HOUR, rest=HOUR, rate=Rate(3, HOUR)
    )
    own = policy.read_policy(
        policy.add_default_annotations(asking(pool(), consolidation="one", min_saving="0"), defaults)
    )
    assert (own.many, own.min_saving, own.min_percent) == (False, 0.0, 10)


def test_a_pool_with_nothing_left_unsaid_is_the_very_same_record() -> None:
    given = pool()
    assert policy.add_default_annotations(given, {}) is given


@pytest.mark.parametrize(
    ("knob", "least", "why"),
    [
        ("min_saving", "0.112", "saving too small by $0.012/h: it saves $0.100, and pool default requires"),
        (
            "min_saving_percent",
            "2",
            "saving too small by $0.060/h: it saves $0.100, and pool default requires",
        ),
        ("max_payback", "1h", "it pays for itself after 7h54m0s, and pool default allows 1h0m0s at most"),
    ],
)
def test_a_small_saving_is_left_and_its_reason_told(knob: str, least: str, why: str) -> None:
    node = old("n", light("p", "n", "15"))
    world = scene(node, types=[LARGE, SLIGHTLY], pools=[asking(pool(), **{knob: least})])
    choice = choose_single_node(world)
    assert choice.commands == []
    (said,) = [each.why for each in choice.blocked if each.name == "n"]
    assert said.startswith(why)
    assert choose_single_node(scene(node, types=[LARGE, SLIGHTLY])).commands


def test_a_saving_that_is_just_enough_is_made() -> None:
    node = old("n", light("p", "n", "15"))
    world = scene(node, types=[LARGE, SLIGHTLY], pools=[asking(pool(), min_saving="0.1")])
    assert len(choose_single_node(world).commands) == 1


def test_many_nodes_at_once_are_asked_the_same() -> None:
    nodes = [old(name, light(f"p-{name}", name)) for name in "abc"]
    assert choose_multi_node(scene(*nodes)).commands
    assert choose_multi_node(scene(*nodes, pools=[asking(pool(), min_saving="1000")])).commands == []


def test_an_empty_node_goes_however_little_it_saves() -> None:
    assert choose_empty_nodes(
        scene(old("n"), pools=[asking(pool(), min_saving="1000", rest="100h")])
    ).commands


def test_a_pod_that_came_lately_is_not_moved_again() -> None:
    young = light("p", "n", created=NOW - HOUR)
    resting = choose_single_node(scene(old("n", young), pools=[asking(pool(), rest="3h")]))
    assert resting.commands == []
    assert ("n", BlockedReason.RESTING) in held(resting)
    assert (
        resting.blocked[-1].why == "pod default/p came 1h0m0s ago and is left alone for 3h0m0s (2h0m0s to go)"
    )
    assert choose_single_node(scene(old("n", young), pools=[asking(pool(), rest="1h")])).commands


def test_a_node_that_came_lately_stays_a_while() -> None:
    node = state("n", light("p", "n"), claim={"created": NOW - HOUR})
    assert ("n", BlockedReason.RESTING) in held(
        choose_single_node(scene(node, pools=[asking(pool(), rest="2h")]))
    )


def test_a_pod_that_comes_during_the_wait_makes_the_command_invalid() -> None:
    pools = [asking(pool(), rest="1h")]
    (command,) = choose_single_node(scene(old("n", light("p", "n")), pools=pools)).commands
    changed = scene(old("n", light("p", "n"), light("new", "n", created=NOW)), pools=pools)
    assert validate_candidates(changed, command) == InvalidCommand(CHURN, 1)


def test_a_rate_counts_what_went_lately_and_forgets_the_rest() -> None:
    noted = f"{stamped(NOW - 2 * HOUR)}=5 {stamped(NOW - timedelta(minutes=50))}=2"
    mine = asking(pool(), rate="3/1h", recent=noted)
    assert policy.count_rate_left(mine, NOW) == 1
    assert policy.count_rate_left(mine, NOW + timedelta(minutes=10)) == 3
    assert policy.count_rate_left(pool(), NOW) is None
    choice = choose_empty_nodes(scene(*(old(name) for name in "abc"), pools=[mine]))
    assert len(choice.commands[0].candidates) == 1
    assert sorted(held(choice)) == [("b", BlockedReason.RATE), ("c", BlockedReason.RATE)]
    assert choice.constrained


def test_a_budget_that_is_tighter_than_the_rate_is_what_holds() -> None:
    choice = choose_empty_nodes(scene(old("a"), old("b"), pools=[asking(pool(nodes="1"), rate="9/1h")]))
    assert held(choice) == [("b", BlockedReason.BUDGET)]


def test_notes_are_kept_in_order_and_only_while_they_count() -> None:
    moves = {NOW: 1, NOW - HOUR: 2, NOW - timedelta(minutes=5): 3}
    note = policy.format_moves(moves, NOW, HOUR)
    assert note == f"{stamped(NOW - timedelta(minutes=5))}=3 {stamped(NOW)}=1"
    assert policy.read_recent_moves(asking(pool(), recent=note)) == {NOW - timedelta(minutes=5): 3, NOW: 1}


@pytest.mark.parametrize(
    "note", ["nonsense", "2026-06-01T12:00:00Z=", "=3", "2026-06-01=-1", "2026-06-01T1=1"]
)
def test_what_is_no_note_is_passed_over(note: str) -> None:
    assert policy.read_recent_moves(asking(pool(), recent=note)) == {}


@pytest.mark.parametrize(
    "knob",
    [
        {"min_saving": "much"},
        {"min_saving": "nan"},
        {"min_saving": "inf"},
        {"min_saving_percent": "-3"},
        {"max_payback": "soon"},
        {"rest": "x"},
        {"consolidation": "some"},
    ],
)
def test_an_annotation_that_cannot_be_read_holds_consolidation_back(knob: dict[str, str]) -> None:
    choice = choose_single_node(scene(old("n", light("p", "n")), pools=[asking(pool(), **knob)]))
    assert choice.commands == []
    assert held(choice) == [("n", BlockedReason.UNREADABLE)]


def test_an_extra_that_cannot_be_read_holds_consolidation_back_and_says_what_was_meant() -> None:
    bad = pool()
    bad = replace(bad, metadata=replace(bad.metadata, annotations={labels.NODE_EXTRA: "0.1/cpu"}))
    choice = choose_single_node(scene(old("n", light("p", "n")), pools=[bad]))
    assert choice.commands == []
    assert held(choice) == [("n", BlockedReason.UNREADABLE)]
    (why,) = policy.read_policy(bad).problems.values()
    assert (
        why == "cost.dovetail.sh/node-extra-hourly: '0.1/cpu' is for no unit there is: did you mean 0.1/vcpu?"
    )


def test_a_rate_that_cannot_be_read_lets_nothing_go() -> None:
    world = scene(old("n"), pools=[asking(pool(), rate="fast")])
    assert compute_allowances(world, "Empty").count_left("default") == 0
    assert choose_empty_nodes(world).commands == []


@pytest.mark.parametrize("text", ["", "10", "1/0s", "/1h", "-1/1h", "1/-1h", "1/x"])
def test_what_is_no_rate_is_refused(text: str) -> None:
    from dovetail.settings.value_kinds import parse_rate

    with pytest.raises(ValueError, match=r"rate|duration|unit"):
        parse_rate(text)


def test_a_move_between_pools_must_please_them_all() -> None:
    easy, hard = asking(pool("easy"), min_saving="0.01"), asking(pool("hard"), min_saving="1000")
    nodes = [old("a", light("p", "a"), pool="easy"), old("b", light("q", "b"), pool="hard")]
    world = scene(*nodes, pools=[easy, hard], types=[LARGE, MEDIUM])
    assert choose_multi_node(world).commands == []
    assert [c.name for command in choose_single_node(world).commands for c in command.candidates] == ["a"]
    assert replace(easy, status=easy.status) == easy

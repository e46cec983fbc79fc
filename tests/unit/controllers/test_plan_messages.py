"""What is said of decisions, in which words, and how often."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels as names
from dovetail.api.meta import Condition
from dovetail.controllers import plan_messages
from dovetail.disruption.command import EMPTY, SINGLE, Command
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.logs import Changes
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.requirements import Requirements
from support.builders import nodepool, pod
from support.disruption import going, scene, state
from support.log_lines import log_lines
from support.worlds import World, apart, spread


class Said:
    """Lines by message, and a clock moved by hand that says when the same is said again."""

    def __init__(self) -> None:
        self.now = 0.0
        self.changes = Changes(lambda: self.now)

    def lines(self, say: Any, *about: Any, level: str = "info") -> list[tuple[str, dict[str, Any]]]:
        with log_lines(level) as told:
            say(*about)
            found = told()
        hidden = ("level", "time", "logger", "message", "commit")
        return [(each["message"], {k: v for k, v in each.items() if k not in hidden}) for each in found]

    def words(self, say: Any, *about: Any) -> list[str]:
        return [message for message, _ in self.lines(say, *about)]


def planned(name: str, *pods: str, **about: Any) -> PlannedNode:
    return PlannedNode(name, "default", Requirements(), ("small", "large"), pods, {}, **about)


FOUND, COMPUTED = "found provisionable pod(s)", "computed new nodeclaim(s) to fit pod(s)"
FILTERED = "skipping, nodepool requirements filtered out all instance types"
EXISTING = "computed unready node(s) will fit pod(s)"


def test_a_plan_that_orders_nodes_says_for_whom_and_how_many() -> None:
    said = Said()
    plan = World().solve(*(pod(f"p{i}", cpu="3") for i in range(2)))
    found = dict(said.lines(plan_messages.log_plan, plan, 0.5, said.changes))
    assert list(found) == [FOUND, COMPUTED]
    assert found[FOUND]["duration"] == "500ms"
    assert found[COMPUTED] == {"nodeclaims": len(plan.new_nodes), "pods": 2}
    both = replace(plan, existing={"a": ("default/q", "default/r"), "b": ()})
    told = dict(said.lines(plan_messages.log_plan, both, 0.5, said.changes))
    assert told[EXISTING] == {"nodes": 1, "pods": 2}
    assert said.words(plan_messages.log_plan, replace(both, new_nodes=()), 0.5, said.changes) == []


def test_what_stands_in_the_way_is_said_once_for_each_reason_and_hour() -> None:
    said = Said()
    plan = Plan(unschedulable={"default/p": "no room", "default/q": ""}, pool_problems={"general": "empty"})
    first = said.lines(plan_messages.log_plan, plan, 0.0, said.changes)
    assert first == [
        ("could not schedule pod", {"Pod": {"name": "p", "namespace": "default"}, "error": "no room"}),
        (
            "skipping, nodepool requirements filtered out all instance types",
            {"NodePool": {"name": "general"}},
        ),
    ]
    assert said.words(plan_messages.log_plan, plan, 0.0, said.changes) == []
    other = Plan(unschedulable={"default/p": "a taint"}, pool_problems={"general": "still empty"})
    assert len(said.words(plan_messages.log_plan, other, 0.0, said.changes)) == 2
    said.now = 3600.0
    assert len(said.words(plan_messages.log_plan, other, 0.0, said.changes)) == 2


def test_a_refused_claim_is_told_with_its_pods_once() -> None:
    said, node = Said(), planned("n", "default/p")
    lines = said.lines(plan_messages.log_refused_claim, node, ValueError("limit"), said.changes)
    about = {"NodePool": {"name": "default"}, "Pods": "default/p", "error": "limit"}
    assert lines == [("could not create nodeclaim", about)]
    assert said.words(plan_messages.log_refused_claim, node, ValueError("limit"), said.changes) == []
    assert len(said.words(plan_messages.log_refused_claim, node, ValueError("quota"), said.changes)) == 1


def unready(*conditions: Condition) -> Any:
    pool = nodepool("general", ready=False)
    return replace(pool, status=replace(pool.status, conditions=conditions))


@pytest.mark.parametrize(
    ("conditions", "why"),
    [
        ((), "its conditions are not known yet"),
        ((Condition("Ready", "False", "NotReady", "", None),), "Ready=False, NotReady"),
        (
            (
                Condition("Ready", "False", "NotReady", "", None),
                Condition("NodeClassReady", "False", "Gone", "no such class", None),
                Condition("ValidationSucceeded", "True", "", "", None),
            ),
            "NodeClassReady=False, no such class",
        ),
    ],
)
def test_a_pool_that_cannot_grow_says_what_is_behind_it(conditions: tuple[Condition, ...], why: str) -> None:
    said, pool = Said(), unready(*conditions)
    lines = said.lines(plan_messages.log_pools_not_ready, [pool, nodepool("fine")], 1, said.changes)
    about = {"NodePool": {"name": "general"}, "error": why}
    assert lines == [("ignoring nodepool, not ready", about)]
    assert said.words(plan_messages.log_pools_not_ready, [pool], 1, said.changes) == []


def test_that_no_pool_can_grow_is_said_once() -> None:
    said = Said()
    assert said.words(plan_messages.log_pools_not_ready, [], 0, said.changes) == [
        "no dynamic nodepools found"
    ]
    assert said.words(plan_messages.log_pools_not_ready, [], 0, said.changes) == []


def test_a_pool_without_instance_types_says_whether_it_has_none_or_they_cannot_be_listed() -> None:
    said, pool = Said(), nodepool("general")
    none, failed = "skipping, no resolved instance types found", "skipping, unable to resolve instance types"
    assert said.words(plan_messages.log_types_missing, pool, None, said.changes) == [none]
    assert said.words(plan_messages.log_types_missing, pool, None, said.changes) == []
    assert said.words(plan_messages.log_types_missing, pool, ValueError("denied"), said.changes) == [failed]
    assert said.words(plan_messages.log_types_missing, pool, ValueError("denied"), said.changes) == []


APART = "pod(s) have a preferred Anti-Affinity which can prevent consolidation"
SPREAD = "pod(s) have a preferred TopologySpreadConstraint which can prevent consolidation"


def test_pods_whose_wishes_keep_nodes_are_named_once_and_those_who_insist_are_not() -> None:
    said = Said()
    pods = (
        pod("plain"),
        pod("apart", affinity=apart(names.ZONE, preferred=True, app="web")),
        pod("insists", affinity=apart(names.ZONE, app="web")),
        pod("spread", topology_spread_constraints=(spread(names.ZONE, soft=True),)),
        pod("strict", topology_spread_constraints=(spread(names.ZONE),)),
    )
    assert said.lines(plan_messages.log_preferences, pods, said.changes) == [
        (APART, {"pods": "default/apart"}),
        (SPREAD, {"pods": "default/spread"}),
    ]
    assert said.words(plan_messages.log_preferences, pods, said.changes) == []


def test_static_pools_say_what_they_lack_and_what_stops_them() -> None:
    said = Said()
    assert said.lines(plan_messages.log_limit_reached, "static") == [
        ("nodepool node limit reached", {"NodePool": {"name": "static"}})
    ]
    assert said.lines(plan_messages.log_replicas_missing, "static", 1, 4, 3) == [
        (
            "provisioning nodeclaims to satisfy replica count",
            {"NodePool": {"name": "static"}, "current": 1, "desired": 4, "provision-count": 3},
        )
    ]


def test_a_command_is_told_when_it_begins_ends_and_fails() -> None:
    said = Said()
    (command,) = choose_empty_nodes(scene(state("a"), state("b"))).commands
    ((message, about),) = said.lines(plan_messages.log_command, command)
    assert message == "disrupting node(s)"
    assert (about["reason"], about["decision"]) == ("empty", "delete")
    assert (about["disrupted-node-count"], about["replacement-node-count"], about["pod-count"]) == (2, 0, 0)
    assert [each["Node"]["name"] for each in about["disrupted-nodes"]] == ["a", "b"]
    assert [each["instance-type"] for each in about["disrupted-nodes"]] == ["large", "large"]
    assert about["replacement-nodes"] == []
    assert f"{EMPTY.reason}/{about['command-id']}: delete: nodepools=[default]" in about["command"]

    assert said.words(plan_messages.log_command_done, command) == []
    ((done, same),) = said.lines(plan_messages.log_command_done, command, level="debug")
    assert (done, same["command"]) == ("command succeeded", about["command"])
    for lost, why in ((2, "2 of its replacements did not come"), (0, "it took too long")):
        ((_, failed),) = said.lines(plan_messages.log_failed_command, command, lost)
        assert (failed["nodes"], failed["error"]) == ("a,b", why)


@pytest.mark.parametrize(
    ("kinds", "told"),
    [(("on-demand", "spot"), "spot"), (("spot", "reserved"), "reserved"), ((), "on-demand")],
)
def test_a_single_replacement_says_as_what_it_would_be_bought(kinds: tuple[str, ...], told: str) -> None:
    said, (candidate,) = Said(), going(scene(state("a")))
    new = planned("n", capacity_types=kinds, capacity_type="on-demand")

    def replacements(*nodes: PlannedNode) -> Any:
        command = Command(SINGLE, (candidate,), replacements=nodes)
        ((_, about),) = said.lines(plan_messages.log_command, command)
        return about["replacement-nodes"]

    assert replacements(new) == [{"capacity-type": told, "instance-types": "small, large"}]
    assert replacements(new, new) == [{"capacity-type": told}, {"capacity-type": told}]

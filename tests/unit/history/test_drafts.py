"""Drafts from plans, reports and commands: only what changed, in the words of explain and plan."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.cli.views.disruptions import show_node
from dovetail.cli.views.output import Output
from dovetail.disruption.command import EMPTY, Command
from dovetail.disruption.methods.emptiness import choose_empty_nodes
from dovetail.disruption.report import build_report
from dovetail.history import drafts
from dovetail.history.record import RecordKind
from dovetail.history.verdicts import Verdict, VerdictKey
from dovetail.scheduling.model.plan import Plan, PlannedNode
from dovetail.scheduling.model.reasons import Decision, NodeReason, Reason
from dovetail.scheduling.model.requirements import Requirements
from dovetail.scheduling.solve import QUICK, solve
from support.builders import nodeclaim, pod
from support.disruption import SMALL, pdb, pool, scene, state
from support.explain_snapshots import world


def planned(name: str = "default-1", **about: Any) -> PlannedNode:
    known: dict[str, Any] = {
        "name": name,
        "pool": "default",
        "requirements": Requirements({}),
        "instance_types": ("m5.large", "m5.xlarge"),
        "instance_type": "m5.large",
        "zone": "z1",
        "capacity_type": "spot",
        "price": 0.03,
        "pods": ("shop/web-1",),
        "requests": {},
    }
    return PlannedNode(**(known | about))


def keys(found: list[Verdict]) -> dict[str, VerdictKey]:
    return {each.draft.subject: each.key for each in found}


def test_an_unschedulable_pod_is_told_with_the_tally_and_the_nearest_miss() -> None:
    plan = solve(world(40, [pod("stuck", cpu="10000")]), QUICK)
    (found,) = drafts.of_plan(plan, {})
    decision = plan.decisions[0]
    assert found.draft.kind is RecordKind.POD_UNSCHEDULABLE
    assert found.draft.subject == "pod/default/stuck"
    assert found.draft.message.startswith(str(decision))
    assert decision.nearest_miss is not None
    assert found.draft.message.endswith(f"; nearest: {decision.nearest_miss.brief}")
    assert found.draft.reason == str(decision.nearest_miss.reason)
    assert "requirements=" not in found.draft.message
    assert found.draft.message.count("node-00") <= 1, "never all places"


def test_a_plan_is_compared_with_what_was_known() -> None:
    rejections = (NodeReason("a", Reason.RESOURCES), NodeReason("b", Reason.TAINT))
    plan = Plan(decisions=(Decision("shop/web", None, rejections), Decision("shop/db", "node-1")))
    first = drafts.of_plan(plan, {})
    assert len(first) == 2
    assert drafts.of_plan(plan, keys(first)) == []
    more = Plan(decisions=(Decision("shop/web", None, (*rejections, NodeReason("c", Reason.TAINT))),))
    assert drafts.of_plan(more, keys(first)) == [], "another count is no other verdict"
    other = Plan(decisions=(Decision("shop/web", None, (NodeReason("a", Reason.LIMIT),)),))
    assert [each.draft.reason for each in drafts.of_plan(other, keys(first))] == [str(Reason.LIMIT)]


def test_a_place_is_the_same_before_and_after_its_node_registers() -> None:
    before = drafts.of_plan(Plan(decisions=(Decision("shop/web", "default-x"),)), {})
    after = Plan(decisions=(Decision("shop/web", "ip-10-0-4-12"),))
    assert drafts.of_plan(after, keys(before), {"ip-10-0-4-12": "default-x"}) == []
    (moved,) = drafts.of_plan(after, keys(before), {"ip-10-0-4-12": "default-y"})
    assert moved.draft.names == ("ip-10-0-4-12", "default-y")


def test_a_pod_for_a_new_node_is_told_of_its_pool() -> None:
    plan = Plan(new_nodes=(planned(),), decisions=(Decision("shop/web-1", "default-1"),))
    (found,) = drafts.of_plan(plan, {})
    assert found.draft.message == "shop/web-1 will run on a new node of pool default"
    assert (found.draft.pool, found.draft.names, found.draft.reason) == ("default", (), "Nominated")


def test_what_was_required_of_a_new_node_is_left_out() -> None:
    rejection = NodeReason("default", Reason.TYPES, "no type is left, requirements=zone In z1, team In blue")
    (found,) = drafts.of_plan(Plan(decisions=(Decision("shop/web", None, (rejection,)),)), {})
    assert found.draft.message.endswith(
        "; nearest: default: no instance type meets everything at once (no type is left"
    )


def test_a_pod_without_rejections_is_told_why() -> None:
    plan = Plan(decisions=(Decision("shop/web", None, error="no pool is ready"),))
    (found,) = drafts.of_plan(plan, {})
    assert (found.draft.reason, found.draft.message) == (
        "FailedScheduling",
        "shop/web is unschedulable: no pool is ready",
    )


@pytest.mark.parametrize("from_report", [True, False])
def test_nodes_are_blocked_or_removable_as_plan_disruption_says(from_report: bool) -> None:
    kept = pod("db", labels={"app": "web"}, node="held")
    inputs = scene(state("spare"), state("held", kept, of=SMALL), pdbs=[pdb()])
    report = build_report(inputs)
    choices = [(EMPTY, choose_empty_nodes(inputs))]
    found = drafts.of_report(report, {}) if from_report else drafts.of_choices(inputs, choices, {})
    by_subject = {each.draft.subject: each.draft for each in found}
    spare, held = by_subject["node/spare"], by_subject["node/held"]
    assert (spare.kind, spare.reason, spare.pool) == (RecordKind.NODE_REMOVABLE, "Empty", "default")
    assert spare.message == "Empty, delete: [spare]; saves $8.0000 an hour"
    assert spare.names[0] == "spare"
    assert (held.kind, held.reason, held.pods) == (RecordKind.NODE_BLOCKED, "pdb", ("default/db",))
    assert held.message == report.blocked_nodes[0].main.why
    again = (
        drafts.of_report(report, keys(found))
        if from_report
        else drafts.of_choices(inputs, choices, keys(found))
    )
    assert again == []


def test_nodes_that_nobody_ordered_have_no_verdict() -> None:
    inputs = scene(replace(state("foreign"), claim=None))
    assert drafts.of_report(build_report(inputs), {}) == []
    assert drafts.of_choices(inputs, [(EMPTY, choose_empty_nodes(inputs))], {}) == []


def one_command(*nodes: str) -> Command:
    (command,) = choose_empty_nodes(scene(*map(state, nodes))).commands
    return command


def test_a_command_has_the_sentence_and_the_saving_that_plan_disruption_prints(
    capsys: pytest.CaptureFixture[str],
) -> None:
    inputs = scene(state("spare"))
    report = build_report(inputs)
    show_node(report, "spare", Output.table)
    printed = capsys.readouterr().out
    draft = drafts.of_command(RecordKind.COMMAND_STARTED, report.commands[0], "41c2d3e4")
    sentence, saving = draft.message.split("; ")
    assert f"turn 1: {sentence}\n" in printed
    assert f"  {saving}, paid back" in printed
    assert (draft.price_before, draft.price_after) == (8.0, 0.0)


def test_a_command_is_found_by_each_of_its_nodes_and_says_what_stopped_it() -> None:
    command = one_command("a", "b")
    draft = drafts.of_command(
        RecordKind.COMMAND_DROPPED, command, "41c2", reason="budget", why="rejected: budget"
    )
    assert draft.subject == "command/41c2"
    assert {"a", "b"} <= set(draft.names)
    assert (draft.reason, draft.pool) == ("budget", "default")
    assert draft.message.endswith("; rejected: budget")


def test_a_command_over_many_nodes_stays_short_and_one_over_two_pools_names_both() -> None:
    many = drafts.of_command(
        RecordKind.COMMAND_STARTED, one_command(*(f"node-{n:04d}" for n in range(200))), "1"
    )
    assert "part of 200-node consolidation" in many.message
    assert len(many.message) < drafts.LONGEST
    inputs = scene(state("a"), state("b", pool="other"), pools=(pool(), pool("other")))
    two = drafts.of_command(RecordKind.COMMAND_STARTED, choose_empty_nodes(inputs).commands[0], "1")
    assert (two.pool, two.names[:2]) == ("", ("pool/default", "pool/other"))


def test_an_order_names_its_pods_and_its_price() -> None:
    draft = drafts.of_order(planned(), nodeclaim("default-x"))
    assert draft.message == "m5.large or one of 1 others of pool default z1 spot, $0.0300 an hour"
    assert (draft.subject, draft.pods, draft.price_after) == ("claim/default-x", ("shop/web-1",), 0.03)


def test_a_claim_is_told_of_as_its_node_once_it_has_one() -> None:
    young = drafts.of_claim(RecordKind.NODE_LAUNCHED, nodeclaim("default-x"), "Launched", "m5.large in z1")
    grown = nodeclaim("default-x", node="ip-10-0-4-12")
    gone = drafts.of_claim(RecordKind.NODE_GONE, grown, "Underutilized", "lived 4h", ["shop/web-1"])
    assert young.subject == "claim/default-x"
    assert (gone.subject, gone.names[0], gone.pod_count) == ("node/ip-10-0-4-12", "default-x", 1)
    evicted = drafts.of_pod(
        RecordKind.POD_EVICTED, "shop/web-1", grown, "Evicted", "Evicted pod: Underutilized"
    )
    assert (evicted.subject, evicted.names[:2]) == ("pod/shop/web-1", ("ip-10-0-4-12", "default-x"))
    assert drafts.of_pod(RecordKind.POD_EVICTED, "shop/web-1", None, "", "").names == ()

"""The input of a disruption decision is built in one place, and what follows from it keeps all of it."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

import dovetail
from dovetail.api.taints import DISRUPTED
from dovetail.api.zoneshift import ShiftSteps, ZoneShift, ZoneShiftSpec, ZoneShiftStatus
from dovetail.app.dashboard_watch import build_picture
from dovetail.app.solved_plan import build_disruption_input
from dovetail.cli.views.nodes import explain_node
from dovetail.disruption.blocked_reason import BlockedReason
from dovetail.disruption.candidates import DisruptionClass, _Evaluations, find_candidates
from dovetail.disruption.inputs import DisruptionInput, SnapshotFacts
from dovetail.disruption.methods.drift import choose_drift
from dovetail.disruption.methods.rebalance import _restrict_to_zone
from dovetail.disruption.projection import _apply_command, exclude_candidates, project_commands
from dovetail.disruption.report import build_report
from dovetail.disruption.simulation.simulate import build_remaining_input
from dovetail.disruption.situation import DisruptionHold, Situation
from dovetail.runtime.worker_transfer import ParcelSender, serve_parcel
from dovetail.scheduling.model.state_node import read_provider_id
from dovetail.scheduling.spend_caps import SpendCap
from dovetail.zonal.model.gates import read_zone_gates
from support.builders import NOW, condition, owner, pod
from support.commands import dovetail as command_line
from support.disruption import pool, scene, state
from support.seen_clusters import encode_world, see

AWAY, HERE = "test-zone-1", "test-zone-2"
WHY = f"ZonalShift: its zone is shifted away (Zone={AWAY})"


def two_zones() -> DisruptionInput:
    """Two drifted nodes with a pod each, the first of them in the zone that is shifted away."""
    old = NOW - timedelta(hours=1)
    return scene(
        *(
            state(
                name,
                pod(f"p-{name}", cpu="1", node=name, owned_by=owner("ReplicaSet")),
                zone=zone,
                drifted=old,
            )
            for name, zone in (("away", AWAY), ("here", HERE))
        ),
        pools=[pool(nodes="2")],
    )


def test_every_reader_says_the_same_of_a_node_in_a_shifted_zone(tmp_path: Path) -> None:
    snapshot, zones = two_zones().snapshot, frozenset((AWAY,))
    seen = see(snapshot, excluded_zones=zones)
    for inputs in (  # the controller's and everybody else's
        DisruptionInput.from_situation(Situation(snapshot=snapshot, excluded_zones=zones)),
        build_disruption_input(seen),
    ):
        blocked = find_candidates(inputs, DisruptionClass.EVENTUAL)[1]
        assert [(each.name, each.blocked_reason) for each in blocked] == [("away", BlockedReason.ZONAL_SHIFT)]
        # In later turns of the report, too: `here` goes in the first, `away` in none of them.
        report = build_report(inputs)
        assert [each.name for command in report.commands for each in command.candidates] == ["here"]
        assert {each.name: each.main.why for each in report.blocked_nodes} == {"away": WHY}
    picture = build_picture(seen, "test.example", live=False)
    assert {each.name: each.main.why for each in picture.survey.blocked_nodes} == {"away": WHY}
    assert explain_node(seen, snapshot.nodes[0]).held == WHY
    file = tmp_path / "cluster.json"
    file.write_bytes(encode_world(snapshot, excluded_zones=zones))
    planned = json.loads(command_line("plan", "--disruption", "--snapshot", str(file), "-o", "json").out)
    assert [(each["node"], each["why"]) for each in planned["staying"]] == [("away", WHY)]
    assert WHY in command_line("explain", "away", "--snapshot", str(file)).out


def test_every_reader_says_the_same_of_a_node_that_is_being_disrupted(tmp_path: Path) -> None:
    """What a command of the controller has marked is not chosen again, and counts against its budget."""
    tainted, told, free = state("a"), state("b", conditions=[condition("DisruptionReason")]), state("c")
    assert tainted.node is not None
    spec = replace(tainted.node.spec, taints=(DISRUPTED,))
    tainted = replace(tainted, node=replace(tainted.node, spec=spec))
    snapshot = scene(tainted, told, free, pools=[pool(nodes="2")]).snapshot
    seen = see(snapshot)
    inputs = build_disruption_input(seen)
    controllers = DisruptionInput.from_situation(
        Situation(snapshot=snapshot, queued=frozenset(map(read_provider_id, snapshot.nodes[:2])))
    )
    assert (inputs.queued, inputs.pool_counts) == (controllers.queued, controllers.pool_counts)
    under_way = "candidate is already being disrupted"
    file = tmp_path / "cluster.json"
    file.write_bytes(encode_world(snapshot))
    planned = json.loads(command_line("plan", "--disruption", "--snapshot", str(file), "-o", "json").out)
    assert [(each["node"], each["why"]) for each in planned["staying"]][:2] == [
        ("a", under_way),
        ("b", under_way),
    ]
    assert not planned["commands"]
    picture = build_picture(seen, "test.example", live=False)
    assert [each.main.why for each in picture.survey.blocked_nodes][:2] == [under_way] * 2
    assert explain_node(seen, snapshot.nodes[0]).held == under_way


def test_every_reader_says_the_same_of_a_node_with_room_for_a_capacity_buffer() -> None:
    snapshot = scene(state("a"), snapshot={"virtual": (pod("room", cpu="15"),)}).snapshot
    seen, why = see(snapshot), 'Node "a" has buffer pods'
    assert build_disruption_input(seen).buffered == {"a"}
    for survey in (
        build_report(build_disruption_input(seen)),
        build_picture(seen, "test.example", live=False).survey,
    ):
        assert [(each.main.blocked_reason, each.main.why) for each in survey.blocked_nodes] == [
            (BlockedReason.BUFFERED, why)
        ]
    assert why in [each.why for each in explain_node(seen, snapshot.nodes[0]).verdicts]


def test_pods_that_move_do_not_go_into_a_shifted_zone() -> None:
    inputs = DisruptionInput.from_situation(
        Situation(snapshot=two_zones().snapshot, excluded_zones=frozenset((AWAY,)))
    )
    (command,) = choose_drift(inputs, at_once=None).commands
    assert command.plan is not None
    assert not command.plan.existing.get("away")


def test_shifted_zones_are_those_whose_disruption_the_controller_stopped() -> None:
    stopped = ZoneShiftStatus(zone_name=AWAY, steps=ShiftSteps(disruption="Done"))
    nameless = ZoneShiftStatus(steps=ShiftSteps(disruption="Done"))
    shifts = (
        ZoneShift(spec=ZoneShiftSpec(zone_id="use1-az1"), status=stopped),
        ZoneShift(spec=ZoneShiftSpec(zone_id="use1-az2"), status=nameless),
        ZoneShift(spec=ZoneShiftSpec(zone_id="use1-az3"), status=ZoneShiftStatus(zone_name=HERE)),
    )
    assert read_zone_gates(shifts).excluded == {AWAY, "use1-az2"}


def test_nominated_nodes_are_blocked() -> None:
    snapshot = two_zones().snapshot
    nominated = frozenset((read_provider_id(snapshot.nodes[1]),))
    inputs = DisruptionInput.from_situation(Situation(snapshot=snapshot, nominated=nominated))
    blocked = find_candidates(inputs, DisruptionClass.GRACEFUL)[1]
    assert [(each.name, each.blocked_reason) for each in blocked] == [("here", BlockedReason.NOMINATED)]


def full() -> DisruptionInput:
    """An input in which no field has its default."""
    return dataclasses.replace(
        two_zones(),
        queued=frozenset(("other",)),
        buffered=frozenset(("buffer",)),
        spot_to_spot=True,
        excluded_zones=frozenset(("test-zone-3",)),
        returned_zones=frozenset(("test-zone-4",)),
        unseen=frozenset(("other",)),
        holds=(DisruptionHold(blocked_reason=BlockedReason.PAUSED, why="for a test", pool="other"),),
        spend_caps=(SpendCap(limit="wide", pools=("other",), hourly=1000.0),),
    )


def _drift_of(inputs: DisruptionInput) -> DisruptionInput:
    return project_commands(inputs, choose_drift(inputs).commands)


DERIVATIONS: dict[str, Callable[[DisruptionInput], DisruptionInput | None]] = {
    "with_snapshot": lambda of: of.with_snapshot(replace(of.snapshot, pods=())),
    "with_queued": lambda of: of.with_queued(frozenset()),
    "with_facts": lambda of: of.with_facts(SnapshotFacts()),
    "exclude_candidates": lambda of: exclude_candidates(of, choose_drift(of).commands[0].candidates),
    "project_commands": _drift_of,
    "apply_command": lambda of: _apply_command(of, choose_drift(of).commands[0]),
    "build_remaining_input": lambda of: build_remaining_input(of, choose_drift(of).commands[0]),
    "restrict_to_zone": lambda of: _restrict_to_zone(of, HERE),
}


@pytest.mark.parametrize("name", DERIVATIONS)
def test_a_derived_input_keeps_every_field(name: str) -> None:
    inputs = full()
    derived = DERIVATIONS[name](inputs)
    assert derived is not None
    for field in dataclasses.fields(DisruptionInput):
        default, before, after = field.default, getattr(inputs, field.name), getattr(derived, field.name)
        if field.name in ("snapshot", "facts"):
            continue
        assert before != default, f"{field.name} has its default: this test would not see it dropped"
        if field.name == "queued":
            assert before <= after
        else:
            assert after == before, field.name


def test_inputs_are_built_in_one_module() -> None:
    """Who wants an input calls `from_situation`, or a `with_...` of one: nobody lists its fields again."""
    source = Path(dovetail.__file__).parent
    call = re.compile(r"(?<!class )\bDisruptionInput\(")
    found = {each.name for each in source.rglob("*.py") if call.search(each.read_text())}
    assert found <= {"inputs.py"}


def test_a_cache_makes_no_difference_to_answers_and_lets_go_of_old_nodes() -> None:
    first = two_zones()
    for turn in range(3):
        nodes = tuple(replace(each) for each in first.snapshot.nodes)
        again = first.with_snapshot(replace(first.snapshot, nodes=nodes))
        assert again.cache is first.cache
        alone = DisruptionInput(again.snapshot)
        assert list(map(str, choose_drift(again).commands)) == list(map(str, choose_drift(alone).commands)), (
            turn
        )
    known = first.cache.get_part(_Evaluations).known
    for _ in range(10):
        nodes = tuple(replace(each) for each in first.snapshot.nodes)
        find_candidates(first.with_snapshot(replace(first.snapshot, nodes=nodes)), DisruptionClass.GRACEFUL)
    assert len(known._lately) + len(known._before) <= 2 * len(first.snapshot.nodes)


def test_a_worker_answers_with_a_cache_of_its_own_and_finds_the_last_input_again() -> None:
    sender, inputs = ParcelSender(), two_zones()
    parcels = [*sender.pack((_remember, (inputs,), {})), *sender.pack((_remember, (inputs,), {}))]
    answers = [sender.unpack(each) for each in map(serve_parcel, parcels) if each]
    assert answers[0] == answers[1]
    assert answers[0][1] != id(inputs.cache)


def _remember(inputs: DisruptionInput) -> tuple[int, int]:
    return id(inputs), id(inputs.cache)

"""A what-if shares a base state, and comes to the same plan as a scheduler that builds everything itself."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.disruption.candidates import (
    Candidate,
    DisruptionClass,
    find_candidates,
)
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.simulation.simulate import build_snapshot_without, run_what_if, sort_largest_first
from dovetail.scheduling.model.plan import Plan
from dovetail.scheduling.sequential.schedule import schedule_pods
from support.sweeps import random_world

SEEDS = st.integers(0, 2**32)


def told(plan: Plan) -> tuple[object, ...]:
    """All that disruption reads of a plan."""
    placed = [(each.pod, each.place, each.relaxed) for each in plan.decisions if each.place]
    return plan.new_nodes, plan.existing, plan.unschedulable, plan.deferred, plan.ignored, placed


def long_way(world: DisruptionInput, going: Sequence[Candidate], consolidating: bool) -> Plan:
    picture = build_snapshot_without(world, going, consolidating=consolidating)
    return schedule_pods(picture, sort_largest_first(world.snapshot.moving))


@settings(max_examples=400, deadline=None)
@given(SEEDS, st.booleans())
def test_a_trial_plans_what_a_fresh_run_would(seed: int, consolidating: bool) -> None:
    world, chance = random_world(seed), Random(seed)
    every = find_candidates(world, DisruptionClass.EVENTUAL)[0]
    asked = [[each] for each in every] + [chance.sample(every, len(every) // 2)]
    chance.shuffle(asked)
    for going in asked:
        short = run_what_if(world, going, consolidating=consolidating).plan
        assert told(short) == told(long_way(world, going, consolidating)), [each.name for each in going]

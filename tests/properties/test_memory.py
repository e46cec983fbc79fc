"""What is remembered from one world to the next is what would be found out anew."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.disruption.candidates import (
    DisruptionClass,
    find_candidates,
)
from dovetail.disruption.command import ConsolidationVerdict
from dovetail.disruption.inputs import DisruptionInput
from dovetail.disruption.verdict_cache import VerdictCache
from dovetail.scheduling.model.decision_cache import DecisionCache
from support.sweeps import changed, random_world

STEPS = 6


def swept(memory: VerdictCache, world: DisruptionInput) -> dict[str, object]:
    """Every verdict, with all of it."""
    return {
        c.name: told(memory.find_verdict(world, c))
        for c in find_candidates(world, DisruptionClass.GRACEFUL)[0]
    }


def told(verdict: ConsolidationVerdict) -> object:
    command = verdict.command
    if command is None:
        return verdict.why
    assert command.plan is not None
    return str(command), command.savings, command.replacements, sorted(command.plan.existing.items())


@settings(max_examples=250, deadline=None)
@given(st.integers(0, 2**32))
def test_a_memory_says_what_a_fresh_look_would(seed: int) -> None:
    world, chance, memory, cache = random_world(seed, most=30), Random(seed), VerdictCache(), DecisionCache()
    for _ in range(STEPS):
        assert swept(memory, replace(world, cache=cache)) == swept(VerdictCache(), world)
        world = changed(world, chance)


def test_what_did_not_change_is_not_looked_at_again() -> None:
    """In these small worlds nearly everything has to do with everything, and still some of it is kept."""
    chance, memory, kept = Random(1), VerdictCache(), 0
    for seed in range(40):
        world = random_world(seed, most=30)
        swept(memory, world)
        asked = memory.asked
        assert swept(
            memory, DisruptionInput(world.snapshot, world.queued, world.buffered, world.spot_to_spot)
        )
        assert memory.asked == asked
        world = changed(world, chance)
        kept += len(swept(memory, world)) - (memory.asked - asked)
    assert kept > 40

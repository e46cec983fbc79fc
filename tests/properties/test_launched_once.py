"""One instance for each claim, whatever is stopped in its tracks, delivered late, or lost on the way."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dovetail.sim.clock import run_virtual
from support.leaders import Process, TwoLeaders

CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
FLEET, TEMPLATE = "CreateFleet", "CreateLaunchTemplate"
MOMENTS = (FLEET, TEMPLATE, f"PATCH {CLAIMS}", f"POST {CLAIMS}")


async def story(moment: str, held: bool, pods: int, hidden: float) -> TwoLeaders:
    """A leader is stopped at a write for a minute; another takes over; the first wakes up and goes on."""
    world = TwoLeaders(1, "--batch-idle-duration=1s", types=("m5.large", "m5.xlarge"))
    world.aws.instances.hidden_for = hidden
    first = Process("first", world, pause_at=moment, held=held)
    second = Process("second", world)
    world.default()
    world.pods(pods, cpu="1500m")
    await world.led_by(first, second, 150)
    assert second.writes, "the second never led"
    assert not first.stray + second.stray, "began a write without the lease"
    assert world.placed() == pods
    return world


@pytest.mark.parametrize(("moment", "held"), [(FLEET, True), (FLEET, False), (TEMPLATE, True)])
def test_two_leaders_in_turn_launch_one_instance_for_each_claim(moment: str, held: bool) -> None:
    world = run_virtual(story(moment, held, 3, 10.0))
    assert set(world.launches().values()) == {1}


@settings(max_examples=5)
@given(st.sampled_from(MOMENTS), st.booleans(), st.integers(1, 5), st.sampled_from((0.0, 10.0)))
def test_at_whatever_moment_a_leader_is_stopped_no_claim_is_launched_twice(
    moment: str, held: bool, pods: int, hidden: float
) -> None:
    world = run_virtual(story(moment, held, pods, hidden))
    assert set(world.launches().values()) == {1}

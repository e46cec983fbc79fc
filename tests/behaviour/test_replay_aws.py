"""A recording of a cluster whose machines are instances of EC2 is replayed like any other."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from dovetail.play.replay_sections import survey_recording
from dovetail.runtime.recording_folder import read_recording
from support.aws_world import AwsWorld
from support.replay_trials import ReplayTrial, replay_trial
from support.stage import virtual

REPLICAS = (6, 14, 4, 10)
STEP = 1200.0


async def live(world: AwsWorld) -> None:
    """A Deployment that grows and shrinks, beside one that does not."""
    world.default()
    world.pods(REPLICAS[0], cpu="900m", memory="1Gi")
    world.pods(3, name="steady", cpu="1500m", memory="2Gi")
    await asyncio.sleep(STEP)
    for count in REPLICAS[1:]:
        world.scale(count)
        await asyncio.sleep(STEP)


@pytest.fixture(scope="module")
def trial(tmp_path_factory: pytest.TempPathFactory) -> ReplayTrial:
    """An hour and twenty minutes of a cluster on EC2, without its first minutes."""
    folder = tmp_path_factory.mktemp("recorded") / "recording"

    @virtual
    async def record() -> None:
        async with AwsWorld(1, f"--recording=file:{folder}").running() as world:
            await live(world)

    record()
    reader = read_recording(str(folder))
    since = reader.segments[0].head.began + timedelta(minutes=5)
    return ReplayTrial(str(folder), survey_recording(reader, since))


@pytest.mark.spec("RP-1")
def test_the_bill_of_a_cluster_on_ec2_is_replayed(trial: ReplayTrial) -> None:
    was, bill = trial.bill, replay_trial(trial, "dovetail", 1)
    assert trial.survey.settings["PROVIDER"] == "aws"
    assert trial.survey.unpriced_hours == 0
    assert was.node_hours > 5
    assert bill.dollars == pytest.approx(was.dollars, rel=0.01)
    assert bill.node_hours == pytest.approx(was.node_hours, rel=0.02)
    assert bill.unplaced == ()
    assert bill.unknown_spot_hours == 0


def test_an_instance_that_joins_late_is_not_one_that_ec2_took_back(trial: ReplayTrial) -> None:
    assert trial.survey.facts.hazard == 0
    assert all(each.registers > 20 for found in trial.survey.facts.boots.known.values() for each in found)

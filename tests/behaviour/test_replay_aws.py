"""A recording of a cluster whose machines are instances of EC2 is replayed like any other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from dovetail.play.replay_meter import ReplayBill
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
    return ReplayTrial(str(folder), survey_recording(read_recording(str(folder))))


@pytest.fixture(scope="module")
def bill(trial: ReplayTrial) -> ReplayBill:
    return replay_trial(trial, "dovetail", 1)


@pytest.mark.spec("RP-1")
def test_the_bill_of_a_cluster_on_ec2_is_replayed(trial: ReplayTrial, bill: ReplayBill) -> None:
    was = trial.bill
    print(was.dollars, bill.dollars, was.node_hours, bill.node_hours, was.evictions, bill.evictions, trial.survey.settings, trial.survey.facts.boots.known)
    assert trial.survey.settings["PROVIDER"] == "aws"
    assert trial.survey.unpriced_hours == 0
    assert bill.dollars == pytest.approx(was.dollars, rel=0.01)
    assert bill.node_hours == pytest.approx(was.node_hours, rel=0.02)
    assert bill.unplaced == ()

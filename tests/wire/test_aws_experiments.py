"""Spot machines interrupted on purpose: FIS in the simulated AWS, and the script that watches it."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from dovetail.aws import AwsAbsent, AwsInvalid
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.messaging.eventbridge import EventRule
from dovetail.sim.clock import VirtualClock
from support.aws import CLUSTER, fleet, launched, simulated, template
from support.aws_clients import DOORS, Door, opened
from support.stage import virtual

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "hack"))
import check_fis  # type: ignore[import-not-found]  # hack is not a package

Json = dict[str, Any]
ROLE = f"arn:aws:iam::111122223333:role/KarpenterNodeRole-{CLUSTER}"


def wanted(**more: Any) -> Json:
    """A template as the kits write it."""
    return {
        "clientToken": "once",
        "description": "interrupts",
        "roleArn": ROLE,
        "stopConditions": [{"source": "none"}],
        "targets": {
            "machines": {
                "resourceType": "aws:ec2:spot-instance",
                "resourceTags": {"eks:eks-cluster-name": CLUSTER},
                "filters": [{"path": "State.Name", "values": ["running"]}],
                "selectionMode": "COUNT(2)",
            }
        },
        "actions": {
            "interrupt": {
                "actionId": "aws:ec2:send-spot-instance-interruptions",
                "parameters": {"durationBeforeInterruption": "PT5M"},
                "targets": {"SpotInstances": "machines"},
            }
        },
        **more,
    }


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with opened(request.param) as found:
        yield found


async def test_a_template_is_kept_changed_and_dropped(door: Door) -> None:
    made = await door.aws.call("fis", "CreateExperimentTemplate", wanted(tags={"a": "b"}))
    id_ = made["experimentTemplate"]["id"]
    await door.aws.call("fis", "UpdateExperimentTemplate", {"id": id_, "description": "other"})
    found = (await door.aws.call("fis", "GetExperimentTemplate", {"id": id_}))["experimentTemplate"]

    assert (found["description"], found["tags"]) == ("other", {"a": "b"})
    assert found["actions"] == wanted()["actions"]
    await door.aws.call("fis", "DeleteExperimentTemplate", {"id": id_})
    with pytest.raises(AwsAbsent):
        await door.aws.call("fis", "GetExperimentTemplate", {"id": id_})


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"roleArn": "arn:aws:iam::111122223333:role/ghost"}, "no role"),
        ({"targets": {}}, "no target machines"),
    ],
)
async def test_a_template_that_cannot_work_is_refused(door: Door, more: Json, said: str) -> None:
    with pytest.raises(AwsInvalid, match=said):
        await door.aws.call("fis", "CreateExperimentTemplate", wanted(**more))


async def started(clock: VirtualClock, count: int = 3) -> tuple[SimulatedAws, str]:
    """Spot machines of a cluster, its queue with the five rules, another's queue, and a template."""
    aws = simulated(clock)
    aws.add_interruption_queue(CLUSTER)
    aws.queues.add("other")
    await template(aws)
    if count:
        tags = {"eks:eks-cluster-name": CLUSTER}
        assert len(launched(await fleet(aws, way="spot", count=count, tags=tags))) == count
    await clock.sleep(60)
    made = await aws.call("fis", "CreateExperimentTemplate", wanted())
    return aws, str(made["experimentTemplate"]["id"])


@pytest.mark.spec("bus-14.1")
@virtual
async def test_an_experiment_recommends_warns_and_ends_machines() -> None:
    clock = VirtualClock()
    aws, id_ = await started(clock)
    found = await check_fis.watch(aws, clock, id_, CLUSTER, [CLUSTER, "other"])

    assert check_fis.complaints(found, CLUSTER) == []
    assert len(found.instances) == 2
    assert len([each for each in found.seen.values() if each.kind == check_fis.WARNING]) == 2
    assert set(found.ended) == found.instances
    assert check_fis.told(found).count(check_fis.REBALANCE) == 2
    # Nobody launched anything in their place.
    assert len(check_fis.complaints(found, CLUSTER, consumed=True)) == 2


@virtual
async def test_a_warning_in_a_strangers_queue_is_complained_of() -> None:
    clock = VirtualClock()
    aws, id_ = await started(clock)
    stray = EventRule("stray", "arn:aws:events:us-west-2:111122223333:rule/stray")
    stray.pattern = {"detail-type": [check_fis.WARNING]}
    stray.targets = {"other": {"Id": "other", "Arn": aws.queues.by_name["other"].arn}}
    aws.buses.by_name["default"].rules["stray"] = stray
    found = await check_fis.watch(aws, clock, id_, CLUSTER, [CLUSTER, "other"])

    wrong = check_fis.complaints(found, CLUSTER)
    assert len(wrong) == 2
    assert all("not its business" in each for each in wrong)


@virtual
async def test_an_experiment_without_machines_fails_and_says_so() -> None:
    clock = VirtualClock()
    aws, id_ = await started(clock, 0)
    found = await check_fis.watch(aws, clock, id_, CLUSTER, [CLUSTER])

    assert check_fis.complaints(found, CLUSTER) == [
        "the experiment is failed: Target resolution returned empty set"
    ]

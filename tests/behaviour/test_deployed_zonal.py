"""Zonal shift with the permissions of its own stack beside the controller's: enough, and used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dovetail.api.crds import build_zonal_manifest
from support.aws import CLUSTER
from support.aws_world import POOLS, AwsWorld
from support.deployed_stack import Watched
from support.policy_documents import Where
from support.stacks import loaded, policies, resolved
from support.stage import virtual

ROOT = Path(__file__).resolve().parents[2]
Json = dict[str, Any]
WHERE = Where("aws", "us-west-2", "111122223333", CLUSTER)
DENIED = ("UnauthorizedOperation", "AccessDenied", "AccessDeniedException")
# Asked for only by people's commands, or with a queue of its own.
ON_REQUEST = {"AllowShiftLists", "AllowSignals"}


def documents() -> list[Json]:
    folder = ROOT / "deploy" / "cloudformation"
    queue = f"arn:aws:sqs:us-west-2:111122223333:{CLUSTER}"
    place = WHERE.stack(
        **{
            "ClusterName": CLUSTER,
            "KarpenterNodeRole.Arn": WHERE.places["NodeRoleArn"],
            "KarpenterInterruptionQueue.Arn": queue,
            "Queue.Arn": queue,
        }
    )
    controller = policies(loaded((folder / "dovetail.yaml").read_text()), place).values()
    role = loaded((folder / "zonal-shift.yaml").read_text())["Resources"]["Role"]["Properties"]
    own, signals, *_ = role["Policies"]
    added = [own["PolicyDocument"], signals["Fn::If"][1]["PolicyDocument"]]
    return [{"Statement": each} for each in controller] + [
        json.loads(resolved(each, place)) for each in added
    ]


# Zone names can be had from node classes too, so the one request that is denied stops nothing.
ALONE = {"ec2:DescribeAvailabilityZones"}


@pytest.mark.parametrize(("both", "denied"), [(True, set()), (False, ALONE)], ids=["both stacks", "one"])
@virtual
async def test_a_shift_is_followed_and_its_end_is_told(both: bool, denied: set[str]) -> None:
    world = AwsWorld(0, "--enable-zonal-shift=true")
    world.api.create("customresourcedefinitions.apiextensions.k8s.io", build_zonal_manifest())
    watched = Watched(documents() if both else documents()[:-2])
    zone = world.aws.network.zone_ids["us-west-2a"]
    async with world.running():
        world.default()
        arn = world.aws.eks.clusters[CLUSTER].arn
        asked = {"resourceIdentifier": arn, "awayFrom": zone, "expiresIn": "1h", "comment": ""}
        started = await world.aws.call("arc-zonal-shift", "StartZonalShift", asked)
        world.aws.principal = watched  # type: ignore[assignment]  # judges as a Principal does
        await world.until(lambda: "ZonalShiftActive" in world.events(), within=240)
        world.aws.principal = None
        await world.aws.call("arc-zonal-shift", "CancelZonalShift", {"zonalShiftId": started["zonalShiftId"]})
        world.aws.principal = watched  # type: ignore[assignment]
        await world.until(lambda: "ZonalShiftCleared" in world.events(), within=1200)

    assert {call.action for call in world.aws.calls if call.code in DENIED} == denied
    added = {each["Sid"] for document in documents()[-2:] for each in document["Statement"]}
    assert {sid for sid, _ in watched.unused} & added <= ON_REQUEST
    assert world.listed(POOLS)

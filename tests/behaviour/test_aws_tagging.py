"""Machines carry the names of their nodes and claims; those that nobody claims are ended."""

from __future__ import annotations

from typing import Any

import pytest

from dovetail.api import labels
from dovetail.controllers.base import Result
from dovetail.errors import Retry
from dovetail.providers.aws.controllers.maintenance import InstanceProfileGarbageCollection
from support.aws import CLUSTER, fleet, launched, template
from support.ec2_instances import TAGS, MachineScene, Owned
from support.nodeclasses import CLAIMS, node_class
from support.stage import virtual

TAGGING, GARBAGE = "nodeclaim.tagging", "instance.garbagecollection"
MARKS = {labels.TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}


def marks(scene: MachineScene, owned: Owned) -> dict[str, str]:
    known = scene.meta(CLAIMS, owned.claim).get("annotations", {})
    return {key: value for key, value in known.items() if key in MARKS}


def status(scene: MachineScene, owned: Owned, **changed: Any) -> None:
    scene.api.patch(CLAIMS, owned.claim, {"status": changed}, subresource="status")


@pytest.mark.spec("aws-210")
@virtual
async def test_a_machine_gets_the_names_of_its_node_and_claim_and_the_claim_says_so() -> None:
    async with MachineScene().still() as scene:
        machine = await scene.machine()
        await scene.look(TAGGING, machine.claim)
        tags = scene.aws.get_instance(machine.id).tags
        assert tags["Name"] == machine.node
        assert tags[labels.NODECLAIM_TAG] == machine.claim
        assert tags[labels.EKS_CLUSTER_TAG] == CLUSTER
        assert marks(scene, machine) == MARKS
        assert len(scene.asked("CreateTags")) == 1
        # Which is why nobody asks EC2 again.
        described = len(scene.asked("DescribeInstances"))
        await scene.look(TAGGING, machine.claim)
        assert len(scene.asked("DescribeInstances")) == described


@pytest.mark.spec("aws-210")
@virtual
async def test_a_name_that_someone_gave_stays() -> None:
    async with MachineScene().still() as scene:
        machine = await scene.machine(tags={"Name": "mine"})
        scene.aws.instances.untag_instance(scene.aws.get_instance(machine.id), [labels.EKS_CLUSTER_TAG])
        await scene.look(TAGGING, machine.claim)
        assert scene.aws.get_instance(machine.id).tags["Name"] == "mine"
        (asked,) = scene.asked("CreateTags")
        assert {each["Key"] for each in asked["Tags"]} == {labels.NODECLAIM_TAG, labels.EKS_CLUSTER_TAG}
        assert marks(scene, machine) == MARKS


@pytest.mark.spec("aws-210")
@virtual
async def test_where_nothing_is_missing_only_the_claim_is_marked() -> None:
    async with MachineScene().still() as scene:
        machine = await scene.machine(tags={"Name": "n", labels.NODECLAIM_TAG: "other"})
        scene.api.patch(CLAIMS, machine.claim, {"metadata": {"annotations": {labels.TAGGED: "true"}}})
        await scene.look(TAGGING, machine.claim)
        assert scene.asked("CreateTags") == []
        assert marks(scene, machine) == MARKS


@pytest.mark.spec("aws-209")
@virtual
async def test_what_cannot_be_tagged_is_left_alone_without_an_error() -> None:
    async with MachineScene().still() as scene:
        nameless, foreign, going, missing = [await scene.machine() for _ in range(4)]
        status(scene, nameless, nodeName=None)
        status(scene, foreign, providerID="gce://here/there")
        scene.api.delete(CLAIMS, going.claim)
        scene.aws.instances.by_id.pop(missing.id)
        for machine in (nameless, foreign, going, missing):
            assert await scene.look(TAGGING, machine.claim) == Result()
            assert marks(scene, machine) == {}
        assert await scene.look(TAGGING, "nobody") == Result()
        assert scene.asked("CreateTags") == []


@virtual
async def test_one_machine_is_tagged_a_second_and_a_refusal_is_tried_again() -> None:
    async with MachineScene().still() as scene:
        machines = [await scene.machine() for _ in range(3)]
        scene.aws.refuse("UnauthorizedOperation", "CreateTags", 1)
        with pytest.raises(Retry):
            await scene.look(TAGGING, machines[0].claim)
        before = scene.clock.monotonic()
        for machine in machines:
            await scene.look(TAGGING, machine.claim)
        assert 2 <= scene.clock.monotonic() - before <= 4
        assert [marks(scene, each) for each in machines] == [MARKS] * 3


async def orphan(scene: MachineScene, **more: Any) -> Owned:
    """A machine whose claim has left without it."""
    machine = await scene.machine(**more)
    scene.api.patch(CLAIMS, machine.claim, {"metadata": {"finalizers": []}})
    scene.api.delete(CLAIMS, machine.claim)
    return machine


def alive(scene: MachineScene) -> set[str]:
    return {each.id for each in scene.aws.list_running()}


@pytest.mark.spec("aws-208")
@virtual
async def test_a_machine_nobody_claims_is_ended_and_its_node_with_it() -> None:
    async with MachineScene().still() as scene:
        claimed = await scene.machine()
        lost = await orphan(scene)
        # Launched a moment ago: its claim may not have been written yet.
        newborn = await orphan(scene)
        # Not launched for a claim: it has no pool.
        stranger = await orphan(scene)
        scene.aws.instances.untag_instance(scene.aws.get_instance(stranger.id), [labels.NODEPOOL])
        scene.aws.get_instance(newborn.id).launched = scene.clock.now()
        await scene.look(GARBAGE)
        assert alive(scene) == {claimed.id, newborn.id, stranger.id}
        assert lost.node not in scene.nodes_left()
        assert claimed.node in scene.nodes_left()
        await scene.pass_(31)
        await scene.look(GARBAGE)
        assert alive(scene) == {claimed.id, stranger.id}


@pytest.mark.spec("aws-208")
@virtual
async def test_a_hundred_machines_without_claims_are_ended_in_one_pass() -> None:
    async with MachineScene().still() as scene:
        await template(scene.aws)
        answer = await fleet(scene.aws, ("m5.large",), count=100, tags=TAGS)
        assert len(launched(answer)) == 100
        await scene.pass_(60)
        result = await scene.look(GARBAGE)
        assert alive(scene) == set()
        assert result.after is not None
        assert result.after.total_seconds() == 10
        assert len(scene.asked("TerminateInstances")) <= 2


@pytest.mark.spec("aws-208")
@virtual
async def test_garbage_is_looked_for_every_ten_seconds_at_first_and_every_two_minutes_later() -> None:
    async with MachineScene().still() as scene:
        pauses = [(await scene.look(GARBAGE)).after for _ in range(22)]
        assert [each.total_seconds() for each in pauses if each is not None] == [10.0] * 20 + [120.0] * 2


@pytest.mark.spec("aws-212")
@virtual
async def test_profiles_that_classes_claims_or_their_youth_protect_are_kept_and_others_deleted() -> None:
    async with MachineScene().still() as scene:
        scene.apply(node_class())
        await scene.resolve()
        named = scene.now().status.instance_profile
        assert named
        profiles = scene.aws.iam.profiles
        used, unused, young = (f"{CLUSTER}_{number}" for number in range(3))
        for name in (used, unused):
            await _copied(scene, str(named), name)
        machine = await scene.machine()
        annotations = {labels.INSTANCE_PROFILE_NAME: used}
        scene.api.patch(CLAIMS, machine.claim, {"metadata": {"annotations": annotations}})
        await scene.pass_(3700)
        await _copied(scene, str(named), young)
        collector = scene.controller("instanceprofile.garbagecollection")
        assert isinstance(collector, InstanceProfileGarbageCollection)
        scene.provider.profiles.protect_profile(young)
        result = await scene.look("instanceprofile.garbagecollection")
        assert profiles.keys() == {named, used, young}
        assert result.after is not None
        assert result.after.total_seconds() == 1800
        await _copied(scene, str(named), unused)
        scene.aws.refuse("InternalError", "DeleteInstanceProfile", 1)
        with pytest.raises(Retry):
            await scene.look("instanceprofile.garbagecollection")


async def _copied(scene: MachineScene, model: str, name: str) -> None:
    """A profile with the tags of another."""
    found = scene.aws.iam.profiles[model]
    tags = [{"Key": key, "Value": value} for key, value in found.tags.items()]
    asked = {"InstanceProfileName": name, "Path": found.path, "Tags": tags}
    await scene.aws.call("iam", "CreateInstanceProfile", asked)

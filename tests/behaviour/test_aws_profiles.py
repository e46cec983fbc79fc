"""Instance profiles of classes: made for their roles, kept while anybody needs them, gone with the class."""

from __future__ import annotations

import pytest

from dovetail.api import labels
from dovetail.api.hashes import legacy_instance_profile
from dovetail.errors import Retry
from dovetail.sim.aws.iam.roles import IamProfile
from support.aws import CLUSTER
from support.nodeclasses import CLAIMS, CLASSES, ROLE, ClassScene, claim_of, node_class
from support.stage import virtual

GARBAGE = "instanceprofile.garbagecollection"
IAM_WRITES = ("CreateInstanceProfile", "AddRoleToInstanceProfile", "DeleteInstanceProfile")


def profiles(scene: ClassScene) -> dict[str, IamProfile]:
    return scene.aws.iam.profiles


def profile_of(scene: ClassScene, name: str = "default") -> str:
    return scene.now(name).status.instance_profile or ""


def asked_iam(scene: ClassScene) -> list[str]:
    return [call.operation for call in scene.aws.calls if call.service == "iam"]


@pytest.mark.spec("aws-58")
@virtual
async def test_a_role_gets_a_profile_that_is_known_to_be_ours() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class(tags={"team": "a"}))
        await scene.resolve()
        (made,) = profiles(scene).values()
        assert made.name == profile_of(scene)
        assert made.name.startswith(f"{CLUSTER}_")
        assert made.path == f"/karpenter/us-west-2/{CLUSTER}/{scene.now().uid}/"
        assert [role.name for role in made.roles] == [ROLE]
        assert made.tags == {
            "team": "a",
            f"kubernetes.io/cluster/{CLUSTER}": "owned",
            "eks:eks-cluster-name": CLUSTER,
            "karpenter.k8s.aws/ec2nodeclass": "default",
            "topology.kubernetes.io/region": "us-west-2",
        }


@pytest.mark.spec("aws-59")
@virtual
async def test_a_profile_that_holds_the_role_is_left_alone() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class())
        await scene.resolve()
        first, before = profile_of(scene), len(asked_iam(scene))
        await scene.resolve()
        await scene.restart()  # and by one who only knows it from the status
        await scene.resolve()
        assert profile_of(scene) == first
        assert not set(asked_iam(scene)[before:]) & set(IAM_WRITES)


@pytest.mark.spec("aws-60")
@virtual
async def test_every_change_of_role_makes_another_profile_and_spares_the_last() -> None:
    async with ClassScene().still() as scene:
        for role in "ABC":
            scene.aws.iam.add_role(role)
        scene.apply(node_class(role="A"))
        seen = []
        for role in "ABCA":
            scene.change(role=role)
            await scene.pass_(61)
            await scene.resolve()
            seen.append(profile_of(scene))
            assert [each.name for each in profiles(scene)[seen[-1]].roles] == [role]
        assert len(set(seen)) == 4
        assert all(scene.provider.profiles.is_protected(each) for each in seen)


@pytest.mark.spec("aws-61")
@virtual
async def test_a_profile_whose_name_was_lost_on_the_way_is_used_all_the_same() -> None:
    async with ClassScene().still() as scene:
        scene.aws.iam.add_role("other")
        scene.apply(node_class())
        await scene.resolve()
        first = profile_of(scene)
        scene.api.patch(CLASSES, "default", {"status": {"instanceProfile": None}}, subresource="status")
        await scene.resolve()
        assert profile_of(scene) == first
        scene.apply(node_class("second"))
        await scene.resolve("second")
        assert profile_of(scene, "second") != first
        scene.change(role="other")
        await scene.resolve()
        assert profile_of(scene) != first


@pytest.mark.spec("aws-62")
@virtual
async def test_a_profile_of_somebody_elses_is_taken_without_asking_iam() -> None:
    async with ClassScene().still() as scene:
        scene.aws.iam.add_profile("mine", role=ROLE)
        scene.apply(node_class(role=None, instanceProfile="mine"))
        await scene.resolve()
        assert profile_of(scene) == "mine"
        assert scene.says() == ("True", "Ready")
        assert asked_iam(scene) == []


@pytest.mark.spec("aws-63")
@virtual
async def test_iam_in_trouble_makes_no_second_profile_and_a_half_made_one_is_undone() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class())
        scene.aws.refuse("ServiceFailure", "AddRoleToInstanceProfile")
        await scene.failing()
        assert profiles(scene) == {}
        assert scene.says("InstanceProfileReady") == ("Unknown", "ResolutionFailed")
        await scene.resolve()
        first = profile_of(scene)
        await scene.restart()
        scene.aws.refuse("Throttling", "GetInstanceProfile")
        await scene.failing()
        assert list(profiles(scene)) == [first]
        assert scene.says("InstanceProfileReady")[0] == "True"


@pytest.mark.spec("aws-64")
@virtual
async def test_a_role_that_is_not_there_is_named_and_not_tried_for_a_minute() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class(role="nobody"))
        error = await scene.failing()
        assert isinstance(error, Retry)
        assert "IAM has no role nobody" in scene.why("InstanceProfileReady")
        assert scene.says("ValidationSucceeded") == ("Unknown", "DependenciesNotReady")
        created = asked_iam(scene).count("CreateInstanceProfile")
        await scene.failing()
        assert asked_iam(scene).count("CreateInstanceProfile") == created
        assert profiles(scene) == {}
        scene.aws.iam.add_role("nobody")
        await scene.pass_(61)
        await scene.resolve()
        assert scene.says() == ("True", "Ready")


@pytest.mark.spec("aws-65")
@virtual
async def test_a_role_is_attached_by_its_name_without_its_path() -> None:
    async with ClassScene().still() as scene:
        scene.aws.iam.add_role("NodeRole", "/custom/path/")
        scene.apply(node_class(role="custom/path/NodeRole"))
        await scene.resolve()
        assert [each["RoleName"] for each in scene.asked("AddRoleToInstanceProfile")] == ["NodeRole"]
        first = profile_of(scene)
        await scene.pass_(16 * 60)
        await scene.resolve()
        assert profile_of(scene) == first


@virtual
async def test_profiles_that_nobody_uses_are_collected() -> None:
    async with ClassScene().still() as scene:
        scene.aws.iam.add_role("other")
        scene.apply(node_class())
        await scene.resolve()
        first = profile_of(scene)
        scene.apply(claim_of(annotations={labels.INSTANCE_PROFILE_NAME: first}))
        scene.change(role="other")
        await scene.resolve()
        second = profile_of(scene)
        stray = scene.aws.iam.add_profile("stray", f"/karpenter/us-west-2/{CLUSTER}/gone/", ROLE)
        foreign = scene.aws.iam.add_profile("foreign", "/karpenter/us-west-2/elsewhere/x/", ROLE)
        result = await scene.look(GARBAGE)
        assert result.after is not None
        assert result.after.total_seconds() == 1800
        assert set(profiles(scene)) == {first, second, foreign.name}
        assert stray.name not in profiles(scene)
        scene.api.delete(CLAIMS, "claim")
        await scene.look(GARBAGE)
        assert first in profiles(scene)  # the last node of it may still be starting
        await scene.pass_(3601)
        await scene.look(GARBAGE)
        assert set(profiles(scene)) == {second, foreign.name}


@pytest.mark.spec("aws-79")
@virtual
async def test_a_class_waits_for_its_claims_and_takes_along_what_it_made() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class())
        await scene.resolve()
        scene.aws.iam.add_profile(legacy_instance_profile(CLUSTER, "us-west-2", "default"), role=ROLE)
        scene.apply(claim_of())
        scene.api.delete(CLASSES, "default")
        result = await scene.resolve()
        assert result.after is not None
        assert result.after.total_seconds() == 600
        assert scene.has(CLASSES, "default")
        await scene.pass_(2)
        assert scene.aws.templates.by_name
        scene.api.delete(CLAIMS, "claim")
        await scene.resolve()
        assert not scene.has(CLASSES, "default")
        assert profiles(scene) == {}
        assert scene.aws.templates.by_name == {}


@pytest.mark.spec("aws-79")
@virtual
async def test_the_end_of_the_last_claim_wakes_a_class_that_waits_for_it() -> None:
    async with ClassScene().running() as scene:
        scene.apply(node_class())
        await scene.pass_(5)
        scene.apply(claim_of(finalizers=["example.com/held"]))
        scene.api.delete(CLASSES, "default")
        await scene.pass_(5)
        assert scene.has(CLASSES, "default")
        assert scene.events("WaitingOnNodeClaimTermination")
        scene.api.delete(CLAIMS, "claim")
        scene.api.patch(CLAIMS, "claim", {"metadata": {"finalizers": []}})
        await scene.pass_(5)
        assert not scene.has(CLAIMS, "claim")
        assert not scene.has(CLASSES, "default")


@pytest.mark.spec("aws-80")
@virtual
async def test_a_template_that_cannot_be_deleted_holds_its_class() -> None:
    async with ClassScene().still() as scene:
        for name in ("default", "other"):
            scene.apply(node_class(name))
            await scene.resolve(name)
        assert len(scene.aws.templates.by_name) == 2
        scene.aws.refuse("UnauthorizedOperation", "DeleteLaunchTemplate")
        scene.api.delete(CLASSES, "default")
        assert isinstance(await scene.failing(), Retry)
        assert scene.has(CLASSES, "default")
        await scene.resolve()
        assert not scene.has(CLASSES, "default")
        (left,) = scene.aws.templates.by_name.values()
        assert left.tags["karpenter.k8s.aws/ec2nodeclass"] == "other"


@pytest.mark.spec("aws-81")
@virtual
async def test_a_name_iam_cannot_have_is_not_asked_for() -> None:
    async with ClassScene(cluster="a:b").still() as scene:
        made = node_class(role=None, instanceProfile="mine")
        made["spec"]["subnetSelectorTerms"] = made["spec"]["securityGroupSelectorTerms"] = [
            {"tags": {"karpenter.sh/discovery": "a:b"}}
        ]
        scene.apply(made)
        scene.aws.iam.add_profile("mine")
        await scene.resolve()
        scene.api.delete(CLASSES, "default")
        await scene.resolve()
        assert not scene.has(CLASSES, "default")
        assert asked_iam(scene) == ["ListInstanceProfiles"]


@pytest.mark.spec("aws-81")
@virtual
async def test_in_an_isolated_vpc_iam_is_never_asked() -> None:
    async with ClassScene("--isolated-vpc=true").still() as scene:
        scene.aws.iam.add_profile("mine", role=ROLE)
        scene.apply(node_class(role=None, instanceProfile="mine"))
        await scene.resolve()
        scene.api.delete(CLASSES, "default")
        await scene.resolve()
        assert not scene.has(CLASSES, "default")
        assert asked_iam(scene) == []
        assert GARBAGE not in {each.name for each in scene.dovetail.controllers}

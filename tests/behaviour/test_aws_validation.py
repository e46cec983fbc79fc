"""ValidationSucceeded of EC2NodeClasses: every fault a person can mend is told with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from dovetail.controllers.base import Result
from dovetail.errors import Retry
from support.aws import CLUSTER
from support.nodeclasses import ClassScene, node_class, pool_of
from support.stage import virtual

PASSED = ("True", "ValidationSucceeded")
GATE = "--aws-feature-gates=NodeClassCEL=true"
DRY_RUNS = ("CreateLaunchTemplate", "CreateFleet", "RunInstances")
BOUNDARY = "User is not authorized to perform this with an explicit deny in a permissions boundary"
SCP = "User is not authorized to perform this with an explicit deny in a service control policy"


def verdict(scene: ClassScene) -> tuple[str, str]:
    return scene.says("ValidationSucceeded")


def why(scene: ClassScene) -> str:
    return scene.why("ValidationSucceeded")


def dry_runs(scene: ClassScene) -> list[str]:
    return [call.operation for call in scene.aws.calls if call.operation in DRY_RUNS]


def tried(scene: ClassScene) -> str:
    """The instance type of the last dry run."""
    return str(scene.asked("RunInstances")[-1]["InstanceType"])


async def judged(scene: ClassScene, **spec: Any) -> tuple[str, str]:
    scene.apply(node_class(**spec))
    await scene.resolve()
    return verdict(scene)


# Kubelet settings


@pytest.mark.spec("aws-28", "aws-35")
@virtual
async def test_fields_nobody_knows_are_told_where_admission_lets_them_through() -> None:
    async with ClassScene(open_kubelet=True).still() as scene:
        kubelet = {"bogus": 1, "logging": {"options": {"text": {"deep": 1}}}, "maxPods": -1}
        assert await judged(scene, kubelet=kubelet) == ("False", "InvalidKubeletConfiguration")
        assert all(part in why(scene) for part in ("bogus", "logging.options.text.deep", "maxPods"))
        assert not dry_runs(scene)
        scene.change(kubelet={"bogus": None, "logging": None, "maxPods": 10, "registryPullQPS": 5})
        await scene.resolve()
        assert verdict(scene) == PASSED


@pytest.mark.spec("aws-37")
@virtual
async def test_an_expression_needs_its_gate() -> None:
    async with ClassScene(open_kubelet=True).still() as scene:
        assert await judged(scene, kubelet={"maxPods": "vcpus * 10"}) == (
            "False",
            "KubeletExpressionsDisabled",
        )
        assert "NodeClassCEL" in why(scene)
    async with ClassScene(GATE, open_kubelet=True).still() as scene:
        assert await judged(scene, kubelet={"maxPods": "vcpus * 10"}) == PASSED


@pytest.mark.spec("aws-38", "aws-39")
@pytest.mark.parametrize(
    ("kubelet", "reason"),
    [
        ({"maxPods": "vcpus *"}, "KubeletExpressionInvalid"),
        ({"maxPods": "cores * 2"}, "KubeletExpressionInvalid"),
        ({"maxPods": "vcpus > 2"}, "KubeletExpressionInvalid"),
        ({"kubeReserved": {"cpu": "0 - 100"}}, "KubeletExpressionEvaluationFailed"),
        ({"systemReserved": {"memory": "1 / (vcpus - vcpus)"}}, "KubeletExpressionEvaluationFailed"),
        ({"maxPods": "0 - 1"}, "KubeletExpressionEvaluationFailed"),
        ({"maxPods": "2147483647 + 1"}, "KubeletExpressionEvaluationFailed"),
        (
            {"maxPods": "max_pods", "kubeReserved": {"cpu": "100 / (vcpus - 96)"}},
            "KubeletExpressionEvaluationFailed",
        ),
    ],
)
def test_an_expression_without_a_usable_value_is_told(kubelet: Mapping[str, Any], reason: str) -> None:
    @virtual
    async def told() -> None:
        async with ClassScene(GATE, open_kubelet=True).still() as scene:
            assert await judged(scene, kubelet=kubelet) == ("False", reason)
            faulty = "kubeReserved" if "kubeReserved" in kubelet else next(iter(kubelet))
            assert faulty in why(scene)
            assert not dry_runs(scene)

    told()


@pytest.mark.spec("aws-40")
@virtual
async def test_while_no_instance_types_are_known_expressions_wait() -> None:
    async with ClassScene(GATE, open_kubelet=True).still() as scene:
        scene.provider.types._facts = {}
        scene.apply(node_class(kubelet={"maxPods": "vcpus * 10"}))
        result = await scene.resolve()
        assert result.again
        assert verdict(scene)[0] == "Unknown"


@pytest.mark.spec("aws-41")
@pytest.mark.parametrize(
    ("alias", "kubelet", "good"),
    [
        ("bottlerocket@latest", {"registryPullQPS": 5}, False),
        ("bottlerocket@latest", {"podsPerCore": 2}, False),
        ("bottlerocket@latest", {"clusterDNS": ["10.0.0.1", "10.0.0.2"]}, False),
        ("windows2022@latest", {"clusterDNS": ["10.0.0.1", "10.0.0.2"]}, False),
        (
            "al2023@latest",
            {"registryPullQPS": 5, "podsPerCore": 2, "clusterDNS": ["10.0.0.1", "10.0.0.2"]},
            True,
        ),
    ],
)
def test_a_family_that_cannot_pass_on_a_setting_says_so(
    alias: str, kubelet: dict[str, Any], good: bool
) -> None:
    @virtual
    async def told() -> None:
        async with ClassScene(open_kubelet=True).still() as scene:
            found = await judged(scene, amiSelectorTerms=[{"alias": alias}], kubelet=kubelet)
            assert found == (PASSED if good else ("False", "UnsupportedKubeletConfiguration"))

    told()


# The cluster


@pytest.mark.spec("aws-67")
@virtual
async def test_al2023_needs_the_service_range_and_says_when_it_cannot_be_had() -> None:
    async with ClassScene().still() as scene:
        scene.aws.refuse("AccessDeniedException", "DescribeCluster", times=None, message="denied")
        scene.apply(node_class())
        assert isinstance(await scene.failing(), Retry)
        assert verdict(scene) == ("False", "ClusterCIDRResolutionFailed")
        assert "eks:DescribeCluster" in why(scene)
        scene.aws.faults.clear()
        scene.aws.refuse("InternalError", "DescribeCluster")
        assert (await scene.resolve()).again  # a server fault says nothing about the class
        assert verdict(scene) == ("False", "ClusterCIDRResolutionFailed")
        await scene.resolve()
        assert verdict(scene) == PASSED


@pytest.mark.spec("aws-67")
@pytest.mark.parametrize("family", ["bottlerocket", "windows2022"])
def test_other_families_do_not_ask_eks(family: str) -> None:
    @virtual
    async def told() -> None:
        async with ClassScene().still() as scene:
            before = len(scene.asked("DescribeCluster"))
            assert await judged(scene, amiSelectorTerms=[{"alias": f"{family}@latest"}]) == PASSED
            assert len(scene.asked("DescribeCluster")) == before

    told()


@pytest.mark.spec("aws-68")
@virtual
async def test_a_cluster_of_ipv6_alone_gives_its_ipv6_range() -> None:
    scene = ClassScene()
    scene.aws.eks.clusters[CLUSTER].service_cidr = ""
    scene.aws.eks.clusters[CLUSTER].service_cidr_v6 = "fd00::/108"
    async with scene.still():
        assert await judged(scene) == PASSED
        assert scene.provider.discovery.facts.service_cidr == "fd00::/108"


# Permissions


@pytest.mark.spec("aws-69", "aws-70")
@pytest.mark.parametrize("operation", DRY_RUNS)
@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("You are not authorized", "no identity policy"),
        (BOUNDARY, "permissions boundary"),
        (SCP, "service control"),
    ],
)
def test_a_missing_permission_is_named_and_remembered(operation: str, message: str, told: str) -> None:
    @virtual
    async def checked() -> None:
        async with ClassScene().still() as scene:
            scene.apply(node_class())
            scene.aws.refuse("UnauthorizedOperation", operation, times=None, message=message)
            assert await scene.resolve() == Result(after=timedelta(minutes=1))
            assert verdict(scene) == ("False", f"{operation}AuthCheckFailed")
            assert told in why(scene)
            assert f"ec2:{operation}" in why(scene)
            scene.aws.faults.clear()
            asked = len(dry_runs(scene))
            await scene.resolve()
            assert verdict(scene)[0] == "False"
            assert len(dry_runs(scene)) == asked  # what EC2 said holds for half an hour
            await scene.pass_(31 * 60)
            await scene.resolve()
            assert verdict(scene) == PASSED

    checked()


@pytest.mark.spec("aws-71")
@virtual
async def test_one_subnet_that_works_is_enough() -> None:
    async with ClassScene().still() as scene:
        scene.aws.refuse("InternalError", "RunInstances", times=1)
        assert await judged(scene) == PASSED
        first, second = scene.asked("RunInstances")
        assert first["NetworkInterfaces"][0]["SubnetId"] != second["NetworkInterfaces"][0]["SubnetId"]


@virtual
async def test_ec2_in_trouble_decides_nothing() -> None:
    async with ClassScene().still() as scene:
        scene.aws.refuse("RequestLimitExceeded", "CreateFleet", times=1)
        scene.apply(node_class())
        assert (await scene.resolve()).again
        assert verdict(scene)[0] == "Unknown"
        await scene.resolve()
        assert verdict(scene) == PASSED


@pytest.mark.spec("aws-72")
@virtual
async def test_a_profile_ec2_does_not_know_is_the_users_if_he_named_it() -> None:
    async with ClassScene().still() as scene:
        scene.apply(node_class(role=None, instanceProfile="nobody"))
        assert (await scene.resolve()).again
        assert verdict(scene) == ("False", "InstanceProfileNotFound")
        assert "nobody" in why(scene)
        scene.aws.iam.add_profile("nobody")
        await scene.resolve()
        assert verdict(scene) == PASSED
        scene.apply(node_class("managed"))
        scene.aws.refuse(
            "InvalidParameterValue", "RunInstances", times=None, message="Invalid IAM Instance Profile name"
        )
        assert (await scene.resolve("managed")).again
        assert scene.says("ValidationSucceeded", "managed")[0] == "Unknown"


@pytest.mark.spec("aws-73")
@virtual
async def test_user_data_that_is_too_long_is_told_once_and_for_all() -> None:
    async with ClassScene().still() as scene:
        long = "#!/bin/bash\n" + "echo more\n" * 2000
        assert await judged(scene, userData=long) == ("False", "UserDataSizeLimitExceeded")
        assert "spec.userData" in why(scene)
        asked = len(dry_runs(scene))
        await scene.resolve()
        assert len(dry_runs(scene)) == asked
        scene.change(userData="#!/bin/bash\necho")
        scene.aws.refuse("InvalidUserData.Malformed", "CreateLaunchTemplate", message="not base64")
        assert isinstance(await scene.failing(), Retry)
        assert "not base64" in why(scene)
        await scene.resolve()
        assert verdict(scene) == PASSED


@virtual
async def test_user_data_the_family_cannot_read_is_told() -> None:
    async with ClassScene().still() as scene:
        found = await judged(scene, amiSelectorTerms=[{"alias": "bottlerocket@latest"}], userData="[settings")
        assert found == ("False", "UserDataInvalid")
        assert "TOML" in why(scene)


@virtual
async def test_groups_and_subnets_of_different_networks_are_told_of() -> None:
    async with ClassScene().still() as scene:
        network = scene.aws.network
        elsewhere = network.add_vpc("10.9.0.0/16")
        network.add_group("far", elsewhere.id)
        scene.apply(node_class(securityGroupSelectorTerms=[{"name": "far"}]))
        await scene.failing()
        assert verdict(scene)[0] == "Unknown"
        assert "different networks" in why(scene)


@pytest.mark.spec("aws-74")
@virtual
async def test_an_annotation_asks_ec2_again() -> None:
    async with ClassScene().still() as scene:
        await judged(scene)
        asked = len(dry_runs(scene))
        scene.annotate(please="look again")
        await scene.resolve()
        assert len(dry_runs(scene)) > asked


@virtual
async def test_subnets_that_change_places_are_the_same_subnets() -> None:
    async with ClassScene().still() as scene:
        await judged(scene)
        before, asked = scene.now().status.subnets, len(dry_runs(scene))
        scene.aws.network.subnets[before[0].id].take_addresses(100)
        await scene.pass_(61)
        await scene.resolve()
        assert scene.now().status.subnets == (*before[1:], before[0])
        assert len(dry_runs(scene)) == asked


@pytest.mark.spec("aws-75")
@virtual
async def test_without_dry_runs_ec2_is_not_asked() -> None:
    async with ClassScene("--disable-dry-run=true").still() as scene:
        assert await judged(scene) == PASSED
        assert dry_runs(scene) == []


@pytest.mark.spec("aws-76")
@virtual
async def test_the_type_that_is_tried_is_one_that_nodes_will_have() -> None:
    async with ClassScene().still() as scene:
        assert await judged(scene, amiSelectorTerms=[{"alias": "windows2022@latest"}]) == PASSED
        assert tried(scene) == "m5.large"
        scene.change(amiSelectorTerms=[{"alias": "al2023@latest"}])
        scene.apply(pool_of("any", [_in("karpenter.k8s.aws/instance-family", "g4dn", "c5")]))
        await scene.resolve()
        assert tried(scene).startswith("c5.")
        scene.api.delete("nodepools.karpenter.sh", "any")
        scene.apply(pool_of("gpu", [_in("karpenter.k8s.aws/instance-family", "g4dn")]))
        scene.annotate(look="again")
        await scene.resolve()
        assert tried(scene).startswith("g4dn.")


@pytest.mark.spec("aws-77")
@virtual
async def test_dedicated_hardware_is_tried_where_a_pool_allows_it() -> None:
    async with ClassScene().still() as scene:
        await judged(scene)
        assert _tenancy(scene) == "default"
        scene.apply(pool_of("alone", [_in("karpenter.k8s.aws/instance-tenancy", "default", "dedicated")]))
        scene.annotate(look="again")
        await scene.resolve()
        assert _tenancy(scene) == "dedicated"


def _in(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In", "values": list(values)}


def _tenancy(scene: ClassScene) -> str:
    return str(scene.asked("CreateLaunchTemplate")[-1]["LaunchTemplateData"]["Placement"]["Tenancy"])


@pytest.mark.spec("aws-78")
@virtual
async def test_a_tag_of_ours_that_got_past_admission_is_told() -> None:
    async with ClassScene(unchecked=True).still() as scene:
        scene.apply(node_class(tags={"karpenter.sh/nodepool": "mine"}))
        await scene.resolve()
        assert verdict(scene) == ("False", "TagValidationFailed")
        assert "karpenter.sh/nodepool" in why(scene)
        assert dry_runs(scene) == []


@virtual
async def test_dry_runs_carry_what_launches_will_carry() -> None:
    async with ClassScene().still() as scene:
        await judged(scene, tags={"team": "a"})
        fleet, run = scene.asked("CreateFleet")[-1], scene.asked("RunInstances")[-1]
        assert fleet["DryRun"]
        assert run["DryRun"]
        (configured,) = fleet["LaunchTemplateConfigs"]
        subnets = [subnet.id for subnet in scene.now().status.subnets]
        assert [override["SubnetId"] for override in configured["Overrides"]] == subnets
        kinds = {
            each["ResourceType"]: {t["Key"]: t["Value"] for t in each["Tags"]}
            for each in run["TagSpecifications"]
        }
        assert set(kinds) == {"instance", "volume", "network-interface"}
        assert kinds["instance"] == {
            "team": "a",
            f"kubernetes.io/cluster/{CLUSTER}": "owned",
            "karpenter.sh/nodepool": "",
            "eks:eks-cluster-name": CLUSTER,
            "karpenter.k8s.aws/ec2nodeclass": "default",
        }
        assert (run["MinCount"], run["MaxCount"]) == (1, 1)
        assert scene.aws.list_running() == []


@pytest.mark.spec("aws-36")
@pytest.mark.parametrize(
    "kubelet",
    [{"clusterDNS": "10.0.0.10"}, {"maxPods": True}, {"podsPerCore": "10"}, {"cpuCFSQuota": "true"}],
)
def test_a_class_with_settings_of_the_wrong_type_is_told_of_and_no_other_suffers(
    kubelet: dict[str, Any],
) -> None:
    @virtual
    async def told() -> None:
        scene = ClassScene(open_kubelet=True)
        scene.apply(node_class("broken", kubelet=kubelet))
        async with scene.still():
            scene.apply(node_class())
            scene.apply(node_class("later", kubelet=kubelet))
            for name in ("broken", "later"):
                await scene.resolve(name)
                assert scene.says("ValidationSucceeded", name) == ("False", "InvalidKubeletConfiguration")
                assert next(iter(kubelet)) in scene.why("ValidationSucceeded", name)
                assert scene.api.get("ec2nodeclasses.karpenter.k8s.aws", name)["spec"]["kubelet"] == kubelet
            await scene.resolve()
            assert verdict(scene) == PASSED

    told()

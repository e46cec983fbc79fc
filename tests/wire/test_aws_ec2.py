"""EC2 as the provider uses it: the same answers in memory and through boto3 over HTTP."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from dovetail.aws import AwsAbsent, AwsError, AwsInvalid, AwsTrouble, DryRunPassed, list_pages
from support.aws import (
    CLUSTER,
    described,
    discovered_groups,
    discovered_subnets,
    fleet,
    launched,
    recommended,
    template,
)
from support.aws_clients import DOORS, Door, opened

ZONE = "us-west-2a"


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with opened(request.param) as found:
        yield found


async def test_subnets_are_found_by_tag_wildcard_and_id_and_come_in_pages(door: Door) -> None:
    subnets = await discovered_subnets(door.aws)
    assert {each["AvailabilityZone"] for each in subnets} == set(door.world.network.zone_ids)
    wild = [{"Name": "tag:Name", "Values": [f"{CLUSTER}-private-us-west-2?"]}]
    assert len((await door.aws.call("ec2", "DescribeSubnets", {"Filters": wild}))["Subnets"]) == len(subnets)
    for at in range(3):
        door.world.network.add_subnet(subnets[0]["VpcId"], ZONE, f"10.0.{200 + at}.0/24")
    found = [
        page["Subnets"] async for page in list_pages(door.aws, "ec2", "DescribeSubnets", {"MaxResults": 5})
    ]
    assert [len(page) for page in found] == [5, 2]
    with pytest.raises(AwsAbsent) as refused:
        await door.aws.call("ec2", "DescribeSubnets", {"SubnetIds": ["subnet-00000000000000000"]})
    assert refused.value.code == "InvalidSubnetID.NotFound"


async def test_a_filter_nobody_knows_is_refused(door: Door) -> None:
    with pytest.raises(AwsInvalid, match="The filter 'colour' is invalid"):
        await door.aws.call("ec2", "DescribeSubnets", {"Filters": [{"Name": "colour", "Values": ["red"]}]})


async def test_too_many_filter_values_are_refused(door: Door) -> None:
    values = [f"i-{number:017x}" for number in range(201)]
    with pytest.raises(AwsInvalid) as refused:
        await door.aws.call(
            "ec2", "DescribeInstances", {"Filters": [{"Name": "instance-id", "Values": values}]}
        )
    assert refused.value.code == "FilterLimitExceeded"


@pytest.mark.parametrize("version", [f"1.{minor}" for minor in range(29, 37)])
async def test_every_kubernetes_version_has_its_images(door: Door, version: str) -> None:
    paths = [
        f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2023/arm64/nvidia/recommended/image_id",
        f"/aws/service/bottlerocket/aws-k8s-{version}/x86_64/latest/image_id",
        f"/aws/service/bottlerocket/aws-k8s-{version}-nvidia/arm64/1.50.0/image_id",
        f"/aws/service/ami-windows-latest/Windows_Server-2022-English-Core-EKS_Optimized-{version}/image_id",
    ]
    answer = await door.aws.call("ssm", "GetParameters", {"Names": paths})
    assert not answer["InvalidParameters"]
    ids = [each["Value"] for each in answer["Parameters"]]
    images = (await door.aws.call("ec2", "DescribeImages", {"ImageIds": ids}))["Images"]
    assert [each["State"] for each in images] == ["available"] * 4
    old = f"/aws/service/eks/optimized-ami/{version}/amazon-linux-2/recommended/image_id"
    if int(version[2:]) > 32:
        with pytest.raises(AwsAbsent):
            await door.aws.call("ssm", "GetParameter", {"Name": old})
    else:
        assert (await door.aws.call("ssm", "GetParameter", {"Name": old}))["Parameter"]["Value"].startswith(
            "ami-"
        )


async def test_a_deprecated_image_is_shown_only_when_asked_for(door: Door) -> None:
    image = await recommended(door.aws)
    door.world.images.deprecate(image)
    asked = {"ImageIds": [image]}
    assert not (await door.aws.call("ec2", "DescribeImages", asked))["Images"]
    shown = (await door.aws.call("ec2", "DescribeImages", {**asked, "IncludeDeprecated": True}))["Images"]
    assert shown[0]["DeprecationTime"].endswith("Z")


async def test_a_strangers_image_of_the_same_name_is_told_apart_by_its_owner(door: Door) -> None:
    mine = door.world.images.add("golden")
    door.world.images.add("golden", owner="999999999999", public=True)
    named = [{"Name": "name", "Values": ["golden"]}]
    both = (await door.aws.call("ec2", "DescribeImages", {"Filters": named}))["Images"]
    own = (await door.aws.call("ec2", "DescribeImages", {"Filters": named, "Owners": ["self", "amazon"]}))[
        "Images"
    ]
    assert len(both) == 2
    assert [each["ImageId"] for each in own] == [mine.id]


async def test_types_have_the_shape_ec2_gives_them(door: Door) -> None:
    asked = {"InstanceTypes": ["p4d.24xlarge", "m5.large", "inf2.xlarge"]}
    gpu, plain, neuron = (await door.aws.call("ec2", "DescribeInstanceTypes", asked))["InstanceTypes"]
    assert gpu["GpuInfo"]["Gpus"][0]["Count"] == 8
    assert gpu["NetworkInfo"]["EfaInfo"]["MaximumEfaInterfaces"] == 4
    assert plain["VCpuInfo"]["DefaultVCpus"] == 2
    assert plain["MemoryInfo"]["SizeInMiB"] == 8192
    assert plain["NetworkInfo"]["NetworkCards"][0]["MaximumNetworkInterfaces"] == 3
    assert neuron["NeuronInfo"]["NeuronDevices"][0]["CoreInfo"]["Count"] == 2


async def test_offerings_name_the_zones_that_sell_a_type(door: Door) -> None:
    asked = {
        "LocationType": "availability-zone",
        "Filters": [{"Name": "instance-type", "Values": ["m5.large"]}],
    }
    offered = (await door.aws.call("ec2", "DescribeInstanceTypeOfferings", asked))["InstanceTypeOfferings"]
    assert {each["Location"] for each in offered} <= set(door.world.network.zone_ids)
    assert offered


async def test_a_template_is_made_found_refused_twice_and_deleted(door: Door) -> None:
    made = await template(door.aws, "karpenter.k8s.aws/1")
    with pytest.raises(AwsInvalid) as twice:
        await template(door.aws, "karpenter.k8s.aws/1")
    assert twice.value.code == "InvalidLaunchTemplateName.AlreadyExistsException"
    named = {"LaunchTemplateNames": ["karpenter.k8s.aws/1"]}
    found = (await door.aws.call("ec2", "DescribeLaunchTemplates", named))["LaunchTemplates"]
    assert [each["LaunchTemplateId"] for each in found] == [made["LaunchTemplateId"]]
    await door.aws.call("ec2", "DeleteLaunchTemplate", {"LaunchTemplateId": made["LaunchTemplateId"]})
    with pytest.raises(AwsAbsent) as gone:
        await door.aws.call("ec2", "DescribeLaunchTemplates", named)
    assert gone.value.code == "InvalidLaunchTemplateName.NotFoundException"


async def test_user_data_over_sixteen_kibibytes_is_refused(door: Door) -> None:
    with pytest.raises(AwsInvalid, match="User data is limited to 16384 bytes") as refused:
        await template(door.aws, UserData=b64encode(b"x" * 16385).decode())
    assert refused.value.code == "InvalidUserData.Malformed"


async def test_an_instance_is_what_its_template_says(door: Door) -> None:
    door.world.iam.add_profile("nodes", role=f"KarpenterNodeRole-{CLUSTER}")
    await template(
        door.aws,
        IamInstanceProfile={"Name": "nodes"},
        BlockDeviceMappings=[
            {"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 40, "VolumeType": "gp3", "Encrypted": True}},
            {"DeviceName": "/dev/xvdb", "Ebs": {"VolumeSize": 100}},
        ],
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
        Monitoring={"Enabled": True},
        Placement={"Tenancy": "dedicated"},
        TagSpecifications=[{"ResourceType": "network-interface", "Tags": [{"Key": "eni", "Value": "yes"}]}],
    )
    answer = await fleet(door.aws, tags={"karpenter.sh/nodepool": "web"})
    (machine,) = await described(door.aws, *launched(answer))
    assert machine["IamInstanceProfile"]["Arn"].endswith("instance-profile/nodes")
    assert [each["DeviceName"] for each in machine["BlockDeviceMappings"]] == ["/dev/xvda", "/dev/xvdb"]
    assert machine["MetadataOptions"]["HttpTokens"] == "required"
    assert machine["Monitoring"]["State"] == "enabled"
    assert machine["Placement"]["Tenancy"] == "dedicated"
    assert [each["GroupId"] for each in machine["SecurityGroups"]] == await discovered_groups(door.aws)
    tags = {each["Key"]: each["Value"] for each in machine["Tags"]}
    assert tags["karpenter.sh/nodepool"] == "web"
    assert tags["aws:ec2:fleet-id"] == answer["FleetId"]
    assert door.world.get_instance(machine["InstanceId"]).interfaces[0].tags == {"eni": "yes"}


async def test_on_demand_comes_from_the_cheapest_type(door: Door) -> None:
    await template(door.aws)
    answer = await fleet(door.aws, ["m5.4xlarge", "m5.large", "c5.2xlarge"])
    assert answer["Instances"][0]["InstanceType"] == "m5.large"
    assert not answer["Errors"]
    assert answer["Instances"][0]["Lifecycle"] == "on-demand"


async def test_a_dry_pool_is_told_of_and_the_next_one_gives(door: Door) -> None:
    await template(door.aws)
    door.world.exhaust("m5.large", ZONE, "on-demand")
    answer = await fleet(door.aws, ["m5.large", "m5.xlarge"], zones=[ZONE])
    assert answer["Instances"][0]["InstanceType"] == "m5.xlarge"
    (error,) = answer["Errors"]
    assert error["ErrorCode"] == "InsufficientInstanceCapacity"
    assert error["LaunchTemplateAndOverrides"]["Overrides"]["InstanceType"] == "m5.large"
    assert error["LaunchTemplateAndOverrides"]["Overrides"]["AvailabilityZone"] == ZONE


async def test_a_fleet_can_succeed_in_part(door: Door) -> None:
    await template(door.aws)
    door.world.restock("m5.large", ZONE, "on-demand", 2)
    answer = await fleet(door.aws, count=5, zones=[ZONE])
    assert len(launched(answer)) == 2
    assert [each["ErrorCode"] for each in answer["Errors"]] == ["InsufficientInstanceCapacity"]


async def test_what_ends_goes_back_to_its_pool_and_its_subnet(door: Door) -> None:
    await template(door.aws)
    before = {
        each["SubnetId"]: each["AvailableIpAddressCount"] for each in await discovered_subnets(door.aws)
    }
    door.world.restock("m5.large", ZONE, "on-demand", 1)
    first = await fleet(door.aws, zones=[ZONE])
    taken = {each["SubnetId"]: each["AvailableIpAddressCount"] for each in await discovered_subnets(door.aws)}
    assert sum(before.values()) - sum(taken.values()) == 1
    assert not launched(await fleet(door.aws, zones=[ZONE]))
    await door.aws.call("ec2", "TerminateInstances", {"InstanceIds": launched(first)})
    door.wait(60)
    assert launched(await fleet(door.aws, zones=[ZONE]))
    door.world.instances.terminate(door.world.list_running()[0])
    door.wait(60)
    after = {each["SubnetId"]: each["AvailableIpAddressCount"] for each in await discovered_subnets(door.aws)}
    assert after == before


async def test_a_subnet_without_addresses_is_named(door: Door) -> None:
    network = door.world.network
    vpc = next(iter(network.vpcs))
    subnet = network.add_subnet(vpc, ZONE, "10.0.254.0/28")
    await template(door.aws, NetworkInterfaces=[{"DeviceIndex": 0, "Ipv4PrefixCount": 1}])
    override = {"InstanceType": "m5.large", "SubnetId": subnet.id}
    asked = {
        "Type": "instant",
        "LaunchTemplateConfigs": [
            {
                "LaunchTemplateSpecification": {"LaunchTemplateName": "test", "Version": "$Latest"},
                "Overrides": [override],
            }
        ],
        "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": "on-demand"},
    }
    answer = await door.aws.call("ec2", "CreateFleet", asked)
    (error,) = answer["Errors"]
    assert error["ErrorCode"] == "InsufficientFreeAddressesInSubnet"
    assert error["LaunchTemplateAndOverrides"]["Overrides"]["SubnetId"] == subnet.id


async def test_priorities_decide_when_they_are_asked_to(door: Door) -> None:
    await template(door.aws)
    answer = await fleet(
        door.aws, ["m5.large", "m5.4xlarge"], strategy="prioritized", priorities=[2.0, 1.0], zones=[ZONE]
    )
    assert answer["Instances"][0]["InstanceType"] == "m5.4xlarge"


async def test_spot_prefers_deep_pools_unless_they_cost_far_more(door: Door) -> None:
    await template(door.aws)
    door.world.restock("m5.large", "*", "spot", 3)
    door.world.prices.factors |= {("m5.large", "", "spot"): 1.0, ("m5a.large", "", "spot"): 1.0}
    shallow = await fleet(door.aws, ["m5.large"], way="spot", zones=[ZONE])
    assert shallow["Instances"][0]["Lifecycle"] == "spot"
    prices = door.world.prices
    dear = prices.spot_price("m5.large", ZONE)
    assert dear is not None
    prices.factors["m5a.large", "", "spot"] = dear / (prices.spot_price("m5a.large", ZONE) or 1) * 1.2
    answer = await fleet(door.aws, ["m5.large", "m5a.large"], way="spot", zones=[ZONE])
    assert answer["Instances"][0]["InstanceType"] == "m5a.large"
    prices.factors["m5a.large", "", "spot"] *= 3
    answer = await fleet(door.aws, ["m5.large", "m5a.large"], way="spot", zones=[ZONE])
    assert answer["Instances"][0]["InstanceType"] == "m5.large"


async def test_the_quota_of_the_account_is_a_refusal_of_the_fleet(door: Door) -> None:
    await template(door.aws)
    door.world.capacity.quotas.on_demand_vcpus = 3
    door.world.capacity.quotas.spot_instances = 0
    answer = await fleet(door.aws, count=2)
    assert len(launched(answer)) == 1
    assert {each["ErrorCode"] for each in answer["Errors"]} == {"VcpuLimitExceeded"}
    spot = await fleet(door.aws, way="spot")
    assert {each["ErrorCode"] for each in spot["Errors"]} == {"MaxSpotInstanceCountExceeded"}


async def test_a_launch_through_a_template_that_is_gone_fails_as_a_whole(door: Door) -> None:
    with pytest.raises(AwsAbsent) as refused:
        await fleet(door.aws, name="nowhere")
    assert refused.value.code == "InvalidLaunchTemplateName.NotFoundException"


async def test_wrong_parts_of_a_launch_are_errors_of_the_fleet(door: Door) -> None:
    vpc = door.world.network.add_vpc("10.9.0.0/16")
    stranger = door.world.network.add_group("stranger", vpc.id)
    await template(door.aws, "image", ImageId="ami-00000000000000000")
    await template(door.aws, "profile", IamInstanceProfile={"Name": "nobody"})
    await template(door.aws, "group", NetworkInterfaces=[{"DeviceIndex": 0, "Groups": [stranger.id]}])
    await template(door.aws, "arch", ImageId=await recommended(door.aws, "arm64"))
    codes = {}
    for name in ("image", "profile", "group", "arch"):
        answer = await fleet(door.aws, name=name, zones=[ZONE])
        codes[name] = (answer["Errors"][0]["ErrorCode"], answer["Errors"][0]["ErrorMessage"])
    assert codes["image"][0] == "InvalidAMIID.NotFound"
    assert "iamInstanceProfile.name is invalid" in codes["profile"][1]
    assert "belong to different networks" in codes["group"][1]
    assert "matching architectures" in codes["arch"][1]


async def test_a_dry_run_says_that_it_would_have_worked(door: Door) -> None:
    await template(door.aws)
    asked = {"LaunchTemplate": {"LaunchTemplateName": "test"}, "MinCount": 1, "MaxCount": 1, "DryRun": True}
    with pytest.raises(DryRunPassed):
        await door.aws.call("ec2", "RunInstances", {**asked, "InstanceType": "m5.large"}, retried=False)
    with pytest.raises(DryRunPassed):
        await door.aws.call("ec2", "DescribeInstanceTypes", {"DryRun": True}, retried=False)
    wrong = {"InstanceType": "m5.large", "IamInstanceProfile": {"Name": "nobody"}}
    with pytest.raises(AwsInvalid, match="Invalid IAM Instance Profile name"):
        await door.aws.call("ec2", "RunInstances", {**asked, **wrong}, retried=False)
    assert not door.world.list_running()


async def test_instances_are_found_by_tag_and_state_and_all_or_none_by_id(door: Door) -> None:
    await template(door.aws)
    web = launched(await fleet(door.aws, count=3, tags={"pool": "web"}))
    launched(await fleet(door.aws, count=2, tags={"pool": "batch"}))
    await door.aws.call("ec2", "TerminateInstances", {"InstanceIds": web[:1]})
    filters = [
        {"Name": "tag:pool", "Values": ["web"]},
        {"Name": "tag-key", "Values": ["pool"]},
        {"Name": "instance-state-name", "Values": ["pending", "running"]},
    ]
    found = [
        each["InstanceId"]
        async for page in list_pages(
            door.aws, "ec2", "DescribeInstances", {"Filters": filters, "MaxResults": 5}
        )
        for entry in page["Reservations"]
        for each in entry["Instances"]
    ]
    assert sorted(found) == sorted(web[1:])
    with pytest.raises(AwsAbsent) as refused:
        await described(door.aws, *web, "i-00000000000000000")
    assert refused.value.code == "InvalidInstanceID.NotFound"


async def test_a_launched_instance_cannot_be_described_at_once_when_ec2_lags(door: Door) -> None:
    await template(door.aws)
    door.world.instances.hidden_for = 5.0
    (one,) = launched(await fleet(door.aws, tags={"pool": "web"}))
    with pytest.raises(AwsAbsent):
        await described(door.aws, one)
    tagged = {"Filters": [{"Name": "tag:pool", "Values": ["web"]}]}
    assert not (await door.aws.call("ec2", "DescribeInstances", tagged))["Reservations"]
    door.wait(6)
    assert len(await described(door.aws, one)) == 1


async def test_tags_can_be_added_and_are_found_from_then_on(door: Door) -> None:
    await template(door.aws)
    (one,) = launched(await fleet(door.aws))
    tags = [{"Key": "karpenter.sh/nodeclaim", "Value": "web-1"}]
    await door.aws.call("ec2", "CreateTags", {"Resources": [one], "Tags": tags})
    asked = {"Filters": [{"Name": "tag:karpenter.sh/nodeclaim", "Values": ["web-1"]}]}
    found = (await door.aws.call("ec2", "DescribeInstances", asked))["Reservations"]
    assert found[0]["Instances"][0]["InstanceId"] == one
    with pytest.raises(AwsAbsent):
        await door.aws.call("ec2", "CreateTags", {"Resources": ["i-00000000000000000"], "Tags": tags})


async def test_an_instance_starts_runs_ends_and_is_forgotten_an_hour_later(door: Door) -> None:
    await template(door.aws)
    (one,) = launched(await fleet(door.aws))
    states = [(await described(door.aws, one))[0]["State"]["Name"]]
    door.wait(15)
    states.append((await described(door.aws, one))[0]["State"]["Name"])
    ended = await door.aws.call("ec2", "TerminateInstances", {"InstanceIds": [one]})
    states.append(ended["TerminatingInstances"][0]["CurrentState"]["Name"])
    door.wait(45)
    states.append((await described(door.aws, one))[0]["State"]["Name"])
    assert states == ["pending", "running", "shutting-down", "terminated"]
    door.wait(3700)
    with pytest.raises(AwsAbsent):
        await described(door.aws, one)


async def test_failed_checks_and_scheduled_events_are_in_the_status(door: Door) -> None:
    await template(door.aws)
    sick, retired, well = launched(await fleet(door.aws, count=3))
    door.wait(15)
    door.world.impair(sick, "system")
    door.world.retire(retired, starts=timedelta(days=3))
    impaired = {"Filters": [{"Name": "system-status.status", "Values": ["impaired"]}]}
    (found,) = (await door.aws.call("ec2", "DescribeInstanceStatus", impaired))["InstanceStatuses"]
    assert found["InstanceId"] == sick
    assert found["SystemStatus"]["Details"][0]["ImpairedSince"] is not None
    scheduled = {"Filters": [{"Name": "event.code", "Values": ["instance-retirement"]}]}
    (found,) = (await door.aws.call("ec2", "DescribeInstanceStatus", scheduled))["InstanceStatuses"]
    assert (found["InstanceId"], found["Events"][0]["Code"]) == (retired, "instance-retirement")
    door.wait(3 * 86400 + 60)
    assert door.world.get_instance(well).state == "running"
    assert not door.world.instances.by_id[retired].alive


async def test_spot_prices_move_and_their_history_reaches_back(door: Door) -> None:
    now = door.clock.now()
    asked = {
        "InstanceTypes": ["m5.large"],
        "AvailabilityZone": ZONE,
        "ProductDescriptions": ["Linux/UNIX"],
        "StartTime": now - timedelta(days=5),
        "EndTime": now,
    }
    history = (await door.aws.call("ec2", "DescribeSpotPriceHistory", asked))["SpotPriceHistory"]
    prices = {float(each["SpotPrice"]) for each in history}
    assert len(history) >= 20
    assert len(prices) > 3
    assert max(prices) < 1.2 * min(prices)
    latest = await door.aws.call("ec2", "DescribeSpotPriceHistory", {**asked, "StartTime": now})
    assert len(latest["SpotPriceHistory"]) == 1
    assert latest["SpotPriceHistory"][0]["Timestamp"] <= now


async def test_a_reservation_gives_what_it_holds_and_no_more(door: Door) -> None:
    held = door.world.reservations.add("m5.large", ZONE, 2, {"team": "web"})
    await template(
        door.aws,
        CapacityReservationSpecification={
            "CapacityReservationPreference": "capacity-reservations-only",
            "CapacityReservationTarget": {"CapacityReservationId": held.id},
        },
    )
    answer = await fleet(door.aws, count=3, zones=[ZONE])
    assert len(launched(answer)) == 2
    assert answer["Errors"][0]["ErrorCode"] == "ReservationCapacityExceeded"
    asked = {"Filters": [{"Name": "tag:team", "Values": ["web"]}, {"Name": "state", "Values": ["active"]}]}
    (found,) = (await door.aws.call("ec2", "DescribeCapacityReservations", asked))["CapacityReservations"]
    assert (found["TotalInstanceCount"], found["AvailableInstanceCount"]) == (2, 0)
    one = (await described(door.aws, launched(answer)[0]))[0]
    assert one["CapacityReservationId"] == held.id
    door.world.instances.terminate(door.world.get_instance(one["InstanceId"]))
    door.wait(60)
    (found,) = (await door.aws.call("ec2", "DescribeCapacityReservations", asked))["CapacityReservations"]
    assert found["AvailableInstanceCount"] == 1


async def test_a_block_ends_with_its_instances_and_a_cancelled_reservation_without(door: Door) -> None:
    ends = door.clock.now() + timedelta(hours=2)
    block = door.world.reservations.add("m5.large", ZONE, 1, kind="capacity-block", ends=ends)
    plain = door.world.reservations.add("m5.large", ZONE, 1)
    ids = []
    for held in (block, plain):
        target = {"CapacityReservationTarget": {"CapacityReservationId": held.id}}
        await template(door.aws, held.id, CapacityReservationSpecification=target)
        ids += launched(await fleet(door.aws, zones=[ZONE], name=held.id))
    await door.aws.call("ec2", "CancelCapacityReservation", {"CapacityReservationId": plain.id})
    assert "CapacityReservationId" not in (await described(door.aws, ids[1]))[0]
    door.wait(85 * 60)
    assert door.world.get_instance(ids[0]).alive
    door.wait(6 * 60)
    assert [door.world.get_instance(each).alive for each in ids] == [False, True]


async def test_a_new_profile_is_not_known_to_ec2_at_once_when_iam_lags(door: Door) -> None:
    door.world.iam.lag = 10.0
    door.world.iam.add_profile("nodes")
    await template(door.aws, IamInstanceProfile={"Name": "nodes"})
    assert "Invalid IAM Instance Profile name" in (await fleet(door.aws))["Errors"][0]["ErrorMessage"]
    door.wait(11)
    assert launched(await fleet(door.aws))


async def test_a_spread_group_takes_seven_in_a_zone_and_partitions_are_filled_evenly(door: Door) -> None:
    groups = door.world.placement_groups
    spread, parted = groups.add("spread", "spread"), groups.add("parted", "partition", 3)
    await template(door.aws, "spread", Placement={"GroupId": spread.id})
    answer = await fleet(door.aws, count=8, zones=[ZONE], name="spread")
    assert len(launched(answer)) == 7
    assert "spread placement group" in answer["Errors"][0]["ErrorMessage"]
    await template(door.aws, "parted", Placement={"GroupId": parted.id})
    ids = launched(await fleet(door.aws, count=6, name="parted"))
    numbers = [each["Placement"]["PartitionNumber"] for each in await described(door.aws, *ids)]
    assert sorted(numbers) == [1, 1, 2, 2, 3, 3]
    asked = {"GroupNames": ["parted"]}
    (found,) = (await door.aws.call("ec2", "DescribePlacementGroups", asked))["PlacementGroups"]
    assert (found["Strategy"], found["PartitionCount"]) == ("partition", 3)
    with pytest.raises(AwsAbsent):
        await door.aws.call("ec2", "DescribePlacementGroups", {"GroupNames": ["nowhere"]})


async def test_throttling_and_server_faults_are_trouble(door: Door) -> None:
    for code in ("RequestLimitExceeded", "InternalError", "Unavailable"):
        door.world.refuse(code, "DescribeSubnets")
        with pytest.raises(AwsTrouble) as refused:
            await door.aws.call("ec2", "DescribeSubnets", {}, retried=False)
        assert refused.value.code == code
    assert await discovered_subnets(door.aws)


async def test_a_request_budget_fills_with_time(door: Door) -> None:
    door.world.faults.throttle("DescribeSubnets", size=2, fills=1.0)
    for _ in range(2):
        await door.aws.call("ec2", "DescribeSubnets", {}, retried=False)
    with pytest.raises(AwsTrouble):
        await door.aws.call("ec2", "DescribeSubnets", {}, retried=False)
    door.wait(2)
    assert await discovered_subnets(door.aws)


async def test_an_answer_can_be_lost_though_the_work_is_done(door: Door) -> None:
    await template(door.aws)
    door.world.faults.lose_answers("CreateTags")
    (one,) = launched(await fleet(door.aws))
    tags = [{"Key": "a", "Value": "b"}]
    with pytest.raises(AwsTrouble):
        await door.aws.call("ec2", "CreateTags", {"Resources": [one], "Tags": tags}, retried=False)
    assert door.world.get_instance(one).tags["a"] == "b"


async def test_expired_credentials_are_told_by_each_service(door: Door) -> None:
    door.world.faults.expired = True
    codes = []
    for service, operation in (
        ("ec2", "DescribeSubnets"),
        ("sqs", "ListQueues"),
        ("iam", "ListInstanceProfiles"),
    ):
        with pytest.raises(AwsError) as refused:
            await door.aws.call(service, operation, {}, retried=False)
        codes.append(refused.value.code)
    assert codes == ["RequestExpired", "ExpiredTokenException", "ExpiredToken"]
    door.world.faults.clear()
    assert await discovered_subnets(door.aws)

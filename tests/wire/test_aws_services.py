"""IAM, STS, EKS, Pricing and ARC: the same in memory and through boto3 over HTTP; and moto behind them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import aiohttp
import pytest

from dovetail.aws import AwsAbsent, AwsDenied, AwsError, AwsInvalid, list_pages
from dovetail.sim.aws.wire.server import serve_aws
from support.aws import CLUSTER, fleet, launched, simulated, template
from support.aws_clients import DOORS, Door, opened

ARC = "arc-zonal-shift"


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with opened(request.param) as found:
        yield found


async def test_a_profile_holds_one_role_and_goes_only_without_it(door: Door) -> None:
    role, named = f"KarpenterNodeRole-{CLUSTER}", {"InstanceProfileName": "nodes"}
    tags = [{"Key": "topology.kubernetes.io/region", "Value": "us-west-2"}]
    await door.aws.call("iam", "CreateInstanceProfile", {**named, "Path": "/karpenter/x/", "Tags": tags})
    with pytest.raises(AwsInvalid) as twice:
        await door.aws.call("iam", "CreateInstanceProfile", named)
    assert twice.value.code == "EntityAlreadyExists"
    await door.aws.call("iam", "AddRoleToInstanceProfile", {**named, "RoleName": role})
    found = (await door.aws.call("iam", "GetInstanceProfile", named))["InstanceProfile"]
    assert [each["RoleName"] for each in found["Roles"]] == [role]
    assert found["Tags"] == tags
    with pytest.raises(AwsInvalid) as held:
        await door.aws.call("iam", "DeleteInstanceProfile", named)
    assert held.value.code == "DeleteConflict"
    await door.aws.call("iam", "RemoveRoleFromInstanceProfile", {**named, "RoleName": role})
    listed = await door.aws.call("iam", "ListInstanceProfiles", {"PathPrefix": "/karpenter/"})
    assert len(listed["InstanceProfiles"]) == 1
    await door.aws.call("iam", "DeleteInstanceProfile", named)
    with pytest.raises(AwsAbsent):
        await door.aws.call("iam", "GetInstanceProfile", named)


async def test_a_role_that_is_not_there_is_named(door: Door) -> None:
    await door.aws.call("iam", "CreateInstanceProfile", {"InstanceProfileName": "nodes"})
    with pytest.raises(AwsAbsent, match="role with name ghost"):
        await door.aws.call(
            "iam", "AddRoleToInstanceProfile", {"InstanceProfileName": "nodes", "RoleName": "ghost"}
        )


async def test_many_profiles_come_in_pages(door: Door) -> None:
    for at in range(130):
        door.world.iam.add_profile(f"p{at}", "/many/")
    found = [
        each["InstanceProfileName"]
        async for page in list_pages(door.aws, "iam", "ListInstanceProfiles", {"PathPrefix": "/many/"})
        for each in page["InstanceProfiles"]
    ]
    assert len(set(found)) == 130


async def test_another_account_is_entered_by_a_role_that_takes_us(door: Door) -> None:
    there = door.world.in_account(account="999999999999")
    there.iam.add_role(
        "reader", trust=json.dumps({"Condition": {"StringEquals": {"sts:ExternalId": "secret"}}})
    )
    role = "arn:aws:iam::999999999999:role/reader"
    for wrong in ("", "guess"):
        with pytest.raises(AwsDenied):
            await door.aws.scope_to(role=role, external_id=wrong).call("ec2", "DescribeSubnets", {})
    inside = door.aws.scope_to(role=role, external_id="secret")
    assert not (await inside.call("ec2", "DescribeSubnets", {}))["Subnets"]
    answer = await inside.call("ec2", "DescribeAvailabilityZones", {})
    zones = {each["ZoneName"]: each["ZoneId"] for each in answer["AvailabilityZones"]}
    assert zones.keys() == door.world.network.zone_ids.keys()
    assert zones != door.world.network.zone_ids


async def test_regions_are_worlds_of_their_own(door: Door) -> None:
    far = door.aws.scope_to(region="eu-west-1")
    assert far.region == "eu-west-1"
    assert not (await far.call("ec2", "DescribeSubnets", {}))["Subnets"]
    name = "/aws/service/bottlerocket/aws-k8s-1.35/arm64/latest/image_id"
    here = await door.aws.call("ssm", "GetParameter", {"Name": name})
    there = await far.call("ssm", "GetParameter", {"Name": name})
    assert here["Parameter"]["Value"] != there["Parameter"]["Value"]


async def test_eks_tells_of_the_cluster(door: Door) -> None:
    found = (await door.aws.call("eks", "DescribeCluster", {"name": CLUSTER}))["cluster"]
    assert found["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "10.100.0.0/16"
    assert found["endpoint"].startswith("https://")
    with pytest.raises(AwsAbsent):
        await door.aws.call("eks", "DescribeCluster", {"name": "nowhere"})


async def test_prices_of_linux_machines_are_listed_shared_and_bare(door: Door) -> None:
    asked = {
        "regionCode": "us-west-2",
        "serviceCode": "AmazonEC2",
        "preInstalledSw": "NA",
        "operatingSystem": "Linux",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": "Dedicated",
        "productFamily": "Compute Instance (bare metal)",
    }
    filters = [{"Type": "TERM_MATCH", "Field": key, "Value": value} for key, value in asked.items()]
    bare = [
        json.loads(each)
        async for page in list_pages(
            door.aws, "pricing", "GetProducts", {"ServiceCode": "AmazonEC2", "Filters": filters}
        )
        for each in page["PriceList"]
    ]
    assert len(bare) > 50
    assert all(".metal" in each["product"]["attributes"]["instanceType"] for each in bare)
    (term,) = bare[0]["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert float(dimension["pricePerUnit"]["USD"]) > 0


async def test_own_parameters_can_be_put_and_those_of_aws_cannot(door: Door) -> None:
    await door.aws.call("ssm", "PutParameter", {"Name": "/my/image", "Value": "ami-1", "Type": "String"})
    with pytest.raises(AwsInvalid):
        await door.aws.call("ssm", "PutParameter", {"Name": "/my/image", "Value": "ami-2", "Type": "String"})
    assert (await door.aws.call("ssm", "GetParameter", {"Name": "/my/image"}))["Parameter"][
        "Value"
    ] == "ami-1"
    with pytest.raises(AwsDenied):
        await door.aws.call("ssm", "PutParameter", {"Name": "/aws/service/x", "Value": "y", "Type": "String"})


async def test_a_zonal_shift_is_started_extended_seen_and_cancelled(door: Door) -> None:
    arn = {"resourceIdentifier": door.world.eks.clusters[CLUSTER].arn}
    started = await door.aws.call(
        ARC, "StartZonalShift", {**arn, "awayFrom": "usw2-az1", "expiresIn": "1h", "comment": "bad switch"}
    )
    named = {"zonalShiftId": started["zonalShiftId"]}
    found = await door.aws.call(ARC, "GetManagedResource", arn)
    assert [(each["awayFrom"], each["appliedStatus"]) for each in found["zonalShifts"]] == [
        ("usw2-az1", "APPLIED")
    ]
    assert found["appliedWeights"]["usw2-az1"] == 0.0
    with pytest.raises(AwsInvalid, match="ZonalShiftAlreadyExists"):
        await door.aws.call(
            ARC, "StartZonalShift", {**arn, "awayFrom": "usw2-az2", "expiresIn": "1h", "comment": "x"}
        )
    extended = await door.aws.call(ARC, "UpdateZonalShift", {**named, "expiresIn": "12h"})
    assert extended["expiryTime"] > started["expiryTime"]
    await door.aws.call(ARC, "CancelZonalShift", named)
    assert not (await door.aws.call(ARC, "GetManagedResource", arn))["zonalShifts"]
    (past,) = (await door.aws.call(ARC, "ListZonalShifts", {"status": "CANCELED"}))["items"]
    assert past["zonalShiftId"] == started["zonalShiftId"]


async def test_a_persons_shift_stands_before_an_autoshift_and_expires(door: Door) -> None:
    arn = {"resourceIdentifier": door.world.eks.clusters[CLUSTER].arn}
    alarms = [{"type": "CLOUDWATCH", "alarmIdentifier": "arn:aws:cloudwatch:us-west-2:1:alarm:a"}]
    with pytest.raises(AwsInvalid):
        await door.aws.call(
            ARC, "UpdateZonalAutoshiftConfiguration", {**arn, "zonalAutoshiftStatus": "ENABLED"}
        )
    await door.aws.call(ARC, "CreatePracticeRunConfiguration", {**arn, "outcomeAlarms": alarms})
    await door.aws.call(ARC, "UpdateZonalAutoshiftConfiguration", {**arn, "zonalAutoshiftStatus": "ENABLED"})
    door.world.shifts.start_autoshift("usw2-az2")
    found = await door.aws.call(ARC, "GetManagedResource", arn)
    assert [each["appliedStatus"] for each in found["autoshifts"]] == ["APPLIED"]
    shift = {**arn, "awayFrom": "usw2-az1", "expiresIn": "30m", "comment": "mine"}
    await door.aws.call(ARC, "StartZonalShift", shift)
    found = await door.aws.call(ARC, "GetManagedResource", arn)
    assert [each["appliedStatus"] for each in found["autoshifts"]] == ["NOT_APPLIED"]
    door.wait(31 * 60)
    found = await door.aws.call(ARC, "GetManagedResource", arn)
    assert not found["zonalShifts"]
    assert [each["appliedStatus"] for each in found["autoshifts"]] == ["APPLIED"]
    door.world.shifts.end_autoshift("usw2-az2")
    assert not (await door.aws.call(ARC, "GetManagedResource", arn))["autoshifts"]


async def test_a_practice_run_expires_a_minute_ahead_and_gives_way_to_a_person(door: Door) -> None:
    arn = {"resourceIdentifier": door.world.eks.clusters[CLUSTER].arn}
    alarms = [{"type": "CLOUDWATCH", "alarmIdentifier": "arn:aws:cloudwatch:us-west-2:1:alarm:a"}]
    await door.aws.call(ARC, "CreatePracticeRunConfiguration", {**arn, "outcomeAlarms": alarms})
    await door.aws.call(ARC, "StartPracticeRun", {**arn, "awayFrom": "usw2-az3", "comment": "drill"})
    door.wait(600)
    (running,) = (await door.aws.call(ARC, "GetManagedResource", arn))["zonalShifts"]
    assert running["shiftType"] == "PRACTICE_RUN"
    assert 50 < (running["expiryTime"] - door.clock.now()).total_seconds() <= 60
    shift = {**arn, "awayFrom": "usw2-az1", "expiresIn": "30m", "comment": "mine"}
    await door.aws.call(ARC, "StartZonalShift", shift)
    ended = (await door.aws.call(ARC, "ListZonalShifts", {"status": "CANCELED"}))["items"]
    assert [each["practiceRunOutcome"] for each in ended] == ["INTERRUPTED"]


@pytest.mark.parametrize(
    ("away", "lasts"), [("use1-az1", "1h"), ("us-west-2a", "1h"), ("usw2-az1", "0h"), ("usw2-az1", "73h")]
)
async def test_a_shift_that_makes_no_sense_is_refused(door: Door, away: str, lasts: str) -> None:
    asked = {
        "resourceIdentifier": door.world.eks.clusters[CLUSTER].arn,
        "awayFrom": away,
        "expiresIn": lasts,
        "comment": "x",
    }
    with pytest.raises(AwsError) as refused:
        await door.aws.call(ARC, "StartZonalShift", asked)
    assert refused.value.code == "ValidationException"


async def test_a_cluster_that_is_not_registered_is_absent(door: Door) -> None:
    door.world.eks.clusters[CLUSTER].zonal_shift = False
    asked = {"resourceIdentifier": door.world.eks.clusters[CLUSTER].arn}
    with pytest.raises(AwsAbsent):
        await door.aws.call(ARC, "GetManagedResource", asked)


@pytest.mark.parametrize(
    ("target", "body"),
    [
        ("AmazonSQS.SendMessage", b"{"),
        ("AmazonSQS.SendMessage", b"[1]"),
        ("AmazonSQS.SendMessage", b"\xff\xfe"),
    ],
)
async def test_a_request_that_cannot_be_read_is_refused_in_one_sentence(target: str, body: bytes) -> None:
    scope = "AWS4-HMAC-SHA256 Credential=AKIA1111222233330000/20260101/us-west-2/sqs/aws4_request"
    async with serve_aws(simulated(), moto=False) as server, aiohttp.ClientSession() as client:
        headers = {"Authorization": scope, "X-Amz-Target": target}
        async with client.post(server.url, data=body, headers=headers) as answer:
            assert answer.status == 400
            assert "cannot be read" in (await answer.json())["message"]
        async with client.get(f"{server.url}/what") as answer:
            assert answer.status == 400


async def test_a_stack_of_cloudformation_and_the_simulation_speak_of_the_same_things() -> None:
    trust = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "sts:AssumeRole"}]}
    stack = {
        "Resources": {
            "Role": {
                "Type": "AWS::IAM::Role",
                "Properties": {"RoleName": "stack-role", "AssumeRolePolicyDocument": trust},
            },
            "Queue": {"Type": "AWS::SQS::Queue", "Properties": {"QueueName": "stack-queue"}},
            "Rule": {
                "Type": "AWS::Events::Rule",
                "Properties": {
                    "EventPattern": {"source": ["aws.ec2"]},
                    "Targets": [{"Id": "queue", "Arn": {"Fn::GetAtt": ["Queue", "Arn"]}}],
                },
            },
        }
    }
    async with opened("http", moto=True) as door:
        await door.aws.call(
            "cloudformation", "CreateStack", {"StackName": "s", "TemplateBody": json.dumps(stack)}
        )
        await door.aws.call("iam", "CreateInstanceProfile", {"InstanceProfileName": "nodes"})
        add = {"InstanceProfileName": "nodes", "RoleName": "stack-role"}
        await door.aws.call("iam", "AddRoleToInstanceProfile", add)
        policy = "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"
        await door.aws.call("iam", "AttachRolePolicy", {"RoleName": "stack-role", "PolicyArn": policy})
        await template(door.aws, IamInstanceProfile={"Name": "nodes"})
        assert (await fleet(door.aws))["Instances"]
        door.wait(2)
        url = (await door.aws.call("sqs", "GetQueueUrl", {"QueueName": "stack-queue"}))["QueueUrl"]
        (got,) = (await door.aws.call("sqs", "ReceiveMessage", {"QueueUrl": url}))["Messages"]
        assert json.loads(got["Body"])["detail"]["state"] == "pending"
        await door.aws.call("iam", "DetachRolePolicy", {"RoleName": "stack-role", "PolicyArn": policy})
        await door.aws.call("iam", "RemoveRoleFromInstanceProfile", add)
        await door.aws.call("cloudformation", "DeleteStack", {"StackName": "s"})
        assert "stack-role" not in door.world.iam.roles
        assert "stack-queue" not in door.world.queues.by_name
        assert not door.world.buses.by_name["default"].rules


HOSTILE = (
    ({"Origin": "https://evil.example"}, 403),
    ({"Origin": "null"}, 403),
    ({"Sec-Fetch-Site": "cross-site"}, 403),
    ({"Host": "evil.example"}, 421),
    ({"Host": "evil.example:80", "Origin": "http://evil.example:80"}, 421),
)


@pytest.mark.parametrize(("headers", "status"), HOSTILE)
@pytest.mark.parametrize("path", ["/_simulation/reclaim/{instance}", "/moto-api/reset", "/"])
async def test_a_web_page_can_do_nothing_to_the_simulated_aws(
    headers: dict[str, str], status: int, path: str
) -> None:
    aws = simulated()
    aws.add_interruption_queue("interruptions")
    await template(aws)
    (instance,) = launched(await fleet(aws, way="spot"))
    form = {"Action": "TerminateInstances", "InstanceId.1": instance, "Version": "2016-11-15"}
    scope = "AWS4-HMAC-SHA256 Credential=AKIA1111222233330000/20260101/us-west-2/ec2/aws4_request"
    async with serve_aws(aws, moto=False) as server, aiohttp.ClientSession() as page:
        url = server.url + path.format(instance=instance)
        async with page.post(url, data=form, headers={"Authorization": scope, **headers}) as answer:
            assert answer.status == status
            assert (await answer.json())["message"]
        assert aws.get_instance(instance).alive
        assert not aws.queues.by_name["interruptions"].messages
        # Programs of this machine are served under any of its names.
        for host in ("localhost", "127.0.0.1", "[::1]", "bucket.localhost"):
            asked = {"Authorization": scope, "Host": f"{host}:4566"}
            described = {"Action": "DescribeInstances", "Version": "2016-11-15"}
            async with page.post(server.url, data=described, headers=asked) as answer:
                assert answer.status == 200

"""Savings Plans and reserved instances in the simulated AWS, as the port and boto3 see them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from dovetail.aws import AwsAbsent, AwsDenied, AwsInvalid, list_pages
from dovetail.providers.aws.commitments import CommitmentReader
from dovetail.sim.aws.iam.permissions import Principal
from support.aws import fleet, launched, template
from support.aws_clients import DOORS, Door, opened

Json = dict[str, Any]
SHARED_LINUX = [
    {"name": "region", "values": ["us-west-2"]},
    {"name": "productType", "values": ["EC2"]},
    {"name": "productDescription", "values": ["Linux/UNIX"]},
    {"name": "tenancy", "values": ["shared"]},
]


@pytest.fixture(params=DOORS)
async def door(request: pytest.FixtureRequest) -> AsyncIterator[Door]:
    async with opened(request.param) as found:
        yield found


async def list_plans(door: Door, **asked: Any) -> list[Json]:
    pages = [page async for page in list_pages(door.aws, "savingsplans", "DescribeSavingsPlans", asked)]
    return [plan for page in pages for plan in page["savingsPlans"]]


async def list_rates(door: Door, plan: str, **asked: Any) -> list[Json]:
    given = {"savingsPlanId": plan, **asked}
    pages = [page async for page in list_pages(door.aws, "savingsplans", "DescribeSavingsPlanRates", given)]
    return [rate for page in pages for rate in page["searchResults"]]


async def test_plans_are_told_with_their_dates_and_states(door: Door) -> None:
    plans, now = door.world.savings_plans, door.clock.now()
    wide = plans.add("25.00")
    narrow = plans.add("10.00", family="m5", region="us-west-2", starts=now - timedelta(days=400))
    later = plans.add("5.00", starts=now + timedelta(days=3), currency="EUR")
    found = {each["savingsPlanId"]: each for each in await list_plans(door)}
    assert set(found) == {wide.id, narrow.id, later.id}
    assert found[wide.id]["savingsPlanType"] == "Compute"
    assert found[wide.id]["commitment"] == "25.00"
    assert "ec2InstanceFamily" not in found[wide.id]
    assert found[narrow.id]["ec2InstanceFamily"] == "m5"
    assert found[narrow.id]["region"] == "us-west-2"
    states = [found[each.id]["state"] for each in (wide, narrow, later)]
    assert states == ["active", "retired", "queued"]
    assert found[later.id]["currency"] == "EUR"
    assert found[wide.id]["end"].endswith(".000Z")
    active = await list_plans(door, states=["active"])
    assert [each["savingsPlanId"] for each in active] == [wide.id]
    family = await list_plans(door, filters=[{"name": "savings-plan-type", "values": ["EC2Instance"]}])
    assert [each["savingsPlanId"] for each in family] == [narrow.id]
    door.wait(400 * 86400.0)
    ended = await list_plans(door, savingsPlanIds=[wide.id])
    assert ended[0]["state"] == "retired"


async def test_plans_are_those_of_the_account_in_every_region(door: Door) -> None:
    made = door.world.savings_plans.add("25.00")
    elsewhere = door.aws.scope_to(region="eu-west-1")
    found = await elsewhere.call("savingsplans", "DescribeSavingsPlans", {})
    assert [each["savingsPlanId"] for each in found["savingsPlans"]] == [made.id]


async def test_plans_come_in_pages(door: Door) -> None:
    made = [door.world.savings_plans.add("1.00").id for _ in range(5)]
    first = await door.aws.call("savingsplans", "DescribeSavingsPlans", {"maxResults": 2})
    assert len(first["savingsPlans"]) == 2
    assert first["nextToken"]
    assert [each["savingsPlanId"] for each in await list_plans(door, maxResults=2)] == made
    with pytest.raises(AwsInvalid, match="not valid"):
        await door.aws.call("savingsplans", "DescribeSavingsPlans", {"nextToken": "nonsense"})


async def test_rates_are_told_by_system_and_tenancy_and_filtered(door: Door) -> None:
    plan = door.world.savings_plans.add("10.00", rates={"m5.large": 0.0691})
    listed = await list_rates(door, plan.id, filters=SHARED_LINUX, maxResults=100)
    assert len(listed) > 100
    told = {
        next(one["value"] for one in rate["properties"] if one["name"] == "instanceType"): rate
        for rate in listed
    }
    assert told["m5.large"]["rate"] == "0.06910"
    assert {rate["unit"] for rate in listed} == {"Hrs"}
    assert {rate["productType"] for rate in listed} == {"EC2"}
    for name in ("m5.xlarge", "c5.large"):
        price = door.world.prices.on_demand_price(name)
        assert price is not None
        assert 0.6 * price < float(told[name]["rate"]) < 0.8 * price
    one = await list_rates(door, plan.id, filters=[{"name": "instanceType", "values": ["m5.large"]}])
    assert {rate["usageType"].partition(":")[0] for rate in one} == {"BoxUsage", "DedicatedUsage"}
    family = door.world.savings_plans.add("10.00", family="m5", region="us-west-2")
    names = {
        next(one["value"] for one in rate["properties"] if one["name"] == "instanceType")
        for rate in await list_rates(door, family.id)
    }
    assert {name.partition(".")[0] for name in names} == {"m5"}


async def test_a_plan_that_is_not_there_and_a_filter_that_is_not_known_are_refused(door: Door) -> None:
    with pytest.raises(AwsAbsent, match="not found"):
        await list_rates(door, "no-such-plan")
    plan = door.world.savings_plans.add("10.00")
    if door.aws is door.world:  # boto3 knows the names of filters itself
        with pytest.raises(AwsInvalid, match="not valid"):
            await list_rates(door, plan.id, filters=[{"name": "colour", "values": ["red"]}])
    with pytest.raises(AwsInvalid, match="maxResults"):
        await list_rates(door, plan.id, maxResults=1001)


async def test_reserved_instances_are_told_with_scope_price_and_state(door: Door) -> None:
    kept = door.world.reserved_instances
    regional = kept.add("m5.large", 10, hourly=0.06, fixed=87.6)
    zonal = kept.add("c5.large", 2, "us-west-2a", lasts=timedelta(days=30))
    answer = await door.aws.call("ec2", "DescribeReservedInstances", {})
    found = {each["ReservedInstancesId"]: each for each in answer["ReservedInstances"]}
    assert set(found) == {regional.id, zonal.id}
    assert found[regional.id]["Scope"] == "Region"
    assert "AvailabilityZone" not in found[regional.id]
    assert found[regional.id]["InstanceCount"] == 10
    assert found[regional.id]["RecurringCharges"] == [{"Amount": 0.06, "Frequency": "Hourly"}]
    assert found[regional.id]["FixedPrice"] == pytest.approx(87.6, abs=1e-3)
    assert found[zonal.id]["Scope"] == "Availability Zone"
    assert found[zonal.id]["AvailabilityZone"] == "us-west-2a"
    door.wait(31 * 86400.0)
    asked = {"Filters": [{"Name": "state", "Values": ["active"]}]}
    active = await door.aws.call("ec2", "DescribeReservedInstances", asked)
    assert [each["ReservedInstancesId"] for each in active["ReservedInstances"]] == [regional.id]
    with pytest.raises(AwsInvalid, match="does not exist"):
        await door.aws.call("ec2", "DescribeReservedInstances", {"ReservedInstancesIds": ["nobody"]})


async def test_instances_of_the_whole_account_are_described_without_tags(door: Door) -> None:
    await template(door.aws)
    ours = launched(await fleet(door.aws, count=1, tags={"eks:eks-cluster-name": "test"}))
    others = launched(await fleet(door.aws, ["c5.large"], count=2))
    pages = [page async for page in list_pages(door.aws, "ec2", "DescribeInstances", {"MaxResults": 5})]
    found = {
        each["InstanceId"]: each["InstanceType"]
        for page in pages
        for reservation in page["Reservations"]
        for each in reservation["Instances"]
    }
    assert set(found) == {*ours, *others}
    assert [found[each] for each in others] == ["c5.large", "c5.large"]


async def test_the_mirror_reads_the_same_in_memory_and_through_boto3(door: Door) -> None:
    wide = door.world.savings_plans.add("25.00", rates={"m5.large": 0.0691})
    regional = door.world.reserved_instances.add("m5.large", 10, hourly=0.06, fixed=87.6)
    reader = CommitmentReader(door.aws, "test")
    (plan,) = (await reader.read_plans()).items()
    assert plan[0] == f"aws-sp-{wide.id}"
    assert (plan[1].kind, plan[1].hourly, plan[1].currency) == ("ComputePlan", "25.00", "USD")
    assert plan[1].ends == wide.ends.replace(microsecond=0)
    rates = await reader.read_rates(plan[0])
    assert rates["m5.large"] == "0.0691"
    assert len(rates) > 300
    (reserved,) = (await reader.read_reserved()).items()
    assert reserved[0] == f"aws-ri-{regional.id}"
    assert (reserved[1].hourly, reserved[1].count, reserved[1].family) == ("0.70", 10, "m5")
    await template(door.aws)
    await fleet(door.aws, ["c5.large"], count=2, zones=["us-west-2a"])
    assert await reader.count_others() == {("c5.large", "us-west-2a", False): 2}


async def test_what_no_policy_allows_is_denied_under_its_own_name() -> None:
    async with opened("memory") as door:
        door.world.savings_plans.add("1.00")
        who = "arn:aws:iam::111122223333:role/controller"
        door.world.principal = Principal(who, ({"Statement": []},))
        for service, operation, asked in (
            ("savingsplans", "DescribeSavingsPlans", {}),
            ("savingsplans", "DescribeSavingsPlanRates", {"savingsPlanId": "x"}),
            ("ec2", "DescribeReservedInstances", {}),
        ):
            with pytest.raises(AwsDenied, match=f"{service}:{operation}"):
                await door.aws.call(service, operation, asked)
        allow = {"Effect": "Allow", "Action": ["savingsplans:Describe*"], "Resource": "*"}
        here = {"StringEquals": {"aws:RequestedRegion": "us-west-2"}}
        door.world.principal = Principal(who, ({"Statement": [{**allow, "Condition": here}]},))
        with pytest.raises(AwsDenied):  # its one endpoint is in us-east-1
            await door.aws.call("savingsplans", "DescribeSavingsPlans", {})
        door.world.principal = Principal(who, ({"Statement": [allow]},))
        answer = await door.aws.call("savingsplans", "DescribeSavingsPlans", {})
        assert len(answer["savingsPlans"]) == 1

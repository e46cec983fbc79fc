"""Launches seen through their templates: the whole provider over a simulated AWS, from claim to fleet."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping
from typing import Any

import pytest

from dovetail.api import conditions, labels
from dovetail.api.nodeclass import AMISelectorTerm, CapacityReservationSelectorTerm, EC2NodeClass
from dovetail.errors import ClassNotReady, CreateFailed, InsufficientCapacity
from dovetail.sim.aws import SimulatedAws
from support.ec2 import Ec2, provided
from support.stage import virtual

ON_DEMAND = (labels.CAPACITY_TYPE, "In", labels.ON_DEMAND)
SPOT = (labels.CAPACITY_TYPE, "In", labels.SPOT)
RESERVED = (labels.CAPACITY_TYPE, "In", labels.RESERVED)
BOTTLEROCKET = (AMISelectorTerm(alias="bottlerocket@latest"),)


def held(ec2: Ec2) -> list[Mapping[str, Any]]:
    """What every template now in EC2 holds."""
    return [template.versions[-1] for template in ec2.aws.templates.by_name.values()]


def told(ec2: Ec2) -> str:
    """What the instances of the only kind of template read at their start."""
    (text,) = {b64decode(data["UserData"]).decode() for data in held(ec2)}
    return text


def of_type(name: str) -> tuple[str, str, str]:
    return labels.INSTANCE_TYPE, "In", name


@pytest.mark.spec("aws-120")
@virtual
async def test_the_second_launch_makes_no_template() -> None:
    ec2 = await provided()
    await ec2.cloud.create(ec2.claim(cpu="1"))
    made = set(ec2.aws.templates.by_name)
    await ec2.cloud.create(ec2.claim(name="default-fghij", cpu="1"))
    assert set(ec2.aws.templates.by_name) == made
    assert len(ec2.asked("CreateLaunchTemplate")) == len(made)


@pytest.mark.spec("aws-121")
@virtual
async def test_templates_that_went_missing_are_made_again_and_the_launch_succeeds() -> None:
    ec2 = await provided()
    await ec2.cloud.create(ec2.claim(cpu="1"))
    await emptied(ec2.aws)
    ec2.aws.calls.clear()
    await ec2.cloud.create(ec2.claim(name="default-fghij", cpu="1"))
    assert [call.code for call in ec2.aws.calls if call.operation == "CreateFleet"] == [
        "InvalidLaunchTemplateName.NotFoundException",
        "",
    ]
    assert len(ec2.aws.list_running()) == 2


@pytest.mark.spec("aws-126")
@pytest.mark.parametrize(
    ("way", "tagged"),
    [(SPOT, {"network-interface", "spot-instances-request"}), (ON_DEMAND, {"network-interface"})],
)
@virtual
async def test_everything_a_launch_makes_is_tagged(way: tuple[str, ...], tagged: set[str]) -> None:
    ec2 = await provided()
    await ec2.cloud.create(ec2.claim(way, cpu="1"))
    for data in held(ec2):
        assert {each["ResourceType"] for each in data["TagSpecifications"]} == tagged
    (request,) = ec2.asked("CreateFleet")
    assert [each["ResourceType"] for each in request["TagSpecifications"]] == ["instance", "volume", "fleet"]


@pytest.mark.spec("aws-127")
@virtual
async def test_a_name_of_the_class_is_the_machines_name() -> None:
    ec2 = await provided(tags={"Name": "foo"})
    await ec2.cloud.create(ec2.claim(cpu="1"))
    (machine,) = ec2.aws.list_running()
    assert machine.tags["Name"] == "foo"


@pytest.mark.spec("aws-131")
@virtual
async def test_a_claim_for_one_efa_gets_a_machine_with_all_of_them() -> None:
    ec2 = await provided()
    await ec2.cloud.create(ec2.claim(of_type("p5.48xlarge"), ON_DEMAND, vpc_amazonaws_com__efa="1"))
    (data,) = held(ec2)
    assert [each["InterfaceType"] for each in data["NetworkInterfaces"]] == ["efa"] * 32


@pytest.mark.spec("aws-132")
@pytest.mark.parametrize(
    ("wanted", "tenancy"),
    [
        ((), "default"),
        (("default",), "default"),
        (("dedicated",), "dedicated"),
        (("default", "dedicated"), "default"),
    ],
)
@virtual
async def test_hardware_is_shared_wherever_the_claim_allows_it(wanted: tuple[str, ...], tenancy: str) -> None:
    ec2 = await provided()
    asked = [(labels.INSTANCE_TENANCY, "In", *wanted)] if wanted else []
    await ec2.cloud.create(ec2.claim(ON_DEMAND, *asked, cpu="1"))
    assert {data["Placement"]["Tenancy"] for data in held(ec2)} == {tenancy}


@pytest.mark.spec("aws-134")
@virtual
async def test_an_on_demand_launch_stays_out_of_open_reservations() -> None:
    on, off = await provided(), await provided(("--feature-gates=ReservedCapacity=false",))
    for ec2 in (on, off):
        await ec2.cloud.create(ec2.claim(ON_DEMAND, cpu="1"))
    preferences = [data["CapacityReservationSpecification"] for data in held(on)]
    assert all(each == {"CapacityReservationPreference": "none"} for each in preferences)
    assert not any("CapacityReservationSpecification" in data for data in held(off))


@pytest.mark.spec("aws-135")
@virtual
async def test_each_zone_is_offered_its_largest_reservation_in_a_template_of_its_own() -> None:
    ec2 = await provided()
    tags = {"ours": "yes"}
    known = ec2.aws.reservations
    known.add("m5.large", "us-west-2a", 10, tags)
    wanted = {
        known.add("m5.large", "us-west-2a", 15, tags).id: ("m5.large", "us-west-2a"),
        known.add("m5.large", "us-west-2b", 10, tags).id: ("m5.large", "us-west-2b"),
        known.add("m5.xlarge", "us-west-2b", 15, tags).id: ("m5.xlarge", "us-west-2b"),
    }
    await ec2.apply(capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(tags=tags),))
    await ec2.cloud.create(ec2.claim(RESERVED, cpu="1"))
    (request,) = ec2.asked("CreateFleet")
    offered = {}
    for configured in request["LaunchTemplateConfigs"]:
        name = configured["LaunchTemplateSpecification"]["LaunchTemplateName"]
        specification = ec2.aws.templates.by_name[name].versions[-1]["CapacityReservationSpecification"]
        (override,) = configured["Overrides"]
        target = specification["CapacityReservationTarget"]["CapacityReservationId"]
        offered[target] = override["InstanceType"], override["AvailabilityZone"]
    assert offered == wanted


@pytest.mark.spec("aws-136")
@pytest.mark.parametrize(
    ("kind", "interruptible", "market"),
    [("default", True, "interruptible-capacity-reservation"), ("capacity-block", False, "capacity-block")],
)
@virtual
async def test_a_launch_into_a_reservation_names_its_market(
    kind: str, interruptible: bool, market: str
) -> None:
    ec2 = await provided()
    made = ec2.aws.reservations.add("m5.large", "us-west-2a", 5, kind=kind, interruptible=interruptible)
    await ec2.apply(capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(id=made.id),))
    await ec2.cloud.create(ec2.claim(RESERVED, cpu="1"))
    (data,) = held(ec2)
    assert data["InstanceMarketOptions"] == {"MarketType": market}


@pytest.mark.spec("aws-137")
@virtual
async def test_without_its_class_nothing_is_made_and_somebody_is_told() -> None:
    ec2 = await provided()
    ec2.classes.drop("default")
    with pytest.raises(InsufficientCapacity):
        await ec2.cloud.create(ec2.claim(cpu="1"))
    assert not held(ec2)
    assert ec2.noted.events


@pytest.mark.spec("aws-138")
@virtual
async def test_a_class_without_its_profile_launches_nothing() -> None:
    ec2 = await provided()
    ec2.classes.put(unready(ec2.change(instance_profile=None), ec2))
    with pytest.raises(ClassNotReady):
        await ec2.cloud.create(ec2.claim(cpu="1"))
    assert not held(ec2)
    assert not ec2.asked("CreateFleet")


@pytest.mark.spec("aws-138")
@virtual
async def test_a_profile_named_by_the_class_is_the_machines() -> None:
    ec2 = await provided(role=None, instance_profile="X")
    await ec2.aws.call("iam", "CreateInstanceProfile", {"InstanceProfileName": "X"})
    await ec2.cloud.create(ec2.claim(cpu="1"))
    assert {data["IamInstanceProfile"]["Name"] for data in held(ec2)} == {"X"}


@pytest.mark.spec("aws-139")
@virtual
async def test_machines_of_two_architectures_start_from_their_own_image() -> None:
    ec2 = await provided()
    await ec2.cloud.create(ec2.claim((labels.ARCH, "In", "amd64", "arm64"), cpu="1"))
    images = {data["ImageId"]: ec2.aws.images.known[data["ImageId"]].architecture for data in held(ec2)}
    assert set(images.values()) == {"x86_64", "arm64"}
    for override in ec2.overrides():
        arm = override["InstanceType"].split(".")[0] in ("c6g", "t4g", "a1")
        assert images[override["ImageId"]] == ("arm64" if arm else "x86_64")


@pytest.mark.spec("aws-111")
@virtual
async def test_user_data_that_cannot_be_read_ends_as_a_launch_error() -> None:
    ec2 = await provided(ami_selector_terms=BOTTLEROCKET, user_data="not toml")
    with pytest.raises(CreateFailed, match="TOML") as failed:
        await ec2.cloud.create(ec2.claim(cpu="1"))
    assert failed.value.reason == "LaunchFailed"
    assert not held(ec2)


@pytest.mark.spec("aws-102", "aws-117")
@virtual
async def test_what_a_machine_reads_is_about_the_claim_it_was_launched_for() -> None:
    ec2 = await provided()
    await ec2.cloud.create(ec2.claim(SPOT, of_type("m5.large"), cpu="1"))
    text = told(ec2)
    assert 'flags:\n    - --node-labels="' in text
    assert "karpenter.sh/capacity-type=spot" in text
    assert "karpenter.sh/do-not-sync-taints=true" in text
    assert "key: karpenter.sh/unregistered" in text
    assert "maxPods: 29" in text


async def emptied(aws: SimulatedAws) -> None:
    for name in tuple(aws.templates.by_name):
        await aws.call("ec2", "DeleteLaunchTemplate", {"LaunchTemplateName": name})


def unready(made: EC2NodeClass, ec2: Ec2) -> EC2NodeClass:
    why = "the profile is missing"
    return conditions.set_false(made, "InstanceProfileReady", ec2.clock.now(), "NotFound", why)

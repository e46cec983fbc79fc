"""A launch from the claim to the instance, on a simulated EC2 that lacks things and refuses them."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import conditions, labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclass import (
    CapacityReservationSelectorTerm,
    EC2NodeClass,
    NetworkInterface,
    PlacementGroupSelector,
)
from dovetail.api.overlay import NodeOverlay, NodeOverlaySpec
from dovetail.api.pod import NodeSelectorRequirement
from dovetail.errors import ClassNotReady, CreateFailed, Gone, InsufficientCapacity
from dovetail.providers.aws.launch import UNTIL_SHOWN
from support.ec2 import Ec2, provided
from support.stage import sample, virtual

TYPE, WAY, ZONE = labels.INSTANCE_TYPE, labels.CAPACITY_TYPE, labels.ZONE
ON_DEMAND = (WAY, "In", "on-demand")
SPOT = (WAY, "In", "spot")
A = "us-west-2a"
FAILURES = "karpenter_cloudprovider_instance_launch_failures_total"
NO_ROLE = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"


def only(*names: str) -> tuple[str, ...]:
    return (TYPE, "In", *names)


def offered(ec2: Ec2) -> set[tuple[str, str]]:
    return {(each["InstanceType"], each["AvailabilityZone"][-1]) for each in ec2.overrides()}


def fleet(ec2: Ec2) -> Mapping[str, Any]:
    return ec2.asked("CreateFleet")[-1]


@pytest.mark.spec("aws-178")
@virtual
async def test_the_sixty_cheapest_of_a_thousand_types_are_offered_to_the_fleet() -> None:
    ec2 = await provided(types=())
    await ec2.launched(ON_DEMAND, (ZONE, "In", A), cpu="1")
    assert len(ec2.overrides()) == 60
    prices = {each["InstanceType"]: each["Priority"] for each in ec2.overrides()}
    dearest = max(prices.values())
    types = await ec2.cloud.list_instance_types(ec2.pool)
    plain = [each for each in types if "metal" not in each.name and not each.capacity["nvidia.com/gpu"].nano]
    cheaper = {
        each.name
        for each in plain
        for o in each.offerings
        if o.available and o.zone == A and o.capacity_type == "on-demand" and o.price < dearest
        if each.allocatable()["cpu"].nano >= 10**9 and each.allocatable()["memory"].nano > 0
    }
    assert cheaper - set(prices) <= {n for n in cheaper if n.startswith(("inf", "trn", "g4ad"))}


@pytest.mark.spec("aws-179")
@virtual
async def test_a_plain_pod_gets_a_plain_machine_and_an_exotic_one_what_it_needs() -> None:
    ec2 = await provided()
    await ec2.launched(ON_DEMAND, cpu="1")
    assert not {name for name, _ in offered(ec2)} & {"m5.metal", "g4dn.8xlarge", "p5.48xlarge", "inf2.xlarge"}
    _, instance = await ec2.launched(ON_DEMAND, nvidia_com__gpu="1", name="gpu")
    assert {name for name, _ in offered(ec2)} == {"g4dn.8xlarge", "g5.12xlarge", "p5.48xlarge"}
    assert instance.labels[TYPE] == "g4dn.8xlarge"
    _, instance = await ec2.launched(ON_DEMAND, only("m5.metal"), cpu="1", name="metal")
    assert instance.labels[TYPE] == "m5.metal"


@pytest.mark.spec("aws-184")
@virtual
async def test_a_flexible_claim_takes_reserved_then_spot_then_on_demand() -> None:
    ec2 = await provided(prices=True)
    reservation = ec2.aws.reservations.add("m5.large", A, 1, {"team": "x"})
    await ec2.apply(
        capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(tags={"team": "x"}),)
    )
    _, first = await ec2.launched(only("m5.large"))
    assert (first.labels[WAY], first.labels[labels.CAPACITY_RESERVATION_ID]) == ("reserved", reservation.id)
    _, second = await ec2.launched(only("m5.large"), name="second")
    assert second.labels[WAY] == "spot"
    ec2.aws.exhaust("m5.large", capacity_type="spot")
    with pytest.raises(InsufficientCapacity):
        await ec2.launched(only("m5.large"), name="third")
    _, third = await ec2.launched(only("m5.large"), name="third")
    assert third.labels[WAY] == "on-demand"


@pytest.mark.spec("aws-185")
@virtual
async def test_the_fleet_is_told_how_to_choose() -> None:
    ec2 = await provided()
    await ec2.launched(ON_DEMAND)
    assert fleet(ec2)["OnDemandOptions"] == {"AllocationStrategy": "lowest-price"}
    assert fleet(ec2)["Type"] == "instant"
    assert {each["ResourceType"] for each in fleet(ec2)["TagSpecifications"]} == {
        "instance",
        "volume",
        "fleet",
    }
    await ec2.launched(SPOT, name="b")
    assert fleet(ec2)["SpotOptions"] == {"AllocationStrategy": "price-capacity-optimized"}
    assert fleet(ec2)["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "spot"
    overlaid = {labels.PRICE_OVERLAY_APPLIED: "true"}
    await ec2.launched(ON_DEMAND, name="c", annotations=overlaid)
    assert fleet(ec2)["OnDemandOptions"] == {"AllocationStrategy": "prioritized"}
    await ec2.launched(SPOT, name="d", annotations=overlaid)
    assert fleet(ec2)["SpotOptions"] == {"AllocationStrategy": "capacity-optimized-prioritized"}


@pytest.mark.spec("aws-186")
@virtual
async def test_a_context_is_passed_on_unless_variety_was_relaxed() -> None:
    ec2 = await provided(context="ctx-1")
    await ec2.launched()
    assert fleet(ec2)["Context"] == "ctx-1"
    await ec2.launched(name="b", annotations={labels.MIN_VALUES_RELAXED: "true"})
    assert "Context" not in fleet(ec2)
    await ec2.apply(context=None)
    await ec2.launched(name="c")
    assert "Context" not in fleet(ec2)


@pytest.mark.spec("aws-188")
@virtual
async def test_spot_that_has_run_out_is_remembered_and_on_demand_is_next() -> None:
    ec2 = await provided()
    ec2.aws.exhaust("m5.large", capacity_type="spot")
    with pytest.raises(InsufficientCapacity, match="InsufficientInstanceCapacity"):
        await ec2.launched(only("m5.large"))
    left = {(each.capacity_type, each.zone[-1]) for each in await ec2.offerings("m5.large")}
    assert left == {("on-demand", zone) for zone in "abc"}
    _, instance = await ec2.launched(only("m5.large"))
    assert instance.labels[WAY] == "on-demand"
    ec2.aws.exhaust("m5.large")
    for _ in range(2):
        with pytest.raises(InsufficientCapacity):
            await ec2.launched(only("m5.large"))


@pytest.mark.spec("aws-189")
@virtual
async def test_without_the_role_for_spot_there_is_no_spot_and_somebody_is_told() -> None:
    ec2 = await provided()
    ec2.aws.exhaust(capacity_type="spot", code=NO_ROLE)
    with pytest.raises(InsufficientCapacity):
        await ec2.launched(only("m5.large"))
    assert {each.capacity_type for each in await ec2.offerings("m5.xlarge")} == {"on-demand"}
    assert "SpotServiceLinkedRoleCreationFailed" in ec2.noted.reasons
    _, instance = await ec2.launched(only("m5.large"))
    assert instance.labels[WAY] == "on-demand"


@pytest.mark.spec("aws-190")
@virtual
async def test_too_many_fleets_in_a_zone_mark_that_zone_alone() -> None:
    ec2 = await provided()
    ec2.aws.exhaust("m5.large", A, "spot", code="MaxFleetCountExceeded")
    with pytest.raises(InsufficientCapacity):
        await ec2.launched(only("m5.large"), SPOT, (ZONE, "In", A))
    left = {(each.capacity_type, each.zone[-1]) for each in await ec2.offerings("m5.large")}
    assert left == {("on-demand", "a"), ("on-demand", "b"), ("on-demand", "c"), ("spot", "b"), ("spot", "c")}


@pytest.mark.spec("aws-191")
@virtual
async def test_a_full_reservation_is_remembered_as_full_and_a_throttled_request_is_not() -> None:
    ec2 = await provided()
    reservation = ec2.aws.reservations.add("m5.large", A, 5, {"team": "x"})
    await ec2.apply(
        capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(tags={"team": "x"}),)
    )
    ec2.aws.refuse("RequestLimitExceeded", "CreateFleet")
    with pytest.raises(CreateFailed) as failed:
        await ec2.launched(only("m5.large"))
    assert failed.value.reason == "RequestLimitExceeded"
    assert ec2.provider.reservations.count_available(reservation.id) == 5
    reservation.used |= {f"i-{n}" for n in range(5)}
    with pytest.raises(InsufficientCapacity, match="ReservationCapacityExceeded"):
        await ec2.launched(only("m5.large"))
    assert ec2.provider.reservations.count_available(reservation.id) == 0
    assert len(await ec2.offerings("m5.large")) == 6, "other offerings are untouched"


@pytest.mark.spec("aws-192")
@virtual
async def test_every_refusal_is_counted_by_zone_and_reason() -> None:
    ec2 = await provided()
    ids = ec2.aws.network.zone_ids
    about = {"zone": A, "zone_id": ids[A], "capacity_type": "on-demand", "reason": "LaunchFailed"}
    before = sample(FAILURES, **about)
    ec2.aws.exhaust("m5.large", A, "on-demand")
    ec2.aws.exhaust("m5.xlarge", A, "on-demand")
    with pytest.raises(InsufficientCapacity):
        await ec2.launched(ON_DEMAND, only("m5.large", "m5.xlarge"), (ZONE, "In", A))
    assert sample(FAILURES, **about) == before + 2
    quota = about | {"reason": "VCPULimitExceeded"}
    before = sample(FAILURES, **quota)
    ec2.aws.exhaust("c5.large", A, "on-demand", code="VcpuLimitExceeded")
    with pytest.raises(InsufficientCapacity):
        await ec2.launched(ON_DEMAND, only("c5.large"), (ZONE, "In", A))
    assert sample(FAILURES, **quota) == before + 1


@pytest.mark.spec("aws-192")
@virtual
async def test_a_fleet_that_says_nothing_useful_is_counted_without_a_zone() -> None:
    ec2 = await provided()
    about = {"zone": "", "zone_id": "", "capacity_type": "on-demand", "reason": "LaunchFailed"}
    before = sample(FAILURES, **about)

    async def vague(request: object, claim: str, group: str) -> dict[str, Any]:
        return {"Instances": [], "Errors": [{"ErrorCode": "Vague", "ErrorMessage": "no"}]}

    launching = replace_fleets(ec2, vague)
    with pytest.raises(CreateFailed, match="Vague: no"):
        await launching.launch_instance(ec2.node_class, ec2.claim(ON_DEMAND), await types(ec2), {})
    assert sample(FAILURES, **about) == before + 1


def replace_fleets(ec2: Ec2, fleets: Any) -> Any:
    return dataclasses.replace(ec2.cloud.launching, fleets=fleets)


async def types(ec2: Ec2) -> Any:
    return await ec2.cloud.list_instance_types(ec2.pool)


@virtual
async def test_an_instance_that_came_with_refusals_is_kept_and_they_are_remembered() -> None:
    ec2 = await provided()
    ec2.aws.exhaust("m5.large", A, "on-demand")  # the first a fleet tries among equals
    _, instance = await ec2.launched(ON_DEMAND, only("m5.large", "m5.xlarge"))
    assert len(ec2.aws.list_running()) == 1
    assert (instance.labels[TYPE], instance.labels[ZONE]) == ("m5.large", "us-west-2b")
    left = {each.zone for each in await ec2.offerings("m5.large") if each.capacity_type == "on-demand"}
    assert left == {"us-west-2b", "us-west-2c"}


@pytest.mark.spec("aws-193")
@virtual
async def test_a_zone_or_type_that_ran_out_is_avoided_and_tried_again_later() -> None:
    ec2 = await provided()
    ec2.aws.exhaust("g5.12xlarge", A)
    wanted = (only("g5.12xlarge"), ON_DEMAND)
    with pytest.raises(InsufficientCapacity):
        await ec2.launched(*wanted, (ZONE, "In", A))
    _, instance = await ec2.launched(*wanted, (ZONE, "In", A, "us-west-2b"))
    assert instance.labels[ZONE] == "us-west-2b"
    assert offered(ec2) == {("g5.12xlarge", "b")}
    ec2.aws.restock("g5.12xlarge", A)
    await asyncio.sleep(180)
    _, instance = await ec2.launched(*wanted, (ZONE, "In", A))
    assert instance.labels[ZONE] == A


@pytest.mark.spec("aws-194")
@virtual
async def test_a_type_that_ran_out_is_still_known() -> None:
    ec2 = await provided()
    ec2.aws.exhaust("m5.large")
    for way in (ON_DEMAND, SPOT):
        with pytest.raises(InsufficientCapacity):
            await ec2.launched(only("m5.large"), way)
    assert (await ec2.type("m5.large")).offerings
    assert not await ec2.offerings("m5.large")


@pytest.mark.spec("aws-195")
@virtual
async def test_efa_is_advertised_only_where_it_was_given() -> None:
    ec2 = await provided()
    wanted = (ON_DEMAND, only("p5.48xlarge"))
    _, asked = await ec2.launched(*wanted, vpc_amazonaws_com__efa="1")
    assert asked.capacity[labels.EFA].value == 32
    _, plain = await ec2.launched(*wanted, name="plain")
    assert labels.EFA not in plain.capacity
    await asyncio.sleep(30)
    told = {each.provider_id: labels.EFA in each.capacity for each in await ec2.cloud.list()}
    assert told == {asked.provider_id: True, plain.provider_id: False}
    cards = [NetworkInterface(network_card_index=0, device_index=0, interface_type="interface")]
    cards += [
        NetworkInterface(network_card_index=at, device_index=1, interface_type="efa-only") for at in (0, 1)
    ]
    await ec2.apply(network_interfaces=tuple(cards))
    _, configured = await ec2.launched(*wanted, name="configured")
    assert configured.capacity[labels.EFA].value == 2
    await ec2.apply(network_interfaces=tuple(cards[:1]))
    _, none = await ec2.launched(*wanted, name="none")
    assert labels.EFA not in none.capacity


@pytest.mark.spec("aws-196")
@virtual
async def test_a_class_that_is_not_ready_launches_nothing() -> None:
    ec2 = await provided()
    made, now = ec2.node_class, ec2.clock.now()

    async def refused(node_class: EC2NodeClass, kind: type[Exception], words: str) -> Exception:
        ec2.classes.put(node_class)
        with pytest.raises(kind, match=words) as failed:
            await ec2.launched()
        return failed.value

    unknown = conditions.set_unknown(made, conditions.SUBNETS_READY, now, "Waiting", "looking for subnets")
    error = await refused(unknown, CreateFailed, "may not be ready")
    assert isinstance(error, CreateFailed)
    assert error.reason == "NodeClassReadinessUnknown"
    false = conditions.set_false(made, conditions.SUBNETS_READY, now, "SubnetsNotFound", "no subnets")
    await refused(false, ClassNotReady, "not ready")
    stale = replace(made, metadata=replace(made.metadata, generation=7))
    await refused(stale, ClassNotReady, "changed since")
    tagged = replace(made, spec=replace(made.spec, tags={labels.NODEPOOL: "mine"}))
    await refused(tagged, ClassNotReady, "may not set")
    assert not ec2.aws.list_running()


@virtual
async def test_a_class_that_is_missing_or_going_is_a_lack_of_capacity_and_said() -> None:
    ec2 = await provided()
    made = ec2.node_class
    going = replace(made.metadata, deletion_timestamp=ec2.clock.now())
    ec2.classes.put(replace(made, metadata=going))
    with pytest.raises(InsufficientCapacity, match="EC2NodeClass"):
        await ec2.launched()
    ec2.classes.drop("default")
    with pytest.raises(InsufficientCapacity, match="EC2NodeClass"):
        await ec2.launched()
    assert ec2.noted.reasons == ["FailedResolvingNodeClass"] * 2


@virtual
async def test_types_that_cannot_be_listed_are_a_failure_with_a_reason() -> None:
    ec2 = await provided()
    ec2.change(subnets=())
    with pytest.raises(CreateFailed) as failed:
        await ec2.launched()
    assert failed.value.reason == "InstanceTypeResolutionFailed"


@pytest.mark.spec("aws-198")
@virtual
async def test_the_instance_says_everything_a_claim_needs() -> None:
    ec2 = await provided()
    claim, instance = await ec2.launched(ON_DEMAND, only("m5.large"), (ZONE, "In", A), cpu="1")
    (machine,) = ec2.aws.list_running()
    assert instance.provider_id == f"aws:///{A}/{machine.id}"
    assert instance.image_id == machine.image == claim.status.image_id
    assert set(instance.annotations) == {
        labels.EC2_NODECLASS_HASH,
        labels.EC2_NODECLASS_HASH_VERSION,
        labels.INSTANCE_PROFILE_NAME,
    }
    assert instance.annotations[labels.INSTANCE_PROFILE_NAME] == ec2.node_class.status.instance_profile
    told = instance.labels
    assert (told[labels.ZONE_ID], told[ZONE]) == (ec2.aws.network.zone_ids[A], A)
    assert (told[TYPE], told[WAY], told[labels.ARCH]) == ("m5.large", "on-demand", "amd64")
    assert (told[labels.INSTANCE_TENANCY], told[labels.NODEPOOL]) == ("default", "default")
    assert labels.CAPACITY_RESERVATION_ID not in told
    assert all(amount.nano for amount in instance.capacity.values())
    expected = {
        "kubernetes.io/cluster/test": "owned",
        "karpenter.sh/nodepool": "default",
        "eks:eks-cluster-name": "test",
        "karpenter.k8s.aws/ec2nodeclass": "default",
    }
    assert {key: machine.tags.get(key) for key in expected} == expected
    assert {key: machine.volume_tags.get(key) for key in expected} == expected


@pytest.mark.spec("aws-199")
@virtual
async def test_reserved_places_are_counted_as_they_are_taken_and_given_back() -> None:
    ec2 = await provided()
    reservation = ec2.aws.reservations.add("m5.large", A, 2, {"team": "x"})
    await ec2.apply(
        capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(tags={"team": "x"}),)
    )
    claim, instance = await ec2.launched(only("m5.large"))
    assert ec2.provider.reservations.count_available(reservation.id) == 1
    assert fleet(ec2)["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "on-demand"
    told = {key: instance.labels[key] for key in instance.labels if "capacity-reservation" in key}
    assert told == {
        labels.CAPACITY_RESERVATION_ID: reservation.id,
        labels.CAPACITY_RESERVATION_TYPE: "default",
        labels.CAPACITY_RESERVATION_INTERRUPTIBLE: "false",
    }
    await asyncio.sleep(30)
    (listed,) = await ec2.cloud.list()
    assert listed.labels[labels.CAPACITY_RESERVATION_ID] == reservation.id
    await ec2.cloud.delete(claim)
    await asyncio.sleep(300)
    with pytest.raises(Gone):
        await ec2.cloud.delete(claim)
    assert ec2.provider.reservations.count_available(reservation.id) == 2


@virtual
async def test_a_template_swept_under_a_launch_is_made_again_once() -> None:
    ec2 = await provided()
    await ec2.launched()
    ec2.aws.refuse("InvalidLaunchTemplateName.NotFoundException", "CreateFleet")
    await ec2.launched(name="b")
    assert len(ec2.aws.list_running()) == 2
    ec2.aws.refuse("InvalidLaunchTemplateName.NotFoundException", "CreateFleet", 2)
    with pytest.raises(CreateFailed):
        await ec2.launched(name="c")
    assert len(ec2.asked("CreateFleet")) == 5


@virtual
async def test_a_subnet_without_addresses_is_left_alone_for_a_while() -> None:
    ec2 = await provided()
    subnet = next(each for each in ec2.aws.network.subnets.values() if each.zone == A)
    subnet.take_addresses(subnet.free)
    with pytest.raises(InsufficientCapacity, match="InsufficientFreeAddressesInSubnet"):
        await ec2.launched(ON_DEMAND, only("m5.large"), (ZONE, "In", A))
    assert {each.zone for each in await ec2.offerings("m5.xlarge")} == {"us-west-2b", "us-west-2c"}
    assert ec2.provider.subnets.count_free(subnet.id) == 0


@virtual
async def test_a_spread_group_that_is_full_in_a_zone_is_so_for_every_type() -> None:
    ec2 = await provided(types=("m5.large", "m5.xlarge"))
    await ec2.aws.call("ec2", "CreatePlacementGroup", {"GroupName": "wide", "Strategy": "spread"})
    await ec2.apply(placement_group_selector=PlacementGroupSelector(name="wide"))
    group = ec2.provider.placement.find_known_group(ec2.node_class)
    assert group is not None
    for at in range(7):
        _, instance = await ec2.launched(ON_DEMAND, (ZONE, "In", A), name=f"claim-{at}")
        assert instance.labels[labels.PLACEMENT_GROUP_ID] == group.id
    with pytest.raises(CreateFailed, match="spread placement group"):
        await ec2.launched(ON_DEMAND, (ZONE, "In", A), name="eighth")
    for name in ("m5.large", "m5.xlarge"):
        left = {(each.capacity_type, each.zone[-1]) for each in await ec2.offerings(name)}
        assert ("on-demand", "a") not in left
        assert ("on-demand", "b") in left
    _, instance = await ec2.launched(ON_DEMAND, name="eighth")
    assert instance.labels[ZONE] != A


@virtual
async def test_an_overlay_changes_what_a_launch_thinks_is_cheap() -> None:
    ec2 = await provided(("--feature-gates=NodeOverlay=true",), types=("m5.large", "m5.xlarge"))
    wanted = (NodeSelectorRequirement(key=TYPE, operator="In", values=("m5.xlarge",)),)
    ec2.overlays.put(
        NodeOverlay(
            metadata=ObjectMeta(name="cheap"), spec=NodeOverlaySpec(requirements=wanted, price="0.001")
        )
    )
    await ec2.launched(ON_DEMAND, annotations={labels.PRICE_OVERLAY_APPLIED: "true"})
    first = min(ec2.overrides(), key=lambda each: each["Priority"])
    # The overlay is about the instance; the volume of every node comes on top of it.
    assert first["InstanceType"] == "m5.xlarge"
    assert first["Priority"] == pytest.approx(0.001 + 20 * 0.08 / 730, abs=1e-12)


@virtual
async def test_a_claim_for_amds_gpus_gets_a_machine_that_has_them() -> None:
    ec2 = await provided(types=("m5.large", "g4dn.xlarge", "g4ad.xlarge", "g4ad.16xlarge"))
    _, instance = await ec2.launched(ON_DEMAND, cpu="1", amd_com__gpu="1")
    assert instance.labels[labels.INSTANCE_TYPE] == "g4ad.xlarge"
    assert instance.capacity[labels.AMD_GPU].value == 1


def free_addresses(ec2: Ec2) -> dict[str, int]:
    """What the provider believes is left, by zone."""
    return {each.zone: ec2.provider.subnets.count_free(each.id) for each in ec2.node_class.status.subnets}


@virtual
async def test_a_launch_takes_addresses_where_it_went_and_gives_back_those_of_the_other_zones() -> None:
    ec2 = await provided()
    before = free_addresses(ec2)
    _, instance = await ec2.launched(ON_DEMAND, (labels.INSTANCE_TYPE, "In", "m5.large"))
    after = free_addresses(ec2)
    assert {zone for zone in before if after[zone] < before[zone]} == {instance.labels[labels.ZONE]}


@pytest.mark.parametrize("refused", ["InsufficientInstanceCapacity", "RequestLimitExceeded", "lost"])
@virtual
async def test_a_launch_that_came_to_nothing_gives_all_its_addresses_back(refused: str) -> None:
    ec2 = await provided()
    before = free_addresses(ec2)
    if refused == "InsufficientInstanceCapacity":
        ec2.aws.exhaust()
    elif refused == "lost":
        ec2.aws.faults.lose_answers("CreateFleet")
    else:
        ec2.aws.refuse(refused, "CreateFleet")
    with pytest.raises((InsufficientCapacity, CreateFailed)):
        await ec2.launched(ON_DEMAND)
    assert free_addresses(ec2) == before


@pytest.mark.parametrize(("lost", "waits"), [(True, True), (False, False)])
@virtual
async def test_after_a_lost_answer_ec2_is_given_time_to_show_the_instance(lost: bool, waits: bool) -> None:
    ec2 = await provided()
    ec2.aws.instances.hidden_for = UNTIL_SHOWN - 1
    if lost:
        ec2.aws.faults.lose_answers("CreateFleet")
    else:
        ec2.aws.refuse("RequestLimitExceeded", "CreateFleet")
    began = ec2.clock.monotonic()
    with pytest.raises(CreateFailed):
        await ec2.launched(ON_DEMAND)
    assert (ec2.clock.monotonic() - began >= UNTIL_SHOWN) is waits
    # Who asks again begins by looking, and finds it.
    assert len(await ec2.cloud.list()) == int(lost)

"""Instance types and their offerings as EC2 tells of them now, and as each class sees them."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api.meta import Condition, ObjectMeta
from dovetail.api.nodeclass import (
    AMISelectorTerm,
    BlockDevice,
    BlockDeviceMapping,
    CapacityReservationSelectorTerm,
    ConnectionTracking,
    CPUOptions,
    KubeletConfiguration,
    NetworkInterface,
    PlacementGroupSelector,
)
from dovetail.api.overlay import NodeOverlay, NodeOverlaySpec, NodeOverlayStatus
from dovetail.api.pod import NodeSelectorRequirement
from dovetail.api.quantity import Quantity
from dovetail.aws import AwsError
from dovetail.errors import InsufficientCapacity, Retry
from dovetail.providers.aws.instance_type_info import bundled_facts
from dovetail.providers.aws.instance_types import read_type_info
from dovetail.scheduling.bill import PriceList
from dovetail.scheduling.model.instance_types import Offering, PriceParts
from dovetail.sim.aws.ec2.types import _render_type as as_ec2_shows_it
from support.ec2 import Ec2, provided
from support.stage import virtual

OVERLAYS = ("--feature-gates=NodeOverlay=true",)
BOTTLEROCKET = (AMISelectorTerm(alias="bottlerocket@latest"),)


async def available(ec2: Ec2, name: str) -> set[tuple[str, str]]:
    return {(offering.capacity_type, offering.zone[-1]) for offering in await ec2.offerings(name)}


def test_facts_read_from_ec2_are_the_bundled_ones() -> None:
    for facts in bundled_facts():
        assert read_type_info(as_ec2_shows_it(facts)) == facts


@virtual
async def test_every_type_is_learned_in_slices_and_answered_from_memory_after_that() -> None:
    ec2 = await provided(types=())
    slices, done = [], asyncio.create_task(ec2.cloud.list_instance_types(ec2.pool))
    while not done.done():
        begun = time.perf_counter()
        await asyncio.sleep(0)
        slices.append(time.perf_counter() - begun)
    assert len(done.result()) > 1300
    assert len(slices) > 40, "nobody waits for all of it"
    assert sorted(slices)[len(slices) // 2] < 0.05
    assert await ec2.cloud.list_instance_types(ec2.pool) is done.result()


@virtual
async def test_two_who_ask_at_once_get_the_same_answer() -> None:
    ec2 = await provided()
    first, second = await asyncio.gather(*(ec2.cloud.list_instance_types(ec2.pool) for _ in range(2)))
    assert first is second


@pytest.mark.spec("aws-173")
@virtual
async def test_a_refused_offering_is_off_the_shelf_and_no_other() -> None:
    ec2 = await provided()
    assert len(await ec2.offerings("m5.large")) == 6
    ec2.provider.unavailable.mark_offering("spot", "m5.xlarge", "us-west-2a")
    assert len(await ec2.offerings("m5.large")) == 6
    ec2.provider.unavailable.mark_offering("spot", "m5.large", "us-west-2a")
    assert len(await ec2.offerings("m5.large")) == 5
    for zone in ("us-west-2b", "us-west-2c"):
        ec2.provider.unavailable.mark_offering("on-demand", "m5.large", zone)
    assert await available(ec2, "m5.large") == {("on-demand", "a"), ("spot", "b"), ("spot", "c")}
    await asyncio.sleep(180)
    assert len(await ec2.offerings("m5.large")) == 6


@pytest.mark.spec("aws-174")
@virtual
async def test_a_capacity_type_or_a_zone_without_addresses_goes_as_a_whole() -> None:
    ec2 = await provided()
    subnet = next(each.id for each in ec2.node_class.status.subnets if each.zone == "us-west-2a")
    ec2.provider.unavailable.mark_subnet(subnet)
    assert {zone for _, zone in await available(ec2, "m5.large")} == {"b", "c"}
    ec2.provider.unavailable.mark_capacity_type("spot")
    assert await available(ec2, "m5.large") == {("on-demand", "b"), ("on-demand", "c")}


@pytest.mark.spec("aws-176")
@virtual
async def test_a_zone_that_is_shifted_away_sells_nothing_until_it_is_back() -> None:
    ec2 = await provided()
    ec2.shifted.add(ec2.aws.network.zone_ids["us-west-2a"])
    assert {zone for _, zone in await available(ec2, "m5.large")} == {"b", "c"}
    ec2.shifted.clear()
    assert len(await ec2.offerings("m5.large")) == 6


@virtual
async def test_offerings_name_every_zone_of_the_region_and_the_ids_of_those_with_a_subnet() -> None:
    ec2 = await provided()
    offered = (await ec2.type("m5.large")).offerings
    assert len(offered) == 8
    assert [each.zone for each in offered if not each.available] == ["us-west-2d", "us-west-2d"]
    ids = {each.zone: each.requirements["topology.k8s.aws/zone-id"].only for each in offered}
    assert ids["us-west-2a"] == ec2.aws.network.zone_ids["us-west-2a"]
    assert ids["us-west-2d"] is None


@virtual
async def test_zones_whose_ids_nobody_told_are_kept_apart() -> None:
    ec2 = await provided()
    ec2.change(subnets=tuple(replace(each, zone_id="") for each in ec2.node_class.status.subnets))
    found = await ec2.type("m5.large")
    assert await available(ec2, "m5.large") == {
        (way, zone) for way in ("on-demand", "spot") for zone in "abc"
    }
    assert all(each.requirements["topology.k8s.aws/zone-id"].only is None for each in found.offerings)
    _, instance = await ec2.launched(("topology.kubernetes.io/zone", "In", "us-west-2b"))
    assert instance.labels["topology.kubernetes.io/zone"] == "us-west-2b"


def reserving(tag: str) -> dict[str, Any]:
    return {"capacity_reservation_selector_terms": (CapacityReservationSelectorTerm(tags={"team": tag}),)}


@pytest.mark.spec("aws-177")
@virtual
async def test_reserved_capacity_is_sold_first_and_not_once_its_block_expires() -> None:
    ec2 = await provided()
    ends = ec2.clock.now() + timedelta(hours=2)
    block = ec2.aws.reservations.add(
        "p5.48xlarge", "us-west-2a", 3, {"team": "x"}, kind="capacity-block", ends=ends
    )
    await ec2.apply(**reserving("x"))
    (reserved,) = [each for each in await ec2.offerings("p5.48xlarge") if each.reserved]
    price = ec2.provider.prices.find_on_demand_price("p5.48xlarge")
    assert price is not None
    # The instance is paid for already; its volume is not.
    assert reserved.parts == PriceParts(instance=price / 10_000_000, volumes=20 * 0.08 / 730)
    assert reserved.price == price / 10_000_000 + 20 * 0.08 / 730
    assert (reserved.reservation_id, reserved.reservation_capacity) == (block.id, 3)
    assert reserved.requirements["karpenter.k8s.aws/capacity-reservation-type"].only == "capacity-block"
    ec2.provider.reservations.mark_unavailable(block.id)
    assert not [each for each in await ec2.offerings("p5.48xlarge") if each.reserved]
    await asyncio.sleep(85 * 60)
    await ec2.apply()
    assert ec2.node_class.status.capacity_reservations[0].state == "expiring"
    assert not [each for each in await ec2.offerings("p5.48xlarge") if each.reserved]


@virtual
async def test_without_the_gate_nothing_is_reserved() -> None:
    ec2 = await provided(("--feature-gates=ReservedCapacity=false",))
    ec2.aws.reservations.add("m5.large", "us-west-2a", 3, {"team": "x"})
    await ec2.apply(**reserving("x"))
    assert not [each for each in (await ec2.type("m5.large")).offerings if each.reserved]


@pytest.mark.spec("aws-159")
@virtual
async def test_the_first_graviton_is_not_for_al2023() -> None:
    ec2 = await provided()
    assert (await ec2.type("a1.large")).offerings
    assert not await ec2.offerings("a1.large")
    await ec2.apply(ami_selector_terms=BOTTLEROCKET)
    assert await available(ec2, "a1.large") == {(way, z) for way in ("on-demand", "spot") for z in "ac"}
    image = AMISelectorTerm(id=ec2.node_class.status.amis[0].id)
    await ec2.apply(ami_selector_terms=(image,))
    assert len(await ec2.offerings("a1.large")) == 4, "nobody knows what a custom image can do"


@pytest.mark.spec("aws-160")
@virtual
async def test_what_a_class_asks_of_the_machine_rules_types_out() -> None:
    ec2 = await provided()
    assert await ec2.offerings("m4.large")
    await ec2.apply(connection_tracking=ConnectionTracking(udp_timeout=30))
    assert not await ec2.offerings("m4.large"), "it runs on Xen"
    assert not await ec2.offerings("m5.metal"), "it has no hypervisor at all"
    assert await ec2.offerings("m5.large")
    await ec2.apply(connection_tracking=None, cpu_options=CPUOptions(nested_virtualization="enabled"))
    nested = [name for name in ("m5.large", "m7i.large") if await ec2.offerings(name)]
    assert nested == [
        name
        for name in ("m5.large", "m7i.large")
        if (facts := ec2.provider.types.all_facts.get(name)) and "nested-virtualization" in facts.features
    ]
    assert "m5.large" not in nested
    await ec2.apply(cpu_options=CPUOptions(nested_virtualization="disabled"))
    assert await ec2.offerings("m5.large")


@pytest.mark.spec("aws-160")
@virtual
async def test_a_type_that_cannot_go_into_the_group_is_not_for_sale() -> None:
    ec2 = await provided(types=("t3.large", "m5.large"))
    await ec2.aws.call("ec2", "CreatePlacementGroup", {"GroupName": "tight", "Strategy": "cluster"})
    await ec2.apply(placement_group_selector=PlacementGroupSelector(name="tight"))
    assert await ec2.offerings("m5.large")
    assert not await ec2.offerings("t3.large")
    group = ec2.provider.placement.find_known_group(ec2.node_class)
    assert group is not None
    known = (await ec2.type("m5.large")).requirements
    assert known["karpenter.k8s.aws/placement-group-id"].only == group.id
    assert "karpenter.k8s.aws/placement-group-partition" not in known


@virtual
async def test_each_partition_of_a_group_is_an_offering_of_its_own() -> None:
    ec2 = await provided(types=("m5.large",))
    await ec2.aws.call(
        "ec2", "CreatePlacementGroup", {"GroupName": "apart", "Strategy": "partition", "PartitionCount": 3}
    )
    await ec2.apply(placement_group_selector=PlacementGroupSelector(name="apart"))
    key = "karpenter.k8s.aws/placement-group-partition"
    offered = await ec2.offerings("m5.large")
    assert len(offered) == 18
    assert {each.requirements[key].only for each in offered} == {"1", "2", "3"}
    assert (await ec2.type("m5.large")).requirements[key].names == {"1", "2", "3"}
    group = ec2.provider.placement.find_known_group(ec2.node_class)
    assert group is not None
    ec2.provider.unavailable.mark_offering("spot", "m5.large", "us-west-2a", group.id, "2")
    assert len(await ec2.offerings("m5.large")) == 17


@pytest.mark.spec("aws-161")
@virtual
async def test_more_network_cards_than_a_type_has_rule_it_out() -> None:
    ec2 = await provided()
    cards = tuple(
        NetworkInterface(network_card_index=at, device_index=0 if at == 0 else 1, interface_type=kind)
        for at, kind in enumerate(("interface", *["efa-only"] * 5))
    )
    await ec2.apply(network_interfaces=cards)
    assert not await ec2.offerings("m5.large")
    assert await ec2.offerings("p5.48xlarge")


@pytest.mark.spec("aws-162")
@virtual
async def test_another_way_of_looking_is_another_list_and_the_same_way_the_same() -> None:
    ec2 = await provided()
    seen = [await ec2.cloud.list_instance_types(ec2.pool)]
    volume = BlockDeviceMapping(device_name="/dev/xvda", ebs=BlockDevice(volume_size="50Gi"))
    changes: tuple[dict[str, Any], ...] = (
        {"kubelet": KubeletConfiguration(max_pods=10)},
        {"block_device_mappings": (volume,)},
        {"instance_store_policy": "RAID0"},
        {"ami_selector_terms": BOTTLEROCKET},
    )
    for change in changes:
        await ec2.apply(**change)
        seen.append(await ec2.cloud.list_instance_types(ec2.pool))
    ec2.change(amis=ec2.node_class.status.amis[:1])
    seen.append(await ec2.cloud.list_instance_types(ec2.pool))
    ec2.change(subnets=ec2.node_class.status.subnets[:1])
    seen.append(await ec2.cloud.list_instance_types(ec2.pool))
    assert len({id(each) for each in seen}) == len(seen)
    await ec2.apply(detailed_monitoring=True)
    before = await ec2.cloud.list_instance_types(ec2.pool)
    await ec2.apply(detailed_monitoring=False)
    assert await ec2.cloud.list_instance_types(ec2.pool) is before


@pytest.mark.spec("aws-163")
@virtual
async def test_an_empty_answer_is_believed_and_an_error_is_not() -> None:
    ec2 = await provided()
    for operation in ("DescribeInstanceTypes", "DescribeInstanceTypeOfferings"):
        ec2.aws.refuse("InternalError", operation)
        with pytest.raises(AwsError):
            await ec2.provider.types.refresh()
        assert await ec2.cloud.list_instance_types(ec2.pool)
    ec2.aws.sells = ("x99.large",)  # type: ignore[attr-defined]
    ec2.aws.refuse("InvalidInstanceType", "DescribeInstanceTypes")
    with pytest.raises(AwsError):
        await ec2.provider.types.refresh()
    assert await ec2.cloud.list_instance_types(ec2.pool)
    ec2.provider.types.aws = Nothing(ec2.aws.region)  # type: ignore[assignment]
    await ec2.provider.types.refresh()
    with pytest.raises(Retry, match="EC2 has named none"):
        await ec2.cloud.list_instance_types(ec2.pool)


class Nothing:
    """An EC2 that sells nothing."""

    def __init__(self, region: str) -> None:
        self.region = region

    async def call(self, service: str, operation: str, parameters: object, /, *, retried: bool = True) -> Any:
        return {"InstanceTypes": [], "InstanceTypeOfferings": []}


@virtual
async def test_what_ec2_sells_anew_is_seen_after_the_next_refresh() -> None:
    ec2 = await provided(types=("m5.large",))
    first = await ec2.cloud.list_instance_types(ec2.pool)
    await ec2.provider.types.refresh()
    assert await ec2.cloud.list_instance_types(ec2.pool) is first, (
        "nothing is worked out anew for the same answer"
    )
    ec2.aws.sells = ("m5.large", "m5.xlarge")  # type: ignore[attr-defined]
    await ec2.provider.types.refresh()
    assert [each.name for each in await ec2.cloud.list_instance_types(ec2.pool)] == ["m5.large", "m5.xlarge"]


@virtual
async def test_a_list_that_was_being_made_while_ec2_changed_is_not_kept() -> None:
    ec2 = await provided(types=())
    making = asyncio.create_task(ec2.cloud.list_instance_types(ec2.pool))
    await asyncio.sleep(0)
    ec2.aws.sells = ("m5.large",)  # type: ignore[attr-defined]
    await ec2.provider.types.refresh()
    assert len(await making) > 1000
    assert [each.name for each in await ec2.cloud.list_instance_types(ec2.pool)] == ["m5.large"]


@pytest.mark.spec("aws-164")
@virtual
async def test_memory_is_what_a_node_with_the_same_images_had() -> None:
    ec2 = await provided()
    images, note = ec2.node_class.status.amis, ec2.provider.memory.record_memory
    assert (await ec2.type("m5.large")).capacity["memory"] == Quantity.parse("7577Mi")
    note("m5.large", images, Quantity.parse("7500Mi"))
    assert (await ec2.type("m5.large")).capacity["memory"] == Quantity.parse("7500Mi")
    note("m5.large", images, Quantity.parse("7550Mi"))
    assert (await ec2.type("m5.large")).capacity["memory"] == Quantity.parse("7500Mi")
    assert (await ec2.type("m7i.large")).capacity["memory"] == Quantity.parse("7577Mi")
    ec2.change(amis=images[:1])
    assert (await ec2.type("m5.large")).capacity["memory"] == Quantity.parse("7577Mi")


def overlay(price: str, *names: str, valid: bool = True) -> NodeOverlay:
    status = "True" if valid else "False"
    return NodeOverlay(
        metadata=ObjectMeta(name="price"),
        spec=NodeOverlaySpec(
            requirements=(
                NodeSelectorRequirement(key="node.kubernetes.io/instance-type", operator="In", values=names),
            ),
            price=price,
        ),
        status=NodeOverlayStatus(conditions=(Condition(type="ValidationSucceeded", status=status),)),
    )


@pytest.mark.spec("aws-165")
@virtual
async def test_a_type_without_a_price_is_for_sale_once_a_person_gave_it_one() -> None:
    ec2 = await provided(OVERLAYS)
    ec2.provider.prices._on_demand.pop("m5.large")
    ec2.provider.prices._bundled.pop("m5.large")
    ec2.provider.prices.changes += 1
    assert not await ec2.offerings("m5.large")
    ec2.overlays.put(overlay("0.2", "m5.large", valid=False))
    assert not await ec2.offerings("m5.large")
    ec2.overlays.put(overlay("0.2", "m5.large"))
    assert {each.instance_price for each in await ec2.offerings("m5.large")} == {0.2}
    closed = await provided()
    closed.provider.prices._on_demand.pop("m5.large")
    closed.provider.prices._bundled.pop("m5.large")
    closed.overlays.put(overlay("0.2", "m5.large"))
    assert not await closed.offerings("m5.large")


@pytest.mark.spec("BL-2", "aws-171")
@virtual
async def test_a_price_that_aws_does_not_tell_is_unknown_and_not_nothing() -> None:
    ec2 = await provided()
    block = ec2.aws.reservations.add("m5.large", "us-west-2a", 3, {"team": "x"})
    await ec2.apply(**reserving("x"))
    known = {deal.reserved: deal for deal in (await ec2.type("m5.large")).offerings}
    assert not any(deal.price_unknown for deal in known.values())
    ec2.provider.prices._on_demand.pop("m5.large")
    ec2.provider.prices._spot = {"m5.large": {"us-west-2b": 0.03}}
    ec2.provider.prices._spot_known = True
    ec2.provider.prices.changes += 1
    made = await ec2.type("m5.large")
    found = {(deal.capacity_type, deal.zone[-1]): deal for deal in made.offerings}
    assert [place for place, deal in found.items() if not deal.price_unknown] == [("spot", "b")]
    # Volumes make no price of an unknown one, and what has none cannot be had, but what is paid for already.
    assert {place for place, deal in found.items() if deal.available} == {("spot", "b"), ("reserved", "a")}
    assert {deal.price for place, deal in found.items() if place[0] in ("on-demand", "spot")} == {
        0.0,
        found["spot", "b"].price,
    }
    prices = PriceList.from_offers({"default": (made,)})
    for kind, zone, price in (("on-demand", "a", None), ("spot", "a", None), ("spot", "b", 0.03)):
        place = {"topology.kubernetes.io/zone": f"us-west-2{zone}", "karpenter.sh/capacity-type": kind}
        bought = prices.find_offering("default", {**place, "node.kubernetes.io/instance-type": "m5.large"})
        assert (bought.instance_price if bought is not None else None) == price
    assert found["reserved", "a"].reservation_id == block.id
    assert prices.find_price("default", _label_node(found["reserved", "a"], "m5.large")) is None


def _label_node(deal: Offering, name: str) -> dict[str, str]:
    known = {key: values.only or "" for key, values in deal.requirements.by_key.items()}
    return {**known, "node.kubernetes.io/instance-type": name}


@pytest.mark.spec("aws-166")
@virtual
async def test_a_local_zone_is_a_zone_like_any_other() -> None:
    ec2 = await provided()
    vpc = next(iter(ec2.aws.network.subnets.values())).vpc
    ec2.aws.network.zone_ids["us-west-2-lax-1a"] = "usw2-lax1-az1"
    subnet = ec2.aws.network.add_subnet(vpc, "us-west-2-lax-1a", ec2.aws.network.next_cidr(vpc), {"la": "1"})
    offered = ec2.provider.types._zones
    ec2.provider.types._zones = {**offered, "m5.large": (*offered["m5.large"], "us-west-2-lax-1a")}
    await ec2.apply(subnet_selector_terms=(type(ec2.node_class.spec.subnet_selector_terms[0])(id=subnet.id),))
    assert {each.zone for each in await ec2.offerings("m5.large")} == {"us-west-2-lax-1a"}
    with pytest.raises(InsufficientCapacity, match="us-west-2-lax-1a"):
        await ec2.launched(cpu="1")  # the simulated region has no local zones, but one was asked for
    assert {(each["AvailabilityZone"], each["SubnetId"]) for each in ec2.overrides()} == {
        ("us-west-2-lax-1a", subnet.id)
    }


@pytest.mark.spec("aws-167")
@virtual
async def test_one_type_that_cannot_be_made_fails_the_list_until_it_is_put_right() -> None:
    ec2 = await provided()
    await ec2.apply(kubelet=KubeletConfiguration(eviction_hard={"memory.available": "plenty%"}))
    for _ in range(2):
        with pytest.raises(Retry, match=r"spec\.kubelet"):
            await ec2.cloud.list_instance_types(ec2.pool)
    await ec2.apply(kubelet=KubeletConfiguration(kube_reserved={"memory": "1Gi"}))
    assert (await ec2.type("m5.large")).overhead.kube_reserved["memory"] == Quantity.parse("1Gi")


@virtual
async def test_a_class_without_subnets_has_nothing_to_list() -> None:
    ec2 = await provided()
    ec2.change(subnets=())
    with pytest.raises(Retry, match="no subnets"):
        await ec2.cloud.list_instance_types(ec2.pool)

"""Instances read, listed, ended and tagged; and the partition a node waits for."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclaim import NodeClaim
from dovetail.api.nodeclass import CapacityReservationSelectorTerm, PlacementGroupSelector
from dovetail.aws import AwsError
from dovetail.errors import Gone, Retry
from dovetail.providers.aws.instances import Ec2Instance, instance_id
from support.ec2 import Ec2, provided
from support.stage import sample, virtual

ON_DEMAND = (labels.CAPACITY_TYPE, "In", "on-demand")
A = "us-west-2a"
IN_A = (labels.ZONE, "In", A)
FAILURES = "karpenter_cloudprovider_instance_termination_failures_total"


async def settled(ec2: Ec2, *requirements: tuple[str, ...], name: str = "default-abcde") -> NodeClaim:
    """A claim whose instance EC2 can describe by now."""
    claim, _ = await ec2.launched(ON_DEMAND, *requirements, name=name)
    await asyncio.sleep(60)
    return claim


def asked(ec2: Ec2, operation: str) -> int:
    return len(ec2.asked(operation))


@pytest.mark.parametrize("text", ["", "i-1", "kwok://node", "aws://us-west-2a/i-1"])
def test_a_provider_id_of_another_sort_is_refused(text: str) -> None:
    with pytest.raises(Retry, match="provider ID"):
        instance_id(text)


def test_a_provider_id_leads_to_the_instance() -> None:
    assert instance_id("aws:///us-west-2a/i-0123") == "i-0123"
    assert Ec2Instance("i-1", zone="us-west-2a").provider_id == "aws:///us-west-2a/i-1"


@pytest.mark.spec("aws-205")
@virtual
async def test_ours_are_those_with_both_keys_and_the_cluster_that_are_alive() -> None:
    ec2 = await provided()
    claims = [await settled(ec2, name=f"claim-{n}") for n in range(5)]
    machines = [ec2.aws.get_instance(instance_id(each.status.provider_id)) for each in claims]
    ec2.aws.instances.untag_instance(machines[0], [labels.NODEPOOL])
    ec2.aws.instances.untag_instance(machines[1], [labels.EC2_NODECLASS])
    ec2.aws.instances.tag_instance(machines[2], {labels.EKS_CLUSTER_TAG: "other"})
    machines[3].state = "terminated"
    assert [each.provider_id for each in await ec2.cloud.list()] == [claims[4].status.provider_id]
    machines[4].state = "shutting-down"
    (last,) = await ec2.cloud.list()
    assert last.deleting


@pytest.mark.spec("aws-206")
@virtual
async def test_what_ec2_no_longer_lists_is_forgotten_unless_its_zone_is_shifted_away() -> None:
    ec2 = await provided()
    claim = await settled(ec2, IN_A)
    await ec2.cloud.list()
    before = asked(ec2, "DescribeInstances")
    assert (await ec2.cloud.get(claim.status.provider_id)).provider_id == claim.status.provider_id
    assert asked(ec2, "DescribeInstances") == before, "it was remembered from the list"
    ec2.aws.get_instance(instance_id(claim.status.provider_id)).state = "terminated"
    ec2.shifted.add(ec2.aws.network.zone_ids[A])
    assert len(await ec2.cloud.list()) == 1
    assert await ec2.cloud.get(claim.status.provider_id)
    ec2.shifted.clear()
    assert await ec2.cloud.list() == ()
    with pytest.raises(Gone):
        await ec2.cloud.get(claim.status.provider_id)


@pytest.mark.spec("aws-207")
@virtual
async def test_an_end_that_has_begun_is_not_begun_again() -> None:
    ec2 = await provided()
    claim = await settled(ec2)
    await ec2.cloud.delete(claim)
    assert asked(ec2, "TerminateInstances") == 1
    await ec2.cloud.delete(claim)
    assert asked(ec2, "TerminateInstances") == 1
    await asyncio.sleep(300)
    with pytest.raises(Gone):
        await ec2.cloud.delete(claim)
    assert not ec2.aws.list_running()


@virtual
async def test_an_end_that_fails_is_counted_once_and_tried_again() -> None:
    ec2 = await provided()
    claim = await settled(ec2, IN_A)
    about = {"zone": A, "zone_id": ec2.aws.network.zone_ids[A]}
    before = sample(FAILURES, **about)
    ec2.aws.refuse("UnauthorizedOperation", "TerminateInstances", 2)
    with pytest.raises(AwsError):
        await ec2.cloud.delete(claim)
    assert sample(FAILURES, **about) == before + 1
    await ec2.cloud.delete(claim)
    assert not ec2.aws.list_running()


@pytest.mark.spec("aws-211")
@virtual
async def test_an_open_reservation_is_not_reserved_capacity_and_without_the_gate_none_is() -> None:
    for flags, expected in (((), "reserved"), (("--feature-gates=ReservedCapacity=false",), "on-demand")):
        ec2 = await provided(flags)
        reservation = ec2.aws.reservations.add("m5.large", A, 2, {"team": "x"}, targeted=False)
        await ec2.apply(
            capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(tags={"team": "x"}),)
        )
        _, instance = await ec2.launched((labels.INSTANCE_TYPE, "In", "m5.large"), IN_A)
        machine = ec2.aws.get_instance(instance_id(instance.provider_id))
        machine.capacity_reservation, machine.lifecycle = reservation.id, ""
        machine.capacity_preference = {"CapacityReservationPreference": "capacity-reservations-only"}
        await asyncio.sleep(60)
        (listed,) = await ec2.cloud.list()
        assert listed.labels[labels.CAPACITY_TYPE] == expected
        machine.capacity_preference = {"CapacityReservationPreference": "open"}
        (listed,) = await ec2.cloud.list()
        assert listed.labels[labels.CAPACITY_TYPE] == "on-demand"


@pytest.mark.spec("aws-232")
@virtual
async def test_in_a_zone_that_is_shifted_away_nothing_is_asked_ended_or_tagged() -> None:
    ec2 = await provided()
    claim = await settled(ec2, IN_A)
    instance, zone_id = instance_id(claim.status.provider_id), ec2.aws.network.zone_ids[A]
    about = {"zone": A, "zone_id": zone_id}
    failures = sample(FAILURES, **about)
    instances = ec2.provider.instances
    ec2.shifted.add(zone_id)
    before = asked(ec2, "DescribeInstances")
    with pytest.raises(Retry, match="shifted away"):
        await ec2.cloud.delete(claim)  # nobody has read it yet: it has to be, to know its zone
    assert asked(ec2, "DescribeInstances") == before + 1
    assert (await instances.get(instance, fresh=True)).id == instance
    with pytest.raises(Retry, match="shifted away"):
        await ec2.cloud.delete(claim)
    with pytest.raises(Retry, match="shifted away"):
        await instances.tag_instance(instance, {"a": "b"})
    assert asked(ec2, "DescribeInstances") == before + 1
    assert (asked(ec2, "TerminateInstances"), asked(ec2, "CreateTags")) == (0, 0)
    assert sample(FAILURES, **about) == failures
    ec2.shifted.clear()
    await instances.tag_instance(instance, {"a": "b"})
    assert ec2.aws.get_instance(instance).tags["a"] == "b"


@pytest.mark.spec("aws-232")
@virtual
async def test_an_instance_nobody_has_read_is_tagged_whatever_its_zone() -> None:
    ec2 = await provided()
    claim = await settled(ec2, IN_A)
    ec2.shifted.add(ec2.aws.network.zone_ids[A])
    await ec2.provider.instances.tag_instance(instance_id(claim.status.provider_id), {"a": "b"})
    assert asked(ec2, "CreateTags") == 1


@virtual
async def test_tagging_what_is_gone_says_so() -> None:
    ec2 = await provided()
    with pytest.raises(Gone):
        await ec2.provider.instances.tag_instance("i-0123456789abcdef0", {"a": "b"})


@virtual
async def test_without_its_pool_less_is_known_of_an_instance_but_it_is_listed() -> None:
    ec2 = await provided()
    await settled(ec2, (labels.INSTANCE_TYPE, "In", "m5.large"))
    ec2.pools.drop("default")
    (listed,) = await ec2.cloud.list()
    assert (listed.capacity, labels.INSTANCE_TYPE in listed.labels) == ({}, False)
    assert listed.labels[labels.NODEPOOL] == "default"


@virtual
async def test_the_claim_is_known_by_its_tag() -> None:
    ec2 = await provided()
    claim = await settled(ec2)
    await ec2.provider.instances.tag_instance(
        instance_id(claim.status.provider_id), {labels.NODECLAIM_TAG: claim.name}
    )
    (listed,) = await ec2.cloud.list()
    assert listed.claim == claim.name
    assert listed.created is not None


@pytest.mark.spec("aws-236")
@virtual
async def test_a_node_waits_for_the_partition_ec2_chose() -> None:
    ec2 = await provided(types=("m5.large",))
    await ec2.aws.call(
        "ec2", "CreatePlacementGroup", {"GroupName": "apart", "Strategy": "partition", "PartitionCount": 3}
    )
    await ec2.apply(placement_group_selector=PlacementGroupSelector(name="apart"))
    (hook,) = ec2.cloud.hooks
    plain = ec2.claim()
    assert await hook.settle_claim(plain) == (plain, None)
    key = labels.PLACEMENT_GROUP_PARTITION
    chosen = labelled(plain, {key: "2"})
    assert await hook.settle_claim(chosen) == (chosen, None)
    coming = labelled(plain, {key: ""})
    assert (await hook.settle_claim(coming))[1] is not None, "it has no instance yet"
    claim = await settled(ec2)
    assert claim.labels[key] == ""
    machine = ec2.aws.get_instance(instance_id(claim.status.provider_id))
    machine.placement = {**machine.placement, "PartitionNumber": 0}
    assert (await hook.settle_claim(claim))[1] is not None, "EC2 has not said"
    machine.placement = {**machine.placement, "PartitionNumber": 3}
    done, wait = await hook.settle_claim(claim)
    assert (done.labels[key], wait) == ("3", None)


def labelled(claim: NodeClaim, more: dict[str, str]) -> NodeClaim:
    return replace(claim, metadata=replace(claim.metadata, labels={**claim.labels, **more}))


@virtual
async def test_a_claim_that_names_partitions_gets_the_lowest_by_spelling() -> None:
    ec2 = await provided(types=("m5.large",))
    await ec2.aws.call(
        "ec2", "CreatePlacementGroup", {"GroupName": "apart", "Strategy": "partition", "PartitionCount": 7}
    )
    await ec2.apply(placement_group_selector=PlacementGroupSelector(name="apart"))
    _, instance = await ec2.launched(ON_DEMAND, (labels.PLACEMENT_GROUP_PARTITION, "In", "5", "3"))
    assert instance.labels[labels.PLACEMENT_GROUP_PARTITION] == "3"
    machine = ec2.aws.get_instance(instance_id(instance.provider_id))
    assert machine.placement["PartitionNumber"] == 3


@virtual
async def test_those_who_ask_for_all_instances_at_once_share_an_answer_no_older_than_their_question() -> None:
    ec2 = await provided()
    await settled(ec2)
    ec2.aws.faults.latency = (1.0, 1.0)
    before = asked(ec2, "DescribeInstances")
    first = asyncio.create_task(ec2.cloud.list())
    await asyncio.sleep(0.5)
    later = [asyncio.create_task(ec2.cloud.list()) for _ in range(20)]
    later[0].cancel()
    assert len(await first) == 1
    assert {len(found) for found in await asyncio.gather(*later[1:])} == {1}
    assert asked(ec2, "DescribeInstances") == before + 2
    ec2.aws.faults.latency = (0.0, 0.0)
    ec2.aws.refuse("UnauthorizedOperation", "DescribeInstances")
    with pytest.raises(AwsError):
        await ec2.cloud.list()
    assert len(await ec2.cloud.list()) == 1

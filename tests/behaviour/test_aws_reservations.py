"""Capacity reservations: which a class sees, what is left in them, and what happens when they end."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.meta import ObjectMeta
from dovetail.api.nodeclass import EC2NodeClass, EC2NodeClassSpec, PlacementGroupSelector
from dovetail.providers.aws.capacity_reservations import CapacityReservationProvider, read_reservation
from dovetail.providers.aws.placement_groups import PlacementGroupProvider
from dovetail.sim.aws import SimulatedAws
from dovetail.sim.aws.ec2.launch_targets import SimReservation
from dovetail.sim.clock import VirtualClock
from support.aws import described, fleet, launched, template
from support.nodeclasses import CLAIMS, NODES, ClassScene, claim_of, node_class
from support.stage import virtual

ZONE = "us-west-2a"
STRANGER = "999988887777"
CAPACITY_TYPE, EXPIRATION = "capacityreservation.capacitytype", "capacityreservation.expiration"


def seen(scene: ClassScene) -> set[str]:
    return {each.id for each in scene.now().status.capacity_reservations}


# What a class selects


@pytest.mark.spec("aws-52")
@virtual
async def test_reservations_are_selected_by_id_tags_owner_and_criteria() -> None:
    async with ClassScene().still() as scene:
        add = scene.aws.reservations.add
        ours = add("m5.large", ZONE, 1, {"a": "1"})
        open_ = add("m5.large", ZONE, 1, {"a": "1"}, targeted=False)
        theirs = add("m5.large", ZONE, 1, {"a": "1"}, owner=STRANGER, targeted=False)
        other = add("m5.large", ZONE, 1, {"b": "1"})
        cases: list[tuple[dict[str, Any], list[SimReservation]]] = [
            ({"id": other.id}, [other]),
            ({"tags": {"a": "1"}}, [ours, open_, theirs]),
            ({"tags": {"a": "1"}, "ownerID": STRANGER}, [theirs]),
            ({"instanceMatchCriteria": "targeted"}, [ours, other]),
            ({"instanceMatchCriteria": "open", "tags": {"a": "*"}}, [open_, theirs]),
            ({"instanceMatchCriteria": "open", "tags": {"a": "1"}, "ownerID": STRANGER}, [theirs]),
        ]
        scene.apply(node_class())
        await scene.resolve()
        assert seen(scene) == set()
        for term, found in cases:
            scene.change(capacityReservationSelectorTerms=[term])
            await scene.resolve()
            assert seen(scene) == {each.id for each in found}, term
        listed = [each.id for each in scene.now().status.capacity_reservations]
        assert listed == sorted(listed)
        scene.change(capacityReservationSelectorTerms=[{"id": "cr-00000000000000000"}, {"id": ours.id}])
        await scene.resolve()
        assert seen(scene) == {ours.id}


@pytest.mark.spec("aws-53")
@virtual
async def test_reservations_that_are_over_are_not_there() -> None:
    async with ClassScene().still() as scene:
        now = scene.clock.now()
        scene.aws.reservations.add("m5.large", ZONE, 1, {"a": "1"}).cancelled = True
        soon = scene.aws.reservations.add("m5.large", ZONE, 1, {"a": "1"}, ends=now + timedelta(seconds=20))
        scene.apply(node_class(capacityReservationSelectorTerms=[{"tags": {"a": "1"}}]))
        result = await scene.resolve()
        assert seen(scene) == {soon.id}
        assert result.after is not None
        assert timedelta() < result.after <= timedelta(seconds=20)  # looked at again when it ends
        await scene.pass_(21)  # the answer EC2 gave is still remembered
        await scene.resolve()
        assert seen(scene) == set()
        assert scene.says("CapacityReservationsReady")[0] == "True"


@pytest.mark.spec("aws-54")
@virtual
async def test_a_capacity_block_expires_forty_minutes_before_its_end() -> None:
    async with ClassScene().still() as scene:
        ends = scene.clock.now() + timedelta(minutes=60)
        block = scene.aws.reservations.add(
            "p5.48xlarge", ZONE, 1, {"a": "1"}, kind="capacity-block", ends=ends
        )
        plain = scene.aws.reservations.add("m5.large", ZONE, 1, {"a": "1"}, ends=ends)
        scene.apply(node_class(capacityReservationSelectorTerms=[{"tags": {"a": "1"}}]))

        async def states() -> dict[str, str]:
            await scene.resolve()
            return {each.id: each.state for each in scene.now().status.capacity_reservations}

        assert await states() == {block.id: "active", plain.id: "active"}
        await scene.pass_((ends - timedelta(minutes=40) - scene.clock.now()).total_seconds() - 0.01)
        assert await states() == {block.id: "active", plain.id: "active"}
        await scene.pass_(0.01)
        assert await states() == {block.id: "expiring", plain.id: "active"}


@pytest.mark.spec("aws-55")
@virtual
async def test_what_ec2_leaves_unsaid_has_a_default_and_what_nobody_knows_is_left_out() -> None:
    now = VirtualClock().now()
    answer = {"CapacityReservationId": "cr-1", "InstanceMatchCriteria": "open", "InstanceType": "m5.large"}
    found = read_reservation(answer, now)
    assert found is not None
    assert (found.interruptible, found.reservation_type, found.state) == (False, "default", "active")
    assert read_reservation({**answer, "ReservationType": "lunar"}, now) is None
    assert read_reservation({**answer, "InstanceMatchCriteria": "closed"}, now) is None


# What is left in them


@virtual
async def test_launches_and_ends_are_counted_until_ec2_counts_again() -> None:
    clock = VirtualClock()
    aws = SimulatedAws(clock, 0)
    made = aws.reservations.add("m5.large", ZONE, 2)
    reservations = CapacityReservationProvider(aws, clock)
    assert reservations.count_available(made.id) == 0  # never heard of
    await reservations.list_by_id([made.id])
    assert reservations.count_available(made.id) == 2
    reservations.mark_launched(made.id, clock.now() - timedelta(seconds=1))
    assert reservations.count_available(made.id) == 2  # EC2 counted after that launch
    await clock.sleep(1)
    for left in (1, 0, 0):
        reservations.mark_launched(made.id, clock.now())
        assert reservations.count_available(made.id) == left
    reservations.mark_terminated(made.id)
    assert reservations.count_available(made.id) == 1
    reservations.mark_unavailable(made.id)
    assert reservations.count_available(made.id) == 0
    await clock.sleep(61)
    await reservations.list_by_id([made.id])
    assert reservations.count_available(made.id) == 2
    await clock.sleep(24 * 3600 + 1)
    assert reservations.count_available(made.id) == 0


# What happens to nodes


async def instance(scene: ClassScene) -> str:
    """An on-demand machine; its provider ID."""
    await template(scene.aws)
    tags = {
        labels.NODEPOOL: "default",
        labels.EC2_NODECLASS: "default",
        labels.EKS_CLUSTER_TAG: scene.settings.cluster_name,
    }
    (found,) = launched(await fleet(scene.aws, zones=(ZONE,), tags=tags))
    await scene.pass_(60)
    (machine,) = await described(scene.aws, found)
    return f"aws:///{machine['Placement']['AvailabilityZone']}/{found}"


RESERVED = {
    labels.CAPACITY_TYPE: "reserved",
    labels.CAPACITY_RESERVATION_ID: "cr-1",
    labels.CAPACITY_RESERVATION_TYPE: "default",
    labels.CAPACITY_RESERVATION_INTERRUPTIBLE: "false",
    labels.REGISTERED: "true",
}


def claim_on(scene: ClassScene, provider_id: str, known: dict[str, str]) -> None:
    scene.apply(claim_of(labels=known))
    status = {"providerID": provider_id}
    scene.api.patch(CLAIMS, "claim", {"status": status}, subresource="status")


def node_on(scene: ClassScene, provider_id: str, known: dict[str, str]) -> None:
    scene.apply(
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "node", "labels": known},
            "spec": {"providerID": provider_id},
        }
    )


def marks(scene: ClassScene, resource: str, name: str) -> dict[str, str]:
    """The labels about capacity of an object."""
    known = scene.api.get(resource, name)["metadata"]["labels"]
    return {key: value for key, value in known.items() if key in RESERVED and key != labels.REGISTERED}


BOUGHT = {labels.CAPACITY_TYPE: "on-demand", labels.CAPACITY_RESERVATION_INTERRUPTIBLE: "false"}


@pytest.mark.spec("aws-234")
@virtual
async def test_what_became_of_a_reserved_instance_is_told_by_claim_and_node() -> None:
    async with ClassScene().still() as scene:
        provider_id = await instance(scene)
        claim_on(scene, provider_id, RESERVED)
        node_on(scene, provider_id, RESERVED)
        result = await scene.look(CAPACITY_TYPE)
        assert result.after == timedelta(minutes=1)
        assert marks(scene, CLAIMS, "claim") == BOUGHT
        assert marks(scene, NODES, "node") == BOUGHT


@pytest.mark.spec("aws-234")
@virtual
async def test_a_node_an_earlier_pass_did_not_get_to_follows_its_claim() -> None:
    async with ClassScene().still() as scene:
        provider_id = await instance(scene)
        claim_on(scene, provider_id, {labels.CAPACITY_TYPE: "on-demand"})
        node_on(scene, provider_id, RESERVED)
        await scene.look(CAPACITY_TYPE)
        assert marks(scene, NODES, "node") == BOUGHT


@virtual
async def test_a_label_somebody_else_is_writing_is_tried_again_at_once() -> None:
    async with ClassScene().still() as scene:
        claim_on(scene, await instance(scene), RESERVED)
        await scene.heard()
        controller = scene.controller(CAPACITY_TYPE)
        scene.api.patch(CLAIMS, "claim", {"metadata": {"annotations": {"a": "b"}}})
        assert (await controller.reconcile("")).again  # not heard of the other write yet
        assert not (await scene.look(CAPACITY_TYPE)).again
        assert marks(scene, CLAIMS, "claim") == BOUGHT


@pytest.mark.spec("aws-235")
@virtual
async def test_nodes_leave_a_capacity_block_before_it_ends() -> None:
    async with ClassScene().still() as scene:
        ends = scene.clock.now() + timedelta(minutes=41)
        block = scene.aws.reservations.add("p5.48xlarge", ZONE, 1, kind="capacity-block", ends=ends)
        plain = scene.aws.reservations.add("m5.large", ZONE, 1, ends=ends)
        for name, made in (("block", block), ("plain", plain)):
            scene.apply(claim_of(name, labels={**RESERVED, labels.CAPACITY_RESERVATION_ID: made.id}))
        assert (await scene.look(EXPIRATION)).after == timedelta(minutes=1)
        assert scene.has(CLAIMS, "block")
        await scene.pass_(61)
        await scene.look(EXPIRATION)
        assert not scene.has(CLAIMS, "block")
        assert scene.has(CLAIMS, "plain")


# Placement groups, which are remembered the same way


@pytest.mark.spec("aws-237")
@virtual
async def test_a_group_is_remembered_while_ec2_cannot_say() -> None:
    clock = VirtualClock()
    aws = SimulatedAws(clock, 0)
    group = aws.placement_groups.add("spread", "partition", 3)
    groups = PlacementGroupProvider(aws, clock)

    def wanting(name: str | None) -> EC2NodeClass:
        selector = PlacementGroupSelector(name=name) if name else None
        spec = EC2NodeClassSpec(placement_group_selector=selector)
        return EC2NodeClass(metadata=ObjectMeta(name="c", uid="1"), spec=spec)

    found, error = await groups.find_group(wanting("spread"))
    assert error is None
    assert found is not None
    assert (found.id, found.partition_names) == (group.id, ("1", "2", "3"))
    await clock.sleep(61)
    aws.refuse("InternalError", "DescribePlacementGroups", times=None)
    stale, error = await groups.find_group(wanting("spread"))
    assert stale == found
    assert error is not None
    assert error.code == "InternalError"
    other, error = await groups.find_group(wanting("other"))
    assert other is None
    assert error is not None
    assert await groups.find_group(wanting(None)) == (None, None)
    assert groups.find_known_group(wanting(None)) is None
    assert groups.find_known_group(wanting("spread")) == found
    await clock.sleep(24 * 3600)
    assert groups.find_known_group(wanting("spread")) is None

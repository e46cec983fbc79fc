"""The provider as a whole: what it needs before it starts, and what it says of itself."""

from __future__ import annotations

import asyncio
import gc
import sys
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from dovetail.api import labels
from dovetail.api.nodeclass import CapacityReservationSelectorTerm
from dovetail.aws.boto import BotoAws
from dovetail.errors import Misconfigured, Retry
from dovetail.providers import factory
from dovetail.providers.aws.cloud import REPAIR_POLICIES
from dovetail.providers.aws.provider import AwsProvider
from support.aws_world import AwsWorld
from support.builders import nodepool
from support.ec2 import CLASS_REF, provided
from support.stage import virtual

OURS = {
    "nodeclass",
    "nodeclass.hash",
    "instanceprofile.garbagecollection",
    "capacityreservation.capacitytype",
    "capacityreservation.expiration",
    "providers.instancetype.capacity",
    "providers.ssm.invalidation",
    "providers.version",
}


@virtual
async def test_the_provider_calls_itself_aws_and_knows_its_class() -> None:
    ec2 = await provided()
    assert (ec2.cloud.name, ec2.cloud.flavour) == ("aws", labels.AWS)
    assert [kind.kind for kind in ec2.cloud.node_classes] == ["EC2NodeClass"]


def test_conditions_that_end_a_node_are_upstreams() -> None:
    half, ten = timedelta(minutes=30), timedelta(minutes=10)
    assert [(each.condition, each.status, each.toleration) for each in REPAIR_POLICIES] == [
        ("Ready", "False", half),
        ("Ready", "Unknown", half),
        ("AcceleratedHardwareReady", "False", ten),
        ("StorageReady", "False", half),
        ("NetworkingReady", "False", half),
        ("KernelReady", "False", half),
        ("ContainerRuntimeReady", "False", half),
    ]


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("DescribeCluster", "set CLUSTER_ENDPOINT"),
        ("DescribeInstanceTypeOfferings", "allow ec2:DescribeInstanceTypes and"),
    ],
)
def test_what_cannot_be_had_at_the_start_is_one_sentence_with_advice(operation: str, words: str) -> None:
    @virtual
    async def story() -> None:
        ec2 = await provided()
        again = AwsProvider(ec2.provider.given, ec2.aws)
        ec2.aws.refuse("AccessDeniedException", operation, None)
        with pytest.raises(Misconfigured) as failed:
            await again.prepare()
        said = str(failed.value)
        assert said.startswith("starting the aws provider: ")
        assert words in said
        assert "\n" not in said

    story()


@virtual
async def test_trouble_that_passes_does_not_keep_the_provider_from_starting() -> None:
    ec2 = await provided()
    for operation, times in (("DescribeInstanceTypes", 2), ("DescribeInstanceTypeOfferings", 2)):
        ec2.aws.refuse("RequestLimitExceeded", operation, times)
    again = AwsProvider(ec2.provider.given, ec2.aws)
    await again.prepare()
    assert again.types.all_facts
    ec2.aws.refuse("RequestLimitExceeded", "DescribeInstanceTypes", None)
    began = ec2.clock.monotonic()
    with pytest.raises(Misconfigured, match="RequestLimitExceeded"):
        await AwsProvider(ec2.provider.given, ec2.aws).prepare()
    assert ec2.clock.monotonic() - began == 15


@virtual
async def test_one_look_around_tells_prices_and_free_reservations() -> None:
    ec2 = await provided()
    ec2.aws.reservations.add("m5.large", "us-west-2a", 3, {"team": "x"})
    await ec2.apply(
        capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(tags={"team": "x"}),)
    )
    once = AwsProvider(ec2.provider.given, ec2.aws)
    await once.prepare()
    await once.look_around()
    found = next(each for each in await once.cloud.list_instance_types(ec2.pool) if each.name == "m5.large")
    offered = [each for each in found.offerings if each.available]
    assert len([each for each in offered if each.reserved]) == 1
    assert len({each.price for each in offered}) > 2, "spot has a price of its own in each zone"
    ec2.aws.faults.hang_requests("GetProducts", None)
    began = ec2.clock.monotonic()
    assert once.list_assumptions() == ()
    late = AwsProvider(ec2.provider.given, ec2.aws)
    await late.look_around()
    assert ec2.clock.monotonic() - began == 20
    (said,) = late.list_assumptions()
    assert said.startswith("AWS does not tell on-demand prices here")


@virtual
async def test_a_look_around_that_is_interrupted_leaves_no_complaint() -> None:
    """Whoever ends `dovetail dashboard` with Ctrl-C while it looks for the first time sees nothing of it."""
    ec2 = await provided()
    ec2.aws.faults.hang_requests("GetProducts", None)
    complaints: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
    looking = asyncio.create_task(AwsProvider(ec2.provider.given, ec2.aws).look_around())
    await ec2.clock.sleep(1)
    looking.cancel()
    await asyncio.wait([looking])
    assert looking.cancelled()
    del looking
    gc.collect()
    assert complaints == []


def test_without_the_sdk_one_sentence_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "dovetail.aws.boto", raising=False)

    @virtual
    async def story() -> None:
        given = (await provided()).provider.given
        with pytest.raises(Misconfigured, match=r"pip install dovetail\[aws\]"):
            factory.choose_provider("aws")(given)

    story()


@virtual
async def test_a_pool_without_its_class_has_no_types_and_somebody_is_told() -> None:
    ec2 = await provided()
    elsewhere = replace(CLASS_REF, name="elsewhere")
    with pytest.raises(Retry, match="no EC2NodeClass elsewhere"):
        await ec2.cloud.list_instance_types(nodepool("other", node_class=elsewhere))
    assert ec2.noted.events[-1][:2] == ("other", "FailedResolvingNodeClass")


@virtual
async def test_every_controller_of_the_provider_runs_once() -> None:
    names = [each.name for each in AwsWorld().dovetail.controllers]
    assert set(names) >= OURS
    assert len(names) == len(set(names))


@virtual
async def test_closing_lets_go_of_what_holds_threads() -> None:
    ec2 = await provided()
    closed: list[bool] = []
    AwsProvider(ec2.provider.given, ec2.aws, on_close=lambda: closed.append(True)).close()
    assert closed == [True]


@virtual
async def test_a_provider_that_opened_aws_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    ec2 = await provided()
    closed: list[BotoAws] = []
    monkeypatch.setattr(BotoAws, "close", lambda aws: closed.append(aws))
    made = factory.choose_provider("aws", factory.AwsReach("us-east-2", "http://127.0.0.1:9"))(
        ec2.provider.given
    )
    assert isinstance(made, AwsProvider)
    made.close()
    assert closed == [made.aws]

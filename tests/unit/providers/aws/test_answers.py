"""One item of AWS's answers that is not as it should be is left out; what else was answered counts."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest

from dovetail.api import labels
from dovetail.api.nodeclass import CapacityReservationSelectorTerm
from dovetail.aws import Answer
from support.ec2 import Ec2, Shop, provided
from support.stage import sample, virtual

UNREADABLE = "dovetail_aws_unreadable_items_total"
BAD: Mapping[str, tuple[str, Any]] = {
    "DescribeInstanceTypes": ("InstanceTypes", {"InstanceType": "x9.huge", "VCpuInfo": "many"}),
    "DescribeSpotPriceHistory": ("SpotPriceHistory", {"SpotPrice": "0.1", "Timestamp": 1}),
    "GetProducts": ("PriceList", "{"),
    "DescribeImages": ("Images", {"ImageId": "ami-1", "Architecture": "x86_64", "CreationDate": "yesterday"}),
    "DescribeCapacityReservations": ("CapacityReservations", {"EndDate": "never"}),
}


def spoil(ec2: Ec2, operation: str, items: str, bad: Any) -> None:
    """From now on the first item of the operation's answers is this one."""
    assert isinstance(ec2.aws, Shop)
    ask = ec2.aws.call

    async def call(service: str, asked: str, parameters: Any, /, *, retried: bool = True) -> Answer:
        answer = await ask(service, asked, parameters, retried=retried)
        return {**answer, items: [bad, *answer[items]]} if asked == operation else answer

    ec2.aws.call = call  # type: ignore[method-assign]


@pytest.mark.parametrize("operation", sorted(BAD))
@virtual
async def test_an_item_that_cannot_be_read_is_left_out_and_counted(operation: str) -> None:
    ec2 = await provided()
    ends = ec2.clock.now() + timedelta(days=1)
    ec2.aws.reservations.add("m5.large", "us-west-2a", 2, {"team": "x"}, ends=ends)
    spoil(ec2, operation, *BAD[operation])
    before = sample(UNREADABLE, operation=operation)
    await ec2.provider.types.refresh()
    await ec2.provider.prices.refresh()
    await ec2.apply(
        capacity_reservation_selector_terms=(CapacityReservationSelectorTerm(tags={"team": "x"}),),
        tags={"again": "asked"},
    )
    assert sample(UNREADABLE, operation=operation) > before
    assert ec2.node_class.status.amis
    assert ec2.node_class.status.capacity_reservations
    assert await ec2.offerings("m5.large")
    _, instance = await ec2.launched((labels.INSTANCE_TYPE, "In", "m5.large"))
    assert instance.provider_id


@virtual
async def test_an_instance_that_can_no_longer_be_read_is_still_there() -> None:
    ec2 = await provided()
    _, first = await ec2.launched((labels.INSTANCE_TYPE, "In", "m5.large"))
    await ec2.clock.sleep(60)
    await ec2.cloud.list()
    (machine,) = ec2.aws.list_running()
    reservation = {"Instances": [{"InstanceId": machine.id, "Tags": [None]}, {"State": {}}]}
    ask = ec2.aws.call

    async def call(service: str, asked: str, parameters: Any, /, *, retried: bool = True) -> Answer:
        if asked == "DescribeInstances":
            return {"Reservations": [reservation]}
        return await ask(service, asked, parameters, retried=retried)

    ec2.aws.call = call  # type: ignore[method-assign]
    assert [each.provider_id for each in await ec2.cloud.list()] == [first.provider_id]
